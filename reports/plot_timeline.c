#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "reports/plots.h"
#include "reports/tables.h"

/* What a box shows. Colours after Okabe and Ito ("Color universal design", 2008), told apart by all kinds of sight. */
enum { FORWARD, BACKWARD, WEIGHT, OPTIMIZER, ACTIVATIONS, GRADIENTS, REDUCE, KIND_COUNT };
static const struct {
  const char *name;
  unsigned rgb;
} kinds[KIND_COUNT] = {
    [FORWARD] = {"forward", 0x0072b2},
    [BACKWARD] = {"backward", 0xe69f00},
    [WEIGHT] = {"backward of weights", 0x009e73},
    [OPTIMIZER] = {"optimizer", 0xcc79a7},
    [ACTIVATIONS] = {"activations travel", 0x56b4e9},
    [GRADIENTS] = {"gradients travel", 0xd55e00},
    [REDUCE] = {"all-reduce", 0x882255},
};

enum { MAX_WORKERS = 16, MAX_BOXES = 110, WINDOW_BOXES = 30, CUT_PX = 30, MAX_STRIPS = 5, LEAST_PX = 1 };
/* Two runs: one above the other, each under a line of text. What matters is where they part, so they are seen whole as
 * long as boxes can be told apart, even where their numbers have no room. */
enum { MAX_BOXES_COMPARED = 500, HEAD_PX = 24 };

typedef struct span {
  double start_ms, end_ms;
} span;
typedef DP_ARRAY(span) spans;

/* The heights of a worker's rows; `apart`: sends and receives in rows of their own. */
typedef struct look {
  int compute_px, strip_px, gap_px;
  bool apart;
} look;

typedef struct drawing {
  const report_run *runs[2]; /* the one alone; or the prediction, and what was measured */
  int run_count;
  const report_run *run; /* the one that is being drawn */
  FILE *data;
  int workers[MAX_WORKERS], worker_count;
  look look;
  double whole_ms, window_ms; /* what is drawn at each end; window 0: everything */
  double span_ms, cut_ms;     /* width of the axis, and of the cut in it, in drawn milliseconds */
  double px_per_ms;
  bool seen[KIND_COUNT], shaded, collectives;
  bool failed;
} drawing;

static int kind_of(const plan_program *program, const plan_instruction *instruction) {
  switch (instruction->opcode) {
    case PLAN_FORWARD:
      return FORWARD;
    case PLAN_BACKWARD_WEIGHT:
      return WEIGHT;
    case PLAN_OPTIMIZER_STEP:
      return OPTIMIZER;
    case PLAN_SEND:
    case PLAN_RECV:
      return program->messages[instruction->class_id].backward ? GRADIENTS : ACTIVATIONS;
    case PLAN_ALL_REDUCE:
      return REDUCE;
    default:
      return BACKWARD;
  }
}

static const plan_lane *compute_lane(const drawing *d, int worker) {
  return &d->run->program->lanes[d->run->program->worker_lane[worker]];
}

/* ---- what is drawn ---- */

static void choose_workers(drawing *d) {
  const plan_plan *plan = d->run->program->plan;
  const int all = d->run->program->worker_count;
  const int whole_replicas = plan->ranks <= MAX_WORKERS ? MAX_WORKERS / plan->ranks : 0;
  if (all <= MAX_WORKERS || whole_replicas) {
    d->worker_count = all <= MAX_WORKERS ? all : whole_replicas * plan->ranks;
    for (int i = 0; i < d->worker_count; i++) d->workers[i] = i;
    return;
  }
  d->worker_count = MAX_WORKERS; /* of the first replica, evenly spread, first and last among them */
  for (int i = 0; i < MAX_WORKERS; i++) d->workers[i] = (int)((int64_t)i * (plan->ranks - 1) / (MAX_WORKERS - 1));
}

/* A box should be wide enough for its number; the warm-up should be seen whole. */
static void choose_window(drawing *d) {
  uint32_t boxes = 0;
  double warm_ms = 0;
  for (int r = 0; r < d->run_count; r++) {
    const plan_timeline *timeline = d->runs[r]->timeline;
    d->whole_ms = fmax(d->whole_ms, timeline->step_s * 1e3);
    for (int i = 0; i < d->worker_count; i++) {
      const plan_lane *lane = compute_lane(d, d->workers[i]);
      if (lane->count > boxes) boxes = lane->count;
      if (lane->count) warm_ms = fmax(warm_ms, timeline->start_s[lane->first] * 1e3);
    }
  }
  if (boxes > (d->run_count > 1 ? MAX_BOXES_COMPARED : MAX_BOXES)) {
    const double window_ms = fmax(d->whole_ms * WINDOW_BOXES / boxes, 1.25 * warm_ms);
    if (2.2 * window_ms < d->whole_ms) d->window_ms = window_ms;
  }
}

