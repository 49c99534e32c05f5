#include "profiler/pace.h"

#include <math.h>

#include "base/median.h"

void prof_pace_begin(prof_pace *p, double bound, size_t keep, int64_t steps) {
  *p = (prof_pace){.bound = bound > 0 ? bound : PROF_PACE_BOUND, .keep = (int64_t)keep, .steps = steps};
}

/* Of the newest `most` of those that went into a ring. */
static double median_of(const double *ring, int64_t size, int64_t seen, int64_t most) {
  double sorted[PROF_PACE_TIMES];
  const int64_t held = seen < size ? seen : size, count = held < most ? held : most;
  for (int64_t i = 0; i < count; i++) sorted[i] = ring[(seen - 1 - i) % size];
  return dp_median(sorted, (size_t)count);
}

static double cost_of(const prof_pace *p) {
  return median_of(p->costs, PROF_PACE_MEASURED, p->bursts, PROF_PACE_MEASURED);
}

/* ---- which steps ---- */

/* How many of the steps that are left can still be kept, in whole bursts, a burst and the one after it between plain
 * ones, and within the bound. */
static int64_t room(const prof_pace *p) {
  const int64_t most = (p->steps - p->done) / (2 * PROF_PACE_BURST + 1);
  const double cost = cost_of(p);
  if (p->bursts == 0 || cost <= 0) return most * PROF_PACE_KEPT;
  const double steps = PROF_PACE_AIM * p->bound * (double)p->steps / cost - (double)p->taken;
  const double paid = fmax(0, floor(steps / PROF_PACE_BURST));
  return PROF_PACE_KEPT * (paid < (double)most ? (int64_t)paid : most);
}

static bool is_paid(const prof_pace *p) {
  const double with = (double)(p->taken + PROF_PACE_BURST) * cost_of(p);
  return with <= PROF_PACE_AIM * p->bound * (double)(p->done + PROF_PACE_BURST);
}

/* How long the burst is that begins now; 0: none does. */
static int64_t burst_of(const prof_pace *p) {
  const int64_t left = p->steps - p->done;
  const int64_t missing = p->keep - p->kept;
  if (left < 2) return 0; /* it would keep none */
  if (room(p) < missing) return left <= missing + 1 ? left : 0;
  if (p->since < PROF_PACE_BURST || (p->bursts >= PROF_PACE_TRIALS && !is_paid(p))) return 0;
  return left < PROF_PACE_BURST ? left : PROF_PACE_BURST;
}

static void begin_burst(prof_pace *p) {
  p->base_s = median_of(p->plain_s, PROF_PACE_TIMES, p->plain, PROF_PACE_BASE);
  p->more_s = 0;
  p->since = p->burst = 0;
}

static prof_pace_kind next_kind(prof_pace *p) {
  if (p->done < PROF_PACE_COLD) return PROF_PACE_WARMS;
  if (p->left == 0 && p->kind == PROF_PACE_RECORDED) return PROF_PACE_AFTER;
  if (p->left == 0) {
    p->left = burst_of(p);
    if (p->left > 0) begin_burst(p);
  }
  return p->left > 0 ? PROF_PACE_RECORDED : PROF_PACE_PLAIN;
}

bool prof_pace_next(prof_pace *p) {
  if (p->done >= p->steps) return false;
  p->kind = next_kind(p);
  return p->kind == PROF_PACE_WARMS || p->kind == PROF_PACE_RECORDED;
}

/* ---- what they cost ---- */

static void end_burst(prof_pace *p) {
  if (p->burst > 0 && p->base_s > 0) {
    p->costs[p->bursts++ % PROF_PACE_MEASURED] = p->more_s / ((double)p->burst * p->base_s);
    p->measured += p->burst;
  }
  p->burst = 0;
}

void prof_pace_step(prof_pace *p, double step_s, double switch_s, bool usual) {
  p->done++;
  p->taken += p->kind == PROF_PACE_WARMS || p->kind == PROF_PACE_RECORDED;
  if (p->kind == PROF_PACE_WARMS) return;
  if (p->kind == PROF_PACE_PLAIN) {
    p->since++;
    if (usual) p->plain_s[p->plain++ % PROF_PACE_TIMES] = step_s;
    return;
  }
  p->more_s += switch_s + (usual ? step_s - p->base_s : 0);
  if (p->kind == PROF_PACE_AFTER) {
    end_burst(p);
    return;
  }
  p->left--;
  p->burst += usual;
  p->kept += usual && p->left > 0;
  if (usual) p->recorded_s[p->recorded++ % PROF_PACE_TIMES] = step_s;
}

prof_pace_cost prof_pace_cost_of(const prof_pace *pace) {
  prof_pace p = *pace;
  end_burst(&p); /* the run ended with it */
  prof_pace_cost cost = {
      .known = p.bursts > 0, .recorded = p.measured, .plain = p.plain, .taken = p.taken, .done = p.done};
  if (!cost.known) return cost;
  cost.recorded_s = median_of(p.recorded_s, PROF_PACE_TIMES, p.recorded, PROF_PACE_TIMES);
  cost.plain_s = median_of(p.plain_s, PROF_PACE_TIMES, p.plain, PROF_PACE_TIMES);
  cost.step = cost_of(&p);
  cost.run = cost.step * (double)p.taken / (double)p.done;
  return cost;
}
