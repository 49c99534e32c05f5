/* A run that records itself, without a device: tests/fake_cupti.c, loaded by tests/traced.sh, stands for CUPTI, and its
 * step's work is that of the backward of a program of one worker.
 *
 * usage: recorded_run FOLDER recorded|paced|held|late|events
 * held, late: paced, where the last step of each burst, or all of it, has wrong times, by FAKE_CUPTI of that name
 */
#define _GNU_SOURCE
#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/run_profile.h"
#include "profiler/process.h"
#include "tests/plan_reference.h"
#include "tests/suite.h"

enum { STEPS = 6, LONG = 80, KEPT = 4, WORK = 6 };

static const char *folder, *how;
static void (*fake_step)(int graph), (*fake_node)(int node, int copy);
static plan_program program;
static plan_timeline played;
static bool paced; /* and its work is a graph's */
static bool late;  /* all of whose times are wrong */
static cli_run_record record;

static void find_fake(void) {
  void *cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
  void *found = cupti ? dlsym(cupti, "fake_step") : NULL;
  memcpy(&fake_step, &found, sizeof found);
  ck_assert(fake_step);
  found = dlsym(cupti, "fake_node");
  memcpy(&fake_node, &found, sizeof found);
  ck_assert(fake_node);
}

/* The longer for being recorded: by 5 %. True: it was. */
static bool do_step(uint64_t number, bool works) {
  dp_error error = DP_ERROR_INIT;
  const bool on = record.on;
  const int64_t from_ns = prof_process_now_ns();
  for (uint32_t i = 0; record.writer && i < program.instruction_count; i++) {
    record.witness.note(record.witness.data, &program, i, true);
    if (works && program.instructions[i].opcode == PLAN_BACKWARD) fake_step(paced ? 2 : 0);
    if (works) (void)usleep(1000); /* calls are made up, as many as take so long */
    record.witness.note(record.witness.data, &program, i, false);
  }
  dp_status status =
      cli_run_record_step(&record, number, from_ns, prof_process_now_ns() + 1, on ? 1.05 : 1, true, &played, &error);
  if (status == DP_OK) status = cli_run_record_next(NULL, NULL, &record, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  return on;
}

/* Nothing came of the steps that were not recorded, and no call that is not wanted. */
static void is_paced(const cli_run_recorded *recorded, uint64_t steps) {
  dp_error error = DP_ERROR_INIT;
  prof_session session = {.slots = NULL};
  uint64_t kernels = 0, called = 0, wrong = 0;
  ck_assert_int_eq(prof_session_read(record.folder, &session, &error), DP_OK);
  for (size_t i = 0; i < session.records.count; i++) {
    kernels += session.records.items[i].kind == PROF_KERNEL;
    called += session.records.items[i].kind == PROF_CALL;
    wrong += session.records.items[i].kind == PROF_KERNEL &&
             session.records.items[i].end_ns - session.records.items[i].start_ns != 50000;
  }
  ck_assert_uint_eq(kernels, 4 * steps);
  ck_assert_uint_eq(called, 5 * steps + 1);               /* and the allocation */
  ck_assert((wrong == 0) == (strcmp(how, "paced") == 0)); /* each is brought before its kind is switched off */
  prof_session_free(&session);
  ck_assert(recorded->cost.known);
  ck_assert_int_eq(recorded->cost.done, LONG);
  ck_assert_int_eq(recorded->cost.taken, (int64_t)steps);
  ck_assert_double_eq_tol(recorded->cost.step, 0.05, 0.01); /* switching takes some */
  ck_assert_double_lt(recorded->cost.run, PROF_PACE_BOUND);
}

/* The graph is the backward's: its first kernel is of unit 1, the second of unit 0, the third of none: it comes after all units. */
static void capture(void) {
  static const int units[] = {1, 0, GRAPH_NONE};
  for (int n = 0; n < 3; n++) {
    record.witness.unit(record.witness.data, &program, units[n]);
    fake_node(1 + n, 0);
  }
  for (int n = 0; n < 3; n++) fake_node(1 + n, 1);
  for (uint32_t i = 0; i < program.instruction_count; i++)
    if (program.instructions[i].opcode == PLAN_BACKWARD)
      record.witness.graph(record.witness.data, &program, i, &program);
}

static void is_of_units(const prof_run_tables *t) {
  ck_assert_uint_eq(t->units.count, 2);
  for (size_t u = 0; u < 2; u++) {
    const prof_run_unit *unit = &t->units.items[u];
    ck_assert_uint_eq(unit->count, KEPT);
    ck_assert_double_eq_tol(unit->backward_s, KEPT * 50e-6, 1e-9);
    ck_assert_double_eq(unit->forward_s, 0);
    ck_assert_double_eq(unit->classes_s[unit->unit == 1 ? PROF_GEMM : PROF_NORM], unit->backward_s);
  }
}

static void is_recorded(const cli_run_recorded *recorded) {
  const prof_run_tables *t = &recorded->tables;
  ck_assert(t->recorded);
  ck_assert_uint_eq(recorded->join.torn, 0);
  ck_assert_uint_eq(t->work, KEPT * WORK);
  ck_assert_uint_eq(t->stray, 0);
  ck_assert_uint_eq(t->classes[PROF_GEMM].time.count, KEPT);
  ck_assert_uint_eq(t->classes[PROF_COPIES].time.count, 2 * KEPT);
  ck_assert_double_eq_tol(t->classes[PROF_GEMM].time.p50_s, 50e-6, 1e-9);
  for (size_t k = 0; k < t->kinds.count; k++) {
    const prof_run_kind *kind = &t->kinds.items[k];
    ck_assert_uint_eq(kind->time.count, KEPT);
    ck_assert((kind->time.sum_s > 0) == (kind->opcode == PLAN_BACKWARD));
  }
  ck_assert_double_gt(recorded->recording_s, 0);
}

/* profile.txt, profile.json and profile-timeline.json, for who started this. */
static void write_profile(const cli_run_recorded *recorded, const graph *chain) {
  dp_error error = DP_ERROR_INIT;
  plan_cluster cluster = {0};
  plan_metrics metrics = {.step_s = 1};
  const report_run predicted = {.name = "recorded",
                                .graph = chain,
                                .cluster = &cluster,
                                .program = &program,
                                .timeline = &played,
                                .metrics = &metrics};
  const dp_status status = cli_run_profile_write(recorded, &predicted, folder, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
}

START_TEST(a_run_records_itself) {
  static const reference_plan one = {.ranks = 1, .microbatches = 1, .schedule = PLAN_GPIPE};
  dp_error error = DP_ERROR_INIT;
  graph chain;
  plan_plan plan;
  cli_run_recorded recorded;
  const bool works = strcmp(how, "events") != 0;
  uint64_t last[KEPT], steps = 0, kept = 0;
  late = strcmp(how, "late") == 0;
  paced = late || strcmp(how, "paced") == 0 || strcmp(how, "held") == 0;
  reference_chain(2, 1e-3, 2e-3, -1, 1000, &chain);
  reference_plan_make(&one, &chain, &plan);
  ck_assert_int_eq(plan_compile(&plan, &chain, &program, &error), DP_OK);
  reference_play(&program, &chain, 0, 0, NULL, &played);
  ck_assert_int_eq(cli_run_record_clear(folder, &error), DP_OK);
  cli_run_record_init(&program, KEPT, &record);
  record.witness.note(record.witness.data, &program, 0, true); /* while the session is made */
  record.witness.note(record.witness.data, &program, 0, false);
  ck_assert_int_eq(cli_run_record_begin(folder, NULL, &record, &error), DP_OK);
  ck_assert((record.writer != NULL) == works);
  if (works) find_fake();
  if (paced) capture();
  cli_run_record_expect(paced ? LONG : STEPS, &record);
  for (uint64_t s = 1; s <= (paced ? LONG : STEPS); s++) {
    const bool on = do_step(s, works) || !works;
    steps += on;
    if (on && (record.on || !works)) last[kept++ % KEPT] = s; /* the last of a burst is not kept */
  }
  cli_run_record_end(NULL, &record);
  const dp_status status = cli_run_recorded_of(&record, &recorded, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  ck_assert_uint_eq(recorded.tables.step_count, KEPT);
  for (uint64_t s = 0; s < KEPT; s++) ck_assert_uint_eq(recorded.tables.steps[s].number, last[(kept + s) % KEPT]);
  ck_assert_double_eq_tol(recorded.events_s, played.step_s, 1e-12);
  ck_assert_double_eq_tol(recorded.step_events_s[KEPT - 1], played.step_s, 1e-12);
  ck_assert_uint_eq(recorded.join.impossible, late ? KEPT : 0);
  if (works && !late) is_recorded(&recorded);
  if (paced && !late) is_of_units(&recorded.tables);
  if (paced) is_paced(&recorded, steps);
  if (paced) write_profile(&recorded, &chain);
  ck_assert(paced || steps == STEPS);
  ck_assert((works && !late) == recorded.tables.recorded);
  cli_run_recorded_free(&recorded);
  cli_run_record_free(&record);
  plan_timeline_free(&played);
  plan_program_free(&program);
  plan_plan_free(&plan);
  graph_free(&chain);
}
END_TEST

int main(int count, char **arguments) {
  if (count != 3) return 2;
  folder = arguments[1];
  how = arguments[2];
  Suite *suite = suite_create("recorded run");
  tcase_add_test(suite_case(suite, "run", NULL, NULL, 0), a_run_records_itself);
  return suite_finish(suite);
}
