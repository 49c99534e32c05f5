/* One job on several clusters. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/whatif.h"
#include "tests/suite.h"

static sim_efficiency *efficiency;
static char path[64];
static const sim_tune_options how = {.threads = 2};

static void write_scenario(const char *task) {
  (void)snprintf(path, sizeof path, "/tmp/diffpipe-whatif-XXXXXX.toml");
  const int file = mkstemps(path, 5);
  ck_assert_int_ge(file, 0);
  FILE *stream = fdopen(file, "w");
  fprintf(stream,
          "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nconfig = \"models/sd15_unet.json\"\nheight = "
          "512\nwidth = 512\n"
          "[task]\n%s\n[cluster]\nfile = \"clusters/8xa100-80gb-sxm.toml\"\n[plan]\nstages = "
          "8\n[search]\nmicrobatch_sizes = [2, 8]\n",
          task);
  ck_assert_int_eq(fclose(stream), 0);
}

static void setup(void) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(sim_efficiency_read(NULL, &efficiency, &error) == DP_OK, "%s", error.text);
  write_scenario("global_batch = 64");
}
static void teardown(void) {
  sim_efficiency_free(efficiency);
  (void)unlink(path);
}

static void compare(const char *cluster, sim_hardware *h) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(sim_whatif(path, NULL, 0, cluster, efficiency, &how, h, &error) == DP_OK, "%s", error.text);
}

/* Its [plan] has eight stages: on four cards that is not looked at. */
START_TEST(plan_of_the_scenario_does_not_bind) {
  sim_hardware h;
  compare("clusters/4xrtx3090-pcie.toml", &h);
  ck_assert(h.fits);
  ck_assert_int_le(h.best.candidate.stages * h.best.candidate.replicas, 4);
  sim_hardware_free(&h);
}
END_TEST

START_TEST(faster_cards_win_and_gains_are_sane) {
  sim_hardware a, h;
  compare("clusters/8xa100-80gb-sxm.toml", &a);
  compare("clusters/8xh100-sxm.toml", &h);
  ck_assert_double_gt(h.best.throughput_samples_per_s, a.best.throughput_samples_per_s);
  for (int r = 0; r < SIM_RESOURCE_COUNT; r++) {
    ck_assert_double_ge(a.gain[r], -1e-6);
    ck_assert_double_le(a.gain[r], 0.1 + 1e-6); /* a tenth more of one thing gives at most a tenth more */
  }
  ck_assert_double_gt(a.gain[SIM_RESOURCE_COMPUTE], 0.03);
  ck_assert_double_gt(a.gain[SIM_RESOURCE_COMPUTE] + a.gain[SIM_RESOURCE_MEMORY_BANDWIDTH], 0.05);
  sim_hardware_free(&a);
  sim_hardware_free(&h);
}
END_TEST

START_TEST(buying_pays_after_price_over_rent) {
  char cluster[] = "/tmp/diffpipe-cluster-XXXXXX.toml";
  const int file = mkstemps(cluster, 5);
  ck_assert_int_ge(file, 0);
  static const char text[] =
      "format = \"diffpipe-cluster\"\nversion = 1\nname = \"bought\"\n[[node]]\n[[node.device]]\n"
      "model = \"RTX-3090\"\ncount = 4\npurchase_usd = 1000\n";
  ck_assert_int_eq(write(file, text, sizeof text - 1), sizeof text - 1);
  ck_assert_int_eq(close(file), 0);
  sim_hardware bought, rented;
  compare(cluster, &bought);
  compare("clusters/8xa100-80gb-sxm.toml", &rented);
  ck_assert_double_eq(bought.purchase_usd, 4000);
  const double samples_per_month = bought.best.throughput_samples_per_s * 365.25 * 86400 / 12;
  const double rent = samples_per_month / 1e6 * rented.best.usd_per_million_samples;
  ck_assert_double_eq_tol(sim_break_even_months(&bought, &rented), 4000 / rent, 1e-9);
  ck_assert_double_eq(sim_break_even_months(&rented, &bought), 0); /* no purchase price is known */
  sim_hardware_free(&bought);
  sim_hardware_free(&rented);
  ck_assert_int_eq(unlink(cluster), 0);
}
END_TEST

START_TEST(a_batch_must_be_given) {
  (void)unlink(path);
  write_scenario("kind = \"train\"");
  sim_hardware h;
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(sim_whatif(path, NULL, 0, "clusters/8xh100-sxm.toml", efficiency, &how, &h, &error), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, ":7: task: the key \"global_batch\" is missing") != NULL, "%s", error.text);
  ck_assert_int_eq(sim_whatif(path, NULL, 0, "clusters/nothing.toml", efficiency, &how, &h, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(error.text, "clusters/nothing.toml"));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {plan_of_the_scenario_does_not_bind, faster_cards_win_and_gains_are_sane,
                                buying_pays_after_price_over_rent, a_batch_must_be_given};
  return suite_run("sim_whatif", tests, sizeof tests / sizeof tests[0], setup, teardown, 300);
}
