#include "base/line.h"

void dp_fit_line(const double *x, const double *y, size_t count, double *constant, double *slope) {
  double sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  const double n = (double)count;
  for (size_t i = 0; i < count; i++) {
    sum_x += x[i];
    sum_y += y[i];
    sum_xx += x[i] * x[i];
    sum_xy += x[i] * y[i];
  }
  const double spread = n * sum_xx - sum_x * sum_x;
  *constant = *slope = 0;
  if (count == 0) return;
  *slope = spread > 1e-9 * n * sum_xx ? (n * sum_xy - sum_x * sum_y) / spread : -1;
  *constant = (sum_y - *slope * sum_x) / n;
  if (*slope >= 0 && *constant >= 0) return;
  *constant = 0;
  *slope = sum_xx > 0 ? sum_xy / sum_xx : 0;
}

enum { ROUNDS = 30 };
/* Relative errors beyond this count in proportion, not squared. */
static const double HUBER = 0.05;

/* Of the weighted squares: a u + b v against 1, with u = 1 / y and v = x / y. */
typedef struct sums {
  double u, v, uu, uv, vv;
} sums;

static void solve(const sums *s, double *constant, double *slope) {
  const double spread = s->uu * s->vv - s->uv * s->uv;
  *constant = *slope = 0;
  if (s->vv <= 0) return;
  if (spread > 1e-9 * s->uu * s->vv) {
    *constant = (s->u * s->vv - s->v * s->uv) / spread;
    *slope = (s->v * s->uu - s->u * s->uv) / spread;
    if (*constant >= 0 && *slope >= 0) return;
    if (*slope < 0) { /* they do not go by x */
      *constant = s->u / s->uu;
      *slope = 0;
      return;
    }
  }
  *constant = 0;
  *slope = s->v / s->vv;
}

void dp_fit_line_robust(const double *x, const double *y, size_t count, double *constant, double *slope) {
  *constant = *slope = 0;
  for (int round = 0; round < ROUNDS; round++) {
    sums s = {0, 0, 0, 0, 0};
    for (size_t i = 0; i < count; i++) {
      const double off = (*constant + *slope * x[i]) / y[i] - 1, wrong = off < 0 ? -off : off;
      const double weight = round > 0 && wrong > HUBER ? HUBER / wrong : 1, u = 1 / y[i], v = x[i] / y[i];
      s.u += weight * u;
      s.v += weight * v;
      s.uu += weight * u * u;
      s.uv += weight * u * v;
      s.vv += weight * v * v;
    }
    solve(&s, constant, slope);
  }
}
