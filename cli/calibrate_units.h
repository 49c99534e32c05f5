/* diffpipe calibrate --backend cuda: what whole units take on a GPU or on parts of one. */
#ifndef DP_CLI_CALIBRATE_UNITS_H
#define DP_CLI_CALIBRATE_UNITS_H

#include "exec/measure_units.h"
#include "plan/scenario.h"
#include "sim/cost.h"

typedef struct cli_calibrate_units_how {
  const plan_scenario *scenario; /* of devices of one model, that implementation "cuda" runs on */
  const sim_efficiency *efficiency;
  const int64_t *sizes; /* of microbatches */
  int size_count;
  double seconds;         /* to measure for, beside making what is measured */
  bool nccl;              /* also NCCL between whole GPUs */
  const char *algorithms; /* file that is asked, and added to; NULL: none */
} cli_calibrate_units_how;

/* Adds to the profile what is measured, in the place of what it has of the same; and says which device this is. */
dp_status cli_calibrate_units(const cli_calibrate_units_how *how, plan_profile *profile, exec_units_took *took,
                              dp_error *error);

#endif
