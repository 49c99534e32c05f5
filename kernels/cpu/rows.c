/* Sums over rows: parts of the rows are summed each by itself, then the parts in order. */
#include "kernels/cpu/context.h"
#include "kernels/cpu/vector.h"

typedef struct sum_job {
  int64_t rows, columns, stride, partials;
  const float *x;
  float *partial;
} sum_job;

KERN_CLONES static void add_row(int64_t n, const float *x, float *sum) {
  KERN_INDEPENDENT
  for (int64_t j = 0; j < n; j++) sum[j] += x[j];
}

static void sum_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const sum_job *j = data;
  const int64_t each = kern_ceil_div(j->rows, j->partials);
  const int64_t from = index * each, to = kern_min(j->rows, from + each);
  float *sum = j->partial + index * j->columns;
  memset(sum, 0, (size_t)j->columns * sizeof *sum);
  for (int64_t i = from; i < to; i++) add_row(j->columns, j->x + i * j->stride, sum);
}

size_t kern_sum_rows_workspace(int64_t rows, int64_t columns) {
  return kern_floats(kern_partials(rows, columns) * columns);
}

void kern_sum_rows(kern_context *context, int64_t rows, int64_t columns, int64_t stride, const float *x, bool overwrite,
                   float *result) {
  sum_job job = {.rows = rows, .columns = columns, .stride = stride, .partials = kern_partials(rows, columns), .x = x};
  job.partial = kern_workspace(context, kern_sum_rows_workspace(rows, columns));
  kern_parallel(context, job.partials, sum_part, &job);
  for (int64_t p = 1; p < job.partials; p++) add_row(columns, job.partial + p * columns, job.partial);
  if (overwrite)
    memcpy(result, job.partial, (size_t)columns * sizeof *result);
  else
    add_row(columns, job.partial, result);
}
