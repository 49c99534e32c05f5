/* Laws from measured ops: least squares of relative errors with four coefficients, none negative. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"
#include "graph/op_table.h"
#include "plan/profile.h"

enum { TERMS = 4, ROUNDS = 8, SWEEPS = 2000 };
/* Relative errors beyond this count in proportion, not squared. */
static const double HUBER = 0.1;

/* The ops that a law is made from. */
typedef struct sample {
  const plan_profile_op **ops;
  double *scratch; /* [count] */
  size_t count;
} sample;

static void terms_of(const plan_profile_work *work, const bool used[TERMS], double terms[TERMS]) {
  const double all[TERMS] = {1, work->matrix_flops, work->flops, work->bytes};
  for (int i = 0; i < TERMS; i++) terms[i] = used[i] ? all[i] : 0;
}

/* Minimises the sum over ops of weight (terms . x / seconds - 1)^2 over x >= 0, one coefficient at a time. */
static void solve(const sample *s, const bool used[TERMS], const double *weights, double x[TERMS]) {
  double normal[TERMS][TERMS] = {{0}}, right[TERMS] = {0};
  for (size_t p = 0; p < s->count; p++) {
    double terms[TERMS];
    terms_of(&s->ops[p]->work, used, terms);
    for (int i = 0; i < TERMS; i++) {
      const double a = terms[i] / s->ops[p]->alone_s;
      right[i] += weights[p] * a;
      for (int j = 0; j < TERMS; j++) normal[i][j] += weights[p] * a * terms[j] / s->ops[p]->alone_s;
    }
  }
  for (int sweep = 0; sweep < SWEEPS; sweep++)
    for (int i = 0; i < TERMS; i++) {
      if (normal[i][i] <= 0) continue;
      double rest = right[i];
      for (int j = 0; j < TERMS; j++)
        if (j != i) rest -= normal[i][j] * x[j];
      x[i] = fmax(0, rest / normal[i][i]);
    }
}

static double value(const plan_profile_work *work, const double x[TERMS]) {
  return x[0] + x[1] * work->matrix_flops + x[2] * work->flops + x[3] * work->bytes;
}

/* Fewer points than coefficients: work alone for one, an overhead too for two or three. */
static void choose_terms(const sample *s, bool used[TERMS]) {
  bool matrix = false;
  for (size_t p = 0; p < s->count; p++) matrix = matrix || s->ops[p]->work.matrix_flops > 0;
  used[0] = s->count > 1;
  used[1] = matrix;
  used[2] = s->count >= TERMS;
  used[3] = !matrix || s->count >= TERMS;
}

static dp_status fit_law(const sample *s, plan_profile_law *law, dp_error *error) {
  bool used[TERMS];
  double x[TERMS] = {0}, *weights = malloc(s->count * sizeof *weights);
  if (!weights) return dp_fail_memory(error);
  choose_terms(s, used);
  for (size_t p = 0; p < s->count; p++) weights[p] = 1;
  for (int round = 0; round < ROUNDS; round++) {
    solve(s, used, weights, x);
    for (size_t p = 0; p < s->count; p++) {
      const double wrong = fabs(value(&s->ops[p]->work, x) / s->ops[p]->alone_s - 1);
      weights[p] = wrong > HUBER ? HUBER / wrong : 1;
    }
  }
  free(weights);
  law->overhead_s = x[0];
  law->s_per_matrix_flop = x[1];
  law->s_per_flop = x[2];
  law->s_per_byte = x[3];
  law->points = (int64_t)s->count;
  law->largest = (plan_profile_work){0, 0, 0};
  for (size_t p = 0; p < s->count; p++) {
    const plan_profile_work *work = &s->ops[p]->work;
    law->largest.matrix_flops = fmax(law->largest.matrix_flops, work->matrix_flops);
    law->largest.flops = fmax(law->largest.flops, work->flops);
    law->largest.bytes = fmax(law->largest.bytes, work->bytes);
    s->scratch[p] = s->ops[p]->busy_s / s->ops[p]->alone_s;
  }
  law->busy_factor = fmax(1, dp_median(s->scratch, s->count));
  for (size_t p = 0; p < s->count; p++) s->scratch[p] = fabs(value(&s->ops[p]->work, x) / s->ops[p]->alone_s - 1);
  law->error = dp_median(s->scratch, s->count);
  return DP_OK;
}

