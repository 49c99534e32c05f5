/* What the last steps of a run tell: where each worker's time went and why, by step, stage, kind of instruction, class
 * of kernels and link. From measured timelines alone, or, where the work of devices was recorded, from those that
 * profiler/join.h made of it, which know more.
 *
 * Every moment of a worker in a step is one of prof_run_part; they sum to the step (the law of the rows). Between two
 * instructions of its compute lane nothing is computed. That is first a wait for the last thing that the next one
 * needs: PEER while that has not begun, TRANSFER while it is under way. Then HOST until the host begins to put the next
 * one into its queue, and LAUNCH until it starts. Without records hosts are not known, and all of that is LAUNCH.
 */
#ifndef DP_PROFILER_RUN_TABLES_H
#define DP_PROFILER_RUN_TABLES_H

#include "profiler/join.h"
#include "profiler/summary.h"

typedef enum prof_run_part {
  PROF_RUN_COMPUTE,  /* an instruction computes; with records: one of its kernels or copies runs */
  PROF_RUN_GAPS,     /* within an instruction, between two pieces of its work */
  PROF_RUN_HOST,     /* the host had not begun to issue the next instruction, which could have run */
  PROF_RUN_LAUNCH,   /* what it waited for was done and the host had begun, but it had not started */
  PROF_RUN_TRANSFER, /* waits for a message or a collective that is under way */
  PROF_RUN_PEER,     /* waits for one that has not begun: other workers are not so far */
  PROF_RUN_END,      /* the worker is done, others are not */
  PROF_RUN_PART_COUNT
} prof_run_part;
extern const char *const prof_run_part_names[PROF_RUN_PART_COUNT]; /* "compute", ... */

typedef struct prof_run_step {
  uint64_t number;
  double step_s, bubble_ratio;
  double parts_s[PROF_RUN_PART_COUNT]; /* of all workers: they sum to workers * step_s */
  double comm_s, exposed_s;            /* of all workers, as plan_worker_metrics has them */
  double classes_s[PROF_CLASS_COUNT];  /* sums of durations */
} prof_run_step;

/* A rank of the pipeline; all replicas, all steps. */
typedef struct prof_run_stage {
  double worker_s; /* time of its workers: steps' times the number of workers; parts sum to it */
  double parts_s[PROF_RUN_PART_COUNT], comm_s, exposed_s, classes_s[PROF_CLASS_COUNT];
} prof_run_stage;

/* What a rank's workers did of one opcode; share: of worker_s. */
typedef struct prof_run_kind {
  int rank;
  plan_opcode opcode;
  prof_spread time;
  double share;
  double classes_s[PROF_CLASS_COUNT]; /* sums of durations of its kernels and copies */
} prof_run_kind;

typedef struct prof_run_link {
  uint32_t from, to; /* workers */
  bool backward;
  prof_spread time;
  int64_t bytes;
} prof_run_link;

/* What was done for a unit of the model in CUDA graphs: sums of durations over all steps, microbatches and replicas. */
typedef struct prof_run_unit {
  int32_t unit;
  int rank;
  uint64_t count; /* kernels and copies */
  double forward_s, backward_s, classes_s[PROF_CLASS_COUNT];
  double share; /* of all durations of instructions' work */
} prof_run_unit;

typedef struct prof_run_tables {
  bool recorded; /* classes and gaps are known */
  int ranks, workers;
  prof_run_step *steps;   /* [step_count] */
  prof_run_stage *stages; /* [ranks] */
  size_t step_count;
  DP_ARRAY(prof_run_kind) kinds;            /* by rank and opcode; those that there are */
  DP_ARRAY(prof_run_link) links;            /* by from, to and direction */
  DP_ARRAY(prof_run_unit) units;            /* the longest first; of work that is known to be of one */
  prof_class_row classes[PROF_CLASS_COUNT]; /* share: of all durations */
  prof_spread step_time, gaps;
  double bubble_ratio;  /* of all steps together */
  uint64_t work, stray; /* pieces of work of instructions, and of none */
  double stray_s;
} prof_run_tables;

/* A step as it was measured; joined NULL: from marks of its queues alone. */
typedef struct prof_run_source {
  uint64_t number;
  const plan_timeline *timeline;
  const prof_joined *joined;
} prof_run_source;

/* All of one program; either all with records or none. At least one. */
dp_status prof_run_tables_of(const prof_run_source *sources, size_t count, prof_run_tables *tables, dp_error *error);
void prof_run_tables_free(prof_run_tables *tables); /* safe on a zeroed one */

#endif
