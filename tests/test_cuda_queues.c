/* Which queues a device's lanes have, without a device: the executor's own choice over a stand-in of the runtime. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/device_cuda_stage.h"
#include "tests/sim_texts.h"

enum { MOST = 30 }; /* of a device's 32 queues */

/* ---- the runtime, and what of the executor these lanes are made with ---- */

static uintptr_t made, gone;

cudaError_t cudaSetDevice(int gpu) { return gpu >= 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaEventCreate(cudaEvent_t *event) {
  *event = NULL;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  (void)event;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ck_assert_ptr_nonnull(stream);
  gone++;
  return cudaSuccess;
}
dp_status exec_cuda_check(cudaError_t result, const char *what, dp_error *error) {
  return result == cudaSuccess ? DP_OK : dp_fail(error, DP_RUN_FAILED, "%s", what);
}
dp_status exec_cuda_part_stream(const exec_cuda *device, cudaStream_t *stream, dp_error *error) {
  (void)device, (void)error;
  *stream = (cudaStream_t)++made;
  return DP_OK;
}
dp_status exec_cuda_open_stage(exec_pipeline *p, uint32_t lane, dp_error *error) {
  (void)p, (void)lane, (void)error;
  return DP_OK;
}
/* Of a process that has all workers. */
bool exec_is_done_by_others(const exec_pipeline *p, uint32_t lane) {
  const plan_lane *of = &p->work.program->lanes[lane];
  return of->kind == PLAN_LANE_SEND || (of->kind == PLAN_LANE_COLLECTIVE && of->worker > 0);
}

/* ---- a pipeline ---- */

static run r;
static exec_pipeline p;
static exec_cuda_lanes l;
static exec_cuda devices[16];
static dp_error error;

static void *zeros(size_t count, size_t bytes) {
  void *made_now = calloc(count + 1, bytes);
  ck_assert_ptr_nonnull(made_now);
  return made_now;
}

static void open_queues(const char *cluster, int stages, const char *transport, bool one_gpu) {
  char text[1024];
  (void)snprintf(text, sizeof text,
                 HEAD SD15
                 "precision = \"bf16\"\n[task]\nimplementation = \"cuda\"\n[cluster]\n[[cluster.node]]\n"
                 "[[cluster.node.device]]\nmodel = \"H200-SXM-141GB\"\n%s[plan]\nmicrobatch_size = 1\n"
                 "microbatches = %d\nschedule = \"1f1b\"\nstages = %d\ntransport = \"%s\"\n",
                 cluster, stages, stages, transport);
  load_as("s.toml", text, &r.scenario);
  predict(&r.scenario, &r.prediction);
  const plan_program *program = &r.prediction.program;
  p.work.program = program;
  p.work.plan = program->plan;
  p.work.options.cluster = &r.scenario.cluster;
  p.end_worker = program->worker_count;
  p.end_lane = program->lane_count;
  p.workers = zeros((size_t)program->worker_count, sizeof *p.workers);
  l.streams = zeros(program->lane_count, sizeof *l.streams);
  l.patient = zeros(program->lane_count, sizeof *l.patient);
  l.shared = zeros((size_t)program->worker_count, sizeof *l.shared);
  l.next = zeros(program->lane_count, sizeof *l.next);
  l.start = zeros(program->instruction_count, sizeof *l.start);
  l.end = zeros(program->instruction_count, sizeof *l.end);
  for (int w = 0; w < program->worker_count; w++) {
    devices[w] = (exec_cuda){.gpu = one_gpu ? 0 : w, .stream = (cudaStream_t)++made};
    p.workers[w].device = &devices[w];
  }
  ck_assert_int_eq(exec_cuda_open_queues(&p, &l, &error), DP_OK);
}

static void teardown(void) {
  free(p.workers);
  free(l.streams);
  free(l.patient);
  free(l.shared);
  free(l.next);
  free(l.start);
  free(l.end);
  memset(&p, 0, sizeof p);
  memset(&l, 0, sizeof l);
  end_run(&r);
  memset(&r, 0, sizeof r);
  free_efficiency();
}

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  made = gone = 0;
  read_efficiency();
}

