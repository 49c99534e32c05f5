#include "reports/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- facts about a run ---- */

const char *report_device_name(const report_run *run, int worker) {
  const int device = run->program->plan->devices[worker];
  if (device < 0 || (size_t)device >= run->cluster->devices.count) return "";
  const char *name = run->cluster->devices.items[device].name;
  return name ? name : "";
}

int64_t report_memory_gap(const plan_worker_memory *memory) {
  int64_t gap = memory->peak_bytes;
  for (int c = 0; c < PLAN_MEMORY_CLASS_COUNT; c++) gap -= memory->at_peak_bytes[c];
  return gap > 0 ? gap : 0;
}

const char *report_period(const report_run *run) { return run->program->plan->training ? "step" : "batch"; }

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

void report_layout(const plan_plan *plan, dp_str *out) {
  dp_str_addf(out, "%s, %d stage%s", plan_schedule_names[plan->schedule], plan->ranks, plural(plan->ranks));
  if (plan->chunks_per_rank > 1) dp_str_addf(out, " of %d chunks", plan->chunks_per_rank);
  if (plan_tensor(plan) > 1) dp_str_addf(out, " × %d tensor members", plan_tensor(plan));
  if (plan->replicas > 1) dp_str_addf(out, " × %d replicas", plan->replicas);
}

void report_verdict(const report_run *run, dp_str *out) {
  const int w = run->tightest_worker;
  char peak[32], limit[32], room[32];
  const int64_t peak_bytes = run->memory->workers[w].peak_bytes, limit_bytes = run->memory_limit_bytes[w];
  (void)dp_format_bytes((double)peak_bytes, peak);
  (void)dp_format_bytes((double)limit_bytes, limit);
  (void)dp_format_bytes(fabs((double)(limit_bytes - peak_bytes)), room);
  if (run->fits) {
    dp_str_addf(out, "fits: worker %d (%s) is tightest, %s of %s, %s to spare", w, report_device_name(run, w), peak,
                limit, room);
    return;
  }
  int over = 0;
  for (int i = 0; i < run->memory->worker_count; i++)
    over += run->memory->workers[i].peak_bytes > run->memory_limit_bytes[i];
  dp_str_addf(out, "DOES NOT FIT: worker %d (%s) needs %s of %s, %s too much; %d of %d worker%s %s over", w,
              report_device_name(run, w), peak, limit, room, over, run->memory->worker_count,
              plural(run->memory->worker_count), over == 1 ? "is" : "are");
}

void report_idle_devices(const report_run *run, dp_str *out) {
  const size_t count = run->cluster->devices.count;
  const int workers = plan_worker_count(run->program->plan);
  size_t idle = 0;
  for (int pass = 0; pass < 2; pass++) {
    size_t named = 0;
    if (pass == 1 && idle == 0) return;
    if (pass == 1) dp_str_addf(out, "%zu of %zu devices %s idle: ", idle, count, idle == 1 ? "is" : "are");
    for (size_t d = 0; d < count; d++) {
      bool used = false;
      for (int w = 0; w < workers && !used; w++) used = run->program->plan->devices[w] == (int)d;
      if (used) continue;
      if (pass == 0) {
        idle++;
      } else if (named++ < 8) {
        dp_str_addf(out, "%s%s", named > 1 ? ", " : "", run->cluster->devices.items[d].name);
      }
    }
    if (pass == 1 && named > 8) dp_str_addf(out, " and %zu more", named - 8);
  }
}

/* ---- tables ---- */

static void add_fact(report_table *table, bool warned, const char *name, dp_str *text) {
  if (text->failed) table->failed = true;
  report_table_row(table, warned);
  report_table_cell(table, "%s", name);
  report_table_cell(table, "%s", dp_str_text(text));
  dp_str_clear(text);
}

