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
