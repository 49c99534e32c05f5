/* The search for better settings of a diffusion-pipe configuration.
 *
 * Tried: every pipeline_stages that divides the GPUs, micro batches that keep the global batch, with and without
 * activation checkpointing, cut by diffusion-pipe's own rule and by time; the best of them, and those that nearly fit,
 * with cuts moved one by one as long as that helps. What is found is then reduced: a change that gives less than 1 % is
 * taken back.
 */
#include "sim/advise.h"

#include <math.h>
#include <string.h>

#include "sim/adviser.h"

const char *const sim_advise_group_names[] = {"pipeline_stages", "micro_batch_size", "activation_checkpointing",
                                              "partition",       "optimizer",        "transformer_dtype",
                                              "blocks_to_swap",  "global_batch",     NULL};

enum { MAX_BATCH = 64, MAX_SHIFT = 6, CLIMB_TRIALS = 60, CLIMBS = 4 };

/* ---- rows ---- */

static int nearest_to_square(const plan_dpipe_bucket *b, int first, int end) {
  int best = first;
  for (int i = first + 1; i < end; i++)
    if (fabs(log(b[i].ratio)) < fabs(log(b[best].ratio))) best = i;
  return best;
}

static int64_t pixels(const plan_dpipe_bucket *b) { return b->width * b->height; }

/* Of each resolution the narrowest, the squarest and the widest size. */
static dp_status choose_rows(sim_adviser *a) {
  const plan_dpipe_bucket *b = a->config->buckets.items;
  const int n = (int)a->config->buckets.count;
  sim_advise_result *out = a->out;
  out->rows = SIM_ADVISER_NEW(a, sim_advise_row, n);
  if (!out->rows) return dp_fail_memory(a->error);
  for (int first = 0, end; first < n; first = end) {
    for (end = first + 1; end < n && b[end].resolution == b[first].resolution;) end++;
    const int chosen[] = {first, nearest_to_square(b, first, end), end - 1};
    int most = out->row_count;
    for (int k = 0; k < 3; k++) {
      if (k > 0 && chosen[k] == chosen[k - 1]) continue;
      if (pixels(&b[chosen[k]]) > pixels(out->row_count > most ? out->rows[most].bucket : &b[chosen[k]]))
        most = out->row_count;
      out->rows[out->row_count++] = (sim_advise_row){.bucket = &b[chosen[k]], .stands_for = end - first};
    }
    out->rows[most].representative = true;
  }
  return DP_OK;
}

/* ---- the best so far ---- */

typedef struct found {
  sim_advise_setting setting;
  sim_advise_mix mix;
  bool any;
} found;

typedef struct search {
  sim_adviser *a;
  const sim_advise_setting *now;
  found fastest, smallest;
  found near[CLIMBS]; /* do not fit with the cuts tried; least over first */
  int near_count;
} search;

static int64_t over_bytes(const sim_advise_mix *m) { return m->tightest.need_bytes - m->tightest.limit_bytes; }

static bool faster(const sim_advise_mix *a, const sim_advise_mix *b) {
  return a->throughput_samples_per_s > b->throughput_samples_per_s * (1 + 1e-9);
}

static void take(search *s, const sim_advise_setting *setting, const sim_advise_mix *mix) {
  const found f = {*setting, *mix, true};
  if (mix->fits) {
    if (!s->fastest.any || faster(mix, &s->fastest.mix)) s->fastest = f;
    const int changes = sim_adviser_count_changes(s->now, setting);
    const int least = s->smallest.any ? sim_adviser_count_changes(s->now, &s->smallest.setting) : 0;
    if (!s->smallest.any || changes < least || (changes == least && faster(mix, &s->smallest.mix))) s->smallest = f;
    return;
  }
  if (setting->stages == 1) return; /* no cut to move */
  int at = s->near_count < CLIMBS ? s->near_count++ : CLIMBS;
  while (at > 0 && over_bytes(&s->near[at - 1].mix) > over_bytes(mix)) {
    if (at < CLIMBS) s->near[at] = s->near[at - 1];
    at--;
  }
  if (at < CLIMBS) s->near[at] = f;
}

