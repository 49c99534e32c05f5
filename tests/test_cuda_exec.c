/* Programs on a CUDA device against the CPU's lone worker: every schedule on 1, 2, 4 and 8 parts of the device, in fp32
 * and bf16, with memory poisoned outside the lives that the plan gives it, and played again from graphs. Where a plan
 * compresses skips, against the CPU under the same plan and with the same matrices. Ends with `N passed, N failed`;
 * exits with 77 where there is no device.
 *
 * usage: test_cuda_exec [MODEL [FIRST [COUNT]]] [--whole] [--steps N] [--way WAY] [--algorithms FILE]
 *   of the fixtures; plans, from 0
 *   --whole     every worker has the whole device: no green contexts, which compute-sanitizer may not know
 *   --steps N   training steps of a run, at most 4, before two evaluations
 *   --way poisoned|fp32|bf16   only the one: op by op with poison, in fp32; or from graphs
 *   --algorithms FILE   what was timed by other runs, and is added to by this one: timing takes minutes under compute-sanitizer
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/algorithms.h"
#include "exec/device.h"
#include "sim/predict.h"
#include "tests/cuda_bounds.h"
#include "tests/cuda_checks.h"
#include "tests/cuda_plans.h"
#include "tests/exec_fixture.h"
#include "tests/timeline_order.h"

enum { SAMPLES = 8, STEPS = 4, MOST_WORKERS = 8, MOST_SKIPS = 32 };

static dp_error error = DP_ERROR_INIT;
static int steps = STEPS;
static bool whole;
static const char *way; /* NULL: all */
static sim_efficiency *efficiency;
static exec_algorithms *algorithms; /* found once for all plans */

typedef struct outcome {
  double loss[STEPS], evaluated, of_means; /* the last two: evaluations, by the weights and by their running means */
  float *gradients;                        /* of all weights, in the order of the graph, of the last step */
  int64_t count;
  /* of compressed skips: PSNR after the run's own fit, and in a step that trains; of both ends' matrices, one behind
   * the other, what that fit gave and the gradients of the last step */
  int skips;
  double fitted[MOST_SKIPS], psnr[MOST_SKIPS];
  float *matrices, *of_matrices;
  int64_t matrix_count;
  char text[1024]; /* of the error, in a run that is spoilt */
} outcome;

typedef struct how {
  bool cuda, poison, bf16;
  bool spoilt;         /* after a few steps a weight in the middle of the last chunk is not a number */
  const outcome *like; /* whose matrices it begins with; NULL: its own */
} how;

static dp_status keep_gradients(exec_pipeline *pipeline, const graph *g, outcome *o) {
  o->count = g->parameters;
  o->gradients = malloc((size_t)o->count * sizeof *o->gradients);
  if (!o->gradients) return dp_fail_memory(&error);
  float *next = o->gradients;
  for (size_t k = 0; k < g->weights.count; k++) {
    int owner = 0;
    while (!exec_parameters_value(exec_pipeline_parameters(pipeline, owner), (int)k)) owner++;
    DP_TRY(exec_pipeline_read_weight(pipeline, owner, EXEC_GRADIENTS, (int)k, next, &error));
    next += g->weights.items[k].parameters;
  }
  return DP_OK;
}

/* Both ends' matrices of all skips, or their gradients, of replica 0. */
static dp_status keep_matrices(exec_pipeline *pipeline, exec_array array, outcome *o, float **kept) {
  o->matrix_count = 0;
  for (int s = 0; s < o->skips; s++) o->matrix_count += 2 * exec_pipeline_skip(pipeline, s, 0).compressor->parameters;
  *kept = malloc((size_t)o->matrix_count * sizeof **kept);
  if (!*kept) return dp_fail_memory(&error);
  float *next = *kept;
  for (int s = 0; s < o->skips; s++)
    for (int e = 0; e < 2; e++) {
      const exec_skip ends = exec_pipeline_skip(pipeline, s, 0);
      const int64_t n = ends.compressor->parameters;
      DP_TRY(exec_pipeline_read(pipeline, ends.worker[e], array, ends.offset[e], n, next, &error));
      next += n;
    }
  return DP_OK;
}

