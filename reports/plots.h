/* Plots by gnuplot: each is a table of figures and a script, kept beside each other so that anyone can draw them again.
 *
 * A plot writes its figures as tab separated values, a comment line first, and the script's middle part; the frame
 * around it (terminals, files, margins) is the same for all. Positions are computed here and not by gnuplot, so that
 * what fits and what is cut is known.
 */
#ifndef DP_REPORTS_PLOTS_H
#define DP_REPORTS_PLOTS_H

#include <stdio.h>

#include "base/node.h"
#include "reports/log.h"
#include "reports/report.h"

/* The frame, in pixels of the SVG (the PNG has twice as many). */
enum { REPORT_PLOT_WIDTH = 1200, REPORT_PLOT_RIGHT = 24, REPORT_PLOT_TOP = 72 };
typedef struct report_plot_size {
  int width_px;           /* of the whole picture; 0: REPORT_PLOT_WIDTH */
  int height_px;          /* of the drawing area */
  int left_px, bottom_px; /* margins; the legend stands in the lower one */
} report_plot_size;

/* Ink for text and axes, ground and grid: no other colour of a plot equals them, so that a page can put its own there.
 */
#define REPORT_INK "#202124"
#define REPORT_BAND "#eceef1" /* the ground of a row */
#define REPORT_GRID "#c4c7cc"
#define REPORT_INK_SVG_TEXT "rgb(32,33,36)"
#define REPORT_INK_SVG_LINE "rgb( 32,  33,  36)"
#define REPORT_BAND_SVG "fill = 'rgb(236, 238, 241)'"
#define REPORT_GRID_SVG "stroke='rgb(196, 199, 204)'"

/* What is drawn from. */
typedef struct report_plot_source {
  const report_run *run;
  const dp_node *tune;         /* root of tune.json, or NULL */
  const report_run *predicted; /* what was predicted of a measured run, or NULL */
  const report_log *log;       /* of a measured run, or NULL */
} report_plot_source;

typedef struct report_plot {
  const char *name;    /* of its files */
  const char *caption; /* what a reader sees, for the page */
  bool wide;           /* needs the whole width of the page */
  bool grows;          /* what it draws is read from a file that a run goes on writing: drawn anew each time */
  /* Whether the source has what it draws. */
  bool (*wanted)(const report_plot_source *source);
  /* Writes the figures to `data` and the script's middle to `body`, and says how large the plot is. */
  dp_status (*write)(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                     dp_error *error);
} report_plot;

enum {
  REPORT_PLOT_TIMELINE,
  REPORT_PLOT_MEMORY,
  REPORT_PLOT_BOUNDS,
  REPORT_PLOT_FRONT,
  REPORT_PLOT_DEVICES,
  REPORT_PLOT_BATCH,
  REPORT_PLOT_K,
  REPORT_PLOT_COMPARED,
  REPORT_PLOT_LOSS,
  REPORT_PLOT_RATE,
  REPORT_PLOT_COUNT
};
extern const report_plot report_plots[REPORT_PLOT_COUNT];

dp_status report_plot_timeline(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                               dp_error *error);
dp_status report_plot_memory(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                             dp_error *error);
dp_status report_plot_bounds(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                             dp_error *error);

dp_status report_plot_front(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                            dp_error *error);
dp_status report_plot_devices(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                              dp_error *error);
dp_status report_plot_batch(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                            dp_error *error);
dp_status report_plot_k(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                        dp_error *error);
dp_status report_plot_compared(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                               dp_error *error);
dp_status report_plot_loss(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                           dp_error *error);
dp_status report_plot_rate(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                           dp_error *error);
bool report_plot_has_compared(const report_plot_source *source);
bool report_plot_has_loss(const report_plot_source *source);
bool report_plot_has_rate(const report_plot_source *source);
bool report_plot_has_front(const report_plot_source *source);
bool report_plot_has_devices(const report_plot_source *source);
bool report_plot_has_batch(const report_plot_source *source);
bool report_plot_has_k(const report_plot_source *source);

/* Writes plots/NAME.tsv, plots/NAME.gp and, when gnuplot runs, NAME.svg and NAME.png of every plot that is wanted, and
 * removes what an earlier run left of the others; `missing_only`: of those that have no NAME.svg or grow, and nothing
 * is removed. A gnuplot that is missing or fails is no error: `notes` gets a line. */
dp_status report_plots_write(const report_plot_source *source, const char *folder, const char *gnuplot,
                             bool missing_only, dp_str *notes, dp_error *error);

/* Where plots go, and what draws them. */
typedef struct report_plotting {
  const char *folder;
  const char *gnuplot; /* NULL: sources alone. Becomes NULL, and `notes` gets a line, when it cannot be run or fails:
                        * once is enough, the sources of the others are still written */
  dp_str *notes;
} report_plotting;

/* One plot of whatever figures: plots/NAME.tsv and plots/NAME.gp, and NAME.svg and NAME.png where gnuplot draws. */
typedef dp_status (*report_plot_writer)(const void *figures, FILE *data, dp_str *body, report_plot_size *size,
                                        dp_error *error);
dp_status report_plot_make(report_plotting *plotting, const char *name, report_plot_writer write, const void *figures,
                           dp_error *error);
/* Removes the pictures of a plot, and its sources too. */
void report_plot_remove(const char *name, bool sources, const char *folder);

/* gnuplot: appends 'text' with its quotes doubled, the one escape inside single quotes. */
void report_plot_quote(const char *text, dp_str *out);
/* The two lines above a plot; the texts are cleaned. */
void report_plot_title(const char *title, const char *subtitle, dp_str *body);
/* Half the page wide: frame, titles, what the axis below is; no legend, and the range is the caller's. */
void report_plot_half(report_plot_size *size, const char *title, const char *subtitle, const char *xlabel,
                      dp_str *body);
/* The largest of 1, 2, 5 times a power of ten that is at most `most` (> 0). */
double report_plot_nice(double most);
/* "#rrggbb" */
const char *report_plot_colour(unsigned rgb, char out[8]);

/* Runs `gnuplot script` with data, svg and png set; DP_UNSUPPORTED with gnuplot's first words when it cannot or fails.
 */
dp_status report_gnuplot_run(const char *gnuplot, const char *script, const char *data, const char *svg,
                             const char *png, dp_error *error);

#endif
