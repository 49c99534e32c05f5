#include "reports/writer.h"

#include <string.h>

#include "reports/plots.h"
#include "reports/style.h"

static void add_text(const report_writer *w, const char *text) {
  if (w->markdown)
    report_markdown_escape(text, w->out);
  else
    report_html_escape(text, w->out);
}

/* before, text, after: of HTML, then of Markdown */
static void add_marked(const report_writer *w, const char *before, const char *text, const char *after,
                       const char *markdown_before, const char *markdown_after) {
  dp_str_add(w->out, w->markdown ? markdown_before : before);
  add_text(w, text);
  dp_str_add(w->out, w->markdown ? markdown_after : after);
}

/* ---- frame ---- */

void report_write_begin(report_writer *w, const char *title, const char *lead, const char *above) {
  if (w->markdown) {
    add_marked(w, "", title, "", "# ", "\n\n");
    add_marked(w, "", above, "", "", ": ");
    add_marked(w, "", lead, "", "", "\n\n");
    return;
  }
  dp_str_add(w->out,
             "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>");
  report_html_escape(title, w->out);
  dp_str_add(w->out, " – diffpipe</title>\n<style>\n");
  for (int i = 0; report_style[i]; i++) dp_str_addf(w->out, "%s\n", report_style[i]);
  dp_str_add(w->out, "</style>\n</head>\n<body>\n<main>\n<header>\n<p class=\"above\">");
  report_html_escape(above, w->out);
  dp_str_add(w->out, "</p>\n<h1>");
  report_html_escape(title, w->out);
  dp_str_add(w->out, "</h1>\n<p class=\"lead\">");
  report_html_escape(lead, w->out);
  dp_str_add(w->out, "</p>\n");
}

static void close_section(report_writer *w) {
  if (!w->markdown) dp_str_add(w->out, w->open ? "</section>\n" : "</header>\n");
}

void report_write_end(report_writer *w) {
  close_section(w);
  if (w->markdown) {
    dp_str_add(w->out, "GB is 10^9 bytes. The figures stand in `metrics.json`, `setup.json` and `tune.json`.\n");
    return;
  }
  dp_str_add(w->out,
             "<footer>Written by diffpipe. GB is 10<sup>9</sup> bytes. The figures stand in <code>metrics.json</code>, "
             "<code>setup.json</code> and <code>tune.json</code>; <code>timeline.json</code> opens in Perfetto."
             "</footer>\n</main>\n</body>\n</html>\n");
}

void report_write_section(report_writer *w, const char *id, const char *title) {
  close_section(w);
  w->open = true;
  if (!w->markdown) dp_str_addf(w->out, "<section id=\"%s\">\n", id);
  add_marked(w, "<h2>", title, "</h2>\n", "## ", "\n\n");
}

void report_write_contents(report_writer *w, const char *const ids[][2], int count) {
  if (w->markdown) return;
  dp_str_add(w->out, "<nav>");
  for (int i = 0; i < count; i++) {
    dp_str_addf(w->out, "%s<a href=\"#%s\">", i ? "\n" : "", ids[i][0]);
    report_html_escape(ids[i][1], w->out);
    dp_str_add(w->out, "</a>");
  }
  dp_str_add(w->out, "</nav>\n");
}

void report_write_heading(report_writer *w, const char *text) {
  add_marked(w, "<h3>", text, "</h3>\n", "### ", "\n\n");
}

/* ---- texts ---- */

void report_write_text(report_writer *w, const char *class, const char *text) {
  if (!w->markdown && class) {
    dp_str_addf(w->out, "<p class=\"%s\">", class);
    add_marked(w, "", text, "</p>\n", "", "");
    return;
  }
  add_marked(w, "<p>", text, "</p>\n", "", "\n\n");
}

void report_write_list_begin(report_writer *w) {
  if (!w->markdown) dp_str_add(w->out, "<ul>\n");
}

void report_write_item(report_writer *w, const char *text) { add_marked(w, "<li>", text, "</li>\n", "- ", "\n"); }

void report_write_list_end(report_writer *w) { dp_str_add(w->out, w->markdown ? "\n" : "</ul>\n"); }

void report_write_verdict(report_writer *w, bool good, const char *word, const char *text) {
  add_marked(w, good ? "<p class=\"verdict\"><b>" : "<p class=\"verdict bad\"><b>", word, "</b> <span>", "**", ":** ");
  add_marked(w, "", text, "</span></p>\n", "", "\n\n");
}

