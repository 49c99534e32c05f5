/* Clusters made of what drivers say of machines (tests/machine/NAME.json): which cards, and how they reach each other.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "plan/machine.h"
#include "plan/transport.h"
#include "tests/suite.h"

static plan_catalogue catalogue;
static dp_arena arena;
static dp_document facts, document;
static plan_machine machine;
static plan_cluster cluster;
static dp_str toml;

static void setup(void) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(plan_catalogue_read(NULL, &catalogue, &error) == DP_OK, "%s", error.text);
}

static void clear(void) {
  plan_cluster_free(&cluster);
  dp_document_free(&document);
  dp_document_free(&facts);
  dp_str_free(&toml);
  dp_arena_free(&arena);
}

static void teardown(void) {
  clear();
  plan_catalogue_free(&catalogue);
}

static void load(const char *name) {
  const char *top = getenv("SRCDIR");
  char path[1024];
  dp_error error = DP_ERROR_INIT;
  clear();
  (void)snprintf(path, sizeof path, "%s/tests/machine/%s.json", top ? top : ".", name);
  ck_assert_msg(plan_machine_read(path, &facts, &arena, &machine, &error) == DP_OK, "%s", error.text);
}

static void make(const char *name) {
  dp_error error = DP_ERROR_INIT;
  load(name);
  ck_assert_msg(plan_machine_cluster(&machine, &catalogue, &toml, &error) == DP_OK, "%s", error.text);
  ck_assert_msg(dp_document_parse_toml(toml.text, toml.length, name, &document, &error) == DP_OK, "%s", error.text);
  ck_assert_msg(dp_schema_check_format(document.root, "diffpipe-cluster", 1, &error) == DP_OK, "%s", error.text);
  ck_assert_msg(plan_cluster_build(document.root, &catalogue, &cluster, &error) == DP_OK, "%s\n%s", error.text,
                toml.text);
}

/* The class of the slowest link between two cards, its GB/s, and how many links the way has. */
static void assert_way(int from, int to, const char *class, double gb_per_s, int links, bool peers) {
  plan_route route;
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(plan_cluster_route(&cluster, from, to, &route, &error) == DP_OK, "%s", error.text);
  ck_assert_msg(strcmp(route.limiting->name, class) == 0 &&
                    fabs(route.bandwidth_bytes_per_s / 1e9 - gb_per_s) < 1e-6 * gb_per_s && route.count == links,
                "%d to %d: %s, %g GB/s, %d links, expected %s, %g, %d\n%s", from, to, route.limiting->name,
                route.bandwidth_bytes_per_s / 1e9, route.count, class, gb_per_s, links, toml.text);
  ck_assert_int_eq(plan_devices_are_peers(&cluster, from, to), peers);
}

static void assert_cards(const char *model, size_t count, int64_t memory_bytes) {
  ck_assert_uint_eq(cluster.devices.count, count);
  for (size_t d = 0; d < count; d++) {
    ck_assert_str_eq(cluster.devices.items[d].model->name, model);
    ck_assert_int_eq(cluster.devices.items[d].memory_bytes, memory_bytes);
  }
}

START_TEST(one_card) {
  make("1xh200");
  assert_cards("H200-SXM-141GB", 1, 150100000000);
  ck_assert_double_eq(cluster.power_w, 700);
}
END_TEST

START_TEST(two_cards_of_one_switch) {
  make("2xh200");
  assert_cards("H200-SXM-141GB", 2, 150100000000);
  assert_way(0, 1, "nvlink4", 397, 2, true);
}
END_TEST

START_TEST(eight_cards_of_one_switch) {
  make("8xh100");
  assert_cards("H100-SXM5-80GB", 8, 85000000000);
  for (int a = 0; a < 8; a++)
    for (int b = 0; b < 8; b++)
      if (a != b) assert_way(a, b, "nvlink4", 397, 2, true);
}
END_TEST

/* Cards of one root complex meet there, those of two over the link between the sockets. */
START_TEST(four_cards_on_two_root_complexes) {
  make("4xa100-pcie");
  assert_cards("A100-PCIe-80GB", 4, 85300000000);
  assert_way(0, 1, "pcie4-x16", 24, 3, true);
  assert_way(2, 3, "pcie4-x16", 24, 3, true);
  assert_way(1, 2, "socket-amd", 16, 5, true);
}
END_TEST

START_TEST(slots_of_eight_lanes_without_peer_access) {
  make("4xrtx4090");
  assert_cards("RTX-4090", 4, 25200000000);
  assert_way(0, 3, "pcie4-x8-host", 10.6, 4, false);
  ck_assert_double_eq(cluster.devices.items[0].tdp_w, 350);
}
END_TEST

START_TEST(bridges_join_pairs) {
  make("4xrtx3090-bridges");
  assert_way(0, 1, "nvlink3-bridge-rtx", 48, 1, true);
  assert_way(3, 2, "nvlink3-bridge-rtx", 48, 1, true);
  assert_way(1, 2, "pcie4-x16-host", 21.2, 4, false);
}
END_TEST

START_TEST(a_mesh_shares_the_ports) {
  make("4xa100-mesh");
  for (int b = 1; b < 4; b++) assert_way(0, b, "nvlink3", 240.0 * 4 / 12, 1, true);
}
END_TEST

START_TEST(a_cube_has_single_and_double_links) {
  make("8xv100-cube");
  assert_way(0, 1, "nvlink2", 120.0 / 6, 1, true);
  assert_way(0, 3, "nvlink2", 120.0 / 3, 1, true);
  assert_way(2, 6, "nvlink2", 120.0 / 6, 1, true);
  assert_way(6, 7, "nvlink2", 120.0 / 3, 1, true);
  assert_way(0, 5, "socket-intel-skl", 10, 7, false); /* no NVLink: a route passes through no card */
}
END_TEST

