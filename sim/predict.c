#include "sim/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/nccl.h"
#include "plan/traffic.h"
#include "sim/fit.h"

/* Workers with equal devices share unit costs. */
typedef struct device_kind {
  const plan_device *device;
  sim_cost_context context;
  sim_unit_cost *units;
  double *prefix[3];       /* [unit_count + 1] running sums of device_s by direction */
  double *issue_prefix[3]; /* the same of issue_s */
  double model_s;          /* all units, both directions, with recomputation */
  double *recompute_prefix, *recompute_issue_prefix; /* of forward, over units that are recomputed */
  double *compress_s[2];   /* [chunk_count] to project and restore the skips of a forward, and of a backward */
} device_kind;

typedef struct predictor {
  const plan_scenario *scenario;
  const sim_efficiency *efficiency;
  sim_prediction *out;
  dp_arena scratch;
  const sim_implementation *implementation;
  device_kind *kinds;
  int kind_count;
  int *kind_of_worker;
  int *rank_kind; /* [rank] the slowest of its replicas */
  double *work_s, *work_issue_s;
  sim_transfer *messages, *collectives;
  dp_error *error;
} predictor;

#define SCRATCH(p, type, count) DP_ARENA_NEW(&(p)->scratch, type, (size_t)(count))

static int worker_device(const plan_plan *plan, int worker) { return plan->devices[worker]; }

/* ---- costs ---- */

static dp_status find_kinds(predictor *p) {
  const plan_plan *plan = &p->out->plan;
  const plan_cluster *cluster = &p->scenario->cluster;
  const int workers = plan_worker_count(plan);
  p->kind_of_worker = SCRATCH(p, int, workers);
  p->kinds = SCRATCH(p, device_kind, workers);
  if (!p->kind_of_worker || !p->kinds) return dp_fail_memory(p->error);
  for (int w = 0; w < workers; w++) {
    const plan_device *device = &cluster->devices.items[worker_device(plan, w)];
    int k = 0;
    while (k < p->kind_count && (p->kinds[k].device->model != device->model ||
                                 p->kinds[k].device->compute_share != device->compute_share))
      k++;
    if (k == p->kind_count) {
      p->kinds[k].device = device;
      p->kinds[k].context = (sim_cost_context){.efficiency = p->efficiency,
                                               .implementation = p->implementation,
                                               .device = device,
                                               .precision = p->out->graph.precision,
                                               .cuda_graphs = p->scenario->cuda_graphs,
                                               .host_issue_factor = cluster->host_issue_factor};
      p->kind_count++;
    }
    p->kind_of_worker[w] = k;
  }
  return DP_OK;
}

static dp_status cost_kinds(predictor *p) {
  const graph *model = &p->out->graph;
  const size_t n = model->units.count;
  const uint8_t *recompute = p->out->plan.recompute;
  for (int k = 0; k < p->kind_count; k++) {
    device_kind *kind = &p->kinds[k];
    kind->units = SCRATCH(p, sim_unit_cost, n);
    kind->recompute_prefix = SCRATCH(p, double, n + 1);
    kind->recompute_issue_prefix = SCRATCH(p, double, n + 1);
    if (!kind->units || !kind->recompute_prefix || !kind->recompute_issue_prefix) return dp_fail_memory(p->error);
    sim_cost_units(&kind->context, model, kind->units);
    for (int d = 0; d < 3; d++) {
      kind->prefix[d] = SCRATCH(p, double, n + 1);
      kind->issue_prefix[d] = SCRATCH(p, double, n + 1);
      if (!kind->prefix[d] || !kind->issue_prefix[d]) return dp_fail_memory(p->error);
      for (size_t u = 0; u < n; u++) {
        kind->prefix[d][u + 1] = kind->prefix[d][u] + kind->units[u].device_s[d];
        kind->issue_prefix[d][u + 1] = kind->issue_prefix[d][u] + kind->units[u].issue_s[d];
      }
    }
    for (size_t u = 0; u < n; u++) {
      const bool again = recompute && recompute[u];
      kind->recompute_prefix[u + 1] = kind->recompute_prefix[u] + (again ? kind->units[u].device_s[SIM_FORWARD] : 0);
      kind->recompute_issue_prefix[u + 1] =
          kind->recompute_issue_prefix[u] + (again ? kind->units[u].issue_s[SIM_FORWARD] : 0);
    }
  }
  return DP_OK;
}

static double span(const double *prefix, int first, int count) { return prefix[first + count] - prefix[first]; }

/* Sums of equal fixed costs must not depend on where in the graph they stand: add them one by one. */
static double exact_span(const device_kind *kind, int direction, int first, int count) {
  double sum = 0;
  for (int u = first; u < first + count; u++) sum += kind->units[u].device_s[direction];
  return sum;
}

/* ---- the plan ---- */

static dp_status set_recompute(predictor *p) {
  const plan_scenario *scenario = p->scenario;
  const graph *model = &p->out->graph;
  const size_t n = model->units.count;
  plan_plan *plan = &p->out->plan;
  plan->recompute = DP_ARENA_NEW(&plan->arena, uint8_t, n);
  if (!plan->recompute) return dp_fail_memory(p->error);
  if (scenario->recompute_all) memset(plan->recompute, 1, n);
  const dp_node *list = scenario->recompute_node;
  if (!list || list->kind != DP_NODE_ARRAY) return DP_OK;
  for (size_t i = 0; i < list->count; i++) {
    const dp_node *item = list->items[i];
    if (item->kind == DP_NODE_INTEGER) {
      if (item->integer < 0 || (uint64_t)item->integer >= n)
        return dp_fail_at(p->error, item, "plan.recompute: found unit %lld, allowed: 0 to %zu", (long long)item->integer, n - 1);
      plan->recompute[item->integer] = 1;
      continue;
    }
    size_t u = 0;
    while (u < n && (item->kind != DP_NODE_STRING || strcmp(model->units.items[u].name, item->string) != 0)) u++;
    if (u == n) {
      char shown[80];
      return dp_fail_at(p->error, item, "plan.recompute: found %s, allowed: a unit's name (diffpipe inspect lists them) or index",
                        dp_node_show(item, shown));
    }
    plan->recompute[u] = 1;
  }
  return DP_OK;
}

