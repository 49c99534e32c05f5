/* diffpipe calibrate --from a folder of records, of any program that used CUDA: the links of a profile. */
#ifndef DP_CLI_CALIBRATE_RECORDS_H
#define DP_CLI_CALIBRATE_RECORDS_H

#include "plan/scenario.h"
#include "profiler/links.h"

typedef struct cli_records_found {
  prof_links links;
  char device[80]; /* as the driver calls it */
  int devices;     /* that worked */
  size_t processes;
  uint64_t lost;      /* records that are missing */
  int64_t peak_bytes; /* of the allocations of a device that were recorded; 0: none were */
} cli_records_found;

/* What the folder's records tell goes into `profile`, which is new, or has other links and work. Its device is the first
 * of the scenario's, which must be whole GPUs as the recorded one, and says what classes their links are of.
 * DP_BAD_INPUT: it is not, or the records tell nothing. */
dp_status cli_calibrate_records(const plan_scenario *scenario, const char *folder, plan_profile *profile,
                                cli_records_found *found, dp_error *error);
void cli_records_found_free(cli_records_found *found); /* safe on a zeroed one */

/* To stdout. path: of the profile, as it was written; scenario: what it was made for. */
dp_status cli_calibrate_tell_records(const cli_records_found *found, const plan_profile *profile, const char *path,
                                     const char *scenario, bool json, dp_error *error);

#endif
