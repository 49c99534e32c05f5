/* The keys of every input file, from the rows that read them, as Markdown: doc/formats.md is what `diffpipe formats` prints,
 * and a test holds them together. Each appends to `out`. */
#ifndef DP_PLAN_DESCRIBE_H
#define DP_PLAN_DESCRIBE_H

#include "base/str.h"

void plan_scenario_describe(dp_str *out);     /* [model] [task] [cluster] [plan] [search] */
void plan_cluster_describe(dp_str *out);      /* the top of a cluster file, [[node]], [[fabric]] */
void plan_cluster_rows_describe(dp_str *out); /* [[node.pcie]], [[node.device]], [[node.nvlink]], [[node.nic]] */
void plan_catalogue_describe(dp_str *out);    /* [[device]], [[link]] */

#endif
