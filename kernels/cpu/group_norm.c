/* Group norm over channels-last rows. Positions are taken in blocks; of each block and group the mean and the sum of
 * squares about it are made while the block is in the cache, then joined in order (Chan, Golub & LeVeque, "Updating
 * formulae and a pairwise algorithm for computing sample variances", 1979), so x is read from memory twice in all.
 *
 * Backward, with xh = (x - mean) rstd, per sample and channel: s1 = sum of dy, s2 = sum of dy xh over positions. Then
 * dgain = sum of s2 and doffset = sum of s1 over samples; with m1, m2 = sums over the group's channels of gain s1, gain
 * s2 divided by its size: dx = rstd (dy gain - m1 - xh m2).
 */
#include "kernels/cpu/context.h"
#include "kernels/cpu/vector.h"

/* Blocks of one sample: at most so many, so that partial sums of [channels] stay small beside the sample. */
enum { MAX_BLOCKS = 64 };

typedef struct norm_job {
  const kern_group_norm *size;
  int64_t blocks, rows; /* of a sample; rows of a block */
  const float *x, *gain, *offset, *dy, *statistics;
  float *y, *dx;
  bool accumulate;
  float *partial; /* forward: [batch][blocks][groups][2]; backward: [batch][blocks][2][channels] */
  float *factors; /* [batch][3][channels]: what the values are multiplied with and shifted by */
  float *scratch; /* [threads][2][channels] */
} norm_job;

static int64_t rows_of_block(const kern_group_norm *s) {
  return kern_max(2 * kern_part_rows(s->channels), kern_ceil_div(s->positions, MAX_BLOCKS));
}

static int64_t partial_floats(const kern_group_norm *s) {
  return s->batch * kern_ceil_div(s->positions, rows_of_block(s)) * 2 * s->channels;
}

size_t kern_group_norm_workspace(const kern_group_norm *s, int threads) {
  return kern_floats(partial_floats(s)) + kern_floats(s->batch * 3 * s->channels) +
         (size_t)threads * kern_floats(2 * s->channels);
}

static norm_job job_of(kern_context *context, const kern_group_norm *s) {
  char *workspace = kern_workspace(context, kern_group_norm_workspace(s, kern_context_threads(context)));
  norm_job j = {.size = s, .rows = rows_of_block(s), .partial = (float *)(void *)workspace};
  j.blocks = kern_ceil_div(s->positions, j.rows);
  workspace += kern_floats(partial_floats(s));
  j.factors = (float *)(void *)workspace;
  workspace += kern_floats(s->batch * 3 * s->channels);
  j.scratch = (float *)(void *)workspace;
  return j;
}

static float *scratch_of(const norm_job *j, int thread) {
  return j->scratch + (size_t)thread * (kern_floats(2 * j->size->channels) / sizeof(float));
}

KERN_CLONES static void add_rows(int64_t rows, int64_t n, const float *x, float *sum) {
  for (int64_t i = 0; i < rows; i++) {
    KERN_INDEPENDENT
    for (int64_t c = 0; c < n; c++) sum[c] += x[i * n + c];
  }
}

KERN_CLONES static void add_squares(int64_t rows, int64_t n, const float *mean, const float *x, float *sum) {
  for (int64_t i = 0; i < rows; i++) {
    KERN_INDEPENDENT
    for (int64_t c = 0; c < n; c++) sum[c] += (x[i * n + c] - mean[c]) * (x[i * n + c] - mean[c]);
  }
}

static void statistics_part(const void *data, int64_t index, int thread) {
  const norm_job *j = data;
  const kern_group_norm *s = j->size;
  const int64_t n = s->channels, each = n / s->groups;
  const int64_t sample = index / j->blocks, first = index % j->blocks * j->rows;
  const int64_t rows = kern_min(j->rows, s->positions - first);
  const float *x = j->x + (sample * s->positions + first) * n;
  float *sum = scratch_of(j, thread), *mean = sum + n, *result = j->partial + index * 2 * s->groups;
  memset(sum, 0, (size_t)n * sizeof *sum);
  add_rows(rows, n, x, sum);
  for (int64_t g = 0; g < s->groups; g++) {
    float total = 0;
    for (int64_t c = g * each; c < (g + 1) * each; c++) total += sum[c];
    result[2 * g] = total / (float)(rows * each);
    for (int64_t c = g * each; c < (g + 1) * each; c++) mean[c] = result[2 * g];
  }
  memset(sum, 0, (size_t)n * sizeof *sum);
  add_squares(rows, n, mean, x, sum);
  for (int64_t g = 0; g < s->groups; g++) {
    float total = 0;
    for (int64_t c = g * each; c < (g + 1) * each; c++) total += sum[c];
    result[2 * g + 1] = total;
  }
}

