/* What measuring units keeps until a profile is made of it; internal to exec/. */
#ifndef DP_EXEC_MEASURE_UNITS_STORE_H
#define DP_EXEC_MEASURE_UNITS_STORE_H

#include "exec/measure_links.h"
#include "exec/measure_units.h"

/* How much longer something takes, as a share of what it takes alone, beside forwards of all other workers of its
 * device, and beside anything else of all. */
typedef struct exec_units_slowness {
  double by[2];
} exec_units_slowness;
/* How many times as long as alone, while shares of the others run forwards and anything else. */
double exec_units_slowed(const exec_units_slowness *slowness, const double beside[2]);

typedef struct exec_units_point {
  double more, beside[2];
} exec_units_point;
typedef DP_ARRAY(exec_units_point) exec_units_points;
/* By least squares. */
void exec_units_slow(const exec_units_point *points, size_t count, exec_units_slowness *slowness);

/* A run of a unit alone, and how its instruction is slowed. */
typedef struct exec_units_sample {
  double seconds;
  exec_units_slowness slowness;
  int making; /* of the program, of all that were made */
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
  double parameters, seconds;
  bool all;       /* of the workers of the device were to run theirs */
  bool with_norm; /* the gradients' norm before it */
  int round;      /* that they began at once in */
} exec_units_optimizer;

typedef DP_ARRAY(double) exec_units_series;

/* A relative error, and of which making of a program. */
typedef struct exec_units_error {
  double value;
  int making;
} exec_units_error;
typedef DP_ARRAY(exec_units_error) exec_units_errors;

/* What an instruction does beside its units. */
typedef enum exec_units_role {
  EXEC_UNITS_OTHER,
  EXEC_UNITS_FEEDS,    /* takes the model's inputs */
  EXEC_UNITS_HAS_LOSS, /* has the loss and its gradient */
  EXEC_UNITS_ROLES
} exec_units_role;

struct exec_units {
  dp_arena arena;
  DP_ARRAY(exec_units_row_data) rows;
  DP_ARRAY(plan_profile_part) parts; /* their times and bytes are summed up over `programs` of them */
  DP_ARRAY(int) programs;
  DP_ARRAY(exec_units_optimizer) optimizers;
  exec_units_errors errors, repeats; /* of what was kept aside, and of two runs of the same */
  double clock_hz;                   /* while all computed; 0: not known */
  const char *device;                /* in the arena; NULL: none yet */
  exec_units_links links;
  int makings;
  double made_s, measured_s;
  int rounds; /* of optimizers */
  /* the program under way */
  size_t part;
  exec_units_series gaps, rests[EXEC_UNITS_ROLES], issues, begins, runtimes;
};

/* What `count` optimizers take together that begin at once and take seconds[i] each alone, while n of them share what
 * fewer than all can take of a device: n factor / workers times as long, if that is more than 1. Sorts the seconds. */
double exec_units_shared_s(double *seconds, size_t count, double factor, double workers);

/* The row of a unit, made where there is none. */
dp_status exec_units_row(exec_units *units, const char *key, const char *name, int64_t sms, plan_profile_pass pass,
                         size_t *row, dp_error *error);
dp_status exec_units_keep(exec_units *units, size_t row, bool first, const exec_units_sample *sample, dp_error *error);
/* A program begins, on parts of so many multiprocessors; and ends. */
dp_status exec_units_part(exec_units *units, int64_t sms, int sharers, dp_error *error);
dp_status exec_units_end_run(exec_units *units, dp_error *error);
/* Forgets all samples of a making, and its errors. */
void exec_units_drop(exec_units *units, int making);

#endif
