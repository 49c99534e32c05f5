/* What training keeps on a CUDA device: masters in halves that are written, stepped, exchanged with their means and
 * read to the bit; AdamW's first step by its law, from the gradients that are there; gradients of either precision over
 * several microbatches. Ends with `N passed, N failed`; exits with 77 where there is no device. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "exec/algorithms.h"
#include "kernels/halves.h"
#include "sim/predict.h"
#include "tests/cuda_checks.h"
#include "tests/exec_fixture.h"

enum { SAMPLES = 8 };

static dp_error error = DP_ERROR_INIT;
static sim_efficiency *efficiency;
static exec_algorithms *algorithms; /* found once for all plans */

static void *room(size_t bytes) {
  void *memory = malloc(bytes > 0 ? bytes : 1);
  if (!memory) abort();
  return memory;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* ---- a pipeline of a small model ---- */

typedef struct fed {
  exec_fixture_feed feed; /* first: exec_fixture_fill takes it */
  int64_t samples;        /* of a microbatch */
  float weights[SAMPLES]; /* of the microbatches' losses */
} fed;

static void weigh(void *data, int replica, int microbatch, float *out) {
  const fed *f = data;
  (void)replica;
  for (int64_t s = 0; s < f->samples; s++) out[s] = f->weights[microbatch];
}

typedef struct trial {
  plan_scenario scenario;
  sim_prediction p;
  exec_pipeline *pipeline;
  fed feed;
} trial;

static dp_status load(trial *t, const char *model) {
  exec_weights weights = {0};
  dp_document config = {0};
  const exec_pipeline_options options = {
      .cuda = true,
      .threads = 1,
      .feed = {.fill = exec_fixture_fill, .weigh = weigh, .data = &t->feed},
      .means = true,
      .algorithms = algorithms};
  dp_status status = exec_weights_open(fixture_path(model, ""), &t->p.graph, &weights, &error);
  if (status == DP_OK) status = dp_document_read(fixture_path(model, "config.json"), &config, &error);
  if (status == DP_OK) status = exec_pipeline_create(&t->p.program, &t->p.graph, &options, &t->pipeline, &error);
  if (status == DP_OK)
    status = exec_fixture_load(t->pipeline, &t->p.program, &t->p.graph, &weights, config.root, &error);
  dp_document_free(&config);
  exec_weights_close(&weights);
  return status;
}

static bool open_trial(trial *t, const char *model, const char *precision, const char *task, const char *plan) {
  const exec_fixture job = {.model = model,
                            .height = 128,
                            .width = 192,
                            .text_tokens = 7,
                            .global_batch = SAMPLES,
                            .precision = precision,
                            .task = task,
                            .plan = plan};
  *t = (trial){.pipeline = NULL};
  error = (dp_error)DP_ERROR_INIT;
  dp_status status = exec_fixture_scenario(&job, &t->scenario, &error);
  if (status == DP_OK) {
    t->scenario.global_norm = true;
    status = sim_predict(&t->scenario, efficiency, &t->p, &error);
  }
  if (status == DP_OK) {
    t->feed.feed = (exec_fixture_feed){.graph = &t->p.graph, .microbatches = t->p.plan.microbatches};
    t->feed.samples = SAMPLES / t->p.plan.microbatches;
    for (int m = 0; m < SAMPLES; m++) t->feed.weights[m] = 1;
    status = load(t, model);
  }
  check(status == DP_OK, "%s", error.text);
  return status == DP_OK;
}

static void close_trial(trial *t) {
  exec_pipeline_free(t->pipeline);
  sim_prediction_free(&t->p);
  plan_scenario_free(&t->scenario);
}

static const exec_parameters *parameters_of(const trial *t, int worker) {
  return exec_pipeline_parameters(t->pipeline, worker);
}

static float *read_all(trial *t, int worker, exec_array array) {
  const int64_t n = parameters_of(t, worker)->trained_count;
  float *values = room((size_t)n * sizeof *values);
  memset(values, 0xff, (size_t)n * sizeof *values);
  const dp_status status = exec_pipeline_read(t->pipeline, worker, array, 0, n, values, &error);
  check(status == DP_OK, "reading: %s", error.text);
  return values;
}

static const double learning_rate = 1e-3, weight_decay = 0.01, epsilon = 1e-8;

static bool step(trial *t, exec_step how, double *norm) {
  exec_step_result result = {.squares = NULL};
  how.means_decay = 0.5;
  how.adamw = (kern_adamw){.lr = how.adamw.lr,
                           .beta1 = 0.9,
                           .beta2 = 0.999,
                           .epsilon = epsilon,
                           .weight_decay = weight_decay,
                           .step = how.adamw.step};
  const dp_status status = exec_pipeline_step(t->pipeline, &how, &result, NULL, &error);
  check(status == DP_OK, "a step: %s", error.text);
  if (norm) *norm = result.gradient_norm;
  return status == DP_OK;
}

/* ---- masters ---- */

/* What kernels read is what the law makes of the masters. */
static void check_weights(trial *t, int worker, const float *masters) {
  const exec_parameters *p = parameters_of(t, worker);
  const int64_t n = p->trained_count;
  uint16_t *weights = room((size_t)n * sizeof *weights);
  int64_t wrong = 0;
  memset(weights, 0xff, (size_t)n * sizeof *weights);
  check(cudaMemcpy(weights, p->values, (size_t)n * sizeof *weights, cudaMemcpyDeviceToHost) == cudaSuccess,
        "weights cannot be copied");
  for (int64_t i = 0; i < n; i++) wrong += weights[i] != kern_halves_weight(bits_of(masters[i]));
  check(wrong == 0, "worker %d: %lld of %lld weights are not their masters' nearest", worker, (long long)wrong,
        (long long)n);
  free(weights);
}

static void check_same(const trial *t, int worker, const char *what, const float *a, const float *b) {
  const int64_t n = parameters_of(t, worker)->trained_count;
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; i++) wrong += bits_of(a[i]) != bits_of(b[i]);
  check(wrong == 0, "worker %d: %lld of %lld %s differ", worker, (long long)wrong, (long long)n, what);
}

