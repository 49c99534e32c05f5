#include "sim/network.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Flow f's crossings are slots first[f] .. first[f] + hops - 1; each link chains the slots that cross it. */
#define NONE UINT32_MAX
enum { CHAINED_ROUNDS = 4, EDITS_BEFORE_SUM = 64 };
static const int BY_CAP = -1, UNSET = -2;

typedef struct crossing {
  uint32_t next, previous, flow;
} crossing;

typedef struct link_state {
  double capacity;
  double used;         /* sum of the rates of its flows; new ones count with their caps until shared */
  uint32_t first;      /* chain of crossings */
  uint32_t crossings;
  uint32_t limits;     /* flows outside S whose bottleneck it is */
  uint32_t edits;      /* of `used` since it was last summed afresh: rounding must not pile up */
  /* While it is crossed by S: */
  double free;         /* capacity that flows outside S leave */
  double residual, level; /* of the filling under way: what is left; that by `open` */
  uint32_t ours;       /* crossings by S */
  uint32_t open;       /* those not fixed yet */
  bool gathered;
  bool bottleneck;     /* of some flow of S */
  bool loosened;       /* limits flows, and has lost one since the last settle */
} link_state;

typedef struct flow_state {
  double rate, next_rate; /* next: of the filling under way */
  double cap;
  const int *path;
  uint32_t first, hops;
  int bottleneck;             /* link, BY_CAP, or UNSET in S and before the first settle */
  bool fresh, member, fixed;  /* fresh: before its first settle; member: of S */
  double remaining, updated_s, finish_s;
} flow_state;

struct sim_network {
  link_state *links;
  flow_state *flows;
  crossing *crossings;
  uint32_t link_count, flow_count;
  /* Scratch: each holds every id at most once. */
  uint32_t *started, started_count;
  uint32_t *loosened, loosened_count;
  uint32_t *members, member_count;   /* S */
  uint32_t *by_cap;                  /* S by ascending cap */
  uint32_t *gathered, gathered_count; /* links that S crosses */
  uint32_t *heap, heap_count;        /* gathered links by level */
  uint32_t *changed, changed_count;
  uint64_t memory_bytes;
  sim_network_counts counts;
};

/* One block holds all arrays. */
static void *carve(char **at, size_t count, size_t size) {
  void *start = *at;
  *at += (count * size + 15) / 16 * 16;
  return start;
}

dp_status sim_network_create(const double *capacity_bytes_per_s, int link_count, const uint32_t *flow_hops,
                             uint32_t flow_count, sim_network **network, dp_error *error) {
  size_t crossing_count = 0;
  for (uint32_t f = 0; f < flow_count; f++) crossing_count += flow_hops[f];
  if (crossing_count >= NONE) return dp_fail(error, DP_UNSUPPORTED, "network: %zu crossings of links", crossing_count);
  for (int l = 0; l < link_count; l++) {
    if (!(capacity_bytes_per_s[l] > 0 && capacity_bytes_per_s[l] <= DBL_MAX)) {
      return dp_fail(error, DP_INTERNAL, "network: capacity of link %d is %g, allowed: > 0 and finite", l,
                     capacity_bytes_per_s[l]);
    }
  }
  const size_t links = (size_t)link_count, flows = flow_count;
  const size_t bytes = sizeof(sim_network) + links * (sizeof(link_state) + 3 * sizeof(uint32_t)) +
                       flows * (sizeof(flow_state) + 4 * sizeof(uint32_t)) + crossing_count * sizeof(crossing) + 16 * 11;
  char *at = calloc(1, bytes);
  if (at == NULL) return dp_fail_memory(error);
  sim_network *n = carve(&at, 1, sizeof *n);
  n->links = carve(&at, links, sizeof *n->links);
  n->flows = carve(&at, flows, sizeof *n->flows);
  n->crossings = carve(&at, crossing_count, sizeof *n->crossings);
  n->started = carve(&at, flows, sizeof(uint32_t));
  n->members = carve(&at, flows, sizeof(uint32_t));
  n->by_cap = carve(&at, flows, sizeof(uint32_t));
  n->changed = carve(&at, flows, sizeof(uint32_t));
  n->loosened = carve(&at, links, sizeof(uint32_t));
  n->gathered = carve(&at, links, sizeof(uint32_t));
  n->heap = carve(&at, links, sizeof(uint32_t));
  n->link_count = (uint32_t)link_count;
  n->flow_count = flow_count;
  n->memory_bytes = bytes;
  for (size_t l = 0; l < links; l++) {
    n->links[l].capacity = capacity_bytes_per_s[l];
    n->links[l].first = NONE;
  }
  uint32_t first = 0;
  for (uint32_t f = 0; f < flow_count; first += flow_hops[f++]) n->flows[f].first = first;
  *network = n;
  return DP_OK;
}