/* Seconds of a unit on a kind of device, forward and backward, with recomputation. */
static double unit_s(const predictor *p, const device_kind *kind, int unit) {
  const sim_unit_cost *cost = &kind->units[unit];
  double s = cost->device_s[SIM_FORWARD];
  if (p->out->plan.training) {
    s += cost->device_s[SIM_BACKWARD_INPUT] + cost->device_s[SIM_BACKWARD_WEIGHT];
    if (p->out->plan.recompute[unit]) s += cost->device_s[SIM_FORWARD];
  }
  return s;
}

/* The whole model's time on each kind, and the slowest kind among each rank's replicas, which all wait for it. */
static dp_status find_slowest(predictor *p) {
  const int workers = plan_worker_count(&p->out->plan), ranks = p->out->plan.ranks;
  p->rank_kind = SCRATCH(p, int, ranks);
  if (!p->rank_kind) return dp_fail_memory(p->error);
  for (int k = 0; k < p->kind_count; k++)
    for (size_t u = 0; u < p->out->graph.units.count; u++) p->kinds[k].model_s += unit_s(p, &p->kinds[k], (int)u);
  for (int r = 0; r < ranks; r++) p->rank_kind[r] = p->kind_of_worker[r];
  for (int w = ranks; w < workers; w++) {
    const int k = p->kind_of_worker[w];
    if (p->kinds[k].model_s > p->kinds[p->rank_kind[w % ranks]].model_s) p->rank_kind[w % ranks] = k;
  }
  return DP_OK;
}

static dp_status default_cuts(predictor *p, int *cuts) {
  const plan_plan *plan = &p->out->plan;
  const graph *model = &p->out->graph;
  const int n = (int)model->units.count, chunks = plan->chunk_count;
  double *unit_cost = SCRATCH(p, double, n), *speed = SCRATCH(p, double, chunks);
  if (!unit_cost || !speed) return dp_fail_memory(p->error);
  for (int u = 0; u < n; u++) unit_cost[u] = unit_s(p, &p->kinds[0], u);
  const int speeds = plan->schedule == PLAN_FOLDED ? plan->ranks : chunks;
  for (int c = 0; c < speeds; c++) {
    const int rank = plan->schedule == PLAN_FOLDED ? c : plan_schedule_chunk_rank(plan->schedule, plan->ranks, c);
    const double model_s = p->kinds[p->rank_kind[rank]].model_s;
    speed[c] = model_s > 0 ? p->kinds[0].model_s / model_s : 1;
  }
  if (plan->schedule != PLAN_FOLDED) return plan_split_balanced(unit_cost, n, chunks, speed, cuts, p->error);
  /* what a skip byte that travels costs: out and its gradient back, over the slowest link between neighbours */
  double s_per_byte = 0;
  for (int r = 0; r + 1 < plan->ranks; r++) {
    plan_route route;
    DP_TRY(plan_cluster_route(&p->scenario->cluster, plan->devices[r], plan->devices[r + 1], &route, p->error));
    if (route.count > 0 && 1 / route.bandwidth_bytes_per_s > s_per_byte) s_per_byte = 1 / route.bandwidth_bytes_per_s;
  }
  return plan_split_folded(model, unit_cost, plan->ranks, (plan->training ? 2 : 1) * s_per_byte, speed, cuts, p->error);
}

static void place_chunks(predictor *p, const int *cuts) {
  plan_plan *plan = &p->out->plan;
  for (int c = 0; c < plan->chunk_count; c++) {
    const int first = c ? cuts[c - 1] : 0, end = c + 1 < plan->chunk_count ? cuts[c] : (int)p->out->graph.units.count;
    plan->chunks[c] = (plan_chunk){.first_unit = first, .unit_count = end - first, .rank = plan_schedule_chunk_rank(plan->schedule, plan->ranks, c)};
  }
}

static dp_status set_chunks(predictor *p) {
  plan_plan *plan = &p->out->plan;
  const plan_scenario *scenario = p->scenario;
  const int n = (int)p->out->graph.units.count;
  plan->chunk_count = plan->ranks * plan->chunks_per_rank;
  if (plan->chunk_count > n)
    return dp_fail_at(p->error, plan_scenario_node(scenario, "plan", "stages"),
                      "plan: %d stages of %d chunk(s) need %d units, the model has %d, allowed: at most %d stages", plan->ranks,
                      plan->chunks_per_rank, plan->chunk_count, n, n / plan->chunks_per_rank);
  plan->chunks = DP_ARENA_NEW(&plan->arena, plan_chunk, plan->chunk_count);
  int *cuts = SCRATCH(p, int, plan->chunk_count);
  if (!plan->chunks || !cuts) return dp_fail_memory(p->error);
  if (scenario->split_count) {
    if ((int)scenario->split_count != plan->chunk_count - 1)
      return dp_fail_at(p->error, plan_scenario_node(scenario, "plan", "split"), "plan.split: found %zu cut points, allowed: %d (stages * chunks - 1)",
                        scenario->split_count, plan->chunk_count - 1);
    for (int c = 0; c + 1 < plan->chunk_count; c++) {
      const int64_t least = c ? scenario->split[c - 1] + 1 : 1;
      if (scenario->split[c] < least || scenario->split[c] > n - 1)
        return dp_fail_at(p->error, plan_scenario_node(scenario, "plan", "split"), "plan.split: found %lld at item %d, allowed: %lld to %d, ascending",
                          (long long)scenario->split[c], c, (long long)least, n - 1);
      cuts[c] = (int)scenario->split[c];
    }
  } else if (plan->chunk_count > 1) {
    DP_TRY(default_cuts(p, cuts));
  }
  place_chunks(p, cuts);
  return DP_OK;
}

