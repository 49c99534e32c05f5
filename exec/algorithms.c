#include "exec/algorithms.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "exec/session.h"

typedef struct entry {
  const char *problem, *algorithm;
  bool used; /* this run's */
} entry;

typedef struct device {
  const char *name;
  DP_ARRAY(entry) entries;
  size_t loaded;   /* from files */
  size_t replaced; /* of these, timed again */
  bool asked;      /* a worker is on it */
} device;

/* What is added stays in its order, and texts where they are. */
struct exec_algorithms {
  pthread_mutex_t lock;
  dp_arena arena;
  DP_ARRAY(device) devices;
  bool failed; /* there was no memory for something */
};

dp_status exec_algorithms_create(exec_algorithms **algorithms, dp_error *error) {
  exec_algorithms *a = calloc(1, sizeof *a);
  if (!a) return dp_fail_memory(error);
  if (pthread_mutex_init(&a->lock, NULL) != 0) {
    free(a);
    return dp_fail(error, DP_UNSUPPORTED, "the system gives no more mutexes");
  }
  *algorithms = a;
  return DP_OK;
}

void exec_algorithms_free(exec_algorithms *a) {
  if (!a) return;
  for (size_t d = 0; d < a->devices.count; d++) dp_array_free(&a->devices.items[d].entries);
  dp_array_free(&a->devices);
  dp_arena_free(&a->arena);
  (void)pthread_mutex_destroy(&a->lock);
  free(a);
}

/* ---- looking and adding, with the lock held ---- */

static device *device_of(exec_algorithms *a, const char *name) {
  for (size_t d = 0; d < a->devices.count; d++)
    if (strcmp(a->devices.items[d].name, name) == 0) return &a->devices.items[d];
  const device made = {.name = dp_arena_strdup(&a->arena, name)};
  if (made.name && dp_array_push(&a->devices, made)) return &a->devices.items[a->devices.count - 1];
  a->failed = true;
  return NULL;
}

static entry *entry_of(const device *d, const char *problem) {
  for (size_t i = 0; i < d->entries.count; i++)
    if (strcmp(d->entries.items[i].problem, problem) == 0) return &d->entries.items[i];
  return NULL;
}

/* Whether it is known now. */
static bool put(exec_algorithms *a, device *d, const char *problem, const char *algorithm, bool used) {
  entry *known = entry_of(d, problem);
  const entry made = {known ? known->problem : dp_arena_strdup(&a->arena, problem),
                      dp_arena_strdup(&a->arena, algorithm), used};
  bool done = made.problem && made.algorithm;
  if (done && known)
    *known = made;
  else
    done = done && dp_array_push(&d->entries, made);
  a->failed = a->failed || !done;
  return done;
}

const char *exec_algorithms_find(exec_algorithms *a, const char *name, const char *problem) {
  const char *algorithm = NULL;
  (void)pthread_mutex_lock(&a->lock);
  device *d = device_of(a, name);
  entry *known = d ? entry_of(d, problem) : NULL;
  if (d) d->asked = true;
  if (known) {
    known->used = true;
    algorithm = known->algorithm;
  }
  (void)pthread_mutex_unlock(&a->lock);
  return algorithm;
}

void exec_algorithms_keep(exec_algorithms *a, const char *name, const char *problem, const char *algorithm) {
  (void)pthread_mutex_lock(&a->lock);
  device *d = device_of(a, name);
  if (d) {
    d->asked = true;
    d->replaced += entry_of(d, problem) != NULL;
    (void)put(a, d, problem, algorithm, true);
  }
  (void)pthread_mutex_unlock(&a->lock);
}

/* ---- files ---- */

typedef struct file_keys {
  const char *format;
  int64_t version;
  const dp_node *devices;
} file_keys;

typedef struct device_keys {
  const char *device;
  const dp_node *algorithms;
} device_keys;

static const dp_field file_fields[] = {
    {"format", DP_FIELD_STRING, offsetof(file_keys, format), true, 0, 0, NULL, "diffpipe-algorithms"},
    {"version", DP_FIELD_INTEGER, offsetof(file_keys, version), true, 1, 1, NULL, "1"},
    {"devices", DP_FIELD_NODE, offsetof(file_keys, devices), true, 0, 0, NULL, "list of tables"},
};

static const dp_field device_fields[] = {
    {"device", DP_FIELD_STRING, offsetof(device_keys, device), true, 0, 0, NULL,
     "its name, the multiprocessors of the part, the versions of driver and libraries"},
    {"algorithms", DP_FIELD_NODE, offsetof(device_keys, algorithms), true, 0, 0, NULL,
     "a table: by problem the algorithm, each in the words of the kernels"},
};

