/* Cut points against exhaustive search. */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "plan/plan.h"
#include "tests/suite.h"

enum { MAX_UNITS = 10 };

static double largest(const double *cost, int n, int k, const double *speed, const int *cuts) {
  double most = 0;
  for (int c = 0; c < k; c++) {
    double sum = 0;
    for (int u = c ? cuts[c - 1] : 0; u < (c + 1 < k ? cuts[c] : n); u++) sum += cost[u];
    most = fmax(most, sum / (speed ? speed[c] : 1));
  }
  return most;
}

/* The least value over all ascending cuts. */
static double exhaustive(int n, int k, int *cuts, int at, double (*value)(const int *cuts, const void *data),
                         const void *data) {
  if (at == k - 1) return value(cuts, data);
  double least = INFINITY;
  for (int c = at ? cuts[at - 1] + 1 : 1; c <= n - (k - 1 - at); c++) {
    cuts[at] = c;
    least = fmin(least, exhaustive(n, k, cuts, at + 1, value, data));
  }
  return least;
}

typedef struct row_case {
  const double *cost, *speed;
  int n, k;
} row_case;
static double row_value(const int *cuts, const void *data) {
  const row_case *c = data;
  return largest(c->cost, c->n, c->k, c->speed, cuts);
}

START_TEST(balanced_equals_exhaustive_search) {
  dp_random random;
  dp_random_init(&random, 1, 0);
  for (int round = 0; round < 2000; round++) {
    const int n = 1 + (int)dp_random_below(&random, MAX_UNITS), k = 1 + (int)dp_random_below(&random, (uint64_t)n);
    double cost[MAX_UNITS], speed[MAX_UNITS];
    for (int u = 0; u < n; u++) cost[u] = round % 3 ? dp_random_uniform(&random) : (double)dp_random_below(&random, 4);
    for (int c = 0; c < k; c++) speed[c] = 0.5 + dp_random_uniform(&random);
    const double *speeds = round % 2 ? speed : NULL;
    int cuts[MAX_UNITS] = {0}, tried[MAX_UNITS];
    ck_assert_int_eq(plan_split_balanced(cost, n, k, speeds, cuts, NULL), DP_OK);
    for (int c = 0; c + 1 < k; c++) ck_assert(cuts[c] > (c ? cuts[c - 1] : 0) && cuts[c] < n);
    const row_case data = {cost, speeds, n, k};
    const double best = exhaustive(n, k, tried, 0, row_value, &data);
    ck_assert_double_eq_tol(largest(cost, n, k, speeds, cuts), best, 1e-9);
  }
}
END_TEST

