/* Made-up runs on other devices: what becomes shorter, what stays, what is hidden, and the catalogue's ratios. */
#include <check.h>

#include "profiler/retime.h"
#include "profiler/scale.h"
#include "profiler/summary.h"
#include "tests/profiler_world.h"

static const prof_header header = {.pid = 1, .rank = -1, .realtime_ns = 1, .clock_ns = 1, .host = "host"};
static prof_session session;
static unsigned char *classes;
static prof_steps steps;
static prof_retimed again;

static void read_all(void) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(prof_session_finish(&session, &error), DP_OK);
  classes = world_classes(&session);
  ck_assert_msg(prof_steps_find(&session, classes, PROF_STEPS_AUTO, NULL, &steps, &error) == DP_OK, "%s", error.text);
}

static void leave(void) {
  prof_retimed_free(&again);
  prof_steps_free(&steps);
  free(classes);
  classes = NULL;
  prof_session_free(&session);
}

/* Times of classes are multiplied. */
typedef struct factors {
  double of[PROF_CLASS_COUNT];
} factors;

static double multiplied(const void *context, const prof_record *work, double measured_s) {
  return measured_s * ((const factors *)context)->of[prof_record_class(work, classes)];
}

static void set_again(prof_class class, double factor, double host_factor) {
  dp_error error = DP_ERROR_INIT;
  factors f;
  for (int c = 0; c < PROF_CLASS_COUNT; c++) f.of[c] = 1;
  f.of[class] = factor;
  const prof_retime_how how = {.work_s = multiplied, .context = &f, .host_factor = host_factor};
  prof_retimed_free(&again);
  ck_assert_int_eq(prof_retime(&session, classes, &steps, &how, &again, &error), DP_OK);
}

static void waits(world *w, int64_t start_us, int64_t end_us) {
  world_add(w, &(prof_record){.kind = PROF_SYNC,
                              .device = PROF_NO_DEVICE,
                              .name = world_name(w, "cudaStreamSynchronize"),
                              .start_ns = start_us * 1000,
                              .end_ns = end_us * 1000,
                              .thread = 7});
}

static double step_us(size_t step) {
  return (double)(again.steps.items.items[step].end_ns - again.steps.items.items[step].start_ns) / 1000;
}
static void step_is(size_t step, double us) { ck_assert_double_eq_tol(step_us(step), us, 0.01); }

/* Steps of a product of 100 µs and a norm of 50, launched well before, then a collective of 60 of which 40 are beside a
 * product of 40, and an optimizer of 10 that waits for it; each step ends with the host waiting. */
static void four_steps(world *w) {
  world_begin(w, &header);
  for (int64_t i = 0; i < 4; i++) {
    const int64_t t = 1000 + 300 * i;
    world_mark(w, t - 21);
    world_work_us(w, PROF_KERNEL, "nvjet_sm90_tst_1", 1, t, t + 100, t - 15);
    world_work_us(w, PROF_KERNEL, "layer_norm", 1, t + 100, t + 150, t - 13);
    world_work_us(w, PROF_KERNEL, "ncclDevKernel_AllReduce", 2, t + 150, t + 180, t - 11);
    world_work_us(w, PROF_KERNEL, "nvjet_sm90_tst_2", 1, t + 150, t + 190, t - 9);
    world_work_us(w, PROF_KERNEL, "adam", 1, t + 190, t + 210, t - 7);
    waits(w, t - 5, t + 215);
  }
  world_read(w, &session);
  read_all();
  ck_assert_uint_eq(steps.items.count, 4);
}