void report_write_tiles(report_writer *w, const report_tile *tiles, int count) {
  if (!w->markdown) dp_str_add(w->out, "<div class=\"tiles\">\n");
  for (int i = 0; i < count; i++) {
    add_marked(w, "<div class=\"tile\"><b>", tiles[i].value, "", "- **", "");
    if (tiles[i].unit[0]) add_marked(w, " <small>", tiles[i].unit, "</small>", " ", "");
    add_marked(w, "</b><span>", tiles[i].what, "</span></div>\n", "** ", "\n");
  }
  dp_str_add(w->out, w->markdown ? "\n" : "</div>\n");
}

void report_write_command(report_writer *w, const char *command) {
  dp_str_add(w->out, w->markdown ? "```\n" : "<pre>");
  if (w->markdown)
    dp_str_add(w->out, command);
  else
    report_html_escape(command, w->out);
  dp_str_add(w->out, w->markdown ? "\n```\n\n" : "</pre>\n");
}

/* ---- tables and figures ---- */

static void write_rows(report_writer *w, const report_table *table) {
  if (w->markdown)
    report_table_markdown(table, w->out);
  else
    report_table_html(table, w->out);
  if (table->note) report_write_text(w, "note", table->note);
}

void report_write_table(report_writer *w, const report_table *table) {
  if (report_table_rows(table) == 0) return;
  if (table->title) report_write_heading(w, table->title);
  write_rows(w, table);
}

void report_write_folded_table(report_writer *w, const char *line, const report_table *table) {
  if (report_table_rows(table) == 0) return;
  if (w->markdown && table->title) report_write_heading(w, table->title);
  if (!w->markdown) add_marked(w, "<details>\n<summary>", line, "</summary>\n", "", "");
  write_rows(w, table);
  if (!w->markdown) dp_str_add(w->out, "</details>\n");
}

void report_write_figure(report_writer *w, const char *id, const char *svg, const char *caption, bool wide) {
  if (w->markdown) return;
  dp_str_addf(w->out, "<figure id=\"%s\"%s>\n%s", id, wide ? " class=\"wide\"" : "", svg);
  dp_str_add(w->out, "<figcaption>");
  report_html_escape(caption, w->out);
  dp_str_add(w->out, "</figcaption>\n</figure>\n");
}

void report_write_row_begin(report_writer *w) {
  if (!w->markdown) dp_str_add(w->out, "<div class=\"row\">\n");
}

void report_write_row_end(report_writer *w) {
  if (!w->markdown) dp_str_add(w->out, "</div>\n");
}

/* Appends text with every `from` replaced by `to`. */
static void add_replaced(dp_str *out, const char *text, const char *from, const char *to) {
  for (const char *hit = strstr(text, from); hit; hit = strstr(text, from)) {
    dp_str_add_bytes(out, text, (size_t)(hit - text));
    dp_str_add(out, to);
    text = hit + strlen(from);
  }
  dp_str_add(out, text);
}

void report_svg_inline(const char *svg, dp_str *out) {
  static const char *const changes[][2] = {{REPORT_INK_SVG_TEXT, "currentColor"},
                                           {REPORT_INK_SVG_LINE, "currentColor"},
                                           {"fill=\"#ffffff\"", "fill=\"none\""},
                                           {REPORT_BAND_SVG, "fill='currentColor' fill-opacity='0.08'"},
                                           {REPORT_GRID_SVG, "stroke='currentColor' stroke-opacity='0.25'"}};
  const char *start = strstr(svg, "<svg");
  dp_str work[2] = {{0}, {0}};
  dp_str_add(&work[0], start ? start : "");
  for (size_t c = 0; c < sizeof changes / sizeof changes[0]; c++) {
    dp_str_clear(&work[(c + 1) % 2]);
    add_replaced(&work[(c + 1) % 2], dp_str_text(&work[c % 2]), changes[c][0], changes[c][1]);
  }
  const dp_str *last = &work[sizeof changes / sizeof changes[0] % 2];
  if (work[0].failed || work[1].failed) out->failed = true;
  dp_str_add(out, dp_str_text(last));
  dp_str_free(&work[0]);
  dp_str_free(&work[1]);
}
