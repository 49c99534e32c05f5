/* Rows and points shared out over threads. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/tune_search.h"
#include "sim/whatif_search.h"

enum { MAX_THREADS = 16 };

/* Something to do, with an arena of its own: threads share none. */
typedef struct task {
  dp_arena *arena;
  dp_status status;
  dp_error error;
  bool begun;
} task;

typedef struct runner {
  const sim_whatif_request *request;
  sim_whatif_result *result;
  void (*work)(struct runner *runner, int index, task *task);
  task *tasks;
  int count, threads;
  atomic_int next;
  pthread_mutex_t lock; /* of `done` and the progress */
  uint64_t done, total;
} runner;

static bool must_stop(const runner *r) { return r->request->options->stop && *r->request->options->stop; }

static void *run_tasks(void *data) {
  runner *r = data;
  while (!must_stop(r)) {
    const int i = atomic_fetch_add(&r->next, 1);
    if (i >= r->count) break;
    r->tasks[i].begun = true;
    r->work(r, i, &r->tasks[i]);
    (void)pthread_mutex_lock(&r->lock);
    r->done++;
    if (r->request->options->progress)
      r->request->options->progress(r->request->options->progress_data, r->done, r->total, NULL);
    (void)pthread_mutex_unlock(&r->lock);
  }
  return NULL;
}

static dp_status run_all(runner *r, int count, void (*work)(runner *, int, task *), dp_error *error) {
  pthread_t others[MAX_THREADS];
  int started = 0;
  r->count = count;
  r->work = work;
  r->tasks = DP_ARENA_NEW(&r->result->arena, task, (size_t)count);
  if (!r->tasks) return dp_fail_memory(error);
  for (int i = 0; i < count; i++) r->tasks[i].arena = &r->result->arenas[r->result->arena_count++];
  atomic_store(&r->next, 0);
  while (started + 1 < r->threads && started + 1 < count && pthread_create(&others[started], NULL, run_tasks, r) == 0)
    started++;
  (void)run_tasks(r);
  for (int t = 0; t < started; t++) (void)pthread_join(others[t], NULL);
  return DP_OK;
}

/* ---- rows ---- */

static dp_status find_row(runner *r, sim_hardware *h, dp_arena *arena, dp_error *error) {
  const sim_whatif_request *request = r->request;
  const int at_once = r->threads < request->cluster_count ? r->threads : request->cluster_count;
  const sim_tune_options how = {.threads = r->threads / at_once, .stop = request->options->stop, .best_only = true};
  dp_error trouble = DP_ERROR_INIT;
  const dp_status status = sim_tune(&h->scenario, request->efficiency, &how, &h->tuned, &trouble);
  if (status == DP_BAD_INPUT) { /* nothing to try on this cluster: its row says why */
    h->why = dp_arena_strdup(arena, trouble.text);
    return h->why ? DP_OK : dp_fail_memory(error);
  }
  if (status != DP_OK) return dp_fail(error, status, "%s", trouble.text);
  h->fits = h->tuned.best >= 0;
  const int shown = h->fits ? h->tuned.best : h->tuned.nearest;
  h->found = shown >= 0;
  if (h->found) h->best = h->tuned.trials[shown];
  if (!h->fits) h->why = h->found ? sim_trial_why_not(&h->best, arena) : "no plan of it can be simulated";
  if (!h->why && !h->fits) return dp_fail_memory(error);
  for (int g = 0; h->fits && g < SIM_RESOURCE_COUNT; g++) {
    if (must_stop(r)) return DP_OK;
    DP_TRY(sim_hardware_measure_gain(h, request->efficiency, (sim_resource)g, error));
  }
  h->measured = h->fits;
  return DP_OK;
}

static void work_on_row(runner *r, int index, task *t) {
  const sim_whatif_request *request = r->request;
  sim_hardware *h = &r->result->rows[index];
  const plan_scenario_source source = {.path = request->scenario_path,
                                       .sets = request->sets,
                                       .set_count = request->set_count,
                                       .job_only = true,
                                       .cluster_file = request->clusters[index].path};
  h->file = request->clusters[index].file;
  t->status = plan_scenario_read_from(&source, &h->scenario, &t->error);
  if (t->status == DP_OK) t->status = find_row(r, h, t->arena, &t->error);
  h->price = (sim_price){.name = h->scenario.cluster.name,
                         .fits = h->fits,
                         .throughput_samples_per_s = h->best.throughput_samples_per_s,
                         .joules_per_sample = h->best.joules_per_sample,
                         .price_usd_per_h = h->scenario.cluster.price_usd_per_h,
                         .purchase_usd = h->scenario.cluster.purchase_usd};
}

