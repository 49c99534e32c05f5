#include <math.h>
#include <string.h>

#include "reports/plots.h"
#include "reports/table.h"

/* Families of bounds by a word in their name; the first row that matches. */
static const struct {
  const char *word;
  unsigned rgb;
} families[] = {{"slowed", 0xe69f00}, {"compute", 0x0072b2},       {"optimizer", 0xcc79a7}, {"host", 0x882255},
                {"bubble", 0x9aa0a6}, {"communication", 0xd55e00}, {"", 0x009e73}};

static unsigned colour_of(const char *name) {
  size_t f = 0;
  while (!strstr(name, families[f].word)) f++;
  return families[f].rgb;
}

dp_status report_plot_bounds(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                             dp_error *error) {
  const report_run *run = source->run;
  enum { BAR_PX = 30 };
  dp_arena arena = {0};
  double most = 0;
  size->height_px = BAR_PX * (run->bound_count ? run->bound_count : 1) + 10;
  size->left_px = 260;
  size->bottom_px = 50;
  fprintf(data, "# name\tshare_percent\ty\trgb\tlabel\n");
  dp_str_add(body, "set ytics ()\n");
  for (int b = 0; b < run->bound_count; b++) {
    const double percent = 100 * run->bounds[b].share;
    const char *name = report_text_clean(&arena, run->bounds[b].name);
    if (!name) {
      dp_arena_free(&arena);
      return dp_fail_memory(error);
    }
    fprintf(data, "%s\t%.6f\t%d\t%u\t%.1f %%\n", name, percent, b, colour_of(name), percent);
    dp_str_add(body, "set ytics add (");
    report_plot_quote(name, body);
    dp_str_addf(body, " %d)\n", b);
    most = fmax(most, percent);
  }
  dp_arena_free(&arena);
  if (run->bound_count == 0) fprintf(data, "\t0\t0\t0\t\n");
  dp_str title = {0};
  dp_str_addf(&title, "%.70s: what bounds the step", run->name);
  report_plot_title(dp_str_text(&title), "shares of all workers' time", body);
  if (title.failed) body->failed = true;
  dp_str_free(&title);
  dp_str_addf(body, "set xrange [0:%.6f]\nset yrange [%.1f:-0.6]\nset border 2\nset tics out\n",
              most > 0 ? most * 1.1 : 1, (run->bound_count ? run->bound_count : 1) - 0.4);
  dp_str_add(body,
             "unset key\nset ytics scale 0\nset xtics\nset xlabel '% of workers × step time' offset 0,0.6 textcolor "
             "rgb '" REPORT_INK "'\nset grid xtics lt 1 lw 0.5 lc rgb '" REPORT_GRID "'\n");
  dp_str_add(body,
             "plot data using ($2/2):3:(0):2:($3-0.34):($3+0.34):4 with boxxyerror fillstyle solid 1.0 noborder lc rgb "
             "variable"
             " notitle, \\\n  data using 2:3:5 with labels left offset 0.6,0 font ',12' textcolor rgb '" REPORT_INK
             "' notitle\n");
  return DP_OK;
}
