/* Workers on processors of one machine slow each other down: they share caches, memory, and where there are more of
 * them than cores the cores too. How much follows from who computes when, which follows from how much: so the program
 * is played, each work class takes what its instructions met on average, and it is played again until the step stays.
 *
 *   seconds = (alone + crowd busy) stretch
 *   crowd   mean over the time of min(others that compute, workers - 1) / (workers - 1)   workers: of the profile
 *   stretch mean over the time of max(1, computing workers * threads / cores)
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/predictor.h"

enum { MOST_ROUNDS = 6 };
static const double SETTLED = 1e-3; /* relative change of the step */

/* Somebody on a machine begins, or stops, computing; what the time until then has summed up to. */
typedef struct moment {
  double at_s, crowd, stretch; /* sums over time of crowd and stretch of one who computes */
  int node, change;
} moment;

typedef struct crowd {
  sim_predictor *p;
  const plan_profile *profile;
  moment *moments;
  size_t count;
  double *alone_s;                     /* [work] as nobody else computes */
  double *met_s, *crowd_s, *stretch_s; /* [work] over its instructions */
} crowd;

static int compare_moments(const void *a, const void *b) {
  const moment *x = a, *y = b;
  if (x->node != y->node) return x->node < y->node ? -1 : 1;
  if (x->at_s != y->at_s) return x->at_s < y->at_s ? -1 : 1;
  return x->change - y->change;
}

static int node_of(const sim_predictor *p, uint32_t worker) {
  return p->scenario->cluster.devices.items[sim_worker_device(&p->out->plan, (int)worker)].node;
}

static void find_moments(crowd *c) {
  const plan_timeline *t = &c->p->out->timeline;
  const plan_program *program = t->program;
  c->count = 0;
  for (int w = 0; w < program->worker_count; w++) {
    const plan_lane *lane = &program->lanes[program->worker_lane[w]];
    for (uint32_t i = lane->first; lane->kind == PLAN_LANE_COMPUTE && i < lane->first + lane->count; i++) {
      c->moments[c->count++] = (moment){.at_s = t->start_s[i], .node = node_of(c->p, (uint32_t)w), .change = 1};
      c->moments[c->count++] = (moment){.at_s = t->end_s[i], .node = node_of(c->p, (uint32_t)w), .change = -1};
    }
  }
  qsort(c->moments, c->count, sizeof *c->moments, compare_moments);
  double most_others = (double)c->profile->workers - 1, share = (double)c->profile->threads / (double)c->profile->cores;
  int active = 0;
  for (size_t m = 0; m < c->count; m++) {
    moment *now = &c->moments[m];
    const bool first = m == 0 || now->node != now[-1].node;
    if (first) active = 0;
    if (!first) {
      const double passed_s = now->at_s - now[-1].at_s;
      now->crowd = now[-1].crowd;
      if (most_others > 0 && active > 1) now->crowd += passed_s * fmin(active - 1, most_others) / most_others;
      now->stretch = now[-1].stretch + passed_s * fmax(1, active * share);
    }
    active += now->change;
  }
}

/* The sums at a time that is one of the moments'. */
static const moment *moment_at(const crowd *c, int node, double at_s) {
  size_t low = 0, high = c->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const moment *m = &c->moments[middle];
    if (m->node < node || (m->node == node && m->at_s < at_s))
      low = middle + 1;
    else
      high = middle;
  }
  return &c->moments[low];
}

static void meet_others(crowd *c) {
  const plan_timeline *t = &c->p->out->timeline;
  const plan_program *program = t->program;
  const size_t bytes = program->work_count * sizeof(double);
  memset(c->met_s, 0, bytes);
  memset(c->crowd_s, 0, bytes);
  memset(c->stretch_s, 0, bytes);
  find_moments(c);
  for (int w = 0; w < program->worker_count; w++) {
    const plan_lane *lane = &program->lanes[program->worker_lane[w]];
    const int node = node_of(c->p, (uint32_t)w);
    for (uint32_t i = lane->first; lane->kind == PLAN_LANE_COMPUTE && i < lane->first + lane->count; i++) {
      const moment *start = moment_at(c, node, t->start_s[i]), *end = moment_at(c, node, t->end_s[i]);
      const uint32_t work = program->instructions[i].class_id;
      c->met_s[work] += end->at_s - start->at_s;
      c->crowd_s[work] += end->crowd - start->crowd;
      c->stretch_s[work] += end->stretch - start->stretch;
    }
  }
}

static dp_status settle(crowd *c, const sim_input *input) {
  sim_predictor *p = c->p;
  sim_prediction *out = p->out;
  const uint32_t works = out->program.work_count;
  for (int round = 0; round < MOST_ROUNDS; round++) {
    const double before_s = out->timeline.step_s;
    meet_others(c);
    for (uint32_t w = 0; w < works; w++) {
      if (c->met_s[w] <= 0) continue;
      const double crowded = c->crowd_s[w] / c->met_s[w], stretch = c->stretch_s[w] / c->met_s[w];
      p->work_s[w] = (c->alone_s[w] + crowded * p->work_busy_s[w]) * stretch;
    }
    DP_TRY(sim_run(input, &out->timeline, &out->statistics, p->error));
    if (fabs(out->timeline.step_s - before_s) <= SETTLED * before_s) return DP_OK;
  }
  return DP_OK;
}

static const plan_profile *profile_of(const sim_predictor *p) {
  for (int k = 0; k < p->kind_count; k++)
    if (p->kinds[k].context.profile) return p->kinds[k].context.profile;
  return NULL;
}

dp_status sim_predict_crowd(sim_predictor *p, const sim_input *input) {
  const plan_program *program = &p->out->program;
  const size_t works = program->work_count;
  crowd c = {.p = p, .profile = profile_of(p)};
  if (!c.profile || program->worker_count == 1) return DP_OK;
  c.moments = SIM_SCRATCH(p, moment, 2 * (size_t)program->instruction_count);
  c.alone_s = SIM_SCRATCH(p, double, works);
  c.met_s = SIM_SCRATCH(p, double, works);
  c.crowd_s = SIM_SCRATCH(p, double, works);
  c.stretch_s = SIM_SCRATCH(p, double, works);
  if (!c.moments || !c.alone_s || !c.met_s || !c.crowd_s || !c.stretch_s) return dp_fail_memory(p->error);
  memcpy(c.alone_s, p->work_s, works * sizeof *c.alone_s);
  return settle(&c, input);
}
