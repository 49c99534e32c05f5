/* Messages and all-reduces that a profile has measured: workers of one machine's processors, parts of one card, and whole
 * GPUs of one host. Of the last, with t(n) what a message of n bytes took, f what the smallest measured one did:
 *
 *   seconds       handover + f + (t(n) - f) / r;  r: what this cluster says its slowest link of that way carries, over
 *                 what the one that was measured was said to. What it says of latency more or less is added
 *   links         carry more or less than the cluster says in the proportion in which the largest message did
 *   both ways     where they were slower than two messages each by itself, what goes into a GPU and out of it shares what
 *                 both reached; where all neighbours at once were slower than that, all of the host share what these did
 *
 * An all-reduce of n GPUs where m were measured takes what these did, times NCCL's cost model of n over that of m.
 */
#include <math.h>
#include <string.h>

#include "plan/transport.h"
#include "sim/predictor.h"

static const double AS_FAST = 0.95; /* from so much on, what goes at once is as fast as by itself */

static const plan_device *device_of(const sim_predictor *p, int worker) {
  return &p->scenario->cluster.devices.items[sim_worker_device(&p->out->plan, worker)];
}

/* That of both workers; NULL: they have none, or two. */
static const plan_profile *common_profile(const sim_predictor *p, int from, int to) {
  const plan_profile *profile = p->kinds[p->kind_of_worker[from]].context.profile;
  return profile == p->kinds[p->kind_of_worker[to]].context.profile ? profile : NULL;
}

static dp_status keep_links(sim_predictor *p, const plan_route *route, const int *more, int more_count,
                            sim_transfer *transfer) {
  int *links = SIM_SCRATCH(p, int, route->count + more_count);
  if (!links) return dp_fail_memory(p->error);
  memcpy(links, route->links, (size_t)route->count * sizeof *links);
  for (int i = 0; i < more_count; i++) links[route->count + i] = more[i];
  transfer->links = links;
  transfer->hops = route->count + more_count;
  return DP_OK;
}

/* ---- in the memory of one machine, or of one card ---- */

/* How long messages take by size; NULL: that is not known. */
static const plan_profile_points *shared_points(const sim_predictor *p, const plan_profile *profile, int from, int to) {
  const plan_device *a = device_of(p, from), *b = device_of(p, to);
  if (plan_device_is_processor(a->model) ? a->node != b->node : a->card != b->card) return NULL;
  const bool host = !plan_device_is_processor(a->model) &&
                    plan_transport_of(&p->out->plan, &p->scenario->cluster, from, to) == PLAN_TRANSPORT_HOST;
  const plan_profile_points *points = host ? &profile->staged : &profile->copies;
  return points->count ? points : NULL;
}

void sim_predict_as_measured(const plan_profile *profile, plan_profile_point point, sim_transfer *transfer) {
  transfer->hops = 0;
  transfer->latency_s = transfer->busy_latency_s = profile->handover_s;
  transfer->cap_bytes_per_s = transfer->bytes / point.alone_s;
  transfer->busy_cap_bytes_per_s = transfer->bytes / point.busy_s;
  transfer->compute_slowdown = profile->copy_slowdown;
}

/* Messages between parts of a card share what they reached together; where that is not known, nothing. */
static dp_status shared_message(sim_predictor *p, const plan_profile *profile, const plan_profile_points *points,
                                const plan_route *route, bool processors, sim_transfer *transfer) {
  const double together = points == &profile->staged ? profile->staged_bytes_per_s : profile->copies_bytes_per_s;
  sim_predict_as_measured(profile, plan_profile_at(points->items, points->count, transfer->bytes), transfer);
  if (processors) sim_predict_hand_over(profile, transfer);
  /* the slowdown is of copies within the card, by the memory that they take from it: through the host they take less */
  if (points == &profile->staged && profile->copies_bytes_per_s > 0)
    transfer->compute_slowdown *= fmin(1, profile->staged_bytes_per_s / profile->copies_bytes_per_s);
  if (together <= 0) return DP_OK;
  for (int h = 0; h < route->count; h++) p->link_capacity[route->links[h]] = together;
  return keep_links(p, route, NULL, 0, transfer);
}

