#define _POSIX_C_SOURCE 200809L
#include "sim/tune.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "sim/tune_search.h"

enum { ROUND = 16, MAX_THREADS = 16 };

plan_scenario sim_tune_scenario(const plan_scenario *scenario, const sim_candidate *c, int64_t global_batch) {
  plan_scenario changed = *scenario;
  changed.global_batch = global_batch;
  changed.stages = c->stages;
  changed.data_parallel = c->replicas;
  changed.tensor_parallel = sim_candidate_tensor(c);
  changed.chunks = c->chunks;
  changed.microbatches = c->microbatches;
  changed.microbatch_size = c->microbatch_size;
  changed.schedule = (int)c->schedule;
  changed.skip_policy = (int)c->skip_policy;
  changed.k = c->k;
  changed.skips = c->skips;
  changed.skip_count = (size_t)c->skip_count;
  changed.skips_node = NULL;
  changed.recompute = c->recompute;
  changed.recompute_list = NULL;
  changed.split_way = sim_candidate_split(c);
  if (c->own_transport) {
    changed.transport = c->transport;
    changed.nccl_sms = c->nccl_sms;
  }
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

static const char *keep_text(sim_search *s, const char *text) {
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
  trial->tightest = sim_prediction_shortage(p);
  trial->without_recomputation = p->without_recomputation;
  trial->candidate.recomputed_units = 0;
  for (size_t u = 0; u < p->graph.units.count; u++) trial->candidate.recomputed_units += p->plan.recompute[u];
  for (int b = 0; b < p->bound_count; b++)
    if (strncmp(p->bounds[b].name, "compute", 7) != 0 && !trial->bound_name) {
      trial->bound_name = p->bounds[b].name;
      trial->bound_share = p->bounds[b].share;
    }
}

static void *run_round(void *data) {
  sim_search *s = data;
  for (;;) {
    const int i = atomic_fetch_add(&s->next, 1);
    if (i >= s->count) return NULL;
    sim_trial *trial = &s->result->trials[s->order[i]];
    if (trial->state != SIM_TRIAL_WAITING) continue;
    const plan_scenario changed = sim_tune_scenario(s->scenario, &trial->candidate, s->space->global_batch);
    sim_prediction prediction;
    dp_error error = DP_ERROR_INIT;
    const sim_prepared *prepared = &sim_space_cost(s->space, &trial->candidate)->prepared;
    const dp_status status = s->roughly ? sim_predict_roughly(&changed, prepared, &prediction, &error)
                                        : sim_predict_prepared(&changed, prepared, &prediction, &error);
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
  const int a_lossy = sim_candidate_lossiness(&a->candidate), b_lossy = sim_candidate_lossiness(&b->candidate);
  if (a_lossy != b_lossy) return a_lossy < b_lossy;
  if (a->peak_bytes != b->peak_bytes) return a->peak_bytes < b->peak_bytes;
  return sim_candidate_workers(&a->candidate) < sim_candidate_workers(&b->candidate);
}

static void find_best(sim_tune_result *result) {
  result->best = result->nearest = -1;
  double least_over = INFINITY;
  for (int i = 0; i < result->trial_count; i++) {
    const sim_trial *trial = &result->trials[i];
    if (trial->state != SIM_TRIAL_SIMULATED || trial->set_aside) continue;
    if (trial->fits) {
      if (result->best < 0 || beats(trial, &result->trials[result->best])) result->best = i;
    } else {
      const double over = (double)trial->tightest.peak_bytes / (double)trial->tightest.limit_bytes;
      if (over < least_over) {
        least_over = over;
        result->nearest = i;
      }
    }
  }
  if (result->best >= 0) result->nearest = -1;
}

typedef struct limits {
  double until_s; /* on the clock; INFINITY: none */
  int64_t trials;
} limits;

static limits read_limits(const plan_scenario *scenario) {
  const dp_node *seconds = dp_node_get(scenario->search, "max_seconds"),
                *trials = dp_node_get(scenario->search, "max_trials");
  return (limits){seconds ? dp_clock_s() + seconds->real : INFINITY, trials ? trials->integer : INT64_MAX};
}

static void run_threads(sim_search *s) {
  pthread_t others[MAX_THREADS];
  int started = 0;
  atomic_store(&s->next, 0);
  while (started + 1 < s->threads && pthread_create(&others[started], NULL, run_round, s) == 0) started++;
  (void)run_round(s);
  for (int t = 0; t < started; t++) (void)pthread_join(others[t], NULL);
}

static bool must_stop(const sim_search *s) {
  return (s->options->stop && *s->options->stop) || dp_clock_s() >= s->until_s || s->taken >= s->most_trials;
}

static void tell(const sim_search *s, uint64_t done) {
  const sim_tune_result *result = s->result;
  if (s->options->progress)
    s->options->progress(s->options->progress_data, done, (uint64_t)s->space->candidates.count,
                         result->best >= 0 ? &result->trials[result->best] : NULL);
}

dp_status sim_search_run(sim_search *s, const int *trials, int count) {
  for (int first = 0; first < count && !must_stop(s); first += ROUND) {
    s->order = trials + first;
    s->count = count - first < ROUND ? count - first : ROUND;
    s->taken += s->count;
    run_threads(s);
    if (atomic_load(&s->out_of_memory)) return DP_NO_MEMORY;
    tell(s, s->space->candidates.count);
  }
  find_best(s->result);
  return DP_OK;
}

static dp_status run_search(sim_search *s, const int *order) {
  sim_tune_result *result = s->result;
  for (int first = 0; first < result->trial_count; first += ROUND) {
    if (must_stop(s)) {
      result->stopped = true;
      break;
    }
    s->order = order + first;
    s->count = result->trial_count - first < ROUND ? result->trial_count - first : ROUND;
    for (int i = 0; i < s->count; i++) { /* prune by what earlier rounds found; stop at the limit of trials */
      sim_trial *trial = &result->trials[s->order[i]];
      const double known_s = s->options->known_step_s;
      if (trial->state != SIM_TRIAL_WAITING)
        continue;
      else if ((result->best >= 0 && trial->bound_s >= result->trials[result->best].step_s) ||
               (known_s > 0 && trial->bound_s > known_s * (1 + 1e-9)))
        trial->state = SIM_TRIAL_PRUNED;
      else if (s->taken < s->most_trials)
        s->taken++;
      else
        s->count = i;
    }
    run_threads(s);
    if (atomic_load(&s->out_of_memory)) return DP_NO_MEMORY;
    find_best(result);
    tell(s, (uint64_t)(first + s->count));
  }
  return DP_OK;
}

/* Candidates that no split can make fit are not simulated; but where there are no others, those with the most room for
 * what they need and the smallest microbatches are, so that something can be said of them. */
static dp_status set_too_large(sim_search *s) {
  sim_tune_result *result = s->result;
  double most = -INFINITY;
  int smallest = INT_MAX;
  for (int i = 0; i < result->trial_count; i++) {
    sim_trial *trial = &result->trials[i];
    int64_t needed_bytes, room_bytes;
    if (sim_space_may_fit(s->space, &trial->candidate, &needed_bytes, &room_bytes)) {
      most = INFINITY;
      continue;
    }
    trial->state = SIM_TRIAL_TOO_LARGE;
    trial->why = dp_arena_printf(
        &result->arena, "does not fit: weights, gradients and optimizer states are %.1f GB, %d device%s %.1f GB",
        (double)needed_bytes / 1e9, trial->candidate.stages, trial->candidate.stages == 1 ? " has" : "s have",
        (double)(room_bytes > 0 ? room_bytes : 0) / 1e9);
    if (!trial->why) return DP_NO_MEMORY;
    const double room = (double)room_bytes / (double)needed_bytes;
    if (room > most) most = room;
    if (trial->candidate.microbatch_size < smallest) smallest = trial->candidate.microbatch_size;
  }
  for (int i = 0; i < result->trial_count && most < INFINITY; i++) {
    sim_trial *trial = &result->trials[i];
    int64_t needed_bytes, room_bytes;
    (void)sim_space_may_fit(s->space, &trial->candidate, &needed_bytes, &room_bytes);
    if ((double)room_bytes / (double)needed_bytes >= most && trial->candidate.microbatch_size == smallest)
      trial->state = SIM_TRIAL_WAITING;
  }
  return DP_OK;
}

/* Why the best plan's neighbours lost is worth knowing better than by their bounds, and what they need better than
 * roughly; so is what the nearest needs, where nothing fits. */
static dp_status run_closely(sim_search *s) {
  sim_tune_result *result = s->result;
  int *list = DP_ARENA_NEW(s->space->arena, int, (size_t)result->trial_count), count = 0;
  if (!list) return DP_NO_MEMORY;
  s->roughly = false;
  for (int i = 0; i < result->trial_count; i++) {
    const sim_trial *trial = &result->trials[i];
    const bool rough = trial->state == SIM_TRIAL_SIMULATED && !trial->fits;
    const bool near = result->best < 0
                          ? i == result->nearest
                          : sim_candidate_differences(&trial->candidate, &result->trials[result->best].candidate) == 1;
    if (near && (rough || trial->state == SIM_TRIAL_PRUNED)) list[count++] = i;
  }
  for (int first = 0; first < count && !must_stop(s); first += ROUND) {
    const int some = count - first < ROUND ? count - first : ROUND;
    for (int i = 0; i < some; i++) {
      sim_trial *trial = &result->trials[list[first + i]];
      *trial = (sim_trial){.candidate = trial->candidate, .bound_s = trial->bound_s, .set_aside = trial->set_aside};
    }
    DP_TRY(sim_search_run(s, list + first, some));
  }
  return DP_OK;
}

typedef struct keyed {
  double bound_s;
  int index;
} keyed;

static int compare_keyed(const void *a, const void *b) {
  const keyed *x = a, *y = b;
  if (x->bound_s != y->bound_s) return x->bound_s < y->bound_s ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

static dp_status order_trials(const sim_space *s, sim_tune_result *result, int **order) {
  const size_t n = s->candidates.count;
  result->trials = DP_ARENA_NEW(&result->arena, sim_trial, n + SIM_REFINING_TRIALS);
  *order = DP_ARENA_NEW(s->arena, int, n);
  keyed *keys = DP_ARENA_NEW(s->arena, keyed, n);
  if (!result->trials || !*order || !keys) return dp_fail_memory(s->error);
  for (size_t i = 0; i < n; i++) {
    sim_trial *trial = &result->trials[i];
    trial->candidate = s->candidates.items[i];
    trial->bound_s = sim_space_bound_s(s, &trial->candidate);
    keys[i] = (keyed){trial->bound_s, (int)i};
  }
  result->trial_count = (int)n;
  qsort(keys, n, sizeof *keys, compare_keyed);
  for (size_t i = 0; i < n; i++) (*order)[i] = keys[i].index;
  return DP_OK;
}

static dp_status tune(sim_space *s, const sim_efficiency *efficiency, const sim_tune_options *options,
                      sim_tune_result *result) {
  DP_TRY(sim_space_build(s, efficiency));
  int *order = NULL;
  DP_TRY(order_trials(s, result, &order));
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const int threads = options->threads > 0 ? options->threads : processors > 0 ? (int)processors : 1;
  const limits limit = read_limits(s->scenario);
  sim_search running = {.scenario = s->scenario,
                        .space = s,
                        .result = result,
                        .options = options,
                        .roughly = true,
                        .threads = threads < MAX_THREADS ? threads : MAX_THREADS,
                        .until_s = limit.until_s,
                        .most_trials = limit.trials};
  if (pthread_mutex_init(&running.arena_lock, NULL) != 0)
    return dp_fail(s->error, DP_INTERNAL, "no lock could be made");
  result->best = result->nearest = -1;
  dp_status status = set_too_large(&running);
  if (status == DP_OK) status = run_search(&running, order);
  if (status == DP_OK && result->best >= 0 && !result->stopped) status = sim_tune_refine(&running);
  if (status == DP_OK && !result->stopped && !(options->best_only && result->best >= 0)) status = run_closely(&running);
  (void)pthread_mutex_destroy(&running.arena_lock);
  if (status != DP_OK) return dp_fail_memory(s->error);
  return sim_tune_sum_up(result, s->error);
}

dp_status sim_tune(const plan_scenario *scenario, const sim_efficiency *efficiency, const sim_tune_options *options,
                   sim_tune_result *result, dp_error *error) {
  dp_arena scratch = {0};
  sim_space s = {.scenario = scenario, .arena = &scratch, .error = error};
  memset(result, 0, sizeof *result);
  const dp_status status = tune(&s, efficiency, options, result);
  sim_space_free(&s);
  dp_arena_free(&scratch);
  if (status != DP_OK) sim_tune_result_free(result);
  return status;
}

void sim_tune_result_free(sim_tune_result *result) {
  dp_arena_free(&result->arena);
  memset(result, 0, sizeof *result);
}
