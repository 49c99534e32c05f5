/* Programs run by threads: every schedule, number of workers and of replicas trains as one worker does, and the
 * timeline obeys the program. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/pipeline.h"
#include "sim/predict.h"
#include "tests/exec_fixture.h"
#include "tests/exec_memory.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"
#include "tests/timeline_order.h"

static dp_error error;

#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  read_efficiency();
}

enum { SAMPLES = 8, MAX_STEPS = 20, SHORT_STEPS = 2 };

typedef struct outcome {
  double loss[MAX_STEPS];
  float *weights, *gradients; /* of all, in the order of the graph, after the last step; NULL: not asked for */
  int64_t count;
} outcome;

static void free_outcome(outcome *o) {
  free(o->weights);
  free(o->gradients);
}

static void keep_weights(exec_pipeline *pipeline, const sim_prediction *p, outcome *o) {
  const graph *g = &p->graph;
  o->count = g->parameters;
  o->weights = malloc((size_t)o->count * sizeof *o->weights);
  o->gradients = malloc((size_t)o->count * sizeof *o->gradients);
  ck_assert(o->weights && o->gradients);
  int64_t at = 0;
  for (size_t k = 0; k < g->weights.count; k++) {
    const int64_t n = g->weights.items[k].parameters;
    int owner = 0;
    while (!exec_parameters_value(exec_pipeline_parameters(pipeline, owner), (int)k)) owner++;
    memcpy(o->weights + at, exec_parameters_value(exec_pipeline_parameters(pipeline, owner), (int)k),
           (size_t)n * sizeof *o->weights);
    memcpy(o->gradients + at, exec_parameters_gradient(exec_pipeline_parameters(pipeline, owner), (int)k),
           (size_t)n * sizeof *o->gradients);
    at += n;
  }
}

/* ---- a witness: of every pass each unit once, in its order, while the instruction is worked on ---- */

enum { MAX_UNITS = 64 };
static _Atomic int64_t told[MAX_UNITS];
static _Thread_local int64_t working = -1,
                             last_unit =
                                 GRAPH_NONE; /* the instruction; GRAPH_NONE: the pass has not begun, or is over */

static void note(void *data, const plan_program *program, uint32_t instruction, bool begins) {
  (void)data;
  (void)program;
  ck_assert_int_eq(last_unit, GRAPH_NONE);
  working = begins ? (int64_t)instruction : -1;
}

static void note_unit(void *data, const plan_program *program, int unit) {
  (void)data;
  ck_assert_int_ge(working, 0);
  const bool forward = program->instructions[working].opcode == PLAN_FORWARD;
  if (unit != GRAPH_NONE && last_unit != GRAPH_NONE) ck_assert_int_eq(unit, last_unit + (forward ? 1 : -1));
  if (unit != GRAPH_NONE) told[unit]++;
  last_unit = unit;
}

static void are_told(const plan_program *program, int steps) {
  int64_t wanted[MAX_UNITS] = {0};
  for (uint32_t i = 0; i < program->instruction_count; i++) {
    const plan_instruction *of = &program->instructions[i];
    if (program->lanes[plan_instruction_lane(program, i)].kind != PLAN_LANE_COMPUTE ||
        of->opcode == PLAN_OPTIMIZER_STEP)
      continue;
    const plan_work *work = &program->works[of->class_id];
    for (uint32_t u = work->first_unit; u < work->first_unit + work->unit_count; u++) wanted[u] += steps;
  }
  for (int u = 0; u < MAX_UNITS; u++) ck_assert_int_eq(told[u], wanted[u]);
}

