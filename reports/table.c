#include "reports/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAR_WIDTH = 30, INDENT = 2 };

const char *report_text_clean(dp_arena *arena, const char *text) {
  char *copy = dp_arena_strdup(arena, text);
  if (copy) dp_text_clean(copy);
  return copy;
}

int report_text_width(const char *text) {
  int width = 0;
  for (; *text; text++) width += ((unsigned char)*text & 0xc0) != 0x80;
  return width;
}

void report_html_escape(const char *text, dp_str *out) {
  for (; *text; text++) {
    switch (*text) {
      case '&':
        dp_str_add(out, "&amp;");
        break;
      case '<':
        dp_str_add(out, "&lt;");
        break;
      case '>':
        dp_str_add(out, "&gt;");
        break;
      case '"':
        dp_str_add(out, "&quot;");
        break;
      case '\'':
        dp_str_add(out, "&#39;");
        break;
      default:
        dp_str_add_bytes(out, text, 1);
    }
  }
}

void report_markdown_escape(const char *text, dp_str *out) {
  for (; *text; text++) {
    if (strchr("\\`*_[]<>|#~", *text)) dp_str_add(out, "\\");
    dp_str_add_bytes(out, *text == '\n' ? " " : text, 1);
  }
}

/* A formatted and cleaned text in the table's arena; NULL and `failed` when there is no memory. */
static const char *format_text(report_table *table, const char *format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  const int length = vsnprintf(NULL, 0, format, arguments);
  char *text = length < 0 ? NULL : dp_arena_alloc(&table->arena, (size_t)length + 1, 1);
  if (text) (void)vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  const char *clean = text ? report_text_clean(&table->arena, text) : NULL;
  if (!clean) table->failed = true;
  return clean;
}

void report_table_title(report_table *table, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  table->title = format_text(table, format, arguments);
  va_end(arguments);
}

void report_table_note(report_table *table, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  table->note = format_text(table, format, arguments);
  va_end(arguments);
}

void report_table_column(report_table *table, const char *head, report_align align) {
  if (table->column_count == REPORT_MAX_COLUMNS) {
    table->failed = true;
    return;
  }
  table->columns[table->column_count++] = (report_column){head, align};
}

void report_table_row(report_table *table, bool warned) {
  if (!table->failed && !dp_array_push(&table->warned, warned)) table->failed = true;
}

void report_table_cell(report_table *table, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const char *text = format_text(table, format, arguments);
  va_end(arguments);
  if (!table->failed && !dp_array_push(&table->cells, text)) table->failed = true;
}

int report_table_rows(const report_table *table) { return (int)table->warned.count; }

static const char *cell(const report_table *table, int row, int column) {
  const size_t at = (size_t)row * (size_t)table->column_count + (size_t)column;
  return at < table->cells.count ? table->cells.items[at] : "";
}

static void add_spaces(dp_str *out, int count) {
  for (int i = 0; i < count; i++) dp_str_add(out, " ");
}

