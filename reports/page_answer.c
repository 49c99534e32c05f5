/* The first screen: does it fit, which plan, what it gives, what to type. */
#include <math.h>
#include <string.h>

#include "reports/page.h"

static const char *text_of(report_page *page, dp_str *text) {
  const char *kept = report_page_text(page, "%s", dp_str_text(text));
  if (text->failed) page->failed = true;
  dp_str_free(text);
  return kept;
}

/* A number and its unit apart: "1.755 s" -> "1.755", "s". */
static report_tile split_tile(report_page *page, const char *figure, const char *what) {
  const char *space = strrchr(figure, ' ');
  if (!space) return (report_tile){report_page_text(page, "%s", figure), "", what};
  return (report_tile){report_page_text(page, "%.*s", (int)(space - figure), figure),
                       report_page_text(page, "%s", space + 1), what};
}

static void write_tiles(report_page *page) {
  const report_run *run = &page->files->run;
  const plan_metrics *metrics = run->metrics;
  const int w = run->tightest_worker;
  const bool training = run->program->plan->training;
  report_tile tiles[6];
  int count = 0;
  char figure[32], low[32], high[32];
  tiles[count++] = (report_tile){report_page_rate(page, metrics->throughput_samples_per_s), "samples/s", "throughput"};
  const char *what = training ? "one step" : "one batch of samples";
  if (run->error_band > 0)
    what = report_page_text(page, "%s, ± %.0f %%: %s to %s", what, 100 * run->error_band,
                            dp_format_seconds(metrics->step_s * fmax(0, 1 - run->error_band), low),
                            dp_format_seconds(metrics->step_s * (1 + run->error_band), high));
  if (page->files->comparison)
    what =
        report_page_text(page, "%s; predicted %s", what, dp_format_seconds(page->files->predicted_metrics.step_s, low));
  tiles[count++] = split_tile(page, dp_format_seconds(metrics->step_s, figure), what);
  if (run->usd_per_million_samples > 0)
    tiles[count++] = (report_tile){
        report_page_text(page, run->usd_per_million_samples >= 1000 ? "%.0f" : "%.2f", run->usd_per_million_samples),
        "USD", "per million samples"};
  if (run->joules_per_sample > 0)
    tiles[count++] = (report_tile){report_page_rate(page, run->joules_per_sample), "J", "energy per sample"};
  tiles[count++] =
      (report_tile){report_page_text(page, "%.1f", 100 * metrics->bubble_ratio), "%", "bubble: devices wait"};
  tiles[count++] = (report_tile){report_page_text(page, "%.1f", (double)run->memory->workers[w].peak_bytes / 1e9),
                                 report_page_text(page, "of %.1f GB", (double)run->memory_limit_bytes[w] / 1e9),
                                 report_page_text(page, "tightest memory: %s", report_device_name(run, w))};
  report_write_tiles(page->writer, tiles, count);
}

static void add_setting(const char *assignment, int *on_line, dp_str *out) {
  dp_str_add(out, *on_line == 3 ? " \\\n    --set " : " --set ");
  *on_line = *on_line == 3 ? 1 : *on_line + 1;
  dp_str_add_word(out, assignment);
}

/* Within a list a text is quoted, as in TOML. */
static void add_value(const dp_node *node, bool quoted, dp_str *out) {
  char shown[80];
  if (node->kind == DP_NODE_STRING) {
    dp_str_addf(out, quoted ? "\"%s\"" : "%s", node->string);
  } else if (node->kind == DP_NODE_ARRAY) {
    dp_str_add(out, "[");
    for (size_t i = 0; i < node->count; i++) {
      if (i) dp_str_add(out, ",");
      add_value(node->items[i], true, out);
    }
    dp_str_add(out, "]");
  } else {
    dp_str_add(out, dp_node_show(node, shown));
  }
}

static bool is_measured(const report_run *run) { return strcmp(run->origin, "measured") == 0; }

/* `diffpipe simulate`, or `run`, of this plan: what was set, without [plan] and [search] where a search chose it, and
 * the plan found. */
static const char *command(report_page *page, const dp_node *plan) {
  const report_run *run = &page->files->run;
  dp_str text = {0}, setting = {0};
  int on_line = 3;
  if (plan && plan->kind != DP_NODE_TABLE) plan = NULL;
  dp_str_add(&text, is_measured(run) ? "diffpipe run " : "diffpipe simulate ");
  dp_str_add_word(&text, report_page_text(page, "%s", run->scenario_file ? run->scenario_file : "SCENARIO"));
  for (int i = 0; i < run->assignment_count; i++)
    if (!plan || (strncmp(run->assignments[i], "plan.", 5) != 0 && strncmp(run->assignments[i], "search.", 7) != 0))
      add_setting(report_page_text(page, "%s", run->assignments[i]), &on_line, &text);
  for (size_t i = 0; plan && i < plan->count; i++) {
    if (strcmp(plan->items[i]->key, "recomputed_units") == 0) continue; /* what "auto" came to, no key of [plan] */
    dp_str_clear(&setting);
    dp_str_addf(&setting, "plan.%s=", plan->items[i]->key);
    add_value(plan->items[i], false, &setting);
    add_setting(report_page_text(page, "%s", dp_str_text(&setting)), &on_line, &text);
  }
  char *kept = dp_arena_strdup(&page->arena, dp_str_text(&text)); /* its words are cleaned; it has lines */
  if (!kept || text.failed || setting.failed) page->failed = true;
  dp_str_free(&text);
  dp_str_free(&setting);
  return kept ? kept : "";
}

