/* diffpipe advise, for people: what was read, what each size costs, which lines to change. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/advise.h"
#include "reports/table.h"

enum { WIDTH = 100 };

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

static dp_status show(report_table *table, dp_error *error) {
  dp_str text = {0};
  report_table_print(table, WIDTH, &text);
  const bool failed = table->failed || text.failed;
  report_table_free(table);
  if (!failed) printf("\n%s", dp_str_text(&text));
  dp_str_free(&text);
  return failed ? dp_fail_memory(error) : DP_OK;
}

/* ---- what was read ---- */

static void row(report_table *t, const char *key, const dp_str *value) {
  report_table_row(t, false);
  report_table_cell(t, "%s", key);
  report_table_cell(t, "%s", dp_str_text(value));
  t->failed = t->failed || value->failed;
}

/* The installed data's own files by their short name. */
static const char *short_path(const char *path) {
  const char *models = strstr(path, "/models/");
  return models ? models + 1 : path;
}

static void add_unused(const plan_dpipe *c, bool known, dp_str *out) {
  for (size_t i = 0; i < c->unused.count; i++) {
    const plan_dpipe_key *key = &c->unused.items[i];
    if (key->known != known) continue;
    dp_str_addf(out, "%s%s", out->length ? ", " : "", key->name);
    if (!known && key->node->line) dp_str_addf(out, " (line %d)", key->node->line);
  }
}

static void add_batches(const cli_advice *advice, dp_str *out) {
  const plan_dpipe *c = advice->config;
  const sim_advise_setting *now = &advice->result->now;
  if (now->micro_batch)
    dp_str_addf(out, "%lld samples = %lld micro batch%s of %lld",
                (long long)(now->micro_batch * now->accumulation * now->replicas), (long long)now->accumulation,
                now->accumulation == 1 ? "" : "es", (long long)now->micro_batch);
  else
    dp_str_addf(out, "%lld micro batch%s by size", (long long)now->accumulation, now->accumulation == 1 ? "" : "es");
  for (size_t i = 0; !now->micro_batch && i < c->batches.count; i++)
    dp_str_addf(out, "%s%lld at %.6g", i ? ", " : ": ", (long long)c->batches.items[i].batch, c->batches.items[i].size);
  dp_str_addf(out, " x %d replica%s", now->replicas, plural(now->replicas));
}

static void add_partition(const sim_advise_setting *s, int layers, dp_str *out) {
  dp_str_addf(out, "%s: layers ", plan_dpipe_partition_names[s->partition]);
  for (int k = 0; k < s->stages; k++)
    dp_str_addf(out, "%s%lld-%lld", k ? ", " : "", k ? (long long)s->split[k - 1] : 0,
                (k + 1 < s->stages ? (long long)s->split[k] : (long long)layers) - 1);
}

