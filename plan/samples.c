#include "plan/samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"

dp_status plan_timeline_samples_init(const plan_program *program, uint32_t capacity, plan_timeline_samples *samples,
                                     dp_error *error) {
  const size_t instructions = program->instruction_count ? program->instruction_count : 1;
  *samples = (plan_timeline_samples){.program = program, .capacity = capacity};
  if (capacity == 0 || instructions > SIZE_MAX / sizeof(double) / capacity)
    return dp_fail(error, DP_INTERNAL, "samples: found room for %u steps of %zu instructions", capacity, instructions);
  samples->start_s = malloc(capacity * instructions * sizeof(double));
  samples->end_s = malloc(capacity * instructions * sizeof(double));
  samples->step_s = malloc(capacity * sizeof(double));
  if (samples->start_s && samples->end_s && samples->step_s) return DP_OK;
  plan_timeline_samples_free(samples);
  return dp_fail_memory(error);
}

void plan_timeline_samples_free(plan_timeline_samples *samples) {
  free(samples->start_s);
  free(samples->end_s);
  free(samples->step_s);
  *samples = (plan_timeline_samples){0};
}

void plan_timeline_samples_clear(plan_timeline_samples *samples) {
  samples->count = 0;
  samples->seen = 0;
}

void plan_timeline_samples_add(plan_timeline_samples *samples, const plan_timeline *timeline) {
  const uint32_t slot = (uint32_t)(samples->seen % samples->capacity);
  const size_t instructions = samples->program->instruction_count, at = slot * instructions;
  memcpy(samples->start_s + at, timeline->start_s, instructions * sizeof(double));
  memcpy(samples->end_s + at, timeline->end_s, instructions * sizeof(double));
  samples->step_s[slot] = timeline->step_s;
  samples->seen++;
  if (samples->count < samples->capacity) samples->count++;
}

double plan_quantile(const double *sorted, size_t count, double share) {
  if (count == 0) return 0;
  const double rank = ceil(share * (double)count - 1e-9);
  const size_t at = rank < 1 ? 0 : (size_t)rank - 1;
  return sorted[at < count ? at : count - 1];
}

dp_status plan_timeline_samples_spread(const plan_timeline_samples *samples, plan_step_spread *spread,
                                       dp_error *error) {
  const uint32_t count = samples->count;
  double *sorted = malloc((count ? count : 1) * sizeof *sorted);
  if (!sorted) return dp_fail_memory(error);
  *spread = (plan_step_spread){.count = count};
  for (uint32_t i = 0; i < count; i++) {
    sorted[i] = samples->step_s[i];
    spread->mean_s += sorted[i] / count;
  }
  dp_sort(sorted, count);
  spread->median_s = plan_quantile(sorted, count, 0.5);
  spread->p95_s = plan_quantile(sorted, count, 0.95);
  spread->max_s = plan_quantile(sorted, count, 1);
  free(sorted);
  return DP_OK;
}

dp_status plan_timeline_samples_median(const plan_timeline_samples *samples, plan_timeline *timeline, dp_error *error) {
  plan_step_spread spread;
  if (samples->count == 0) return dp_fail(error, DP_INTERNAL, "samples: there is no step to take the median of");
  DP_TRY(plan_timeline_samples_spread(samples, &spread, error));
  uint32_t slot = 0;
  while (samples->step_s[slot] != spread.median_s && slot + 1 < samples->count) slot++;
  const size_t instructions = samples->program->instruction_count, at = slot * instructions;
  DP_TRY(plan_timeline_init(samples->program, timeline, error));
  memcpy(timeline->start_s, samples->start_s + at, instructions * sizeof(double));
  memcpy(timeline->end_s, samples->end_s + at, instructions * sizeof(double));
  timeline->step_s = samples->step_s[slot];
  return DP_OK;
}