/* Eighths of a column, so that small shares differ visibly; then spaces up to the next column. */
static void add_bar(dp_str *out, double share, int column_width) {
  static const char *const parts[] = {"", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589"};
  const int eighths = (int)(share * BAR_WIDTH * 8 + 0.5);
  for (int i = 0; i < eighths / 8; i++) dp_str_add(out, "\u2588");
  dp_str_add(out, parts[eighths % 8]);
  add_spaces(out, column_width - (eighths + 7) / 8);
}

/* Words up to the width, further lines under the first. */
static void add_wrapped(dp_str *out, const char *text, int left, int width) {
  int at = left;
  while (*text) {
    const size_t bytes = strcspn(text, " ");
    int columns = 0;
    for (size_t i = 0; i < bytes; i++) columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    if (at > left && at + 1 + columns > width) {
      dp_str_add(out, "\n");
      add_spaces(out, left);
      at = left;
    } else if (at > left) {
      dp_str_add(out, " ");
      at++;
    }
    dp_str_add_bytes(out, text, bytes);
    at += columns;
    text += bytes + (text[bytes] == ' ');
  }
}

static void trim_line(dp_str *out) {
  while (out->length && out->text[out->length - 1] == ' ') out->text[--out->length] = 0;
}

static void print_cell(const report_table *table, int column, const char *text, int left, int column_width, int width,
                       dp_str *out) {
  const int pad = column_width - report_text_width(text);
  switch (table->columns[column].align) {
    case REPORT_LEFT:
      dp_str_add(out, text);
      add_spaces(out, pad);
      break;
    case REPORT_RIGHT:
      add_spaces(out, pad);
      dp_str_add(out, text);
      break;
    case REPORT_BAR:
      add_bar(out, strtod(text, NULL), column_width);
      break;
    case REPORT_TEXT:
      add_wrapped(out, text, left, width);
      break;
  }
}

void report_table_print(const report_table *table, int width, dp_str *out) {
  int widths[REPORT_MAX_COLUMNS], whole = INDENT;
  bool headed = false;
  for (int c = 0; c < table->column_count; c++) {
    widths[c] = report_text_width(table->columns[c].head);
    headed = headed || widths[c];
    for (int r = 0; r < report_table_rows(table); r++) {
      const int w = table->columns[c].align == REPORT_BAR ? BAR_WIDTH : report_text_width(cell(table, r, c));
      if (w > widths[c]) widths[c] = w;
    }
    whole += widths[c] + 2;
  }
  const int gap = whole - 2 > width && table->column_count > 4 ? 1 : 2;
  if (table->title) dp_str_addf(out, "%s\n", table->title);
  for (int r = headed ? -1 : 0; r < report_table_rows(table); r++) {
    int left = INDENT;
    add_spaces(out, INDENT);
    for (int c = 0; c < table->column_count; c++) {
      const char *text = r < 0 ? table->columns[c].head : cell(table, r, c);
      if (c) add_spaces(out, gap);
      if (r < 0 && table->columns[c].align != REPORT_RIGHT) {
        dp_str_add(out, text);
        add_spaces(out, widths[c] - report_text_width(text));
      } else {
        print_cell(table, c, text, left, widths[c], width, out);
      }
      left += widths[c] + gap;
    }
    trim_line(out);
    dp_str_add(out, "\n");
  }
  if (table->note) {
    add_spaces(out, INDENT);
    add_wrapped(out, table->note, INDENT, width);
    dp_str_add(out, "\n");
  }
}

static bool has_heads(const report_table *table) {
  for (int c = 0; c < table->column_count; c++)
    if (table->columns[c].head[0]) return true;
  return false;
}

void report_table_html(const report_table *table, dp_str *out) {
  static const char *const classes[] = {"", " class=\"n\"", " class=\"b\"", " class=\"t\""};
  const bool headed = has_heads(table);
  dp_str_addf(out, "<div class=\"scroll\"><table%s>\n", headed ? "" : " class=\"facts\"");
  if (headed) {
    dp_str_add(out, "<thead><tr>");
    for (int c = 0; c < table->column_count; c++) {
      dp_str_addf(out, "<th scope=\"col\"%s>", classes[table->columns[c].align]);
      report_html_escape(table->columns[c].head, out);
      dp_str_add(out, "</th>");
    }
    dp_str_add(out, "</tr></thead>\n");
  }
  dp_str_add(out, "<tbody>\n");
  for (int r = 0; r < report_table_rows(table); r++) {
    dp_str_add(out, table->warned.items[r] ? "<tr class=\"bad\">"
                    : r + 1 == table->best ? "<tr class=\"best\">"
                                           : "<tr>");
    for (int c = 0; c < table->column_count; c++) {
      const char *tag = c == 0 ? "th" : "td";
      dp_str_addf(out, "<%s%s%s", tag, c == 0 ? " scope=\"row\"" : "", classes[table->columns[c].align]);
      if (table->columns[c].align == REPORT_BAR)
        dp_str_addf(out, " style=\"--w:%.2f%%\">", 100 * strtod(cell(table, r, c), NULL));
      else {
        dp_str_add(out, ">");
        report_html_escape(cell(table, r, c), out);
      }
      dp_str_addf(out, "</%s>", tag);
    }
    dp_str_add(out, "</tr>\n");
  }
  dp_str_add(out, "</tbody></table></div>\n");
}

void report_table_markdown(const report_table *table, dp_str *out) {
  for (int r = -2; r < report_table_rows(table); r++) { /* heads, their rule, rows */
    dp_str_add(out, "|");
    for (int c = 0; c < table->column_count; c++) {
      if (table->columns[c].align == REPORT_BAR) continue;
      if (r == -1) {
        dp_str_add(out, table->columns[c].align == REPORT_RIGHT ? "---:|" : "---|");
        continue;
      }
      dp_str_add(out, " ");
      report_markdown_escape(r < 0 ? table->columns[c].head : cell(table, r, c), out);
      dp_str_add(out, " |");
    }
    dp_str_add(out, "\n");
  }
  dp_str_add(out, "\n");
}

void report_table_free(report_table *table) {
  dp_arena_free(&table->arena);
  dp_array_free(&table->cells);
  dp_array_free(&table->warned);
  *table = (report_table){0};
}