/* Alone, what a chunk's tensors for the next chunk take to reach it: for the list scheduler. */
static dp_status cost_next_transfers(const predictor *p, double *transfer_s) {
  const plan_plan *plan = &p->out->plan;
  const graph *model = &p->out->graph;
  for (int c = 0; c + 1 < plan->chunk_count; c++) {
    const plan_chunk *from = &plan->chunks[c], *to = &plan->chunks[c + 1];
    if (from->rank == to->rank) continue;
    double bytes = 0;
    for (size_t t = 0; t < model->tensors.count; t++) {
      const graph_tensor *tensor = &model->tensors.items[t];
      if (tensor->producer_unit < from->first_unit || tensor->producer_unit >= to->first_unit) continue;
      int i = 0; /* the first consumer in the next chunk or beyond */
      while (i < tensor->consumer_unit_count && tensor->consumer_units[i] < to->first_unit) i++;
      if (i < tensor->consumer_unit_count && tensor->consumer_units[i] < to->first_unit + to->unit_count)
        bytes += (double)tensor->bytes;
    }
    plan_route route;
    DP_TRY(plan_cluster_route(&p->scenario->cluster, plan->devices[from->rank], plan->devices[to->rank], &route, p->error));
    if (bytes > 0 && route.count > 0)
      transfer_s[c] = route.latency_s + bytes / (route.bandwidth_bytes_per_s * plan_link_factor(route.limiting, bytes));
  }
  return DP_OK;
}

static dp_status set_order(predictor *p, const int *in_flight_limit) {
  plan_plan *plan = &p->out->plan;
  double *forward = SCRATCH(p, double, plan->chunk_count), *input = SCRATCH(p, double, plan->chunk_count);
  double *weight = SCRATCH(p, double, plan->chunk_count), *transfer = SCRATCH(p, double, plan->chunk_count);
  if (!forward || !input || !weight || !transfer) return dp_fail_memory(p->error);
  if (plan->schedule == PLAN_FOLDED) DP_TRY(cost_next_transfers(p, transfer));
  for (int c = 0; c < plan->chunk_count; c++) {
    const plan_chunk *chunk = &plan->chunks[c];
    const device_kind *kind = &p->kinds[p->rank_kind[chunk->rank]];
    forward[c] = exact_span(kind, SIM_FORWARD, chunk->first_unit, chunk->unit_count);
    input[c] = exact_span(kind, SIM_BACKWARD_INPUT, chunk->first_unit, chunk->unit_count) +
               span(kind->recompute_prefix, chunk->first_unit, chunk->unit_count);
    weight[c] = exact_span(kind, SIM_BACKWARD_WEIGHT, chunk->first_unit, chunk->unit_count);
  }
  const plan_chunk_costs costs = {forward, input, weight, transfer};
  return plan_order_generate(plan, &costs, in_flight_limit, p->error);
}

/* ---- what the engine needs ---- */

/* Time to project and restore compressed skips, per chunk and direction. A message may carry a boundary tensor beside
 * them, which travels whole. */
static dp_status cost_compression(predictor *p) {
  const plan_program *program = &p->out->program;
  const plan_plan *plan = &p->out->plan;
  const graph *model = &p->out->graph;
  int *chunk_of_unit = SCRATCH(p, int, model->units.count);
  if (!chunk_of_unit) return dp_fail_memory(p->error);
  for (int c = 0; c < plan->chunk_count; c++)
    for (int u = 0; u < plan->chunks[c].unit_count; u++) chunk_of_unit[plan->chunks[c].first_unit + u] = c;
  for (int k = 0; k < p->kind_count; k++)
    for (int b = 0; b < 2; b++) {
      p->kinds[k].compress_s[b] = SCRATCH(p, double, plan->chunk_count);
      if (!p->kinds[k].compress_s[b]) return dp_fail_memory(p->error);
    }
  if (plan->skip_policy != PLAN_SKIP_COMPRESS) return DP_OK;
  for (uint32_t m = 0; m < program->message_count; m++) {
    const plan_message *message = &program->messages[m];
    if (message->from_worker >= (uint32_t)plan->ranks) continue; /* replicas are alike */
    const int made = message->backward ? message->to_chunk : message->from_chunk;
    const int used = message->backward ? message->from_chunk : message->to_chunk;
    for (int t = message->first_tensor; t < message->first_tensor + message->tensor_count; t++) {
      const int tensor = program->message_tensors[t];
      int64_t compressed_bytes;
      if (plan_traffic_kind(model, chunk_of_unit, made, used, tensor) != PLAN_TRAFFIC_SKIP ||
          !plan_skip_is_compressed(plan, model, tensor, &compressed_bytes))
        continue;
      for (int k = 0; k < p->kind_count; k++) {
        const graph_tensor *skip = &model->tensors.items[tensor];
        const double s = sim_cost_compress(&p->kinds[k].context, skip->bytes, skip->dims[0], plan->k);
        p->kinds[k].compress_s[message->backward][made] += s;
        p->kinds[k].compress_s[message->backward][used] += s;
      }
    }
  }
  return DP_OK;
}

