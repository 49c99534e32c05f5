#include "profiler/trace.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* Rows of a process: 1 its steps, then streams and threads as they come. */
typedef struct row {
  uint16_t process;
  uint16_t device; /* PROF_NO_DEVICE: a thread */
  uint32_t stream; /* or thread */
} row;

typedef struct memory_row {
  uint16_t process, device;
  int64_t bytes;
} memory_row;

typedef struct tracer {
  const prof_session *session;
  const unsigned char *classes;
  FILE *stream;
  bool first;
  int64_t base_ns;
  DP_ARRAY(row) rows;
  DP_ARRAY(memory_row) memory;
  char **texts; /* of the names, as JSON; [names] */
} tracer;

static char *as_json(const char *text) {
  json_t *string = json_string(text); /* the session has cleaned it */
  char *json = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
  json_decref(string);
  return json;
}

static void begin(tracer *t, const char *ph, uint16_t process, size_t tid) {
  fprintf(t->stream, "%s\n{\"ph\":\"%s\",\"pid\":%u,\"tid\":%zu", t->first ? "" : ",", ph, process + 1u, tid);
  t->first = false;
}

static void time_of(tracer *t, const char *key, int64_t ns) {
  fprintf(t->stream, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

/* The row's number, from 2; 0: no memory. A row that is new gets its name. */
static size_t row_of(tracer *t, const prof_record *r, bool on_device) {
  const row wanted = {.process = r->process,
                      .device = on_device ? r->device : PROF_NO_DEVICE,
                      .stream = on_device ? r->stream : r->thread};
  for (size_t i = 0; i < t->rows.count; i++) {
    const row *known = &t->rows.items[i];
    if (known->process == wanted.process && known->device == wanted.device && known->stream == wanted.stream)
      return i + 2;
  }
  if (!dp_array_push(&t->rows, wanted)) return 0;
  const size_t tid = t->rows.count + 1;
  begin(t, "M", r->process, tid);
  fputs(",\"name\":\"thread_name\",\"args\":{\"name\":\"", t->stream);
  if (on_device)
    fprintf(t->stream, "device %u stream %" PRIu32 "\"}}", wanted.device, wanted.stream);
  else
    fprintf(t->stream, "thread %" PRIu32 "\"}}", wanted.stream);
  return tid;
}

static const char *name_of(const tracer *t, const prof_record *r) {
  if (r->name) return t->texts[r->name];
  switch (r->kind) {
    case PROF_COPY:
      return "\"copy\"";
    case PROF_MEMSET:
      return "\"memset\"";
    case PROF_GRAPH:
      return "\"graph\"";
    default:
      return "\"call\"";
  }
}

static bool write_span(tracer *t, const prof_record *r) {
  const bool on_device = prof_on_device(r);
  const size_t tid = row_of(t, r, on_device);
  if (tid == 0) return false;
  begin(t, "X", r->process, tid);
  fprintf(t->stream, ",\"name\":%s,\"cat\":\"%s\"", name_of(t, r),
          on_device ? prof_class_names[prof_record_class(r, t->classes)] : prof_kind_name(r->kind));
  time_of(t, "ts", r->start_ns - t->base_ns);
  time_of(t, "dur", r->end_ns - r->start_ns);
  fprintf(t->stream, ",\"args\":{\"correlation\":%" PRIu32, r->correlation);
  if (r->kind == PROF_COPY || r->kind == PROF_MEMSET) fprintf(t->stream, ",\"bytes\":%" PRIu64, r->value);
  if (r->kind == PROF_COPY) fprintf(t->stream, ",\"direction\":\"%s\"", prof_copy_name(r->detail));
  if (r->kind == PROF_KERNEL)
    fprintf(t->stream, ",\"grid\":[%" PRIu32 ",%" PRIu32 ",%" PRIu32 "],\"threads\":%u", r->grid[0], r->grid[1],
            r->grid[2], r->block_threads);
  fputs("}}", t->stream);
  return true;
}

/* ---- ranges: of a thread's stack, or with ids ---- */

typedef struct range_array {
  size_t *items; /* records */
  size_t count, capacity;
} range_array;

static bool is_of(const prof_record *opening, const prof_record *end) {
  if (opening->process != end->process || opening->value != end->value) return false;
  return end->value != 0 || opening->thread == end->thread;
}

static bool write_range(tracer *t, const prof_record *from, const prof_record *to) {
  const size_t tid = row_of(t, from, false);
  if (tid == 0) return false;
  for (int end = 0; end < (from->value ? 2 : 1); end++) {
    begin(t, !from->value ? "X" : end ? "e" : "b", from->process, tid);
    fprintf(t->stream, ",\"name\":%s,\"cat\":\"range\"", from->name ? t->texts[from->name] : "\"range\"");
    time_of(t, "ts", (end ? to : from)->start_ns - t->base_ns);
    if (from->value)
      fprintf(t->stream, ",\"id\":\"%u.%" PRIu64 "\"", from->process, from->value);
    else
      time_of(t, "dur", to->start_ns - from->start_ns);
    fputs("}", t->stream);
  }
  return true;
}

static bool follow_range(tracer *t, range_array *open, size_t i) {
  const prof_record *records = t->session->records.items;
  if (records[i].kind == PROF_RANGE_BEGIN) return dp_array_push(open, i);
  size_t o = open->count;
  while (o > 0 && !is_of(&records[open->items[o - 1]], &records[i])) o--;
  if (o == 0) return true;
  const size_t from = open->items[o - 1];
  memmove(&open->items[o - 1], &open->items[o], (open->count - o) * sizeof *open->items);
  open->count--;
  return write_range(t, &records[from], &records[i]);
}

static bool write_memory(tracer *t, const prof_record *r) {
  size_t i = 0;
  while (i < t->memory.count && (t->memory.items[i].process != r->process || t->memory.items[i].device != r->device))
    i++;
  if (i == t->memory.count && !dp_array_push(&t->memory, ((memory_row){r->process, r->device, 0}))) return false;
  memory_row *memory = &t->memory.items[i];
  const int64_t bytes = r->value > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)r->value;
  memory->bytes += r->kind == PROF_ALLOCATE ? bytes : -bytes;
  if (memory->bytes < 0 || memory->bytes > INT64_MAX / 2) memory->bytes = 0;
  begin(t, "C", r->process, 0);
  fprintf(t->stream, ",\"name\":\"memory of device %u\"", r->device);
  time_of(t, "ts", r->start_ns - t->base_ns);
  fprintf(t->stream, ",\"args\":{\"bytes\":%" PRId64 "}}", memory->bytes);
  return true;
}

static bool write_record(tracer *t, range_array *open, size_t i) {
  const prof_record *r = &t->session->records.items[i];
  switch (r->kind) {
    case PROF_STEP:
    case PROF_NODE:
    case PROF_MADE:
      return true; /* the steps that were found are on their own row; graphs and their nodes are nothing that happened */
    case PROF_RANGE_BEGIN:
    case PROF_RANGE_END:
      return follow_range(t, open, i);
    case PROF_ALLOCATE:
    case PROF_FREE:
      return r->device == PROF_NO_DEVICE || write_memory(t, r);
    default:
      return write_span(t, r);
  }
}

static bool write_processes(tracer *t, const prof_steps *steps) {
  for (size_t p = 0; p < t->session->processes.count; p++) {
    const prof_header *header = &t->session->processes.items[p].header;
    char *host = as_json(header->host);
    if (!host) return false;
    begin(t, "M", (uint16_t)p, 0);
    fprintf(t->stream, ",\"name\":\"process_name\",\"args\":{\"name\":%s}}", host);
    free(host);
    begin(t, "M", (uint16_t)p, 0);
    fprintf(t->stream, ",\"name\":\"process_labels\",\"args\":{\"labels\":\"pid %" PRId32 ", rank %" PRId32 "\"}}",
            header->pid, header->rank);
    begin(t, "M", (uint16_t)p, 1);
    fputs(",\"name\":\"thread_name\",\"args\":{\"name\":\"steps\"}}", t->stream);
  }
  for (size_t s = 0; s < steps->items.count; s++) {
    const prof_step *step = &steps->items.items[s];
    begin(t, "X", step->process, 1);
    fprintf(t->stream, ",\"name\":\"step %" PRIu64 "\",\"cat\":\"step\"", step->number);
    time_of(t, "ts", step->start_ns - t->base_ns);
    time_of(t, "dur", step->end_ns - step->start_ns);
    fputs("}", t->stream);
  }
  return true;
}

static bool write_all(tracer *t, const prof_steps *steps) {
  const prof_session *session = t->session;
  range_array open = {0};
  t->texts = calloc(session->names.count + 1, sizeof *t->texts);
  bool done = t->texts != NULL;
  for (size_t n = 1; done && n < session->names.count; n++)
    done = (t->texts[n] = as_json(session->names.items[n])) != NULL;
  fprintf(t->stream, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"start_ns\":%" PRId64 "},\"traceEvents\":[",
          t->base_ns);
  done = done && write_processes(t, steps);
  for (size_t i = 0; done && i < session->records.count; i++) done = write_record(t, &open, i);
  fputs("\n]}\n", t->stream);
  dp_array_free(&open);
  for (size_t n = 1; t->texts && n < session->names.count; n++) free(t->texts[n]);
  free(t->texts);
  return done;
}

dp_status prof_trace_write(const prof_session *session, const unsigned char *classes, const prof_steps *steps,
                           const char *path, dp_error *error) {
  dp_output output;
  DP_TRY(dp_output_open(path, &output, error));
  tracer t = {.session = session, .classes = classes, .stream = output.stream, .first = true};
  if (session->records.count) t.base_ns = session->records.items[0].start_ns;
  const bool done = write_all(&t, steps);
  dp_array_free(&t.rows);
  dp_array_free(&t.memory);
  if (done) return dp_output_commit(&output, error);
  dp_output_abandon(&output);
  return dp_fail_memory(error);
}
