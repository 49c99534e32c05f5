/* All-reduces: of the gradients of a run of units over the replicas, and of the gradients' norm over all workers. The
 * first member adds the others' in their order, so that the sum has the same bits wherever the members are. */
#include <string.h>

#include "exec/lanes.h"

/* A member's share: its gradients of the units whose backward this part was, or its entry among the squares. */
typedef struct share {
  void *bytes;
  size_t count;
} share;

static share gradients_of(const exec_pipeline *p, const plan_collective *collective, uint32_t worker) {
  const exec_parameters *parameters = &p->workers[worker].parameters;
  const int64_t first = parameters->unit_first[collective->first_unit],
                end = parameters->unit_first[collective->first_unit + collective->unit_count],
                each = graph_dtype_bytes(parameters->gradient_dtype);
  return (share){(char *)parameters->gradients + first * each, (size_t)((end - first) * each)};
}

static const plan_collective *collective_of(const exec_pipeline *p, uint32_t instruction) {
  return &p->work.program->collectives[p->work.program->instructions[instruction].class_id];
}

/* Only who leads members of other processes needs any. */
int64_t exec_reduce_scratch(const exec_pipeline *p, uint32_t lane_id) {
  const plan_program *program = p->work.program;
  const plan_lane *lane = &program->lanes[lane_id];
  size_t most = 0;
  if (lane->kind != PLAN_LANE_COLLECTIVE) return 0;
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
    const plan_collective *collective = collective_of(p, i);
    const uint32_t *members = &program->group_members[collective->first_member];
    if (collective->norm || members[0] != lane->worker) continue;
    for (uint32_t m = 1; m < collective->member_count; m++)
      if (!exec_is_here(p, members[m]) && gradients_of(p, collective, members[0]).count > most)
        most = gradients_of(p, collective, members[0]).count;
  }
  return (int64_t)(most / sizeof(float));
}

/* ---- gradients ---- */

static dp_status lead_gradients(exec_pipeline *p, const plan_collective *collective, uint32_t at, dp_error *error) {
  const plan_program *program = p->work.program;
  const uint32_t *members = &program->group_members[collective->first_member];
  const uint32_t *ids = &p->groups.ids[p->groups.first[program->instructions[at].peer]];
  const share sum = gradients_of(p, collective, members[0]);
  const int64_t n = (int64_t)sum.count / graph_dtype_bytes(p->workers[members[0]].parameters.gradient_dtype);
  const uint32_t lane = p->lane_of[at];
  float *scratch = p->lanes[lane].scratch;
  exec_transport *t = p->work.options.transport;
  for (uint32_t m = 1; m < collective->member_count; m++) {
    const bool here = exec_is_here(p, members[m]);
    if (!here)
      DP_TRY(
          t->receive(t, exec_process_of(p, (int)members[m]), p->lane_of[ids[m]], scratch, sum.count, &p->stop, error));
    p->work.kind->add_gradients(p, lane, members[0], n, here ? gradients_of(p, collective, members[m]).bytes : scratch,
                                sum.bytes);
  }
  for (uint32_t m = 1; m < collective->member_count; m++) {
    if (exec_is_here(p, members[m]))
      p->work.kind->copy(p, lane, (int64_t)sum.count, members[0], sum.bytes, members[m],
                         gradients_of(p, collective, members[m]).bytes);
    else
      DP_TRY(
          t->send(t, exec_process_of(p, (int)members[m]), p->lane_of[ids[m]], sum.bytes, sum.count, &p->stop, error));
  }
  return DP_OK;
}

