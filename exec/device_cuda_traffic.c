/* Messages and sums between processes, by the wires that exec/device_cuda_wire.c has made. */
#include <stdlib.h>
#include <string.h>

#include "exec/device_cuda_wire.h"

/* ---- local: where it lies, and when ---- */

/* A word with an event of this end: all that is in the stream's queue up to here. */
static dp_status say(exec_pipeline *p, const exec_cuda_wire *w, const exec_cuda_link *link, cudaStream_t stream,
                     const int64_t *offsets, int count, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  EXEC_CUDA_TRY(cudaEventRecord(w->event, stream), error);
  return t->send(t, link->process, link->tag, offsets, (size_t)count * sizeof *offsets, &p->stop, error);
}

static dp_status hear(exec_pipeline *p, const exec_cuda_link *link, cudaStream_t stream, int64_t *offsets, int count,
                      dp_error *error) {
  exec_transport *t = p->work.options.transport;
  DP_TRY(t->receive(t, link->process, link->tag, offsets, (size_t)count * sizeof *offsets, &p->stop, error));
  EXEC_CUDA_TRY(cudaStreamWaitEvent(stream, link->event, 0), error);
  return DP_OK;
}

enum { MOST_OFFSETS = 256 };

static dp_status send_local(exec_pipeline *p, const exec_cuda_wire *w, uint32_t worker, cudaStream_t stream, int count,
                            const exec_piece *pieces, dp_error *error) {
  int64_t offsets[MOST_OFFSETS];
  if (count > MOST_OFFSETS)
    return dp_fail(error, DP_UNSUPPORTED, "a message of %d tensors, allowed: up to %d", count, MOST_OFFSETS);
  for (int k = 0; k < count; k++) offsets[k] = (char *)pieces[k].at - p->workers[worker].base;
  DP_TRY(say(p, w, &w->links[0], stream, offsets, count, error));
  return hear(p, &w->links[0], stream, NULL, 0, error);
}

static dp_status receive_local(exec_pipeline *p, const exec_cuda_wire *w, uint32_t at, cudaStream_t stream, int count,
                               const exec_piece *pieces, dp_error *error) {
  int64_t offsets[MOST_OFFSETS];
  if (count > MOST_OFFSETS)
    return dp_fail(error, DP_UNSUPPORTED, "a message of %d tensors, allowed: up to %d", count, MOST_OFFSETS);
  DP_TRY(hear(p, &w->links[0], stream, offsets, count, error));
  EXEC_CUDA_TRY(cudaEventRecord(exec_cuda_lanes_of(p)->start[at], stream), error); /* both ends are ready now */
  for (int k = 0; k < count; k++)
    EXEC_CUDA_TRY(
        cudaMemcpyAsync(pieces[k].at, w->links[0].memory + offsets[k], pieces[k].bytes, cudaMemcpyDefault, stream),
        error);
  return say(p, w, &w->links[0], stream, NULL, 0, error);
}

/* ---- host: piece by piece through pinned memory, one half filled while the other goes ---- */

static dp_status fetch(const exec_cuda_wire *w, int half, const char *from, size_t bytes, cudaStream_t stream,
                       dp_error *error) {
  EXEC_CUDA_TRY(cudaMemcpyAsync(w->pinned[half], from, bytes, cudaMemcpyDeviceToHost, stream), error);
  EXEC_CUDA_TRY(cudaEventRecord(w->copied[half], stream), error);
  return DP_OK;
}

static dp_status store(const exec_cuda_wire *w, int half, char *to, size_t bytes, cudaStream_t stream,
                       dp_error *error) {
  EXEC_CUDA_TRY(cudaMemcpyAsync(to, w->pinned[half], bytes, cudaMemcpyHostToDevice, stream), error);
  EXEC_CUDA_TRY(cudaEventRecord(w->copied[half], stream), error);
  return DP_OK;
}

