/* Sentences about why a step differs from its prediction. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"
#include "reports/comparison.h"
#include "reports/tables.h"
#include "reports/units.h"

enum { MOST_REASONS = 6, MOST_LINES = MOST_REASONS + 8 };

/* Causes that are told in one sentence: one, or all that are alike on several workers. */
typedef struct reason {
  const plan_cause *first;
  int causes;
  uint8_t *workers; /* [worker] a flag of those whose causes they are */
  bool everywhere;  /* they are all that there are of the kind */
  double count, predicted_s, measured_s, effect_s;
} reason;

typedef struct teller {
  const report_pair *pair;
  const plan_comparison *comparison;
  dp_arena *arena;
  reason *reasons;
  int reason_count;
  uint8_t *told; /* [cause] */
  const char **lines;
  int line_count;
  bool failed;
} teller;

static void add_line(teller *t, dp_str *text) {
  const char *kept = text->failed ? NULL : dp_arena_strdup(t->arena, dp_str_text(text));
  if (!kept || t->line_count == MOST_LINES)
    t->failed = t->failed || !kept;
  else
    t->lines[t->line_count++] = kept;
  dp_str_free(text);
}

/* "+1.25 ms", "-35.0 us" */
static const char *signed_seconds(double seconds, char out[40]) {
  char figure[32];
  (void)snprintf(out, 40, "%c%s", seconds < 0 ? '-' : '+', dp_format_seconds(fabs(seconds), figure));
  return out;
}

/* ---- alike on several workers ---- */

static bool is_delay(const plan_cause *cause) {
  return cause->kind >= PLAN_CAUSE_COMPUTE_DELAY && cause->kind != PLAN_CAUSE_AFTER;
}

/* What is compared between workers: how many times as long, or how much later. */
static double measure_of(const plan_cause *cause) {
  if (is_delay(cause) || cause->predicted_s <= 0) return cause->measured_s - cause->predicted_s;
  return cause->measured_s / cause->predicted_s;
}

static bool alike(const plan_cause *cause, double middle) {
  const double apart = fabs(measure_of(cause) - middle);
  return is_delay(cause) ? apart <= fmax(0.5 * fabs(middle), 20e-6) : apart <= 0.1 * fabs(middle);
}

static bool same_class(const plan_cause *a, const plan_cause *b) {
  return a->kind == b->kind && a->opcode == b->opcode && (a->predicted_s > 0) == (b->predicted_s > 0);
}

/* How many lanes do such things at all: causes without any difference are not in the list. */
static int places_of(const plan_program *program, const plan_cause *cause) {
  int count = 0;
  for (uint32_t l = 0; l < program->lane_count; l++) {
    const plan_lane *lane = &program->lanes[l];
    bool runs = false;
    for (uint32_t i = lane->first; i < lane->first + lane->count && !runs; i++)
      runs = program->instructions[i].opcode == cause->opcode ||
             (cause->kind == PLAN_CAUSE_COMPUTE_DELAY && lane->kind == PLAN_LANE_COMPUTE);
    count += runs;
  }
  return count;
}

static void add_cause(reason *r, const plan_cause *cause) {
  if (cause->worker >= 0) r->workers[cause->worker] = 1;
  if (!r->causes) r->first = cause;
  r->causes++;
  r->count += cause->count;
  r->predicted_s += cause->count * cause->predicted_s;
  r->measured_s += cause->count * cause->measured_s;
  r->effect_s += cause->effect_s;
}

static reason begin_reason(teller *t, bool everywhere) {
  reason made = {.everywhere = everywhere,
                 .workers = DP_ARENA_NEW(t->arena, uint8_t, (size_t)t->comparison->measured.worker_count)};
  if (!made.workers) t->failed = true;
  return made;
}

static void end_reason(teller *t, reason *r) {
  if (!r->causes) return;
  r->predicted_s /= r->count;
  r->measured_s /= r->count;
  t->reasons[t->reason_count++] = *r;
}

