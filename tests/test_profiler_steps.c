/* Steps of made-up programs: the true count must come out. */
#include <check.h>

#include "profiler/classes.h"
#include "profiler/steps.h"
#include "tests/profiler_world.h"

static const prof_header header = {.pid = 1, .rank = -1, .realtime_ns = 1, .clock_ns = 1, .host = "host"};
static prof_session session;
static prof_steps steps;

static void find(world *w, prof_steps_how how, const char *range, dp_status expected) {
  dp_error error = DP_ERROR_INIT;
  world_read(w, &session);
  ck_assert_int_eq(prof_session_finish(&session, &error), DP_OK);
  unsigned char *classes = world_classes(&session);
  const dp_status status = prof_steps_find(&session, classes, how, range, &steps, &error);
  ck_assert_msg(status == expected, "%s", error.text);
  free(classes);
}

static void leave(void) {
  prof_steps_free(&steps);
  prof_session_free(&session);
}

/* `layers` of 3 kernels between what comes once; shape changes their grids. */
static void forward(world *w, int layers, uint32_t shape) {
  world_kernel(w, "embedding", 8 * shape);
  for (int i = 0; i < layers; i++) {
    world_kernel(w, "layer_norm", 4 * shape);
    world_kernel(w, "gemm", 16 * shape);
    world_kernel(w, "flash_fwd", 32 * shape);
  }
  world_kernel(w, "loss", shape);
}
static void backward(world *w, int layers, uint32_t shape) {
  for (int i = 0; i < layers; i++) {
    world_kernel(w, "flash_bwd", 32 * shape);
    world_kernel(w, "gemm", 17 * shape);
    world_kernel(w, "gemm", 18 * shape);
    world_kernel(w, "layer_norm_backward", 4 * shape);
  }
}
static void optimizer(world *w) {
  for (int i = 0; i < 6; i++) world_kernel(w, "multi_tensor_apply_adam", i < 5 ? 320 : 77);
}

enum { INIT, EVALUATE, LOG, ACCUMULATE, TWO_SHAPES, TAIL, DROP, PLAIN, ALL, KINDS };

/* ALL: each of them, but two shapes and the tail. */
static bool has(int kind, int what) { return kind == what || (kind == ALL && what != TWO_SHAPES); }

static void train(world *w, int kind, int count) {
  world_begin(w, &header);
  for (int i = 0; i < (has(kind, INIT) ? 400 : 3); i++) world_kernel(w, "fill_kernel", (uint32_t)(i * 7 % 13 + 1));
  if (has(kind, DROP)) w->drop_every = 200;
  for (int i = 0; i < count; i++) {
    for (int a = 0; a < (has(kind, ACCUMULATE) ? 4 : 1); a++) {
      const uint32_t shape = has(kind, TWO_SHAPES) ? 1 + (uint32_t)i % 2 : 1;
      forward(w, 12, shape);
      backward(w, 12, shape);
    }
    optimizer(w);
    if (has(kind, LOG) && i % 10 == 9) world_kernel(w, "reduce_kernel", 1);
    if (has(kind, EVALUATE) && i % 8 == 7)
      for (int e = 0; e < 5; e++) forward(w, 12, 1);
  }
  if (kind == TAIL) forward(w, 12, 1); /* killed in the middle of a step */
}

START_TEST(trained_steps_are_counted) {
  enum { COUNT = 40 };
  world w;
  train(&w, _i, COUNT);
  find(&w, PROF_STEPS_AUTO, NULL, DP_OK);
  const prof_process_steps *found = &steps.processes[0];
  ck_assert_msg(found->count == COUNT && steps.items.count == COUNT, "case %d: %d steps: %s", _i, (int)found->count,
                found->why);
  const size_t period = has(_i, ACCUMULATE) ? 4 * (2 + 7 * 12) + 6 : 2 + 7 * 12 + 6;
  ck_assert_msg(found->period >= period - 3 && found->period <= period, "case %d: %zu kernels", _i, found->period);
  ck_assert_msg(found->confidence > (has(_i, EVALUATE) ? 0.8 : 0.9) && found->confidence <= 1, "case %d: %f", _i,
                found->confidence);
  /* they follow each other, and in all but the odd ones the optimizer is the last */
  for (size_t i = 0; i + 1 < COUNT; i++)
    ck_assert_int_eq(steps.items.items[i].end_ns, steps.items.items[i + 1].start_ns);
  ck_assert_int_eq((int)steps.items.items[COUNT - 1].number, COUNT - 1);
}
END_TEST

/* Without an optimizer: sampling, where layers repeat more often than steps; shapes by name; with every tenth step odd.
 */
START_TEST(sampled_steps_are_counted) {
  enum { COUNT = 30 };
  static const int layers[] = {48, 4, 20, 20};
  world w;
  world_begin(&w, &header);
  if (_i == 3) w.drop_every = 300;
  for (int i = 0; i < COUNT; i++) {
    forward(&w, layers[_i], _i == 1 ? 1 + (uint32_t)i % 2 : 1);
    if (_i == 2 && i % 10 == 9) world_kernel(&w, "decode_preview", 3);
    w.now_ns += 50000;
  }
  find(&w, PROF_STEPS_AUTO, NULL, DP_OK);
  const prof_process_steps *found = &steps.processes[0];
  ck_assert_msg(found->count == COUNT, "case %d: %d steps: %s, %zu kernels", _i, (int)found->count, found->why,
                found->period);
  ck_assert_msg(found->confidence > 0.85 && found->confidence < 1, "case %d: %f", _i, found->confidence);
}
END_TEST