static int64_t rank_trainable_parameters(const sim_prediction *out, int rank) {
  int64_t parameters = 0;
  for (int c = 0; c < out->plan.chunk_count; c++)
    if (out->plan.chunks[c].rank == rank)
      for (int u = 0; u < out->plan.chunks[c].unit_count; u++)
        parameters += out->graph.units.items[out->plan.chunks[c].first_unit + u].trainable_parameters;
  return parameters;
}

static void cost_one_work(const predictor *p, const plan_work *work, double *device_s, double *issue_s) {
  const sim_prediction *out = p->out;
  const device_kind *kind = &p->kinds[p->kind_of_worker[work->worker]];
  const int first = (int)work->first_unit, count = (int)work->unit_count;
  const double parts = work->parts ? work->parts : 1;
  double s = 0, issue = sim_cost_instruction_issue_s(&kind->context);
  bool directions[3] = {false, false, false};
  switch (work->opcode) {
    case PLAN_FORWARD: directions[SIM_FORWARD] = true; break;
    case PLAN_BACKWARD: directions[SIM_BACKWARD_INPUT] = directions[SIM_BACKWARD_WEIGHT] = true; break;
    case PLAN_BACKWARD_INPUT: directions[SIM_BACKWARD_INPUT] = true; break;
    case PLAN_BACKWARD_WEIGHT: directions[SIM_BACKWARD_WEIGHT] = true; break;
    default: break;
  }
  for (int d = 0; d < 3; d++)
    if (directions[d]) {
      s += exact_span(kind, d, first, count);
      issue += span(kind->issue_prefix[d], first, count);
    }
  if (directions[SIM_BACKWARD_INPUT]) {
    s += span(kind->recompute_prefix, first, count);
    issue += span(kind->recompute_issue_prefix, first, count);
  }
  if (directions[SIM_FORWARD]) s += kind->compress_s[0][work->chunk] / parts;
  if (directions[SIM_BACKWARD_INPUT]) s += kind->compress_s[1][work->chunk] / parts;
  if (work->opcode == PLAN_OPTIMIZER_STEP && !p->scenario->synthetic)
    s = sim_cost_optimizer(&kind->context, out->plan.optimizer, out->plan.gradient_fp32,
                           rank_trainable_parameters(out, (int)work->worker % out->plan.ranks));
  *device_s = s;
  *issue_s = issue;
}

static dp_status cost_works(predictor *p) {
  const plan_program *program = &p->out->program;
  p->work_s = SCRATCH(p, double, program->work_count);
  p->work_issue_s = SCRATCH(p, double, program->work_count);
  if (!p->work_s || !p->work_issue_s) return dp_fail_memory(p->error);
  const uint32_t replica_works = program->work_count / (uint32_t)p->out->plan.replicas;
  for (uint32_t w = 0; w < program->work_count; w++) {
    const plan_work *work = &program->works[w], *first = &program->works[w % replica_works];
    if (p->kind_of_worker[work->worker] == p->kind_of_worker[first->worker] && work != first) { /* replicas are alike */
      p->work_s[w] = p->work_s[w % replica_works];
      p->work_issue_s[w] = p->work_issue_s[w % replica_works];
    } else {
      cost_one_work(p, work, &p->work_s[w], &p->work_issue_s[w]);
    }
  }
  return DP_OK;
}

static dp_status route_messages(predictor *p) {
  const plan_program *program = &p->out->program;
  const plan_cluster *cluster = &p->scenario->cluster;
  p->messages = SCRATCH(p, sim_transfer, program->message_count);
  if (!p->messages) return dp_fail_memory(p->error);
  for (uint32_t m = 0; m < program->message_count; m++) {
    const plan_message *message = &program->messages[m];
    sim_transfer *transfer = &p->messages[m];
    plan_route route;
    DP_TRY(plan_cluster_route(cluster, worker_device(&p->out->plan, (int)message->from_worker),
                              worker_device(&p->out->plan, (int)message->to_worker), &route, p->error));
    transfer->bytes = (double)message->bytes;
    if (route.count == 0) continue; /* one device: nothing travels */
    int *links = SCRATCH(p, int, route.count);
    if (!links) return dp_fail_memory(p->error);
    memcpy(links, route.links, (size_t)route.count * sizeof *links);
    const plan_link_model *link = route.limiting;
    transfer->links = links;
    transfer->hops = route.count;
    transfer->latency_s = route.latency_s;
    transfer->cap_bytes_per_s = route.bandwidth_bytes_per_s * plan_link_factor(link, transfer->bytes);
    transfer->busy_latency_s = fmax(route.latency_s, plan_link_busy_latency_s(link));
    transfer->busy_cap_bytes_per_s = route.bandwidth_bytes_per_s * plan_link_busy_factor(link, transfer->bytes);
    transfer->compute_slowdown = link->compute_slowdown;
  }
  return DP_OK;
}

