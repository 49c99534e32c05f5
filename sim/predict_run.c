#include "sim/predictor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/compressor.h"
#include "plan/nccl.h"
#include "plan/slow.h"
#include "plan/transport.h"

/* Time to project and restore compressed skips, per chunk and direction. A message may carry a boundary tensor beside
 * them, which travels whole. */
static dp_status cost_compression(sim_predictor *p) {
  const plan_program *program = &p->out->program;
  const plan_plan *plan = &p->out->plan;
  const graph *model = &p->out->graph;
  for (int k = 0; k < p->kind_count; k++)
    for (int b = 0; b < 2; b++) {
      p->kinds[k].compress_s[b] = SIM_SCRATCH(p, double, plan->chunk_count);
      if (!p->kinds[k].compress_s[b]) return dp_fail_memory(p->error);
    }
  for (uint32_t m = 0; program->compressor_count > 0 && m < plan_message_count(program); m++) {
    const plan_message *message = &program->messages[m];
    const int made = message->backward ? message->to_chunk : message->from_chunk;
    const int used = message->backward ? message->from_chunk : message->to_chunk;
    for (int t = message->first_tensor; t < message->first_tensor + message->tensor_count; t++) {
      if (plan_compressor_at(program, t) < 0) continue;
      for (int k = 0; k < p->kind_count; k++) {
        const graph_tensor *skip = &model->tensors.items[program->message_tensors[t]];
        const double s = sim_cost_compress(&p->kinds[k].context, skip->bytes, skip->dims[0], plan->k);
        p->kinds[k].compress_s[message->backward][made] += s;
        p->kinds[k].compress_s[message->backward][used] += s;
      }
    }
  }
  return DP_OK;
}

/* What is to be added beside others that compute. */
static void add_crowded_span(const sim_predictor *p, const sim_device_kind *kind, int direction, int first, int count,
                             double beside_s[2]) {
  for (int u = first; u < first + count; u++) {
    const sim_unit_cost *unit = &kind->units[u];
    const bool again = direction == SIM_BACKWARD_INPUT && p->out->plan.recompute[u];
    const double forward_s = unit->device_s[SIM_FORWARD];
    const double share = again && forward_s > 0 ? 1 - unit->spared_s / forward_s : 0;
    for (int k = 0; k < 2; k++) beside_s[k] += unit->beside_s[direction][k] + share * unit->beside_s[SIM_FORWARD][k];
  }
}

/* What one microbatch in all of a step's takes more or less for being the first, shared evenly; and a backward for
 * being in one piece. */
static double first_and_whole_s(const sim_predictor *p, const sim_device_kind *kind, const plan_work *work) {
  double sum = 0;
  for (uint32_t u = work->first_unit; u < work->first_unit + work->unit_count; u++) {
    const sim_unit_cost *unit = &kind->units[u];
    if (work->opcode == PLAN_BACKWARD)
      sum += unit->whole_s +
             (unit->first_s[SIM_BACKWARD_INPUT] + unit->first_s[SIM_BACKWARD_WEIGHT]) / p->out->plan.microbatches;
    if (work->opcode == PLAN_BACKWARD_WEIGHT) sum += unit->first_s[SIM_BACKWARD_WEIGHT] / p->out->plan.microbatches;
  }
  return sum;
}

typedef struct work_cost {
  double device_s, issue_s, tensor_s, beside_s[2];
} work_cost;

