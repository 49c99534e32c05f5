/* Lanes as queues of CUDA devices. What the host's threads do one after another is only to put work there; the devices
 * keep the order by events. An instruction's queue first waits for the ends of all that the program has it wait for; an
 * instruction that does the work of others, too (both ends of a transfer, all members of a collective), also for what
 * those wait for, and for what comes before them in their lanes. */
#include "base/clock.h"
#include "exec/device_cuda_stage.h"
#include "exec/device_cuda_wire.h"
#include "exec/stall.h"

#define NOTE(p, worker, call) exec_cuda_note(&(p)->workers[worker], (call), #call)

/* ---- making them ---- */

/* Copies straight from device to device. */
static dp_status reach(int gpu, int peer, dp_error *error) {
  int can = 0;
  if (peer == gpu) return DP_OK;
  EXEC_CUDA_TRY(cudaDeviceCanAccessPeer(&can, gpu, peer), error);
  if (!can) return DP_OK;
  const cudaError_t result = cudaDeviceEnablePeerAccess(peer, 0);
  if (result != cudaErrorPeerAccessAlreadyEnabled) return exec_cuda_check(result, "cudaDeviceEnablePeerAccess", error);
  (void)cudaGetLastError();
  return DP_OK;
}

static dp_status make_lists(exec_pipeline *p, exec_cuda_lanes *l, dp_error *error) {
  const plan_program *program = p->work.program;
  const size_t n = program->instruction_count, lanes = program->lane_count;
  l->streams = DP_ARENA_NEW(&p->arena, cudaStream_t, lanes);
  l->patient = DP_ARENA_NEW(&p->arena, bool, lanes);
  l->shared = DP_ARENA_NEW(&p->arena, cudaStream_t, (size_t)program->worker_count);
  l->wires = DP_ARENA_NEW(&p->arena, exec_cuda_wire *, lanes);
  l->stages = DP_ARENA_NEW(&p->arena, exec_cuda_stage *, lanes);
  l->start = DP_ARENA_NEW(&p->arena, cudaEvent_t, n);
  l->end = DP_ARENA_NEW(&p->arena, cudaEvent_t, n);
  l->marker = DP_ARENA_NEW(&p->arena, uint32_t, n);
  l->doer = DP_ARENA_NEW(&p->arena, uint32_t, n);
  l->next = DP_ARENA_NEW(&p->arena, uint32_t, lanes);
  l->normed = DP_ARENA_NEW(&p->arena, cudaEvent_t, (size_t)program->worker_count);
  if (!l->streams || !l->patient || !l->shared || !l->wires || !l->stages || !l->start || !l->end || !l->marker ||
      !l->doer || !l->next || !l->normed)
    return dp_fail_memory(error);
  return exec_cuda_check(cudaHostAlloc((void **)&l->norms, (size_t)program->worker_count * sizeof *l->norms,
                                       cudaHostAllocMapped | cudaHostAllocPortable),
                         "cudaHostAlloc", error);
}

/* A kernel on the GPU of a group's first member here reads what it adds from the others' memory. */
static dp_status check_group(const exec_pipeline *p, const plan_collective *group, dp_error *error) {
  const uint32_t *members = &p->work.program->group_members[group->first_member];
  const int gpu = exec_cuda_at(p, exec_first_here(p, group))->gpu;
  for (uint32_t m = 0; m < group->member_count; m++) {
    if (!exec_is_here(p, members[m])) continue;
    const int peer = exec_cuda_at(p, members[m])->gpu;
    int can = 0;
    if (peer == gpu) continue;
    EXEC_CUDA_TRY(cudaDeviceCanAccessPeer(&can, gpu, peer), error);
    if (!can)
      return dp_fail(error, DP_UNSUPPORTED,
                     "worker %u on GPU %d: GPU %d, which adds up their gradients, has no peer access to it, allowed: "
                     "processes of their own for its replicas",
                     members[m], peer, gpu);
  }
  return DP_OK;
}

