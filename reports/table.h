/* A table of texts that prints itself for a terminal and for a page, so that both always say the same.
 *
 * Sticky: after the host ran out of memory additions do nothing and `failed` is true. Zero-initialised is an empty
 * table without columns. Texts that are passed in are copied, control characters are replaced.
 */
#ifndef DP_REPORTS_TABLE_H
#define DP_REPORTS_TABLE_H

#include "base/arena.h"
#include "base/array.h"
#include "base/str.h"

typedef enum report_align {
  REPORT_LEFT,
  REPORT_RIGHT,
  REPORT_BAR, /* cells are numbers from 0 to 1 */
  REPORT_TEXT /* left, and wrapped at the right edge: for the last column */
} report_align;

typedef struct report_column {
  const char *head;
  report_align align;
} report_column;

enum { REPORT_MAX_COLUMNS = 20 };

typedef struct report_table {
  dp_arena arena;
  const char *title, *note; /* note: a line under the table; both may be NULL */
  report_column columns[REPORT_MAX_COLUMNS];
  int column_count;
  DP_ARRAY(const char *) cells; /* row by row */
  DP_ARRAY(bool) warned;        /* a row that deserves attention */
  int best;                     /* row to be marked, counted from 1; 0: none */
  bool failed;
} report_table;

void report_table_title(report_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void report_table_note(report_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void report_table_column(report_table *table, const char *head, report_align align);
void report_table_row(report_table *table, bool warned); /* starts a row */
void report_table_cell(report_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
int report_table_rows(const report_table *table);

void report_table_print(const report_table *table, int width, dp_str *out);
/* The rows alone: title and note are the writer's. Markdown leaves bars out. */
void report_table_html(const report_table *table, dp_str *out);
void report_table_markdown(const report_table *table, dp_str *out);
void report_table_free(report_table *table);

/* Columns that a UTF-8 text takes, one a code point. */
int report_text_width(const char *text);
/* Appends with & < > " ' escaped. */
void report_html_escape(const char *text, dp_str *out);
/* The same for Markdown. */
void report_markdown_escape(const char *text, dp_str *out);
/* A copy without control characters and invalid UTF-8; NULL: no memory. */
const char *report_text_clean(dp_arena *arena, const char *text);

#endif
