/* What measuring keeps until a profile is made of it; internal to exec/. */
#ifndef DP_EXEC_MEASURE_STORE_H
#define DP_EXEC_MEASURE_STORE_H

#include "exec/measure.h"

typedef struct exec_measure_sample {
  const char *op;
  graph_op_kind kind;
  plan_direction direction;
  plan_profile_work work;
  double seconds, halves[2];
  int64_t runs;
} exec_measure_sample;

/* An op over all its places in all programs; [0] alone, [1] busy. */
typedef struct exec_measured_op {
  exec_measure_sample sample; /* op is in the arena; runs: alone */
  double sum_s[2], half_s[2];
  int places[2];
} exec_measured_op;

typedef DP_ARRAY(double) exec_series;

/* Durations of one size. */
typedef struct exec_measured_size {
  double size;
  exec_series seconds;
} exec_measured_size;
typedef DP_ARRAY(exec_measured_size) exec_sizes;

struct exec_measure {
  int threads;
  dp_arena arena;
  DP_ARRAY(exec_measured_op) ops;
  exec_sizes copies, sums; /* by bytes */
  exec_sizes optimizer[2]; /* by parameters; of a lone worker with the norm of its gradients */
  exec_sizes norms;        /* by parameters; of a lone worker */
  exec_sizes loss;         /* by bytes of the prediction */
  exec_series gaps_s;      /* of one worker: from the end of an instruction to the start of the next */
  exec_series excess;   /* of one worker, by program: a step over its ops, the loss and the optimizer, without gaps */
  exec_series before_s; /* from the end of what a transfer waited for to its start */
  exec_series after_s;  /* from the end of a transfer to the start of what waited for it */
  exec_series begin_s;  /* of one worker: of a step, before its timeline */
  bool meets_for_norm;  /* several workers took their norms before they met over them */
  int workers;          /* most that computed side by side */
  double *scratch;
  size_t scratch_count;
  /* the run under way */
  const plan_program *program;
  double pass_s; /* all ops of a microbatch, both ways */
  exec_series owns; /* of one worker: steps, without what others had of the machine */
};

/* Sorts the values; their lower quartile: what lies above the middle is often the doing of others who use the machine.
 */
double exec_measure_typical(double *values, size_t count);
dp_status exec_measure_reserve(exec_measure *measure, size_t count, dp_error *error); /* of scratch, at least 256 */
dp_status exec_measure_keep_op(exec_measure *measure, const exec_measure_sample *sample, bool busy, dp_error *error);
dp_status exec_measure_keep_loss(exec_measure *measure, double bytes, double seconds, dp_error *error);
void exec_measure_begin_run(exec_measure *measure, const plan_program *program);
/* The norm of a lone worker's gradients, by itself. */
dp_status exec_measure_keep_norm(exec_measure *measure, const graph *graph, double seconds, dp_error *error);
/* A step in which ops were not timed. own_s: without what others had of the machine, where that is known. */
dp_status exec_measure_keep_step(exec_measure *measure, const plan_timeline *timeline, double wall_s, double own_s,
                                 dp_error *error);
dp_status exec_measure_keep_optimizer(exec_measure *measure, const plan_timeline *timeline, const graph *graph,
                                      dp_error *error);
dp_status exec_measure_end_run(exec_measure *measure, const graph *graph, dp_error *error);

#endif