/* A ring over the members: one flow over every link it crosses, at the pace of NCCL's cost model. */
static dp_status route_collectives(predictor *p) {
  const plan_program *program = &p->out->program;
  const plan_cluster *cluster = &p->scenario->cluster;
  p->collectives = SCRATCH(p, sim_transfer, program->collective_count);
  if (!p->collectives) return dp_fail_memory(p->error);
  for (uint32_t c = 0; c < program->collective_count; c++) {
    const plan_collective *collective = &program->collectives[c];
    sim_transfer *transfer = &p->collectives[c];
    const int n = (int)collective->member_count;
    int *links = SCRATCH(p, int, (size_t)n * PLAN_MAX_HOPS);
    int *devices = SCRATCH(p, int, n);
    if (!links || !devices) return dp_fail_memory(p->error);
    double slowest = INFINITY;
    const plan_link_model *limiting = NULL;
    for (int i = 0; i < n; i++)
      devices[i] = worker_device(&p->out->plan, (int)program->group_members[collective->first_member + (uint32_t)i]);
    for (int i = 0; i < n; i++) {
      plan_route route;
      DP_TRY(plan_cluster_route(cluster, devices[i], devices[(i + 1) % n], &route, p->error));
      for (int h = 0; h < route.count; h++) links[transfer->hops++] = route.links[h];
      if (route.count > 0 && route.bandwidth_bytes_per_s < slowest) {
        slowest = route.bandwidth_bytes_per_s;
        limiting = route.limiting;
      }
    }
    if (!limiting || collective->bytes == 0) {
      transfer->hops = 0;
      continue;
    }
    plan_nccl_cost cost;
    plan_nccl_all_reduce(p->scenario->catalogue.nccl, cluster, devices, n, slowest, (double)collective->bytes, &cost);
    transfer->links = links;
    /* every ring link carries 2 (n - 1) / n of the buffer */
    transfer->bytes = (double)collective->bytes * 2 * (n - 1) / n;
    /* beside compute NCCL's kernels wait for SMs, as its sends do: the link's row for NCCL, if any, says how long */
    const char *name = dp_arena_printf(&p->scratch, "%s-nccl", limiting->name);
    if (!name) return dp_fail_memory(p->error);
    const plan_link_model *measured = plan_catalogue_link(&p->scenario->catalogue, name);
    if (!measured) measured = limiting;
    transfer->latency_s = cost.latency_s;
    transfer->busy_latency_s = cost.latency_s + fmax(plan_link_busy_latency_s(measured) - measured->latency_s, 0);
    transfer->cap_bytes_per_s = cost.bus_bytes_per_s;
    transfer->busy_cap_bytes_per_s = transfer->cap_bytes_per_s * plan_link_busy_factor(measured, transfer->bytes) /
                                     plan_link_factor(measured, transfer->bytes);
    transfer->compute_slowdown = limiting->compute_slowdown;
  }
  return DP_OK;
}

static dp_status run_engine(predictor *p) {
  sim_prediction *out = p->out;
  const plan_cluster *cluster = &p->scenario->cluster;
  double *capacity = SCRATCH(p, double, cluster->links.count);
  if (!capacity) return dp_fail_memory(p->error);
  for (size_t l = 0; l < cluster->links.count; l++) capacity[l] = cluster->links.items[l].bandwidth_bytes_per_s;
  const sim_input input = {.program = &out->program,
                           .work_s = p->work_s,
                           .work_issue_s = p->scenario->synthetic ? NULL : p->work_issue_s,
                           .messages = p->messages,
                           .collectives = p->collectives,
                           .link_capacity_bytes_per_s = capacity,
                           .link_count = (int)cluster->links.count,
                           .worker_host = NULL};
  DP_TRY(plan_timeline_init(&out->program, &out->timeline, p->error));
  DP_TRY(sim_run(&input, &out->timeline, &out->statistics, p->error));
  return plan_metrics_of(&out->timeline, &out->metrics, p->error);
}

/* ---- memory ---- */

static int most_peers(const plan_program *program) {
  int most = 0;
  for (int w = 0; w < (int)program->worker_count; w++) {
    int peers = 0;
    for (uint32_t l = program->worker_lane[w]; l < program->worker_lane[w + 1]; l++)
      if (program->lanes[l].kind != PLAN_LANE_COMPUTE) peers++;
    if (peers > most) most = peers;
  }
  return most;
}

static dp_status lay_out_memory(predictor *p) {
  sim_prediction *out = p->out;
  plan_memory_options options = {0, 0};
  if (!p->scenario->synthetic) {
    options.runtime_bytes = sim_cost_runtime_bytes(&p->kinds[0].context, most_peers(&out->program));
    options.workspace_bytes = sim_cost_workspace_bytes(&p->kinds[0].context);
  }
  DP_TRY(plan_memory_layout(&out->program, &out->graph, &options, &out->memory, p->error));
  out->memory_limit_bytes = DP_ARENA_NEW(&out->arena, int64_t, (size_t)out->memory.worker_count);
  if (!out->memory_limit_bytes) return dp_fail_memory(p->error);
  out->fits = true;
  double tightest = INFINITY;
  for (int w = 0; w < out->memory.worker_count; w++) {
    const int64_t limit = p->scenario->cluster.devices.items[worker_device(&out->plan, w)].memory_bytes;
    const double room = (double)(limit - out->memory.workers[w].peak_bytes) / (double)(limit ? limit : 1);
    out->memory_limit_bytes[w] = limit;
    if (room < 0) out->fits = false;
    if (room < tightest) {
      tightest = room;
      out->tightest_worker = w;
    }
  }
  return DP_OK;
}

/* Lowers the number of microbatches in flight of every rank whose memory is over its limit, by as many as hold the
 * excess. False when nothing can be lowered any more. */