/* Masters that no bf16 holds come back to the bit. */
static void try_writing(trial *t, int worker) {
  const int64_t n = parameters_of(t, worker)->trained_count;
  float *masters = read_all(t, worker, EXEC_VALUES);
  for (int64_t i = 0; i < n; i++) {
    const uint32_t bits = bits_of(masters[i]) ^ ((uint32_t)i * 2654435761u >> 16);
    memcpy(&masters[i], &bits, sizeof bits);
  }
  check(exec_pipeline_write(t->pipeline, worker, EXEC_VALUES, 0, n, masters, &error) == DP_OK, "writing: %s",
        error.text);
  float *again = read_all(t, worker, EXEC_VALUES);
  check_same(t, worker, "masters that were written", again, masters);
  if (parameters_of(t, worker)->low) check_weights(t, worker, masters);
  free(masters);
  free(again);
}

/* Evaluations by means leave masters and means as they were. */
static void try_means(trial *t) {
  float *masters[2], *means[2];
  const int workers = t->p.program.worker_count;
  for (int w = 0; w < workers && w < 2; w++) {
    masters[w] = read_all(t, w, EXEC_VALUES);
    means[w] = read_all(t, w, EXEC_MEANS);
  }
  const bool stepped =
      step(t, (exec_step){.evaluate = true, .use_means = true}, NULL) && step(t, (exec_step){.evaluate = true}, NULL);
  for (int w = 0; w < workers && w < 2; w++) {
    float *values = read_all(t, w, EXEC_VALUES), *kept = read_all(t, w, EXEC_MEANS);
    if (stepped) check_same(t, w, "masters after an evaluation", values, masters[w]);
    if (stepped) check_same(t, w, "means after an evaluation", kept, means[w]);
    if (stepped && parameters_of(t, w)->low) check_weights(t, w, values);
    free(values), free(kept), free(masters[w]), free(means[w]);
  }
}

