/* One run against its prediction, or two folders against each other, for a terminal and as JSON. */
#include <jansson.h>
#include <string.h>

#include "reports/comparison.h"
#include "reports/json.h"
#include "reports/read.h"
#include "reports/tables.h"

/* ---- a run and its prediction ---- */

static dp_status read_comparison(const char *folder, dp_document *document, dp_error *error) {
  if (!report_there_is(folder, "comparison.json") && report_there_is(folder, "metrics.json"))
    return dp_fail(error, DP_BAD_INPUT,
                   "%s: found a folder without comparison.json, of a prediction; allowed: the folder of a run, or two "
                   "folders of any kind",
                   folder);
  dp_str path = {0};
  dp_str_addf(&path, "%s/comparison.json", folder);
  dp_status status = path.failed ? dp_fail_memory(error) : dp_document_read(dp_str_text(&path), document, error);
  dp_str_free(&path);
  if (status != DP_OK) return status;
  status = report_root_check(document->root, "diffpipe-comparison", error);
  if (status != DP_OK) dp_document_free(document);
  return status;
}

dp_status report_compare_json(const char *folder, void **json, dp_error *error) {
  dp_document document;
  dp_str path = {0};
  DP_TRY(read_comparison(folder, &document, error));
  dp_document_free(&document);
  dp_str_addf(&path, "%s/comparison.json", folder);
  json_t *file = path.failed ? NULL : json_load_file(dp_str_text(&path), 0, NULL); /* it was read without a complaint */
  dp_str_free(&path);
  if (!file) return dp_fail_memory(error);
  *json = file;
  return DP_OK;
}

/* A sentence under a dash, broken at spaces before the last column. */
static void add_sentence(const char *text, dp_str *out) {
  report_table table = {0};
  report_table_column(&table, "", REPORT_LEFT);
  report_table_column(&table, "", REPORT_TEXT);
  report_table_row(&table, false);
  report_table_cell(&table, "-");
  report_table_cell(&table, "%s", text);
  report_table_print(&table, REPORT_WIDTH, out);
  if (table.failed) out->failed = true;
  report_table_free(&table);
}

dp_status report_compare_text(const char *folder, int top, dp_str *out, dp_error *error) {
  dp_document document;
  report_table tables[REPORT_COMPARED_COUNT];
  DP_TRY(read_comparison(folder, &document, error));
  const dp_status status = report_compared_tables(document.root, top, true, tables, error);
  if (status == DP_OK) {
    const dp_node *why = report_node_list(document.root, "why");
    const char *name = report_node_text(document.root, "scenario");
    dp_arena arena = {0};
    const char *clean = report_text_clean(&arena, name ? name : "");
    dp_str_addf(out, "%.70s, predicted and measured\n", clean ? clean : "");
    dp_arena_free(&arena);
    report_table_print(&tables[REPORT_COMPARED_RESULT], REPORT_WIDTH, out);
    dp_str_add(out, "\nWhy\n");
    for (size_t i = 0; why && i < why->count; i++)
      if (why->items[i]->kind == DP_NODE_STRING) add_sentence(why->items[i]->string, out);
    for (int t = REPORT_COMPARED_KINDS; t < REPORT_COMPARED_COUNT; t++) {
      if (report_table_rows(&tables[t]) == 0) continue;
      dp_str_add(out, "\n");
      report_table_print(&tables[t], REPORT_WIDTH, out);
    }
    for (int t = 0; t < REPORT_COMPARED_COUNT; t++) report_table_free(&tables[t]);
  }
  dp_document_free(&document);
  return status == DP_OK && out->failed ? dp_fail_memory(error) : status;
}

/* ---- two folders ---- */

typedef struct two_runs {
  report_files files[2];
  const char *folders[2];
} two_runs;

static dp_status read_two(const char *a, const char *b, two_runs *two, dp_error *error) {
  two->folders[0] = a;
  two->folders[1] = b;
  DP_TRY(report_files_read(a, &two->files[0], error));
  const dp_status status = report_files_read(b, &two->files[1], error);
  if (status != DP_OK) report_files_free(&two->files[0]);
  return status;
}

static void free_two(two_runs *two) {
  report_files_free(&two->files[0]);
  report_files_free(&two->files[1]);
}