static work_cost cost_one_work(const sim_predictor *p, const plan_work *work) {
  const sim_prediction *out = p->out;
  const sim_device_kind *kind = &p->kinds[p->kind_of_worker[work->worker]];
  const int first = (int)work->first_unit, count = (int)work->unit_count;
  const double parts = work->parts ? work->parts : 1;
  double s = p->scenario->synthetic ? 0 : sim_cost_instruction_s(&kind->context);
  work_cost c = {.issue_s = sim_cost_instruction_issue_s(&kind->context)};
  bool directions[3] = {false, false, false};
  switch (work->opcode) {
    case PLAN_FORWARD:
      directions[SIM_FORWARD] = true;
      if (!p->scenario->synthetic)
        s += sim_cost_forward_s(&kind->context, work->chunk == 0, (int)work->chunk == out->plan.chunk_count - 1);
      break;
    case PLAN_BACKWARD:
      directions[SIM_BACKWARD_INPUT] = directions[SIM_BACKWARD_WEIGHT] = true;
      break;
    case PLAN_BACKWARD_INPUT:
      directions[SIM_BACKWARD_INPUT] = true;
      break;
    case PLAN_BACKWARD_WEIGHT:
      directions[SIM_BACKWARD_WEIGHT] = true;
      break;
    default:
      break;
  }
  for (int d = 0; d < 3; d++)
    if (directions[d]) {
      s += sim_kind_span_s(kind, d, first, count);
      if (kind->context.profile) add_crowded_span(p, kind, d, first, count, c.beside_s);
      c.issue_s += sim_prefix_span(kind->issue_prefix[d], first, count);
      if (kind->tensor_prefix[d]) c.tensor_s += sim_prefix_span(kind->tensor_prefix[d], first, count);
    }
  if (kind->context.profile && kind->context.profile->units.count) s += first_and_whole_s(p, kind, work);
  if (directions[SIM_BACKWARD_INPUT]) {
    s += sim_prefix_span(kind->recompute_prefix, first, count);
    c.issue_s += sim_prefix_span(kind->recompute_issue_prefix, first, count);
    if (kind->tensor_recompute_prefix) c.tensor_s += sim_prefix_span(kind->tensor_recompute_prefix, first, count);
  }
  if (directions[SIM_FORWARD]) s += kind->compress_s[0][work->chunk] / parts;
  if (directions[SIM_BACKWARD_INPUT]) s += kind->compress_s[1][work->chunk] / parts;
  if (work->opcode == PLAN_OPTIMIZER_STEP && !p->scenario->synthetic) {
    const int rank = plan_worker_rank(&out->plan, (int)work->worker);
    c.tensor_s = sim_predict_tensor_optimizer_s(p, kind, rank);
    const int64_t parameters = plan_trainable_parameters(&out->plan, &out->graph, rank);
    s += c.tensor_s + sim_cost_optimizer(&kind->context, out->plan.optimizer, out->plan.gradient_fp32, parameters);
    const double busy_s =
        sim_cost_optimizer_busy_s(&kind->context, out->plan.optimizer, out->plan.gradient_fp32, parameters);
    for (int k = 0; k < 2; k++) c.beside_s[k] += busy_s;
    if (!sim_predict_meets_for_norm(p)) s += sim_cost_own_norm_s(&kind->context, parameters);
  }
  c.device_s = s;
  return c;
}

static dp_status cost_works(sim_predictor *p) {
  const plan_program *program = &p->out->program;
  p->work_s = SIM_SCRATCH(p, double, program->work_count);
  p->work_issue_s = SIM_SCRATCH(p, double, program->work_count);
  p->work_tensor_s = SIM_SCRATCH(p, double, program->work_count);
  for (int k = 0; k < 2; k++) p->work_beside_s[k] = SIM_SCRATCH(p, double, program->work_count);
  if (!p->work_s || !p->work_issue_s || !p->work_tensor_s || !p->work_beside_s[0] || !p->work_beside_s[1])
    return dp_fail_memory(p->error);
  const uint32_t pipeline_works = program->work_count / (uint32_t)plan_copy_count(&p->out->plan);
  for (uint32_t w = 0; w < program->work_count; w++) {
    const plan_work *work = &program->works[w], *first = &program->works[w % pipeline_works];
    const uint32_t like = w % pipeline_works; /* copies are alike */
    const bool alike = p->kind_of_worker[work->worker] == p->kind_of_worker[first->worker] && work != first;
    const work_cost c = alike ? (work_cost){p->work_s[like],
                                            p->work_issue_s[like],
                                            p->work_tensor_s[like],
                                            {p->work_beside_s[0][like], p->work_beside_s[1][like]}}
                              : cost_one_work(p, work);
    p->work_s[w] = c.device_s;
    for (int k = 0; k < 2; k++) p->work_beside_s[k][w] = c.beside_s[k];
    p->work_issue_s[w] = c.issue_s;
    p->work_tensor_s[w] = c.tensor_s;
  }
  return DP_OK;
}

static void slow_down(double factor, sim_transfer *transfer) {
  transfer->latency_s *= factor;
  transfer->busy_latency_s *= factor;
  transfer->cap_bytes_per_s /= factor;
  transfer->busy_cap_bytes_per_s /= factor;
}

/* By NCCL's kernels, while they move data or wait, as records of a program had it; where it has no link of its own. */
static void slow_by_profile(const sim_predictor *p, uint32_t worker, sim_transfer *transfer) {
  const plan_profile *profile = p->kinds[p->kind_of_worker[worker]].context.profile;
  if (profile && profile->nccl_slowdown > 0)
    transfer->compute_slowdown = transfer->waiting_slowdown = profile->nccl_slowdown;
}