static bool lower_in_flight(const predictor *p, const int64_t *saved_bytes, int *limit) {
  const sim_prediction *out = p->out;
  bool lowered = false;
  for (int r = 0; r < out->plan.ranks; r++) {
    const int64_t each = saved_bytes[r] + 1;
    int64_t excess = 0;
    for (int w = r; w < out->memory.worker_count; w += out->plan.ranks) {
      const int64_t over = out->memory.workers[w].peak_bytes - out->memory_limit_bytes[w];
      if (over > excess) excess = over;
    }
    const int64_t fewer = excess > 0 ? (excess + each - 1) / each : 0;
    const int64_t next = limit[r] - fewer < 1 ? 1 : limit[r] - fewer;
    if (next < limit[r]) lowered = true;
    limit[r] = (int)next;
  }
  return lowered;
}

/* Order, program and memory. The list scheduler of folded placement may keep fewer microbatches in flight where memory
 * is short, `most` at most; closed orders have theirs. */
static dp_status compile_split(predictor *p, int most) {
  sim_prediction *out = p->out;
  const bool can_adapt = out->plan.schedule == PLAN_FOLDED && out->plan.training;
  const int ranks = out->plan.ranks;
  int *limit = SCRATCH(p, int, ranks);
  int64_t *saved_bytes = SCRATCH(p, int64_t, ranks); /* of one microbatch */
  if (!limit || !saved_bytes) return dp_fail_memory(p->error);
  for (int r = 0; r < ranks; r++) limit[r] = most;
  for (int c = 0; can_adapt && c < out->plan.chunk_count; c++) {
    const plan_chunk *chunk = &out->plan.chunks[c];
    saved_bytes[chunk->rank] +=
        graph_saved_bytes(&out->graph, chunk->first_unit, chunk->unit_count, out->plan.recompute, NULL);
  }
  for (;;) {
    DP_TRY(set_order(p, can_adapt ? limit : NULL));
    const dp_status status = plan_compile(&out->plan, &out->graph, &out->program, p->error);
    if (status == DP_BAD_INPUT) { /* says what, not where */
      char reason[sizeof p->error->text];
      memcpy(reason, p->error->text, sizeof reason);
      const char *key = strncmp(reason, "plan.skip_policy", 16) == 0 ? "skip_policy" : "";
      return dp_fail_at(p->error, plan_scenario_node(p->scenario, "plan", key), "%s", reason);
    }
    DP_TRY(status);
    DP_TRY(plan_program_check(&out->program, p->error));
    DP_TRY(lay_out_memory(p));
    if (out->fits || !can_adapt || !lower_in_flight(p, saved_bytes, limit)) return DP_OK;
    plan_memory_free(&out->memory);
    plan_program_free(&out->program);
  }
}

/* What compile_split makes, set aside. */
typedef struct compiled {
  plan_chunk *chunks;
  plan_step **order;
  int *order_count;
  plan_program program;
  plan_memory memory;
  int64_t *memory_limit_bytes;
  bool fits;
  int tightest_worker;
} compiled;

static dp_status set_aside(predictor *p, compiled *c) {
  sim_prediction *out = p->out;
  const size_t count = (size_t)out->plan.chunk_count;
  plan_chunk *chunks = SCRATCH(p, plan_chunk, count);
  if (!chunks) return dp_fail_memory(p->error);
  memcpy(chunks, out->plan.chunks, count * sizeof *chunks);
  *c = (compiled){chunks, out->plan.order, out->plan.order_count, out->program, out->memory, out->memory_limit_bytes, out->fits, out->tightest_worker};
  out->program = (plan_program){0};
  out->memory = (plan_memory){0};
  return DP_OK;
}

static void bring_back(predictor *p, compiled *c) {
  sim_prediction *out = p->out;
  plan_memory_free(&out->memory);
  plan_program_free(&out->program);
  memcpy(out->plan.chunks, c->chunks, (size_t)out->plan.chunk_count * sizeof *c->chunks);
  out->plan.order = c->order;
  out->plan.order_count = c->order_count;
  out->program = c->program;
  out->memory = c->memory;
  out->memory_limit_bytes = c->memory_limit_bytes;
  out->fits = c->fits;
  out->tightest_worker = c->tightest_worker;
}

/* Splits of the partitioner for the order at hand. It estimates memory: what the layout of a split takes more or less than
 * that corrects its limits for the next try. The fastest that fits replaces `kept`. `possible`: there may be one. */
static dp_status try_splits(predictor *p, sim_fit *fit, const int64_t *limit_bytes, int most, compiled *kept, bool *possible, bool *found) {
  enum { TRIES = 4 };
  sim_prediction *out = p->out;
  const int ranks = out->plan.ranks;
  int64_t *budget_bytes = SCRATCH(p, int64_t, ranks), *estimate_bytes = SCRATCH(p, int64_t, ranks);
  int *cuts = SCRATCH(p, int, out->plan.chunk_count);
  if (!budget_bytes || !estimate_bytes || !cuts) return dp_fail_memory(p->error);
  memcpy(budget_bytes, limit_bytes, (size_t)ranks * sizeof *budget_bytes);
  fit->memory_limit_bytes = budget_bytes;
  double fastest_s = INFINITY;
  *found = false;
  for (int i = 0; i < TRIES; i++) {
    sim_fit_split_result split;
    DP_TRY(sim_fit_split(fit, cuts, estimate_bytes, &split, p->error));
    *possible = split.possible;
    if (!split.possible || (i > 0 && !split.fits) || split.slowest_s >= fastest_s) return DP_OK;
    plan_memory_free(&out->memory);
    plan_program_free(&out->program);
    place_chunks(p, cuts);
    DP_TRY(compile_split(p, most));
    for (int r = 0; r < ranks; r++) {
      budget_bytes[r] = INT64_MAX / 4;
      for (int w = r; w < out->memory.worker_count; w += ranks) {
        const int64_t budget = out->memory_limit_bytes[w] - out->memory.workers[w].peak_bytes + estimate_bytes[r];
        if (budget < budget_bytes[r]) budget_bytes[r] = budget;
      }
    }
    if (!out->fits) continue;
    compiled better;
    DP_TRY(set_aside(p, &better));
    plan_memory_free(&kept->memory);
    plan_program_free(&kept->program);
    *kept = better;
    *found = true;
    fastest_s = split.slowest_s;
  }
  return DP_OK;
}