static double step_s(const report_files *files) { return files->metrics.step_s; }
static double rate(const report_files *files) { return files->metrics.throughput_samples_per_s; }
static double bubble(const report_files *files) { return files->metrics.bubble_ratio; }
static double exposed_s(const report_files *files) { return report_exposed_s(&files->metrics); }
static double comm_bytes(const report_files *files) { return (double)files->metrics.comm_bytes; }
static double fullest_bytes(const report_files *files) { return report_fullest_bytes(&files->memory); }
static double balance(const report_files *files) {
  int worker;
  return report_imbalance(&files->metrics, &worker);
}
static double cost(const report_files *files) { return files->run.usd_per_million_samples; }
static double energy(const report_files *files) { return files->run.joules_per_sample; }

/* What is laid side by side: the key in JSON, the name in the table. */
static const struct {
  const char *key, *name, *unit;
  report_figure_kind kind;
  double (*read)(const report_files *files);
} figures[] = {
    {"step_s", "step", "", REPORT_FIGURE_SECONDS, step_s},
    {"throughput_samples_per_s", "throughput", " samples/s", REPORT_FIGURE_NUMBER, rate},
    {"bubble_ratio", "bubble ratio", "", REPORT_FIGURE_PERCENT, bubble},
    {"exposed_comm_s", "communication not hidden, a worker", "", REPORT_FIGURE_SECONDS, exposed_s},
    {"comm_bytes", "sent in a step", "", REPORT_FIGURE_BYTES, comm_bytes},
    {"imbalance", "busiest worker's compute / mean", "", REPORT_FIGURE_NUMBER, balance},
    {"peak_memory_bytes", "memory of the fullest worker", "", REPORT_FIGURE_BYTES, fullest_bytes},
    {"usd_per_million_samples", "cost of a million samples", " USD", REPORT_FIGURE_NUMBER, cost},
    {"joules_per_sample", "energy of a sample", " J", REPORT_FIGURE_NUMBER, energy},
};
enum { FIGURES = sizeof figures / sizeof figures[0] };

static void text_row(report_table *table, const char *name, const char *a, const char *b) {
  report_table_row(table, false);
  report_table_cell(table, "%s", name);
  report_table_cell(table, "%.26s", a);
  report_table_cell(table, "%.26s", b);
  report_table_cell(table, "%s", strcmp(a, b) == 0 ? "" : "differs");
}

static void make_figures(const two_runs *two, report_table *table) {
  report_table_column(table, "", REPORT_LEFT);
  report_table_column(table, "A", REPORT_RIGHT);
  report_table_column(table, "B", REPORT_RIGHT);
  report_table_column(table, "B against A", REPORT_RIGHT);
  text_row(table, "figures are", two->files[0].run.origin, two->files[1].run.origin);
  for (size_t f = 0; f < FIGURES; f++) {
    const double a = figures[f].read(&two->files[0]), b = figures[f].read(&two->files[1]);
    char text[40];
    if (a == 0 && b == 0) continue; /* unknown */
    report_table_row(table, false);
    report_table_cell(table, "%s", figures[f].name);
    report_table_cell(table, "%s%s", report_figure(figures[f].kind, a, text), figures[f].unit);
    report_table_cell(table, "%s%s", report_figure(figures[f].kind, b, text), figures[f].unit);
    report_table_cell(table, "%s", report_figure_apart(figures[f].kind, b, a, text));
  }
}

/* Workers are laid side by side where there are as many. */
static void make_workers(const two_runs *two, report_table *table) {
  const plan_metrics *a = &two->files[0].metrics, *b = &two->files[1].metrics;
  if (a->worker_count != b->worker_count) return;
  report_table_title(table, "By worker, ms of a step, A → B");
  report_table_column(table, "worker", REPORT_RIGHT);
  report_table_column(table, "forward", REPORT_RIGHT);
  report_table_column(table, "backward", REPORT_RIGHT);
  report_table_column(table, "not hidden", REPORT_RIGHT);
  report_table_column(table, "idle", REPORT_RIGHT);
  report_table_column(table, "peak GB", REPORT_RIGHT);
  for (int w = 0; w < a->worker_count && w < REPORT_MAX_ROWS; w++) {
    const plan_worker_metrics *x = &a->workers[w], *y = &b->workers[w];
    report_table_row(table, false);
    report_table_cell(table, "%d", w);
    report_change_cell(table, x->forward_s * 1e3, y->forward_s * 1e3);
    report_change_cell(table, x->backward_s * 1e3, y->backward_s * 1e3);
    report_change_cell(table, x->exposed_comm_s * 1e3, y->exposed_comm_s * 1e3);
    report_change_cell(table, x->idle_s * 1e3, y->idle_s * 1e3);
    report_change_cell(table, (double)two->files[0].memory.workers[w].peak_bytes / 1e9,
                       (double)two->files[1].memory.workers[w].peak_bytes / 1e9);
  }
  if (a->worker_count > REPORT_MAX_ROWS)
    report_table_note(table, "The first %d of %d workers.", REPORT_MAX_ROWS, a->worker_count);
}

