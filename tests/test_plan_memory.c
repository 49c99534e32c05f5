/* plan/: memory layouts: what each schedule, optimizer and skip policy keeps, and for how long, by hand; offsets.
 * Random plans: test_plan_memory_random.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "plan/memory.h"
#include "tests/plan_reference.h"
#include "tests/suite.h"

static dp_error error;
static graph model;
static plan_plan plan;
static plan_program program;
static plan_memory memory;

static const plan_memory_options options = {.runtime_bytes = 1000, .workspace_bytes = 100};

static void setup(void) { error = (dp_error)DP_ERROR_INIT; }
static void drop_program(void) {
  plan_memory_free(&memory);
  plan_program_free(&program);
  plan_plan_free(&plan);
}
static void drop(void) {
  drop_program();
  graph_free(&model);
}

static void lay_out(void) {
  dp_status status = plan_compile(&plan, &model, &program, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  status = plan_memory_layout(&program, &model, &options, &memory, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  ck_assert_int_eq(memory.worker_count, program.worker_count);
}

static void make(const reference_plan *wanted) {
  reference_plan_make(wanted, &model, &plan);
  lay_out();
}

/* ---- layouts ---- */

static void assert_layout(const plan_worker_memory *worker) {
  int64_t class_bytes = 0, persistent_bytes = 0;
  for (uint32_t i = 0; i < worker->buffer_count; i++) {
    const plan_buffer *a = &worker->buffers[i];
    ck_assert(a->bytes > 0 && a->offset_bytes >= 0 && a->begin <= a->end);
    ck_assert_int_eq(a->offset_bytes % PLAN_ALIGNMENT, 0);
    ck_assert_int_eq(a->bytes % PLAN_ALIGNMENT, 0);
    ck_assert_int_le(a->offset_bytes + a->bytes, worker->layout_bytes);
    if (a->microbatch == PLAN_NO_PEER) persistent_bytes += a->bytes;
    for (uint32_t j = 0; j < i; j++) {
      const plan_buffer *b = &worker->buffers[j];
      const bool meet = a->begin <= b->end && b->begin <= a->end;
      const bool overlap = a->offset_bytes < b->offset_bytes + b->bytes && b->offset_bytes < a->offset_bytes + a->bytes;
      ck_assert(!(meet && overlap));
    }
  }
  for (int c = 0; c < PLAN_MEMORY_CLASS_COUNT; c++) class_bytes += worker->at_peak_bytes[c];
  ck_assert_int_eq(class_bytes, worker->live_peak_bytes + options.runtime_bytes);
  ck_assert_int_eq(worker->at_peak_bytes[PLAN_MEMORY_RUNTIME], options.runtime_bytes);
  ck_assert_int_ge(worker->layout_bytes, worker->live_peak_bytes);
  ck_assert_int_eq(worker->peak_bytes, worker->layout_bytes + options.runtime_bytes);
  ck_assert_int_eq(worker->resting_bytes, persistent_bytes);
  ck_assert_int_ge(worker->live_peak_bytes, worker->resting_bytes);
}

/* ---- what is kept ---- */

/* Most buffers of a class that live at once. */
static int most_alive(const plan_worker_memory *worker, plan_memory_class memory_class) {
  int most = 0;
  for (uint32_t i = 0; i < worker->buffer_count; i++) {
    int now = 0;
    for (uint32_t j = 0; j < worker->buffer_count; j++)
      now += worker->buffers[j].memory_class == memory_class && worker->buffers[j].begin <= worker->buffers[i].begin &&
             worker->buffers[i].begin <= worker->buffers[j].end;
    if (now > most) most = now;
  }
  return most;
}

START_TEST(activations_in_flight_by_schedule) {
  reference_chain(4, 1, 2, 1, 0, &model);
  for (int m = 1; m <= 9; m++)
    for (plan_schedule schedule = PLAN_GPIPE; schedule <= PLAN_1F1B; schedule++) {
      const reference_plan wanted = {.ranks = 4, .schedule = schedule, .microbatches = m};
      make(&wanted);
      for (int s = 0; s < 4; s++) {
        const int kept = schedule == PLAN_GPIPE || m < 4 - s ? m : 4 - s;
        ck_assert_int_eq(most_alive(&memory.workers[s], PLAN_MEMORY_ACTIVATIONS), kept);
        ck_assert_int_eq(memory.workers[s].at_peak_bytes[PLAN_MEMORY_ACTIVATIONS], kept * 4096);
        ck_assert_int_eq(memory.workers[s].layout_bytes, memory.workers[s].live_peak_bytes);
      }
      drop_program();
    }
}
END_TEST