/* ---- between whole GPUs ---- */

static const plan_profile_link *apart_link(const sim_predictor *p, const plan_profile *profile, int from, int to,
                                           const plan_route *route) {
  const plan_plan *plan = &p->out->plan;
  if (!plan_devices_are_apart(device_of(p, from), device_of(p, to)) || !route->limiting) return NULL;
  switch (plan_transport_of(plan, &p->scenario->cluster, from, to)) {
    case PLAN_TRANSPORT_LOCAL:
      return plan_profile_find_link(profile, PLAN_PROFILE_LOCAL, route->limiting->name);
    case PLAN_TRANSPORT_HOST:
      return plan_profile_find_link(profile, PLAN_PROFILE_HOST, route->limiting->name);
    case PLAN_TRANSPORT_NCCL: /* on multiprocessors of its own it was not measured */
      return plan->nccl_sms ? NULL : plan_profile_find_link(profile, PLAN_PROFILE_NCCL, route->limiting->name);
    default:
      return NULL;
  }
}

/* The point of a size, over links that carry `ratio` times what the measured ones do. */
static plan_profile_point point_of(const plan_profile_link *link, double bytes, double ratio) {
  const plan_profile_point *first = &link->points.items[0];
  plan_profile_point at = plan_profile_at(link->points.items, link->points.count, bytes);
  const double fixed_s = fmin(first->alone_s, at.alone_s), busy_fixed_s = fmin(first->busy_s, at.busy_s);
  at.alone_s = fixed_s + (at.alone_s - fixed_s) / ratio;
  at.busy_s = busy_fixed_s + (at.busy_s - busy_fixed_s) / ratio;
  return at;
}

static void cost_by(const plan_profile_link *link, plan_profile_point point, double latency_s, sim_transfer *transfer) {
  transfer->latency_s = transfer->busy_latency_s = fmax(0, link->handover_s + latency_s - link->link_latency_s);
  transfer->cap_bytes_per_s = transfer->bytes / point.alone_s;
  transfer->busy_cap_bytes_per_s = transfer->bytes / point.busy_s;
  transfer->compute_slowdown = link->slowdown;
  transfer->waiting_slowdown = link->waiting_slowdown;
}

/* Of a message between two devices: what it shares beside the links of its route, into more[3]. */
static int find_shared(sim_predictor *p, const plan_profile_link *link, double reached, double ratio, int from, int to,
                       int *more) {
  const plan_cluster *cluster = &p->scenario->cluster;
  const int devices = (int)cluster->links.count, nodes = devices + (int)cluster->devices.count;
  const double each_both = link->both_bytes_per_s > 0 ? link->both_bytes_per_s : 2 * reached;
  const int ends[2] = {from, to};
  int count = 0;
  for (int e = 0; e < 2 && each_both < AS_FAST * 2 * reached; e++) {
    more[count] = devices + sim_worker_device(&p->out->plan, ends[e]);
    p->link_capacity[more[count++]] = each_both * ratio;
  }
  if (link->together_bytes_per_s > 0 &&
      link->together_bytes_per_s < AS_FAST * (double)(link->gpus - 1) * fmin(each_both, 2 * reached) / 2 &&
      link->gpus > 2) {
    more[count] = nodes + device_of(p, from)->node;
    p->link_capacity[more[count++]] = link->together_bytes_per_s * ratio;
  }
  return count;
}

