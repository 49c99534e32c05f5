/* The keys of every input file, from the rows that read them: `diffpipe formats` prints them, doc/formats.md is what it
 * prints, and a test holds them together. Each function gives constant tables that are never freed. */
#ifndef DP_PLAN_DESCRIBE_H
#define DP_PLAN_DESCRIBE_H

#include "base/schema.h"

typedef struct plan_key_table {
  const char *title; /* "[model]", "[[node]]", "the top of the file" */
  const dp_field *fields;
  size_t count;
} plan_key_table;

size_t plan_scenario_tables(const plan_key_table **tables); /* the top, [model] [task] [plan] [search] [whatif] [train] [data] [monitor] */
size_t plan_cluster_tables(const plan_key_table **tables);  /* the top of a cluster file, [[node]], [[fabric]] */
size_t plan_cluster_row_tables(
    const plan_key_table **tables);                          /* [[node.pcie]], [[node.device]], [[node.nvlink]], ... */
size_t plan_cluster_change_tables(const plan_key_table **tables); /* [link], [device], [host] */
size_t plan_catalogue_tables(const plan_key_table **tables); /* [[device]], [[link]] */
size_t plan_machine_tables(const plan_key_table **tables);   /* machine.json */
size_t plan_profile_tables(const plan_key_table **tables);   /* profile.json */
/* Of a diffusion-pipe configuration, the keys that `diffpipe advise` looks at; of its dataset file. */
size_t plan_dpipe_tables(const plan_key_table **tables);
size_t plan_dpipe_dataset_tables(const plan_key_table **tables);

#endif
