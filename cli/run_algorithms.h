/* Where a run on CUDA devices keeps which algorithms it found: algorithms.json in its folder, which a resumed run reads
 * again, and a file of the user's for many runs (--algorithms). */
#ifndef DP_CLI_RUN_ALGORITHMS_H
#define DP_CLI_RUN_ALGORITHMS_H

#include "exec/algorithms.h"

/* What the folder has, and then what the file has beyond that. file: NULL: none. */
dp_status cli_run_algorithms_read(const char *folder, const char *file, exec_algorithms **algorithms, dp_error *error);
/* When the session is made: into the folder (NULL: not) and into the file; `notes` gets a line for what could not be
 * used. */
dp_status cli_run_algorithms_write(exec_algorithms *algorithms, const char *folder, const char *file, dp_str *notes,
                                   dp_error *error);

#endif
