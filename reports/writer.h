/* Two ways to write the same page: HTML (one file, no reference to the network, light and dark) and Markdown.
 *
 * The page's sections call these in order and know nothing of either. Sticky through `out`: look at out->failed once.
 * Texts are escaped here; control characters have to be cleaned before (report_text_clean, report_table_cell).
 */
#ifndef DP_REPORTS_WRITER_H
#define DP_REPORTS_WRITER_H

#include "reports/table.h"

typedef struct report_writer {
  bool markdown;
  dp_str *out;
  bool open; /* a section is */
} report_writer;

/* A figure of the answer: "1.755", "s", "one step, ± 29 %". */
typedef struct report_tile {
  const char *value, *unit, *what;
} report_tile;

void report_write_begin(report_writer *writer, const char *title, const char *lead, const char *above);
void report_write_end(report_writer *writer);

/* Ends the section before; `id` is its anchor. report_write_contents links to those sections. */
void report_write_section(report_writer *writer, const char *id, const char *title);
void report_write_contents(report_writer *writer, const char *const ids[][2], int count); /* id, title */
void report_write_heading(report_writer *writer, const char *text);                       /* within a section */

/* `class`: of the paragraph in HTML: "note", "plan", or NULL. */
void report_write_text(report_writer *writer, const char *class, const char *text);
void report_write_list_begin(report_writer *writer);
void report_write_item(report_writer *writer, const char *text);
void report_write_list_end(report_writer *writer);
void report_write_verdict(report_writer *writer, bool good, const char *word, const char *text);
void report_write_tiles(report_writer *writer, const report_tile *tiles, int count);
void report_write_command(report_writer *writer, const char *command);     /* may have lines */
void report_write_table(report_writer *writer, const report_table *table); /* its title is a heading */
/* The table under a line that opens it (Markdown: open). For what repeats a picture. */
void report_write_folded_table(report_writer *writer, const char *line, const report_table *table);
/* `svg` is markup and taken as it is; HTML only. `wide`: it may scroll where the window is narrow. */
void report_write_figure(report_writer *writer, const char *id, const char *svg, const char *caption, bool wide);
/* Figures between these two stand side by side where there is room. */
void report_write_row_begin(report_writer *writer);
void report_write_row_end(report_writer *writer);

/* gnuplot's SVG as part of a page: without prologue and ground, its ink the page's. */
void report_svg_inline(const char *svg, dp_str *out);

#endif
