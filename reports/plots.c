#define _POSIX_C_SOURCE 200809L
#include "reports/plots.h"

#include <math.h>
#include <unistd.h>

#include "base/file.h"
#include "base/progress.h"
#include "reports/table.h"

static bool has_instructions(const report_plot_source *source) { return source->run->program->instructions != NULL; }
static bool always(const report_plot_source *source) {
  (void)source;
  return true;
}

const report_plot report_plots[REPORT_PLOT_COUNT] = {
    [REPORT_PLOT_TIMELINE] = {"timeline",
                              "When each worker computes and transfers; numbers are microbatches, gaps are bubbles.",
                              true, false, has_instructions, report_plot_timeline},
    [REPORT_PLOT_MEMORY] = {"memory", "Peak memory of each worker by class, against what its device has.", true, false,
                            always, report_plot_memory},
    [REPORT_PLOT_BOUNDS] = {"bounds", "What all workers' time goes to.", true, false, always, report_plot_bounds},
    [REPORT_PLOT_FRONT] = {"front", "The Pareto front: each point is a plan of the table.", false, false,
                           report_plot_has_front, report_plot_front},
    [REPORT_PLOT_DEVICES] = {"devices", "Throughput against the devices that may be used.", false, false,
                             report_plot_has_devices, report_plot_devices},
    [REPORT_PLOT_BATCH] = {"batch", "Throughput against the global batch.", false, false, report_plot_has_batch,
                           report_plot_batch},
    [REPORT_PLOT_K] = {"k", "Skip traffic of a step against K.", false, false, report_plot_has_k, report_plot_k},
    [REPORT_PLOT_COMPARED] = {"compared", "The step as it was predicted, and as it was measured, on one time axis.",
                              true, false, report_plot_has_compared, report_plot_compared},
    [REPORT_PLOT_LOSS] = {"loss", "Loss by step.", false, true, report_plot_has_loss, report_plot_loss},
    [REPORT_PLOT_RATE] = {"rate", "Samples a second by step.", false, true, report_plot_has_rate, report_plot_rate},
};

void report_plot_quote(const char *text, dp_str *out) {
  dp_str_add(out, "'");
  for (; *text; text++) {
    if (*text == '\'') dp_str_add(out, "'");
    dp_str_add_bytes(out, text, 1);
  }
  dp_str_add(out, "'");
}

void report_plot_title(const char *title, const char *subtitle, dp_str *body) {
  static const char *const places[] = {
      "set label 1 %s at graph 0, screen 1 offset 0,-1.4 left font ',16' textcolor rgb '" REPORT_INK "'\n",
      "set label 2 %s at graph 0, screen 1 offset 0,-2.9 left font ',12' textcolor rgb '" REPORT_INK "'\n"};
  dp_arena arena = {0};
  const char *const texts[] = {title, subtitle};
  for (int i = 0; i < 2; i++) {
    const char *clean = report_text_clean(&arena, texts[i]);
    dp_str quoted = {0};
    if (clean) report_plot_quote(clean, &quoted);
    dp_str_addf(body, places[i], dp_str_text(&quoted));
    if (!clean || quoted.failed) body->failed = true;
    dp_str_free(&quoted);
  }
  dp_arena_free(&arena);
}

double report_plot_nice(double most) {
  const double power = pow(10, floor(log10(most)));
  const double ratio = most / power * (1 + 1e-12);
  return (ratio >= 5 ? 5 : ratio >= 2 ? 2 : 1) * power;
}

const char *report_plot_colour(unsigned rgb, char out[8]) {
  (void)snprintf(out, 8, "#%06x", rgb & 0xffffffu);
  return out;
}

/* The whole script: gnuplot run by hand in plots/ finds its files beside it. */
static void frame(const char *name, const report_plot_size *size, const char *body, FILE *out) {
  const int width = size->width_px ? size->width_px : REPORT_PLOT_WIDTH;
  const int height = size->height_px + REPORT_PLOT_TOP + size->bottom_px;
  fprintf(out, "# Written by diffpipe. Draw again, in this folder: gnuplot %s.gp\n", name);
  fprintf(out, "if (!exists('data')) data = '%s.tsv'\n", name);
  fprintf(out, "if (!exists('svg')) svg = '../%s.svg'\n", name);
  fprintf(out, "if (!exists('png')) png = '../%s.png'\n", name);
  fprintf(out, "set encoding utf8\nset datafile separator '\\t'\n");
  fprintf(out, "set lmargin at screen %.6f\nset rmargin at screen %.6f\n", (double)size->left_px / width,
          1 - (double)REPORT_PLOT_RIGHT / width);
  fprintf(out, "set tmargin at screen %.6f\nset bmargin at screen %.6f\n", 1 - (double)REPORT_PLOT_TOP / height,
          (double)size->bottom_px / height);
  fprintf(out,
          "set key at screen %.6f, screen 0.012 left bottom horizontal Left reverse samplen 1.2 spacing 1.1 textcolor "
          "rgb '%s'\n",
          (double)size->left_px / width - 0.01, REPORT_INK);
  fprintf(out, "set tics nomirror scale 0.4 textcolor rgb '%s'\nset border lc rgb '%s'\n", REPORT_INK, REPORT_INK);
  fprintf(
      out,
      "set terminal svg noenhanced size %d,%d dynamic font 'sans-serif,12' background '#ffffff' name 'diffpipe_%s'\n",
      width, height, name);
  fprintf(out, "set output svg\n%s", body);
  fprintf(
      out,
      "set terminal pngcairo noenhanced size %d,%d font 'sans-serif,12' fontscale 2 linewidth 2 background '#ffffff'\n",
      2 * width, 2 * height);
  fprintf(out, "set output png\nreplot\nunset output\n");
}