static dp_status take_matrices(exec_pipeline *pipeline, int replicas, const outcome *from) {
  const float *next = from->matrices;
  for (int s = 0; s < from->skips; s++)
    for (int e = 0; e < 2; e++) {
      const int64_t n = exec_pipeline_skip(pipeline, s, 0).compressor->parameters;
      for (int r = 0; r < replicas; r++) {
        const exec_skip ends = exec_pipeline_skip(pipeline, s, r);
        DP_TRY(exec_pipeline_write(pipeline, ends.worker[e], EXEC_VALUES, ends.offset[e], n, next, &error));
      }
      next += n;
    }
  return DP_OK;
}

/* Both the fit, and what comes through after it, which `like` then takes the place of. */
static dp_status begin_skips(exec_pipeline *pipeline, const sim_prediction *p, how h, outcome *o) {
  const exec_step look = {.evaluate = true, .measure_skips = true};
  exec_step_result result = {.psnr = o->fitted};
  o->skips = exec_pipeline_skips(pipeline);
  if (o->skips == 0) return DP_OK;
  if (o->skips > MOST_SKIPS) return dp_fail(&error, DP_INTERNAL, "%d skips", o->skips);
  DP_TRY(exec_pipeline_fit_skips(pipeline, &error));
  DP_TRY(exec_pipeline_step(pipeline, &look, &result, NULL, &error));
  if (h.like) return take_matrices(pipeline, p->plan.replicas, h.like);
  return keep_matrices(pipeline, EXEC_VALUES, o, &o->matrices);
}

/* Steps, the last without an update, so that its gradients are of the weights that gave its loss; then an evaluation.
 */
static dp_status train(exec_pipeline *pipeline, const sim_prediction *p, plan_timeline *timeline, how h, outcome *o) {
  exec_step step = {.clip_norm = 0.5,
                    .means_decay = 0.5,
                    .adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01}};
  exec_step_result result = {.squares = NULL};
  DP_TRY(begin_skips(pipeline, p, h, o));
  for (int s = 0; s < steps; s++) {
    step.adamw.step = s + 1;
    step.measure_skips = o->skips > 0 && s == (steps > 1); /* not the last: that one is to be played again */
    result.psnr = step.measure_skips ? o->psnr : NULL;
    DP_TRY(exec_pipeline_step(pipeline, &step, &result, timeline, &error));
    o->loss[s] = result.loss;
    if (!timeline_is_ordered(timeline)) return dp_fail(&error, DP_INTERNAL, "the timeline of step %d has no order", s);
  }
  DP_TRY(keep_gradients(pipeline, &p->graph, o));
  if (o->skips > 0) DP_TRY(keep_matrices(pipeline, EXEC_GRADIENTS, o, &o->of_matrices));
  step.measure_skips = false;
  step.evaluate = true;
  DP_TRY(exec_pipeline_step(pipeline, &step, &result, timeline, &error));
  DP_TRY(exec_pipeline_step(pipeline, &step, &result, timeline, &error));
  o->evaluated = result.loss;
  step.use_means = true;
  DP_TRY(exec_pipeline_step(pipeline, &step, &result, timeline, &error));
  o->of_means = result.loss;
  step.use_means = false; /* the weights are what they were */
  DP_TRY(exec_pipeline_step(pipeline, &step, &result, timeline, &error));
  return result.loss == o->evaluated ? DP_OK
                                     : dp_fail(&error, DP_INTERNAL, "an evaluation by means changed the weights");
}

/* Steps that are played again, then one that must fail; what it says is kept. */
static dp_status spoil(exec_pipeline *pipeline, const sim_prediction *p, outcome *o) {
  const exec_step step = {.clip_norm = 0.5,
                          .adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .step = 1}};
  const plan_chunk *chunk = &p->plan.chunks[p->plan.chunk_count - 1];
  const graph *g = &p->graph;
  const float nan = NAN;
  int weight = -1, owner = 0;
  for (int s = 0; s < 3; s++) DP_TRY(exec_pipeline_step(pipeline, &step, NULL, NULL, &error));
  for (int i = g->units.items[chunk->first_unit + chunk->unit_count / 2].first_op; weight < 0; i++)
    if (g->ops.items[i].weight_count > 0) weight = g->ops.items[i].first_weight;
  while (!exec_parameters_value(exec_pipeline_parameters(pipeline, owner), weight)) owner++;
  DP_TRY(exec_pipeline_write(pipeline, owner, EXEC_VALUES, exec_pipeline_parameters(pipeline, owner)->offset[weight], 1,
                             &nan, &error));
  const dp_status status = exec_pipeline_step(pipeline, &step, NULL, NULL, &error);
  (void)snprintf(o->text, sizeof o->text, "%s", error.text);
  return status == DP_RUN_FAILED ? DP_OK : dp_fail(&error, DP_INTERNAL, "a spoilt weight was not found");
}

