#include "plan/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/op_table.h"

const char *const plan_direction_names[] = {"forward", "backward_input", "backward_weight", NULL};
const char *const plan_source_names[] = {"measured", "interpolated", "analytic", NULL};

void plan_profile_free(plan_profile *profile) {
  dp_array_free(&profile->ops);
  dp_array_free(&profile->laws);
  dp_array_free(&profile->copies);
  dp_array_free(&profile->sums);
  dp_array_free(&profile->staged);
  for (size_t i = 0; i < profile->links.count; i++) dp_array_free(&profile->links.items[i].points);
  dp_array_free(&profile->links);
  dp_array_free(&profile->units);
  dp_array_free(&profile->parts);
  dp_arena_free(&profile->arena);
  memset(profile, 0, sizeof *profile);
}

static int compare(const char *op, plan_direction direction, const plan_profile_op *other) {
  const int order = strcmp(op, other->op);
  return order ? order : (int)direction - (int)other->direction;
}

static int compare_ops(const void *a, const void *b) {
  const plan_profile_op *x = a;
  return compare(x->op, x->direction, b);
}

enum { MOST_DIMS = 64 };

/* Logarithms of the dims in a key, "2x8x16" and the like; `out` has room for MOST_DIMS. Returns how many. */
static int read_dims(const char *key, double *out) {
  int count = 0;
  for (const char *at = key + strcspn(key, " "), *end; *at; at = end) {
    at += strspn(at, " ");
    end = at + strcspn(at, " ");
    if (at == end || strspn(at, "0123456789x") < (size_t)(end - at)) continue;
    while (at < end && count < MOST_DIMS) {
      double value = 0;
      for (; at < end && *at != 'x'; at++) value = 10 * value + (*at - '0');
      out[count++] = log(fmax(1, value));
      at++;
    }
  }
  return count;
}

static dp_status keep_dims(plan_profile *profile, plan_profile_op *op, dp_error *error) {
  double dims[MOST_DIMS];
  op->dim_count = read_dims(op->op, dims);
  double *kept = DP_ARENA_NEW(&profile->arena, double, (size_t)op->dim_count);
  if (!kept) return dp_fail_memory(error);
  memcpy(kept, dims, (size_t)op->dim_count * sizeof *kept);
  op->log_dims = kept;
  return DP_OK;
}

dp_status plan_profile_finish(plan_profile *profile, dp_error *error) {
  plan_profile_op *ops = profile->ops.items;
  for (size_t i = 0; i < profile->ops.count; i++) DP_TRY(keep_dims(profile, &ops[i], error));
  if (profile->ops.count > 1) qsort(ops, profile->ops.count, sizeof *ops, compare_ops);
  for (size_t i = 1; i < profile->ops.count; i++)
    if (compare_ops(&ops[i - 1], &ops[i]) == 0)
      return dp_fail(error, DP_BAD_INPUT, "ops: found \"%.200s\", %s, twice, allowed: each once", ops[i].op,
                     plan_direction_names[ops[i].direction]);
  return plan_profile_finish_units(profile, error);
}

static const plan_profile_op *find_op(const plan_profile *profile, const char *key, plan_direction direction) {
  size_t low = 0, high = profile->ops.count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const int order = compare(key, direction, &profile->ops.items[middle]);
    if (order == 0) return &profile->ops.items[middle];
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return NULL;
}

double plan_profile_law_s(const plan_profile_law *law, const plan_profile_work *work) {
  return law->overhead_s + law->s_per_matrix_flop * work->matrix_flops + law->s_per_flop * work->flops +
         law->s_per_byte * work->bytes;
}

static bool reaches(const plan_profile_law *law, const plan_profile_work *work) {
  return work->matrix_flops <= PLAN_PROFILE_REACH * law->largest.matrix_flops &&
         work->bytes <= PLAN_PROFILE_REACH * law->largest.bytes;
}

/* The kind's own before the class's. */
static const plan_profile_law *find_law(const plan_profile *profile, graph_op_kind kind, plan_direction direction,
                                        const plan_profile_work *work) {
  const plan_profile_law *of_class = NULL;
  for (size_t i = 0; i < profile->laws.count; i++) {
    const plan_profile_law *law = &profile->laws.items[i];
    if (law->direction != direction || !reaches(law, work)) continue;
    if (law->kind == (int)kind) return law;
    if (law->kind == GRAPH_NONE && law->op_class == (int)graph_op_rows[kind].op_class) of_class = law;
  }
  return of_class;
}

