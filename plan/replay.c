#include "plan/replay.h"

#include <math.h>
#include <stdlib.h>

/* ---- events ---- */

/* What the lane of an instruction runs before it. */
static uint32_t lane_before(const plan_replay *r, uint32_t id) {
  return id > r->program->lanes[r->lane_of[id]].first ? id - 1 : PLAN_NO_PEER;
}

typedef struct builder {
  plan_replay *replay;
  const plan_program *program;
  dp_arena scratch;
  plan_groups groups;
  uint32_t *first, *members, *event_of; /* in the order of the instructions that lead them */
  uint32_t event_count;
  uint32_t *user_first, *users; /* [instruction] those that wait for it */
} builder;

#define SCRATCH(b, type, count) DP_ARENA_NEW(&(b)->scratch, type, (size_t)(count) + 1)
#define KEEP(r, type, count) DP_ARENA_NEW(&(r)->arena, type, (size_t)(count) + 1)

/* An event is led by its SEND, or by the first member of its group. */
static bool leads(const builder *b, uint32_t id) {
  const plan_instruction *i = &b->program->instructions[id];
  if (i->opcode == PLAN_RECV) return false;
  return i->opcode != PLAN_ALL_REDUCE || b->groups.ids[b->groups.first[i->peer]] == id;
}

static void find_events(builder *b) {
  const plan_program *program = b->program;
  uint32_t at = 0;
  for (uint32_t id = 0; id < program->instruction_count; id++) {
    const plan_instruction *i = &program->instructions[id];
    if (!leads(b, id)) continue;
    const uint32_t e = b->event_count++;
    b->first[e] = at;
    if (i->opcode == PLAN_ALL_REDUCE) {
      for (uint32_t m = b->groups.first[i->peer]; m < b->groups.first[i->peer + 1]; m++)
        b->members[at++] = b->groups.ids[m];
    } else {
      b->members[at++] = id;
      if (i->opcode == PLAN_SEND) b->members[at++] = i->peer;
    }
    for (uint32_t m = b->first[e]; m < at; m++) b->event_of[b->members[m]] = e;
  }
  b->first[b->event_count] = at;
}

static void find_users(builder *b) {
  const plan_program *program = b->program;
  const uint32_t n = program->instruction_count;
  for (int pass = 0; pass < 2; pass++) { /* counts, then fills from the ends of the runs */
    for (uint32_t id = 0; id < n; id++) {
      const uint32_t before = lane_before(b->replay, id);
      if (before != PLAN_NO_PEER) {
        if (pass)
          b->users[--b->user_first[before]] = id;
        else
          b->user_first[before]++;
      }
      for (uint32_t w = program->wait_first[id]; w < program->wait_first[id + 1]; w++) {
        if (pass)
          b->users[--b->user_first[program->waits[w]]] = id;
        else
          b->user_first[program->waits[w]]++;
      }
    }
    if (pass) return;
    for (uint32_t id = 1; id <= n; id++) b->user_first[id] += b->user_first[id - 1];
  }
}

static uint32_t needs(const builder *b, uint32_t id) {
  return (lane_before(b->replay, id) != PLAN_NO_PEER) + b->program->wait_first[id + 1] - b->program->wait_first[id];
}

/* Events in an order in which they can happen. */
static dp_status order_events(builder *b, dp_error *error) {
  plan_replay *r = b->replay;
  uint32_t *missing = SCRATCH(b, uint32_t, b->event_count), *queue = SCRATCH(b, uint32_t, b->event_count);
  if (!missing || !queue) return dp_fail_memory(error);
  uint32_t tail = 0, at = 0;
  for (uint32_t e = 0; e < b->event_count; e++) {
    for (uint32_t m = b->first[e]; m < b->first[e + 1]; m++) missing[e] += needs(b, b->members[m]);
    if (!missing[e]) queue[tail++] = e;
  }
  for (uint32_t head = 0; head < tail; head++) {
    const uint32_t e = queue[head];
    r->event_first[r->event_count] = at;
    for (uint32_t m = b->first[e]; m < b->first[e + 1]; m++) {
      const uint32_t id = b->members[m];
      r->members[at++] = id;
      r->event_of[id] = r->event_count;
      for (uint32_t u = b->user_first[id]; u < b->user_first[id + 1]; u++) {
        const uint32_t user = b->event_of[b->users[u]];
        if (--missing[user] == 0) queue[tail++] = user;
      }
    }
    r->event_count++;
  }
  r->event_first[r->event_count] = at;
  if (tail == b->event_count) return DP_OK;
  return dp_fail(error, DP_INTERNAL, "replay: the program cannot end");
}

