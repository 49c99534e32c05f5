/* Values to try, written short: "FROM:TO:logN" is N values from FROM to TO in equal ratios, "FROM:TO:linN" in equal
 * steps, both ends among them; "A,B,C" is a list. */
#ifndef DP_BASE_RANGE_H
#define DP_BASE_RANGE_H

#include <stdbool.h>
#include <stddef.h>

#include <stdint.h>

#include "base/arena.h"
#include "base/node.h"
#include "base/status.h"

enum { DP_RANGE_VALUES = 1000 }; /* at most */

typedef struct dp_range {
  double *values; /* in the order written; of a range: from FROM to TO; arena-owned */
  size_t count;
  bool logarithmic; /* written with log */
} dp_range;

/* DP_BAD_INPUT with what was found and what is allowed, without a place; `what` names the key in it. log needs FROM and
 * TO > 0; FROM may be the larger end. */
dp_status dp_range_parse(const char *what, const char *text, dp_arena *arena, dp_range *range, dp_error *error);

/* The same in whole numbers: rounded, and of equal ones that follow each other one. */
void dp_range_round(dp_range *range);

/* The integers of a key: one, a list, or a string that is a range in whole numbers. Each from min to max, else
 * DP_BAD_INPUT at the node. */
dp_status dp_range_read_integers(const dp_node *node, const char *what, int64_t min, int64_t max, dp_arena *arena,
                                 int64_t **values, size_t *count, dp_error *error);

/* The parts, for who reads ranges by other rules. Of "logN" or "linN", what follows the second colon: N from 2 to
 * `most`, else 0. */
size_t dp_range_steps(const char *text, size_t most, bool *logarithmic);
/* Number i of `count` >= 2 from `from` to `to`, the ends exactly. */
double dp_range_value(double from, double to, size_t count, bool logarithmic, size_t i);

#endif
