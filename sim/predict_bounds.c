#include "sim/predictor.h"

#include <math.h>
#include <string.h>

enum {
  BOUND_GEMM,
  BOUND_CONVOLUTION,
  BOUND_ATTENTION,
  BOUND_MEMORY,
  BOUND_FIXED,
  BOUND_OPTIMIZER,
  BOUND_TENSOR,
  BOUND_SLOWED,
  BOUND_HOST,
  BOUND_COMM,
  BOUND_BUBBLE,
  BOUND_COUNT
};
static const char *const bound_names[BOUND_COUNT] = {"compute: matrix products",
                                                     "compute: convolutions",
                                                     "compute: attention",
                                                     "compute: memory-bound ops",
                                                     "compute",
                                                     "optimizer step",
                                                     "tensor-parallel collectives",
                                                     "compute slowed by transfers",
                                                     SIM_BOUND_HOST,
                                                     "communication not hidden",
                                                     "pipeline bubble"};

/* Splits a compute span over its tensor group's collectives and the op classes, in the proportion of its units' costs.
 */
static void add_compute(const sim_predictor *p, uint32_t class_id, double seconds, double *bound) {
  const plan_work *work = &p->out->program.works[class_id];
  const sim_device_kind *kind = &p->kinds[p->kind_of_worker[work->worker]];
  const double tensor_s = p->work_s[class_id] > 0 ? seconds * p->work_tensor_s[class_id] / p->work_s[class_id] : 0;
  bound[BOUND_TENSOR] += tensor_s;
  seconds -= tensor_s;
  if (work->opcode == PLAN_OPTIMIZER_STEP) {
    bound[BOUND_OPTIMIZER] += seconds;
    return;
  }
  double by_class[GRAPH_CLASS_COUNT] = {0}, sum = 0;
  for (uint32_t u = work->first_unit; u < work->first_unit + work->unit_count; u++)
    for (int d = 0; d < 3; d++) {
      const bool counts = work->opcode == PLAN_FORWARD           ? d == SIM_FORWARD
                          : work->opcode == PLAN_BACKWARD_INPUT  ? d == SIM_BACKWARD_INPUT
                          : work->opcode == PLAN_BACKWARD_WEIGHT ? d == SIM_BACKWARD_WEIGHT
                                                                 : d != SIM_FORWARD;
      if (!counts) continue;
      for (int c = 0; c < GRAPH_CLASS_COUNT; c++) {
        by_class[c] += kind->units[u].class_s[d][c];
        sum += kind->units[u].class_s[d][c];
      }
    }
  if (sum <= 0) {
    bound[BOUND_FIXED] += seconds;
    return;
  }
  for (int c = 0; c < GRAPH_CLASS_COUNT; c++) bound[BOUND_GEMM + c] += seconds * by_class[c] / sum;
}

dp_status sim_predict_bounds(sim_predictor *p) {
  sim_prediction *out = p->out;
  const plan_program *program = &out->program;
  const plan_timeline *timeline = &out->timeline;
  double bound[BOUND_COUNT] = {0};
  double *class_busy = SIM_SCRATCH(p, double, program->work_count);
  if (!class_busy) return dp_fail_memory(p->error);
  for (int w = 0; w < (int)program->worker_count; w++) {
    const plan_lane *lane = &program->lanes[program->worker_lane[w]];
    double free_s = 0, host_s = 0, busy_s = 0;
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      const uint32_t class_id = program->instructions[i].class_id;
      const double length = timeline->end_s[i] - timeline->start_s[i];
      const double pure = fmin(length, p->work_s[class_id]);
      class_busy[class_id] += pure;
      busy_s += length;
      double extra = length - pure;
      if (timeline->issue_s) {
        /* the host had not begun to issue it when the lane was free, or finished issuing after the device could have */
        const double begun_s = timeline->issue_s[i] - p->work_issue_s[class_id];
        if (begun_s >= timeline->start_s[i] - 1e-12 && begun_s > free_s) host_s += begun_s - free_s;
        if (timeline->issue_s[i] >= timeline->end_s[i] - 1e-12) {
          host_s += extra;
          busy_s -= extra;
          extra = 0;
        }
      }
      bound[BOUND_SLOWED] += extra;
      free_s = timeline->end_s[i];
    }
    const double idle_s = fmax(0, out->metrics.step_s - busy_s - host_s);
    const double comm_s = fmin(idle_s, out->metrics.workers[w].exposed_comm_s);
    bound[BOUND_HOST] += host_s;
    bound[BOUND_COMM] += comm_s;
    bound[BOUND_BUBBLE] += idle_s - comm_s;
  }
  const uint32_t pipeline_works = program->work_count / (uint32_t)plan_copy_count(&out->plan);
  for (uint32_t c = program->work_count; c-- > 0;) {
    const plan_work *work = &program->works[c], *first = &program->works[c % pipeline_works];
    if (c >= pipeline_works && p->kind_of_worker[work->worker] == p->kind_of_worker[first->worker])
      class_busy[c % pipeline_works] += class_busy[c]; /* copies are alike */
    else
      add_compute(p, c, class_busy[c], bound);
  }
  const double whole = out->metrics.step_s * program->worker_count;
  for (int b = 0; b < BOUND_COUNT; b++)
    if (whole > 0 && bound[b] / whole > 1e-6)
      out->bounds[out->bound_count++] = (sim_bound){bound_names[b], bound[b] / whole};
  for (int i = 1; i < out->bound_count; i++) /* largest first, stable */
    for (int j = i; j > 0 && out->bounds[j].share > out->bounds[j - 1].share; j--) {
      const sim_bound swap = out->bounds[j];
      out->bounds[j] = out->bounds[j - 1];
      out->bounds[j - 1] = swap;
    }
  return DP_OK;
}