/* False: the model has too few units for that plan. */
static bool run(const char *model, const char *plan, int steps, bool keep, outcome *o) {
  const exec_fixture job = {
      .model = model, .height = 64, .width = 128, .text_tokens = 7, .global_batch = SAMPLES, .plan = plan};
  plan_scenario scenario;
  sim_prediction p;
  exec_weights weights;
  dp_document config;
  exec_pipeline *pipeline = NULL;
  plan_timeline timeline;
  OK(exec_fixture_scenario(&job, &scenario, &error));
  scenario.global_norm = true;
  predict_memory_of_cpu(&scenario, efficiency);
  if (sim_predict(&scenario, efficiency, &p, &error) != DP_OK) {
    ck_assert_msg(strstr(error.text, "units, the model has") != NULL, "%s", error.text);
    error = (dp_error)DP_ERROR_INIT;
    plan_scenario_free(&scenario);
    return false;
  }
  OK(exec_weights_open(fixture_path(model, ""), &p.graph, &weights, &error));
  OK(dp_document_read(fixture_path(model, "config.json"), &config, &error));
  OK(plan_timeline_init(&p.program, &timeline, &error));
  exec_fixture_feed feed = {.graph = &p.graph, .microbatches = p.plan.microbatches};
  const exec_witness witness = {.note = note, .unit = note_unit};
  const bool witnessed = strcmp(plan, "stages = 1") != 0; /* which changes nothing */
  const exec_pipeline_options options = {.threads = 1,
                                         .feed = {.fill = exec_fixture_fill, .data = &feed},
                                         .poison = true,
                                         .witness = witnessed ? &witness : NULL};
  for (int u = 0; u < MAX_UNITS; u++) told[u] = 0;
  exec_step step = {.clip_norm = 0.5,
                    .adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01}};
  exec_step_result result = {.squares = NULL};
  OK(exec_pipeline_create(&p.program, &p.graph, &options, &pipeline, &error));
  OK(exec_fixture_load(pipeline, &p.program, &p.graph, &weights, config.root, &error));
  check_memory(pipeline, &p);
  for (int s = 0; s < steps; s++) {
    step.adamw.step = s + 1;
    OK(exec_pipeline_step(pipeline, &step, &result, &timeline, &error));
    o->loss[s] = result.loss;
    ck_assert(timeline_is_ordered(&timeline));
    ck_assert(transfers_meet(&timeline));
  }
  if (witnessed) are_told(&p.program, steps);
  if (keep) keep_weights(pipeline, &p, o);
  exec_pipeline_free(pipeline);
  plan_timeline_free(&timeline);
  dp_document_free(&config);
  exec_weights_close(&weights);
  sim_prediction_free(&p);
  plan_scenario_free(&scenario);
  return true;
}

/* Every schedule on 1, 2 and 4 workers a replica and 1 and 2 replicas, with clipping, and what else has an order of its
 * own. A model with too few units for one of them passes it by. */
static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "folded", "zb-h1", "zb-v"};
static const char *const others[] = {
    "stages = 4\nschedule = \"1f1b\"\nskip_policy = \"relay\"",
    "stages = 2\nschedule = \"interleaved\"\nchunks = 3",
    "stages = 4\nschedule = \"folded\"\nsplit = \"even\"",
    "stages = 2\nschedule = \"zb-v\"\ndata_parallel = 2\ngradient_buckets = 3",
    "stages = 2\nschedule = \"interleaved\"\nchunks = 2\ndata_parallel = 4",
    "stages = 2\nschedule = \"1f1b\"\nrecompute = \"all\"",
    "stages = 2\nschedule = \"zb-v\"\nrecompute = \"all\"\ndata_parallel = 2\ngradient_buckets = 3",
    "stages = 2\nschedule = \"zb-h1\"\nrecompute = [1, 3]",
    "stages = 2\nschedule = \"folded\"\nrecompute = [0, 2, 3]",
    /* one microbatch: gradients of weights lie where activations have been */
    "stages = 1\nmicrobatch_size = 8",
    "stages = 2\nschedule = \"gpipe\"\nmicrobatch_size = 8\nrecompute = [1, 3]",
    "stages = 2\nschedule = \"1f1b\"\nmicrobatch_size = 4\ndata_parallel = 2\ngradient_buckets = 3",
};

