/* How two workers exchange data, by topology and by what the plan says, and what is refused. */
#include <stdio.h>
#include <string.h>

#include "plan/scenario.h"
#include "plan/transport.h"
#include "tests/suite.h"

static plan_scenario scenario;
static plan_plan plan;

static void teardown(void) {
  plan_plan_free(&plan);
  plan_scenario_free(&scenario);
}

#define HEAD "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nsynthetic_units = 16\nforward_us = 10\n"
#define NODE "[cluster]\n[[cluster.node]]\n"
#define CARDS(model, more) "[[cluster.node.device]]\nmodel = \"" model "\"\n" more

static dp_status parse(const char *cluster, const char *rest, dp_error *error) {
  char text[1024];
  teardown();
  (void)snprintf(text, sizeof text, "%s%s%s", HEAD, cluster, rest);
  return plan_scenario_parse(text, strlen(text), "s.toml", &scenario, error);
}

static void settle(const char *cluster, const char *rest) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(parse(cluster, rest, &error) == DP_OK, "%s", error.text);
  ck_assert_msg(plan_scenario_plan(&scenario, &plan, &error) == DP_OK, "%s", error.text);
}

static const char two_nodes[] = "[cluster]\n[[cluster.fabric]]\nname = \"ib\"\n[[cluster.node]]\ncount = 2\n" CARDS(
    "H100-SXM5-80GB", "count = 2\n") "[[cluster.node.nic]]\nlink = \"ib-ndr400\"\nfabric = \"ib\"\n";
static const char nvswitch[] = NODE CARDS("H200-SXM-141GB", "count = 4\n");
static const char two_roots[] =
    NODE "[[cluster.node.pcie]]\nname = \"r0\"\n[[cluster.node.pcie]]\nname = \"r1\"\n" CARDS(
        "A100-PCIe-80GB", "count = 2\npcie = \"r0\"\n") CARDS("A100-PCIe-80GB", "count = 2\npcie = \"r1\"\n");
static const char no_peers[] = NODE CARDS("RTX-4090", "count = 4\n");
static const char bridged[] = NODE CARDS("RTX-3090", "count = 4\n") "[[cluster.node.nvlink]]\nkind = \"pairs\"\n";
static const char half_peers[] =
    NODE CARDS("A100-PCIe-80GB", "count = 2\n") CARDS("A100-PCIe-80GB", "count = 2\npeer_to_peer = false\n");
static const char parts[] = NODE CARDS("H200-SXM-141GB", "virtual = 4\n");
static const char staged_parts[] =
    NODE CARDS("H200-SXM-141GB", "count = 2\nvirtual = 2\nvirtual_link = \"host-staged\"\n");
static const char processors[] = NODE CARDS("CPU-core", "count = 4\n");

