/* How a step on devices ends that cannot end by itself, without a device: the executor's lanes and looks over a kind of
 * device whose queues do what the test says. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "exec/stall.h"
#include "sim/predict.h"
#include "tests/exec_fixture.h"
#include "tests/exec_memory.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"

static dp_error error;

#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

/* ---- a device ---- */

static struct {
  uint32_t ended, begun;
  const char *found;  /* by a library; NULL: nothing */
  bool idle, empties; /* its queues, and once what waits for others has been aborted */
  int looks, aborted;
} device;

static uint32_t ended(exec_pipeline *p, const uint8_t *put) {
  ck_assert_ptr_eq(put, p->seen);
  return device.ended;
}

static uint32_t begun(const exec_pipeline *p, const uint8_t *put) {
  (void)p, (void)put;
  return device.begun;
}

static dp_status look_at_wires(exec_pipeline *p, dp_error *why) {
  (void)p;
  device.looks++;
  return device.found ? dp_fail(why, DP_RUN_FAILED, "%s", device.found) : DP_OK;
}

static void abandon_wires(exec_pipeline *p) {
  (void)p;
  device.aborted++;
  device.idle = device.idle || device.empties;
}

static bool idle(const exec_pipeline *p) {
  (void)p;
  return device.idle;
}

static dp_status begin_lanes(exec_pipeline *p, dp_error *why) {
  (void)why;
  exec_stall_begin(p);
  return DP_OK;
}

static void enter(exec_pipeline *p, uint32_t lane, uint32_t i) { (void)p, (void)lane, (void)i; }

static dp_status leave(exec_pipeline *p, uint32_t lane, uint32_t i, dp_error *why) {
  (void)p, (void)lane, (void)i, (void)why;
  return DP_OK;
}

static dp_status finish_lanes(exec_pipeline *p, dp_error *why) {
  dp_status status = DP_OK;
  while (status == DP_OK && !device.idle) status = exec_stall_look(p, why);
  if (status != DP_OK) atomic_store(&p->stop, true);
  return status;
}

static void close_lanes(exec_pipeline *p) { (void)p; }

/* ---- a pipeline on it ---- */

static struct {
  plan_scenario scenario;
  sim_prediction predicted;
  exec_fixture_feed feed;
  exec_pipeline *pipeline;
} made;

static exec_device_kind kind;

/* A feed that does not come back until it may: a host's thread that hangs. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool shut;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

static void set_gate(bool shut) {
  (void)pthread_mutex_lock(&gate.lock);
  gate.shut = shut;
  (void)pthread_cond_broadcast(&gate.changed);
  (void)pthread_mutex_unlock(&gate.lock);
}

static void fill(void *data, int replica, int microbatch, int tensor, float *out) {
  (void)pthread_mutex_lock(&gate.lock);
  while (gate.shut) (void)pthread_cond_wait(&gate.changed, &gate.lock);
  (void)pthread_mutex_unlock(&gate.lock);
  exec_fixture_fill(data, replica, microbatch, tensor, out);
}

static exec_pipeline *make(const char *plan) {
  const exec_fixture job = {
      .model = "sd15", .height = 64, .width = 64, .text_tokens = 7, .global_batch = 4, .plan = plan};
  OK(exec_fixture_scenario(&job, &made.scenario, &error));
  predict_memory_of_cpu(&made.scenario, efficiency);
  OK(sim_predict(&made.scenario, efficiency, &made.predicted, &error));
  made.feed = (exec_fixture_feed){&made.predicted.graph, made.predicted.plan.microbatches};
  const exec_pipeline_options options = {.threads = 1, .feed = {.fill = fill, .data = &made.feed}};
  OK(exec_pipeline_create(&made.predicted.program, &made.predicted.graph, &options, &made.pipeline, &error));
  kind = exec_device_cpu;
  kind.deferred = true;
  kind.begin_lanes = begin_lanes;
  kind.enter = enter;
  kind.leave = leave;
  kind.finish_lanes = finish_lanes;
  kind.close_lanes = close_lanes;
  kind.ended = ended;
  kind.begun = begun;
  kind.look_at_wires = look_at_wires;
  kind.abandon_wires = abandon_wires;
  kind.idle = idle;
  made.pipeline->work.kind = &kind;
  return made.pipeline;
}

static void unmake(void) {
  exec_pipeline_free(made.pipeline);
  sim_prediction_free(&made.predicted);
  plan_scenario_free(&made.scenario);
}

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  device.ended = 0;
  device.begun = PLAN_NO_PEER;
  device.found = NULL;
  device.idle = device.empties = true;
  device.looks = device.aborted = 0;
  read_efficiency();
}

static const exec_step step = {
    .adamw = {.step = 1, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01}};

/* ---- one look ---- */

/* Nothing has moved for 12 s, and the last look was a second ago. */
static dp_status look(exec_pipeline *p) {
  error = (dp_error)DP_ERROR_INIT;
  p->ended = device.ended;
  p->looked_s = dp_clock_s() - 1;
  p->moved_s = dp_clock_s() - 12;
  return exec_stall_look(p, &error);
}