/* All causes of the class of `first`, none of which is told yet. */
static dp_status gather_class(teller *t, int first, dp_error *error) {
  const plan_comparison *c = t->comparison;
  const plan_cause *of = &c->causes[first];
  double *measures = malloc((size_t)c->cause_count * sizeof *measures);
  size_t count = 0, similar = 0;
  if (!measures) return dp_fail_memory(error);
  for (int i = first; i < c->cause_count; i++)
    if (same_class(of, &c->causes[i])) measures[count++] = measure_of(&c->causes[i]);
  dp_sort(measures, count);
  const double middle = plan_quantile(measures, count, 0.5);
  free(measures);
  for (int i = first; i < c->cause_count; i++) similar += same_class(of, &c->causes[i]) && alike(&c->causes[i], middle);
  const size_t places = (size_t)places_of(c->program, of);
  const bool merge = similar >= 2 && 2 * similar >= places;
  reason together = begin_reason(t, similar >= places);
  for (int i = first; i < c->cause_count && !t->failed; i++) {
    const plan_cause *cause = &c->causes[i];
    if (t->told[i] || !same_class(of, cause)) continue;
    t->told[i] = 1;
    if (merge && alike(cause, middle)) {
      add_cause(&together, cause);
      continue;
    }
    reason alone = begin_reason(t, places == 1);
    if (t->failed) break;
    add_cause(&alone, cause);
    end_reason(t, &alone);
  }
  end_reason(t, &together);
  return t->failed ? dp_fail_memory(error) : DP_OK;
}

static int by_effect(const void *a, const void *b) {
  const reason *x = a, *y = b;
  const double one = fabs(x->effect_s), other = fabs(y->effect_s);
  if (one != other) return one > other ? -1 : 1;
  return (x->first > y->first) - (x->first < y->first); /* causes are in one array */
}

/* ---- one sentence ---- */

static void add_who(const reason *r, const char *what, dp_str *out) {
  const plan_cause *cause = r->first;
  if (r->causes > 1)
    dp_str_addf(out, r->everywhere ? "%s on every worker" : "%s on %d workers", what, r->causes);
  else
    dp_str_addf(out, "Worker %d's %s", cause->worker, what);
}

static void add_lengths(const reason *r, dp_str *out) {
  char measured[32], predicted[32];
  (void)dp_format_seconds(r->measured_s, measured);
  (void)dp_format_seconds(r->predicted_s, predicted);
  if (r->causes > 1 && r->predicted_s > 0)
    dp_str_addf(out, " takes %.2f times as long as predicted (%s against %s on average)",
                r->measured_s / r->predicted_s, measured, predicted);
  else
    dp_str_addf(out, " takes %s against %s predicted", measured, predicted);
}

static void add_transfer(const reason *r, dp_str *out) {
  const plan_cause *cause = r->first;
  if (r->causes > 1)
    dp_str_add(out, r->everywhere ? "Transfers" : "Some of the transfers");
  else
    dp_str_addf(out, "Transfers of %s from worker %d to worker %d", cause->backward ? "gradients" : "activations",
                cause->worker, cause->peer);
}

/* " 0.11 ms after all that an instruction waits for is done (predicted: at once)" */
static void add_delay(const reason *r, const char *when, dp_str *out) {
  char measured[32], predicted[32];
  const bool early = r->measured_s < 0; /* clocks of several hosts differ */
  dp_str_addf(out, " %s %s %s (predicted: ", dp_format_seconds(fabs(r->measured_s), measured),
              early ? "before" : "after", when);
  if (fabs(r->predicted_s) < 1e-9)
    dp_str_add(out, "at once)");
  else
    dp_str_addf(out, "%s)", dp_format_seconds(r->predicted_s, predicted));
}

