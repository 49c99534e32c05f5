/* What a comparison finds as causes; internal to plan/. */
#ifndef DP_PLAN_COMPARE_CAUSES_H
#define DP_PLAN_COMPARE_CAUSES_H

#include "plan/compare.h"
#include "plan/replay.h"

/* Gathers the effects of events into out->causes. after_s: how long each step goes on after its last instruction. */
dp_status plan_compare_causes(const plan_replay *replay, const plan_parts *predicted, const plan_parts *measured,
                              const plan_parts *effect, const double after_s[2], plan_comparison *out, dp_error *error);

#endif
