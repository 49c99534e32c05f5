/* What the answer of a search says: the front, the neighbours, and why they lost. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "sim/tune_search.h"

static const char *recompute_text(const sim_candidate *c, char out[48]) {
  if (c->recompute == PLAN_RECOMPUTE_NONE || (c->recompute == PLAN_RECOMPUTE_AUTO && c->recomputed_units == 0))
    return "nothing recomputed";
  if (c->recompute == PLAN_RECOMPUTE_ALL) return "all recomputed";
  if (c->recomputed_units < 0) return "recomputed as needed";
  (void)snprintf(out, 48, "%d unit%s recomputed", c->recomputed_units, c->recomputed_units == 1 ? "" : "s");
  return out;
}

static bool override_is(const sim_candidate *c, int i, plan_skip_policy policy) {
  return strcmp(strrchr(c->skips[i], '=') + 1, plan_skip_policy_names[policy]) == 0;
}

int sim_candidate_lossiness(const sim_candidate *c) {
  int compressed = 0;
  for (int i = 0; i < c->skip_count; i++) compressed += override_is(c, i, PLAN_SKIP_COMPRESS);
  return c->skip_policy == PLAN_SKIP_COMPRESS ? INT_MAX - c->skip_count + compressed : compressed;
}

/* "skips direct", "skips direct, of 2 units relay, of 1 compress to K = 4096 (quality not measured)" */
static void skips_text(const sim_candidate *c, char out[160]) {
  size_t length = (size_t)snprintf(out, 160, "skips %s", plan_skip_policy_names[c->skip_policy]);
  for (int policy = 0; policy < PLAN_SKIP_POLICY_COUNT; policy++) {
    int count = 0;
    for (int i = 0; i < c->skip_count; i++) count += override_is(c, i, (plan_skip_policy)policy);
    if (count && length < 160)
      length += (size_t)snprintf(out + length, 160 - length, ", of %d unit%s %s", count, count == 1 ? "" : "s",
                                 plan_skip_policy_names[policy]);
  }
  if (c->k && length < 160)
    (void)snprintf(out + length, 160 - length, " to K = %lld (quality not measured)", (long long)c->k);
}

const char *sim_candidate_show(const sim_candidate *c, char out[256]) {
  char chunks[32] = "", skips[160], again[48], tensor[32] = "", by[64] = "";
  if (sim_candidate_tensor(c) > 1) (void)snprintf(tensor, sizeof tensor, " x %d tensor members", c->tensor);
  if (c->schedule == PLAN_INTERLEAVED) (void)snprintf(chunks, sizeof chunks, " with %d chunks", c->chunks);
  if (c->even_split) (void)snprintf(chunks, sizeof chunks, " in even chunks");
  skips_text(c, skips);
  if (c->own_transport && c->nccl_sms)
    (void)snprintf(by, sizeof by, ", transport %s, %d SMs for NCCL", plan_transport_names[c->transport], c->nccl_sms);
  else if (c->own_transport)
    (void)snprintf(by, sizeof by, ", transport %s", plan_transport_names[c->transport]);
  (void)snprintf(out, 256, "%d stage%s%s x %d replica%s, %s%s, %d microbatch%s of %d, %s, %s%s", c->stages,
                 c->stages == 1 ? "" : "s", tensor, c->replicas, c->replicas == 1 ? "" : "s",
                 plan_schedule_names[c->schedule], chunks, c->microbatches, c->microbatches == 1 ? "" : "es",
                 c->microbatch_size, recompute_text(c, again), skips, by);
  return out;
}

const char *sim_candidate_brief(const sim_candidate *c, char out[128]) {
  char chunks[16] = "", skips[40] = "", tensor[16] = "", again[32] = "", by[24] = "";
  if (c->own_transport && c->nccl_sms)
    (void)snprintf(by, sizeof by, " %s/%d", plan_transport_names[c->transport], c->nccl_sms);
  else if (c->own_transport)
    (void)snprintf(by, sizeof by, " %s", plan_transport_names[c->transport]);
  if (sim_candidate_tensor(c) > 1) (void)snprintf(tensor, sizeof tensor, "/T%d", c->tensor);
  if (c->schedule == PLAN_INTERLEAVED) (void)snprintf(chunks, sizeof chunks, "/%d", c->chunks);
  if (c->even_split) (void)snprintf(chunks, sizeof chunks, "/even");
  if (c->k) (void)snprintf(skips, sizeof skips, " K=%lld lossy", (long long)c->k);
  if (c->recompute == PLAN_RECOMPUTE_ALL)
    (void)snprintf(again, sizeof again, " recomputed");
  else if (c->recompute == PLAN_RECOMPUTE_AUTO && c->recomputed_units > 0)
    (void)snprintf(again, sizeof again, " %d recomputed", c->recomputed_units);
  (void)snprintf(out, 128, "%d%sx%d %s%s %dx%d%s%s%s", c->stages, tensor, c->replicas, plan_schedule_names[c->schedule],
                 chunks, c->microbatches, c->microbatch_size, again, skips, by);
  return out;
}