static dp_status build(builder *b, dp_error *error) {
  const plan_program *program = b->program;
  plan_replay *r = b->replay;
  const uint32_t n = program->instruction_count;
  r->lane_of = KEEP(r, uint32_t, n);
  b->first = SCRATCH(b, uint32_t, n + 1);
  b->members = SCRATCH(b, uint32_t, n);
  b->event_of = SCRATCH(b, uint32_t, n);
  b->user_first = SCRATCH(b, uint32_t, n + 1);
  b->users = SCRATCH(b, uint32_t, (size_t)n + program->wait_first[n]);
  r->event_first = KEEP(r, uint32_t, n + 1);
  r->members = KEEP(r, uint32_t, n);
  r->event_of = KEEP(r, uint32_t, n);
  r->end_s = KEEP(r, double, n);
  r->after = KEEP(r, uint32_t, n);
  if (!r->lane_of || !b->first || !b->members || !b->event_of || !b->user_first || !b->users || !r->event_first ||
      !r->members || !r->event_of || !r->end_s || !r->after)
    return dp_fail_memory(error);
  for (uint32_t l = 0; l < program->lane_count; l++)
    for (uint32_t i = 0; i < program->lanes[l].count; i++) r->lane_of[program->lanes[l].first + i] = l;
  DP_TRY(plan_groups_of(program, &b->scratch, &b->groups, error));
  find_events(b);
  find_users(b);
  return order_events(b, error);
}

dp_status plan_replay_init(const plan_program *program, plan_replay *replay, dp_error *error) {
  *replay = (plan_replay){.program = program};
  builder b = {.replay = replay, .program = program};
  const dp_status status = build(&b, error);
  dp_arena_free(&b.scratch);
  if (status != DP_OK) plan_replay_free(replay);
  return status;
}

void plan_replay_free(plan_replay *replay) {
  dp_arena_free(&replay->arena);
  *replay = (plan_replay){0};
}

/* ---- apart and together ---- */

/* When an event could have started, and after which instruction: the first of those that end last. */
static double ready_s(const plan_replay *r, const double *end_s, uint32_t event, uint32_t *after) {
  const plan_program *program = r->program;
  double latest_s = 0;
  *after = PLAN_NO_PEER;
  for (uint32_t m = r->event_first[event]; m < r->event_first[event + 1]; m++) {
    const uint32_t id = r->members[m], before = lane_before(r, id);
    if (before != PLAN_NO_PEER && end_s[before] > latest_s) {
      latest_s = end_s[before];
      *after = before;
    }
    for (uint32_t w = program->wait_first[id]; w < program->wait_first[id + 1]; w++)
      if (end_s[program->waits[w]] > latest_s) {
        latest_s = end_s[program->waits[w]];
        *after = program->waits[w];
      }
  }
  return latest_s;
}

dp_status plan_replay_dissect(plan_replay *r, const plan_timeline *timeline, plan_parts *parts, dp_error *error) {
  parts->delay_s = KEEP(r, double, r->event_count);
  parts->length_s = KEEP(r, double, r->program->instruction_count);
  if (!parts->delay_s || !parts->length_s) return dp_fail_memory(error);
  for (uint32_t e = 0; e < r->event_count; e++) {
    uint32_t after;
    double start_s = timeline->start_s[r->members[r->event_first[e]]];
    for (uint32_t m = r->event_first[e] + 1; m < r->event_first[e + 1]; m++)
      start_s = fmax(start_s, timeline->start_s[r->members[m]]);
    parts->delay_s[e] = start_s - ready_s(r, timeline->end_s, e, &after);
    for (uint32_t m = r->event_first[e]; m < r->event_first[e + 1]; m++)
      parts->length_s[r->members[m]] = timeline->end_s[r->members[m]] - start_s;
  }
  return DP_OK;
}

static double between(double a, double b, double t) { return a + t * (b - a); }

