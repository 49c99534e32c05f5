/* diffpipe calibrate: what was measured, for people or as JSON, on stdout. */
#ifndef DP_CLI_CALIBRATE_TELL_H
#define DP_CLI_CALIBRATE_TELL_H

#include "cli/calibrate_run.h"
#include "exec/measure_units.h"
#include "plan/profile.h"

/* path: of the profile, as it was written; scenario: what it was made for. */
dp_status cli_calibrate_tell_ops_json(const plan_profile *profile, const char *path, dp_error *error);
void cli_calibrate_tell_ops(const plan_profile *profile, const char *path, const char *scenario);
dp_status cli_calibrate_tell_units_json(const plan_profile *profile, const exec_units_took *took, const char *path,
                                        dp_error *error);
void cli_calibrate_tell_units(const plan_profile *profile, const exec_units_took *took, const char *path,
                              const char *scenario);
dp_status cli_calibrate_tell_factors(const plan_profile_factors *factors, const char *path, bool json, dp_error *error);
dp_status cli_calibrate_tell_run(const plan_profile *profile, const cli_run_told *told, const char *path, bool json,
                                 dp_error *error);
/* The command that predicts with it, as a shell takes it. */
void cli_calibrate_tell_next(const char *path, const char *scenario);

#endif
