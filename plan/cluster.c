#include "plan/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "plan/link_class.h"
#include "plan/topology.h"

typedef struct builder {
  plan_cluster *cluster;
  plan_cluster_file file;
  plan_topology *topology;
  DP_ARRAY(int) twin;
  DP_ARRAY(int) device_port;
  DP_ARRAY(plan_card) cards;
  DP_ARRAY(plan_topology_node) nodes;
  const plan_catalogue *catalogue;
  dp_error *error;
} builder;

/* ---- vertices and links ---- */

static dp_status add_vertex(builder *b, plan_vertex_kind kind, int node, const char *name, int *id) {
  if (!name) return dp_fail_memory(b->error);
  const plan_vertex vertex = {name, kind, node};
  *id = (int)b->cluster->vertices.count;
  return dp_array_push(&b->cluster->vertices, vertex) ? DP_OK : dp_fail_memory(b->error);
}

static const char *vertex_name(const builder *b, int vertex) { return b->cluster->vertices.items[vertex].name; }

static dp_status add_link(builder *b, const plan_link_model *model, int from, int to, double bandwidth, double latency,
                          int twin) {
  const char *name = dp_arena_printf(&b->cluster->arena, "%s > %s", vertex_name(b, from), vertex_name(b, to));
  if (!name) return dp_fail_memory(b->error);
  const plan_link link = {model, name, from, to, bandwidth, latency};
  if (!dp_array_push(&b->cluster->links, link) || !dp_array_push(&b->twin, twin)) return dp_fail_memory(b->error);
  return DP_OK;
}

/* Both ways; `up` gets the link a > b, whose twin is the next. */
static dp_status add_pair(builder *b, const plan_link_model *model, int from, int to, double bandwidth, double latency,
                          int *up) {
  const int id = (int)b->cluster->links.count;
  DP_TRY(add_link(b, model, from, to, bandwidth, latency, id + 1));
  DP_TRY(add_link(b, model, to, from, bandwidth, latency, id));
  if (up) *up = id;
  return DP_OK;
}

/* ---- one machine ---- */

typedef struct machine {
  const plan_node_row *row;
  const char *name;
  int index;
  int *pcie;    /* [row] vertex */
  int *pcie_up; /* [row] link upwards */
  int *through; /* [row] of a root complex: its link to itself */
  int host[PLAN_MAX_SOCKETS];
  int first_card; /* index into the cluster's cards */
} machine;

static dp_status add_hosts(builder *b, machine *m) {
  dp_arena *arena = &b->cluster->arena;
  const plan_link_model *between = m->row->host_link;
  for (int s = 0; s < m->row->socket_count; s++) {
    const char *name = m->row->socket_count == 1 ? dp_arena_printf(arena, "%s/host", m->name)
                                                 : dp_arena_printf(arena, "%s/host%d", m->name, s);
    DP_TRY(add_vertex(b, PLAN_VERTEX_HOST, m->index, name, &m->host[s]));
    for (int t = 0; t < s; t++)
      DP_TRY(add_pair(b, between, m->host[t], m->host[s], between->bandwidth_bytes_per_s, between->latency_s, NULL));
  }
  return DP_OK;
}

/* A port of `bandwidth` hangs on row `at`: where that is a root complex without a figure of its own, it forwards twice as
 * much as its widest port. */
static void widen_root(builder *b, const machine *m, int at, const plan_link_model *model, double bandwidth) {
  const plan_pcie_row *row = &m->row->pcie.items[at];
  if (row->parent >= 0) return;
  plan_link *through = &b->cluster->links.items[m->through[at]];
  if (2 * bandwidth <= through->bandwidth_bytes_per_s && row->peer_bytes_per_s <= 0) return;
  through->model = model;
  if (row->peer_bytes_per_s <= 0) through->bandwidth_bytes_per_s = 2 * bandwidth;
}

static dp_status add_pcie(builder *b, machine *m) {
  const size_t count = m->row->pcie.count;
  for (size_t i = 0; i < count; i++) {
    const plan_pcie_row *row = &m->row->pcie.items[i];
    const char *name = dp_arena_printf(&b->cluster->arena, "%s/%s", m->name, row->name);
    DP_TRY(
        add_vertex(b, row->parent < 0 ? PLAN_VERTEX_PCIE_ROOT : PLAN_VERTEX_PCIE_SWITCH, m->index, name, &m->pcie[i]));
  }
  for (size_t i = 0; i < count; i++) {
    const plan_pcie_row *row = &m->row->pcie.items[i];
    const int above = row->parent < 0 ? m->host[row->socket] : m->pcie[row->parent];
    DP_TRY(add_pair(b, row->link, m->pcie[i], above, row->bandwidth_bytes_per_s, 0, &m->pcie_up[i]));
    if (row->parent >= 0) continue;
    m->through[i] = (int)b->cluster->links.count;
    DP_TRY(add_link(b, row->link, m->pcie[i], m->pcie[i], row->peer_bytes_per_s, 0, m->through[i]));
  }
  for (size_t i = 0; i < count; i++)
    if (m->row->pcie.items[i].parent >= 0)
      widen_root(b, m, m->row->pcie.items[i].parent, m->row->pcie.items[i].link, m->row->pcie.items[i].bandwidth_bytes_per_s);
  return DP_OK;
}