static void choose_scale(drawing *d, int left_px) {
  const double width_px = REPORT_PLOT_WIDTH - left_px - REPORT_PLOT_RIGHT;
  const double shown_ms = d->window_ms > 0 ? 2 * d->window_ms : d->whole_ms > 0 ? d->whole_ms : 1;
  d->px_per_ms = (width_px - (d->window_ms > 0 ? CUT_PX : 0)) / shown_ms;
  d->cut_ms = d->window_ms > 0 ? CUT_PX / d->px_per_ms : 0;
  d->span_ms = shown_ms + d->cut_ms;
}

static void choose_look(drawing *d) {
  const look small = {22, 7, 5, false}, middle = {30, 9, 8, false}, large = {36, 11, 12, true};
  const int rows = d->worker_count * d->run_count;
  d->look = rows <= 4 ? large : rows <= 8 ? middle : small;
  for (int i = 0; i < d->worker_count; i++) {
    const plan_program *program = d->run->program;
    for (uint32_t l = program->worker_lane[d->workers[i]]; l < program->worker_lane[d->workers[i] + 1]; l++)
      if (program->lanes[l].kind == PLAN_LANE_COLLECTIVE) d->collectives = true;
  }
  d->shaded = d->run->program->plan->chunks_per_rank > 1;
}

/* ---- boxes ---- */

/* Drawn position of a time; the part that is cut out lies between the windows. */
static double place(const drawing *d, double ms) {
  if (d->window_ms <= 0) return ms;
  if (ms <= d->window_ms) return ms;
  if (ms >= d->whole_ms - d->window_ms) return ms - d->whole_ms + 2 * d->window_ms + d->cut_ms;
  return d->window_ms;
}

/* Later chunks of a worker are lighter. */
static unsigned shade(const drawing *d, unsigned rgb, unsigned chunk) {
  const plan_plan *plan = d->run->program->plan;
  if (!d->shaded || (int)chunk >= plan->chunk_count) return rgb;
  int before = 0;
  for (unsigned c = 0; c < chunk; c++) before += plan->chunks[c].rank == plan->chunks[chunk].rank;
  const double white = plan->chunks_per_rank > 1 ? 0.5 * before / (plan->chunks_per_rank - 1) : 0;
  unsigned mixed = 0;
  for (int shift = 16; shift >= 0; shift -= 8) {
    const double channel = (rgb >> shift) & 0xff;
    mixed |= (unsigned)(channel + (255 - channel) * white + 0.5) << shift;
  }
  return mixed;
}

static unsigned readable_on(unsigned rgb) {
  const double luma = 0.299 * ((rgb >> 16) & 0xff) + 0.587 * ((rgb >> 8) & 0xff) + 0.114 * (rgb & 0xff);
  return luma > 130 ? 0x000000 : 0xffffff;
}

/* One line of figures for each window the span lies in. Compute boxes are drawn a little apart, so that they can be
 * told apart on any background; transfers at least as wide as can be seen. */
static void draw_box(drawing *d, int worker, const char *lane, int kind, unsigned rgb, const char *chunk,
                     const char *microbatch, span when, double top_px, double height_px, bool labelled) {
  const double from[2] = {0, d->whole_ms - d->window_ms},
               to[2] = {d->window_ms > 0 ? d->window_ms : d->whole_ms, d->whole_ms};
  for (int part = 0; part < (d->window_ms > 0 ? 2 : 1); part++) {
    const double start = fmax(when.start_ms, from[part]), end = fmin(when.end_ms, to[part]);
    if (end <= start) continue;
    double x0 = place(d, start), x1 = x0 + (end - start);
    const double wide_px = (x1 - x0) * d->px_per_ms, inset = labelled && wide_px > 4 ? 0.5 / d->px_per_ms : 0;
    x0 += inset;
    x1 = !labelled && wide_px < LEAST_PX ? x0 + LEAST_PX / d->px_per_ms : x1 - inset;
    const bool fits = labelled && wide_px >= 6.8 * (double)strlen(microbatch) + 4;
    d->seen[kind] = true;
    fprintf(d->data, "%d\t%s\t%s\t%s\t%s\t%.6f\t%.6f\t%.6f\t%.6f\t%.1f\t%.1f\t%u\t%u\t%s", worker, lane,
            kinds[kind].name, chunk, microbatch, when.start_ms, when.end_ms, x0, x1, top_px, top_px + height_px, rgb,
            readable_on(rgb), fits ? microbatch : "");
    fprintf(d->data, d->run_count > 1 ? "\t%s\n" : "\n", d->run->origin);
  }
}

