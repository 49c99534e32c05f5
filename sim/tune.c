#define _POSIX_C_SOURCE 200809L
#include "sim/tune.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/schema.h"

enum { ROUND = 16, MAX_THREADS = 16 };

/* ---- candidates ---- */

typedef struct list {
  int64_t *values;
  size_t count;
} list;

typedef struct space {
  const plan_scenario *scenario;
  dp_arena *arena;
  dp_error *error;
  int64_t devices, global_batch;
  list stages, replicas, chunks, sizes, schedules, policies, ks;
  bool recompute[2]; /* none, all */
  DP_ARRAY(sim_candidate) candidates;
  struct size_cost *costs;
  size_t cost_count;
} space;

static dp_status read_list(space *s, const char *key, list *out) {
  const dp_node *node = dp_node_get(s->scenario->search, key);
  if (!node) return DP_OK;
  return dp_schema_read_integers(node, key, 1, INT64_MAX, s->arena, &out->values, &out->count, s->error);
}

/* A list of names as indices into `choices`; plan_scenario_read has checked them. */
static dp_status read_names(space *s, const char *key, const char *const *choices, list *out) {
  const dp_node *node = dp_node_get(s->scenario->search, key);
  if (!node) return DP_OK;
  const size_t count = node->kind == DP_NODE_ARRAY ? node->count : 1;
  out->values = DP_ARENA_NEW(s->arena, int64_t, count);
  if (!out->values) return dp_fail_memory(s->error);
  for (size_t i = 0; i < count; i++) {
    const dp_node *item = node->kind == DP_NODE_ARRAY ? node->items[i] : node;
    for (int c = 0; choices[c]; c++)
      if (strcmp(choices[c], item->string) == 0) out->values[out->count++] = c;
  }
  return DP_OK;
}

static dp_status fill_list(space *s, list *out, int64_t first, int64_t last, bool doubling) {
  if (out->count) return DP_OK;
  size_t count = 0;
  for (int64_t x = first; x <= last; x = doubling ? 2 * x : x + 1) count++;
  out->values = DP_ARENA_NEW(s->arena, int64_t, count ? count : 1);
  if (!out->values) return dp_fail_memory(s->error);
  for (int64_t x = first; x <= last; x = doubling ? 2 * x : x + 1) out->values[out->count++] = x;
  return DP_OK;
}

static dp_status read_recompute(space *s) {
  const dp_node *node = dp_node_get(s->scenario->search, "recompute");
  s->recompute[0] = s->recompute[1] = !node;
  const size_t count = !node ? 0 : node->kind == DP_NODE_ARRAY ? node->count : 1;
  for (size_t i = 0; i < count; i++) {
    const char *name = (node->kind == DP_NODE_ARRAY ? node->items[i] : node)->string;
    if (strcmp(name, "none") == 0 || strcmp(name, "auto") == 0) s->recompute[0] = true;
    if (strcmp(name, "all") == 0 || strcmp(name, "auto") == 0) s->recompute[1] = true;
  }
  if (!s->scenario->training || s->scenario->synthetic) s->recompute[1] = !s->recompute[0];
  return DP_OK;
}

static dp_status read_space(space *s) {
  const dp_node *search = s->scenario->search;
  const dp_node *max_stages = dp_node_get(search, "max_stages"), *lossy = dp_node_get(search, "allow_lossy_skips");
  const int64_t most = max_stages && max_stages->integer < s->devices ? max_stages->integer : s->devices;
  DP_TRY(read_list(s, "stages", &s->stages));
  DP_TRY(read_list(s, "data_parallel", &s->replicas));
  DP_TRY(read_list(s, "chunks", &s->chunks));
  DP_TRY(read_list(s, "microbatch_sizes", &s->sizes));
  DP_TRY(read_list(s, "k", &s->ks));
  DP_TRY(read_names(s, "schedules", plan_schedule_names, &s->schedules));
  DP_TRY(read_names(s, "skip_policies", plan_skip_policy_names, &s->policies));
  DP_TRY(fill_list(s, &s->stages, 1, most, s->devices > 16));
  DP_TRY(fill_list(s, &s->replicas, 1, s->devices, s->devices > 16));
  DP_TRY(fill_list(s, &s->chunks, 2, 4, true));
  DP_TRY(fill_list(s, &s->sizes, 1, s->global_batch < 64 ? s->global_batch : 64, true));
  DP_TRY(fill_list(s, &s->schedules, 0, PLAN_SCHEDULE_COUNT - 1, false));
  DP_TRY(fill_list(s, &s->policies, PLAN_SKIP_DIRECT, PLAN_SKIP_DIRECT, false));
  if (!(lossy && lossy->boolean)) s->ks.count = 0; /* lossy only where it was allowed */
  return read_recompute(s);
}