START_TEST(the_same_is_the_same) {
  static const char *const names[] = {"gemm", "ncclDevKernel", "adam", "elementwise", "loss"};
  for (int process = 0; process < 2; process++) {
    world w;
    const prof_header own = world_header(100 + process, process, 1, 1);
    world_begin(&w, &own);
    dp_random_init(&w.random, (uint64_t)_i, (uint64_t)process);
    for (int i = 0; i < 400; i++) {
      const int64_t start = 1 + (int64_t)dp_random_below(&w.random, 100000000);
      const int64_t end = start + (int64_t)dp_random_below(&w.random, _i % 2 ? 1000000 : 100000);
      if (i % 30 == 0) world_mark(&w, 1 + start / 1000);
      if (i % 17 == 0) waits(&w, start / 1000 + 1, end / 1000 + 1);
      world_work(&w, (prof_kind)(PROF_KERNEL + dp_random_below(&w.random, 4)), names[dp_random_below(&w.random, 5)],
                 (uint32_t)dp_random_below(&w.random, 4), start, end,
                 i % 3 ? 1 + (int64_t)dp_random_below(&w.random, (uint64_t)start) : 0);
    }
    world_read(&w, &session);
  }
  read_all();
  set_again(PROF_GEMM, 1, 1);
  ck_assert_uint_eq(again.session.records.count, session.records.count);
  for (size_t i = 0; i < session.records.count; i++) {
    ck_assert_int_eq(again.session.records.items[i].start_ns, session.records.items[i].start_ns);
    ck_assert_int_eq(again.session.records.items[i].end_ns, session.records.items[i].end_ns);
  }
  for (size_t i = 0; i < steps.items.count; i++) {
    ck_assert_int_eq(again.steps.items.items[i].start_ns, steps.items.items[i].start_ns);
    ck_assert_int_eq(again.steps.items.items[i].end_ns, steps.items.items[i].end_ns);
  }
  set_again(PROF_GEMM, 0.3,
            2); /* whatever comes: no work ends before it begins, and the order is kept within a stream */
  for (size_t i = 0; i < again.session.records.count; i++) {
    const prof_record *r = &again.session.records.items[i];
    ck_assert_int_le(r->start_ns, r->end_ns);
    if (i) ck_assert_int_ge(r->start_ns, r[-1].start_ns);
  }
}
END_TEST

START_TEST(a_faster_matrix_rate_helps_products_alone) {
  world w;
  prof_summary before, after;
  dp_error error = DP_ERROR_INIT;
  four_steps(&w);
  set_again(PROF_GEMM, 0.5, 1);
  for (size_t s = 0; s < 3; s++) step_is(s, 300 - 50 - 10); /* the collective of 30 is longer than 20 now */
  ck_assert_int_eq(prof_summary_of(&session, classes, &steps, 0, &before, &error), DP_OK);
  ck_assert_int_eq(prof_summary_of(&again.session, classes, &again.steps, 0, &after, &error), DP_OK);
  for (int c = 0; c < PROF_CLASS_COUNT; c++)
    ck_assert_double_eq_tol(after.classes[c].time.sum_s, before.classes[c].time.sum_s * (c == PROF_GEMM ? 0.5 : 1),
                            1e-12);
  ck_assert_double_eq_tol(before.devices.items[0].parts_s[PROF_EXPOSED_NCCL], 0, 1e-12);
  ck_assert_double_eq_tol(after.devices.items[0].parts_s[PROF_EXPOSED_NCCL], 4 * 10e-6, 1e-12);
  prof_summary_free(&before);
  prof_summary_free(&after);
}
END_TEST

START_TEST(communication_is_hidden_until_it_is_longest) {
  world w;
  four_steps(&w);
  set_again(PROF_NCCL, 0.1, 1);
  step_is(1, 300);
  set_again(PROF_NCCL, 40.0 / 30, 1);
  step_is(1, 300);
  set_again(PROF_NCCL, 2, 1);
  step_is(1, 320);
}
END_TEST

START_TEST(the_host_takes_its_time) {
  world w;
  four_steps(&w);
  set_again(PROF_GEMM, 1, 2); /* between waiting and the last launch but one 78 µs of the host's; the device waits */
  ck_assert_double_gt(step_us(1), 360);
  leave();
  world_begin(&w, &header); /* each kernel of 5 µs is launched 20 µs after the last one, and runs at once */
  for (int64_t i = 0; i < 40; i++) {
    if (i % 10 == 0) world_mark(&w, 1000 + 20 * i - 2);
    world_work_us(&w, PROF_KERNEL, "nvjet", 1, 1000 + 20 * i + 2, 1000 + 20 * i + 7, 1000 + 20 * i);
  }
  world_read(&w, &session);
  read_all();
  set_again(PROF_GEMM, 0.25, 1);
  step_is(1, 200);
  set_again(PROF_GEMM, 3, 1);
  step_is(1, 200);
  set_again(PROF_GEMM, 10, 1); /* 50 µs each: now the device's */
  ck_assert_double_ge(step_us(1), 500);
  set_again(PROF_GEMM, 1, 0.5);
  step_is(1, 100);
}
END_TEST

