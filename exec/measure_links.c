#define _POSIX_C_SOURCE 200809L
#include "exec/measure_links.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/median.h"
#include "exec/lanes.h"

enum { TIMES = 7, MOST_LANES = 64, MOST_STEPS = 64 };

/* Every other is kept aside. */
static const int64_t sizes[] = {4 << 10, 32 << 10, 128 << 10, 512 << 10, 1 << 20,  2 << 20,
                                4 << 20, 8 << 20,  16 << 20,  32 << 20,  64 << 20, 128 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes, HOST_SIZES = 5 };

/* Of the host's own memory fewer. */
static int sizes_of(const exec_pipeline *p) { return p->work.kind->deferred ? SIZES : HOST_SIZES; }
static int64_t most_bytes(const exec_pipeline *p) { return sizes[sizes_of(p) - 1]; }

/* Who computes meanwhile. */
typedef struct beside {
  exec_units_compute compute;
  void *data;
  atomic_bool stop;
  dp_status status;
  dp_error error;
  double steps_s[MOST_STEPS];
  size_t count;
} beside;

static void *keep_computing(void *data) {
  beside *b = data;
  while (!atomic_load(&b->stop) && b->status == DP_OK) {
    double seconds = 0;
    b->status = b->compute(b->data, -1, &seconds, &b->error);
    if (b->status == DP_OK && b->count < MOST_STEPS) b->steps_s[b->count++] = seconds;
  }
  return NULL;
}

static dp_status begin(beside *b, pthread_t *thread, dp_error *error) {
  atomic_store(&b->stop, false);
  b->count = 0;
  if (pthread_create(thread, NULL, keep_computing, b) != 0)
    return dp_fail(error, DP_UNSUPPORTED, "the system gives no more threads");
  dp_sleep_s(0.02); /* they have begun */
  return DP_OK;
}

static dp_status end(beside *b, pthread_t thread, dp_error *error) {
  atomic_store(&b->stop, true);
  (void)pthread_join(thread, NULL);
  return b->status == DP_OK ? DP_OK : dp_fail(error, b->status, "%s", b->error.text);
}

/* That are timed together: between two threads' messages lies more time than small ones take. */
static int messages_of(int way, int64_t bytes) { return way != EXEC_UNITS_NCCL ? 1 : bytes > 2 << 20 ? 4 : 16; }

/* On each of the first `count` lanes. */
static dp_status time_message(exec_pipeline *p, int count, int way, int64_t bytes, double *seconds, dp_error *error) {
  if (way == EXEC_UNITS_NCCL)
    return p->work.kind->time_pair(p, count > 1, bytes, messages_of(way, bytes), seconds, error);
  return p->work.kind->time_copies(p, count, way == EXEC_UNITS_HOST, bytes, seconds, error);
}

static dp_status time_one(exec_pipeline *p, int count, int way, int64_t bytes, double *seconds, dp_error *error) {
  double each[TIMES];
  for (int i = 0; i < TIMES; i++) DP_TRY(time_message(p, count, way, bytes, &each[i], error));
  *seconds = fmax(1e-9, dp_median(each, TIMES));
  return DP_OK;
}

/* All sizes, each way. */
static dp_status time_all(exec_units_links *l, exec_pipeline *p, bool alone, dp_error *error) {
  for (int way = 0; way < l->ways; way++)
    for (int s = 0; s < sizes_of(p); s++) {
      exec_units_copy *copy = &l->copies[way].items[s];
      DP_TRY(time_one(p, 1, way, sizes[s], alone ? &copy->alone_s : &copy->busy_s, error));
    }
  return DP_OK;
}

/* So many of the lanes at once. Those of one device share the room that there is for a copy. NCCL has those of the first
 * two workers alone. */
static dp_status time_together(const exec_units_links *l, exec_pipeline *p, int lanes, double *bytes_per_s,
                               dp_error *error) {
  const int64_t bytes = l->apart ? most_bytes(p) : most_bytes(p) / 8;
  for (int way = 0; way < (lanes > 2 ? EXEC_UNITS_NCCL : l->ways); way++) {
    double seconds;
    DP_TRY(time_one(p, lanes, way, bytes, &seconds, error));
    bytes_per_s[way] = lanes * (double)bytes / seconds;
  }
  return DP_OK;
}

