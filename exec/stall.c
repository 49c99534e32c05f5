#define _POSIX_C_SOURCE 200809L
#include "exec/stall.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

double exec_stall_patience_s(const exec_pipeline *p) {
  const char *text = getenv("DIFFPIPE_STALL_S");
  const double given = text ? strtod(text, NULL) : 0;
  if (given > 0) return given;
  return fmax(p->generation <= 1 ? 600 : 25, 10 * p->longest_s);
}

/* ---- the line ---- */

static uint32_t worker_of(const exec_pipeline *p, uint32_t i) { return p->work.program->lanes[p->lane_of[i]].worker; }

/* The k-th of the instructions that meet this one; PLAN_NO_PEER: there are no more. */
static uint32_t partner(const exec_pipeline *p, uint32_t i, uint32_t k) {
  const plan_lane *lane = &p->work.program->lanes[p->lane_of[i]];
  const uint32_t peer = p->work.program->instructions[i].peer;
  if (lane->kind == PLAN_LANE_SEND || lane->kind == PLAN_LANE_RECV) return k == 0 ? peer : PLAN_NO_PEER;
  if (lane->kind != PLAN_LANE_COLLECTIVE || p->groups.first[peer] + k >= p->groups.first[peer + 1]) return PLAN_NO_PEER;
  return p->groups.ids[p->groups.first[peer] + k];
}

enum { PEERS_BYTES = 320 };

/* Those of them that are in other processes: "worker 2 (process 1), worker 3 (process 1)"; "": none are. */
static void show_peers(const exec_pipeline *p, uint32_t i, char out[PEERS_BYTES]) {
  enum { MOST = 6 };
  size_t length = 0;
  int shown = 0, left = 0;
  out[0] = 0;
  for (uint32_t k = 0, other; (other = partner(p, i, k)) != PLAN_NO_PEER; k++) {
    const uint32_t worker = worker_of(p, other);
    if (exec_is_here(p, worker)) continue;
    if (shown == MOST)
      left++;
    else
      length += (size_t)snprintf(out + length, PEERS_BYTES - length, "%sworker %u (process %d)", shown++ ? ", " : "",
                                 worker, exec_process_of(p, (int)worker));
  }
  if (left > 0) (void)snprintf(out + length, PEERS_BYTES - length, " and %d more", left);
}

/* Instructions that nothing has come of; PLAN_NO_PEER: there is none. */
typedef struct standstill {
  uint32_t begun; /* on a device */
  uint32_t meets; /* a lane's thread is at it, and it meets other processes */
  uint32_t host;  /* a lane's thread is at it for this process alone */
} standstill;

static standstill find(exec_pipeline *p) {
  standstill s = {p->work.kind->begun(p, p->seen), PLAN_NO_PEER, PLAN_NO_PEER};
  char peers[PEERS_BYTES];
  (void)pthread_mutex_lock(&p->lock);
  for (uint32_t l = p->first_lane; l < p->end_lane; l++) {
    const uint32_t at = p->lanes[l].at;
    if (at == PLAN_NO_PEER) continue;
    show_peers(p, at, peers);
    uint32_t *first = peers[0] ? &s.meets : &s.host;
    if (*first == PLAN_NO_PEER) *first = at;
  }
  (void)pthread_mutex_unlock(&p->lock);
  return s;
}

/* Nobody waits for a run of one process but its user, and a thread of it for a disk, perhaps: as long as it takes. */
static bool is_the_hosts_own(const exec_pipeline *p, const standstill *s) {
  return exec_process_count(p->work.options.transport) == 1 && s->begun == PLAN_NO_PEER && s->host != PLAN_NO_PEER;
}

