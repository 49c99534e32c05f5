#define _POSIX_C_SOURCE 200809L
#include "cli/calibrate_records.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/schema.h"
#include "cli/profile_report.h"
#include "plan/machine.h"
#include "profiler/scale.h"

typedef struct reading {
  const plan_scenario *scenario;
  const char *folder;
  cli_recorded recorded;
  cli_records_found *found;
  prof_side side;
  dp_error *error;
} reading;

/* ---- whose records they are ---- */

static dp_status find_device(reading *r) {
  const prof_session *session = &r->recorded.session;
  const prof_summary *summary = &r->recorded.summary;
  const plan_device_model *ours = r->scenario->cluster.devices.items[0].model;
  for (size_t s = 0; s < summary->streams.count; s++) {
    const prof_stream_row *row = &summary->streams.items[s];
    if (s > 0 && row[-1].process == row->process && row[-1].device == row->device) continue;
    const prof_device *device = prof_session_device(session, row->process, row->device);
    const plan_machine_gpu gpu = {.name = device ? device->name : "",
                                  .memory_bytes = device ? (int64_t)device->memory_bytes : 0};
    const plan_device_model *model = NULL;
    dp_error why = DP_ERROR_INIT;
    if (plan_machine_model(&gpu, &r->scenario->catalogue, &model, &why) != DP_OK || model != ours)
      return dp_fail(r->error, DP_BAD_INPUT,
                     "%s: found records of \"%.60s\" (%.60s), allowed: of the scenario's devices, %s; the scenario's "
                     "cluster must be of the cards that were recorded (--set cluster.file=FILE)",
                     r->folder, gpu.name, model ? model->name : "not in the catalogue", ours->name);
    if (r->found->devices++ == 0) (void)snprintf(r->found->device, sizeof r->found->device, "%s", gpu.name);
  }
  if (r->found->devices > 0) return DP_OK;
  return dp_fail(r->error, DP_BAD_INPUT,
                 "%s: found no work of a device in the records, allowed: what diffpipe profile -o DIR -- PROGRAM wrote "
                 "of a program that used CUDA",
                 r->folder);
}

/* The cluster names the classes of the links. */
static dp_status find_side(reading *r) {
  const plan_cluster *cluster = &r->scenario->cluster;
  const bool peers = r->found->links.ways[PROF_WAY_PEER].points.count > 0;
  if (peers && (cluster->devices.count < 2 || cluster->devices.items[0].node != cluster->devices.items[1].node))
    return dp_fail(r->error, DP_BAD_INPUT,
                   "%s: found copies between GPUs, whose link the scenario's cluster does not name (its first machine "
                   "has one), needed: a cluster that begins with two GPUs of one machine (--set cluster.file=FILE)",
                   r->folder);
  return prof_side_of(&r->scenario->catalogue, cluster, peers ? 2 : 1, &r->side, r->error);
}

static void count_rest(reading *r) {
  const prof_session *session = &r->recorded.session;
  const prof_summary *summary = &r->recorded.summary;
  r->found->processes = session->processes.count;
  for (size_t p = 0; p < session->processes.count; p++) {
    const prof_counts *counts = &session->processes.items[p].counts;
    r->found->lost += counts->no_buffer + counts->rotated + counts->not_written + counts->source;
  }
  for (size_t d = 0; d < summary->devices.count; d++)
    if (summary->devices.items[d].peak_bytes > r->found->peak_bytes)
      r->found->peak_bytes = summary->devices.items[d].peak_bytes;
}

/* ---- into the profile ---- */

static dp_status name_profile(const reading *r, plan_profile *profile) {
  char made[32] = "unknown";
  const time_t when = (time_t)(r->recorded.session.processes.items[0].header.realtime_ns / 1000000000);
  struct tm utc;
  if (gmtime_r(&when, &utc)) (void)strftime(made, sizeof made, "%Y-%m-%dT%H:%M:%SZ", &utc);
  profile->cores = profile->threads = profile->workers = 1;
  profile->precision = r->scenario->model_options.precision;
  profile->optimizer_busy_factor = 1;
  const struct {
    const char **to;
    const char *text;
  } strings[] = {{&profile->device, r->side.model->name},
                 {&profile->processor, r->found->device},
                 {&profile->implementation, r->scenario->implementation},
                 {&profile->gemm, "not known"},
                 {&profile->made, made}};
  for (size_t i = 0; i < DP_COUNT_OF(strings); i++) {
    *strings[i].to = dp_arena_strdup(&profile->arena, strings[i].text);
    if (!*strings[i].to) return dp_fail_memory(r->error);
  }
  return DP_OK;
}