/* Below a root complex two switches, or one with two below it; the last two cards are of another kind. */
START_TEST(switches_nest) {
  make("switches");
  ck_assert_str_eq(cluster.devices.items[5].model->name, "L40S");
  ck_assert_str_eq(cluster.devices.items[6].model->name, "L4");
  assert_way(0, 1, "pcie4-x16", 24, 2, true);
  assert_way(1, 2, "pcie4-x16", 24, 5, true);
  assert_way(4, 5, "pcie4-x16", 24, 2, true);
  assert_way(5, 6, "pcie4-x16", 24, 4, true);
  assert_way(3, 4, "socket-amd", 16, 8, true);
}
END_TEST

/* Some links down: the port carries less. */
START_TEST(links_that_are_down_count) {
  load("2xh200");
  ((plan_machine_gpu *)machine.gpus)[1].switch_nvlinks = 9;
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(plan_machine_cluster(&machine, &catalogue, &toml, &error), DP_OK);
  ck_assert_msg(strstr(toml.text, "kind = \"nvswitch\"\n  bandwidth_gb_per_s = 198.5\n") != NULL, "%s", toml.text);
}
END_TEST

START_TEST(an_sxm_board_without_links_has_only_pcie) {
  load("2xh200");
  for (int g = 0; g < 2; g++) ((plan_machine_gpu *)machine.gpus)[g].switch_nvlinks = 0;
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(plan_machine_cluster(&machine, &catalogue, &toml, &error), DP_OK);
  ck_assert_ptr_nonnull(strstr(toml.text, "interconnect = \"pcie\"\n"));
  ck_assert_ptr_null(strstr(toml.text, "nvlink"));
}
END_TEST

START_TEST(names_become_cards) {
  static const struct {
    const char *name;
    int64_t mib, capability;
    const char *model; /* NULL: none */
  } cases[] = {
      {"NVIDIA H200", 143771, 90, "H200-SXM-141GB"},
      {"NVIDIA H200 NVL", 143771, 90, NULL},
      {"NVIDIA H100 80GB HBM3", 81559, 90, "H100-SXM5-80GB"},
      {"NVIDIA H100 PCIe", 81559, 90, "H100-PCIe-80GB"},
      {"NVIDIA H100 NVL", 95830, 90, "H100-NVL-94GB"},
      {"NVIDIA H20", 97871, 90, "H20-96GB"},
      {"NVIDIA GH200 480GB", 97871, 90, "GH200-96GB"},
      {"NVIDIA GH200 144G HBM3e", 146831, 90, "GH200-141GB"},
      {"NVIDIA A100-SXM4-80GB", 81920, 80, "A100-SXM4-80GB"},
      {"NVIDIA A100-SXM4-40GB", 40960, 80, "A100-SXM4-40GB"},
      {"NVIDIA A100-PCIE-40GB", 40960, 80, "A100-PCIe-40GB"},
      {"NVIDIA A100 80GB PCIe", 81920, 80, "A100-PCIe-80GB"},
      {"Tesla V100-SXM2-32GB", 32768, 70, "V100-SXM2-32GB"},
      {"Tesla V100-SXM2-16GB", 16384, 70, NULL},
      {"NVIDIA GeForce RTX 4090", 24564, 89, "RTX-4090"},
      {"NVIDIA GeForce RTX 3090", 24576, 86, "RTX-3090"},
      {"NVIDIA GeForce RTX 3090 Ti", 24564, 86, NULL},
      {"NVIDIA GeForce RTX 5090", 32607, 120, "RTX-5090"},
      {"NVIDIA RTX A6000", 49140, 86, "RTX-A6000"},
      {"NVIDIA RTX 6000 Ada Generation", 49140, 89, NULL},
      {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, 120, "RTX-PRO-6000-Blackwell-WS"},
      {"NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 120, "RTX-PRO-6000-Blackwell-Server"},
      {"NVIDIA L4", 23034, 89, "L4"},
      {"NVIDIA L40S", 46068, 89, "L40S"},
      {"NVIDIA L40", 46068, 89, "L40"},
      {"NVIDIA A10", 23028, 86, "A10"},
      {"NVIDIA A10G", 23028, 86, NULL},
      {"NVIDIA A40", 46068, 86, "A40"},
      {"NVIDIA B200", 183359, 100, "B200-SXM-180GB"},
      {"NVIDIA GB200", 189471, 100, "GB200-186GB"},
      {"NVIDIA H100 80GB HBM3", 81559, 80, NULL}, /* an H100 is sm90 */
      {"NVIDIA", 81559, 80, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const plan_machine_gpu gpu = {
        .name = cases[i].name, .memory_bytes = cases[i].mib << 20, .capability = cases[i].capability};
    const plan_device_model *model = NULL;
    dp_error error = DP_ERROR_INIT;
    const dp_status status = plan_machine_model(&gpu, &catalogue, &model, &error);
    ck_assert_msg(status == (cases[i].model ? DP_OK : DP_BAD_INPUT), "%s: %s", gpu.name,
                  model ? model->name : error.text);
    if (cases[i].model) ck_assert_str_eq(model->name, cases[i].model);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {one_card,
                                two_cards_of_one_switch,
                                eight_cards_of_one_switch,
                                four_cards_on_two_root_complexes,
                                slots_of_eight_lanes_without_peer_access,
                                bridges_join_pairs,
                                a_mesh_shares_the_ports,
                                a_cube_has_single_and_double_links,
                                switches_nest,
                                links_that_are_down_count,
                                an_sxm_board_without_links_has_only_pcie,
                                names_become_cards};
  return suite_run("plan: machine", tests, sizeof tests / sizeof tests[0], setup, teardown, 0);
}
