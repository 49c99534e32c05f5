/* Numbers in order, and the middle of some. */
#ifndef DP_BASE_MEDIAN_H
#define DP_BASE_MEDIAN_H

#include <stddef.h>

/* Ascending. */
void dp_sort(double *values, size_t count);
/* Sorts the values; of an even number the mean of the two in the middle; 0 of none. */
double dp_median(double *values, size_t count);
/* Sorts the values; the one that `share` of them, 0 to 1, are below: of 0.25 the lower quartile; 0 of none. */
double dp_quantile(double *values, size_t count, double share);

#endif
