/* Devices, links, NCCL's cost model, clusters and routes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "plan/cluster.h"
#include "plan/nccl.h"
#include "tests/suite.h"

static plan_catalogue catalogue;
static dp_document document;
static plan_cluster cluster;

static void setup(void) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(plan_catalogue_read(NULL, &catalogue, &error) == DP_OK, "%s", error.text);
}

static void teardown(void) {
  plan_cluster_free(&cluster);
  dp_document_free(&document);
  plan_catalogue_free(&catalogue);
}

static void load(const char *name) {
  dp_error error = DP_ERROR_INIT;
  dp_arena arena = {0};
  const char *path = dp_arena_printf(&arena, "%s/clusters/%s.toml", dp_data_folder(), name);
  plan_cluster_free(&cluster);
  dp_document_free(&document);
  ck_assert_msg(plan_cluster_read(path, &catalogue, &document, &cluster, &error) == DP_OK, "%s", error.text);
  dp_arena_free(&arena);
}

static dp_status build(const char *text, dp_error *error) {
  plan_cluster_free(&cluster);
  dp_document_free(&document);
  const dp_status status = dp_document_parse_toml(text, strlen(text), "c.toml", &document, error);
  return status == DP_OK ? plan_cluster_build(document.root, &catalogue, &cluster, error) : status;
}

static void build_ok(const char *text) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(build(text, &error) == DP_OK, "%s", error.text);
}

static int device_named(const char *name) {
  for (size_t i = 0; i < cluster.devices.count; i++)
    if (strcmp(cluster.devices.items[i].name, name) == 0) return (int)i;
  ck_abort_msg("no device %s", name);
  return -1;
}

static plan_route route_of(const char *from, const char *to) {
  plan_route route;
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(plan_cluster_route(&cluster, device_named(from), device_named(to), &route, &error) == DP_OK, "%s",
                error.text);
  for (int i = 0; i + 1 < route.count; i++) /* a walk, from one device to the other */
    ck_assert_int_eq(cluster.links.items[route.links[i]].to, cluster.links.items[route.links[i + 1]].from);
  ck_assert_int_eq(cluster.links.items[route.links[0]].from, cluster.devices.items[device_named(from)].vertex);
  ck_assert_int_eq(cluster.links.items[route.links[route.count - 1]].to,
                   cluster.devices.items[device_named(to)].vertex);
  return route;
}

/* "a > b, b > c" */
static void assert_route(const char *from, const char *to, const char *expected) {
  const plan_route route = route_of(from, to);
  dp_str text = {0};
  for (int i = 0; i < route.count; i++)
    dp_str_addf(&text, "%s%s", i ? ", " : "", cluster.links.items[route.links[i]].name);
  ck_assert_str_eq(dp_str_text(&text), expected);
  dp_str_free(&text);
}

static int shared(const plan_route *a, const plan_route *b) {
  int count = 0;
  for (int i = 0; i < a->count; i++)
    for (int j = 0; j < b->count; j++) count += a->links[i] == b->links[j];
  return count;
}

static void assert_near(double value, double expected, double tolerance) {
  ck_assert_msg(fabs(value - expected) <= tolerance * fabs(expected), "%.9g, expected %.9g within %g", value, expected,
                tolerance);
}

/* ---- the catalogue ---- */

START_TEST(devices_have_the_published_figures) {
  ck_assert_uint_eq(catalogue.devices.count, 32);
  const plan_device_model *a100 = plan_catalogue_device(&catalogue, "A100-SXM4-80GB");
  ck_assert_int_eq(a100->memory_bytes, 80000000000);
  assert_near(a100->memory_bandwidth_bytes_per_s, 2039e9, 1e-12);
  assert_near(a100->peak_flops_per_s[GRAPH_BF16], 312e12, 1e-12);
  assert_near(a100->peak_flops_per_s[GRAPH_FP32], 19.5e12, 1e-12);
  assert_near(a100->tf32_flops_per_s, 156e12, 1e-12);
  assert_near(a100->achieved_flops_per_s, 271.2e12, 1e-12);
  ck_assert(a100->fp8_flops_per_s == 0);
  ck_assert_int_eq(a100->sm_count, 108);
  ck_assert_int_eq(a100->l2_bytes, 40000000);
  assert_near(a100->nvlink_bytes_per_s, 300e9, 1e-12);
  assert_near(a100->price_usd_per_h, 2.79, 1e-12);
  assert_near(a100->tdp_w, 400, 1e-12);
  ck_assert_str_eq(a100->recalled, "exact 2039");
  ck_assert_ptr_nonnull(strstr(a100->price_source, "8x node 22.32"));
  const plan_device_model *v100 = plan_catalogue_device(&catalogue, "V100-SXM2-32GB");
  ck_assert(v100->peak_flops_per_s[GRAPH_BF16] == 0); /* not supported */
  assert_near(v100->peak_flops_per_s[GRAPH_FP16], 125e12, 1e-12);
  const plan_device_model *gh200 = plan_catalogue_device(&catalogue, "GH200-96GB");
  assert_near(gh200->c2c_bytes_per_s, 450e9, 1e-12);
  ck_assert_int_eq(gh200->nvlink_generation, 4);
  const plan_device_model *l40s = plan_catalogue_device(&catalogue, "L40S");
  ck_assert_int_eq(l40s->nvlink_generation, 0);
  ck_assert_int_eq(l40s->interconnect, PLAN_INTERCONNECT_NONE);
  ck_assert(l40s->peer_to_peer && !plan_catalogue_device(&catalogue, "RTX-4090")->peer_to_peer);
  ck_assert_int_eq(plan_catalogue_device(&catalogue, "A100-PCIe-80GB")->interconnect, PLAN_INTERCONNECT_NVLINK_BRIDGE);
  ck_assert_int_eq(plan_catalogue_device(&catalogue, "MI300X")->interconnect, PLAN_INTERCONNECT_INFINITY_FABRIC);
  ck_assert_ptr_null(plan_catalogue_device(&catalogue, "A100"));
}
END_TEST