static dp_status add_nics(builder *b, const machine *m) {
  int index = 0;
  for (size_t r = 0; r < m->row->nics.count; r++) {
    const plan_nic_row *row = &m->row->nics.items[r];
    for (int i = 0; i < row->count; i++, index++) {
      dp_arena *arena = &b->cluster->arena;
      const char *name = !row->name        ? dp_arena_printf(arena, "%s/nic%d", m->name, index)
                         : row->count == 1 ? dp_arena_printf(arena, "%s/%s", m->name, row->name)
                                           : dp_arena_printf(arena, "%s/%s%d", m->name, row->name, i);
      int vertex = 0;
      DP_TRY(add_vertex(b, PLAN_VERTEX_NIC, m->index, name, &vertex));
      DP_TRY(add_pair(b, row->pcie_link, m->pcie[row->pcie], vertex, row->pcie_link->bandwidth_bytes_per_s, 0, NULL));
      widen_root(b, m, row->pcie, row->pcie_link, row->pcie_link->bandwidth_bytes_per_s);
      DP_TRY(add_pair(b, row->link, vertex, row->fabric, row->link->bandwidth_bytes_per_s, row->link->latency_s / 2,
                      NULL));
    }
  }
  return DP_OK;
}

/* The devices of one card: itself, or its parts with their ports into it. */
static dp_status add_devices(builder *b, const machine *m, const plan_device_row *row, plan_card *card,
                             const char *name) {
  const bool whole = row->parts == 1;
  const double share = 1.0 / row->parts;
  const plan_link_model *copy = row->part_link;
  double copy_bytes_per_s = copy->bandwidth_bytes_per_s;
  if (copy->reference_memory_bytes_per_s > 0)
    copy_bytes_per_s *= row->model->memory_bandwidth_bytes_per_s / copy->reference_memory_bytes_per_s;
  DP_TRY(add_vertex(b, whole ? PLAN_VERTEX_DEVICE : PLAN_VERTEX_CARD, m->index, name, &card->vertex));
  card->memory_link = -1;
  if (!whole) {
    card->memory_link = (int)b->cluster->links.count;
    DP_TRY(add_link(b, copy, card->vertex, card->vertex, copy_bytes_per_s, copy->latency_s, card->memory_link));
  }
  for (int p = 0; p < row->parts; p++) {
    plan_device device = {.name = whole ? name : dp_arena_printf(&b->cluster->arena, "%s.%d", name, p),
                          .model = row->model,
                          .node = m->index,
                          .card = (int)b->cards.count,
                          .vertex = card->vertex,
                          .parts = row->parts,
                          .memory_bytes = row->memory_bytes / row->parts,
                          .sm_count = row->part_sm_count,
                          .compute_share = (double)row->part_sm_count / (double)row->model->sm_count,
                          .price_usd_per_h = row->price_usd_per_h * share,
                          .tdp_w = row->tdp_w * share,
                          .purchase_usd = row->purchase_usd * share};
    int port = -1;
    if (!whole) {
      DP_TRY(add_vertex(b, PLAN_VERTEX_DEVICE, m->index, device.name, &device.vertex));
      DP_TRY(add_pair(b, copy, device.vertex, card->vertex, copy_bytes_per_s, 0, &port));
    }
    if (!dp_array_push(&b->cluster->devices, device) || !dp_array_push(&b->device_port, port))
      return dp_fail_memory(b->error);
  }
  return DP_OK;
}

