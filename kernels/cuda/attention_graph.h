/* Between attention.c and attention_graph.c: what is said to cuDNN, and the descriptors that it is said with. */
#ifndef DP_KERNELS_CUDA_ATTENTION_GRAPH_H
#define DP_KERNELS_CUDA_ATTENTION_GRAPH_H

#include "kernels/cuda/context.h"

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

void kern_attention_destroy_from(builder *b, int first);
descriptor kern_attention_make(builder *b, cudnnBackendDescriptorType_t type);
void kern_attention_set(builder *b, descriptor of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        int64_t count, const void *values);
void kern_attention_set_descriptor(builder *b, descriptor of, cudnnBackendAttributeName_t name, descriptor value);
void kern_attention_finish(builder *b, descriptor of);

/* The operations of the entry's form and direction, one go of it; they are left in b->operations. */
void kern_attention_say(builder *b, const entry *e);

#endif