START_TEST(every_row_is_plausible) {
  for (size_t i = 0; i < catalogue.devices.count; i++) {
    const plan_device_model *m = &catalogue.devices.items[i];
    ck_assert_msg(m->verified[0] || m->recalled[0], "%s says nothing of its sources", m->name);
    ck_assert_msg(m->price_usd_per_h == 0 || m->price_source[0], "%s", m->name);
    ck_assert_msg(m->achieved_flops_per_s <= m->peak_flops_per_s[GRAPH_BF16], "%s", m->name);
    ck_assert_msg(!m->interconnect_link[0] || plan_catalogue_link(&catalogue, m->interconnect_link), "%s", m->name);
  }
  for (size_t i = 0; i < catalogue.links.count; i++) {
    const plan_link_model *l = &catalogue.links.items[i];
    ck_assert_msg(l->bandwidth_bytes_per_s <= l->theoretical_bytes_per_s, "%s", l->name);
    double before = 0, busy_before = 0;
    for (double bytes = 1; bytes < 1e11;
         bytes *= 1.3) { /* more bytes never take less time, nor busy ends less than idle */
      const double idle = l->latency_s + bytes / (l->bandwidth_bytes_per_s * plan_link_factor(l, bytes));
      const double busy =
          plan_link_busy_latency_s(l) + bytes / (l->bandwidth_bytes_per_s * plan_link_busy_factor(l, bytes));
      ck_assert_msg(idle >= before && busy >= busy_before && busy >= idle - 1e-15, "%s at %g bytes", l->name, bytes);
      before = idle;
      busy_before = busy;
    }
  }
}
END_TEST

/* Cells of the tables that the rows were made from. */
START_TEST(links_reproduce_the_measured_cells) {
  static const struct cell {
    const char *link;
    bool busy;
    double bytes, us, gb_per_s, tolerance;
  } cells[] = {
      {"nvlink4", false, 4096, 1.8, 0, 0.02},
      {"nvlink4", false, 2097152, 8.4, 0, 0.02},
      {"nvlink4", false, 134217728, 0, 393, 0.01},
      {"nvlink4", false, 1073741824, 0, 397, 0.01},
      {"nvlink4", true, 4096, 2.2, 0, 0.02},
      {"nvlink4", true, 2097152, 7.7, 0, 0.16}, /* measured faster than idle: noise that a model should not follow */
      {"nvlink4", true, 134217728, 0, 393, 0.01},
      {"nvlink4", true, 1073741824, 0, 397, 0.01},
      {"nvlink4-nccl", false, 4096, 13, 0, 0.15},
      {"nvlink4-nccl", false, 2097152, 15, 0, 0.15},
      {"nvlink4-nccl", false, 134217728, 0, 351, 0.02},
      {"nvlink4-nccl", false, 1073741824, 0, 370, 0.02},
      {"nvlink4-nccl", true, 4096, 163, 0, 0.02},
      {"nvlink4-nccl", true, 2097152, 303, 0, 0.02},
      {"nvlink4-nccl", true, 134217728, 0, 101, 0.02},
      {"nvlink4-nccl", true, 1073741824, 0, 287, 0.02},
      {"nvlink4-nccl-partition", false, 4096, 16, 0, 0.02},
      {"nvlink4-nccl-partition", false, 134217728, 0, 198, 0.02},
      {"device-copy", false, 1e12, 0, 1854, 0.001},
      {"device-copy", true, 1e12, 0, 392, 0.001},
      {"host-staged", false, 1e12, 0, 27, 0.001},
      {"host-staged", true, 1e12, 0, 25, 0.002},
      {"ib-ndr400", false, 2097152, 0, 18.5, 0.05},
      {"ib-ndr400", false, 4194304, 0, 27, 0.05},
      {"ib-ndr400", false, 8388608, 0, 36, 0.05},
      {"ib-ndr400", false, 16777216, 0, 40, 0.05},
      {"ib-ndr400", false, 33554432, 0, 41, 0.05},
  };
  for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
    const struct cell *c = &cells[i];
    const plan_link_model *l = plan_catalogue_link(&catalogue, c->link);
    ck_assert_msg(l != NULL, "%s", c->link);
    double s = c->busy ? plan_link_busy_latency_s(l) +
                             c->bytes / (l->bandwidth_bytes_per_s * plan_link_busy_factor(l, c->bytes))
                       : l->latency_s + c->bytes / (l->bandwidth_bytes_per_s * plan_link_factor(l, c->bytes));
    if (l->kind == PLAN_LINK_NETWORK) s += plan_catalogue_link(&catalogue, "pcie4-x16")->latency_s; /* to the NICs */
    if (c->us > 0)
      assert_near(s * 1e6, c->us, c->tolerance);
    else
      assert_near(c->bytes / s / 1e9, c->gb_per_s, c->tolerance);
  }
}
END_TEST

/* ---- NCCL ---- */

