/* What a training run logs, step by step: loss, and samples a second; and two runs' losses together. Half the page
 * wide. */
#include <math.h>

#include "base/file.h"
#include "reports/plots.h"

enum { MOST_POINTS = 500, SMOOTH_PARTS = 25 };

typedef double (*reading)(const report_log_row *row);

static double loss_of(const report_log_row *row) { return row->loss; }
static double rate_of(const report_log_row *row) { return row->samples_per_s; }

static bool has(const report_plot_source *source, reading read) {
  const report_log *log = source->log;
  int count = 0;
  for (size_t i = 0; log && i < log->rows.count && count < 2; i++) count += isfinite(read(&log->rows.items[i]));
  return count > 1;
}
bool report_plot_has_loss(const report_plot_source *source) { return has(source, loss_of); }
bool report_plot_has_rate(const report_plot_source *source) { return has(source, rate_of); }

typedef struct bounds {
  double least, most;
} bounds;

static void widen(bounds *b, double value) {
  if (!isfinite(value)) return;
  b->least = fmin(b->least, value);
  b->most = fmax(b->most, value);
}

/* Means of equal runs of steps, at most MOST_POINTS, and beside each the mean of the last `window` of the run's
 * readings. */
static bounds write_points(const report_log *log, reading read, size_t window, FILE *data) {
  bounds found = {INFINITY, -INFINITY};
  const size_t rows = log->rows.count, bins = rows < MOST_POINTS ? rows : MOST_POINTS;
  double sum = 0;
  size_t in_window = 0, oldest = 0, next = 0;
  for (size_t b = 0; b < bins; b++) {
    double step = 0, value = 0;
    size_t count = 0;
    for (; next < (b + 1) * rows / bins; next++) {
      const double one = read(&log->rows.items[next]);
      if (!isfinite(one)) continue;
      value += one;
      step += (double)log->rows.items[next].step;
      count++;
      sum += one;
      in_window++;
      for (; in_window > window; oldest++) {
        const double old = read(&log->rows.items[oldest]);
        if (!isfinite(old)) continue;
        sum -= old;
        in_window--;
      }
    }
    if (!count) continue;
    fprintf(data, "%.1f\t%.9g\t%.9g\n", step / (double)count, value / (double)count, sum / (double)in_window);
    widen(&found, value / (double)count);
    widen(&found, sum / (double)in_window);
  }
  return found;
}

static size_t window_of(const report_log *log) {
  const size_t window = log->rows.count / SMOOTH_PARTS;
  return window < 5 ? 5 : window;
}

/* From 0, or over powers of ten where small values would lie on the axis. */
static void set_range(bounds found, bool from_zero, dp_str *body) {
  if (!from_zero && found.least > 0 && found.most > 30 * found.least) {
    dp_str_addf(body, "set logscale y\nset yrange [%.9g:%.9g]\nset ytics\n", found.least / 1.2, found.most * 1.2);
    return;
  }
  const double low = from_zero || found.least > 0 ? 0 : found.least, span = found.most - low;
  dp_str_addf(body, "set yrange [%.9g:%.9g]\nset ytics\n", low - (low < 0 ? 0.06 * span : 0),
              low + (span > 0 ? span : 1) * 1.1);
}

static double first_step(const report_log *log) { return (double)log->rows.items[0].step; }
static double last_step(const report_log *log) { return (double)log->rows.items[log->rows.count - 1].step; }

static void set_steps(double first, double last, dp_str *body) {
  dp_str_addf(body, "set xrange [%.9g:%.9g]\nset xtics\n", first, last > first ? last : first + 1);
}

/* Frees the subtitle. */
static void begin(report_plot_size *size, const char *title, dp_str *subtitle, dp_str *body) {
  report_plot_half(size, title, dp_str_text(subtitle), "step", body);
  if (subtitle->failed) body->failed = true;
  dp_str_free(subtitle);
}

dp_status report_plot_loss(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                           dp_error *error) {
  const report_log *log = source->log;
  const size_t window = window_of(log);
  dp_str subtitle = {0};
  (void)error;
  fprintf(data, "# step\tloss\tmean\n");
  bounds found = write_points(log, loss_of, window, data);
  fprintf(data, "\n\n# step\tevaluation_loss\n");
  int evaluations = 0;
  for (size_t i = 0; i < log->evaluations.count; i++) {
    const report_log_evaluation *one = &log->evaluations.items[i];
    if (!isfinite(one->loss)) continue;
    fprintf(data, "%lld\t%.9g\n", (long long)one->step, one->loss);
    widen(&found, one->loss);
    evaluations++;
  }
  dp_str_addf(&subtitle, "grey: each step; blue: mean of the last %zu%s", window,
              evaluations ? "; points: evaluations" : "");
  begin(size, "Loss", &subtitle, body);
  set_range(found, false, body);
  set_steps(first_step(log), last_step(log), body);
  dp_str_add(body,
             "plot data index 0 using 1:2 with lines lw 1 lc rgb '#9aa0a6' notitle, \\\n"
             "  data index 0 using 1:3 with lines lw 2.5 lc rgb '#0072b2' notitle");
  if (evaluations) dp_str_add(body, ", \\\n  data index 1 using 1:2 with points pt 7 ps 0.7 lc rgb '#d55e00' notitle");
  dp_str_add(body, "\n");
  return DP_OK;
}

