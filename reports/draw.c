#include "reports/draw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/draw_layout.h"
#include "reports/tables.h"

static void add_label(report_drawing *d, double x, double y, const char *anchor, const char *class, const char *text) {
  dp_arena arena = {0};
  const char *clean = report_text_clean(&arena, text);
  dp_str_addf(d->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s%s%s>", x, y, anchor, class ? " class=\"" : "",
              class ? class : "", class ? "\"" : "");
  if (clean) report_html_escape(clean, d->out);
  dp_str_add(d->out, "</text>\n");
  if (!clean) d->out->failed = true;
  dp_arena_free(&arena);
}

static const char *gigabytes(double bytes, char out[32]) {
  const double gb = bytes / 1e9;
  (void)snprintf(out, 32,
                 gb >= 100      ? "%.0f"
                 : gb >= 9.995  ? "%.1f"
                 : gb >= 0.095  ? "%.2f"
                 : gb >= 0.0005 ? "%.3f"
                                : "<.001",
                 gb);
  return out;
}

static int main_kind(const int64_t bytes[PLAN_TRAFFIC_COUNT]) {
  int most = 0;
  for (int k = 1; k < PLAN_TRAFFIC_COUNT; k++)
    if (bytes[k] > bytes[most]) most = k;
  return most;
}

/* A line of text a kind, in its colour, centred. */
static void add_amounts(report_drawing *d, const report_edge *e, double x, double y) {
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) {
    char class[32], figure[32];
    if (e->kind_bytes[k] == 0) continue;
    (void)snprintf(class, sizeof class, "k-%s", plan_traffic_names[k]);
    add_label(d, x, y, "middle", class, gigabytes((double)e->kind_bytes[k], figure));
    y += 13;
  }
}

static void add_arc_amounts(report_drawing *d, const report_edge *e, double x, double y) {
  int kinds = 0;
  dp_str_addf(d->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" class=\"halo\">", x, y);
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) {
    char figure[32];
    if (e->kind_bytes[k] == 0) continue;
    dp_str_addf(d->out, "%s<tspan class=\"k-%s\">", kinds++ ? " + " : "", plan_traffic_names[k]);
    report_html_escape(gigabytes((double)e->kind_bytes[k], figure), d->out);
    dp_str_add(d->out, "</tspan>");
  }
  dp_str_add(d->out, "</text>\n");
}

static void draw_edge(report_drawing *d, const report_edge *e) {
  const report_box *a = &d->boxes[e->a], *b = &d->boxes[e->b];
  const char *kind = plan_traffic_names[main_kind(e->kind_bytes)];
  if (report_edge_reach(e) == 1 && report_edge_on_line(d, e)) {
    const double x0 = a->x + d->box_width, y = a->y + 22;
    dp_str_addf(d->out, "<path class=\"k-%s\" d=\"M%.1f %.1fH%.1f\"/>\n", kind, x0, y, b->x);
    add_amounts(d, e, x0 + report_drawing_gap(d) / 2, y + 15);
    return;
  }
  if (report_edge_reach(e) == 1) { /* on to the next line of a long copy */
    const double x0 = a->x + d->box_width / 2, y0 = a->y + d->box_height, x1 = b->x + d->box_width / 2,
                 y = d->line_top[b->line] - BETWEEN / 2.0;
    dp_str_addf(d->out, "<path class=\"k-%s\" d=\"M%.1f %.1fV%.1fH%.1fV%.1f\"/>\n", kind, x0, y0, y, x1, b->y);
    add_arc_amounts(d, e, (x0 + x1) / 2, y + 4);
    return;
  }
  if (e->level < 0) return;
  const double x0 = a->x + d->box_width / 2 + 9, x1 = b->x + d->box_width / 2 - 9;
  const double y = a->y - 8 - LEVEL * e->level;
  dp_str_addf(d->out,
              "<path class=\"k-%s\" d=\"M%.1f %.1fV%.1fQ%.1f %.1f %.1f %.1fH%.1fQ%.1f %.1f %.1f %.1fV%.1f\"/>\n", kind,
              x0, a->y, y + 5, x0, y, x0 + 5, y, x1 - 5, x1, y, x1, y + 5, b->y);
}

