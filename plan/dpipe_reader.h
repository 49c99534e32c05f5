/* Tables of a file that is not ours: rows say which keys are looked at, the others are noted. Internal to plan/. */
#ifndef DP_PLAN_DPIPE_READER_H
#define DP_PLAN_DPIPE_READER_H

#include "base/schema.h"
#include "plan/dpipe.h"

typedef struct plan_dpipe_section {
  const char *name;   /* "config", "model", ...: in errors */
  const char *prefix; /* of unused keys: "", "model." */
  const dp_field *fields;
  size_t field_count;
  const char *const *others; /* keys of diffusion-pipe that nothing here needs; NULL-terminated */
} plan_dpipe_section;

/* dp_schema_read of the rows' keys; the others go to config->unused, each name once. */
dp_status plan_dpipe_read_section(plan_dpipe *config, const plan_dpipe_section *section, const dp_node *table,
                                  void *target, dp_error *error);

#endif