static const dp_node *chosen(const report_files *files) {
  const dp_node *best = dp_node_get(files->tune, "best");
  return best && best->kind == DP_NODE_TABLE ? best : dp_node_get(files->tune, "nearest");
}

/* The plan in words: the search's own, else the table's. */
static void write_plan(report_page *page) {
  const dp_node *row = chosen(page->files);
  const char *found = report_node_text(row, "text");
  dp_str text = {0};
  if (found) {
    dp_str_addf(&text, "%s%s", page->files->run.fits ? "" : "The nearest plan: ", found);
  } else {
    report_layout(page->files->run.program->plan, &text);
    dp_str_addf(&text, "; a %s is ", report_period(&page->files->run));
    report_describe_batch(&page->files->run, &text);
  }
  report_write_text(page->writer, "plan", text_of(page, &text));
  report_write_command(page->writer, command(page, dp_node_get(row, "plan")));
}

/* Where nothing fits: the smallest change that would. */
static void write_remedy(report_page *page) {
  const dp_node *list = report_node_list(page->files->tune, "remedies");
  const char *what = list ? report_node_text(list->items[0], "what") : NULL;
  const char *how = list ? report_node_text(list->items[0], "how") : NULL;
  if (!what) return;
  report_write_text(
      page->writer, "plan",
      report_page_text(page, "The smallest change that fits: %s%s%s%s. Then at least %s samples/s.", what,
                       how ? " (" : "", how ? how : "", how ? ")" : "",
                       report_page_rate(page, report_node_real(list->items[0], "throughput_samples_per_s"))));
}

static void write_search(report_page *page) {
  const dp_node *tune = page->files->tune;
  if (!tune) {
    const char *file = page->files->run.scenario_file;
    report_write_text(
        page->writer, "note",
        report_page_text(page, "This is the plan that the scenario gives; to look for a better one: diffpipe tune %s",
                         file ? file : "SCENARIO"));
    return;
  }
  const bool stopped = report_node_true(tune, "stopped");
  report_write_text(
      page->writer, "note",
      report_page_text(
          page,
          "%s of %lld plans: %lld simulated, %lld pruned because they cannot be faster, %lld too large for any split, "
          "%lld refused.%s",
          report_node_text(dp_node_get(tune, "best"), "text") ? "The best" : "The nearest",
          (long long)report_node_integer(tune, "candidates"), (long long)report_node_integer(tune, "trials"),
          (long long)report_node_integer(tune, "pruned"), (long long)report_node_integer(tune, "too_large"),
          (long long)report_node_integer(tune, "refused"),
          stopped ? " The search was stopped early: better plans may exist." : ""));
}

/* Memory is predicted with an error of its own. */
static void warn_of_little_room(report_page *page) {
  const report_run *run = &page->files->run;
  const double used = (double)run->memory->workers[run->tightest_worker].peak_bytes,
               limit = (double)run->memory_limit_bytes[run->tightest_worker];
  if (!run->fits || used < 0.95 * limit || strcmp(run->origin, "predicted") != 0) return;
  report_write_text(page->writer, NULL,
                    "Less than 5 % of the tightest device's memory is left, and predictions of memory err too "
                    "(doc/accuracy.md): have a plan with more room at hand.");
}

void report_page_answer(report_page *page) {
  const report_run *run = &page->files->run;
  dp_str lead = {0}, verdict = {0}, idle = {0};
  report_describe_model(run, &lead);
  dp_str_add(&lead, ", on ");
  report_describe_cluster(run, &lead);
  report_verdict(run, &verdict);
  report_idle_devices(run, &idle);
  const char *why = strchr(dp_str_text(&verdict), ':');
  report_write_begin(
      page->writer, report_page_text(page, "%s", run->name), text_of(page, &lead),
      report_page_text(page, "%s, %s", run->program->plan->training ? "training" : "sampling", run->origin));
  const bool searched = page->files->tune != NULL;
  report_write_verdict(
      page->writer, run->fits,
      run->fits  ? "Fits"
      : searched ? "No plan fits"
                 : "Does not fit",
      report_page_text(page, "%s%s", !run->fits && searched ? "the nearest: " : "", why ? why + 2 : ""));
  dp_str_free(&verdict);
  if (searched && !run->fits) write_remedy(page);
  write_plan(page);
  write_tiles(page);
  warn_of_little_room(page);
  if (idle.length) report_write_text(page->writer, NULL, text_of(page, &idle));
  write_search(page);
}
