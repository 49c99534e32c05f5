/* Figures of made-up programs, against those that can be told by hand, and the law that parts sum to the whole. */
#include <check.h>

#include "profiler/names.h"
#include "profiler/summary.h"
#include "tests/profiler_world.h"

static const prof_header header = {.pid = 1, .rank = -1, .realtime_ns = 1, .clock_ns = 1, .host = "host"};
static prof_session session;
static prof_steps steps;
static prof_summary summary;

static void sum_up(world *w, prof_steps_how how, const char *range) {
  dp_error error = DP_ERROR_INIT;
  world_read(w, &session);
  ck_assert_int_eq(prof_session_finish(&session, &error), DP_OK);
  unsigned char *classes = world_classes(&session);
  ck_assert_msg(prof_steps_find(&session, classes, how, range, &steps, &error) == DP_OK, "%s", error.text);
  ck_assert_msg(prof_summary_of(&session, classes, &steps, 0, &summary, &error) == DP_OK, "%s", error.text);
  free(classes);
}

static void leave(void) {
  prof_summary_free(&summary);
  prof_steps_free(&steps);
  prof_session_free(&session);
}

static void is_us(double seconds, double us) { ck_assert_double_eq_tol(seconds * 1e6, us, 1e-6); }

/* Two steps of which every moment is known, in µs from 100:
 *   compute     100..200         260..300 300..360        500..600        3600..3700
 *   NCCL              180..250
 *   copies                        290..310           380..400
 *   nothing: 250..260 launched before; 360..380 and 400..500 launched while dry; 600..3600 the host was away
 *            for 2.9 ms. */
static void two_steps(world *w) {
  world_begin(w, &header);
  world_mark(w, 90);
  world_work_us(w, PROF_KERNEL, "nvjet", 1, 100, 200, 95);
  world_work_us(w, PROF_KERNEL, "ncclDevKernel_AllReduce", 2, 180, 250, 96);
  world_work_us(w, PROF_KERNEL, "layer_norm", 1, 260, 300, 97);
  world_work_us(w, PROF_COPY, NULL, 3, 290, 310, 98);
  world_work_us(w, PROF_KERNEL, "nvjet", 1, 300, 360, 99);
  world_work_us(w, PROF_MEMSET, NULL, 1, 380, 400, 370);
  world_mark(w, 470);
  world_work_us(w, PROF_KERNEL, "nvjet", 1, 500, 600, 480);
  world_call(w, 7, 600000, 650000, 0); /* it waits for the device, and then for data */
  world_work_us(w, PROF_KERNEL, "adam", 1, 3600, 3700, 3590);
}

START_TEST(each_moment_has_its_part) {
  world w;
  two_steps(&w);
  sum_up(&w, PROF_STEPS_AUTO, NULL);
  ck_assert_uint_eq(summary.devices.count, 1);
  const prof_device_row *row = &summary.devices.items[0];
  is_us(row->window_s, 3600);
  is_us(row->parts_s[PROF_COMPUTE], 100 + 40 + 60 + 100 + 100);
  is_us(row->parts_s[PROF_EXPOSED_NCCL], 50);
  is_us(row->parts_s[PROF_EXPOSED_COPIES], 20);
  is_us(row->parts_s[PROF_IDLE_OTHER], 10);
  is_us(row->parts_s[PROF_IDLE_HOST], 20 + 100);
  is_us(row->parts_s[PROF_IDLE_DATA], 3000);
  is_us(row->nccl_s, 70);
  is_us(row->copies_s, 40);
  ck_assert_uint_eq(row->gaps.count, 4);
  is_us(row->gaps.sum_s, 3130);
  is_us(row->gaps.p50_s, 60);
  is_us(row->gaps.max_s, 3000);
  ck_assert_uint_eq(summary.step_count, 2);
  is_us(summary.steps[0].parts_s[PROF_COMPUTE], 200);
  is_us(summary.steps[0].parts_s[PROF_IDLE_HOST], 120); /* from its first work, at 100, to the next step's, at 500 */
  is_us(summary.steps[1].parts_s[PROF_COMPUTE], 200);
  is_us(summary.steps[1].parts_s[PROF_IDLE_DATA], 3000);
  is_us(summary.step_time.sum_s, 400 + 3200);
  is_us(summary.step_time.max_s, 3200);
  is_us(summary.step_time.p50_s, 1800);
}
END_TEST

START_TEST(classes_and_streams_are_summed) {
  world w;
  two_steps(&w);
  sum_up(&w, PROF_STEPS_AUTO, NULL);
  const prof_class_row *gemm = &summary.classes[PROF_GEMM];
  ck_assert_uint_eq(gemm->time.count, 3);
  is_us(gemm->time.sum_s, 260);
  is_us(gemm->time.p50_s, 100);
  is_us(gemm->time.max_s, 100);
  is_us(summary.work_s, 260 + 70 + 40 + 40 + 100);
  ck_assert_double_eq_tol(gemm->share, 260.0 / 510, 1e-12);
  ck_assert_uint_eq(summary.classes[PROF_COPIES].time.count, 2);
  ck_assert_uint_eq(summary.classes[PROF_ATTENTION].time.count, 0);
  double shares = 0;
  for (int c = 0; c < PROF_CLASS_COUNT; c++) shares += summary.classes[c].share;
  ck_assert_double_eq_tol(shares, 1, 1e-12);
  is_us(summary.steps[0].classes_s[PROF_GEMM], 160);
  is_us(summary.steps[1].classes_s[PROF_GEMM], 100);
  is_us(summary.steps[1].classes_s[PROF_OPTIMIZER], 100);
  ck_assert_uint_eq(summary.copies[PROF_COPY_OTHER].count, 1);
  ck_assert_uint_eq(summary.streams.count, 3);
  ck_assert_uint_eq(summary.streams.items[0].count, 6);
  is_us(summary.streams.items[0].sum_s, 420);
  is_us(summary.streams.items[1].sum_s, 70);
}
END_TEST

