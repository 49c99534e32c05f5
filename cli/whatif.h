/* What the parts of `diffpipe whatif` share. */
#ifndef DP_CLI_WHATIF_H
#define DP_CLI_WHATIF_H

#include <jansson.h>
#include <stdio.h>

#include "sim/whatif.h"

typedef struct cli_whatif_answer {
  const sim_whatif_result *result;
  const char *scenario; /* its name */
  int64_t global_batch;
  const sim_hardware *reference; /* one of the rows; NULL: the user stopped before it was searched */
  sim_terms terms;
} cli_whatif_answer;

/* What buying a row's cluster is like against renting, and (another cluster than the reference) buying the reference. */
sim_break_even cli_whatif_rent(const cli_whatif_answer *answer, const sim_hardware *row);
sim_break_even cli_whatif_purchase(const cli_whatif_answer *answer, const sim_hardware *row);
/* The resource that helps most if it grows; of a row that is measured. */
sim_resource cli_whatif_most_helpful(const sim_hardware *row);

void cli_whatif_print_tables(const cli_whatif_answer *answer);
/* One table: a row a cluster, then a row a point of each sweep. */
void cli_whatif_csv(const cli_whatif_answer *answer, FILE *out);
dp_status cli_whatif_json(const cli_whatif_answer *answer, json_t **json, dp_error *error);
/* whatif.json, whatif.csv and the plots; says so on stderr. */
dp_status cli_whatif_folder(const cli_whatif_answer *answer, const json_t *json, const char *folder, bool plots,
                            dp_error *error);

#endif