static void must_say(exec_pipeline *p, const char *expected) {
  char later[512];
  ck_assert_int_eq(look(p), DP_RUN_FAILED);
  (void)snprintf(later, sizeof later, "%s", expected);
  char *seconds = strstr(later, "12 s");
  if (seconds) seconds[1] = '3'; /* on a slow machine */
  ck_assert_msg(strcmp(error.text, expected) == 0 || strcmp(error.text, later) == 0, "found \"%s\", expected \"%s\"",
                error.text, expected);
}

static uint32_t find(const exec_pipeline *p, plan_opcode opcode, uint32_t worker) {
  for (uint32_t i = 0; i < p->work.program->instruction_count; i++)
    if (p->work.program->instructions[i].opcode == opcode && p->work.program->lanes[p->lane_of[i]].worker == worker)
      return i;
  ck_abort_msg("no such instruction");
}

/* The first half of the workers are here, as if there were another process with the others. */
static void take_half(exec_pipeline *p, exec_transport *transport) {
  p->work.options.transport = transport;
  p->end_worker /= 2;
  p->end_lane = p->work.program->worker_lane[p->end_worker];
}

static void give_back(exec_pipeline *p) {
  p->work.options.transport = NULL;
  p->end_worker *= 2;
  p->end_lane = p->work.program->worker_lane[p->end_worker];
}

START_TEST(a_standstill_is_told_with_worker_instruction_peer_and_time) {
  exec_pipeline *p = make("stages = 2\nschedule = \"1f1b\"");
  exec_transport two = {.process_count = 2};
  ck_assert_int_eq(setenv("DIFFPIPE_STALL_S", "10", 1), 0);
  const uint32_t forward = find(p, PLAN_FORWARD, 0), send = find(p, PLAN_SEND, 0);
  must_say(p, "the devices of workers 0 to 1 (process 0) have done nothing for 12 s");
  device.begun = forward;
  must_say(p, "worker 0 FORWARD chunk 0 microbatch 0 has not ended on its device for 12 s");
  device.begun = send;
  must_say(p, "worker 0 SEND to worker 1 chunk 0 microbatch 0 has not ended on its device for 12 s");
  take_half(p, &two);
  must_say(p, "worker 0 SEND to worker 1 chunk 0 microbatch 0 has waited 12 s for worker 1 (process 1)");
  p->lanes[p->lane_of[forward]].at = forward;
  must_say(p,
           "worker 0 SEND to worker 1 chunk 0 microbatch 0 has waited 12 s for worker 1 (process 1); the host of "
           "process 0 has been at worker 0 FORWARD chunk 0 microbatch 0 as long");
  device.begun = PLAN_NO_PEER;
  must_say(p, "worker 0 FORWARD chunk 0 microbatch 0 has been with the host of process 0 for 12 s");
  give_back(p);
  OK(look(p)); /* alone it may take its time */
  take_half(p, &two);
  p->lanes[p->lane_of[forward]].at = PLAN_NO_PEER;
  p->lanes[p->lane_of[send]].at = send;
  must_say(p, "worker 0 SEND to worker 1 chunk 0 microbatch 0 has waited 12 s for worker 1 (process 1)");
  p->lanes[p->lane_of[send]].at = PLAN_NO_PEER;
  give_back(p);
  unmake();
}
END_TEST

START_TEST(of_a_collective_all_others_are_named) {
  exec_pipeline *p = make("stages = 1\ndata_parallel = 4");
  exec_transport two = {.process_count = 2};
  ck_assert_int_eq(setenv("DIFFPIPE_STALL_S", "10", 1), 0);
  take_half(p, &two);
  device.begun = find(p, PLAN_ALL_REDUCE, 0);
  must_say(p,
           "worker 0 ALL_REDUCE chunk 0 microbatch 0 part 0 has waited 12 s for worker 2 (process 1), worker 3 "
           "(process 1)");
  give_back(p);
  unmake();
}
END_TEST

START_TEST(what_moves_is_waited_for) {
  exec_pipeline *p = make("stages = 2");
  ck_assert_int_eq(setenv("DIFFPIPE_STALL_S", "10", 1), 0);
  p->ended = 3;
  device.ended = 4; /* one more has ended */
  p->looked_s = dp_clock_s() - 1;
  p->moved_s = dp_clock_s() - 12;
  OK(exec_stall_look(p, &error));
  ck_assert(dp_clock_s() - p->moved_s < 6);
  p->looked_s = dp_clock_s() - 60; /* this process slept */
  p->moved_s = dp_clock_s() - 61;
  OK(exec_stall_look(p, &error));
  ck_assert(dp_clock_s() - p->moved_s < 6);
  ck_assert_int_eq(setenv("DIFFPIPE_STALL_S", "1000", 1), 0);
  OK(look(p));
  ck_assert_int_eq(device.looks, 3);
  OK(exec_stall_look(p, &error)); /* it looked just now */
  ck_assert_int_eq(device.looks, 3);
  unmake();
}
END_TEST

