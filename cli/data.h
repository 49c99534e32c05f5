/* diffpipe data: what its commands share. */
#ifndef DP_CLI_DATA_H
#define DP_CLI_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/progress.h"
#include "base/status.h"
#include "cli/options.h"
#include "exec/objective.h"

/* The one size that --height and --width give, or those of a list, "64x64,48x80", height first; arena-owned. Slots: of
 * the three options. DP_BAD_INPUT for both, for one without the other, and for sizes beyond [least, most]; *count 0:
 * none is given. `multiple`: of which they must be. */
typedef struct cli_data_size_options {
  const char *command; /* "data shapes" */
  const char *list;    /* name of the list's option: "sizes" */
  int height_slot, width_slot, list_slot;
  int64_t least, most, multiple;
} cli_data_size_options;
dp_status cli_data_sizes(const cli_data_size_options *how, const cli_values *values, dp_arena *arena,
                         int64_t (**sizes)[2], size_t *count, dp_error *error);

/* What the model of a scenario wants of a data set. */
typedef struct cli_data_model {
  const char *class_name; /* arena-owned */
  exec_objective_sizes sizes;
  int64_t (*buckets)[2]; /* of [data], else the model's own size; arena-owned */
  size_t bucket_count;
  int64_t global_batch;
  uint64_t seed;
  bool shuffle, trust_cache;
} cli_data_model;
dp_status cli_data_model_read(const char *path, dp_arena *arena, cli_data_model *model, dp_error *error);

#endif
