/* plan/: memory layouts: no two buffers in one place at one time, whatever the durations; what each schedule keeps. */
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
static plan_timeline timeline;
static plan_memory memory;

static const plan_memory_options options = {.runtime_bytes = 1000, .workspace_bytes = 100};

static void setup(void) { error = (dp_error)DP_ERROR_INIT; }
static void drop_program(void) {
  plan_memory_free(&memory);
  plan_timeline_free(&timeline);
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

/* ---- transfers find their buffers alive, in a play with random durations ---- */

/* The time at which a moment begins, or ends. */
static double moment_s(const plan_lane *compute, uint32_t moment, bool end) {
  const uint32_t k = moment / 2;
  if (moment % 2) return end ? timeline.end_s[compute->first + k] : timeline.start_s[compute->first + k];
  if (!end) return k ? timeline.end_s[compute->first + k - 1] : 0;
  return k < compute->count ? timeline.start_s[compute->first + k] : INFINITY;
}

static bool covers(uint32_t w, const plan_buffer *buffer, double from_s, double to_s) {
  const plan_lane *compute = &program.lanes[program.worker_lane[w]];
  return moment_s(compute, buffer->begin, false) <= from_s && to_s <= moment_s(compute, buffer->end, true);
}

static bool unit_in_chunk(int unit, int chunk) {
  return unit >= plan.chunks[chunk].first_unit && unit < plan.chunks[chunk].first_unit + plan.chunks[chunk].unit_count;
}

static bool saved_in(int tensor, int chunk) {
  const graph_tensor *t = &model.tensors.items[tensor];
  for (int i = 0; i < t->saver_unit_count; i++)
    if (unit_in_chunk(t->saver_units[i], chunk)) return plan.training;
  return false;
}

static double pass_end_s(uint32_t w, int chunk, uint32_t microbatch, bool forward) {
  const plan_lane *compute = &program.lanes[program.worker_lane[w]];
  double end_s = -1;
  for (uint32_t i = compute->first; i < compute->first + compute->count; i++) {
    const plan_instruction *instruction = &program.instructions[i];
    if (instruction->opcode == PLAN_OPTIMIZER_STEP || instruction->chunk != chunk ||
        instruction->microbatch != microbatch)
      continue;
    if ((instruction->opcode == PLAN_FORWARD) == forward) end_s = timeline.end_s[i];
  }
  return end_s;
}

/* Some buffer of the tensor (or the activations that hold it) is alive from from_s to to_s. */
static void assert_alive(uint32_t w, int tensor, bool gradient, int chunk, uint32_t microbatch, double from_s,
                         double to_s, const char *what) {
  const plan_worker_memory *worker = &memory.workers[w];
  for (uint32_t i = 0; i < worker->buffer_count; i++) {
    const plan_buffer *buffer = &worker->buffers[i];
    if (buffer->microbatch != microbatch || buffer->gradient != gradient) continue;
    const bool activations = buffer->memory_class == PLAN_MEMORY_ACTIVATIONS && saved_in(tensor, buffer->chunk) &&
                             unit_in_chunk(model.tensors.items[tensor].producer_unit, buffer->chunk);
    if ((buffer->tensor == tensor || activations) && covers(w, buffer, from_s, to_s)) return;
  }
  ck_abort_msg("worker %u: nothing holds %s%s of microbatch %u while it is %s (chunk %d of %d, %s, %s)", w,
               gradient ? "the gradient of " : "", model.tensors.items[tensor].name, microbatch, what, chunk,
               plan.chunk_count, plan_schedule_names[plan.schedule], plan_skip_policy_names[plan.skip_policy]);
}

static bool backward_is_whole(void) { return plan.schedule != PLAN_ZB_H1 && plan.schedule != PLAN_ZB_V; }

static bool used_here(const graph_tensor *tensor, int chunk, uint32_t w) {
  if ((uint32_t)plan.chunks[chunk].rank != w % (uint32_t)plan.ranks) return false;
  for (int n = 0; n < tensor->consumer_unit_count; n++)
    if (unit_in_chunk(tensor->consumer_units[n], chunk)) return true;
  return false;
}

/* What one chunk makes and another chunk of the worker uses. */
static void assert_local(void) {
  for (size_t t = 0; t < model.tensors.count; t++) {
    const graph_tensor *tensor = &model.tensors.items[t];
    for (int a = 0; tensor->producer_unit != GRAPH_NONE && a < plan.chunk_count; a++) {
      if (!unit_in_chunk(tensor->producer_unit, a)) continue;
      const uint32_t w = (uint32_t)plan.chunks[a].rank;
      for (int b = a + 1; b < plan.chunk_count; b++)
        for (uint32_t m = 0; used_here(tensor, b, w) && m < (uint32_t)(plan.microbatches * plan.denoise_steps); m++) {
          assert_alive(w, (int)t, false, a, m, pass_end_s(w, a, m, true), pass_end_s(w, b, m, !saved_in((int)t, b)),
                       "kept");
          if (plan.training && backward_is_whole())
            assert_alive(w, (int)t, true, a, m, pass_end_s(w, b, m, false), pass_end_s(w, a, m, false), "kept");
        }
    }
  }
}

static void assert_transfers(void) {
  for (uint32_t id = 0; id < program.instruction_count; id++) {
    const plan_instruction *i = &program.instructions[id];
    if (i->opcode != PLAN_SEND && i->opcode != PLAN_RECV) continue;
    const plan_message *m = &program.messages[i->class_id];
    const bool send = i->opcode == PLAN_SEND, compress = plan.skip_policy == PLAN_SKIP_COMPRESS;
    const uint32_t w = send ? m->from_worker : m->to_worker;
    for (int t = m->first_tensor; t < m->first_tensor + m->tensor_count; t++) {
      const int tensor = program.message_tensors[t];
      assert_alive(w, tensor, m->backward, i->chunk, i->microbatch, timeline.start_s[id], timeline.end_s[id],
                   send ? "sent" : "received");
      const graph_tensor *of = &model.tensors.items[tensor];
      for (int c = i->chunk + 1; send && m->backward && c < plan.chunk_count;
           c++) /* collected since the first backward */
        if (backward_is_whole() && used_here(of, c, w))
          assert_alive(w, tensor, true, i->chunk, i->microbatch, pass_end_s(w, c, i->microbatch, false),
                       timeline.end_s[id], "collected");
      if (send) continue;
      /* to the end of each use on this worker */
      if (m->backward) {
        if (backward_is_whole())
          assert_alive(w, tensor, true, i->chunk, i->microbatch, timeline.end_s[id],
                       pass_end_s(w, i->chunk, i->microbatch, false), "used");
        continue;
      }
      for (int c = i->chunk; c < plan.chunk_count; c++) {
        if (!used_here(of, c, w)) continue;
        const double from_s = compress ? pass_end_s(w, i->chunk, i->microbatch, true) : timeline.end_s[id];
        const double to_s = pass_end_s(w, c, i->microbatch, !saved_in(tensor, c));
        assert_alive(w, tensor, false, c, i->microbatch, from_s, to_s, "used");
      }
    }
  }
}

START_TEST(random_layouts_hold_what_they_must) {
  for (uint64_t seed = 0; seed < 150; seed++) {
    dp_random random;
    dp_random_init(&random, seed, 2);
    const int units = 6 + (int)dp_random_below(&random, 20);
    int cuts[64];
    if (seed % 4 == 0)
      reference_chain(units, 1, 2, 0.7, 100, &model);
    else
      reference_skip_graph(units, (int)(seed % 5), &random, &model);
    const reference_plan wanted = reference_random_plan(&random, units, cuts);
    make(&wanted);
    for (int w = 0; w < memory.worker_count; w++) assert_layout(&memory.workers[w]);
    for (int round = 0; round < 3; round++) {
      plan_timeline_free(&timeline);
      reference_play(&program, &model, 0.1, 4000, &random, &timeline);
      assert_transfers();
      assert_local();
    }
    drop();
  }
}
END_TEST

START_TEST(recomputed_layouts_hold_too) {
  for (uint64_t seed = 0; seed < 40; seed++) {
    dp_random random;
    dp_random_init(&random, seed, 3);
    reference_skip_graph(16, 3, &random, &model);
    int cuts[64];
    const reference_plan wanted = reference_random_plan(&random, 16, cuts);
    reference_plan_make(&wanted, &model, &plan);
    for (int u = 0; u < 16; u++) plan.recompute[u] = (uint8_t)dp_random_below(&random, 2);
    lay_out();
    for (int w = 0; w < memory.worker_count; w++) assert_layout(&memory.workers[w]);
    drop();
  }
}
END_TEST

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
        if (buffer->memory_class == PLAN_MEMORY_ACTIVATIONS && !buffer->gradient && buffer->microbatch == i->microbatch &&
            buffer->begin <= 2 * begun[i->microbatch] + 1 && buffer->end >= 2 * at + 1)
          kept_bytes += buffer->bytes;
      }
      ck_assert_int_eq(kept_bytes, 4 * 4096);
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
  const TTest *const tests[] = {random_layouts_hold_what_they_must, recomputed_layouts_hold_too,
                                activations_in_flight_by_schedule,  zero_bubble_keeps_as_much_as_1f1b,
                                persistent_bytes_by_optimizer,      boundary_buffers_by_hand,
                                recomputation_keeps_less,
                                recomputed_activations_wait_for_the_weight_backward,           offsets_of_random_buffers};
  return suite_run("plan_memory", tests, DP_COUNT_OF(tests), setup, drop, 120);
}
