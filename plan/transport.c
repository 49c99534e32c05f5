#include "plan/transport.h"

#include <math.h>

#include "plan/topology.h"

static const plan_device *device_of(const plan_plan *plan, const plan_cluster *cluster, int worker) {
  return &cluster->devices.items[plan->devices[worker]];
}

/* A card without peer access leaves and is entered by PCIe only through its socket's memory. */
static bool is_staged(const plan_cluster *cluster, const plan_card *from, const plan_card *to,
                      const plan_route *route) {
  const int *twin = cluster->topology->twin;
  for (int h = 0; h < route->count; h++)
    if ((!from->peer_to_peer && route->links[h] == from->chain[0]) ||
        (!to->peer_to_peer && route->links[h] == twin[to->chain[0]]))
      return true;
  return false;
}

bool plan_devices_are_peers(const plan_cluster *cluster, int device_a, int device_b) {
  const plan_device *a = &cluster->devices.items[device_a], *b = &cluster->devices.items[device_b];
  const plan_card *from = &cluster->topology->cards[a->card], *to = &cluster->topology->cards[b->card];
  if (a->node != b->node) return false;
  if (device_a == device_b || plan_device_is_processor(a->model) || plan_device_is_processor(b->model)) return true;
  if (a->card == b->card) return cluster->links.items[from->memory_link].model->kind != PLAN_LINK_HOST;
  if (from->peer_to_peer && to->peer_to_peer) return true;
  plan_route route;
  return plan_cluster_route(cluster, device_a, device_b, &route, NULL) == DP_OK &&
         !is_staged(cluster, from, to, &route);
}

plan_transport plan_transport_of(const plan_plan *plan, const plan_cluster *cluster, int worker_a, int worker_b) {
  const plan_transport wanted = plan->transport_wanted;
  if (!cluster || !cluster->topology || !plan->devices) return wanted == PLAN_TRANSPORT_AUTO ? PLAN_TRANSPORT_LOCAL : wanted;
  if (device_of(plan, cluster, worker_a)->node != device_of(plan, cluster, worker_b)->node) return PLAN_TRANSPORT_NCCL;
  if (wanted != PLAN_TRANSPORT_AUTO) return wanted;
  return plan_devices_are_peers(cluster, plan->devices[worker_a], plan->devices[worker_b]) ? PLAN_TRANSPORT_LOCAL
                                                                                           : PLAN_TRANSPORT_HOST;
}

plan_transport plan_transport_of_group(const plan_plan *plan, const plan_cluster *cluster, const uint32_t *workers,
                                       uint32_t count) {
  plan_transport of_all = plan->transport_wanted == PLAN_TRANSPORT_AUTO ? PLAN_TRANSPORT_LOCAL : plan->transport_wanted;
  for (uint32_t i = 1; i < count; i++) {
    const plan_transport of_two = plan_transport_of(plan, cluster, (int)workers[0], (int)workers[i]);
    if (of_two == PLAN_TRANSPORT_NCCL) return of_two;
    if (of_two == PLAN_TRANSPORT_HOST) of_all = of_two;
  }
  return of_all;
}

/* ---- routes ---- */

static const plan_link *link_of(const plan_cluster *cluster, int link) { return &cluster->links.items[link]; }

static dp_status fail_class(const plan_link_model *model, const char *what, dp_error *error) {
  return dp_fail(
      error, DP_BAD_INPUT,
      "transport: found no class of links \"%s-%s\", and none to estimate it by, needed: nvlink4, nvlink4-nccl "
      "and nvlink4-nccl-partition, pcie5-x16 and pcie5-x16-host, host-staged and nccl-sockets",
      model ? model->name : "parts of a card", what);
}

/* The route becomes that of class `to` instead of `from`. */
static void change_class(plan_route *route, const plan_link_model *from, const plan_link_model *to) {
  route->latency_s = fmax(route->latency_s + to->latency_s - from->latency_s, 0);
  route->limiting = to;
}

/* Links from one card's memory to the other's through the host's: filled into the route but for what it can carry. */
static dp_status path_through_host(const plan_cluster *cluster, const plan_device *from, const plan_device *to,
                                   plan_route *route, dp_error *error) {
  const plan_topology *topology = cluster->topology;
  const plan_card *up = &topology->cards[from->card], *down = &topology->cards[to->card];
  const int from_host = link_of(cluster, up->chain[up->chain_count - 1])->to,
            to_host = link_of(cluster, down->chain[down->chain_count - 1])->to;
  const int from_port = topology->device_port[from - cluster->devices.items],
            to_port = topology->device_port[to - cluster->devices.items];
  if (up->chain_count + down->chain_count + 3 > PLAN_MAX_HOPS)
    return dp_fail(error, DP_BAD_INPUT, "devices %s and %s are over %d links apart", from->name, to->name,
                   PLAN_MAX_HOPS);
  *route = (plan_route){.count = 0};
  if (from_port >= 0) route->links[route->count++] = from_port;
  for (int i = 0; i < up->chain_count; i++) route->links[route->count++] = up->chain[i];
  for (int a = cluster->first_link[from_host]; from_host != to_host && a < cluster->first_link[from_host + 1]; a++)
    if (link_of(cluster, cluster->adjacent_links[a])->to == to_host) {
      route->links[route->count++] = cluster->adjacent_links[a];
      break;
    }
  for (int i = down->chain_count; i-- > 0;) route->links[route->count++] = topology->twin[down->chain[i]];
  if (to_port >= 0) route->links[route->count++] = topology->twin[to_port];
  return DP_OK;
}