START_TEST(nccl_matches_hand_worked_times) {
  plan_nccl_query q = {.op = PLAN_NCCL_ALL_REDUCE,
                       .arch = PLAN_NCCL_AMPERE,
                       .intra = PLAN_LINK_NVLINK,
                       .ranks = 8,
                       .nodes = 1,
                       .bus_bytes_per_s = 240e9,
                       .bytes = 1073741824};
  plan_nccl_cost cost;
  /* 8.4 + 14 * 3.4 us; 1 GiB over 240 * 8/14 GB/s */
  const double ring = plan_nccl_time_of_s(catalogue.nccl, &q, PLAN_NCCL_RING, PLAN_NCCL_SIMPLE, &cost);
  assert_near(cost.latency_s, 56e-6, 1e-12);
  assert_near(cost.bandwidth_s, 1073741824 / (240e9 * 8 / 14), 1e-12);
  assert_near(cost.bus_bytes_per_s, 240e9, 1e-12);
  assert_near(ring, 56e-6 + 7.829367e-3, 1e-6);
  ck_assert(plan_nccl_time_s(catalogue.nccl, &q, &cost) <= ring);
  ck_assert_int_eq(cost.algorithm, PLAN_NCCL_RING);
  ck_assert_int_eq(cost.protocol, PLAN_NCCL_SIMPLE);
  /* tree Simple: 8.4 + 2 * 7 * 4.0 us; half of 0.92 * 240 GB/s (12 channels of at most 24 allow 288) */
  (void)plan_nccl_time_of_s(catalogue.nccl, &q, PLAN_NCCL_TREE, PLAN_NCCL_SIMPLE, &cost);
  assert_near(cost.latency_s, 64.4e-6, 1e-12);
  assert_near(cost.bandwidth_s, 1073741824 / (0.5 * 0.92 * 240e9), 1e-12);
  /* few channels bind: 4 * 24 GB/s */
  q.channels = 4;
  (void)plan_nccl_time_of_s(catalogue.nccl, &q, PLAN_NCCL_TREE, PLAN_NCCL_SIMPLE, &cost);
  assert_near(cost.bandwidth_s, 1073741824 / (0.5 * 96e9), 1e-12);
  q.channels = 0;
  /* small: ring LL 6.6 + 14 * 0.6 = 15.0 us, tree LL 6.8 + 14 * 0.6 = 15.2 us, and ring LL at 87.7 GB/s of busbw */
  q.bytes = 1024;
  assert_near(plan_nccl_time_s(catalogue.nccl, &q, &cost), 15e-6 + 1024 / (87.7e9 * 8 / 14), 1e-9);
  ck_assert_int_eq(cost.algorithm, PLAN_NCCL_RING);
  ck_assert_int_eq(cost.protocol, PLAN_NCCL_LL);
  /* all-gather: 7 steps */
  q.op = PLAN_NCCL_ALL_GATHER;
  q.bytes = 1e9;
  (void)plan_nccl_time_of_s(catalogue.nccl, &q, PLAN_NCCL_RING, PLAN_NCCL_SIMPLE, &cost);
  assert_near(cost.latency_s, (8.4 + 7 * 3.4) * 1e-6, 1e-12);
  assert_near(cost.bandwidth_s, 1e9 / (240e9 * 8 / 7), 1e-12);
  ck_assert(isinf(plan_nccl_time_of_s(catalogue.nccl, &q, PLAN_NCCL_TREE, PLAN_NCCL_LL, &cost)));
  q.op = PLAN_NCCL_REDUCE_SCATTER;
  (void)plan_nccl_time_of_s(catalogue.nccl, &q, PLAN_NCCL_RING, PLAN_NCCL_SIMPLE, &cost);
  assert_near(cost.bandwidth_s, 1e9 / (240e9 * 8 / 7), 1e-12);
}
END_TEST

START_TEST(nccl_over_pcie_and_network) {
  plan_nccl_query q = {.op = PLAN_NCCL_ALL_REDUCE,
                       .arch = PLAN_NCCL_AMPERE,
                       .intra = PLAN_LINK_PCIE,
                       .ranks = 4,
                       .nodes = 1,
                       .bus_bytes_per_s = 21.2e9,
                       .bytes = 1e8};
  plan_nccl_cost cost;
  ck_assert(isinf(plan_nccl_time_of_s(catalogue.nccl, &q, PLAN_NCCL_RING, PLAN_NCCL_LL128, NULL))); /* needs NVLink */
  (void)plan_nccl_time_of_s(catalogue.nccl, &q, PLAN_NCCL_RING, PLAN_NCCL_SIMPLE, &cost);
  assert_near(cost.latency_s, (8.4 + 6 * 5.7) * 1e-6, 1e-12);
  assert_near(cost.bandwidth_s, 1e8 * 6 / 4 / 21.2e9, 1e-12);
  /* two nodes of eight: 30 steps, 2 of them over the network */
  q = (plan_nccl_query){.op = PLAN_NCCL_ALL_REDUCE,
                        .arch = PLAN_NCCL_AMPERE,
                        .intra = PLAN_LINK_NVLINK,
                        .ranks = 16,
                        .nodes = 2,
                        .bus_bytes_per_s = 24e9,
                        .bytes = 1e8};
  (void)plan_nccl_time_of_s(catalogue.nccl, &q, PLAN_NCCL_RING, PLAN_NCCL_SIMPLE, &cost);
  assert_near(cost.latency_s, (8.4 + 28 * 3.4 + 2 * 14) * 1e-6, 1e-12);
  assert_near(cost.bandwidth_s, 1e8 * 30 / 16 / 24e9, 1e-12);
  (void)plan_nccl_time_of_s(catalogue.nccl, &q, PLAN_NCCL_TREE, PLAN_NCCL_LL128, &cost);
  assert_near(cost.latency_s, (14 + 2 * (7 * 1.25 + 8.5)) * 1e-6, 1e-12);
  assert_near(cost.bandwidth_s, 1e8 / (0.5 * 0.92 * 0.9375 * 24e9), 1e-12);
  (void)plan_nccl_time_of_s(catalogue.nccl, &q, PLAN_NCCL_RING, PLAN_NCCL_LL, &cost);
  assert_near(cost.bus_bytes_per_s, 12e9, 1e-12); /* half, below AMD's ceiling of 22.5 */
  q.bus_bytes_per_s = 200e9;
  (void)plan_nccl_time_of_s(catalogue.nccl, &q, PLAN_NCCL_RING, PLAN_NCCL_LL, &cost);
  assert_near(cost.bus_bytes_per_s, 22.5e9, 1e-12);
  q.intel_cpu = true;
  (void)plan_nccl_time_of_s(catalogue.nccl, &q, PLAN_NCCL_RING, PLAN_NCCL_LL, &cost);
  assert_near(cost.bus_bytes_per_s, 39e9, 1e-12);
  /* one rank a node: the tree's network latency; measured 19 to 20 us between two nodes on HDR */
  q = (plan_nccl_query){.op = PLAN_NCCL_ALL_REDUCE,
                        .arch = PLAN_NCCL_AMPERE,
                        .intra = PLAN_LINK_NVLINK,
                        .ranks = 2,
                        .nodes = 2,
                        .bus_bytes_per_s = 24e9,
                        .bytes = 64};
  assert_near(plan_nccl_time_s(catalogue.nccl, &q, &cost), 16.6e-6, 0.01);
  q.ranks = q.nodes = 1;
  ck_assert(plan_nccl_time_s(catalogue.nccl, &q, &cost) == 0);
}
END_TEST

