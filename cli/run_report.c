#define _DEFAULT_SOURCE
#include "cli/run_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/json.h"
#include "reports/json.h"

/* "VmHWM:  12345 kB" of Linux; elsewhere what getrusage says. On Linux that also counts what the program that started
 * this one had resident at that moment. */
static int64_t own_peak_rss(void) {
  struct rusage usage;
  char line[256];
  long long kilobytes = 0;
  FILE *stream = fopen("/proc/self/status", "r");
  while (stream && kilobytes == 0 && fgets(line, sizeof line, stream))
    if (strncmp(line, "VmHWM:", 6) == 0) kilobytes = strtoll(line + 6, NULL, 10);
  if (stream) (void)fclose(stream);
  if (kilobytes == 0 && getrusage(RUSAGE_SELF, &usage) == 0) kilobytes = usage.ru_maxrss;
  return 1024 * (int64_t)kilobytes;
}

dp_status cli_run_peak_rss(exec_transport *transport, int64_t *bytes, dp_error *error) {
  const int64_t own = own_peak_rss();
  const size_t processes = (size_t)exec_process_count(transport);
  int64_t *all = calloc(processes, sizeof *all);
  dp_status status = exec_agree(transport, all ? DP_OK : dp_fail_memory(error), error);
  if (status == DP_OK) status = exec_gather(transport, &own, sizeof own, all, error);
  *bytes = 0;
  for (size_t p = 0; status == DP_OK && p < processes; p++) *bytes += all[p];
  free(all);
  return status;
}

static dp_status take_skips(json_t *psnr, cli_run_report *report, dp_error *error) {
  const size_t count = json_object_size(psnr);
  const char *name;
  json_t *value;
  if (count == 0) return DP_OK;
  report->skips = calloc(count, sizeof *report->skips);
  if (!report->skips) return dp_fail_memory(error);
  json_object_foreach(psnr, name, value) report->skips[report->measured.skip_count++] =
      (report_skip){name, json_is_number(value) ? json_number_value(value) : (double)NAN};
  return DP_OK;
}

static bool are_all_here(const exec_pipeline *pipeline, int workers) {
  for (int w = 0; w < workers; w++)
    if (!exec_pipeline_has(pipeline, w)) return false;
  return true;
}

/* What processes, or devices, have beside the layouts: contexts, libraries, the program itself. Whose it is nobody knows,
 * so that each worker has as much. Of the devices of other processes nothing is known. */
static void take_runtime(const exec_pipeline *pipeline, int64_t peak_rss_bytes, int64_t device_bytes,
                         plan_memory *memory) {
  if (device_bytes > 0 && !are_all_here(pipeline, memory->worker_count)) return;
  int64_t rest_bytes = device_bytes > 0 ? device_bytes : peak_rss_bytes;
  for (int w = 0; w < memory->worker_count; w++) rest_bytes -= memory->workers[w].layout_bytes;
  for (int w = 0; rest_bytes > 0 && w < memory->worker_count; w++) {
    plan_worker_memory *worker = &memory->workers[w];
    worker->at_peak_bytes[PLAN_MEMORY_RUNTIME] = rest_bytes / memory->worker_count;
    worker->peak_bytes = worker->layout_bytes + rest_bytes / memory->worker_count;
  }
}

/* The layouts as the pipeline made them, which has the buffers. */
static dp_status take_memory(const exec_pipeline *pipeline, int workers, plan_memory *memory, dp_error *error) {
  memory->workers = DP_ARENA_NEW(&memory->arena, plan_worker_memory, (size_t)workers);
  if (!memory->workers) return dp_fail_memory(error);
  memory->worker_count = workers;
  for (int w = 0; w < workers; w++) memory->workers[w] = *exec_pipeline_memory(pipeline, w);
  return DP_OK;
}