static dp_status run_in(const char *model, const sim_prediction *p, how h, outcome *o) {
  exec_weights weights = {0};
  dp_document config = {0};
  exec_pipeline *pipeline = NULL;
  plan_timeline timeline = {0};
  exec_fixture_feed feed = {.graph = &p->graph, .microbatches = p->plan.microbatches};
  exec_place places[MOST_WORKERS];
  for (int w = 0; w < MOST_WORKERS; w++) places[w] = (exec_place){.parts = 1};
  const exec_pipeline_options options = {.cuda = h.cuda,
                                         .places = whole ? places : NULL,
                                         .threads = 1,
                                         .feed = {.fill = exec_fixture_fill, .data = &feed},
                                         .means = true,
                                         .poison = h.poison,
                                         .algorithms = h.cuda ? algorithms : NULL};
  dp_status status = exec_weights_open(fixture_path(model, ""), &p->graph, &weights, &error);
  if (status == DP_OK) status = dp_document_read(fixture_path(model, "config.json"), &config, &error);
  if (status == DP_OK) status = plan_timeline_init(&p->program, &timeline, &error);
  if (status == DP_OK) status = exec_pipeline_create(&p->program, &p->graph, &options, &pipeline, &error);
  if (status == DP_OK) status = exec_fixture_load(pipeline, &p->program, &p->graph, &weights, config.root, &error);
  if (status == DP_OK) status = h.spoilt ? spoil(pipeline, p, o) : train(pipeline, p, &timeline, h, o);
  exec_pipeline_free(pipeline);
  plan_timeline_free(&timeline);
  dp_document_free(&config);
  exec_weights_close(&weights);
  return status;
}

/* False: the model has too few units for that plan, or it failed and was told. */
static bool run(const char *model, const char *plan, how h, outcome *o) {
  const exec_fixture job = {.model = model,
                            .height = 128,
                            .width = 192,
                            .text_tokens = 7,
                            .global_batch = SAMPLES,
                            .precision = h.bf16 ? "bf16" : "fp32",
                            .plan = plan};
  plan_scenario scenario;
  sim_prediction p;
  *o = (outcome){.count = 0};
  error = (dp_error)DP_ERROR_INIT;
  dp_status status = exec_fixture_scenario(&job, &scenario, &error);
  if (status != DP_OK) {
    check(false, "%s, %s: %s", model, plan, error.text);
    return false;
  }
  scenario.global_norm = true;
  status = sim_predict(&scenario, efficiency, &p, &error);
  const bool few = status != DP_OK && strstr(error.text, "units, the model has");
  if (status == DP_OK) {
    status = run_in(model, &p, h, o);
    sim_prediction_free(&p);
  }
  if (!few)
    check(status == DP_OK, "%s, %s, %s%s%s: %s", model, plan, h.cuda ? "CUDA " : "CPU ", h.bf16 ? "bf16" : "fp32",
          h.poison ? ", poisoned" : "", error.text);
  plan_scenario_free(&scenario);
  return status == DP_OK;
}

static void drop(outcome *o) {
  free(o->gradients);
  free(o->matrices);
  free(o->of_matrices);
}

enum { WAYS = 3 };
static const struct {
  const char *name;
  how how;
} ways[WAYS] = {
    {"poisoned", {.cuda = true, .poison = true}}, {"fp32", {.cuda = true}}, {"bf16", {.cuda = true, .bf16 = true}}};

