#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/plots.h"
#include "reports/tables.h"

enum { MAX_BARS = 32, GAPS = PLAN_MEMORY_CLASS_COUNT, PART_COUNT };

static const struct {
  const char *name;
  unsigned rgb;
} parts[PART_COUNT] = {
    [PLAN_MEMORY_WEIGHTS] = {"weights", 0x0072b2},
    [PLAN_MEMORY_GRADIENTS] = {"gradients", 0x56b4e9},
    [PLAN_MEMORY_OPTIMIZER] = {"optimizer", 0x009e73},
    [PLAN_MEMORY_ACTIVATIONS] = {"activations", 0xe69f00},
    [PLAN_MEMORY_SKIPS] = {"skips", 0xd55e00},
    [PLAN_MEMORY_BOUNDARY] = {"boundary", 0xcc79a7},
    [PLAN_MEMORY_WORKSPACE] = {"workspace", 0xf0e442},
    [PLAN_MEMORY_RUNTIME] = {"runtime", 0x80868b},
    [GAPS] = {"layout gaps", 0xc4c7cc},
};

typedef struct candidate {
  int worker;
  double room; /* share of the limit that is left */
} candidate;

static int by_room(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->room != y->room) return x->room < y->room ? -1 : 1;
  return x->worker - y->worker;
}
static int by_worker(const void *a, const void *b) {
  return ((const candidate *)a)->worker - ((const candidate *)b)->worker;
}

/* All workers, or the tightest ones in the order of their numbers. */
static candidate *choose(const report_run *run, int *count) {
  const int all = run->memory->worker_count;
  candidate *chosen = calloc((size_t)all + 1, sizeof *chosen);
  if (!chosen) return NULL;
  for (int w = 0; w < all; w++) {
    const double limit = (double)run->memory_limit_bytes[w];
    chosen[w] = (candidate){w, limit > 0 ? 1 - (double)run->memory->workers[w].peak_bytes / limit : 0};
  }
  qsort(chosen, (size_t)all, sizeof *chosen, by_room);
  *count = all < MAX_BARS ? all : MAX_BARS;
  qsort(chosen, (size_t)*count, sizeof *chosen, by_worker);
  return chosen;
}

dp_status report_plot_memory(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                             dp_error *error) {
  const report_run *run = source->run;
  int count = 0;
  bool seen[PART_COUNT] = {false};
  double most = 0;
  candidate *chosen = choose(run, &count);
  if (!chosen) return dp_fail_memory(error);
  size->height_px = 320;
  size->left_px = 70;
  size->bottom_px = 104;
  fprintf(data, "# worker\tclass\tgb\tx0\tx1\ty0_gb\ty1_gb\trgb\n");
  for (int b = 0; b < count; b++) {
    const plan_worker_memory *memory = &run->memory->workers[chosen[b].worker];
    double bottom = 0;
    for (int c = 0; c < PART_COUNT; c++) {
      const double gb = (double)(c == GAPS ? report_memory_gap(memory) : memory->at_peak_bytes[c]) / 1e9;
      if (gb <= 0) continue;
      seen[c] = true;
      fprintf(data, "%d\t%s\t%.6f\t%.2f\t%.2f\t%.6f\t%.6f\t%u\n", chosen[b].worker, parts[c].name, gb, b - 0.36,
              b + 0.36, bottom, bottom + gb, parts[c].rgb);
      bottom += gb;
    }
    most = fmax(most, fmax(bottom, (double)run->memory_limit_bytes[chosen[b].worker] / 1e9));
  }
  fprintf(data, "\n\n# worker\tpeak_gb\tlimit_gb\tx0\twidth\tlabel\n");
  dp_str_add(body, "set xtics ()\n");
  for (int b = 0; b < count; b++) {
    const int w = chosen[b].worker;
    const double peak = (double)run->memory->workers[w].peak_bytes / 1e9,
                 limit = (double)run->memory_limit_bytes[w] / 1e9;
    fprintf(data, "%d\t%.6f\t%.6f\t%.1f\t1\t%.*f\n", w, peak, limit, b - 0.5, count > 16 ? 0 : 1, peak);
    dp_str_addf(body, "set xtics add ('%d' %d)\n", w, b);
  }
  free(chosen);
  dp_str title = {0}, subtitle = {0};
  dp_str_addf(&title, "%.70s: peak memory by worker, GB (1e9 bytes)", run->name);
  report_verdict(run, &subtitle);
  if (count < run->memory->worker_count)
    dp_str_addf(&subtitle, "; the %d tightest of %d shown", count, run->memory->worker_count);
  report_plot_title(dp_str_text(&title), dp_str_text(&subtitle), body);
  if (title.failed || subtitle.failed) body->failed = true;
  dp_str_free(&title);
  dp_str_free(&subtitle);
  if (most <= 0) most = 1;
  dp_str_addf(body, "set xrange [-0.7:%.1f]\nset yrange [0:%.6f]\nset border 3\nset tics out\n", count - 0.3,
              most * 1.1);
  dp_str_add(body, "set xlabel 'worker' offset 0,0.6 textcolor rgb '" REPORT_INK
                   "'\nset grid ytics lt 1 lw 0.5 lc rgb '" REPORT_GRID "'\n");
  dp_str_add(
      body,
      "plot data index 0 using (($4+$5)/2):(($6+$7)/2):4:5:6:7:8 with boxxyerror fillstyle solid 1.0 noborder"
      " lc rgb variable notitle, \\\n  data index 1 using 4:3:5:(0) with vectors nohead lw 2 lc rgb '#d93025' notitle"
      ", \\\n  data index 1 using ($4+0.5):2:6 with labels offset 0,0.6 font ',11' textcolor rgb '" REPORT_INK
      "' notitle");
  for (int c = 0; c < PART_COUNT; c++) {
    char colour[8];
    if (seen[c])
      dp_str_addf(body, ", \\\n  keyentry with boxes fillstyle solid 1.0 noborder lc rgb '%s' title '%s'",
                  report_plot_colour(parts[c].rgb, colour), parts[c].name);
  }
  dp_str_add(body, ", \\\n  keyentry with lines lw 2 lc rgb '#d93025' title 'limit'\n");
  return DP_OK;
}
