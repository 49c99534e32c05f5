/* Instructions that are recorded as graphs and played, without a device: the executor's own functions over a stand-in of
 * the runtime, whose graphs may fail to be instantiated. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "exec/device_cuda.h"
#include "tests/suite.h"

enum { TENSORS = 3 };

static struct {
  int held; /* the plans' lock */
  int captured, launched, made, freed;
  int fail;               /* instantiations that will */
  cudaError_t with, left; /* by that; of the thread */
  cudaError_t noted;      /* the worker's first failure */
} fake;

/* ---- the runtime, and what of the kernels is called ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  (void)stream, (void)mode;
  ck_assert_int_eq(fake.held, 1); /* from before it, */
  fake.captured++;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *captured) {
  (void)stream;
  *captured = (cudaGraph_t)&fake;
  fake.made++;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t of, unsigned long long flags) {
  (void)flags;
  ck_assert_ptr_eq(of, (cudaGraph_t)&fake);
  ck_assert_int_eq(fake.held, 1); /* until it has been looked at */
  *made = (cudaGraphExec_t)&fake;
  if (fake.fail == 0) return cudaSuccess;
  fake.fail--;
  return fake.left = fake.with;
}
cudaError_t cudaGraphDestroy(cudaGraph_t of) {
  (void)of;
  fake.freed++;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t played, cudaStream_t stream) {
  (void)stream;
  ck_assert_ptr_eq(played, (cudaGraphExec_t)&fake);
  fake.launched++;
  return cudaSuccess;
}
cudaError_t cudaGetLastError(void) {
  const cudaError_t left = fake.left;
  fake.left = cudaSuccess;
  return left;
}
void kern_cuda_hold_plans(void) { fake.held++; }
void kern_cuda_release_plans(void) { fake.held--; }
bool kern_cuda_check(kern_cuda *context, cudaError_t result, const char *what) {
  (void)context, (void)what;
  if (fake.noted == cudaSuccess) fake.noted = result;
  return result == cudaSuccess;
}
void exec_cuda_note(exec_worker *w, cudaError_t result, const char *what) {
  (void)kern_cuda_check(exec_cuda_of(w)->kernels, result, what);
}
void kern_cuda_fail(kern_cuda *context, dp_status status, const char *format, ...) {
  (void)context, (void)status;
  ck_abort_msg("%s", format);
}

/* ---- a worker of one instruction ---- */

static plan_instruction instruction;
static plan_lane lane;
static uint32_t worker_lane[2];
static plan_program program;
static graph model;
static exec_step step;
static exec_work work;
static exec_worker worker;
static exec_cuda device;
static exec_cuda_record records[2];
static uint8_t begun[TENSORS];

static void setup(void) {
  memset(&fake, 0, sizeof fake);
  memset(records, 0, sizeof records);
  memset(begun, 0, sizeof begun);
  instruction = (plan_instruction){.opcode = PLAN_FORWARD};
  lane = (plan_lane){.count = 1};
  program = (plan_program){.instructions = &instruction, .lanes = &lane, .worker_lane = worker_lane};
  model.tensors.count = TENSORS;
  work = (exec_work){.program = &program, .graph = &model, .step = &step};
  device = (exec_cuda){.tensors = TENSORS, .steps = 1, .records = {&records[0], &records[1]}};
  worker = (exec_worker){.device = &device, .layout = {.graph = &model, .begun = begun}};
}

static void teardown(void) {
  for (int r = 0; r < 2; r++) free(records[r].begun);
}

/* As exec_worker_run does it; how often the instruction's own work was done. */
static int play(void) {
  int runs = 0;
  if (exec_cuda_replay(&work, &worker, 0)) return runs;
  do {
    exec_cuda_record_begin(&work, &worker, 0);
    ck_assert_int_eq(begun[1], 0); /* as if it had not been tried before */
    begun[1] = 1;
    runs++;
  } while (!exec_cuda_record_end(&work, &worker, 0));
  ck_assert_int_eq(fake.held, 0);
  return runs;
}

/* What had begun when it was recorded has when it is played. */
static void is_played(int launches) {
  begun[1] = 0;
  ck_assert_int_eq(play(), 0);
  ck_assert_int_eq(begun[1], 1);
  ck_assert_int_eq(fake.launched, launches);
}

START_TEST(the_first_step_runs_and_the_second_is_recorded) {
  device.steps = 0;
  ck_assert_int_eq(play(), 1);
  ck_assert_int_eq(fake.captured, 0);
  device.steps = 1;
  begun[1] = 0;
  ck_assert_int_eq(play(), 1);
  ck_assert_int_eq(fake.launched, 1);
  is_played(2);
  ck_assert_int_eq(fake.captured, 1);
  ck_assert_int_eq(fake.freed, 1);
}
END_TEST

/* Kernels' attributes were others' when it was instantiated: it is recorded once more, and nothing is left of that. */
START_TEST(one_that_cannot_be_instantiated_is_recorded_again) {
  fake.fail = 2;
  fake.with = cudaErrorLaunchOutOfResources;
  ck_assert_int_eq(play(), 3);
  ck_assert_int_eq(fake.noted, cudaSuccess);
  ck_assert_int_eq(fake.left, cudaSuccess);
  ck_assert_int_eq(fake.launched, 1);
  ck_assert_int_eq(fake.freed, fake.made);
  is_played(2);
}
END_TEST

/* But not for ever, nor for any failure; what it left in its place is never played. */
START_TEST(a_failure_that_stays_is_told) {
  fake.fail = 9;
  fake.with = cudaErrorLaunchOutOfResources;
  ck_assert_int_eq(play(), 3);
  ck_assert_int_eq(fake.noted, cudaErrorLaunchOutOfResources);
  ck_assert_ptr_null(records[0].graph);
  ck_assert_int_eq(fake.launched, 0);
  teardown();
  setup();
  fake.fail = 1;
  fake.with = cudaErrorMemoryAllocation;
  ck_assert_int_eq(play(), 1);
  ck_assert_int_eq(fake.noted, cudaErrorMemoryAllocation);
  ck_assert_ptr_null(records[0].graph);
  ck_assert_int_eq(fake.launched, 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {the_first_step_runs_and_the_second_is_recorded,
                                one_that_cannot_be_instantiated_is_recorded_again, a_failure_that_stays_is_told};
  return suite_run("cuda_graphs", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