dp_status cli_run_report_make(const cli_folder_view *predicted, const plan_timeline_samples *samples,
                              const exec_pipeline *pipeline, const cli_run_log *log, int64_t peak_rss_bytes,
                              cli_run_report *report, dp_error *error) {
  cli_run_report made = {.predicted = predicted,
                         .measured = predicted->run,
                         .peak_rss_bytes = peak_rss_bytes,
                         .device_bytes = pipeline ? exec_pipeline_device_bytes(pipeline) : 0};
  DP_TRY(plan_timeline_samples_median(samples, &made.timeline, error));
  dp_status status = plan_timeline_samples_spread(samples, &made.spread, error);
  if (status == DP_OK) status = take_skips(log->psnr, &made, error);
  if (status == DP_OK && pipeline) status = take_memory(pipeline, samples->program->worker_count, &made.memory, error);
  if (status == DP_OK && pipeline) take_runtime(pipeline, peak_rss_bytes, made.device_bytes, &made.memory);
  if (status == DP_OK) status = plan_metrics_of(&made.timeline, &made.metrics, error);
  if (status != DP_OK) {
    plan_timeline_free(&made.timeline);
    free(made.skips);
    dp_arena_free(&made.memory.arena);
    return status;
  }
  *report = made;
  report_run *run = &report->measured;
  const double predicted_rate = predicted->run.metrics->throughput_samples_per_s;
  run->origin = "measured";
  run->timeline = &report->timeline;
  run->metrics = &report->metrics;
  run->steps = &report->spread;
  run->skips = report->skips;
  if (pipeline) run->memory = &report->memory;
  run->bounds = report->bounds;
  report_bounds_of(&report->metrics, report->bounds, &run->bound_count);
  run->error_band = 0;
  run->joules_per_sample = 0; /* nothing measures power here */
  run->usd_per_million_samples *= predicted_rate / report->metrics.throughput_samples_per_s;
  run->assumptions = NULL;
  run->assumption_count = 0;
  return DP_OK;
}

void cli_run_report_free(cli_run_report *report) {
  plan_timeline_free(&report->timeline);
  plan_metrics_free(&report->metrics);
  free(report->skips);
  dp_arena_free(&report->memory.arena);
  *report = (cli_run_report){.predicted = NULL};
}

static bool was_timed(const plan_unit_times *times) {
  for (size_t i = 0; i < times->unit_count * PLAN_UNIT_DIRECTION_COUNT; i++)
    if (times->runs[i] > 0) return true;
  return false;
}

dp_status cli_run_report_write(const cli_run_report *report, const plan_timeline_samples *samples,
                               const plan_unit_times *unit_costs, const plan_unit_times *unit_times, const char *folder,
                               bool plots, dp_error *error) {
  report_pair pair = {.predicted = &report->predicted->run, .measured = &report->measured, .samples = samples};
  if (was_timed(unit_times)) {
    pair.predicted_units = unit_costs;
    pair.measured_units = unit_times;
  }
  const report_options how = {.gnuplot = plots ? cli_folder_gnuplot() : NULL};
  dp_str notes = {0};
  const dp_status status = report_run_folder_write(&pair, folder, &how, &notes, error);
  if (status == DP_OK && plots && notes.length) fprintf(stderr, "diffpipe: note: %s", dp_str_text(&notes));
  dp_str_free(&notes);
  if (status == DP_OK)
    fprintf(stderr, "diffpipe: wrote %s: report.html, log.jsonl, timeline.json (for Perfetto), comparison.json\n",
            folder);
  return status;
}

/* ---- what is printed ---- */

static int64_t largest_peak(const plan_memory *memory) {
  int64_t most = 0;
  for (int w = 0; w < memory->worker_count; w++)
    if (memory->workers[w].peak_bytes > most) most = memory->workers[w].peak_bytes;
  return most;
}

static int64_t sum_of_peaks(const plan_memory *memory) {
  int64_t sum = 0;
  for (int w = 0; w < memory->worker_count; w++) sum += memory->workers[w].peak_bytes;
  return sum;
}

static double ratio(double predicted, double measured) { return measured > 0 ? predicted / measured - 1 : 0; }

/* Of what the plan lays out: of the devices, or of the processes. */
static double taken_bytes(const cli_run_report *report) {
  return (double)(report->device_bytes > 0 ? report->device_bytes : report->peak_rss_bytes);
}

static dp_status add_sides(json_t *root, const cli_run_told *told, dp_error *error) {
  void *predicted = NULL, *measured = NULL;
  DP_TRY(report_metrics_json(&told->predicted->run, &predicted, error));
  if (!cli_json_put(root, "predicted", predicted)) return dp_fail_memory(error);
  if (!told->report)
    return cli_json_put(root, "measured", json_null()) && cli_json_put(root, "error", json_null())
               ? DP_OK
               : dp_fail_memory(error);
  const plan_metrics *p = told->predicted->run.metrics, *m = &told->report->metrics;
  const double memory = ratio((double)sum_of_peaks(told->predicted->run.memory), taken_bytes(told->report));
  DP_TRY(report_metrics_json(&told->report->measured, &measured, error));
  const bool done = cli_json_put(root, "measured", measured) &&
                    cli_json_put(measured, "peak_rss_bytes", json_integer(told->report->peak_rss_bytes)) &&
                    cli_json_put(measured, "device_bytes", json_integer(told->report->device_bytes)) &&
                    cli_json_put(root, "error",
                                 json_pack("{sf sf sf}", "step", ratio(p->step_s, m->step_s), "bubble",
                                           p->bubble_ratio - m->bubble_ratio, "memory", memory));
  return done ? DP_OK : dp_fail_memory(error);
}