START_TEST(no_steps) {
  world w;
  world_begin(&w, &header);
  for (uint32_t i = 0; i < 500; i++)
    world_kernel(&w, dp_random_below(&w.random, 3) ? "gemm" : "other", (uint32_t)dp_random_below(&w.random, 1000));
  find(&w, PROF_STEPS_AUTO, NULL, DP_OK);
  ck_assert_msg(steps.processes[0].count == 0 || steps.processes[0].confidence < 0.7, "%d steps, sure by %f",
                (int)steps.processes[0].count, steps.processes[0].confidence);
  leave();
  world_begin(&w, &header);
  find(&w, PROF_STEPS_AUTO, NULL, DP_OK);
  ck_assert_uint_eq(steps.processes[0].count, 0);
  ck_assert_double_eq(steps.processes[0].confidence, 0);
}
END_TEST

static void range(world *w, prof_kind kind, const char *name, int64_t at_ns) {
  world_add(w, &(prof_record){.kind = (uint8_t)kind,
                              .device = PROF_NO_DEVICE,
                              .name = name ? world_name(w, name) : 0,
                              .start_ns = at_ns,
                              .end_ns = at_ns,
                              .thread = 7});
}

/* Three ranges of 1 ms with an inner one, whose work runs 0.7 ms later; a long pause before the third. */
START_TEST(ranges_take_their_launches) {
  static const int64_t begins[] = {1000000, 2000000, 9000000};
  world w;
  world_begin(&w, &header);
  for (int i = 0; i < 3; i++) {
    range(&w, PROF_RANGE_BEGIN, "step", begins[i]);
    range(&w, PROF_RANGE_BEGIN, "forward", begins[i] + 1000);
    world_work(&w, PROF_KERNEL, "gemm", 1, begins[i] + 700000, begins[i] + 800000, begins[i] + 2000);
    range(&w, PROF_RANGE_END, NULL, begins[i] + 3000);
    world_work(&w, PROF_KERNEL, "gemm", 1, begins[i] + 800000, begins[i] + 1600000, begins[i] + 4000);
    range(&w, PROF_RANGE_END, NULL, begins[i] + 1000000);
  }
  range(&w, PROF_RANGE_BEGIN, "step", 20000000); /* never closed */
  find(&w, PROF_STEPS_RANGE, "step", DP_OK);
  ck_assert_uint_eq(steps.items.count, 3);
  static const int64_t times[3][2] = {{1700000, 2700000}, {2700000, 3600000}, {9700000, 10600000}};
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(steps.items.items[i].start_ns, times[i][0]);
    ck_assert_int_eq(steps.items.items[i].end_ns, times[i][1]);
  }
  ck_assert_double_eq(steps.processes[0].confidence, 1);
  leave();
  world_begin(&w, &header);
  range(&w, PROF_RANGE_BEGIN, "step", 5);
  range(&w, PROF_RANGE_END, NULL, 9);
  find(&w, PROF_STEPS_RANGE, "steps", DP_BAD_INPUT);
}
END_TEST

START_TEST(marks_are_taken) {
  world w;
  world_begin(&w, &header);
  for (int i = 0; i < 4; i++) {
    const int64_t at = 1000000 * (i + 1);
    world_add(
        &w, &(prof_record){
                .kind = PROF_STEP, .device = PROF_NO_DEVICE, .start_ns = at, .end_ns = at, .value = 100 + (uint64_t)i});
    world_work(&w, PROF_KERNEL, "gemm", 1, at + 300000, at + 900000, at + 10000);
  }
  find(&w, PROF_STEPS_AUTO, NULL, DP_OK);
  ck_assert_uint_eq(steps.processes[0].count, 4);
  ck_assert_int_eq(steps.processes[0].how, PROF_STEPS_MARKS);
  for (int i = 0; i < 4; i++) {
    ck_assert_uint_eq(steps.items.items[i].number, 100 + (uint64_t)i);
    ck_assert_int_eq(steps.items.items[i].start_ns, 1000000 * (i + 1) + 300000);
    ck_assert_int_eq(steps.items.items[i].end_ns, i < 3 ? 1000000 * (i + 2) + 300000 : 4900000);
  }
}
END_TEST

/* As a run of our own has them, of which not every step is recorded. */
START_TEST(marks_with_ends_leave_gaps) {
  static const int64_t at_ms[4] = {1, 2, 3, 9};
  static const int64_t ends[4] = {2300000, 3300000, 3900000, 9900000};
  world w;
  world_begin(&w, &header);
  for (int i = 0; i < 4; i++) {
    const int64_t at = 1000000 * at_ms[i];
    world_add(&w, &(prof_record){.kind = PROF_STEP,
                                 .device = PROF_NO_DEVICE,
                                 .start_ns = at,
                                 .end_ns = at + 1000000,
                                 .value = (uint64_t)at_ms[i]});
    world_work(&w, PROF_KERNEL, "gemm", 1, at + 300000, at + 900000, at + 10000);
  }
  find(&w, PROF_STEPS_AUTO, NULL, DP_OK);
  ck_assert_uint_eq(steps.items.count, 4);
  for (int i = 0; i < 4; i++) {
    ck_assert_int_eq(steps.items.items[i].start_ns, 1000000 * at_ms[i] + 300000);
    ck_assert_int_eq(steps.items.items[i].end_ns, ends[i]);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("profiler_steps");
  TCase *tcase = suite_case(suite, "steps", NULL, leave, 0);
  tcase_add_loop_test(tcase, trained_steps_are_counted, 0, KINDS);
  tcase_add_loop_test(tcase, sampled_steps_are_counted, 0, 4);
  tcase_add_test(tcase, no_steps);
  tcase_add_test(tcase, ranges_take_their_launches);
  tcase_add_test(tcase, marks_are_taken);
  tcase_add_test(tcase, marks_with_ends_leave_gaps);
  return suite_finish(suite);
}