static dp_status look_at(search *s, const sim_advise_setting *setting, bool *fits) {
  sim_advise_mix mix;
  DP_TRY(sim_adviser_mix(s->a, setting, true, false, &mix));
  take(s, setting, &mix);
  if (mix.fits) *fits = true;
  return DP_OK;
}

/* Under diffusion-pipe's rule (or the file's own cuts), and cut by time. */
static dp_status look_at_cuts(search *s, const sim_advise_setting *setting, bool *fits) {
  sim_advise_setting t = *setting;
  const bool own = t.stages == s->now->stages;
  *fits = false;
  t.partition = own ? s->now->partition : sim_adviser_rule(s->a);
  if (own)
    t.split = s->now->split;
  else
    DP_TRY(sim_adviser_cut(s->a, t.partition, t.stages, &t.split));
  DP_TRY(look_at(s, &t, fits));
  if (t.stages == 1) return DP_OK;
  sim_advise_setting balanced = t;
  balanced.partition = PLAN_DPIPE_MANUAL;
  DP_TRY(sim_adviser_balance(s->a, &t, &balanced.split));
  if (!sim_adviser_same_split(&balanced, &t)) DP_TRY(look_at(s, &balanced, fits));
  if (!own || t.partition != PLAN_DPIPE_MANUAL) return DP_OK;
  sim_advise_setting rule = t;
  rule.partition = PLAN_DPIPE_PARAMETERS;
  DP_TRY(sim_adviser_cut(s->a, rule.partition, rule.stages, &rule.split));
  return sim_adviser_same_split(&rule, &t) || sim_adviser_same_split(&rule, &balanced) ? DP_OK
                                                                                       : look_at(s, &rule, fits);
}

/* Micro batches in ascending order, until one that does not fit. */
static dp_status look_at_batches(search *s, const sim_advise_setting *setting) {
  bool fits;
  if (sim_adviser_batch_is_listed(s->a)) {
    for (int shift = s->a->least_shift; shift <= MAX_SHIFT; shift++) {
      sim_advise_setting t = *setting;
      t.list_shift = shift;
      if (!sim_adviser_keep_batch(s->a, &t)) continue;
      DP_TRY(look_at_cuts(s, &t, &fits));
      if (!fits && shift >= 0) break;
    }
    return DP_OK;
  }
  const int64_t most = MAX_BATCH > s->now->micro_batch ? MAX_BATCH : s->now->micro_batch;
  for (int64_t b = 1; b <= most; b++) {
    sim_advise_setting t = *setting;
    t.micro_batch = b;
    if ((b & (b - 1)) != 0 && b != s->now->micro_batch) continue; /* powers of two, and the file's own */
    if (!sim_adviser_keep_batch(s->a, &t)) continue;
    DP_TRY(look_at_cuts(s, &t, &fits));
    if (!fits && b >= s->now->micro_batch) break;
  }
  return DP_OK;
}

static dp_status look_at_all(search *s, const sim_advise_setting *from) {
  const int gpus = s->a->out->gpus;
  for (int stages = 1; stages <= gpus && stages <= s->a->out->layers; stages++) {
    sim_advise_setting t = *from;
    if (gpus % stages != 0 || (t.blocks_to_swap && stages > 1)) continue;
    if (s->a->config->gradient_release && stages != gpus) continue; /* diffusion-pipe stops there */
    t.stages = stages;
    t.replicas = gpus / stages;
    DP_TRY(look_at_batches(s, &t));
    t.checkpointing = t.checkpointing == PLAN_DPIPE_KEEP_ALL ? PLAN_DPIPE_RECOMPUTE : PLAN_DPIPE_KEEP_ALL;
    DP_TRY(look_at_batches(s, &t));
  }
  return DP_OK;
}

/* ---- cuts moved one by one ---- */

static bool better(const sim_advise_mix *a, const sim_advise_mix *b) {
  if (a->fits != b->fits) return a->fits;
  return a->fits ? faster(a, b) : over_bytes(a) < over_bytes(b);
}