START_TEST(a_run_that_is_lost_and_what_a_library_found_are_told_at_once) {
  exec_pipeline *p = make("stages = 2");
  atomic_bool lost;
  atomic_init(&lost, true);
  exec_transport two = {.process_count = 2, .lost = &lost};
  ck_assert_int_eq(setenv("DIFFPIPE_STALL_S", "1000", 1), 0);
  device.found = "NCCL with worker 1 (process 1): under way: remote process exited";
  must_say(p, device.found);
  p->work.options.transport = &two;
  must_say(p, "the devices were no longer waited for: the run cannot go on");
  p->work.options.transport = NULL;
  unmake();
}
END_TEST

/* Who waits for a whole step has not waited for too long. */
START_TEST(steps_may_take_longer_than_half_a_minute) {
  exec_pipeline p = {.generation = 1};
  (void)unsetenv("DIFFPIPE_STALL_S");
  ck_assert(exec_stall_patience_s(&p) == 600);
  p.generation = 2;
  ck_assert(exec_stall_patience_s(&p) == 25);
  p.longest_s = 45;
  ck_assert(exec_stall_patience_s(&p) == 450);
  ck_assert_int_eq(setenv("DIFFPIPE_STALL_S", "7", 1), 0);
  ck_assert(exec_stall_patience_s(&p) == 7);
}
END_TEST

/* ---- steps ---- */

static void must_be_left(exec_pipeline *p) {
  error = (dp_error)DP_ERROR_INIT;
  ck_assert_int_eq(exec_pipeline_step(p, &step, NULL, NULL, &error), DP_RUN_FAILED);
  ck_assert_str_eq(error.text, "the step before was given up and has not ended");
  ck_assert_int_eq(device.aborted, 0);
  set_gate(false);
  ck_assert(exec_pipeline_leave(p));
  ck_assert_int_eq(device.aborted, 1);
}

START_TEST(a_step_ends_though_a_thread_of_the_host_hangs) {
  exec_pipeline *p = make("stages = 2");
  ck_assert_int_eq(setenv("DIFFPIPE_STALL_S", "1000", 1), 0);
  OK(exec_pipeline_step(p, &step, NULL, NULL, &error));
  set_gate(true);
  device.begun = find(p, PLAN_RECV, 1);
  ck_assert_int_eq(setenv("DIFFPIPE_STALL_S", "0.3", 1), 0);
  ck_assert_int_eq(exec_pipeline_step(p, &step, NULL, NULL, &error), DP_RUN_FAILED);
  ck_assert_msg(
      strstr(error.text, "worker 1 RECV from worker 0 chunk 1 microbatch 0 has not ended on its device for ") &&
          strstr(error.text, "; the host of process 0 has been at worker 0 FORWARD chunk 0 microbatch 0"),
      "%s", error.text);
  must_be_left(p);
  unmake();
}
END_TEST

START_TEST(what_a_library_finds_ends_a_step_whose_work_is_still_put_into_queues) {
  exec_pipeline *p = make("stages = 2");
  ck_assert_int_eq(setenv("DIFFPIPE_STALL_S", "1000", 1), 0);
  set_gate(true);
  device.found = "NCCL with worker 1 (process 1): under way: remote process exited";
  ck_assert_int_eq(exec_pipeline_step(p, &step, NULL, NULL, &error), DP_RUN_FAILED);
  ck_assert_str_eq(error.text, device.found);
  must_be_left(p);
  unmake();
}
END_TEST

START_TEST(a_device_that_hangs_ends_the_step_and_keeps_the_memory) {
  exec_pipeline *p = make("stages = 2");
  ck_assert_int_eq(setenv("DIFFPIPE_STALL_S", "0.3", 1), 0);
  device.idle = false;
  device.begun = find(p, PLAN_BACKWARD, 1);
  ck_assert_int_eq(exec_pipeline_step(p, &step, NULL, NULL, &error), DP_RUN_FAILED);
  ck_assert_msg(strstr(error.text, "worker 1 BACKWARD chunk 1 microbatch 0 has not ended on its device for "), "%s",
                error.text);
  p->stranded = true; /* as after five seconds */
  ck_assert(!exec_pipeline_leave(p));
  exec_pipeline_free(p); /* nothing: the device may write to all of it */
  ck_assert(exec_pipeline_has(p, 1));
  p->stranded = false;
  ck_assert_int_eq(device.aborted, 0);
  ck_assert(exec_pipeline_leave(p)); /* it waited for another process */
  ck_assert_int_eq(device.aborted, 1);
  unmake();
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_standstill_is_told_with_worker_instruction_peer_and_time,
                                of_a_collective_all_others_are_named,
                                what_moves_is_waited_for,
                                a_run_that_is_lost_and_what_a_library_found_are_told_at_once,
                                steps_may_take_longer_than_half_a_minute,
                                a_step_ends_though_a_thread_of_the_host_hangs,
                                what_a_library_finds_ends_a_step_whose_work_is_still_put_into_queues,
                                a_device_that_hangs_ends_the_step_and_keeps_the_memory};
  return suite_run("exec_stall", tests, sizeof tests / sizeof tests[0], setup, free_efficiency, 120);
}
