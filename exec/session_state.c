/* Checkpoints of a session: what of it lasts (exec/session_stock.h), written by who has it, once of all replicas.
 * Frozen weights are those that the scenario begins from; they are not saved. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "exec/session_stock.h"

/* ---- saving ---- */

typedef struct giver {
  const exec_stock *list;
  float *buffer; /* of the largest array, in the layout of files */
} giver;

static dp_status give(void *context, size_t index, const float **values, dp_error *error) {
  const giver *g = context;
  *values = g->buffer;
  return exec_stock_read(g->list, index, g->buffer, error);
}

static dp_status write_part(exec_session *s, int worker, const exec_checkpoint_output *output,
                            exec_checkpoint_part *part, dp_error *error) {
  dp_arena arena = {0};
  exec_stock list;
  char name[32];
  (void)snprintf(name, sizeof name, "worker-%04d", worker);
  dp_status status = exec_stock_take(s, worker, &arena, &list, error);
  giver g = {.list = &list};
  if (status == DP_OK) {
    g.buffer = DP_ARENA_NEW(&arena, float, (size_t)list.largest);
    status = g.buffer ? exec_checkpoint_write_part_from(output, name, list.arrays, list.count, give, &g, part, error)
                      : dp_fail_memory(error);
  }
  dp_arena_free(&arena);
  return status;
}

/* Every process's parts, those of a process in a run; a part without a name is none. */
static dp_status write_parts(exec_session *s, const exec_checkpoint_output *output, exec_checkpoint_part *all,
                             dp_error *error) {
  exec_transport *t = s->options.transport;
  const int first = exec_session_first_worker(s), each = exec_session_workers_here(s);
  exec_checkpoint_part *mine = calloc((size_t)each, sizeof *mine);
  dp_status status = mine ? DP_OK : dp_fail_memory(error);
  for (int w = first; status == DP_OK && w < first + each; w++)
    if (plan_worker_replica(s->plan, w) == 0) status = write_part(s, w, output, &mine[w - first], error);
  status = exec_agree(t, status, error);
  if (status == DP_OK) status = exec_gather(t, mine, (size_t)each * sizeof *mine, all, error);
  free(mine);
  return status;
}

/* Cut to fit a message; what differs between plans first. */
void exec_session_fingerprint(const exec_session *s, char out[EXEC_SESSION_PLAN]) {
  const plan_plan *plan = s->plan;
  size_t length = (size_t)snprintf(
      out, EXEC_SESSION_PLAN, "%s, stages %d x %d, batch %d x %d x %d, skips %s %lld; %s of %lld, %lld trained, %lld x %lld; cut at",
      plan_schedule_names[plan->schedule], plan->ranks, plan->chunks_per_rank, plan->replicas, plan->microbatches,
      plan->microbatch_size, plan_skip_policy_names[plan->skip_policy], (long long)plan->k, s->graph->class_name,
      (long long)s->graph->parameters, (long long)s->graph->trainable_parameters, (long long)s->graph->height,
      (long long)s->graph->width);
  for (int c = 1; c < plan->chunk_count && length < 500; c++)
    length += (size_t)snprintf(out + length, EXEC_SESSION_PLAN - length, " %d", plan->chunks[c].first_unit);
}

/* Of the data set's identity what a counter takes. */
static int64_t identity_of(const exec_session *s) {
  return (int64_t)(strtoull(exec_dataset_identity(s->dataset), NULL, 16) & INT64_MAX);
}

static dp_status commit(exec_session *s, exec_checkpoint_output *output, const exec_checkpoint_part *all,
                        dp_error *error) {
  const int workers = s->program->worker_count;
  char plan[EXEC_SESSION_PLAN];
  exec_session_fingerprint(s, plan);
  const exec_checkpoint_counter counters[] = {
      {"samples", s->done * s->global_batch}, {"job_steps", s->options.steps}, {"data", identity_of(s)}};
  const exec_checkpoint_state state = {.step = s->done,
                                       .seed = s->seed,
                                       .world = s->first_workers > 0 ? s->first_workers : workers,
                                       .plan = s->first_workers > 0 ? s->first_plan : plan,
                                       .counters = counters,
                                       .counter_count = sizeof counters / sizeof *counters};
  exec_checkpoint_part *parts = calloc((size_t)workers, sizeof *parts);
  size_t count = 0;
  if (!parts) return dp_fail_memory(error);
  for (int w = 0; w < workers; w++)
    if (all[w].name[0]) parts[count++] = all[w];
  const dp_status status = exec_checkpoint_commit(output, &state, parts, count,
                                                  (int)s->options.scenario->train.keep_checkpoints, NULL, error);
  free(parts);
  return status;
}

/* The two paths of the folder that process 0 has made. */
typedef struct paths {
  char path[2048], temporary[2048];
} paths;

static dp_status begin(exec_session *s, exec_checkpoint_output *output, paths *where, dp_error *error) {
  exec_transport *t = s->options.transport;
  dp_status status = DP_OK;
  if (exec_process(t) == 0) {
    status = exec_checkpoint_begin(s->options.folder, s->done, output, error);
    if (status == DP_OK && (strlen(output->folder.path) >= sizeof where->path ||
                            strlen(output->folder.temporary) >= sizeof where->temporary))
      status = dp_fail(error, DP_BAD_INPUT, "%.200s...: found a path of %zu bytes, allowed: fewer than %zu",
                       s->options.folder, strlen(output->folder.temporary), sizeof where->temporary);
    if (status == DP_OK) {
      (void)snprintf(where->path, sizeof where->path, "%s", output->folder.path);
      (void)snprintf(where->temporary, sizeof where->temporary, "%s", output->folder.temporary);
    }
  }
  DP_TRY(exec_agree(t, status, error));
  return exec_broadcast(t, where, sizeof *where, error);
}