/* Without pieces: a word, when all before it has been done. */
static dp_status send_host(exec_pipeline *p, const exec_cuda_wire *w, cudaStream_t stream, int count,
                           const exec_piece *pieces, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  const exec_cuda_link *link = &w->links[0];
  exec_cuda_cursor c = {.pieces = pieces, .count = count};
  char *at = NULL;
  size_t bytes[2];
  if (!exec_cuda_next(&c, EXEC_CUDA_PIECE, &at, &bytes[0])) {
    EXEC_CUDA_TRY(cudaEventRecord(w->copied[0], stream), error);
    DP_TRY(exec_cuda_wait(p, w->copied[0], error));
    return t->send(t, link->process, link->tag, "", 0, &p->stop, error);
  }
  DP_TRY(fetch(w, 0, at, bytes[0], stream, error));
  for (int half = 0;; half = 1 - half) {
    const bool more = exec_cuda_next(&c, EXEC_CUDA_PIECE, &at, &bytes[1 - half]);
    if (more) DP_TRY(fetch(w, 1 - half, at, bytes[1 - half], stream, error));
    DP_TRY(exec_cuda_wait(p, w->copied[half], error));
    DP_TRY(t->send(t, link->process, link->tag, w->pinned[half], bytes[half], &p->stop, error));
    if (!more) return DP_OK;
  }
}

static dp_status receive_host(exec_pipeline *p, const exec_cuda_wire *w, cudaStream_t stream, int count,
                              const exec_piece *pieces, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  const exec_cuda_link *link = &w->links[0];
  exec_cuda_cursor c = {.pieces = pieces, .count = count};
  char *at = NULL, token[1];
  size_t bytes = 0;
  if (!exec_cuda_next(&c, EXEC_CUDA_PIECE, &at, &bytes))
    return t->receive(t, link->process, link->tag, token, 0, &p->stop, error);
  int half = 0;
  do {
    DP_TRY(exec_cuda_wait(p, w->copied[half], error)); /* before it was ever recorded it has come */
    DP_TRY(t->receive(t, link->process, link->tag, w->pinned[half], bytes, &p->stop, error));
    DP_TRY(store(w, half, at, bytes, stream, error));
    half = 1 - half;
  } while (exec_cuda_next(&c, EXEC_CUDA_PIECE, &at, &bytes));
  return DP_OK;
}

/* ---- nccl ---- */

/* While a step runs as it will not again, libraries and the driver may wait for the whole device: when kernels are
 * first loaded, when a graph is made. A kernel of NCCL's that waits for its peer would then be waited for by who is to
 * feed that peer. So in those steps NCCL's kernels are put in their queues when both ends are ready, and only then. */
static bool is_careful(const exec_pipeline *p) {
  enum { FIRST = 3 }; /* by itself, being recorded, and played for the first time */
  return p->rounds[p->work.step->evaluate] < FIRST || p->work.step->measure_skips || p->work.fitting ||
         p->work.searching;
}

static dp_status meet_carefully(exec_pipeline *p, const exec_cuda_wire *w, cudaStream_t stream, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  char token[1];
  if (!is_careful(p)) return DP_OK;
  EXEC_CUDA_TRY(cudaEventRecord(w->copied[0], stream), error);
  DP_TRY(exec_cuda_wait(p, w->copied[0], error));
  for (int l = 0; l < w->link_count && w->rank == 0; l++)
    DP_TRY(t->receive(t, w->links[l].process, w->links[l].tag, token, 0, &p->stop, error));
  for (int l = 0; l < w->link_count && w->rank == 0; l++)
    DP_TRY(t->send(t, w->links[l].process, w->links[l].tag, token, 0, &p->stop, error));
  if (w->rank == 0) return DP_OK;
  DP_TRY(t->send(t, w->links[0].process, w->links[0].tag, token, 0, &p->stop, error));
  return t->receive(t, w->links[0].process, w->links[0].tag, token, 0, &p->stop, error);
}

/* ---- a message ---- */