plan_split_way sim_candidate_split(const sim_candidate *c) {
  if (c->schedule != PLAN_FOLDED || c->stages == 1) return PLAN_SPLIT_AUTO;
  return c->even_split ? PLAN_SPLIT_EVEN : PLAN_SPLIT_BALANCED;
}

sim_candidate sim_candidate_of_plan(const plan_scenario *scenario, const sim_prediction *prediction) {
  const plan_plan *plan = &prediction->plan;
  return (sim_candidate){
      .stages = plan->ranks,
      .replicas = plan->replicas,
      .tensor = plan_tensor(plan),
      .chunks = plan->chunks_per_rank,
      .microbatches = plan->microbatches,
      .microbatch_size = plan->microbatch_size,
      .schedule = plan->schedule,
      .even_split = prediction->split_way == PLAN_SPLIT_EVEN && plan->schedule == PLAN_FOLDED,
      .skip_policy = plan->skip_policy,
      .k = plan->k,
      .recompute = scenario->recompute < PLAN_RECOMPUTE_CHOICES ? scenario->recompute : PLAN_RECOMPUTE_AUTO,
      .skips = scenario->skips,
      .skip_count = (int)scenario->skip_count,
      .recomputed_units = -1};
}

int sim_candidate_differences(const sim_candidate *a, const sim_candidate *b) {
  const bool schedule = a->schedule != b->schedule || a->chunks != b->chunks || a->even_split != b->even_split;
  const bool policy = a->skip_policy != b->skip_policy || (a->k != b->k && a->skip_count == b->skip_count);
  const bool tensor = sim_candidate_tensor(a) != sim_candidate_tensor(b);
  const int count = (a->stages != b->stages) + (a->replicas != b->replicas) + tensor + schedule +
                    (a->microbatch_size != b->microbatch_size) + policy + (a->recompute != b->recompute) +
                    (a->transport != b->transport || a->nccl_sms != b->nccl_sms);
  if (count > 0) return count;
  bool skips = a->skip_count != b->skip_count;
  for (int i = 0; i < a->skip_count && !skips; i++) skips = strcmp(a->skips[i], b->skips[i]) != 0;
  return skips;
}

const char *sim_shortage_show(const sim_shortage *s, char out[128]) {
  (void)snprintf(out, 128, "worker %d needs %.1f of %.1f GB, %.1f of it activations", s->worker,
                 (double)s->peak_bytes / 1e9, (double)s->limit_bytes / 1e9, (double)s->activation_bytes / 1e9);
  return out;
}

#define HOST_BOUND_SHARE 0.25 /* of all devices' time spent waiting for the host */

static bool host_bound(const sim_trial *trial) {
  return trial->state == SIM_TRIAL_SIMULATED && trial->bound_name && strcmp(trial->bound_name, SIM_BOUND_HOST) == 0 &&
         trial->bound_share >= HOST_BOUND_SHARE;
}

/* The least microbatch size of the same plan at which it no longer waits most for its host; 0: not known. */
static int size_without_host_bound(const sim_tune_result *result, const sim_trial *trial) {
  int least = 0;
  for (int i = 0; i < result->trial_count; i++) {
    const sim_trial *other = &result->trials[i];
    const int size = other->candidate.microbatch_size;
    if (other->state != SIM_TRIAL_SIMULATED || host_bound(other) || size <= trial->candidate.microbatch_size) continue;
    sim_candidate same = other->candidate;
    same.microbatch_size = trial->candidate.microbatch_size;
    if (sim_candidate_differences(&same, &trial->candidate) == 0 && (least == 0 || size < least)) least = size;
  }
  return least;
}

/* result NULL: nothing is known of other trials */
static const char *why_slower(dp_arena *arena, const sim_tune_result *result, const sim_trial *trial,
                              const sim_trial *best) {
  const double slower = 100 * (trial->step_s / best->step_s - 1);
  const int workers = sim_candidate_workers(&trial->candidate);
  const int best_workers = sim_candidate_workers(&best->candidate);
  const int percent = (int)(100 * trial->bound_share + 0.5);
  if (workers < best_workers)
    return dp_arena_printf(arena, "slower by %.1f %%: %d of %d devices work", slower, workers, best_workers);
  if (host_bound(trial)) {
    const int size = result ? size_without_host_bound(result, trial) : 0;
    if (size > 0)
      return dp_arena_printf(arena, "slower by %.1f %%: host-bound below microbatches of %d, %s %d %%", slower, size,
                             trial->bound_name, percent);
    return dp_arena_printf(arena, "slower by %.1f %%: host-bound, %s %d %%", slower, trial->bound_name, percent);
  }
  const sim_shortage *without = &trial->without_recomputation;
  if (without->peak_bytes > 0 && trial->candidate.recomputed_units > 0)
    return dp_arena_printf(arena, "slower by %.1f %%: %d unit%s recomputed, else worker %d needs %.1f of %.1f GB",
                           slower, trial->candidate.recomputed_units, trial->candidate.recomputed_units == 1 ? "" : "s",
                           without->worker, (double)without->peak_bytes / 1e9, (double)without->limit_bytes / 1e9);
  if (trial->candidate.recompute == PLAN_RECOMPUTE_ALL && best->candidate.recompute != PLAN_RECOMPUTE_ALL)
    return dp_arena_printf(arena, "slower by %.1f %%: every forward is computed twice", slower);
  /* what it waits for does not account for the half of it */
  if (!trial->bound_name || trial->bound_share < 0.5 * slower / (100 + slower)) {
    if (trial->candidate.microbatch_size < best->candidate.microbatch_size)
      return dp_arena_printf(arena, "slower by %.1f %%: computing takes longer in microbatches of %d than of %d",
                             slower, trial->candidate.microbatch_size, best->candidate.microbatch_size);
    return dp_arena_printf(arena, "slower by %.1f %%: computing takes longer", slower);
  }
  return dp_arena_printf(arena, "slower by %.1f %%: %s %d %%", slower, trial->bound_name, percent);
}

