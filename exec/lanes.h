/* The lanes of a pipeline as threads, and how they meet; internal to exec/.
 *
 * Each lane of a worker of this process has a thread that sleeps between steps. A lane whose next instruction may not
 * start sleeps on a condition of its own; who finishes an instruction wakes the lanes that waited for it.
 */
#ifndef DP_EXEC_LANES_H
#define DP_EXEC_LANES_H

#include <pthread.h>

#include "exec/throttle.h"
#include "exec/worker.h"

typedef struct exec_lane {
  struct exec_pipeline *pipeline;
  uint32_t lane; /* of the program */
  uint32_t at;   /* the instruction that it works on; PLAN_NO_PEER: none */
  pthread_t thread;
  pthread_cond_t changed;
  bool has_condition, has_thread;
  float *scratch; /* what another process's member of an all-reduce sends */
  exec_piece *pieces; /* [tensors of its largest message] */
  double least_issue_s; /* of the host, for an instruction of a step that does only some */
} exec_lane;

struct exec_pipeline {
  exec_work work;
  exec_worker *workers; /* [worker_count] those of other processes are empty */
  int first_worker, end_worker;
  exec_lane *lanes; /* [lane_count] */
  uint32_t first_lane, end_lane;
  plan_groups groups;
  uint32_t *lane_of;                      /* [instruction] */
  uint32_t *dependent_first, *dependents; /* [instruction + 1] instructions that wait for it: CSR */
  bool has_locks;
  /* one step */
  exec_step step; /* work.step */
  pthread_mutex_t lock;
  pthread_cond_t all_done;
  uint64_t generation; /* counts steps */
  /* How far the instructions of steps that train, and that evaluate, have come: 1 run as they are, 2 recorded, then
   * played. */
  int64_t rounds[2];
  uint32_t running;    /* lanes that have not ended it */
  double moved_s;      /* when an instruction was last done, by the host or by a device */
  double longest_s;    /* a step that has ended well has taken */
  /* of exec/stall.c: what was done when it last looked, how many of them a device has ended, and when that was */
  uint8_t *seen; /* [instruction] */
  uint32_t ended;
  double looked_s;
  bool left;     /* a step was given up while threads were still in it: there is no other */
  bool stranded; /* and they, or devices, never came out of it */
  bool quit;
  atomic_bool stop;      /* the step cannot go on */
  dp_error trouble;      /* why: of the first to say so */
  uint8_t *done, *ready; /* [instruction] */
  uint32_t *group_ready; /* [group] members of this process that are */
  _Atomic uint32_t position;
  double *start_s, *end_s; /* [instruction] by this process's clock */
  /* [2 * workers] and [2 * workers * samples of a replica]: all workers', and then this process's */
  exec_report *reports;
  double *squares;
  void *device; /* the kind's queues; NULL: it has none */
  /* [lane] Of process 0: sends to another process end only after they have begun there. NULL: not on devices,
   * where all do. */
  uint8_t *meets;
  void *copies, *pair; /* the kind's, while copies, and NCCL, are timed */
  exec_throttle throttle;
  bool made;    /* all of it, here and in the other processes */
  dp_arena arena;
};

/* Everything beyond workers must be there. */
dp_status exec_lanes_start(struct exec_pipeline *pipeline, dp_error *error);
void exec_lanes_stop(struct exec_pipeline *pipeline);
/* A step of what is marked in `only` alone (exec_work.only): the times of what was done are start_s and end_s, those of
 * all else say nothing, and nothing is checked for being finite. Before it, on devices, a whole step. */
dp_status exec_pipeline_step_only(struct exec_pipeline *pipeline, const exec_step *step, const uint8_t *only,
                                  dp_error *error);
/* Plays the program once. When it fails on devices a lane's thread may still be in a call of the driver (`left`). */
dp_status exec_lanes_step(struct exec_pipeline *pipeline, dp_error *error);

/* The process of a worker. */
int exec_process_of(const struct exec_pipeline *pipeline, int worker);
static inline bool exec_is_here(const struct exec_pipeline *p, uint32_t worker) {
  return (int)worker >= p->first_worker && (int)worker < p->end_worker;
}

/* Whether other lanes of this process do all that is on it: it is the sender to a receiver here, or a member of groups
 * that others lead. */
bool exec_is_done_by_others(const struct exec_pipeline *pipeline, uint32_t lane);
/* The first member of a collective that is in this process. */
uint32_t exec_first_here(const struct exec_pipeline *pipeline, const plan_collective *collective);

/* Both ends are in this process, or the given one. exec/transfer.c */
void exec_transfer(struct exec_pipeline *pipeline, uint32_t recv);
/* In its place: what is received is whatever exec_device_kind.strew puts there, in the receiver's compute queue. */
void exec_transfer_nothing(struct exec_pipeline *pipeline, uint32_t recv);
dp_status exec_send(struct exec_pipeline *pipeline, uint32_t send, dp_error *error);
dp_status exec_receive(struct exec_pipeline *pipeline, uint32_t recv, dp_error *error);
/* Whether a lane's sends end only after they have begun at the other end, for exec/align.h. */
bool exec_sends_meet(const void *pipeline, const plan_lane *sends);
/* The whole all-reduce by the lane of the first member, all of this process's other members being ready; or, that being
 * elsewhere, one member's part. exec/reduce.c */
dp_status exec_reduce_lead(struct exec_pipeline *pipeline, uint32_t instruction, dp_error *error);
dp_status exec_reduce_follow(struct exec_pipeline *pipeline, uint32_t instruction, dp_error *error);
/* Gives the ends that pack what the other ends' matrices are now, to measure what comes through; the PSNRs of replica 0
 * to all processes. exec/skips.c */
dp_status exec_skips_show_ups(struct exec_pipeline *pipeline, dp_error *error);
dp_status exec_skips_psnr(struct exec_pipeline *pipeline, double *psnr, dp_error *error);
/* Floats of `scratch` that a lane needs. */
int64_t exec_reduce_scratch(const struct exec_pipeline *pipeline, uint32_t lane);

#endif
