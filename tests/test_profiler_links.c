/* What records tell of links: latency, bandwidth, slowdown and the host's pace are put into made-up records, with noise
 * and outliers, and must be found again.
 */
#include <math.h>

#include "base/line.h"
#include "profiler/links.h"
#include "profiler/load.h"
#include "tests/profiler_world.h"

static dp_error error;
static world made;
static prof_session session;
static prof_links links;

static void begin(void) {
  const prof_header header = world_header(1, 0, 1700000000000000000, 0);
  error = (dp_error)DP_ERROR_INIT;
  world_begin(&made, &header);
}

static void find(void) {
  world_read(&made, &session);
  ck_assert_int_eq(prof_session_finish(&session, &error), DP_OK);
  unsigned char *classes = world_classes(&session);
  ck_assert_msg(prof_links_of(&session, classes, &links, &error) == DP_OK, "%s", error.text);
  free(classes);
}

static void end(void) {
  prof_links_free(&links);
  prof_session_free(&session);
}

/* By up to 2 %, and one in ten by three times. */
static double noisy(double seconds) {
  const double jitter = 0.98 + 0.04 * dp_random_uniform(&made.random);
  return seconds * jitter * (dp_random_below(&made.random, 10) == 0 ? 3 : 1);
}

static void add(prof_kind kind, int detail, const char *name, uint32_t stream, double start_s, double seconds,
                uint64_t value) {
  world_add(&made, &(prof_record){.kind = (uint8_t)kind,
                                  .detail = (uint8_t)detail,
                                  .name = name ? world_name(&made, name) : 0,
                                  .start_ns = made.now_ns + llround(1e9 * start_s),
                                  .end_ns = made.now_ns + llround(1e9 * (start_s + seconds)),
                                  .stream = stream,
                                  .value = value,
                                  .grid = {8, 1, 1}});
}

static void wait_s(double seconds) { made.now_ns += llround(1e9 * seconds); }

/* A message by itself, and one beside a kernel that is there before and after. */
static void add_messages(prof_copy way, double latency_s, double rate, double busy_latency_s, double busy_rate) {
  for (double bytes = 4096; bytes <= 1 << 27; bytes *= 2)
    for (int i = 0; i < 20; i++) {
      add(PROF_COPY, way, NULL, 9, 0, noisy(latency_s + bytes / rate), (uint64_t)bytes);
      wait_s(0.1);
      const double seconds = noisy(busy_latency_s + bytes / busy_rate);
      add(PROF_KERNEL, 0, "long_kernel", 7, 0, 2 * seconds, 0);
      add(PROF_COPY, way, NULL, 9, seconds / 2, seconds, (uint64_t)bytes);
      wait_s(0.1);
    }
}

#define IS_NEAR(found, wanted, tolerance) \
  ck_assert_msg(fabs((found) / (wanted)-1) < (tolerance), "%g, wanted %g", (double)(found), (double)(wanted))

static void check_way(const prof_link *link, double latency_s, double rate, double busy_latency_s, double busy_rate) {
  IS_NEAR(link->line.latency_s, latency_s, 0.03);
  IS_NEAR(link->line.bytes_per_s, rate, 0.03);
  IS_NEAR(link->beside_line.latency_s, busy_latency_s, 0.03);
  IS_NEAR(link->beside_line.bytes_per_s, busy_rate, 0.03);
  ck_assert_uint_eq(link->points.count, 16);
  for (size_t i = 0; i < link->points.count; i++) {
    const plan_profile_point *at = &link->points.items[i];
    IS_NEAR(at->alone_s, latency_s + at->bytes / rate, 0.03);
    IS_NEAR(at->busy_s, busy_latency_s + at->bytes / busy_rate, 0.03);
  }
  ck_assert(link->beside_known && link->aside == 2 * 16 * 20 / 5);
  ck_assert(link->error > 0 && link->error < 0.02); /* outliers are fewer than half */
}

START_TEST(latency_and_bandwidth_are_found) {
  begin();
  add_messages(PROF_COPY_TO_DEVICE, 10e-6, 50e9, 12e-6, 40e9);
  add_messages(PROF_COPY_TO_HOST, 8e-6, 45e9, 9e-6, 42e9);
  add_messages(PROF_COPY_ON_DEVICE, 3e-6, 1500e9, 4e-6, 900e9);
  add_messages(PROF_COPY_PEER, 15e-6, 350e9, 16e-6, 330e9);
  find();
  check_way(&links.ways[PROF_WAY_TO_DEVICE], 10e-6, 50e9, 12e-6, 40e9);
  check_way(&links.ways[PROF_WAY_TO_HOST], 8e-6, 45e9, 9e-6, 42e9);
  check_way(&links.ways[PROF_WAY_ON_DEVICE], 3e-6, 1500e9, 4e-6, 900e9);
  check_way(&links.ways[PROF_WAY_PEER], 15e-6, 350e9, 16e-6, 330e9);
  ck_assert_uint_eq(links.ways[PROF_WAY_PEER].count, 640);
  end();
}
END_TEST

