/* A recorded run on other clusters, told as tables, CSV and JSON. */
#include "cli/whatif_from.h"

#include <string.h>

#include "cli/json.h"
#include "cli/text.h"
#include "reports/table.h"

const char *const cli_from_part_names[FROM_PART_COUNT] = {"matrix", "memory", "nccl", "copies",
                                                          "host",   "data",   "other"};

static const char *const bound_texts[FROM_PART_COUNT] = {
    "matrix rate", "memory bandwidth", "communication", "copies", "host", "data", "other waits"};

cli_from_part cli_from_bound(const cli_from_row *row) {
  int most = 0;
  for (int p = 1; p < FROM_PART_COUNT; p++)
    if (row->parts[p] > row->parts[most]) most = p;
  return (cli_from_part)most;
}

int cli_from_fits(const cli_from_answer *answer, const cli_from_row *row) {
  if (row->why || answer->peak_bytes == 0) return -1;
  return answer->peak_bytes <= row->memory_bytes;
}

static double speedup(const cli_from_answer *answer, const cli_from_row *row) {
  return row->step_s > 0 ? answer->rows[0].step_s / row->step_s : 0;
}

/* ---- tables ---- */

static dp_status finish(report_table *table, dp_error *error) {
  dp_str text = {0};
  report_table_print(table, 100, &text);
  const bool failed = table->failed || text.failed;
  if (!failed) printf("%s\n", dp_str_text(&text));
  dp_str_free(&text);
  report_table_free(table);
  return failed ? dp_fail_memory(error) : DP_OK;
}

static void columns(report_table *table, const char *const *heads) {
  for (int i = 0; heads[i]; i++) report_table_column(table, heads[i], i == 0 ? REPORT_LEFT : REPORT_RIGHT);
}

static void cell_s(report_table *table, double s) {
  char text[32];
  report_table_cell(table, "%s", dp_format_seconds(s, text));
}

static void cell_known(report_table *table, double value) {
  if (value > 0)
    report_table_cell(table, "%.4g", value);
  else
    report_table_cell(table, "?");
}

static dp_status print_rows(const cli_from_answer *answer, dp_error *error) {
  static const char *const heads[] = {"cluster",  "GPUs",        "a step",   "from", "to",
                                      "speed-up", "USD/k steps", "J a step", NULL};
  report_table table = {.title = NULL};
  report_table_title(&table, "A step, median");
  columns(&table, heads);
  report_table_column(&table, "memory", REPORT_TEXT);
  for (int i = 0; i < answer->row_count; i++) {
    const cli_from_row *row = &answer->rows[i];
    static const char *const fits[] = {"not known", "too little", "fits"};
    if (row->why) continue;
    report_table_row(&table, cli_from_fits(answer, row) == 0);
    report_table_cell(&table, "%s", row->name);
    report_table_cell(&table, "%d", answer->devices);
    cell_s(&table, row->step_s);
    cell_s(&table, row->low_s);
    cell_s(&table, row->high_s);
    report_table_cell(&table, "%.2f", speedup(answer, row));
    cell_known(&table, row->usd_per_1000_steps);
    cell_known(&table, row->joules_per_step);
    report_table_cell(&table, "%s", fits[cli_from_fits(answer, row) + 1]);
  }
  return finish(&table, error);
}

static dp_status print_parts(const cli_from_answer *answer, dp_error *error) {
  static const char *const heads[] = {"cluster",    "matrix", "memory-bound", "NCCL", "copies",
                                      "host-bound", "data",   "other",        NULL};
  report_table table = {.title = NULL};
  report_table_title(&table, "What the devices' time goes to; of NCCL and copies what nothing hides");
  columns(&table, heads);
  report_table_column(&table, "most by", REPORT_TEXT);
  for (int i = 0; i < answer->row_count; i++) {
    const cli_from_row *row = &answer->rows[i];
    if (row->why) continue;
    report_table_row(&table, false);
    report_table_cell(&table, "%s", row->name);
    for (int p = 0; p < FROM_PART_COUNT; p++) report_table_cell(&table, "%.1f %%", 100 * row->parts[p]);
    report_table_cell(&table, "%s", bound_texts[cli_from_bound(row)]);
  }
  return finish(&table, error);
}