static void add_subject(const reason *r, dp_str *out) {
  const plan_cause *cause = r->first;
  char measured[32], predicted[32];
  (void)dp_format_seconds(r->measured_s, measured);
  (void)dp_format_seconds(r->predicted_s, predicted);
  switch (cause->kind) {
    case PLAN_CAUSE_COMPUTE:
      add_who(r, plan_opcode_names[cause->opcode], out);
      add_lengths(r, out);
      return;
    case PLAN_CAUSE_TRANSFER:
      add_transfer(r, out);
      dp_str_addf(out, " take %s against %s predicted", measured, predicted);
      return;
    case PLAN_CAUSE_COLLECTIVE:
      if (r->causes > 1)
        dp_str_add(out, "All-reduces");
      else
        dp_str_addf(out, "All-reduces of worker %d and its peers", cause->worker);
      dp_str_addf(out, " take %s against %s predicted", measured, predicted);
      return;
    case PLAN_CAUSE_COMPUTE_DELAY:
      if (r->causes > 1)
        dp_str_add(out, r->everywhere ? "Workers begin to compute" : "Some of the workers begin to compute");
      else
        dp_str_addf(out, "Worker %d begins to compute", cause->worker);
      add_delay(r, "all that an instruction waits for is done", out);
      return;
    case PLAN_CAUSE_TRANSFER_DELAY:
      add_transfer(r, out);
      dp_str_add(out, " begin");
      add_delay(r, "both ends are ready", out);
      return;
    case PLAN_CAUSE_COLLECTIVE_DELAY:
      dp_str_add(out, "All-reduces begin");
      add_delay(r, "all members are ready", out);
      return;
    default:
      dp_str_add(out, "The step ends");
      add_delay(r, "its last instruction", out);
  }
}

/* Percent of the difference of the steps; where causes cancel each other it says nothing. */
static void add_effect(const teller *t, double effect_s, dp_str *out) {
  char figure[40];
  const double share = t->comparison->difference_s != 0 ? effect_s / t->comparison->difference_s : 0;
  dp_str_addf(out, ": %s a step", signed_seconds(effect_s, figure));
  if (share > 0 && share <= 1.5) dp_str_addf(out, ", %.0f %% of the difference", 100 * share);
}

/* One instruction that is far from the others of its kind. */
static void add_outlier(const teller *t, const reason *r, dp_str *out) {
  const plan_cause *cause = r->first;
  char shown[128];
  if (r->causes > 1 || cause->count < 3 || cause->kind == PLAN_CAUSE_AFTER) return;
  const double mean_s = cause->measured_s - cause->predicted_s,
               worst_s = cause->worst_measured_s - cause->worst_predicted_s;
  if (fabs(worst_s) < 3 * fabs(mean_s) || fabs(cause->worst_effect_s) < 0.5 * fabs(cause->effect_s)) return;
  dp_str_addf(out, "; %.0f %% of that is one instruction, %s", 100 * cause->worst_effect_s / cause->effect_s,
              plan_instruction_show(t->comparison->program, cause->worst, shown));
}

static void write_reason(teller *t, const reason *r) {
  dp_str text = {0};
  add_subject(r, &text);
  add_effect(t, r->effect_s, &text);
  add_outlier(t, r, &text);
  if (r->first->kind == PLAN_CAUSE_COMPUTE)
    report_slow_units(t->pair, t->comparison, r->first->opcode, r->workers, &text);
  dp_str_add(&text, ".");
  add_line(t, &text);
}

/* ---- around them ---- */

static void write_step(teller *t) {
  const plan_comparison *c = t->comparison;
  char measured[32], predicted[32], apart[32];
  dp_str text = {0};
  const double relative = c->predicted.step_s > 0 ? c->difference_s / c->predicted.step_s : 0;
  dp_str_addf(&text, "A %s takes %s, predicted were %s: ", report_period(t->pair->measured),
              dp_format_seconds(c->measured.step_s, measured), dp_format_seconds(c->predicted.step_s, predicted));
  if (fabs(relative) < 0.0005)
    dp_str_add(&text, "the same.");
  else
    dp_str_addf(&text, "%s or %.1f %% %s.", dp_format_seconds(fabs(c->difference_s), apart), 100 * fabs(relative),
                relative > 0 ? "more" : "less");
  add_line(t, &text);
}