static dp_status print_settings(const cli_advice *advice, dp_error *error) {
  const plan_dpipe *c = advice->config;
  const sim_advise_result *r = advice->result;
  char number[32], trained[32];
  report_table table = {0};
  report_table_title(&table, "As it was read");
  report_table_column(&table, "", REPORT_LEFT);
  report_table_column(&table, "", REPORT_TEXT);
  dp_str text = {0};
  dp_str_addf(&text, "%s: %s, %s parameters, %d layers; from %s (by %s)", plan_dpipe_family_names[c->family],
              r->class_name, dp_format_count((double)r->parameters, number), r->layers, short_path(r->config_path),
              r->variant);
  row(&table, "model", &text);
  dp_str_clear(&text);
  (void)dp_format_count((double)(r->trainable_parameters), trained);
  if (c->lora)
    dp_str_addf(&text, "lora of rank %lld on all linear layers of the blocks, %s parameters in %s", (long long)c->rank,
                trained, plan_dpipe_dtype_names[c->adapter_dtype]);
  else
    dp_str_add(&text, "none: all weights are trained");
  row(&table, "adapter", &text);
  dp_str_clear(&text);
  dp_str_addf(&text, "%s%s%s", plan_dpipe_dtype_names[c->dtype], r->now.fp8 ? ", the blocks' matrices in " : "",
              r->now.fp8 ? "float8" : "");
  row(&table, "dtype", &text);
  dp_str_clear(&text);
  const double width = (c->lora ? c->adapter_dtype : c->dtype) == PLAN_DPIPE_FP32 ? 4 : 2;
  dp_str_addf(&text, "%s: %s; %.3g bytes a trained parameter%s", c->optimizer_name, c->optimizer->what,
              c->optimizer->state_values * width + c->optimizer->state_bytes,
              c->gradient_release ? "; gradients released" : "");
  row(&table, "optimizer", &text);
  dp_str_clear(&text);
  dp_str_addf(&text, "%d = %d pipeline stage%s x %d replica%s", r->gpus, r->now.stages, plural(r->now.stages),
              r->now.replicas, plural(r->now.replicas));
  row(&table, "GPUs", &text);
  dp_str_clear(&text);
  add_batches(advice, &text);
  row(&table, "batch", &text);
  dp_str_clear(&text);
  dp_str_add(&text, plan_dpipe_checkpointing_names[r->now.checkpointing]);
  row(&table, "checkpointing", &text);
  dp_str_clear(&text);
  add_partition(&r->now, r->layers, &text);
  row(&table, "partition", &text);
  dp_str_clear(&text);
  if (c->blocks_to_swap) {
    dp_str_addf(&text, "%lld", (long long)c->blocks_to_swap);
    row(&table, "blocks_to_swap", &text);
    dp_str_clear(&text);
  }
  add_unused(c, true, &text);
  if (text.length) row(&table, "not used here", &text);
  dp_str_clear(&text);
  add_unused(c, false, &text);
  if (text.length) row(&table, "not known", &text);
  dp_str_free(&text);
  return show(&table, error);
}

/* ---- sizes ---- */

static int largest_class(const sim_advise_figures *f) {
  int most = 0;
  for (int c = 1; c < SIM_ADVISE_CLASS_COUNT; c++)
    if (f->class_bytes[c] > f->class_bytes[most]) most = c;
  return most;
}

/* Less than a tenth to spare: about as far off as memory may be predicted (doc/advise.md). */
static const char *fit_text(const sim_advise_figures *f) {
  if (!f->fits) return "NO";
  return (double)f->need_bytes > 0.9 * (double)f->limit_bytes ? "barely" : "yes";
}

/* "node0/gpu1 19.6 of 24.0 GB" */
static void add_memory(const cli_advice *advice, const sim_advise_figures *f, dp_str *out) {
  dp_str_addf(out, "%s %.1f of %.1f GB", advice->scenario->cluster.devices.items[f->device].name,
              (double)f->need_bytes / 1e9, (double)f->limit_bytes / 1e9);
}