void sim_network_destroy(sim_network *network) { free(network); }
uint64_t sim_network_memory_bytes(const sim_network *network) { return network->memory_bytes; }
sim_network_counts sim_network_count(const sim_network *network) { return network->counts; }
double sim_network_finish_s(const sim_network *network, uint32_t flow) { return network->flows[flow].finish_s; }
double sim_network_rate(const sim_network *network, uint32_t flow) { return network->flows[flow].rate; }

static double least(double a, double b) { return b < a ? b : a; }
static double most(double a, double b) { return b > a ? b : a; }

void sim_network_start(sim_network *n, uint32_t flow, const int *links, uint32_t hops, double bytes, double cap) {
  flow_state *f = &n->flows[flow];
  for (uint32_t h = 0; h < hops; h++) {
    link_state *l = &n->links[links[h]];
    const uint32_t slot = f->first + h;
    n->crossings[slot] = (crossing){l->first, NONE, flow};
    if (l->first != NONE) n->crossings[l->first].previous = slot;
    l->first = slot;
    l->crossings++;
    cap = least(cap, l->capacity); /* bounds the same set of rates, and makes every cap finite */
  }
  for (uint32_t h = 0; h < hops; h++) {
    link_state *l = &n->links[links[h]];
    l->used += cap;
    l->edits++;
  }
  f->path = links;
  f->hops = hops;
  f->remaining = bytes;
  f->rate = f->cap = cap;
  f->bottleneck = UNSET;
  f->fresh = true;
  n->started[n->started_count++] = flow;
}

void sim_network_end(sim_network *n, uint32_t flow) {
  const flow_state *f = &n->flows[flow];
  if (f->bottleneck >= 0) n->links[f->bottleneck].limits--;
  for (uint32_t h = 0; h < f->hops; h++) {
    link_state *l = &n->links[f->path[h]];
    const crossing c = n->crossings[f->first + h];
    if (c.previous == NONE) {
      l->first = c.next;
    } else {
      n->crossings[c.previous].next = c.next;
    }
    if (c.next != NONE) n->crossings[c.next].previous = c.previous;
    l->used = --l->crossings == 0 ? 0 : l->used - f->rate;
    l->edits++;
    if (l->limits > 0 && !l->loosened) {
      l->loosened = true;
      n->loosened[n->loosened_count++] = (uint32_t)f->path[h];
    }
  }
}

static void gather(sim_network *n, uint32_t link) {
  link_state *l = &n->links[link];
  l->gathered = true;
  l->ours = 0;
  n->gathered[n->gathered_count++] = link;
  if (l->edits >= EDITS_BEFORE_SUM) {
    l->edits = 0;
    l->used = 0;
    for (uint32_t c = l->first; c != NONE; c = n->crossings[c].next) l->used += n->flows[n->crossings[c].flow].rate;
  }
  l->free = l->capacity - l->used;
}

static void join(sim_network *n, uint32_t flow) {
  flow_state *f = &n->flows[flow];
  if (f->member) return;
  f->member = true;
  n->members[n->member_count++] = flow;
  if (f->bottleneck >= 0) n->links[f->bottleneck].limits--;
  f->bottleneck = UNSET;
  for (uint32_t h = 0; h < f->hops; h++) {
    link_state *l = &n->links[f->path[h]];
    if (!l->gathered) gather(n, (uint32_t)f->path[h]);
    l->ours++;
    l->free += f->rate;
  }
}

static void join_all_of(sim_network *n, const link_state *l) {
  for (uint32_t c = l->first; c != NONE; c = n->crossings[c].next) join(n, n->crossings[c].flow);
}

