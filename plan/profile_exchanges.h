/* Messages that were measured, each with its size and time, and what a profile's points by size say of them. */
#ifndef DP_PLAN_PROFILE_EXCHANGES_H
#define DP_PLAN_PROFILE_EXCHANGES_H

#include "plan/profile.h"

typedef struct plan_exchange {
  double bytes, seconds;
  bool beside; /* compute */
  bool aside;  /* not for the points, but to see what these say of it */
} plan_exchange;
typedef DP_ARRAY(plan_exchange) plan_exchanges;

/* Adds a point for the sizes within such a part of an octave (0: for each size), of their middle and of the middle times
 * alone and beside compute; 0: of fewer than `least`. One with neither is left out. Puts them in the order of sizes. */
dp_status plan_exchanges_points(plan_exchanges *all, int sizes_an_octave, size_t least, plan_profile_points *points,
                                dp_error *error);
/* The median relative error on those that are aside and no larger than twice the largest point, and how many they are;
 * without points 0 of none. */
dp_status plan_exchanges_error(const plan_exchanges *all, const plan_profile_points *points, double *middle,
                               size_t *count, dp_error *error);

#endif