static dp_status tell(exec_pipeline *p, double waited_s, dp_error *error) {
  const standstill s = find(p);
  const plan_program *program = p->work.program;
  const int process = exec_process(p->work.options.transport);
  const uint32_t at = s.begun != PLAN_NO_PEER ? s.begun : s.meets;
  char what[128], host[128], peers[PEERS_BYTES], also[256] = "";
  if (is_the_hosts_own(p, &s)) return DP_OK;
  if (s.host != PLAN_NO_PEER) (void)plan_instruction_show(program, s.host, host);
  if (at == PLAN_NO_PEER && s.host != PLAN_NO_PEER)
    return dp_fail(error, DP_RUN_FAILED, "%s has been with the host of process %d for %.0f s", host, process, waited_s);
  if (at == PLAN_NO_PEER)
    return dp_fail(error, DP_RUN_FAILED, "the devices of workers %d to %d (process %d) have done nothing for %.0f s",
                   p->first_worker, p->end_worker - 1, process, waited_s);
  if (s.host != PLAN_NO_PEER)
    (void)snprintf(also, sizeof also, "; the host of process %d has been at %s as long", process, host);
  (void)plan_instruction_show(program, at, what);
  show_peers(p, at, peers);
  if (!peers[0])
    return dp_fail(error, DP_RUN_FAILED, "%s has not ended on its device for %.0f s%s", what, waited_s, also);
  return dp_fail(error, DP_RUN_FAILED, "%s has waited %.0f s for %s%s", what, waited_s, peers, also);
}

/* ---- looking ---- */

void exec_stall_begin(exec_pipeline *p) {
  (void)pthread_mutex_lock(&p->lock);
  p->moved_s = p->looked_s = dp_clock_s();
  (void)pthread_mutex_unlock(&p->lock);
}

/* How long nothing has moved. A process that was itself stopped for a while forgives the time that it slept through. */
static double stood_s(exec_pipeline *p) {
  enum { SLEPT_S = 5 };
  const uint32_t n = p->work.program->instruction_count;
  const double now_s = dp_clock_s();
  (void)pthread_mutex_lock(&p->lock);
  memcpy(p->seen, p->done, n);
  (void)pthread_mutex_unlock(&p->lock);
  const uint32_t ended = p->work.kind->ended(p, p->seen);
  const bool moved = ended != p->ended || now_s - p->looked_s > SLEPT_S;
  p->ended = ended;
  (void)pthread_mutex_lock(&p->lock);
  if (moved) p->moved_s = now_s;
  const double stood = now_s - p->moved_s;
  (void)pthread_mutex_unlock(&p->lock);
  return stood;
}

dp_status exec_stall_look(exec_pipeline *p, dp_error *error) {
  const exec_transport *t = p->work.options.transport;
  if (t && t->lost && atomic_load(t->lost))
    return dp_fail(error, DP_RUN_FAILED, "the devices were no longer waited for: the run cannot go on");
  if (dp_clock_s() - p->looked_s < EXEC_LOOK_S) return DP_OK;
  DP_TRY(p->work.kind->look_at_wires(p, error));
  const double stood = stood_s(p);
  if (stood > exec_stall_patience_s(p)) DP_TRY(tell(p, stood, error));
  p->looked_s = dp_clock_s();
  return DP_OK;
}

/* ---- leaving ---- */

static bool has_ended(exec_pipeline *p) {
  (void)pthread_mutex_lock(&p->lock);
  const bool running = p->running > 0;
  (void)pthread_mutex_unlock(&p->lock);
  return !running && p->work.kind->idle(p);
}

bool exec_stall_leave(exec_pipeline *p) {
  enum { MOST_S = 5 };
  exec_pipeline *shared = p->work.options.shared;
  if (p->stranded || (shared && shared->stranded)) return false;
  if (!p->work.kind->deferred || !p->has_locks || !atomic_load(&p->stop)) return true;
  const double until_s = dp_clock_s() + MOST_S;
  p->work.kind->abandon_wires(p);
  while (!has_ended(p) && dp_clock_s() < until_s) dp_sleep_s(1e-3);
  p->stranded = !has_ended(p);
  if (shared) shared->stranded = p->stranded;
  return !p->stranded;
}