static dp_status climb(search *s, found *from) {
  const int stages = from->setting.stages;
  int left = CLIMB_TRIALS;
  for (bool moved = stages > 1; moved && left > 0;) {
    moved = false;
    found best = *from;
    for (int c = 0; c + 1 < stages && left > 0; c++)
      for (int d = -1; d <= 1 && left > 0; d += 2) {
        sim_advise_setting t = from->setting;
        int64_t *split = SIM_ADVISER_NEW(s->a, int64_t, stages);
        if (!split) return dp_fail_memory(s->a->error);
        memcpy(split, t.split, (size_t)(stages - 1) * sizeof *split);
        split[c] += d;
        const int64_t below = c ? split[c - 1] : 0, above = c + 2 < stages ? split[c + 1] : s->a->out->layers;
        if (split[c] <= below || split[c] >= above) continue;
        t.split = split;
        t.partition = PLAN_DPIPE_MANUAL;
        sim_advise_mix mix;
        DP_TRY(sim_adviser_mix(s->a, &t, true, false, &mix));
        left--;
        if (!better(&mix, &best.mix)) continue;
        best = (found){t, mix, true};
        moved = true;
      }
    *from = best;
  }
  take(s, &from->setting, &from->mix);
  return DP_OK;
}

static dp_status climb_all(search *s) {
  if (s->fastest.any) {
    found from = s->fastest;
    DP_TRY(climb(s, &from));
  }
  const int count = s->near_count;
  found near[CLIMBS];
  memcpy(near, s->near, sizeof near);
  for (int i = 0; i < count; i++)
    if (!s->fastest.any || faster(&near[i].mix, &s->fastest.mix)) DP_TRY(climb(s, &near[i]));
  return DP_OK;
}

static dp_status search_from(search *s, const sim_advise_setting *from) {
  s->near_count = 0;
  DP_TRY(look_at_all(s, from));
  return climb_all(s);
}

/* The best cuts of the stages as they are. */
static dp_status look_for_split(search *s, found *best) {
  const sim_advise_setting *now = s->now;
  found from[2] = {{.setting = *now}, {.setting = *now}};
  from[1].setting.partition = PLAN_DPIPE_MANUAL;
  DP_TRY(sim_adviser_balance(s->a, now, &from[1].setting.split));
  for (int i = 0; i < 2; i++) {
    DP_TRY(sim_adviser_mix(s->a, &from[i].setting, true, false, &from[i].mix));
    DP_TRY(climb(s, &from[i]));
  }
  *best = from[better(&from[0].mix, &from[1].mix) ? 0 : 1];
  best->any = true;
  return DP_OK;
}

/* ---- when nothing fits ---- */

static const plan_dpipe_optimizer *smaller_optimizer(const sim_adviser *a) {
  const plan_dpipe_optimizer *small = plan_dpipe_optimizer_find("adamw8bitkahan"), *own = a->config->optimizer;
  const double width = a->config->dtype == PLAN_DPIPE_FP32 ? 4 : 2;
  return own->state_values * width + own->state_bytes > small->state_values * width + small->state_bytes ? small : NULL;
}

static int64_t most_swapped(const sim_adviser *a) { /* as diffusion-pipe checks it: two blocks of each kind stay */
  int64_t doubles = 0, singles = 0, n = 0;
  for (int u = 0; u < a->out->layers; u++) {
    if (strncmp(a->out->layer_names[u], "single_transformer_blocks.", 26) == 0) singles++;
    if (strncmp(a->out->layer_names[u], "transformer_blocks.", 19) == 0) doubles++;
  }
  while ((n + 1) / 2 <= doubles - 2 && (n + 1 - (n + 1) / 2) * 2 + 1 <= singles - 2) n++;
  return n;
}

typedef enum relaxation { RELAX_UNSLOTH, RELAX_OPTIMIZER, RELAX_FP8, RELAX_SWAP, RELAX_COUNT } relaxation;