static dp_status save(exec_session *s, exec_checkpoint_output *own, exec_checkpoint_part *all, paths *where,
                      dp_error *error) {
  exec_transport *t = s->options.transport;
  DP_TRY(begin(s, own, where, error));
  const exec_checkpoint_output output = {.folder = {.path = where->path, .temporary = where->temporary},
                                         .step = s->done};
  DP_TRY(write_parts(s, &output, all, error));
  return exec_agree(t, exec_process(t) == 0 ? commit(s, own, all, error) : DP_OK, error);
}

dp_status exec_session_save(exec_session *s, dp_error *error) {
  if (s->saved == s->done) return DP_OK;
  exec_checkpoint_output own = {.step = 0};
  paths *where = calloc(1, sizeof *where);
  exec_checkpoint_part *all = calloc((size_t)s->program->worker_count, sizeof *all);
  dp_status status = exec_agree(s->options.transport, where && all ? DP_OK : dp_fail_memory(error), error);
  if (status == DP_OK) status = save(s, &own, all, where, error);
  exec_checkpoint_abandon(&own);
  if (status == DP_OK) {
    s->saved = s->done;
    dp_str_clear(&s->checkpoint);
    dp_str_add(&s->checkpoint, where->path);
  }
  free(where);
  free(all);
  return exec_session_blame(s, s->done, status, error);
}

/* ---- resuming ---- */

static dp_status read_worker(exec_session *s, int worker, const exec_checkpoint *checkpoint, dp_error *error) {
  dp_arena arena = {0};
  exec_stock list;
  dp_status status = exec_stock_take(s, worker, &arena, &list, error);
  float *buffer = status == DP_OK ? DP_ARENA_NEW(&arena, float, (size_t)list.largest) : NULL;
  if (status == DP_OK && !buffer) status = dp_fail_memory(error);
  for (size_t i = 0; status == DP_OK && i < list.count; i++) {
    const exec_checkpoint_array *array = &list.arrays[i];
    status = exec_checkpoint_read(checkpoint, array->name, array->rank, array->dims, buffer, error);
    if (status == DP_OK) status = exec_stock_write(&list, i, buffer, error);
  }
  dp_arena_free(&arena);
  return status;
}

static void note_changes(const exec_session *s, const exec_checkpoint *checkpoint, dp_str *notes) {
  const int64_t data = exec_checkpoint_counter_of(checkpoint, "data");
  if (data >= 0 && data != identity_of(s))
    dp_str_addf(notes, "%s: the data set was another when this was written: the order of samples goes on otherwise\n",
                checkpoint->path);
  const int64_t steps = exec_checkpoint_counter_of(checkpoint, "job_steps");
  if (steps >= 0 && steps != s->options.steps && s->options.scenario->train.rate_schedule != PLAN_RATE_CONSTANT)
    dp_str_addf(notes,
                "%s: was written in a job of %" PRId64 " steps, now %" PRId64
                ": the learning rate goes on "
                "otherwise\n",
                checkpoint->path, steps, s->options.steps);
}

static dp_status take(exec_session *s, const exec_checkpoint *checkpoint, dp_str *notes, dp_error *error) {
  char plan[EXEC_SESSION_PLAN];
  exec_session_fingerprint(s, plan);
  const exec_checkpoint_state run = {.seed = s->seed, .world = s->program->worker_count, .plan = plan};
  DP_TRY(exec_checkpoint_check(checkpoint, &run, error));
  if (exec_process(s->options.transport) == 0) note_changes(s, checkpoint, notes);
  for (int w = 0; w < s->program->worker_count; w++)
    if (exec_pipeline_has(s->pipeline, w)) DP_TRY(read_worker(s, w, checkpoint, error));
  s->done = s->saved = checkpoint->state.step;
  dp_str_clear(&s->checkpoint);
  dp_str_add(&s->checkpoint, checkpoint->path);
  return DP_OK;
}

dp_status exec_session_resume(exec_session *s, dp_str *notes, dp_error *error) {
  exec_transport *t = s->options.transport;
  exec_checkpoint checkpoint = {.path = NULL};
  char path[2048] = "";
  dp_status status = DP_OK;
  if (exec_process(t) == 0) {
    status = exec_checkpoint_find(s->options.folder, &checkpoint, notes, error);
    if (status == DP_OK) (void)snprintf(path, sizeof path, "%s", checkpoint.path);
  }
  status = exec_agree(t, status, error);
  if (status == DP_OK) status = exec_broadcast(t, path, sizeof path, error);
  if (status == DP_OK) {
    if (exec_process(t) > 0) status = exec_checkpoint_open(path, &checkpoint, error);
    if (status == DP_OK) status = take(s, &checkpoint, notes, error);
    status = exec_agree(t, status, error);
  }
  exec_checkpoint_close(&checkpoint);
  return status;
}