/* What the path carries and takes, its first and last card links counting as what copies through the host reach. */
static dp_status route_through_host(const plan_cluster *cluster, const plan_device *from, const plan_device *to,
                                    plan_route *route, dp_error *error) {
  DP_TRY(path_through_host(cluster, from, to, route, error));
  route->bandwidth_bytes_per_s = INFINITY;
  for (int h = 0; h < route->count; h++) {
    const plan_link *link = link_of(cluster, route->links[h]);
    const plan_link_model *model = link->model;
    double bandwidth = link->bandwidth_bytes_per_s, latency_s = link->latency_s;
    const bool of_card = link->from == from->vertex || link->to == to->vertex ||
                         cluster->vertices.items[link->from].kind == PLAN_VERTEX_CARD ||
                         cluster->vertices.items[link->to].kind == PLAN_VERTEX_CARD;
    if (of_card && model->kind != PLAN_LINK_MEMORY) {
      const plan_link_class *class = plan_cluster_link_class(cluster, model);
      if (!class || !class->host) return fail_class(model, "host", error);
      bandwidth *= class->host->bandwidth_bytes_per_s / model->bandwidth_bytes_per_s;
      latency_s += (class->host->latency_s - model->latency_s) / 2;
      model = class->host;
    }
    route->latency_s += fmax(latency_s, 0);
    if (bandwidth < route->bandwidth_bytes_per_s) {
      route->bandwidth_bytes_per_s = bandwidth;
      route->limiting = model;
    }
  }
  return DP_OK;
}

/* Parts of one card meet in its PCIe links; what they reach so was measured over links of one class. */
static dp_status route_parts(const plan_cluster *cluster, const plan_device *from, const plan_device *to,
                             const plan_link_model *class, const plan_link_model *measured_over, plan_route *route,
                             dp_error *error) {
  const plan_link *up = link_of(cluster, cluster->topology->cards[from->card].chain[0]);
  if (!class) return fail_class(NULL, measured_over ? "host" : "nccl", error);
  DP_TRY(path_through_host(cluster, from, to, route, error));
  const double carried = up->bandwidth_bytes_per_s;
  route->bandwidth_bytes_per_s = class->bandwidth_bytes_per_s;
  if (measured_over) route->bandwidth_bytes_per_s *= carried / measured_over->bandwidth_bytes_per_s;
  route->bandwidth_bytes_per_s = fmin(route->bandwidth_bytes_per_s, carried);
  route->latency_s = class->latency_s;
  route->limiting = class;
  return DP_OK;
}

/* NCCL over the route, on multiprocessors of its own where the plan keeps some. */
static dp_status route_nccl(const plan_plan *plan, const plan_device *from, const plan_device *to,
                            const plan_link_class *class, plan_route *route, dp_error *error) {
  if (!class || !class->nccl || (plan->nccl_sms && !class->partition))
    return fail_class(route->limiting, plan->nccl_sms ? "nccl-partition" : "nccl", error);
  const plan_link_model *model = class->model;
  route->bandwidth_bytes_per_s *= class->nccl->bandwidth_bytes_per_s / model->bandwidth_bytes_per_s;
  if (plan->nccl_sms == 0) {
    change_class(route, model, class->nccl);
    return DP_OK;
  }
  const plan_link_model *own = class->partition;
  int64_t kept = INT64_MAX;
  for (int end = 0; end < 2; end++) {
    const plan_device *device = end ? to : from;
    const int64_t rest =
        device->sm_count - plan_compute_sms(device->sm_count, plan_device_sm_step(device->model), plan->nccl_sms);
    if (rest < kept) kept = rest;
  }
  const double share = own->nccl_sms ? (double)kept / (double)own->nccl_sms : 1;
  route->bandwidth_bytes_per_s = fmin(route->bandwidth_bytes_per_s, own->bandwidth_bytes_per_s * share);
  change_class(route, model, own);
  return DP_OK;
}

/* Between machines: of the network link, whichever link is slowest. */
static const plan_link_class *network_class(const plan_cluster *cluster, const plan_route *route) {
  const plan_link_class *class = NULL;
  for (int h = 0; h < route->count && !class; h++) {
    const plan_link_model *model = link_of(cluster, route->links[h])->model;
    if (model->kind == PLAN_LINK_NETWORK) class = plan_cluster_link_class(cluster, model);
  }
  return class ? class : plan_cluster_link_class(cluster, route->limiting);
}