static dp_status exchange(exec_pipeline *p, uint32_t at, bool sends, int count, const exec_piece *pieces,
                          dp_error *error) {
  const uint32_t lane = p->lane_of[at], worker = exec_cuda_worker_of(p, lane);
  const exec_cuda_wire *w = exec_cuda_lanes_of(p)->wires[lane];
  cudaStream_t stream = exec_cuda_lanes_of(p)->streams[lane];
  const exec_piece token = {w->token, 4};
  DP_TRY(kern_cuda_status(exec_cuda_at(p, worker)->kernels, error));
  switch (w->way) {
    case PLAN_TRANSPORT_NCCL:
      if (count == 0) {
        count = 1;
        pieces = &token;
      }
      DP_TRY(meet_carefully(p, w, stream, error));
      return sends ? exec_nccl_send(w->nccl, count, pieces, stream, error)
                   : exec_nccl_receive(w->nccl, count, pieces, stream, error);
    case PLAN_TRANSPORT_LOCAL:
      return sends ? send_local(p, w, worker, stream, count, pieces, error)
                   : receive_local(p, w, at, stream, count, pieces, error);
    default:
      if (w->ring)
        return sends ? exec_cuda_ring_send(p, w->ring, stream, count, pieces, error)
                     : exec_cuda_ring_receive(p, w->ring, stream, count, pieces, error);
      return sends ? send_host(p, w, stream, count, pieces, error) : receive_host(p, w, stream, count, pieces, error);
  }
}

dp_status exec_cuda_send(exec_pipeline *p, uint32_t at, int count, const exec_piece *pieces, dp_error *error) {
  return exchange(p, at, true, count, pieces, error);
}

dp_status exec_cuda_receive(exec_pipeline *p, uint32_t at, int count, const exec_piece *pieces, dp_error *error) {
  return exchange(p, at, false, count, pieces, error);
}

/* ---- a sum over the processes of a circle ---- */

static dp_status reduce_local(exec_pipeline *p, const exec_cuda_wire *w, uint32_t lane, int64_t n, char *gradients,
                              dp_error *error) {
  const uint32_t worker = exec_cuda_worker_of(p, lane);
  const exec_worker *mine = &p->workers[worker];
  const size_t bytes = (size_t)n * (size_t)graph_dtype_bytes(mine->parameters.gradient_dtype);
  cudaStream_t stream = exec_cuda_lanes_of(p)->streams[lane];
  int64_t offset = gradients - exec_cuda_memory_of(p, worker, true);
  if (w->rank > 0) { /* gives its own, and takes the sum */
    const exec_cuda_link *lead = &w->links[0];
    DP_TRY(say(p, w, lead, stream, &offset, 1, error));
    DP_TRY(hear(p, lead, stream, &offset, 1, error));
    EXEC_CUDA_TRY(cudaMemcpyAsync(gradients, lead->memory + offset, bytes, cudaMemcpyDefault, stream), error);
    DP_TRY(say(p, w, lead, stream, NULL, 0, error));
    return hear(p, lead, stream, NULL, 0, error);
  }
  for (int l = 0; l < w->link_count; l++) {
    int64_t theirs = 0;
    DP_TRY(hear(p, &w->links[l], stream, &theirs, 1, error));
    exec_cuda_add_gradients(p, lane, worker, n, w->links[l].memory + theirs, gradients);
  }
  for (int l = 0; l < w->link_count; l++) DP_TRY(say(p, w, &w->links[l], stream, &offset, 1, error));
  for (int l = 0; l < w->link_count; l++) DP_TRY(hear(p, &w->links[l], stream, NULL, 0, error));
  for (int l = 0; l < w->link_count; l++) DP_TRY(say(p, w, &w->links[l], stream, NULL, 0, error));
  return DP_OK;
}

/* to += from, of a piece as gradients lie in memory */
static void add_piece(bool bf16, size_t bytes, const char *from, char *to) {
  if (!bf16) {
    const float *x = (const float *)(const void *)from;
    float *sum = (float *)(void *)to;
    for (size_t i = 0; i < bytes / sizeof *sum; i++) sum[i] += x[i];
    return;
  }
  exec_cuda_add_bf16((int64_t)(bytes / sizeof(uint16_t)), (const uint16_t *)(const void *)from, (uint16_t *)(void *)to);
}