/* The first step of AdamW goes lr g / (|g| + epsilon) from each decayed master, with the gradients that are there,
 * clipped by the norm that is told: which is that of those gradients. */
static void try_first_step(trial *t) {
  const int workers = t->p.program.worker_count;
  const double clip_norm = 0.5;
  float *before[2], *after[2], *gradients[2];
  double norm = 0, square = 0, worst = 0;
  for (int w = 0; w < workers; w++) before[w] = read_all(t, w, EXEC_VALUES);
  if (!step(t, (exec_step){.clip_norm = clip_norm, .adamw = {.lr = learning_rate, .step = 1}}, &norm)) norm = NAN;
  for (int w = 0; w < workers; w++) {
    after[w] = read_all(t, w, EXEC_VALUES);
    gradients[w] = read_all(t, w, EXEC_GRADIENTS);
    for (int64_t i = 0; i < parameters_of(t, w)->trained_count; i++)
      square += (double)gradients[w][i] * (double)gradients[w][i];
    if (parameters_of(t, w)->low) check_weights(t, w, after[w]);
  }
  check(fabs(norm - sqrt(square)) <= 1e-6 * norm, "the norm is %.9g, that of the gradients %.9g", norm, sqrt(square));
  const double scale = fmin(1, clip_norm / (norm + 1e-6));
  for (int w = 0; w < workers; w++) {
    for (int64_t i = 0; i < parameters_of(t, w)->trained_count; i++) {
      const double g = scale * (double)gradients[w][i], x = before[w][i];
      const double want = x * (1 - learning_rate * weight_decay) - learning_rate * g / (fabs(g) + epsilon);
      /* roundings of the result, and of the step, which is at most lr */
      const double off = fabs((double)after[w][i] - want) / (ldexp(fabs(x), -22) + 1e-5 * learning_rate);
      worst = off <= worst ? worst : off; /* of NaN, too */
    }
    free(before[w]), free(after[w]), free(gradients[w]);
  }
  check(worst <= 1, "the first step is off by %.3g of what is allowed", worst);
}

static void try_state(const char *model, const char *precision, const char *plan) {
  trial t;
  if (open_trial(&t, model, precision, NULL, plan)) {
    for (int w = 0; w < t.p.program.worker_count; w++) try_writing(&t, w);
    try_first_step(&t);
    try_means(&t);
  }
  close_trial(&t);
}

/* ---- gradients ---- */

static double norm_of(const double *x, int64_t n) {
  double square = 0;
  for (int64_t i = 0; i < n; i++) square += x[i] * x[i];
  return sqrt(square);
}

/* The gradients of the microbatches whose losses count. */
static double *gradients_of(trial *t, int first, int end) {
  const int64_t n = parameters_of(t, 0)->trained_count;
  double *wide = room((size_t)n * sizeof *wide);
  for (int m = 0; m < t->p.plan.microbatches; m++) t->feed.weights[m] = m >= first && m < end ? 1 : 0;
  (void)step(t, (exec_step){.adamw = {.step = 1}}, NULL); /* that learns nothing */
  float *values = read_all(t, 0, EXEC_GRADIENTS);
  for (int64_t i = 0; i < n; i++) wide[i] = values[i];
  free(values);
  return wide;
}

/* Those of all microbatches against the sum of each one's, by the same kernels: they differ by roundings alone. A
 * microbatch's may be rounded once before it is added, the sum is rounded each time, and each one's by itself twice: to
 * u of its size. So the norm of the difference is at most u sum_k (3 |g_k| + |s_k|), with s_k the sum of the first k.
 * Returns the gradients of all. */
