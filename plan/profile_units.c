/* Units and parts of devices in a profile: sorted, found. */
#include <stdlib.h>
#include <string.h>

#include "plan/profile.h"

const char *const plan_profile_pass_names[] = {"forward", "backward", "backward_input", "backward_weight", NULL};

static int compare(const char *key, int64_t sms, plan_profile_pass pass, const plan_profile_unit *other) {
  const int order = strcmp(key, other->unit);
  if (order) return order;
  if (sms != other->sms) return sms < other->sms ? -1 : 1;
  return (int)pass - (int)other->pass;
}

static int compare_units(const void *a, const void *b) {
  const plan_profile_unit *x = a;
  return compare(x->unit, x->sms, x->pass, b);
}

static int compare_parts(const void *a, const void *b) {
  const plan_profile_part *x = a, *y = b;
  return (x->sms > y->sms) - (x->sms < y->sms);
}

dp_status plan_profile_finish_units(plan_profile *profile, dp_error *error) {
  plan_profile_unit *units = profile->units.items;
  plan_profile_part *parts = profile->parts.items;
  if (profile->units.count > 1) qsort(units, profile->units.count, sizeof *units, compare_units);
  if (profile->parts.count > 1) qsort(parts, profile->parts.count, sizeof *parts, compare_parts);
  for (size_t i = 1; i < profile->units.count; i++)
    if (compare_units(&units[i - 1], &units[i]) == 0)
      return dp_fail(error, DP_BAD_INPUT,
                     "units: found \"%.60s\" on %lld multiprocessors, %s, twice, allowed: each once", units[i].unit,
                     (long long)units[i].sms, plan_profile_pass_names[units[i].pass]);
  for (size_t i = 1; i < profile->parts.count; i++)
    if (parts[i].sms == parts[i - 1].sms)
      return dp_fail(error, DP_BAD_INPUT, "parts: found %lld multiprocessors twice, allowed: each once",
                     (long long)parts[i].sms);
  return DP_OK;
}

const plan_profile_unit *plan_profile_find_unit(const plan_profile *profile, const char *key, int64_t sms,
                                                plan_profile_pass pass) {
  size_t low = 0, high = profile->units.count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const int order = compare(key, sms, pass, &profile->units.items[middle]);
    if (order == 0) return &profile->units.items[middle];
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return NULL;
}

const plan_profile_part *plan_profile_find_part(const plan_profile *profile, int64_t sms) {
  for (size_t i = 0; i < profile->parts.count; i++)
    if (profile->parts.items[i].sms == sms) return &profile->parts.items[i];
  return NULL;
}