static dp_status check_groups(const exec_pipeline *p, dp_error *error) {
  const plan_program *program = p->work.program;
  for (uint32_t lane = p->first_lane; lane < p->end_lane; lane++) {
    const plan_lane *of = &program->lanes[lane];
    for (uint32_t i = of->first; of->kind == PLAN_LANE_COLLECTIVE && i < of->first + of->count; i++) {
      const plan_collective *group = &program->collectives[program->instructions[i].class_id];
      if (!group->norm) DP_TRY(check_group(p, group, error));
    }
  }
  return DP_OK;
}

static dp_status make_queues(exec_pipeline *p, exec_cuda_lanes *l, dp_error *error) {
  DP_TRY(make_lists(p, l, error));
  DP_TRY(exec_cuda_open_queues(p, l, error));
  for (int w = p->first_worker; w < p->end_worker; w++) {
    const int gpu = exec_cuda_at(p, (uint32_t)w)->gpu;
    EXEC_CUDA_TRY(cudaSetDevice(gpu), error);
    EXEC_CUDA_TRY(cudaEventCreateWithFlags(&l->normed[w], cudaEventDisableTiming), error);
    if (l->has_base[gpu]) continue;
    EXEC_CUDA_TRY(cudaEventCreate(&l->base[gpu]), error);
    l->has_base[gpu] = true;
    for (int other = p->first_worker; other < p->end_worker; other++)
      DP_TRY(reach(gpu, exec_cuda_at(p, (uint32_t)other)->gpu, error));
  }
  return check_groups(p, error);
}

/* To process 0, which brings the clocks together: which way a message goes in the end only its two ends know. */
static dp_status share_meets(exec_pipeline *p, uint8_t *all, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  const plan_program *program = p->work.program;
  for (uint32_t lane = p->first_lane; lane < p->end_lane; lane++) {
    const exec_cuda_wire *w = exec_cuda_lanes_of(p)->wires[lane];
    p->meets[lane] = program->lanes[lane].kind == PLAN_LANE_SEND && w && w->way == PLAN_TRANSPORT_LOCAL;
  }
  DP_TRY(exec_gather(t, p->meets, program->lane_count, all, error));
  for (size_t i = 0; exec_process(t) == 0 && i < (size_t)exec_process_count(t) * program->lane_count; i++)
    p->meets[i % program->lane_count] |= all[i];
  return DP_OK;
}

dp_status exec_cuda_open_lanes(exec_pipeline *p, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  const size_t lanes = p->work.program->lane_count;
  uint8_t *all = DP_ARENA_NEW(&p->arena, uint8_t, lanes * (size_t)exec_process_count(t));
  exec_cuda_lanes *l = DP_ARENA_NEW(&p->arena, exec_cuda_lanes, 1);
  p->meets = DP_ARENA_NEW(&p->arena, uint8_t, lanes);
  dp_status status = l && all && p->meets ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) {
    p->device = p->work.lanes = l;
    status = make_queues(p, l, error);
  }
  if (!p->work.facts) return status;
  DP_TRY(exec_agree(t, status, error));
  status = exec_cuda_open_wires(p, error);
  DP_TRY(exec_agree(t, status, error));
  return share_meets(p, all, error);
}

void exec_cuda_close_lanes(exec_pipeline *p) {
  exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  if (!l) return;
  exec_cuda_close_wires(p);
  exec_cuda_close_stages(p);
  exec_cuda_close_queues(p, l);
  for (int w = p->first_worker; l->normed && w < p->end_worker; w++)
    if (l->normed[w]) (void)cudaEventDestroy(l->normed[w]);
  for (int g = 0; g < EXEC_CUDA_MAX_GPUS; g++)
    if (l->has_base[g]) (void)cudaEventDestroy(l->base[g]);
  if (l->norms) (void)cudaFreeHost(l->norms);
  p->device = NULL;
}