void report_describe_model(const report_run *run, dp_str *text) {
  const graph *model = run->graph;
  char count[32];
  dp_str_addf(text, "%s", model->class_name ? model->class_name : "model");
  /* of the whole model, where the graph is a tensor member's share */
  const bool share = model->tensor_parallel > 1;
  const int64_t all = share ? model->model_parameters : model->parameters;
  const int64_t trainable = share ? model->model_trainable_parameters : model->trainable_parameters;
  if (all) dp_str_addf(text, ", %s parameters", dp_format_count((double)all, count));
  if (trainable && trainable != all && run->program->plan->training)
    dp_str_addf(text, " (%s trainable)", dp_format_count((double)trainable, count));
  dp_str_addf(text, ", %zu units", model->units.count);
  if (model->height) dp_str_addf(text, ", %lld × %lld pixels", (long long)model->height, (long long)model->width);
  if (model->frames > 1) dp_str_addf(text, " × %lld frames", (long long)model->frames);
  if (model->text_tokens) dp_str_addf(text, ", %lld text tokens", (long long)model->text_tokens);
  dp_str_addf(text, ", %s", graph_dtype_name(model->precision));
}

void report_describe_cluster(const report_run *run, dp_str *text) {
  const plan_cluster *cluster = run->cluster;
  dp_str_addf(text, "%s", cluster->name && cluster->name[0] ? cluster->name : "cluster");
  const char *before = ": ";
  for (size_t d = 0; d < cluster->devices.count; d++) {
    const plan_device *device = &cluster->devices.items[d];
    bool seen = false;
    size_t count = 0;
    for (size_t e = 0; e < cluster->devices.count; e++) {
      const plan_device *other = &cluster->devices.items[e];
      if (other->model != device->model || other->parts != device->parts || other->memory_bytes != device->memory_bytes)
        continue;
      if (e < d) seen = true;
      count++;
    }
    if (seen) continue;
    char memory[32];
    dp_str_addf(text, "%s%zu × %s%s%s (%s)", before, count, device->parts > 1 ? "part of " : "",
                device->model ? device->model->name : "device", device->parts > 1 ? " card" : "",
                dp_format_bytes((double)device->memory_bytes, memory));
    before = " + ";
  }
  dp_str_addf(text, ", %d node%s", cluster->node_count, plural(cluster->node_count));
  if (cluster->price_usd_per_h > 0) dp_str_addf(text, ", %.2f USD/h", cluster->price_usd_per_h);
  if (cluster->power_w > 0) dp_str_addf(text, ", %.1f kW", cluster->power_w / 1e3);
}

void report_describe_plan(const report_run *run, dp_str *text) {
  const plan_plan *plan = run->program->plan;
  report_layout(plan, text);
  const int workers = plan_worker_count(plan);
  dp_str_addf(text, " = %d worker%s; skips %s", workers, plural(workers), plan_skip_policy_names[plan->skip_policy]);
  if (plan->skip_policy == PLAN_SKIP_COMPRESS) dp_str_addf(text, " to %lld values", (long long)plan->k);
  if (run->graph->whole_products) dp_str_addf(text, "; %d products whole on every member", run->graph->whole_products);
  if (plan->transport_wanted != PLAN_TRANSPORT_AUTO)
    dp_str_addf(text, "; transport %s", plan_transport_names[plan->transport_wanted]);
  if (plan->nccl_sms) dp_str_addf(text, "; %d SMs of each device kept for NCCL", plan->nccl_sms);
  if (!plan->training) return;
  size_t again = 0;
  for (size_t u = 0; plan->recompute && u < run->graph->units.count; u++) again += plan->recompute[u] != 0;
  if (again)
    dp_str_addf(text, "; %zu of %zu units recomputed", again, run->graph->units.count);
  else
    dp_str_add(text, "; nothing recomputed");
  dp_str_addf(text, "; %s, gradients in %s", plan_optimizer_names[plan->optimizer],
              plan->gradient_fp32 ? "fp32" : graph_dtype_name(run->graph->precision));
  if (plan->replicas > 1)
    dp_str_addf(text, ", all-reduced in %d bucket%s", plan->gradient_buckets, plural(plan->gradient_buckets));
}

