/* Policies by skip tensor: the best plan of the search has one policy for all its skips; which of them gain by another?
 */
#include <stdlib.h>
#include <string.h>

#include "plan/traffic.h"
#include "sim/tune_search.h"

enum { MOST_UNITS = 16 };
#define LEAST_GAIN 1e-3 /* less is not worth a policy of its own */

/* A unit whose skips travel. */
typedef struct traveller {
  int unit;
  const char *name;
  int64_t bytes; /* of a microbatch, forward, all hops */
} traveller;

/* A change that was tried alone. */
typedef struct change {
  int traveller, trial;
  int policy;
  int64_t k;
} change;

typedef struct refining {
  sim_search *search;
  traveller travellers[MOST_UNITS];
  int traveller_count;
  bool allowed[PLAN_SKIP_POLICY_COUNT];
  int base; /* the trial that is refined */
} refining;

static int by_bytes(const void *left, const void *right) {
  const traveller *a = left, *b = right;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return (a->unit > b->unit) - (a->unit < b->unit);
}

static dp_status count_travellers(refining *r, const sim_prediction *p) {
  const plan_program *program = &p->program;
  const graph *g = &p->graph;
  dp_arena *arena = &r->search->result->arena;
  traveller *all = DP_ARENA_NEW(r->search->space->arena, traveller, g->units.count);
  int *chunk_of_unit = DP_ARENA_NEW(r->search->space->arena, int, g->units.count);
  if (!all || !chunk_of_unit) return DP_NO_MEMORY;
  for (int c = 0; c < p->plan.chunk_count; c++)
    for (int u = 0; u < p->plan.chunks[c].unit_count; u++) chunk_of_unit[p->plan.chunks[c].first_unit + u] = c;
  for (uint32_t m = 0; m < program->message_count; m++) {
    const plan_message *message = &program->messages[m];
    if (message->backward || message->from_worker >= (uint32_t)p->plan.ranks) continue;
    for (int i = message->first_tensor; i < message->first_tensor + message->tensor_count; i++) {
      const int tensor = program->message_tensors[i];
      const graph_tensor *t = &g->tensors.items[tensor];
      if (plan_traffic_kind(g, chunk_of_unit, message->from_chunk, message->to_chunk, tensor) != PLAN_TRAFFIC_SKIP ||
          graph_tensor_is_vector(t))
        continue;
      all[t->producer_unit].unit = t->producer_unit;
      all[t->producer_unit].bytes += t->bytes;
    }
  }
  qsort(all, g->units.count, sizeof *all, by_bytes);
  while (r->traveller_count < MOST_UNITS && (size_t)r->traveller_count < g->units.count &&
         all[r->traveller_count].bytes > 0) {
    traveller *t = &r->travellers[r->traveller_count++];
    *t = all[r->traveller_count - 1];
    t->name = dp_arena_strdup(arena, g->units.items[t->unit].name);
    if (!t->name) return DP_NO_MEMORY;
  }
  return DP_OK;
}

static dp_status find_travellers(refining *r) {
  sim_search *s = r->search;
  const sim_candidate *candidate = &s->result->trials[r->base].candidate;
  const plan_scenario changed = sim_tune_scenario(s->scenario, candidate, s->space->global_batch);
  sim_prediction prediction;
  dp_error error = DP_ERROR_INIT;
  DP_TRY(sim_predict_prepared(&changed, &sim_space_cost(s->space, candidate)->prepared, &prediction, &error));
  const dp_status status = count_travellers(r, &prediction);
  sim_prediction_free(&prediction);
  return status;
}

/* A trial that is `from` with one more unit's policy. -1: no room left; *status. */
static int add_trial(const refining *r, int from, const char *unit, int policy, int64_t k, dp_status *status) {
  sim_tune_result *result = r->search->result;
  const size_t most = r->search->space->candidates.count + SIM_REFINING_TRIALS;
  if ((size_t)result->trial_count >= most) return -1;
  const sim_candidate *old = &result->trials[from].candidate;
  const char **skips = DP_ARENA_NEW(&result->arena, const char *, (size_t)old->skip_count + 1);
  const char *text = dp_arena_printf(&result->arena, "%s=%s", unit, plan_skip_policy_names[policy]);
  if (!skips || !text) {
    *status = DP_NO_MEMORY;
    return -1;
  }
  for (int i = 0; i < old->skip_count; i++) skips[i] = old->skips[i];
  skips[old->skip_count] = text;
  sim_trial *trial = &result->trials[result->trial_count];
  *trial = (sim_trial){.candidate = *old, .set_aside = true};
  result->refining_trials++;
  trial->candidate.skips = skips;
  trial->candidate.skip_count = old->skip_count + 1;
  trial->candidate.recomputed_units = -1;
  if (k) trial->candidate.k = k;
  return result->trial_count++;
}