static const char *why_lost(dp_arena *arena, const sim_tune_result *result, const sim_trial *trial,
                            const sim_trial *best) {
  char shortage[128];
  switch (trial->state) {
    case SIM_TRIAL_WAITING:
      return "not looked at: the search was stopped";
    case SIM_TRIAL_TOO_LARGE:
      return trial->why;
    case SIM_TRIAL_REFUSED:
      return dp_arena_printf(arena, "cannot be: %s", trial->why ? trial->why : "");
    case SIM_TRIAL_PRUNED:
      return dp_arena_printf(arena, "slower by at least %.1f %%, even without transfers and idle hosts",
                             100 * (trial->bound_s / best->step_s - 1));
    case SIM_TRIAL_SIMULATED:
      break;
  }
  if (!trial->fits) return dp_arena_printf(arena, "does not fit: %s", sim_shortage_show(&trial->tightest, shortage));
  const double slower = 100 * (trial->step_s / best->step_s - 1);
  if (slower < 1e-7)
    return dp_arena_printf(arena, "as fast, with %.1f instead of %.1f GB on the fullest worker%s",
                           (double)trial->peak_bytes / 1e9, (double)best->peak_bytes / 1e9,
                           sim_candidate_lossiness(&trial->candidate) > 0 ? ", and lossy" : "");
  return why_slower(arena, result, trial, best);
}

const char *sim_trial_why_lost(const sim_trial *trial, const sim_trial *best, dp_arena *arena) {
  return why_lost(arena, NULL, trial, best);
}

static bool dominates(const sim_trial *a, const sim_trial *b) {
  const bool no_worse = a->throughput_samples_per_s >= b->throughput_samples_per_s && a->peak_bytes <= b->peak_bytes &&
                        a->usd_per_million_samples <= b->usd_per_million_samples;
  const bool better = a->throughput_samples_per_s > b->throughput_samples_per_s || a->peak_bytes < b->peak_bytes ||
                      a->usd_per_million_samples < b->usd_per_million_samples;
  return no_worse && better;
}

dp_status sim_tune_sum_up(sim_tune_result *result, dp_error *error) {
  result->front = DP_ARENA_NEW(&result->arena, int, (size_t)result->trial_count);
  result->neighbours = DP_ARENA_NEW(&result->arena, int, (size_t)result->trial_count);
  if (!result->front || !result->neighbours) return dp_fail_memory(error);
  for (int i = 0; i < result->trial_count; i++) {
    sim_trial *trial = &result->trials[i];
    result->simulated += trial->state == SIM_TRIAL_SIMULATED;
    result->pruned += trial->state == SIM_TRIAL_PRUNED;
    result->too_large += trial->state == SIM_TRIAL_TOO_LARGE;
    result->refused += trial->state == SIM_TRIAL_REFUSED;
  }
  if (result->best < 0) return DP_OK;
  const sim_trial *best = &result->trials[result->best];
  for (int i = 0; i < result->trial_count; i++) {
    sim_trial *trial = &result->trials[i];
    trial->why = i == result->best ? "" : why_lost(&result->arena, result, trial, best);
    if (!trial->why) return dp_fail_memory(error);
    if (trial->set_aside) continue;
    if (i != result->best && sim_candidate_differences(&trial->candidate, &best->candidate) == 1)
      result->neighbours[result->neighbour_count++] = i;
    if (trial->state != SIM_TRIAL_SIMULATED || !trial->fits) continue;
    bool on_front = true;
    for (int j = 0; j < result->trial_count && on_front; j++) {
      const sim_trial *other = &result->trials[j];
      if (other->state == SIM_TRIAL_SIMULATED && other->fits && !other->set_aside && dominates(other, trial))
        on_front = false;
    }
    if (on_front) result->front[result->front_count++] = i;
  }
  for (int i = 1; i < result->front_count; i++) /* best throughput first; stable */
    for (int j = i; j > 0 && result->trials[result->front[j]].throughput_samples_per_s >
                                 result->trials[result->front[j - 1]].throughput_samples_per_s;
         j--) {
      const int swap = result->front[j];
      result->front[j] = result->front[j - 1];
      result->front[j - 1] = swap;
    }
  return DP_OK;
}