static dp_status add_card(builder *b, const machine *m, const plan_device_row *row, int index_in_row) {
  dp_arena *arena = &b->cluster->arena;
  plan_card card = {.node = m->index, .place = (int)b->cards.count - m->first_card, .peer_to_peer = row->peer_to_peer};
  const char *name = !row->name        ? dp_arena_printf(arena, "%s/gpu%d", m->name, card.place)
                     : row->count == 1 ? dp_arena_printf(arena, "%s/%s", m->name, row->name)
                                       : dp_arena_printf(arena, "%s/%s%d", m->name, row->name, index_in_row);
  if (!name) return dp_fail_memory(b->error);
  DP_TRY(add_devices(b, m, row, &card, name));
  DP_TRY(add_pair(b, row->link, card.vertex, m->pcie[row->pcie], row->link_bytes_per_s, row->link->latency_s / 2,
                  &card.chain[card.chain_count++]));
  widen_root(b, m, row->pcie, row->link, row->link_bytes_per_s);
  for (int at = row->pcie; at >= 0; at = m->row->pcie.items[at].parent) card.chain[card.chain_count++] = m->pcie_up[at];
  return dp_array_push(&b->cards, card) ? DP_OK : dp_fail_memory(b->error);
}

static const plan_link_model *link_named(const builder *b, const char *name) {
  for (size_t i = 0; i < b->file.links.count; i++)
    if (strcmp(b->file.links.items[i]->name, name) == 0) return b->file.links.items[i];
  return plan_catalogue_link(b->catalogue, name);
}

static dp_status add_nvlink(builder *b, const machine *m, const plan_nvlink_row *row, const int *switches) {
  const int n = row->card_count;
  for (int i = 0; i < n; i++) {
    const plan_card *card = &b->cards.items[m->first_card + row->cards[i]];
    const plan_link_model *model = row->link;
    if (!model) {
      const plan_device_row *device = m->row->devices.items;
      for (int c = row->cards[i]; c >= device->count;) c -= device++->count;
      model = link_named(b, device->model->interconnect_link);
    }
    double bandwidth = row->bandwidth_bytes_per_s > 0 ? row->bandwidth_bytes_per_s : model->bandwidth_bytes_per_s;
    if (row->shape == PLAN_NVLINK_SWITCH) {
      DP_TRY(add_pair(b, model, card->vertex, *switches, bandwidth, model->latency_s / 2, NULL));
      continue;
    }
    if (row->shape == PLAN_NVLINK_MESH && model->whole_port && row->bandwidth_bytes_per_s <= 0) bandwidth /= n - 1;
    const int end = row->shape == PLAN_NVLINK_MESH ? n : i % 2 ? i : i + 2; /* pairs: (0,1), (2,3), ... */
    for (int j = i + 1; j < end; j++)
      DP_TRY(add_pair(b, model, card->vertex, b->cards.items[m->first_card + row->cards[j]].vertex, bandwidth,
                      model->latency_s, NULL));
  }
  return DP_OK;
}

/* Inner vertices first, so that they are contiguous. */
static dp_status fill_machine(builder *b, machine *m, int *switches) {
  plan_topology_node node = {(int)b->cluster->vertices.count, 0};
  DP_TRY(add_hosts(b, m));
  DP_TRY(add_pcie(b, m));
  DP_TRY(add_nics(b, m));
  int made = 0;
  for (size_t i = 0; i < m->row->nvlinks.count; i++) {
    const plan_nvlink_row *row = &m->row->nvlinks.items[i];
    if (row->shape != PLAN_NVLINK_SWITCH) continue;
    const char *name = row->name
                           ? dp_arena_printf(&b->cluster->arena, "%s/%s", m->name, row->name)
                           : dp_arena_printf(&b->cluster->arena, made ? "%s/nvswitch%d" : "%s/nvswitch", m->name, made);
    DP_TRY(add_vertex(b, PLAN_VERTEX_NVSWITCH, m->index, name, &switches[i]));
    made++;
  }
  node.inner_count = (int)b->cluster->vertices.count - node.first_inner;
  if (!dp_array_push(&b->nodes, node)) return dp_fail_memory(b->error);
  m->first_card = (int)b->cards.count;
  for (size_t r = 0; r < m->row->devices.count; r++)
    for (int i = 0; i < m->row->devices.items[r].count; i++) DP_TRY(add_card(b, m, &m->row->devices.items[r], i));
  for (size_t i = 0; i < m->row->nvlinks.count; i++) DP_TRY(add_nvlink(b, m, &m->row->nvlinks.items[i], &switches[i]));
  return DP_OK;
}

static dp_status add_machine(builder *b, const plan_node_row *row, int index_in_row, int index) {
  dp_arena *arena = &b->cluster->arena;
  machine m = {.row = row, .index = index};
  m.name = !row->name        ? dp_arena_printf(arena, "node%d", index)
           : row->count == 1 ? row->name
                             : dp_arena_printf(arena, "%s%d", row->name, index_in_row);
  int *scratch = calloc(3 * row->pcie.count + row->nvlinks.count + 1, sizeof *scratch);
  if (!m.name || !scratch) {
    free(scratch);
    return dp_fail_memory(b->error);
  }
  m.pcie = scratch;
  m.pcie_up = scratch + row->pcie.count;
  m.through = scratch + 2 * row->pcie.count;
  const dp_status status = fill_machine(b, &m, scratch + 3 * row->pcie.count);
  free(scratch);
  return status;
}

