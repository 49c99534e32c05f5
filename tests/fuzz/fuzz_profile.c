/* Any bytes as a profile: refused with one line, or one that is written as it was read, answers for its own ops, and
 * whose laws are numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const plan_profile *profile) {
  plan_profile again;
  dp_str a = {0}, b = {0};
  if (plan_profile_text(profile, &a, NULL) != DP_OK) abort();
  if (plan_profile_parse(a.text, a.length, "again.json", &again, NULL) != DP_OK) abort();
  if (plan_profile_text(&again, &b, NULL) != DP_OK || strcmp(a.text, b.text) != 0) abort();
  plan_profile_free(&again);
  dp_str_free(&a);
  dp_str_free(&b);
}

static void check_answers(const plan_profile *profile) {
  for (size_t i = 0; i < profile->ops.count; i++) {
    const plan_profile_op *op = &profile->ops.items[i];
    plan_profile_cost cost;
    if (!plan_profile_op_cost(profile, op->op, op->kind, op->direction, &op->work, &cost) ||
        cost.source != PLAN_SOURCE_MEASURED || cost.alone_s != op->alone_s)
      abort();
    if (!plan_profile_op_cost(profile, "", op->kind, op->direction, &op->work, &cost) || !(cost.alone_s >= 0) ||
        !isfinite(cost.busy_s))
      abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  plan_profile profile = {.device = NULL};
  dp_error error = DP_ERROR_INIT;
  if (plan_profile_parse((const char *)data, size, "fuzz.json", &profile, &error) != DP_OK) {
    if (!error.text[0] || strchr(error.text, '\n') || profile.ops.items) abort();
    return 0;
  }
  check_text(&profile);
  if (plan_profile_hold_out(&profile, 2, &error) != DP_OK) abort();
  check_answers(&profile);
  plan_profile_free(&profile);
  return 0;
}
