/* [link], [device] and [host]: changes to a cluster that was read. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "plan/scenario.h"
#include "tests/suite.h"

static dp_arena arena;
static void setup(void) {}
static void teardown(void) { dp_arena_free(&arena); }

static const char *const clusters[] = {"1xh200-virtual4",  "2x8xa100-ib",     "4xrtx3090-pcie", "4xrtx4090",
                                       "8xa100-80gb-pcie", "8xa100-80gb-sxm", "8xh100-sxm",     "unlike-16gb-24gb"};
enum { CLUSTERS = sizeof clusters / sizeof clusters[0] };

static dp_status read_with(const char *cluster, const char *const *sets, int count, plan_scenario *scenario,
                           dp_error *error) {
  const plan_scenario_source source = {
      .path = dp_path_resolve(&arena, NULL, "sdxl-8xa100-sxm.toml"),
      .sets = sets,
      .set_count = count,
      .job_only = true,
      .cluster_file = dp_path_resolve(&arena, NULL, dp_arena_printf(&arena, "clusters/%s.toml", cluster))};
  return plan_scenario_read_from(&source, scenario, error);
}

static plan_scenario changed(const char *cluster, const char *set) {
  plan_scenario scenario;
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(read_with(cluster, &set, set ? 1 : 0, &scenario, &error) == DP_OK, "%s", error.text);
  return scenario;
}

static const char *set_of(const char *table, const char *name, const char *key, double value) {
  return dp_arena_printf(&arena, "%s.%s.%s=%.17g", table, name, key, value);
}

/* A class's own latency set again changes no link: the shares are those that the cluster was built with. */
START_TEST(latencies_are_spread_as_built) {
  for (int c = 0; c < CLUSTERS; c++) {
    plan_scenario before = changed(clusters[c], NULL);
    for (size_t l = 0; l < before.cluster.links.count; l++) {
      const plan_link_model *model = before.cluster.links.items[l].model;
      if (l && model == before.cluster.links.items[l - 1].model) continue;
      plan_scenario after = changed(clusters[c], set_of("link", model->name, "latency_us", model->latency_s * 1e6));
      for (size_t k = 0; k < before.cluster.links.count; k++)
        ck_assert_double_eq_tol(after.cluster.links.items[k].latency_s, before.cluster.links.items[k].latency_s, 1e-15);
      plan_scenario_free(&after);
      if (l > 40) break; /* machines repeat themselves */
    }
    plan_scenario_free(&before);
  }
}
END_TEST

START_TEST(bandwidths) {
  plan_scenario all = changed("8xa100-80gb-sxm", "link.bandwidth_gb_per_s=64"),
                before = changed("8xa100-80gb-sxm", NULL),
                some = changed("8xa100-80gb-sxm", "link.nvlink.bandwidth_gb_per_s=64");
  for (size_t l = 0; l < all.cluster.links.count; l++) {
    const plan_link *link = &all.cluster.links.items[l];
    ck_assert_double_eq(link->bandwidth_bytes_per_s, link->from == link->to ? 128e9 : 64e9);
    ck_assert_double_eq(
        some.cluster.links.items[l].bandwidth_bytes_per_s,
        link->model->kind == PLAN_LINK_NVLINK ? 64e9 : before.cluster.links.items[l].bandwidth_bytes_per_s);
  }
  /* as fast everywhere: NVLink, which answers sooner, is still the way */
  for (int d = 1; d < 8; d++) {
    plan_route route;
    ck_assert_int_eq(plan_cluster_route(&all.cluster, 0, d, &route, NULL), DP_OK);
    ck_assert_int_eq(route.limiting->kind, PLAN_LINK_NVLINK);
  }
  plan_scenario_free(&all);
  plan_scenario_free(&some);
  plan_scenario_free(&before);
}
END_TEST

/* The narrower table has the last word, in whichever order they stand. */
START_TEST(classes_over_kinds_over_all) {
  static const char *const sets[] = {"link.nvlink3.bandwidth_gb_per_s=3", "link.nvlink.bandwidth_gb_per_s=2",
                                     "link.bandwidth_gb_per_s=1"};
  plan_scenario scenario;
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(read_with("8xa100-80gb-sxm", sets, 3, &scenario, &error) == DP_OK, "%s", error.text);
  for (size_t l = 0; l < scenario.cluster.links.count; l++) {
    const plan_link *link = &scenario.cluster.links.items[l];
    if (link->from != link->to)
      ck_assert_double_eq(link->bandwidth_bytes_per_s, link->model->kind == PLAN_LINK_NVLINK ? 3e9 : 1e9);
  }
  plan_scenario_free(&scenario);
}
END_TEST