/* The first row that failed is the error, whichever thread was first. */
static dp_status check_rows(const runner *r, dp_error *error) {
  const char *first = NULL;
  bool any = false;
  for (int i = 0; i < r->count; i++) {
    if (r->tasks[i].status != DP_OK) return dp_fail(error, r->tasks[i].status, "%s", r->tasks[i].error.text);
    const sim_hardware *h = &r->result->rows[i];
    if (r->tasks[i].begun && !h->found && h->why && !first && h->tuned.trial_count == 0) first = h->why;
    any = any || h->found || !r->tasks[i].begun || h->tuned.trial_count > 0;
  }
  return any || !first ? DP_OK : dp_fail(error, DP_BAD_INPUT, "%s", first);
}

/* ---- points ---- */

static bool is_fixed(const runner *r, const sim_sweep *sweep) {
  return r->request->plan_fixed || strncmp(sweep->key, "plan.", 5) == 0;
}

/* A point that cannot be is part of the answer. */
static dp_status find_point(runner *r, const sim_sweep *sweep, int row, int value, sim_candidate *kept, dp_arena *arena,
                            sim_sweep_point *point, dp_error *error) {
  const sim_hardware *h = &r->result->rows[row];
  const sim_point_job job = {
      .request = r->request,
      .cluster_path = r->request->clusters[row].path,
      .key = sweep->key,
      .value = sweep->values[value].text,
      .hint = h->fits ? &h->best.candidate : NULL,
      .fixed = is_fixed(r, sweep),
      .own_plan = strncmp(sweep->key, "plan.", 5) == 0 || dp_node_get(h->scenario.document.root, "plan") != NULL,
      .kept = kept,
      .arena = arena};
  dp_error trouble = DP_ERROR_INIT;
  const dp_status status = sim_sweep_point_find(&job, point, &trouble);
  if (status != DP_BAD_INPUT) return status == DP_OK ? DP_OK : dp_fail(error, status, "%s", trouble.text);
  point->done = true;
  point->why = dp_arena_strdup(arena, trouble.text);
  return point->why ? DP_OK : dp_fail_memory(error);
}

/* Tasks in order: sweeps, rows, then values; the values of a fixed plan are one task, for the first that fits decides.
 */
static void work_on_point(runner *r, int index, task *t) {
  sim_whatif_result *result = r->result;
  for (int s = 0; s < result->sweep_count; s++) {
    const sim_sweep *sweep = result->sweeps[s].sweep;
    const bool fixed = is_fixed(r, sweep);
    const int tasks = result->row_count * (fixed ? 1 : sweep->count);
    if (index >= tasks) {
      index -= tasks;
      continue;
    }
    const int row = fixed ? index : index / sweep->count;
    const int first = fixed ? 0 : index % sweep->count, last = fixed ? sweep->count - 1 : first;
    sim_candidate kept = {.stages = 0};
    for (int v = first; v <= last && t->status == DP_OK && !must_stop(r); v++)
      t->status =
          find_point(r, sweep, row, v, &kept, t->arena, &result->sweeps[s].points[row * sweep->count + v], &t->error);
    return;
  }
}

static int count_points(const runner *r) {
  int count = 0;
  for (int s = 0; s < r->request->sweep_count; s++)
    count += r->request->cluster_count * (is_fixed(r, &r->request->sweeps[s]) ? 1 : r->request->sweeps[s].count);
  return count;
}