static int64_t start_us_of(const char *name) { /* of the last work of that name */
  for (size_t i = again.session.records.count; i-- > 0;) {
    const prof_record *r = &again.session.records.items[i];
    if (r->kind == PROF_KERNEL && strcmp(session.names.items[r->name], name) == 0) return r->start_ns / 1000;
  }
  ck_abort_msg("no kernel %s", name);
}

static void launch(world *w, uint32_t thread, const char *name, prof_kind kind, int64_t call_us, int64_t returns_us,
                   int64_t start_us, int64_t end_us) {
  world_work(w, kind, name, 1, start_us * 1000, end_us * 1000, 0);
  world_call(w, thread, call_us * 1000, returns_us * 1000, w->correlation);
}

/* A product from 100 to 1100, then something that the host waits in, and a kernel that is launched 50 µs after that. */
START_TEST(the_host_waits_where_it_did) {
  static const struct {
    int64_t shorter_us; /* how much sooner the last kernel starts when products take half as long */
  } rows[] = {{500}, {500}, {500}, {0}};
  world w;
  world_begin(&w, &header);
  launch(&w, 7, "nvjet", PROF_KERNEL, 90, 95, 100, 1100);
  if (_i == 0) waits(&w, 120, 1110);                                            /* a wait */
  if (_i == 1) launch(&w, 7, NULL, PROF_COPY, 120, 1110, 1101, 1105);           /* a copy that blocks */
  if (_i == 2) launch(&w, 7, "layer_norm", PROF_KERNEL, 120, 1110, 1111, 1120); /* a full queue */
  if (_i == 3) world_call(&w, 7, 120000, 1110000, 0);                           /* the host's own, cudaMalloc or so */
  launch(&w, 7, "last", PROF_KERNEL, 1160, 1165, 1170, 1180);
  world_read(&w, &session);
  read_all();
  set_again(PROF_GEMM, 0.5, 1);
  ck_assert_int_eq(start_us_of("last"), 1170 - rows[_i].shorter_us);
}
END_TEST

/* Kernels of 30 µs, launched every 6 µs until 600 are not done, then each call waits for one of them to end. */
START_TEST(a_full_queue_holds_the_host) {
  enum { KERNELS = 2000, DEPTH = 600 };
  world w;
  int64_t host_us = 1000;
  world_begin(&w, &header);
  for (int64_t i = 0; i < KERNELS; i++) {
    const int64_t start = 1010 + 30 * i, room = i < DEPTH ? 0 : 1010 + 30 * (i - DEPTH + 1);
    const int64_t returns = host_us + 5 > room ? host_us + 5 : room + 1;
    if (i % 500 == 0) world_mark(&w, host_us - 1);
    launch(&w, 7, "nvjet", PROF_KERNEL, host_us, returns, start, start + 30);
    host_us = returns + 1;
  }
  world_read(&w, &session);
  read_all();
  set_again(PROF_GEMM, 0.5, 1);
  step_is(2, 500 * 15);
  set_again(PROF_GEMM, 0.1, 1); /* the host launches one in 6 µs */
  step_is(2, 500 * 6);
  set_again(PROF_GEMM, 2, 1);
  step_is(2, 500 * 60);
}
END_TEST

/* Another thread computes the gradients: the first one goes on after it. */
START_TEST(a_thread_goes_on_after_another) {
  world w;
  world_begin(&w, &header);
  launch(&w, 7, "nvjet", PROF_KERNEL, 90, 95, 100, 110);
  launch(&w, 8, "nvjet", PROF_KERNEL, 200, 205, 210, 4210);
  world_add(&w, &(prof_record){
                    .kind = PROF_SYNC, .device = PROF_NO_DEVICE, .start_ns = 300000, .end_ns = 4220000, .thread = 8});
  launch(&w, 7, "last", PROF_KERNEL, 4300, 4305, 4310, 4320);
  world_read(&w, &session);
  read_all();
  set_again(PROF_GEMM, 0.5, 1);
  ck_assert_int_eq(start_us_of("last"), 4310 - 2000);
}
END_TEST