dp_status report_plot_rate(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                           dp_error *error) {
  const report_log *log = source->log;
  const double predicted = source->predicted ? source->predicted->metrics->throughput_samples_per_s : 0;
  const size_t window = window_of(log);
  dp_str subtitle = {0};
  (void)error;
  fprintf(data, "# step\tsamples_per_s\tmean\n");
  bounds found = write_points(log, rate_of, window, data);
  widen(&found, predicted > 0 ? predicted : NAN);
  dp_str_addf(&subtitle, "samples/s; grey: each step; blue: mean of the last %zu%s", window,
              predicted > 0 ? "; dashed: predicted" : "");
  begin(size, "Throughput", &subtitle, body);
  set_range(found, true, body);
  set_steps(first_step(log), last_step(log), body);
  dp_str_add(body,
             "plot data using 1:2 with lines lw 1 lc rgb '#9aa0a6' notitle, \\\n"
             "  data using 1:3 with lines lw 2.5 lc rgb '#0072b2' notitle");
  if (predicted > 0) dp_str_addf(body, ", \\\n  %.9g with lines lw 1.5 dashtype 2 lc rgb '#d55e00' notitle", predicted);
  dp_str_add(body, "\n");
  return DP_OK;
}

/* ---- two runs ---- */

typedef struct two_logs {
  const char *names[2];
  report_log logs[2];
} two_logs;

static dp_status plot_two(const void *figures, FILE *data, dp_str *body, report_plot_size *size, dp_error *error) {
  const two_logs *two = figures;
  bounds found = {INFINITY, -INFINITY};
  double first = INFINITY, last = -INFINITY;
  dp_str subtitle = {0};
  (void)error;
  for (int i = 0; i < 2; i++) {
    const report_log *log = &two->logs[i];
    fprintf(data, "%s# %s\n# step\tloss\tmean\n", i ? "\n\n" : "", two->names[i]);
    const bounds one = write_points(log, loss_of, window_of(log), data);
    widen(&found, one.least);
    widen(&found, one.most);
    first = fmin(first, first_step(log));
    last = fmax(last, last_step(log));
  }
  dp_str_addf(&subtitle, "blue: %s; orange: %s", two->names[0], two->names[1]);
  begin(size, "Loss", &subtitle, body);
  set_range(found, false, body);
  set_steps(first, last, body);
  dp_str_add(body,
             "plot data index 0 using 1:2 with lines lw 1 lc rgb '#a6cbe3' notitle, \\\n"
             "  data index 1 using 1:2 with lines lw 1 lc rgb '#f2c7a5' notitle, \\\n"
             "  data index 0 using 1:3 with lines lw 2.5 lc rgb '#0072b2' notitle, \\\n"
             "  data index 1 using 1:3 with lines lw 2.5 lc rgb '#d55e00' notitle\n");
  return DP_OK;
}

static dp_status read_log(const char *folder, report_log *log, dp_error *error) {
  dp_str path = {0};
  dp_str_addf(&path, "%s/log.jsonl", folder);
  dp_status status = path.failed ? dp_fail_memory(error) : report_log_read(dp_str_text(&path), log, error);
  if (status == DP_OK && !has(&(report_plot_source){.log = log}, loss_of)) {
    status = dp_fail(error, DP_BAD_INPUT, "%s: found fewer than two steps with a loss, allowed: two or more",
                     dp_str_text(&path));
    report_log_free(log);
  }
  dp_str_free(&path);
  return status;
}

dp_status report_losses_write(const char *first, const char *second, const char *folder, const char *gnuplot,
                              dp_str *notes, dp_error *error) {
  two_logs two = {.names = {first, second}};
  dp_str plots = {0};
  DP_TRY(read_log(first, &two.logs[0], error));
  dp_status status = read_log(second, &two.logs[1], error);
  if (status != DP_OK) {
    report_log_free(&two.logs[0]);
    return status;
  }
  dp_str_addf(&plots, "%s/plots", folder);
  status = plots.failed ? dp_fail_memory(error) : dp_folder_make(dp_str_text(&plots), error);
  if (status == DP_OK) {
    report_plotting plotting = {folder, gnuplot, notes};
    report_plot_remove("losses", false, folder);
    status = report_plot_make(&plotting, "losses", plot_two, &two, error);
  }
  dp_str_free(&plots);
  for (int i = 0; i < 2; i++) report_log_free(&two.logs[i]);
  return status;
}