/* Those here first, in their order; then this process's sum and the others', as their kind does it. */
static dp_status lead_deferred(exec_pipeline *p, const plan_collective *collective, uint32_t at, dp_error *error) {
  const uint32_t *members = &p->work.program->group_members[collective->first_member];
  const uint32_t first = exec_first_here(p, collective), lane = p->lane_of[at];
  const share sum = gradients_of(p, collective, first);
  const int64_t n = (int64_t)sum.count / graph_dtype_bytes(p->workers[first].parameters.gradient_dtype);
  bool elsewhere = false;
  for (uint32_t m = 0; m < collective->member_count; m++) {
    if (!exec_is_here(p, members[m]))
      elsewhere = true;
    else if (members[m] != first)
      p->work.kind->add_gradients(p, lane, first, n, gradients_of(p, collective, members[m]).bytes, sum.bytes);
  }
  if (elsewhere) DP_TRY(p->work.kind->reduce(p, at, n, sum.bytes, error));
  for (uint32_t m = 0; m < collective->member_count; m++)
    if (exec_is_here(p, members[m]) && members[m] != first)
      p->work.kind->copy(p, lane, (int64_t)sum.count, first, sum.bytes, members[m],
                         gradients_of(p, collective, members[m]).bytes);
  return DP_OK;
}

/* ---- the norm: every member's square to all ---- */

static dp_status lead_norm(exec_pipeline *p, uint32_t at, dp_error *error) {
  const plan_program *program = p->work.program;
  const uint32_t workers = (uint32_t)program->worker_count;
  const size_t bytes = workers * sizeof(double);
  const uint32_t *ids = &p->groups.ids[p->groups.first[program->instructions[at].peer]];
  exec_transport *t = p->work.options.transport;
  double *norms = p->workers[0].norms;
  if (p->work.kind->deferred) return p->work.kind->share_norms(p, p->lane_of[at], at, error);
  for (uint32_t w = 0; w < workers; w++) {
    if (exec_is_here(p, w))
      norms[w] = p->workers[w].square;
    else
      DP_TRY(t->receive(t, exec_process_of(p, (int)w), p->lane_of[ids[w]], &norms[w], sizeof *norms, &p->stop, error));
  }
  for (uint32_t w = 0; w < workers; w++) {
    if (exec_is_here(p, w)) {
      if (w > 0) memcpy(p->workers[w].norms, norms, bytes);
      exec_worker_clip(&p->work, &p->workers[w]);
    } else {
      DP_TRY(t->send(t, exec_process_of(p, (int)w), p->lane_of[ids[w]], norms, bytes, &p->stop, error));
    }
  }
  return DP_OK;
}

static dp_status follow_norm(exec_pipeline *p, uint32_t at, int lead, exec_worker *w, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  const size_t bytes = (size_t)p->work.program->worker_count * sizeof *w->norms;
  DP_TRY(t->send(t, lead, p->lane_of[at], &w->square, sizeof w->square, &p->stop, error));
  DP_TRY(t->receive(t, lead, p->lane_of[at], w->norms, bytes, &p->stop, error));
  exec_worker_clip(&p->work, w);
  return DP_OK;
}

/* ---- both ---- */

dp_status exec_reduce_lead(exec_pipeline *p, uint32_t at, dp_error *error) {
  const plan_collective *collective = collective_of(p, at);
  if (p->work.step->evaluate) return DP_OK;
  if (collective->norm) return lead_norm(p, at, error);
  return p->work.kind->deferred ? lead_deferred(p, collective, at, error) : lead_gradients(p, collective, at, error);
}

dp_status exec_reduce_follow(exec_pipeline *p, uint32_t at, dp_error *error) {
  const plan_collective *collective = collective_of(p, at);
  const uint32_t worker = p->work.program->lanes[p->lane_of[at]].worker;
  const int lead = exec_process_of(p, (int)p->work.program->group_members[collective->first_member]);
  exec_transport *t = p->work.options.transport;
  if (p->work.step->evaluate) return DP_OK;
  if (collective->norm) return follow_norm(p, at, lead, &p->workers[worker], error);
  const share mine = gradients_of(p, collective, worker);
  DP_TRY(t->send(t, lead, p->lane_of[at], mine.bytes, mine.count, &p->stop, error));
  return t->receive(t, lead, p->lane_of[at], mine.bytes, mine.count, &p->stop, error);
}
