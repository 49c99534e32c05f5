#define _POSIX_C_SOURCE 200809L /* setenv */
#include "exec/device_cuda_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

dp_status exec_cuda_wait(const exec_pipeline *p, cudaEvent_t event, dp_error *error) {
  const exec_transport *t = p->work.options.transport;
  const double began_s = dp_clock_s();
  for (;;) {
    const cudaError_t result = cudaEventQuery(event);
    if (result == cudaSuccess) return DP_OK;
    if (result != cudaErrorNotReady) return exec_cuda_check(result, "cudaEventQuery", error);
    if (atomic_load(&p->stop) || (t && t->lost && atomic_load(t->lost)))
      return dp_fail(error, DP_RUN_FAILED, "a device was no longer waited for: the run cannot go on");
    const double waited_s = dp_clock_s() - began_s;
    if (waited_s > 20e-6) dp_sleep_s(waited_s < 2e-3 ? 10e-6 : 100e-6);
  }
}

/* ---- making them: the two processes of a link tell each other what they have ---- */

typedef struct introduction {
  unsigned char id[EXEC_NCCL_ID_BYTES]; /* of the lower rank's, with NCCL */
  cudaIpcMemHandle_t memory;            /* the rest with local */
  cudaIpcEventHandle_t event;
  int32_t way; /* that this end can go */
} introduction;

static dp_status trade(const exec_pipeline *p, const exec_cuda_link *link, bool first, const void *mine, void *theirs,
                       size_t bytes, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  if (first) DP_TRY(t->send(t, link->process, EXEC_TAG_WIRES, mine, bytes, &p->stop, error));
  DP_TRY(t->receive(t, link->process, EXEC_TAG_WIRES, theirs, bytes, &p->stop, error));
  return first ? DP_OK : t->send(t, link->process, EXEC_TAG_WIRES, mine, bytes, &p->stop, error);
}

char *exec_cuda_memory_of(const exec_pipeline *p, uint32_t worker, bool parameters) {
  const exec_worker *w = &p->workers[worker];
  return parameters && w->borrows ? p->work.options.shared->workers[worker].base : w->base;
}

/* Which way the plan and the hosts have it: the same on both ends. */
static plan_transport way_of(const exec_pipeline *p, plan_transport wanted, int process_a, int process_b) {
  const bool near = exec_same_host(p->work.facts, process_a, process_b);
  if (wanted == PLAN_TRANSPORT_LOCAL && !near) wanted = PLAN_TRANSPORT_NCCL;
  return wanted == PLAN_TRANSPORT_NCCL && !exec_nccl_is_known() ? PLAN_TRANSPORT_HOST : wanted;
}

static dp_status introduce(const exec_pipeline *p, exec_cuda_wire *w, uint32_t worker, bool parameters,
                           introduction *mine, dp_error *error) {
  memset(mine, 0, sizeof *mine);
  mine->way = (int32_t)w->way;
  if (w->way == PLAN_TRANSPORT_NCCL && !exec_nccl_is_there())
    mine->way = PLAN_TRANSPORT_HOST;
  else if (w->way == PLAN_TRANSPORT_NCCL && w->rank == 0)
    DP_TRY(exec_nccl_make_id(mine->id, error));
  if (w->way != PLAN_TRANSPORT_LOCAL) return DP_OK;
  if (!w->event)
    EXEC_CUDA_TRY(cudaEventCreateWithFlags(&w->event, cudaEventInterprocess | cudaEventDisableTiming), error);
  if (cudaIpcGetEventHandle(&mine->event, w->event) != cudaSuccess ||
      cudaIpcGetMemHandle(&mine->memory, exec_cuda_memory_of(p, worker, parameters)) != cudaSuccess) {
    (void)cudaGetLastError();
    mine->way = PLAN_TRANSPORT_HOST;
  }
  return DP_OK;
}

