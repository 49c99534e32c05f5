/* The plan on the cluster: a picture, who holds what, what travels between workers and over links. */
#include <stdlib.h>
#include <string.h>

#include "reports/draw.h"
#include "reports/flows.h"
#include "reports/page.h"

enum { MAX_RANK_ROWS = 64, MAX_TRANSFER_ROWS = 16, MAX_LINK_ROWS = 12, NAMED_DEVICES = 2 };

static void add_units(const plan_plan *plan, int rank, dp_str *text) {
  int told = 0;
  for (int c = 0; c < plan->chunk_count; c++) {
    if (plan->chunks[c].rank != rank) continue;
    const int first = plan->chunks[c].first_unit, last = first + plan->chunks[c].unit_count - 1;
    if (told == 4) {
      dp_str_add(text, ", …");
      return;
    }
    dp_str_addf(text, first == last ? "%s%d" : "%s%d–%d", told++ ? ", " : "", first, last);
  }
}

/* The devices that hold a rank, one for each copy of the pipeline. */
static void add_devices(const report_run *run, int rank, dp_str *text) {
  const plan_plan *plan = run->program->plan;
  const int copies = plan_copy_count(plan);
  for (int r = 0; r < copies; r++) {
    if (r == NAMED_DEVICES && copies > NAMED_DEVICES + 1) {
      dp_str_addf(text, " and %d more", copies - r);
      return;
    }
    dp_str_addf(text, "%s%.40s", r ? ", " : "", report_device_name(run, r * plan->ranks + rank));
  }
}

static void holders(report_page *page) {
  const report_files *files = page->files;
  const report_run *run = &files->run;
  const plan_plan *plan = run->program->plan;
  report_table table = {0};
  report_table_title(&table, plan_tensor(plan) > 1 ? "What each stage holds, a tensor member's share"
                             : plan->ranks == 1    ? "What each device holds"
                                                   : "What each stage holds");
  report_table_column(&table, "stage", REPORT_RIGHT);
  report_table_column(&table, "parameters", REPORT_RIGHT);
  report_table_column(&table, "peak, GB", REPORT_RIGHT);
  report_table_column(&table, "limit, GB", REPORT_RIGHT);
  report_table_column(&table, "units", REPORT_LEFT);
  report_table_column(&table, "devices", REPORT_TEXT);
  for (int rank = 0; rank < plan->ranks && rank < MAX_RANK_ROWS; rank++) {
    int fullest = rank;
    int64_t parameters = 0;
    char count[32];
    dp_str units = {0}, devices = {0};
    for (int r = 1; r < plan_copy_count(plan); r++)
      if (files->memory.workers[r * plan->ranks + rank].peak_bytes > files->memory.workers[fullest].peak_bytes)
        fullest = r * plan->ranks + rank;
    for (size_t c = 0; c < files->chunks->count; c++)
      if (plan->chunks[c].rank == rank) parameters += report_node_integer(files->chunks->items[c], "parameters");
    add_units(plan, rank, &units);
    add_devices(run, rank, &devices);
    report_table_row(&table, files->memory.workers[fullest].peak_bytes > run->memory_limit_bytes[fullest]);
    report_table_cell(&table, "%d", rank);
    report_table_cell(&table, "%s", dp_format_count((double)parameters, count));
    report_table_cell(&table, "%.2f", (double)files->memory.workers[fullest].peak_bytes / 1e9);
    report_table_cell(&table, "%.2f", (double)run->memory_limit_bytes[fullest] / 1e9);
    report_table_cell(&table, "%s", dp_str_text(&units));
    report_table_cell(&table, "%s", dp_str_text(&devices));
    if (units.failed || devices.failed) page->failed = true;
    dp_str_free(&units);
    dp_str_free(&devices);
  }
  if (plan->ranks > MAX_RANK_ROWS) report_table_note(&table, "The first %d of %d stages.", MAX_RANK_ROWS, plan->ranks);
  if (table.failed) page->failed = true;
  report_write_table(page->writer, &table);
  report_table_free(&table);
}

/* ---- what travels ---- */

typedef struct load {
  const char *name, *class; /* of a link, or of workers the transport and the slowest link between them */
  int from, to;             /* workers; -1: a link */
  double bandwidth_bytes_per_s;
  int64_t kind_bytes[PLAN_TRAFFIC_COUNT], bytes;
} load;

static int by_bytes(const void *a, const void *b) {
  const load *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->from != y->from) return x->from - y->from;
  return x->to - y->to;
}

static int by_share(const void *a, const void *b) {
  const load *x = a, *y = b;
  const double p = (double)x->bytes / x->bandwidth_bytes_per_s, q = (double)y->bytes / y->bandwidth_bytes_per_s;
  if (p != q) return p < q ? 1 : -1;
  return x->to - y->to; /* their place in the file */
}

static void add_kind_columns(report_table *table, const bool shown[PLAN_TRAFFIC_COUNT]) {
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++)
    if (shown[k]) report_table_column(table, plan_traffic_names[k], REPORT_RIGHT);
}

static void add_kind_cells(report_table *table, const bool shown[PLAN_TRAFFIC_COUNT], const load *one) {
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++)
    if (shown[k]) report_table_cell(table, one->kind_bytes[k] ? "%.3f" : "–", (double)one->kind_bytes[k] / 1e9);
}

static void note_kinds(const load *loads, size_t count, bool shown[PLAN_TRAFFIC_COUNT]) {
  for (size_t i = 0; i < count; i++)
    for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) shown[k] = shown[k] || loads[i].kind_bytes[k];
}

