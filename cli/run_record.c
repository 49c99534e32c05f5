#define _POSIX_C_SOURCE 200809L
#include "cli/run_record.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/median.h"
#include "profiler/cupti_capture.h"
#include "profiler/process.h"

/* ---- its folder ---- */

static char *folder_of(const char *run_folder) {
  const size_t size = strlen(run_folder) + sizeof "/records";
  char *path = malloc(size);
  if (path) (void)snprintf(path, size, "%s/records", run_folder);
  return path;
}

static bool is_records(const char *name) {
  const size_t length = strlen(name);
  return strncmp(name, "records-", 8) == 0 && length > 4 && strcmp(name + length - 4, ".dpr") == 0;
}

static dp_status remove_records(const char *folder, dp_error *error) {
  DIR *entries = opendir(folder);
  dp_status status = DP_OK;
  if (!entries && errno == ENOENT) return DP_OK;
  if (!entries) return dp_fail(error, DP_IO_FAILED, "%s: cannot be read: %s", folder, strerror(errno));
  for (const struct dirent *entry; status == DP_OK && (entry = readdir(entries));)
    if (is_records(entry->d_name) && unlinkat(dirfd(entries), entry->d_name, 0) != 0 && errno != ENOENT)
      status = dp_fail(error, DP_IO_FAILED, "%s/%s: cannot be removed: %s", folder, entry->d_name, strerror(errno));
  (void)closedir(entries);
  return status;
}

dp_status cli_run_record_clear(const char *run_folder, dp_error *error) {
  char *folder = folder_of(run_folder);
  const dp_status status = folder ? remove_records(folder, error) : dp_fail_memory(error);
  free(folder);
  return status;
}

/* ---- what the run says ---- */

static _Thread_local int64_t began_ns;

/* Instructions of another plan or size have other numbers. */
static void note(void *data, const plan_program *program, uint32_t instruction, bool begins) {
  const cli_run_record *record = data;
  if (!record->writer || program != record->program || !atomic_load(&record->on)) return;
  if (begins) {
    began_ns = prof_process_now_ns();
    return;
  }
  (void)prof_writer_add(record->writer,
                        &(prof_record){.kind = PROF_INSTRUCTION,
                                       .device = PROF_NO_DEVICE,
                                       .name = record->opcodes[program->instructions[instruction].opcode],
                                       .start_ns = began_ns,
                                       .end_ns = prof_process_now_ns(),
                                       .thread = prof_process_thread(),
                                       .value = instruction});
}

/* Of what is captured on this thread; and the graph of the copies that were made here last. */
static _Thread_local int32_t unit_now = PROF_NO_UNIT;
static _Thread_local uint32_t made_now;

static void note_unit(void *data, const plan_program *program, int unit) {
  const cli_run_record *record = data;
  unit_now = program == record->program && unit != GRAPH_NONE ? unit : PROF_NO_UNIT;
}

static void note_node(void *data, uint64_t node, uint64_t from) {
  cli_run_record *record = data;
  prof_nodes_add(&record->nodes, node, from, unit_now);
  if (from != 0) made_now = (uint32_t)(node >> 32);
}

/* Kept with the nodes, as one that there cannot be. */
static uint64_t row_of_graph(uint32_t id) { return (uint64_t)id << 32 | UINT32_MAX; }

static void note_graph(void *data, const plan_program *program, uint32_t instruction, void *made) {
  cli_run_record *record = data;
  const uint32_t ids[] = {record->writer ? prof_capture_graph(made) : 0,
                          made_now}; /* which are one, as far as is known */
  made_now = 0;
  for (int i = 0; i < 2; i++)
    if (ids[i] != 0 && record->writer && program == record->program)
      prof_nodes_add(&record->nodes, row_of_graph(ids[i]), 0, (int32_t)instruction);
}

/* At the end, so that they are in files which are kept. The thread that pumps has ended. */
static void write_nodes(cli_run_record *record) {
  const int64_t now_ns = prof_process_now_ns();
  size_t written = 0;
  for (size_t i = 0; i < record->nodes.slot_count; i++) {
    const prof_node *node = &record->nodes.slots[i];
    if (node->id == 0) continue;
    const bool is_graph = (uint32_t)node->id == UINT32_MAX;
    (void)prof_writer_add(record->writer, &(prof_record){.kind = is_graph ? PROF_MADE : PROF_NODE,
                                                         .device = PROF_NO_DEVICE,
                                                         .start_ns = now_ns,
                                                         .end_ns = now_ns,
                                                         .thread = (uint32_t)(node->id >> 32),
                                                         .graph = is_graph ? 0 : (uint32_t)node->id,
                                                         .value = (uint64_t)node->unit});
    if (++written % PROF_BLOCK_RECORDS == 0) prof_writer_flush(record->writer, false);
  }
}