/* After all arcs, so that no line crosses a figure. */
static void label_arc(report_drawing *d, const report_edge *e) {
  const report_box *a = &d->boxes[e->a], *b = &d->boxes[e->b];
  if (e->level < 0) return;
  add_arc_amounts(d, e, (a->x + b->x + d->box_width) / 2, a->y - 4 - LEVEL * e->level);
}

static void draw_host(report_drawing *d, int from, int to) {
  const report_box *first = &d->boxes[from], *last = &d->boxes[to];
  const int node = report_drawing_device(d, first->worker)->node;
  const double x = first->x - HOST_PAD, right = last->x + d->box_width + HOST_PAD, y = d->line_top[first->line];
  const double bottom = d->boxes[to].y + d->box_height + HOST_PAD;
  const char *name = report_drawing_device(d, first->worker)->name, *slash = name ? strchr(name, '/') : NULL;
  dp_str label = {0};
  if (slash)
    dp_str_addf(&label, "%.*s", (int)(slash - name), name);
  else
    dp_str_addf(&label, "node %d", node);
  if (d->copies > 1 && d->ranks > 1) {
    const plan_plan *plan = &d->files->plan;
    const int r0 = plan_worker_replica(plan, first->worker), r1 = plan_worker_replica(plan, last->worker);
    if (plan->replicas > 1) dp_str_addf(&label, r0 == r1 ? " · replica %d" : " · replicas %d to %d", r0, r1);
    if (first->worker / d->ranks == last->worker / d->ranks && plan_tensor(plan) > 1)
      dp_str_addf(&label, " · tensor member %d", plan_worker_member(plan, first->worker));
  }
  dp_str_addf(d->out, "<rect class=\"host\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"9\"/>\n", x, y,
              right - x, bottom - y);
  add_label(d, x + HOST_PAD, y + 17, "start", "soft", dp_str_text(&label));
  dp_str_free(&label);
}

/* Boxes of one node that stand side by side share a host; lines of the same extent on one node are joined. */
static void draw_hosts(report_drawing *d) {
  for (int i = 0; i < d->box_count;) {
    const int node = report_drawing_device(d, d->boxes[i].worker)->node;
    int end = i; /* of the run on this line */
    while (end + 1 < d->box_count && d->boxes[end + 1].line == d->boxes[i].line &&
           report_drawing_device(d, d->boxes[end + 1].worker)->node == node)
      end++;
    int last = end;
    const bool whole = d->boxes[i].column == 0 && d->boxes[end].column == d->columns - 1;
    while (whole && last + d->columns < d->box_count) { /* whole lines of the node below */
      bool same = true;
      for (int j = last + 1; j <= last + d->columns && same; j++)
        same =
            report_drawing_device(d, d->boxes[j].worker)->node == node && d->boxes[j].line == d->boxes[last].line + 1;
      if (!same) break;
      last += d->columns;
    }
    draw_host(d, i, last);
    i = last + 1;
  }
}

static void add_chunks(report_drawing *d, const report_box *b, double x, double *y) {
  const plan_plan *plan = &d->files->plan;
  const int rank = b->worker % d->ranks;
  int told = 0, more = 0;
  for (int c = 0; c < plan->chunk_count; c++) {
    char text[64];
    if (plan->chunks[c].rank != rank) continue;
    if (told == MAX_CHUNK_ROWS - 1 && plan->chunks_per_rank > MAX_CHUNK_ROWS) {
      more++;
      continue;
    }
    const int first = plan->chunks[c].first_unit, last = first + plan->chunks[c].unit_count - 1;
    (void)snprintf(text, sizeof text, first == last ? "unit %d" : "units %d–%d", first, last);
    add_label(d, x, *y += ROW, "start", NULL, text);
    told++;
  }
  if (more) {
    char text[64];
    (void)snprintf(text, sizeof text, "and %d more chunks", more);
    add_label(d, x, *y += ROW, "start", "soft", text);
  }
}

static int64_t parameters_of(const report_files *files, int rank) {
  int64_t sum = 0;
  for (size_t c = 0; c < files->chunks->count; c++)
    if (report_node_integer(files->chunks->items[c], "rank") == rank)
      sum += report_node_integer(files->chunks->items[c], "parameters");
  return sum;
}

