/* Any bytes as a diffusion-pipe configuration and as its dataset: refused with one line, or sizes and batches that
 * hold. */
#include <stdlib.h>
#include <string.h>

#include "plan/dpipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(const dp_error *error) {
  if (!error->text[0] || strchr(error->text, '\n')) abort();
}

static void check_config(const plan_dpipe *config) {
  if (config->stages < 1 || config->accumulation < 1 || !config->optimizer || config->batches.count == 0) abort();
  for (size_t i = 0; i < config->batches.count; i++)
    if (config->batches.items[i].batch < 1) abort();
  for (size_t i = 1; config->partition == PLAN_DPIPE_MANUAL && i < config->split_count; i++)
    if (config->split[i] <= config->split[i - 1]) abort();
}

static void check_buckets(const plan_dpipe *config) {
  if (config->buckets.count == 0 || config->buckets.count > PLAN_DPIPE_MAX_BUCKETS) abort();
  for (size_t i = 0; i < config->buckets.count; i++) {
    const plan_dpipe_bucket *b = &config->buckets.items[i];
    if (b->width < 16 || b->height < 16 || b->width % 16 || b->height % 16 || b->frames != 1) abort();
    if (plan_dpipe_batch_of(config, b) < 1) abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char plain[] = "[model]\ntype='flux'\ndtype='bfloat16'\n[optimizer]\ntype='adamw'\n";
  plan_dpipe config;
  dp_error error = DP_ERROR_INIT;
  if (plan_dpipe_parse((const char *)data, size, "fuzz.toml", &config, &error) == DP_OK) {
    check_config(&config);
    plan_dpipe_free(&config);
  } else {
    check_error(&error);
  }
  if (plan_dpipe_parse(plain, sizeof plain - 1, "plain.toml", &config, NULL) != DP_OK) abort();
  error = (dp_error)DP_ERROR_INIT;
  if (plan_dpipe_parse_dataset(&config, (const char *)data, size, "fuzz.toml", &error) == DP_OK)
    check_buckets(&config);
  else
    check_error(&error);
  plan_dpipe_free(&config);
  return 0;
}
