/* What exec/dataset.c (opening) and exec/dataset_read.c (batches, the thread) share of an open data set. */
#ifndef DP_EXEC_DATASET_STATE_H
#define DP_EXEC_DATASET_STATE_H

#include <pthread.h>

#include "base/safetensors.h"
#include "exec/cache.h"
#include "exec/dataset.h"
#include "exec/manifest.h"
#include "exec/order.h"

/* The batch that was handed out last, the one before, and the one that the thread fills. */
enum { EXEC_DATASET_SLOTS = 3 };

typedef struct exec_dataset_slot {
  exec_batch batch; /* its samples are this slot's */
  exec_sample_view *samples;
  int64_t *ids;
  float *values; /* of the samples that are read, one behind the other: latents, what is made of them, text, pooled */
} exec_dataset_slot;

typedef struct exec_dataset_reader {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t asked, answered;
  bool is_running; /* the thread was made */
  /* under the mutex */
  bool is_asked; /* for `slot` to get the batch of `step`; from then until the answer the slot is the thread's */
  bool is_answered, leaves;
  int64_t step;
  int slot;
  dp_status status;
  dp_error error;
} exec_dataset_reader;

struct exec_dataset {
  exec_dataset_options options; /* buckets are a copy, other pointers NULL */
  exec_manifest manifest;
  exec_order order;
  int64_t (*buckets)[2];
  dp_safetensors *latent_files; /* by bucket; zero where the bucket is empty */
  dp_safetensors text_file;
  exec_fingerprint fingerprint;
  const dp_safetensor **latents, **text, **pooled; /* by sample */
  int64_t most_latents;                            /* of a sample of any bucket */
  char identity[17];
  float *planes; /* latents as the file has them; the reader's */
  exec_dataset_slot slots[EXEC_DATASET_SLOTS];
  int last; /* slot that was handed out last; -1: none */
  exec_dataset_reader reader;
};

/* Room for the batches, and the thread where it is wanted; after all else is open. */
dp_status exec_dataset_begin(exec_dataset *dataset, dp_error *error);
void exec_dataset_end(exec_dataset *dataset); /* safe when it did not begin */

#endif
