#include "plan/profile_run_beside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"

enum { LEAST = 8, ROUNDS = 10 };
static const double RIDGE = 1e-4;    /* of a mean square: keeps what does not vary at 0 */
static const double MOST = 3;        /* times as long */
static const double EXPLAINED = 0.5; /* of the squares */

/* An instruction that counts. */
typedef struct point {
  uint32_t class_id;
  double x[2], log_s;
  double g, j[2]; /* of a round */
} point;
typedef DP_ARRAY(point) points;

static int kind_of(uint32_t opcode) { return opcode != PLAN_FORWARD; }
static bool is_pass(uint32_t opcode) { return opcode <= PLAN_BACKWARD_WEIGHT; }

static const plan_lane *compute_of(const plan_program *program, int w) {
  const plan_lane *lane = &program->lanes[program->worker_lane[w]];
  return lane->kind == PLAN_LANE_COMPUTE ? lane : NULL;
}

static bool are_together(const plan_profile_run *run, int a, int b) {
  const plan_plan *plan = run->timeline->program->plan;
  if (!run->cluster || !plan->devices) return true;
  const plan_device *x = &run->cluster->devices.items[plan->devices[a]],
                    *y = &run->cluster->devices.items[plan->devices[b]];
  return plan_device_is_processor(x->model) ? x->node == y->node : x->card == y->card;
}

/* ---- what an instruction met ---- */

/* Of one other worker: both lanes are in the order of time. */
static void add_other(const plan_profile_run *run, const plan_lane *mine, const plan_lane *other, double (*shares)[2]) {
  const plan_timeline *t = run->timeline;
  uint32_t from = other->first;
  for (uint32_t i = mine->first; i < mine->first + mine->count; i++) {
    const double span_s = t->end_s[i] - t->start_s[i];
    while (from < other->first + other->count && t->end_s[from] <= t->start_s[i]) from++;
    for (uint32_t j = from; j < other->first + other->count && t->start_s[j] < t->end_s[i]; j++) {
      const double together_s = fmin(t->end_s[i], t->end_s[j]) - fmax(t->start_s[i], t->start_s[j]);
      if (span_s > 0 && together_s > 0)
        shares[i][kind_of(t->program->instructions[j].opcode)] += together_s / span_s / (run->sharers - 1);
    }
  }
}

static void find_shares(const plan_profile_run *run, double (*shares)[2]) {
  const plan_program *program = run->timeline->program;
  for (int a = 0; a < program->worker_count; a++)
    for (int b = 0; b < program->worker_count; b++)
      if (a != b && compute_of(program, a) && compute_of(program, b) && are_together(run, a, b))
        add_other(run, compute_of(program, a), compute_of(program, b), shares);
}

/* ---- the fit ---- */

/* Those of a class that count; fewer than two tell nothing. */
static dp_status add_class(const plan_profile_run *run, const plan_lane *lane, uint32_t class_id, double (*shares)[2],
                           points *all, dp_error *error) {
  const plan_timeline *t = run->timeline;
  const size_t before = all->count;
  DP_ARRAY(double) seconds = {0};
  uint32_t count = 0;
  dp_status status = DP_OK;
  for (uint32_t i = lane->first; i < lane->first + lane->count && status == DP_OK; i++)
    if (t->program->instructions[i].class_id == class_id && !dp_array_push(&seconds, t->end_s[i] - t->start_s[i]))
      status = dp_fail_memory(error);
  const double middle_s = status == DP_OK ? dp_median(seconds.items, seconds.count) : 0;
  dp_array_free(&seconds);
  for (uint32_t i = lane->first; i < lane->first + lane->count && status == DP_OK; i++) {
    const double span_s = t->end_s[i] - t->start_s[i];
    if (t->program->instructions[i].class_id != class_id || ++count % PLAN_PROFILE_ASIDE == 0) continue;
    if (i == lane->first || span_s <= 0 || span_s > PLAN_PROFILE_OUTLIER * middle_s) continue;
    const point one = {.class_id = class_id, .x = {shares[i][0], shares[i][1]}, .log_s = log(span_s)};
    if (!dp_array_push(all, one)) status = dp_fail_memory(error);
  }
  if (all->count - before < 2) all->count = before;
  return status;
}

