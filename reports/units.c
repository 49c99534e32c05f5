#include "reports/units.h"

#include <math.h>
#include <stdlib.h>

const char *report_unit_class(const graph *model, size_t unit) {
  int64_t flops[GRAPH_CLASS_COUNT] = {0};
  int most = 0;
  if (unit >= model->units.count || !model->ops.count) return NULL;
  const graph_unit *of = &model->units.items[unit];
  for (int o = of->first_op; o < of->first_op + of->op_count; o++)
    flops[model->ops.items[o].forward.op_class] += model->ops.items[o].forward.flops;
  for (int c = 1; c < GRAPH_CLASS_COUNT; c++)
    if (flops[c] > flops[most]) most = c;
  return flops[most] > 0 ? graph_op_class_name((graph_op_class)most) : NULL;
}

/* Whether some worker with a flag holds a unit. */
static bool held(const plan_comparison *comparison, const uint8_t *workers, size_t unit) {
  const plan_plan *plan = comparison->program->plan;
  for (int w = plan->chunks[plan_chunk_of(plan, unit)].rank; w < comparison->measured.worker_count; w += plan->ranks)
    if (workers[w]) return true;
  return false;
}

typedef struct class_sum {
  const char *name;
  double predicted_s, measured_s;
} class_sum;

static int by_ratio(const void *a, const void *b) {
  const class_sum *x = a, *y = b;
  const double one = x->measured_s / x->predicted_s, other = y->measured_s / y->predicted_s;
  return (one < other) - (one > other);
}

/* Names classes that differ by unlike factors, where there are two or more. */
static void add_classes(class_sum *sums, int count, dp_str *out) {
  qsort(sums, (size_t)count, sizeof *sums, by_ratio);
  if (count < 2 ||
      sums[0].measured_s / sums[0].predicted_s < 1.1 * sums[count - 1].measured_s / sums[count - 1].predicted_s)
    return;
  dp_str_add(out, "; by what its units mostly are: ");
  for (int c = 0; c < count; c++)
    dp_str_addf(out, "%s%s %.2f times",
                c == 0          ? ""
                : c + 1 < count ? ", "
                                : " and ",
                sums[c].name, sums[c].measured_s / sums[c].predicted_s);
}

static void add_to_class(class_sum *sums, int *count, const char *name, double predicted_s, double measured_s) {
  int c = 0;
  while (c < *count && sums[c].name != name) c++; /* names are the table's own */
  if (c == *count) sums[(*count)++] = (class_sum){.name = name};
  sums[c].predicted_s += predicted_s;
  sums[c].measured_s += measured_s;
}

void report_slow_units(const report_pair *pair, const plan_comparison *comparison, int opcode, const uint8_t *workers,
                       dp_str *out) {
  const graph *model = pair->measured->graph;
  const int d = opcode == PLAN_FORWARD ? 0 : 1;
  class_sum sums[GRAPH_CLASS_COUNT];
  int class_count = 0;
  double sum_s = 0, most_s = 0;
  size_t worst = 0;
  if (opcode == PLAN_OPTIMIZER_STEP) return;
  for (size_t u = 0; u < comparison->unit_count; u++) {
    const plan_compared_unit *unit = &comparison->units[u];
    if (!held(comparison, workers, u) || unit->measured_s[d] <= 0 || unit->predicted_s[d] <= 0) continue;
    const double more_s = unit->measured_s[d] - unit->predicted_s[d];
    const char *name = report_unit_class(model, u);
    sum_s += more_s;
    if (fabs(more_s) > fabs(most_s)) {
      most_s = more_s;
      worst = u;
    }
    if (name) add_to_class(sums, &class_count, name, unit->predicted_s[d], unit->measured_s[d]);
  }
  if (sum_s * most_s > 0 && fabs(most_s) > 0.55 * fabs(sum_s)) {
    char measured[32], predicted[32];
    const char *name = report_unit_class(model, worst);
    dp_str_addf(out, "; most of it in %.60s%s%s%s, %s against %s", model->units.items[worst].name, name ? " (" : "",
                name ? name : "", name ? ")" : "", dp_format_seconds(comparison->units[worst].measured_s[d], measured),
                dp_format_seconds(comparison->units[worst].predicted_s[d], predicted));
    return;
  }
  if (class_count) add_classes(sums, class_count, out);
}