/* Published runs of nccl-tests: bus bandwidth of large all-reduces. */
START_TEST(nccl_matches_published_runs) {
  static const struct run {
    const char *cluster;
    double bytes, bus_gb_per_s, tolerance;
  } runs[] = {{"8xa100-80gb-sxm", 8589934592, 235, 0.05}, {"8xh100-sxm", 8589934592, 370, 0.05}};
  for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
    load(runs[i].cluster);
    const int devices[] = {0, 1, 2, 3, 4, 5, 6, 7};
    double ring = INFINITY;
    for (int d = 0; d < 8; d++) {
      plan_route route;
      ck_assert_int_eq(plan_cluster_route(&cluster, d, (d + 1) % 8, &route, NULL), DP_OK);
      ring = fmin(ring, route.bandwidth_bytes_per_s);
    }
    plan_nccl_cost cost;
    plan_nccl_all_reduce(catalogue.nccl, &cluster, devices, 8, ring, runs[i].bytes, &cost);
    const double s = cost.latency_s + cost.bandwidth_s;
    assert_near(runs[i].bytes * 14 / 8 / s / 1e9, runs[i].bus_gb_per_s, runs[i].tolerance);
  }
}
END_TEST

START_TEST(nccl_laws) {
  for (int arch = 0; arch < PLAN_NCCL_ARCH_COUNT; arch++)
    for (int nodes = 1; nodes <= 4; nodes *= 2)
      for (int ranks = 2 * nodes; ranks <= 32; ranks *= 2) {
        double before = 0;
        for (double bytes = 8; bytes < 1e10; bytes *= 2) {
          plan_nccl_query q = {.op = PLAN_NCCL_ALL_REDUCE,
                               .arch = (plan_nccl_arch)arch,
                               .intra = PLAN_LINK_NVLINK,
                               .ranks = ranks,
                               .nodes = nodes,
                               .bus_bytes_per_s = 100e9,
                               .channels = 8,
                               .bytes = bytes};
          const double s = plan_nccl_time_s(catalogue.nccl, &q, NULL);
          q.bus_bytes_per_s = 200e9;
          ck_assert(s >= before && plan_nccl_time_s(catalogue.nccl, &q, NULL) <= s);
          before = s;
        }
      }
}
END_TEST

/* ---- clusters ---- */

START_TEST(nvswitch_gives_every_pair_its_ports) {
  load("8xa100-80gb-sxm");
  ck_assert_uint_eq(cluster.devices.count, 8);
  ck_assert_int_eq(cluster.node_count, 1);
  assert_near(cluster.price_usd_per_h, 22.32, 1e-12);
  assert_near(cluster.power_w, 3300 + 8 * 400, 1e-12);
  assert_route("node0/gpu0", "node0/gpu7", "node0/gpu0 > node0/nvswitch, node0/nvswitch > node0/gpu7");
  plan_route a = route_of("node0/gpu0", "node0/gpu7");
  assert_near(a.bandwidth_bytes_per_s, 240e9, 1e-12);
  assert_near(a.latency_s, 1.79e-6, 1e-9); /* the class's latency, once */
  ck_assert_str_eq(a.limiting->name, "nvlink3");
  plan_route b = route_of("node0/gpu1", "node0/gpu6"), c = route_of("node0/gpu0", "node0/gpu6"),
             d = route_of("node0/gpu7", "node0/gpu0");
  ck_assert_int_eq(shared(&a, &b), 0);
  ck_assert_int_eq(shared(&a, &c), 1); /* the port out of gpu0 */
  ck_assert_int_eq(shared(&a, &d), 0); /* the ways are apart */
  const int ring[] = {0, 1, 2, 3};
  ck_assert_int_eq(plan_cluster_weakest_kind(&cluster, ring, 4), PLAN_LINK_NVLINK);
  plan_route self;
  ck_assert_int_eq(plan_cluster_route(&cluster, 3, 3, &self, NULL), DP_OK);
  ck_assert_int_eq(self.count, 0);
}
END_TEST

START_TEST(workers_on_processors_share_memory) {
  load("4xcpu");
  ck_assert_uint_eq(cluster.devices.count, 4);
  ck_assert(plan_device_is_processor(cluster.devices.items[0].model));
  ck_assert(!plan_device_is_processor(plan_catalogue_device(&catalogue, "RTX-4090")));
  assert_route("node0/worker0", "node0/worker3",
               "node0/worker0 > node0/root0, node0/root0 > node0/root0, node0/root0 > node0/worker3");
  const plan_route a = route_of("node0/worker0", "node0/worker3");
  ck_assert_str_eq(a.limiting->name, "shared-memory");
  assert_near(a.latency_s, 15e-6, 1e-9);
  assert_near(a.bandwidth_bytes_per_s, 20e9, 1e-12);
}
END_TEST

