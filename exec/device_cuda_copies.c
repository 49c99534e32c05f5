/* Copies between workers, timed one by one (exec/measure_units.h): by the functions, and in the queues, that a step's
 * go by. */
#define _POSIX_C_SOURCE 200809L
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "exec/device_cuda_stage.h"

enum { DELAY_COPIES = 256, HANDOVER_BYTES = 4096 };

/* Of one lane. Those between the same two devices share one buffer on each. */
typedef struct copy {
  uint32_t lane, from, to; /* workers */
  exec_cuda_stage *stage;
  cudaEvent_t begin, end;
  char *source, *target;
  bool owns;     /* the two */
  int64_t place; /* among those that share them */
} copy;

typedef struct copies {
  copy *items;
  int count;
  int64_t bytes; /* of each buffer */
  bool peers;    /* all reach each other's memory: a copy that does not may hold up who puts it in a queue */
  cudaEvent_t opened;
  atomic_bool gate;
} copies;

static bool join_same(const exec_pipeline *p, const copy *one, const copy *other) {
  return exec_cuda_at(p, one->from)->gpu == exec_cuda_at(p, other->from)->gpu &&
         exec_cuda_at(p, one->to)->gpu == exec_cuda_at(p, other->to)->gpu;
}

static dp_status make_buffers(exec_pipeline *p, const copies *c, copy *one, dp_error *error) {
  for (const copy *other = c->items; other < one; other++) {
    if (!join_same(p, one, other)) continue;
    one->source = other->source;
    one->target = other->target;
    one->place++;
  }
  if (one->source) return DP_OK;
  one->owns = true;
  EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_at(p, one->from)->gpu), error);
  EXEC_CUDA_TRY(cudaMalloc((void **)&one->source, (size_t)c->bytes), error);
  EXEC_CUDA_TRY(cudaMemset(one->source, 0x3c, (size_t)c->bytes), error);
  EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_at(p, one->to)->gpu), error);
  return exec_cuda_check(cudaMalloc((void **)&one->target, (size_t)c->bytes), "cudaMalloc", error);
}

static dp_status look_at_peers(const exec_pipeline *p, copies *c, const copy *one, dp_error *error) {
  const int from = exec_cuda_at(p, one->from)->gpu, to = exec_cuda_at(p, one->to)->gpu;
  int can = 1;
  if (from != to) EXEC_CUDA_TRY(cudaDeviceCanAccessPeer(&can, to, from), error);
  c->peers = c->peers && can;
  return DP_OK;
}

static dp_status make(exec_pipeline *p, copies *c, const uint32_t *lanes, int count, int64_t bytes, dp_error *error) {
  c->items = calloc((size_t)count + 1, sizeof *c->items); /* one that is half made when another fails */
  if (!c->items) return dp_fail_memory(error);
  c->bytes = bytes;
  c->peers = true;
  for (; c->count < count; c->count++) {
    copy *one = &c->items[c->count];
    const plan_lane *lane = &p->work.program->lanes[lanes[c->count]];
    *one = (copy){.lane = lanes[c->count], .from = lane->peer, .to = lane->worker};
    DP_TRY(exec_cuda_make_stage(p, one->lane, &one->stage, error));
    EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_at(p, one->to)->gpu), error);
    EXEC_CUDA_TRY(cudaEventCreate(&one->begin), error);
    EXEC_CUDA_TRY(cudaEventCreate(&one->end), error);
    DP_TRY(make_buffers(p, c, one, error));
    DP_TRY(look_at_peers(p, c, one, error));
  }
  EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_at(p, c->items[0].to)->gpu), error);
  return exec_cuda_check(cudaEventCreateWithFlags(&c->opened, cudaEventDisableTiming), "cudaEventCreate", error);
}

dp_status exec_cuda_open_copies(exec_pipeline *p, const uint32_t *lanes, int count, int64_t bytes, dp_error *error) {
  copies *c = calloc(1, sizeof *c);
  if (!c) return dp_fail_memory(error);
  p->copies = c;
  atomic_init(&c->gate, true);
  const dp_status status = make(p, c, lanes, count, bytes, error);
  if (status != DP_OK) exec_cuda_close_copies(p);
  return status;
}