static bool check_plan(const char *model, const char *plan, int steps, const outcome *one) {
  outcome o = {.weights = NULL};
  if (!run(model, plan, steps, true, &o)) return false;
  for (int s = 0; s < steps; s++)
    ck_assert_msg(fabs(o.loss[s] - one->loss[s]) < 1e-6 * fmax(1, one->loss[s]),
                  "%s, %s: step %d: loss %.9g, alone %.9g", model, plan, s, o.loss[s], one->loss[s]);
  double square = 0, off = 0;
  for (int64_t i = 0; i < o.count; i++) {
    square += (double)one->gradients[i] * one->gradients[i];
    off += ((double)o.gradients[i] - one->gradients[i]) * ((double)o.gradients[i] - one->gradients[i]);
  }
  ck_assert_msg(sqrt(off / square) < 1e-5, "%s, %s: gradients off by %.3g", model, plan, sqrt(off / square));
  free_outcome(&o);
  return true;
}

static void check_model(const char *model, int steps, int least) {
  if (suite_is_short()) steps = SHORT_STEPS;
  outcome one = {.weights = NULL};
  int ran = 0;
  ck_assert(run(model, "stages = 1", steps, true, &one));
  ck_assert_double_lt(one.loss[steps - 1], one.loss[0]); /* it learns */
  for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
    for (int workers = 1; workers <= 4; workers *= 2)
      for (int replicas = 1; replicas <= 2; replicas++) {
        char plan[256];
        if (suite_is_short() && (i + (size_t)workers + (size_t)replicas) % 3) continue;
        (void)snprintf(plan, sizeof plan, "stages = %d\nschedule = \"%s\"\ndata_parallel = %d", workers, schedules[i],
                       replicas);
        ran += check_plan(model, plan, steps, &one);
      }
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) ran += check_plan(model, others[i], steps, &one);
  ck_assert_int_ge(ran, suite_is_short() ? least / 4 : least);
  free_outcome(&one);
}

START_TEST(every_plan_trains_a_unet_as_one_worker_does) { check_model("sd15", MAX_STEPS, 48); }
END_TEST
START_TEST(every_plan_trains_sd3_as_one_worker_does) { check_model("sd3", MAX_STEPS, 37); }
END_TEST
START_TEST(every_plan_trains_flux_as_one_worker_does) { check_model("flux-dev", 2, 37); }
END_TEST

/* Straight pipelines add in the order of one worker; who comes first changes nothing either. */
START_TEST(runs_are_reproducible_to_the_bit) {
  static const char *const some[] = {"stages = 4\nschedule = \"1f1b\"",
                                     "stages = 2\nschedule = \"zb-v\"\ndata_parallel = 2",
                                     "stages = 4\nschedule = \"folded\""};
  for (int i = 0; i < 3; i++) {
    outcome a = {.weights = NULL}, b = {.weights = NULL};
    ck_assert(run("sd15", some[i], 3, true, &a));
    ck_assert(run("sd15", some[i], 3, true, &b));
    ck_assert_int_eq(a.count, b.count);
    ck_assert_mem_eq(a.weights, b.weights, (size_t)a.count * sizeof(float));
    for (int s = 0; s < 3; s++) ck_assert(a.loss[s] == b.loss[s]);
    free_outcome(&a);
    free_outcome(&b);
  }
}
END_TEST

/* Direct, relayed, or at home: exact skips are the same to the bit. */
START_TEST(skip_policies_change_no_bit) {
  outcome direct = {.weights = NULL}, relay = {.weights = NULL};
  ck_assert(run("sd15", "stages = 2\nschedule = \"1f1b\"", 3, true, &direct));
  ck_assert(run("sd15", "stages = 2\nschedule = \"1f1b\"\nskip_policy = \"relay\"", 3, true, &relay));
  ck_assert_mem_eq(direct.weights, relay.weights, (size_t)direct.count * sizeof(float));
  free_outcome(&direct);
  free_outcome(&relay);
}
END_TEST

/* Any plan that the check lets pass runs to its end, with the loss that one worker has: a hang is this test's timeout.
 */
