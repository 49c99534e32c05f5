#include "plan/transport.h"

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
  if (!cluster || !plan->devices) return wanted == PLAN_TRANSPORT_AUTO ? PLAN_TRANSPORT_LOCAL : wanted;
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

static dp_status fail_processor(const plan_device *device, const char *found, const char *allowed, dp_error *error) {
  return dp_fail(error, DP_BAD_INPUT, "%s for %s, %s, a processor, allowed: %s", found, device->name,
                 device->model->name, allowed);
}

/* Neighbours in a pipeline exchange data under every schedule, the last and the first under some. */
static dp_status check_peers(const plan_plan *plan, const plan_cluster *cluster, dp_error *error) {
  for (int w = 0; w < plan_worker_count(plan); w++) {
    const int rank = plan_worker_rank(plan, w), other = w - rank + (rank + 1) % plan->ranks;
    const plan_device *a = device_of(plan, cluster, w), *b = device_of(plan, cluster, other);
    if (a->node != b->node || a->card == b->card ||
        plan_devices_are_peers(cluster, plan->devices[w], plan->devices[other]))
      continue;
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
