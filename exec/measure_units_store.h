/* What measuring units keeps until a profile is made of it; internal to exec/. */
#ifndef DP_EXEC_MEASURE_UNITS_STORE_H
#define DP_EXEC_MEASURE_UNITS_STORE_H

#include "exec/measure_units.h"

typedef enum exec_units_phase { EXEC_UNITS_ALONE, EXEC_UNITS_HALF, EXEC_UNITS_BUSY } exec_units_phase;

/* A run of a unit, with its marks. */
typedef struct exec_units_sample {
  double seconds, crowd; /* crowd: share of the other workers of the device that computed */
  exec_units_phase phase;
} exec_units_sample;
typedef DP_ARRAY(exec_units_sample) exec_units_samples;

typedef struct exec_units_row {
  char key[17];
  const char *name;
  int64_t sms;
  plan_profile_pass pass;
  exec_units_samples samples[2]; /* [1] of a step's first microbatch, where that overwrites gradients */
} exec_units_row_data;

typedef struct exec_units_optimizer {
  int64_t sms;
  double parameters, seconds, crowd;
  bool all; /* of the workers of the device were to run theirs */
} exec_units_optimizer;

typedef DP_ARRAY(double) exec_units_series;

struct exec_units {
  dp_arena arena;
  DP_ARRAY(exec_units_row_data) rows;
  DP_ARRAY(plan_profile_part) parts; /* their times and bytes are summed up over `programs` of them */
  DP_ARRAY(int) programs;
  DP_ARRAY(exec_units_optimizer) optimizers;
  double mark_s;      /* the least of all programs */
  const char *device; /* in the arena; NULL: none yet */
  /* the program under way */
  size_t part;
  exec_units_series gaps, rests, issues, marks, begins, runtimes;
};

/* The row of a unit, made where there is none. */
dp_status exec_units_row(exec_units *units, const char *key, const char *name, int64_t sms, plan_profile_pass pass,
                         size_t *row, dp_error *error);
dp_status exec_units_keep(exec_units *units, size_t row, bool first, const exec_units_sample *sample, dp_error *error);
/* A program begins, on parts of so many multiprocessors; and ends. */
dp_status exec_units_part(exec_units *units, int64_t sms, int sharers, dp_error *error);
dp_status exec_units_end_run(exec_units *units, dp_error *error);

/* Between none, half and all of the others computing. */
double exec_units_between(double alone_s, double half_s, double busy_s, double crowd);
/* The middle of what the samples say of each; false: there are none. Every fifth is kept aside. mark_s: of a mark, in
 * each sample. `scratch` has room for all. */
bool exec_units_solve(const exec_units_samples *samples, double mark_s, double *scratch, double *alone_s,
                      double *half_s, double *busy_s);

#endif