/* What they take by themselves. */
static dp_status time_compute(const beside *b, int worker, double *compute_s, double *wall_s, dp_error *error) {
  enum { STEPS = 3 };
  double each_s[STEPS];
  const double began_s = dp_clock_s();
  for (int i = 0; i < STEPS; i++) DP_TRY(b->compute(b->data, worker, &each_s[i], error));
  *wall_s = dp_clock_s() - began_s;
  *compute_s = dp_median(each_s, STEPS);
  return DP_OK;
}

/* Messages without end while all compute: how much longer that takes them. A message touches two workers. On one device
 * it takes of what all share, and their part is as much as all lose; on devices of their own nobody else loses. */
static dp_status time_slowdown(exec_units_links *l, exec_pipeline *p, int way, beside *b, dp_error *error) {
  const double least = 0.01; /* that is more than chance */
  const int64_t bytes = most_bytes(p) / 2;
  pthread_t thread;
  double copied_s = 0, seconds, compute_s, wall_s;
  DP_TRY(time_compute(b, -1, &compute_s, &wall_s, error));
  DP_TRY(begin(b, &thread, error));
  const double began_s = dp_clock_s();
  dp_status status = DP_OK;
  while (status == DP_OK && dp_clock_s() - began_s < 1.2 * wall_s) {
    status = time_message(p, 1, way, bytes, &seconds, error);
    copied_s += status == DP_OK ? seconds * (way == EXEC_UNITS_NCCL ? 1 + messages_of(way, bytes) : 1) : 0;
  }
  const double share = fmin(1, copied_s / fmax(1e-9, dp_clock_s() - began_s));
  const dp_status ended = end(b, thread, status == DP_OK ? error : NULL);
  DP_TRY(status);
  DP_TRY(ended);
  if (b->count < 2 || share < 0.1 || compute_s <= 0) return DP_OK;
  b->count--; /* the last had the device for itself in the end */
  const double more = dp_median(b->steps_s, b->count) / compute_s - 1;
  if (more > least) l->slowdown[way] = fmin(1, more / share * p->work.program->worker_count / 2);
  return DP_OK;
}

/* What the second worker takes while its receive waits, over what it takes by itself. */
static dp_status time_waiting(exec_units_links *l, exec_pipeline *p, const beside *b, dp_error *error) {
  double bare_s, waiting_s = 0, wall_s;
  DP_TRY(time_compute(b, 1, &bare_s, &wall_s, error));
  DP_TRY(p->work.kind->wait_in_pair(p, true, error));
  const dp_status status = time_compute(b, 1, &waiting_s, &wall_s, error);
  DP_TRY(p->work.kind->wait_in_pair(p, false, status == DP_OK ? error : NULL));
  DP_TRY(status);
  if (bare_s > 0) l->waiting_slowdown = fmin(1, fmax(0, waiting_s / bare_s - 1));
  return DP_OK;
}

static dp_status time_handovers(exec_units_links *l, exec_pipeline *p, dp_error *error) {
  double each[TIMES];
  if (!p->work.kind->time_handover) return DP_OK;
  for (int i = 0; i < TIMES; i++) DP_TRY(p->work.kind->time_handover(p, &each[i], error));
  l->handover_s = fmax(0, dp_median(each, TIMES));
  return DP_OK;
}

/* The lane by which a worker receives from its neighbour; false: there is none. */
static bool find_lane(const plan_program *program, uint32_t worker, bool backward, uint32_t *found) {
  for (uint32_t l = program->worker_lane[worker]; l < program->worker_lane[worker + 1]; l++) {
    const plan_lane *lane = &program->lanes[l];
    if (lane->kind != PLAN_LANE_RECV || lane->backward != backward ||
        lane->peer != (backward ? worker + 1 : worker - 1))
      continue;
    *found = l;
    return true;
  }
  return false;
}

/* One from each worker's neighbour, forward; on devices of their own each is followed by the one back. */
static int find_lanes(const exec_pipeline *p, bool apart, uint32_t lanes[MOST_LANES]) {
  const plan_program *program = p->work.program;
  int count = 0;
  for (uint32_t w = 1; w < (uint32_t)program->worker_count && count + 1 < MOST_LANES; w++) {
    if (!find_lane(program, w, false, &lanes[count])) continue;
    if (!apart)
      count++;
    else if (find_lane(program, w - 1, true, &lanes[count + 1]))
      count += 2;
  }
  return count;
}