void report_describe_batch(const report_run *run, dp_str *text) {
  const plan_plan *plan = run->program->plan;
  dp_str_addf(text, "%lld samples = %d microbatch%s of %d",
              (long long)plan->microbatches * plan->microbatch_size * plan->replicas, plan->microbatches,
              plan->microbatches == 1 ? "" : "es", plan->microbatch_size);
  if (plan->replicas > 1) dp_str_addf(text, " × %d replicas", plan->replicas);
  if (!plan->training) dp_str_addf(text, ", %d denoise step%s", plan->denoise_steps, plural(plan->denoise_steps));
}

static void build_run(const report_run *run, report_table *table) {
  const plan_plan *plan = run->program->plan;
  dp_str text = {0};
  report_table_title(table, "%s: %s, %s", run->name, plan->training ? "training" : "sampling", run->origin);
  report_table_column(table, "", REPORT_LEFT);
  report_table_column(table, "", REPORT_TEXT);
  report_describe_model(run, &text);
  add_fact(table, false, "model", &text);
  report_describe_cluster(run, &text);
  add_fact(table, false, "cluster", &text);
  report_describe_plan(run, &text);
  add_fact(table, false, "plan", &text);
  report_describe_batch(run, &text);
  add_fact(table, false, "batch", &text);
  report_verdict(run, &text);
  add_fact(table, !run->fits, "memory", &text);
  dp_str_free(&text);
}

static void build_result(const report_run *run, report_table *table) {
  const plan_metrics *metrics = run->metrics;
  const plan_plan *plan = run->program->plan;
  const bool training = plan->training;
  dp_str text = {0};
  char first[32], low[32], high[32];
  report_table_title(table, "%s", training ? "One training step" : "One batch of samples");
  report_table_column(table, "", REPORT_LEFT);
  report_table_column(table, "", REPORT_TEXT);
  dp_str_add(&text, dp_format_seconds(metrics->step_s, first));
  if (run->error_band > 0)
    dp_str_addf(&text, " ± %.0f %% (%s to %s)", 100 * run->error_band,
                dp_format_seconds(metrics->step_s * fmax(0, 1 - run->error_band), low),
                dp_format_seconds(metrics->step_s * (1 + run->error_band), high));
  add_fact(table, false, training ? "step time" : "trajectory", &text);
  if (!training && plan->denoise_steps > 1) {
    dp_str_addf(&text, "%s, the trajectory's share of one",
                dp_format_seconds(metrics->step_s / plan->denoise_steps, first));
    add_fact(table, false, "denoise step", &text);
  }
  dp_str_addf(&text, "%.2f %%", 100 * metrics->bubble_ratio);
  add_fact(table, false, "bubble ratio", &text);
  dp_str_addf(&text, "%.4g samples/s", metrics->throughput_samples_per_s);
  add_fact(table, false, "throughput", &text);
  if (run->usd_per_million_samples > 0)
    dp_str_addf(&text, "%.2f USD per million samples", run->usd_per_million_samples);
  else
    dp_str_add(&text, run->cluster->price_usd_per_h > 0 ? "not estimated" : "unknown: some device has no price");
  add_fact(table, false, "cost", &text);
  if (run->joules_per_sample > 0)
    dp_str_addf(&text, "%.4g J per sample", run->joules_per_sample);
  else
    dp_str_add(&text, run->cluster->power_w > 0 ? "not estimated" : "unknown: some device has no power");
  add_fact(table, false, "energy", &text);
  if (training && run->job_steps > 1) {
    const double hours = (double)run->job_steps * metrics->step_s / 3600;
    dp_str_addf(&text, "%lld steps in %.4g h", (long long)run->job_steps, hours);
    if (run->usd_per_million_samples > 0)
      dp_str_addf(&text, ", %.2f USD",
                  run->usd_per_million_samples / 1e6 * metrics->throughput_samples_per_s * hours * 3600);
    add_fact(table, false, "job", &text);
  }
  dp_str_free(&text);
}

