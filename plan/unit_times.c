#include "plan/unit_times.h"

#include <stdlib.h>

dp_status plan_unit_times_init(size_t unit_count, plan_unit_times *times, dp_error *error) {
  const size_t count = (unit_count ? unit_count : 1) * PLAN_UNIT_DIRECTION_COUNT;
  *times = (plan_unit_times){
      .unit_count = unit_count, .total_s = calloc(count, sizeof(double)), .runs = calloc(count, sizeof(uint32_t))};
  if (times->total_s && times->runs) return DP_OK;
  plan_unit_times_free(times);
  return dp_fail_memory(error);
}

void plan_unit_times_free(plan_unit_times *times) {
  free(times->total_s);
  free(times->runs);
  *times = (plan_unit_times){0};
}

void plan_unit_times_add(plan_unit_times *times, size_t unit, plan_unit_direction direction, double seconds) {
  const size_t at = unit * PLAN_UNIT_DIRECTION_COUNT + (size_t)direction;
  times->total_s[at] += seconds;
  times->runs[at]++;
}

static double mean_s(const plan_unit_times *times, size_t unit, plan_unit_direction direction) {
  const size_t at = unit * PLAN_UNIT_DIRECTION_COUNT + (size_t)direction;
  return times->runs[at] ? times->total_s[at] / times->runs[at] : 0;
}

double plan_unit_forward_s(const plan_unit_times *times, size_t unit) { return mean_s(times, unit, PLAN_UNIT_FORWARD); }

double plan_unit_backward_s(const plan_unit_times *times, size_t unit) {
  return mean_s(times, unit, PLAN_UNIT_BACKWARD_INPUT) + mean_s(times, unit, PLAN_UNIT_BACKWARD_WEIGHT);
}
