/* exec/order: the laws of buckets and of the order of samples. */
#include "exec/order.h"

#include <stdlib.h>

#include "base/random.h"
#include "tests/suite.h"

static dp_error error;

static void must(dp_status status) { ck_assert_msg(status == DP_OK, "%s", error.text); }

START_TEST(the_nearest_ratio_decides_then_the_nearest_area) {
  static const int64_t some[][2] = {{512, 512}, {384, 640}, {640, 384}, {256, 256}};
  ck_assert_int_eq(exec_bucket_of(some, 4, 500, 500), 0);
  ck_assert_int_eq(exec_bucket_of(some, 4, 100, 100), 3);
  ck_assert_int_eq(exec_bucket_of(some, 4, 100, 160), 1);
  ck_assert_int_eq(exec_bucket_of(some, 4, 2000, 1000), 2);
  ck_assert_int_eq(exec_bucket_of(some, 4, 1, 32768), 1);
  /* between square and 5 : 3 the border is the square root of the ratio, in both directions */
  ck_assert_int_eq(exec_bucket_of(some, 3, 1000, 1290), 0);
  ck_assert_int_eq(exec_bucket_of(some, 3, 1000, 1292), 1);
  ck_assert_int_eq(exec_bucket_of(some, 3, 1290, 1000), 0);
  ck_assert_int_eq(exec_bucket_of(some, 3, 1292, 1000), 2);
}
END_TEST

/* How often each sample comes in the batches [begin, begin + batches) of an order, and that each is of one bucket. */
static void count_samples(exec_order *order, const int *bucket_of, int64_t begin, int64_t epoch, int64_t *times) {
  int64_t batch[64];
  for (int64_t s = begin; s < begin + order->batches; s++) {
    int64_t found = -1;
    int bucket = -1;
    exec_order_batch(order, s, &found, &bucket, batch);
    ck_assert_int_eq(found, epoch);
    for (int64_t i = 0; i < order->global_batch; i++) {
      ck_assert_int_eq(bucket_of[batch[i]], bucket);
      times[batch[i]]++;
    }
  }
}

/* Random buckets and batches: in every epoch each sample comes k or k + 1 times, k = room of the bucket's batches over
 * its samples; and the order is what a fresh one gives, whatever was asked before. */
START_TEST(every_sample_comes_as_often_as_is_promised) {
  enum { MOST = 60, BUCKETS = 5, EPOCHS = 4 };
  dp_random random;
  dp_random_init(&random, 3, 0);
  for (int round = 0; round < 200; round++) {
    const size_t count = 1 + dp_random_below(&random, MOST), buckets = 1 + dp_random_below(&random, BUCKETS);
    const int64_t batch = 1 + (int64_t)dp_random_below(&random, 12);
    int bucket_of[MOST];
    int64_t members[BUCKETS] = {0};
    for (size_t i = 0; i < count; i++) members[bucket_of[i] = (int)dp_random_below(&random, buckets)]++;
    exec_order order = {0};
    must(exec_order_make(bucket_of, count, buckets, batch, dp_random_u64(&random), round % 4 != 0, &order, &error));
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
      int64_t times[MOST] = {0};
      count_samples(&order, bucket_of, epoch * order.batches, epoch, times);
      for (size_t i = 0; i < count; i++) {
        const int64_t room = (members[bucket_of[i]] + batch - 1) / batch * batch, k = room / members[bucket_of[i]];
        ck_assert(k >= 1 && (times[i] == k || times[i] == k + 1));
        if (room % members[bucket_of[i]] == 0) ck_assert_int_eq(times[i], k);
      }
    }
    exec_order_free(&order);
  }
}
END_TEST

START_TEST(orders_differ_by_seed_and_epoch_and_not_by_what_was_asked) {
  enum { COUNT = 40, STEPS = 30, BATCH = 4 };
  int bucket_of[COUNT] = {0};
  int64_t straight[STEPS][BATCH], batch[BATCH], epoch;
  int bucket;
  exec_order a = {0}, b = {0}, plain = {0};
  must(exec_order_make(bucket_of, COUNT, 1, BATCH, 9, true, &a, &error));
  must(exec_order_make(bucket_of, COUNT, 1, BATCH, 10, true, &b, &error));
  must(exec_order_make(bucket_of, COUNT, 1, BATCH, 9, false, &plain, &error));
  for (int s = 0; s < STEPS; s++) exec_order_batch(&a, s, &epoch, &bucket, straight[s]);
  for (int s = STEPS - 1; s >= 0; s -= 7) { /* back and forth over epochs of 10 */
    exec_order_batch(&a, s, &epoch, &bucket, batch);
    ck_assert_int_eq(epoch, s / 10);
    ck_assert_mem_eq(batch, straight[s], sizeof batch);
  }
  ck_assert_mem_ne(straight[0], straight[10], 10 * sizeof straight[0]);
  ck_assert_mem_ne(straight[10], straight[20], 10 * sizeof straight[0]);
  exec_order_batch(&b, 0, &epoch, &bucket, batch);
  ck_assert_mem_ne(batch, straight[0], sizeof batch);
  for (int s = 0; s < STEPS; s++) {
    exec_order_batch(&plain, s, &epoch, &bucket, batch);
    for (int i = 0; i < BATCH; i++) ck_assert_int_eq(batch[i], (s * BATCH + i) % COUNT);
  }
  exec_order_free(&a);
  exec_order_free(&b);
  exec_order_free(&plain);
}
END_TEST

/* Of 6 samples that are permuted each place has each sample in a sixth of many epochs: 6000 draws, 5 sigma. */
START_TEST(a_permutation_is_fair) {
  enum { COUNT = 6, EPOCHS = 6000 };
  int bucket_of[COUNT] = {0}, seen[COUNT][COUNT] = {{0}}, bucket;
  int64_t batch[COUNT], epoch;
  exec_order order = {0};
  must(exec_order_make(bucket_of, COUNT, 1, COUNT, 1234, true, &order, &error));
  for (int e = 0; e < EPOCHS; e++) {
    exec_order_batch(&order, e, &epoch, &bucket, batch);
    for (int i = 0; i < COUNT; i++) seen[i][batch[i]]++;
  }
  for (int i = 0; i < COUNT; i++)
    for (int s = 0; s < COUNT; s++) ck_assert_int_lt(abs(seen[i][s] - 1000), 145);
  exec_order_free(&order);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {the_nearest_ratio_decides_then_the_nearest_area,
                                every_sample_comes_as_often_as_is_promised,
                                orders_differ_by_seed_and_epoch_and_not_by_what_was_asked, a_permutation_is_fair};
  return suite_run("exec order", tests, sizeof tests / sizeof tests[0], NULL, NULL, 60);
}