/* What the cluster says of the first two, by each way. */
static void find_routes(exec_units_links *l, const exec_pipeline *p, uint32_t lane) {
  static const plan_transport transports[EXEC_UNITS_WAYS] = {PLAN_TRANSPORT_LOCAL, PLAN_TRANSPORT_HOST,
                                                             PLAN_TRANSPORT_NCCL};
  const plan_cluster *cluster = p->work.options.cluster;
  const plan_plan *plan = p->work.plan;
  const plan_lane *of = &p->work.program->lanes[lane];
  for (int way = 0; way < l->ways && cluster && plan->devices; way++) {
    plan_route route;
    if (plan_transport_route_by(plan, cluster, transports[way], plan->devices[of->peer], plan->devices[of->worker],
                                &route, NULL) != DP_OK ||
        !route.limiting)
      continue;
    exec_units_route *kept = &l->routes[way];
    (void)snprintf(kept->link, sizeof kept->link, "%s", route.limiting->name);
    kept->bytes_per_s = route.bandwidth_bytes_per_s;
    kept->latency_s = route.latency_s;
  }
}

static dp_status measure(exec_units_links *l, exec_pipeline *p, beside *b, int lanes, dp_error *error) {
  pthread_t thread;
  for (int way = 0; way < l->ways; way++)
    for (int s = 0; s < sizes_of(p); s++) {
      const exec_units_copy copy = {.bytes = (double)sizes[s], .aside = s % 2 == 1 && s < sizes_of(p) - 1};
      if (!dp_array_push(&l->copies[way], copy)) return dp_fail_memory(error);
    }
  DP_TRY(time_all(l, p, true, error));
  if (l->apart) DP_TRY(time_together(l, p, 2, l->both_bytes_per_s, error));
  DP_TRY(time_handovers(l, p, error));
  DP_TRY(begin(b, &thread, error));
  dp_status status = time_all(l, p, false, error);
  if (status == DP_OK) status = time_together(l, p, lanes, l->together_bytes_per_s, error);
  const dp_status ended = end(b, thread, status == DP_OK ? error : NULL);
  DP_TRY(status);
  DP_TRY(ended);
  for (int way = 0; way < (l->apart ? l->ways : 1); way++) DP_TRY(time_slowdown(l, p, way, b, error));
  return l->ways > EXEC_UNITS_NCCL ? time_waiting(l, p, b, error) : DP_OK;
}

static dp_status open_nccl(const exec_units_links *l, exec_pipeline *p, dp_error *error) {
  if (l->ways <= EXEC_UNITS_NCCL) return DP_OK;
  if (!l->apart || !p->work.kind->open_pair)
    return dp_fail(error, DP_UNSUPPORTED, "NCCL is measured between two GPUs, found %s",
                   l->apart ? "processors" : "parts of one");
  return p->work.kind->open_pair(p, most_bytes(p), error);
}

dp_status exec_units_measure_links(exec_units_links *l, exec_pipeline *p, bool apart, bool nccl,
                                   exec_units_compute compute, void *data, dp_error *error) {
  uint32_t lanes[MOST_LANES];
  const int count = find_lanes(p, apart, lanes);
  beside b = {.compute = compute, .data = data, .error = DP_ERROR_INIT};
  if (count == 0 && nccl)
    return dp_fail(error, DP_UNSUPPORTED, "NCCL is measured between two GPUs, found a pipeline of one");
  if (count == 0) return DP_OK;
  l->apart = apart;
  l->workers = p->work.program->worker_count;
  l->ways = nccl ? EXEC_UNITS_WAYS : EXEC_UNITS_NCCL;
  if (apart) find_routes(l, p, lanes[0]);
  atomic_init(&b.stop, false);
  DP_TRY(p->work.kind->open_copies(p, lanes, count, most_bytes(p), error));
  dp_status status = open_nccl(l, p, error);
  if (status == DP_OK) status = measure(l, p, &b, count, error);
  if (p->pair) p->work.kind->close_pair(p);
  p->work.kind->close_copies(p);
  l->measured = status == DP_OK;
  return status;
}

