#include "cli/run_profile.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/schema.h"
#include "cli/json.h"
#include "cli/profile_report.h"

/* ---- text ---- */

static void cell_share(report_table *table, double part, double whole) {
  report_table_cell(table, "%.1f %%", whole > 0 ? 100 * part / whole : 0);
}

static void cells_parts(report_table *table, const double *parts_s, double whole_s) {
  for (int p = 0; p < PROF_RUN_PART_COUNT; p++) cell_share(table, parts_s[p], whole_s);
}

/* A column of the first head, one a part, and then the last two. */
static void part_columns(report_table *table, const char *first, const char *second) {
  report_table_column(table, first, REPORT_LEFT);
  report_table_column(table, second, REPORT_RIGHT);
  for (int p = 0; p < PROF_RUN_PART_COUNT; p++) report_table_column(table, prof_run_part_names[p], REPORT_RIGHT);
  report_table_column(table, "exposed", REPORT_RIGHT);
  report_table_column(table, "hidden", REPORT_RIGHT);
}

static void cells_comm(report_table *table, double comm_s, double exposed_s) {
  cli_cell_seconds(table, exposed_s);
  cli_cell_seconds(table, comm_s - exposed_s);
}

static dp_status print_stages(const prof_run_tables *t, FILE *out, dp_error *error) {
  report_table table = {.title = NULL};
  report_table_title(&table, "Time of the workers by stage, and communication: exposed, hidden");
  part_columns(&table, "stage", "time");
  for (int r = 0; r < t->ranks; r++) {
    const prof_run_stage *stage = &t->stages[r];
    report_table_row(&table, false);
    report_table_cell(&table, "%d", r);
    cli_cell_seconds(&table, stage->worker_s);
    cells_parts(&table, stage->parts_s, stage->worker_s);
    cells_comm(&table, stage->comm_s, stage->exposed_s);
  }
  return cli_table_finish(&table, out, error);
}

static dp_status print_steps(const prof_run_tables *t, FILE *out, dp_error *error) {
  report_table table = {.title = NULL};
  report_table_title(&table, "Steps: time of the workers, and communication: exposed, hidden");
  part_columns(&table, "step", "time");
  report_table_column(&table, "bubbles", REPORT_RIGHT);
  for (size_t s = 0; s < t->step_count; s++) {
    const prof_run_step *step = &t->steps[s];
    report_table_row(&table, false);
    report_table_cell(&table, "%" PRIu64, step->number);
    cli_cell_seconds(&table, step->step_s);
    cells_parts(&table, step->parts_s, t->workers * step->step_s);
    cells_comm(&table, step->comm_s, step->exposed_s);
    cell_share(&table, step->bubble_ratio, 1);
  }
  return cli_table_finish(&table, out, error);
}

static dp_status print_kinds(const prof_run_tables *t, FILE *out, dp_error *error) {
  static const char *const heads[] = {"instruction", "stage", "count", "sum", "p50", "p95", "max", "share", NULL};
  report_table table = {.title = NULL};
  report_table_title(&table, "Instructions; shares are of their stage's time");
  cli_columns(&table, heads);
  for (size_t k = 0; k < t->kinds.count; k++) {
    const prof_run_kind *kind = &t->kinds.items[k];
    report_table_row(&table, false);
    report_table_cell(&table, "%s", plan_opcode_names[kind->opcode]);
    report_table_cell(&table, "%d", kind->rank);
    cli_cells_spread(&table, &kind->time);
    cell_share(&table, kind->share, 1);
  }
  return cli_table_finish(&table, out, error);
}