static void write_reasons(teller *t) {
  const plan_comparison *c = t->comparison;
  const double least_s = fmax(0.02 * fabs(c->difference_s), 0.001 * c->predicted.step_s);
  double rest_s = 0;
  int told = 0;
  for (int i = 0; i < t->reason_count; i++) {
    if (told < MOST_REASONS && fabs(t->reasons[i].effect_s) >= least_s) {
      write_reason(t, &t->reasons[i]);
      told++;
    } else {
      rest_s += t->reasons[i].effect_s;
    }
  }
  if (fabs(rest_s) < least_s) return;
  dp_str text = {0};
  dp_str_add(&text, told ? "All else together" : "Many small differences");
  add_effect(t, rest_s, &text);
  dp_str_add(&text, ".");
  add_line(t, &text);
}

static void write_balance(teller *t) {
  int busy[2];
  dp_str text = {0};
  const double predicted = report_imbalance(&t->comparison->predicted, &busy[0]),
               measured = report_imbalance(&t->comparison->measured, &busy[1]);
  if (fabs(measured - predicted) < 0.05) return;
  dp_str_addf(&text, "The load is %s even than predicted: the busiest worker, %d, computes %.2f times the mean",
              measured > predicted ? "less" : "more", busy[1], measured);
  if (busy[0] == busy[1] || predicted < 1.02)
    dp_str_addf(&text, ", predicted %.2f.", predicted);
  else
    dp_str_addf(&text, "; predicted was worker %d, %.2f times.", busy[0], predicted);
  add_line(t, &text);
}

static void write_waiting(teller *t) {
  const plan_metrics *p = &t->comparison->predicted, *m = &t->comparison->measured;
  dp_str text = {0};
  if (fabs(m->bubble_ratio - p->bubble_ratio) < 0.02) return;
  dp_str_addf(&text, "Workers wait %.1f %% of the time, predicted %.1f %%.", 100 * m->bubble_ratio,
              100 * p->bubble_ratio);
  add_line(t, &text);
}

static void write_memory(teller *t) {
  const plan_memory *p = t->pair->predicted->memory, *m = t->pair->measured->memory;
  int worst = 0;
  double most = 0;
  for (int w = 0; w < m->worker_count && w < p->worker_count; w++) {
    const double apart = fabs((double)(m->workers[w].peak_bytes - p->workers[w].peak_bytes));
    if (apart <= most) continue;
    most = apart;
    worst = w;
  }
  char measured[32], predicted[32];
  dp_str text = {0};
  if (most < 0.02 * (double)p->workers[worst].peak_bytes || most <= 0) return;
  dp_str_addf(&text, "Worker %d's memory peaks at %s, predicted were %s.", worst,
              dp_format_bytes((double)m->workers[worst].peak_bytes, measured),
              dp_format_bytes((double)p->workers[worst].peak_bytes, predicted));
  add_line(t, &text);
}

dp_status report_why_of(const report_pair *pair, const plan_comparison *comparison, dp_arena *arena,
                        const char *const **lines, int *count, dp_error *error) {
  const size_t causes = (size_t)comparison->cause_count + 1;
  teller t = {.pair = pair,
              .comparison = comparison,
              .arena = arena,
              .reasons = calloc(causes, sizeof(reason)),
              .told = calloc(causes, 1),
              .lines = DP_ARENA_NEW(arena, const char *, MOST_LINES)};
  dp_status status = t.reasons && t.told && t.lines ? DP_OK : dp_fail_memory(error);
  for (int i = 0; status == DP_OK && i < comparison->cause_count; i++)
    if (!t.told[i]) status = gather_class(&t, i, error);
  if (status == DP_OK) {
    if (t.reason_count) qsort(t.reasons, (size_t)t.reason_count, sizeof *t.reasons, by_effect);
    write_step(&t);
    write_reasons(&t);
    write_balance(&t);
    write_waiting(&t);
    write_memory(&t);
    if (t.failed) status = dp_fail_memory(error);
  }
  free(t.reasons);
  free(t.told);
  if (status != DP_OK) return status;
  *lines = t.lines;
  *count = t.line_count;
  return DP_OK;
}
