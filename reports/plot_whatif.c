#define _POSIX_C_SOURCE 200809L
#include "reports/plot_whatif.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { BAR_LEFT = 190, BAR_ROW = 34, MOST_NAME = 26 };

/* Colours that differ for all kinds of sight (Okabe and Ito, "Color Universal Design"), dark enough on white. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#6b4c9a", "#7f7f7f"};
enum { COLOURS = sizeof colours / sizeof colours[0] };

static void add_tic(const char *axis, const char *name, double at, dp_str *body) {
  dp_str cut = {0};
  dp_str_addf(&cut, "%.*s", MOST_NAME, name);
  dp_str_addf(body, "set %stics add (", axis);
  report_plot_quote(dp_str_text(&cut), body);
  dp_str_addf(body, " %.6f)\n", at);
  if (cut.failed) body->failed = true;
  dp_str_free(&cut);
}

/* Rows from the top, one a cluster, with room for figures at the right of the longest bar. */
static void begin_bars(const report_whatif *w, const char *title, const char *subtitle, double most, int row_px,
                       report_plot_size *size, dp_str *body) {
  size->left_px = BAR_LEFT;
  size->height_px = row_px * w->row_count + 16;
  size->bottom_px = 44;
  report_plot_title(title, subtitle, body);
  dp_str_addf(body,
              "set border 2\nset tics out\nset grid xtics lt 1 lw 0.5 lc rgb '" REPORT_GRID
              "'\nset yrange [%d:-1] noreverse\nset xrange [0:%.9g]\nset xtics\nset ytics () scale 0\n",
              w->row_count, (most > 0 ? most : 1) * 1.12);
  for (int r = 0; r < w->row_count; r++) add_tic("y", w->rows[r].cluster, r, body);
}

static void add_bars(dp_str *body) {
  dp_str_add(body,
             "unset key\nplot data using ($2/2):1:($2/2):(0.36) with boxxyerror fillstyle solid 1.0 noborder lc rgb "
             "'#0072b2' notitle, \\\n"
             "  data using 2:1:3 with labels left offset 0.6,0 font ',11' textcolor rgb '" REPORT_INK "' notitle\n");
}

static dp_status write_throughput(const void *figures, FILE *data, dp_str *body, report_plot_size *size,
                                  dp_error *error) {
  const report_whatif *w = figures;
  double most = 0;
  (void)error;
  fprintf(data, "# row\tsamples_per_s\tlabel\tcluster\n");
  for (int r = 0; r < w->row_count; r++) {
    const report_whatif_row *row = &w->rows[r];
    if (row->fits)
      fprintf(data, "%d\t%.9g\t%.4g\t%s\n", r, row->samples_per_s, row->samples_per_s, row->cluster);
    else
      fprintf(data, "%d\t0\tdoes not fit\t%s\n", r, row->cluster);
    most = fmax(most, row->samples_per_s);
  }
  begin_bars(w, "Throughput", "samples/s of the best plan on each cluster", most, BAR_ROW, size, body);
  add_bars(body);
  return DP_OK;
}

static bool has_cost(const report_whatif *w) {
  for (int r = 0; r < w->row_count; r++)
    if (w->rows[r].usd_per_million > 0) return true;
  return false;
}

static dp_status write_cost(const void *figures, FILE *data, dp_str *body, report_plot_size *size, dp_error *error) {
  const report_whatif *w = figures;
  double most = 0;
  (void)error;
  fprintf(data, "# row\tusd_per_million_samples\tlabel\tcluster\n");
  for (int r = 0; r < w->row_count; r++) {
    const report_whatif_row *row = &w->rows[r];
    if (row->usd_per_million > 0)
      fprintf(data, "%d\t%.9g\t%.4g\t%s\n", r, row->usd_per_million, row->usd_per_million, row->cluster);
    else
      fprintf(data, "%d\t0\t%s\t%s\n", r, row->fits ? "price unknown" : "does not fit", row->cluster);
    most = fmax(most, row->usd_per_million);
  }
  begin_bars(w, "Cost", "USD of rent for a million samples", most, BAR_ROW, size, body);
  add_bars(body);
  return DP_OK;
}