/* One step of it; false: no further. */
static bool relax(const sim_adviser *a, relaxation step, sim_advise_setting *from) {
  const plan_dpipe *c = a->config;
  switch (step) {
    case RELAX_UNSLOTH:
      if (from->checkpointing == PLAN_DPIPE_UNSLOTH) return false;
      from->checkpointing = PLAN_DPIPE_UNSLOTH;
      return true;
    case RELAX_OPTIMIZER: {
      const plan_dpipe_optimizer *small = smaller_optimizer(a);
      if (!small || from->optimizer == small) return false;
      from->optimizer = small;
      return true;
    }
    case RELAX_FP8:
      if (!c->lora || from->fp8 || c->family == PLAN_DPIPE_SDXL) return false;
      from->fp8 = true;
      return true;
    case RELAX_SWAP: { /* two blocks more */
      const int64_t most = most_swapped(a);
      if (!c->lora || c->family != PLAN_DPIPE_FLUX || from->blocks_to_swap >= most) return false;
      from->blocks_to_swap = from->blocks_to_swap + 2 < most ? from->blocks_to_swap + 2 : most;
      return true;
    }
    case RELAX_COUNT:
      break;
  }
  return false;
}

/* By as little as makes something fit, else as far as it goes. */
static dp_status search_relaxed(search *s, relaxation step, sim_advise_setting *from) {
  while (!s->fastest.any && relax(s->a, step, from)) DP_TRY(search_from(s, from));
  return DP_OK;
}

/* One of unsloth, a smaller optimizer, fp8, swapped blocks; then one after another, what saves most first; then a
 * smaller batch. */
static dp_status search_further(search *s, int64_t *units_of_batch) {
  static const relaxation alone[] = {RELAX_UNSLOTH, RELAX_OPTIMIZER, RELAX_FP8, RELAX_SWAP};
  static const relaxation together[] = {RELAX_FP8, RELAX_SWAP, RELAX_UNSLOTH, RELAX_OPTIMIZER};
  sim_advise_setting all = *s->now;
  all.checkpointing = PLAN_DPIPE_RECOMPUTE;
  for (int i = 0; i < RELAX_COUNT; i++) {
    sim_advise_setting from = all;
    DP_TRY(search_relaxed(s, alone[i], &from));
  }
  for (int i = 0; i < RELAX_COUNT; i++) DP_TRY(search_relaxed(s, together[i], &all));
  if (s->fastest.any || sim_adviser_batch_is_listed(s->a)) return DP_OK;
  const int64_t whole = *units_of_batch;
  sim_advise_setting from = *s->now;
  from.checkpointing = PLAN_DPIPE_RECOMPUTE;
  for (int64_t n = 1; n <= s->a->out->gpus && !s->fastest.any; n++) {
    if (s->a->out->gpus % n != 0 || n >= whole) continue;
    *units_of_batch = n;
    DP_TRY(search_from(s, &from));
    if (!s->fastest.any) DP_TRY(search_from(s, &all));
  }
  *units_of_batch = whole;
  return DP_OK;
}

/* ---- the whole ---- */

static dp_status read_now(sim_adviser *a) {
  const plan_dpipe *c = a->config;
  sim_advise_setting *now = &a->out->now;
  const int gpus = a->out->gpus, layers = a->out->layers;
  const dp_node *node = plan_dpipe_node(c, NULL, "pipeline_stages");
  if (c->stages > gpus || gpus % c->stages != 0)
    return dp_fail_at(a->error, node, "config.pipeline_stages: found %lld with %d GPUs, allowed: what divides them",
                      (long long)c->stages, gpus);
  if (c->stages > layers)
    return dp_fail_at(a->error, node, "config.pipeline_stages: found %lld with %d layers, allowed: at most %d",
                      (long long)c->stages, layers, layers);
  *now = (sim_advise_setting){.stages = (int)c->stages,
                              .replicas = gpus / (int)c->stages,
                              .accumulation = c->accumulation,
                              .micro_batch = sim_adviser_batch_is_listed(a) ? 0 : c->batches.items[0].batch,
                              .checkpointing = c->checkpointing,
                              .partition = c->partition,
                              .optimizer = c->optimizer,
                              .fp8 = c->transformer_dtype == PLAN_DPIPE_FP8,
                              .blocks_to_swap = c->blocks_to_swap};
  int halvings = 0;
  for (bool even = sim_adviser_batch_is_listed(a); even && halvings < MAX_SHIFT; halvings += even)
    for (size_t i = 0; i < c->batches.count; i++) even = even && (c->batches.items[i].batch >> halvings) % 2 == 0;
  a->least_shift = -halvings;
  a->units_of_batch = now->accumulation * now->replicas * (now->micro_batch ? now->micro_batch : 1);
  if (c->gradient_release && now->replicas > 1)
    return dp_fail_at(
        a->error, plan_dpipe_node(c, "optimizer", "gradient_release"),
        "optimizer.gradient_release: found true with %d replicas, allowed: only with pipeline_stages = %d, "
        "the GPUs",
        now->replicas, gpus);
  if (c->blocks_to_swap > most_swapped(a))
    return dp_fail_at(a->error, plan_dpipe_node(c, NULL, "blocks_to_swap"),
                      "config.blocks_to_swap: found %lld, allowed: at most %lld", (long long)c->blocks_to_swap,
                      (long long)most_swapped(a));
  if (c->partition != PLAN_DPIPE_MANUAL) return sim_adviser_cut(a, c->partition, now->stages, &now->split);
  now->split = c->split;
  if (c->split_count && c->split[c->split_count - 1] >= layers)
    return dp_fail_at(a->error, plan_dpipe_node(c, NULL, "partition_split"),
                      "config.partition_split: found %lld, allowed: 1 to %d, the last layer",
                      (long long)c->split[c->split_count - 1], layers - 1);
  return DP_OK;
}