static dp_status print_classes(const prof_run_tables *t, FILE *out, dp_error *error) {
  static const char *const heads[] = {"class", "count", "sum", "p50", "p95", "max", "share", NULL};
  report_table table = {.title = NULL};
  report_table_title(&table, "Kernels and copies of all instructions by class");
  cli_columns(&table, heads);
  for (int c = 0; c < PROF_CLASS_COUNT; c++) {
    if (t->classes[c].time.count == 0) continue;
    report_table_row(&table, false);
    report_table_cell(&table, "%s", prof_class_names[c]);
    cli_cells_spread(&table, &t->classes[c].time);
    cell_share(&table, t->classes[c].share, 1);
  }
  report_table_row(&table, false);
  report_table_cell(&table, "gaps between");
  cli_cells_spread(&table, &t->gaps);
  report_table_cell(&table, "-");
  return cli_table_finish(&table, out, error);
}

/* Columns only for classes that there are. */
static dp_status print_kind_classes(const prof_run_tables *t, FILE *out, dp_error *error) {
  report_table table = {.title = NULL};
  report_table_title(&table, "Time of kernels and copies by instruction and class");
  report_table_column(&table, "instruction", REPORT_LEFT);
  report_table_column(&table, "stage", REPORT_RIGHT);
  for (int c = 0; c < PROF_CLASS_COUNT; c++)
    if (t->classes[c].time.count) report_table_column(&table, prof_class_names[c], REPORT_RIGHT);
  for (size_t k = 0; k < t->kinds.count; k++) {
    const prof_run_kind *kind = &t->kinds.items[k];
    report_table_row(&table, false);
    report_table_cell(&table, "%s", plan_opcode_names[kind->opcode]);
    report_table_cell(&table, "%d", kind->rank);
    for (int c = 0; c < PROF_CLASS_COUNT; c++)
      if (t->classes[c].time.count) cli_cell_seconds(&table, kind->classes_s[c]);
  }
  return cli_table_finish(&table, out, error);
}

/* What most of a unit's time goes to. */
static void cell_most(report_table *table, const prof_run_unit *unit) {
  int most = 0;
  for (int c = 1; c < PROF_CLASS_COUNT; c++)
    if (unit->classes_s[c] > unit->classes_s[most]) most = c;
  report_table_cell(table, "%s %.0f %%", prof_class_names[most],
                    100 * unit->classes_s[most] / (unit->forward_s + unit->backward_s));
}

enum { UNIT_ROWS = 20 };

/* The longest; all are in profile.json. */
static dp_status print_units(const prof_run_tables *t, const graph *model, FILE *out, dp_error *error) {
  static const char *const heads[] = {"unit", "stage", "kernels", "forward", "backward", "share", "most of it", NULL};
  report_table table = {.title = NULL};
  double told = 0;
  if (t->units.count == 0) return DP_OK;
  for (size_t u = 0; u < t->units.count; u++) told += t->units.items[u].share;
  report_table_title(&table,
                     "Units of the model: time of their kernels and copies a step; %.1f %% of all time is of units",
                     100 * told);
  cli_columns(&table, heads);
  for (size_t u = 0; u < t->units.count && u < UNIT_ROWS; u++) {
    const prof_run_unit *unit = &t->units.items[u];
    if (unit->forward_s + unit->backward_s <= 0 || (size_t)unit->unit >= model->units.count) continue;
    report_table_row(&table, false);
    report_table_cell(&table, "%s", model->units.items[unit->unit].name);
    report_table_cell(&table, "%d", unit->rank);
    report_table_cell(&table, "%.0f", (double)unit->count / (double)t->step_count);
    cli_cell_seconds(&table, unit->forward_s / (double)t->step_count);
    cli_cell_seconds(&table, unit->backward_s / (double)t->step_count);
    cell_share(&table, unit->share, 1);
    cell_most(&table, unit);
  }
  return cli_table_finish(&table, out, error);
}

