/* Gradients of convolutions' weights in each way by products, whichever is the fastest: the way is what is remembered.
 */
#include "kernels/cuda/memory.h"
#include "tests/cuda_arrays.h"
#include "tests/kernels_sizes.h"

typedef struct wish {
  const char *way;
  bool refused;
} wish;

static const char *find(void *data, const char *device, const char *problem) {
  const wish *w = data;
  (void)device;
  return strncmp(problem, "conv_dw ", 8) == 0 ? w->way : NULL;
}

static void keep(void *data, const char *device, const char *problem, const char *way) {
  wish *w = data;
  (void)device, (void)way;
  if (strncmp(problem, "conv_dw ", 8) == 0) w->refused = true;
}

/* batch, height, width, in, out, kernel */
static const int64_t sizes[][7] = {{2, 5, 7, 24, 16, 3, 3},   {1, 2, 2, 32, 24, 5, 5},   {2, 4, 3, 24, 40, 1, 3},
                                   {2, 3, 4, 40, 24, 7, 1},   {2, 16, 16, 64, 32, 3, 3}, {1, 33, 20, 72, 136, 3, 3},
                                   {3, 1, 11, 128, 64, 3, 3}, {2, 48, 40, 64, 64, 3, 3}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void sum_up(const kern_conv2d *s, const float *x, const float *dy, double *dw) {
  for (int64_t i = 0; i < s->out * s->kernel_height * s->kernel_width * s->in; i++) dw[i] = 0;
  for (int64_t at = 0; at < s->batch * s->height * s->width; at++)
    for (int64_t r = 0; r < s->kernel_height; r++)
      for (int64_t q = 0; q < s->kernel_width; q++) {
        const int64_t h = at / s->width % s->height + r - s->padding_height, w = at % s->width + q - s->padding_width;
        if (h < 0 || w < 0 || h >= s->height || w >= s->width) continue;
        const float *from = x + ((at / s->width / s->height * s->height + h) * s->width + w) * s->in;
        for (int64_t o = 0; o < s->out; o++) {
          double *to = dw + ((o * s->kernel_height + r) * s->kernel_width + q) * s->in;
          const double factor = dy[at * s->out + o];
          for (int64_t c = 0; c < s->in; c++) to[c] += factor * from[c];
        }
      }
}

typedef struct trial {
  kern_conv2d size;
  const cuda_mode *mode;
  array x, dy, dw;
  double *products; /* what is expected */
  char *workspace;
  size_t workspace_bytes;
} trial;

static void hold_gradient(const trial *t, kern_cuda *c, const char *way, bool tuned, bool add) {
  char what[64];
  double *want = cuda_suite_host((size_t)t->dw.n * sizeof *want), *before = cuda_suite_host((size_t)t->dw.n * 8);
  for (int64_t i = 0; i < t->dw.n; i++) {
    want[i] = t->products[i] + (add ? t->dw.host[i] : 0);
    before[i] = fabs(t->products[i]);
  }
  array dw = t->dw;
  if (add)
    put(&dw);
  else
    clear(dw.device, 0xff, (size_t)(dw.n * kern_dtype_bytes(dw.dtype)));
  kern_cuda_overwrite(c, !add);
  kern_cuda_conv2d_weight_gradient(c, &t->size, t->x.device, t->dy.device, dw.device, NULL);
  (void)snprintf(what, sizeof what, "%s%s%s, %lldx%lld of %lld, %s", way, tuned ? ", tuned" : "", add ? ", added" : "",
                 (long long)t->size.kernel_height, (long long)t->size.kernel_width, (long long)t->size.width,
                 t->mode->name);
  if (cuda_suite_went_well(c, stream(), what))
    hold_sum(what, &dw, want, add ? before : NULL, 2 * ops_tolerance(t->size.batch * t->size.height * t->size.width));
  free(want);
  free(before);
}

static void in_way(const trial *t, const char *way, bool tuned) {
  wish w = {way, false};
  const cuda_place *at = &cuda_suite_world.places[CUDA_WHOLE];
  const kern_cuda_options options = {.dtype = t->mode->dtype,
                                     .gradient = t->mode->gradient,
                                     .stream = at->stream,
                                     .sm_count = at->sm_count,
                                     .workspace = t->workspace,
                                     .workspace_bytes = t->workspace_bytes,
                                     .memory = {find, keep, &w}};
  kern_cuda *c = NULL;
  dp_error error = DP_ERROR_INIT;
  if (kern_cuda_create(&options, &c, &error) != DP_OK) {
    cuda_suite_fail("shifts", "%s", error.text);
    return;
  }
  for (int add = 0; add < 2; add++) {
    if (tuned) {
      kern_cuda_tune(c, true);
      kern_cuda_overwrite(c, !add);
      kern_cuda_conv2d_weight_gradient(c, &t->size, t->x.device, t->dy.device, t->dw.device, NULL);
      kern_cuda_tune(c, false);
    }
    clear(t->workspace, 0xff, t->workspace_bytes);
    hold_gradient(t, c, way, tuned, add == 1);
  }
  cuda_suite_check(!w.refused, way, "cannot be had");
  unsigned char guard[CUDA_GUARD] = {0};
  (void)cudaMemcpy(guard, t->workspace + t->workspace_bytes, sizeof guard, cudaMemcpyDeviceToHost);
  bool whole = true;
  for (int i = 0; i < CUDA_GUARD; i++) whole = whole && guard[i] == 0xa5;
  cuda_suite_check(whole, way, "something behind the workspace is written");
  kern_cuda_free(c);
}

static void at_size(const int64_t z[7], const cuda_mode *mode) {
  static const char *const ways[] = {"columns", "spread", "shifted"};
  trial t = {.size = same_conv_of(z), .mode = mode};
  const kern_conv2d *s = &t.size;
  const int64_t positions = s->batch * s->height * s->width, weights = s->out * z[5] * z[6] * s->in;
  t.workspace_bytes = kern_cuda_conv2d_workspace(s, mode->dtype);
  if (cudaMalloc((void **)&t.workspace, t.workspace_bytes + CUDA_GUARD) != cudaSuccess) {
    cuda_suite_fail("shifts", "no workspace of %zu bytes", t.workspace_bytes);
    return;
  }
  clear(t.workspace + t.workspace_bytes, 0xa5, CUDA_GUARD);
  t.x = draw(mode->dtype, positions * s->in), t.dy = draw(mode->dtype, positions * s->out);
  t.dw = draw(mode->gradient, weights);
  t.products = cuda_suite_host((size_t)weights * sizeof *t.products);
  sum_up(s, t.x.host, t.dy.host, t.products);
  for (int w = 0; w < 3; w++) {
    const bool one = s->kernel_width == 1;
    if (w == 1 ? one : w == 2 && !one && mode->gradient == KERN_BF16) continue; /* there is no such way */
    for (int tuned = 0; tuned < 2; tuned++) in_way(&t, ways[w], tuned == 1);
  }
  free(t.products);
  drop(&t.x), drop(&t.dy), drop(&t.dw);
  (void)cudaFree(t.workspace);
}

void cuda_special_shifts(void) {
  static const cuda_mode modes[] = {
      {"fp32", KERN_FP32, KERN_FP32}, {"bf16", KERN_BF16, KERN_BF16}, {"bf16+fp32", KERN_BF16, KERN_FP32}};
  if (!cuda_place_enter(&cuda_suite_world.places[CUDA_WHOLE])) {
    cuda_suite_fail("shifts", "the place cannot be entered");
    return;
  }
  for (int i = 0; i < SIZES; i++)
    for (int m = 0; m < 3; m++) at_size(sizes[i], &modes[m]);
}
