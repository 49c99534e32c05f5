/* comparison.json: all figures of a comparison, and the sentences. */
#include <jansson.h>

#include "reports/comparison.h"
#include "reports/json.h"
#include "reports/tables.h"
#include "reports/units.h"

/* Effects are told in seconds and as a share of the difference of the steps; null where there is none. */
static void set_effect(json_t **o, double effect_s, const plan_comparison *c) {
  report_json_set(o, "effect_s", report_json_number(effect_s));
  report_json_set(o, "share", c->difference_s != 0 ? report_json_number(effect_s / c->difference_s) : json_null());
}

static json_t *two(double predicted, double measured) {
  json_t *o = json_object();
  report_json_set(&o, "predicted", report_json_number(predicted));
  report_json_set(&o, "measured", report_json_number(measured));
  return o;
}

static json_t *spread(const plan_spread *spread) {
  json_t *o = json_object();
  report_json_set(&o, "total_s", report_json_number(spread->total_s));
  report_json_set(&o, "median_s", report_json_number(spread->median_s));
  report_json_set(&o, "mean_s", report_json_number(spread->mean_s));
  report_json_set(&o, "p95_s", report_json_number(spread->p95_s));
  return o;
}

static void set_compared(json_t **o, const plan_compared *compared, const plan_comparison *c) {
  report_json_set(o, "count", json_integer(compared->predicted.count));
  report_json_set(o, "predicted", spread(&compared->predicted));
  report_json_set(o, "measured", spread(&compared->measured));
  set_effect(o, compared->effect_s, c);
}

static json_t *kinds(const plan_comparison *c) {
  json_t *list = json_array();
  for (int k = 0; k < PLAN_OPCODE_COUNT; k++) {
    if (!c->kinds[k].predicted.count) continue;
    json_t *o = json_object();
    report_json_set(&o, "kind", json_string(plan_opcode_names[k]));
    set_compared(&o, &c->kinds[k], c);
    report_json_append(&list, o);
  }
  return list;
}

static json_t *side(const plan_worker_metrics *m, int64_t peak_bytes) {
  json_t *o = json_object();
  report_json_set(&o, "compute_s", report_json_number(m->compute_s));
  report_json_set(&o, "comm_s", report_json_number(m->comm_s));
  report_json_set(&o, "exposed_comm_s", report_json_number(m->exposed_comm_s));
  report_json_set(&o, "idle_s", report_json_number(m->idle_s));
  report_json_set(&o, "peak_memory_bytes", json_integer(peak_bytes));
  return o;
}

static json_t *workers(const report_pair *pair, const plan_comparison *c) {
  json_t *list = json_array();
  for (int w = 0; w < c->measured.worker_count; w++) {
    json_t *o = json_object();
    report_json_set(&o, "worker", json_integer(w));
    report_json_set(&o, "device", report_json_text(report_device_name(pair->measured, w)));
    report_json_set(&o, "rank", json_integer(plan_worker_rank(c->program->plan, w)));
    report_json_set(&o, "predicted", side(&c->predicted.workers[w], pair->predicted->memory->workers[w].peak_bytes));
    report_json_set(&o, "measured", side(&c->measured.workers[w], pair->measured->memory->workers[w].peak_bytes));
    set_effect(&o, c->workers[w].effect_s, c);
    report_json_append(&list, o);
  }
  return list;
}

static json_t *chunks(const plan_comparison *c) {
  static const char *const names[] = {"forward", "backward"};
  const plan_plan *plan = c->program->plan;
  json_t *list = json_array();
  for (int k = 0; k < plan->chunk_count; k++) {
    json_t *o = json_object();
    report_json_set(&o, "chunk", json_integer(k));
    report_json_set(&o, "rank", json_integer(plan->chunks[k].rank));
    report_json_set(&o, "first_unit", json_integer(plan->chunks[k].first_unit));
    report_json_set(&o, "unit_count", json_integer(plan->chunks[k].unit_count));
    for (int d = 0; d < 2; d++) {
      json_t *direction = NULL;
      if (c->chunks[d][k].predicted.count) {
        direction = json_object();
        set_compared(&direction, &c->chunks[d][k], c);
      }
      report_json_set(&o, names[d], c->chunks[d][k].predicted.count ? direction : json_null());
    }
    report_json_append(&list, o);
  }
  return list;
}

static json_t *units(const report_pair *pair, const plan_comparison *c) {
  static const char *const names[] = {"forward", "backward"};
  const graph *model = pair->measured->graph;
  json_t *list = json_array();
  for (size_t u = 0; u < c->unit_count && u < model->units.count; u++) {
    const char *class = report_unit_class(model, u);
    json_t *o = json_object();
    report_json_set(&o, "unit", json_integer((json_int_t)u));
    report_json_set(&o, "name", report_json_text(model->units.items[u].name));
    report_json_set(&o, "class", class ? json_string(class) : json_null());
    report_json_set(&o, "chunk", json_integer(plan_chunk_of(c->program->plan, u)));
    for (int d = 0; d < 2; d++) {
      const plan_compared_unit *unit = &c->units[u];
      json_t *direction = json_object();
      report_json_set(&direction, "predicted_s", report_json_number(unit->predicted_s[d]));
      report_json_set(&direction, "measured_s",
                      unit->measured_s[d] > 0 ? report_json_number(unit->measured_s[d]) : json_null());
      set_effect(&direction, unit->effect_s[d], c);
      report_json_set(&o, names[d], direction);
    }
    report_json_append(&list, o);
  }
  return list;
}

