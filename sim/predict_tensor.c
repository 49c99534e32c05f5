#include <math.h>
#include <string.h>

#include "base/schema.h"
#include "sim/predictor.h"

/* ---- links ---- */

/* The members of a worker's group. */
static void find_members(const plan_plan *plan, int worker, int *workers) {
  for (int m = 0; m < plan_tensor(plan); m++)
    workers[m] = plan_worker_of(plan, plan_worker_replica(plan, worker), m, plan_worker_rank(plan, worker));
}

/* Counts how often the ring over a group crosses each link, or finds the least share of a link that it has. */
static dp_status walk_ring(const sim_predictor *p, const int *workers, int *crossings, bool count,
                           double *least_bytes_per_s) {
  const plan_plan *plan = &p->out->plan;
  const plan_cluster *cluster = &p->scenario->cluster;
  const int n = plan_tensor(plan);
  *least_bytes_per_s = INFINITY;
  for (int m = 0; m < n; m++) {
    plan_route route;
    DP_TRY(plan_cluster_route(cluster, sim_worker_device(plan, workers[m]),
                              sim_worker_device(plan, workers[(m + 1) % n]), &route, p->error));
    for (int h = 0; h < route.count; h++) {
      const int link = route.links[h];
      if (count) crossings[link]++;
      const double share =
          cluster->links.items[link].bandwidth_bytes_per_s / (crossings[link] > 0 ? crossings[link] : 1);
      *least_bytes_per_s = fmin(*least_bytes_per_s, share);
    }
  }
  return DP_OK;
}

static bool same_link(const plan_nccl_query *a, const plan_nccl_query *b) {
  return a->arch == b->arch && a->intra == b->intra && a->ranks == b->ranks && a->nodes == b->nodes &&
         a->bus_bytes_per_s == b->bus_bytes_per_s;
}

dp_status sim_predict_tensor_links(sim_predictor *p) {
  const plan_plan *plan = &p->out->plan;
  const plan_cluster *cluster = &p->scenario->cluster;
  const int workers = plan_worker_count(plan), n = plan_tensor(plan);
  if (n == 1) return DP_OK;
  int *crossings = SIM_SCRATCH(p, int, cluster->links.count), *members = SIM_SCRATCH(p, int, n);
  int *devices = SIM_SCRATCH(p, int, n);
  p->tensor_link_of_worker = SIM_SCRATCH(p, int, workers);
  p->tensor_links = SIM_SCRATCH(p, plan_nccl_query, workers);
  if (!crossings || !members || !devices || !p->tensor_link_of_worker || !p->tensor_links)
    return dp_fail_memory(p->error);
  double ring_bytes_per_s;
  for (int w = 0; w < workers; w++) {
    if (plan_worker_member(plan, w) != 0) continue;
    find_members(plan, w, members);
    DP_TRY(walk_ring(p, members, crossings, true, &ring_bytes_per_s));
  }
  for (int w = 0; w < workers; w++) {
    if (plan_worker_member(plan, w) != 0) continue;
    find_members(plan, w, members);
    DP_TRY(walk_ring(p, members, crossings, false, &ring_bytes_per_s));
    for (int m = 0; m < n; m++) devices[m] = sim_worker_device(plan, members[m]);
    const plan_nccl_query query =
        plan_nccl_query_of(p->scenario->catalogue.nccl, cluster, devices, n, ring_bytes_per_s);
    int l = 0;
    while (l < p->tensor_link_count && !same_link(&p->tensor_links[l], &query)) l++;
    if (l == p->tensor_link_count) p->tensor_links[p->tensor_link_count++] = query;
    for (int m = 0; m < n; m++) p->tensor_link_of_worker[members[m]] = l;
  }
  return DP_OK;
}

/* ---- costs ---- */

static double collective_s(const sim_predictor *p, int link, graph_collective collective, int64_t bytes) {
  plan_nccl_query query = p->tensor_links[link];
  query.op = collective == GRAPH_COLLECTIVE_ALL_REDUCE ? PLAN_NCCL_ALL_REDUCE : PLAN_NCCL_ALL_GATHER;
  query.bytes = (double)bytes;
  return plan_nccl_time_s(p->scenario->catalogue.nccl, &query, NULL);
}