static dp_status apart_message(sim_predictor *p, const plan_profile_link *link, int from, int to,
                               const plan_route *route, sim_transfer *transfer) {
  const plan_profile_point *largest = &link->points.items[link->points.count - 1];
  const double ratio = route->bandwidth_bytes_per_s / link->link_bytes_per_s;
  const double reached = largest->bytes / largest->alone_s;
  int more[3];
  cost_by(link, point_of(link, transfer->bytes, ratio), route->latency_s, transfer);
  for (int h = 0; h < route->count; h++)
    p->link_capacity[route->links[h]] =
        p->scenario->cluster.links.items[route->links[h]].bandwidth_bytes_per_s * reached / link->link_bytes_per_s;
  const int count = find_shared(p, link, reached, ratio, from, to, more);
  return keep_links(p, route, more, count, transfer);
}

dp_status sim_predict_measured_message(sim_predictor *p, int from, int to, const plan_route *route,
                                       sim_transfer *transfer, bool *measured) {
  const plan_profile *profile = common_profile(p, from, to);
  *measured = false;
  if (!profile || transfer->bytes <= 0) return DP_OK;
  const plan_profile_points *points = shared_points(p, profile, from, to);
  const plan_profile_link *link = points ? NULL : apart_link(p, profile, from, to, route);
  *measured = points || link;
  if (points)
    return shared_message(p, profile, points, route, plan_device_is_processor(device_of(p, from)->model), transfer);
  return link ? apart_message(p, link, from, to, route, transfer) : DP_OK;
}

/* ---- NCCL's all-reduce ---- */

static const plan_profile_link *sum_link(const sim_predictor *p, const uint32_t *members, int count,
                                         const plan_link_model *limiting) {
  const plan_profile *profile = p->kinds[p->kind_of_worker[members[0]]].context.profile;
  if (!profile || p->out->plan.nccl_sms) return NULL;
  for (int m = 1; m < count; m++)
    if (common_profile(p, (int)members[0], (int)members[m]) != profile ||
        !plan_devices_are_apart(device_of(p, (int)members[m - 1]), device_of(p, (int)members[m])))
      return NULL;
  return plan_profile_find_link(profile, PLAN_PROFILE_ALL_REDUCE, limiting->name);
}

/* Links of the ring that would hold up what was measured carry it. */
static void widen(sim_predictor *p, const plan_profile_link *link, const sim_transfer *transfer) {
  const plan_profile_point *largest = &link->points.items[link->points.count - 1];
  const double each = 2 * (double)(link->gpus - 1) / (double)link->gpus * largest->bytes / largest->alone_s;
  for (int h = 0; h < transfer->hops; h++) {
    double *capacity = &p->link_capacity[transfer->links[h]];
    const plan_link *known = &p->scenario->cluster.links.items[transfer->links[h]];
    *capacity = fmax(*capacity, known->bandwidth_bytes_per_s * each / link->link_bytes_per_s);
  }
}

bool sim_predict_measured_sum(sim_predictor *p, const plan_collective *collective, const int *devices,
                              const plan_link_model *limiting, double ring_bytes_per_s, sim_transfer *transfer) {
  const plan_nccl_model *model = p->scenario->catalogue.nccl;
  const uint32_t *members = &p->out->program.group_members[collective->first_member];
  const int count = (int)collective->member_count;
  const plan_profile_link *link = sum_link(p, members, count, limiting);
  if (!link) return false;
  plan_nccl_query query = plan_nccl_query_of(model, &p->scenario->cluster, devices, count, ring_bytes_per_s);
  query.op = PLAN_NCCL_ALL_REDUCE;
  query.bytes = (double)collective->bytes;
  plan_nccl_query measured = query;
  measured.ranks = (int)link->gpus;
  const double others = plan_nccl_time_s(model, &query, NULL) / plan_nccl_time_s(model, &measured, NULL);
  plan_profile_point point = point_of(link, query.bytes, ring_bytes_per_s / link->link_bytes_per_s);
  point.alone_s *= others;
  point.busy_s *= others;
  cost_by(link, point, link->link_latency_s, transfer);
  widen(p, link, transfer);
  return true;
}