dp_status report_compare_runs_text(const char *a, const char *b, dp_str *out, dp_error *error) {
  static const char letters[] = "AB";
  two_runs two;
  report_table tables[2] = {{.title = NULL}, {.title = NULL}};
  DP_TRY(read_two(a, b, &two, error));
  for (int i = 0; i < 2; i++) {
    dp_arena arena = {0};
    const char *folder = report_text_clean(&arena, two.folders[i]),
               *name = report_text_clean(&arena, two.files[i].run.name);
    if (!folder || !name)
      out->failed = true;
    else
      dp_str_addf(out, "%c: %.60s: %.30s\n   ", letters[i], folder, name);
    report_layout(&two.files[i].plan, out);
    dp_str_addf(out, ", %d microbatches of %d\n", two.files[i].plan.microbatches, two.files[i].plan.microbatch_size);
    dp_arena_free(&arena);
  }
  make_figures(&two, &tables[0]);
  make_workers(&two, &tables[1]);
  for (int t = 0; t < 2; t++) {
    if (tables[t].failed) out->failed = true;
    if (report_table_rows(&tables[t]) == 0) continue;
    dp_str_add(out, "\n");
    report_table_print(&tables[t], REPORT_WIDTH, out);
    report_table_free(&tables[t]);
  }
  free_two(&two);
  return out->failed ? dp_fail_memory(error) : DP_OK;
}

static json_t *one_json(const two_runs *two, int i) {
  const report_files *files = &two->files[i];
  json_t *o = json_object(), *workers = json_array();
  report_json_set(&o, "folder", report_json_text(two->folders[i]));
  report_json_set(&o, "scenario", report_json_text(files->run.name));
  report_json_set(&o, "origin", report_json_text(files->run.origin));
  for (size_t f = 0; f < FIGURES; f++)
    report_json_set(&o, figures[f].key,
                    figures[f].read == cost || figures[f].read == energy ? report_json_known(figures[f].read(files))
                                                                         : report_json_number(figures[f].read(files)));
  for (int w = 0; w < files->metrics.worker_count; w++) {
    const plan_worker_metrics *m = &files->metrics.workers[w];
    json_t *row = json_object();
    report_json_set(&row, "forward_s", report_json_number(m->forward_s));
    report_json_set(&row, "backward_s", report_json_number(m->backward_s));
    report_json_set(&row, "exposed_comm_s", report_json_number(m->exposed_comm_s));
    report_json_set(&row, "idle_s", report_json_number(m->idle_s));
    report_json_set(&row, "peak_memory_bytes", json_integer(files->memory.workers[w].peak_bytes));
    report_json_append(&workers, row);
  }
  report_json_set(&o, "workers", workers);
  return o;
}

dp_status report_compare_runs_json(const char *a, const char *b, void **json, dp_error *error) {
  two_runs two;
  DP_TRY(read_two(a, b, &two, error));
  json_t *o = json_object(), *change = json_object();
  for (size_t f = 0; f < FIGURES; f++) {
    const double x = figures[f].read(&two.files[0]), y = figures[f].read(&two.files[1]);
    report_json_set(&change, figures[f].key, x > 0 ? report_json_number(y / x) : json_null());
  }
  report_json_set(&o, "format", json_string("diffpipe-runs"));
  report_json_set(&o, "version", json_integer(1));
  report_json_set(&o, "a", one_json(&two, 0));
  report_json_set(&o, "b", one_json(&two, 1));
  report_json_set(&o, "b_over_a", change);
  free_two(&two);
  if (!o) return dp_fail_memory(error);
  *json = o;
  return DP_OK;
}