static void build_bounds(const report_run *run, report_table *table) {
  report_table_title(table, "What bounds the step (shares of all workers' time)");
  report_table_column(table, "", REPORT_LEFT);
  report_table_column(table, "share", REPORT_RIGHT);
  report_table_column(table, "", REPORT_BAR);
  for (int b = 0; b < run->bound_count; b++) {
    report_table_row(table, false);
    report_table_cell(table, "%s", run->bounds[b].name);
    report_table_cell(table, "%.1f %%", 100 * run->bounds[b].share);
    report_table_cell(table, "%.6f", run->bounds[b].share);
  }
}

static void build_traffic(const report_run *run, report_table *table) {
  const plan_metrics *metrics = run->metrics;
  char bytes[32];
  report_table_title(table, "Traffic between workers (GB = 1e9 bytes; each byte counted once, where it is sent)");
  report_table_column(table, "kind", REPORT_LEFT);
  report_table_column(table, "bytes", REPORT_RIGHT);
  report_table_column(table, "share", REPORT_RIGHT);
  report_table_column(table, "", REPORT_BAR);
  for (int k = 0; k <= PLAN_TRAFFIC_COUNT; k++) {
    const bool total = k == PLAN_TRAFFIC_COUNT;
    const int64_t sent = total ? metrics->comm_bytes : metrics->comm_bytes_by_kind[k];
    const double share = metrics->comm_bytes ? (double)sent / (double)metrics->comm_bytes : 0;
    if ((k == PLAN_TRAFFIC_LATENT || k == PLAN_TRAFFIC_TENSOR) && sent == 0) continue;
    report_table_row(table, false);
    report_table_cell(table, "%s", total ? "all" : plan_traffic_names[k]);
    report_table_cell(table, "%s", dp_format_bytes((double)sent, bytes));
    report_table_cell(table, "%.1f %%", 100 * share);
    report_table_cell(table, "%.6f", total ? 0 : share);
  }
}

/* ---- tables with a row a worker, or their spread where there are too many ---- */

enum { MAX_FIGURES = 14 };

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* figures[worker * figure_count + f]; columns: worker, device where asked for, then the figures. */
static void add_worker_rows(const report_run *run, report_table *table, bool device, const double *figures,
                            int figure_count, const char *const *formats, int special, const char *special_name) {
  const int workers = run->metrics->worker_count;
  if (workers <= REPORT_MAX_ROWS) {
    for (int w = 0; w < workers; w++) {
      report_table_row(table, run->memory->workers[w].peak_bytes > run->memory_limit_bytes[w]);
      report_table_cell(table, "%d", w);
      if (device) report_table_cell(table, "%.24s", report_device_name(run, w));
      for (int f = 0; f < figure_count; f++) report_table_cell(table, formats[f], figures[w * figure_count + f]);
    }
    return;
  }
  double *column = calloc((size_t)workers * (size_t)figure_count, sizeof *column);
  if (!column) {
    table->failed = true;
    return;
  }
  for (int f = 0; f < figure_count; f++) {
    for (int w = 0; w < workers; w++) column[f * workers + w] = figures[w * figure_count + f];
    qsort(column + f * workers, (size_t)workers, sizeof *column, by_value);
  }
  static const char *const names[] = {"least", "median", "most"};
  const int at[] = {0, (workers - 1) / 2, workers - 1};
  for (int r = 0; r < 3; r++) {
    report_table_row(table, false);
    report_table_cell(table, "%s", names[r]);
    if (device) report_table_cell(table, "%s", "");
    for (int f = 0; f < figure_count; f++) report_table_cell(table, formats[f], column[f * workers + at[r]]);
  }
  report_table_row(table, run->memory->workers[special].peak_bytes > run->memory_limit_bytes[special]);
  report_table_cell(table, "%s: %d", special_name, special);
  if (device) report_table_cell(table, "%.24s", report_device_name(run, special));
  for (int f = 0; f < figure_count; f++) report_table_cell(table, formats[f], figures[special * figure_count + f]);
  report_table_note(table, "Each column's own least, median and most of %d workers.", workers);
  free(column);
}