static void join_blocks(const norm_job *j, int64_t sample, int64_t group, float *statistics) {
  const kern_group_norm *s = j->size;
  const int64_t each = s->channels / s->groups;
  double count = 0, mean = 0, squares = 0;
  for (int64_t b = 0; b < j->blocks; b++) {
    const float *part = j->partial + ((sample * j->blocks + b) * s->groups + group) * 2;
    const double added = (double)(kern_min(j->rows, s->positions - b * j->rows) * each);
    const double delta = part[0] - mean;
    squares += part[1] + delta * delta * count * added / (count + added);
    mean += delta * added / (count + added);
    count += added;
  }
  statistics[0] = (float)mean;
  statistics[1] = (float)(1 / sqrt(squares / count + s->epsilon));
}

/* y = x factor + shift */
KERN_CLONES static void apply_rows(int64_t rows, int64_t n, const float *factor, const float *shift, const float *x,
                                   float *y) {
  for (int64_t i = 0; i < rows; i++) {
    KERN_INDEPENDENT
    for (int64_t c = 0; c < n; c++) y[i * n + c] = x[i * n + c] * factor[c] + shift[c];
  }
}

static void apply_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const norm_job *j = data;
  const int64_t n = j->size->channels, sample = index / j->blocks, first = index % j->blocks * j->rows;
  const int64_t at = (sample * j->size->positions + first) * n;
  const float *factors = j->factors + sample * 3 * n;
  apply_rows(kern_min(j->rows, j->size->positions - first), n, factors, factors + n, j->x + at, j->y + at);
}

static void apply(kern_context *context, const norm_job *j, const float *statistics) {
  const kern_group_norm *s = j->size;
  const int64_t n = s->channels, each = n / s->groups;
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t c = 0; c < n; c++) {
      const float *of_group = statistics + (b * s->groups + c / each) * 2;
      const float factor = of_group[1] * (j->gain != NULL ? j->gain[c] : 1);
      j->factors[b * 3 * n + c] = factor;
      j->factors[(b * 3 + 1) * n + c] = (j->offset != NULL ? j->offset[c] : 0) - of_group[0] * factor;
    }
  kern_parallel(context, s->batch * j->blocks, apply_part, j);
}

void kern_group_norm_forward(kern_context *context, const kern_group_norm *s, const float *x, const float *gain,
                             const float *offset, float *y, float *statistics) {
  norm_job j = job_of(context, s);
  j.x = x;
  j.gain = gain;
  j.offset = offset;
  j.y = y;
  kern_parallel(context, s->batch * j.blocks, statistics_part, &j);
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t g = 0; g < s->groups; g++) join_blocks(&j, b, g, statistics + (b * s->groups + g) * 2);
  apply(context, &j, statistics);
}

void kern_group_norm_again(kern_context *context, const kern_group_norm *s, const float *x, const float *gain,
                           const float *offset, const float *statistics, float *y) {
  norm_job j = job_of(context, s);
  j.x = x;
  j.gain = gain;
  j.offset = offset;
  j.y = y;
  apply(context, &j, statistics);
}

KERN_CLONES static void add_products(int64_t rows, int64_t n, const float *mean, const float *rstd, const float *x,
                                     const float *dy, float *s1, float *s2) {
  for (int64_t i = 0; i < rows; i++) {
    KERN_INDEPENDENT
    for (int64_t c = 0; c < n; c++) {
      s1[c] += dy[i * n + c];
      s2[c] += dy[i * n + c] * ((x[i * n + c] - mean[c]) * rstd[c]);
    }
  }
}