/* Two at once share the link: neither says what one takes. Nor does one half of which was beside compute. */
START_TEST(what_is_neither_alone_nor_beside_is_left_out) {
  begin();
  for (int i = 0; i < 10; i++) {
    add(PROF_COPY, PROF_COPY_PEER, NULL, 9, 0, 1e-3, 1 << 20);
    add(PROF_COPY, PROF_COPY_PEER, NULL, 10, 5e-4, 1e-3, 1 << 20);
    wait_s(0.01);
    add(PROF_COPY, PROF_COPY_PEER, NULL, 9, 0, 1e-3, 1 << 20);
    add(PROF_KERNEL, 0, "short_kernel", 7, 0, 2e-4, 0);
    wait_s(0.01);
    add(PROF_COPY, PROF_COPY_PEER, NULL, 9, 0, 1e-3, 1 << 20);
    add(PROF_KERNEL, 0, "ncclDevKernel_AllReduce", 8, 0, 1e-3, 0);
    wait_s(0.01);
  }
  for (int i = 0; i < 2; i++) { /* too few of a size */
    add(PROF_COPY, PROF_COPY_PEER, NULL, 9, 0, 2e-3, 1 << 24);
    wait_s(0.01);
  }
  find();
  const prof_link *peer = &links.ways[PROF_WAY_PEER];
  ck_assert(peer->count == 42 && peer->alone == 2 && peer->beside == 0 && peer->points.count == 0);
  ck_assert(peer->line.latency_s == 0 && peer->line.bytes_per_s == 0);
  ck_assert(links.ways[PROF_WAY_NCCL].count == 10 && links.ways[PROF_WAY_NCCL].kernels == 0);
  ck_assert(links.launch_s == 0);
  end();
}
END_TEST

/* Sizes that were seen beside compute alone have the other time by those that have both; without any both are one. */
START_TEST(a_time_that_is_missing_follows_from_the_others) {
  begin();
  for (int i = 0; i < 10; i++) {
    add(PROF_COPY, PROF_COPY_PEER, NULL, 9, 0, 1e-3, 1 << 20);
    wait_s(0.01);
    for (int k = 0; k < 2; k++) { /* by a half longer beside compute */
      add(PROF_COPY, PROF_COPY_PEER, NULL, 9, 0, k ? 6e-3 : 1.5e-3, k ? 1 << 22 : 1 << 20);
      add(PROF_KERNEL, 0, "gemm", 7, 0, 6e-3, 0);
      wait_s(0.01);
    }
    add(PROF_COPY, PROF_COPY_TO_HOST, NULL, 9, 0, 1e-3, 1 << 20);
    wait_s(0.01);
  }
  find();
  const prof_link *peer = &links.ways[PROF_WAY_PEER], *host = &links.ways[PROF_WAY_TO_HOST];
  ck_assert_uint_eq(peer->points.count, 2);
  IS_NEAR(peer->points.items[1].alone_s, 4e-3, 1e-6);
  IS_NEAR(peer->points.items[1].busy_s, 6e-3, 1e-6);
  ck_assert(!host->beside_known && host->points.items[0].busy_s == host->points.items[0].alone_s);
  ck_assert(host->line.latency_s == 0 && fabs(host->line.bytes_per_s / ((1 << 20) / 1e-3) - 1) < 1e-9);
  end();
}
END_TEST

/* As a loss that is fetched: eight bytes say nothing of what a megabyte takes, whichever is kept aside. */
START_TEST(small_messages_tell_no_rate) {
  begin();
  for (int i = 0; i < 10; i++) {
    const bool large = i % 5 == 4; /* these are kept aside */
    add(PROF_COPY, PROF_COPY_TO_HOST, NULL, 9, 0, large ? 1e-4 : 2e-6, large ? 1 << 20 : 8);
    wait_s(0.01);
  }
  find();
  const prof_link *host = &links.ways[PROF_WAY_TO_HOST];
  ck_assert(host->points.count == 1 && host->points.items[0].bytes == 8);
  IS_NEAR(host->line.latency_s, 2e-6, 0.001);
  ck_assert(host->line.bytes_per_s == 0 && host->aside == 0 && host->error == 0);
  end();
}
END_TEST

