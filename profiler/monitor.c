#include "profiler/monitor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"

const char *const prof_subject_names[] = {"step", "stage", "link", "sum", NULL};
const char *const prof_event_names[] = {"alarm", "recovered", "drift", NULL};

/* ---- what is watched ---- */

static dp_status watch(prof_monitor *m, prof_subject subject, uint32_t worker, uint32_t peer, dp_error *error) {
  prof_watched *made = &m->watched[m->watched_count];
  *made = (prof_watched){.subject = subject, .worker = worker, .peer = peer};
  DP_TRY(prof_series_init(m->rule, &made->series, error));
  m->watched_count++;
  return DP_OK;
}

static uint32_t find(const prof_monitor *m, prof_subject subject, uint32_t worker, uint32_t peer) {
  for (uint32_t i = 0; i < m->watched_count; i++) {
    const prof_watched *of = &m->watched[i];
    if (of->subject == subject && of->worker == worker && of->peer == peer) return i;
  }
  return m->watched_count;
}

static bool is_norm(const plan_program *program, const plan_instruction *i) {
  return i->opcode == PLAN_ALL_REDUCE && program->collectives[i->class_id].norm;
}

/* Sums of norms are a few bytes that wait for the slowest. A lane with nothing else is not watched. */
static bool sums_gradients(const plan_program *program, const plan_lane *lane) {
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++)
    if (!is_norm(program, &program->instructions[i])) return true;
  return false;
}

/* A link by its receiving end. The members of a sum end together: the first of them tells. */
static dp_status watch_lane(prof_monitor *m, uint32_t lane_id, dp_error *error) {
  const plan_lane *lane = &m->program->lanes[lane_id];
  const bool is_link = lane->kind == PLAN_LANE_RECV;
  if (lane->kind == PLAN_LANE_SEND || lane->count == 0) return DP_OK;
  const prof_subject subject = is_link ? PROF_OF_LINK : lane->kind == PLAN_LANE_COMPUTE ? PROF_OF_STAGE : PROF_OF_SUM;
  if (subject == PROF_OF_SUM &&
      (!sums_gradients(m->program, lane) || plan_worker_replica(m->program->plan, (int)lane->worker) > 0))
    return DP_OK;
  const uint32_t worker = is_link ? lane->peer : lane->worker, peer = is_link ? lane->worker : PLAN_NO_PEER;
  const uint32_t at = find(m, subject, worker, peer);
  if (at == m->watched_count) DP_TRY(watch(m, subject, worker, peer, error));
  m->lane_watched[lane_id] = at;
  if (subject == PROF_OF_STAGE) {
    m->watched[at].parts = 1;
    return DP_OK;
  }
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++)
    m->watched[at].parts += !is_norm(m->program, &m->program->instructions[i]);
  return DP_OK;
}

static int pass_of(uint8_t opcode) {
  switch (opcode) {
    case PLAN_FORWARD:
      return PLAN_PASS_FORWARD;
    case PLAN_BACKWARD:
    case PLAN_BACKWARD_INPUT:
      return PLAN_PASS_BACKWARD;
    case PLAN_BACKWARD_WEIGHT:
      return PLAN_PASS_WEIGHT;
    default:
      return -1;
  }
}

static void sum_passes(const prof_monitor *m, const plan_timeline *t, double *sums) {
  const plan_program *program = m->program;
  for (int i = 0; i < program->plan->chunk_count * PLAN_PASS_COUNT; i++) sums[i] = 0;
  for (uint32_t l = 0; l < program->lane_count; l++) {
    const plan_lane *lane = &program->lanes[l];
    for (uint32_t i = lane->first; lane->kind == PLAN_LANE_COMPUTE && i < lane->first + lane->count; i++) {
      const plan_instruction *at = &program->instructions[i];
      const int pass = pass_of(at->opcode);
      if (pass >= 0) sums[at->chunk * PLAN_PASS_COUNT + pass] += t->end_s[i] - t->start_s[i];
    }
  }
}

/* What one instruction counts for. */
static double seconds_of(const prof_monitor *m, const plan_timeline *t, uint32_t i) {
  const plan_instruction *at = &m->program->instructions[i];
  double start_s = t->start_s[i];
  if (at->opcode == PLAN_RECV) start_s = fmax(start_s, t->start_s[at->peer]);
  return is_norm(m->program, at) ? 0 : fmax(0, t->end_s[i] - start_s);
}

static void measure(prof_monitor *m, double step_s, const plan_timeline *t) {
  for (uint32_t i = 0; i < m->watched_count; i++) m->watched[i].now_s = 0;
  m->watched[0].now_s = step_s;
  for (uint32_t l = 0; l < m->program->lane_count; l++) {
    const plan_lane *lane = &m->program->lanes[l];
    prof_watched *of = &m->watched[m->lane_watched[l]];
    if (m->lane_watched[l] == 0) continue;
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) of->now_s += seconds_of(m, t, i);
  }
}