/* Whether `trial` is worth taking instead of `than`: faster; or exact where that was lossy, and no slower. */
static bool helps(const sim_tune_result *result, int trial, int than, bool towards_exact) {
  const sim_trial *t = &result->trials[trial], *old = &result->trials[than];
  if (t->state != SIM_TRIAL_SIMULATED || !t->fits) return false;
  return towards_exact ? t->step_s <= old->step_s * (1 + 1e-9) : t->step_s < old->step_s * (1 - LEAST_GAIN);
}

static int by_gain(const sim_tune_result *result, const change *a, const change *b) {
  const double x = result->trials[a->trial].step_s, y = result->trials[b->trial].step_s;
  if (x != y) return x < y ? -1 : 1;
  return (a->trial > b->trial) - (a->trial < b->trial);
}

/* Tries every change alone, then takes the helpful ones together, one by one as long as they help. */
static dp_status try_changes(refining *r) {
  sim_search *s = r->search;
  sim_tune_result *result = s->result;
  const sim_candidate base = result->trials[r->base].candidate;
  const bool was_lossy = base.skip_policy == PLAN_SKIP_COMPRESS;
  change changes[SIM_REFINING_TRIALS];
  int list[SIM_REFINING_TRIALS], count = 0;
  dp_status status = DP_OK;
  for (int t = 0; t < r->traveller_count; t++)
    for (int policy = 0; policy < PLAN_SKIP_POLICY_COUNT; policy++) {
      if (policy == (int)base.skip_policy || !r->allowed[policy]) continue;
      const bool lossy = policy == PLAN_SKIP_COMPRESS;
      const size_t choices = lossy ? s->space->ks.count : 1;
      for (size_t i = 0; i < choices && count < SIM_REFINING_TRIALS * 2 / 3; i++) {
        const int64_t k = lossy ? s->space->ks.values[i] : 0;
        const int trial = add_trial(r, r->base, r->travellers[t].name, policy, k, &status);
        if (trial < 0) return status;
        list[count] = trial;
        changes[count++] = (change){t, trial, policy, k};
      }
    }
  DP_TRY(sim_search_run(s, list, count));
  for (int i = 1; i < count; i++) /* most helpful first; stable */
    for (int j = i; j > 0 && by_gain(result, &changes[j], &changes[j - 1]) < 0; j--) {
      const change swap = changes[j];
      changes[j] = changes[j - 1];
      changes[j - 1] = swap;
    }
  int best = r->base;
  bool changed[MOST_UNITS] = {false};
  int64_t k = base.k;
  for (int i = 0; i < count; i++) {
    const change *c = &changes[i];
    const bool towards_exact = was_lossy && c->policy != PLAN_SKIP_COMPRESS;
    if (changed[c->traveller] || !helps(result, c->trial, r->base, towards_exact) || (c->k && k && c->k != k)) continue;
    int trial = c->trial;
    if (best != r->base) {
      trial = add_trial(r, best, r->travellers[c->traveller].name, c->policy, c->k, &status);
      if (trial < 0) break;
      DP_TRY(sim_search_run(s, &trial, 1));
      if (!helps(result, trial, best, towards_exact)) continue;
    }
    best = trial;
    changed[c->traveller] = true;
    if (c->k) k = c->k;
  }
  result->trials[best].set_aside = false;
  return sim_search_run(s, NULL, 0); /* finds the best anew */
}

dp_status sim_tune_refine(sim_search *s) {
  refining r = {.search = s, .base = s->result->best};
  const sim_candidate *best = &s->result->trials[r.base].candidate;
  if (best->stages == 1) return DP_OK;
  /* [search] skip_policies bounds this, too; without it exact ones, and compress where lossy skips are allowed */
  const bool free_choice = dp_node_get(s->scenario->search, "skip_policies") == NULL;
  r.allowed[PLAN_SKIP_DIRECT] = r.allowed[PLAN_SKIP_RELAY] = free_choice;
  for (size_t i = 0; i < s->space->policies.count; i++) r.allowed[s->space->policies.values[i]] = true;
  r.allowed[PLAN_SKIP_LOCAL] = false;
  r.allowed[PLAN_SKIP_COMPRESS] = s->space->ks.count > 0;
  DP_TRY(find_travellers(&r));
  return r.traveller_count ? try_changes(&r) : DP_OK;
}