START_TEST(random_plans_end) {
  const uint64_t seeds = suite_is_short() ? 25 : 500;
  outcome one = {.weights = NULL};
  uint64_t ran = 0;
  ck_assert(run("sd15", "stages = 1", 1, false, &one));
  for (uint64_t seed = 0; seed < seeds; seed++) {
    static const char *const policies[] = {"direct", "relay"};
    static const char *const recomputed[] = {"\"none\"", "\"none\"", "\"all\"", "[1, 2, 5, 7, 8]", "[0, 3, 4, 9, 10]"};
    static const int sizes[] = {1, 2, 4, 8};
    dp_random random;
    dp_random_init(&random, 7, seed);
    const char *schedule = schedules[dp_random_below(&random, 6)];
    const bool interleaved = strcmp(schedule, "interleaved") == 0;
    const int stages = 1 + (int)dp_random_below(&random, 5), replicas = sizes[dp_random_below(&random, 3)];
    const int most = SAMPLES / replicas, microbatches = sizes[dp_random_below(&random, 4)];
    if (microbatches > most || stages * replicas > 8) continue;
    char plan[512], chunks[32] = "";
    if (interleaved) (void)snprintf(chunks, sizeof chunks, "chunks = %d", 1 + (int)dp_random_below(&random, 3));
    (void)snprintf(plan, sizeof plan,
                   "microbatch_size = %d\nstages = %d\nschedule = \"%s\"\ndata_parallel = %d\nskip_policy = \"%s\"\n"
                   "gradient_buckets = %d\nrecompute = %s\n%s",
                   most / microbatches, stages, schedule, replicas, policies[dp_random_below(&random, 2)],
                   1 + (int)dp_random_below(&random, 4), recomputed[dp_random_below(&random, 5)], chunks);
    outcome o = {.weights = NULL};
    if (!run("sd15", plan, 1, false, &o)) continue;
    ck_assert_msg(fabs(o.loss[0] - one.loss[0]) < 1e-6 * fmax(1, one.loss[0]), "%s: loss %.9g, alone %.9g", plan,
                  o.loss[0], one.loss[0]);
    ran++;
  }
  ck_assert_uint_ge(ran, seeds / 3);
}
END_TEST

START_TEST(what_is_not_known_yet_is_refused) {
  const struct {
    const char *model, *plan, *says;
  } cases[] = {{"synthetic_units = 4\nforward_us = 10\nbackward_us = 20", "stages = 2",
                "units.0: the CPU has no arithmetic for synthetic"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[8192];
    (void)snprintf(text, sizeof text,
                   "format = \"diffpipe-scenario\"\nversion = 1\n[model]\n%s\n"
                   "precision = \"fp32\"\n[cluster]\n[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"RTX-4090\"\n"
                   "count = 2\n[plan]\n%s\n",
                   cases[i].model, cases[i].plan);
    plan_scenario scenario;
    sim_prediction p;
    exec_pipeline *pipeline = NULL;
    OK(plan_scenario_parse(text, strlen(text), "pipeline.toml", &scenario, &error));
    OK(sim_predict(&scenario, efficiency, &p, &error));
    const exec_pipeline_options options = {.threads = 1};
    ck_assert_int_eq(exec_pipeline_create(&p.program, &p.graph, &options, &pipeline, &error), DP_UNSUPPORTED);
    ck_assert_str_eq(error.text, cases[i].says);
    error = (dp_error)DP_ERROR_INIT;
    sim_prediction_free(&p);
    plan_scenario_free(&scenario);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {every_plan_trains_a_unet_as_one_worker_does,
                                every_plan_trains_sd3_as_one_worker_does,
                                every_plan_trains_flux_as_one_worker_does,
                                runs_are_reproducible_to_the_bit,
                                skip_policies_change_no_bit,
                                random_plans_end,
                                what_is_not_known_yet_is_refused};
  return suite_run("exec_pipeline", tests, sizeof tests / sizeof tests[0], setup, free_efficiency, 600);
}