static const char *const plans[] = {
    "stages = 1",
    "stages = 2\nschedule = \"1f1b\"",
    "stages = 4\nschedule = \"gpipe\"",
    "stages = 2\nschedule = \"interleaved\"\nchunks = 3",
    "stages = 2\nschedule = \"folded\"",
    "stages = 4\nschedule = \"folded\"\nsplit = \"even\"",
    "stages = 4\nschedule = \"zb-h1\"",
    "stages = 2\nschedule = \"zb-v\"",
    "stages = 8\nschedule = \"1f1b\"",
    "stages = 1\ndata_parallel = 4",
    "stages = 2\nschedule = \"zb-v\"\ndata_parallel = 2\ngradient_buckets = 3",
    "stages = 4\nschedule = \"1f1b\"\nskip_policy = \"relay\"\ndata_parallel = 2",
    "stages = 2\nschedule = \"1f1b\"\nrecompute = \"all\"",
    "stages = 2\nschedule = \"zb-v\"\nrecompute = \"all\"",
    "stages = 2\nschedule = \"1f1b\"\nmicrobatch_size = 4",
    /* one microbatch: gradients of weights lie where activations have been */
    "stages = 1\nmicrobatch_size = 8",
    "stages = 2\nschedule = \"gpipe\"\nmicrobatch_size = 8\nrecompute = \"all\"",
    "stages = 2\nschedule = \"1f1b\"\nmicrobatch_size = 4\ndata_parallel = 2\ngradient_buckets = 3",
    "stages = 2\nschedule = \"1f1b\"\nskip_policy = \"compress\"\nk = 64",
    "stages = 4\nschedule = \"zb-h1\"\nskip_policy = \"compress\"\nk = 200",
    "stages = 2\nschedule = \"1f1b\"\nrecompute = \"all\"\nskip_policy = \"compress\"\nk = 100",
    "stages = 4\nschedule = \"gpipe\"\ngradient_buckets = 3\nskip_policy = \"compress\"\nk = 64\ndata_parallel = 2",
    "stages = 2\nschedule = \"1f1b\"\nmicrobatch_size = 4\nskip_policy = \"compress\"\nk = 3000",
    "stages = 4\nschedule = \"1f1b\"\ntransport = \"host\"",
    "stages = 2\nschedule = \"folded\"\ntransport = \"host\"",
};
enum { PLANS = sizeof plans / sizeof *plans };

/* In dB. What comes through follows the activations, which bf16 moves by some hundredths; and where two directions have
 * nearly the same energy the fit may keep either. */
static const double psnr_bound[] = {0.05, 0.5};

static void compare_skips(const char *model, const char *plan, how h, const outcome *o, const outcome *one) {
  double worst = 0;
  check(o->skips == one->skips && o->skips > 0, "%s, %s: %d compressed skips", model, plan, o->skips);
  for (int s = 0; s < o->skips; s++) {
    worst = fmax(worst, fabs(o->fitted[s] - one->fitted[s]));
    worst = fmax(worst, fabs(o->psnr[s] - one->psnr[s]));
  }
  const double off = distance(o->matrix_count, o->of_matrices, one->of_matrices);
  printf("%-9s %d skips: %.2f dB at first, off by %.2e dB, gradients of matrices %.2e\n", "", o->skips, o->fitted[0],
         worst, off);
  check(worst < psnr_bound[h.bf16], "%s, %s: PSNR off by %.3g dB", model, plan, worst);
  check(off < gradient_bound[h.bf16], "%s, %s: gradients of matrices off by %.3g", model, plan, off);
}

static void compare(const char *model, const char *plan, how h, const outcome *one) {
  outcome o;
  double worst = 0;
  if (run(model, plan, h, &o)) {
    for (int s = 0; s < steps; s++) worst = fmax(worst, fabs(o.loss[s] / one->loss[s] - 1));
    worst = fmax(worst, fabs(o.evaluated / one->evaluated - 1));
    worst = fmax(worst, fabs(o.of_means / one->of_means - 1));
    const double off = distance(o.count, o.gradients, one->gradients);
    char line[128];
    (void)snprintf(line, sizeof line, "%s", plan);
    for (char *c = line; *c; c++)
      if (*c == '\n') *c = ' ';
    printf("%-9s %s%s  loss %.2e  gradients %.2e  %s\n", model, h.bf16 ? "bf16" : "fp32",
           h.poison ? " poisoned" : " graphs  ", worst, off, line);
    (void)fflush(stdout);
    check(worst < loss_bound[h.bf16], "%s, %s: losses off by %.3g", model, plan, worst);
    check(off < gradient_bound[h.bf16], "%s, %s: gradients off by %.3g", model, plan, off);
    if (h.like) compare_skips(model, plan, h, &o, one);
  }
  drop(&o);
}

