/* What a compute instruction put in the queue, recorded as a graph and played again. */
#include <stdlib.h>
#include <string.h>

#include "exec/device_cuda.h"

static bool is_recorded(const exec_work *work, uint32_t instruction) {
  return work->program->instructions[instruction].opcode != PLAN_OPTIMIZER_STEP && !work->options.poison &&
         !work->fitting && !work->searching && !work->step->measure_skips &&
         !(work->options.observer && work->options.observer->on);
}

static exec_cuda_record *record_of(const exec_work *work, exec_worker *w, uint32_t instruction) {
  return &exec_cuda_of(w)->records[work->step->evaluate][exec_cuda_position(work, w, instruction)];
}

static uint8_t *begun_of(const exec_work *work, exec_worker *w, uint32_t instruction) {
  return exec_layout_begun(&w->layout, work->program->instructions[instruction].microbatch);
}

bool exec_cuda_replay(const exec_work *work, exec_worker *w, uint32_t instruction) {
  const exec_cuda *d = exec_cuda_of(w);
  const exec_cuda_record *record = record_of(work, w, instruction);
  if (!is_recorded(work, instruction) || !record->graph) return false;
  memcpy(begun_of(work, w, instruction), record->begun, d->tensors);
  EXEC_CUDA_NOTE(w, cudaGraphLaunch(record->graph, d->stream));
  return true;
}

/* The first step runs as it is: what it meets for the first time could not be captured. Workers record one after another
 * (kern_cuda_hold_plans). */
void exec_cuda_record_begin(const exec_work *work, exec_worker *w, uint32_t instruction) {
  exec_cuda *d = exec_cuda_of(w);
  exec_cuda_record *record = record_of(work, w, instruction);
  d->recording = d->steps > 0 && !w->unrecorded && is_recorded(work, instruction);
  if (d->recording && !record->begun) record->begun = malloc(d->tensors);
  if (d->recording && !record->begun) {
    d->recording = false;
    kern_cuda_fail(d->kernels, DP_NO_MEMORY, "the host has no memory left");
  }
  if (!d->recording) return;
  memcpy(record->begun, begun_of(work, w, instruction), d->tensors);
  kern_cuda_hold_plans();
  EXEC_CUDA_NOTE(w, cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal));
}

/* Kernels' attributes may have been changed, by others than plans of cuDNN, since they were captured: once more, then. */
static bool instantiate(exec_worker *w, exec_cuda_record *record, cudaGraph_t made) {
  enum { MOST_FAILURES = 2 };
  const cudaError_t result = cudaGraphInstantiate(&record->graph, made, 0);
  const bool again = result == cudaErrorLaunchOutOfResources || result == cudaErrorInvalidClusterSize ||
                     result == cudaErrorInvalidValue;
  if (again && record->failures++ < MOST_FAILURES) {
    record->graph = NULL;
    (void)cudaGetLastError();
    return false;
  }
  if (!kern_cuda_check(exec_cuda_of(w)->kernels, result, "cudaGraphInstantiate(&record->graph, made, 0)"))
    record->graph = NULL;
  return true;
}

bool exec_cuda_record_end(const exec_work *work, exec_worker *w, uint32_t instruction) {
  exec_cuda *d = exec_cuda_of(w);
  exec_cuda_record *record = record_of(work, w, instruction);
  cudaGraph_t made = NULL;
  if (!d->recording) return true;
  d->recording = false;
  EXEC_CUDA_NOTE(w, cudaStreamEndCapture(d->stream, &made));
  const bool done = !made || instantiate(w, record, made);
  kern_cuda_release_plans();
  if (made) (void)cudaGraphDestroy(made);
  if (!done) {
    memcpy(begun_of(work, w, instruction), record->begun, d->tensors);
    return false;
  }
  if (record->graph && work->options.witness && work->options.witness->graph)
    work->options.witness->graph(work->options.witness->data, work->program, instruction, record->graph);
  memcpy(record->begun, begun_of(work, w, instruction), d->tensors);
  if (record->graph) EXEC_CUDA_NOTE(w, cudaGraphLaunch(record->graph, d->stream));
  return true;
}