static dp_status add(space *s, const sim_candidate *candidate) {
  sim_candidate copy = *candidate;
  if (copy.skip_policy != PLAN_SKIP_COMPRESS) {
    copy.k = 0;
    return dp_array_push(&s->candidates, copy) ? DP_OK : dp_fail_memory(s->error);
  }
  for (size_t i = 0; i < s->ks.count; i++) {
    copy.k = s->ks.values[i];
    if (!dp_array_push(&s->candidates, copy)) return dp_fail_memory(s->error);
  }
  return DP_OK;
}

/* All policies of one layout; compress joins whenever lossy skips are allowed and K is given. */
static dp_status add_policies(space *s, sim_candidate *candidate) {
  bool compress = false;
  const size_t count = candidate->stages == 1 ? 1 : s->policies.count; /* one stage sends nothing */
  for (size_t i = 0; i < count; i++) {
    candidate->skip_policy = (plan_skip_policy)s->policies.values[i];
    compress = compress || candidate->skip_policy == PLAN_SKIP_COMPRESS;
    DP_TRY(add(s, candidate));
  }
  if (compress || candidate->stages == 1 || !s->ks.count) return DP_OK;
  candidate->skip_policy = PLAN_SKIP_COMPRESS;
  return add(s, candidate);
}

static dp_status add_chunks(space *s, sim_candidate *candidate) {
  const bool v_shaped = candidate->schedule == PLAN_FOLDED || candidate->schedule == PLAN_ZB_V;
  if (candidate->schedule != PLAN_INTERLEAVED) {
    candidate->chunks = v_shaped ? 2 : 1;
    return add_policies(s, candidate);
  }
  for (size_t i = 0; i < s->chunks.count; i++) {
    candidate->chunks = (int)s->chunks.values[i];
    if (candidate->chunks > 1) DP_TRY(add_policies(s, candidate));
  }
  return DP_OK;
}

static bool schedule_makes_sense(const plan_scenario *scenario, int64_t schedule, int64_t stages) {
  if (stages == 1) return schedule == PLAN_1F1B; /* the others are the same */
  return scenario->training || (schedule != PLAN_ZB_H1 && schedule != PLAN_ZB_V && schedule != PLAN_GPIPE);
}

static dp_status enumerate(space *s) {
  for (size_t r = 0; r < s->replicas.count; r++)
    for (size_t p = 0; p < s->stages.count; p++) {
      const int64_t replicas = s->replicas.values[r], stages = s->stages.values[p];
      if (stages * replicas > s->devices || s->global_batch % replicas) continue;
      for (size_t b = 0; b < s->sizes.count; b++) {
        const int64_t size = s->sizes.values[b], each = s->global_batch / replicas;
        if (size > each || each % size) continue;
        for (size_t c = 0; c < s->schedules.count; c++) {
          if (!schedule_makes_sense(s->scenario, s->schedules.values[c], stages)) continue;
          for (int again = 0; again < 2; again++) {
            if (!s->recompute[again]) continue;
            sim_candidate candidate = {.stages = (int)stages,
                                       .replicas = (int)replicas,
                                       .microbatches = (int)(each / size),
                                       .microbatch_size = (int)size,
                                       .schedule = (plan_schedule)s->schedules.values[c],
                                       .recompute = again == 1};
            DP_TRY(add_chunks(s, &candidate));
          }
        }
      }
    }
  if (s->candidates.count == 0)
    return dp_fail_at(
        s->error, s->scenario->search ? s->scenario->search : s->scenario->document.root,
        "[search]: found no plan to try for a global batch of %lld on %lld devices, allowed: lists with a number "
        "of replicas and a microbatch size that divide it",
        (long long)s->global_batch, (long long)s->devices);
  return DP_OK;
}

