/* Plots of a search: the Pareto front, and the studies over devices, batch and K. Half the page wide. */
#include <math.h>

#include "reports/plots.h"
#include "reports/read.h"

enum { HALF_WIDTH = 580, HEIGHT = 250 };

static const dp_node *study(const report_plot_source *source, const char *name) {
  return report_node_list(dp_node_get(source->tune, "studies"), name);
}

bool report_plot_has_front(const report_plot_source *source) {
  const dp_node *front = report_node_list(source->tune, "front");
  return front && front->count > 1;
}
bool report_plot_has_devices(const report_plot_source *source) {
  const dp_node *list = study(source, "devices");
  return list && list->count > 1;
}
bool report_plot_has_batch(const report_plot_source *source) {
  const dp_node *list = study(source, "batch");
  return list && list->count > 1;
}
bool report_plot_has_k(const report_plot_source *source) {
  const dp_node *list = study(source, "k");
  return list && list->count > 1;
}

void report_plot_half(report_plot_size *size, const char *title, const char *subtitle, const char *xlabel,
                      dp_str *body) {
  size->width_px = HALF_WIDTH;
  size->height_px = HEIGHT;
  size->left_px = 64;
  size->bottom_px = 50;
  report_plot_title(title, subtitle, body);
  dp_str_add(body, "set border 3\nset tics out\nunset key\nset xlabel ");
  report_plot_quote(xlabel, body);
  dp_str_add(body,
             " offset 0,0.6 textcolor rgb '" REPORT_INK "'\nset grid ytics lt 1 lw 0.5 lc rgb '" REPORT_GRID "'\n");
}

static double span(double value) { return value > 0 ? value : 1; }

dp_status report_plot_front(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                            dp_error *error) {
  const dp_node *front = report_node_list(source->tune, "front");
  double most_gb = 0, least_gb = INFINITY, most = 0, least = INFINITY;
  (void)error;
  fprintf(data, "# plan\tpeak_gb\tsamples_per_s\trgb\n");
  for (size_t i = 0; front && i < front->count; i++) {
    const double gb = report_node_real(front->items[i], "peak_memory_bytes") / 1e9,
                 rate = report_node_real(front->items[i], "throughput_samples_per_s");
    fprintf(data, "%zu\t%.6f\t%.9g\t%u\n", i + 1, gb, rate, i == 0 ? 0x1a7f4bu : 0x0072b2u);
    most_gb = fmax(most_gb, gb);
    least_gb = fmin(least_gb, gb);
    most = fmax(most, rate);
    least = fmin(least, rate);
  }
  report_plot_half(size, "Throughput against memory", "samples/s; numbers are those of the table, 1 is the fastest",
                   "GB on the fullest worker (1e9 bytes)", body);
  const double x_pad = 0.06 * span(most_gb - least_gb), y_pad = 0.12 * span(most - least);
  dp_str_addf(body, "set xrange [%.9g:%.9g]\nset yrange [%.9g:%.9g]\nset xtics\nset ytics\n",
              fmax(0, (isfinite(least_gb) ? least_gb : 0) - x_pad), most_gb + x_pad,
              fmax(0, (isfinite(least) ? least : 0) - y_pad), most + y_pad);
  dp_str_add(body,
             "plot data using 2:3 with lines lw 1.5 lc rgb '#9aa0a6' notitle, \\\n"
             "  data using 2:3:4 with points pt 7 ps 0.8 lc rgb variable notitle, \\\n"
             "  data using 2:3:1 with labels offset 0.9,-0.6 font ',11' textcolor rgb '" REPORT_INK "' notitle\n");
  return DP_OK;
}

/* Throughput over a study's points, from 0; points that do not fit stand on the axis. `key` names the points; `apart`:
 * at even distances, else where their value is. `ideal`: the line of the first point's rate in proportion. */
