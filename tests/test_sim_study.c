/* Studies against searches of the same job written out, and what a prediction says that it rests on. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "sim/assumptions.h"
#include "sim/study.h"
#include "tests/sim_texts.h"
#include "tests/suite.h"

typedef struct study_of {
  plan_scenario scenario;
  sim_tune_result result;
  sim_study study;
} study_of;

static void load(plan_scenario *scenario, const char *text) { load_as("study.toml", text, scenario); }

static void make(study_of *made, const char *text, const volatile sig_atomic_t *stop) {
  const sim_tune_options how = {.threads = 2, .stop = stop};
  dp_error error = DP_ERROR_INIT;
  load(&made->scenario, text);
  search(&made->scenario, 2, &made->result);
  ck_assert_msg(sim_study_run(&made->scenario, efficiency, &made->result, &how, &made->study, &error) == DP_OK, "%s",
                error.text);
}

static void drop(study_of *made) {
  sim_study_free(&made->study);
  sim_tune_result_free(&made->result);
  plan_scenario_free(&made->scenario);
}

/* The best of the job on `count` cards with that batch, searched for on its own. */
static double best_of(int count, int batch) {
  char text[1024];
  (void)snprintf(text, sizeof text,
                 HEAD UNITS
                 "[task]\nglobal_batch = %d\n" CARDS("A100-PCIe-80GB", "%d") "[search]\nmicrobatch_sizes = [1, 2, 3]\n",
                 batch, count);
  plan_scenario scenario;
  sim_tune_result result;
  load(&scenario, text);
  search(&scenario, 2, &result);
  ck_assert_int_ge(result.best, 0);
  const double rate = result.trials[result.best].throughput_samples_per_s;
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);
  return rate;
}

static const char six_cards[] =
    HEAD UNITS "[task]\nglobal_batch = 24\n" CARDS("A100-PCIe-80GB", "6") "[search]\nmicrobatch_sizes = [1, 2, 3]\n";

START_TEST(points_are_the_best_of_their_own_search) {
  static const int devices[] = {1, 2, 4, 6}, batches[] = {6, 12, 24, 48, 96};
  study_of made;
  make(&made, six_cards, NULL);
  const sim_study *study = &made.study;
  const double best = made.result.trials[made.result.best].throughput_samples_per_s;
  ck_assert(!study->stopped);
  ck_assert_int_eq(study->device_count, 4);
  for (int i = 0; i < 4; i++) {
    const sim_study_point *point = &study->devices[i];
    const double rate = point->trial.throughput_samples_per_s;
    ck_assert_int_eq(point->devices, devices[i]);
    ck_assert(point->found && point->fits);
    ck_assert_int_le(point->trial.candidate.stages * point->trial.candidate.replicas, devices[i]);
    ck_assert_double_eq_tol(rate / (i == 3 ? best : best_of(devices[i], 24)), 1, 1e-9);
    if (i) ck_assert_double_ge(rate, study->devices[i - 1].trial.throughput_samples_per_s);
    /* at their share of the price: the whole cluster's, by devices */
    ck_assert_double_eq_tol(point->trial.usd_per_million_samples * rate / devices[i],
                            study->devices[3].trial.usd_per_million_samples * best / 6, 1e-6);
  }
  ck_assert_int_eq(study->batch_count, 5);
  for (int i = 0; i < 5; i++) {
    const sim_study_point *point = &study->batches[i];
    const double rate = point->trial.throughput_samples_per_s, searched = i == 2 ? best : best_of(6, batches[i]);
    const sim_candidate *c = &point->trial.candidate;
    ck_assert_int_eq(point->global_batch, batches[i]);
    ck_assert_int_eq(c->microbatches * c->microbatch_size * c->replicas, batches[i]);
    ck_assert(point->fits);
    if (batches[i] <= 24)
      ck_assert_double_eq_tol(rate / searched, 1, 1e-9);
    else /* of the promising plans: at most what a search finds, and more microbatches never make this job slower */
      ck_assert(rate <= searched * (1 + 1e-9) && rate >= best * (1 - 1e-9));
  }
  ck_assert_int_eq(study->k_count, 0);
  drop(&made);
}
END_TEST

START_TEST(larger_k_means_more_traffic) {
  study_of made;
  make(&made,
       HEAD SDXL
       "[task]\nglobal_batch = 4\n" CARDS("A100-PCIe-80GB", "2") "[search]\nstages = [2]\nschedules = [\"1f1b\"]\n"
       "microbatch_sizes = [1]\nallow_lossy_skips = true\nk = [65536, 1024]\n",
       NULL);
  const sim_study *study = &made.study;
  ck_assert_int_eq(study->k_count, 3);
  ck_assert_int_eq(study->k_layout.stages, 2);
  ck_assert_int_eq(study->ks[0].k, 0);
  ck_assert_int_eq(study->ks[1].k, 1024); /* in ascending order, whatever the scenario's */
  ck_assert_int_eq(study->ks[2].k, 65536);
  ck_assert_int_lt(study->ks[1].skip_bytes, study->ks[2].skip_bytes);
  ck_assert_int_lt(study->ks[2].skip_bytes, study->ks[0].skip_bytes);
  for (int i = 0; i < 3; i++) {
    sim_candidate candidate = study->k_layout;
    candidate.k = study->ks[i].k;
    if (candidate.k) candidate.skip_policy = PLAN_SKIP_COMPRESS;
    const plan_scenario changed = sim_tune_scenario(&made.scenario, &candidate, 4);
    sim_prediction prediction;
    predict(&changed, &prediction);
    ck_assert_double_eq_tol(study->ks[i].step_s, prediction.metrics.step_s, 1e-12);
    ck_assert_int_eq(study->ks[i].skip_bytes, prediction.metrics.comm_bytes_by_kind[PLAN_TRAFFIC_SKIP]);
    ck_assert_int_eq(study->ks[i].fits, prediction.fits);
    sim_prediction_free(&prediction);
  }
  drop(&made);
}
END_TEST

