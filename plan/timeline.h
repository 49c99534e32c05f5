/* A timeline: when each instruction of a program ran, predicted or measured; and what any timeline tells (metrics). */
#ifndef DP_PLAN_TIMELINE_H
#define DP_PLAN_TIMELINE_H

#include "plan/program.h"

typedef struct plan_timeline {
  const plan_program *program;
  double *start_s, *end_s; /* [instruction_count], from the start of the step; malloc'ed */
  double *issue_s;         /* [instruction_count] when the host had issued it; NULL when hosts are not modelled */
  double *work_tensor_s;   /* [work_count] the part of each compute instruction in which its tensor group communicates;
                            * malloc'ed, NULL: none */
  double step_s;           /* the latest end */
} plan_timeline;
dp_status plan_timeline_init(const plan_program *program, plan_timeline *timeline, dp_error *error);
void plan_timeline_free(plan_timeline *timeline);

/* When the last of what an instruction of a lane waits for, and the one before it there, ended; `by`: which that is,
 * PLAN_NO_PEER: nothing. */
double plan_released_s(const plan_timeline *timeline, uint32_t lane, uint32_t instruction, uint32_t *by);

typedef struct plan_worker_metrics {
  double compute_s;      /* busy time of the compute lane, without tensor_s */
  double forward_s, backward_s, optimizer_s; /* parts of compute_s */
  double tensor_s;       /* collectives of the tensor group: on the compute lane, nothing is computed meanwhile */
  double comm_s;         /* time with at least one transfer or collective under way beside the compute lane */
  double exposed_comm_s; /* the part of comm_s in which the compute lane was idle */
  double idle_s;         /* step - compute_s - tensor_s */
  int64_t sent_bytes, received_bytes;
} plan_worker_metrics;

typedef struct plan_metrics {
  double step_s;
  double bubble_ratio;             /* 1 - sum of (compute_s + tensor_s) / (workers * step_s) */
  double throughput_samples_per_s; /* samples of all replicas / step_s (sampling: / the whole trajectory) */
  int64_t comm_bytes, comm_bytes_by_kind[PLAN_TRAFFIC_COUNT];
  int worker_count;
  plan_worker_metrics *workers;    /* malloc'ed */
} plan_metrics;
dp_status plan_metrics_of(const plan_timeline *timeline, plan_metrics *metrics, dp_error *error);
void plan_metrics_free(plan_metrics *metrics);

/* The longest chain of instructions, each starting when the one before ended: ids from first to last in malloc'ed
 * memory; what bounds the step. */
dp_status plan_critical_path(const plan_timeline *timeline, uint32_t **ids, uint32_t *count, dp_error *error);

#endif
