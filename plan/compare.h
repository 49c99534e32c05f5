/* Two timelines of one program side by side, predicted and measured: where they differ, and why the step does.
 *
 * What is laid side by side is counted and measured the same way on both sides: instructions by kind, workers, chunks,
 * units. Why: the timelines are taken apart into lengths and delays (plan/replay.h) and the difference of the steps is
 * shared out among them, so that the effects of all causes add up to it exactly. Waiting is no cause: a worker waits
 * for what is one. A cause that makes up for another has an effect of the other sign.
 *
 * Differences are measured minus predicted, in seconds: positive is slower than predicted. The error of a prediction is
 * predicted / measured - 1, as in doc/accuracy.md.
 */
#ifndef DP_PLAN_COMPARE_H
#define DP_PLAN_COMPARE_H

#include "plan/samples.h"
#include "plan/timeline.h"
#include "plan/unit_times.h"

/* Durations of some instructions. */
typedef struct plan_spread {
  uint32_t count; /* of one step */
  double total_s; /* of one step (of several, their mean) */
  double median_s, mean_s, p95_s;
} plan_spread;

typedef struct plan_compared {
  plan_spread predicted, measured;
  double effect_s; /* what the difference of these lengths adds to the step */
} plan_compared;

/* A unit of one microbatch. 0 where it was not timed. */
typedef struct plan_compared_unit {
  double predicted_s[2], measured_s[2]; /* forward, backward */
  double effect_s[2];                   /* its part of its chunk's effect */
} plan_compared_unit;

typedef enum plan_cause_kind {
  PLAN_CAUSE_COMPUTE,          /* instructions of one opcode on one worker take longer */
  PLAN_CAUSE_TRANSFER,         /* transfers of one lane: from one worker to another, activations or gradients */
  PLAN_CAUSE_COLLECTIVE,       /* all-reduces of one group of workers */
  PLAN_CAUSE_COMPUTE_DELAY,    /* a worker starts to compute later than it could */
  PLAN_CAUSE_TRANSFER_DELAY,   /* a lane's transfers start later than both ends were ready */
  PLAN_CAUSE_COLLECTIVE_DELAY, /* a group's all-reduces start later than its members were ready */
  PLAN_CAUSE_AFTER,            /* the step goes on after the last instruction */
  PLAN_CAUSE_KIND_COUNT
} plan_cause_kind;
extern const char *const plan_cause_names[]; /* "compute", "transfer", ..., NULL */

typedef struct plan_cause {
  plan_cause_kind kind;
  int opcode;                     /* of compute; PLAN_SEND for transfers, PLAN_ALL_REDUCE */
  int worker, peer;               /* transfers: from, to; collectives: the first member; else peer is -1; -1: none */
  bool backward;                  /* transfers: of gradients */
  uint32_t count;                 /* instructions (of a pair or group, events) of a step */
  double predicted_s, measured_s; /* mean length, or mean delay, of one */
  double effect_s;                /* what it adds to the step; all causes together: the difference of the steps */
  uint32_t worst;                 /* the instruction that adds most to |effect_s| */
  double worst_effect_s;
  double worst_predicted_s, worst_measured_s; /* its length, or its delay */
} plan_cause;

typedef struct plan_comparison {
  dp_arena arena;
  const plan_program *program; /* of the measured timeline */
  plan_metrics predicted, measured;
  double difference_s; /* of the steps */
  plan_compared kinds[PLAN_OPCODE_COUNT];
  plan_compared *workers;    /* [worker] what its compute lane runs; the effect with its delays */
  plan_compared *chunks[2];  /* [chunk] forward, backward (all parts of one microbatch count as one), all copies */
  size_t unit_count;         /* 0: no unit was timed */
  plan_compared_unit *units; /* [unit_count] */
  plan_cause *causes;        /* by size of the effect, largest first; none without any difference */
  int cause_count;
} plan_comparison;

/* Borrowed for the call, but for the program. */
typedef struct plan_comparison_input {
  const plan_timeline *predicted, *measured;
  const plan_timeline_samples *samples; /* of the measured program: spreads are of all its steps; NULL: of
                                         * `measured` alone */
  const plan_unit_times *predicted_units, *measured_units; /* both or none, of as many units */
} plan_comparison_input;

/* DP_BAD_INPUT: the timelines are of different programs. */
dp_status plan_compare(const plan_comparison_input *input, plan_comparison *comparison, dp_error *error);
void plan_comparison_free(plan_comparison *comparison);

/* predicted / measured - 1; 0 where nothing was measured. */
double plan_error_of(double predicted, double measured);

#endif
