/* What a setting changes against the file, what each change gives alone, and what is not worth it. */
#include <math.h>
#include <string.h>

#include "sim/adviser.h"

/* ---- settings ---- */

bool sim_adviser_batch_is_listed(const sim_adviser *a) { return a->config->batches.items[0].size > 0; }

int64_t sim_adviser_batch_of(const sim_adviser *a, const sim_advise_setting *s, const plan_dpipe_bucket *bucket) {
  if (s->micro_batch) return s->micro_batch;
  const int64_t listed = plan_dpipe_batch_of(a->config, bucket);
  return s->list_shift < 0 ? listed >> -s->list_shift : listed << s->list_shift;
}

bool sim_adviser_keep_batch(const sim_adviser *a, sim_advise_setting *s) {
  const int64_t times = s->list_shift > 0 ? (int64_t)1 << s->list_shift : 1;
  const int64_t each = s->replicas * (s->micro_batch ? s->micro_batch : times);
  const int64_t units = s->list_shift < 0 ? a->units_of_batch << -s->list_shift : a->units_of_batch;
  if (units % each != 0) return false;
  s->accumulation = units / each;
  return true;
}

/* In proportion to the global batch; of listed micro batches, to that of each size. */
static double batch_units(const sim_advise_setting *s) {
  return ldexp((double)(s->accumulation * s->replicas * (s->micro_batch ? s->micro_batch : 1)), s->list_shift);
}

plan_dpipe_partition sim_adviser_rule(const sim_adviser *a) {
  return a->config->partition == PLAN_DPIPE_UNIFORM ? PLAN_DPIPE_UNIFORM : PLAN_DPIPE_PARAMETERS;
}

bool sim_adviser_same_split(const sim_advise_setting *a, const sim_advise_setting *b) {
  if (a->stages != b->stages) return false;
  return a->stages == 1 || memcmp(a->split, b->split, (size_t)(a->stages - 1) * sizeof *a->split) == 0;
}

static bool differs(const sim_advise_setting *a, const sim_advise_setting *b, sim_advise_group group) {
  switch (group) {
    case SIM_ADVISE_STAGES:
      return a->stages != b->stages;
    case SIM_ADVISE_BATCH:
      return a->micro_batch != b->micro_batch || a->list_shift != b->list_shift;
    case SIM_ADVISE_CHECKPOINT:
      return a->checkpointing != b->checkpointing;
    case SIM_ADVISE_SPLIT:
      return a->stages == b->stages ? !sim_adviser_same_split(a, b) : b->partition == PLAN_DPIPE_MANUAL;
    case SIM_ADVISE_OPTIMIZER:
      return a->optimizer != b->optimizer;
    case SIM_ADVISE_FP8:
      return a->fp8 != b->fp8;
    case SIM_ADVISE_SWAP:
      return a->blocks_to_swap != b->blocks_to_swap;
    case SIM_ADVISE_SMALLER:
      return batch_units(a) < batch_units(b) || batch_units(a) > batch_units(b);
    case SIM_ADVISE_GROUP_COUNT:
      break;
  }
  return false;
}

int sim_adviser_count_changes(const sim_advise_setting *a, const sim_advise_setting *b) {
  int count = 0;
  for (int g = 0; g < SIM_ADVISE_GROUP_COUNT; g++) count += differs(a, b, (sim_advise_group)g);
  return count;
}

/* ---- proposals ---- */

