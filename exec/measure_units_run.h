/* One program while its units are measured (exec/measure_units.h), for the files that do it: measure_units.c makes it,
 * measure_units_steps.c plays some of it and keeps what that took, measure_units_samples.c makes of this what is kept of
 * units. Internal to exec/. */
#ifndef DP_EXEC_MEASURE_UNITS_RUN_H
#define DP_EXEC_MEASURE_UNITS_RUN_H

#include "exec/lanes.h"
#include "exec/measure_units_store.h"

enum { EXEC_UNITS_MOST_ROUNDS = 50 };

/* What of a program is played: see measure_units.h. */
typedef enum exec_units_play {
  EXEC_UNITS_ALONE,
  EXEC_UNITS_FORWARDS,
  EXEC_UNITS_BACKWARDS,
  EXEC_UNITS_EVEN_FORWARD,
  EXEC_UNITS_ODD_FORWARD,
  EXEC_UNITS_MIXED,
  EXEC_UNITS_PLAYS,                        /* those of passes */
  EXEC_UNITS_OPTIMIZERS = EXEC_UNITS_PLAYS /* no passes at all */
} exec_units_play;

/* A unit's run alone, before what its marks take is known. */
typedef struct exec_units_pending {
  size_t row;
  int worker;
  uint32_t instruction;
  double seconds;
} exec_units_pending;

/* What lies between the first and the last mark of an instruction, round by round, and who else computed meanwhile. */
typedef struct exec_units_spans {
  double seconds[EXEC_UNITS_MOST_ROUNDS], beside[2][EXEC_UNITS_MOST_ROUNDS];
  int count;
} exec_units_spans;

typedef struct exec_units_job {
  exec_units *units;
  const exec_units_how *how;
  const plan_program *program;
  exec_pipeline *pipeline;
  exec_step step;
  bool filled;                   /* the device has its inputs */
  bool unrecorded;               /* units are told apart in instructions that are not recorded */
  int making;                    /* of the program, of all */
  bool began;                    /* these can be told apart */
  bool ends_only;                /* only the first mark and the last are there */
  uint8_t *only;                 /* [instruction] */
  uint32_t *marks;               /* [instruction] its worker's first */
  exec_units_spans *fine, *bare; /* [instruction] alone, with all marks; [exec_units_play][instruction] with two */
  DP_ARRAY(exec_units_pending) pendings;
  size_t *row_of; /* [unit * passes + pass] */
  dp_arena arena;
  dp_error *error;
} exec_units_job;

static inline const plan_lane *exec_units_compute_of(const exec_units_job *r, int w) {
  return &r->program->lanes[r->program->worker_lane[w]];
}
static inline bool exec_units_is_pass(const plan_instruction *i) { return i->opcode <= PLAN_BACKWARD_WEIGHT; }
static inline double exec_units_span_s(const exec_units_job *r, uint32_t i) {
  return r->pipeline->end_s[i] - r->pipeline->start_s[i];
}
static inline exec_units_spans *exec_units_bare_of(const exec_units_job *r, exec_units_play of, uint32_t i) {
  return &r->bare[(size_t)of * r->program->instruction_count + i];
}

/* ---- measure_units_steps.c ---- */

/* Of a pass that is the first of its chunk in a step, which overwrites gradients. */
bool exec_units_is_first(const exec_units_job *run, int worker, const plan_instruction *instruction);
/* For a step of some: passes, or optimizers, of the workers first to end - 1. */
void exec_units_choose(exec_units_job *run, exec_units_play of, int first, int end);
/* Units and instructions, for so long; optimizers; whole steps, whose units are not told apart any more. */
dp_status exec_units_take_units(exec_units_job *run, double seconds);
dp_status exec_units_take_optimizers(exec_units_job *run);
dp_status exec_units_take_steps(exec_units_job *run);

/* ---- measure_units_samples.c ---- */

/* The middle of what is not kept aside. */
double exec_units_middle(const exec_units_spans *spans, const double *values);
/* What was taken of units alone, and of instructions beside others, to exec_units.rows. */
dp_status exec_units_keep_samples(exec_units_job *run);

#endif
