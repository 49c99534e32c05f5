#include "exec/order.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"

static double ratio(double a, double b) { return a > b ? a / b : b / a; }

int exec_bucket_of(const int64_t (*buckets)[2], size_t bucket_count, int64_t height, int64_t width) {
  int best = 0;
  double best_aspect = 0, best_area = 0;
  for (size_t b = 0; b < bucket_count; b++) {
    const double h = (double)buckets[b][0], w = (double)buckets[b][1];
    const double aspect = ratio(w * (double)height, h * (double)width),
                 area = ratio(w * h, (double)height * (double)width);
    if (b > 0 && (aspect > best_aspect || (aspect == best_aspect && area >= best_area))) continue;
    best = (int)b;
    best_aspect = aspect;
    best_area = area;
  }
  return best;
}

static void group(const int *bucket_of, exec_order *o) {
  for (size_t i = 0; i < o->sample_count; i++) o->begins[bucket_of[i] + 1]++;
  for (size_t b = 0; b < o->bucket_count; b++) {
    o->batch_begins[b + 1] = o->batch_begins[b] + (o->begins[b + 1] + o->global_batch - 1) / o->global_batch;
    o->begins[b + 1] += o->begins[b];
  }
  o->batches = o->batch_begins[o->bucket_count];
}

static void fill(const int *bucket_of, int64_t *next, exec_order *o) {
  for (size_t b = 0; b < o->bucket_count; b++) next[b] = o->begins[b];
  for (size_t i = 0; i < o->sample_count; i++) o->members[next[bucket_of[i]]++] = (int64_t)i;
}

dp_status exec_order_make(const int *bucket_of, size_t sample_count, size_t bucket_count, int64_t global_batch,
                          uint64_t seed, bool shuffle, exec_order *order, dp_error *error) {
  exec_order made = {.global_batch = global_batch,
                     .seed = seed,
                     .shuffle = shuffle,
                     .bucket_count = bucket_count,
                     .sample_count = sample_count,
                     .epoch = -1};
  int64_t *next = calloc(bucket_count + 1, sizeof *next);
  made.begins = calloc(bucket_count + 1, sizeof *made.begins);
  made.batch_begins = calloc(bucket_count + 1, sizeof *made.batch_begins);
  made.members = calloc(sample_count + 1, sizeof *made.members);
  made.permuted = calloc(sample_count + 1, sizeof *made.permuted);
  bool done = next && made.begins && made.batch_begins && made.members && made.permuted;
  if (done) {
    group(bucket_of, &made);
    fill(bucket_of, next, &made);
    made.batch_at = calloc((size_t)made.batches + 1, sizeof *made.batch_at);
    done = made.batch_at != NULL;
  }
  free(next);
  if (done)
    *order = made;
  else
    exec_order_free(&made);
  return done ? DP_OK : dp_fail_memory(error);
}

void exec_order_free(exec_order *order) {
  free(order->begins);
  free(order->members);
  free(order->batch_begins);
  free(order->permuted);
  free(order->batch_at);
  *order = (exec_order){0};
}

/* Fisher and Yates. */
static void permute(const exec_order *o, int64_t epoch, size_t purpose, int64_t *items, int64_t count) {
  dp_random random;
  dp_random_init(&random, o->seed ^ UINT64_C(0x6461746173657421), (uint64_t)epoch << 16 | purpose);
  for (int64_t i = count - 1; i > 0; i--) {
    const int64_t other = (int64_t)dp_random_below(&random, (uint64_t)i + 1), item = items[i];
    items[i] = items[other];
    items[other] = item;
  }
}

static void begin_epoch(exec_order *o, int64_t epoch) {
  memcpy(o->permuted, o->members, o->sample_count * sizeof *o->permuted);
  for (int64_t i = 0; i < o->batches; i++) o->batch_at[i] = i;
  o->epoch = epoch;
  if (!o->shuffle) return;
  for (size_t b = 0; b < o->bucket_count; b++)
    permute(o, epoch, b + 1, o->permuted + o->begins[b], o->begins[b + 1] - o->begins[b]);
  permute(o, epoch, 0, o->batch_at, o->batches);
}

void exec_order_batch(exec_order *order, int64_t step, int64_t *epoch, int *bucket, int64_t *samples) {
  *epoch = step / order->batches;
  if (*epoch != order->epoch) begin_epoch(order, *epoch);
  const int64_t batch = order->batch_at[step % order->batches];
  size_t b = 0;
  while (order->batch_begins[b + 1] <= batch) b++;
  const int64_t first = (batch - order->batch_begins[b]) * order->global_batch;
  const int64_t *members = order->permuted + order->begins[b], count = order->begins[b + 1] - order->begins[b];
  for (int64_t i = 0; i < order->global_batch; i++) samples[i] = members[(first + i) % count];
  *bucket = (int)b;
}
