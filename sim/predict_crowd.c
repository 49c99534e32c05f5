/* Workers on processors of one machine slow each other down: they share caches, memory, and where there are more of
 * them than cores the cores too; and so do workers on parts of one GPU, which share its memory. How much follows from
 * who computes when, which follows from how much: so the program is played, each instruction takes what it met, and it
 * is played again until the step stays.
 *
 *   seconds = (alone + f forward + b backward) stretch
 *   forward, backward: what is to be added while all others run forwards, or anything else
 *   f, b    mean over the time of the others that do, as a share of workers - 1: of the profile, or parts of the GPU;
 *           of more than these together as much less
 *   of optimizers on parts of a GPU, which all wait for its memory: alone (1 + mean over the time of
 *           max(0, computing workers * sim_cost_optimizer_crowd / parts - 1)), without a profile, too
 *   stretch mean over the time of max(1, computing workers * threads / cores)
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/predictor.h"

enum { MOST_ROUNDS = 10 };
static const double SETTLED = 1e-3; /* relative change of the step */

/* Somebody on a machine begins, or stops, computing; what the time until then has summed up to. */
typedef struct moment {
  /* sums over time: of who computes, one's own share of that, what optimizers wait for memory, for one who computes */
  double at_s, shares[2], one, memory, stretch;
  int place, kind, change;
} moment;