/* ---- the whole ---- */

static bool is_inner(const plan_cluster *cluster, int vertex) {
  const plan_vertex_kind kind = cluster->vertices.items[vertex].kind;
  return kind != PLAN_VERTEX_DEVICE && kind != PLAN_VERTEX_CARD;
}

/* CSR: of each vertex first the links to inner vertices and fabrics, then the others; by link id within each. */
static dp_status index_links(builder *b) {
  plan_cluster *cluster = b->cluster;
  const size_t vertices = cluster->vertices.count, links = cluster->links.count;
  cluster->first_link = DP_ARENA_NEW(&cluster->arena, int, vertices + 1);
  cluster->adjacent_links = DP_ARENA_NEW(&cluster->arena, int, links);
  b->topology->inner_split = DP_ARENA_NEW(&cluster->arena, int, vertices);
  int *next = calloc(vertices + 1, sizeof *next);
  if (!cluster->first_link || !cluster->adjacent_links || !b->topology->inner_split || !next) {
    free(next);
    return dp_fail_memory(b->error);
  }
  for (size_t l = 0; l < links; l++) cluster->first_link[cluster->links.items[l].from + 1]++;
  for (size_t v = 0; v < vertices; v++) cluster->first_link[v + 1] += cluster->first_link[v];
  for (size_t v = 0; v < vertices; v++) next[v] = cluster->first_link[v];
  for (int inner = 1; inner >= 0; inner--) {
    for (size_t l = 0; l < links; l++) {
      const plan_link *link = &cluster->links.items[l];
      if (is_inner(cluster, link->to) == (inner == 1)) cluster->adjacent_links[next[link->from]++] = (int)l;
    }
    if (inner)
      for (size_t v = 0; v < vertices; v++) b->topology->inner_split[v] = next[v];
  }
  free(next);
  b->topology->root_link = DP_ARENA_NEW(&cluster->arena, int, vertices);
  if (!b->topology->root_link) return dp_fail_memory(b->error);
  for (size_t v = 0; v < vertices; v++) b->topology->root_link[v] = -1;
  for (size_t l = 0; l < links; l++)
    if (cluster->links.items[l].from == cluster->links.items[l].to &&
        cluster->vertices.items[cluster->links.items[l].from].kind == PLAN_VERTEX_PCIE_ROOT)
      b->topology->root_link[cluster->links.items[l].from] = (int)l;
  return DP_OK;
}

static void sum_price_and_power(builder *b) {
  plan_cluster *cluster = b->cluster;
  const plan_device *device = cluster->devices.items;
  bool known = true, valued = true;
  for (size_t r = 0; r < b->file.nodes.count; r++) {
    const plan_node_row *row = &b->file.nodes.items[r];
    for (int i = 0; i < row->count; i++) {
      double price = 0;
      bool priced = true;
      for (size_t d = 0; d < row->devices.count; d++)
        for (int k = 0; k < row->devices.items[d].count * row->devices.items[d].parts; k++, device++) {
          price += device->price_usd_per_h;
          cluster->power_w += device->tdp_w;
          cluster->purchase_usd += device->purchase_usd;
          if (device->purchase_usd <= 0) valued = false;
          if (device->price_usd_per_h <= 0) priced = false;
        }
      if (row->price_usd_per_h > 0)
        price = row->price_usd_per_h;
      else if (!priced)
        known = false;
      cluster->price_usd_per_h += price;
      cluster->power_w += row->power_w;
    }
  }
  if (!known) cluster->price_usd_per_h = 0;
  if (!valued) cluster->purchase_usd = 0;
  if (b->file.price_usd_per_h > 0) cluster->price_usd_per_h = b->file.price_usd_per_h;
  if (b->file.purchase_usd > 0) cluster->purchase_usd = b->file.purchase_usd;
}

/* Within a node everything hangs on its PCIe trees; nodes must share a fabric: every device must reach the first. */
static dp_status check_connected(const builder *b) {
  const plan_cluster *cluster = b->cluster;
  for (size_t d = 1; d < cluster->devices.count; d++) {
    plan_route route;
    dp_error reason = DP_ERROR_INIT;
    if (plan_cluster_route(cluster, 0, (int)d, &route, &reason) == DP_OK) continue;
    const plan_node_row *row = b->file.nodes.items;
    for (int node = cluster->devices.items[d].node; node >= row->count;) node -= row++->count;
    return dp_fail_at(b->error, row->node, "[[node]]: %s", reason.text);
  }
  return DP_OK;
}

