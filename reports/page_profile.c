/* Where the last steps of a run went, as `diffpipe run --profile-steps` recorded them: profile.json. */
#include <stdio.h>

#include "base/schema.h"
#include "reports/page.h"

enum { MAX_STAGES = 16, MAX_UNITS = 20 }; /* rows; all stages are in profile.txt, all units in profile.json */

/* As profile.json calls them. */
static const char *const parts[] = {"compute", "gaps", "host", "launch", "transfer", "peer", "end"};
enum { PART_COUNT = sizeof parts / sizeof parts[0] };

static void seconds(report_table *table, double s) {
  char text[32];
  report_table_cell(table, "%s", dp_format_seconds(s, text));
}

static void share(report_table *table, double part, double whole) {
  report_table_cell(table, "%.1f %%", whole > 0 ? 100 * part / whole : 0);
}

static void write(report_page *page, report_table *table) {
  if (table->failed) page->failed = true;
  if (report_table_rows(table) > 0) report_write_table(page->writer, table);
  report_table_free(table);
}

static void heads(report_table *table, const char *title, const char *const *names) {
  report_table_title(table, "%s", title);
  for (int i = 0; names[i]; i++) report_table_column(table, names[i], i == 0 ? REPORT_LEFT : REPORT_RIGHT);
}

static void stages(report_page *page, const dp_node *list) {
  static const char *const names[] = {"stage", "compute", "gaps",    "host",   "launch", "transfer",
                                      "peer",  "end",     "exposed", "hidden", NULL};
  report_table table = {.title = NULL};
  heads(&table, "Time of the workers by stage", names);
  report_table_note(
      &table, "%s",
      "gaps: within an instruction; host: it had not issued the next one; transfer, peer: waits for a message that is "
      "under way, that has not begun; exposed, hidden: communication beside no compute, beside compute");
  for (size_t i = 0; list && i < list->count && i < MAX_STAGES; i++) {
    const dp_node *row = list->items[i], *spent = dp_node_get(row, "parts");
    report_table_row(&table, false);
    report_table_cell(&table, "%lld", (long long)report_node_integer(row, "rank"));
    for (int p = 0; p < PART_COUNT; p++) {
      char key[32];
      (void)snprintf(key, sizeof key, "%s_s", parts[p]);
      share(&table, report_node_real(spent, key), report_node_real(row, "worker_s"));
    }
    seconds(&table, report_node_real(row, "exposed_comm_s"));
    seconds(&table, report_node_real(row, "hidden_comm_s"));
  }
  write(page, &table);
}

static void spread(report_table *table, const dp_node *row) {
  report_table_cell(table, "%lld", (long long)report_node_integer(row, "count"));
  seconds(table, report_node_real(row, "sum_s"));
  seconds(table, report_node_real(row, "p50_s"));
  seconds(table, report_node_real(row, "p95_s"));
  seconds(table, report_node_real(row, "max_s"));
}

static void classes(report_page *page, const dp_node *list) {
  static const char *const names[] = {"class", "count", "sum", "p50", "p95", "max", "share", NULL};
  report_table table = {.title = NULL};
  heads(&table, "Kernels and copies by class", names);
  for (size_t i = 0; list && i < list->count; i++) {
    const dp_node *row = list->items[i];
    const char *name = report_node_text(row, "class");
    if (report_node_integer(row, "count") == 0 || !name) continue;
    report_table_row(&table, false);
    report_table_cell(&table, "%s", name);
    spread(&table, row);
    share(&table, report_node_real(row, "share"), 1);
  }
  write(page, &table);
}

static void instructions(report_page *page, const dp_node *list) {
  static const char *const names[] = {"instruction", "stage", "count", "sum", "p50", "p95", "max", "share", NULL};
  report_table table = {.title = NULL};
  heads(&table, "Instructions; shares are of their stage's time", names);
  for (size_t i = 0; list && i < list->count; i++) {
    const dp_node *row = list->items[i];
    const char *name = report_node_text(row, "opcode");
    if (!name) continue;
    report_table_row(&table, false);
    report_table_cell(&table, "%s", name);
    report_table_cell(&table, "%lld", (long long)report_node_integer(row, "rank"));
    spread(&table, row);
    share(&table, report_node_real(row, "share"), 1);
  }
  if (table.failed) page->failed = true;
  if (report_table_rows(&table) > 0) report_write_folded_table(page->writer, "By instruction", &table);
  report_table_free(&table);
}

static void units(report_page *page, const dp_node *list, long long steps) {
  static const char *const names[] = {"unit", "stage", "kernels", "forward", "backward", "share", NULL};
  report_table table = {.title = NULL};
  heads(&table, "Units of the model: time of their kernels and copies a step; shares are of all such time", names);
  for (size_t i = 0; list && steps > 0 && i < list->count && i < MAX_UNITS; i++) {
    const dp_node *row = list->items[i];
    const char *name = report_node_text(row, "name");
    if (!name) continue;
    report_table_row(&table, false);
    report_table_cell(&table, "%s", name);
    report_table_cell(&table, "%lld", (long long)report_node_integer(row, "rank"));
    report_table_cell(&table, "%.0f", (double)report_node_integer(row, "count") / (double)steps);
    seconds(&table, report_node_real(row, "forward_s") / (double)steps);
    seconds(&table, report_node_real(row, "backward_s") / (double)steps);
    share(&table, report_node_real(row, "share"), 1);
  }
  write(page, &table);
}

/* What recording costs, of a run that measured it. */
static void recording(report_page *page, const dp_node *cost) {
  char recorded[32], plain[32];
  const dp_node *run = dp_node_get(cost, "run_overhead");
  if (!run || run->kind == DP_NODE_NULL) return;
  report_write_text(
      page->writer, NULL,
      report_page_text(page,
                       "%lld of %lld steps were recorded, for which the run takes %+.2f %% longer. One that is takes "
                       "%+.2f %% longer (median %s, by %lld) than one that is not (%s, by %lld), and so are the times "
                       "below.",
                       (long long)report_node_integer(cost, "run_steps_recorded"),
                       (long long)report_node_integer(cost, "run_steps"), 100 * report_node_real(cost, "run_overhead"),
                       100 * report_node_real(cost, "step_overhead"),
                       dp_format_seconds(report_node_real(cost, "recorded_step_s"), recorded),
                       (long long)report_node_integer(cost, "recorded_steps"),
                       dp_format_seconds(report_node_real(cost, "plain_step_s"), plain),
                       (long long)report_node_integer(cost, "plain_steps")));
}

void report_page_profile(report_page *page) {
  const dp_node *profile = page->files->profile, *step = dp_node_get(profile, "step");
  char median[32], bubbles[32];
  (void)snprintf(bubbles, sizeof bubbles, "%.1f %%", 100 * report_node_real(profile, "bubble_ratio"));
  report_write_text(page->writer, NULL,
                    report_page_text(page, "%lld steps, %s; the median step took %s, bubbles are %s.",
                                     (long long)report_node_integer(step, "count"),
                                     report_node_true(profile, "recorded")
                                         ? "by the work of the devices"
                                         : "by the marks of the queues alone, which know neither kernels nor the host",
                                     dp_format_seconds(report_node_real(step, "p50_s"), median), bubbles));
  recording(page, dp_node_get(profile, "recording"));
  stages(page, report_node_list(profile, "stages"));
  classes(page, report_node_list(profile, "classes"));
  units(page, report_node_list(profile, "units"), (long long)report_node_integer(step, "count"));
  instructions(page, report_node_list(profile, "instructions"));
}