static dp_status print_sizes(const cli_advice *advice, dp_error *error) {
  const sim_advise_result *r = advice->result;
  report_table table = {0};
  static const struct {
    const char *head;
    report_align align;
  } columns[] = {{"size", REPORT_LEFT},  {"ratio", REPORT_RIGHT},          {"batch", REPORT_RIGHT},
                 {"step", REPORT_RIGHT}, {"samples/s", REPORT_RIGHT},      {"bubble", REPORT_RIGHT},
                 {"fits", REPORT_LEFT},  {"the fullest GPU", REPORT_LEFT}, {"most of it", REPORT_LEFT}};
  report_table_title(&table, "What each size costs (GB = 1e9 bytes; steps ± %.0f %%)",
                     100 * r->rows[0].figures.error_band);
  for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
    report_table_column(&table, columns[i].head, columns[i].align);
  bool some = false;
  for (int i = 0; i < r->row_count; i++) {
    const sim_advise_figures *f = &r->rows[i].figures;
    const int most = largest_class(f);
    char step[32];
    dp_str memory = {0};
    add_memory(advice, f, &memory);
    report_table_row(&table, !f->fits);
    report_table_cell(&table, "%lld x %lld", (long long)r->rows[i].bucket->width, (long long)r->rows[i].bucket->height);
    report_table_cell(&table, "%.3g", r->rows[i].bucket->ratio);
    report_table_cell(&table, "%lld", (long long)f->global_batch);
    report_table_cell(&table, "%s", dp_format_seconds(f->step_s, step));
    report_table_cell(&table, "%.4g", f->throughput_samples_per_s);
    report_table_cell(&table, "%.1f %%", 100 * f->bubble_ratio);
    report_table_cell(&table, "%s", fit_text(f));
    report_table_cell(&table, "%s", dp_str_text(&memory));
    report_table_cell(&table, "%s %.1f", sim_advise_class_names[most], (double)f->class_bytes[most] / 1e9);
    table.failed = table.failed || memory.failed;
    dp_str_free(&memory);
    some = some || r->rows[i].stands_for > 3;
  }
  if (some)
    report_table_note(&table, "Of each resolution the narrowest, the squarest and the widest; all in all %d sizes.",
                      (int)advice->config->buckets.count);
  const sim_advise_figures *last = &r->rows[r->row_count - 1].figures;
  DP_TRY(show(&table, error));
  if (r->row_count > 1)
    printf("  With as many samples of each size: %.4g samples/s.\n", r->mix.throughput_samples_per_s);
  if (last->bound_name && last->bound_share >= 0.01)
    printf("  Beside compute, most time goes to: %s, %.0f %% (at the largest size).\n", last->bound_name,
           100 * last->bound_share);
  return DP_OK;
}

/* ---- proposals ---- */

/* Starts the table of what changes give. */
static void begin_outcomes(report_table *t, const char *first) {
  static const char *const heads[] = {"against it", "samples/s", "bubble"};
  report_table_column(t, first, REPORT_LEFT);
  for (int i = 0; i < 3; i++) report_table_column(t, heads[i], REPORT_RIGHT);
  report_table_column(t, "fits", REPORT_LEFT);
  report_table_column(t, "the fullest GPU", REPORT_LEFT);
}

static void add_outcome(const cli_advice *advice, report_table *t, const char *what, const sim_advise_mix *m,
                        double gain) {
  dp_str memory = {0};
  add_memory(advice, &m->tightest, &memory);
  report_table_row(t, !m->fits);
  report_table_cell(t, "%s", what);
  report_table_cell(t, "%+.1f %%", 100 * gain);
  report_table_cell(t, "%.4g", m->throughput_samples_per_s);
  report_table_cell(t, "%.1f %%", 100 * m->bubble_ratio);
  report_table_cell(t, "%s", m->fits ? fit_text(&m->tightest) : "NO");
  report_table_cell(t, "%s", dp_str_text(&memory));
  t->failed = t->failed || memory.failed;
  dp_str_free(&memory);
}

static dp_status print_lines(const cli_advice *advice, const sim_advise_proposal *p, dp_error *error) {
  cli_advise_lines lines;
  DP_TRY(cli_advise_lines_of(advice, p, &lines, error));
  printf("  %s\n", advice->path);
  for (int i = 0; i < lines.count; i++) {
    const cli_advise_line *l = &lines.items[i];
    char number[16] = "";
    if (l->line) (void)snprintf(number, sizeof number, "%d", l->line);
    printf("  %4s %c %s%s%s%s\n", number, l->op, l->text, l->op == '+' && !l->line && l->table ? "   # in [" : "",
           l->op == '+' && !l->line && l->table ? l->table : "", l->op == '+' && !l->line && l->table ? "]" : "");
  }
  cli_advise_lines_free(&lines);
  return DP_OK;
}