static dp_status build(builder *b, const dp_node *table) {
  plan_cluster *cluster = b->cluster;
  DP_TRY(plan_cluster_file_read(table, b->catalogue, &cluster->arena, &b->file, b->error));
  cluster->name = b->file.name;
  cluster->file = table->file;
  cluster->host_issue_factor = b->file.host_issue_factor;
  b->topology = DP_ARENA_NEW(&cluster->arena, plan_topology, 1);
  if (!b->topology) return dp_fail_memory(b->error);
  for (size_t f = 0; f < b->file.fabrics.count; f++) {
    int vertex = 0;
    DP_TRY(add_vertex(b, PLAN_VERTEX_FABRIC, -1, b->file.fabrics.items[f], &vertex));
  }
  for (size_t r = 0; r < b->file.nodes.count; r++)
    for (int i = 0; i < b->file.nodes.items[r].count; i++)
      DP_TRY(add_machine(b, &b->file.nodes.items[r], i, cluster->node_count++));
  cluster->card_count = (int)b->cards.count;
  DP_TRY(index_links(b));
  b->topology->fabric_count = (int)b->file.fabrics.count;
  sum_price_and_power(b);
  return DP_OK;
}

/* Growable arrays become the arena's. */
static dp_status keep(builder *b) {
  dp_arena *arena = &b->cluster->arena;
  plan_topology *topology = b->topology;
  topology->twin = DP_ARENA_NEW(arena, int, b->twin.count);
  topology->device_port = DP_ARENA_NEW(arena, int, b->device_port.count);
  topology->cards = DP_ARENA_NEW(arena, plan_card, b->cards.count);
  topology->nodes = DP_ARENA_NEW(arena, plan_topology_node, b->nodes.count);
  if (!topology->twin || !topology->device_port || !topology->cards || !topology->nodes)
    return dp_fail_memory(b->error);
  if (b->twin.count) memcpy(topology->twin, b->twin.items, b->twin.count * sizeof(int));
  if (b->device_port.count) memcpy(topology->device_port, b->device_port.items, b->device_port.count * sizeof(int));
  if (b->cards.count) memcpy(topology->cards, b->cards.items, b->cards.count * sizeof(plan_card));
  if (b->nodes.count) memcpy(topology->nodes, b->nodes.items, b->nodes.count * sizeof(plan_topology_node));
  b->cluster->topology = topology;
  return DP_OK;
}

dp_status plan_cluster_build(const dp_node *table, plan_catalogue *catalogue, plan_cluster *cluster, dp_error *error) {
  plan_cluster made = {0};
  builder b = {.cluster = &made, .catalogue = catalogue, .error = error};
  dp_status status = build(&b, table);
  if (status == DP_OK) status = keep(&b);
  if (status == DP_OK) status = plan_link_classes_find(&b.file, catalogue, &made, error);
  if (status == DP_OK) status = check_connected(&b);
  plan_cluster_file_free(&b.file);
  dp_array_free(&b.twin);
  dp_array_free(&b.device_port);
  dp_array_free(&b.cards);
  dp_array_free(&b.nodes);
  if (status != DP_OK)
    plan_cluster_free(&made);
  else
    *cluster = made;
  return status;
}

dp_status plan_cluster_read(const char *path, plan_catalogue *catalogue, dp_document *document, plan_cluster *cluster,
                            dp_error *error) {
  dp_document read = {0};
  DP_TRY(dp_document_read(path, &read, error));
  dp_status status = dp_schema_check_format(read.root, "diffpipe-cluster", 1, error);
  if (status == DP_OK) status = plan_cluster_build(read.root, catalogue, cluster, error);
  if (status != DP_OK)
    dp_document_free(&read);
  else
    *document = read;
  return status;
}

void plan_cluster_free(plan_cluster *cluster) {
  dp_array_free(&cluster->devices);
  dp_array_free(&cluster->vertices);
  dp_array_free(&cluster->links);
  dp_arena_free(&cluster->arena);
  *cluster = (plan_cluster){0};
}

bool plan_devices_are_apart(const plan_device *a, const plan_device *b) {
  return !plan_device_is_processor(a->model) && !plan_device_is_processor(b->model) && a->node == b->node &&
         a->card != b->card && a->parts == 1 && b->parts == 1;
}
