/* What a run says where a device has less memory free than its plan needs: a plan that does fit, as settings. */
#include "cli/run_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/predict.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"

static dp_error error;
static plan_scenario scenario;
static dp_str words;

#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

static const char *path(const char *file) {
  static char made[4096];
  const char *source = getenv("SRCDIR");
  (void)snprintf(made, sizeof made, "%s/scenarios/%s", source ? source : ".", file);
  return made;
}

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  scenario = (plan_scenario){.name = NULL};
  read_efficiency();
}

static void teardown(void) {
  plan_scenario_free(&scenario);
  dp_str_free(&words);
  free_efficiency();
}

/* SDXL on four parts of a card, as the executor lays it out. */
static void open_scenario(const char *const *sets, int count) {
  plan_scenario_free(&scenario);
  OK(plan_scenario_read(path("sdxl-h200-virtual4.toml"), sets, count, &scenario, &error));
  scenario.implementation = "cuda";
}

/* The words of a shell that follow "--set ". */
static int take_settings(char *text, const char **sets, int most) {
  int count = 0;
  for (char *at = strstr(text, "--set "); at && count < most; at = strstr(at, "--set ")) {
    at += strlen("--set ");
    const char *const end = *at == '\'' ? "'" : " ";
    if (*at == '\'') at++;
    sets[count++] = at;
    at += strcspn(at, end);
    if (*at) *at++ = 0;
  }
  return count;
}

/* The plan that is named fits in what was said to be free; and with less free it is no faster. */
START_TEST(the_named_plan_fits) {
  static const double free_gb[] = {24, 14};
  static const char *const small[] = {"task.global_batch=8", "search.microbatch_sizes=[1, 2]",
                                      "search.schedules=[\"1f1b\", \"folded\"]"};
  enum { SMALL = sizeof small / sizeof *small };
  double last_s = 0;
  for (int i = 0; i < 2; i++) {
    const char *sets[32] = {small[0], small[1], small[2]};
    const int64_t bytes = (int64_t)(free_gb[i] * 1e9);
    sim_prediction p;
    open_scenario(small, SMALL);
    dp_str_clear(&words);
    OK(cli_run_advise(&scenario, efficiency, bytes, &words, &error));
    ck_assert_msg(strncmp(dp_str_text(&words), "the fastest plan that fits: --set device.memory_gb=", 51) == 0,
                  "%.1f GB: %s", free_gb[i], dp_str_text(&words));
    const int64_t before = scenario.cluster.devices.items[0].memory_bytes;
    ck_assert_int_gt(before, bytes); /* the scenario is as it was */
    open_scenario(sets, SMALL + take_settings(words.text, sets + SMALL, 32 - SMALL));
    OK(sim_predict(&scenario, efficiency, &p, &error));
    for (int w = 0; w < p.program.worker_count; w++)
      ck_assert_msg(p.memory.workers[w].peak_bytes <= bytes, "%.1f GB: worker %d needs %lld bytes", free_gb[i], w,
                    (long long)p.memory.workers[w].peak_bytes);
    ck_assert(p.timeline.step_s >= last_s * (1 - 1e-9));
    last_s = p.timeline.step_s;
    sim_prediction_free(&p);
  }
}
END_TEST

START_TEST(where_nothing_fits_the_line_says_so) {
  open_scenario(NULL, 0);
  OK(cli_run_advise(&scenario, efficiency, 2000000000, &words, &error));
  ck_assert_str_eq(dp_str_text(&words), "no plan of this scenario fits in 2.00 GB a device");
}
END_TEST

/* As a run without a device to ask says it, all on one. */
START_TEST(the_line_ends_with_the_advice) {
  const exec_shortage shortage = {.gpu = 0, .workers = 4, .needed_bytes = 100000000000, .free_bytes = 8000000000};
  open_scenario(NULL, 0);
  ck_assert_int_eq(cli_run_share(&scenario, &shortage, 1), 2000000000);
  ck_assert_int_eq(cli_run_share(&scenario, &shortage, 3), 4000000000);
  ck_assert_int_eq(cli_run_share(&scenario, &shortage, 4), 8000000000);
  ck_assert_int_eq(cli_run_share(&scenario, &shortage, 8), 8000000000);
  (void)dp_fail(&error, DP_RUN_FAILED, "GPU 0: the plan needs more");
  cli_run_add_advice(&scenario, efficiency, &shortage, 1, &error);
  ck_assert_int_eq(error.status, DP_RUN_FAILED);
  ck_assert_str_eq(error.text, "GPU 0: the plan needs more; no plan of this scenario fits in 2.00 GB a device");
}
END_TEST

START_TEST(settings_are_words_of_a_shell) {
  const char *const skips[] = {"conv_in=compress", "mid_block=relay"};
  const sim_candidate candidate = {.stages = 4,
                                   .replicas = 2,
                                   .chunks = 2,
                                   .microbatches = 8,
                                   .microbatch_size = 1,
                                   .tensor = 2,
                                   .schedule = PLAN_FOLDED,
                                   .skip_policy = PLAN_SKIP_COMPRESS,
                                   .k = 256,
                                   .even_split = true,
                                   .skips = skips,
                                   .skip_count = 2};
  cli_candidate_settings(&candidate, " ", &words);
  ck_assert_str_eq(dp_str_text(&words),
                   "--set plan.stages=4 --set plan.data_parallel=2 --set plan.schedule=folded --set "
                   "plan.tensor_parallel=2 --set plan.chunks=2 --set plan.microbatches=8 --set plan.microbatch_size=1 "
                   "--set plan.recompute=none --set plan.skip_policy=compress --set plan.split=even --set plan.k=256 "
                   "--set 'plan.skips=[\"conv_in=compress\", \"mid_block=relay\"]'");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {the_named_plan_fits, where_nothing_fits_the_line_says_so, the_line_ends_with_the_advice,
                                settings_are_words_of_a_shell};
  return suite_run("run_memory", tests, sizeof tests / sizeof tests[0], setup, teardown, 240);
}