/* ---- bounds ---- */

/* What all candidates of one microbatch size share. */
typedef struct size_cost {
  sim_prepared prepared;
  double forward_s, backward_s; /* of one microbatch on the fastest device */
} size_cost;

static dp_status cost_size(const plan_scenario *scenario, const sim_efficiency *efficiency, int64_t size,
                           size_cost *cost, dp_error *error) {
  DP_TRY(sim_prepare(scenario, efficiency, size, &cost->prepared, error));
  cost->forward_s = cost->backward_s = INFINITY;
  for (int k = 0; k < cost->prepared.kind_count; k++) {
    const sim_unit_cost *units = cost->prepared.kinds[k].units;
    double forward_s = 0, backward_s = 0;
    for (size_t u = 0; u < cost->prepared.model.units.count; u++) {
      forward_s += units[u].device_s[SIM_FORWARD];
      backward_s += units[u].device_s[SIM_BACKWARD_INPUT] + units[u].device_s[SIM_BACKWARD_WEIGHT];
    }
    if (forward_s + backward_s < cost->forward_s + cost->backward_s) {
      cost->forward_s = forward_s;
      cost->backward_s = backward_s;
    }
  }
  return DP_OK;
}

static double bound_of(const plan_scenario *scenario, const sim_candidate *c, const size_cost *cost) {
  const double p = c->stages, m = (double)c->microbatches * (scenario->training ? 1 : (double)scenario->steps);
  double t = cost->forward_s;
  if (scenario->training) t += cost->backward_s + (c->recompute ? cost->forward_s : 0);
  const bool flushed = scenario->training && (c->schedule == PLAN_GPIPE || c->schedule == PLAN_1F1B);
  const double bound = flushed ? t + (m - 1) * t / p : fmax(t, m * t / p);
  return bound * (1 - 1e-9); /* sums in another order must not prune the best */
}

/* ---- trials ---- */

plan_scenario sim_tune_scenario(const plan_scenario *scenario, const sim_candidate *c, int64_t global_batch) {
  plan_scenario changed = *scenario;
  changed.global_batch = global_batch;
  changed.stages = c->stages;
  changed.data_parallel = c->replicas;
  changed.chunks = c->chunks;
  changed.microbatches = c->microbatches;
  changed.microbatch_size = c->microbatch_size;
  changed.schedule = (int)c->schedule;
  changed.skip_policy = (int)c->skip_policy;
  changed.k = c->k;
  changed.recompute_all = c->recompute;
  changed.recompute_node = NULL;
  changed.split = NULL;
  changed.split_count = 0;
  return changed;
}

int64_t sim_tune_global_batch(const plan_scenario *scenario, dp_error *error) {
  if (scenario->global_batch) return scenario->global_batch;
  plan_plan plan;
  memset(&plan, 0, sizeof plan);
  if (plan_scenario_plan(scenario, &plan, error) != DP_OK) return 0;
  const int64_t batch = (int64_t)plan.microbatches * plan.microbatch_size * plan.replicas;
  plan_plan_free(&plan);
  return batch;
}

typedef struct search {
  const plan_scenario *scenario;
  const size_cost *sizes;
  sim_tune_result *result;
  int64_t global_batch;
  const int *order; /* trial indices by bound */
  int first, count; /* the round: positions in order */
  atomic_int next;
  atomic_bool out_of_memory;
  pthread_mutex_t arena_lock;
} search;