static dp_status print_links(const prof_run_tables *t, FILE *out, dp_error *error) {
  static const char *const heads[] = {"link", "messages", "sum", "p50", "p95", "max", "bytes", "GB/s", NULL};
  report_table table = {.title = NULL};
  report_table_title(&table, "Messages by link");
  cli_columns(&table, heads);
  for (size_t l = 0; l < t->links.count; l++) {
    const prof_run_link *link = &t->links.items[l];
    char text[32];
    if (link->time.count == 0) continue;
    report_table_row(&table, false);
    report_table_cell(&table, "%" PRIu32 " to %" PRIu32 "%s", link->from, link->to,
                      link->backward ? ", gradients" : "");
    cli_cells_spread(&table, &link->time);
    report_table_cell(&table, "%s", dp_format_bytes((double)link->bytes, text));
    report_table_cell(&table, "%.3g", link->time.sum_s > 0 ? (double)link->bytes * 1e-9 / link->time.sum_s : 0);
  }
  if (report_table_rows(&table) > 0) return cli_table_finish(&table, out, error);
  report_table_free(&table);
  return DP_OK;
}

/* What recording costs: the tables have the times of steps that were recorded. */
static void print_cost(const prof_pace_cost *cost, FILE *out) {
  char a[32], b[32];
  if (!cost->known) {
    fprintf(out,
            "%" PRId64 " of %" PRId64
            " steps were recorded; the run is too short to tell what that costs by others beside them\n\n",
            cost->taken, cost->done);
    return;
  }
  fprintf(out,
          "a step that is recorded takes %+.2f %% longer (median %s, by %" PRId64
          ") than one that is not (%s, by %" PRId64
          "), so the times below are those of a run that records nothing times %.3f\n",
          100 * cost->step, dp_format_seconds(cost->recorded_s, a), cost->recorded, dp_format_seconds(cost->plain_s, b),
          cost->plain, 1 + cost->step);
  fprintf(
      out,
      "%" PRId64 " of %" PRId64
      " steps were recorded, for which the run takes %+.2f %% longer (aim: at most %g %%)%s\n\n",
      cost->taken, cost->done, 100 * cost->run, 100 * PROF_PACE_BOUND,
      cost->run > PROF_PACE_BOUND ? ": it is too short for that, and its last steps were recorded all the same" : "");
}

#define EVENTS_DIFFER 0.05 /* of a step's length: more is no jitter of clocks */

static void print_head(const cli_run_recorded *recorded, FILE *out) {
  const prof_run_tables *t = &recorded->tables;
  char a[32], b[32], c[32];
  fprintf(out, "%zu step%s of %d worker%s, %s; p50 %s, p95 %s, max %s; bubbles %.1f %%\n", t->step_count,
          t->step_count == 1 ? "" : "s", t->workers, t->workers == 1 ? "" : "s",
          t->recorded ? "by the work of the devices" : "by marks of the queues: kernels and the host are not known",
          dp_format_seconds(t->step_time.p50_s, a), dp_format_seconds(t->step_time.p95_s, b),
          dp_format_seconds(t->step_time.max_s, c), 100 * t->bubble_ratio);
  if (t->recorded)
    fprintf(out,
            "%" PRIu64 " pieces of work are of instructions, %" PRIu64 " (%s) of none; %" PRIu64
            " records lost, %" PRIu64 " steps left out; recording itself took %s of the host's threads\n",
            t->work, t->stray, dp_format_seconds(t->stray_s, a), recorded->lost,
            recorded->join.torn + recorded->join.impossible, dp_format_seconds(recorded->recording_s, b));
  if (recorded->join.impossible > 0)
    fprintf(out, "%" PRIu64 " step%s left out: records with times that cannot be\n", recorded->join.impossible,
            recorded->join.impossible == 1 ? "" : "s");
  if (t->recorded && recorded->events_s > 0 && fabs(t->step_time.p50_s / recorded->events_s - 1) > EVENTS_DIFFER)
    fprintf(out, "by the queues' events these steps took %s: the records do not show all work\n",
            dp_format_seconds(recorded->events_s, a));
  if (t->recorded)
    print_cost(&recorded->cost, out);
  else
    fputc('\n', out);
}

/* What is told, and the model whose units it names. */
typedef struct profile {
  const cli_run_recorded *recorded;
  const graph *model;
} profile;