static void add_precisions(const cli_from_answer *answer, dp_str *line) {
  double sum_s = 0;
  for (int p = 0; p <= PROF_PRECISION_COUNT; p++) sum_s += answer->precision_s[p];
  if (sum_s <= 0) return;
  dp_str_addf(line, " Matrix kernels:");
  for (int p = 0; p < PROF_PRECISION_COUNT; p++)
    if (answer->precision_s[p] > 0)
      dp_str_addf(line, " %.0f %% %s,", 100 * answer->precision_s[p] / sum_s, prof_precision_names[p]);
  if (answer->precision_s[PROF_PRECISION_COUNT] > 0)
    dp_str_addf(line, " %.0f %% whose names do not tell, taken as %s,",
                100 * answer->precision_s[PROF_PRECISION_COUNT] / sum_s, prof_precision_names[answer->assumed]);
  dp_str_addf(line, " of their time.");
}

static dp_status print_head(const cli_from_answer *answer, dp_error *error) {
  dp_str line = {0};
  char bytes[32];
  dp_str_addf(&line, "%s: %zu step%s of %zu process%s on %s", answer->folder, answer->steps,
              answer->steps == 1 ? "" : "s", answer->processes, answer->processes == 1 ? "" : "es",
              answer->rows[0].model);
  if (answer->device[0]) dp_str_addf(&line, " (\"%s\")", answer->device);
  dp_str_addf(&line, ".");
  add_precisions(answer, &line);
  if (answer->collectives)
    dp_str_addf(&line, " %zu collectives of all processes: waiting in them is found anew.", answer->collectives);
  if (answer->peak_bytes)
    dp_str_addf(&line, " %s are allocated at most.", dp_format_bytes((double)answer->peak_bytes, bytes));
  if (!line.failed) cli_print_wrapped(0, dp_str_text(&line));
  const bool failed = line.failed;
  dp_str_free(&line);
  printf("\n");
  return failed ? dp_fail_memory(error) : DP_OK;
}

dp_status cli_from_print(const cli_from_answer *answer, dp_error *error) {
  DP_TRY(print_head(answer, error));
  DP_TRY(print_rows(answer, error));
  DP_TRY(print_parts(answer, error));
  for (int i = 0; i < answer->row_count; i++)
    if (answer->rows[i].why) cli_print_wrapped(2, answer->rows[i].why);
  cli_print_wrapped(0,
                    "from, to: of the recorded run the 5th and the 95th of a hundred steps; of others that spread and "
                    "the band of the catalogue's rates (doc/whatif.md). USD and J: the share of these GPUs in the "
                    "cluster\'s price and full power.");
  return DP_OK;
}

/* ---- CSV ---- */

static void csv_text(const char *text, FILE *out) { /* quoted, quotes doubled */
  fputc('"', out);
  for (; *text; text++) {
    if (*text == '"') fputc('"', out);
    fputc(*text, out);
  }
  fputc('"', out);
}

static void csv_known(double value, FILE *out) {
  if (value > 0) fprintf(out, "%.9g", value);
  fputc(',', out);
}

void cli_from_csv(const cli_from_answer *answer, FILE *out) {
  fprintf(out, "cluster,devices,step_s,step_low_s,step_high_s,speedup,bound");
  for (int p = 0; p < FROM_PART_COUNT; p++) fprintf(out, ",%s", cli_from_part_names[p]);
  fprintf(out, ",fits,usd_per_1000_steps,joules_per_step,why\n");
  for (int i = 0; i < answer->row_count; i++) {
    static const char *const fits[] = {"", "false", "true"};
    const cli_from_row *row = &answer->rows[i];
    csv_text(row->name, out);
    fprintf(out, ",%d,", answer->devices);
    if (row->why) {
      for (int c = 0; c < 5 + FROM_PART_COUNT + 3; c++) fputc(',', out);
      csv_text(row->why, out);
      fputc('\n', out);
      continue;
    }
    fprintf(out, "%.9g,%.9g,%.9g,%.6g,%s", row->step_s, row->low_s, row->high_s, speedup(answer, row),
            cli_from_part_names[cli_from_bound(row)]);
    for (int p = 0; p < FROM_PART_COUNT; p++) fprintf(out, ",%.6g", row->parts[p]);
    fprintf(out, ",%s,", fits[cli_from_fits(answer, row) + 1]);
    csv_known(row->usd_per_1000_steps, out);
    csv_known(row->joules_per_step, out);
    fputc('\n', out);
  }
}

