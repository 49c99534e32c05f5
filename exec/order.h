/* Which samples make the batch of a step: resolution buckets, and an order that counters decide (exec/dataset.h tells
 * the laws).
 *
 * Philox with the seed, and a stream for each purpose: stream (epoch << 16 | 0) permutes the batches of an epoch,
 * (epoch << 16 | bucket + 1) the samples of a bucket. The key is the seed with a constant of the data set's own mixed
 * in, so that noise drawn with the same seed has nothing to do with it.
 */
#ifndef DP_EXEC_ORDER_H
#define DP_EXEC_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { EXEC_MAX_BUCKETS = 4096 };

/* The bucket {height, width} whose aspect ratio is nearest (by the ratio of the two ratios); of several the one whose
 * area is nearest, then the first. */
int exec_bucket_of(const int64_t (*buckets)[2], size_t bucket_count, int64_t height, int64_t width);

typedef struct exec_order {
  int64_t global_batch;
  uint64_t seed;
  bool shuffle;
  size_t bucket_count, sample_count;
  int64_t *begins;       /* [bucket_count + 1]: the samples of bucket b are members[begins[b]] up to begins[b + 1] */
  int64_t *members;      /* [sample_count], ascending within a bucket */
  int64_t *batch_begins; /* [bucket_count + 1]: the same for the batches of an epoch */
  int64_t batches;       /* of an epoch */
  /* of the epoch that was asked for last; -1: none yet */
  int64_t epoch;
  int64_t *permuted; /* members, permuted within each bucket */
  int64_t *batch_at; /* [batches]: which batch comes when */
} exec_order;

/* bucket_of[sample_count]: from 0; every sample has one. */
dp_status exec_order_make(const int *bucket_of, size_t sample_count, size_t bucket_count, int64_t global_batch,
                          uint64_t seed, bool shuffle, exec_order *order, dp_error *error);
void exec_order_free(exec_order *order); /* safe on a zeroed one */

/* Samples of step's batch into samples[global_batch]; the first step of another epoch costs a permutation. Not for two
 * threads at a time. step >= 0. */
void exec_order_batch(exec_order *order, int64_t step, int64_t *epoch, int *bucket, int64_t *samples);

#endif