/* Ascending by (cap, flow): insertion for the few of a usual S, else a heap sort. */
static bool cap_less(const sim_network *n, uint32_t a, uint32_t b) {
  return n->flows[a].cap < n->flows[b].cap || (n->flows[a].cap == n->flows[b].cap && a < b);
}
static void cap_sift(const sim_network *n, uint32_t *items, uint32_t at, uint32_t count) {
  const uint32_t item = items[at];
  for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && cap_less(n, items[child], items[child + 1])) child++;
    if (!cap_less(n, item, items[child])) break;
    items[at] = items[child];
  }
  items[at] = item;
}
static void sort_by_cap(const sim_network *n, uint32_t *items, uint32_t count) {
  if (count <= 16) {
    for (uint32_t i = 1; i < count; i++) {
      const uint32_t item = items[i];
      uint32_t at = i;
      for (; at > 0 && cap_less(n, item, items[at - 1]); at--) items[at] = items[at - 1];
      items[at] = item;
    }
    return;
  }
  for (uint32_t i = count / 2; i-- > 0;) cap_sift(n, items, i, count);
  for (uint32_t end = count; end-- > 1;) {
    const uint32_t top = items[0];
    items[0] = items[end];
    items[end] = top;
    cap_sift(n, items, 0, end);
  }
}

static void level_sift(sim_network *n, uint32_t at) {
  const uint32_t item = n->heap[at];
  const double level = n->links[item].level;
  for (uint32_t child; (child = 2 * at + 1) < n->heap_count; at = child) {
    if (child + 1 < n->heap_count && n->links[n->heap[child + 1]].level < n->links[n->heap[child]].level) child++;
    if (level <= n->links[n->heap[child]].level) break;
    n->heap[at] = n->heap[child];
  }
  n->heap[at] = item;
}

/* The link with the least fair share of what is left, or NONE. A link's level only grows while others are fixed at
 * smaller rates, so keys that have become too small are put right when they reach the top. */
static uint32_t lowest_link(sim_network *n) {
  while (n->heap_count > 0) {
    link_state *l = &n->links[n->heap[0]];
    if (l->open == 0) {
      n->heap[0] = n->heap[--n->heap_count];
    } else {
      const double level = l->residual / l->open;
      if (level <= l->level) return n->heap[0];
      l->level = level;
    }
    if (n->heap_count > 0) level_sift(n, 0);
  }
  return NONE;
}

static void fix(sim_network *n, flow_state *f, double rate, int bottleneck) {
  f->fixed = true;
  f->next_rate = rate;
  f->bottleneck = bottleneck;
  for (uint32_t h = 0; h < f->hops; h++) {
    link_state *l = &n->links[f->path[h]];
    l->residual = most(l->residual - rate, 0);
    l->open--;
  }
}

/* Progressive filling of S beside the fixed rates of all others. */
static void fill(sim_network *n) {
  n->counts.solves++;
  n->counts.solved_flows += n->member_count;
  for (uint32_t i = 0; i < n->gathered_count; i++) {
    link_state *l = &n->links[n->gathered[i]];
    l->residual = l->ours == l->crossings ? l->capacity : most(l->free, 0);
    l->open = l->ours;
    l->level = l->residual / l->open;
    l->bottleneck = false;
    n->heap[i] = n->gathered[i];
  }
  n->heap_count = n->gathered_count;
  for (uint32_t i = n->heap_count / 2; i-- > 0;) level_sift(n, i);
  for (uint32_t i = 0; i < n->member_count; i++) {
    n->flows[n->members[i]].fixed = false;
    n->by_cap[i] = n->members[i];
  }
  sort_by_cap(n, n->by_cap, n->member_count);

  uint32_t next_cap = 0;
  for (;;) {
    while (next_cap < n->member_count && n->flows[n->by_cap[next_cap]].fixed) next_cap++;
    if (next_cap == n->member_count) break;
    flow_state *slowest = &n->flows[n->by_cap[next_cap]];
    const uint32_t lowest = lowest_link(n);
    if (lowest == NONE || slowest->cap <= n->links[lowest].level) {
      fix(n, slowest, slowest->cap, BY_CAP);
      continue;
    }
    link_state *l = &n->links[lowest];
    l->bottleneck = true;
    for (uint32_t c = l->first; c != NONE; c = n->crossings[c].next) {
      flow_state *f = &n->flows[n->crossings[c].flow];
      if (f->member && !f->fixed) fix(n, f, l->level, (int)lowest);
    }
  }
}

/* Takes into S each outsider whose certificate is gone: one that is faster than a flow of S on that flow's bottleneck, or
 * whose own bottleneck is no longer full or has a faster flow. True when S grew. */
