/* Between attention.c, attention_plan.c and attention_graph.c: what is said to cuDNN, and the descriptors that it is
 * said with. */
#ifndef DP_KERNELS_CUDA_ATTENTION_GRAPH_H
#define DP_KERNELS_CUDA_ATTENTION_GRAPH_H

#include "kernels/cuda/cache.h"

enum { MAX_DESCRIPTORS = 192, MAX_OPERATIONS = 24, MAX_PLANS = 8 };

/* Of tensors that are not virtual. scale and one are single values in host memory. */
enum { NO_UID, Q, K, V, Y, LSE, SCALE, DY, DQ, DK, DV, DELTA, ONE, DQ_SUM, FIRST_VIRTUAL = 100 };

typedef cudnnBackendDescriptor_t descriptor;

/* Everything that was made for one plan. After the first failure nothing more is done. */
typedef struct builder {
  descriptor made[MAX_DESCRIPTORS], operations[MAX_OPERATIONS];
  int made_count, operation_count;
  int64_t next_virtual;
  bool ok;
} builder;

typedef struct attention_key {
  int64_t batch, heads, dim, q_tokens, k_tokens;
  int64_t q_stride, k_stride, v_stride, y_stride, dq_stride, dk_stride, dv_stride;
  int64_t backward, stats, any_order;
} attention_key;

typedef enum form { GRAPH, GRAPH_SUM, ONE_OPERATION } form;

/* How a size is run: `plan` NULL: on our own kernels. */
typedef struct entry {
  attention_key key;
  int64_t batch, heads; /* of one go */
  form form;
  builder built;
  descriptor graph, config, plan;
  float ms; /* how long it takes, where it was timed */
  bool any_order;
} entry;

typedef struct attention_call {
  kern_cuda *context;
  const kern_attention *size;
  const void *q, *k, *v, *y, *dy;
  const float *lse;
  void *dq, *dk, *dv;
  size_t rest; /* where the plan's part of the workspace begins */
  bool few;    /* our kernel of few keys takes it */
  const entry *entry;
  cudnnStatus_t status;
} attention_call;

/* ---- attention.c ---- */

/* All goes, into c->status. */
void kern_attention_run(void *call);
/* Our kernel of few keys, to where cuDNN's plan would write. */
void kern_attention_run_few(void *call);
/* The largest go whose gradients of scores are not too many; and the next smaller one: fewer samples, then fewer heads
 * of one. All goes are of one size and their log-sum-exps begin on boundaries of 16 bytes. False: there is none
 * smaller. */
void kern_attention_first_go(const kern_attention *size, int64_t *batch, int64_t *heads);
bool kern_attention_go_smaller(const kern_attention *size, int64_t *batch, int64_t *heads);
size_t kern_attention_dq_sum_bytes(const kern_attention *size);

/* ---- attention_plan.c ---- */

/* Leaves e->plan NULL where cuDNN has no way, or our kernel of few keys is faster. `words` is the entry's key. */
void kern_attention_choose(attention_call *c, entry *e, kern_cuda_key words);

/* ---- attention_graph.c ---- */

void kern_attention_destroy_from(builder *b, int first);
descriptor kern_attention_make(builder *b, cudnnBackendDescriptorType_t type);
void kern_attention_set(builder *b, descriptor of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        int64_t count, const void *values);
void kern_attention_set_descriptor(builder *b, descriptor of, cudnnBackendAttributeName_t name, descriptor value);
void kern_attention_finish(builder *b, descriptor of);

/* The operations of the entry's form and direction, one go of it; they are left in b->operations. */
void kern_attention_say(builder *b, const entry *e);

#endif
