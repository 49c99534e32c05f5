/* Saturating arithmetic for sizes and FLOPs: a result past the largest int64_t stays there, and so does everything made
 * from it. One test at the end (graph_is_huge) then tells whether anything overflowed. Operands are never negative.
 */
#ifndef DP_GRAPH_CHECKED_H
#define DP_GRAPH_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline int64_t graph_mul(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static inline int64_t graph_add(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static inline int64_t graph_mul3(int64_t a, int64_t b, int64_t c) { return graph_mul(graph_mul(a, b), c); }

static inline bool graph_is_huge(int64_t value) { return value == INT64_MAX; }

#endif
