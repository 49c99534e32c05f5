/* Reads the folder of a run back: metrics.json, setup.json and, where there are such, tune.json, comparison.json and,
 * of a measured run, log.jsonl and profile.json.
 *
 * What comes out is a report_run again, so that the page and the terminal print the same tables, but without what the
 * tables do not read: no instructions, no timeline, no ops, no links; of the graph and the cluster only what they are
 * called, how many there are and what they cost. Strings belong to the documents.
 */
#ifndef DP_REPORTS_READ_H
#define DP_REPORTS_READ_H

#include "base/node.h"
#include "reports/log.h"
#include "reports/report.h"

typedef struct report_files {
  report_run run;
  const dp_node *chunks, *transfers, *links; /* of setup.json, checked to be lists */
  const dp_node *tune;                       /* root of tune.json; NULL: the folder has none */
  const dp_node *comparison;                 /* root of comparison.json; the same */
  const dp_node *profile;                    /* root of profile.json, of a measured run; the same */
  /* what run points into */
  dp_document metrics_document, setup_document, tune_document, comparison_document, profile_document;
  report_log log;
  report_run predicted; /* of the comparison: throughput and step alone */
  plan_metrics predicted_metrics;
  dp_arena arena;
  graph graph;
  plan_cluster cluster;
  plan_plan plan;
  plan_program program;
  plan_timeline timeline;
  plan_metrics metrics;
  plan_memory memory;
} report_files;

/* DP_BAD_INPUT names file and line. */
dp_status report_files_read(const char *folder, report_files *files, dp_error *error);
/* The same from memory, without a log; `tune` and `comparison` may be NULL. */
dp_status report_files_parse(const char *metrics, const char *setup, const char *tune, const char *comparison,
                             report_files *files, dp_error *error);
void report_files_free(report_files *files);

/* NULL: the folder has none. */
const report_log *report_files_log(const report_files *files);
const report_run *report_files_predicted(const report_files *files);

/* What reads a file of a folder by itself needs: whether it is there, and whether its root is of a format. */
bool report_there_is(const char *folder, const char *name);
dp_status report_root_check(const dp_node *root, const char *format, dp_error *error);

/* Getters that a page needs on tune.json: 0, NULL or false where the key is missing, null or of another kind. */
double report_node_real(const dp_node *table, const char *key);
int64_t report_node_integer(const dp_node *table, const char *key);
const char *report_node_text(const dp_node *table, const char *key);
bool report_node_true(const dp_node *table, const char *key);
const dp_node *report_node_list(const dp_node *table, const char *key); /* NULL unless it is a list with items */

#endif
