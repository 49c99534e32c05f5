/* The drawing of a plan under way: what draw_layout.c decides and draw.c strokes; internal to reports/.
 *
 * Boxes are the workers that are shown, in lines; edges what travels between two of them, both ways together. */
#ifndef DP_REPORTS_DRAW_LAYOUT_H
#define DP_REPORTS_DRAW_LAYOUT_H

#include "reports/draw.h"

enum {
  WIDTH = 1116,  /* of the picture; all in its pixels */
  HOST_PAD = 14, /* around the boxes of a host */
  HEAD = 24,     /* a host's name */
  LEVEL = 17,    /* an arc above the boxes */
  MAX_LEVELS = 6,
  PER_LINE = 8,     /* boxes */
  ALL_WORKERS = 16, /* up to so many, whole copies are drawn */
  LINK_GAP = 54,    /* between stages, with room for a figure */
  NARROW_GAP = 40,  /* the same where boxes are many */
  MAX_CHUNK_ROWS = 4,
  ROW = 15,     /* a line of text */
  BETWEEN = 16, /* lines of boxes */
  RING = 36,    /* the band of an all-reduce under a line, or between two */
  MAX_EDGES = 256
};

typedef struct report_box {
  int worker, line, column;
  double x, y;
} report_box;

typedef struct report_edge {
  int a, b; /* boxes, a < b */
  int64_t kind_bytes[PLAN_TRAFFIC_COUNT];
  int level;
} report_edge;

typedef struct report_drawing {
  const report_files *files;
  dp_str *out;
  int ranks, copies, shown_copies, shown_ranks; /* a copy of the pipeline: a tensor member of a replica */
  report_box boxes[REPORT_DRAWN_WORKERS];
  int box_count, line_count, columns;
  int lines_each; /* of a copy */
  double box_width, box_height;
  report_edge edges[MAX_EDGES];
  int edge_count, left_out;
  int64_t left_out_bytes;
  int64_t gradient_bytes, tensor_bytes; /* most that a worker sends in collectives of its replicas, of its group */
  double line_top[REPORT_DRAWN_WORKERS + 1];
  int line_levels[REPORT_DRAWN_WORKERS];
  double height;
} report_drawing;

/* Fills everything but `out`; files is set before, all else 0. */
void report_drawing_place(report_drawing *drawing);

const plan_device *report_drawing_device(const report_drawing *drawing, int worker);
int report_drawing_chunk_rows(const report_drawing *drawing); /* lines of text that tell a box's units */
double report_drawing_gap(const report_drawing *drawing);     /* between two stages */
/* A band under the last line of copies, for what they do together. */
bool report_drawing_has_ring(const report_drawing *drawing, int line);
bool report_edge_on_line(const report_drawing *drawing, const report_edge *edge);
int report_edge_reach(const report_edge *edge); /* 1: neighbours */

#endif
