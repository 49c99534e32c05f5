/* diffpipe whatif --from: a recorded run on other clusters. */
#ifndef DP_CLI_WHATIF_FROM_H
#define DP_CLI_WHATIF_FROM_H

#include "cli/profile_report.h"
#include "profiler/retime.h"
#include "profiler/scale.h"

typedef struct cli_from_question {
  const char *folder;
  const char *const *clusters; /* files */
  int cluster_count;
  const char *precision, *device_was, *cluster_was, *host_factor, *steps_from; /* as given; NULL: not */
  bool json, csv;
} cli_from_question;

/* What a step's time is made of. */
typedef enum cli_from_part {
  FROM_MATRIX, /* kernels bound by the matrix rate */
  FROM_MEMORY, /* kernels bound by memory */
  FROM_NCCL,
  FROM_COPIES,
  FROM_HOST,
  FROM_DATA,
  FROM_OTHER,
  FROM_PART_COUNT
} cli_from_part;
extern const char *const cli_from_part_names[FROM_PART_COUNT]; /* "matrix", ... */

/* A cluster, or the run as it was recorded. */
typedef struct cli_from_row {
  const char *name, *model;
  const char *why;                            /* it cannot be; NULL: it can */
  double step_s, low_s, high_s;               /* median, and its band */
  double parts[FROM_PART_COUNT];              /* shares of the devices' time; they sum to 1 */
  double classes_s[PROF_CLASS_COUNT];         /* of a step, mean: durations of all devices together */
  int64_t memory_bytes;                       /* of a device */
  double usd_per_1000_steps, joules_per_step; /* the used devices' share of the cluster's; 0: unknown */
} cli_from_row;

typedef struct cli_from_answer {
  const char *folder, *device; /* as its driver calls it; "" unknown */
  const cli_from_row *rows;    /* the recorded run first */
  int row_count, devices;
  size_t steps, processes, collectives;
  double spread_low, spread_high;               /* of the steps, p5 and p95 over the median */
  double precision_s[PROF_PRECISION_COUNT + 1]; /* of matrix kernels as their names tell; the last: they do not */
  prof_precision assumed;
  int64_t peak_bytes; /* of the fullest device; 0: not recorded */
} cli_from_answer;

dp_status cli_whatif_from(const cli_from_question *question, dp_error *error);

/* The greatest part. */
cli_from_part cli_from_bound(const cli_from_row *row);
/* Whether what was allocated fits: 1 yes, 0 no, -1 not known. */
int cli_from_fits(const cli_from_answer *answer, const cli_from_row *row);

dp_status cli_from_print(const cli_from_answer *answer, dp_error *error);
void cli_from_csv(const cli_from_answer *answer, FILE *out);
/* Format `diffpipe-whatif-profile`; to stdout. */
dp_status cli_from_print_json(const cli_from_answer *answer, dp_error *error);

#endif