/* `base` with that group as `other` has it. Not possible: only with another change. */
static dp_status with_group(sim_adviser *a, const sim_advise_setting *base, const sim_advise_setting *other,
                            sim_advise_group group, sim_advise_setting *made, bool *possible) {
  *made = *base;
  *possible = true;
  switch (group) {
    case SIM_ADVISE_STAGES: {
      const bool own = other->stages == a->out->now.stages;
      made->stages = other->stages;
      made->replicas = other->replicas;
      made->partition = own ? a->out->now.partition : sim_adviser_rule(a);
      if (own)
        made->split = a->out->now.split;
      else
        DP_TRY(sim_adviser_cut(a, made->partition, made->stages, &made->split));
      break;
    }
    case SIM_ADVISE_BATCH:
      made->micro_batch = other->micro_batch;
      made->list_shift = other->list_shift;
      break;
    case SIM_ADVISE_CHECKPOINT:
      made->checkpointing = other->checkpointing;
      break;
    case SIM_ADVISE_SPLIT:
      if (other->stages == base->stages) {
        made->partition = other->partition;
        made->split = other->split;
      } else if (base->stages == a->out->now.stages) {
        *possible = false;
      } else {
        made->partition = sim_adviser_rule(a);
        DP_TRY(sim_adviser_cut(a, made->partition, made->stages, &made->split));
      }
      break;
    case SIM_ADVISE_OPTIMIZER:
      made->optimizer = other->optimizer;
      break;
    case SIM_ADVISE_FP8:
      made->fp8 = other->fp8;
      break;
    case SIM_ADVISE_SWAP:
      made->blocks_to_swap = other->blocks_to_swap;
      break;
    case SIM_ADVISE_SMALLER:
    case SIM_ADVISE_GROUP_COUNT:
      *possible = false;
      break;
  }
  if (a->config->gradient_release && made->replicas > 1) *possible = false;
  if (made->blocks_to_swap && made->stages > 1) *possible = false;
  if (*possible && !sim_adviser_keep_batch(a, made)) *possible = false;
  return DP_OK;
}

dp_status sim_adviser_reduce(sim_adviser *a, sim_advise_setting *setting, sim_advise_mix *best) {
  if (differs(&a->out->now, setting, SIM_ADVISE_SMALLER)) return DP_OK;
  for (int g = SIM_ADVISE_SMALLER - 1; g >= 0; g--) {
    if (!differs(&a->out->now, setting, (sim_advise_group)g)) continue;
    sim_advise_setting t;
    sim_advise_mix mix;
    bool possible;
    DP_TRY(with_group(a, setting, &a->out->now, (sim_advise_group)g, &t, &possible));
    if (!possible || sim_adviser_count_changes(&a->out->now, &t) >= sim_adviser_count_changes(&a->out->now, setting))
      continue;
    DP_TRY(sim_adviser_mix(a, &t, true, false, &mix));
    if (!mix.fits || mix.throughput_samples_per_s * (1 + SIM_ADVISE_WORTH) < best->throughput_samples_per_s) continue;
    *setting = t;
    *best = mix;
  }
  return DP_OK;
}

static double gain_of(const sim_adviser *a, const sim_advise_mix *mix) {
  return mix->throughput_samples_per_s / a->out->mix.throughput_samples_per_s - 1;
}

dp_status sim_adviser_propose(sim_adviser *a, const sim_advise_setting *setting, sim_advise_proposal *proposal) {
  sim_advise_proposal p = {.setting = *setting};
  DP_TRY(sim_adviser_mix(a, &p.setting, false, false, &p.mix));
  p.gain = gain_of(a, &p.mix);
  for (int g = 0; g < SIM_ADVISE_GROUP_COUNT; g++) {
    if (!differs(&a->out->now, &p.setting, (sim_advise_group)g)) continue;
    sim_advise_change *change = &p.changes[p.change_count++];
    sim_advise_setting alone;
    *change = (sim_advise_change){.group = (sim_advise_group)g};
    DP_TRY(with_group(a, &a->out->now, &p.setting, (sim_advise_group)g, &alone, &change->possible));
    if (!change->possible) continue;
    DP_TRY(sim_adviser_mix(a, &alone, false, false, &change->mix));
    change->gain = gain_of(a, &change->mix);
  }
  *proposal = p;
  return DP_OK;
}

dp_status sim_adviser_look_beyond(sim_adviser *a) {
  sim_advise_result *out = a->out;
  const sim_advise_proposal *best = &out->fastest;
  if (best->mix.bubble_ratio < 0.05 || best->setting.stages == 1) return DP_OK;
  for (int i = 0; i < 2; i++) {
    sim_advise_setting t = best->setting;
    t.accumulation *= i ? 4 : 2;
    if (t.accumulation > 256) break;
    DP_TRY(sim_adviser_mix(a, &t, false, false, &out->more[i].mix));
    if (!out->more[i].mix.fits) break;
    out->more[i].accumulation = t.accumulation;
    out->more[i].global_batch = out->more[i].mix.tightest.global_batch;
    out->more_count = i + 1;
  }
  return DP_OK;
}