static void draw_box(report_drawing *d, const report_box *b) {
  const plan_device *device = report_drawing_device(d, b->worker);
  const double peak = (double)d->files->memory.workers[b->worker].peak_bytes,
               limit = (double)d->files->run.memory_limit_bytes[b->worker];
  const double pad = d->box_width > 110 ? 10 : 8, inner = d->box_width - 2 * pad, x = b->x + pad;
  const char *name = device->name ? device->name : "", *slash = strchr(name, '/');
  char text[96], count[32], used[32];
  dp_str_addf(d->out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"6\"/>\n",
              peak > limit ? "device over" : "device", b->x, b->y, d->box_width, d->box_height);
  double y = b->y + 18;
  (void)snprintf(text, sizeof text, "%.14s", slash ? slash + 1 : name);
  add_label(d, x, y, "start", "name", text);
  if (d->box_width > 150 && device->model) {
    (void)snprintf(text, sizeof text, "%.20s", device->model->name);
    add_label(d, b->x + d->box_width - 10, y, "end", "soft", text);
  }
  y += 3;
  add_chunks(d, b, x, &y);
  (void)snprintf(text, sizeof text, d->box_width > 140 ? "%s parameters" : "%s par.",
                 dp_format_count((double)parameters_of(d->files, b->worker % d->ranks), count));
  add_label(d, x, y += ROW, "start", NULL, text);
  (void)snprintf(text, sizeof text, d->box_width > 120 ? "%s of %.1f GB" : "%s of %.0f GB", gigabytes(peak, used),
                 limit / 1e9);
  add_label(d, x, y += ROW, "start", peak > limit ? "bad" : NULL, text);
  y += 7;
  dp_str_addf(d->out, "<rect class=\"room\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"6\" rx=\"3\"/>\n", x, y,
              inner);
  dp_str_addf(d->out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"6\" rx=\"3\"/>\n",
              peak > limit ? "used over" : "used", x, y, inner * (limit > 0 ? fmin(1, peak / limit) : 1));
}

/* ---- what copies do together, and those that are not drawn ---- */

static void describe_rings(const report_drawing *d, dp_str *label) {
  const plan_plan *plan = &d->files->plan;
  char figure[32];
  if (d->tensor_bytes)
    dp_str_addf(label, "tensor groups of %d: a worker sends up to %s GB", plan_tensor(plan),
                gigabytes((double)d->tensor_bytes, figure));
  if (d->gradient_bytes)
    dp_str_addf(label, "%sgradients%s, all-reduced by %s%d replicas: a worker sends %s%s GB",
                d->tensor_bytes ? "; " : "", d->ranks > 1 ? " of each stage" : "", d->ranks > 1 ? "its " : "",
                plan->replicas, d->ranks > 1 ? "up to " : "", gigabytes((double)d->gradient_bytes, figure));
}

static void draw_rings(report_drawing *d) {
  const char *kind = plan_traffic_names[d->gradient_bytes ? PLAN_TRAFFIC_GRADIENT : PLAN_TRAFFIC_TENSOR];
  char class[32];
  bool said = false;
  double above_x = 0, above_y = 0; /* the end of the band before */
  dp_str label = {0};
  describe_rings(d, &label);
  (void)snprintf(class, sizeof class, "k-%s", kind);
  for (int line = 0; line < d->line_count; line++) {
    if (!report_drawing_has_ring(d, line)) continue;
    double left = WIDTH, right = 0, y = 0;
    for (int i = 0; i < d->box_count; i++) {
      const report_box *b = &d->boxes[i];
      const double x = b->x + d->box_width / 2;
      if (b->line != line) continue;
      y = b->y + d->box_height + HOST_PAD + 8;
      left = fmin(left, x);
      right = fmax(right, x);
      dp_str_addf(d->out, "<path class=\"%s\" d=\"M%.1f %.1fV%.1f\"/>\n", class, x, b->y + d->box_height, y);
    }
    dp_str_addf(d->out, "<path class=\"%s\" d=\"M%.1f %.1fH%.1f\"/>\n", class, left, y, right);
    if (said) { /* one ring: joined past the boxes */
      const double x = fmax(right, above_x) + d->box_width / 2 + HOST_PAD / 2.0;
      dp_str_addf(d->out, "<path class=\"%s\" d=\"M%.1f %.1fH%.1fV%.1fH%.1f\"/>\n", class, above_x, above_y, x, y,
                  right);
    } else {
      add_label(d, left + 6, y + 15, "start", class, dp_str_text(&label));
    }
    said = true;
    above_x = right;
    above_y = y;
  }
  dp_str_free(&label);
}