typedef struct crowd {
  sim_predictor *p;
  const plan_profile *profile;
  moment *moments;
  size_t count;
  double memory_factor;       /* of optimizers that run all at once; 1: they do not wait for each other's memory */
  double *alone_s;            /* [work] as nobody else computes */
  double *counts, *crowded_s; /* [work] how many instructions there are of it, and what these take together */
  double *instruction_s;      /* [instruction] of compute */
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

/* Of forwards 0. */
static int kind_of(const plan_program *program, uint32_t instruction) {
  return program->instructions[instruction].opcode != PLAN_FORWARD;
}

static void find_moments(crowd *c) {
  const plan_timeline *t = &c->p->out->timeline;
  const plan_program *program = t->program;
  c->count = 0;
  for (int w = 0; w < program->worker_count; w++) {
    const plan_lane *lane = &program->lanes[program->worker_lane[w]];
    for (uint32_t i = lane->first; lane->kind == PLAN_LANE_COMPUTE && i < lane->first + lane->count; i++) {
      moment m = {
          .at_s = t->start_s[i], .place = place_of(c->p, (uint32_t)w), .kind = kind_of(program, i), .change = 1};
      c->moments[c->count++] = m;
      m.at_s = t->end_s[i];
      m.change = -1;
      c->moments[c->count++] = m;
    }
  }
  qsort(c->moments, c->count, sizeof *c->moments, compare_moments);
  const plan_device *first_device = device_of(c->p, 0);
  const bool shares_card = !plan_device_is_processor(first_device->model);
  const double most_others = (double)(shares_card ? first_device->parts : c->profile->workers) - 1;
  const double share = shares_card ? 0 : (double)c->profile->threads / (double)c->profile->cores;
  int active[2] = {0, 0};
  for (size_t m = 0; m < c->count; m++) {
    moment *now = &c->moments[m];
    const bool first = m == 0 || now->place != now[-1].place;
    if (first) active[0] = active[1] = 0;
    if (!first) {
      const double passed_s = now->at_s - now[-1].at_s;
      const int all = active[0] + active[1];
      const double one = most_others > 0 && all > 1 ? 1 / fmax(all - 1, most_others) : 0;
      for (int k = 0; k < 2; k++) now->shares[k] = now[-1].shares[k] + passed_s * active[k] * one;
      now->one = now[-1].one + passed_s * one;
      now->memory =
          now[-1].memory + passed_s * fmax(0, fmin(all, most_others + 1) * c->memory_factor / (most_others + 1) - 1);
      now->stretch = now[-1].stretch + passed_s * fmax(1, all * share);
    }
    active[now->kind] += now->change;
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

/* What is to be added for those that an instruction met, from one moment to another. */
static double more_s(const crowd *c, uint32_t instruction, const moment *start, const moment *end) {
  const sim_predictor *p = c->p;
  const plan_program *program = &p->out->program;
  const uint32_t work = program->instructions[instruction].class_id;
  const double met_s = end->at_s - start->at_s;
  double sum = 0;
  if (program->instructions[instruction].opcode == PLAN_OPTIMIZER_STEP && c->memory_factor > 1)
    return p->work_beside_s[1][work] / (c->memory_factor - 1) * (end->memory - start->memory) / met_s;
  for (int k = 0; k < 2; k++) {
    const double own = k == kind_of(program, instruction) ? end->one - start->one : 0;
    sum += (end->shares[k] - start->shares[k] - own) / met_s * p->work_beside_s[k][work];
  }
  return sum;
}

/* What it takes then. From the third round on half way, lest two states take turns. */
static double crowded_s(const crowd *c, uint32_t instruction, const moment *start, const moment *end, int round) {
  const double before_s = c->instruction_s[instruction], met_s = end->at_s - start->at_s;
  if (met_s <= 0) return before_s;
  const double alone_s = c->alone_s[c->p->out->program.instructions[instruction].class_id];
  const double seconds = (alone_s + more_s(c, instruction, start, end)) * (end->stretch - start->stretch) / met_s;
  return round < 2 ? seconds : (seconds + before_s) / 2;
}

static void meet_others(crowd *c, int round) {
  const plan_timeline *t = &c->p->out->timeline;
  const plan_program *program = t->program;
  memset(c->counts, 0, program->work_count * sizeof(double));
  memset(c->crowded_s, 0, program->work_count * sizeof(double));
  find_moments(c);
  for (int w = 0; w < program->worker_count; w++) {
    const plan_lane *lane = &program->lanes[program->worker_lane[w]];
    const int place = place_of(c->p, (uint32_t)w);
    for (uint32_t i = lane->first; lane->kind == PLAN_LANE_COMPUTE && i < lane->first + lane->count; i++) {
      const moment *start = moment_at(c, place, t->start_s[i]), *end = moment_at(c, place, t->end_s[i]);
      const uint32_t work = program->instructions[i].class_id;
      c->instruction_s[i] = crowded_s(c, i, start, end, round);
      c->counts[work]++;
      c->crowded_s[work] += c->instruction_s[i];
    }
  }
}

static dp_status settle(crowd *c, const sim_input *input) {
  sim_predictor *p = c->p;
  sim_prediction *out = p->out;
  sim_input crowded = *input;
  crowded.instruction_s = c->instruction_s;
  for (uint32_t i = 0; i < out->program.instruction_count; i++) c->instruction_s[i] = 0;
  for (int w = 0; w < out->program.worker_count; w++) {
    const plan_lane *lane = &out->program.lanes[out->program.worker_lane[w]];
    for (uint32_t i = lane->first; lane->kind == PLAN_LANE_COMPUTE && i < lane->first + lane->count; i++)
      c->instruction_s[i] = c->alone_s[out->program.instructions[i].class_id];
  }
  for (int round = 0; round < MOST_ROUNDS; round++) {
    const double before_s = out->timeline.step_s;
    meet_others(c, round);
    for (uint32_t w = 0; w < out->program.work_count; w++)
      if (c->counts[w] > 0) p->work_s[w] = c->crowded_s[w] / c->counts[w];
    DP_TRY(sim_run(&crowded, &out->timeline, &out->statistics, p->error));
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
  crowd c = {.p = p, .profile = profile_of(p), .memory_factor = sim_cost_optimizer_crowd(&p->kinds[0].context)};
  /* without a profile there is only what optimizers of parts take from each other */
  if (!c.profile && (c.memory_factor <= 1 || !p->out->plan.training)) return DP_OK;
  if (program->worker_count == 1) return DP_OK;
  c.moments = SIM_SCRATCH(p, moment, 2 * (size_t)program->instruction_count);
  c.alone_s = SIM_SCRATCH(p, double, works);
  c.counts = SIM_SCRATCH(p, double, works);
  c.crowded_s = SIM_SCRATCH(p, double, works);
  c.instruction_s = SIM_SCRATCH(p, double, program->instruction_count);
  if (!c.moments || !c.alone_s || !c.counts || !c.crowded_s || !c.instruction_s) return dp_fail_memory(p->error);
  memcpy(c.alone_s, p->work_s, works * sizeof *c.alone_s);
  return settle(&c, input);
}