/* On CUDA in three ways, or the one that is asked for. `one`: the CPU's lone worker. */
static void try(const char *model, const char *plan, const outcome *one) {
  outcome lossy = {.count = 0};
  const bool compresses = strstr(plan, "compress") != NULL;
  if (compresses && (strncmp(model, "sd3", 3) == 0 || strncmp(model, "flux", 4) == 0)) return; /* they have no skips */
  if (compresses && !run(model, plan, (how){.cuda = false}, &lossy)) return;
  const outcome *right = compresses ? &lossy : one, *like = compresses ? &lossy : NULL;
  for (int w = 0; w < WAYS; w++) {
    how h = ways[w].how;
    h.like = like;
    if (!way || strcmp(way, ways[w].name) == 0) compare(model, plan, h, right);
  }
  drop(&lossy);
}

/* What is not finite is told as the CPU tells it. */
static void compare_texts(const char *model, const char *plan) {
  outcome right, o;
  if (!run(model, plan, (how){.spoilt = true}, &right)) return;
  check(strncmp(right.text, "unit ", 5) == 0, "%s: %s", model, right.text);
  for (int w = 0; w < WAYS; w++) {
    how h = ways[w].how;
    h.spoilt = true;
    if (run(model, plan, h, &o))
      check(strcmp(o.text, right.text) == 0, "%s, %s: found \"%s\", allowed: \"%s\"", model, plan, o.text, right.text);
  }
}

int main(int argc, char **argv) {
  static const char *const models[] = {"sd15", "sdxl", "sd3", "flux-dev"};
  const char *words[3] = {NULL}, *remembered = NULL;
  int word_count = 0;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--whole") == 0) {
      whole = true;
    } else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
      steps = (int)strtol(argv[++i], NULL, 10);
    } else if (strcmp(argv[i], "--way") == 0 && i + 1 < argc) {
      int w = 0;
      for (way = argv[++i]; w < WAYS && strcmp(way, ways[w].name) != 0;) w++;
      if (w == WAYS) steps = 0;
    } else if (strcmp(argv[i], "--algorithms") == 0 && i + 1 < argc) {
      remembered = argv[++i];
    } else if (argv[i][0] != '-' && word_count < 3) {
      words[word_count++] = argv[i];
    } else {
      steps = 0;
    }
  }
  if (steps < 1 || steps > STEPS) {
    (void)fprintf(
        stderr,
        "usage: %s [MODEL [FIRST [COUNT]]] [--whole] [--steps N] [--way poisoned|fp32|bf16] [--algorithms FILE]\n",
        argv[0]);
    return 2;
  }
  const int first = words[1] ? (int)strtol(words[1], NULL, 10) : 0,
            count = words[2] ? (int)strtol(words[2], NULL, 10) : PLANS;
  if (exec_device_cuda_there(&error) != DP_OK) {
    printf("%s\n", error.text);
    return 77;
  }
  if (sim_efficiency_read(NULL, &efficiency, &error) != DP_OK || exec_algorithms_create(&algorithms, &error) != DP_OK ||
      (remembered && exec_algorithms_read(algorithms, remembered, false, &error) != DP_OK)) {
    printf("%s\n", error.text);
    return 1;
  }
  for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
    outcome one;
    if (words[0] && strcmp(words[0], models[m]) != 0) continue;
    if (!run(models[m], "stages = 1", (how){.cuda = false}, &one)) continue;
    if (first == 0 && count > 1) {
      compare_texts(models[m], plans[0]);
      compare_texts(models[m], plans[1]);
    }
    for (int i = first; i < PLANS && i < first + count; i++) try(models[m], plans[i], &one);
    drop(&one);
  }
  if (remembered)
    check(exec_algorithms_add_to(algorithms, remembered, &error) == DP_OK, "%s: %s", remembered, error.text);
  exec_algorithms_free(algorithms);
  sim_efficiency_free(efficiency);
  tell_plans();
  printf("%d passed, %d failed\n", passed, failed);
  return failed > 0 || passed == 0;
}