/* Blocks repeat: few collectives are unlike. */
typedef struct remembered {
  struct {
    graph_collective collective;
    int64_t bytes;
    double seconds;
  } known[32];
  int count;
} remembered;

static double remembered_s(const sim_predictor *p, remembered *memo, int link, const graph_work *work) {
  for (int i = 0; i < memo->count; i++)
    if (memo->known[i].bytes == work->collective_bytes && memo->known[i].collective == work->collective)
      return memo->known[i].seconds;
  const double seconds = collective_s(p, link, work->collective, work->collective_bytes);
  if (memo->count < (int)DP_COUNT_OF(memo->known)) {
    memo->known[memo->count].collective = work->collective;
    memo->known[memo->count].bytes = work->collective_bytes;
    memo->known[memo->count++].seconds = seconds;
  }
  return seconds;
}

dp_status sim_predict_tensor_cost(sim_predictor *p, sim_device_kind *kind) {
  const graph *model = &p->out->graph;
  const size_t n = model->units.count;
  if (!p->tensor_link_of_worker) return DP_OK;
  sim_unit_cost *units = SIM_SCRATCH(p, sim_unit_cost, n);
  kind->tensor_recompute_prefix = SIM_SCRATCH(p, double, n + 1);
  for (int d = 0; d < 3; d++) kind->tensor_prefix[d] = SIM_SCRATCH(p, double, n + 1);
  if (!units || !kind->tensor_recompute_prefix || !kind->tensor_prefix[0] || !kind->tensor_prefix[1] ||
      !kind->tensor_prefix[2])
    return dp_fail_memory(p->error);
  memcpy(units, kind->units, n * sizeof *units);
  remembered memo = {.count = 0};
  for (size_t u = 0; u < n; u++) {
    const graph_unit *unit = &model->units.items[u];
    double seconds[2] = {0, 0};
    int launches[2] = {0, 0};
    for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++)
      for (int d = SIM_FORWARD; d <= SIM_BACKWARD_INPUT; d++) {
        const graph_op *op = &model->ops.items[o];
        const graph_work *work = d == SIM_FORWARD ? &op->forward : &op->backward_input;
        if (work->collective == GRAPH_COLLECTIVE_NONE) continue;
        seconds[d] += remembered_s(p, &memo, kind->link, work);
        launches[d]++;
      }
    for (int d = SIM_FORWARD; d <= SIM_BACKWARD_INPUT; d++) {
      units[u].device_s[d] += seconds[d];
      units[u].issue_s[d] += sim_cost_launch_s(&kind->context, (sim_direction)d) * launches[d];
      kind->tensor_prefix[d][u + 1] = kind->tensor_prefix[d][u] + seconds[d];
    }
  }
  kind->units = units;
  return DP_OK;
}

double sim_predict_tensor_optimizer_s(const sim_predictor *p, const sim_device_kind *kind, int rank) {
  if (!p->tensor_link_of_worker) return 0;
  const int64_t bytes = plan_partial_gradient_bytes(&p->out->plan, &p->out->graph, rank);
  return bytes > 0 ? collective_s(p, kind->link, GRAPH_COLLECTIVE_ALL_REDUCE, bytes) : 0;
}

void sim_predict_tensor_keep_step(sim_predictor *p) {
  const plan_plan *plan = &p->out->plan;
  const int workers = plan_worker_count(plan), tensor = plan_tensor(plan);
  for (int w = 0; tensor > 1 && w < workers; w++) {
    if (plan_worker_member(plan, w) != 0) continue;
    int slowest = p->kind_of_worker[w];
    for (int m = 1; m < tensor; m++) {
      const int kind = p->kind_of_worker[w + m * plan->ranks];
      if (p->kinds[kind].model_s > p->kinds[slowest].model_s) slowest = kind;
    }
    for (int m = 0; m < tensor; m++) p->kind_of_worker[w + m * plan->ranks] = slowest;
  }
}