START_TEST(pcie_tree_shares_its_upper_links) {
  load("8xa100-80gb-pcie");
  assert_near(cluster.price_usd_per_h, 8 * 1.39, 1e-12);
  assert_route("node0/gpu0", "node0/gpu1", "node0/gpu0 > node0/switch0, node0/switch0 > node0/gpu1");
  assert_route("node0/gpu0", "node0/gpu2",
               "node0/gpu0 > node0/switch0, node0/switch0 > node0/root0, node0/root0 > node0/root0, "
               "node0/root0 > node0/switch1, node0/switch1 > "
               "node0/gpu2");
  assert_route(
      "node0/gpu0", "node0/gpu4",
      "node0/gpu0 > node0/switch0, node0/switch0 > node0/root0, node0/root0 > node0/host0, node0/host0 > node0/host1, "
      "node0/host1 > node0/root1, node0/root1 > node0/switch2, node0/switch2 > node0/gpu4");
  const plan_route a = route_of("node0/gpu0", "node0/gpu2"), b = route_of("node0/gpu1", "node0/gpu3");
  ck_assert_int_eq(shared(&a, &b), 3); /* switch0 > root0, root0 itself, root0 > switch1 */
  const plan_route far = route_of("node0/gpu0", "node0/gpu4"), far2 = route_of("node0/gpu2", "node0/gpu6");
  assert_near(far.bandwidth_bytes_per_s, 16e9, 1e-12);
  ck_assert_str_eq(far.limiting->name, "socket-amd");
  assert_near(far.latency_s, 2.5e-6, 1e-9);
  ck_assert_int_eq(shared(&far, &far2), 3); /* root0 > host0 > host1 > root1 */
  const int ring[] = {0, 1};
  ck_assert_int_eq(plan_cluster_weakest_kind(&cluster, ring, 2), PLAN_LINK_PCIE);
}
END_TEST

START_TEST(cards_without_peer_copies_go_through_the_host) {
  load("4xrtx3090-pcie");
  assert_route(
      "node0/gpu0", "node0/gpu3",
      "node0/gpu0 > node0/root0, node0/root0 > node0/host, node0/host > node0/root0, node0/root0 > node0/gpu3");
  const plan_route a = route_of("node0/gpu0", "node0/gpu3"), b = route_of("node0/gpu1", "node0/gpu2");
  assert_near(a.bandwidth_bytes_per_s, 21.2e9, 1e-12);
  assert_near(a.latency_s, 14.5e-6, 1e-9);
  ck_assert_str_eq(a.limiting->name, "pcie4-x16-host");
  ck_assert_int_eq(shared(&a, &b), 2); /* the one root complex, up and down */
  load("unlike-16gb-24gb");
  ck_assert_int_eq(cluster.devices.items[0].memory_bytes, 16000000000);
  ck_assert_int_eq(cluster.devices.items[1].memory_bytes, 24000000000);
  ck_assert_int_eq(route_of("node0/small", "node0/large").count, 4);
  ck_assert(cluster.price_usd_per_h == 0); /* one price is unknown */
  /* a bridge is used where there is one, and only there */
  build_ok("[[node]]\n[[node.device]]\nmodel='RTX-3090'\ncount=4\n[[node.nvlink]]\nkind='pairs'\n");
  assert_route("node0/gpu0", "node0/gpu1", "node0/gpu0 > node0/gpu1");
  ck_assert_str_eq(route_of("node0/gpu0", "node0/gpu1").limiting->name, "nvlink3-bridge-rtx");
  ck_assert_int_eq(route_of("node0/gpu1", "node0/gpu2").count, 4);
  assert_route("node0/gpu3", "node0/gpu2", "node0/gpu3 > node0/gpu2");
  /* one side can, the other cannot */
  build_ok(
      "[[node]]\n[[node.device]]\nmodel='L40S'\n[[node.device]]\nmodel='RTX-4090'\n[[node.device]]\nmodel='L40S'\n");
  ck_assert_int_eq(route_of("node0/gpu0", "node0/gpu1").count, 4);
  ck_assert_int_eq(route_of("node0/gpu1", "node0/gpu0").count, 4);
  ck_assert_int_eq(route_of("node0/gpu0", "node0/gpu2").count, 3);
  /* the user knows better: a patched driver */
  build_ok("[[node]]\npeer_to_peer=true\n[[node.device]]\nmodel='RTX-4090'\ncount=2\n");
  ck_assert_int_eq(route_of("node0/gpu0", "node0/gpu1").count, 3);
  ck_assert_str_eq(route_of("node0/gpu0", "node0/gpu1").limiting->name, "pcie4-x16");
}
END_TEST

/* All that one root complex forwards shares its capacity: twice a port, or what the file says. */
START_TEST(root_complex_is_shared) {
  build_ok("[[node]]\npeer_to_peer=true\n[[node.device]]\nmodel='RTX-4090'\ncount=6\n");
  const plan_route a = route_of("node0/gpu0", "node0/gpu1"), b = route_of("node0/gpu2", "node0/gpu3");
  ck_assert_int_eq(shared(&a, &b), 1);
  const plan_link *through = &cluster.links.items[a.links[1]];
  ck_assert_int_eq(through->from, through->to);
  assert_near(through->bandwidth_bytes_per_s, 2 * a.bandwidth_bytes_per_s, 1e-12);
  /* four cards in a ring get half a port each, as four RTX 4090 do: 12.7 GB/s of 24 */
  assert_near(through->bandwidth_bytes_per_s / 4 / 1e9, 12.7, 0.08);
  build_ok(
      "[[node]]\npeer_to_peer=true\n[[node.pcie]]\nname='r'\npeer_gb_per_s=20\n[[node.device]]\nmodel='RTX-4090'"
      "\ncount=4\n");
  const plan_route narrow = route_of("node0/gpu0", "node0/gpu1");
  assert_near(narrow.bandwidth_bytes_per_s, 20e9, 1e-12);
  /* cards below one switch do not reach the root */
  build_ok(
      "[[node]]\n[[node.pcie]]\nname='r'\n[[node.pcie]]\nname='s'\nparent='r'\n[[node.device]]\nmodel='A100-PCIe-80GB'"
      "\n"
      "count=2\npcie='s'\n");
  ck_assert_int_eq(route_of("node0/gpu0", "node0/gpu1").count, 2);
}
END_TEST