static void transfers(report_page *page, load *loads) {
  const report_files *files = page->files;
  const dp_node *list = files->transfers;
  const bool many = plan_copy_count(&files->plan) > 1;
  bool shown[PLAN_TRAFFIC_COUNT] = {false};
  size_t count = 0;
  report_table table = {0};
  for (size_t i = 0; i < list->count; i++) {
    load one = {.name = report_node_text(list->items[i], "transport"),
                .class = report_node_text(list->items[i], "class")};
    if (!report_transfer_read(files, list->items[i], &one.from, &one.to, one.kind_bytes)) continue;
    if (one.from >= files->plan.ranks) continue; /* the other copies are alike */
    one.bytes = report_flow_bytes(one.kind_bytes);
    loads[count++] = one;
  }
  if (count == 0) return;
  qsort(loads, count, sizeof *loads, by_bytes);
  note_kinds(loads, count, shown);
  report_table_title(&table,
                     many ? "What the first pipeline's workers send in a %s (GB)" : "What workers send in a %s (GB)",
                     report_period(&files->run));
  report_table_column(&table, "from", REPORT_RIGHT);
  report_table_column(&table, "to", REPORT_RIGHT);
  report_table_column(&table, "by", REPORT_LEFT);
  report_table_column(&table, "class", REPORT_LEFT);
  add_kind_columns(&table, shown);
  for (size_t i = 0; i < count && i < MAX_TRANSFER_ROWS; i++) {
    report_table_row(&table, false);
    report_table_cell(&table, "%d", loads[i].from);
    report_table_cell(&table, "%d", loads[i].to);
    report_table_cell(&table, "%.30s", loads[i].name ? loads[i].name : "–");
    report_table_cell(&table, "%.60s", loads[i].class ? loads[i].class : "–");
    add_kind_cells(&table, shown, &loads[i]);
  }
  if (count > MAX_TRANSFER_ROWS)
    report_table_note(&table, "The %d largest of %zu; all stand in setup.json.", MAX_TRANSFER_ROWS, count);
  if (table.failed) page->failed = true;
  report_write_folded_table(
      page->writer,
      report_page_text(page, "%s: %zu transfer%s", table.title ? table.title : "", count, count == 1 ? "" : "s"),
      &table);
  report_table_free(&table);
}

static void links(report_page *page, load *loads) {
  const dp_node *list = page->files->links;
  bool shown[PLAN_TRAFFIC_COUNT] = {false};
  size_t count = 0;
  report_table table = {0};
  for (size_t i = 0; i < list->count; i++) {
    load one = {.name = report_node_text(list->items[i], "name"),
                .class = report_node_text(list->items[i], "class"),
                .from = -1,
                .to = (int)i,
                .bandwidth_bytes_per_s = report_node_real(list->items[i], "bandwidth_bytes_per_s")};
    for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++)
      one.kind_bytes[k] = report_node_integer(list->items[i], plan_traffic_names[k]);
    one.bytes = report_flow_bytes(one.kind_bytes);
    if (one.bandwidth_bytes_per_s > 0) loads[count++] = one;
  }
  if (count == 0) return;
  qsort(loads, count, sizeof *loads, by_share);
  note_kinds(loads, count, shown);
  report_table_title(&table, "The busiest links, one way (GB a %s; busy: at the link's bandwidth)",
                     report_period(&page->files->run));
  report_table_column(&table, "link", REPORT_LEFT);
  report_table_column(&table, "class", REPORT_LEFT);
  add_kind_columns(&table, shown);
  report_table_column(&table, "GB/s", REPORT_RIGHT);
  report_table_column(&table, "busy", REPORT_RIGHT);
  for (size_t i = 0; i < count && i < MAX_LINK_ROWS; i++) {
    const double step_s = page->files->metrics.step_s;
    report_table_row(&table, false);
    report_table_cell(&table, "%.60s", loads[i].name ? loads[i].name : "");
    report_table_cell(&table, "%.30s", loads[i].class ? loads[i].class : "");
    add_kind_cells(&table, shown, &loads[i]);
    report_table_cell(&table, "%.1f", loads[i].bandwidth_bytes_per_s / 1e9);
    report_table_cell(&table, "%.1f %%",
                      step_s > 0 ? 100 * (double)loads[i].bytes / loads[i].bandwidth_bytes_per_s / step_s : 0);
  }
  if (count > MAX_LINK_ROWS) report_table_note(&table, "%d of the %zu that carry anything.", MAX_LINK_ROWS, count);
  if (table.failed) page->failed = true;
  report_write_folded_table(page->writer, report_page_text(page, "%s", table.title ? table.title : ""), &table);
  report_table_free(&table);
}

void report_page_plan(report_page *page) {
  const report_files *files = page->files;
  const size_t most = files->transfers->count > files->links->count ? files->transfers->count : files->links->count;
  load *loads = calloc(most + 1, sizeof *loads);
  dp_str svg = {0}, caption = {0};
  if (!loads) {
    page->failed = true;
    return;
  }
  if (!page->writer->markdown) {
    report_draw_plan(files, &svg, &caption);
    dp_str_addf(&caption, "Boxes are hosts and their devices; figures on lines are GB a %s.",
                report_period(&files->run));
    report_write_figure(page->writer, "drawing", dp_str_text(&svg), dp_str_text(&caption), true);
  }
  holders(page);
  report_write_table(page->writer, &page->tables.tables[REPORT_TABLE_TRAFFIC]);
  transfers(page, loads);
  links(page, loads);
  if (svg.failed || caption.failed) page->failed = true;
  dp_str_free(&svg);
  dp_str_free(&caption);
  free(loads);
}