START_TEST(devices) {
  plan_scenario before = changed("8xa100-80gb-sxm", NULL);
  const plan_device_model *was = before.cluster.devices.items[0].model;
  const double bf16 = was->peak_flops_per_s[GRAPH_BF16];
  plan_scenario after = changed("8xa100-80gb-sxm", set_of("device", was->name, "bf16_tflops", 2 * bf16 / 1e12));
  for (int d = 0; d < 8; d++) { /* one model still: costs are shared by it */
    ck_assert_ptr_eq(after.cluster.devices.items[d].model, after.cluster.devices.items[0].model);
    ck_assert_double_eq_tol(after.cluster.devices.items[d].model->peak_flops_per_s[GRAPH_BF16], 2 * bf16, 1);
    ck_assert_double_eq_tol(after.cluster.devices.items[d].model->achieved_flops_per_s, 2 * was->achieved_flops_per_s,
                            1);
  }
  plan_scenario_free(&after);
  after = changed("8xa100-80gb-sxm", "device.memory_gb=40");
  ck_assert_int_eq(after.cluster.devices.items[7].memory_bytes, 40000000000);
  plan_scenario_free(&after);
  after = changed("unlike-16gb-24gb", "device.RTX-4090.memory_gb=48");
  ck_assert_int_eq(after.cluster.devices.items[0].memory_bytes, 16000000000);
  ck_assert_int_eq(after.cluster.devices.items[1].memory_bytes, 48000000000);
  plan_scenario_free(&after);
  plan_scenario_free(&before);
}
END_TEST

/* Parts of a card: a quarter of the memory each, and copies between them as much faster as the memory. */
START_TEST(parts_of_a_card) {
  plan_scenario before = changed("1xh200-virtual4", NULL);
  const double bandwidth = before.cluster.devices.items[0].model->memory_bandwidth_bytes_per_s;
  plan_scenario after = changed("1xh200-virtual4",
                                dp_arena_printf(&arena, "device.memory_bandwidth_gb_per_s=%.17g", 2 * bandwidth / 1e9));
  int copies = 0;
  for (size_t l = 0; l < before.cluster.links.count; l++) {
    const plan_link *link = &before.cluster.links.items[l];
    const bool copy = link->model->reference_memory_bytes_per_s > 0;
    copies += copy;
    ck_assert_double_eq_tol(after.cluster.links.items[l].bandwidth_bytes_per_s / link->bandwidth_bytes_per_s,
                            copy ? 2 : 1, 1e-12);
  }
  ck_assert_int_gt(copies, 0);
  plan_scenario_free(&after);
  after = changed("1xh200-virtual4", "device.memory_gb=100");
  ck_assert_int_eq(after.cluster.devices.items[3].memory_bytes, 25000000000);
  plan_scenario_free(&after);
  plan_scenario_free(&before);
}
END_TEST

START_TEST(prices_and_power) {
  plan_scenario before = changed("8xa100-80gb-sxm", NULL);
  plan_scenario after = changed("8xa100-80gb-sxm", "device.price_usd_per_h=2");
  ck_assert_double_eq(after.cluster.price_usd_per_h, 16);
  plan_scenario_free(&after);
  after = changed("8xa100-80gb-sxm", "device.purchase_usd=1000");
  ck_assert_double_eq(after.cluster.purchase_usd, 8000);
  plan_scenario_free(&after);
  after = changed("8xa100-80gb-sxm", "device.RTX-4090.purchase_usd=1000"); /* a price list may name other cards */
  ck_assert_double_eq(after.cluster.purchase_usd, 0);
  plan_scenario_free(&after);
  after = changed("2x8xa100-ib", "host.purchase_usd=1000");
  ck_assert_double_eq(after.cluster.purchase_usd, 2000);
  plan_scenario_free(&after);
  after = changed("8xa100-80gb-sxm", "device.tdp_w=100");
  ck_assert_double_eq_tol(before.cluster.power_w - after.cluster.power_w,
                          8 * (before.cluster.devices.items[0].tdp_w - 100), 1e-9);
  plan_scenario_free(&after);
  after = changed("8xa100-80gb-sxm", "host.power_w=0");
  ck_assert_double_eq_tol(after.cluster.power_w, 8 * before.cluster.devices.items[0].tdp_w, 1e-9);
  plan_scenario_free(&after);
  after = changed("8xa100-80gb-sxm", "host.issue_factor=3");
  ck_assert_double_eq(after.cluster.host_issue_factor, 3);
  plan_scenario_free(&after);
  plan_scenario_free(&before);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {latencies_are_spread_as_built,
                                bandwidths,
                                classes_over_kinds_over_all,
                                devices,
                                parts_of_a_card,
                                prices_and_power};
  return suite_run("plan_change", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
