#include "base/median.h"

#include <stdlib.h>

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void dp_sort(double *values, size_t count) {
  if (count) qsort(values, count, sizeof *values, compare);
}

double dp_median(double *values, size_t count) {
  if (count == 0) return 0;
  dp_sort(values, count);
  return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

double dp_quantile(double *values, size_t count, double share) {
  if (count == 0) return 0;
  dp_sort(values, count);
  const double at = share * (double)(count - 1);
  const size_t below = (size_t)at;
  if (below + 1 >= count) return values[count - 1];
  return values[below] + (at - (double)below) * (values[below + 1] - values[below]);
}
