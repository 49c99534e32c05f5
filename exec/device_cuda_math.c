/* What chunks and compressed skips need of a CUDA device beside ops. */
#include <math.h>

#include "exec/device_cuda.h"

static void move_values(void *context, int64_t n, const void *from, void *to, bool add) {
  if (add)
    kern_cuda_axpy(context, exec_cuda_dtype(context), n, 1, from, to);
  else
    kern_cuda_copy(context, n, from, to);
}

static void clear(void *context, int64_t n, void *at) {
  kern_cuda_fill(context, ((const kern_cuda *)context)->options.gradient, n, 0, at);
}

static void overwrite(void *context, bool on) { kern_cuda_overwrite(context, on); }

static void spoil(void *context, int64_t bytes, void *at) {
  kern_cuda_fill(context, KERN_FP32, bytes / (int64_t)sizeof(float), NAN, at); /* NaN in either dtype */
}

/* The kernels' workspace is nobody's between two calls. */
static bool is_finite(void *context, graph_dtype dtype, int64_t n, const void *x) {
  kern_cuda view = *(const kern_cuda *)context;
  uint32_t *const flag = view.options.workspace, found = 0;
  view.options.dtype = dtype == GRAPH_BF16 ? KERN_BF16 : KERN_FP32;
  if (KERN_CUDA_TRY(context, cudaMemsetAsync(flag, 0, sizeof *flag, view.stream)))
    kern_cuda_find_not_finite(&view, n, x, flag);
  if (kern_cuda_failed(&view)) kern_cuda_fail(context, view.trouble.status, "%s", view.trouble.text);
  if (KERN_CUDA_TRY(context, cudaMemcpyAsync(&found, flag, sizeof found, cudaMemcpyDeviceToHost, view.stream)))
    (void)KERN_CUDA_TRY(context, cudaStreamSynchronize(view.stream));
  return found == 0;
}

static size_t project_workspace(const kern_separable *size, graph_dtype dtype, int threads) {
  (void)threads;
  return kern_cuda_separable_workspace(size, dtype == GRAPH_BF16 ? KERN_BF16 : KERN_FP32);
}

static void project(void *context, const kern_separable *size, void *const m[3], const void *x, void *y) {
  kern_cuda_separable_forward(context, size, x, m[0], m[1], m[2], y);
}

static void project_input_gradient(void *context, const kern_separable *size, void *const m[3], const void *dy,
                                   void *dx, bool add) {
  kern_cuda_separable_input_gradient(context, size, m[0], m[1], m[2], dy, dx, add);
}

static void project_weight_gradient(void *context, const kern_separable *size, void *const m[3], const void *x,
                                    const void *dy, void *const dm[3]) {
  kern_cuda_separable_weight_gradient(context, size, x, m[0], m[1], m[2], dy, dm[0], dm[1], dm[2]);
}

const exec_math exec_math_cuda = {.name = "CUDA",
                                  .rows = exec_cuda_rows,
                                  .move = move_values,
                                  .spoil = spoil,
                                  .is_finite = is_finite,
                                  .fused = exec_cuda_fused,
                                  .overwrite = overwrite,
                                  .clear = clear,
                                  .project_workspace = project_workspace,
                                  .project = project,
                                  .project_input_gradient = project_input_gradient,
                                  .project_weight_gradient = project_weight_gradient};