/* Its class, and what the cluster says of it. */
static plan_profile_link link_of(const reading *r, prof_way way) {
  static const plan_profile_way ways[PROF_WAY_NCCL] = {[PROF_WAY_TO_DEVICE] = PLAN_PROFILE_TO_DEVICE,
                                                       [PROF_WAY_TO_HOST] = PLAN_PROFILE_TO_HOST,
                                                       [PROF_WAY_ON_DEVICE] = PLAN_PROFILE_ON_DEVICE,
                                                       [PROF_WAY_PEER] = PLAN_PROFILE_LOCAL};
  const prof_side *side = &r->side;
  const prof_link *from = &r->found->links.ways[way];
  plan_profile_link link = {.way = ways[way],
                            .gpus = way == PROF_WAY_PEER ? (r->found->devices > 2 ? r->found->devices : 2) : 1,
                            .slowdown = from->slowdown,
                            .error = from->error,
                            .link = "memory",
                            .link_bytes_per_s = side->model->memory_bandwidth_bytes_per_s};
  if (way == PROF_WAY_PEER) {
    link.link = side->peer.limiting->name;
    link.link_bytes_per_s = side->peer.bandwidth_bytes_per_s;
    link.link_latency_s = side->peer.latency_s;
  } else if (way != PROF_WAY_ON_DEVICE) {
    link.link = side->host ? side->host->model->name : "host";
    link.link_bytes_per_s = side->host ? side->host->bandwidth_bytes_per_s : 1;
    link.link_latency_s = side->host ? side->host->latency_s : 0;
  }
  return link;
}

static dp_status set_links(const reading *r, plan_profile *profile) {
  const prof_links *links = &r->found->links;
  for (int way = 0; way < PROF_WAY_NCCL; way++) {
    const plan_profile_points *points = &links->ways[way].points;
    dp_status status = DP_OK;
    if (points->count == 0) continue; /* of one GPU there is no way to another */
    plan_profile_link link = link_of(r, (prof_way)way);
    for (size_t i = 0; i < points->count && status == DP_OK; i++)
      if (!dp_array_push(&link.points, points->items[i])) status = dp_fail_memory(r->error);
    if (status == DP_OK) status = plan_profile_set_link(profile, &link, r->error);
    if (status != DP_OK) dp_array_free(&link.points);
    DP_TRY(status);
  }
  const double least = 1e-6; /* 0 is: not known */
  if (links->ways[PROF_WAY_NCCL].kernels) profile->nccl_slowdown = fmax(least, links->ways[PROF_WAY_NCCL].slowdown);
  if (links->launch_s > 0) profile->launch_s = links->launch_s;
  return DP_OK;
}

static bool tells(const prof_links *links) {
  bool any = links->launch_s > 0;
  for (int way = 0; way < PROF_WAY_COUNT; way++)
    any = any || links->ways[way].points.count > 0 || links->ways[way].kernels > 0;
  return any;
}

static dp_status read_all(reading *r, plan_profile *profile) {
  const cli_recorded_how how = {.range = NULL};
  if (r->scenario->synthetic)
    return dp_fail_at(r->error, plan_scenario_node(r->scenario, "model", "synthetic_units"),
                      "calibrate: found synthetic units, allowed: a model; such units cost what the scenario says");
  DP_TRY(cli_recorded_read(r->folder, &how, &r->recorded, r->error));
  DP_TRY(find_device(r));
  DP_TRY(prof_links_of(&r->recorded.session, r->recorded.classes, &r->found->links, r->error));
  if (!tells(&r->found->links))
    return dp_fail(r->error, DP_BAD_INPUT,
                   "%s: found no size that was copied %d times, alone or beside compute, and no kernel that ran alone "
                   "and beside messages as often, allowed: a longer recording",
                   r->folder, LINKS_LEAST);
  DP_TRY(find_side(r));
  count_rest(r);
  if (!profile->device) DP_TRY(name_profile(r, profile));
  if (strcmp(profile->device, r->side.model->name) != 0)
    return dp_fail(r->error, DP_BAD_INPUT, "%s: found records of %s, allowed: of the profile's device, %s", r->folder,
                   r->side.model->name, profile->device);
  return set_links(r, profile);
}

dp_status cli_calibrate_records(const plan_scenario *scenario, const char *folder, plan_profile *profile,
                                cli_records_found *found, dp_error *error) {
  cli_records_found made = {.devices = 0};
  reading r = {.scenario = scenario, .folder = folder, .found = &made, .error = error};
  const dp_status status = read_all(&r, profile);
  cli_recorded_free(&r.recorded);
  if (status == DP_OK)
    *found = made;
  else
    cli_records_found_free(&made);
  return status;
}

void cli_records_found_free(cli_records_found *found) {
  prof_links_free(&found->links);
  *found = (cli_records_found){.devices = 0};
}