static void build_time(const report_run *run, report_table *table) {
  const plan_metrics *metrics = run->metrics;
  const int workers = metrics->worker_count;
  const double scale = metrics->step_s >= 100 ? 1 : metrics->step_s >= 1e-3 ? 1e3 : 1e6;
  const char *unit = scale == 1 ? "s" : scale == 1e3 ? "ms" : "µs";
  int64_t most_bytes = 0;
  for (int w = 0; w < workers; w++) {
    if (metrics->workers[w].sent_bytes > most_bytes) most_bytes = metrics->workers[w].sent_bytes;
    if (metrics->workers[w].received_bytes > most_bytes) most_bytes = metrics->workers[w].received_bytes;
  }
  const double byte_scale = most_bytes >= 1000000000 ? 1e9 : 1e6;
  report_table_title(table, "Time by worker (%s; traffic in %s bytes; exposed: transfers while compute waits)", unit,
                     byte_scale > 1e8 ? "GB = 1e9" : "MB = 1e6");
  enum { FIGURES = 10 };
  const bool tensor = plan_tensor(run->program->plan) > 1; /* instead of the optimizer's: 100 columns */
  const char *const heads[FIGURES] = {"compute", "forward", "backward", tensor ? "tensor" : "optim.",
                                      "comm",    "exposed", "idle",     "busy",
                                      "sent",    "recvd"};
  static const char *const formats[FIGURES] = {"%.1f", "%.1f", "%.1f",    "%.1f", "%.1f",
                                               "%.1f", "%.1f", "%.0f %%", "%.2f", "%.2f"};
  report_table_column(table, "worker", REPORT_RIGHT);
  report_table_column(table, "device", REPORT_LEFT);
  bool shown[FIGURES];
  int figure_count = 0, busiest = 0;
  const char *used[MAX_FIGURES];
  for (int f = 0; f < FIGURES; f++) {
    shown[f] = run->program->plan->training || (f != 2 && (f != 3 || tensor));
    if (!shown[f]) continue;
    report_table_column(table, heads[f], REPORT_RIGHT);
    used[figure_count++] = formats[f];
  }
  double *figures = calloc((size_t)workers * FIGURES + 1, sizeof *figures);
  if (!figures) {
    table->failed = true;
    return;
  }
  for (int w = 0; w < workers; w++) {
    const plan_worker_metrics *m = &metrics->workers[w];
    const double whole = m->compute_s + m->tensor_s + m->idle_s;
    const double values[FIGURES] = {m->compute_s * scale,
                                    m->forward_s * scale,
                                    m->backward_s * scale,
                                    (tensor ? m->tensor_s : m->optimizer_s) * scale,
                                    m->comm_s * scale,
                                    m->exposed_comm_s * scale,
                                    m->idle_s * scale,
                                    whole > 0 ? 100 * m->compute_s / whole : 0,
                                    (double)m->sent_bytes / byte_scale,
                                    (double)m->received_bytes / byte_scale};
    for (int f = 0, at = 0; f < FIGURES; f++)
      if (shown[f]) figures[w * figure_count + at++] = values[f];
    if (m->compute_s > metrics->workers[busiest].compute_s) busiest = w;
  }
  add_worker_rows(run, table, true, figures, figure_count, used, busiest, "busiest");
  free(figures);
}