void exec_cuda_close_copies(exec_pipeline *p) {
  copies *c = p->copies;
  if (!c) return;
  for (int i = 0; c->items && i <= c->count; i++) {
    exec_cuda_close_stage(c->items[i].stage);
    if (c->items[i].begin) (void)cudaEventDestroy(c->items[i].begin);
    if (c->items[i].end) (void)cudaEventDestroy(c->items[i].end);
    if (c->items[i].owns && c->items[i].source) (void)cudaFree(c->items[i].source);
    if (c->items[i].owns && c->items[i].target) (void)cudaFree(c->items[i].target);
  }
  if (c->opened) (void)cudaEventDestroy(c->opened);
  free(c->items);
  free(c);
  p->copies = NULL;
}

/* The lane's queue with, or without, a way through the host's memory. */
static void put(exec_pipeline *p, const copies *c, const copy *one, bool host, int64_t bytes) {
  exec_cuda_stage **stage = &exec_cuda_lanes_of(p)->stages[one->lane], *const own = *stage;
  const int64_t at = (one->place + 1) * bytes <= c->bytes ? one->place * bytes : 0;
  *stage = host ? one->stage : NULL;
  exec_cuda_copy(p, one->lane, bytes, one->from, one->source + at, one->to, one->target + at);
  *stage = own;
}

/* Several begin when all are in their queues: these wait behind the first, and that for the host. */
static void CUDART_CB wait_for_gate(void *data) {
  atomic_bool *gate = data;
  while (!atomic_load(gate)) (void)sched_yield();
}

static dp_status shut_gate(exec_pipeline *p, copies *c, dp_error *error) {
  cudaStream_t first = exec_cuda_lanes_of(p)->streams[c->items[0].lane];
  EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_at(p, c->items[0].to)->gpu), error);
  atomic_store(&c->gate, false);
  EXEC_CUDA_TRY(cudaLaunchHostFunc(first, wait_for_gate, &c->gate), error);
  return exec_cuda_check(cudaEventRecord(c->opened, first), "cudaEventRecord", error);
}

static dp_status put_all(exec_pipeline *p, copies *c, int count, bool host, int64_t bytes, dp_error *error) {
  const exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  const bool gated = count > 1 && (host || c->peers);
  if (gated) DP_TRY(shut_gate(p, c, error));
  for (int i = 0; i < count; i++) {
    const copy *one = &c->items[i];
    EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_at(p, one->to)->gpu), error);
    if (gated && i > 0) EXEC_CUDA_TRY(cudaStreamWaitEvent(l->streams[one->lane], c->opened, 0), error);
    EXEC_CUDA_TRY(cudaEventRecord(one->begin, l->streams[one->lane]), error);
    put(p, c, one, host, bytes);
    EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_at(p, one->to)->gpu), error);
    EXEC_CUDA_TRY(cudaEventRecord(one->end, l->streams[one->lane]), error);
  }
  return DP_OK;
}

dp_status exec_cuda_time_copies(exec_pipeline *p, int count, bool host, int64_t bytes, double *seconds,
                                dp_error *error) {
  copies *c = p->copies;
  *seconds = 0;
  const dp_status status = put_all(p, c, count, host, bytes, error);
  atomic_store(&c->gate, true);
  DP_TRY(status);
  for (int i = 0; i < count; i++) {
    float ms = 0;
    EXEC_CUDA_TRY(cudaEventSynchronize(c->items[i].end), error);
    EXEC_CUDA_TRY(cudaEventElapsedTime(&ms, c->items[i].begin, c->items[i].end), error);
    if (ms * 1e-3 > *seconds) *seconds = ms * 1e-3;
  }
  return kern_cuda_status(exec_cuda_at(p, c->items[0].to)->kernels, error);
}

/* ---- from what a message waits for to what waits for it ---- */

