#include "plan/profile_run_links.h"

#include <math.h>
#include <string.h>

#include "base/median.h"
#include "plan/profile_exchanges.h"
#include "plan/profile_run.h"
#include "plan/transport.h"

static const double LONE = 0.05; /* of a message's time: so much compute is none */

typedef DP_ARRAY(double) series;

typedef struct finder {
  const plan_timeline *timeline;
  const plan_program *program;
  const plan_cluster *cluster;
  plan_groups groups;
  plan_profile_link link; /* of the way at hand; gpus 0: none was found */
  plan_exchanges all;
  series handovers;
  dp_error *error;
} finder;

static const plan_device *device_of(const finder *f, uint32_t worker) {
  return &f->cluster->devices.items[f->program->plan->devices[worker]];
}

bool plan_profile_is_apart(const plan_program *program, const plan_cluster *cluster, const plan_message *message) {
  const finder f = {.program = program, .cluster = cluster};
  return cluster && program->plan->devices &&
         plan_devices_are_apart(device_of(&f, message->from_worker), device_of(&f, message->to_worker));
}

/* The share of a time in which a worker's compute lane was at work. */
static double computes(const finder *f, uint32_t worker, double from_s, double to_s) {
  const plan_lane *lane = &f->program->lanes[f->program->worker_lane[worker]];
  double sum_s = 0;
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++)
    sum_s += fmax(0, fmin(to_s, f->timeline->end_s[i]) - fmax(from_s, f->timeline->start_s[i]));
  return sum_s / (to_s - from_s);
}

static dp_status keep(finder *f, double bytes, uint32_t one, uint32_t other, double from_s, double to_s) {
  if (to_s <= from_s || bytes <= 0) return DP_OK;
  const double share = fmax(computes(f, one, from_s, to_s), computes(f, other, from_s, to_s));
  const plan_exchange made = {bytes, to_s - from_s, share > LONE,
                              f->all.count % PLAN_PROFILE_ASIDE == PLAN_PROFILE_ASIDE - 1};
  return dp_array_push(&f->all, made) ? DP_OK : dp_fail_memory(f->error);
}

/* ---- messages ---- */

/* Whether it goes by the link; the first that can says which that is. */
static dp_status find_message_link(finder *f, const plan_message *message, bool *goes) {
  const plan_plan *plan = f->program->plan;
  const int from = (int)message->from_worker, to = (int)message->to_worker;
  plan_route route;
  *goes = false;
  if (!plan_profile_is_apart(f->program, f->cluster, message)) return DP_OK;
  const plan_transport transport = plan_transport_of(plan, f->cluster, from, to);
  if (transport == PLAN_TRANSPORT_NCCL && plan->nccl_sms) return DP_OK;
  DP_TRY(plan_transport_route(plan, f->cluster, from, to, &route, f->error));
  if (!route.limiting) return DP_OK;
  const plan_profile_way way = transport == PLAN_TRANSPORT_HOST   ? PLAN_PROFILE_HOST
                               : transport == PLAN_TRANSPORT_NCCL ? PLAN_PROFILE_NCCL
                                                                  : PLAN_PROFILE_LOCAL;
  if (f->link.gpus == 0)
    f->link = (plan_profile_link){.way = way,
                                  .link = route.limiting->name,
                                  .link_bytes_per_s = route.bandwidth_bytes_per_s,
                                  .link_latency_s = route.latency_s,
                                  .gpus = plan_worker_count(plan)};
  *goes = f->link.way == way && strcmp(f->link.link, route.limiting->name) == 0;
  return DP_OK;
}

/* What waited for the message first, after its end. */
static dp_status keep_handover(finder *f, uint32_t recv, double before_s) {
  const uint32_t lane = plan_instruction_lane(f->program, recv);
  const uint32_t compute = f->program->worker_lane[f->program->lanes[lane].worker];
  const plan_lane *of = &f->program->lanes[compute];
  for (uint32_t i = of->first; i < of->first + of->count; i++) {
    uint32_t by;
    const double released_s = plan_released_s(f->timeline, compute, i, &by);
    if (by != recv) continue;
    const double s = fmax(0, before_s) + fmax(0, f->timeline->start_s[i] - released_s);
    return dp_array_push(&f->handovers, s) ? DP_OK : dp_fail_memory(f->error);
  }
  return DP_OK;
}

static dp_status keep_message(finder *f, uint32_t lane, uint32_t i) {
  const plan_instruction *recv = &f->program->instructions[i];
  const plan_message *message = &f->program->messages[recv->class_id];
  const uint32_t send_lane = plan_instruction_lane(f->program, recv->peer);
  bool goes;
  uint32_t by;
  DP_TRY(find_message_link(f, message, &goes));
  if (!goes) return DP_OK;
  const double ready_s =
      fmax(plan_released_s(f->timeline, lane, i, &by), plan_released_s(f->timeline, send_lane, recv->peer, &by));
  const double start_s = fmax(ready_s, f->timeline->start_s[i]);
  DP_TRY(keep_handover(f, i, f->timeline->start_s[i] - ready_s));
  return keep(f, (double)message->bytes, message->from_worker, message->to_worker, start_s, f->timeline->end_s[i]);
}