static bool has_gains(const report_whatif *w) {
  for (int r = 0; r < w->row_count; r++)
    if (w->rows[r].measured) return true;
  return false;
}

static dp_status write_sensitivity(const void *figures, FILE *data, dp_str *body, report_plot_size *size,
                                   dp_error *error) {
  const report_whatif *w = figures;
  const double thick = 0.8 / w->resource_count;
  double most = 0;
  (void)error;
  for (int g = 0; g < w->resource_count; g++) {
    fprintf(data, "%s# row\tgain_percent\tcluster: %s\n", g ? "\n\n" : "", w->resources[g]);
    for (int r = 0; r < w->row_count; r++) {
      const double percent = 100 * (w->rows[r].measured ? w->rows[r].gain[g] : 0);
      fprintf(data, "%.6f\t%.6f\t%s\n", r + (g + 0.5) * thick - 0.4, percent, w->rows[r].cluster);
      most = fmax(most, percent);
    }
  }
  begin_bars(w, "What would help", "% of throughput gained by 10 % more of one thing", most,
             18 + 12 * w->resource_count, size, body);
  size->bottom_px = 88;
  dp_str_add(body, "plot ");
  for (int g = 0; g < w->resource_count; g++) {
    dp_str name = {0};
    dp_str_add(&name, w->resources[g]);
    for (size_t c = 0; !name.failed && c < name.length; c++)
      if (name.text[c] == '_') name.text[c] = ' ';
    dp_str_addf(
        body,
        "%s data index %d using ($2/2):1:($2/2):(%.4f) with boxxyerror fillstyle solid 1.0 noborder lc rgb '%s' "
        "title ",
        g ? ", \\\n " : "", g, thick * 0.45, colours[g % COLOURS]);
    report_plot_quote(dp_str_text(&name), body);
    if (name.failed) body->failed = true;
    dp_str_free(&name);
  }
  dp_str_add(body, "\n");
  return DP_OK;
}

/* ---- sweeps ---- */

/* One sweep and the clusters that it names. */
typedef struct sweep_figures {
  const report_whatif *whatif;
  const report_whatif_sweep *sweep;
} sweep_figures;

static double place(const report_whatif_sweep *sweep, int value) {
  return sweep->numeric ? sweep->points[value].number : value;
}

/* ---- where labels stand ---- */

enum { LABEL_PX = 7, LABEL_HEIGHT_PX = 15, MOST_BOXES = 64 };

/* Pixels of the drawing area, y downwards. */
typedef struct label_box {
  double left, right, top;
} label_box;

typedef struct label_room {
  double from, to, most; /* of the axes */
  bool logarithmic;
  double width_px, height_px;
  label_box boxes[MOST_BOXES];
  int count;
} label_room;

static double across(const label_room *room, double x) {
  return room->logarithmic ? log(x / room->from) / log(room->to / room->from)
                           : (x - room->from) / (room->to - room->from);
}

/* Where a label stands: beginning or ending at its point, above or below it. */
typedef enum label_side { LABEL_ABOVE, LABEL_BELOW, LABEL_ABOVE_LEFT, LABEL_BELOW_LEFT, LABEL_SIDES } label_side;

/* LABEL_SIDES: there is no room beside the other labels. */
static label_side find_side(label_room *room, double x, double y, const char *text) {
  const double at = across(room, x) * room->width_px, point = (1 - y / room->most) * room->height_px;
  const double width = LABEL_PX * (double)strlen(text);
  for (int side = 0; side < LABEL_SIDES; side++) {
    const double left = side >= LABEL_ABOVE_LEFT ? at - width : at;
    const label_box box = {left, left + width, side % 2 == 0 ? point - 20 : point + 6};
    bool is_free = box.left >= 0 && box.right <= room->width_px && box.top + LABEL_HEIGHT_PX <= room->height_px &&
                   room->count < MOST_BOXES;
    for (int i = 0; is_free && i < room->count; i++)
      is_free = box.right < room->boxes[i].left || box.left > room->boxes[i].right ||
                fabs(box.top - room->boxes[i].top) >= LABEL_HEIGHT_PX;
    if (!is_free) continue;
    room->boxes[room->count++] = box;
    return (label_side)side;
  }
  return LABEL_SIDES;
}

