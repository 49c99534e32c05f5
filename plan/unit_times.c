#include "plan/unit_times.h"

#include <stdlib.h>
#include <string.h>

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

void plan_unit_times_clear(plan_unit_times *times) {
  for (size_t i = 0; i < times->unit_count * PLAN_UNIT_DIRECTION_COUNT; i++) {
    times->total_s[i] = 0;
    times->runs[i] = 0;
  }
}

void plan_unit_times_add(plan_unit_times *times, size_t unit, plan_unit_direction direction, double seconds) {
  const size_t at = unit * PLAN_UNIT_DIRECTION_COUNT + (size_t)direction;
  times->total_s[at] += seconds;
  times->runs[at]++;
}

void plan_unit_times_merge(plan_unit_times *times, const plan_unit_times *from) {
  const size_t units = times->unit_count < from->unit_count ? times->unit_count : from->unit_count;
  for (size_t i = 0; i < units * PLAN_UNIT_DIRECTION_COUNT; i++) {
    times->total_s[i] += from->total_s[i];
    times->runs[i] += from->runs[i];
  }
}

static double mean_s(const plan_unit_times *times, size_t unit, plan_unit_direction direction) {
  const size_t at = unit * PLAN_UNIT_DIRECTION_COUNT + (size_t)direction;
  return times->runs[at] ? times->total_s[at] / times->runs[at] : 0;
}

double plan_unit_forward_s(const plan_unit_times *times, size_t unit) { return mean_s(times, unit, PLAN_UNIT_FORWARD); }

double plan_unit_backward_s(const plan_unit_times *times, size_t unit) {
  return mean_s(times, unit, PLAN_UNIT_BACKWARD_INPUT) + mean_s(times, unit, PLAN_UNIT_BACKWARD_WEIGHT);
}
