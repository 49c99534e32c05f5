/* A run that records itself, without a device: tests/fake_cupti.c, loaded by tests/traced.sh, stands for CUPTI, and its
 * step's work is that of the backward of a program of one worker.
 *
 * usage: recorded_run FOLDER recorded|events
 */
#define _GNU_SOURCE
#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/run_record.h"
#include "profiler/process.h"
#include "tests/plan_reference.h"
#include "tests/suite.h"

enum { STEPS = 6, KEPT = 4, WORK = 6 };

static void (*fake_step)(int graph);
static plan_program program;
static plan_timeline played;
static cli_run_record record;

static void find_fake(void) {
  void *cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
  void *found = cupti ? dlsym(cupti, "fake_step") : NULL;
  memcpy(&fake_step, &found, sizeof found);
  ck_assert(fake_step);
}

static void do_step(uint64_t number, bool works) {
  dp_error error = DP_ERROR_INIT;
  const int64_t from_ns = prof_process_now_ns();
  for (uint32_t i = 0; record.writer && i < program.instruction_count; i++) {
    record.witness.note(record.witness.data, &program, i, true);
    if (works && program.instructions[i].opcode == PLAN_BACKWARD) fake_step(0);
    if (works) (void)usleep(1000); /* calls are made up, as many as take so long */
    record.witness.note(record.witness.data, &program, i, false);
  }
  const dp_status status = cli_run_record_step(&record, number, from_ns, prof_process_now_ns() + 1, &played, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
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

static const char *folder, *how;

START_TEST(a_run_records_itself) {
  static const reference_plan one = {.ranks = 1, .microbatches = 1, .schedule = PLAN_GPIPE};
  dp_error error = DP_ERROR_INIT;
  graph chain;
  plan_plan plan;
  cli_run_recorded recorded;
  const bool works = strcmp(how, "recorded") == 0;
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
  for (uint64_t s = 1; s <= STEPS; s++) do_step(s, works);
  cli_run_record_end(&record);
  const dp_status status = cli_run_recorded_of(&record, &recorded, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  ck_assert_uint_eq(recorded.tables.step_count, KEPT);
  for (uint64_t s = 0; s < KEPT; s++) ck_assert_uint_eq(recorded.tables.steps[s].number, STEPS - KEPT + 1 + s);
  if (works) is_recorded(&recorded);
  ck_assert(works == recorded.tables.recorded);
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