static double most_of(const sweep_figures *f) {
  double most = 0;
  for (int i = 0; i < f->whatif->row_count * f->sweep->value_count; i++)
    if (f->sweep->points[i].fits) most = fmax(most, f->sweep->points[i].samples_per_s);
  return most > 0 ? most : 1;
}

/* The plan stands at the first point and where it changes. */
static void write_points(const sweep_figures *f, label_room *room, FILE *data) {
  const report_whatif *w = f->whatif;
  const report_whatif_sweep *sweep = f->sweep;
  for (int r = 0; r < w->row_count; r++) {
    bool first = true;
    fprintf(data, "%s# %s\tsamples_per_s\tplan_changed\tplan\tlabel\tbelow\tat the left\tbelow: %s\n", r ? "\n\n" : "",
            sweep->key, w->rows[r].cluster);
    int written = 0;
    for (int v = 0; v < sweep->value_count; v++) {
      const report_whatif_point *point = &sweep->points[r * sweep->value_count + v];
      const double x = place(sweep, v);
      if (!point->known) continue;
      const label_side side = point->fits && (first || point->changed)
                                  ? find_side(room, x, point->samples_per_s, point->plan)
                                  : LABEL_SIDES;
      fprintf(data, "%.9g\t", x);
      if (point->fits)
        fprintf(data, "%.9g\t", point->samples_per_s);
      else
        fprintf(data, "NaN\t");
      fprintf(data, "%d\t%s", point->changed, point->plan);
      for (int l = 0; l < LABEL_SIDES; l++) fprintf(data, "\t%s", l == (int)side ? point->plan : "");
      fputc('\n', data);
      written++;
      first = first && !point->fits;
    }
    if (!written) fprintf(data, "%.9g\tNaN\t0\t\t\t\t\t\n", place(sweep, 0)); /* an index of its own all the same */
  }
}

static void set_x_axis(const report_whatif_sweep *sweep, label_room *room, dp_str *body) {
  const double first = place(sweep, 0), last = place(sweep, sweep->value_count - 1);
  if (sweep->logarithmic) {
    const double pad = pow(last / first, 0.04);
    room->from = first / pad;
    room->to = last * pad * pad;
    dp_str_add(body, "set logscale x\n");
  } else {
    const double pad = last > first ? 0.04 * (last - first) : 0.5;
    room->from = first - pad;
    room->to = last + 2 * pad;
  }
  room->logarithmic = sweep->logarithmic;
  dp_str_addf(body, "set xrange [%.9g:%.9g]\nset xtics ()\n", room->from, room->to);
  const int step = 1 + (sweep->value_count - 1) / 12;
  for (int v = 0; v < sweep->value_count; v += step) {
    const double x = place(sweep, v);
    char shown[40];
    if (!sweep->numeric)
      (void)snprintf(shown, sizeof shown, "%.30s", sweep->values[v]);
    else
      (void)snprintf(shown, sizeof shown, fabs(x) >= 1000 && fabs(x) < 1e6 ? "%.0f" : "%.3g", x);
    add_tic("x", shown, x, body);
  }
}

