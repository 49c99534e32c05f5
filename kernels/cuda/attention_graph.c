/* Attention said to cuDNN as graphs of operations: the products, the softmax and their gradients one by one (as in Dao,
 * "FlashAttention-2", 2023), for which the library has one engine. The graphs are those by which its engines know
 * attention; other orders of the same arithmetic are not taken.
 */
#include "kernels/cuda/attention_graph.h"

/* ---- descriptors ---- */

void kern_attention_destroy_from(builder *b, int first) {
  while (b->made_count > first) (void)cudnnBackendDestroyDescriptor(b->made[--b->made_count]);
}

descriptor kern_attention_make(builder *b, cudnnBackendDescriptorType_t type) {
  descriptor made = NULL;
  b->ok = b->ok && b->made_count < MAX_DESCRIPTORS && cudnnBackendCreateDescriptor(type, &made) == CUDNN_STATUS_SUCCESS;
  if (b->ok) b->made[b->made_count++] = made;
  return made;
}

void kern_attention_set(builder *b, descriptor of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        int64_t count, const void *values) {
  b->ok = b->ok && cudnnBackendSetAttribute(of, name, type, count, values) == CUDNN_STATUS_SUCCESS;
}

void kern_attention_set_descriptor(builder *b, descriptor of, cudnnBackendAttributeName_t name, descriptor value) {
  kern_attention_set(b, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void kern_attention_finish(builder *b, descriptor of) {
  b->ok = b->ok && cudnnBackendFinalize(of) == CUDNN_STATUS_SUCCESS;
}

typedef struct layout {
  int64_t dims[4], strides[4];
} layout;

static layout turned(layout l) {
  const int64_t dim = l.dims[2], stride = l.strides[2];
  l.dims[2] = l.dims[3], l.strides[2] = l.strides[3];
  l.dims[3] = dim, l.strides[3] = stride;
  return l;
}
static layout tokens_of(const entry *e, int64_t tokens, int64_t stride) {
  const int64_t dim = e->key.dim;
  return (layout){{e->batch, e->heads, tokens, dim}, {tokens * stride, dim, stride, 1}};
}
static layout dense(int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
  return (layout){{batch, heads, rows, columns}, {heads * rows * columns, rows * columns, columns, 1}};
}
static layout scores_of(const entry *e) { return dense(e->batch, e->heads, e->key.q_tokens, e->key.k_tokens); }
static layout rows_of(const entry *e) { return dense(e->batch, e->heads, e->key.q_tokens, 1); }

static descriptor tensor(builder *b, int64_t uid, cudnnDataType_t type, layout l) {
  const cudnnBackendTensorReordering_t of_sums = CUDNN_TENSOR_REORDERING_F16x16;
  const descriptor made = kern_attention_make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const bool is_virtual = uid == NO_UID, by_value = uid == SCALE || uid == ONE;
  const int64_t id = is_virtual ? FIRST_VIRTUAL + b->next_virtual++ : uid, alignment = 16;
  kern_attention_set(b, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  kern_attention_set(b, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, l.dims);
  kern_attention_set(b, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, l.strides);
  kern_attention_set(b, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  kern_attention_set(b, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  if (uid == DQ_SUM)
    kern_attention_set(b, made, CUDNN_ATTR_TENSOR_REORDERING_MODE, CUDNN_TYPE_TENSOR_REORDERING_MODE, 1, &of_sums);
  if (is_virtual) kern_attention_set(b, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  if (by_value) kern_attention_set(b, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  kern_attention_finish(b, made);
  return made;
}

static void add_operation(builder *b, descriptor operation) {
  kern_attention_finish(b, operation);
  b->ok = b->ok && b->operation_count < MAX_OPERATIONS;
  if (b->ok) b->operations[b->operation_count++] = operation;
}

static const cudnnDataType_t FP32 = CUDNN_DATA_FLOAT;

/* y = x or of x, or of x and `other` */
static void pointwise(builder *b, cudnnPointwiseMode_t mode, descriptor x, descriptor other, descriptor y) {
  const descriptor how = kern_attention_make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kern_attention_set(b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  kern_attention_set(b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &FP32);
  kern_attention_finish(b, how);
  const descriptor operation = kern_attention_make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (other) kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  add_operation(b, operation);
}

static descriptor pointwise_to(builder *b, cudnnPointwiseMode_t mode, descriptor x, descriptor other, layout l) {
  const descriptor y = tensor(b, NO_UID, FP32, l);
  pointwise(b, mode, x, other, y);
  return y;
}

static descriptor reduce(builder *b, cudnnReduceTensorOp_t mode, descriptor x, layout l) {
  const descriptor y = tensor(b, NO_UID, FP32, l), how = kern_attention_make(b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  kern_attention_set(b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &FP32);
  kern_attention_set(b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
  kern_attention_finish(b, how);
  const descriptor operation = kern_attention_make(b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  add_operation(b, operation);
  return y;
}

static void product(builder *b, descriptor x, descriptor other, descriptor y) {
  const descriptor how = kern_attention_make(b, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  kern_attention_set(b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &FP32);
  kern_attention_finish(b, how);
  const descriptor operation = kern_attention_make(b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, other);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  add_operation(b, operation);
}

static descriptor reshape(builder *b, descriptor x, layout l) {
  const descriptor y = tensor(b, NO_UID, CUDNN_DATA_BFLOAT16, l),
                   operation = kern_attention_make(b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  add_operation(b, operation);
  return y;
}

/* ---- graphs ---- */

static descriptor scalar(builder *b, int64_t uid) { return tensor(b, uid, FP32, dense(1, 1, 1, 1)); }

static void forward_graph(builder *b, const entry *e) {
  const attention_key *k = &e->key;
  const layout scores = scores_of(e), rows = rows_of(e);
  const descriptor q = tensor(b, Q, CUDNN_DATA_BFLOAT16, tokens_of(e, k->q_tokens, k->q_stride));
  const descriptor keys = tensor(b, K, CUDNN_DATA_BFLOAT16, turned(tokens_of(e, k->k_tokens, k->k_stride)));
  const descriptor v = tensor(b, V, CUDNN_DATA_BFLOAT16, tokens_of(e, k->k_tokens, k->v_stride));
  const descriptor y = tensor(b, Y, CUDNN_DATA_BFLOAT16, tokens_of(e, k->q_tokens, k->y_stride));
  descriptor s = tensor(b, NO_UID, FP32, scores);
  product(b, q, keys, s);
  s = pointwise_to(b, CUDNN_POINTWISE_MUL, s, scalar(b, SCALE), scores);
  const descriptor most = reduce(b, CUDNN_REDUCE_TENSOR_MAX, s, rows);
  s = pointwise_to(b, CUDNN_POINTWISE_SUB, s, most, scores);
  s = pointwise_to(b, CUDNN_POINTWISE_EXP, s, NULL, scores);
  const descriptor total = reduce(b, CUDNN_REDUCE_TENSOR_ADD, s, rows);
  /* Without these two the engines do not know the graph, whether or not anyone reads what they make. */
  const descriptor log_total = pointwise_to(b, CUDNN_POINTWISE_LOG, total, NULL, rows);
  pointwise(b, CUDNN_POINTWISE_ADD, most, log_total, tensor(b, k->stats ? LSE : NO_UID, FP32, rows));
  const descriptor p = tensor(b, NO_UID, CUDNN_DATA_BFLOAT16, scores);
  pointwise(b, CUDNN_POINTWISE_DIV, s, total, p);
  product(b, p, v, y);
}

/* The same as one operation, of newer versions. */
static void forward_operation(builder *b, const entry *e) {
#if CUDNN_VERSION >= 91400
  const attention_key *k = &e->key;
  const descriptor q = tensor(b, Q, CUDNN_DATA_BFLOAT16, tokens_of(e, k->q_tokens, k->q_stride));
  const descriptor keys = tensor(b, K, CUDNN_DATA_BFLOAT16, tokens_of(e, k->k_tokens, k->k_stride));
  const descriptor v = tensor(b, V, CUDNN_DATA_BFLOAT16, tokens_of(e, k->k_tokens, k->v_stride));
  const descriptor y = tensor(b, Y, CUDNN_DATA_BFLOAT16, tokens_of(e, k->q_tokens, k->y_stride));
  const descriptor scale = scalar(b, SCALE), lse = k->stats ? tensor(b, LSE, FP32, rows_of(e)) : NULL;
  const descriptor operation = kern_attention_make(b, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, q);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, keys);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, v);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, y);
  if (lse) kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, lse);
  kern_attention_set_descriptor(b, operation, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, scale);
  add_operation(b, operation);
#else
  (void)e;
  b->ok = false;
#endif
}

/* delta = rows' sums of y dy; p = exp(scale q k^T - lse); dv = p^T dy; ds = scale p (dy v^T - delta); dk = ds^T q;
 * dq = ds k. */
static void backward_graph(builder *b, const entry *e) {
  const attention_key *k = &e->key;
  const layout scores = scores_of(e), rows = rows_of(e), of_keys = tokens_of(e, k->k_tokens, k->k_stride);
  const descriptor q = tensor(b, Q, CUDNN_DATA_BFLOAT16, tokens_of(e, k->q_tokens, k->q_stride));
  const descriptor keys = tensor(b, K, CUDNN_DATA_BFLOAT16, turned(of_keys));
  const descriptor v = tensor(b, V, CUDNN_DATA_BFLOAT16, turned(tokens_of(e, k->k_tokens, k->v_stride)));
  const descriptor y = tensor(b, Y, CUDNN_DATA_BFLOAT16, tokens_of(e, k->q_tokens, k->y_stride));
  const descriptor dy = tensor(b, DY, CUDNN_DATA_BFLOAT16, tokens_of(e, k->q_tokens, k->y_stride));
  const descriptor dq = tensor(b, DQ, CUDNN_DATA_BFLOAT16, tokens_of(e, k->q_tokens, k->dq_stride));
  const descriptor dk = tensor(b, DK, CUDNN_DATA_BFLOAT16, tokens_of(e, k->k_tokens, k->dk_stride));
  const descriptor dv = tensor(b, DV, CUDNN_DATA_BFLOAT16, tokens_of(e, k->k_tokens, k->dv_stride));
  const descriptor lse = tensor(b, LSE, FP32, rows), scale = scalar(b, SCALE);

  const descriptor delta = tensor(b, DELTA, FP32, rows);
  layout of_y_dy = dense(e->batch, e->heads, k->q_tokens, k->dim);
  of_y_dy.strides[2] = e->heads * k->dim; /* as the engines' own examples have it */
  const descriptor y_dy = pointwise_to(b, CUDNN_POINTWISE_MUL, dy, y, of_y_dy);
  pointwise(b, CUDNN_POINTWISE_MUL, reduce(b, CUDNN_REDUCE_TENSOR_ADD, y_dy, rows), scalar(b, ONE), delta);

  descriptor s = tensor(b, NO_UID, FP32, scores);
  product(b, q, keys, s);
  s = pointwise_to(b, CUDNN_POINTWISE_MUL, s, scale, scores);
  s = pointwise_to(b, CUDNN_POINTWISE_SUB, s, lse, scores);
  const descriptor p = pointwise_to(b, CUDNN_POINTWISE_EXP, s, NULL, scores);
  layout scores_turned = turned(scores);
  product(b, reshape(b, p, scores_turned), dy, dv);

  descriptor ds = tensor(b, NO_UID, FP32, scores);
  product(b, dy, v, ds);
  ds = pointwise_to(b, CUDNN_POINTWISE_SUB, ds, delta, scores);
  ds = pointwise_to(b, CUDNN_POINTWISE_MUL, ds, p, scores);
  ds = pointwise_to(b, CUDNN_POINTWISE_MUL, ds, scale, scores);
  product(b, reshape(b, ds, scores_turned), q, dk);

  const descriptor keys_again = reshape(b, keys, of_keys);
  if (e->form == GRAPH) {
    product(b, ds, keys_again, dq);
    return;
  }
  const descriptor sum = tensor(b, DQ_SUM, FP32, dense(e->batch, e->heads, k->q_tokens, k->dim));
  product(b, ds, keys_again, sum);
  pointwise(b, CUDNN_POINTWISE_IDENTITY, sum, NULL, dq);
}

void kern_attention_say(builder *b, const entry *e) {
  if (e->key.backward)
    backward_graph(b, e);
  else if (e->form == ONE_OPERATION)
    forward_operation(b, e);
  else
    forward_graph(b, e);
}
