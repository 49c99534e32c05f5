#include <math.h>
#include <string.h>

#include "plan/topology.h"

enum { UNSEEN = 1 << 20 };

/* The best way from a card to an inner vertex of its node. */
typedef struct label {
  int hops; /* UNSEEN: not reached */
  int via;  /* last link; -1: `from` starts with the card's chain to its socket's memory */
  int from; /* inner index before it; -1: the card */
  double width;
} label;

typedef struct search {
  const plan_cluster *cluster;
  const plan_topology *topology;
  const plan_card *card;
  int first_inner, inner_count;
  label labels[PLAN_MAX_INNER];
  int queue[PLAN_MAX_INNER], queued;
} search;

/* A path as links; more than fit are counted and not stored. */
typedef struct path {
  int links[2 * PLAN_MAX_HOPS];
  int count;
} path;

static const plan_link *link_of(const plan_cluster *cluster, int link) { return &cluster->links.items[link]; }

static double chain_width(const plan_cluster *cluster, const plan_card *card) {
  double width = INFINITY;
  for (int i = 0; i < card->chain_count; i++)
    width = fmin(width, link_of(cluster, card->chain[i])->bandwidth_bytes_per_s);
  return width;
}

static int host_of(const plan_cluster *cluster, const plan_card *card) {
  return link_of(cluster, card->chain[card->chain_count - 1])->to;
}

static void reach(search *s, int inner, int hops, double width, int via, int from) {
  label *at = &s->labels[inner];
  if (at->hops == UNSEEN)
    s->queue[s->queued++] = inner;
  else if (hops > at->hops || width <= at->width)
    return;
  *at = (label){hops, via, from, width};
}

/* Breadth first from the card over its node's inner vertices. All of one distance are final before any is expanded, and
 * links are taken by id, so the result does not depend on anything else. */
static void run_search(const plan_cluster *cluster, const plan_card *card, search *s) {
  const plan_topology *topology = cluster->topology;
  const plan_topology_node *node = &topology->nodes[card->node];
  s->cluster = cluster;
  s->topology = topology;
  s->card = card;
  s->first_inner = node->first_inner;
  s->inner_count = node->inner_count;
  s->queued = 0;
  for (int i = 0; i < node->inner_count; i++) s->labels[i] = (label){UNSEEN, -1, -1, 0};
  for (int a = cluster->first_link[card->vertex]; a < topology->inner_split[card->vertex]; a++) {
    const int id = cluster->adjacent_links[a];
    if (id == card->chain[0] && !card->peer_to_peer) continue;
    reach(s, link_of(cluster, id)->to - s->first_inner, 1, link_of(cluster, id)->bandwidth_bytes_per_s, id, -1);
  }
  if (!card->peer_to_peer)
    reach(s, host_of(cluster, card) - s->first_inner, card->chain_count, chain_width(cluster, card), -1, -1);
  for (int q = 0; q < s->queued; q++) {
    const int inner = s->queue[q], vertex = s->first_inner + inner;
    const label at = s->labels[inner];
    for (int a = cluster->first_link[vertex]; a < topology->inner_split[vertex]; a++) {
      const plan_link *link = link_of(cluster, cluster->adjacent_links[a]);
      if (link->to < topology->fabric_count) continue;
      reach(s, link->to - s->first_inner, at.hops + 1, fmin(at.width, link->bandwidth_bytes_per_s),
            cluster->adjacent_links[a], inner);
    }
  }
}

static void path_add(path *p, int link) {
  if (p->count < 2 * PLAN_MAX_HOPS) p->links[p->count] = link;
  p->count++;
}

static void path_to_inner(const search *s, int inner, path *p) {
  int backwards[PLAN_MAX_INNER], count = 0, at = inner;
  while (at >= 0 && s->labels[at].via >= 0) {
    backwards[count++] = s->labels[at].via;
    at = s->labels[at].from;
  }
  if (at >= 0) /* reached through the chain */
    for (int i = 0; i < s->card->chain_count; i++) path_add(p, s->card->chain[i]);
  while (count > 0) path_add(p, backwards[--count]);
}

static bool better(int hops, double width, int best_hops, double best_width) {
  return hops < best_hops || (hops == best_hops && width > best_width);
}

