/* CUDA devices under workers: whether there are any, what they can do, and the table of all that is done on them. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "exec/device_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "exec/device_cuda_wire.h"
#include "exec/ops.h"
#include "kernels/cuda/libraries.h"

dp_status exec_cuda_check(cudaError_t result, const char *what, dp_error *error) {
  if (result == cudaSuccess) return DP_OK;
  return dp_fail(error, DP_RUN_FAILED, "%s: %s", what, cudaGetErrorString(result));
}

void exec_cuda_note(exec_worker *w, cudaError_t result, const char *what) {
  (void)kern_cuda_check(exec_cuda_of(w)->kernels, result, what);
}

dp_status exec_device_cuda_there(dp_error *error) {
  int count = 0;
  /* before the first call: each lane's queue goes its own way, none waits behind another's transfer */
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const cudaError_t result = cudaGetDeviceCount(&count);
  const char *why = cudaGetErrorString(result);
  if (result == cudaSuccess) why = "there is none";
  if (result == cudaErrorInsufficientDriver) why = "no NVIDIA driver, or one older than this build's CUDA runtime";
  if (result != cudaSuccess || count == 0)
    return dp_fail(error, DP_UNSUPPORTED,
                   "found no CUDA device that can be used (%s), allowed: a machine with one, or cpu", why);
  return kern_cuda_load(error);
}

int exec_device_cuda_count(void) {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

static dp_status survey(exec_host_facts *facts, dp_error *error) {
  int gpus = 0;
  EXEC_CUDA_TRY(cudaGetDeviceCount(&gpus), error);
  facts->gpu_count = gpus < EXEC_MAX_GPUS ? gpus : EXEC_MAX_GPUS;
  for (int g = 0; g < facts->gpu_count; g++) {
    struct cudaDeviceProp properties;
    EXEC_CUDA_TRY(cudaGetDeviceProperties(&properties, g), error);
    if (g == 0 || properties.multiProcessorCount < facts->sm_count) facts->sm_count = properties.multiProcessorCount;
    memcpy(facts->uuids[g], &properties.uuid, sizeof facts->uuids[g]);
  }
  return DP_OK;
}

static dp_status check(const exec_work *work, dp_error *error) {
  const char *missing = NULL;
  if (work->graph->precision == GRAPH_FP16) missing = "fp16";
  if (missing) return dp_fail(error, DP_UNSUPPORTED, "the executor does not know %s on CUDA devices yet", missing);
  DP_TRY(exec_device_cuda_there(error));
  return exec_chunk_check(&exec_math_cuda, work->graph, error);
}

static int64_t workspace(const plan_program *program, const graph *g, int rank, int threads) {
  const plan_plan *plan = program->plan;
  const kern_loss loss = {.batch = plan->microbatch_size, .n = 1 << 20};
  size_t most = kern_cuda_loss_workspace(&loss);
  for (int c = 0; c < plan->chunk_count; c++) {
    if (plan->chunks[c].rank != rank) continue;
    const size_t bytes =
        exec_chunk_workspace(&exec_math_cuda, g, plan->chunks[c].first_unit, plan->chunks[c].unit_count, threads);
    if (bytes > most) most = bytes;
  }
  const size_t others[] = {kern_cuda_sum_squares_workspace(exec_trained_floats(program, g, rank)),
                           exec_compress_workspace(program, &exec_math_cuda, g->precision, threads)};
  for (int i = 0; i < 2; i++)
    if (others[i] > most) most = others[i];
  return (int64_t)(most + exec_compress_shown_bytes(program, g->precision, rank)) + PLAN_ALIGNMENT;
}

const exec_device_kind exec_device_cuda = {.name = "cuda",
                                           .deferred = true,
                                           .math = &exec_math_cuda,
                                           .workspace = workspace,
                                           .check = check,
                                           .survey = survey,
                                           .fits = exec_cuda_fits,
                                           .open = exec_cuda_open,
                                           .allocate = exec_cuda_allocate,
                                           .release = exec_cuda_release,
                                           .start = exec_cuda_start,
                                           .choose_again = exec_cuda_choose_again,
                                           .close = exec_cuda_close,
                                           .probe = exec_cuda_probe,
                                           .taken = exec_cuda_taken,
                                           .wait_idle = exec_cuda_wait_idle,
                                           .read = exec_cuda_read,
                                           .write = exec_cuda_write,
                                           .read_masters = exec_cuda_read_masters,
                                           .write_masters = exec_cuda_write_masters,
                                           .fetch = exec_cuda_fetch,
                                           .zero = exec_cuda_zero,
                                           .prepare = exec_cuda_prepare,
                                           .feed = exec_cuda_feed,
                                           .look = exec_cuda_look,
                                           .loss = exec_cuda_loss,
                                           .norm = exec_cuda_norm,
                                           .optimize = exec_cuda_optimize,
                                           .begin = exec_cuda_begin,
                                           .collect = exec_cuda_collect,
                                           .use_means = exec_cuda_use_means,
                                           .make_marks = exec_cuda_make_marks,
                                           .mark = exec_cuda_mark,
                                           .read_mark = exec_cuda_read_mark,
                                           .describe = exec_cuda_describe,
                                           .forget = exec_cuda_forget,
                                           .strew = exec_cuda_strew,
                                           .open_copies = exec_cuda_open_copies,
                                           .close_copies = exec_cuda_close_copies,
                                           .time_copies = exec_cuda_time_copies,
                                           .open_pair = exec_cuda_open_pair,
                                           .close_pair = exec_cuda_close_pair,
                                           .time_pair = exec_cuda_time_pair,
                                           .wait_in_pair = exec_cuda_wait_in_pair,
                                           .time_handover = exec_cuda_time_handover,
                                           .replay = exec_cuda_replay,
                                           .record_begin = exec_cuda_record_begin,
                                           .record_end = exec_cuda_record_end,
                                           .open_lanes = exec_cuda_open_lanes,
                                           .close_lanes = exec_cuda_close_lanes,
                                           .begin_lanes = exec_cuda_begin_lanes,
                                           .enter = exec_cuda_enter,
                                           .leave = exec_cuda_leave,
                                           .copy = exec_cuda_copy,
                                           .clear = exec_cuda_clear,
                                           .delay = exec_cuda_delay,
                                           .add_gradients = exec_cuda_add_gradients,
                                           .ended = exec_cuda_ended,
                                           .begun = exec_cuda_begun,
                                           .look_at_wires = exec_cuda_look_at_wires,
                                           .abandon_wires = exec_cuda_abandon_wires,
                                           .idle = exec_cuda_idle,
                                           .send = exec_cuda_send,
                                           .receive = exec_cuda_receive,
                                           .reduce = exec_cuda_reduce,
                                           .share_norms = exec_cuda_share_norms,
                                           .finish_lanes = exec_cuda_finish_lanes};