dp_status cli_run_print_json(const cli_run_told *told, dp_error *error) {
  json_t *root = json_pack("{ss si ss sI sI sb}", "format", "diffpipe-run", "version", 1, "scenario", told->name,
                           "steps", (json_int_t)told->steps, "resumed_from", (json_int_t)told->first_step,
                           "interrupted", (int)told->interrupted);
  bool done = root && cli_json_put(root, "folder", told->folder ? cli_json_text(told->folder) : json_null()) &&
              cli_json_put(root, "checkpoint", told->checkpoint[0] ? cli_json_text(told->checkpoint) : json_null()) &&
              cli_json_put(root, "loss", report_json_numbers(told->log->losses.items, told->log->losses.count)) &&
              cli_json_put(root, "evaluations", json_incref(told->log->evaluations)) &&
              cli_json_put(root, "psnr", told->log->psnr ? json_incref(told->log->psnr) : json_null());
  dp_status status = done ? add_sides(root, told, error) : dp_fail_memory(error);
  if (status == DP_OK) status = cli_json_print(root, error);
  json_decref(root);
  return status;
}

/* Mean of the losses [first, end) that are known. */
static double mean_loss(const cli_run_log *log, size_t first, size_t end) {
  double sum = 0;
  size_t count = 0;
  for (size_t i = first; i < end; i++) {
    if (!isfinite(log->losses.items[i])) continue;
    sum += log->losses.items[i];
    count++;
  }
  return count ? sum / (double)count : (double)NAN;
}

static void print_evaluation(const json_t *row) {
  const json_t *quantiles = json_object_get(row, "eval_quantiles"), *means = json_object_get(row, "eval_ema_loss");
  printf("evaluation after %lld steps: loss %.5g; by quarters of the timesteps, from little noise:",
         (long long)json_integer_value(json_object_get(row, "step")),
         json_number_value(json_object_get(row, "eval_loss")));
  for (size_t q = 0; q < json_array_size(quantiles); q++) {
    const json_t *value = json_array_get(quantiles, q);
    if (json_is_number(value))
      printf(" %.4g", json_number_value(value));
    else
      printf(" -");
  }
  if (json_is_number(means)) printf("; running means: loss %.5g", json_number_value(means));
  printf("\n");
}

dp_status cli_run_print_text(const cli_run_told *told, dp_error *error) {
  char a[32], b[32];
  const size_t count = told->log->losses.count, part = count < 20 ? (count + 1) / 2 : 10;
  (void)error;
  printf("%s: %lld step%s", told->name, (long long)told->steps, told->steps == 1 ? "" : "s");
  if (told->first_step) printf(", %lld of them before", (long long)told->first_step);
  if (count)
    printf(", loss %.4g in the first %zu, %.4g in the last %zu", mean_loss(told->log, 0, part), part,
           mean_loss(told->log, count - part, count), part);
  printf("\n");
  if (told->report) {
    const plan_metrics *p = told->predicted->run.metrics, *m = &told->report->metrics;
    printf("  step      %s measured, %s predicted (%+.1f %%)\n", dp_format_seconds(m->step_s, a),
           dp_format_seconds(p->step_s, b), 100 * ratio(p->step_s, m->step_s));
    printf("  bubbles   %.1f %% measured, %.1f %% predicted\n", 100 * m->bubble_ratio, 100 * p->bubble_ratio);
    printf("  samples   %.4g/s measured, %.4g/s predicted\n", m->throughput_samples_per_s, p->throughput_samples_per_s);
    printf("  memory    %s at most, %s predicted for %d workers, the largest %s\n",
           dp_format_bytes(taken_bytes(told->report), a),
           dp_format_bytes((double)sum_of_peaks(told->predicted->run.memory), b), m->worker_count,
           dp_format_bytes((double)largest_peak(told->predicted->run.memory), (char[32]){0}));
  }
  const size_t evaluations = json_array_size(told->log->evaluations);
  if (evaluations) print_evaluation(json_array_get(told->log->evaluations, evaluations - 1));
  if (told->checkpoint[0]) printf("checkpoint: %s\n", told->checkpoint);
  return DP_OK;
}