/* Marks where the plan changes. DP_BAD_INPUT when no point of the sweep could be. */
static dp_status mark(sim_whatif_result *result, const sim_sweep_result *swept, dp_error *error) {
  const int count = swept->sweep->count;
  const char *first = NULL;
  bool any = false;
  for (int row = 0; row < result->row_count; row++) {
    const sim_sweep_point *last = NULL;
    for (int v = 0; v < count; v++) {
      sim_sweep_point *point = &swept->points[row * count + v];
      any = any || point->found || !point->done;
      if (point->done && !point->found && !first) first = point->why;
      if (!point->fits) continue;
      point->changed = last && sim_candidate_differences(&point->trial.candidate, &last->trial.candidate) > 0;
      last = point;
    }
  }
  return any || !first ? DP_OK : dp_fail(error, DP_BAD_INPUT, "%s", first);
}

static dp_status run_points(runner *r, dp_error *error) {
  sim_whatif_result *result = r->result;
  if (r->request->sweep_count == 0) return DP_OK;
  const int count = result->sweep_count = r->request->sweep_count;
  result->sweeps = DP_ARENA_NEW(&result->arena, sim_sweep_result, (size_t)count);
  if (!result->sweeps) return dp_fail_memory(error);
  for (int s = 0; s < count; s++) {
    result->sweeps[s].sweep = &r->request->sweeps[s];
    result->sweeps[s].plan_fixed = is_fixed(r, &r->request->sweeps[s]);
    result->sweeps[s].points =
        DP_ARENA_NEW(&result->arena, sim_sweep_point, (size_t)result->row_count * (size_t)r->request->sweeps[s].count);
    if (!result->sweeps[s].points) return dp_fail_memory(error);
  }
  DP_TRY(run_all(r, count_points(r), work_on_point, error));
  for (int i = 0; i < r->count; i++)
    if (r->tasks[i].status != DP_OK) return dp_fail(error, r->tasks[i].status, "%s", r->tasks[i].error.text);
  for (int s = 0; s < count; s++) DP_TRY(mark(result, &result->sweeps[s], error));
  return DP_OK;
}

/* ---- the whole ---- */

static void free_row(sim_hardware *h) {
  sim_tune_result_free(&h->tuned);
  plan_scenario_free(&h->scenario);
}

/* The user stopped while rows were searched: those remain of which something is known. */
static void drop_unknown_rows(sim_whatif_result *result) {
  int kept = 0;
  for (int i = 0; i < result->row_count; i++) {
    if (result->rows[i].found)
      result->rows[kept++] = result->rows[i];
    else
      free_row(&result->rows[i]);
  }
  result->row_count = kept;
}

static dp_status run(runner *r, dp_error *error) {
  const sim_whatif_request *request = r->request;
  sim_whatif_result *result = r->result;
  const int points = count_points(r);
  r->total = (uint64_t)(request->cluster_count + points);
  result->rows = DP_ARENA_NEW(&result->arena, sim_hardware, (size_t)request->cluster_count);
  result->arenas = DP_ARENA_NEW(&result->arena, dp_arena, (size_t)(request->cluster_count + points));
  if (!result->rows || !result->arenas) return dp_fail_memory(error);
  result->row_count = request->cluster_count;
  DP_TRY(run_all(r, request->cluster_count, work_on_row, error));
  DP_TRY(check_rows(r, error));
  result->stopped = must_stop(r);
  if (result->stopped) {
    drop_unknown_rows(result);
    return DP_OK;
  }
  DP_TRY(run_points(r, error));
  result->stopped = must_stop(r);
  return DP_OK;
}

dp_status sim_whatif(const sim_whatif_request *request, sim_whatif_result *result, dp_error *error) {
  memset(result, 0, sizeof *result);
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const int asked = request->options->threads > 0 ? request->options->threads : processors > 0 ? (int)processors : 1;
  runner r = {.request = request, .result = result, .threads = asked < MAX_THREADS ? asked : MAX_THREADS};
  if (pthread_mutex_init(&r.lock, NULL) != 0) return dp_fail(error, DP_INTERNAL, "no lock could be made");
  const dp_status status = run(&r, error);
  (void)pthread_mutex_destroy(&r.lock);
  if (status != DP_OK) sim_whatif_free(result);
  return status;
}

void sim_whatif_free(sim_whatif_result *result) {
  for (int i = 0; i < result->row_count; i++) free_row(&result->rows[i]);
  for (int i = 0; i < result->arena_count; i++) dp_arena_free(&result->arenas[i]);
  dp_arena_free(&result->arena);
  memset(result, 0, sizeof *result);
}