void exec_units_free_links(exec_units_links *l) {
  for (int way = 0; way < EXEC_UNITS_WAYS; way++) dp_array_free(&l->copies[way]);
}

/* ---- the profile ---- */

/* Larger never takes less, and beside compute never less than alone: what noise turned round is levelled. */
static dp_status add_points(const exec_units_copy *copies, size_t count, plan_profile_points *points, dp_error *error) {
  plan_profile_point before = {0, 0, 0};
  points->count = 0;
  for (size_t i = 0; i < count; i++) {
    if (copies[i].aside) continue;
    before = (plan_profile_point){copies[i].bytes, fmax(before.alone_s, copies[i].alone_s),
                                  fmax(before.busy_s, fmax(copies[i].alone_s, copies[i].busy_s))};
    if (!dp_array_push(points, before)) return dp_fail_memory(error);
  }
  return DP_OK;
}

/* How far points are off on what was kept aside of them: into errors[2 * SIZES]. */
static size_t find_errors(const exec_units_copies *copies, const plan_profile_points *points, double *errors) {
  size_t count = 0;
  for (size_t i = 0; i < copies->count; i++) {
    const exec_units_copy *copy = &copies->items[i];
    const plan_profile_point at = plan_profile_at(points->items, points->count, copy->bytes);
    if (!copy->aside) continue;
    errors[count++] = fabs(at.alone_s / copy->alone_s - 1);
    errors[count++] = fabs(at.busy_s / fmax(copy->alone_s, copy->busy_s) - 1);
  }
  return count;
}

static dp_status add_shared(const exec_units_links *l, plan_profile *profile, dp_error *error) {
  plan_profile_points *const points[] = {&profile->copies, &profile->staged};
  double errors[2 * EXEC_UNITS_NCCL * SIZES];
  size_t count = 0;
  for (int way = 0; way < EXEC_UNITS_NCCL; way++) {
    DP_TRY(add_points(l->copies[way].items, l->copies[way].count, points[way], error));
    count += find_errors(&l->copies[way], points[way], errors + count);
  }
  profile->links_error = dp_median(errors, count);
  profile->copies_bytes_per_s = l->together_bytes_per_s[EXEC_UNITS_LOCAL];
  profile->staged_bytes_per_s = l->together_bytes_per_s[EXEC_UNITS_HOST];
  profile->copy_slowdown = l->slowdown[EXEC_UNITS_LOCAL];
  profile->handover_s = l->handover_s;
  return DP_OK;
}

static dp_status add_apart(const exec_units_links *l, int way, plan_profile *profile, dp_error *error) {
  static const plan_profile_way ways[EXEC_UNITS_WAYS] = {PLAN_PROFILE_LOCAL, PLAN_PROFILE_HOST, PLAN_PROFILE_NCCL};
  double errors[2 * SIZES];
  plan_profile_link link = {.way = ways[way],
                            .link = l->routes[way].link,
                            .link_bytes_per_s = l->routes[way].bytes_per_s,
                            .link_latency_s = l->routes[way].latency_s,
                            .gpus = l->workers,
                            .handover_s = way == EXEC_UNITS_NCCL ? 0 : l->handover_s, /* in a message's time */
                            .slowdown = l->slowdown[way],
                            .waiting_slowdown = way == EXEC_UNITS_NCCL ? l->waiting_slowdown : 0,
                            .both_bytes_per_s = l->both_bytes_per_s[way],
                            .together_bytes_per_s = l->together_bytes_per_s[way]};
  dp_status status = add_points(l->copies[way].items, l->copies[way].count, &link.points, error);
  if (status == DP_OK) {
    const size_t count = find_errors(&l->copies[way], &link.points, errors);
    link.error = dp_median(errors, count);
    status = plan_profile_set_link(profile, &link, error);
  }
  if (status != DP_OK) dp_array_free(&link.points);
  return status;
}

dp_status exec_units_add_links(const exec_units_links *l, plan_profile *profile, dp_error *error) {
  if (!l->apart) return add_shared(l, profile, error);
  for (int way = 0; way < l->ways; way++)
    if (l->routes[way].link[0]) DP_TRY(add_apart(l, way, profile, error));
  return DP_OK;
}