static dp_status reduce_host(exec_pipeline *p, const exec_cuda_wire *w, uint32_t lane, int64_t n, char *gradients,
                             dp_error *error) {
  exec_transport *t = p->work.options.transport;
  const graph_dtype dtype = p->workers[exec_cuda_worker_of(p, lane)].parameters.gradient_dtype;
  const exec_piece all = {gradients, (size_t)n * (size_t)graph_dtype_bytes(dtype)};
  cudaStream_t stream = exec_cuda_lanes_of(p)->streams[lane];
  exec_cuda_cursor c = {.pieces = &all, .count = 1};
  char *at = NULL;
  size_t bytes = 0;
  while (exec_cuda_next(&c, EXEC_CUDA_PIECE, &at, &bytes)) {
    DP_TRY(exec_cuda_wait(p, w->copied[1], error));
    DP_TRY(fetch(w, 0, at, bytes, stream, error));
    DP_TRY(exec_cuda_wait(p, w->copied[0], error));
    if (w->rank > 0) {
      const exec_cuda_link *lead = &w->links[0];
      DP_TRY(t->send(t, lead->process, lead->tag, w->pinned[0], bytes, &p->stop, error));
      DP_TRY(t->receive(t, lead->process, lead->tag, w->pinned[0], bytes, &p->stop, error));
    }
    for (int l = 0; l < w->link_count && w->rank == 0; l++) {
      DP_TRY(t->receive(t, w->links[l].process, w->links[l].tag, w->pinned[1], bytes, &p->stop, error));
      add_piece(dtype == GRAPH_BF16, bytes, w->pinned[1], w->pinned[0]);
    }
    for (int l = 0; l < w->link_count && w->rank == 0; l++)
      DP_TRY(t->send(t, w->links[l].process, w->links[l].tag, w->pinned[0], bytes, &p->stop, error));
    DP_TRY(store(w, 0, at, bytes, stream, error));
  }
  return DP_OK;
}

dp_status exec_cuda_reduce(exec_pipeline *p, uint32_t at, int64_t n, void *gradients, dp_error *error) {
  const uint32_t lane = p->lane_of[at];
  const exec_cuda_wire *w = exec_cuda_lanes_of(p)->wires[lane];
  const exec_worker *worker = &p->workers[exec_cuda_worker_of(p, lane)];
  DP_TRY(kern_cuda_status(exec_cuda_of(worker)->kernels, error));
  if (w->way == PLAN_TRANSPORT_NCCL) {
    DP_TRY(meet_carefully(p, w, exec_cuda_lanes_of(p)->streams[lane], error));
    return exec_nccl_sum(w->nccl, worker->parameters.gradient_dtype == GRAPH_BF16, n, gradients,
                         exec_cuda_lanes_of(p)->streams[lane], error);
  }
  return w->way == PLAN_TRANSPORT_LOCAL ? reduce_local(p, w, lane, n, gradients, error)
                                        : reduce_host(p, w, lane, n, gradients, error);
}

/* ---- the norm: by the host, which all wait for anyway before the weights change ---- */

/* The first process collects a run of each process's workers and sends all to all. */
dp_status exec_cuda_share_squares(exec_pipeline *p, double *norms, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  const int workers = p->work.program->worker_count, processes = exec_process_count(t);
  const size_t each = (size_t)(workers / processes) * sizeof *norms;
  const uint32_t tag = EXEC_TAG_WIRES + 1;
  if (exec_process(t) > 0) {
    DP_TRY(t->send(t, 0, tag, norms + p->first_worker, each, &p->stop, error));
    return t->receive(t, 0, tag, norms, (size_t)workers * sizeof *norms, &p->stop, error);
  }
  for (int other = 1; other < processes; other++)
    DP_TRY(t->receive(t, other, tag, norms + other * (workers / processes), each, &p->stop, error));
  for (int other = 1; other < processes; other++)
    DP_TRY(t->send(t, other, tag, norms, (size_t)workers * sizeof *norms, &p->stop, error));
  return DP_OK;
}