/* ---- all-reduces ---- */

static dp_status find_sum_link(finder *f, const plan_collective *c, bool *goes) {
  const uint32_t *members = &f->program->group_members[c->first_member];
  const plan_plan *plan = f->program->plan;
  plan_route route;
  *goes = false;
  if (c->norm || c->member_count < 2 || plan->nccl_sms || !plan->devices ||
      plan_transport_of_group(plan, f->cluster, members, c->member_count) != PLAN_TRANSPORT_NCCL)
    return DP_OK;
  for (uint32_t m = 1; m < c->member_count; m++)
    if (!plan_devices_are_apart(device_of(f, members[m - 1]), device_of(f, members[m]))) return DP_OK;
  DP_TRY(plan_cluster_route(f->cluster, plan->devices[members[0]], plan->devices[members[1]], &route, f->error));
  if (!route.limiting) return DP_OK;
  if (f->link.gpus == 0)
    f->link = (plan_profile_link){.way = PLAN_PROFILE_ALL_REDUCE,
                                  .link = route.limiting->name,
                                  .link_bytes_per_s = route.bandwidth_bytes_per_s,
                                  .link_latency_s = route.latency_s,
                                  .gpus = c->member_count};
  *goes = f->link.gpus == c->member_count && strcmp(f->link.link, route.limiting->name) == 0;
  return DP_OK;
}

/* Once, by its first member. */
static dp_status keep_sum(finder *f, uint32_t i) {
  const uint32_t group = f->program->instructions[i].peer;
  const plan_collective *c = &f->program->collectives[f->program->instructions[i].class_id];
  bool goes;
  if (f->groups.ids[f->groups.first[group]] != i) return DP_OK;
  DP_TRY(find_sum_link(f, c, &goes));
  if (!goes) return DP_OK;
  double start_s = 0, end_s = 0;
  for (uint32_t m = f->groups.first[group]; m < f->groups.first[group + 1]; m++) {
    start_s = fmax(start_s, f->timeline->start_s[f->groups.ids[m]]);
    end_s = fmax(end_s, f->timeline->end_s[f->groups.ids[m]]);
  }
  const uint32_t *members = &f->program->group_members[c->first_member];
  return keep(f, (double)c->bytes, members[0], members[1], start_s, end_s);
}

/* ---- into the profile ---- */

static dp_status add_link(finder *f, plan_profile *profile) {
  size_t aside;
  DP_TRY(plan_exchanges_points(&f->all, 0, 1, &f->link.points, f->error));
  if (f->link.points.count == 0) return DP_OK;
  DP_TRY(plan_profile_fill_points(&f->link.points, f->error));
  DP_TRY(plan_exchanges_error(&f->all, &f->link.points, &f->link.error, &aside, f->error));
  f->link.handover_s = dp_median(f->handovers.items, f->handovers.count);
  DP_TRY(plan_profile_set_link(profile, &f->link, f->error));
  f->link.points = (plan_profile_points){.items = NULL}; /* the profile's now */
  return DP_OK;
}

static dp_status find_all(finder *f, plan_lane_kind kind) {
  for (uint32_t l = 0; l < f->program->lane_count; l++) {
    const plan_lane *lane = &f->program->lanes[l];
    for (uint32_t i = lane->first; lane->kind == kind && i < lane->first + lane->count; i++)
      DP_TRY(kind == PLAN_LANE_RECV ? keep_message(f, l, i) : keep_sum(f, i));
  }
  return DP_OK;
}

dp_status plan_profile_links_of_run(const plan_timeline *timeline, const plan_cluster *cluster, plan_profile *profile,
                                    dp_error *error) {
  static const plan_lane_kind kinds[] = {PLAN_LANE_RECV, PLAN_LANE_COLLECTIVE};
  dp_arena arena = {0};
  finder f = {.timeline = timeline, .program = timeline->program, .cluster = cluster, .error = error};
  dp_status status = plan_groups_of(timeline->program, &arena, &f.groups, error);
  for (int k = 0; k < 2 && status == DP_OK; k++) {
    f.link = (plan_profile_link){.gpus = 0};
    f.all.count = f.handovers.count = 0;
    status = find_all(&f, kinds[k]);
    if (status == DP_OK) status = add_link(&f, profile);
    dp_array_free(&f.link.points);
  }
  dp_array_free(&f.all);
  dp_array_free(&f.handovers);
  dp_arena_free(&arena);
  return status;
}