START_TEST(kernels_are_summed_by_name) {
  world w;
  two_steps(&w);
  sum_up(&w, PROF_STEPS_AUTO, NULL);
  ck_assert_uint_eq(summary.kernels.count, 4);
  const prof_kernel_row *first = &summary.kernels.items[0];
  ck_assert_str_eq(session.names.items[first->name], "nvjet");
  ck_assert_int_eq(first->class, PROF_GEMM);
  ck_assert_uint_eq(first->time.count, 3);
  is_us(first->time.sum_s, 260);
  is_us(first->time.p50_s, 100);
  ck_assert_double_eq_tol(first->share, 260.0 / 510, 1e-12);
  ck_assert_str_eq(session.names.items[summary.kernels.items[1].name], "adam");
  is_us(summary.kernels.items[2].time.sum_s, 70);
  is_us(summary.kernels.items[3].time.sum_s, 40);
}
END_TEST

START_TEST(names_are_readable) {
  static const char *const names[][2] = {
      {"nvjet_sm90_tst_128x128", "nvjet_sm90_tst_128x128"},
      {"_Z3fooi", "foo"},
      {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
       "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"},
      {"_ZN4kern12_GLOBAL__N_112adamw_kernelIfLi4EEEvlT_", "kern::(anonymous namespace)::adamw_kernel<float, 4>"},
      {"_ZNK3foocvvEv", "foo::operator void"},
      {"_ZN3fooclEi", "foo::operator()"},
      {"", ""},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *name = prof_readable_name(names[i][0]);
    ck_assert_str_eq(name, names[i][1]);
    free(name);
  }
}
END_TEST

START_TEST(memory_is_followed) {
  static const struct {
    prof_kind kind;
    uint64_t bytes;
  } rows[] = {{PROF_FREE, 50}, {PROF_ALLOCATE, 1000}, {PROF_ALLOCATE, 500}, {PROF_FREE, 1000}, {PROF_ALLOCATE, 200}};
  world w;
  world_begin(&w, &header);
  for (int i = 0; i < 5; i++)
    world_add(
        &w, &(prof_record){.kind = (uint8_t)rows[i].kind, .start_ns = i + 1, .end_ns = i + 1, .value = rows[i].bytes});
  sum_up(&w, PROF_STEPS_AUTO, NULL);
  ck_assert_uint_eq(summary.devices.count, 1);
  ck_assert_int_eq(summary.devices.items[0].peak_bytes, 1500);
  ck_assert_int_eq(summary.devices.items[0].end_bytes, 700);
}
END_TEST

/* Whatever was recorded: parts sum to the time of each device, and those of steps to theirs. */
START_TEST(parts_sum_to_the_whole) {
  static const char *const names[] = {"gemm", "ncclDevKernel", "adam", "elementwise", "loss"};
  world w;
  world_begin(&w, &header);
  dp_random_init(&w.random, (uint64_t)_i, 7);
  for (int i = 0; i < 600; i++) {
    const int64_t start = 1 + (int64_t)dp_random_below(&w.random, 100000000);
    const int64_t end = start + (int64_t)dp_random_below(&w.random, _i % 2 ? 1000000 : 100000);
    const prof_kind kind = (prof_kind)(PROF_KERNEL + dp_random_below(&w.random, 4));
    if (i % 30 == 0) world_mark(&w, 1 + start / 1000);
    world_work(&w, kind, names[dp_random_below(&w.random, 5)], (uint32_t)dp_random_below(&w.random, 4), start, end,
               i % 3 ? 1 + (int64_t)dp_random_below(&w.random, (uint64_t)start) : 0);
  }
  sum_up(&w, PROF_STEPS_AUTO, NULL);
  ck_assert_uint_eq(summary.devices.count, 1);
  double whole = 0;
  for (int p = 0; p < PROF_PART_COUNT; p++) {
    ck_assert_double_ge(summary.devices.items[0].parts_s[p], 0);
    whole += summary.devices.items[0].parts_s[p];
  }
  ck_assert_double_eq_tol(whole, summary.devices.items[0].window_s, 1e-9);
  ck_assert_uint_eq(summary.step_count, 20);
  for (size_t s = 0; s < summary.step_count; s++) {
    double sum = 0;
    for (int p = 0; p < PROF_PART_COUNT; p++) sum += summary.steps[s].parts_s[p];
    ck_assert_double_eq_tol(sum, (double)(summary.steps[s].step.end_ns - summary.steps[s].step.start_ns) * 1e-9, 1e-9);
  }
  ck_assert_double_ge(summary.devices.items[0].nccl_s, summary.devices.items[0].parts_s[PROF_EXPOSED_NCCL]);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("profiler_summary");
  TCase *tcase = suite_case(suite, "summary", NULL, leave, 0);
  tcase_add_test(tcase, each_moment_has_its_part);
  tcase_add_test(tcase, classes_and_streams_are_summed);
  tcase_add_test(tcase, kernels_are_summed_by_name);
  tcase_add_test(tcase, names_are_readable);
  tcase_add_test(tcase, memory_is_followed);
  tcase_add_loop_test(tcase, parts_sum_to_the_whole, 0, 10);
  return suite_finish(suite);
}