static dp_status print_text(const profile *p, FILE *out, dp_error *error) {
  const prof_run_tables *t = &p->recorded->tables;
  print_head(p->recorded, out);
  DP_TRY(print_stages(t, out, error));
  DP_TRY(print_kinds(t, out, error));
  if (t->recorded) DP_TRY(print_classes(t, out, error));
  if (t->recorded) DP_TRY(print_kind_classes(t, out, error));
  DP_TRY(print_units(t, p->model, out, error));
  DP_TRY(print_links(t, out, error));
  return print_steps(t, out, error);
}

void cli_run_profile_print(const cli_run_recorded *recorded) {
  const prof_run_tables *t = &recorded->tables;
  double parts_s[PROF_RUN_PART_COUNT] = {0}, whole_s = 0;
  for (int r = 0; r < t->ranks; r++) {
    for (int p = 0; p < PROF_RUN_PART_COUNT; p++) parts_s[p] += t->stages[r].parts_s[p];
    whole_s += t->stages[r].worker_s;
  }
  if (whole_s <= 0) return;
  printf("profile: ");
  for (int p = 0; p < PROF_RUN_PART_COUNT; p++)
    printf("%s%s %.1f %%", p ? ", " : "", prof_run_part_names[p], 100 * parts_s[p] / whole_s);
  printf(" of the last %zu step%s%s\n", t->step_count, t->step_count == 1 ? "" : "s",
         t->recorded ? " that were recorded" : "");
  if (t->recorded && recorded->cost.known)
    printf("profile: recorded steps take %+.2f %% longer, the run %+.2f %%\n", 100 * recorded->cost.step,
           100 * recorded->cost.run);
}

/* ---- JSON ---- */

static json_t *named(const char *const *names, const double *seconds, int count) {
  json_t *object = json_object();
  bool done = object != NULL;
  for (int i = 0; done && i < count; i++) {
    char key[40];
    (void)snprintf(key, sizeof key, "%s_s", names[i]);
    done = cli_json_put(object, key, json_real(seconds[i]));
  }
  if (done) return object;
  json_decref(object);
  return NULL;
}

static bool put_time(json_t *row, const double *parts_s, double comm_s, double exposed_s, const double *classes_s) {
  return row && cli_json_put(row, "parts", named(prof_run_part_names, parts_s, PROF_RUN_PART_COUNT)) &&
         cli_json_put(row, "exposed_comm_s", json_real(exposed_s)) &&
         cli_json_put(row, "hidden_comm_s", json_real(comm_s - exposed_s)) &&
         cli_json_put(row, "classes", named(prof_class_names, classes_s, PROF_CLASS_COUNT));
}

static json_t *known_real(bool known, double value) { return known ? json_real(value) : json_null(); }

static bool add_steps(json_t *array, const cli_run_recorded *recorded) {
  const prof_run_tables *t = &recorded->tables;
  for (size_t s = 0; s < t->step_count; s++) {
    const prof_run_step *step = &t->steps[s];
    const double events_s = recorded->step_events_s[s];
    json_t *row = json_pack("{s:I, s:f, s:o, s:f}", "step", (json_int_t)step->number, "step_s", step->step_s,
                            "events_step_s", known_real(events_s > 0, events_s), "bubble_ratio", step->bubble_ratio);
    if (json_array_append_new(array, row) != 0 ||
        !put_time(row, step->parts_s, step->comm_s, step->exposed_s, step->classes_s))
      return false;
  }
  return true;
}

static bool add_stages(json_t *array, const prof_run_tables *t) {
  for (int r = 0; r < t->ranks; r++) {
    const prof_run_stage *stage = &t->stages[r];
    json_t *row = json_pack("{s:i, s:f}", "rank", r, "worker_s", stage->worker_s);
    if (json_array_append_new(array, row) != 0 ||
        !put_time(row, stage->parts_s, stage->comm_s, stage->exposed_s, stage->classes_s))
      return false;
  }
  return true;
}

