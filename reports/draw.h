/* The plan drawn on the cluster, as SVG for the page: hosts as boxes, devices in them, what each holds, and between
 * them what travels in a step.
 *
 * Colours and fonts come from the page's style sheet. Replicas are alike but for their devices, so where all of them
 * have no room the first stands for them and the others are named in a line. Up to REPORT_DRAWN_WORKERS of a replica
 * are drawn.
 */
#ifndef DP_REPORTS_DRAW_H
#define DP_REPORTS_DRAW_H

#include "reports/read.h"

enum { REPORT_DRAWN_WORKERS = 64 };

/* Appends the picture; `note` gets what it leaves out, or nothing. */
void report_draw_plan(const report_files *files, dp_str *svg, dp_str *note);

/* A transfer of setup.json: false where it names no worker of the run. */
bool report_transfer_read(const report_files *files, const dp_node *row, int *from, int *to,
                          int64_t kind_bytes[PLAN_TRAFFIC_COUNT]);

#endif