static void copy_times(const plan_timeline *from, plan_timeline *to) {
  const size_t bytes = from->program->instruction_count * sizeof *from->start_s;
  memcpy(to->start_s, from->start_s, bytes);
  memcpy(to->end_s, from->end_s, bytes);
  to->step_s = from->step_s;
}

/* ---- what is kept ---- */

static dp_status keep_timeline(cli_run_record *record, uint64_t number, const plan_timeline *timeline,
                               dp_error *error) {
  if (record->events.count < record->keep) {
    cli_run_event_step step = {.number = number};
    DP_TRY(plan_timeline_init(record->program, &step.timeline, error));
    if (!dp_array_push(&record->events, step)) {
      plan_timeline_free(&step.timeline);
      return dp_fail_memory(error);
    }
  }
  cli_run_event_step *step = &record->events.items[record->next];
  step->number = number;
  copy_times(timeline, &step->timeline);
  record->next = (record->next + 1) % record->keep;
  return DP_OK;
}

static dp_status hold_step(cli_run_record *record, const prof_record *mark, const plan_timeline *timeline,
                           dp_error *error) {
  plan_timeline *own = &record->step.timeline;
  record->held = *mark;
  record->holds = true;
  record->has_times = timeline != NULL;
  if (!timeline) return DP_OK;
  if (!own->start_s) DP_TRY(plan_timeline_init(record->program, own, error));
  copy_times(timeline, own);
  return DP_OK;
}

static dp_status keep_held(cli_run_record *record, dp_error *error) {
  if (!record->holds) return DP_OK;
  record->holds = false;
  (void)prof_writer_add(record->writer, &record->held);
  return record->has_times ? keep_timeline(record, record->held.value, &record->step.timeline, error) : DP_OK;
}

/* By events it is right; it is told of by them where nothing else is. */
static void drop_held(cli_run_record *record) {
  dp_error none = DP_ERROR_INIT;
  if (record->holds && record->has_times && record->events.count == 0)
    (void)keep_timeline(record, record->held.value, &record->step.timeline, &none);
  record->holds = false;
}

dp_status cli_run_record_step(cli_run_record *record, uint64_t number, int64_t from_ns, int64_t to_ns, double step_s,
                              bool usual, const plan_timeline *timeline, dp_error *error) {
  if (record->keep == 0) return DP_OK;
  if (record->writer) prof_pace_step(&record->pace, step_s, record->switch_s, usual);
  if (!usual) return DP_OK;
  if (record->writer && !atomic_load(&record->on)) {
    record->plain++;
    return DP_OK;
  }
  if (!record->writer) return timeline ? keep_timeline(record, number, timeline, error) : DP_OK;
  return hold_step(
      record,
      &(prof_record){
          .kind = PROF_STEP, .device = PROF_NO_DEVICE, .start_ns = from_ns, .end_ns = to_ns, .value = number},
      timeline, error);
}

/* ---- which steps ---- */

void cli_run_record_expect(int64_t steps, cli_run_record *record) {
  if (!record->writer) return;
  prof_pace_begin(&record->pace, 0, record->keep, steps);
  (void)prof_pace_next(&record->pace); /* the first one is: CUPTI is on */
  atomic_store(&record->on, true);
}

/* A step of which a process records nothing is told of by none: it is torn. */
static void turn(cli_run_record *record, const exec_pipeline *pipeline, bool on) {
  const double from_s = dp_clock_s();
  record->switch_s = 0;
  if (on == atomic_load(&record->on)) return;
  atomic_store(&record->on, on);
  if (!on && pipeline) exec_pipeline_wait_idle(pipeline);
  if (!prof_capture_switch(on)) {
    if (!record->refused) fprintf(stderr, "diffpipe: note: CUPTI does not go on: what follows is not in the profile\n");
    record->refused = true;
    atomic_store(&record->on, false);
  }
  record->switch_s = dp_clock_s() - from_s;
}

