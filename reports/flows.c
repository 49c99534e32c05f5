#include "reports/flows.h"

#include <stdlib.h>
#include <string.h>

#include "plan/transport.h"

int64_t report_flow_bytes(const int64_t kind_bytes[PLAN_TRAFFIC_COUNT]) {
  int64_t bytes = 0;
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) bytes += kind_bytes[k];
  return bytes;
}

static bool push_flow(report_flows *flows, int from, int to, const int64_t kind_bytes[PLAN_TRAFFIC_COUNT]) {
  report_flow flow = {.from = from, .to = to};
  memcpy(flow.kind_bytes, kind_bytes, sizeof flow.kind_bytes);
  return report_flow_bytes(kind_bytes) == 0 || dp_array_push(&flows->pairs, flow);
}

static bool add_sends(const plan_program *program, const plan_lane *lane, report_flows *flows) {
  int64_t bytes[PLAN_TRAFFIC_COUNT] = {0};
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
    const plan_message *message = &program->messages[program->instructions[i].class_id];
    for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) bytes[k] += message->kind_bytes[k];
  }
  return push_flow(flows, (int)lane->worker, (int)lane->peer, bytes);
}

static bool add_collectives(const plan_program *program, const plan_lane *lane, report_flows *flows) {
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
    const plan_collective *collective = &program->collectives[program->instructions[i].class_id];
    const int64_t n = collective->member_count;
    if (n < 2 || collective->norm) continue;
    const uint32_t *members = program->group_members + collective->first_member;
    for (uint32_t m = 0; m < collective->member_count; m++) {
      if (members[m] != lane->worker) continue;
      const int64_t bytes[PLAN_TRAFFIC_COUNT] = {[PLAN_TRAFFIC_GRADIENT] = collective->bytes / n * 2 * (n - 1) +
                                                                           collective->bytes % n * 2 * (n - 1) / n};
      if (!push_flow(flows, (int)lane->worker, (int)members[(m + 1) % collective->member_count], bytes)) return false;
    }
  }
  return true;
}

/* Collectives of a tensor group are part of its compute; taken as a ring too, each member sends to the next one. */
static bool add_tensor(const plan_program *program, const plan_lane *lane, report_flows *flows) {
  const plan_plan *plan = program->plan;
  const int worker = (int)lane->worker, member = plan_worker_member(plan, worker);
  int64_t bytes[PLAN_TRAFFIC_COUNT] = {0};
  if (plan_tensor(plan) == 1) return true;
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++)
    bytes[PLAN_TRAFFIC_TENSOR] += program->works[program->instructions[i].class_id].tensor_bytes;
  return push_flow(flows, worker,
                   plan_worker_of(plan, plan_worker_replica(plan, worker), (member + 1) % plan_tensor(plan),
                                  plan_worker_rank(plan, worker)),
                   bytes);
}

static int by_pair(const void *a, const void *b) {
  const report_flow *x = a, *y = b;
  return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

static void merge_pairs(report_flows *flows) {
  size_t kept = 0;
  if (flows->pairs.count) qsort(flows->pairs.items, flows->pairs.count, sizeof *flows->pairs.items, by_pair);
  for (size_t i = 0; i < flows->pairs.count; i++) {
    report_flow *flow = &flows->pairs.items[i];
    if (kept && by_pair(&flows->pairs.items[kept - 1], flow) == 0) {
      for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) flows->pairs.items[kept - 1].kind_bytes[k] += flow->kind_bytes[k];
    } else {
      flows->pairs.items[kept++] = *flow;
    }
  }
  flows->pairs.count = kept;
}

static dp_status add_links(const report_run *run, report_flows *flows, dp_error *error) {
  const plan_cluster *cluster = run->cluster;
  report_link_load *loads = calloc(cluster->links.count + 1, sizeof *loads);
  if (!loads) return dp_fail_memory(error);
  dp_status status = DP_OK;
  for (size_t i = 0; i < flows->pairs.count && status == DP_OK; i++) {
    const report_flow *flow = &flows->pairs.items[i];
    plan_route route;
    status = plan_transport_route(run->program->plan, cluster, flow->from, flow->to, &route, error);
    for (int l = 0; status == DP_OK && l < route.count; l++)
      for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) loads[route.links[l]].kind_bytes[k] += flow->kind_bytes[k];
  }
  for (size_t l = 0; l < cluster->links.count && status == DP_OK; l++) {
    loads[l].link = (int)l;
    if (report_flow_bytes(loads[l].kind_bytes) && !dp_array_push(&flows->links, loads[l]))
      status = dp_fail_memory(error);
  }
  free(loads);
  return status;
}

dp_status report_flows_of(const report_run *run, report_flows *flows, dp_error *error) {
  const plan_program *program = run->program;
  bool done = true;
  *flows = (report_flows){0};
  for (uint32_t l = 0; done && l < program->lane_count; l++) {
    const plan_lane *lane = &program->lanes[l];
    if (lane->kind == PLAN_LANE_COMPUTE) done = add_tensor(program, lane, flows);
    if (lane->kind == PLAN_LANE_SEND) done = add_sends(program, lane, flows);
    if (lane->kind == PLAN_LANE_COLLECTIVE) done = add_collectives(program, lane, flows);
  }
  dp_status status = done ? DP_OK : dp_fail_memory(error);
  merge_pairs(flows);
  if (status == DP_OK && run->cluster->links.count) status = add_links(run, flows, error);
  if (status != DP_OK) report_flows_free(flows);
  return status;
}

void report_flows_free(report_flows *flows) {
  dp_array_free(&flows->pairs);
  dp_array_free(&flows->links);
}