START_TEST(nodes_meet_in_the_fabric) {
  load("2x8xa100-ib");
  ck_assert_uint_eq(cluster.devices.count, 16);
  ck_assert_int_eq(cluster.node_count, 2);
  assert_route("node0/gpu0", "node1/gpu0",
               "node0/gpu0 > node0/switch0, node0/switch0 > node0/nic0, node0/nic0 > ib, ib > node1/nic0, node1/nic0 > "
               "node1/switch0, "
               "node1/switch0 > node1/gpu0");
  const plan_route a = route_of("node0/gpu0", "node1/gpu0"), b = route_of("node0/gpu1", "node1/gpu1"),
                   c = route_of("node0/gpu7", "node1/gpu7");
  assert_near(a.bandwidth_bytes_per_s, 24e9, 1e-12);
  ck_assert_str_eq(a.limiting->name, "ib-hdr200");
  assert_near(a.latency_s, 19.5e-6, 1e-9);
  ck_assert_int_eq(shared(&a, &b), 0); /* two cards of one switch take different NICs */
  ck_assert_int_eq(shared(&a, &c), 0);
  assert_route("node0/gpu7", "node1/gpu2",
               "node0/gpu7 > node0/switch3, node0/switch3 > node0/nic7, node0/nic7 > ib, ib > node1/nic2, node1/nic2 > "
               "node1/switch1, "
               "node1/switch1 > node1/gpu2");
  const int ring[] = {0, 8};
  ck_assert_int_eq(plan_cluster_weakest_kind(&cluster, ring, 2), PLAN_LINK_NETWORK);
  ck_assert_int_eq(route_of("node1/gpu0", "node1/gpu5").count, 2);
  plan_nccl_cost cost;
  plan_nccl_all_reduce(catalogue.nccl, &cluster, ring, 2, a.bandwidth_bytes_per_s, 1e9, &cost);
  assert_near(cost.bus_bytes_per_s, 24e9, 1e-9);
  assert_near(cost.latency_s, (8.4 + 2 * 14) * 1e-6, 1e-9);
  /* the only NIC is on the other socket */
  build_ok(
      "[[fabric]]\nname='f'\n[[node]]\ncount=2\n[[node.pcie]]\nname='r0'\n[[node.pcie]]\nname='r1'\n"
      "[[node.device]]\nmodel='L40S'\npcie='r0'\n[[node.nic]]\nlink='ib-ndr400'\nfabric='f'\npcie='r1'\n");
  assert_route(
      "node0/gpu0", "node1/gpu0",
      "node0/gpu0 > node0/r0, node0/r0 > node0/host0, node0/host0 > node0/host1, node0/host1 > node0/r1, node0/r1 > "
      "node0/nic0, "
      "node0/nic0 > f, f > node1/nic0, node1/nic0 > node1/r1, node1/r1 > node1/host1, node1/host1 > node1/host0, "
      "node1/host0 > node1/r0, node1/r0 > node1/gpu0");
}
END_TEST

START_TEST(parts_of_a_card_share_it) {
  load("1xh200-virtual4");
  ck_assert_uint_eq(cluster.devices.count, 4);
  ck_assert_int_eq(cluster.card_count, 1);
  const plan_device *part = &cluster.devices.items[2];
  ck_assert_str_eq(part->name, "node0/gpu0.2");
  ck_assert_int_eq(part->sm_count, 32);
  assert_near(part->compute_share, 32.0 / 132, 1e-12);
  ck_assert_int_eq(part->memory_bytes, 35250000000);
  assert_near(part->price_usd_per_h, 3.59 / 4, 1e-12);
  assert_near(cluster.price_usd_per_h, 3.59, 1e-12);
  assert_near(cluster.power_w, 1300, 1e-12);
  assert_route("node0/gpu0.0", "node0/gpu0.3",
               "node0/gpu0.0 > node0/gpu0, node0/gpu0 > node0/gpu0, node0/gpu0 > node0/gpu0.3");
  const plan_route a = route_of("node0/gpu0.0", "node0/gpu0.1"), b = route_of("node0/gpu0.2", "node0/gpu0.3");
  assert_near(a.bandwidth_bytes_per_s, 1854e9, 1e-12);
  assert_near(a.latency_s, 1.79e-6, 1e-9);
  ck_assert_str_eq(a.limiting->name, "device-copy");
  ck_assert_int_eq(shared(&a, &b), 1); /* the card's memory */
  static const struct {
    int parts;
    int64_t sms;
  } cuts[] = {{2, 64}, {4, 32}, {8, 16}};
  for (size_t i = 0; i < 3; i++) {
    char text[200];
    (void)snprintf(text, sizeof text, "[[node]]\n[[node.device]]\nmodel='H200-SXM-141GB'\ncount=2\nvirtual=%d\n",
                   cuts[i].parts);
    build_ok(text);
    ck_assert_uint_eq(cluster.devices.count, (size_t)(2 * cuts[i].parts));
    ck_assert_int_eq(cluster.devices.items[0].sm_count, cuts[i].sms);
    /* parts of unlike cards go through NVSwitch and share the cards' ports */
    const plan_route far = route_of("node0/gpu0.0", "node0/gpu1.0"), far2 = route_of("node0/gpu0.1", "node0/gpu1.1");
    ck_assert_int_eq(far.count, 4);
    ck_assert_str_eq(far.limiting->name, "nvlink4");
    ck_assert_int_eq(shared(&far, &far2), 2);
  }
  build_ok("[[node]]\n[[node.device]]\nmodel='H200-SXM-141GB'\nvirtual=2\nvirtual_link='host-staged'\n");
  assert_near(route_of("node0/gpu0.0", "node0/gpu0.1").bandwidth_bytes_per_s, 27e9, 1e-12);
  /* an A100's memory is slower than the H200's on which copies were measured */
  build_ok("[[node]]\n[[node.device]]\nmodel='A100-SXM4-80GB'\nvirtual=2\n");
  assert_near(route_of("node0/gpu0.0", "node0/gpu0.1").bandwidth_bytes_per_s, 1854e9 * 2039 / 4800, 1e-9);
}
END_TEST