/* The balanced split does not fit: one that does, if there is any; else the balanced one stays. Folded, with as many
 * microbatches in flight as there is a split for, halved from `most`; but first with one, which tells whether there is any. */
static dp_status find_split(predictor *p, int most) {
  sim_prediction *out = p->out;
  const plan_plan *plan = &out->plan;
  const int ranks = plan->ranks, n = (int)out->graph.units.count;
  const bool adapts = plan->schedule == PLAN_FOLDED && plan->training;
  const double **rank_s = SCRATCH(p, const double *, ranks);
  double **kind_s = SCRATCH(p, double *, p->kind_count);
  int64_t *fixed_bytes = SCRATCH(p, int64_t, ranks), *limit_bytes = SCRATCH(p, int64_t, ranks);
  int *in_flight = SCRATCH(p, int, ranks);
  if (!rank_s || !kind_s || !fixed_bytes || !limit_bytes || !in_flight) return dp_fail_memory(p->error);
  for (int k = 0; k < p->kind_count; k++) {
    kind_s[k] = SCRATCH(p, double, n);
    if (!kind_s[k]) return dp_fail_memory(p->error);
    for (int u = 0; u < n; u++) kind_s[k][u] = unit_s(p, &p->kinds[k], u);
  }
  for (int r = 0; r < ranks; r++) {
    rank_s[r] = kind_s[p->rank_kind[r]];
    fixed_bytes[r] = out->memory.workers[r].at_peak_bytes[PLAN_MEMORY_RUNTIME];
    if (!p->scenario->synthetic) fixed_bytes[r] += sim_cost_workspace_bytes(&p->kinds[0].context);
    limit_bytes[r] = out->memory_limit_bytes[r];
    for (int w = r; w < out->memory.worker_count; w += ranks)
      if (out->memory_limit_bytes[w] < limit_bytes[r]) limit_bytes[r] = out->memory_limit_bytes[w];
  }
  sim_fit fit = {p->scenario, plan, &out->graph, rank_s, fixed_bytes, NULL};
  compiled kept;
  DP_TRY(set_aside(p, &kept));
  dp_status status = DP_OK;
  bool possible = true, found = false, any = false;
  for (int flying = adapts ? 1 : most; status == DP_OK; flying = flying == 1 ? most : flying / 2) {
    for (int r = 0; r < ranks; r++) in_flight[r] = flying;
    if (adapts) status = set_order(p, in_flight);
    if (status == DP_OK) status = try_splits(p, &fit, limit_bytes, flying, &kept, &possible, &found);
    const bool more = any ? !found && flying > 3 : found && most > 1; /* halved down to 2: one has been tried */
    any = any || found;
    if (!adapts || !possible || !more) break;
  }
  bring_back(p, &kept);
  return status;
}

static dp_status compile_to_fit(predictor *p) {
  const plan_plan *plan = &p->out->plan;
  const int most = 2 * plan->ranks < plan->microbatches ? 2 * plan->ranks : plan->microbatches;
  DP_TRY(compile_split(p, most));
  const bool may_choose = !p->scenario->split_count && plan->ranks > 1 && plan->chunk_count <= SIM_FIT_CHUNKS;
  return p->out->fits || !may_choose ? DP_OK : find_split(p, most);
}

/* ---- what bounds the step ---- */

enum { BOUND_GEMM, BOUND_CONVOLUTION, BOUND_ATTENTION, BOUND_MEMORY, BOUND_FIXED, BOUND_OPTIMIZER, BOUND_SLOWED, BOUND_HOST,
       BOUND_COMM, BOUND_BUBBLE, BOUND_COUNT };
static const char *const bound_names[BOUND_COUNT] = {
    "compute: matrix products", "compute: convolutions", "compute: attention", "compute: memory-bound ops", "compute",
    "optimizer step", "compute slowed by transfers", "host issuing work", "communication not hidden", "pipeline bubble"};

/* Splits a compute span over op classes in the proportion of its units' costs. */
static void add_compute(const predictor *p, const plan_work *work, double seconds, double *bound) {
  const device_kind *kind = &p->kinds[p->kind_of_worker[work->worker]];
  if (work->opcode == PLAN_OPTIMIZER_STEP) {
    bound[BOUND_OPTIMIZER] += seconds;
    return;
  }
  double by_class[GRAPH_CLASS_COUNT] = {0}, sum = 0;
  for (uint32_t u = work->first_unit; u < work->first_unit + work->unit_count; u++)
    for (int d = 0; d < 3; d++) {
      const bool counts = work->opcode == PLAN_FORWARD ? d == SIM_FORWARD
                          : work->opcode == PLAN_BACKWARD_INPUT ? d == SIM_BACKWARD_INPUT
                          : work->opcode == PLAN_BACKWARD_WEIGHT ? d == SIM_BACKWARD_WEIGHT
                                                                 : d != SIM_FORWARD;
      if (!counts) continue;
      for (int c = 0; c < GRAPH_CLASS_COUNT; c++) {
        by_class[c] += kind->units[u].class_s[d][c];
        sum += kind->units[u].class_s[d][c];
      }
    }
  if (sum <= 0) {
    bound[BOUND_FIXED] += seconds;
    return;
  }
  for (int c = 0; c < GRAPH_CLASS_COUNT; c++) bound[BOUND_GEMM + c] += seconds * by_class[c] / sum;
}