/* kept_aside[op]: not to be used; NULL: all are. */
static dp_status fit_one(plan_profile *profile, const uint8_t *kept_aside, plan_profile_law law, sample *s,
                         dp_error *error) {
  s->count = 0;
  for (size_t i = 0; i < profile->ops.count; i++) {
    const plan_profile_op *op = &profile->ops.items[i];
    const bool fits =
        law.kind != GRAPH_NONE ? (int)op->kind == law.kind : (int)graph_op_rows[op->kind].op_class == law.op_class;
    if (fits && op->direction == law.direction && !(kept_aside && kept_aside[i])) s->ops[s->count++] = op;
  }
  if (s->count == 0) return DP_OK;
  DP_TRY(fit_law(s, &law, error));
  return dp_array_push(&profile->laws, law) ? DP_OK : dp_fail_memory(error);
}

static dp_status fit_all(plan_profile *profile, const uint8_t *kept_aside, sample *s, dp_error *error) {
  for (int kind = 0; kind < GRAPH_OP_KIND_COUNT; kind++)
    for (int d = 0; d < PLAN_DIRECTION_COUNT; d++) {
      const plan_profile_law law = {.kind = kind, .op_class = (int)graph_op_rows[kind].op_class, .direction = d};
      DP_TRY(fit_one(profile, kept_aside, law, s, error));
    }
  for (int op_class = 0; op_class < GRAPH_CLASS_COUNT; op_class++)
    for (int d = 0; d < PLAN_DIRECTION_COUNT; d++) {
      const plan_profile_law law = {.kind = GRAPH_NONE, .op_class = op_class, .direction = d};
      DP_TRY(fit_one(profile, kept_aside, law, s, error));
    }
  return DP_OK;
}

static dp_status fit(plan_profile *profile, const uint8_t *kept_aside, dp_error *error) {
  const size_t count = profile->ops.count;
  sample s = {.ops = malloc((count + 1) * sizeof *s.ops), .scratch = malloc((count + 1) * sizeof *s.scratch)};
  profile->laws.count = 0;
  const dp_status status = s.ops && s.scratch ? fit_all(profile, kept_aside, &s, error) : dp_fail_memory(error);
  free(s.ops);
  free(s.scratch);
  return status;
}

dp_status plan_profile_fit(plan_profile *profile, dp_error *error) { return fit(profile, NULL, error); }

static void measure_held_out(plan_profile *profile, const uint8_t *kept_aside, double *errors) {
  size_t count = 0;
  for (size_t i = 0; i < profile->ops.count; i++) {
    const plan_profile_op *op = &profile->ops.items[i];
    plan_profile_cost cost;
    if (kept_aside[i] &&
        plan_profile_interpolate(profile, op->op, op->kind, op->direction, &op->work, kept_aside, &cost))
      errors[count++] = fabs(cost.alone_s / op->alone_s - 1);
  }
  profile->held_out = (int64_t)count;
  profile->held_out_error = dp_median(errors, count);
}

dp_status plan_profile_hold_out(plan_profile *profile, int every, dp_error *error) {
  const size_t count = profile->ops.count;
  uint8_t *kept_aside = calloc(count + 1, 1);
  double *errors = malloc((count + 1) * sizeof *errors);
  dp_status status = kept_aside && errors ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) {
    for (size_t i = (size_t)every - 1; i < count; i += (size_t)every) kept_aside[i] = 1;
    status = fit(profile, kept_aside, error);
  }
  if (status == DP_OK) measure_held_out(profile, kept_aside, errors);
  free(kept_aside);
  free(errors);
  return status == DP_OK ? fit(profile, NULL, error) : status;
}
