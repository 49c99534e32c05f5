/* Linear layers and their adapters. */
#include "kernels/cpu/context.h"

size_t kern_linear_workspace(const kern_linear *s, int threads) {
  (void)threads;
  return kern_sum_rows_workspace(s->rows, s->out);
}

void kern_linear_forward(kern_context *context, const kern_linear *s, const float *x, const float *w, const float *bias,
                         float *y) {
  const kern_gemm product = {.m = s->rows,
                             .n = s->out,
                             .k = s->in,
                             .b_transposed = true,
                             .a_stride = kern_stride(s->x_stride, s->in),
                             .b_stride = s->in,
                             .c_stride = kern_stride(s->y_stride, s->out),
                             .alpha = 1};
  kern_gemm_bias(context, &product, x, w, bias, y);
}

void kern_linear_input_gradient(kern_context *context, const kern_linear *s, const float *w, const float *dy, float *dx,
                                bool accumulate) {
  const kern_gemm product = {.m = s->rows,
                             .n = s->in,
                             .k = s->out,
                             .a_stride = kern_stride(s->y_stride, s->out),
                             .b_stride = s->in,
                             .c_stride = kern_stride(s->x_stride, s->in),
                             .alpha = 1,
                             .beta = accumulate ? 1 : 0};
  kern_gemm_run(context, &product, dy, w, dx);
}

void kern_linear_weight_gradient(kern_context *context, const kern_linear *s, const float *x, const float *dy,
                                 float *dw, float *dbias) {
  const kern_gemm product = {.m = s->out,
                             .n = s->in,
                             .k = s->rows,
                             .a_transposed = true,
                             .a_stride = kern_stride(s->y_stride, s->out),
                             .b_stride = kern_stride(s->x_stride, s->in),
                             .c_stride = s->in,
                             .alpha = 1,
                             .beta = 1};
  if (dw != NULL) kern_gemm_run(context, &product, dy, x, dw);
  if (dbias != NULL) kern_sum_rows(context, s->rows, s->out, kern_stride(s->y_stride, s->out), dy, false, dbias);
}

void kern_lora_forward(kern_context *context, const kern_lora *s, const float *x, const float *a, const float *b,
                       float *hidden, float *y) {
  const kern_gemm down = {.m = s->rows,
                          .n = s->rank,
                          .k = s->in,
                          .b_transposed = true,
                          .a_stride = kern_stride(s->x_stride, s->in),
                          .b_stride = s->in,
                          .c_stride = s->rank,
                          .alpha = 1};
  const kern_gemm up = {.m = s->rows,
                        .n = s->out,
                        .k = s->rank,
                        .b_transposed = true,
                        .a_stride = s->rank,
                        .b_stride = s->rank,
                        .c_stride = kern_stride(s->y_stride, s->out),
                        .alpha = s->scale,
                        .beta = 1};
  kern_gemm_run(context, &down, x, a, hidden);
  kern_gemm_run(context, &up, hidden, b, y);
}

void kern_lora_input_gradient(kern_context *context, const kern_lora *s, const float *a, const float *b,
                              const float *dy, float *dhidden, float *dx) {
  const kern_gemm up = {.m = s->rows,
                        .n = s->rank,
                        .k = s->out,
                        .a_stride = kern_stride(s->y_stride, s->out),
                        .b_stride = s->rank,
                        .c_stride = s->rank,
                        .alpha = s->scale};
  const kern_gemm down = {.m = s->rows,
                          .n = s->in,
                          .k = s->rank,
                          .a_stride = s->rank,
                          .b_stride = s->in,
                          .c_stride = kern_stride(s->x_stride, s->in),
                          .alpha = 1,
                          .beta = 1};
  kern_gemm_run(context, &up, dy, b, dhidden);
  if (dx != NULL) kern_gemm_run(context, &down, dhidden, a, dx);
}

void kern_lora_weight_gradient(kern_context *context, const kern_lora *s, const float *x, const float *dy,
                               const float *hidden, const float *dhidden, float *da, float *db) {
  const kern_gemm of_a = {.m = s->rank,
                          .n = s->in,
                          .k = s->rows,
                          .a_transposed = true,
                          .a_stride = s->rank,
                          .b_stride = kern_stride(s->x_stride, s->in),
                          .c_stride = s->in,
                          .alpha = 1,
                          .beta = 1};
  const kern_gemm of_b = {.m = s->out,
                          .n = s->rank,
                          .k = s->rows,
                          .a_transposed = true,
                          .a_stride = kern_stride(s->y_stride, s->out),
                          .b_stride = s->rank,
                          .c_stride = s->rank,
                          .alpha = s->scale,
                          .beta = 1};
  kern_gemm_run(context, &of_a, dhidden, x, da);
  kern_gemm_run(context, &of_b, dy, hidden, db);
}