static void build_memory(const report_run *run, report_table *table) {
  static const char *const heads[PLAN_MEMORY_CLASS_COUNT] = {
      [PLAN_MEMORY_WEIGHTS] = "weights",    [PLAN_MEMORY_GRADIENTS] = "grads", [PLAN_MEMORY_OPTIMIZER] = "optim.",
      [PLAN_MEMORY_ACTIVATIONS] = "activ.", [PLAN_MEMORY_SKIPS] = "skips",     [PLAN_MEMORY_BOUNDARY] = "bound.",
      [PLAN_MEMORY_WORKSPACE] = "work",     [PLAN_MEMORY_RUNTIME] = "runtime"};
  const int workers = run->memory->worker_count;
  enum { GAPS = PLAN_MEMORY_CLASS_COUNT, PARTS };
  bool shown[PARTS] = {false};
  for (int w = 0; w < workers; w++) {
    for (int c = 0; c < PLAN_MEMORY_CLASS_COUNT; c++)
      shown[c] = shown[c] || run->memory->workers[w].at_peak_bytes[c] != 0;
    shown[GAPS] = shown[GAPS] || report_memory_gap(&run->memory->workers[w]) != 0;
  }
  report_table_title(table, "Peak memory by worker (GB = 1e9 bytes; classes as they are at the peak)");
  report_table_column(table, "worker", REPORT_RIGHT);
  const char *formats[MAX_FIGURES];
  int figure_count = 0;
  for (int c = 0; c < PARTS; c++) {
    if (!shown[c]) continue;
    report_table_column(table, c == GAPS ? "gaps" : heads[c], REPORT_RIGHT);
    formats[figure_count++] = "%.2f";
  }
  static const char *const last[] = {"peak", "limit", "used"};
  for (int i = 0; i < 3; i++) {
    report_table_column(table, last[i], REPORT_RIGHT);
    formats[figure_count++] = i == 2 ? "%.0f %%" : "%.2f";
  }
  double *figures = calloc((size_t)workers * (size_t)figure_count + 1, sizeof *figures);
  if (!figures) {
    table->failed = true;
    return;
  }
  for (int w = 0; w < workers; w++) {
    const plan_worker_memory *memory = &run->memory->workers[w];
    double *row = figures + w * figure_count;
    for (int c = 0; c < PARTS; c++)
      if (shown[c]) *row++ = (double)(c == GAPS ? report_memory_gap(memory) : memory->at_peak_bytes[c]) / 1e9;
    *row++ = (double)memory->peak_bytes / 1e9;
    *row++ = (double)run->memory_limit_bytes[w] / 1e9;
    *row = run->memory_limit_bytes[w] > 0 ? 100 * (double)memory->peak_bytes / (double)run->memory_limit_bytes[w] : 0;
  }
  add_worker_rows(run, table, false, figures, figure_count, formats, run->tightest_worker, "tightest");
  free(figures);
}

static void (*const builders[REPORT_TABLE_COUNT])(const report_run *run, report_table *table) = {
    [REPORT_TABLE_RUN] = build_run,         [REPORT_TABLE_RESULT] = build_result, [REPORT_TABLE_BOUNDS] = build_bounds,
    [REPORT_TABLE_TRAFFIC] = build_traffic, [REPORT_TABLE_TIME] = build_time,     [REPORT_TABLE_MEMORY] = build_memory};

dp_status report_tables_build(const report_run *run, report_tables *tables, dp_error *error) {
  *tables = (report_tables){0};
  bool failed = false;
  for (int t = 0; t < REPORT_TABLE_COUNT; t++) {
    builders[t](run, &tables->tables[t]);
    failed = failed || tables->tables[t].failed;
  }
  if (!failed) return DP_OK;
  report_tables_free(tables);
  return dp_fail_memory(error);
}

void report_tables_free(report_tables *tables) {
  for (int t = 0; t < REPORT_TABLE_COUNT; t++) report_table_free(&tables->tables[t]);
}

dp_status report_summary(const report_run *run, dp_str *out, dp_error *error) {
  report_tables tables;
  DP_TRY(report_tables_build(run, &tables, error));
  for (int t = 0; t < REPORT_TABLE_COUNT; t++) {
    if (report_table_rows(&tables.tables[t]) == 0) continue;
    if (out->length) dp_str_add(out, "\n");
    report_table_print(&tables.tables[t], REPORT_WIDTH, out);
  }
  report_tables_free(&tables);
  return out->failed ? dp_fail_memory(error) : DP_OK;
}