static void draw_compute(drawing *d, int worker, double top_px) {
  const plan_program *program = d->run->program;
  const plan_lane *lane = compute_lane(d, worker);
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
    const plan_instruction *instruction = &program->instructions[i];
    const int kind = kind_of(program, instruction);
    const unsigned rgb = kind == OPTIMIZER ? kinds[kind].rgb : shade(d, kinds[kind].rgb, instruction->chunk);
    char chunk[16], microbatch[16] = "";
    (void)snprintf(chunk, sizeof chunk, "%u", (unsigned)instruction->chunk);
    if (kind != OPTIMIZER) /* sampling counts on from denoise step to denoise step */
      (void)snprintf(microbatch, sizeof microbatch, "%" PRIu32,
                     instruction->microbatch % (uint32_t)program->plan->microbatches);
    const span when = {d->run->timeline->start_s[i] * 1e3, d->run->timeline->end_s[i] * 1e3};
    draw_box(d, worker, "compute", kind, rgb, chunk, microbatch, when, top_px, d->look.compute_px, true);
  }
}

static int by_start(const void *a, const void *b) {
  const double x = ((const span *)a)->start_ms, y = ((const span *)b)->start_ms;
  return (x > y) - (x < y);
}

/* The union of the spans, where gaps too small to see are closed. */
static void merge(spans *all, double gap_ms) {
  if (all->count) qsort(all->items, all->count, sizeof *all->items, by_start);
  size_t kept = 0;
  for (size_t i = 0; i < all->count; i++) {
    if (kept && all->items[i].start_ms <= all->items[kept - 1].end_ms + gap_ms)
      all->items[kept - 1].end_ms = fmax(all->items[kept - 1].end_ms, all->items[i].end_ms);
    else
      all->items[kept++] = all->items[i];
  }
  all->count = kept;
}

/* All transfers of a worker of some lanes and one kind, as one strip. */
static void draw_strip(drawing *d, int worker, const char *name, unsigned lanes, int kind, double top_px,
                       double height_px) {
  const plan_program *program = d->run->program;
  spans all = {0};
  for (uint32_t l = program->worker_lane[worker]; l < program->worker_lane[worker + 1]; l++) {
    const plan_lane *lane = &program->lanes[l];
    if (!(lanes >> lane->kind & 1)) continue;
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      const span when = {d->run->timeline->start_s[i] * 1e3, d->run->timeline->end_s[i] * 1e3};
      if (kind_of(program, &program->instructions[i]) != kind || when.end_ms <= when.start_ms) continue;
      if (!dp_array_push(&all, when)) d->failed = true;
    }
  }
  merge(&all, LEAST_PX / d->px_per_ms);
  for (size_t i = 0; i < all.count; i++)
    draw_box(d, worker, name, kind, kinds[kind].rgb, "", "", all.items[i], top_px, height_px, false);
  dp_array_free(&all);
}

/* The rows of a worker under its compute row: names and what they hold. */
typedef struct strip {
  const char *name;
  unsigned lanes; /* bits of plan_lane_kind */
  int kinds[2], kind_count;
} strip;

static int strips_of(const drawing *d, strip out[MAX_STRIPS]) {
  const unsigned send = 1u << PLAN_LANE_SEND, receive = 1u << PLAN_LANE_RECV, reduce = 1u << PLAN_LANE_COLLECTIVE;
  int count = 0;
  if (d->look.apart) {
    out[count++] = (strip){"send", send, {ACTIVATIONS, GRADIENTS}, 2};
    out[count++] = (strip){"receive", receive, {ACTIVATIONS, GRADIENTS}, 2};
  } else {
    out[count++] = (strip){"transfers", send | receive, {ACTIVATIONS, GRADIENTS}, 2};
  }
  if (d->collectives) out[count++] = (strip){"all-reduce", reduce, {REDUCE, REDUCE}, 1};
  return count;
}

/* ---- axes ---- */

static void add_tic(dp_str *body, double ms, double at) { dp_str_addf(body, "set xtics add ('%.10g' %.6f)\n", ms, at); }