static dp_status make(prof_monitor *m, const plan_timeline *predicted, dp_error *error) {
  const plan_program *program = m->program;
  const size_t passes = (size_t)program->plan->chunk_count * PLAN_PASS_COUNT;
  m->watched = DP_ARENA_NEW(&m->arena, prof_watched, (size_t)program->lane_count + 1);
  m->lane_watched = DP_ARENA_NEW(&m->arena, uint32_t, (size_t)program->lane_count);
  m->measured_s = DP_ARENA_NEW(&m->arena, double, passes);
  if (!m->watched || !m->lane_watched || !m->measured_s) return dp_fail_memory(error);
  DP_TRY(watch(m, PROF_OF_STEP, 0, PLAN_NO_PEER, error));
  m->watched[0].parts = 1;
  static const plan_lane_kind order[] = {PLAN_LANE_COMPUTE, PLAN_LANE_RECV, PLAN_LANE_COLLECTIVE};
  for (int k = 0; k < 3; k++)
    for (uint32_t l = 0; l < program->lane_count; l++)
      if (program->lanes[l].kind == order[k]) DP_TRY(watch_lane(m, l, error));
  if (!predicted) return DP_OK;
  measure(m, predicted->step_s, predicted);
  for (uint32_t i = 0; i < m->watched_count; i++) m->watched[i].predicted_s = m->watched[i].now_s;
  if (m->rule->drift <= 0) return DP_OK;
  m->drifts = DP_ARENA_NEW(&m->arena, prof_drift, passes);
  m->mixes = DP_ARENA_NEW(&m->arena, prof_mix, passes);
  m->predicted_s = DP_ARENA_NEW(&m->arena, double, passes);
  if (!m->drifts || !m->mixes || !m->predicted_s) return dp_fail_memory(error);
  sum_passes(m, predicted, m->predicted_s);
  return DP_OK;
}

dp_status prof_monitor_init(const plan_program *program, const plan_monitor *rule, const plan_timeline *predicted,
                            prof_monitor *monitor, dp_error *error) {
  *monitor = (prof_monitor){.program = program, .rule = rule};
  const dp_status status = make(monitor, predicted, error);
  if (status != DP_OK) prof_monitor_free(monitor);
  return status;
}

void prof_monitor_free(prof_monitor *m) {
  for (uint32_t i = 0; i < m->watched_count; i++) prof_series_free(&m->watched[i].series);
  dp_arena_free(&m->arena);
  *m = (prof_monitor){.program = NULL};
}

/* ---- a step ---- */

static prof_event event_of(const prof_watched *of, prof_verdict verdict, int64_t step) {
  const double parts = of->parts > 0 ? of->parts : 1;
  return (prof_event){.kind = verdict == PROF_ALARM ? PROF_EVENT_ALARM : PROF_EVENT_RECOVERED,
                      .watched = of,
                      .step = step,
                      .since = of->series.since,
                      .now_s = of->now_s / parts,
                      .mean_s = of->series.mean / parts,
                      .median_s = of->series.median / parts,
                      .score = prof_series_score(&of->series, of->now_s)};
}

static uint32_t judge_parts(prof_monitor *m, int64_t step, bool disturbed, bool *any_alarmed, prof_event *events) {
  uint32_t count = 0;
  const double least_s = m->rule->least_share * m->watched[0].series.mean;
  *any_alarmed = false;
  for (uint32_t i = 1; i < m->watched_count; i++) {
    prof_watched *of = &m->watched[i];
    if (of->subject != PROF_OF_STAGE || !disturbed) {
      const prof_verdict verdict = prof_series_add(&of->series, m->rule, step, of->now_s, least_s);
      if (verdict != PROF_STEADY) events[count++] = event_of(of, verdict, step);
    }
    *any_alarmed = *any_alarmed || of->series.alarmed;
  }
  return count;
}

/* What is known of its parts tells why a step is slow. */
static uint32_t judge_step(prof_monitor *m, int64_t step, bool part_alarmed, prof_event *event) {
  prof_watched *of = &m->watched[0];
  const prof_verdict verdict = prof_series_add(&of->series, m->rule, step, of->now_s, 0);
  const bool tells = verdict == PROF_ALARM ? !part_alarmed : verdict == PROF_RECOVERED && m->step_told;
  if (verdict != PROF_STEADY) m->step_told = verdict == PROF_ALARM && tells;
  if (tells) *event = event_of(of, verdict, step);
  return tells;
}