/* ---- what messages slow down ---- */

/* Beside one from its start on, for a share of its time, during which it is 1 + s times as slow. */
static void add_slowed(prof_kind kind, int way, const char *message, const char *kernel, double seconds, double share,
                       double slowdown) {
  const double all_s = noisy(seconds) / (1 - share + share / (1 + slowdown));
  add(kind, way, message, 9, 0, share * all_s, kind == PROF_COPY ? 1 << 20 : 0);
  add(PROF_KERNEL, 0, kernel, 7, 0, all_s, 0);
  wait_s(0.01);
}

START_TEST(slowdowns_are_found) {
  begin();
  for (int i = 0; i < 40; i++) {
    add(PROF_KERNEL, 0, "gemm_a", 7, 0, noisy(1e-4), 0);
    wait_s(0.01);
    add(PROF_KERNEL, 0, "gemm_b", 7, 0, noisy(3e-4), 0);
    wait_s(0.01);
    add_slowed(PROF_COPY, PROF_COPY_TO_DEVICE, NULL, "gemm_a", 1e-4, 1, 0.05);
    add_slowed(PROF_COPY, PROF_COPY_TO_DEVICE, NULL, "gemm_a", 1e-4, 0.6, 0.05);
    add_slowed(PROF_COPY, PROF_COPY_PEER, NULL, "gemm_b", 3e-4, 0.8, 0.2);
    add_slowed(PROF_KERNEL, 0, "ncclDevKernel_SendRecv", "gemm_a", 1e-4, 1, 0.15);
    add_slowed(PROF_KERNEL, 0, "ncclDevKernel_SendRecv", "gemm_b", 3e-4, 0.7, 0.15);
    /* half of it: what it says is too little */
    add_slowed(PROF_COPY, PROF_COPY_TO_HOST, NULL, "gemm_a", 1e-4, 0.3, 9);
    /* beside another kernel */
    add(PROF_KERNEL, 0, "gemm_c", 8, 0, 1e-3, 0);
    add_slowed(PROF_COPY, PROF_COPY_PEER, NULL, "gemm_b", 3e-4, 1, 5);
  }
  find();
  const prof_link *of = links.ways;
  ck_assert_double_eq_tol(of[PROF_WAY_TO_DEVICE].slowdown, 0.05, 0.015);
  ck_assert_double_eq_tol(of[PROF_WAY_PEER].slowdown, 0.2, 0.015);
  ck_assert_double_eq_tol(of[PROF_WAY_NCCL].slowdown, 0.15, 0.015);
  ck_assert(of[PROF_WAY_TO_HOST].kernels == 0 && of[PROF_WAY_TO_HOST].slowdown == 0);
  ck_assert(of[PROF_WAY_NCCL].kernels == 2 && of[PROF_WAY_NCCL].runs == 64 && of[PROF_WAY_NCCL].runs_aside == 16);
  ck_assert(of[PROF_WAY_NCCL].slowdown_error > 0 && of[PROF_WAY_NCCL].slowdown_error < 0.03);
  end();
}
END_TEST

/* A name and a grid that stand for two shapes tell nothing: that they are longer beside messages may be the shape. */
START_TEST(kernels_that_are_not_steady_are_passed_over) {
  begin();
  for (int i = 0; i < 40; i++) {
    add(PROF_KERNEL, 0, "gemm", 7, 0, i % 2 ? 1e-4 : 2e-4, 0);
    wait_s(0.01);
    add_slowed(PROF_COPY, PROF_COPY_PEER, NULL, "gemm", 2e-4, 1, 0.5);
  }
  find();
  ck_assert(links.ways[PROF_WAY_PEER].kernels == 0);
  end();
}
END_TEST

/* ---- the host ---- */

/* A call, and 4 us later, or when the one before has ended, its kernel. */
static void launch(const char *name, uint32_t thread, int64_t at_ns, int64_t kernel_ns, int64_t *done_ns) {
  const int64_t start_ns = at_ns + 4000 > *done_ns + 900 ? at_ns + 4000 : *done_ns + 900;
  *done_ns = start_ns + kernel_ns;
  world_call(&made, thread, at_ns, at_ns + 3000, ++made.correlation);
  world_call(&made, thread, at_ns + 500, at_ns + 2500, made.correlation); /* the driver's within it */
  world_add(&made, &(prof_record){.kind = PROF_KERNEL,
                                  .name = world_name(&made, name),
                                  .start_ns = start_ns,
                                  .end_ns = *done_ns,
                                  .stream = 7,
                                  .correlation = made.correlation,
                                  .grid = {1, 1, 1}});
}