START_TEST(where_nothing_fits_the_nearest_is_told) {
  study_of made;
  make(&made,
       HEAD SDXL
       "[task]\nglobal_batch = 4\n" CARDS("RTX-3090", "2") "[search]\nschedules = [\"1f1b\"]\n"
       "microbatch_sizes = [1]\nrecompute = [\"none\"]\n",
       NULL);
  ck_assert_int_lt(made.result.best, 0);
  ck_assert_int_eq(made.study.device_count, 2);
  for (int i = 0; i < 2; i++) {
    ck_assert(made.study.devices[i].found && !made.study.devices[i].fits);
    ck_assert_int_gt(made.study.devices[i].trial.peak_bytes, 24000000000);
  }
  ck_assert_int_eq(made.study.k_count, 0);
  drop(&made);
}
END_TEST

START_TEST(stopped_studies_are_told_as_such) {
  const volatile sig_atomic_t stop = 1;
  study_of made;
  make(&made, six_cards, &stop);
  ck_assert(made.study.stopped);
  ck_assert_int_eq(made.study.device_count, 0);
  ck_assert_int_eq(made.study.batch_count, 0);
  drop(&made);
}
END_TEST

/* ---- assumptions ---- */

static const sim_assumption *find(const sim_assumption *rows, int count, const char *what) {
  for (int i = 0; i < count; i++)
    if (strcmp(rows[i].what, what) == 0) return &rows[i];
  return NULL;
}

static void assume(const char *text, void (*check)(const sim_assumption *, int, const sim_prediction *)) {
  dp_error error = DP_ERROR_INIT;
  dp_arena arena = {0};
  plan_scenario scenario;
  sim_prediction prediction;
  const sim_assumption *rows = NULL;
  int count = 0;
  load(&scenario, text);
  predict(&scenario, &prediction);
  ck_assert_msg(sim_assumptions_of(&scenario, efficiency, &prediction, &arena, &rows, &count, &error) == DP_OK, "%s",
                error.text);
  ck_assert_int_gt(count, 0);
  for (int i = 0; i < count; i++) {
    ck_assert_msg(rows[i].what[0] && rows[i].value[0] && rows[i].source[0], "row %d is not complete", i);
    for (int j = 0; j < i; j++) ck_assert_str_ne(rows[i].what, rows[j].what); /* each once, however many cards */
  }
  check(rows, count, &prediction);
  dp_arena_free(&arena);
  sim_prediction_free(&prediction);
  plan_scenario_free(&scenario);
}

static void check_real(const sim_assumption *rows, int count, const sim_prediction *prediction) {
  ck_assert_str_eq(rows[0].what, "the step");
  ck_assert_double_eq(rows[0].error_band, prediction->error_band);
  const sim_assumption *card = find(rows, count, "A100-SXM4-80GB: data sheet");
  ck_assert_ptr_nonnull(card);
  ck_assert_ptr_nonnull(strstr(card->value, "312 TFLOP/s bf16, 2039 GB/s, 80 GB"));
  ck_assert_double_gt(card->error_band, 0);
  const sim_assumption *link = find(rows, count, "link nvlink3");
  ck_assert_ptr_nonnull(link);
  ck_assert_ptr_nonnull(strstr(link->value, "240 GB/s one way of 300, 1.79 us"));
  ck_assert_ptr_nonnull(strstr(link->source, "nccl"));
  ck_assert_ptr_nonnull(find(rows, count, "collectives"));
  ck_assert_ptr_nonnull(find(rows, count, "convolutions"));
  ck_assert_ptr_nonnull(find(rows, count, "attention, heads of 64"));
}

static void check_synthetic(const sim_assumption *rows, int count, const sim_prediction *prediction) {
  (void)prediction;
  ck_assert_str_eq(rows[0].what, "units");
  ck_assert_ptr_null(find(rows, count, "A100-SXM4-80GB: data sheet")); /* no figure of the card was used */
  ck_assert_ptr_nonnull(find(rows, count, "link nvlink3"));
}

START_TEST(assumptions_name_their_sources) {
  static const char cards[] = CARDS("A100-SXM4-80GB", "4") "[plan]\nstages = 2\ndata_parallel = 2\n";
  char text[1024];
  (void)snprintf(text, sizeof text, HEAD SDXL "[task]\nglobal_batch = 8\n%s", cards);
  assume(text, check_real);
  (void)snprintf(text, sizeof text, HEAD UNITS "[task]\nglobal_batch = 8\n%s", cards);
  assume(text, check_synthetic);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {points_are_the_best_of_their_own_search, larger_k_means_more_traffic,
                                where_nothing_fits_the_nearest_is_told, stopped_studies_are_told_as_such,
                                assumptions_name_their_sources};
  return suite_run("study", tests, sizeof tests / sizeof tests[0], read_efficiency, free_efficiency, 120);
}
