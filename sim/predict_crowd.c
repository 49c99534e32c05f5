/* Workers on processors of one machine slow each other down: they share caches, memory, and where there are more of
 * them than cores the cores too; and so do workers on parts of one GPU, which share its memory. How much follows from
 * who computes when, which follows from how much: so the program is played, each work class takes what its instructions
 * met on average, and it is played again until the step stays.
 *
 *   seconds = (alone + low half + high (busy - half)) stretch
 *   crowd   min(others that compute, workers - 1) / (workers - 1)   workers: of the profile, or parts of the GPU
 *   low     mean over the time of min(2 crowd, 1), high of max(2 crowd - 1, 0)
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
  double at_s, low, high, stretch; /* sums over time for one who computes */
  int place, change;
} moment;

typedef struct crowd {
  sim_predictor *p;
  const plan_profile *profile;
  moment *moments;
  size_t count;
  double *alone_s;                     /* [work] as nobody else computes */
  double *met_s, *low_s, *high_s, *stretch_s; /* [work] over its instructions */
} crowd;

static int compare_moments(const void *a, const void *b) {
  const moment *x = a, *y = b;
  if (x->place != y->place) return x->place < y->place ? -1 : 1;
  if (x->at_s != y->at_s) return x->at_s < y->at_s ? -1 : 1;
  return x->change - y->change;
}

static const plan_device *device_of(const sim_predictor *p, uint32_t worker) {
  return &p->scenario->cluster.devices.items[sim_worker_device(&p->out->plan, (int)worker)];
}

/* What a worker shares with others: the machine, or its card. */
static int place_of(const sim_predictor *p, uint32_t worker) {
  const plan_device *device = device_of(p, worker);
  return plan_device_is_processor(device->model) ? -1 - device->node : device->card;
}

static void find_moments(crowd *c) {
  const plan_timeline *t = &c->p->out->timeline;
  const plan_program *program = t->program;
  c->count = 0;
  for (int w = 0; w < program->worker_count; w++) {
    const plan_lane *lane = &program->lanes[program->worker_lane[w]];
    for (uint32_t i = lane->first; lane->kind == PLAN_LANE_COMPUTE && i < lane->first + lane->count; i++) {
      c->moments[c->count++] = (moment){.at_s = t->start_s[i], .place = place_of(c->p, (uint32_t)w), .change = 1};
      c->moments[c->count++] = (moment){.at_s = t->end_s[i], .place = place_of(c->p, (uint32_t)w), .change = -1};
    }
  }
  qsort(c->moments, c->count, sizeof *c->moments, compare_moments);
  const plan_device *first_device = device_of(c->p, 0);
  const bool shares_card = !plan_device_is_processor(first_device->model);
  const double most_others = (double)(shares_card ? first_device->parts : c->profile->workers) - 1;
  const double share = shares_card ? 0 : (double)c->profile->threads / (double)c->profile->cores;
  int active = 0;
  for (size_t m = 0; m < c->count; m++) {
    moment *now = &c->moments[m];
    const bool first = m == 0 || now->place != now[-1].place;
    if (first) active = 0;
    if (!first) {
      const double passed_s = now->at_s - now[-1].at_s;
      const double share_of_others = most_others > 0 && active > 1 ? fmin(active - 1, most_others) / most_others : 0;
      now->low = now[-1].low + passed_s * fmin(2 * share_of_others, 1);
      now->high = now[-1].high + passed_s * fmax(2 * share_of_others - 1, 0);
      now->stretch = now[-1].stretch + passed_s * fmax(1, active * share);
    }
    active += now->change;
  }
}

/* The sums at a time that is one of the moments'. */
static const moment *moment_at(const crowd *c, int place, double at_s) {
  size_t low = 0, high = c->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const moment *m = &c->moments[middle];
    if (m->place < place || (m->place == place && m->at_s < at_s))
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
  memset(c->low_s, 0, bytes);
  memset(c->high_s, 0, bytes);
  memset(c->stretch_s, 0, bytes);
  find_moments(c);
  for (int w = 0; w < program->worker_count; w++) {
    const plan_lane *lane = &program->lanes[program->worker_lane[w]];
    const int place = place_of(c->p, (uint32_t)w);
    for (uint32_t i = lane->first; lane->kind == PLAN_LANE_COMPUTE && i < lane->first + lane->count; i++) {
      const moment *start = moment_at(c, place, t->start_s[i]), *end = moment_at(c, place, t->end_s[i]);
      const uint32_t work = program->instructions[i].class_id;
      c->met_s[work] += end->at_s - start->at_s;
      c->low_s[work] += end->low - start->low;
      c->high_s[work] += end->high - start->high;
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
      const double low = c->low_s[w] / c->met_s[w], high = c->high_s[w] / c->met_s[w];
      const double crowded_s = low * p->work_half_s[w] + high * (p->work_busy_s[w] - p->work_half_s[w]);
      p->work_s[w] = (c->alone_s[w] + crowded_s) * c->stretch_s[w] / c->met_s[w];
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
  c.low_s = SIM_SCRATCH(p, double, works);
  c.high_s = SIM_SCRATCH(p, double, works);
  c.stretch_s = SIM_SCRATCH(p, double, works);
  if (!c.moments || !c.alone_s || !c.met_s || !c.low_s || !c.high_s || !c.stretch_s) return dp_fail_memory(p->error);
  memcpy(c.alone_s, p->work_s, works * sizeof *c.alone_s);
  return settle(&c, input);
}