/* ---- a step ---- */

static void CUDART_CB hold_queue(void *seconds) { dp_sleep_s(*(const double *)seconds); }

/* The workers of a GPU begin at once, when the host has issued all: what it takes for that is not seen. */
static void hold_workers(exec_pipeline *p, int gpu) {
  cudaEvent_t held = NULL;
  for (int w = p->first_worker; w < p->end_worker; w++) {
    const exec_cuda *device = exec_cuda_at(p, (uint32_t)w);
    if (device->gpu != gpu) continue;
    if (held) {
      NOTE(p, (uint32_t)w, cudaStreamWaitEvent(device->stream, held, 0));
      continue;
    }
    NOTE(p, (uint32_t)w, cudaEventCreateWithFlags(&held, cudaEventDisableTiming));
    NOTE(p, (uint32_t)w, cudaLaunchHostFunc(device->stream, hold_queue, &p->work.hold_s));
    NOTE(p, (uint32_t)w, cudaEventRecord(held, device->stream));
  }
  if (held) (void)cudaEventDestroy(held); /* once it has come */
}

/* In the lane's own thread, so that its queue waits for nothing: device_cuda_queues.c. */
static void wait_patiently(exec_pipeline *p, uint32_t worker, cudaEvent_t event) {
  const double pause_s = 20e-6;
  cudaError_t result = cudaEventQuery(event);
  for (; result == cudaErrorNotReady && !atomic_load(&p->stop); result = cudaEventQuery(event)) dp_sleep_s(pause_s);
  if (result != cudaErrorNotReady) exec_cuda_note(&p->workers[worker], result, "cudaEventQuery");
}

static void wait_end(exec_pipeline *p, uint32_t lane, uint32_t j) {
  const exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  if (l->doer[j] == lane) return; /* the queue's own order */
  if (l->patient[lane])
    wait_patiently(p, exec_cuda_worker_of(p, lane), l->end[l->marker[j]]);
  else
    NOTE(p, exec_cuda_worker_of(p, lane), cudaStreamWaitEvent(l->streams[lane], l->end[l->marker[j]], 0));
}

static void wait_all(exec_pipeline *p, uint32_t lane, uint32_t i) {
  const plan_program *program = p->work.program;
  for (uint32_t w = program->wait_first[i]; w < program->wait_first[i + 1]; w++) wait_end(p, lane, program->waits[w]);
  if (i > program->lanes[p->lane_of[i]].first) wait_end(p, lane, i - 1);
}

static bool is_here(const exec_pipeline *p, uint32_t i) {
  return p->lane_of[i] >= p->first_lane && p->lane_of[i] < p->end_lane;
}

/* The instructions here whose work this one does, itself among them: calls f for each. */
static void each_partner(exec_pipeline *p, uint32_t lane, uint32_t i,
                         void (*f)(exec_pipeline *p, uint32_t lane, uint32_t i, uint32_t partner)) {
  const plan_program *program = p->work.program;
  const uint32_t peer = program->instructions[i].peer;
  f(p, lane, i, i);
  if (program->instructions[i].opcode == PLAN_RECV && is_here(p, peer)) f(p, lane, i, peer);
  if (program->lanes[p->lane_of[i]].kind != PLAN_LANE_COLLECTIVE) return;
  for (uint32_t m = p->groups.first[peer]; m < p->groups.first[peer + 1]; m++)
    if (p->groups.ids[m] != i && is_here(p, p->groups.ids[m])) f(p, lane, i, p->groups.ids[m]);
}

static void wait_partner(exec_pipeline *p, uint32_t lane, uint32_t i, uint32_t partner) {
  (void)i;
  wait_all(p, lane, partner);
}