/* ---- JSON ---- */

static json_t *known(double value) { return value > 0 ? json_real(value) : json_null(); }

static json_t *named(const double *values, const char *const *names, int count) {
  json_t *object = json_object();
  for (int i = 0; object && i < count; i++)
    if (!cli_json_put(object, names[i], json_real(values[i]))) {
      json_decref(object);
      return NULL;
    }
  return object;
}

static json_t *row_json(const cli_from_answer *answer, const cli_from_row *row) {
  const int fits = cli_from_fits(answer, row);
  json_t *object = json_object();
  bool done = object && cli_json_put(object, "cluster", json_string(row->name)) &&
              cli_json_put(object, "why", row->why ? json_string(row->why) : json_null());
  if (done && !row->why)
    done = cli_json_put(object, "device", json_string(row->model)) &&
           cli_json_put(object, "step_s", json_real(row->step_s)) &&
           cli_json_put(object, "step_low_s", json_real(row->low_s)) &&
           cli_json_put(object, "step_high_s", json_real(row->high_s)) &&
           cli_json_put(object, "speedup", json_real(speedup(answer, row))) &&
           cli_json_put(object, "bound", json_string(cli_from_part_names[cli_from_bound(row)])) &&
           cli_json_put(object, "parts", named(row->parts, cli_from_part_names, FROM_PART_COUNT)) &&
           cli_json_put(object, "classes_s", named(row->classes_s, prof_class_names, PROF_CLASS_COUNT)) &&
           cli_json_put(object, "memory_bytes", json_integer(row->memory_bytes)) &&
           cli_json_put(object, "fits", fits < 0 ? json_null() : json_boolean(fits)) &&
           cli_json_put(object, "usd_per_1000_steps", known(row->usd_per_1000_steps)) &&
           cli_json_put(object, "joules_per_step", known(row->joules_per_step));
  if (done) return object;
  json_decref(object);
  return NULL;
}

dp_status cli_from_print_json(const cli_from_answer *answer, dp_error *error) {
  json_t *root = json_object(), *rows = json_array();
  bool done =
      root && cli_json_put(root, "rows", rows) &&
      cli_json_put(root, "format", json_string("diffpipe-whatif-profile")) &&
      cli_json_put(root, "version", json_integer(1)) && cli_json_put(root, "device", json_string(answer->device)) &&
      cli_json_put(root, "devices", json_integer(answer->devices)) &&
      cli_json_put(root, "steps", json_integer((json_int_t)answer->steps)) &&
      cli_json_put(root, "processes", json_integer((json_int_t)answer->processes)) &&
      cli_json_put(root, "collectives", json_integer((json_int_t)answer->collectives)) &&
      cli_json_put(root, "peak_bytes",
                   answer->peak_bytes ? json_integer((json_int_t)answer->peak_bytes) : json_null()) &&
      cli_json_put(root, "precision_s", named(answer->precision_s, prof_precision_names, PROF_PRECISION_COUNT)) &&
      cli_json_put(root, "precision_untold_s", json_real(answer->precision_s[PROF_PRECISION_COUNT])) &&
      cli_json_put(root, "precision_assumed", json_string(prof_precision_names[answer->assumed]));
  for (int i = 0; done && i < answer->row_count; i++)
    done = json_array_append_new(rows, row_json(answer, &answer->rows[i])) == 0;
  const dp_status status = done ? cli_json_print(root, error) : dp_fail_memory(error);
  json_decref(root);
  return status;
}
