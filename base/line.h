/* A straight line through points. */
#ifndef DP_BASE_LINE_H
#define DP_BASE_LINE_H

#include <stddef.h>

/* y = constant + slope * x by least squares, where neither comes out negative; else through 0. Of equal x, too. Without
 * points both are 0. */
void dp_fit_line(const double *x, const double *y, size_t count, double *constant, double *slope);

#endif