static double *try_sum(trial *t, double unit, double *norm) {
  const int64_t n = parameters_of(t, 0)->trained_count;
  const int m = t->p.plan.microbatches;
  double *sum = room((size_t)n * sizeof *sum), allowed = 0;
  for (int64_t i = 0; i < n; i++) sum[i] = 0;
  for (int k = 0; k < m; k++) {
    double *one = gradients_of(t, k, k + 1);
    for (int64_t i = 0; i < n; i++) sum[i] += one[i];
    allowed += unit * (3 * norm_of(one, n) + norm_of(sum, n));
    free(one);
  }
  double *all = gradients_of(t, 0, m);
  for (int64_t i = 0; i < n; i++) sum[i] -= all[i];
  const double off = norm_of(sum, n);
  *norm = norm_of(all, n);
  printf("%s: sums of %d microbatches off by %.2e of their norm, allowed %.2e\n", now, m, off / *norm, allowed / *norm);
  check(off <= allowed, "the sum of %d microbatches is off by %.3g, allowed %.3g", m, off, allowed);
  free(sum);
  return all;
}

/* Of the model's precision and of fp32: beside what the sums lose they differ as two runs of bf16 do whose kernels were
 * chosen by time, by some hundredths (tests/test_cuda_exec.c). */
static void try_gradients(const char *model, const char *plan) {
  trial narrow, wide;
  double *mine = NULL, *want = NULL, mine_norm = 0, norm = 0, off = 0;
  int64_t n = 0, odd = 0;
  if (open_trial(&narrow, model, "bf16", "gradient_precision = \"model\"", plan)) {
    n = parameters_of(&narrow, 0)->trained_count;
    check(parameters_of(&narrow, 0)->gradient_dtype == GRAPH_BF16, "gradients are not bf16");
    mine = try_sum(&narrow, ldexp(1, -8), &mine_norm);
    for (int64_t i = 0; i < n; i++) odd += (bits_of((float)mine[i]) & 0xffff) != 0;
    check(odd == 0, "%lld gradients are no bf16", (long long)odd);
  }
  close_trial(&narrow);
  if (open_trial(&wide, model, "bf16", NULL, plan)) want = try_sum(&wide, ldexp(1, -24), &norm);
  close_trial(&wide);
  for (int64_t i = 0; mine && want && i < n; i++) off += (mine[i] - want[i]) * (mine[i] - want[i]);
  if (mine && want) {
    printf("%s: bf16 gradients off by %.2e of fp32's norm\n", now, sqrt(off) / norm);
    check(sqrt(off) <= 0.12 * norm, "bf16 gradients are off by %.3g of %.3g", sqrt(off), norm);
  }
  free(mine);
  free(want);
}

int main(void) {
  static const char *const models[] = {"sd15", "sd3"};
  static const char *const plans[] = {"stages = 1", "stages = 1\nmicrobatch_size = 8",
                                      "stages = 2\nschedule = \"1f1b\"\nmicrobatch_size = 4"};
  if (exec_device_cuda_there(&error) != DP_OK) {
    printf("%s\n", error.text);
    return 77;
  }
  if (sim_efficiency_read(NULL, &efficiency, &error) != DP_OK ||
      exec_algorithms_create(&algorithms, &error) != DP_OK) {
    printf("%s\n", error.text);
    return 1;
  }
  for (size_t m = 0; m < DP_COUNT_OF(models); m++)
    for (size_t p = 0; p < DP_COUNT_OF(plans); p++)
      for (int bf16 = 0; bf16 < 2; bf16++) {
        char name[128];
        (void)snprintf(name, sizeof name, "%s, %s, plan %zu", models[m], bf16 ? "bf16" : "fp32", p);
        now = name;
        try_state(models[m], bf16 ? "bf16" : "fp32", plans[p]);
        if (bf16 && p < 2) try_gradients(models[m], plans[p]);
      }
  exec_algorithms_free(algorithms);
  sim_efficiency_free(efficiency);
  printf("%d passed, %d failed\n", passed, failed);
  return failed > 0 || passed == 0;
}