/* The second rank is late by 40 µs of its product, the first waits in the collective, which moves data for 20. */
START_TEST(waiting_for_other_ranks_is_found_anew) {
  for (int rank = 0; rank < 2; rank++) {
    world w;
    const prof_header own = world_header(100 + rank, rank, 1, 1);
    world_begin(&w, &own);
    for (int64_t i = 0; i < 4; i++) {
      const int64_t t = 1000 + 200 * i;
      world_mark(&w, t - 11);
      world_work_us(&w, PROF_KERNEL, rank ? "nvjet" : "layer_norm", 1, t, t + (rank ? 100 : 60), t - 9);
      world_work_us(&w, PROF_KERNEL, "ncclDevKernel_AllReduce", 2, t + (rank ? 100 : 60), t + 120, t - 7);
      world_work_us(&w, PROF_KERNEL, "adam", 1, t + 120, t + 130, t - 5);
      waits(&w, t - 3, t + 135);
    }
    world_read(&w, &session);
  }
  read_all();
  set_again(PROF_NCCL, 2, 1);
  ck_assert_uint_eq(again.collectives, 4);
  for (size_t s = 0; s < 3; s++) {
    step_is(s, 220);
    step_is(4 + s, 220);
  }
  set_again(PROF_GEMM, 0.8, 1); /* of the late rank */
  step_is(0, 180);
  step_is(4, 180);
  set_again(PROF_GEMM, 0.5, 1); /* now the other one is */
  step_is(0, 160);
  step_is(4, 160);
}
END_TEST

/* ---- ratios ---- */

START_TEST(names_tell_precisions) {
  static const struct {
    const char *name;
    prof_precision precision;
  } rows[] = {{"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT", PROF_BF16},
              {"ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", PROF_BF16},
              {"ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_tn", PROF_FP16},
              {"void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, cutlass::half_t>>", PROF_FP16},
              {"sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32", PROF_TF32},
              {"cutlass_80_tensorop_s1688gemm_256x128_16x3_nn_align4", PROF_TF32},
              {"_ZN7cutlass7Kernel2I50cutlass_75_tensorop_s1688gemm_bf16_64x64_nt_align1EEvNT_6ParamsE", PROF_BF16},
              {"ampere_sgemm_128x64_tn", PROF_FP32},
              {"sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n", PROF_FP8},
              {"triton_tem_fused_addmm_3", PROF_PRECISION_COUNT}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    ck_assert_msg(prof_precision_of(rows[i].name) == rows[i].precision, "%s", rows[i].name);
}
END_TEST

#define CARD(name, bf16, memory, pcie)                                             \
  "[[device]]\nname = \"" name                                                     \
  "\"\narchitecture = \"Hopper sm90\"\nmemory_gb = 80\nmemory_type = \"HBM3\"\n"   \
  "memory_bandwidth_gb_per_s = " memory "\nfp32_tflops = 50\nbf16_tflops = " bf16  \
  "\nsm_count = 132\nl2_mb = 50\ninterconnect = \"none\"\npcie_generation = " pcie \
  "\npcie_lanes = 16"                                                              \
  "\ntdp_w = 500\nverified = \"all\"\n[[node]]\n[[node.device]]\nmodel = \"" name "\"\ncount = 2\n"

static void build(const char *text, plan_catalogue *catalogue, dp_document *document, plan_cluster *cluster) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(dp_document_parse_toml(text, strlen(text), "made up", document, &error) == DP_OK, "%s", error.text);
  ck_assert_msg(plan_cluster_build(document->root, catalogue, cluster, &error) == DP_OK, "%s", error.text);
}