static json_t *known(int number) { return number < 0 ? json_null() : json_integer(number); }

static json_t *causes(const plan_comparison *c) {
  json_t *list = json_array();
  for (int i = 0; i < c->cause_count; i++) {
    const plan_cause *cause = &c->causes[i];
    const bool transfer = cause->kind == PLAN_CAUSE_TRANSFER || cause->kind == PLAN_CAUSE_TRANSFER_DELAY;
    char shown[128];
    json_t *o = json_object();
    report_json_set(&o, "kind", json_string(plan_cause_names[cause->kind]));
    report_json_set(&o, "instruction",
                    cause->opcode < PLAN_OPCODE_COUNT ? json_string(plan_opcode_names[cause->opcode]) : json_null());
    report_json_set(&o, "worker", known(cause->worker));
    report_json_set(&o, "peer", known(cause->peer));
    report_json_set(&o, "gradients", transfer ? json_boolean(cause->backward) : json_null());
    report_json_set(&o, "count", json_integer(cause->count));
    report_json_set(&o, "predicted_s", report_json_number(cause->predicted_s));
    report_json_set(&o, "measured_s", report_json_number(cause->measured_s));
    set_effect(&o, cause->effect_s, c);
    report_json_set(&o, "worst",
                    cause->worst == PLAN_NO_PEER ? json_null()
                                                 : json_string(plan_instruction_show(c->program, cause->worst, shown)));
    report_json_set(&o, "worst_effect_s", report_json_number(cause->worst_effect_s));
    report_json_append(&list, o);
  }
  return list;
}

static json_t *errors(const report_pair *pair, const plan_comparison *c) {
  json_t *o = json_object();
  report_json_set(&o, "step", report_json_number(plan_error_of(c->predicted.step_s, c->measured.step_s)));
  report_json_set(&o, "bubble", report_json_number(c->predicted.bubble_ratio - c->measured.bubble_ratio));
  report_json_set(&o, "memory",
                  report_json_number(plan_error_of(report_fullest_bytes(pair->predicted->memory),
                                                   report_fullest_bytes(pair->measured->memory))));
  return o;
}

static json_t *whole(const report_pair *pair, const plan_comparison *c, const char *const *lines, int line_count) {
  const plan_metrics *p = &c->predicted, *m = &c->measured;
  json_t *o = json_object(), *why = json_array();
  int busiest;
  report_json_set(&o, "format", json_string("diffpipe-comparison"));
  report_json_set(&o, "version", json_integer(1));
  report_json_set(&o, "scenario", report_json_text(pair->measured->name));
  report_json_set(&o, "step_s", two(p->step_s, m->step_s));
  report_json_set(&o, "throughput_samples_per_s", two(p->throughput_samples_per_s, m->throughput_samples_per_s));
  report_json_set(&o, "bubble_ratio", two(p->bubble_ratio, m->bubble_ratio));
  report_json_set(&o, "exposed_comm_s", two(report_exposed_s(p), report_exposed_s(m)));
  report_json_set(&o, "imbalance", two(report_imbalance(p, &busiest), report_imbalance(m, &busiest)));
  report_json_set(&o, "peak_memory_bytes",
                  two(report_fullest_bytes(pair->predicted->memory), report_fullest_bytes(pair->measured->memory)));
  report_json_set(&o, "error", errors(pair, c));
  report_json_set(&o, "difference_s", report_json_number(c->difference_s));
  report_json_set(&o, "steps", pair->measured->steps ? report_steps_json(pair->measured->steps) : json_null());
  for (int i = 0; i < line_count; i++) report_json_append(&why, report_json_text(lines[i]));
  report_json_set(&o, "why", why);
  report_json_set(&o, "causes", causes(c));
  report_json_set(&o, "kinds", kinds(c));
  report_json_set(&o, "workers", workers(pair, c));
  report_json_set(&o, "chunks", chunks(c));
  report_json_set(&o, "units", units(pair, c));
  return o;
}

dp_status report_comparison_json(const report_pair *pair, void **json, dp_error *error) {
  const plan_comparison_input input = {.predicted = pair->predicted->timeline,
                                       .measured = pair->measured->timeline,
                                       .samples = pair->samples,
                                       .predicted_units = pair->predicted_units,
                                       .measured_units = pair->measured_units};
  plan_comparison comparison;
  dp_arena arena = {0};
  const char *const *lines = NULL;
  int line_count = 0;
  DP_TRY(plan_compare(&input, &comparison, error));
  dp_status status = report_why_of(pair, &comparison, &arena, &lines, &line_count, error);
  json_t *made = status == DP_OK ? whole(pair, &comparison, lines, line_count) : NULL;
  if (status == DP_OK && !made) status = dp_fail_memory(error);
  dp_arena_free(&arena);
  plan_comparison_free(&comparison);
  if (status == DP_OK) *json = made;
  return status;
}