static dp_status route_messages(sim_predictor *p) {
  const plan_program *program = &p->out->program;
  const plan_plan *plan = &p->out->plan;
  const plan_cluster *cluster = &p->scenario->cluster;
  p->messages = SIM_SCRATCH(p, sim_transfer, program->message_count);
  if (!p->messages) return dp_fail_memory(p->error);
  for (uint32_t m = 0; m < program->message_count; m++) {
    const plan_message *message = &program->messages[m];
    sim_transfer *transfer = &p->messages[m];
    plan_route route;
    DP_TRY(plan_transport_route(plan, cluster, (int)message->from_worker, (int)message->to_worker, &route, p->error));
    transfer->bytes = (double)message->bytes;
    if (route.count == 0) continue; /* one device: nothing travels */
    bool measured;
    DP_TRY(sim_predict_measured_message(p, (int)message->from_worker, (int)message->to_worker, &route, transfer,
                                        &measured));
    const double slow = plan_slow_factor(cluster, sim_worker_device(plan, (int)message->from_worker),
                                         sim_worker_device(plan, (int)message->to_worker), &route);
    if (measured) {
      slow_down(slow, transfer);
      continue;
    }
    int *links = SIM_SCRATCH(p, int, route.count);
    if (!links) return dp_fail_memory(p->error);
    memcpy(links, route.links, (size_t)route.count * sizeof *links);
    const plan_link_model *link = route.limiting;
    transfer->links = links;
    transfer->hops = route.count;
    transfer->latency_s = route.latency_s;
    transfer->cap_bytes_per_s = route.bandwidth_bytes_per_s * plan_link_factor(link, transfer->bytes);
    transfer->busy_latency_s = fmax(route.latency_s, plan_link_busy_latency_s(link));
    transfer->busy_cap_bytes_per_s = route.bandwidth_bytes_per_s * plan_link_busy_factor(link, transfer->bytes);
    transfer->compute_slowdown = link->nccl_sms ? 0 : link->compute_slowdown; /* its SMs are not compute's anyway */
    if (!link->nccl_sms &&
        plan_transport_of(plan, cluster, (int)message->from_worker, (int)message->to_worker) == PLAN_TRANSPORT_NCCL)
      slow_by_profile(p, message->from_worker, transfer);
    slow_down(slow, transfer);
  }
  return DP_OK;
}

static bool share_memory(const plan_cluster *cluster, const int *devices, int count) {
  for (int i = 0; i < count; i++) {
    const plan_device *device = &cluster->devices.items[devices[i]];
    if (!plan_device_is_processor(device->model) || device->node != cluster->devices.items[devices[0]].node)
      return false;
  }
  return true;
}

/* Of workers that share memory or copy to each other's, as the executor does it: one of them adds the others' buffers
 * to its own and copies the sum back to each. */
static void add_in_memory(const plan_collective *collective, const plan_link_model *link, double bytes_per_s,
                          sim_transfer *transfer) {
  transfer->bytes = 2.0 * (double)(collective->member_count - 1) * (double)collective->bytes;
  transfer->latency_s = link->latency_s;
  transfer->busy_latency_s = plan_link_busy_latency_s(link);
  transfer->cap_bytes_per_s = bytes_per_s * plan_link_factor(link, (double)collective->bytes);
  transfer->busy_cap_bytes_per_s = bytes_per_s * plan_link_busy_factor(link, (double)collective->bytes);
  transfer->compute_slowdown = link->compute_slowdown;
}

/* The links between each member and the next, and the slowest of these routes. */
typedef struct ring {
  int *links, hops, *devices, count;
  double slowest_bytes_per_s;
  double slow;                     /* the largest factor of a way of it */
  const plan_link_model *limiting; /* NULL: nothing is crossed */
  int from, to;                    /* devices at the ends of the slowest */
} ring;