static void add_tics(const drawing *d, dp_str *body) {
  const double step = report_plot_nice(d->span_ms / (d->window_ms > 0 ? 10 : 7));
  dp_str_add(body, "set xtics ()\n");
  const double first_end = d->window_ms > 0 ? d->window_ms : d->whole_ms;
  for (int64_t i = 0; (double)i * step <= first_end * (1 + 1e-9) && i < 64; i++)
    add_tic(body, (double)i * step, place(d, fmin((double)i * step, first_end)));
  if (d->window_ms <= 0) return;
  const double from = d->whole_ms - d->window_ms;
  for (int64_t i = (int64_t)ceil(from / step), n = 0; (double)i * step <= d->whole_ms * (1 + 1e-9) && n < 64; i++, n++)
    add_tic(body, (double)i * step, place(d, fmin((double)i * step, d->whole_ms)));
}

/* The ground of a compute row, on which bubbles show: up to the end of the run. */
static void add_band(const drawing *d, double top_px, dp_str *body) {
  const double own_ms = fmin(d->run->timeline->step_s * 1e3, d->whole_ms);
  const double from_ms[2] = {0, d->whole_ms - d->window_ms},
               to_ms[2] = {d->window_ms > 0 ? fmin(d->window_ms, own_ms) : own_ms, own_ms};
  for (int part = 0; part < (d->window_ms > 0 ? 2 : 1); part++) {
    if (to_ms[part] <= from_ms[part]) continue;
    const double left = part ? d->window_ms + d->cut_ms : 0;
    dp_str_addf(body,
                "set object rectangle from %.6f,%.1f to %.6f,%.1f fillstyle solid 1.0 noborder fc rgb '" REPORT_BAND
                "' behind\n",
                left, top_px, left + to_ms[part] - from_ms[part], top_px + d->look.compute_px);
  }
}

static void add_cut(const drawing *d, int height_px, dp_str *body) {
  if (d->window_ms <= 0) return;
  const double left = d->window_ms, right = left + d->cut_ms;
  for (int i = 0; i < 2; i++)
    dp_str_addf(body, "set arrow from %.6f,0 to %.6f,%d nohead lc rgb '#80868b' dashtype 3 front\n", i ? right : left,
                i ? right : left, height_px);
  char cut[32];
  dp_str_addf(body,
              "set label '%s not drawn' at %.6f,%.1f center rotate by 90 font ',11' textcolor rgb '" REPORT_INK "'\n",
              dp_format_seconds((d->whole_ms - 2 * d->window_ms) / 1e3, cut), (left + right) / 2, height_px / 2.0);
}

/* "predicted step 12.3 ms, bubble ratio 20.1 %" */
static void add_result(const report_run *run, dp_str *out) {
  char step[32];
  dp_str_addf(out, "%s %s %s, bubble ratio %.1f %%", run->origin, run->program->plan->training ? "step" : "trajectory",
              dp_format_seconds(run->timeline->step_s, step), 100 * run->metrics->bubble_ratio);
}

static void add_titles(const drawing *d, dp_str *body) {
  const report_run *run = d->run;
  dp_str title = {0}, subtitle = {0};
  char shown[32];
  dp_str_addf(&title, "%.70s: ", run->name);
  report_layout(run->program->plan, &title);
  if (d->run_count > 1)
    dp_str_add(&subtitle, "one time axis; numbers are microbatches");
  else
    add_result(run, &subtitle);
  if (d->shaded) dp_str_add(&subtitle, "; later chunks lighter");
  if (d->window_ms > 0) dp_str_addf(&subtitle, "; first and last %s", dp_format_seconds(d->window_ms / 1e3, shown));
  if (d->worker_count < run->program->worker_count) {
    const bool spread = d->workers[d->worker_count - 1] != d->worker_count - 1;
    dp_str_addf(&subtitle, "; %d of %d workers%s", d->worker_count, run->program->worker_count,
                spread ? ", evenly spread" : "");
  }
  report_plot_title(dp_str_text(&title), dp_str_text(&subtitle), body);
  if (title.failed || subtitle.failed) body->failed = true;
  dp_str_free(&title);
  dp_str_free(&subtitle);
}

/* The line above a run's rows, where there are two. */
static void add_head(const drawing *d, double top_px, dp_str *body) {
  dp_str text = {0}, quoted = {0};
  add_result(d->run, &text);
  report_plot_quote(dp_str_text(&text), &quoted);
  dp_str_addf(body, "set label %s at 0,%.1f left font ',12' textcolor rgb '" REPORT_INK "'\n", dp_str_text(&quoted),
              top_px + HEAD_PX / 2.0);
  if (text.failed || quoted.failed) body->failed = true;
  dp_str_free(&text);
  dp_str_free(&quoted);
}

/* Where the run ends, through all of its rows. */
static void add_end(const drawing *d, double top_px, double bottom_px, dp_str *body) {
  const double at = place(d, d->run->timeline->step_s * 1e3);
  dp_str_addf(body, "set arrow from %.6f,%.1f to %.6f,%.1f nohead lc rgb '#80868b' dashtype 3 front\n", at, top_px, at,
              bottom_px);
}