/* Between two cards of one node. */
static bool within_node(const plan_cluster *cluster, const plan_card *from, const plan_card *to, path *p) {
  const plan_topology *topology = cluster->topology;
  search s;
  run_search(cluster, from, &s);
  int best_hops = UNSEEN, best_link = -1;
  double best_width = 0;
  for (int a = cluster->first_link[to->vertex]; a < cluster->first_link[to->vertex + 1]; a++) {
    const int out = cluster->adjacent_links[a], in = topology->twin[out];
    const plan_link *link = link_of(cluster, in);
    if (link->from == to->vertex || (out == to->chain[0] && !to->peer_to_peer)) continue;
    const bool direct = link->from == from->vertex;
    const int inner = link->from - s.first_inner;
    if (!direct && (inner < 0 || inner >= s.inner_count || s.labels[inner].hops == UNSEEN)) continue;
    const int hops = direct ? 1 : s.labels[inner].hops + 1;
    const double width =
        direct ? link->bandwidth_bytes_per_s : fmin(s.labels[inner].width, link->bandwidth_bytes_per_s);
    const bool tie = hops == best_hops && width == best_width;
    if (!better(hops, width, best_hops, best_width) &&
        !(tie && link->latency_s < link_of(cluster, best_link)->latency_s))
      continue;
    best_hops = hops;
    best_width = width;
    best_link = in;
  }
  const int host = host_of(cluster, to) - s.first_inner;
  if (!to->peer_to_peer && s.labels[host].hops != UNSEEN &&
      better(s.labels[host].hops + to->chain_count, fmin(s.labels[host].width, chain_width(cluster, to)), best_hops,
             best_width)) {
    path_to_inner(&s, host, p);
    for (int i = to->chain_count - 1; i >= 0; i--) path_add(p, topology->twin[to->chain[i]]);
    return true;
  }
  if (best_link < 0) return false;
  const int before = link_of(cluster, best_link)->from;
  if (before != from->vertex) path_to_inner(&s, before - s.first_inner, p);
  path_add(p, best_link);
  return true;
}

typedef struct exit_way {
  int hops, link; /* NIC > fabric; -1: none */
  double width;
} exit_way;

/* The way from a card to a fabric; of equal NICs the one of the card's own place. */
static exit_way way_to_fabric(const search *s, int fabric) {
  const plan_cluster *cluster = s->cluster;
  exit_way best = {UNSEEN, -1, 0};
  int ties = 0;
  for (int pass = 0; pass < 2; pass++) {
    int seen = 0;
    for (int inner = 0; inner < s->inner_count; inner++) {
      const int vertex = s->first_inner + inner;
      if (cluster->vertices.items[vertex].kind != PLAN_VERTEX_NIC || s->labels[inner].hops == UNSEEN) continue;
      for (int a = cluster->first_link[vertex]; a < s->topology->inner_split[vertex]; a++) {
        const int id = cluster->adjacent_links[a];
        const plan_link *link = link_of(cluster, id);
        if (link->to != fabric) continue;
        const int hops = s->labels[inner].hops + 1;
        const double width = fmin(s->labels[inner].width, link->bandwidth_bytes_per_s);
        if (pass == 0 && better(hops, width, best.hops, best.width)) {
          best = (exit_way){hops, id, width};
          ties = 0;
        }
        if (hops != best.hops || width != best.width) continue;
        if (pass == 0)
          ties++;
        else if (seen++ == s->card->place % ties)
          best.link = id;
      }
    }
    if (best.link < 0) break;
  }
  return best;
}

static void path_to_fabric(const search *s, const exit_way *way, path *p) {
  path_to_inner(s, link_of(s->cluster, way->link)->from - s->first_inner, p);
  path_add(p, way->link);
}

static bool between_nodes(const plan_cluster *cluster, const plan_card *from, const plan_card *to, path *p) {
  search out, in;
  run_search(cluster, from, &out);
  run_search(cluster, to, &in);
  exit_way best_out = {UNSEEN, -1, 0}, best_in = {UNSEEN, -1, 0};
  int best_hops = UNSEEN;
  double best_width = 0;
  for (int fabric = 0; fabric < cluster->topology->fabric_count; fabric++) {
    const exit_way a = way_to_fabric(&out, fabric), b = way_to_fabric(&in, fabric);
    if (a.link < 0 || b.link < 0 || !better(a.hops + b.hops, fmin(a.width, b.width), best_hops, best_width)) continue;
    best_hops = a.hops + b.hops;
    best_width = fmin(a.width, b.width);
    best_out = a;
    best_in = b;
  }
  if (best_hops == UNSEEN) return false;
  path_to_fabric(&out, &best_out, p);
  path back = {.count = 0};
  path_to_fabric(&in, &best_in, &back);
  if (back.count > 2 * PLAN_MAX_HOPS) {
    p->count += back.count; /* too long: plan_cluster_route says so */
    return true;
  }
  for (int i = back.count - 1; i >= 0; i--) path_add(p, cluster->topology->twin[back.links[i]]);
  return true;
}