/* Where the plan says how workers of a machine exchange data, members do it so; else it is the topology's ring. */
static dp_status find_ring(const sim_predictor *p, const plan_collective *collective, plan_transport transport,
                           ring *r) {
  const plan_plan *plan = &p->out->plan;
  const plan_cluster *cluster = &p->scenario->cluster;
  const uint32_t *members = &p->out->program.group_members[collective->first_member];
  const int n = (int)collective->member_count;
  for (int i = 0; i < n; i++) r->devices[i] = sim_worker_device(plan, (int)members[i]);
  r->count = n;
  r->slowest_bytes_per_s = INFINITY;
  r->slow = 1;
  for (int i = 0; i < n; i++) {
    const int from = r->devices[i], to = r->devices[(i + 1) % n];
    const bool parts = cluster->devices.items[from].card == cluster->devices.items[to].card;
    plan_route route;
    DP_TRY(transport == PLAN_TRANSPORT_AUTO || (transport == PLAN_TRANSPORT_NCCL && !parts)
               ? plan_cluster_route(cluster, from, to, &route, p->error)
               : plan_transport_route_by(plan, cluster, transport, from, to, &route, p->error));
    for (int h = 0; h < route.count; h++) r->links[r->hops++] = route.links[h];
    r->slow = fmax(r->slow, plan_slow_factor(cluster, from, to, &route));
    if (route.count == 0 || route.bandwidth_bytes_per_s >= r->slowest_bytes_per_s) continue;
    r->slowest_bytes_per_s = route.bandwidth_bytes_per_s;
    r->limiting = route.limiting;
    r->from = from;
    r->to = to;
  }
  return DP_OK;
}

/* On multiprocessors of its own NCCL carries no more than these do, and does not wait for compute. */
static dp_status keep_apart(const sim_predictor *p, const ring *r, sim_transfer *transfer) {
  const plan_cluster *cluster = &p->scenario->cluster;
  const plan_link_class *class = plan_cluster_link_class(cluster, r->limiting);
  plan_route route;
  DP_TRY(plan_transport_route_by(&p->out->plan, cluster, PLAN_TRANSPORT_NCCL, r->from, r->to, &route, p->error));
  if (class && class->partition && class->nccl)
    transfer->latency_s += fmax(class->partition->latency_s - class->nccl->latency_s, 0);
  transfer->busy_latency_s = transfer->latency_s;
  transfer->cap_bytes_per_s = fmin(transfer->cap_bytes_per_s, route.bandwidth_bytes_per_s);
  transfer->busy_cap_bytes_per_s = transfer->cap_bytes_per_s;
  transfer->compute_slowdown = 0;
  return DP_OK;
}

/* One flow over every link of the ring, at the pace of NCCL's cost model. */
static dp_status add_by_nccl(sim_predictor *p, const plan_collective *collective, const ring *r,
                             sim_transfer *transfer) {
  const int n = r->count;
  plan_nccl_cost cost;
  /* every ring link carries 2 (n - 1) / n of the buffer */
  transfer->bytes = (double)collective->bytes * 2 * (n - 1) / n;
  if (sim_predict_measured_sum(p, collective, r->devices, r->limiting, r->slowest_bytes_per_s, transfer)) return DP_OK;
  plan_nccl_all_reduce(p->scenario->catalogue.nccl, &p->scenario->cluster, r->devices, n, r->slowest_bytes_per_s,
                       (double)collective->bytes, &cost);
  /* beside compute NCCL's kernels wait for SMs, as its sends do: the link's row for NCCL, if any, says how long */
  const char *name = dp_arena_printf(&p->scratch, "%s-nccl", r->limiting->name);
  if (!name) return dp_fail_memory(p->error);
  const plan_link_model *measured = plan_catalogue_link(&p->scenario->catalogue, name);
  if (!measured) measured = r->limiting;
  transfer->latency_s = cost.latency_s;
  transfer->busy_latency_s = cost.latency_s + fmax(plan_link_busy_latency_s(measured) - measured->latency_s, 0);
  transfer->cap_bytes_per_s = cost.bus_bytes_per_s;
  transfer->busy_cap_bytes_per_s = transfer->cap_bytes_per_s * plan_link_busy_factor(measured, transfer->bytes) /
                                   plan_link_factor(measured, transfer->bytes);
  transfer->compute_slowdown = r->limiting->compute_slowdown;
  const plan_device *devices = p->scenario->cluster.devices.items;
  const bool copied =
      p->out->plan.transport_wanted == PLAN_TRANSPORT_AUTO && devices[r->from].card == devices[r->to].card;
  if (p->out->plan.nccl_sms && !copied) return keep_apart(p, r, transfer);
  if (!copied) slow_by_profile(p, p->out->program.group_members[collective->first_member], transfer);
  return DP_OK;
}