size_t exec_algorithms_tables(const plan_key_table **tables) {
  static const plan_key_table all[] = {{"the top of algorithms.json", file_fields, DP_COUNT_OF(file_fields)},
                                       {"`devices`", device_fields, DP_COUNT_OF(device_fields)}};
  *tables = all;
  return DP_COUNT_OF(all);
}

static dp_status read_device(exec_algorithms *a, const dp_node *table, bool own, dp_error *error) {
  device_keys keys = {.device = NULL};
  char shown[80];
  DP_TRY(dp_schema_read(table, NULL, "devices", device_fields, DP_COUNT_OF(device_fields), &keys, error));
  if (keys.algorithms->kind != DP_NODE_TABLE)
    return dp_fail_at(error, keys.algorithms, "algorithms: found %s, allowed: a table",
                      dp_node_show(keys.algorithms, shown));
  device *d = device_of(a, keys.device);
  if (!d) return dp_fail_memory(error);
  for (size_t i = 0; i < keys.algorithms->count; i++) {
    const dp_node *item = keys.algorithms->items[i];
    if (item->kind != DP_NODE_STRING || !item->string[0] || !item->key[0])
      return dp_fail_at(error, item, "algorithms: found %s for \"%.60s\", allowed: a string that is not empty",
                        dp_node_show(item, shown), item->key);
    if (entry_of(d, item->key)) continue;
    if (!put(a, d, item->key, item->string, own)) return dp_fail_memory(error);
    d->loaded++;
  }
  return DP_OK;
}

static dp_status read_document(exec_algorithms *a, const dp_document *document, bool own, dp_error *error) {
  file_keys keys = {.format = NULL};
  char shown[80];
  DP_TRY(dp_schema_check_format(document->root, "diffpipe-algorithms", 1, error));
  DP_TRY(dp_schema_read(document->root, NULL, "algorithms", file_fields, DP_COUNT_OF(file_fields), &keys, error));
  if (keys.devices->kind != DP_NODE_ARRAY)
    return dp_fail_at(error, keys.devices, "devices: found %s, allowed: a list", dp_node_show(keys.devices, shown));
  for (size_t i = 0; i < keys.devices->count; i++) DP_TRY(read_device(a, keys.devices->items[i], own, error));
  return DP_OK;
}

dp_status exec_algorithms_parse(exec_algorithms *a, const char *text, size_t length, const char *name, bool own,
                                dp_error *error) {
  dp_document document;
  DP_TRY(dp_document_parse_json(text, length, name, &document, error));
  const dp_status status = read_document(a, &document, own, error);
  dp_document_free(&document);
  return status;
}

dp_status exec_algorithms_read(exec_algorithms *a, const char *path, bool own, dp_error *error) {
  enum { MOST_BYTES = 64 << 20 };
  char *text = NULL;
  size_t length = 0;
  if (access(path, F_OK) != 0) return DP_OK;
  DP_TRY(dp_file_read(path, MOST_BYTES, &text, &length, error));
  const dp_status status = exec_algorithms_parse(a, text, length, path, own, error);
  free(text);
  return status;
}

static bool is_written(const entry *e, bool all) { return all || e->used; }

static bool has_any(const device *d, bool all) {
  for (size_t i = 0; i < d->entries.count; i++)
    if (is_written(&d->entries.items[i], all)) return true;
  return false;
}

dp_status exec_algorithms_text(const exec_algorithms *a, bool all, dp_str *text, dp_error *error) {
  const char *between = "";
  dp_str_add(text, "{\n \"format\": \"diffpipe-algorithms\",\n \"version\": 1,\n \"devices\": [");
  for (size_t d = 0; d < a->devices.count; d++) {
    const device *of = &a->devices.items[d];
    const char *comma = "";
    if (!has_any(of, all)) continue;
    dp_str_addf(text, "%s\n  {\"device\": ", between);
    dp_str_add_quoted(text, of->name);
    dp_str_add(text, ",\n   \"algorithms\": {");
    for (size_t i = 0; i < of->entries.count; i++) {
      if (!is_written(&of->entries.items[i], all)) continue;
      dp_str_addf(text, "%s\n    ", comma);
      dp_str_add_quoted(text, of->entries.items[i].problem);
      dp_str_add(text, ": ");
      dp_str_add_quoted(text, of->entries.items[i].algorithm);
      comma = ",";
    }
    dp_str_add(text, "}}");
    between = ",";
  }
  dp_str_add(text, "]\n}\n");
  return text->failed || a->failed ? dp_fail_memory(error) : DP_OK;
}

static dp_status write_file(const exec_algorithms *a, bool all, const char *path, dp_error *error) {
  dp_str text = {0};
  dp_status status = exec_algorithms_text(a, all, &text, error);
  if (status == DP_OK) status = dp_file_write(path, text.text, text.length, error);
  dp_str_free(&text);
  return status;
}

dp_status exec_algorithms_write(const exec_algorithms *a, const char *path, dp_error *error) {
  return write_file(a, false, path, error);
}

