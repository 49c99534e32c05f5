/* What a worker of the CPU takes: one allocation, of the size that the plan says, and nothing while a step runs. */
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/predict.h"
#include "tests/exec_fixture.h"
#include "tests/exec_memory.h"
#include "tests/resident.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"

/* ---- the linker turns our allocations into these ---- */

static atomic_bool counting;
static atomic_long allocations;
static _Atomic size_t largest;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static void count(size_t bytes) {
  if (!atomic_load(&counting)) return;
  atomic_fetch_add(&allocations, 1);
  if (bytes > atomic_load(&largest)) atomic_store(&largest, bytes);
}

void *__wrap_malloc(size_t bytes) {
  count(bytes);
  return __real_malloc(bytes);
}
void *__wrap_calloc(size_t n, size_t bytes) {
  count(n * bytes);
  return __real_calloc(n, bytes);
}
void *__wrap_realloc(void *old, size_t bytes) {
  count(bytes);
  return __real_realloc(old, bytes);
}
void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
  count(bytes);
  return __real_aligned_alloc(alignment, bytes);
}

/* ---- a pipeline ---- */

static dp_error error;
static plan_scenario scenario;
static sim_prediction p;
static exec_pipeline *pipeline;
static plan_timeline timeline;

#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  read_efficiency();
}

static void fill(void *data, int replica, int microbatch, int tensor, float *out) {
  (void)data;
  const graph_tensor *t = &p.graph.tensors.items[tensor];
  for (int64_t i = 0; i < graph_tensor_elements(t); i++) out[i] = (float)((i + 7 * microbatch + 3 * replica) % 11) / 11;
}

static void start(int side, const char *plan) {
  const exec_fixture job = {
      .model = "sd15", .height = side, .width = side, .text_tokens = 7, .global_batch = 8, .plan = plan};
  const exec_pipeline_options options = {.threads = 1, .feed = {.fill = fill}};
  OK(exec_fixture_scenario(&job, &scenario, &error));
  predict_memory_of_cpu(&scenario, efficiency);
  OK(sim_predict(&scenario, efficiency, &p, &error));
  OK(plan_timeline_init(&p.program, &timeline, &error));
  OK(exec_pipeline_create(&p.program, &p.graph, &options, &pipeline, &error));
  check_memory(pipeline, &p);
}

static dp_status step(int64_t number) {
  double squares[8];
  exec_step_result result = {.squares = squares};
  const exec_step how = {
      .adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01, .step = number}};
  return exec_pipeline_step(pipeline, &how, &result, &timeline, &error);
}

static void finish(void) {
  exec_pipeline_free(pipeline);
  pipeline = NULL;
  plan_timeline_free(&timeline);
  sim_prediction_free(&p);
  plan_scenario_free(&scenario);
}

static const char *const plans[] = {
    "stages = 1",
    "stages = 2\nschedule = \"1f1b\"",
    "stages = 2\nschedule = \"zb-v\"\ndata_parallel = 2\ngradient_buckets = 3",
    "stages = 4\nschedule = \"folded\"\nrecompute = \"all\"",
    "stages = 2\nschedule = \"1f1b\"\nskip_policy = \"compress\"\nk = 64",
};

START_TEST(a_step_allocates_nothing) {
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    start(64, plans[i]);
    atomic_store(&allocations, 0);
    atomic_store(&counting, true);
    dp_status status = step(1); /* Check's assertions allocate */
    if (status == DP_OK) status = step(2);
    atomic_store(&counting, false);
    OK(status);
    ck_assert_msg(atomic_load(&allocations) == 0, "%s: %ld allocations", plans[i], atomic_load(&allocations));
    finish();
  }
}
END_TEST

/* The largest of all allocations, that of bookkeeping included, is the layout of the largest worker. */
START_TEST(what_is_planned_is_one_allocation) {
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    atomic_store(&largest, 0);
    atomic_store(&counting, true);
    start(128, plans[i]);
    atomic_store(&counting, false);
    int64_t most = 0;
    for (int w = 0; w < p.program.worker_count; w++)
      if (p.memory.workers[w].layout_bytes > most) most = p.memory.workers[w].layout_bytes;
    ck_assert_int_eq((int64_t)atomic_load(&largest), most);
    finish();
  }
}
END_TEST

/* ---- resident memory ---- */

/* Of the process: no more than 5 % beyond the plan, and what its libraries take once. */
START_TEST(resident_memory_is_what_is_planned) {
  const int64_t fixed_kib = 12 << 10; /* stacks of lanes, OpenBLAS's buffers, bookkeeping */
  if (SUITE_IS_SLOW) return;          /* shadow memory */
  for (size_t i = 0; i < 3; i++) {
    (void)malloc_trim(0); /* what was freed is not there already */
    if (!resident_forget_peak()) return;
    const int64_t before = resident_bytes("VmRSS:") / 1024;
    start(384, plans[i]);
    OK(step(1));
    OK(step(2));
    const int64_t taken = resident_bytes("VmHWM:") / 1024 - before;
    int64_t planned = 0;
    for (int w = 0; w < p.program.worker_count; w++) planned += p.memory.workers[w].layout_bytes / 1024;
    (void)printf("%zu: planned %lld KiB, taken %lld KiB\n", i, (long long)planned, (long long)taken);
    ck_assert_msg(taken <= planned + planned / 20 + fixed_kib, "%s: planned %lld KiB, taken %lld KiB", plans[i],
                  (long long)planned, (long long)taken);
    finish();
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_step_allocates_nothing, what_is_planned_is_one_allocation,
                                resident_memory_is_what_is_planned};
  return suite_run("exec_memory", tests, sizeof tests / sizeof tests[0], setup, free_efficiency, 300);
}