static bool add_kinds(json_t *array, const prof_run_tables *t) {
  for (size_t k = 0; k < t->kinds.count; k++) {
    const prof_run_kind *kind = &t->kinds.items[k];
    json_t *row = cli_spread_json(&kind->time);
    if (json_array_append_new(array, row) != 0 || !cli_json_put(row, "rank", json_integer(kind->rank)) ||
        !cli_json_put(row, "opcode", json_string(plan_opcode_names[kind->opcode])) ||
        !cli_json_put(row, "share", json_real(kind->share)) ||
        !cli_json_put(row, "classes", named(prof_class_names, kind->classes_s, PROF_CLASS_COUNT)))
      return false;
  }
  return true;
}

static bool add_classes(json_t *array, const prof_run_tables *t) {
  for (int c = 0; c < PROF_CLASS_COUNT; c++) {
    json_t *row = cli_spread_json(&t->classes[c].time);
    if (json_array_append_new(array, row) != 0 || !cli_json_put(row, "class", json_string(prof_class_names[c])) ||
        !cli_json_put(row, "share", json_real(t->classes[c].share)))
      return false;
  }
  return true;
}

static bool add_links(json_t *array, const prof_run_tables *t) {
  for (size_t l = 0; l < t->links.count; l++) {
    const prof_run_link *link = &t->links.items[l];
    json_t *row = cli_spread_json(&link->time);
    if (json_array_append_new(array, row) != 0 || !cli_json_put(row, "from", json_integer(link->from)) ||
        !cli_json_put(row, "to", json_integer(link->to)) ||
        !cli_json_put(row, "gradients", json_boolean(link->backward)) ||
        !cli_json_put(row, "bytes", json_integer(link->bytes)))
      return false;
  }
  return true;
}

static bool add_units(json_t *array, const prof_run_tables *t, const graph *model) {
  for (size_t u = 0; u < t->units.count; u++) {
    const prof_run_unit *unit = &t->units.items[u];
    if ((size_t)unit->unit >= model->units.count) continue;
    json_t *row = json_pack("{s:s, s:i, s:i, s:I, s:f, s:f, s:f}", "name", model->units.items[unit->unit].name, "unit",
                            unit->unit, "rank", unit->rank, "count", (json_int_t)unit->count, "forward_s",
                            unit->forward_s, "backward_s", unit->backward_s, "share", unit->share);
    if (json_array_append_new(array, row) != 0 ||
        !cli_json_put(row, "classes", named(prof_class_names, unit->classes_s, PROF_CLASS_COUNT)))
      return false;
  }
  return true;
}

static json_t *cost_json(const prof_pace_cost *cost) {
  return json_pack("{s:f, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "bound", PROF_PACE_BOUND, "run_steps",
                   (json_int_t)cost->done, "run_steps_recorded", (json_int_t)cost->taken, "recorded_steps",
                   (json_int_t)cost->recorded, "plain_steps", (json_int_t)cost->plain, "recorded_step_s",
                   known_real(cost->known, cost->recorded_s), "plain_step_s", known_real(cost->known, cost->plain_s),
                   "step_overhead", known_real(cost->known, cost->step), "run_overhead",
                   known_real(cost->known, cost->run));
}

