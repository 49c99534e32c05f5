#include "reports/draw_layout.h"

#include <math.h>
#include <stdlib.h>

#include "reports/flows.h"

bool report_transfer_read(const report_files *files, const dp_node *row, int *from, int *to,
                          int64_t kind_bytes[PLAN_TRAFFIC_COUNT]) {
  const int workers = files->metrics.worker_count;
  const dp_node *a = dp_node_get(row, "from"), *b = dp_node_get(row, "to");
  if (!a || !b || a->kind != DP_NODE_INTEGER || b->kind != DP_NODE_INTEGER) return false;
  if (a->integer < 0 || a->integer >= workers || b->integer < 0 || b->integer >= workers) return false;
  *from = (int)a->integer;
  *to = (int)b->integer;
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) kind_bytes[k] = report_node_integer(row, plan_traffic_names[k]);
  return true;
}

const plan_device *report_drawing_device(const report_drawing *d, int worker) {
  return &d->files->cluster.devices.items[d->files->plan.devices[worker]];
}

/* Up to ALL_WORKERS of the copies, whole ones; of those as few on a line as two lines take, else as many as there is
 * room for. A longer copy has lines of its own, evenly filled. */
static void choose_boxes(report_drawing *d) {
  d->ranks = d->files->plan.ranks;
  d->copies = plan_copy_count(&d->files->plan);
  const int whole = ALL_WORKERS / d->ranks > 1 ? ALL_WORKERS / d->ranks : 1;
  d->shown_copies = d->copies < whole ? d->copies : whole;
  d->shown_ranks = d->ranks < REPORT_DRAWN_WORKERS ? d->ranks : REPORT_DRAWN_WORKERS;
  d->lines_each = (d->shown_ranks + PER_LINE - 1) / PER_LINE;
  int beside = 1;
  while (d->lines_each == 1 && (beside + 1) * d->ranks <= PER_LINE && (d->shown_copies + beside - 1) / beside > 2)
    beside++;
  const int columns = d->lines_each > 1 ? (d->shown_ranks + d->lines_each - 1) / d->lines_each : d->ranks;
  for (int r = 0; r < d->shown_copies; r++)
    for (int k = 0; k < d->shown_ranks; k++)
      d->boxes[d->box_count++] = (report_box){.worker = r * d->ranks + k,
                                              .line = r / beside * d->lines_each + k / columns,
                                              .column = r % beside * columns + k % columns};
  d->columns = beside * columns;
  d->line_count = (d->shown_copies + beside - 1) / beside * d->lines_each;
}

static int box_of(const report_drawing *d, int worker) {
  const int copy = worker / d->ranks, rank = worker % d->ranks;
  return copy < d->shown_copies && rank < d->shown_ranks ? copy * d->shown_ranks + rank : -1;
}

int report_drawing_chunk_rows(const report_drawing *d) {
  const int chunks = d->files->plan.chunks_per_rank;
  return chunks <= MAX_CHUNK_ROWS ? chunks : MAX_CHUNK_ROWS;
}

static void leave_out(report_drawing *d, const int64_t kind_bytes[PLAN_TRAFFIC_COUNT]) {
  d->left_out++;
  d->left_out_bytes += report_flow_bytes(kind_bytes);
}

static int64_t more_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* What travels between two shown workers, both ways together; all-reduces apart. */
static void collect_edges(report_drawing *d) {
  for (size_t i = 0; i < d->files->transfers->count; i++) {
    int64_t bytes[PLAN_TRAFFIC_COUNT];
    int from, to;
    if (!report_transfer_read(d->files, d->files->transfers->items[i], &from, &to, bytes)) continue;
    d->gradient_bytes = more_of(d->gradient_bytes, bytes[PLAN_TRAFFIC_GRADIENT]);
    d->tensor_bytes = more_of(d->tensor_bytes, bytes[PLAN_TRAFFIC_TENSOR]);
    bytes[PLAN_TRAFFIC_GRADIENT] = bytes[PLAN_TRAFFIC_TENSOR] = 0;
    int a = box_of(d, from), b = box_of(d, to), e = 0;
    if (a < 0 || b < 0 || a == b || report_flow_bytes(bytes) == 0) continue;
    if (a > b) {
      const int swap = a;
      a = b;
      b = swap;
    }
    while (e < d->edge_count && (d->edges[e].a != a || d->edges[e].b != b)) e++;
    if (e == MAX_EDGES) {
      leave_out(d, bytes);
      continue;
    }
    if (e == d->edge_count) d->edges[d->edge_count++] = (report_edge){.a = a, .b = b};
    for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) d->edges[e].kind_bytes[k] += bytes[k];
  }
}

