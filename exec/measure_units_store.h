/* What measuring units keeps until a profile is made of it; internal to exec/. */
#ifndef DP_EXEC_MEASURE_UNITS_STORE_H
#define DP_EXEC_MEASURE_UNITS_STORE_H

#include "exec/measure_units.h"

/* A run of a unit. */
typedef struct exec_units_sample {
  double seconds, beside[2]; /* share of the other workers of the device that ran forwards meanwhile, and anything else */
  uint32_t group;            /* the same unit of the same instruction in the same kind of step */
  bool alone;                /* in steps of one worker of the device */
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

/* Messages of one size, one at a time. */
typedef struct exec_units_copy {
  double bytes, alone_s, busy_s;
  bool aside; /* not for the profile, but to see what that says of it */
} exec_units_copy;
enum { EXEC_UNITS_LOCAL, EXEC_UNITS_HOST, EXEC_UNITS_WAYS };

/* How workers of one device exchange data. */
typedef struct exec_units_links {
  bool measured;
  DP_ARRAY(exec_units_copy) copies[EXEC_UNITS_WAYS]; /* ascending */
  double together_bytes_per_s[EXEC_UNITS_WAYS];      /* of messages between all neighbours at once, beside compute */
  double slowdown, handover_s;
} exec_units_links;

struct exec_units {
  dp_arena arena;
  DP_ARRAY(exec_units_row_data) rows;
  DP_ARRAY(plan_profile_part) parts; /* their times and bytes are summed up over `programs` of them */
  DP_ARRAY(int) programs;
  DP_ARRAY(exec_units_optimizer) optimizers;
  double clock_hz;    /* while all computed; 0: not known */
  const char *device; /* in the arena; NULL: none yet */
  exec_units_links links;
  /* the program under way */
  size_t part;
  uint32_t groups; /* before it */
  exec_units_series gaps, rests, issues, begins, runtimes;
};

/* The row of a unit, made where there is none. */
dp_status exec_units_row(exec_units *units, const char *key, const char *name, int64_t sms, plan_profile_pass pass,
                         size_t *row, dp_error *error);
dp_status exec_units_keep(exec_units *units, size_t row, bool first, const exec_units_sample *sample, dp_error *error);
/* A program begins, on parts of so many multiprocessors; and ends. */
dp_status exec_units_part(exec_units *units, int64_t sms, int sharers, dp_error *error);
dp_status exec_units_end_run(exec_units *units, dp_error *error);

/* exec/measure_links.c: of a pipeline whose workers share a device. `compute` has all of them compute for a while, and
 * says how long they did, all together. */
typedef dp_status (*exec_units_compute)(void *data, double *seconds, dp_error *error);
dp_status exec_units_measure_links(exec_units *units, struct exec_pipeline *pipeline, exec_units_compute compute,
                                   void *data, dp_error *error);
dp_status exec_units_add_links(const exec_units *units, plan_profile *profile, dp_error *error);

/* What a unit takes alone, and beside forwards, and else something, of all others of its device. */
typedef struct exec_units_times {
  double alone_s, beside_s[2];
} exec_units_times;
double exec_units_between(const exec_units_times *times, const double beside[2]);
/* By least squares over the groups' middles; false: none is alone. Samples are put in the order of their groups; every
 * fifth then is kept aside. `scratch` has room for three of each. */
bool exec_units_solve(exec_units_samples *samples, double *scratch, exec_units_times *times);

#endif