static json_t *as_json(const cli_run_recorded *recorded, const graph *model) {
  static const struct {
    const char *key;
    bool (*add)(json_t *array, const prof_run_tables *tables);
  } lists[] = {{"stages", add_stages}, {"instructions", add_kinds}, {"classes", add_classes}, {"links", add_links}};
  const prof_run_tables *t = &recorded->tables;
  json_t *root = json_pack(
      "{s:s, s:i, s:b, s:i, s:f, s:I, s:I, s:f, s:I, s:I, s:I, s:f, s:f}", "format", "diffpipe-run-profile", "version",
      1, "recorded", t->recorded, "workers", t->workers, "bubble_ratio", t->bubble_ratio, "work", (json_int_t)t->work,
      "stray", (json_int_t)t->stray, "stray_s", t->stray_s, "lost", (json_int_t)recorded->lost, "steps_left_out",
      (json_int_t)(recorded->join.torn + recorded->join.impossible), "steps_impossible",
      (json_int_t)recorded->join.impossible, "recording_s", recorded->recording_s, "events_step_s", recorded->events_s);
  bool done = root && (!t->recorded || cli_json_put(root, "recording", cost_json(&recorded->cost))) &&
              cli_json_put(root, "step", cli_spread_json(&t->step_time)) &&
              cli_json_put(root, "gaps", cli_spread_json(&t->gaps));
  json_t *steps = json_array();
  if (done)
    done = cli_json_put(root, "steps", steps) && add_steps(steps, recorded);
  else
    json_decref(steps);
  for (size_t i = 0; done && i < DP_COUNT_OF(lists); i++) {
    json_t *array = json_array();
    done = cli_json_put(root, lists[i].key, array) && lists[i].add(array, t);
  }
  json_t *units = json_array();
  if (done)
    done = cli_json_put(root, "units", units) && add_units(units, t, model);
  else
    json_decref(units);
  if (done) return root;
  json_decref(root);
  return NULL;
}

/* ---- files ---- */

static dp_status write_json(const profile *p, FILE *out, dp_error *error) {
  json_t *root = as_json(p->recorded, p->model);
  if (!root) return dp_fail_memory(error);
  (void)json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(15)); /* told at the commit */
  (void)fputc('\n', out);
  json_decref(root);
  return DP_OK;
}

static dp_status write_file(const profile *p, const char *folder, const char *name,
                            dp_status (*write)(const profile *, FILE *, dp_error *), dp_error *error) {
  dp_str path = {0};
  dp_output output;
  dp_str_addf(&path, "%s/%s", folder, name);
  dp_status status = path.failed ? dp_fail_memory(error) : dp_output_open(dp_str_text(&path), &output, error);
  dp_str_free(&path);
  DP_TRY(status);
  status = write(p, output.stream, error);
  if (status == DP_OK) return dp_output_commit(&output, error);
  dp_output_abandon(&output);
  return status;
}

/* Of an even number the shorter of the middle two. */
static const prof_joined *median_step(const prof_join *join) {
  const size_t middle = (join->steps.count - 1) / 2;
  for (size_t s = 0; s < join->steps.count; s++) {
    size_t before = 0;
    for (size_t o = 0; o < join->steps.count; o++) {
      const double mine_s = join->steps.items[s].timeline.step_s, other_s = join->steps.items[o].timeline.step_s;
      before += other_s < mine_s || (other_s <= mine_s && o < s);
    }
    if (before == middle) return &join->steps.items[s];
  }
  return &join->steps.items[0];
}

static dp_status write_timeline(const cli_run_recorded *recorded, const report_run *predicted, const char *folder,
                                dp_error *error) {
  report_run run = *predicted;
  plan_metrics metrics;
  dp_str path = {0};
  run.timeline = &median_step(&recorded->join)->timeline;
  run.origin = "measured";
  DP_TRY(plan_metrics_of(run.timeline, &metrics, error));
  run.metrics = &metrics;
  dp_str_addf(&path, "%s/profile-timeline.json", folder);
  const dp_status status =
      path.failed ? dp_fail_memory(error) : report_trace_write(&run, NULL, dp_str_text(&path), error);
  dp_str_free(&path);
  plan_metrics_free(&metrics);
  return status;
}

dp_status cli_run_profile_write(const cli_run_recorded *recorded, const report_run *predicted, const char *folder,
                                dp_error *error) {
  const profile told = {recorded, predicted->graph};
  DP_TRY(write_file(&told, folder, "profile.txt", print_text, error));
  DP_TRY(write_file(&told, folder, "profile.json", write_json, error));
  if (recorded->tables.recorded) DP_TRY(write_timeline(recorded, predicted, folder, error));
  fprintf(stderr, "diffpipe: wrote %s: profile.txt, profile.json%s\n", folder,
          recorded->tables.recorded ? ", profile-timeline.json (for Perfetto), records/" : "");
  return DP_OK;
}
