#include "reports/html.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "reports/plots.h"
#include "reports/tables.h"

/* A rule a line. */
static const char style[] =
    ":root { color-scheme: light dark; --ink: #202124; --soft: #5f6368; --line: #dadce0; }\n"
    ":root { --page: #fff; --card: #f6f7f9; --bar: #0072b2; --bad: #b3261e; --bad-ground: #fce8e6; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    ":root { --ink: #e8eaed; --soft: #9aa0a6; --line: #3c4043; --page: #17181b; --card: #202226; }\n"
    ":root { --bar: #56b4e9; --bad: #f2b8b5; --bad-ground: #4a1c1a; }\n"
    "}\n"
    "* { box-sizing: border-box; }\n"
    "body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }\n"
    "main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }\n"
    "h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }\n"
    "h2 { font-size: 17px; margin: 34px 0 10px; }\n"
    ".sub, .note, figcaption, footer { color: var(--soft); }\n"
    ".sub { margin: 0 0 20px; }\n"
    ".tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); }\n"
    ".tiles { gap: 12px; margin: 18px 0; }\n"
    ".tile { background: var(--card); border-radius: 10px; padding: 12px 16px; }\n"
    ".tile b { display: block; font-size: 22px; line-height: 1.35; font-weight: 600; }\n"
    ".tile span { color: var(--soft); font-size: 13px; }\n"
    ".verdict { border-left: 4px solid var(--bar); background: var(--card); border-radius: 4px; }\n"
    ".verdict { padding: 10px 16px; margin: 16px 0; }\n"
    ".verdict.bad { border-color: var(--bad); background: var(--bad-ground); }\n"
    "figure { margin: 26px 0; overflow-x: auto; }\n"
    "figure svg { display: block; width: 100%; min-width: 960px; height: auto; }\n"
    "figure svg g { color: var(--ink); }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "figure svg [fill='rgb(136,  34,  85)'], figure svg [fill='rgb(136, 34, 85)'] { fill: #9d7bea; }\n"
    "}\n"
    "figcaption { font-size: 13px; margin-top: 4px; position: sticky; left: 0; }\n"
    ".scroll { overflow-x: auto; }\n"
    "table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px; }\n"
    "th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); }\n"
    "th, td { text-align: left; vertical-align: top; white-space: nowrap; }\n"
    "th { font-weight: 500; }\n"
    "thead th { color: var(--soft); }\n"
    "th.n, td.n { text-align: right; }\n"
    ".facts td { white-space: normal; }\n"
    ".facts th { color: var(--soft); min-width: 110px; }\n"
    "td.b { width: 260px; min-width: 160px; }\n"
    "td.b i { display: block; height: 14px; background: var(--bar); border-radius: 2px; margin-top: 3px; }\n"
    "tr.bad td, tr.bad th { background: var(--bad-ground); }\n"
    "footer { font-size: 13px; margin-top: 44px; }\n";

static void add_tile(dp_str *out, const char *value, const char *what) {
  dp_str_add(out, "<div class=\"tile\"><b>");
  report_html_escape(value, out);
  dp_str_add(out, "</b><span>");
  report_html_escape(what, out);
  dp_str_add(out, "</span></div>\n");
}

static void add_tiles(const report_run *run, dp_str *out) {
  char text[64], figure[32];
  dp_str_add(out, "<div class=\"tiles\">\n");
  const char *what = run->program->plan->training ? "step time" : "trajectory";
  (void)snprintf(text, sizeof text, run->error_band > 0 ? "%s, ± %.0f %%" : "%s", what, 100 * run->error_band);
  add_tile(out, dp_format_seconds(run->metrics->step_s, figure), text);
  (void)snprintf(text, sizeof text, "%.4g", run->metrics->throughput_samples_per_s);
  add_tile(out, text, "samples per second");
  (void)snprintf(text, sizeof text, "%.1f %%", 100 * run->metrics->bubble_ratio);
  add_tile(out, text, "bubble ratio");
  add_tile(out, dp_format_bytes((double)run->metrics->comm_bytes, figure), "traffic between workers");
  if (run->usd_per_million_samples > 0) {
    (void)snprintf(text, sizeof text, run->usd_per_million_samples >= 1000 ? "%.0f USD" : "%.2f USD",
                   run->usd_per_million_samples);
    add_tile(out, text, "per million samples");
  }
  if (run->joules_per_sample > 0) {
    (void)snprintf(text, sizeof text, "%.4g J", run->joules_per_sample);
    add_tile(out, text, "per sample");
  }
  dp_str_add(out, "</div>\n");
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

/* The plot as part of the page: without its XML prologue and white ground, its ink the page's. */
static void add_svg(dp_str *out, const char *svg) {
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

static dp_status add_plots(const char *folder, dp_str *out, dp_error *error) {
  for (int p = 0; p < REPORT_PLOT_COUNT; p++) {
    dp_str path = {0};
    char *svg = NULL;
    size_t length = 0;
    dp_str_addf(&path, "%s/%s.svg", folder, report_plots[p].name);
    const dp_status status =
        path.failed ? dp_fail_memory(error) : dp_file_read(dp_str_text(&path), 1u << 28, &svg, &length, error);
    dp_str_free(&path);
    if (status != DP_OK) return status;
    dp_str_addf(out, "<figure id=\"%s\">\n", report_plots[p].name);
    add_svg(out, svg);
    dp_str_addf(out, "<figcaption>%s</figcaption>\n</figure>\n", report_plots[p].caption);
    free(svg);
  }
  return DP_OK;
}

static dp_status build_page(const report_run *run, const char *svg_folder, dp_str *out, dp_error *error) {
  report_tables tables;
  DP_TRY(report_tables_build(run, &tables, error));
  dp_arena arena = {0};
  const char *name = report_text_clean(&arena, run->name);
  dp_str verdict = {0}, layout = {0};
  report_verdict(run, &verdict);
  report_layout(run->program->plan, &layout);
  const char *clean = report_text_clean(&arena, dp_str_text(&verdict));
  dp_status status = name && clean && !layout.failed && !verdict.failed ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) {
    dp_str_add(out,
               "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
               "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>");
    report_html_escape(name, out);
    dp_str_addf(out, " – diffpipe</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n<h1>", style);
    report_html_escape(name, out);
    dp_str_addf(out, "</h1>\n<p class=\"sub\">%s, %s: %s</p>\n", run->program->plan->training ? "training" : "sampling",
                run->origin, dp_str_text(&layout));
    add_tiles(run, out);
    dp_str_addf(out, "<p class=\"verdict%s\">", run->fits ? "" : " bad");
    report_html_escape(clean, out);
    dp_str_add(out, "</p>\n");
    if (svg_folder) status = add_plots(svg_folder, out, error);
    for (int t = 0; t < REPORT_TABLE_COUNT; t++)
      if (report_table_rows(&tables.tables[t])) report_table_html(&tables.tables[t], out);
    dp_str_add(
        out,
        "<footer>Written by diffpipe. GB is 10<sup>9</sup> bytes. The same figures stand in <code>metrics.json</code>; "
        "<code>timeline.json</code> opens in Perfetto.</footer>\n</main>\n</body>\n</html>\n");
    if (status == DP_OK && out->failed) status = dp_fail_memory(error);
  }
  dp_str_free(&verdict);
  dp_str_free(&layout);
  dp_arena_free(&arena);
  report_tables_free(&tables);
  return status;
}

dp_status report_html_write(const report_run *run, const char *svg_folder, const char *path, dp_error *error) {
  dp_str page = {0};
  dp_output output;
  dp_status status = build_page(run, svg_folder, &page, error);
  if (status == DP_OK) status = dp_output_open(path, &output, error);
  if (status == DP_OK) {
    (void)fwrite(page.text, 1, page.length, output.stream); /* dp_output_commit looks at the stream's error flag */
    status = dp_output_commit(&output, error);
  }
  dp_str_free(&page);
  return status;
}
