#include "reports/plots.h"

#include <math.h>

#include "base/file.h"
#include "base/progress.h"
#include "reports/table.h"

const report_plot report_plots[REPORT_PLOT_COUNT] = {
    {"timeline", "When each worker computes and transfers; numbers are microbatches, gaps are bubbles.",
     report_plot_timeline},
    {"memory", "Peak memory of each worker by class, against what its device has.", report_plot_memory},
    {"bounds", "What all workers' time goes to.", report_plot_bounds},
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
  const int height = size->height_px + REPORT_PLOT_TOP + size->bottom_px;
  fprintf(out, "# Written by diffpipe. Draw again, in this folder: gnuplot %s.gp\n", name);
  fprintf(out, "if (!exists('data')) data = '%s.tsv'\n", name);
  fprintf(out, "if (!exists('svg')) svg = '../%s.svg'\n", name);
  fprintf(out, "if (!exists('png')) png = '../%s.png'\n", name);
  fprintf(out, "set encoding utf8\nset datafile separator '\\t'\n");
  fprintf(out, "set lmargin at screen %.6f\nset rmargin at screen %.6f\n", (double)size->left_px / REPORT_PLOT_WIDTH,
          1 - (double)REPORT_PLOT_RIGHT / REPORT_PLOT_WIDTH);
  fprintf(out, "set tmargin at screen %.6f\nset bmargin at screen %.6f\n", 1 - (double)REPORT_PLOT_TOP / height,
          (double)size->bottom_px / height);
  fprintf(out,
          "set key at screen %.6f, screen 0.012 left bottom horizontal Left reverse samplen 1.2 spacing 1.1 textcolor "
          "rgb '%s'\n",
          (double)size->left_px / REPORT_PLOT_WIDTH - 0.01, REPORT_INK);
  fprintf(out, "set tics nomirror scale 0.4 textcolor rgb '%s'\nset border lc rgb '%s'\n", REPORT_INK, REPORT_INK);
  fprintf(
      out,
      "set terminal svg noenhanced size %d,%d dynamic font 'sans-serif,12' background '#ffffff' name 'diffpipe_%s'\n",
      REPORT_PLOT_WIDTH, height, name);
  fprintf(out, "set output svg\n%s", body);
  fprintf(
      out,
      "set terminal pngcairo noenhanced size %d,%d font 'sans-serif,12' fontscale 2 linewidth 2 background '#ffffff'\n",
      2 * REPORT_PLOT_WIDTH, 2 * height);
  fprintf(out, "set output png\nreplot\nunset output\n");
}

static dp_status write_sources(const report_plot *plot, const report_run *run, const char *data_path,
                               const char *script_path, dp_error *error) {
  dp_output data, script;
  dp_str body = {0};
  report_plot_size size = {0};
  DP_TRY(dp_output_open(data_path, &data, error));
  dp_status status = plot->write(run, data.stream, &body, &size, error);
  if (status == DP_OK && body.failed) status = dp_fail_memory(error);
  if (status == DP_OK)
    status = dp_output_commit(&data, error);
  else
    dp_output_abandon(&data);
  if (status == DP_OK) status = dp_output_open(script_path, &script, error);
  if (status == DP_OK) {
    frame(plot->name, &size, dp_str_text(&body), script.stream);
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

static dp_status write_plot(const report_plot *plot, const report_run *run, const char *folder, const char *gnuplot,
                            dp_error *error) {
  dp_arena arena = {0};
  const char *data = dp_arena_printf(&arena, "%s/plots/%s.tsv", folder, plot->name);
  const char *script = dp_arena_printf(&arena, "%s/plots/%s.gp", folder, plot->name);
  const char *svg = dp_arena_printf(&arena, "%s/%s.svg", folder, plot->name);
  const char *png = dp_arena_printf(&arena, "%s/%s.png", folder, plot->name);
  dp_status status = data && script && svg && png ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) status = write_sources(plot, run, data, script, error);
  if (status == DP_OK && gnuplot) status = draw(gnuplot, script, data, svg, png, error);
  dp_arena_free(&arena);
  return status;
}

/* Pictures of an earlier run would lie about this one. */
static void remove_pictures(const char *folder) {
  static const char *const endings[] = {"svg", "png"};
  for (int p = 0; p < REPORT_PLOT_COUNT; p++)
    for (int e = 0; e < 2; e++) {
      dp_str path = {0};
      dp_str_addf(&path, "%s/%s.%s", folder, report_plots[p].name, endings[e]);
      if (!path.failed) (void)remove(dp_str_text(&path));
      dp_str_free(&path);
    }
}

dp_status report_plots_write(const report_run *run, const char *folder, const report_options *options, dp_str *notes,
                             bool *drawn, dp_error *error) {
  dp_progress progress;
  const char *gnuplot = options->gnuplot;
  dp_status status = DP_OK;
  dp_progress_begin(&progress, "plots", REPORT_PLOT_COUNT);
  remove_pictures(folder);
  for (int p = 0; p < REPORT_PLOT_COUNT && status == DP_OK; p++) {
    dp_progress_update(&progress, (uint64_t)p, report_plots[p].name);
    dp_error trouble = DP_ERROR_INIT;
    status = write_plot(&report_plots[p], run, folder, gnuplot, &trouble);
    if (status == DP_UNSUPPORTED) { /* once is enough: the sources of the others are still written */
      dp_str_addf(notes, "no plots: %s; the figures are in %s/plots\n", trouble.text, folder);
      gnuplot = NULL;
      status = DP_OK;
    } else if (status != DP_OK) {
      status = dp_fail(error, status, "%s", trouble.text);
    }
  }
  dp_progress_end(&progress);
  if (status == DP_OK && !options->gnuplot)
    dp_str_addf(notes, "no plots: gnuplot was not found; the figures are in %s/plots\n", folder);
  if (status == DP_OK) *drawn = gnuplot != NULL;
  return status;
}