static dp_status advise(sim_adviser *a) {
  sim_advise_result *out = a->out;
  DP_TRY(choose_rows(a));
  DP_TRY(sim_adviser_open(a));
  DP_TRY(read_now(a));
  DP_TRY(sim_adviser_mix(a, &out->now, false, true, &out->mix));
  search s = {.a = a, .now = &out->now};
  found split = {0};
  DP_TRY(search_from(&s, &out->now));
  if (out->now.stages > 1) DP_TRY(look_for_split(&s, &split));
  sim_advise_setting whole = out->now;
  whole.blocks_to_swap = 0;
  if (out->now.blocks_to_swap) DP_TRY(search_from(&s, &whole));
  if (!s.fastest.any) DP_TRY(search_further(&s, &a->units_of_batch));
  out->any_fits = s.fastest.any;
  if (!s.fastest.any) return sim_adviser_note(a);
  DP_TRY(sim_adviser_reduce(a, &s.fastest.setting, &s.fastest.mix));
  if (out->mix.fits &&
      s.fastest.mix.throughput_samples_per_s < (1 + SIM_ADVISE_WORTH) * out->mix.throughput_samples_per_s)
    s.fastest.setting = out->now;
  DP_TRY(sim_adviser_propose(a, &s.fastest.setting, &out->fastest));
  if (out->mix.fits) {
    out->smallest = out->fastest;
  } else {
    DP_TRY(sim_adviser_reduce(a, &s.smallest.setting, &s.smallest.mix));
    DP_TRY(sim_adviser_propose(a, &s.smallest.setting, &out->smallest));
  }
  if (split.any && split.mix.fits && !sim_adviser_same_split(&split.setting, &out->now)) {
    DP_TRY(sim_adviser_propose(a, &split.setting, &out->split));
    out->has_split = !out->mix.fits || out->split.gain >= SIM_ADVISE_WORTH;
  }
  DP_TRY(sim_adviser_look_beyond(a));
  return sim_adviser_note(a);
}

dp_status sim_advise(const plan_dpipe *config, const sim_efficiency *efficiency, const sim_advise_options *options,
                     plan_scenario *scenario, sim_advise_result *result, dp_error *error) {
  memset(scenario, 0, sizeof *scenario);
  memset(result, 0, sizeof *result);
  sim_adviser a = {.config = config,
                   .efficiency = efficiency,
                   .options = options,
                   .scenario = scenario,
                   .out = result,
                   .error = error};
  const dp_status status = advise(&a);
  sim_adviser_close(&a);
  if (status == DP_OK) return DP_OK;
  sim_advise_result_free(result);
  plan_scenario_free(scenario);
  return status;
}

void sim_advise_result_free(sim_advise_result *result) {
  dp_arena_free(&result->arena);
  *result = (sim_advise_result){0};
}
