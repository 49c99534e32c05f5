/* Links between whole GPUs in a profile: kept, one of each way, and found. */
#include <math.h>
#include <string.h>

#include "base/median.h"
#include "plan/profile.h"

const char *const plan_profile_way_names[] = {"local",     "host",    "nccl",      "all-reduce",
                                              "to-device", "to-host", "on-device", NULL};

static plan_profile_link *of_way(const plan_profile *profile, plan_profile_way way) {
  for (size_t i = 0; i < profile->links.count; i++)
    if (profile->links.items[i].way == way) return &profile->links.items[i];
  return NULL;
}

const plan_profile_link *plan_profile_find_link(const plan_profile *profile, plan_profile_way way, const char *link) {
  const plan_profile_link *found = of_way(profile, way);
  return found && found->points.count && strcmp(found->link, link) == 0 ? found : NULL;
}

dp_status plan_profile_set_link(plan_profile *profile, const plan_profile_link *link, dp_error *error) {
  plan_profile_link kept = *link, *known = of_way(profile, link->way);
  kept.link = dp_arena_strdup(&profile->arena, link->link);
  if (!kept.link) return dp_fail_memory(error);
  if (!known) return dp_array_push(&profile->links, kept) ? DP_OK : dp_fail_memory(error);
  dp_array_free(&known->points);
  *known = kept;
  return DP_OK;
}

dp_status plan_profile_fill_points(plan_profile_points *points, dp_error *error) {
  DP_ARRAY(double) ratios = {.items = NULL};
  double alone_s = 0, busy_s = 0;
  for (size_t i = 0; i < points->count; i++) {
    const plan_profile_point *at = &points->items[i];
    if (at->alone_s > 0 && at->busy_s > 0 && !dp_array_push(&ratios, at->busy_s / at->alone_s)) {
      dp_array_free(&ratios);
      return dp_fail_memory(error);
    }
  }
  const double ratio = ratios.count ? fmax(1, dp_median(ratios.items, ratios.count)) : 1;
  dp_array_free(&ratios);
  for (size_t i = 0; i < points->count; i++) {
    plan_profile_point *at = &points->items[i];
    if (at->alone_s <= 0) at->alone_s = at->busy_s / ratio;
    if (at->busy_s <= 0) at->busy_s = at->alone_s * ratio;
    at->alone_s = alone_s = fmax(alone_s, at->alone_s);
    at->busy_s = busy_s = fmax(busy_s, fmax(at->alone_s, at->busy_s));
  }
  return DP_OK;
}