/* A message behind an event, in the lane's queue; then `next` waits for it. Its own time is told when it has come. */
static dp_status send_behind(exec_pipeline *p, const copies *c, const copy *one, cudaEvent_t made, cudaStream_t next,
                             dp_error *error) {
  cudaStream_t stream = exec_cuda_lanes_of(p)->streams[one->lane];
  EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_at(p, one->to)->gpu), error);
  EXEC_CUDA_TRY(cudaStreamWaitEvent(stream, made, 0), error);
  EXEC_CUDA_TRY(cudaEventRecord(one->begin, stream), error);
  put(p, c, one, false, HANDOVER_BYTES);
  EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_at(p, one->to)->gpu), error);
  EXEC_CUDA_TRY(cudaEventRecord(one->end, stream), error);
  return exec_cuda_check(cudaStreamWaitEvent(next, one->end, 0), "cudaStreamWaitEvent", error);
}

/* `made` and `used` are of the first worker's device, since one clock must tell what lies between: where the second is on
 * another, a message comes back. The first's queue is kept busy until all is there: so it is the devices that hand over,
 * not the host. */
static dp_status hand_over(exec_pipeline *p, const copies *c, const copy *back, const cudaEvent_t events[3],
                           double *seconds, dp_error *error) {
  const copy *one = &c->items[0];
  const exec_cuda *first = exec_cuda_at(p, one->from), *second = exec_cuda_at(p, one->to);
  const cudaEvent_t made = events[0], used = events[1], turned = events[2];
  float whole_ms = 0, there_ms = 0, back_ms = 0;
  EXEC_CUDA_TRY(cudaSetDevice(first->gpu), error);
  for (int i = 0; i < DELAY_COPIES; i++)
    EXEC_CUDA_TRY(cudaMemcpyAsync(one->source + c->bytes / 2, one->source, (size_t)(c->bytes / 16),
                                  cudaMemcpyDeviceToDevice, first->stream),
                  error);
  EXEC_CUDA_TRY(cudaEventRecord(made, first->stream), error);
  DP_TRY(send_behind(p, c, one, made, second->stream, error));
  if (back) {
    EXEC_CUDA_TRY(cudaEventRecord(turned, second->stream), error);
    DP_TRY(send_behind(p, c, back, turned, first->stream, error));
  }
  EXEC_CUDA_TRY(cudaSetDevice(first->gpu), error);
  EXEC_CUDA_TRY(cudaEventRecord(used, back ? first->stream : second->stream), error);
  EXEC_CUDA_TRY(cudaEventSynchronize(used), error);
  EXEC_CUDA_TRY(cudaEventElapsedTime(&whole_ms, made, used), error);
  EXEC_CUDA_TRY(cudaEventElapsedTime(&there_ms, one->begin, one->end), error);
  if (back) EXEC_CUDA_TRY(cudaEventElapsedTime(&back_ms, back->begin, back->end), error);
  *seconds = (whole_ms - there_ms - back_ms) * 1e-3 / (back ? 2 : 1);
  return DP_OK;
}

dp_status exec_cuda_time_handover(exec_pipeline *p, double *seconds, dp_error *error) {
  const copies *c = p->copies;
  const copy *one = &c->items[0], *back = NULL;
  const int first = exec_cuda_at(p, one->from)->gpu, second = exec_cuda_at(p, one->to)->gpu;
  cudaEvent_t events[3] = {NULL, NULL, NULL};
  for (int i = 1; i < c->count && first != second; i++)
    if (c->items[i].from == one->to && c->items[i].to == one->from) back = &c->items[i];
  if (first != second && !back)
    return dp_fail(error, DP_UNSUPPORTED, "hand-overs between two GPUs are timed there and back");
  dp_status status = DP_OK;
  for (int i = 0; i < 3 && status == DP_OK; i++) {
    status = exec_cuda_check(cudaSetDevice(i < 2 ? first : second), "cudaSetDevice", error);
    if (status == DP_OK) status = exec_cuda_check(cudaEventCreate(&events[i]), "cudaEventCreate", error);
  }
  if (status == DP_OK) status = hand_over(p, c, back, events, seconds, error);
  for (int i = 0; i < 3; i++)
    if (events[i]) (void)cudaEventDestroy(events[i]);
  return status;
}