static void write_rates(const dp_node *list, const char *key, bool apart, bool ideal, FILE *data, dp_str *body) {
  double most = 0, last = 0, unit = 0;
  fprintf(data, "# %s\tx\tsamples_per_s\tfits\tlabel\n", key);
  dp_str_add(body, "set xtics ()\n");
  for (size_t i = 0; list && i < list->count; i++) {
    const double value = report_node_real(list->items[i], key), x = apart ? (double)i : value;
    const bool fits = report_node_true(list->items[i], "fits");
    const double rate = fits ? report_node_real(list->items[i], "throughput_samples_per_s") : 0;
    fprintf(data, "%.0f\t%.6f\t%.9g\t%d\t%.4g\n", value, x, rate, fits, rate);
    dp_str_addf(body, "set xtics add ('%.0f' %.6f)\n", value, x);
    if (fits && unit <= 0 && value > 0) unit = rate / value;
    most = fmax(most, rate);
    last = fmax(last, x);
  }
  if (ideal) most = fmax(most, unit * last);
  dp_str_addf(body, "set xrange [%.6f:%.6f]\nset yrange [0:%.9g]\nset ytics\n", apart ? -0.4 : 0,
              last + (apart ? 0.4 : 0.06 * last), span(most) * 1.12);
  dp_str_add(body, "plot ");
  if (ideal)
    dp_str_addf(body, "[0:%.6f] %.9g*x with lines lw 1.5 dashtype 2 lc rgb '#9aa0a6' notitle, \\\n  ", last, unit);
  dp_str_add(body,
             "data using ($4==1?$2:NaN):3 with linespoints lw 2 pt 7 ps 0.8 lc rgb '#0072b2' notitle, \\\n"
             "  data using ($4==1?$2:NaN):3:5 with labels offset 0,0.9 font ',11' textcolor rgb '" REPORT_INK
             "' notitle, \\\n  data using ($4==0?$2:NaN):(0) with points pt 2 ps 1.2 lw 2 lc rgb '#d93025' notitle\n");
}

dp_status report_plot_devices(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                              dp_error *error) {
  (void)error;
  report_plot_half(size, "Scaling with devices",
                   "samples/s of the best plan; dashed: in proportion; a cross: nothing fits",
                   "devices that may be used", body);
  write_rates(study(source, "devices"), "devices", false, true, data, body);
  return DP_OK;
}

dp_status report_plot_batch(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                            dp_error *error) {
  (void)error;
  report_plot_half(size, "Scaling with the batch", "samples/s of the best plan; a cross: nothing fits",
                   "samples in a step", body);
  write_rates(study(source, "batch"), "global_batch", true, false, data, body);
  return DP_OK;
}

dp_status report_plot_k(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                        dp_error *error) {
  const dp_node *list = study(source, "k");
  double most = 0;
  (void)error;
  report_plot_half(size, "Skips compressed to K values", "GB of skips a step; above the bars the step",
                   "K, values a sample and skip", body);
  fprintf(data, "# k\tx\tskip_gb\tstep_s\tlabel\n");
  dp_str_add(body, "set xtics ()\n");
  for (size_t i = 0; list && i < list->count; i++) {
    char step[32];
    const long long k = (long long)report_node_integer(list->items[i], "k");
    const double gb = report_node_real(list->items[i], "skip_bytes") / 1e9,
                 step_s = report_node_real(list->items[i], "step_s");
    fprintf(data, "%lld\t%zu\t%.6f\t%.9g\t%s\n", k, i, gb, step_s, dp_format_seconds(step_s, step));
    if (k)
      dp_str_addf(body, "set xtics add ('%lld' %zu)\n", k, i);
    else
      dp_str_addf(body, "set xtics add ('exact' %zu)\n", i);
    most = fmax(most, gb);
  }
  dp_str_addf(body, "set xrange [-0.6:%.1f]\nset yrange [0:%.9g]\nset ytics\nset boxwidth 0.6\n",
              list ? (double)list->count - 0.4 : 1, span(most) * 1.15);
  dp_str_add(body,
             "plot data using 2:3 with boxes fillstyle solid 1.0 noborder lc rgb '#d55e00' notitle, \\\n"
             "  data using 2:3:5 with labels offset 0,0.7 font ',11' textcolor rgb '" REPORT_INK "' notitle\n");
  return DP_OK;
}
