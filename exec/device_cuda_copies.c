/* Copies between workers, timed one by one (exec/measure_units.h): by the functions, and in the queues, that a step's
 * go by. */
#include <stdlib.h>

#include "exec/device_cuda_stage.h"

enum { DELAY_COPIES = 256, HANDOVER_BYTES = 4096 };

/* Of one lane. */
typedef struct copy {
  uint32_t lane, from, to; /* workers */
  exec_cuda_stage *stage;
  cudaEvent_t begin, end;
} copy;

typedef struct copies {
  copy *items;
  int count;
  int64_t bytes; /* of each buffer */
  char *from, *to;
} copies;

static exec_cuda *device_of(const exec_pipeline *p, uint32_t worker) { return exec_cuda_of(&p->workers[worker]); }

static dp_status make(exec_pipeline *p, copies *c, const uint32_t *lanes, int count, int64_t bytes, dp_error *error) {
  c->items = calloc((size_t)count + 1, sizeof *c->items); /* one that is half made when another fails */
  if (!c->items) return dp_fail_memory(error);
  c->bytes = bytes;
  for (; c->count < count; c->count++) {
    copy *one = &c->items[c->count];
    const plan_lane *lane = &p->work.program->lanes[lanes[c->count]];
    *one = (copy){.lane = lanes[c->count], .from = lane->peer, .to = lane->worker};
    DP_TRY(exec_cuda_make_stage(p, one->lane, &one->stage, error));
    EXEC_CUDA_TRY(cudaSetDevice(device_of(p, one->to)->gpu), error);
    EXEC_CUDA_TRY(cudaEventCreate(&one->begin), error);
    EXEC_CUDA_TRY(cudaEventCreate(&one->end), error);
  }
  EXEC_CUDA_TRY(cudaSetDevice(device_of(p, c->items[0].from)->gpu), error);
  EXEC_CUDA_TRY(cudaMalloc((void **)&c->from, (size_t)bytes), error);
  EXEC_CUDA_TRY(cudaMemset(c->from, 0x3c, (size_t)bytes), error);
  EXEC_CUDA_TRY(cudaSetDevice(device_of(p, c->items[0].to)->gpu), error);
  return exec_cuda_check(cudaMalloc((void **)&c->to, (size_t)bytes), "cudaMalloc", error);
}

dp_status exec_cuda_open_copies(exec_pipeline *p, const uint32_t *lanes, int count, int64_t bytes, dp_error *error) {
  copies *c = calloc(1, sizeof *c);
  if (!c) return dp_fail_memory(error);
  p->copies = c;
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
  }
  if (c->from) (void)cudaFree(c->from);
  if (c->to) (void)cudaFree(c->to);
  free(c->items);
  free(c);
  p->copies = NULL;
}

/* The lane's queue with, or without, a way through the host's memory. */
static void put(exec_pipeline *p, const copies *c, int i, bool host, int64_t bytes) {
  const copy *one = &c->items[i];
  exec_cuda_stage **stage = &exec_cuda_lanes_of(p)->stages[one->lane], *const own = *stage;
  const int64_t at = i * bytes + bytes <= c->bytes ? i * bytes : 0;
  *stage = host ? one->stage : NULL;
  exec_cuda_copy(p, one->lane, bytes, one->from, c->from + at, one->to, c->to + at);
  *stage = own;
}

dp_status exec_cuda_time_copies(exec_pipeline *p, int count, bool host, int64_t bytes, double *seconds,
                                dp_error *error) {
  const copies *c = p->copies;
  const exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  *seconds = 0;
  for (int i = 0; i < count; i++) {
    const copy *one = &c->items[i];
    EXEC_CUDA_TRY(cudaSetDevice(device_of(p, one->to)->gpu), error);
    EXEC_CUDA_TRY(cudaEventRecord(one->begin, l->streams[one->lane]), error);
    put(p, c, i, host, bytes);
    EXEC_CUDA_TRY(cudaSetDevice(device_of(p, one->to)->gpu), error);
    EXEC_CUDA_TRY(cudaEventRecord(one->end, l->streams[one->lane]), error);
  }
  for (int i = 0; i < count; i++) {
    float ms = 0;
    EXEC_CUDA_TRY(cudaEventSynchronize(c->items[i].end), error);
    EXEC_CUDA_TRY(cudaEventElapsedTime(&ms, c->items[i].begin, c->items[i].end), error);
    if (ms * 1e-3 > *seconds) *seconds = ms * 1e-3;
  }
  return kern_cuda_status(device_of(p, c->items[0].to)->kernels, error);
}

/* The sender's queue is kept busy until all is there: so it is the devices that hand over, not the host. */
static dp_status hand_over(exec_pipeline *p, const copies *c, cudaEvent_t made, cudaEvent_t used, double *seconds,
                           dp_error *error) {
  const copy *one = &c->items[0];
  const exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  cudaStream_t sender = device_of(p, one->from)->stream, receiver = device_of(p, one->to)->stream;
  float whole_ms = 0, message_ms = 0;
  EXEC_CUDA_TRY(cudaSetDevice(device_of(p, one->from)->gpu), error);
  for (int i = 0; i < DELAY_COPIES; i++)
    EXEC_CUDA_TRY(cudaMemcpyAsync(c->to, c->from, (size_t)(c->bytes / 16), cudaMemcpyDeviceToDevice, sender), error);
  EXEC_CUDA_TRY(cudaEventRecord(made, sender), error);
  EXEC_CUDA_TRY(cudaSetDevice(device_of(p, one->to)->gpu), error);
  EXEC_CUDA_TRY(cudaStreamWaitEvent(l->streams[one->lane], made, 0), error);
  EXEC_CUDA_TRY(cudaEventRecord(one->begin, l->streams[one->lane]), error);
  put(p, c, 0, false, HANDOVER_BYTES);
  EXEC_CUDA_TRY(cudaEventRecord(one->end, l->streams[one->lane]), error);
  EXEC_CUDA_TRY(cudaStreamWaitEvent(receiver, one->end, 0), error);
  EXEC_CUDA_TRY(cudaEventRecord(used, receiver), error);
  EXEC_CUDA_TRY(cudaEventSynchronize(used), error);
  EXEC_CUDA_TRY(cudaEventElapsedTime(&whole_ms, made, used), error);
  EXEC_CUDA_TRY(cudaEventElapsedTime(&message_ms, one->begin, one->end), error);
  *seconds = (whole_ms - message_ms) * 1e-3;
  return DP_OK;
}

dp_status exec_cuda_time_handover(exec_pipeline *p, double *seconds, dp_error *error) {
  const copies *c = p->copies;
  cudaEvent_t made = NULL, used = NULL;
  if (device_of(p, c->items[0].from)->gpu != device_of(p, c->items[0].to)->gpu)
    return dp_fail(error, DP_UNSUPPORTED, "hand-overs are timed between workers of one GPU");
  EXEC_CUDA_TRY(cudaSetDevice(device_of(p, c->items[0].from)->gpu), error);
  dp_status status = exec_cuda_check(cudaEventCreate(&made), "cudaEventCreate", error);
  if (status == DP_OK) status = exec_cuda_check(cudaEventCreate(&used), "cudaEventCreate", error);
  if (status == DP_OK) status = hand_over(p, c, made, used, seconds, error);
  if (made) (void)cudaEventDestroy(made);
  if (used) (void)cudaEventDestroy(used);
  return status;
}
