/* The end of an error line about a name that is not one of several: what may have been meant, and what is allowed.
 * A name is near when it is the given one but for case, spaces and punctuation, when one begins or ends with the other,
 * or when they are less than three edits apart and hold the same digits (an RTX-3090 is not a mistyped RTX-3080). */
#ifndef DP_BASE_ALLOWED_H
#define DP_BASE_ALLOWED_H

#include "base/str.h"

/* Begins as {.given = the name}; `given` may be NULL (no string at all: nothing is near) and must outlive this. */
typedef struct dp_allowed {
  const char *given;
  const char *nearest; /* one of the added names, or NULL */
  int rank;            /* of nearest, least is best */
  dp_str names;
} dp_allowed;

/* Borrows `name`. */
void dp_allowed_add(dp_allowed *allowed, const char *name);
/* "did you mean "X"? allowed: X, Y", or only the second part. */
const char *dp_allowed_text(dp_allowed *allowed);
void dp_allowed_free(dp_allowed *allowed);

#endif
