/* A checkpoint in memory: what exec/session_stock.h lists, by the same names and in the layout of files, so that a
 * session of another plan finds there what its workers need. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/session_stock.h"

typedef struct entry {
  const char *name;
  int64_t floats;
  float *values;
} entry;

struct exec_session_copy {
  dp_arena arena; /* names */
  entry *entries; /* by name */
  size_t count, room;
  int64_t done, saved;
  uint64_t seed;
  const char *checkpoint;
  int first_workers;
  char first_plan[EXEC_SESSION_PLAN];
};

static int by_name(const void *left, const void *right) {
  return strcmp(((const entry *)left)->name, ((const entry *)right)->name);
}

static dp_status make_room(exec_session_copy *copy, size_t more, dp_error *error) {
  if (copy->count + more <= copy->room) return DP_OK;
  const size_t room = 2 * copy->room + more;
  entry *entries = realloc(copy->entries, room * sizeof *entries);
  if (!entries) return dp_fail_memory(error);
  copy->entries = entries;
  copy->room = room;
  return DP_OK;
}

static dp_status take_worker(exec_session *s, int worker, exec_session_copy *copy, dp_error *error) {
  dp_arena arena = {0};
  exec_stock stock;
  dp_status status = exec_stock_take(s, worker, &arena, &stock, error);
  if (status == DP_OK) status = make_room(copy, stock.count, error);
  for (size_t i = 0; status == DP_OK && i < stock.count; i++) {
    entry *made = &copy->entries[copy->count];
    *made = (entry){.name = dp_arena_strdup(&copy->arena, stock.arrays[i].name),
                    .floats = exec_stock_floats(&stock.arrays[i])};
    made->values = malloc((size_t)made->floats * sizeof *made->values);
    copy->count++;
    status = made->name && made->values ? exec_stock_read(&stock, i, made->values, error) : dp_fail_memory(error);
  }
  dp_arena_free(&arena);
  return status;
}

/* ---- what the other processes have ---- */

typedef struct label { /* of an array that a process sends */
  int64_t floats;
  char name[504];
} label;

/* A new entry for what comes; DP_BAD_INPUT: its name was cut. */
static dp_status add_entry(exec_session_copy *copy, const label *sent, dp_error *error) {
  if (strlen(sent->name) + 1 >= sizeof sent->name)
    return dp_fail(error, DP_UNSUPPORTED, "the name %.80s... is too long to be sent", sent->name);
  DP_TRY(make_room(copy, 1, error));
  entry *made = &copy->entries[copy->count];
  *made = (entry){.name = dp_arena_strdup(&copy->arena, sent->name),
                  .floats = sent->floats,
                  .values = malloc((size_t)sent->floats * sizeof *made->values)};
  copy->count++;
  return made->name && made->values ? DP_OK : dp_fail_memory(error);
}

/* Every array of every process to all: any of them may need any. */
static dp_status exchange(exec_transport *t, exec_session_copy *copy, dp_error *error) {
  const int64_t own = (int64_t)copy->count;
  for (int p = 0; p < exec_process_count(t) && t; p++) {
    int64_t count = own;
    DP_TRY(exec_broadcast_from(t, p, &count, sizeof count, error));
    for (int64_t i = 0; i < count; i++) {
      const bool mine = exec_process(t) == p;
      label sent = {.floats = mine ? copy->entries[i].floats : 0};
      if (mine) (void)snprintf(sent.name, sizeof sent.name, "%s", copy->entries[i].name);
      DP_TRY(exec_broadcast_from(t, p, &sent, sizeof sent, error));
      DP_TRY(exec_agree(t, mine ? DP_OK : add_entry(copy, &sent, error), error));
      float *values = mine ? copy->entries[i].values : copy->entries[copy->count - 1].values;
      DP_TRY(exec_broadcast_from(t, p, values, (size_t)sent.floats * sizeof *values, error));
    }
  }
  return DP_OK;
}

