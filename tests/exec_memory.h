/* A pipeline's memory against the prediction that it was made from. */
#ifndef DP_TESTS_EXEC_MEMORY_H
#define DP_TESTS_EXEC_MEMORY_H

#include <check.h>

#include "exec/pipeline.h"
#include "sim/efficiency.h"
#include "sim/predict.h"

/* Predicts as for a processor whose kernels have one thread, as the pipeline of options.threads 0 or 1 is. */
static inline void predict_memory_of_cpu(plan_scenario *scenario, sim_efficiency *efficiency) {
  scenario->implementation = "cpu";
  scenario->train.threads = 1;
  sim_efficiency_use_library(efficiency, "cpu", exec_library_workspace(false));
}

/* What is predicted of the CPU is what it allocates, buffer by buffer. */
static inline void check_memory(const exec_pipeline *pipeline, const sim_prediction *p) {
  for (int w = 0; w < p->program.worker_count; w++) {
    const plan_worker_memory *predicted = &p->memory.workers[w], *allocated = exec_pipeline_memory(pipeline, w);
    ck_assert_int_eq(predicted->layout_bytes, allocated->layout_bytes);
    ck_assert_int_eq(predicted->buffer_count, allocated->buffer_count);
    for (uint32_t b = 0; b < predicted->buffer_count; b++)
      if (predicted->buffers[b].offset_bytes != allocated->buffers[b].offset_bytes ||
          predicted->buffers[b].bytes != allocated->buffers[b].bytes)
        ck_abort_msg("worker %d: buffer %u lies elsewhere", w, b);
  }
}

#endif