dp_status plan_transport_route_by(const plan_plan *plan, const plan_cluster *cluster, plan_transport transport,
                                  int from_device, int to_device, plan_route *route, dp_error *error) {
  const plan_device *from = &cluster->devices.items[from_device], *to = &cluster->devices.items[to_device];
  const bool parts = from->card == to->card && from_device != to_device && from->parts > 1;
  if (transport == PLAN_TRANSPORT_HOST && from_device != to_device &&
      plan_devices_are_peers(cluster, from_device, to_device) && !plan_device_is_processor(from->model))
    return parts ? route_parts(cluster, from, to, cluster->classes.parts_host, cluster->classes.parts_host_link, route,
                               error)
                 : route_through_host(cluster, from, to, route, error);
  if (transport == PLAN_TRANSPORT_NCCL && parts) {
    const plan_link_class *sockets = &cluster->classes.parts_nccl;
    DP_TRY(route_parts(cluster, from, to, sockets->model, NULL, route, error));
    return route_nccl(plan, from, to, sockets, route, error);
  }
  DP_TRY(plan_cluster_route(cluster, from_device, to_device, route, error));
  if (transport != PLAN_TRANSPORT_NCCL || route->count == 0 || plan_device_is_processor(from->model)) return DP_OK;
  if (from->node == to->node)
    return route_nccl(plan, from, to, plan_cluster_link_class(cluster, route->limiting), route, error);
  /* the figures of networks are NCCL's own */
  return plan->nccl_sms ? route_nccl(plan, from, to, network_class(cluster, route), route, error) : DP_OK;
}

dp_status plan_transport_route(const plan_plan *plan, const plan_cluster *cluster, int from_worker, int to_worker,
                               plan_route *route, dp_error *error) {
  return plan_transport_route_by(plan, cluster, plan_transport_of(plan, cluster, from_worker, to_worker),
                                 plan->devices[from_worker], plan->devices[to_worker], route, error);
}

/* ---- what is refused ---- */

static dp_status fail_processor(const plan_device *device, const char *found, const char *allowed, dp_error *error) {
  return dp_fail(error, DP_BAD_INPUT, "%s for %s, %s, a processor, allowed: %s", found, device->name,
                 device->model->name, allowed);
}

/* Neighbours in a pipeline exchange data under every schedule, the last and the first under some. */
static dp_status check_peers(const plan_plan *plan, const plan_cluster *cluster, dp_error *error) {
  for (int w = 0; w < plan_worker_count(plan); w++) {
    const int rank = plan_worker_rank(plan, w), other = w - rank + (rank + 1) % plan->ranks;
    const plan_device *a = device_of(plan, cluster, w), *b = device_of(plan, cluster, other);
    if (a->node != b->node || plan_devices_are_peers(cluster, plan->devices[w], plan->devices[other])) continue;
    return dp_fail(error, DP_BAD_INPUT,
                   "transport: found \"local\" for %s and %s, which have no peer access, allowed: auto, nccl or host",
                   a->name, b->name);
  }
  return DP_OK;
}

dp_status plan_transport_check(const plan_plan *plan, const plan_cluster *cluster, dp_error *error) {
  const plan_transport wanted = plan->transport_wanted;
  if (wanted == PLAN_TRANSPORT_AUTO) return DP_OK;
  if (wanted == PLAN_TRANSPORT_LOCAL) return check_peers(plan, cluster, error);
  for (int w = 0; w < plan_worker_count(plan); w++) {
    const plan_device *device = device_of(plan, cluster, w);
    if (plan_device_is_processor(device->model))
      return fail_processor(device,
                            wanted == PLAN_TRANSPORT_NCCL ? "transport: found \"nccl\"" : "transport: found \"host\"",
                            "auto or local", error);
  }
  return DP_OK;
}

dp_status plan_nccl_sms_check(const plan_plan *plan, const plan_cluster *cluster, dp_error *error) {
  for (int w = 0; plan->nccl_sms > 0 && w < plan_worker_count(plan); w++) {
    const plan_device *device = device_of(plan, cluster, w);
    const int64_t step = plan_device_sm_step(device->model);
    if (plan_device_is_processor(device->model))
      return fail_processor(device, "nccl_sms: found multiprocessors", "0", error);
    if (plan_compute_sms(device->sm_count, step, plan->nccl_sms) < step)
      return dp_fail(
          error, DP_BAD_INPUT,
          "nccl_sms: found %d of the %lld multiprocessors of %s, allowed: at most %lld, which leaves compute "
          "its least, %lld",
          plan->nccl_sms, (long long)device->sm_count, device->name,
          (long long)(device->sm_count > step ? device->sm_count - step : 0), (long long)step);
  }
  return DP_OK;
}
