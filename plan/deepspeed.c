/* DeepSpeed's two rules of partition, and the layers that diffusion-pipe hands to it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "plan/dpipe.h"

void plan_deepspeed_uniform(int layers, int stages, int *parts) {
  const int each = layers / stages, more = layers % stages;
  for (int s = 0; s <= stages; s++)
    parts[s] = layers <= stages ? (s < layers ? s : layers) : s * each + (s < more ? s : more);
}

/* best[i][j]: of the first i layers in j stages. */
typedef struct cell {
  double most, least, cost;
  int cut;
} cell;

dp_status plan_deepspeed_balanced(const int64_t *weights, int layers, int stages, int *parts, dp_error *error) {
  if (layers <= stages) {
    plan_deepspeed_uniform(layers, stages, parts);
    return DP_OK;
  }
  const size_t width = (size_t)stages + 1;
  cell *best = malloc(((size_t)layers + 1) * width * sizeof *best);
  double *sum = malloc(((size_t)layers + 1) * sizeof *sum);
  if (!best || !sum) {
    free(best);
    free(sum);
    return dp_fail_memory(error);
  }
  for (size_t i = 0; i < ((size_t)layers + 1) * width; i++) best[i] = (cell){INFINITY, INFINITY, INFINITY, 0};
  best[0].most = best[0].cost = 0;
  sum[0] = 0;
  for (int i = 0; i < layers; i++) sum[i + 1] = sum[i] + (double)weights[i];
  for (int i = 1; i <= layers; i++)
    for (int j = 1; j <= (i < stages ? i : stages); j++) {
      cell *at = &best[(size_t)i * width + (size_t)j];
      for (int k = 0; k < i; k++) {
        const cell *before = &best[(size_t)k * width + (size_t)j - 1];
        const double own = sum[i] - sum[k], most = fmax(before->most, own), least = fmin(before->least, own);
        if (at->cost >= most - least) *at = (cell){most, least, most - least, k}; /* the last of equal ones */
      }
    }
  parts[stages] = layers;
  for (int s = stages; s > 0; s--) parts[s - 1] = best[(size_t)parts[s] * width + (size_t)s].cut;
  free(best);
  free(sum);
  return DP_OK;
}

bool plan_dpipe_joins(const char *unit) {
  const bool attention = strstr(unit, ".attentions.") != NULL;
  if (strncmp(unit, "mid_block.", 10) != 0) return attention;
  if (attention) return !dp_ends_with(unit, ".transformer_blocks.0");
  return !dp_ends_with(unit, ".resnets.0");
}

bool plan_dpipe_is_checkpointed(plan_dpipe_family family, const char *unit) {
  return family == PLAN_DPIPE_SDXL ? strstr(unit, "samplers.") == NULL : strstr(unit, "transformer_blocks.") != NULL;
}
