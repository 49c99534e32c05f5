/* A straight line through points. */
#ifndef DP_BASE_LINE_H
#define DP_BASE_LINE_H

#include <stddef.h>

/* y = constant + slope * x by least squares, where neither comes out negative; else through 0. Of equal x, too. Without
 * points both are 0. */
void dp_fit_line(const double *x, const double *y, size_t count, double *constant, double *slope);
/* The same of relative errors, of which large ones count in proportion (Huber's), so that some points that are far off
 * turn nothing: minimises the sum of h((constant + slope * x) / y - 1), neither negative. x and y are positive. Of points
 * whose x are alike, and of one, the line goes through 0. */
void dp_fit_line_robust(const double *x, const double *y, size_t count, double *constant, double *slope);

#endif