static uint32_t reach(uint32_t lane) {
  const plan_lane *of = &p.work.program->lanes[lane];
  return of->worker > of->peer ? of->worker - of->peer : of->peer - of->worker;
}

static bool receives(uint32_t lane) { return p.work.program->lanes[lane].kind == PLAN_LANE_RECV; }

/* Different ones that are waited in, of all lanes; a staged copy has another, of its sender's device. */
static int queues(void) {
  int count = 0;
  for (uint32_t lane = 0; lane < p.end_lane; lane++) {
    bool first = l.streams[lane] != NULL;
    for (uint32_t other = 0; other < lane; other++) first = first && l.streams[other] != l.streams[lane];
    count += first + (!l.patient[lane] && exec_cuda_is_staged(&p, lane));
  }
  return count;
}

static int patients(void) {
  int count = 0;
  for (uint32_t lane = 0; lane < p.end_lane; lane++) count += l.patient[lane];
  return count;
}

/* Those that wait for nothing in their queues: skips, and of these the farthest; each on what its worker's others have. */
static void check_patients(void) {
  uint32_t least = UINT32_MAX, most = 0;
  for (uint32_t lane = 0; lane < p.end_lane; lane++) {
    const uint32_t worker = p.work.program->lanes[lane].worker;
    if (l.patient[lane]) {
      ck_assert(receives(lane));
      ck_assert_uint_gt(reach(lane), 1);
      ck_assert_ptr_eq(l.streams[lane], l.shared[worker]);
      if (reach(lane) < least) least = reach(lane);
    } else if (receives(lane)) {
      ck_assert_ptr_ne(l.streams[lane], l.shared[worker]);
      if (reach(lane) > most) most = reach(lane);
    }
  }
  ck_assert_uint_ge(least, most);
}

/* ---- */

START_TEST(where_all_have_room_nobody_waits_on_the_host) {
  open_queues("virtual = 2\n", 2, "auto", true);
  ck_assert_int_eq(patients(), 0);
  teardown();
  setup();
  open_queues("count = 8\n", 8, "auto", false); /* few to each device */
  ck_assert_int_eq(patients(), 0);
  ck_assert_int_gt(queues(), MOST);
}
END_TEST

START_TEST(where_a_device_has_too_many_its_farthest_skips_share_one_a_worker) {
  open_queues("virtual = 8\n", 8, "auto", true);
  ck_assert_int_gt(patients(), 1);
  ck_assert_int_le(queues(), MOST);
  check_patients();
}
END_TEST

/* Five parts' own would do, but for those of the senders. */
START_TEST(copies_through_the_host_have_a_second_one) {
  open_queues("virtual = 5\n", 5, "auto", true);
  const int without = patients();
  teardown();
  setup();
  open_queues("virtual = 5\n", 5, "host", true);
  ck_assert_int_gt(patients(), without);
  ck_assert_int_le(queues(), MOST);
  check_patients();
}
END_TEST

START_TEST(what_was_made_is_destroyed_once) {
  open_queues("virtual = 8\n", 8, "auto", true);
  exec_cuda_close_queues(&p, &l);
  ck_assert_uint_eq(gone, made - 8); /* workers' own are not theirs */
}
END_TEST

START_TEST(lists_that_are_missing_are_passed_over) {
  open_queues("virtual = 2\n", 2, "auto", true);
  free(l.patient);
  l.patient = NULL;
  exec_cuda_close_queues(&p, &l);
  ck_assert_uint_eq(gone, 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {where_all_have_room_nobody_waits_on_the_host,
                                where_a_device_has_too_many_its_farthest_skips_share_one_a_worker,
                                copies_through_the_host_have_a_second_one, what_was_made_is_destroyed_once,
                                lists_that_are_missing_are_passed_over};
  return suite_run("cuda_queues", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