static const char *keep_text(search *s, const char *text) {
  (void)pthread_mutex_lock(&s->arena_lock);
  const char *kept = dp_arena_strdup(&s->result->arena, text);
  (void)pthread_mutex_unlock(&s->arena_lock);
  return kept ? kept : "";
}

void sim_trial_take(sim_trial *trial, const sim_prediction *p) {
  trial->state = SIM_TRIAL_SIMULATED;
  trial->fits = p->fits;
  trial->step_s = p->metrics.step_s;
  trial->throughput_samples_per_s = p->metrics.throughput_samples_per_s;
  trial->bubble_ratio = p->metrics.bubble_ratio;
  trial->usd_per_million_samples = p->usd_per_million_samples;
  trial->joules_per_sample = p->joules_per_sample;
  trial->skip_bytes = p->metrics.comm_bytes_by_kind[PLAN_TRAFFIC_SKIP];
  trial->boundary_and_skip_bytes = p->metrics.comm_bytes_by_kind[PLAN_TRAFFIC_BOUNDARY] + trial->skip_bytes;
  for (int w = 0; w < p->memory.worker_count; w++)
    if (p->memory.workers[w].peak_bytes > trial->peak_bytes) trial->peak_bytes = p->memory.workers[w].peak_bytes;
  trial->tightest_worker = p->tightest_worker;
  trial->tightest_peak_bytes = p->memory.workers[p->tightest_worker].peak_bytes;
  trial->tightest_limit_bytes = p->memory_limit_bytes[p->tightest_worker];
  trial->tightest_activation_bytes = p->memory.workers[p->tightest_worker].at_peak_bytes[PLAN_MEMORY_ACTIVATIONS];
  for (int b = 0; b < p->bound_count; b++)
    if (strncmp(p->bounds[b].name, "compute", 7) != 0 && !trial->bound_name) {
      trial->bound_name = p->bounds[b].name;
      trial->bound_share = p->bounds[b].share;
    }
}

static const sim_prepared *prepared_for(const search *s, const sim_candidate *candidate) {
  int i = 0;
  while (s->sizes[i].prepared.microbatch_size != candidate->microbatch_size) i++;
  return &s->sizes[i].prepared;
}

static void *run_round(void *data) {
  search *s = data;
  for (;;) {
    const int i = atomic_fetch_add(&s->next, 1);
    if (i >= s->count) return NULL;
    sim_trial *trial = &s->result->trials[s->order[s->first + i]];
    if (trial->state != SIM_TRIAL_WAITING) continue;
    const plan_scenario changed = sim_tune_scenario(s->scenario, &trial->candidate, s->global_batch);
    sim_prediction prediction;
    dp_error error = DP_ERROR_INIT;
    const dp_status status = sim_predict_prepared(&changed, prepared_for(s, &trial->candidate), &prediction, &error);
    if (status == DP_OK) {
      sim_trial_take(trial, &prediction);
      sim_prediction_free(&prediction);
    } else {
      trial->state = SIM_TRIAL_REFUSED;
      trial->why = keep_text(s, error.text);
      if (status == DP_NO_MEMORY) atomic_store(&s->out_of_memory, true);
    }
  }
}

/* Whether a beats b; both simulated and fit. */
static bool beats(const sim_trial *a, const sim_trial *b) {
  const double faster = a->throughput_samples_per_s / b->throughput_samples_per_s;
  if (faster > 1 + 1e-9) return true;
  if (faster < 1 - 1e-9) return false;
  const bool a_lossy = a->candidate.skip_policy == PLAN_SKIP_COMPRESS,
             b_lossy = b->candidate.skip_policy == PLAN_SKIP_COMPRESS;
  if (a_lossy != b_lossy) return b_lossy;
  if (a->peak_bytes != b->peak_bytes) return a->peak_bytes < b->peak_bytes;
  return a->candidate.stages * a->candidate.replicas < b->candidate.stages * b->candidate.replicas;
}