dp_status cli_run_record_next(exec_transport *transport, const exec_pipeline *pipeline, cli_run_record *record,
                              dp_error *error) {
  if (!record->writer) return DP_OK;
  bool on = exec_process(transport) == 0 && prof_pace_next(&record->pace);
  DP_TRY(exec_broadcast(transport, &on, sizeof on, error));
  const dp_status status = on ? keep_held(record, error) : DP_OK;
  drop_held(record);
  turn(record, pipeline, on);
  return on ? exec_agree(transport, status, error) : DP_OK;
}

bool cli_run_record_slows(const cli_run_record *record) {
  return record->writer && atomic_load(&record->on) && record->plain > 0;
}

/* ---- its thread ---- */

enum { TICK_MS = 100, FLUSH_TICKS = 5, CLOCK_TICKS = 50 }; /* as in a program that is recorded from outside */

static void *work(void *data) {
  cli_run_record *record = data;
  for (unsigned tick = 1; !atomic_load(&record->stop); tick++) {
    dp_sleep_s(TICK_MS * 1e-3);
    prof_capture_pump(tick % FLUSH_TICKS == 0);
    if (tick % CLOCK_TICKS == 0) {
      int64_t realtime_ns = 0, clock_ns = 0;
      prof_process_clocks(&realtime_ns, &clock_ns);
      prof_writer_clock(record->writer, realtime_ns, clock_ns);
    }
    prof_writer_flush(record->writer, tick % FLUSH_TICKS == 0);
  }
  return NULL;
}

/* ---- beginning and end ---- */

/* The driver loads such a library into the process, and it is there for CUPTI. */
static dp_status check_alone(dp_error *error) {
  const char *other = getenv("CUDA_INJECTION64_PATH");
  if (!other || !*other) return DP_OK;
  return dp_fail(error, DP_UNSUPPORTED, "CUPTI serves %s (CUDA_INJECTION64_PATH)", other);
}

static uint64_t file_bytes(int processes) {
  const uint64_t least = 1u << 20, each = CLI_RUN_RECORD_BYTES / (uint64_t)processes / CLI_RUN_RECORD_FILES;
  return each > least ? each : least;
}

static dp_status start(cli_run_record *record, const exec_transport *transport, dp_error *error) {
  const prof_header header = prof_process_header(exec_process(transport));
  const prof_writer_options options = {
      .folder = record->folder, .files = CLI_RUN_RECORD_FILES, .file_bytes = file_bytes(exec_process_count(transport))};
  DP_TRY(check_alone(error));
  DP_TRY(dp_folder_make(record->folder, error));
  DP_TRY(prof_writer_open(&options, &header, &record->writer, error));
  for (int o = 0; o < PLAN_OPCODE_COUNT; o++)
    record->opcodes[o] = prof_writer_string(record->writer, plan_opcode_names[o]);
  prof_nodes_init(&record->nodes);
  record->has_nodes = true;
  prof_capture_follow(note_node, record);
  DP_TRY(prof_capture_start(record->writer, false, error));
  record->has_thread = pthread_create(&record->thread, NULL, work, record) == 0;
  if (record->has_thread) return DP_OK;
  (void)prof_capture_switch(false);
  prof_capture_finish(); /* it tells this record of nodes no more */
  return dp_fail(error, DP_UNSUPPORTED, "the system gives no thread for it");
}

void cli_run_record_init(const plan_program *program, size_t keep, cli_run_record *record) {
  *record = (cli_run_record){.program = program, .keep = keep};
  record->witness = (exec_witness){.note = note, .unit = note_unit, .graph = note_graph, .data = record};
}

/* All processes record, or none. */
dp_status cli_run_record_begin(const char *run_folder, exec_transport *transport, cli_run_record *record,
                               dp_error *error) {
  dp_error why = DP_ERROR_INIT;
  if (record->keep == 0) return DP_OK;
  record->folder = folder_of(run_folder);
  DP_TRY(exec_agree(transport, record->folder ? DP_OK : dp_fail_memory(error), error));
  int64_t failed = start(record, transport, &why) != DP_OK;
  if (failed)
    fprintf(stderr,
            "diffpipe: note: process %d: kernels are not recorded, the profile is made from the queues' events: %s\n",
            exec_process(transport), why.text);
  DP_TRY(exec_maximum(transport, &failed, error));
  if (!failed) return DP_OK;
  cli_run_record_end(NULL, record);
  prof_writer_free(record->writer);
  record->writer = NULL;
  return exec_agree(transport, remove_records(record->folder, error), error);
}