static dp_status print_proposal(const cli_advice *advice, const sim_advise_proposal *p, dp_error *error) {
  DP_TRY(print_lines(advice, p, error));
  report_table table = {0};
  begin_outcomes(&table, "what each gives");
  add_outcome(advice, &table, "the file as it is", &advice->result->mix, 0);
  for (int i = 0; i < p->change_count; i++) {
    const sim_advise_change *c = &p->changes[i];
    const char *name = cli_advise_group_name(advice, c->group);
    if (c->possible && p->change_count > 1) {
      add_outcome(advice, &table, name, &c->mix, c->gain);
    } else if (p->change_count > 1) {
      report_table_row(&table, false);
      report_table_cell(&table, "%s", name);
      report_table_cell(&table, "with others");
      for (int k = 0; k < 4; k++) report_table_cell(&table, "%s", "");
    }
  }
  add_outcome(advice, &table, p->change_count > 1 ? "all together" : cli_advise_group_name(advice, p->changes[0].group),
              &p->mix, p->gain);
  return show(&table, error);
}

static bool same(const sim_advise_proposal *a, const sim_advise_proposal *b) {
  return a->change_count == b->change_count && a->gain == b->gain;
}

static dp_status print_advice(const cli_advice *advice, dp_error *error) {
  const sim_advise_result *r = advice->result;
  const long long batch = (long long)r->fastest.mix.tightest.global_batch;
  if (!r->any_fits) {
    printf("\nNothing that diffusion-pipe can do makes it fit on these cards: %d settings and sizes were tried.\n",
           r->trials);
    return DP_OK;
  }
  if (!r->mix.fits && !same(&r->smallest, &r->fastest)) {
    printf("\nThe smallest change that fits\n");
    DP_TRY(print_proposal(advice, &r->smallest, error));
  }
  if (r->fastest.change_count == 0) {
    printf("\nKeep the file as it is: nothing that was tried is faster by 1 %% or more with the same global batch.\n");
  } else {
    bool smaller = false;
    for (int i = 0; i < r->fastest.change_count; i++)
      smaller = smaller || r->fastest.changes[i].group == SIM_ADVISE_SMALLER;
    if (r->now.micro_batch)
      printf("\n%s (%s of %lld samples%s)\n", r->mix.fits ? "Lines to change" : "The fastest that fits",
             smaller ? "a global batch" : "the global batch", batch, smaller ? "" : " stays");
    else
      printf("\n%s (the global batches stay)\n", r->mix.fits ? "Lines to change" : "The fastest that fits");
    DP_TRY(print_proposal(advice, &r->fastest, error));
  }
  if (r->has_split && r->fastest.setting.stages != r->now.stages) {
    printf("\nWith pipeline_stages = %d as it is, a better split\n", r->now.stages);
    DP_TRY(print_proposal(advice, &r->split, error));
  }
  if (r->more_count == 0) return DP_OK;
  report_table table = {0};
  report_table_title(&table, "A larger global batch would hide more of the pipeline\'s bubble");
  begin_outcomes(&table, "gradient_accumulation_steps");
  for (int i = 0; i < r->more_count; i++) {
    char what[64];
    (void)snprintf(what, sizeof what, "%lld (global batch %lld)", (long long)r->more[i].accumulation,
                   (long long)r->more[i].global_batch);
    add_outcome(advice, &table, what, &r->more[i].mix,
                r->more[i].mix.throughput_samples_per_s / r->mix.throughput_samples_per_s - 1);
  }
  DP_TRY(show(&table, error));
  return DP_OK;
}

dp_status cli_advise_print_text(const cli_advice *advice, dp_error *error) {
  const sim_advise_result *r = advice->result;
  printf("%s on %s: diffusion-pipe, predicted; %zu size%s\n", advice->path, advice->scenario->cluster.name,
         advice->config->buckets.count, plural((int64_t)advice->config->buckets.count));
  DP_TRY(print_settings(advice, error));
  DP_TRY(print_sizes(advice, error));
  DP_TRY(print_advice(advice, error));
  if (r->note_count == 0) return DP_OK;
  report_table table = {0};
  report_table_title(&table, "Notes");
  report_table_column(&table, "", REPORT_TEXT);
  for (int i = 0; i < r->note_count; i++) {
    report_table_row(&table, false);
    report_table_cell(&table, "%s.", r->notes[i]);
  }
  return show(&table, error);
}