static dp_status cost_collective(sim_predictor *p, const plan_collective *collective, plan_transport transport,
                                 const ring *r, sim_transfer *transfer) {
  const plan_cluster *cluster = &p->scenario->cluster;
  const uint32_t *members = &p->out->program.group_members[collective->first_member];
  const bool in_memory = share_memory(cluster, r->devices, r->count);
  transfer->links = r->links;
  transfer->hops = r->hops;
  if (transport != PLAN_TRANSPORT_LOCAL && transport != PLAN_TRANSPORT_HOST && !in_memory) {
    DP_TRY(add_by_nccl(p, collective, r, transfer));
    slow_down(r->slow, transfer);
    return DP_OK;
  }
  add_in_memory(collective, r->limiting, r->slowest_bytes_per_s, transfer);
  if (!in_memory) slow_down(r->slow, transfer);
  const plan_profile *profile = p->kinds[p->kind_of_worker[members[0]]].context.profile;
  /* the norm's few bytes take less than any gradient's: where they were not measured, they are the catalogue's */
  const bool known = profile && profile->sums.count &&
                     (!collective->norm || profile->sums.items[0].bytes <= (double)collective->bytes);
  if (known && in_memory) {
    plan_profile_point point = plan_profile_at(profile->sums.items, profile->sums.count, (double)collective->bytes);
    point.alone_s *= r->count - 1;
    point.busy_s *= r->count - 1;
    sim_predict_as_measured(profile, point, transfer);
    sim_predict_hand_over(profile, transfer);
  }
  return DP_OK;
}

static dp_status route_collectives(sim_predictor *p) {
  const plan_program *program = &p->out->program;
  const plan_plan *plan = &p->out->plan;
  const plan_cluster *cluster = &p->scenario->cluster;
  p->collectives = SIM_SCRATCH(p, sim_transfer, program->collective_count);
  if (!p->collectives) return dp_fail_memory(p->error);
  for (uint32_t c = 0; c < program->collective_count; c++) {
    const plan_collective *collective = &program->collectives[c];
    sim_transfer *transfer = &p->collectives[c];
    const uint32_t *members = &program->group_members[collective->first_member], n = collective->member_count;
    const plan_transport transport = plan->transport_wanted == PLAN_TRANSPORT_AUTO
                                         ? PLAN_TRANSPORT_AUTO
                                         : plan_transport_of_group(plan, cluster, members, n);
    ring r = {.links = SIM_SCRATCH(p, int, (size_t)n *PLAN_MAX_HOPS), .devices = SIM_SCRATCH(p, int, n)};
    if (!r.links || !r.devices) return dp_fail_memory(p->error);
    DP_TRY(find_ring(p, collective, transport, &r));
    if (!r.limiting || collective->bytes == 0) continue;
    DP_TRY(cost_collective(p, collective, transport, &r, transfer));
  }
  return DP_OK;
}

static dp_status run_engine(sim_predictor *p) {
  sim_prediction *out = p->out;
  const plan_cluster *cluster = &p->scenario->cluster;
  const sim_input input = {.program = &out->program,
                           .work_s = p->work_s,
                           .work_issue_s = p->scenario->synthetic ? NULL : p->work_issue_s,
                           .messages = p->messages,
                           .collectives = p->collectives,
                           .link_capacity_bytes_per_s = p->link_capacity,
                           .link_count = (int)(cluster->links.count + cluster->devices.count) + cluster->node_count,
                           .worker_host = NULL};
  DP_TRY(plan_timeline_init(&out->program, &out->timeline, p->error));
  if (p->tensor_link_of_worker) {
    const size_t bytes = out->program.work_count * sizeof(double);
    out->timeline.work_tensor_s = malloc(bytes);
    if (!out->timeline.work_tensor_s) return dp_fail_memory(p->error);
    memcpy(out->timeline.work_tensor_s, p->work_tensor_s, bytes);
  }
  DP_TRY(sim_run(&input, &out->timeline, &out->statistics, p->error));
  if (sim_predict_norms(p)) DP_TRY(sim_run(&input, &out->timeline, &out->statistics, p->error));
  DP_TRY(sim_predict_crowd(p, &input));
  sim_predict_tell_waits(p);
  return plan_metrics_of(&out->timeline, &out->metrics, p->error);
}

dp_status sim_predict_run(sim_predictor *p) {
  const plan_cluster *cluster = &p->scenario->cluster;
  const size_t links = cluster->links.count, more = cluster->devices.count + (size_t)cluster->node_count;
  p->link_capacity = SIM_SCRATCH(p, double, links + more);
  if (!p->link_capacity) return dp_fail_memory(p->error);
  for (size_t l = 0; l < links; l++) p->link_capacity[l] = cluster->links.items[l].bandwidth_bytes_per_s;
  for (size_t l = links; l < links + more; l++) p->link_capacity[l] = 1e30; /* nobody crosses it */
  DP_TRY(cost_compression(p));
  DP_TRY(cost_works(p));
  DP_TRY(route_messages(p));
  DP_TRY(route_collectives(p));
  return run_engine(p);
}