/* What the other end has, mapped here; false: this machine does not let it. */
static bool map(exec_cuda_link *link, const introduction *theirs) {
  void *memory = NULL;
  if (cudaIpcOpenEventHandle(&link->event, theirs->event) == cudaSuccess &&
      cudaIpcOpenMemHandle(&memory, theirs->memory, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess) {
    link->memory = memory;
    return true;
  }
  (void)cudaGetLastError();
  return false;
}

/* What each process says of a wire at last; the least counts. */
typedef enum vote { VOTE_FAILED, VOTE_HOST, VOTE_WAY } vote;

static dp_status vote_on(const exec_pipeline *p, const exec_cuda_wire *w, uint8_t *least, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  for (int l = 0; l < w->link_count && w->rank == 0; l++) {
    uint8_t other;
    DP_TRY(t->receive(t, w->links[l].process, EXEC_TAG_WIRES, &other, 1, &p->stop, error));
    if (other < *least) *least = other;
  }
  for (int l = 0; l < w->link_count && w->rank == 0; l++)
    DP_TRY(t->send(t, w->links[l].process, EXEC_TAG_WIRES, least, 1, &p->stop, error));
  if (w->rank == 0) return DP_OK;
  DP_TRY(t->send(t, w->links[0].process, EXEC_TAG_WIRES, least, 1, &p->stop, error));
  return t->receive(t, w->links[0].process, EXEC_TAG_WIRES, least, 1, &p->stop, error);
}

static dp_status make_buffers(exec_cuda_wire *w, dp_error *error) {
  if (w->way == PLAN_TRANSPORT_NCCL) EXEC_CUDA_TRY(cudaMalloc(&w->token, 256), error);
  for (int i = 0; i < 2; i++) EXEC_CUDA_TRY(cudaEventCreateWithFlags(&w->copied[i], cudaEventDisableTiming), error);
  return DP_OK;
}

static dp_status make_pinned(exec_cuda_wire *w, dp_error *error) {
  for (int i = 0; i < 2; i++) EXEC_CUDA_TRY(cudaMallocHost((void **)&w->pinned[i], EXEC_CUDA_PIECE), error);
  return DP_OK;
}

/* Where both agree on one: the sender makes it, the receiver joins. */
static dp_status open_ring(const exec_pipeline *p, exec_cuda_wire *w, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  const exec_cuda_link *link = &w->links[0];
  exec_cuda_ring_name name = {.token = 0};
  uint8_t joined = 0;
  if (!exec_same_host(p->work.facts, exec_process(t), link->process)) return DP_OK;
  if (w->rank > 0) {
    DP_TRY(t->receive(t, link->process, EXEC_TAG_WIRES, &name, sizeof name, &p->stop, error));
    w->ring = exec_cuda_ring_join(&name);
    joined = w->ring != NULL;
    return t->send(t, link->process, EXEC_TAG_WIRES, &joined, 1, &p->stop, error);
  }
  w->ring = exec_cuda_ring_make(&name);
  dp_status status = t->send(t, link->process, EXEC_TAG_WIRES, &name, sizeof name, &p->stop, error);
  if (status == DP_OK) status = t->receive(t, link->process, EXEC_TAG_WIRES, &joined, 1, &p->stop, error);
  exec_cuda_ring_hide(w->ring);
  if (joined) return status;
  exec_cuda_ring_close(w->ring);
  w->ring = NULL;
  return status;
}

/* The gradients' group of a collective lane; NULL: it has none. All on one lane have the same members. */
static const plan_collective *group_of(const exec_pipeline *p, uint32_t lane) {
  const plan_program *program = p->work.program;
  const plan_lane *of = &program->lanes[lane];
  for (uint32_t i = of->first; i < of->first + of->count; i++) {
    const plan_collective *c = &program->collectives[program->instructions[i].class_id];
    if (!c->norm) return c;
  }
  return NULL;
}

/* Lanes of a worker that lead to other processes: as many kernels of NCCL's may wait for their peers at once. */
static int nccl_lanes(const exec_pipeline *p, int worker) {
  const plan_program *program = p->work.program;
  int count = 0;
  for (uint32_t l = program->worker_lane[worker]; l < program->worker_lane[worker + 1]; l++) {
    const plan_lane *lane = &program->lanes[l];
    if (lane->kind == PLAN_LANE_SEND || lane->kind == PLAN_LANE_RECV)
      count += exec_process_of(p, (int)lane->peer) != exec_process_of(p, worker);
    if (lane->kind == PLAN_LANE_COLLECTIVE) count += group_of(p, l) != NULL;
  }
  return count;
}

/* Of all workers on one GPU, of whichever process. */
static int most_nccl_lanes(const exec_pipeline *p) {
  const int workers = p->work.program->worker_count, each = workers / exec_process_count(p->work.options.transport);
  int most = 1;
  for (int w = 0; w < workers; w++) {
    int count = 0;
    for (int other = 0; other < workers; other++)
      if (exec_share_gpu(p->work.facts, p->work.places, each, w, other)) count += nccl_lanes(p, other);
    if (count > most) most = count;
  }
  return most;
}

/* Multiprocessors for each: one that waits keeps what it has, and what it waits for may be another's peer. The same on all
 * processes. */
static int nccl_share(const exec_pipeline *p) {
  const int lanes = most_nccl_lanes(p);
  int sms = p->work.facts[0].sm_count;
  if (p->work.plan->nccl_sms > 0) return p->work.plan->nccl_sms / lanes;
  for (int q = 1; q < exec_process_count(p->work.options.transport); q++)
    if (p->work.facts[q].sm_count < sms) sms = p->work.facts[q].sm_count;
  return exec_nccl_share(sms, lanes);
}

static dp_status check_nccl_share(const exec_pipeline *p, dp_error *error) {
  if (nccl_share(p) > 0) return DP_OK;
  return dp_fail(
      error, DP_BAD_INPUT,
      "plan.nccl_sms: found %d for %d lanes of a worker that lead to other processes, allowed: one for each, "
      "or 0",
      p->work.plan->nccl_sms, most_nccl_lanes(p));
}

static dp_status open_nccl(const exec_pipeline *p, exec_cuda_wire *w, const unsigned char id[EXEC_NCCL_ID_BYTES],
                           dp_error *error) {
  char peer[256];
  size_t length = 0;
  exec_nccl_how how = {.rank = w->rank,
                       .ranks = w->ranks,
                       .most_sms = nccl_share(p),
                       .peer = peer,
                       .stop = &p->stop,
                       .lost = p->work.options.transport->lost};
  for (int i = 0; i < w->link_count && length < sizeof peer; i++)
    length += (size_t)snprintf(peer + length, sizeof peer - length, "%sworker %u (process %d)", i > 0 ? ", " : "",
                               w->links[i].worker, w->links[i].process);
  memcpy(how.id, id, sizeof how.id);
  return exec_nccl_open(&how, &w->nccl, error);
}

/* All processes that a wire joins see the same ways tried, and take the first that each can go. One that has failed
 * before, or has heard so, says so: nobody waits for it. Who only hears it has no error of its own to tell, so that the
 * cause is what all agree on in the end. */
static dp_status open_wire(const exec_pipeline *p, exec_cuda_wire *w, uint32_t worker, bool parameters, bool *failed,
                           dp_error *error) {
  introduction mine = {.way = 0}, theirs;
  unsigned char id[EXEC_NCCL_ID_BYTES];
  dp_status status = DP_OK;
  if (!*failed) {
    status = exec_cuda_check(cudaSetDevice(exec_cuda_at(p, worker)->gpu), "cudaSetDevice", error);
    if (status == DP_OK) status = introduce(p, w, worker, parameters, &mine, error);
    if (status == DP_OK) status = make_buffers(w, error);
    *failed = status != DP_OK;
  }
  memcpy(id, mine.id, sizeof id);
  uint8_t says = *failed ? VOTE_FAILED : mine.way == (int32_t)w->way ? VOTE_WAY : VOTE_HOST;
  for (int l = 0; l < w->link_count; l++) {
    DP_TRY(trade(p, &w->links[l], w->rank == 0, &mine, &theirs, sizeof mine, error));
    if (w->rank > 0) memcpy(id, theirs.id, sizeof id);
    if (says == VOTE_WAY && w->way == PLAN_TRANSPORT_LOCAL &&
        (theirs.way != PLAN_TRANSPORT_LOCAL || !map(&w->links[l], &theirs)))
      says = VOTE_HOST;
  }
  DP_TRY(vote_on(p, w, &says, error));
  *failed = says == VOTE_FAILED;
  if (*failed) return status;
  if (says == VOTE_HOST) w->way = PLAN_TRANSPORT_HOST;
  if (w->way == PLAN_TRANSPORT_HOST) {
    if (!parameters) DP_TRY(open_ring(p, w, error));
    return w->ring ? DP_OK : make_pinned(w, error);
  }
  return w->way == PLAN_TRANSPORT_NCCL ? open_nccl(p, w, id, error) : DP_OK;
}

static exec_cuda_wire *add_wire(exec_pipeline *p, uint32_t lane, uint32_t order, plan_transport way, int rank,
                                int ranks, dp_error *error) {
  exec_cuda_wire *w = DP_ARENA_NEW(&p->arena, exec_cuda_wire, 1);
  const int links = rank == 0 ? ranks - 1 : 1;
  if (w) w->links = DP_ARENA_NEW(&p->arena, exec_cuda_link, (size_t)links);
  if (!w || !w->links) {
    (void)dp_fail_memory(error);
    return NULL;
  }
  w->way = way;
  w->order = order;
  w->rank = rank;
  w->ranks = ranks;
  w->link_count = links;
  exec_cuda_lanes_of(p)->wires[lane] = w;
  return w;
}

static plan_transport wanted_way(const exec_pipeline *p, uint32_t a, uint32_t b) {
  return plan_transport_of(p->work.plan, p->work.options.cluster, (int)a, (int)b);
}

/* The lane here of a SEND lane that leads from one process to another, at whichever end; UINT32_MAX: neither is. */
static uint32_t end_here(const exec_pipeline *p, uint32_t send_lane) {
  const plan_program *program = p->work.program;
  const plan_lane *send = &program->lanes[send_lane];
  const bool from_here = exec_is_here(p, send->worker), to_here = exec_is_here(p, send->peer);
  if (from_here == to_here) return UINT32_MAX;
  return from_here ? send_lane : p->lane_of[program->instructions[send->first].peer];
}

static dp_status open_message_wire(exec_pipeline *p, uint32_t send_lane, bool *failed, dp_error *error) {
  const plan_lane *send = &p->work.program->lanes[send_lane];
  const uint32_t lane = end_here(p, send_lane);
  if (lane == UINT32_MAX) return DP_OK;
  const int rank = lane == send_lane ? 0 : 1;
  const uint32_t here = rank == 0 ? send->worker : send->peer, there = rank == 0 ? send->peer : send->worker;
  const int process = exec_process_of(p, (int)there);
  exec_cuda_wire *w =
      add_wire(p, lane, send_lane,
               way_of(p, wanted_way(p, send->worker, send->peer), process, exec_process(p->work.options.transport)),
               rank, 2, error);
  if (!w) return DP_NO_MEMORY;
  w->links[0] = (exec_cuda_link){.process = process, .worker = there, .tag = send_lane};
  return open_wire(p, w, here, false, failed, error);
}

static uint32_t collective_lane_of(const exec_pipeline *p, uint32_t worker) {
  const plan_program *program = p->work.program;
  for (uint32_t l = program->worker_lane[worker]; l < program->worker_lane[worker + 1]; l++)
    if (program->lanes[l].kind == PLAN_LANE_COLLECTIVE) return l;
  return UINT32_MAX;
}

/* The first member of each process that has any, in the order of the members, to firsts[processes]. */
static int firsts_of(const exec_pipeline *p, const plan_collective *group, uint32_t *firsts) {
  const uint32_t *members = &p->work.program->group_members[group->first_member];
  int count = 0;
  for (uint32_t m = 0; m < group->member_count; m++) {
    bool known = false;
    for (int f = 0; f < count; f++)
      known = known || exec_process_of(p, (int)firsts[f]) == exec_process_of(p, (int)members[m]);
    if (!known) firsts[count++] = members[m];
  }
  return count;
}

static dp_status open_circle(exec_pipeline *p, uint32_t order, const plan_collective *group, uint32_t *firsts,
                             bool *failed, dp_error *error) {
  const int count = firsts_of(p, group, firsts);
  const uint32_t here = exec_first_here(p, group);
  if (here == UINT32_MAX || count < 2) return DP_OK;
  const uint32_t lane = collective_lane_of(p, here);
  int rank = 0;
  while (firsts[rank] != here) rank++;
  const int lead = exec_process_of(p, (int)firsts[0]);
  plan_transport way = plan_transport_of_group(
      p->work.plan, p->work.options.cluster, &p->work.program->group_members[group->first_member], group->member_count);
  for (int f = 1; f < count; f++) way = way_of(p, way, lead, exec_process_of(p, (int)firsts[f]));
  exec_cuda_wire *w = add_wire(p, lane, order, way, rank, count, error);
  if (!w) return DP_NO_MEMORY;
  for (int l = 0; l < w->link_count; l++) {
    const uint32_t there = rank == 0 ? firsts[l + 1] : firsts[0];
    w->links[l] = (exec_cuda_link){.process = exec_process_of(p, (int)there),
                                   .worker = there,
                                   .tag = collective_lane_of(p, rank == 0 ? there : here)};
  }
  return open_wire(p, w, here, true, failed, error);
}

/* NCCL refuses two ranks on one GPU of one host; as on two hosts they go over sockets. */
static void part_hosts(const exec_pipeline *p) {
  const int workers = p->work.program->worker_count, each = workers / exec_process_count(p->work.options.transport);
  char name[96];
  for (int a = p->first_worker; a < p->end_worker; a++)
    for (int b = 0; b < workers; b++) {
      if (exec_is_here(p, (uint32_t)b) || !exec_share_gpu(p->work.facts, p->work.places, each, a, b)) continue;
      (void)snprintf(name, sizeof name, "%.64s-%d", p->work.facts[exec_process(p->work.options.transport)].host,
                     exec_process(p->work.options.transport));
      (void)setenv("NCCL_HOSTID", name, 0);
      return;
    }
}

/* In one order of all processes: who waits for another is waited for by nobody who comes before. */
dp_status exec_cuda_open_wires(exec_pipeline *p, dp_error *error) {
  const plan_program *program = p->work.program;
  dp_status status = DP_OK;
  bool failed = false;
  uint32_t *firsts = DP_ARENA_NEW(&p->arena, uint32_t, (size_t)program->worker_count);
  if (!firsts) return dp_fail_memory(error);
  DP_TRY(check_nccl_share(p, error));
  part_hosts(p);
  for (uint32_t l = 0; l < program->lane_count; l++) {
    dp_error own = DP_ERROR_INIT;
    const plan_lane *lane = &program->lanes[l];
    dp_status now = DP_OK;
    if (lane->kind == PLAN_LANE_SEND) now = open_message_wire(p, l, &failed, &own);
    const plan_collective *group = lane->kind == PLAN_LANE_COLLECTIVE ? group_of(p, l) : NULL;
    if (group && program->group_members[group->first_member] == lane->worker)
      now = open_circle(p, l, group, firsts, &failed, &own);
    failed = failed || now != DP_OK;
    if (now != DP_OK && status == DP_OK) {
      status = now;
      if (error) *error = own;
    }
  }
  return status;
}

static void close_wire(exec_pipeline *p, uint32_t lane, exec_cuda_wire *w) {
  const exec_worker *worker = &p->workers[exec_cuda_worker_of(p, lane)];
  if (worker->device) (void)cudaSetDevice(exec_cuda_of(worker)->gpu);
  exec_nccl_close(w->nccl);
  exec_cuda_ring_close(w->ring);
  for (int i = 0; i < w->link_count; i++) {
    if (w->links[i].memory) (void)cudaIpcCloseMemHandle(w->links[i].memory);
    if (w->links[i].event) (void)cudaEventDestroy(w->links[i].event);
  }
  if (w->event) (void)cudaEventDestroy(w->event);
  for (int i = 0; i < 2; i++) {
    if (w->pinned[i]) (void)cudaFreeHost(w->pinned[i]);
    if (w->copied[i]) (void)cudaEventDestroy(w->copied[i]);
  }
  if (w->token) (void)cudaFree(w->token);
}

/* The lane here whose wire was opened first of those that are left; UINT32_MAX: none is. */
static uint32_t first_wire(const exec_pipeline *p, exec_cuda_wire *const *wires) {
  uint32_t first = UINT32_MAX;
  for (uint32_t lane = p->first_lane; lane < p->end_lane; lane++)
    if (wires[lane] && (first == UINT32_MAX || wires[lane]->order < wires[first]->order)) first = lane;
  return first;
}

/* In the order in which they were opened, since NCCL waits for the other ends on its host. */
void exec_cuda_close_wires(exec_pipeline *p) {
  exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  if (!l || !l->wires) return;
  if (atomic_load(&p->stop)) exec_cuda_abandon_wires(p);
  for (uint32_t lane; (lane = first_wire(p, l->wires)) != UINT32_MAX; l->wires[lane] = NULL)
    close_wire(p, lane, l->wires[lane]);
}

dp_status exec_cuda_look_at_wires(exec_pipeline *p, dp_error *error) {
  const exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  for (uint32_t lane = p->first_lane; lane < p->end_lane; lane++)
    if (l->wires && l->wires[lane] && l->wires[lane]->nccl) DP_TRY(exec_nccl_look(l->wires[lane]->nccl, error));
  return DP_OK;
}

void exec_cuda_abandon_wires(exec_pipeline *p) {
  const exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  exec_nccl **nccls = calloc((size_t)(p->end_lane - p->first_lane) + 1, sizeof *nccls);
  int count = 0;
  for (uint32_t lane = p->first_lane; nccls && l && l->wires && lane < p->end_lane; lane++)
    if (l->wires[lane] && l->wires[lane]->nccl) nccls[count++] = l->wires[lane]->nccl;
  if (count > 0) exec_nccl_abort(nccls, count);
  free(nccls);
}