/* A thousandth of the largest is not worth a line; nor is such a part of a transfer worth a figure. */
static void drop_small_edges(report_drawing *d) {
  int64_t most = 0;
  int kept = 0;
  for (int e = 0; e < d->edge_count; e++) most = more_of(most, report_flow_bytes(d->edges[e].kind_bytes));
  for (int e = 0; e < d->edge_count; e++) {
    report_edge one = d->edges[e];
    for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++)
      if (one.kind_bytes[k] < most / 1000) one.kind_bytes[k] = 0;
    if (report_flow_bytes(one.kind_bytes))
      d->edges[kept++] = one;
    else
      leave_out(d, d->edges[e].kind_bytes);
  }
  d->edge_count = kept;
}

bool report_edge_on_line(const report_drawing *d, const report_edge *e) {
  return d->boxes[e->a].line == d->boxes[e->b].line;
}
int report_edge_reach(const report_edge *e) { return e->b - e->a; }

static int by_reach(const void *x, const void *y) {
  const report_edge *a = x, *b = y;
  if (report_edge_reach(a) != report_edge_reach(b)) return report_edge_reach(a) - report_edge_reach(b);
  return a->a - b->a;
}

/* Arcs: short ones below, each on the lowest level on which it overlaps none; what has no level is left out. */
static void choose_levels(report_drawing *d) {
  if (d->edge_count) qsort(d->edges, (size_t)d->edge_count, sizeof *d->edges, by_reach);
  for (int e = 0; e < d->edge_count; e++) {
    report_edge *one = &d->edges[e];
    one->level = -1;
    if (report_edge_reach(one) == 1) continue; /* a straight line, or the step to the next line */
    if (!report_edge_on_line(d, one)) {
      leave_out(d, one->kind_bytes);
      continue;
    }
    for (int level = 0; level < MAX_LEVELS && one->level < 0; level++) {
      bool taken = false;
      for (int f = 0; f < e && !taken; f++)
        taken = d->edges[f].level == level && d->edges[f].a < one->b && one->a < d->edges[f].b;
      if (!taken) one->level = level;
    }
    const int line = d->boxes[one->a].line;
    if (one->level < 0)
      leave_out(d, one->kind_bytes);
    else if (one->level + 1 > d->line_levels[line])
      d->line_levels[line] = one->level + 1;
  }
}

/* A band under the last line of copies, for what they do together. */
bool report_drawing_has_ring(const report_drawing *d, int line) {
  return (d->gradient_bytes > 0 || d->tensor_bytes > 0) && (line + 1) % d->lines_each == 0;
}

static bool same_copy(const report_drawing *d, int i, int j) {
  return d->boxes[i].worker / d->ranks == d->boxes[j].worker / d->ranks;
}

double report_drawing_gap(const report_drawing *d) { return d->columns > 6 ? NARROW_GAP : LINK_GAP; }

static double gap_after(const report_drawing *d, int i) {
  if (i + 1 >= d->box_count || d->boxes[i + 1].line != d->boxes[i].line) return 0;
  if (same_copy(d, i, i + 1)) return report_drawing_gap(d);
  return report_drawing_device(d, d->boxes[i].worker)->node == report_drawing_device(d, d->boxes[i + 1].worker)->node
             ? HOST_PAD
             : 2 * HOST_PAD + 8;
}

static void place_boxes(report_drawing *d) {
  double most_gaps = 0, gaps = 0, y = 0, x = 0;
  for (int i = 0; i < d->box_count; i++) {
    if (i == 0 || d->boxes[i].line != d->boxes[i - 1].line) gaps = 0;
    gaps += gap_after(d, i);
    most_gaps = fmax(most_gaps, gaps);
  }
  d->box_width = fmin(262, (WIDTH - 2 * HOST_PAD - most_gaps) / d->columns);
  d->box_height = 26 + ROW * (report_drawing_chunk_rows(d) + 2) + 16;
  for (int line = 0; line < d->line_count; line++) {
    d->line_top[line] = y;
    y += HEAD + LEVEL * d->line_levels[line] + d->box_height + HOST_PAD +
         (report_drawing_has_ring(d, line) ? RING : BETWEEN);
  }
  d->line_top[d->line_count] = y;
  d->height = y;
  for (int i = 0; i < d->box_count; i++) {
    report_box *b = &d->boxes[i];
    if (b->column == 0) x = HOST_PAD;
    b->x = x;
    b->y = d->line_top[b->line] + HEAD + LEVEL * d->line_levels[b->line];
    x += d->box_width + gap_after(d, i);
  }
}

void report_drawing_place(report_drawing *d) {
  choose_boxes(d);
  collect_edges(d);
  drop_small_edges(d);
  choose_levels(d);
  place_boxes(d);
}