/* Zero bubble keeps no more than p microbatches' activations. */
START_TEST(zero_bubble_keeps_as_much_as_1f1b) {
  reference_chain(8, 1, 2, 1, 0, &model);
  for (int m = 1; m <= 20; m++) {
    const reference_plan h1 = {.ranks = 4, .schedule = PLAN_ZB_H1, .microbatches = m};
    const reference_plan v = {.ranks = 4, .chunks_per_rank = 2, .schedule = PLAN_ZB_V, .microbatches = m};
    make(&h1);
    for (int s = 0; s < 4; s++)
      ck_assert_int_le(memory.workers[s].at_peak_bytes[PLAN_MEMORY_ACTIVATIONS], 4 * 2 * 4096);
    drop_program();
    make(&v);
    for (int s = 0; s < 4; s++)
      ck_assert_int_le(memory.workers[s].at_peak_bytes[PLAN_MEMORY_ACTIVATIONS], 4 * 2 * 4096);
    drop_program();
  }
}
END_TEST

static int64_t class_bytes(const plan_worker_memory *worker, plan_memory_class memory_class) {
  for (uint32_t i = 0; i < worker->buffer_count; i++)
    if (worker->buffers[i].memory_class == memory_class) return worker->buffers[i].bytes;
  return 0;
}

