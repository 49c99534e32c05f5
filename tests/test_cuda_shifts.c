/* Weights' gradients of convolutions by shifts, without a device: conv_shifts.c's own code, over a product and a copy
 * in plain C that do what their headers say, against the sums themselves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/conv.h"
#include "tests/kernels_sizes.h"
#include "tests/suite.h"

static int products;

void kern_conv_spread(kern_cuda *c, const kern_conv_grid *g, int64_t channels, int64_t taps, int64_t before,
                      int64_t rows, const void *image, void *spread) {
  const float *from = image;
  float *to = spread;
  (void)c;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t t = 0; t < taps; t++)
      for (int64_t k = 0; k < channels; k++, to++) {
        const int64_t at = i - before + t, x = at % g->grid_width, y = at / g->grid_width % g->grid_height;
        const int64_t b = at / g->grid_width / g->grid_height;
        *to = at < 0 || b >= g->batch || y >= g->height || x >= g->width
                  ? 0
                  : from[((b * g->height + y) * g->width + x) * channels + k];
      }
}

void kern_cuda_product(kern_cuda *c, const kern_cuda_gemm *s, const void *a, const void *b, const void *bias,
                       const void *residual, void *result, void *workspace, size_t workspace_bytes) {
  (void)c, (void)workspace;
  ck_assert(s->a_transposed && !s->b_transposed && s->alpha == 1 && !bias && !residual);
  ck_assert(s->a_stride >= s->m && s->b_stride >= s->n && s->c_stride >= s->n); /* cuBLASLt's rule: no row overlaps */
  ck_assert(workspace_bytes == KERN_CUDA_PRODUCT_BYTES && (const char *)a >= (char *)workspace + workspace_bytes);
  products++;
  for (int64_t l = 0; l < s->batch; l++)
    for (int64_t i = 0; i < s->m; i++)
      for (int64_t j = 0; j < s->n; j++) {
        const float *x = (const float *)a + l * s->a_batch_stride + i;
        const float *y = (const float *)b + l * s->b_batch_stride + j;
        float *to = (float *)result + l * s->c_batch_stride + i * s->c_stride + j;
        double sum = s->beta != 0 ? *to : 0;
        for (int64_t k = 0; k < s->k; k++) sum += (double)x[k * s->a_stride] * y[k * s->b_stride];
        *to = (float)sum;
      }
}

static double tap(const kern_conv2d *s, const float *x, const float *dy, int64_t o, int64_t r, int64_t q, int64_t c) {
  double sum = 0;
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t i = 0; i < s->height; i++)
      for (int64_t j = 0; j < s->width; j++) {
        const int64_t h = i + r - s->padding_height, w = j + q - s->padding_width;
        if (h < 0 || w < 0 || h >= s->height || w >= s->width) continue;
        sum += (double)dy[((b * s->height + i) * s->width + j) * s->out + o] *
               x[((b * s->height + h) * s->width + w) * s->in + c];
      }
  return sum;
}

/* batch, height, width, in, out, kernel; the kernel is wider than the image, higher than it, of one row, of one column
 */
static const int64_t sizes[][7] = {{2, 5, 7, 8, 12, 3, 3}, {1, 2, 2, 4, 8, 5, 5}, {3, 1, 6, 4, 4, 3, 5},
                                   {2, 4, 3, 8, 4, 1, 3},  {2, 3, 4, 4, 4, 7, 1}, {1, 8, 8, 4, 4, 3, 3}};
enum { SIZES = sizeof sizes / sizeof *sizes };

START_TEST(gradients_are_the_sums) {
  kern_cuda context = {.options = {.dtype = KERN_FP32, .gradient = KERN_FP32}};
  const kern_conv2d s = same_conv_of(sizes[_i / 4]);
  const bool spread = _i & 1, accumulate = _i & 2;
  const int64_t positions = s.batch * s.height * s.width, weights = s.out * s.kernel_height * s.kernel_width * s.in;
  const size_t bytes = kern_conv_shifts_bytes(&s, KERN_FP32, spread);
  float *x = malloc((size_t)(positions * s.in) * sizeof *x), *dy = malloc((size_t)(positions * s.out) * sizeof *dy);
  float *dw = malloc((size_t)weights * sizeof *dw);
  char *workspace = malloc(bytes);
  ck_assert(bytes > KERN_CUDA_PRODUCT_BYTES && x && dy && dw && workspace);
  memset(workspace + KERN_CUDA_PRODUCT_BYTES, 0xff, bytes - KERN_CUDA_PRODUCT_BYTES); /* NaN */
  for (int64_t i = 0; i < positions * s.in; i++) x[i] = (float)(i * 37 % 101 - 50);
  for (int64_t i = 0; i < positions * s.out; i++) dy[i] = (float)(i * 53 % 89 - 44);
  for (int64_t i = 0; i < weights; i++) dw[i] = accumulate ? (float)(i % 13) : NAN;
  void *const arrays[KERN_CONV_ARRAYS] = {[KERN_CONV_X] = x, [KERN_CONV_W] = dw, [KERN_CONV_Y] = dy};
  products = 0;
  kern_conv_shifts_run(&context, &s, spread, accumulate, arrays, workspace);
  ck_assert_int_eq(products, spread ? 1 : s.kernel_width);
  for (int64_t i = 0; i < weights; i++) {
    const int64_t c = i % s.in, q = i / s.in % s.kernel_width, r = i / s.in / s.kernel_width % s.kernel_height;
    const int64_t o = i / s.in / s.kernel_width / s.kernel_height;
    const double want = tap(&s, x, dy, o, r, q, c) + (accumulate ? (double)(i % 13) : 0); /* whole numbers: exact */
    ck_assert_msg((double)dw[i] == want, "%lld: %g, not %g", (long long)i, (double)dw[i], want);
  }
  free(x), free(dy), free(dw), free(workspace);
}
END_TEST

START_TEST(other_convolutions_are_not_for_it) {
  const kern_conv2d good = same_conv_of(sizes[0]);
  ck_assert_uint_gt(kern_conv_shifts_bytes(&good, KERN_FP32, true), KERN_CUDA_PRODUCT_BYTES);
  kern_conv2d wrong[6] = {good, good, good, good, good, good};
  wrong[0].stride_height = 2, wrong[1].stride_width = 2, wrong[2].padding_height = 0, wrong[3].kernel_width = 2;
  wrong[4].in = 6, wrong[5].out = 7;
  for (int i = 0; i < 6; i++) ck_assert_uint_eq(kern_conv_shifts_bytes(&wrong[i], KERN_FP32, i & 1), 0);
  ck_assert_uint_eq(kern_conv_shifts_bytes(&good, KERN_BF16, true), 0); /* 12 channels of 2 bytes */
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_shifts");
  TCase *tcase = suite_case(suite, "cuda_shifts", NULL, NULL, 0);
  tcase_add_loop_test(tcase, gradients_are_the_sums, 0, 4 * SIZES);
  tcase_add_test(tcase, other_convolutions_are_not_for_it);
  return suite_finish(suite);
}