/* Less the means of their classes, which lie together. */
static void center(points *all) {
  for (size_t first = 0, end; first < all->count; first = end) {
    double sum[3] = {0, 0, 0};
    for (end = first; end < all->count && all->items[end].class_id == all->items[first].class_id; end++) {
      const point *p = &all->items[end];
      sum[0] += p->g, sum[1] += p->j[0], sum[2] += p->j[1];
    }
    for (size_t i = first; i < end; i++) {
      point *p = &all->items[i];
      const double n = (double)(end - first);
      p->g -= sum[0] / n, p->j[0] -= sum[1] / n, p->j[1] -= sum[2] / n;
    }
  }
}

/* The logarithms of what they take alone, if that is the law, and how these change with it; the squares of the former. */
static double look(points *all, const double by[2]) {
  double squares = 0;
  for (size_t i = 0; i < all->count; i++) {
    point *p = &all->items[i];
    const double stretch = 1 + by[0] * p->x[0] + by[1] * p->x[1];
    p->g = p->log_s - log(stretch);
    p->j[0] = p->x[0] / stretch, p->j[1] = p->x[1] / stretch;
  }
  center(all);
  for (size_t i = 0; i < all->count; i++) squares += all->items[i].g * all->items[i].g;
  return squares;
}

/* By least squares (Gauss and Newton). */
static void fit(points *all, double by[2]) {
  const double none[2] = {0, 0};
  double found[2] = {0, 0};
  by[0] = by[1] = 0;
  if (all->count < LEAST) return;
  const double before = look(all, none);
  for (int round = 0; round < ROUNDS; round++) {
    double a = RIDGE * (double)all->count, b = 0, d = a, p = 0, q = 0;
    (void)look(all, found);
    for (size_t i = 0; i < all->count; i++) {
      const point *x = &all->items[i];
      a += x->j[0] * x->j[0], b += x->j[0] * x->j[1], d += x->j[1] * x->j[1];
      p += x->j[0] * x->g, q += x->j[1] * x->g;
    }
    const double whole = a * d - b * b; /* > 0 by the ridge */
    found[0] = fmin(MOST, fmax(0, found[0] + (d * p - b * q) / whole));
    found[1] = fmin(MOST, fmax(0, found[1] + (a * q - b * p) / whole));
  }
  if (look(all, found) > (1 - EXPLAINED) * before) return;
  memcpy(by, found, sizeof found);
}

dp_status plan_profile_beside_of_run(const plan_profile_run *run, plan_profile_beside *beside, dp_error *error) {
  const plan_program *program = run->timeline->program;
  dp_status status = DP_OK;
  *beside = (plan_profile_beside){.shares = calloc((size_t)program->instruction_count + 1, sizeof *beside->shares)};
  if (!beside->shares) return dp_fail_memory(error);
  if (run->sharers < 2) return DP_OK;
  find_shares(run, beside->shares);
  for (int kind = 0; kind < 2 && status == DP_OK; kind++) {
    points all = {0};
    for (uint32_t w = 0; w < program->work_count && status == DP_OK; w++) {
      const plan_work *work = &program->works[w];
      const plan_lane *lane = compute_of(program, (int)work->worker);
      if (lane && is_pass(work->opcode) && kind_of(work->opcode) == kind)
        status = add_class(run, lane, w, beside->shares, &all, error);
    }
    if (status == DP_OK) fit(&all, beside->by[kind]);
    dp_array_free(&all);
  }
  return status;
}

void plan_profile_beside_free(plan_profile_beside *beside) {
  free(beside->shares);
  *beside = (plan_profile_beside){.shares = NULL};
}

double plan_profile_beside_stretch(const plan_profile_beside *b, const plan_program *program, uint32_t i) {
  const uint32_t opcode = program->instructions[i].opcode;
  const double *by = b->by[kind_of(opcode)];
  return is_pass(opcode) ? 1 + by[0] * b->shares[i][0] + by[1] * b->shares[i][1] : 1;
}