static int64_t up(double bytes) {
  return ((int64_t)ceil(bytes) + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
}

START_TEST(persistent_bytes_by_optimizer) {
  reference_chain(8, 1, 2, 1, 0, &model); /* 1000 parameters a unit, bf16 */
  static const double state_bytes[PLAN_OPTIMIZER_COUNT] = {12, 6, 4.01, 8};
  for (plan_optimizer optimizer = 0; optimizer < PLAN_OPTIMIZER_COUNT; optimizer++)
    for (int fp32 = 0; fp32 < 2; fp32++) {
      const reference_plan wanted = {.ranks = 2, .schedule = PLAN_1F1B, .microbatches = 3, .replicas = 2};
      reference_plan_make(&wanted, &model, &plan);
      plan.optimizer = optimizer;
      plan.gradient_fp32 = fp32;
      lay_out();
      for (int w = 0; w < 4; w++) {
        const plan_worker_memory *worker = &memory.workers[w];
        ck_assert_int_eq(class_bytes(worker, PLAN_MEMORY_WEIGHTS), up(4000 * 2));
        ck_assert_int_eq(class_bytes(worker, PLAN_MEMORY_GRADIENTS), up(4000 * (fp32 ? 4 : 2)));
        ck_assert_int_eq(class_bytes(worker, PLAN_MEMORY_OPTIMIZER), up(4000 * state_bytes[optimizer]));
        ck_assert_int_eq(class_bytes(worker, PLAN_MEMORY_WORKSPACE), up(100));
        assert_layout(worker);
      }
      drop_program();
    }
  ck_assert_double_eq(plan_optimizer_bytes(PLAN_ADAMW, GRAPH_BF16, true), 10); /* masters are halves of 2 bytes */
  ck_assert_double_eq(plan_optimizer_bytes(PLAN_ADAMW, GRAPH_FP16, true), 12); /* fp16 has no half of an fp32 */
  ck_assert_double_eq(plan_optimizer_bytes(PLAN_ADAMW, GRAPH_FP32, true), 8);
  const reference_plan sampling = {.ranks = 2, .schedule = PLAN_1F1B, .microbatches = 3, .sampling = true};
  make(&sampling);
  ck_assert_int_eq(class_bytes(&memory.workers[0], PLAN_MEMORY_GRADIENTS), 0);
  ck_assert_int_eq(class_bytes(&memory.workers[0], PLAN_MEMORY_OPTIMIZER), 0);
  ck_assert_int_eq(class_bytes(&memory.workers[0], PLAN_MEMORY_ACTIVATIONS), 0);
}
END_TEST

/* Boundary buffers by hand: 1F1B of two stages, 256 bytes across the cut. */
START_TEST(boundary_buffers_by_hand) {
  reference_chain(2, 1, 2, 1, 256, &model);
  const reference_plan wanted = {.ranks = 2, .schedule = PLAN_1F1B, .microbatches = 4};
  make(&wanted); /* stage 0: F0 F1 B0 F2 B1 F3 B2 B3; stage 1: F0 B0 F1 B1 F2 B2 F3 B3 */
  const struct {
    int worker;
    bool gradient;
    uint32_t chunk, microbatch, begin, end;
  } expected[] = {
      {0, false, 0, 0, 1, 4},  /* made by F0 (compute 0), sent before B0 (compute 2) */
      {0, false, 0, 2, 7, 8},  /* F2 is compute 3, B2 compute 6: sent before it */
      {0, true, 0, 0, 2, 5},   /* used by B0 = compute 2: posted when compute 0 is done */
      {0, true, 0, 3, 12, 15}, /* B3 is compute 7 */
      {1, false, 1, 0, 0, 1},  /* nothing saves it: to the end of F0 */
      {1, false, 1, 2, 6, 9},  /* F2 is compute 4, posted when compute 2 is done */
      {1, true, 1, 0, 3, 10},  /* made by B0 = compute 1; B2 = compute 5 waits until it is sent */
      {1, true, 1, 3, 15, 18}, /* the last is kept to the end: compute 8 is the optimizer step */
  };
  for (size_t e = 0; e < DP_COUNT_OF(expected); e++) {
    int found = 0;
    const plan_worker_memory *worker = &memory.workers[expected[e].worker];
    for (uint32_t i = 0; i < worker->buffer_count; i++) {
      const plan_buffer *b = &worker->buffers[i];
      if (b->tensor == GRAPH_NONE || b->gradient != expected[e].gradient || b->microbatch != expected[e].microbatch)
        continue;
      if (model.tensors.items[b->tensor].is_output) continue;
      found++;
      ck_assert_int_eq(b->memory_class, PLAN_MEMORY_BOUNDARY);
      ck_assert_int_eq(b->chunk, expected[e].chunk);
      ck_assert_msg(b->begin == expected[e].begin, "%zu: begins at %u", e, b->begin);
      if (e != 1)
        ck_assert_msg(b->end == expected[e].end, "%zu: ends at %u", e, b->end);
      else
        ck_assert_uint_eq(b->end, 12);
    }
    ck_assert_int_eq(found, 1);
  }
}
END_TEST

/* ---- skips ---- */

/* A chain of units of one convolution each; what unit `made` makes is added again in the units of `uses`. Returns the
 * tensor. */
static int skip_chain(int units, int made, const int *uses, int use_count) {
  const graph_model_options sizes = {.batch = 2, .height = 8, .width = 8, .frames = 1, .precision = GRAPH_BF16};
  const graph_attributes convolution = {
      .in_channels = 8, .out_channels = 8, .kernel = {1, 3, 3}, .stride = {1, 1, 1}, .padding = {0, 1, 1}};
  graph_builder *b = graph_build_begin(&model, &sizes, NULL);
  ck_assert_ptr_nonnull(b);
  int x = graph_build_input(b, "latent", 4, (const int64_t[]){2, 8, 8, 8}), skip = GRAPH_NONE;
  graph_build_latent(b, x);
  for (int u = 0; u < units; u++) {
    graph_build_unit(b, graph_build_name(b, "units.%d", u));
    x = graph_build_op(b, GRAPH_CONV2D, graph_build_name(b, "units.%d.conv", u), &convolution, &x, 1);
    for (int i = 0; i < use_count; i++)
      if (uses[i] == u)
        x = graph_build_op(b, GRAPH_ADD, graph_build_name(b, "units.%d.add", u), &(graph_attributes){0},
                           (const int[]){x, skip}, 2);
    if (u == made) skip = x;
  }
  graph_build_output(b, x);
  const dp_status status = graph_build_finish(b, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  ck_assert_int_eq(model.tensors.items[skip].bytes, 2048);
  return skip;
}

/* That a worker has a buffer of the tensor with these bytes for microbatch 0, with this life. */
static void assert_life(int worker, int tensor, bool gradient, int64_t bytes, uint32_t begin, uint32_t end) {
  int found = 0;
  for (uint32_t i = 0; i < memory.workers[worker].buffer_count; i++) {
    const plan_buffer *b = &memory.workers[worker].buffers[i];
    if (b->tensor != tensor || b->gradient != gradient || b->bytes != bytes || b->microbatch != 0) continue;
    found++;
    ck_assert_msg(b->begin == begin && b->end == end, "lives from %u to %u, expected %u to %u", b->begin, b->end, begin,
                  end);
  }
  ck_assert_int_eq(found, 1);
}

/* Two chunks of worker 1 use a skip that travels as K values, 256 bytes. Its gradient is whole while they add to it,
 * and K values from the last of these backwards on, until it has been sent: no one buffer lives all the time. */
START_TEST(compressed_gradients_are_collected_whole) {
  const int skip = skip_chain(5, 0, (const int[]){2, 4}, 2);
  const reference_plan wanted = {.ranks = 2,
                                 .chunks_per_rank = 2,
                                 .schedule = PLAN_INTERLEAVED,
                                 .skip_policy = PLAN_SKIP_COMPRESS,
                                 .k = 16,
                                 .microbatches = 1,
                                 .cuts = (const int[]){2, 3, 4}};
  make(&wanted);                           /* worker 1: F1 F3 B3 B1 and the optimizer step */
  assert_life(1, skip, true, 2048, 5, 7);  /* B3 to B1 */
  assert_life(1, skip, true, 256, 7, 10);  /* nothing waits until it is sent: kept to the end */
  assert_life(1, skip, false, 256, 0, 7);  /* received, made whole by F1; B1 makes the matrices' gradient of it */
  assert_life(1, skip, false, 2048, 1, 3); /* to F3: an addition saves nothing */
  assert_life(0, skip, true, 256, 4, 7);   /* worker 0: F0 F2 B2 B0: received from F2 on, used by B0 */
}
END_TEST

/* A relayed skip leaves the worker that made it from a later chunk, which does not use it. What comes back to that
 * chunk is for the backward of the chunk that made it. */
START_TEST(relayed_gradients_wait_for_their_producer) {
  const int skip = skip_chain(5, 1, (const int[]){4}, 1);
  const reference_plan wanted = {.ranks = 2,
                                 .chunks_per_rank = 2,
                                 .schedule = PLAN_FOLDED,
                                 .skip_policy = PLAN_SKIP_RELAY,
                                 .microbatches = 1,
                                 .cuts = (const int[]){1, 3, 4}};
  make(&wanted);                          /* worker 1: F1 F2 B2 B1 and the optimizer step; chunk 3 is worker 0's */
  assert_life(1, skip, true, 2048, 2, 7); /* used by B1, not by B2 */
}
END_TEST

/* What leaves as K values only is whole while the chunk that makes it runs. */
START_TEST(compressed_skips_are_made_whole) {
  const int skip = skip_chain(4, 0, (const int[]){3}, 1);
  const reference_plan wanted = {.ranks = 2,
                                 .schedule = PLAN_1F1B,
                                 .skip_policy = PLAN_SKIP_COMPRESS,
                                 .k = 16,
                                 .microbatches = 1,
                                 .sampling = true,
                                 .cuts = (const int[]){2}};
  make(&wanted);
  assert_life(0, skip, false, 2048, 1, 1);
  assert_life(0, skip, false, 256, 1, 2);
}
END_TEST

START_TEST(recomputation_keeps_less) {
  reference_chain(12, 1, 2, 1, 256, &model); /* a unit saves 4096 bytes, and reads 256 */
  const reference_plan wanted = {.ranks = 3, .schedule = PLAN_1F1B, .microbatches = 6};
  make(&wanted);
  ck_assert_int_eq(memory.workers[0].at_peak_bytes[PLAN_MEMORY_ACTIVATIONS], 3 * 4 * 4096);
  ck_assert_int_eq(memory.workers[0].at_peak_bytes[PLAN_MEMORY_WORKSPACE], up(100 + 512));
  drop_program();
  reference_plan_make(&wanted, &model, &plan);
  memset(plan.recompute, 1, 12);
  lay_out();
  ck_assert_int_eq(memory.workers[0].at_peak_bytes[PLAN_MEMORY_ACTIVATIONS], 3 * 4 * 256);
  ck_assert_int_eq(memory.workers[0].at_peak_bytes[PLAN_MEMORY_WORKSPACE], up(100 + 512 + 4096));
}
END_TEST

/* Where the backward comes apart, what it makes again is read by the weight backward too. */
START_TEST(recomputed_activations_wait_for_the_weight_backward) {
  reference_chain(12, 1, 2, 1, 256, &model);
  const reference_plan wanted = {.ranks = 3, .schedule = PLAN_ZB_H1, .microbatches = 6};
  reference_plan_make(&wanted, &model, &plan);
  memset(plan.recompute, 1, 12);
  lay_out();
  for (int w = 0; w < 3; w++) {
    const plan_lane *compute = &program.lanes[program.worker_lane[w]];
    uint32_t begun[6] = {0};
    for (uint32_t at = 0; at < compute->count; at++) {
      const plan_instruction *i = &program.instructions[compute->first + at];
      if (i->opcode == PLAN_BACKWARD_INPUT) begun[i->microbatch] = at;
      if (i->opcode != PLAN_BACKWARD_WEIGHT) continue;
      int64_t kept_bytes = 0;
      for (uint32_t b = 0; b < memory.workers[w].buffer_count; b++) {
        const plan_buffer *buffer = &memory.workers[w].buffers[b];
        if (buffer->memory_class == PLAN_MEMORY_ACTIVATIONS && !buffer->gradient &&
            buffer->microbatch == i->microbatch && buffer->begin <= 2 * begun[i->microbatch] + 1 &&
            buffer->end >= 2 * at + 1)
          kept_bytes += buffer->bytes;
      }
      /* beside the inputs of the units, which are none of what they save; the first of a stage is received */
      ck_assert_int_eq(kept_bytes, 4 * 4096 + (w == 0 ? 4 : 3) * 256);
    }
  }
}
END_TEST

/* ---- offsets ---- */

START_TEST(offsets_of_random_buffers) {
  enum { COUNT = 200 };
  static plan_buffer buffers[COUNT];
  double sum = 0;
  for (uint64_t seed = 0; seed < 100; seed++) {
    dp_random random;
    dp_random_init(&random, seed, 5);
    static int64_t live[101];
    memset(live, 0, sizeof live);
    int64_t peak = 0, top = 0;
    for (int i = 0; i < COUNT; i++) {
      const uint32_t begin = (uint32_t)dp_random_below(&random, 100);
      buffers[i] = (plan_buffer){.begin = begin,
                                 .end = begin + (uint32_t)dp_random_below(&random, 100 - begin),
                                 .bytes = PLAN_ALIGNMENT * (int64_t)(1 + dp_random_below(&random, 1 + seed))};
      for (uint32_t m = buffers[i].begin; m <= buffers[i].end; m++) live[m] += buffers[i].bytes;
    }
    for (int m = 0; m < 100; m++) peak = live[m] > peak ? live[m] : peak;
    ck_assert_int_eq(plan_memory_place(buffers, COUNT, 512, 512 + peak, &top, &error), DP_OK);
    ck_assert_int_ge(top, 512 + peak);
    for (int i = 0; i < COUNT; i++) {
      ck_assert(buffers[i].offset_bytes >= 512 && buffers[i].offset_bytes + buffers[i].bytes <= top);
      for (int j = 0; j < i; j++)
        ck_assert(buffers[i].begin > buffers[j].end || buffers[j].begin > buffers[i].end ||
                  buffers[i].offset_bytes >= buffers[j].offset_bytes + buffers[j].bytes ||
                  buffers[j].offset_bytes >= buffers[i].offset_bytes + buffers[i].bytes);
    }
    sum += (double)(top - 512) / (double)peak;
  }
  ck_assert_double_lt(sum / 100, 1.1); /* holes of a few per cent on average */
}
END_TEST

int main(void) {
  const TTest *const tests[] = {activations_in_flight_by_schedule,
                                zero_bubble_keeps_as_much_as_1f1b,
                                persistent_bytes_by_optimizer,
                                boundary_buffers_by_hand,
                                compressed_gradients_are_collected_whole,
                                relayed_gradients_wait_for_their_producer,
                                compressed_skips_are_made_whole,
                                recomputation_keeps_less,
                                recomputed_activations_wait_for_the_weight_backward,
                                offsets_of_random_buffers};
  return suite_run("plan_memory", tests, DP_COUNT_OF(tests), setup, drop, 120);
}