void exec_cuda_enter(exec_pipeline *p, uint32_t lane, uint32_t i) {
  const uint32_t worker = exec_cuda_worker_of(p, lane);
  NOTE(p, worker, cudaSetDevice(exec_cuda_at(p, worker)->gpu));
  each_partner(p, lane, i, wait_partner);
  NOTE(p, worker, cudaEventRecord(exec_cuda_lanes_of(p)->start[i], exec_cuda_lanes_of(p)->streams[lane]));
}

static void mark(exec_pipeline *p, uint32_t lane, uint32_t i, uint32_t partner) {
  exec_cuda_lanes_of(p)->marker[partner] = i;
  exec_cuda_lanes_of(p)->doer[partner] = lane;
}

dp_status exec_cuda_leave(exec_pipeline *p, uint32_t lane, uint32_t i, dp_error *error) {
  const uint32_t worker = exec_cuda_worker_of(p, lane);
  NOTE(p, worker, cudaEventRecord(exec_cuda_lanes_of(p)->end[i], exec_cuda_lanes_of(p)->streams[lane]));
  each_partner(p, lane, i, mark);
  return kern_cuda_status(exec_cuda_at(p, worker)->kernels, error);
}

void exec_cuda_copy(exec_pipeline *p, uint32_t lane, int64_t bytes, uint32_t from_worker, const void *from,
                    uint32_t to_worker, void *to) {
  const int source = exec_cuda_at(p, from_worker)->gpu, target = exec_cuda_at(p, to_worker)->gpu;
  cudaStream_t stream = exec_cuda_lanes_of(p)->streams[lane];
  if (exec_cuda_lanes_of(p)->stages[lane])
    exec_cuda_stage_copy(p, lane, bytes, from_worker, from, to);
  else if (source == target)
    NOTE(p, exec_cuda_worker_of(p, lane), cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, stream));
  else
    NOTE(p, exec_cuda_worker_of(p, lane), cudaMemcpyPeerAsync(to, target, from, source, (size_t)bytes, stream));
}

void exec_cuda_clear(exec_pipeline *p, uint32_t lane, int64_t bytes, void *at) {
  NOTE(p, exec_cuda_worker_of(p, lane), cudaMemsetAsync(at, 0, (size_t)bytes, exec_cuda_lanes_of(p)->streams[lane]));
}

static void CUDART_CB sleep_in_queue(void *throttle) { exec_throttle_sleep(throttle); }

void exec_cuda_delay(exec_pipeline *p, uint32_t lane) {
  NOTE(p, exec_cuda_worker_of(p, lane),
       cudaLaunchHostFunc(exec_cuda_lanes_of(p)->streams[lane], sleep_in_queue, &p->throttle));
}

/* It needs no workspace. */
void exec_cuda_add_gradients(exec_pipeline *p, uint32_t lane, uint32_t worker, int64_t n, const void *from, void *to) {
  const exec_parameters *parameters = &p->workers[worker].parameters;
  kern_cuda view = *exec_cuda_at(p, worker)->kernels; /* on another queue */
  view.stream = exec_cuda_lanes_of(p)->streams[lane];
  view.trouble = (dp_error)DP_ERROR_INIT;
  kern_cuda_axpy(&view, parameters->gradient_dtype == GRAPH_BF16 ? KERN_BF16 : KERN_FP32, n, 1, from, to);
  if (kern_cuda_failed(&view))
    kern_cuda_fail(exec_cuda_at(p, worker)->kernels, view.trouble.status, "%s", view.trouble.text);
}

/* Every worker's square by its own queue, once its gradients are complete; then the lane's queue goes on. The host
 * waits for them where there are other processes. */