static void add_legend(const drawing *d, dp_str *body) {
  dp_str_add(body,
             "plot data using (($8+$9)/2):(($10+$11)/2):8:9:10:11:12 with boxxyerror fillstyle solid 1.0 noborder"
             " lc rgb variable notitle, \\\n  data using (strlen(strcol(14)) ? ($8+$9)/2 : NaN):(($10+$11)/2):14:13"
             " with labels font ',10' textcolor rgb variable notitle");
  for (int k = 0; k < KIND_COUNT; k++) {
    char colour[8];
    if (d->seen[k])
      dp_str_addf(body, ", \\\n  keyentry with boxes fillstyle solid 1.0 noborder lc rgb '%s' title '%s'",
                  report_plot_colour(kinds[k].rgb, colour), kinds[k].name);
  }
  dp_str_add(body, "\n");
}

/* A worker's rows from top_px on; gives where they end. */
static double draw_worker(drawing *d, int worker, double top_px, dp_str *body) {
  strip strips[MAX_STRIPS];
  const int strip_count = strips_of(d, strips);
  double top = top_px;
  add_band(d, top, body);
  draw_compute(d, worker, top);
  dp_str_addf(body, "set ytics add ('worker %d' %.1f)\n", worker, top + d->look.compute_px / 2.0);
  top += d->look.compute_px + 2;
  for (int s = 0; s < strip_count; s++) {
    const double part_px = (double)d->look.strip_px / strips[s].kind_count;
    for (int k = 0; k < strips[s].kind_count; k++)
      draw_strip(d, worker, strips[s].name, strips[s].lanes, strips[s].kinds[k], top + k * part_px, part_px);
    if (d->look.apart)
      dp_str_addf(
          body, "set label '%s' at graph 0, first %.1f right offset -0.8,0 font ',10' textcolor rgb '" REPORT_INK "'\n",
          strips[s].name, top + d->look.strip_px / 2.0);
    top += d->look.strip_px + 2;
  }
  return top + d->look.gap_px;
}

static dp_status draw_runs(drawing *d, dp_str *body, report_plot_size *size, dp_error *error) {
  size->left_px = 110;
  size->bottom_px = 104;
  choose_workers(d);
  choose_window(d);
  choose_scale(d, size->left_px);
  choose_look(d);
  fprintf(d->data,
          "# worker\tlane\tkind\tchunk\tmicrobatch\tstart_ms\tend_ms\tx0\tx1\ty0\ty1\trgb\ttext_rgb\tlabel%s\n",
          d->run_count > 1 ? "\torigin" : "");
  add_titles(d, body);
  dp_str_add(body, "set ytics scale 0 ()\n");
  double top = d->look.gap_px;
  for (int r = 0; r < d->run_count; r++) {
    d->run = d->runs[r];
    const double head = top;
    if (d->run_count > 1) {
      add_head(d, top, body);
      top += HEAD_PX;
    }
    for (int w = 0; w < d->worker_count; w++) top = draw_worker(d, d->workers[w], top, body);
    if (d->run_count > 1) add_end(d, head, top - d->look.gap_px, body);
    if (r + 1 < d->run_count) top += d->look.gap_px;
  }
  size->height_px = (int)ceil(top);
  add_tics(d, body);
  add_cut(d, size->height_px, body);
  dp_str_addf(body, "set xrange [0:%.6f]\nset yrange [%d:0]\nset border 1\nset tics out\n", d->span_ms,
              size->height_px);
  dp_str_add(body, "set xlabel 'ms' offset 0,0.6 textcolor rgb '" REPORT_INK
                   "'\nset grid xtics lt 1 lw 0.5 lc rgb '" REPORT_GRID "'\n");
  add_legend(d, body);
  return d->failed ? dp_fail_memory(error) : DP_OK;
}

dp_status report_plot_timeline(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                               dp_error *error) {
  drawing d = {.runs = {source->run}, .run_count = 1, .run = source->run, .data = data};
  return draw_runs(&d, body, size, error);
}

bool report_plot_has_compared(const report_plot_source *source) {
  return source->predicted && source->predicted->program->instructions && source->run->program->instructions;
}

dp_status report_plot_compared(const report_plot_source *source, FILE *data, dp_str *body, report_plot_size *size,
                               dp_error *error) {
  drawing d = {.runs = {source->predicted, source->run}, .run_count = 2, .run = source->run, .data = data};
  return draw_runs(&d, body, size, error);
}