/* A thread that is behind, of whose launches some come after a wait, and one that is ahead, which tells nothing. */
START_TEST(the_hosts_pace_is_found) {
  begin();
  int64_t at_ns = made.now_ns, done_ns = 0;
  for (int i = 0; i < 200; i++) {
    launch("small", 3, at_ns, 2000, &done_ns);
    at_ns += 7000 + (int64_t)dp_random_below(&made.random, 200);
    if (i % 10 != 0) continue;
    world_add(
        &made,
        &(prof_record){
            .kind = PROF_SYNC, .device = PROF_NO_DEVICE, .start_ns = at_ns, .end_ns = at_ns + 90000, .thread = 3});
    at_ns += 100000;
  }
  for (int i = 0; i < 200; i++, at_ns += 3500) launch("large", 4, at_ns, 50000, &done_ns);
  find();
  IS_NEAR(links.launch_s, 7.1e-6, 0.01);
  ck_assert(links.launches + links.launches_aside == 180 - 1 && links.launches_aside == 35);
  ck_assert(links.launch_error > 0 && links.launch_error < 0.02);
  end();
}
END_TEST

/* ---- what it is made of ---- */

START_TEST(lines_are_not_turned_by_what_is_far_off) {
  double x[20], y[20], constant, slope;
  for (int i = 0; i < 20; i++) {
    x[i] = pow(2, i);
    y[i] = (5 + 0.25 * x[i]) * (i % 7 == 3 ? 4 : 1);
  }
  dp_fit_line_robust(x, y, 20, &constant, &slope);
  ck_assert_double_eq_tol(constant, 5, 0.15);
  ck_assert_double_eq_tol(slope, 0.25, 0.01);
  dp_fit_line_robust(x, y, 1, &constant, &slope);
  ck_assert(constant == 0 && fabs(slope - y[0] / x[0]) < 1e-12);
  dp_fit_line_robust(x, y, 0, &constant, &slope);
  ck_assert(constant == 0 && slope == 0);
  const double falling[] = {8, 4, 2}, steep[] = {1, 3, 7}; /* -1 + 2 x */
  dp_fit_line_robust(x, falling, 3, &constant, &slope);
  ck_assert(constant > 2 && constant < 8 && slope == 0);
  dp_fit_line_robust(x, steep, 3, &constant, &slope);
  ck_assert(constant == 0 && slope > 1 && slope < 2);
}
END_TEST

START_TEST(loads_are_sums_of_overlaps) {
  prof_load load = {.moments = {.items = NULL}};
  dp_random random;
  int64_t spans[200][2];
  dp_random_init(&random, 5, 0);
  ck_assert_int_eq(prof_load_between(&load, 0, 10), 0);
  for (int i = 0; i < 200; i++) {
    spans[i][0] = (int64_t)dp_random_below(&random, 1000);
    spans[i][1] = spans[i][0] + (int64_t)dp_random_below(&random, 50);
    ck_assert(prof_load_add(&load, spans[i][0], spans[i][1]));
  }
  prof_load_finish(&load);
  for (int64_t from = -10; from < 1100; from += 7) {
    const int64_t to = from + 31;
    int64_t sum = 0;
    for (int i = 0; i < 200; i++) {
      const int64_t start = spans[i][0] > from ? spans[i][0] : from, stop = spans[i][1] < to ? spans[i][1] : to;
      if (stop > start) sum += stop - start;
    }
    ck_assert_int_eq(prof_load_between(&load, from, to), sum);
  }
  prof_load_free(&load);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("profiler_links");
  TCase *tcase = suite_case(suite, "all", NULL, NULL, 60);
  tcase_add_test(tcase, latency_and_bandwidth_are_found);
  tcase_add_test(tcase, what_is_neither_alone_nor_beside_is_left_out);
  tcase_add_test(tcase, small_messages_tell_no_rate);
  tcase_add_test(tcase, a_time_that_is_missing_follows_from_the_others);
  tcase_add_test(tcase, slowdowns_are_found);
  tcase_add_test(tcase, kernels_that_are_not_steady_are_passed_over);
  tcase_add_test(tcase, the_hosts_pace_is_found);
  tcase_add_test(tcase, lines_are_not_turned_by_what_is_far_off);
  tcase_add_test(tcase, loads_are_sums_of_overlaps);
  return suite_finish(suite);
}