static void find_best(sim_tune_result *result) {
  result->best = result->nearest = -1;
  double least_over = INFINITY;
  for (int i = 0; i < result->trial_count; i++) {
    const sim_trial *trial = &result->trials[i];
    if (trial->state != SIM_TRIAL_SIMULATED) continue;
    if (trial->fits) {
      if (result->best < 0 || beats(trial, &result->trials[result->best])) result->best = i;
    } else {
      const double over = (double)trial->tightest_peak_bytes / (double)trial->tightest_limit_bytes;
      if (over < least_over) {
        least_over = over;
        result->nearest = i;
      }
    }
  }
  if (result->best >= 0) result->nearest = -1;
}

static double now_s(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct limits {
  double until_s; /* on the clock; INFINITY: none */
  int64_t trials;
} limits;

static limits read_limits(const plan_scenario *scenario) {
  const dp_node *seconds = dp_node_get(scenario->search, "max_seconds"),
                *trials = dp_node_get(scenario->search, "max_trials");
  return (limits){seconds ? now_s() + seconds->real : INFINITY, trials ? trials->integer : INT64_MAX};
}

static void run_threads(search *s, int threads) {
  pthread_t others[MAX_THREADS];
  int started = 0;
  atomic_store(&s->next, 0);
  while (started + 1 < threads && pthread_create(&others[started], NULL, run_round, s) == 0) started++;
  (void)run_round(s);
  for (int t = 0; t < started; t++) (void)pthread_join(others[t], NULL);
}

static dp_status run_search(search *s, const sim_tune_options *options) {
  sim_tune_result *result = s->result;
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  int threads = options->threads > 0 ? options->threads : processors > 0 ? (int)processors : 1;
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  const limits limit = read_limits(s->scenario);
  int64_t taken = 0;
  for (int first = 0; first < result->trial_count; first += ROUND) {
    if ((options->stop && *options->stop) || now_s() >= limit.until_s || taken >= limit.trials) {
      result->stopped = true;
      break;
    }
    s->first = first;
    s->count = result->trial_count - first < ROUND ? result->trial_count - first : ROUND;
    for (int i = 0; i < s->count; i++) { /* prune by what earlier rounds found; stop at the limit of trials */
      sim_trial *trial = &result->trials[s->order[first + i]];
      if (result->best >= 0 && trial->bound_s >= result->trials[result->best].step_s)
        trial->state = SIM_TRIAL_PRUNED;
      else if (taken < limit.trials)
        taken++;
      else
        s->count = i;
    }
    run_threads(s, threads);
    if (atomic_load(&s->out_of_memory)) return DP_NO_MEMORY;
    find_best(result);
    if (options->progress)
      options->progress(options->progress_data, (uint64_t)(first + s->count), (uint64_t)result->trial_count,
                        result->best >= 0 ? &result->trials[result->best] : NULL);
  }
  return DP_OK;
}

/* ---- what the result says ---- */

const char *sim_candidate_show(const sim_candidate *c, char out[256]) {
  char chunks[32] = "", skips[80];
  if (c->schedule == PLAN_INTERLEAVED) (void)snprintf(chunks, sizeof chunks, " with %d chunks", c->chunks);
  if (c->skip_policy == PLAN_SKIP_COMPRESS)
    (void)snprintf(skips, sizeof skips, "skips compressed to K = %lld (quality not measured)", (long long)c->k);
  else
    (void)snprintf(skips, sizeof skips, "skips %s", plan_skip_policy_names[c->skip_policy]);
  (void)snprintf(out, 256, "%d stage%s x %d replica%s, %s%s, %d microbatch%s of %d, %s, %s", c->stages,
                 c->stages == 1 ? "" : "s", c->replicas, c->replicas == 1 ? "" : "s", plan_schedule_names[c->schedule],
                 chunks, c->microbatches, c->microbatches == 1 ? "" : "es", c->microbatch_size,
                 c->recompute ? "all recomputed" : "nothing recomputed", skips);
  return out;
}

/* In how many choices two candidates differ; the number of microbatches follows from the others. */
static int differences(const sim_candidate *a, const sim_candidate *b) {
  const bool schedule = a->schedule != b->schedule || a->chunks != b->chunks;
  const bool policy = a->skip_policy != b->skip_policy || a->k != b->k;
  return (a->stages != b->stages) + (a->replicas != b->replicas) + schedule +
         (a->microbatch_size != b->microbatch_size) + policy + (a->recompute != b->recompute);
}

const char *sim_trial_why_lost(const sim_trial *trial, const sim_trial *best, dp_arena *arena) {
  switch (trial->state) {
    case SIM_TRIAL_WAITING:
      return "not looked at: the search was stopped";
    case SIM_TRIAL_REFUSED:
      return dp_arena_printf(arena, "cannot be: %s", trial->why ? trial->why : "");
    case SIM_TRIAL_PRUNED:
      return dp_arena_printf(arena, "slower by at least %.1f %%, even without transfers and idle hosts",
                             100 * (trial->bound_s / best->step_s - 1));
    case SIM_TRIAL_SIMULATED:
      break;
  }
  if (!trial->fits)
    return dp_arena_printf(arena, "does not fit: worker %d needs %.1f of %.1f GB, %.1f of it activations",
                           trial->tightest_worker, (double)trial->tightest_peak_bytes / 1e9,
                           (double)trial->tightest_limit_bytes / 1e9, (double)trial->tightest_activation_bytes / 1e9);
  const double slower = 100 * (trial->step_s / best->step_s - 1);
  if (slower < 1e-7)
    return dp_arena_printf(arena, "as fast, with %.1f instead of %.1f GB on the fullest worker%s",
                           (double)trial->peak_bytes / 1e9, (double)best->peak_bytes / 1e9,
                           trial->candidate.skip_policy == PLAN_SKIP_COMPRESS ? ", and lossy" : "");
  if (!trial->bound_name) return dp_arena_printf(arena, "slower by %.1f %%: bound by compute", slower);
  return dp_arena_printf(arena, "slower by %.1f %%: %s %.0f %%", slower, trial->bound_name, 100 * trial->bound_share);
}

static bool dominates(const sim_trial *a, const sim_trial *b) {
  const bool no_worse = a->throughput_samples_per_s >= b->throughput_samples_per_s && a->peak_bytes <= b->peak_bytes &&
                        a->usd_per_million_samples <= b->usd_per_million_samples;
  const bool better = a->throughput_samples_per_s > b->throughput_samples_per_s || a->peak_bytes < b->peak_bytes ||
                      a->usd_per_million_samples < b->usd_per_million_samples;
  return no_worse && better;
}

static dp_status sum_up(sim_tune_result *result, dp_error *error) {
  result->front = DP_ARENA_NEW(&result->arena, int, (size_t)result->trial_count);
  result->neighbours = DP_ARENA_NEW(&result->arena, int, (size_t)result->trial_count);
  if (!result->front || !result->neighbours) return dp_fail_memory(error);
  for (int i = 0; i < result->trial_count; i++) {
    sim_trial *trial = &result->trials[i];
    result->simulated += trial->state == SIM_TRIAL_SIMULATED;
    result->pruned += trial->state == SIM_TRIAL_PRUNED;
    result->refused += trial->state == SIM_TRIAL_REFUSED;
  }
  if (result->best < 0) return DP_OK;
  const sim_trial *best = &result->trials[result->best];
  for (int i = 0; i < result->trial_count; i++) {
    sim_trial *trial = &result->trials[i];
    trial->why = i == result->best ? "" : sim_trial_why_lost(trial, best, &result->arena);
    if (!trial->why) return dp_fail_memory(error);
    if (i != result->best && differences(&trial->candidate, &best->candidate) == 1)
      result->neighbours[result->neighbour_count++] = i;
    if (trial->state != SIM_TRIAL_SIMULATED || !trial->fits) continue;
    bool on_front = true;
    for (int j = 0; j < result->trial_count && on_front; j++) {
      const sim_trial *other = &result->trials[j];
      if (other->state == SIM_TRIAL_SIMULATED && other->fits && dominates(other, trial)) on_front = false;
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

/* ---- the whole ---- */

typedef struct keyed {
  double bound_s;
  int index;
} keyed;

static int compare_keyed(const void *a, const void *b) {
  const keyed *x = a, *y = b;
  if (x->bound_s != y->bound_s) return x->bound_s < y->bound_s ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

static dp_status order_trials(space *s, const sim_efficiency *efficiency, sim_tune_result *result, int **order) {
  const size_t n = s->candidates.count;
  result->trials = DP_ARENA_NEW(&result->arena, sim_trial, n);
  *order = DP_ARENA_NEW(s->arena, int, n);
  keyed *keys = DP_ARENA_NEW(s->arena, keyed, n);
  s->costs = DP_ARENA_NEW(s->arena, size_cost, s->sizes.count);
  if (!result->trials || !*order || !keys || !s->costs) return dp_fail_memory(s->error);
  for (size_t i = 0; i < n; i++) {
    sim_trial *trial = &result->trials[i];
    trial->candidate = s->candidates.items[i];
    size_t c = 0;
    while (c < s->cost_count && s->costs[c].prepared.microbatch_size != trial->candidate.microbatch_size) c++;
    if (c == s->cost_count) {
      DP_TRY(cost_size(s->scenario, efficiency, trial->candidate.microbatch_size, &s->costs[c], s->error));
      s->cost_count++;
    }
    trial->bound_s = bound_of(s->scenario, &trial->candidate, &s->costs[c]);
    keys[i] = (keyed){trial->bound_s, (int)i};
  }
  result->trial_count = (int)n;
  qsort(keys, n, sizeof *keys, compare_keyed);
  for (size_t i = 0; i < n; i++) (*order)[i] = keys[i].index;
  return DP_OK;
}

static dp_status tune(space *s, const sim_efficiency *efficiency, const sim_tune_options *options,
                      sim_tune_result *result) {
  s->global_batch = sim_tune_global_batch(s->scenario, s->error);
  if (!s->global_batch) return DP_BAD_INPUT;
  s->devices = s->scenario->device_map_count ? (int64_t)s->scenario->device_map_count
                                             : (int64_t)s->scenario->cluster.devices.count;
  DP_TRY(read_space(s));
  DP_TRY(enumerate(s));
  int *order = NULL;
  DP_TRY(order_trials(s, efficiency, result, &order));
  search running = {
      .scenario = s->scenario, .sizes = s->costs, .result = result, .global_batch = s->global_batch, .order = order};
  if (pthread_mutex_init(&running.arena_lock, NULL) != 0)
    return dp_fail(s->error, DP_INTERNAL, "no lock could be made");
  result->best = result->nearest = -1;
  const dp_status status = run_search(&running, options);
  (void)pthread_mutex_destroy(&running.arena_lock);
  if (status != DP_OK) return dp_fail_memory(s->error);
  return sum_up(result, s->error);
}

dp_status sim_tune(const plan_scenario *scenario, const sim_efficiency *efficiency, const sim_tune_options *options,
                   sim_tune_result *result, dp_error *error) {
  dp_arena scratch = {0};
  space s = {.scenario = scenario, .arena = &scratch, .error = error};
  memset(result, 0, sizeof *result);
  const dp_status status = tune(&s, efficiency, options, result);
  for (size_t c = 0; c < s.cost_count; c++) sim_prepared_free(&s.costs[c].prepared);
  dp_array_free(&s.candidates);
  dp_arena_free(&scratch);
  if (status != DP_OK) sim_tune_result_free(result);
  return status;
}

void sim_tune_result_free(sim_tune_result *result) {
  dp_arena_free(&result->arena);
  memset(result, 0, sizeof *result);
}