START_TEST(defaults_follow_the_cards) {
  build_ok("[[node]]\n[[node.device]]\nmodel='MI300X'\ncount=8\n");
  assert_route("node0/gpu2", "node0/gpu5", "node0/gpu2 > node0/gpu5");
  assert_near(route_of("node0/gpu2", "node0/gpu5").bandwidth_bytes_per_s, 47.7e9, 1e-12);
  build_ok("[[node]]\n[[node.device]]\nmodel='A100-SXM4-40GB'\ncount=4\n[[node.nvlink]]\nkind='mesh'\n");
  assert_near(route_of("node0/gpu0", "node0/gpu3").bandwidth_bytes_per_s, 80e9, 1e-12); /* a third of the port */
  build_ok("[[node]]\ninterconnect='pcie'\n[[node.device]]\nmodel='A100-SXM4-40GB'\ncount=4\n");
  ck_assert_str_eq(route_of("node0/gpu0", "node0/gpu3").limiting->name, "pcie4-x16");
  build_ok("[[node]]\n[[node.device]]\nmodel='A100-PCIe-80GB'\ncount=4\n"); /* bridges only where the file says so */
  ck_assert_str_eq(route_of("node0/gpu0", "node0/gpu1").limiting->name, "pcie4-x16");
  build_ok("[[node]]\n[[node.device]]\nmodel='H100-PCIe-80GB'\nmemory_limit_gb=40\nprice_usd_per_h=2.5\ncount=2\n");
  ck_assert_int_eq(cluster.devices.items[1].memory_bytes, 40000000000);
  assert_near(cluster.price_usd_per_h, 5, 1e-12);
  ck_assert_str_eq(route_of("node0/gpu0", "node0/gpu1").limiting->name, "pcie5-x16");
  build_ok(
      "[[node]]\nname='a'\nprice_usd_per_h=3\n[[node.device]]\nmodel='L20'\n[[node.nic]]\nlink='ib-edr'\nfabric='f'\n"
      "[[node]]\nname='b'\nprice_usd_per_h=4\n[[node.device]]\nmodel='L20'\n[[node.nic]]\nlink='ib-hdr200'\nfabric='f'"
      "\n"
      "[[fabric]]\nname='f'\n");
  assert_near(cluster.price_usd_per_h, 7, 1e-12);
  assert_near(route_of("a/gpu0", "b/gpu0").bandwidth_bytes_per_s, 12e9, 1e-12);
}
END_TEST

START_TEST(routes_of_thousands_are_quick_and_small) {
  build_ok(
      "[[fabric]]\nname='ib'\n[[node]]\ncount=512\n[[node.device]]\nmodel='H100-SXM5-80GB'\ncount=8\n[[node.nic]]"
      "\nlink='ib-ndr400'\n"
      "count=8\nfabric='ib'\n");
  ck_assert_uint_eq(cluster.devices.count, 4096);
  for (int d = 0; d < 4096; d++) {
    plan_route route;
    ck_assert_int_eq(plan_cluster_route(&cluster, d, (d + 1) % 4096, &route, NULL), DP_OK);
    ck_assert_int_eq(route.count, d % 8 == 7 ? 8 : 2);
    ck_assert_int_eq(plan_cluster_route(&cluster, d, (d + 8) % 4096, &route, NULL), DP_OK);
    ck_assert_int_eq(route.count, 8); /* over both root complexes */
  }
  ck_assert_uint_lt(cluster.arena.reserved_bytes, 64u << 20);
  build_ok("[[node]]\n[[node.device]]\nmodel='H100-SXM5-80GB'\ncount=65536\n");
  plan_route route;
  ck_assert_int_eq(plan_cluster_route(&cluster, 0, 65535, &route, NULL), DP_OK);
  ck_assert_int_eq(route.count, 2);
}
END_TEST

/* Reading the same text twice gives the same vertices, links and routes. */
START_TEST(building_is_reproducible) {
  dp_str first = {0};
  for (int round = 0; round < 2; round++) {
    load("2x8xa100-ib");
    dp_str text = {0};
    for (size_t a = 0; a < cluster.devices.count; a++)
      for (size_t b = 0; b < cluster.devices.count; b++) {
        plan_route route;
        ck_assert_int_eq(plan_cluster_route(&cluster, (int)a, (int)b, &route, NULL), DP_OK);
        for (int i = 0; i < route.count; i++) dp_str_addf(&text, " %d", route.links[i]);
      }
    if (round == 0)
      first = text;
    else {
      ck_assert_str_eq(dp_str_text(&text), dp_str_text(&first));
      dp_str_free(&text);
    }
  }
  dp_str_free(&first);
}
END_TEST