static void draw_others(report_drawing *d) {
  if (d->shown_copies == d->copies) return;
  const int first = d->shown_copies * d->ranks, last = d->ranks * d->copies - 1;
  const char *from = report_drawing_device(d, first)->name, *to = report_drawing_device(d, last)->name;
  const double y = d->height;
  dp_str label = {0};
  dp_str_addf(&label, "%d more %s hold the same: workers %d to %d, on %s to %s", d->copies - d->shown_copies,
              plan_tensor(&d->files->plan) > 1 ? "copies" : "replicas", first, last, from ? from : "", to ? to : "");
  dp_str_addf(d->out, "<rect class=\"host more\" x=\"0\" y=\"%.1f\" width=\"%d\" height=\"34\" rx=\"9\"/>\n", y, WIDTH);
  add_label(d, HOST_PAD, y + 22, "start", NULL, dp_str_text(&label));
  d->height += 34 + BETWEEN;
  dp_str_free(&label);
}

static void draw_legend(report_drawing *d) {
  bool seen[PLAN_TRAFFIC_COUNT] = {false};
  double x = 2;
  const double y = d->height + 10;
  for (int e = 0; e < d->edge_count; e++)
    for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) seen[k] = seen[k] || d->edges[e].kind_bytes[k];
  seen[PLAN_TRAFFIC_GRADIENT] = d->gradient_bytes > 0;
  seen[PLAN_TRAFFIC_TENSOR] = d->tensor_bytes > 0;
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) {
    if (!seen[k]) continue;
    dp_str_addf(d->out, "<path class=\"k-%s\" d=\"M%.1f %.1fH%.1f\"/>\n", plan_traffic_names[k], x, y, x + 24);
    add_label(d, x + 31, y + 4, "start", NULL, plan_traffic_names[k]);
    x += 60 + 7 * (double)strlen(plan_traffic_names[k]);
  }
  char per[64];
  (void)snprintf(per, sizeof per, "GB a %s, both ways together", report_period(&d->files->run));
  if (x > 2) add_label(d, x, y + 4, "start", "soft", per);
  d->height += x > 2 ? 24 : 0;
}

void report_draw_plan(const report_files *files, dp_str *svg, dp_str *note) {
  dp_str body = {0};
  report_drawing *d = calloc(1, sizeof *d);
  if (!d) {
    svg->failed = true;
    return;
  }
  d->files = files;
  d->out = &body;
  report_drawing_place(d);
  draw_hosts(d);
  draw_rings(d);
  for (int e = 0; e < d->edge_count; e++) draw_edge(d, &d->edges[e]);
  for (int e = 0; e < d->edge_count; e++) label_arc(d, &d->edges[e]);
  for (int i = 0; i < d->box_count; i++) draw_box(d, &d->boxes[i]);
  draw_others(d);
  draw_legend(d);
  dp_str_addf(svg,
              "<svg class=\"drawing\" viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"The plan on the cluster\">\n",
              WIDTH, ceil(d->height + 2));
  dp_str_add(svg, dp_str_text(&body));
  dp_str_add(svg, "</svg>\n");
  char bytes[32];
  if (d->left_out)
    dp_str_addf(note, "%d more transfer%s, %s together, %s not drawn: setup.json has them. ", d->left_out,
                d->left_out == 1 ? "" : "s", dp_format_bytes((double)d->left_out_bytes, bytes),
                d->left_out == 1 ? "is" : "are");
  if (d->shown_ranks < d->ranks) dp_str_addf(note, "The first %d of %d stages are drawn. ", d->shown_ranks, d->ranks);
  if (body.failed) svg->failed = true;
  dp_str_free(&body);
  free(d);
}
