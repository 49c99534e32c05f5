/* What would make a job fit, for tune: as text and as JSON. */
#ifndef DP_CLI_REMEDIES_H
#define DP_CLI_REMEDIES_H

#include <jansson.h>

#include "sim/remedy.h"

/* [{what, how, and the keys of a trial}, ...], the smallest change first; NULL: no memory. */
json_t *cli_remedies_json(const sim_remedies *remedies);
void cli_remedies_print(const sim_remedies *remedies);

#endif