START_TEST(the_topology_decides) {
  static const struct {
    const char *cluster;
    int a, b;
    plan_transport expected;
  } cases[] = {
      {two_nodes, 0, 1, PLAN_TRANSPORT_LOCAL},   {two_nodes, 1, 2, PLAN_TRANSPORT_NCCL},
      {two_nodes, 3, 0, PLAN_TRANSPORT_NCCL},    {nvswitch, 0, 3, PLAN_TRANSPORT_LOCAL},
      {two_roots, 0, 1, PLAN_TRANSPORT_LOCAL},   {two_roots, 0, 3, PLAN_TRANSPORT_LOCAL},
      {no_peers, 0, 1, PLAN_TRANSPORT_HOST},     {no_peers, 3, 0, PLAN_TRANSPORT_HOST},
      {bridged, 0, 1, PLAN_TRANSPORT_LOCAL},     {bridged, 1, 2, PLAN_TRANSPORT_HOST},
      {bridged, 3, 2, PLAN_TRANSPORT_LOCAL},     {half_peers, 0, 1, PLAN_TRANSPORT_LOCAL},
      {half_peers, 1, 2, PLAN_TRANSPORT_HOST},   {half_peers, 2, 1, PLAN_TRANSPORT_HOST},
      {half_peers, 2, 3, PLAN_TRANSPORT_HOST},   {parts, 0, 3, PLAN_TRANSPORT_LOCAL},
      {staged_parts, 0, 1, PLAN_TRANSPORT_HOST}, {staged_parts, 1, 2, PLAN_TRANSPORT_LOCAL},
      {processors, 0, 2, PLAN_TRANSPORT_LOCAL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    settle(cases[i].cluster, "");
    ck_assert_int_eq(plan.transport_wanted, PLAN_TRANSPORT_AUTO);
    const plan_transport found = plan_transport_of(&plan, &scenario.cluster, cases[i].a, cases[i].b);
    ck_assert_msg(found == cases[i].expected, "case %zu: %s, expected %s", i, plan_transport_names[found],
                  plan_transport_names[cases[i].expected]);
  }
}
END_TEST

/* Within a machine what the plan says holds; between machines there is nothing but NCCL. */
START_TEST(the_plan_overrides_the_topology) {
  static const struct {
    const char *cluster, *key;
    plan_transport near;
  } cases[] = {
      {two_nodes, "local", PLAN_TRANSPORT_LOCAL},  {two_nodes, "nccl", PLAN_TRANSPORT_NCCL},
      {two_nodes, "host", PLAN_TRANSPORT_HOST},    {no_peers, "nccl", PLAN_TRANSPORT_NCCL},
      {staged_parts, "nccl", PLAN_TRANSPORT_NCCL}, {parts, "host", PLAN_TRANSPORT_HOST},
      {processors, "local", PLAN_TRANSPORT_LOCAL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[64];
    (void)snprintf(text, sizeof text, "[plan]\ntransport = \"%s\"\n", cases[i].key);
    settle(cases[i].cluster, text);
    ck_assert_str_eq(plan_transport_names[plan.transport_wanted], cases[i].key);
    ck_assert_int_eq(plan_transport_of(&plan, &scenario.cluster, 0, 1), cases[i].near);
    if (cases[i].cluster == two_nodes)
      ck_assert_int_eq(plan_transport_of(&plan, &scenario.cluster, 0, 2), PLAN_TRANSPORT_NCCL);
    ck_assert_int_eq(plan_transport_of(&plan, NULL, 0, 2), cases[i].near); /* without a cluster: one machine */
  }
  plan.transport_wanted = PLAN_TRANSPORT_AUTO;
  ck_assert_int_eq(plan_transport_of(&plan, NULL, 0, 1), PLAN_TRANSPORT_LOCAL);
}
END_TEST

START_TEST(workers_go_by_their_devices) {
  settle(two_nodes, "[plan]\ndevices = [0, 2, 1, 3]\n");
  ck_assert_int_eq(plan_transport_of(&plan, &scenario.cluster, 0, 1), PLAN_TRANSPORT_NCCL);
  ck_assert_int_eq(plan_transport_of(&plan, &scenario.cluster, 0, 2), PLAN_TRANSPORT_LOCAL);
}
END_TEST

START_TEST(a_collective_goes_as_its_members_do) {
  static const struct {
    const char *cluster, *plan;
    uint32_t members[4], count;
    plan_transport expected;
  } cases[] = {
      {two_nodes, "", {0, 1}, 2, PLAN_TRANSPORT_LOCAL},
      {two_nodes, "", {0, 1, 2}, 3, PLAN_TRANSPORT_NCCL},
      {two_nodes, "[plan]\ntransport = \"local\"\n", {0, 1, 2, 3}, 4, PLAN_TRANSPORT_NCCL},
      {nvswitch, "", {0, 1, 2, 3}, 4, PLAN_TRANSPORT_LOCAL},
      {nvswitch, "[plan]\ntransport = \"nccl\"\n", {0, 1}, 2, PLAN_TRANSPORT_NCCL},
      {nvswitch, "[plan]\ntransport = \"nccl\"\n", {2}, 1, PLAN_TRANSPORT_NCCL},
      {bridged, "", {0, 1, 2, 3}, 4, PLAN_TRANSPORT_HOST},
      {bridged, "", {2, 3}, 2, PLAN_TRANSPORT_LOCAL},
      {parts, "[plan]\ntransport = \"host\"\n", {0, 1, 2, 3}, 4, PLAN_TRANSPORT_HOST},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    settle(cases[i].cluster, cases[i].plan);
    const plan_transport found = plan_transport_of_group(&plan, &scenario.cluster, cases[i].members, cases[i].count);
    ck_assert_msg(found == cases[i].expected, "case %zu: %s, expected %s", i, plan_transport_names[found],
                  plan_transport_names[cases[i].expected]);
  }
}
END_TEST

/* NCCL's 20 SMs of an H200 leave 112, as they were measured; compute takes whole groups of a green context. */
START_TEST(sms_are_kept_for_nccl) {
  settle(nvswitch, "[plan]\ntransport = \"nccl\"\nnccl_sms = 20\n");
  ck_assert_int_eq(plan.nccl_sms, 20);
  ck_assert_int_eq(plan_compute_sms(132, 8, 20), 112);
  ck_assert_int_eq(plan_compute_sms(132, 8, 12), 120);
  ck_assert_int_eq(plan_compute_sms(132, 8, 1), 128);
  ck_assert_int_eq(plan_compute_sms(132, 8, 0), 132);
  ck_assert_int_eq(plan_compute_sms(108, 2, 9), 98);
  const plan_device_model *h200 = plan_catalogue_device(&scenario.catalogue, "H200-SXM-141GB");
  ck_assert_int_eq(plan_device_sm_step(h200), 8);
  ck_assert_int_eq(plan_device_sm_step(plan_catalogue_device(&scenario.catalogue, "RTX-4090")), 2);
  settle(nvswitch, "[plan]\nnccl_sms = 124\n");
  ck_assert_int_eq(plan.nccl_sms, 124);
}
END_TEST

START_TEST(what_devices_cannot_do_is_refused) {
  static const struct {
    const char *cluster, *plan, *expected;
  } cases[] = {
      {nvswitch, "[plan]\ntransport = \"mpi\"\n",
       "s.toml:12: plan.transport: found \"mpi\", allowed: auto, local, nccl, host"},
      {nvswitch, "[plan]\nnccl_sms = -1\n", "s.toml:12: plan.nccl_sms: found -1, allowed: an integer from 0 to 65536"},
      {nvswitch, "[plan]\nnccl_sms = 125\n",
       "s.toml:12: plan.nccl_sms: found 125 of the 132 multiprocessors of node0/gpu0, allowed: at most 124, which "
       "leaves compute its least, 8"},
      {parts, "[plan]\nnccl_sms = 32\n",
       "s.toml:12: plan.nccl_sms: found 32 of the 32 multiprocessors of node0/gpu0.0, allowed: at most 24, which "
       "leaves compute its least, 8"},
      {no_peers, "[plan]\ntransport = \"local\"\n",
       "s.toml:12: plan.transport: found \"local\" for node0/gpu0 and node0/gpu1, which have no peer access, allowed: "
       "auto, nccl or host"},
      {bridged, "[plan]\ntransport = \"local\"\n",
       "s.toml:14: plan.transport: found \"local\" for node0/gpu1 and node0/gpu2, which have no peer access, allowed: "
       "auto, nccl or host"},
      {staged_parts, "[plan]\ntransport = \"local\"\n",
       "s.toml:14: plan.transport: found \"local\" for node0/gpu0.0 and node0/gpu0.1, which have no peer access, "
       "allowed: "
       "auto, nccl or host"},
      {processors, "[plan]\ntransport = \"nccl\"\n",
       "s.toml:12: plan.transport: found \"nccl\" for node0/gpu0, CPU-core, a processor, allowed: auto or local"},
      {processors, "[plan]\ntransport = \"host\"\n",
       "s.toml:12: plan.transport: found \"host\" for node0/gpu0, CPU-core, a processor, allowed: auto or local"},
      {processors, "[plan]\nnccl_sms = 2\n",
       "s.toml:12: plan.nccl_sms: found multiprocessors for node0/gpu0, CPU-core, a processor, allowed: 0"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    dp_error error = DP_ERROR_INIT;
    const dp_status status = parse(cases[i].cluster, cases[i].plan, &error);
    ck_assert_msg(status == DP_BAD_INPUT, "case %zu: status %d, expected %s", i, (int)status, cases[i].expected);
    ck_assert_msg(strcmp(error.text, cases[i].expected) == 0, "case %zu:\n%s\nexpected\n%s", i, error.text,
                  cases[i].expected);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("plan: transport");
  TCase *tests = suite_case(suite, "all", NULL, teardown, 120);
  tcase_add_test(tests, the_topology_decides);
  tcase_add_test(tests, the_plan_overrides_the_topology);
  tcase_add_test(tests, workers_go_by_their_devices);
  tcase_add_test(tests, a_collective_goes_as_its_members_do);
  tcase_add_test(tests, sms_are_kept_for_nccl);
  tcase_add_test(tests, what_devices_cannot_do_is_refused);
  return suite_finish(suite);
}