static uint32_t judge_drift(prof_monitor *m, int64_t step, const plan_timeline *t, prof_event *events) {
  uint32_t count = 0;
  const int passes = m->program->plan->chunk_count * PLAN_PASS_COUNT;
  sum_passes(m, t, m->measured_s);
  for (int i = 0; i < passes; i++) {
    prof_drift *drift = &m->drifts[i];
    if (m->predicted_s[i] <= 0 || m->measured_s[i] <= 0) continue;
    if (!prof_drift_add(drift, m->rule->drift, step, m->measured_s[i] / m->predicted_s[i])) continue;
    prof_event *event = &events[count++];
    *event = (prof_event){.kind = PROF_EVENT_DRIFT,
                          .chunk = i / PLAN_PASS_COUNT,
                          .pass = i % PLAN_PASS_COUNT,
                          .step = step,
                          .since = drift->since,
                          .now_s = drift->now * m->predicted_s[i],
                          .mean_s = m->predicted_s[i],
                          .reference = drift->reference};
    event->op_class = prof_mix_most(&m->mixes[i], drift->now > drift->reference, &event->class_ratio);
  }
  return count;
}

void prof_monitor_ops(prof_monitor *m, const double *seconds) {
  const int passes = m->program->plan->chunk_count * PLAN_PASS_COUNT;
  for (int i = 0; m->mixes && i < passes; i++) prof_mix_add(&m->mixes[i], seconds + i * GRAPH_CLASS_COUNT);
}

uint32_t prof_monitor_step(prof_monitor *m, int64_t step, double step_s, const plan_timeline *timeline, bool disturbed,
                           prof_event *events) {
  bool part_alarmed;
  if (!timeline) return 0;
  measure(m, step_s, timeline);
  uint32_t count = judge_parts(m, step, disturbed, &part_alarmed, events);
  if (disturbed) return count;
  count += judge_step(m, step, part_alarmed, events + count);
  if (m->drifts) count += judge_drift(m, step, timeline, events + count);
  return count;
}

void prof_monitor_forgive(prof_monitor *m) {
  for (uint32_t i = 0; i < m->watched_count; i++) {
    m->watched[i].series.alarmed = false;
    m->watched[i].series.slow = m->watched[i].series.well = 0;
  }
  m->step_told = false;
}

/* ---- words ---- */

const char *prof_watched_show(const prof_monitor *m, const prof_watched *of, char out[64]) {
  const plan_plan *plan = m->program->plan;
  const int rank = plan_worker_rank(plan, (int)of->worker), replica = plan_worker_replica(plan, (int)of->worker);
  switch (of->subject) {
    case PROF_OF_STEP:
      (void)snprintf(out, 64, "step");
      break;
    case PROF_OF_LINK:
      (void)snprintf(out, 64, "link worker %u > worker %u", of->worker, of->peer);
      break;
    case PROF_OF_SUM:
      (void)snprintf(out, 64, "gradients of stage %d", rank);
      break;
    default:
      if (plan->replicas > 1)
        (void)snprintf(out, 64, "stage %d of replica %d", rank, replica);
      else
        (void)snprintf(out, 64, "stage %d", rank);
  }
  return out;
}

static const char *show_drift(const prof_monitor *m, const prof_event *e, char out[256]) {
  static const char *const passes[] = {"forward", "backward", "weight gradients"};
  const plan_chunk *chunk = &m->program->plan->chunks[e->chunk];
  const double now = 100 * (e->now_s / e->mean_s - 1), first = 100 * (e->reference - 1);
  char which[48] = "", ops[64] = "";
  if (m->program->plan->chunks_per_rank > 1) (void)snprintf(which, sizeof which, " chunk %d", e->chunk);
  if (e->op_class >= 0)
    (void)snprintf(ops, sizeof ops, ", mostly %s (%+.0f %%)", graph_op_class_name((graph_op_class)e->op_class),
                   100 * (e->class_ratio - 1));
  (void)snprintf(out, 256, "stage %d%s %s: %.0f %% %s than predicted since step %lld, %+.0f %% at first%s", chunk->rank,
                 which, passes[e->pass], fabs(now), now < 0 ? "faster" : "slower", (long long)e->since, first, ops);
  return out;
}

const char *prof_event_show(const prof_monitor *m, const prof_event *e, char out[256]) {
  static const char *const each[] = {"", " of computing", " a message", " a sum"};
  char name[64], now[32], mean[32];
  if (e->kind == PROF_EVENT_DRIFT) return show_drift(m, e, out);
  (void)dp_format_seconds(e->now_s, now);
  (void)dp_format_seconds(e->mean_s, mean);
  (void)prof_watched_show(m, e->watched, name);
  const double times = fmin(e->now_s / e->mean_s, 1e9);
  if (e->kind == PROF_EVENT_ALARM)
    (void)snprintf(out, 256, "%s: %s%s, %.*f times the mean of %s (z %.0f) since step %lld", name, now,
                   each[e->watched->subject], times < 10, times, mean, fmin(e->score, 1e6), (long long)e->since);
  else
    (void)snprintf(out, 256, "%s: %s%s, well again by the mean of %s", name, now, each[e->watched->subject], mean);
  return out;
}