static dp_status find_bounds(predictor *p) {
  sim_prediction *out = p->out;
  const plan_program *program = &out->program;
  const plan_timeline *timeline = &out->timeline;
  double bound[BOUND_COUNT] = {0};
  double *class_busy = SCRATCH(p, double, program->work_count);
  if (!class_busy) return dp_fail_memory(p->error);
  for (int w = 0; w < (int)program->worker_count; w++) {
    const plan_lane *lane = &program->lanes[program->worker_lane[w]];
    double free_s = 0, host_s = 0, busy_s = 0;
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      const uint32_t class_id = program->instructions[i].class_id;
      const double length = timeline->end_s[i] - timeline->start_s[i];
      const double pure = fmin(length, p->work_s[class_id]);
      class_busy[class_id] += pure;
      busy_s += length;
      double extra = length - pure;
      if (timeline->issue_s) {
        /* the host had not begun to issue it when the lane was free, or finished issuing after the device could have */
        const double begun_s = timeline->issue_s[i] - p->work_issue_s[class_id];
        if (begun_s >= timeline->start_s[i] - 1e-12 && begun_s > free_s) host_s += begun_s - free_s;
        if (timeline->issue_s[i] >= timeline->end_s[i] - 1e-12) {
          host_s += extra;
          busy_s -= extra;
          extra = 0;
        }
      }
      bound[BOUND_SLOWED] += extra;
      free_s = timeline->end_s[i];
    }
    const double idle_s = fmax(0, out->metrics.step_s - busy_s - host_s);
    const double comm_s = fmin(idle_s, out->metrics.workers[w].exposed_comm_s);
    bound[BOUND_HOST] += host_s;
    bound[BOUND_COMM] += comm_s;
    bound[BOUND_BUBBLE] += idle_s - comm_s;
  }
  const uint32_t replica_works = program->work_count / (uint32_t)out->plan.replicas;
  for (uint32_t c = program->work_count; c-- > 0;) {
    const plan_work *work = &program->works[c], *first = &program->works[c % replica_works];
    if (c >= replica_works && p->kind_of_worker[work->worker] == p->kind_of_worker[first->worker])
      class_busy[c % replica_works] += class_busy[c]; /* replicas are alike */
    else
      add_compute(p, work, class_busy[c], bound);
  }
  const double whole = out->metrics.step_s * program->worker_count;
  for (int b = 0; b < BOUND_COUNT; b++)
    if (whole > 0 && bound[b] / whole > 1e-6)
      out->bounds[out->bound_count++] = (sim_bound){bound_names[b], bound[b] / whole};
  for (int i = 1; i < out->bound_count; i++) /* largest first, stable */
    for (int j = i; j > 0 && out->bounds[j].share > out->bounds[j - 1].share; j--) {
      const sim_bound swap = out->bounds[j];
      out->bounds[j] = out->bounds[j - 1];
      out->bounds[j - 1] = swap;
    }
  return DP_OK;
}

static void find_cost(predictor *p) {
  sim_prediction *out = p->out;
  const plan_cluster *cluster = &p->scenario->cluster;
  const double rate = out->metrics.throughput_samples_per_s;
  if (rate <= 0 || p->scenario->synthetic) return;
  out->usd_per_million_samples = cluster->price_usd_per_h / 3600 / rate * 1e6;
  out->joules_per_sample = cluster->power_w / rate;
  for (int k = 0; k < p->kind_count; k++) {
    const double band = sim_cost_error_band(&p->kinds[k].context);
    if (band > out->error_band) out->error_band = band;
  }
}

static dp_status predict(predictor *p) {
  sim_prediction *out = p->out;
  DP_TRY(sim_efficiency_implementation(p->efficiency, p->scenario->implementation,
                                       plan_scenario_node(p->scenario, "task", "implementation"), &p->implementation, p->error));
  DP_TRY(plan_scenario_plan(p->scenario, &out->plan, p->error));
  DP_TRY(plan_scenario_graph(p->scenario, out->plan.microbatch_size, &out->graph, p->error));
  DP_TRY(find_kinds(p));
  DP_TRY(set_recompute(p));
  DP_TRY(cost_kinds(p));
  DP_TRY(find_slowest(p));
  DP_TRY(set_chunks(p));
  DP_TRY(compile_to_fit(p));
  DP_TRY(cost_compression(p));
  DP_TRY(cost_works(p));
  DP_TRY(route_messages(p));
  DP_TRY(route_collectives(p));
  DP_TRY(run_engine(p));
  DP_TRY(find_bounds(p));
  find_cost(p);
  return DP_OK;
}

dp_status sim_predict(const plan_scenario *scenario, const sim_efficiency *efficiency, sim_prediction *prediction,
                      dp_error *error) {
  memset(prediction, 0, sizeof *prediction);
  predictor p = {.scenario = scenario, .efficiency = efficiency, .out = prediction, .error = error};
  const dp_status status = predict(&p);
  dp_arena_free(&p.scratch);
  if (status != DP_OK) sim_prediction_free(prediction);
  return status;
}

void sim_prediction_free(sim_prediction *prediction) {
  plan_metrics_free(&prediction->metrics);
  plan_timeline_free(&prediction->timeline);
  plan_memory_free(&prediction->memory);
  plan_program_free(&prediction->program);
  plan_plan_free(&prediction->plan);
  graph_free(&prediction->graph);
  dp_arena_free(&prediction->arena);
  memset(prediction, 0, sizeof *prediction);
}