START_TEST(errors_name_line_and_value) {
  static const struct {
    const char *text, *expected;
  } cases[] = {
      {"name='x'\n", "c.toml:1: cluster: the key \"node\" is missing, needed: [[node]]"},
      {"node=[]\n", "c.toml:1: [[node]]: found none, allowed: at least one node"},
      {"[[node]]\n[[node.device]]\nmodel='A100'\n",
       "c.toml:3: [[node.device]].model: found \"A100\", did you mean \"A100-SXM4-40GB\"? allowed: V100-SXM2-32GB, "},
      {"[[node]]\n[[node.device]]\nmodel='L40S'\ncount=0\n",
       "c.toml:4: [[node.device]].count: found 0, allowed: an integer from 1 to 65536"},
      {"[[node]]\n[[node.device]]\nmodel='L40S'\ncount=65536\n[[node]]\n[[node.device]]\nmodel='L40S'\n",
       "c.toml:5: [[node]]: found 65537 devices in the cluster, allowed: at most 65536"},
      {"[[node]]\n[[node.pcie]]\nname='r'\n[[node.pcie]]\nname='a'\nparent='b'\n[[node.pcie]]\nname='b'\nparent='a'\n[["
       "node.device]]\nmodel='L40S'\n",
       "c.toml:4: [[node.pcie]]: found a cycle of parents: a > b > a, allowed: a tree that ends in a root complex (no "
       "parent)"},
      {"[[node]]\n[[node.pcie]]\nname='a'\nparent='a'\n[[node.device]]\nmodel='L40S'\n",
       "c.toml:2: [[node.pcie]]: found a cycle of parents: a > a, allowed"},
      {"[[node]]\n[[node.pcie]]\nname='a'\nparent='z'\n[[node.device]]\nmodel='L40S'\n",
       "c.toml:4: [[node.pcie]].parent: found \"z\", allowed: a"},
      {"[[node]]\n[[node.device]]\nmodel='L40S'\npcie='sw9'\n",
       "c.toml:4: [[node.device]].pcie: found \"sw9\", allowed: root0"},
      {"[[node]]\n[[node.device]]\nmodel='L40S'\nlink='pcie9'\n",
       "c.toml:4: [[node.device]].link: found \"pcie9\", allowed: nvlink2, "},
      {"[[node]]\ncount=2\n[[node.device]]\nmodel='L40S'\n",
       "devices node0/gpu0 and node1/gpu0 are not connected, allowed: nodes that share a fabric through their NICs"},
      {"[[node]]\n[[node.device]]\nmodel='L40S'\n[[node.nic]]\nlink='ib-hdr200'\nfabric='ib'\n",
       "c.toml:6: [[node.nic]].fabric: found \"ib\", allowed: the name of a [[fabric]]; there is none"},
      {"[[fabric]]\nname='f'\n[[node]]\n[[node.device]]\nmodel='L40S'\n[[node.nic]]\nlink='pcie4-x16'\nfabric='f'\n",
       "c.toml:7: [[node.nic]].link: found \"pcie4-x16\", allowed: a class of kind \"network\""},
      {"[[node]]\nname='a'\n[[node.device]]\nmodel='L40S'\n[[node]]\nname='a'\n[[node.device]]\nmodel='L40S'\n",
       "c.toml:6: [[node]]: found the name \"a\" again, allowed: unique names"},
      {"[[node]]\n[[node.device]]\nmodel='L4'\nvirtual=64\n",
       "c.toml:4: [[node.device]].virtual: found 64 parts of 58 SMs"},
      {"[[node]]\n[[node.device]]\nmodel='L4'\nmemory_limit_gb=25\n",
       "c.toml:4: [[node.device]].memory_limit_gb: found 25, allowed: at most the card's 24"},
      {"[[node]]\n[[node.device]]\nmodel='L4'\nmemory_gb=-1\n",
       "c.toml:4: [[node.device]].memory_gb: found -1, allowed: a number from 0.001 to 1000000"},
      {"[[node]]\n[[node.device]]\nmodel='L4'\nmemory_gb=nan\n",
       "c.toml:4: memory_gb: found nan, allowed: a finite number"},
      {"[[node]]\n[[node.device]]\nmodel='L4'\ncount=3\n[[node.nvlink]]\nkind='pairs'\n",
       "c.toml:5: [[node.nvlink]]: found pairs of 3 cards, allowed: an even number"},
      {"[[node]]\n[[node.device]]\nmodel='L4'\ncount=2\n[[node.nvlink]]\nkind='pairs'\n",
       "c.toml:5: [[node.nvlink]]: found card 0, L4, which has no NVLink"},
      {"[[node]]\n[[node.device]]\nmodel='RTX-3090'\ncount=2\n[[node.nvlink]]\nkind='pairs'\ndevices=[0,2]\n",
       "c.toml:7: [[node.nvlink]].devices: found 2, allowed: integers from 0 to 1"},
      {"[[node]]\n[[node.device]]\nmodel='RTX-3090'\ncount=2\n[[node.nvlink]]\nkind='pairs'\ndevices=[1,1]\n",
       "c.toml:7: [[node.nvlink]].devices: found card 1 twice, allowed: once"},
      {"[[device]]\nname='L4'\narchitecture='x'\nmemory_gb=1\nmemory_bandwidth_gb_per_s=1\nfp32_tflops=1\nsm_count="
       "1\npcie_generation=4\n[[node]]\n[[node.device]]\nmodel='L4'\n",
       "c.toml:1: [[device]]: found the name \"L4\" again, allowed: a name that is not in the catalogue"},
      {"[[node]]\nnode_count=2\n[[node.device]]\nmodel='L4'\n", "c.toml:2: [[node]]: unknown key \"node_count\""},
      {"[[node]]\ncount=65536\n[[node.device]]\nmodel='L4'\n[[node.nic]]\nlink='ib-edr'\nfabric='f'\ncount=64\n[["
       "fabric]]\nname='f'\n",
       "c.toml:1: [[node]]: found 4390913 devices, switches, sockets and NICs in the cluster, allowed: at most 400000"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    dp_error error = DP_ERROR_INIT;
    const dp_status status = build(cases[i].text, &error);
    ck_assert_msg(status == DP_BAD_INPUT, "case %zu: status %d: %s", i, (int)status, error.text);
    ck_assert_msg(strstr(error.text, cases[i].expected) != NULL, "case %zu:\n%s\nexpected\n%s", i, error.text,
                  cases[i].expected);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("plan: cluster");
  TCase *tests = suite_case(suite, "all", setup, teardown, 120);
  tcase_add_test(tests, devices_have_the_published_figures);
  tcase_add_test(tests, every_row_is_plausible);
  tcase_add_test(tests, links_reproduce_the_measured_cells);
  tcase_add_test(tests, nccl_matches_hand_worked_times);
  tcase_add_test(tests, nccl_over_pcie_and_network);
  tcase_add_test(tests, nccl_matches_published_runs);
  tcase_add_test(tests, nccl_laws);
  tcase_add_test(tests, nvswitch_gives_every_pair_its_ports);
  tcase_add_test(tests, workers_on_processors_share_memory);
  tcase_add_test(tests, pcie_tree_shares_its_upper_links);
  tcase_add_test(tests, cards_without_peer_copies_go_through_the_host);
  tcase_add_test(tests, root_complex_is_shared);
  tcase_add_test(tests, nodes_meet_in_the_fabric);
  tcase_add_test(tests, parts_of_a_card_share_it);
  tcase_add_test(tests, defaults_follow_the_cards);
  tcase_add_test(tests, routes_of_thousands_are_quick_and_small);
  tcase_add_test(tests, building_is_reproducible);
  tcase_add_test(tests, errors_name_line_and_value);
  return suite_finish(suite);
}