dp_status exec_algorithms_add_to(exec_algorithms *a, const char *path, dp_error *error) {
  DP_TRY(exec_algorithms_read(a, path, false, error));
  return write_file(a, true, path, error);
}

void exec_algorithms_note(const exec_algorithms *a, dp_str *lines) {
  const char *other = NULL;
  for (size_t d = 0; d < a->devices.count; d++)
    if (a->devices.items[d].loaded > 0) other = a->devices.items[d].name;
  for (size_t d = 0; d < a->devices.count; d++) {
    const device *of = &a->devices.items[d];
    if (of->asked && of->loaded == 0 && other)
      dp_str_addf(lines, "algorithms were remembered for %s, and are timed again for %s\n", other, of->name);
    if (of->replaced > 0)
      dp_str_addf(lines, "%zu of the algorithms that were remembered for %s cannot be had, and were timed again\n",
                  of->replaced, of->name);
  }
}

/* ---- other processes ---- */

/* Takes all of another's, which is right. */
static bool take(exec_algorithms *a, const exec_algorithms *right, bool *changed) {
  for (size_t d = 0; d < right->devices.count; d++) {
    const device *from = &right->devices.items[d];
    device *to = device_of(a, from->name);
    for (size_t i = 0; to && i < from->entries.count; i++) {
      const entry *e = &from->entries.items[i], *known = entry_of(to, e->problem);
      *changed = *changed || (known && known->used && strcmp(known->algorithm, e->algorithm) != 0);
      if (!put(a, to, e->problem, e->algorithm, true)) return false;
    }
    if (!to) return false;
  }
  return true;
}

/* What the processes found, the first one's first: all[count * bytes], each a text of a file. */
static dp_status merge(const char *all, int count, size_t bytes, dp_str *text, dp_error *error) {
  exec_algorithms *merged = NULL;
  DP_TRY(exec_algorithms_create(&merged, error));
  dp_status status = DP_OK;
  for (int p = 0; status == DP_OK && p < count; p++) {
    const char *of = all + (size_t)p * bytes;
    status = exec_algorithms_parse(merged, of, strlen(of), "another process", true, error);
  }
  if (status == DP_OK) status = exec_algorithms_text(merged, true, text, error);
  exec_algorithms_free(merged);
  return status;
}

/* Every process's text to process 0. */
static dp_status collect(const dp_str *mine, exec_transport *t, dp_str *text, dp_error *error) {
  int64_t most = (int64_t)mine->length + 1;
  DP_TRY(exec_maximum(t, &most, error));
  const size_t bytes = (size_t)most, all_bytes = t->process == 0 ? (size_t)t->process_count * bytes : 1;
  char *padded = calloc(1, bytes), *all = calloc(1, all_bytes);
  dp_status status = exec_agree(t, padded && all ? DP_OK : dp_fail_memory(error), error);
  if (status == DP_OK) {
    memcpy(padded, dp_str_text(mine), mine->length);
    status = exec_gather(t, padded, bytes, all, error);
    if (status == DP_OK && t->process == 0) status = merge(all, t->process_count, bytes, text, error);
    status = exec_agree(t, status, error);
  }
  free(padded);
  free(all);
  return status;
}

static dp_status spread(exec_algorithms *a, exec_transport *t, const dp_str *text, bool *changed, dp_error *error) {
  exec_algorithms *right = NULL;
  int64_t length = (int64_t)text->length;
  DP_TRY(exec_maximum(t, &length, error));
  char *buffer = calloc(1, (size_t)length + 1);
  dp_status status = exec_agree(t, buffer ? DP_OK : dp_fail_memory(error), error);
  if (status == DP_OK) {
    memcpy(buffer, dp_str_text(text), text->length);
    status = exec_broadcast(t, buffer, (size_t)length, error);
    if (status == DP_OK) status = exec_algorithms_create(&right, error);
    if (status == DP_OK) status = exec_algorithms_parse(right, buffer, (size_t)length, "process 0", true, error);
    if (status == DP_OK && !take(a, right, changed)) status = dp_fail_memory(error);
    status = exec_agree(t, status, error);
  }
  exec_algorithms_free(right);
  free(buffer);
  return status;
}

dp_status exec_algorithms_agree(exec_algorithms *a, exec_transport *t, bool *changed, dp_error *error) {
  dp_str mine = {0}, text = {0};
  *changed = false;
  if (exec_process_count(t) == 1) return DP_OK;
  dp_status status = exec_agree(t, exec_algorithms_text(a, false, &mine, error), error);
  if (status == DP_OK) status = collect(&mine, t, &text, error);
  if (status == DP_OK) status = spread(a, t, &text, changed, error);
  dp_str_free(&mine);
  dp_str_free(&text);
  return status;
}
