/* The tables of a run: built once, printed for the terminal and the page alike. */
#ifndef DP_REPORTS_TABLES_H
#define DP_REPORTS_TABLES_H

#include "reports/report.h"
#include "reports/table.h"

enum {
  REPORT_TABLE_RUN,
  REPORT_TABLE_RESULT,
  REPORT_TABLE_BOUNDS,
  REPORT_TABLE_TRAFFIC,
  REPORT_TABLE_TIME,
  REPORT_TABLE_MEMORY,
  REPORT_TABLE_COUNT
};

typedef struct report_tables {
  report_table tables[REPORT_TABLE_COUNT];
} report_tables;

dp_status report_tables_build(const report_run *run, report_tables *tables, dp_error *error);
void report_tables_free(report_tables *tables);

/* "1f1b, 4 stages, 8 workers" */
void report_layout(const plan_plan *plan, dp_str *out);

/* One line each: what the model, the cluster, the plan and the batch are. */
void report_describe_model(const report_run *run, dp_str *out);
void report_describe_cluster(const report_run *run, dp_str *out);
void report_describe_plan(const report_run *run, dp_str *out);
void report_describe_batch(const report_run *run, dp_str *out);

/* What a timeline is of: "step", or "batch" when sampling. */
const char *report_period(const report_run *run);

/* The name of a worker's device, "" when there is none. */
const char *report_device_name(const report_run *run, int worker);

/* What the layout has above its live peak: holes between buffers. */
int64_t report_memory_gap(const plan_worker_memory *memory);

#endif
