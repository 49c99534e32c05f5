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

static dp_status write_labels(const exec_session_copy *copy, size_t count, label *labels, dp_error *error) {
  for (size_t i = 0; i < count; i++) {
    const int length = snprintf(labels[i].name, sizeof labels[i].name, "%s", copy->entries[i].name);
    if (length < 0 || (size_t)length >= sizeof labels[i].name)
      return dp_fail(error, DP_UNSUPPORTED, "the name %.80s... is too long to be sent", copy->entries[i].name);
    labels[i].floats = copy->entries[i].floats;
  }
  return DP_OK;
}

/* Room for what comes. */
static dp_status add_entries(exec_session_copy *copy, const label *labels, size_t count, dp_error *error) {
  DP_TRY(make_room(copy, count, error));
  for (size_t i = 0; i < count; i++) {
    entry *made = &copy->entries[copy->count];
    *made = (entry){.name = dp_arena_strdup(&copy->arena, labels[i].name),
                    .floats = labels[i].floats,
                    .values = malloc((size_t)labels[i].floats * sizeof *made->values)};
    copy->count++;
    if (!made->name || !made->values) return dp_fail_memory(error);
  }
  return DP_OK;
}

/* The arrays one behind the other, in pieces: a message each would take longer where they are many and small. */
static dp_status give_values(exec_transport *t, int from, entry *entries, size_t count, dp_error *error) {
  enum { PIECE = 1 << 22 }; /* floats */
  const bool mine = exec_process(t) == from;
  size_t i = 0, at = 0; /* the next array, and where in it */
  float *piece = malloc(PIECE * sizeof *piece);
  dp_status status = exec_agree(t, piece ? DP_OK : dp_fail_memory(error), error);
  while (status == DP_OK && i < count) {
    const size_t first = i, first_at = at;
    size_t filled = 0;
    while (filled < PIECE && i < count) { /* how far this piece goes */
      const size_t left = (size_t)entries[i].floats - at, n = left < PIECE - filled ? left : PIECE - filled;
      if (mine) memcpy(piece + filled, entries[i].values + at, n * sizeof *piece);
      filled += n;
      at = n < left ? at + n : 0;
      i += n == left;
    }
    status = exec_broadcast_from(t, from, piece, filled * sizeof *piece, error);
    for (size_t k = first, k_at = first_at, used = 0; status == DP_OK && !mine && used < filled; k++, k_at = 0) {
      const size_t left = (size_t)entries[k].floats - k_at, n = left < filled - used ? left : filled - used;
      memcpy(entries[k].values + k_at, piece + used, n * sizeof *piece);
      used += n;
    }
  }
  free(piece);
  return status;
}

/* What process `from` had before anything came, to all. */
static dp_status give_all(exec_transport *t, int from, size_t own, exec_session_copy *copy, dp_error *error) {
  const bool mine = exec_process(t) == from;
  int64_t count = (int64_t)own;
  DP_TRY(exec_broadcast_from(t, from, &count, sizeof count, error));
  const size_t n = (size_t)count, first = mine ? 0 : copy->count;
  label *labels = calloc(n + 1, sizeof *labels);
  dp_status status = labels ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK && mine) status = write_labels(copy, own, labels, error);
  status = exec_agree(t, status, error);
  if (status == DP_OK) status = exec_broadcast_from(t, from, labels, n * sizeof *labels, error);
  if (status == DP_OK) status = exec_agree(t, mine ? DP_OK : add_entries(copy, labels, n, error), error);
  if (status == DP_OK) status = give_values(t, from, copy->entries + first, n, error);
  free(labels);
  return status;
}

/* Every array of every process to all: any of them may need any. */
static dp_status exchange(exec_transport *t, exec_session_copy *copy, dp_error *error) {
  const size_t own = copy->count;
  for (int p = 0; t && p < exec_process_count(t); p++) DP_TRY(give_all(t, p, own, copy, error));
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