void cli_run_record_end(const exec_pipeline *pipeline, cli_run_record *record) {
  if (!record->writer) return;
  if (record->has_thread) {
    atomic_store(&record->stop, true);
    (void)pthread_join(record->thread, NULL);
    record->has_thread = false;
    drop_held(record);
    if (pipeline) exec_pipeline_wait_idle(pipeline);
    (void)prof_capture_switch(false);
    prof_capture_finish();
    write_nodes(record);
  }
  prof_writer_close(record->writer);
}

void cli_run_record_free(cli_run_record *record) {
  cli_run_record_end(NULL, record);
  prof_writer_free(record->writer);
  plan_timeline_free(&record->step.timeline);
  for (size_t e = 0; e < record->events.count; e++) plan_timeline_free(&record->events.items[e].timeline);
  dp_array_free(&record->events);
  if (record->has_nodes) prof_nodes_free(&record->nodes);
  free(record->folder);
  record->writer = NULL;
  record->folder = NULL;
}

/* ---- what came of it ---- */

static void count_lost(const prof_session *session, cli_run_recorded *recorded) {
  for (size_t p = 0; p < session->processes.count; p++) {
    const prof_counts *counts = &session->processes.items[p].counts;
    recorded->lost += counts->no_buffer + counts->not_written + counts->source;
  }
  for (size_t i = 0; i < session->records.count; i++) {
    const prof_record *r = &session->records.items[i];
    if (r->kind == PROF_OVERHEAD) recorded->recording_s += (double)(r->end_ns - r->start_ns) * 1e-9;
  }
}

static dp_status join_records(const cli_run_record *record, cli_run_recorded *recorded, dp_error *error) {
  prof_session session;
  const dp_status status =
      prof_join_read(record->folder, record->program, record->keep, &session, &recorded->join, error);
  if (status == DP_OK) count_lost(&session, recorded);
  prof_session_free(&session);
  return status;
}

static int by_number(const void *a, const void *b) {
  const prof_run_source *x = a, *y = b;
  return (x->number > y->number) - (x->number < y->number);
}

static void list_steps(const cli_run_record *record, const cli_run_recorded *recorded, prof_run_source *sources,
                       size_t *count) {
  *count = 0;
  for (size_t s = 0; s < recorded->join.steps.count; s++) {
    const prof_joined *step = &recorded->join.steps.items[s];
    sources[(*count)++] = (prof_run_source){step->number, &step->timeline, step};
  }
  if (*count > 0) return;
  for (size_t e = 0; e < record->events.count; e++)
    sources[(*count)++] = (prof_run_source){record->events.items[e].number, &record->events.items[e].timeline, NULL};
  if (*count > 0) qsort(sources, *count, sizeof *sources, by_number);
}

/* The same steps that the tables tell of. */
static void take_events(const cli_run_record *record, cli_run_recorded *recorded) {
  double found[CLI_RUN_RECORD_MOST];
  size_t count = 0;
  for (size_t s = 0; s < recorded->tables.step_count; s++) {
    recorded->step_events_s[s] = 0;
    for (size_t e = 0; e < record->events.count; e++)
      if (recorded->tables.steps[s].number == record->events.items[e].number)
        recorded->step_events_s[s] = record->events.items[e].timeline.step_s;
    if (recorded->step_events_s[s] > 0) found[count++] = recorded->step_events_s[s];
  }
  recorded->events_s = dp_median(found, count);
}

dp_status cli_run_recorded_of(const cli_run_record *record, cli_run_recorded *recorded, dp_error *error) {
  cli_run_recorded made = {.lost = 0};
  prof_run_source sources[CLI_RUN_RECORD_MOST];
  size_t count = 0;
  dp_status status = record->writer ? join_records(record, &made, error) : DP_OK;
  if (status == DP_OK) list_steps(record, &made, sources, &count);
  if (status == DP_OK && count > 0) status = prof_run_tables_of(sources, count, &made.tables, error);
  if (status == DP_OK && record->writer) made.cost = prof_pace_cost_of(&record->pace);
  if (status == DP_OK) take_events(record, &made);
  if (status == DP_OK)
    *recorded = made;
  else
    cli_run_recorded_free(&made);
  return status;
}

void cli_run_recorded_free(cli_run_recorded *recorded) {
  prof_run_tables_free(&recorded->tables);
  prof_join_free(&recorded->join);
  *recorded = (cli_run_recorded){.lost = 0};
}