START_TEST(equal_units_split_evenly) {
  double cost[48];
  int cuts[16];
  for (int i = 0; i < 48; i++) cost[i] = 0.1;
  for (int k = 2; k <= 16; k *= 2) {
    ck_assert_int_eq(plan_split_balanced(cost, 48, k, NULL, cuts, NULL), DP_OK);
    for (int c = 0; c + 1 < k; c++) ck_assert_int_eq(cuts[c], 48 / k * (c + 1));
  }
  /* one heavy unit decides the largest; the rest must still be even */
  cost[0] = 5;
  ck_assert_int_eq(plan_split_balanced(cost, 48, 3, NULL, cuts, NULL), DP_OK);
  ck_assert_int_eq(cuts[0], 1);
  ck_assert(cuts[1] == 24 || cuts[1] == 25); /* 47 units in 23 and 24 */
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(plan_split_balanced(cost, 3, 4, NULL, cuts, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "4 chunks of 3 units, allowed: at most as many chunks as units");
}
END_TEST

START_TEST(many_units_and_chunks) {
  enum { N = 4096 };
  static double cost[N];
  static int cuts[N];
  for (int i = 0; i < N; i++) cost[i] = 1 + i % 3;
  ck_assert_int_eq(plan_split_balanced(cost, N, N, NULL, cuts, NULL), DP_OK);
  for (int c = 0; c + 1 < N; c++) ck_assert_int_eq(cuts[c], c + 1);
  ck_assert_int_eq(plan_split_balanced(cost, N, 1000, NULL, cuts, NULL), DP_OK);
  ck_assert_double_eq(largest(cost, N, 1000, NULL, cuts), 9); /* 8190 / 1000 > 8 */
}
END_TEST

/* ---- folded ---- */

typedef struct fold_case {
  const graph *model;
  const double *cost, *speed;
  int n, ranks;
  double s_per_byte, limit; /* limit < 0: the value is the largest rank, else the bytes moved */
} fold_case;

static int chunk_of(const fold_case *f, const int *cuts, int unit) {
  int c = 0;
  while (c + 1 < 2 * f->ranks && unit >= cuts[c]) c++;
  return c;
}
static int rank_of(const fold_case *f, const int *cuts, int unit) {
  const int c = chunk_of(f, cuts, unit);
  return c < f->ranks ? c : 2 * f->ranks - 1 - c;
}

static double fold_value(const int *cuts, const void *data) {
  const fold_case *f = data;
  double rank_s[MAX_UNITS] = {0}, moved = 0, most = 0;
  for (int u = 0; u < f->n; u++)
    rank_s[rank_of(f, cuts, u)] += f->cost[u] / (f->speed ? f->speed[rank_of(f, cuts, u)] : 1);
  for (size_t t = 0; t < f->model->tensors.count; t++) {
    const graph_tensor *tensor = &f->model->tensors.items[t];
    for (int i = 0; i < tensor->consumer_unit_count; i++) {
      const int from = rank_of(f, cuts, tensor->producer_unit), to = rank_of(f, cuts, tensor->consumer_units[i]);
      if (from == to) continue;
      moved += (double)tensor->bytes;
      if (tensor->consumer_units[i] == tensor->producer_unit + 1) continue;
      rank_s[from] += f->s_per_byte * (double)tensor->bytes;
      rank_s[to] += f->s_per_byte * (double)tensor->bytes;
    }
  }
  for (int r = 0; r < f->ranks; r++) most = fmax(most, rank_s[r]);
  if (f->limit < 0) return most;
  return most <= f->limit ? moved : INFINITY;
}

START_TEST(folded_equals_exhaustive_search) {
  dp_random random;
  dp_random_init(&random, 2, 0);
  for (int round = 0; round < 400; round++) {
    const int ranks = 1 + (int)dp_random_below(&random, 4),
              n = 2 * ranks + (int)dp_random_below(&random, (uint64_t)(MAX_UNITS - 2 * ranks + 1));
    graph_unit units[MAX_UNITS];
    graph_tensor tensors[3 * MAX_UNITS];
    int consumers[3 * MAX_UNITS][2];
    memset(units, 0, sizeof units);
    memset(tensors, 0, sizeof tensors);
    int count = 0;
    for (int u = 0; u + 1 < n; u++) { /* a chain with skips */
      tensors[count] = (graph_tensor){.producer_unit = u,
                                      .bytes = 1 + (int64_t)dp_random_below(&random, 9),
                                      .consumer_units = consumers[count],
                                      .consumer_unit_count = 1};
      consumers[count][0] = u + 1;
      if (u + 2 < n && dp_random_below(&random, 2)) {
        consumers[count][1] = u + 2 + (int)dp_random_below(&random, (uint64_t)(n - u - 2));
        tensors[count].consumer_unit_count = 2;
      }
      count++;
    }
    graph model;
    memset(&model, 0, sizeof model);
    model.units.items = units;
    model.units.count = (size_t)n;
    model.tensors.items = tensors;
    model.tensors.count = (size_t)count;
    double cost[MAX_UNITS], speed[MAX_UNITS];
    for (int u = 0; u < n; u++) cost[u] = dp_random_uniform(&random);
    for (int r = 0; r < ranks; r++) speed[r] = 0.5 + dp_random_uniform(&random);
    fold_case f = {&model, cost, round % 2 ? speed : NULL, n, ranks, 0.05 * dp_random_uniform(&random), -1};
    int cuts[MAX_UNITS] = {0}, tried[MAX_UNITS];
    ck_assert_int_eq(plan_split_folded(&model, cost, ranks, f.s_per_byte, f.speed, cuts, NULL), DP_OK);
    for (int c = 0; c + 1 < 2 * ranks; c++) ck_assert(cuts[c] > (c ? cuts[c - 1] : 0) && cuts[c] < n);
    const double least = exhaustive(n, 2 * ranks, tried, 0, fold_value, &f);
    ck_assert_double_le(fold_value(cuts, &f), least * 1.02 + 1e-9);
    f.limit = least * 1.02 + 1e-12;
    const double fewest = exhaustive(n, 2 * ranks, tried, 0, fold_value, &f);
    f.limit += 1e-9;
    ck_assert_double_eq_tol(fold_value(cuts, &f), fewest, 1e-6);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {balanced_equals_exhaustive_search, equal_units_split_evenly, many_units_and_chunks,
                                folded_equals_exhaustive_search};
  return suite_run("plan_split", tests, sizeof tests / sizeof tests[0], NULL, NULL, 120);
}