static dp_status write_sources(const char *name, report_plot_writer write, const void *figures, const char *data_path,
                               const char *script_path, dp_error *error) {
  dp_output data, script;
  dp_str body = {0};
  report_plot_size size = {0};
  DP_TRY(dp_output_open(data_path, &data, error));
  dp_status status = write(figures, data.stream, &body, &size, error);
  if (status == DP_OK && body.failed) status = dp_fail_memory(error);
  if (status == DP_OK)
    status = dp_output_commit(&data, error);
  else
    dp_output_abandon(&data);
  if (status == DP_OK) status = dp_output_open(script_path, &script, error);
  if (status == DP_OK) {
    frame(name, &size, dp_str_text(&body), script.stream);
    status = dp_output_commit(&script, error);
  }
  dp_str_free(&body);
  return status;
}

/* gnuplot opens its output by name, so the temporaries of dp_output are handed to it, and renamed once it has ended. */
static dp_status draw(const char *gnuplot, const char *script, const char *data, const char *svg_path,
                      const char *png_path, dp_error *error) {
  dp_output svg, png;
  DP_TRY(dp_output_open(svg_path, &svg, error));
  dp_status status = dp_output_open(png_path, &png, error);
  if (status != DP_OK) {
    dp_output_abandon(&svg);
    return status;
  }
  status = report_gnuplot_run(gnuplot, script, data, svg.temporary, png.temporary, error);
  if (status == DP_OK) {
    status = dp_output_commit(&svg, error);
    if (status == DP_OK) return dp_output_commit(&png, error);
  } else {
    dp_output_abandon(&svg);
  }
  dp_output_abandon(&png);
  return status;
}

static dp_status make(const report_plotting *plotting, const char *name, report_plot_writer write, const void *figures,
                      dp_error *error) {
  const char *folder = plotting->folder;
  dp_arena arena = {0};
  const char *data = dp_arena_printf(&arena, "%s/plots/%s.tsv", folder, name);
  const char *script = dp_arena_printf(&arena, "%s/plots/%s.gp", folder, name);
  const char *svg = dp_arena_printf(&arena, "%s/%s.svg", folder, name);
  const char *png = dp_arena_printf(&arena, "%s/%s.png", folder, name);
  dp_status status = data && script && svg && png ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) status = write_sources(name, write, figures, data, script, error);
  if (status == DP_OK && plotting->gnuplot) status = draw(plotting->gnuplot, script, data, svg, png, error);
  dp_arena_free(&arena);
  return status;
}

dp_status report_plot_make(report_plotting *plotting, const char *name, report_plot_writer write, const void *figures,
                           dp_error *error) {
  dp_error trouble = DP_ERROR_INIT;
  const dp_status status = make(plotting, name, write, figures, &trouble);
  if (status == DP_UNSUPPORTED) {
    dp_str_addf(plotting->notes, "no plots: %s; the figures are in %s/plots\n", trouble.text, plotting->folder);
    plotting->gnuplot = NULL;
    return DP_OK;
  }
  return status == DP_OK ? DP_OK : dp_fail(error, status, "%s", trouble.text);
}

/* A plot of the table and what it is drawn from. */
typedef struct table_plot {
  const report_plot *plot;
  const report_plot_source *source;
} table_plot;

static dp_status write_table_plot(const void *figures, FILE *data, dp_str *body, report_plot_size *size,
                                  dp_error *error) {
  const table_plot *from = figures;
  return from->plot->write(from->source, data, body, size, error);
}

/* Pictures of an earlier run would lie about this one, and so would the figures of plots that it does not have. */
void report_plot_remove(const char *name, bool sources, const char *folder) {
  static const char *const files[] = {"%s/%s.svg", "%s/%s.png", "%s/plots/%s.tsv", "%s/plots/%s.gp"};
  for (int f = 0; f < (sources ? 4 : 2); f++) {
    dp_str path = {0};
    dp_str_addf(&path, files[f], folder, name);
    if (!path.failed) (void)remove(dp_str_text(&path));
    dp_str_free(&path);
  }
}

static bool is_drawn(const report_plot *plot, const char *folder) {
  dp_str path = {0};
  dp_str_addf(&path, "%s/%s.svg", folder, plot->name);
  const bool drawn = !path.failed && access(dp_str_text(&path), R_OK) == 0;
  dp_str_free(&path);
  return drawn;
}

dp_status report_plots_write(const report_plot_source *source, const char *folder, const char *gnuplot,
                             bool missing_only, dp_str *notes, dp_error *error) {
  dp_progress progress;
  report_plotting plotting = {folder, gnuplot, notes};
  dp_status status = DP_OK;
  dp_progress_begin(&progress, "plots", REPORT_PLOT_COUNT);
  for (int p = 0; p < REPORT_PLOT_COUNT && status == DP_OK; p++) {
    const report_plot *plot = &report_plots[p];
    const bool wanted = plot->wanted(source);
    if (missing_only && (!wanted || (is_drawn(plot, folder) && !plot->grows))) continue;
    if (!missing_only) report_plot_remove(plot->name, !wanted, folder);
    if (!wanted) continue;
    dp_progress_update(&progress, (uint64_t)p, plot->name);
    const table_plot from = {plot, source};
    status = report_plot_make(&plotting, plot->name, write_table_plot, &from, error);
  }
  dp_progress_end(&progress);
  if (status == DP_OK && !gnuplot)
    dp_str_addf(notes, "no plots: gnuplot was not found; the figures are in %s/plots\n", folder);
  return status;
}