static void sums_part(const void *data, int64_t index, int thread) {
  const norm_job *j = data;
  const kern_group_norm *s = j->size;
  const int64_t n = s->channels, each = n / s->groups;
  const int64_t sample = index / j->blocks, first = index % j->blocks * j->rows;
  const int64_t at = (sample * s->positions + first) * n;
  float *mean = scratch_of(j, thread), *rstd = mean + n, *s1 = j->partial + index * 2 * n;
  for (int64_t c = 0; c < n; c++) {
    const float *of_group = j->statistics + (sample * s->groups + c / each) * 2;
    mean[c] = of_group[0];
    rstd[c] = of_group[1];
  }
  memset(s1, 0, (size_t)(2 * n) * sizeof *s1);
  add_products(kern_min(j->rows, s->positions - first), n, mean, rstd, j->x + at, j->dy + at, s1, s1 + n);
}

/* dx = dy a + x b + c */
KERN_CLONES static void backward_rows(int64_t rows, int64_t n, const float *a, const float *b, const float *constant,
                                      const float *x, const float *dy, int keep, float *dx) {
  for (int64_t i = 0; i < rows; i++) {
    if (keep) {
      KERN_INDEPENDENT
      for (int64_t c = 0; c < n; c++) dx[i * n + c] += dy[i * n + c] * a[c] + (x[i * n + c] * b[c] + constant[c]);
    } else {
      KERN_INDEPENDENT
      for (int64_t c = 0; c < n; c++) dx[i * n + c] = dy[i * n + c] * a[c] + (x[i * n + c] * b[c] + constant[c]);
    }
  }
}

static void backward_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const norm_job *j = data;
  const int64_t n = j->size->channels, sample = index / j->blocks, first = index % j->blocks * j->rows;
  const int64_t at = (sample * j->size->positions + first) * n;
  const float *factors = j->factors + sample * 3 * n;
  backward_rows(kern_min(j->rows, j->size->positions - first), n, factors, factors + n, factors + 2 * n, j->x + at,
                j->dy + at, j->accumulate, j->dx + at);
}

/* dx = rstd gain dy - rstd^2 m2 x + rstd (mean rstd m2 - m1) */
static void make_factors(const norm_job *j, int64_t sample, const float *sums) {
  const kern_group_norm *s = j->size;
  const int64_t n = s->channels, each = n / s->groups;
  const double count = (double)(s->positions * each);
  float *factors = j->factors + sample * 3 * n;
  for (int64_t g = 0; g < s->groups; g++) {
    const float *of_group = j->statistics + (sample * s->groups + g) * 2;
    const double mean = of_group[0], rstd = of_group[1];
    double m1 = 0, m2 = 0;
    for (int64_t c = g * each; c < (g + 1) * each; c++) {
      const double gain = j->gain != NULL ? j->gain[c] : 1;
      m1 += gain * sums[c];
      m2 += gain * sums[n + c];
    }
    m1 /= count;
    m2 /= count;
    for (int64_t c = g * each; c < (g + 1) * each; c++) {
      factors[c] = (float)(rstd * (j->gain != NULL ? j->gain[c] : 1));
      factors[n + c] = (float)(-rstd * rstd * m2);
      factors[2 * n + c] = (float)(rstd * (mean * rstd * m2 - m1));
    }
  }
}

void kern_group_norm_backward(kern_context *context, const kern_group_norm *s, const float *x, const float *gain,
                              const float *statistics, const float *dy, float *dx, bool accumulate, float *dgain,
                              float *doffset) {
  norm_job j = job_of(context, s);
  const int64_t n = s->channels;
  j.x = x;
  j.gain = gain;
  j.statistics = statistics;
  j.dy = dy;
  j.dx = dx;
  j.accumulate = accumulate;
  kern_parallel(context, s->batch * j.blocks, sums_part, &j);
  for (int64_t b = 0; b < s->batch; b++) {
    float *sums = j.partial + b * j.blocks * 2 * n;
    if (j.blocks > 1) add_rows(j.blocks - 1, 2 * n, sums + 2 * n, sums);
    if (dx != NULL) make_factors(&j, b, sums);
    if (doffset != NULL) add_rows(1, n, sums, doffset);
    if (dgain != NULL) add_rows(1, n, sums + n, dgain);
  }
  if (dx != NULL) kern_parallel(context, s->batch * j.blocks, backward_part, &j);
}
