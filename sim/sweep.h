/* A sweep: one key of the scenario and the values that it is given in turn.
 *
 *   KEY=FROM:TO:logN   N values from FROM to TO, each the same multiple of the one before
 *   KEY=FROM:TO:linN   N values from FROM to TO, equally far apart
 *   KEY=A,B,C          these
 *
 * The ends are exact, the values between them have six digits; those of an integer key are rounded and doubles left
 * out. Every value is a text that can be given to `--set KEY=`, so that each point of a sweep can be run alone.
 */
#ifndef DP_SIM_SWEEP_H
#define DP_SIM_SWEEP_H

#include <stdbool.h>

#include "base/node.h"

enum { SIM_MAX_SWEEP_VALUES = 256 };

typedef struct sim_sweep_value {
  const char *text;
  double number; /* where the sweep is numeric */
} sim_sweep_value;

typedef struct sim_sweep {
  const char *text; /* as it was given; borrowed */
  const char *key;
  bool numeric;     /* every value is a number, ascending */
  bool logarithmic; /* given as logN */
  sim_sweep_value *values;
  int count;
} sim_sweep;

/* `node`: where it stands in a file; NULL: on the command line. `arena` owns key and values. */
dp_status sim_sweep_parse(const char *text, const dp_node *node, dp_arena *arena, sim_sweep *sweep, dp_error *error);

#endif