static bool extend(sim_network *n) {
  const uint32_t before = n->member_count, link_count = n->gathered_count;
  for (uint32_t i = 0; i < link_count; i++) {
    const link_state *l = &n->links[n->gathered[i]];
    if (l->ours == l->crossings || (l->limits == 0 && !l->bottleneck)) continue;
    double fastest = 0;
    for (uint32_t c = l->first; c != NONE; c = n->crossings[c].next) {
      const flow_state *f = &n->flows[n->crossings[c].flow];
      fastest = most(fastest, f->fixed ? f->next_rate : f->rate);
    }
    const bool full = l->residual <= l->capacity * SIM_NETWORK_EPSILON;
    const double limit = l->bottleneck ? l->level * (1 + SIM_NETWORK_EPSILON) : DBL_MAX;
    for (uint32_t c = l->first; c != NONE; c = n->crossings[c].next) {
      const uint32_t flow = n->crossings[c].flow;
      const flow_state *f = &n->flows[flow];
      if (f->member) continue;
      const bool lost = f->bottleneck == (int)n->gathered[i] && (!full || f->rate < fastest * (1 - SIM_NETWORK_EPSILON));
      if (lost || f->rate > limit) join(n, flow);
    }
  }
  return n->member_count > before;
}

/* The links that S crosses at present; flows that join add to the end and are visited too: the whole component. */
static void join_component(sim_network *n) {
  for (uint32_t i = 0; i < n->gathered_count; i++) join_all_of(n, &n->links[n->gathered[i]]);
}

static void set_rate(sim_network *n, uint32_t flow, double rate, double now_s) {
  flow_state *f = &n->flows[flow];
  const double change = rate - f->rate;
  if (!f->fresh) {
    if (fabs(change) <= SIM_NETWORK_EPSILON * f->rate) return;
    f->remaining = most(f->remaining - f->rate * (now_s - f->updated_s), 0);
  }
  if (change != 0) {
    for (uint32_t h = 0; h < f->hops; h++) {
      link_state *l = &n->links[f->path[h]];
      l->used += change;
      l->edits++;
    }
  }
  f->fresh = false;
  f->rate = rate;
  f->updated_s = now_s;
  f->finish_s = now_s + f->remaining / rate;
  n->changed[n->changed_count++] = flow;
}

static void solve(sim_network *n, double now_s) {
  n->counts.settles++;
  fill(n);
  for (int round = 1; extend(n); round++) {
    if (round == CHAINED_ROUNDS) join_component(n);
    fill(n);
  }
  for (uint32_t i = 0; i < n->member_count; i++) {
    flow_state *f = &n->flows[n->members[i]];
    f->member = f->fixed = false;
    if (f->bottleneck >= 0) n->links[f->bottleneck].limits++;
    set_rate(n, n->members[i], f->next_rate, now_s);
  }
  for (uint32_t i = 0; i < n->gathered_count; i++) n->links[n->gathered[i]].gathered = false;
  n->member_count = n->gathered_count = 0;
}

void sim_network_settle(sim_network *n, double now_s, const uint32_t **changed, uint32_t *changed_count) {
  n->changed_count = 0;
  for (uint32_t i = 0; i < n->loosened_count; i++) {
    link_state *l = &n->links[n->loosened[i]];
    l->loosened = false;
    for (uint32_t c = l->first; c != NONE && l->limits > 0; c = n->crossings[c].next) {
      const uint32_t flow = n->crossings[c].flow;
      if (n->flows[flow].bottleneck == (int)n->loosened[i]) join(n, flow);
    }
  }
  /* New flows count with their caps so far: where all their links bear that, nobody else is touched. */
  for (uint32_t i = 0; i < n->started_count; i++) {
    const flow_state *f = &n->flows[n->started[i]];
    for (uint32_t h = 0; h < f->hops; h++) {
      const link_state *l = &n->links[f->path[h]];
      if (l->used > l->capacity * (1 + SIM_NETWORK_EPSILON)) join_all_of(n, l);
    }
  }
  for (uint32_t i = 0; i < n->started_count; i++) {
    flow_state *f = &n->flows[n->started[i]];
    if (f->member) continue;
    f->bottleneck = BY_CAP;
    set_rate(n, n->started[i], f->cap, now_s);
  }
  n->started_count = n->loosened_count = 0;
  if (n->member_count > 0) solve(n, now_s);
  *changed = n->changed;
  *changed_count = n->changed_count;
}