START_TEST(classes_have_their_ratios) {
#define FILE_OF(card) "format = \"diffpipe-cluster\"\nversion = 1\nname = \"two\"\n" card
  static const char *const texts[] = {FILE_OF(CARD("one", "400", "2000", "5")),
                                      FILE_OF(CARD("two", "800", "2000", "5")),
                                      FILE_OF(CARD("three", "400", "4000", "3"))};
  plan_catalogue catalogue;
  dp_document documents[3];
  plan_cluster clusters[3];
  prof_side sides[3];
  dp_error error = DP_ERROR_INIT;
  world w;
  four_steps(&w);
  double seconds[PROF_PRECISION_COUNT + 1];
  unsigned char *precisions = prof_scale_precisions(&session, classes, seconds);
  ck_assert_ptr_nonnull(precisions);
  ck_assert_double_eq_tol(seconds[PROF_BF16], 4 * 140e-6, 1e-12);
  ck_assert_msg(plan_catalogue_read(NULL, &catalogue, &error) == DP_OK, "%s", error.text);
  for (int c = 0; c < 3; c++) {
    build(texts[c], &catalogue, &documents[c], &clusters[c]);
    ck_assert_msg(prof_side_of(&catalogue, &clusters[c], 2, &sides[c], &error) == DP_OK, "%s", error.text);
  }
  static prof_scale scale;
  static const char *const names[] = {"nvjet_sm90_tst_1", "layer_norm", "ncclDevKernel_AllReduce"};
  static const double expected[3][3] = {{1, 1, 1}, {0.5, 1, 1}, {1, 0.5, 1.5}};
  for (int c = 0; c < 3; c++)
    for (int edge = -1; edge <= 1; edge++) {
      scale = (prof_scale){.session = &session,
                           .classes = classes,
                           .precisions = precisions,
                           .was = sides[0],
                           .is = sides[c],
                           .assumed = PROF_BF16,
                           .band = 0.25,
                           .edge = edge};
      ck_assert_msg(prof_scale_make(catalogue.nccl, seconds, &scale, &error) == DP_OK, "%s", error.text);
      for (int k = 0; k < 3; k++) {
        prof_record r = {.kind = PROF_KERNEL};
        while (strcmp(session.names.items[r.name], names[k]) != 0) r.name++;
        const double band = c == 0 || (c == 1 && k == 2) ? 1 : edge < 0 ? 0.8 : edge > 0 ? 1.25 : 1;
        const double ratio = prof_scale_work_s(&scale, &r, 0.01) / 0.01;
        if (c == 2 && k == 2) /* long enough to be bandwidth's: half of it is left of PCIe */
          ck_assert_double_gt(ratio, expected[c][k] * band);
        else
          ck_assert_double_eq_tol(ratio, expected[c][k] * band, 1e-9);
      }
      const prof_record copy = {.kind = PROF_COPY, .detail = PROF_COPY_TO_DEVICE, .value = 100000000};
      const double direct_s = 100e6 / sides[0].host->bandwidth_bytes_per_s;
      if (edge == 0 && c == 2) ck_assert_double_gt(prof_scale_work_s(&scale, &copy, direct_s) / direct_s, 1.5);
      if (edge == 0) ck_assert_double_eq(prof_scale_work_s(&scale, &copy, 5 * direct_s), 5 * direct_s); /* pageable */
    }
  scale.is.model = &catalogue.devices.items[0]; /* V100: no bf16 */
  ck_assert_int_eq(prof_scale_make(catalogue.nccl, seconds, &scale, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(error.text, "has no bf16"));
  ck_assert_int_eq(prof_side_of(&catalogue, &clusters[0], 3, &sides[0], &(dp_error)DP_ERROR_INIT), DP_BAD_INPUT);
  for (int c = 0; c < 3; c++) {
    plan_cluster_free(&clusters[c]);
    dp_document_free(&documents[c]);
  }
  plan_catalogue_free(&catalogue);
  free(precisions);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("profiler_retime");
  TCase *tcase = suite_case(suite, "retime", NULL, leave, 0);
  tcase_add_loop_test(tcase, the_same_is_the_same, 0, 6);
  tcase_add_test(tcase, a_faster_matrix_rate_helps_products_alone);
  tcase_add_test(tcase, communication_is_hidden_until_it_is_longest);
  tcase_add_test(tcase, the_host_takes_its_time);
  tcase_add_loop_test(tcase, the_host_waits_where_it_did, 0, 4);
  tcase_add_test(tcase, a_full_queue_holds_the_host);
  tcase_add_test(tcase, a_thread_goes_on_after_another);
  tcase_add_test(tcase, waiting_for_other_ranks_is_found_anew);
  tcase_add_test(tcase, names_tell_precisions);
  tcase_add_test(tcase, classes_have_their_ratios);
  return suite_finish(suite);
}