static dp_status fill(exec_session *s, exec_session_copy *copy, dp_error *error) {
  copy->done = s->done;
  copy->saved = s->saved;
  copy->seed = s->seed;
  copy->checkpoint = dp_arena_strdup(&copy->arena, dp_str_text(&s->checkpoint));
  copy->first_workers = s->first_workers > 0 ? s->first_workers : s->program->worker_count;
  if (s->first_workers > 0)
    memcpy(copy->first_plan, s->first_plan, sizeof copy->first_plan);
  else
    exec_session_fingerprint(s, copy->first_plan);
  if (!copy->checkpoint) return dp_fail_memory(error);
  for (int w = 0; w < s->program->worker_count; w++)
    if (plan_worker_replica(s->plan, w) == 0 && exec_pipeline_has(s->pipeline, w))
      DP_TRY(take_worker(s, w, copy, error));
  return DP_OK;
}

static dp_status fill_from_all(exec_session *s, exec_session_copy *copy, dp_error *error) {
  DP_TRY(exec_agree(s->options.transport, fill(s, copy, error), error));
  DP_TRY(exchange(s->options.transport, copy, error));
  if (copy->count) qsort(copy->entries, copy->count, sizeof *copy->entries, by_name);
  return DP_OK;
}

dp_status exec_session_take(exec_session *s, exec_session_copy **copy, dp_error *error) {
  exec_session_copy *made = calloc(1, sizeof *made);
  dp_status status = exec_agree(s->options.transport, made ? DP_OK : dp_fail_memory(error), error);
  if (status == DP_OK) status = fill_from_all(s, made, error);
  if (status == DP_OK)
    *copy = made;
  else
    exec_session_copy_free(made);
  return status;
}

void exec_session_copy_free(exec_session_copy *copy) {
  if (!copy) return;
  for (size_t i = 0; i < copy->count; i++) free(copy->entries[i].values);
  free(copy->entries);
  dp_arena_free(&copy->arena);
  free(copy);
}

static dp_status put_worker(exec_session *s, int worker, const exec_session_copy *copy, dp_error *error) {
  dp_arena arena = {0};
  exec_stock stock;
  dp_status status = exec_stock_take(s, worker, &arena, &stock, error);
  for (size_t i = 0; status == DP_OK && i < stock.count; i++) {
    const entry key = {.name = stock.arrays[i].name};
    const entry *found = copy->count ? bsearch(&key, copy->entries, copy->count, sizeof key, by_name) : NULL;
    if (!found || found->floats != exec_stock_floats(&stock.arrays[i]))
      status = dp_fail(error, DP_INTERNAL, "\"%s\" of the plan is not in what the other session had, or otherwise",
                       key.name);
    else
      status = exec_stock_write(&stock, i, found->values, error);
  }
  dp_arena_free(&arena);
  return status;
}

static dp_status put(exec_session *s, const exec_session_copy *copy, dp_error *error) {
  char own[EXEC_SESSION_PLAN];
  if (s->seed != copy->seed) return dp_fail(error, DP_INTERNAL, "a copy of another training");
  for (int w = 0; w < s->program->worker_count; w++)
    if (exec_pipeline_has(s->pipeline, w)) DP_TRY(put_worker(s, w, copy, error));
  s->done = copy->done;
  s->saved = copy->saved;
  dp_str_clear(&s->checkpoint);
  dp_str_add(&s->checkpoint, copy->checkpoint);
  exec_session_fingerprint(s, own);
  const bool first = s->program->worker_count == copy->first_workers && strcmp(own, copy->first_plan) == 0;
  s->first_workers = first ? 0 : copy->first_workers;
  memcpy(s->first_plan, copy->first_plan, sizeof s->first_plan);
  return s->checkpoint.failed ? dp_fail_memory(error) : DP_OK;
}

dp_status exec_session_put(exec_session *s, const exec_session_copy *copy, dp_error *error) {
  return exec_agree(s->options.transport, put(s, copy, error), error);
}