dp_status exec_cuda_share_norms(exec_pipeline *p, uint32_t lane, uint32_t instruction, dp_error *error) {
  exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  const uint32_t group = p->work.program->instructions[instruction].peer;
  for (uint32_t m = p->groups.first[group]; m < p->groups.first[group + 1]; m++) {
    const uint32_t id = p->groups.ids[m], worker = exec_cuda_worker_of(p, p->lane_of[id]);
    if (!is_here(p, id)) continue;
    exec_cuda *device = exec_cuda_at(p, worker);
    const uint32_t compute = p->work.program->worker_lane[worker];
    (void)cudaSetDevice(device->gpu);
    wait_all(p, compute, id);
    p->work.kind->norm(&p->workers[worker]);
    NOTE(p, worker,
         cudaMemcpyAsync(&l->norms[worker], device->device.square, sizeof *l->norms, cudaMemcpyDeviceToHost,
                         device->stream));
    NOTE(p, worker, cudaEventRecord(l->normed[worker], device->stream));
    NOTE(p, worker, cudaStreamWaitEvent(l->streams[lane], l->normed[worker], 0));
  }
  (void)cudaSetDevice(exec_cuda_at(p, exec_cuda_worker_of(p, lane))->gpu);
  if (!p->work.facts) return DP_OK;
  for (int w = p->first_worker; w < p->end_worker; w++) DP_TRY(exec_cuda_wait(p, l->normed[w], error));
  return exec_cuda_share_squares(p, l->norms, error);
}

static dp_status take_time(exec_pipeline *p, uint32_t i, dp_error *error) {
  const exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  const uint32_t by = l->marker[i];
  const int gpu = exec_cuda_at(p, exec_cuda_worker_of(p, l->doer[i]))->gpu;
  float start_ms = 0, end_ms = 0;
  EXEC_CUDA_TRY(cudaEventElapsedTime(&start_ms, l->base[gpu], l->start[by]), error);
  EXEC_CUDA_TRY(cudaEventElapsedTime(&end_ms, l->base[gpu], l->end[by]), error);
  p->start_s[i] = l->base_s[gpu] + start_ms * 1e-3;
  p->end_s[i] = l->base_s[gpu] + end_ms * 1e-3;
  return DP_OK;
}

/* ---- waiting for the devices ---- */

uint32_t exec_cuda_ended(exec_pipeline *p, const uint8_t *put) {
  const exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  uint32_t count = 0;
  for (uint32_t lane = p->first_lane; lane < p->end_lane; lane++) {
    const plan_lane *of = &p->work.program->lanes[lane];
    uint32_t *next = &l->next[lane];
    while (*next < of->first + of->count && put[*next] && cudaEventQuery(l->end[l->marker[*next]]) == cudaSuccess)
      ++*next;
    count += *next - of->first;
  }
  return count;
}

/* What may be waited for, the cause before what may only follow from it: work, copies in this process, messages of
 * other processes. */
typedef enum sort { SORT_WORK, SORT_HERE, SORT_WIRE, SORTS } sort;

static sort sort_of(const exec_pipeline *p, uint32_t lane) {
  if (exec_cuda_lanes_of(p)->wires[lane]) return SORT_WIRE;
  return p->work.program->lanes[lane].kind == PLAN_LANE_COMPUTE ? SORT_WORK : SORT_HERE;
}

uint32_t exec_cuda_begun(const exec_pipeline *p, const uint8_t *put) {
  const exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  for (sort s = SORT_WORK; s < SORTS; s++)
    for (uint32_t lane = p->first_lane; lane < p->end_lane; lane++) {
      const plan_lane *of = &p->work.program->lanes[lane];
      const uint32_t next = l->next[lane];
      if (sort_of(p, lane) == s && next < of->first + of->count && put[next] &&
          cudaEventQuery(l->start[l->marker[next]]) == cudaSuccess)
        return next;
    }
  return PLAN_NO_PEER;
}

bool exec_cuda_idle(const exec_pipeline *p) {
  const exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  for (uint32_t lane = p->first_lane; l && l->streams && lane < p->end_lane; lane++) {
    if (!l->streams[lane]) continue;
    (void)cudaSetDevice(exec_cuda_at(p, exec_cuda_worker_of(p, lane))->gpu);
    if (cudaStreamQuery(l->streams[lane]) == cudaErrorNotReady) return false;
  }
  return true;
}

