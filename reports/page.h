/* The page of a run: the answer first, then the plan on the cluster, the timeline, memory, the search, assumptions. */
#ifndef DP_REPORTS_PAGE_H
#define DP_REPORTS_PAGE_H

#include "reports/read.h"
#include "reports/tables.h"
#include "reports/writer.h"

/* Appends it to `out`. Plots are taken from the folder, those that are there. */
dp_status report_page_build(const report_files *files, const char *folder, bool markdown, dp_str *out, dp_error *error);

/* ---- what the sections share ---- */

typedef struct report_page {
  const report_files *files;
  const char *folder;
  report_writer *writer;
  report_tables tables;
  dp_arena arena;
  bool failed; /* the host has no memory */
} report_page;

/* Texts of the page's arena, cleaned; "" and `failed` without memory. */
const char *report_page_text(report_page *page, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Four figures, so that columns align: "9.557", "19.05", "141.9". */
const char *report_page_rate(report_page *page, double rate);

/* Puts in the plot of that index where the folder has it; false where not. */
bool report_page_plot(report_page *page, int plot);

void report_page_answer(report_page *page);
void report_page_compared(report_page *page);
void report_page_training(report_page *page);
void report_page_profile(report_page *page);
void report_page_plan(report_page *page);
void report_page_remedies(report_page *page);
void report_page_front(report_page *page);
void report_page_scaling(report_page *page);
void report_page_k(report_page *page);
void report_page_lost(report_page *page);
void report_page_baselines(report_page *page);
void report_page_assumptions(report_page *page);

#endif