uint32_t plan_replay_run(plan_replay *r, const plan_parts *a, const plan_parts *b, double t) {
  uint32_t last = PLAN_NO_PEER;
  for (uint32_t e = 0; e < r->event_count; e++) {
    uint32_t after;
    const double start_s = ready_s(r, r->end_s, e, &after) + between(a->delay_s[e], b->delay_s[e], t);
    for (uint32_t m = r->event_first[e]; m < r->event_first[e + 1]; m++) {
      const uint32_t id = r->members[m];
      r->end_s[id] = start_s + between(a->length_s[id], b->length_s[id], t);
      r->after[id] = after;
    }
  }
  for (uint32_t id = 0; id < r->program->instruction_count; id++)
    if (last == PLAN_NO_PEER || r->end_s[id] > r->end_s[last]) last = id;
  return last;
}

/* ---- sharing out ---- */

/* A path's length as a function of t: at_a + t * slope. */
typedef struct line {
  double at_a, slope;
  uint32_t *path; /* instructions from the last to the first; malloc'ed */
  uint32_t count;
} line;

typedef struct sharing {
  plan_replay *replay;
  const plan_parts *a, *b;
  plan_parts *effect;
  int runs_left;
} sharing;

/* The longest path at t. */
static bool longest(sharing *s, double t, line *out) {
  const plan_replay *r = s->replay;
  const uint32_t last = plan_replay_run(s->replay, s->a, s->b, t);
  *out = (line){.count = 0};
  for (uint32_t id = last; id != PLAN_NO_PEER; id = r->after[id]) out->count++;
  out->path = malloc((out->count ? out->count : 1) * sizeof *out->path);
  if (!out->path) return false;
  uint32_t at = 0;
  for (uint32_t id = last; id != PLAN_NO_PEER; id = r->after[id]) {
    const uint32_t e = r->event_of[id];
    out->path[at++] = id;
    out->at_a += s->a->delay_s[e] + s->a->length_s[id];
    out->slope += s->b->delay_s[e] - s->a->delay_s[e] + s->b->length_s[id] - s->a->length_s[id];
  }
  return true;
}

static void credit(sharing *s, const line *l, double from_t, double to_t) {
  for (uint32_t i = 0; i < l->count; i++) {
    const uint32_t id = l->path[i], e = s->replay->event_of[id];
    s->effect->delay_s[e] += (to_t - from_t) * (s->b->delay_s[e] - s->a->delay_s[e]);
    s->effect->length_s[id] += (to_t - from_t) * (s->b->length_s[id] - s->a->length_s[id]);
  }
}

/* `left` is longest at from_t, `right` at to_t. Where they cross, they are as long as each other, so that whatever lies
 * above them there is missed only in who gets what, not in the sum. */
static dp_status share_between(sharing *s, const line *left, double from_t, const line *right, double to_t,
                               dp_error *error) {
  const double bend = right->slope - left->slope;
  const double scale = fabs(left->at_a) + fabs(left->slope) + fabs(right->at_a) + fabs(right->slope);
  double cross_t = bend > 1e-12 * scale ? (left->at_a - right->at_a) / bend : to_t;
  cross_t = fmin(fmax(cross_t, from_t), to_t);
  if (s->runs_left-- > 0 && cross_t > from_t && cross_t < to_t) {
    line middle;
    if (!longest(s, cross_t, &middle)) return dp_fail_memory(error);
    const double rise_s = middle.at_a + cross_t * middle.slope - left->at_a - cross_t * left->slope;
    if (rise_s > 1e-9 * scale) {
      dp_status status = share_between(s, left, from_t, &middle, cross_t, error);
      if (status == DP_OK) status = share_between(s, &middle, cross_t, right, to_t, error);
      free(middle.path);
      return status;
    }
    free(middle.path);
  }
  credit(s, left, from_t, cross_t);
  credit(s, right, cross_t, to_t);
  return DP_OK;
}

dp_status plan_replay_share(plan_replay *r, const plan_parts *a, const plan_parts *b, plan_parts *effect_s,
                            dp_error *error) {
  effect_s->delay_s = KEEP(r, double, r->event_count);
  effect_s->length_s = KEEP(r, double, r->program->instruction_count);
  if (!effect_s->delay_s || !effect_s->length_s) return dp_fail_memory(error);
  sharing s = {.replay = r, .a = a, .b = b, .effect = effect_s, .runs_left = PLAN_REPLAY_RUNS};
  line ends[2] = {{.count = 0}, {.count = 0}};
  dp_status status = longest(&s, 0, &ends[0]) && longest(&s, 1, &ends[1]) ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) status = share_between(&s, &ends[0], 0, &ends[1], 1, error);
  free(ends[0].path);
  free(ends[1].path);
  return status;
}