/* What a root complex forwards between two of its ports crosses its own link; to and from memory does not. */
static void cross_roots(const plan_cluster *cluster, path *p) {
  if (p->count > PLAN_MAX_HOPS) return; /* too long anyway */
  const path before = *p;
  p->count = 0;
  for (int i = 0; i < before.count; i++) {
    path_add(p, before.links[i]);
    if (i + 1 == before.count) break;
    const plan_link *in = link_of(cluster, before.links[i]), *out = link_of(cluster, before.links[i + 1]);
    const int root = cluster->topology->root_link[in->to];
    const bool memory = cluster->vertices.items[in->from].kind == PLAN_VERTEX_HOST ||
                        cluster->vertices.items[out->to].kind == PLAN_VERTEX_HOST;
    if (root >= 0 && !memory) path_add(p, root);
  }
}

static void sum_up(const plan_cluster *cluster, const path *p, plan_route *route) {
  *route = (plan_route){.count = p->count, .bandwidth_bytes_per_s = INFINITY};
  for (int i = 0; i < p->count; i++) {
    const plan_link *link = link_of(cluster, p->links[i]);
    route->links[i] = p->links[i];
    route->latency_s += link->latency_s;
    const bool slower = link->bandwidth_bytes_per_s < route->bandwidth_bytes_per_s;
    const bool later = link->bandwidth_bytes_per_s == route->bandwidth_bytes_per_s && route->limiting &&
                       link->model->latency_s > route->limiting->latency_s;
    if (slower || later) {
      route->bandwidth_bytes_per_s = link->bandwidth_bytes_per_s;
      route->limiting = link->model;
    }
  }
}

dp_status plan_cluster_route(const plan_cluster *cluster, int from_device, int to_device, plan_route *route,
                             dp_error *error) {
  const plan_device *from = &cluster->devices.items[from_device], *to = &cluster->devices.items[to_device];
  const plan_topology *topology = cluster->topology;
  const plan_card *from_card = &topology->cards[from->card], *to_card = &topology->cards[to->card];
  path p = {.count = 0};
  if (from_device == to_device) {
    *route = (plan_route){.bandwidth_bytes_per_s = INFINITY};
    return DP_OK;
  }
  if (topology->device_port[from_device] >= 0) path_add(&p, topology->device_port[from_device]);
  bool found = true;
  if (from->card == to->card)
    path_add(&p, from_card->memory_link);
  else
    found = from->node == to->node ? within_node(cluster, from_card, to_card, &p)
                                   : between_nodes(cluster, from_card, to_card, &p);
  if (!found)
    return dp_fail(error, DP_BAD_INPUT,
                   "devices %s and %s are not connected, allowed: nodes that share a fabric through their NICs",
                   from->name, to->name);
  if (topology->device_port[to_device] >= 0) path_add(&p, topology->twin[topology->device_port[to_device]]);
  cross_roots(cluster, &p);
  if (p.count > PLAN_MAX_HOPS)
    return dp_fail(error, DP_BAD_INPUT, "devices %s and %s are %d links apart, allowed: at most %d", from->name,
                   to->name, p.count, PLAN_MAX_HOPS);
  sum_up(cluster, &p, route);
  return DP_OK;
}

plan_link_kind plan_cluster_weakest_kind(const plan_cluster *cluster, const int *devices, int count) {
  plan_link_kind weakest = PLAN_LINK_NVLINK;
  for (int i = 0; i < count; i++) {
    plan_route route;
    if (plan_cluster_route(cluster, devices[i], devices[(i + 1) % count], &route, NULL) != DP_OK)
      return PLAN_LINK_NETWORK;
    for (int h = 0; h < route.count; h++) {
      const plan_link_kind kind = link_of(cluster, route.links[h])->model->kind;
      if (kind == PLAN_LINK_NETWORK) return kind;
      if (kind == PLAN_LINK_PCIE || kind == PLAN_LINK_HOST) weakest = PLAN_LINK_PCIE;
    }
  }
  return weakest;
}