/* Asleep, and looking at what may have become of the step (exec/stall.h). A run of one process that is recorded waits
 * in the driver, whose call the record tells of: it has no limit. */
static dp_status wait_queue(exec_pipeline *p, cudaStream_t stream, dp_error *error) {
  if (!p->work.facts && p->work.options.witness)
    return exec_cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize", error);
  /* several processes may share few processors */
  const double began_s = dp_clock_s(), soon_s = began_s + (p->work.facts ? 5e-3 : 1);
  for (;;) {
    const cudaError_t result = cudaStreamQuery(stream);
    if (result == cudaSuccess) return DP_OK;
    if (result != cudaErrorNotReady) return exec_cuda_check(result, "cudaStreamQuery", error);
    DP_TRY(exec_stall_look(p, error));
    dp_sleep_s(dp_clock_s() < soon_s ? 20e-6 : 200e-6);
  }
}

/* When a GPU's base event was, by the host's clock. What is told of several GPUs is to be on one clock, to less than a
 * hand-over between them takes; one alone need not wait for a better reading. */
static void begin_gpu(exec_cuda_lanes *l, int gpu, bool alone) {
  const int tries = alone ? 1 : 4;
  const double near_s = 10e-6;
  (void)cudaSetDevice(gpu);
  for (int i = 0; i < tries; i++) {
    const double before_s = dp_clock_s();
    (void)cudaEventRecord(l->base[gpu], 0);
    (void)cudaEventSynchronize(l->base[gpu]);
    const double around_s = dp_clock_s() - before_s;
    l->base_s[gpu] = before_s + around_s / 2;
    if (around_s < near_s) return;
  }
}

dp_status exec_cuda_begin_lanes(exec_pipeline *p, dp_error *error) {
  exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  exec_stall_begin(p);
  for (int w = p->first_worker; w < p->end_worker; w++) { /* what the step begins with has been done */
    exec_cuda *device = exec_cuda_at(p, (uint32_t)w);
    EXEC_CUDA_TRY(cudaSetDevice(device->gpu), error);
    const dp_status status = wait_queue(p, device->stream, error);
    if (status != DP_OK) atomic_store(&p->stop, true);
    DP_TRY(status);
  }
  int gpus = 0;
  for (int g = 0; g < EXEC_CUDA_MAX_GPUS; g++) gpus += l->has_base[g];
  for (int g = 0; g < EXEC_CUDA_MAX_GPUS; g++) {
    if (!l->has_base[g]) continue;
    begin_gpu(l, g, gpus == 1);
    if (p->work.only && p->work.hold_s > 0) hold_workers(p, g);
  }
  for (uint32_t lane = p->first_lane; lane < p->end_lane; lane++) l->next[lane] = p->work.program->lanes[lane].first;
  return DP_OK;
}

dp_status exec_cuda_finish_lanes(exec_pipeline *p, dp_error *error) {
  const exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  dp_status status = DP_OK;
  for (uint32_t lane = p->first_lane; status == DP_OK && lane < p->end_lane; lane++) {
    if (!l->streams[lane]) continue;
    EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_at(p, exec_cuda_worker_of(p, lane))->gpu), error);
    status = wait_queue(p, l->streams[lane], error);
  }
  if (status != DP_OK) atomic_store(&p->stop, true); /* what still runs there is not waited for any more */
  DP_TRY(status);
  for (int w = p->first_worker; w < p->end_worker; w++)
    DP_TRY(kern_cuda_status(exec_cuda_at(p, (uint32_t)w)->kernels, error));
  for (uint32_t lane = p->first_lane; lane < p->end_lane; lane++) {
    const plan_lane *of = &p->work.program->lanes[lane];
    for (uint32_t i = of->first; i < of->first + of->count; i++) DP_TRY(take_time(p, i, error));
  }
  return DP_OK;
}