static dp_status write_sweep(const void *figures, FILE *data, dp_str *body, report_plot_size *size, dp_error *error) {
  const sweep_figures *f = figures;
  const report_whatif *w = f->whatif;
  (void)error;
  size->height_px = 380;
  size->left_px = 70;
  size->bottom_px = 84;
  label_room room = {.most = 1.15 * most_of(f),
                     .width_px = REPORT_PLOT_WIDTH - REPORT_PLOT_RIGHT - size->left_px,
                     .height_px = size->height_px};
  dp_str title = {0};
  dp_str_addf(&title, "Throughput against %s", f->sweep->key);
  report_plot_title(dp_str_text(&title),
                    "samples/s at each value; beside the points the plan, rings: another one than before", body);
  if (title.failed) body->failed = true;
  dp_str_free(&title);
  dp_str_add(body, "set border 3\nset tics out\nset xlabel ");
  report_plot_quote(f->sweep->key, body);
  dp_str_addf(body,
              " offset 0,0.2 textcolor rgb '" REPORT_INK "'\nset grid ytics lt 1 lw 0.5 lc rgb '" REPORT_GRID
              "'\nset yrange [0:%.9g]\nset ytics\n",
              room.most);
  set_x_axis(f->sweep, &room, body);
  write_points(f, &room, data);
  dp_str_add(body, "set style textbox opaque margins 0.2,0.2 fillcolor rgb '#ffffff' noborder\nplot ");
  for (int r = 0; r < w->row_count; r++) {
    dp_str_addf(body, "%sdata index %d using 1:2 with linespoints lw 2 pt 7 ps 0.5 lc rgb '%s' title ",
                r ? ", \\\n  " : "", r, colours[r % COLOURS]);
    report_plot_quote(w->rows[r].cluster, body);
  }
  for (int r = 0; r < w->row_count; r++) { /* over all lines */
    const char *colour = colours[r % COLOURS];
    for (int l = 0; l < LABEL_SIDES; l++)
      dp_str_addf(
          body,
          ", \\\n  data index %d using 1:2:%d with labels %s offset %s,%s font ',10' textcolor rgb '%s' boxed notitle",
          r, 5 + l, l < LABEL_ABOVE_LEFT ? "left" : "right", l < LABEL_ABOVE_LEFT ? "0.5" : "-0.5",
          l % 2 == 0 ? "0.9" : "-0.9", colour);
    dp_str_addf(body, ", \\\n  data index %d using 1:($3==1?$2:NaN) with points pt 6 ps 1.6 lw 1.2 lc rgb '%s' notitle",
                r, colour);
  }
  dp_str_add(body, "\n");
  return DP_OK;
}

/* ---- all ---- */

static dp_status make(report_plotting *plotting, const char *name, bool wanted, report_plot_writer write,
                      const void *figures, dp_error *error) {
  report_plot_remove(name, !wanted, plotting->folder);
  return wanted ? report_plot_make(plotting, name, write, figures, error) : DP_OK;
}

/* Sweeps of an earlier run that had more of them. */
static void remove_more_sweeps(const char *folder, int from) {
  for (int s = from;; s++) {
    char name[32];
    dp_str path = {0};
    (void)snprintf(name, sizeof name, "sweep_%d", s + 1);
    dp_str_addf(&path, "%s/plots/%s.tsv", folder, name);
    const bool there = !path.failed && access(dp_str_text(&path), F_OK) == 0;
    dp_str_free(&path);
    if (!there) return;
    report_plot_remove(name, true, folder);
  }
}

dp_status report_whatif_plots_write(const report_whatif *figures, const char *folder, const char *gnuplot,
                                    dp_str *notes, dp_error *error) {
  report_plotting plotting = {folder, gnuplot, notes};
  const bool rows = figures->row_count > 0;
  DP_TRY(make(&plotting, "whatif_throughput", rows, write_throughput, figures, error));
  DP_TRY(make(&plotting, "whatif_cost", has_cost(figures), write_cost, figures, error));
  DP_TRY(make(&plotting, "whatif_sensitivity", has_gains(figures), write_sensitivity, figures, error));
  for (int s = 0; s < figures->sweep_count; s++) {
    char name[32];
    const sweep_figures sweep = {figures, &figures->sweeps[s]};
    (void)snprintf(name, sizeof name, "sweep_%d", s + 1);
    DP_TRY(make(&plotting, name, rows && figures->sweeps[s].value_count > 1, write_sweep, &sweep, error));
  }
  remove_more_sweeps(folder, figures->sweep_count);
  return DP_OK;
}