/* What ops of alike shapes took against the law of their kind. */
static double correction(const plan_profile *profile, const plan_profile_law *law, const char *key,
                         const uint8_t *left_out) {
  const double reach = 1.4, prior = 0.1;
  double dims[MOST_DIMS], sum = 0, weights = prior;
  const int count = read_dims(key, dims);
  for (size_t i = 0; i < profile->ops.count && count > 0; i++) {
    const plan_profile_op *op = &profile->ops.items[i];
    if ((int)op->kind != law->kind || op->direction != law->direction || op->dim_count != count ||
        (left_out && left_out[i]))
      continue;
    double square = 0;
    for (int d = 0; d < count; d++) square += (dims[d] - op->log_dims[d]) * (dims[d] - op->log_dims[d]);
    const double predicted = plan_profile_law_s(law, &op->work), weight = exp(-square / (reach * reach));
    if (predicted <= 0) continue;
    sum += weight * fmin(1, fmax(-1, log(op->alone_s / predicted)));
    weights += weight;
  }
  return exp(sum / weights);
}

bool plan_profile_interpolate(const plan_profile *profile, const char *key, graph_op_kind kind,
                              plan_direction direction, const plan_profile_work *work, const uint8_t *left_out,
                              plan_profile_cost *cost) {
  const plan_profile_law *law = find_law(profile, kind, direction, work);
  if (!law) return false;
  double alone_s = plan_profile_law_s(law, work);
  if (law->kind != GRAPH_NONE) alone_s *= correction(profile, law, key, left_out);
  *cost = (plan_profile_cost){alone_s, alone_s * law->busy_factor, PLAN_SOURCE_INTERPOLATED};
  return true;
}

bool plan_profile_op_cost(const plan_profile *profile, const char *key, graph_op_kind kind, plan_direction direction,
                          const plan_profile_work *work, plan_profile_cost *cost) {
  const plan_profile_op *op = find_op(profile, key, direction);
  if (op) {
    *cost = (plan_profile_cost){op->alone_s, op->busy_s, PLAN_SOURCE_MEASURED};
    return true;
  }
  return plan_profile_interpolate(profile, key, kind, direction, work, NULL, cost);
}

static double between(double a, double b, double t) { return exp(log(a) + t * (log(b) - log(a))); }

plan_profile_point plan_profile_at(const plan_profile_point *points, size_t count, double bytes) {
  plan_profile_point found = {bytes, 0, 0};
  if (count == 0) return found;
  const plan_profile_point *first = &points[0], *last = &points[count - 1];
  if (bytes <= first->bytes) return (plan_profile_point){bytes, first->alone_s, first->busy_s};
  if (bytes >= last->bytes)
    return (plan_profile_point){bytes, last->alone_s * bytes / last->bytes, last->busy_s * bytes / last->bytes};
  size_t i = 1;
  while (points[i].bytes < bytes) i++;
  const double t = log(bytes / points[i - 1].bytes) / log(points[i].bytes / points[i - 1].bytes);
  found.alone_s = between(points[i - 1].alone_s, points[i].alone_s, t);
  found.busy_s = between(points[i - 1].busy_s, points[i].busy_s, t);
  return found;
}

void plan_profile_scale(plan_profile *profile, const plan_profile_factors *factors) {
  for (size_t i = 0; i < profile->ops.count; i++) {
    plan_profile_op *op = &profile->ops.items[i];
    const double factor = op->direction == PLAN_DIRECTION_FORWARD ? factors->forward : factors->backward;
    op->alone_s *= factor;
    op->busy_s *= factor;
  }
  for (size_t i = 0; i < profile->laws.count; i++) {
    plan_profile_law *law = &profile->laws.items[i];
    const double factor = law->direction == PLAN_DIRECTION_FORWARD ? factors->forward : factors->backward;
    law->overhead_s *= factor;
    law->s_per_matrix_flop *= factor;
    law->s_per_flop *= factor;
    law->s_per_byte *= factor;
  }
  for (size_t i = 0; i < profile->units.count; i++) {
    plan_profile_unit *unit = &profile->units.items[i];
    const double factor = unit->pass == PLAN_PROFILE_FORWARD ? factors->forward : factors->backward;
    unit->alone_s *= factor;
    unit->beside_forward_s *= factor;
    unit->beside_backward_s *= factor;
    unit->first_s *= factor;
  }
  for (size_t i = 0; i < profile->parts.count; i++) {
    plan_profile_part *part = &profile->parts.items[i];
    part->forward_factor *= factors->forward;
    part->backward_factor *= factors->backward;
    part->optimizer_s *= factors->optimizer;
    part->optimizer_s_per_parameter *= factors->optimizer;
  }
  profile->optimizer_s *= factors->optimizer;
  profile->optimizer_s_per_parameter *= factors->optimizer;
  profile->norm_s_per_parameter *= factors->optimizer;
}
