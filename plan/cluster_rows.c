/* The rows of one [[node]]: PCIe, devices, NVLink, NICs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/allowed.h"
#include "base/schema.h"
#include "plan/describe.h"
#include "plan/cluster_reader.h"

/* ---- [[node.pcie]] ---- */

typedef struct pcie_keys {
  const char *name, *parent, *link;
  double bandwidth_gb_per_s, peer_gb_per_s;
  int64_t socket;
} pcie_keys;

static const dp_field pcie_fields[] = {
    {"name", DP_FIELD_STRING, offsetof(pcie_keys, name), true, 0, 0, NULL, "unique in its node"},
    {"parent", DP_FIELD_STRING, offsetof(pcie_keys, parent), false, 0, 0, NULL,
     "name of the switch or root complex above; none: a root complex"},
    {"link", DP_FIELD_STRING, offsetof(pcie_keys, link), false, 0, 0, NULL,
     "class of the link upwards; default pcie4-x16, of a root complex host-memory"},
    {"bandwidth_gb_per_s", DP_FIELD_REAL, offsetof(pcie_keys, bandwidth_gb_per_s), false, 1e-6, 1e6, NULL,
     "GB/s of the link upwards; default: its class's"},
    {"peer_gb_per_s", DP_FIELD_REAL, offsetof(pcie_keys, peer_gb_per_s), false, 1e-6, 1e6, NULL,
     "GB/s that a root complex forwards between its ports, all together; default twice its widest port"},
    {"socket", DP_FIELD_INTEGER, offsetof(pcie_keys, socket), false, 0, PLAN_MAX_SOCKETS - 1, NULL,
     "of a root complex; default: each its own"},
};

static int find_pcie(const plan_node_row *node, const char *name) {
  for (size_t i = 0; i < node->pcie.count; i++)
    if (strcmp(node->pcie.items[i].name, name) == 0) return (int)i;
  return -1;
}

static dp_status fail_unknown_pcie(const plan_cluster_reader *r, const dp_node *at, const char *section,
                                   const char *key, const char *name, const plan_node_row *node) {
  dp_str known = {0};
  for (size_t i = 0; i < node->pcie.count && i < 16; i++)
    dp_str_addf(&known, "%s%.40s", i ? ", " : "", node->pcie.items[i].name);
  const dp_status status =
      dp_fail_at(r->error, at, "%s.%s: found \"%.60s\", allowed: %s", section, key, name, dp_str_text(&known));
  dp_str_free(&known);
  return status;
}

/* Every row must reach a root complex in at most PLAN_MAX_PCIE_DEPTH - 1 steps. */
static dp_status check_tree(const plan_cluster_reader *r, const plan_node_row *node) {
  for (size_t i = 0; i < node->pcie.count; i++) {
    int at = (int)i, depth = 0;
    while (node->pcie.items[at].parent >= 0 && depth <= (int)node->pcie.count) {
      at = node->pcie.items[at].parent;
      depth++;
    }
    if (depth > (int)node->pcie.count) { /* `at` is on the cycle by now */
      dp_str cycle = {0};
      const int start = at;
      int shown = 0;
      do {
        if (shown++ < 8) dp_str_addf(&cycle, "%.40s > ", node->pcie.items[at].name);
        at = node->pcie.items[at].parent;
      } while (at != start);
      dp_str_addf(&cycle, "%s%.40s", shown > 8 ? "... > " : "", node->pcie.items[start].name);
      const dp_status status = dp_fail_at(
          r->error, node->pcie.items[start].node,
          "[[node.pcie]]: found a cycle of parents: %s, allowed: a tree that ends in a root complex (no parent)",
          dp_str_text(&cycle));
      dp_str_free(&cycle);
      return status;
    }
    if (depth > PLAN_MAX_PCIE_DEPTH - 1)
      return dp_fail_at(r->error, node->pcie.items[i].node,
                        "[[node.pcie]] %.40s: found %d switches above one another, allowed: at most %d",
                        node->pcie.items[i].name, depth, PLAN_MAX_PCIE_DEPTH - 1);
  }
  return DP_OK;
}

dp_status plan_cluster_read_pcie(const plan_cluster_reader *r, const dp_node *rows, plan_node_row *node) {
  size_t count = 0;
  DP_TRY(plan_cluster_count_rows(r, rows, "[[node.pcie]]", 256, &count));
  int roots = 0;
  for (size_t i = 0; i < count; i++) {
    const dp_node *table = rows->items[i];
    pcie_keys keys = {.socket = -1};
    DP_TRY(dp_schema_read(table, NULL, "[[node.pcie]]", pcie_fields, DP_COUNT_OF(pcie_fields), &keys, r->error));
    DP_TRY(plan_cluster_check_name(r, table, "[[node.pcie]]", keys.name));
    if (find_pcie(node, keys.name) >= 0)
      return dp_fail_at(r->error, table, "[[node.pcie]]: found the name \"%.60s\" again, allowed: unique names",
                        keys.name);
    plan_pcie_row row = {.name = keys.name, .parent = keys.parent ? -2 : -1, .node = table};
    if (keys.parent && keys.socket >= 0)
      return dp_fail_at(r->error, dp_node_get(table, "socket"),
                        "[[node.pcie]].socket: found %lld at a switch, allowed: only at a root complex (no parent)",
                        (long long)keys.socket);
    if (keys.parent && keys.peer_gb_per_s > 0)
      return dp_fail_at(r->error, dp_node_get(table, "peer_gb_per_s"),
                        "[[node.pcie]].peer_gb_per_s: found %g at a switch, allowed: only at a root complex (no parent)",
                        keys.peer_gb_per_s);
    row.peer_bytes_per_s = keys.peer_gb_per_s * 1e9;
    if (!keys.parent) {
      row.socket = keys.socket >= 0 ? (int)keys.socket : roots;
      roots++;
      if (row.socket >= PLAN_MAX_SOCKETS)
        return dp_fail_at(r->error, table,
                          "[[node.pcie]]: found %d root complexes without a socket, allowed: %d sockets", roots,
                          PLAN_MAX_SOCKETS);
      if (row.socket >= node->socket_count) node->socket_count = row.socket + 1;
    }
    DP_TRY(plan_cluster_read_link(r, table, "[[node.pcie]]", "link", keys.parent ? "pcie4-x16" : "host-memory",
                                  &row.link));
    row.bandwidth_bytes_per_s =
        keys.bandwidth_gb_per_s > 0 ? keys.bandwidth_gb_per_s * 1e9 : row.link->bandwidth_bytes_per_s;
    if (!dp_array_push(&node->pcie, row)) return dp_fail_memory(r->error);
  }
  if (count == 0) { /* the shorthand: everything on one root complex */
    plan_pcie_row row = {.name = "root0", .parent = -1, .node = node->node};
    DP_TRY(plan_cluster_read_link(r, node->node, "[[node]]", "", "host-memory", &row.link));
    row.bandwidth_bytes_per_s = row.link->bandwidth_bytes_per_s;
    node->socket_count = 1;
    return dp_array_push(&node->pcie, row) ? DP_OK : dp_fail_memory(r->error);
  }
  for (size_t i = 0; i < count; i++) {
    plan_pcie_row *row = &node->pcie.items[i];
    const dp_node *parent = dp_node_get(row->node, "parent");
    if (!parent) continue;
    row->parent = find_pcie(node, parent->string);
    if (row->parent < 0) return fail_unknown_pcie(r, parent, "[[node.pcie]]", "parent", parent->string, node);
  }
  DP_TRY(check_tree(r, node));
  for (size_t i = 0; i < count; i++) {
    int at = (int)i;
    while (node->pcie.items[at].parent >= 0) at = node->pcie.items[at].parent;
    node->pcie.items[i].socket = node->pcie.items[at].socket;
  }
  return DP_OK;
}

static dp_status place(const plan_cluster_reader *r, const dp_node *table, const char *section, const char *name,
                       const plan_node_row *node, int *pcie) {
  *pcie = 0;
  if (!name) {
    while (node->pcie.items[*pcie].parent >= 0) (*pcie)++; /* the first root complex: check_tree found one */
    return DP_OK;
  }
  *pcie = find_pcie(node, name);
  return *pcie >= 0 ? DP_OK : fail_unknown_pcie(r, dp_node_get(table, "pcie"), section, "pcie", name, node);
}

/* ---- [[node.device]] ---- */

static dp_status fail_unknown_model(const plan_cluster_reader *r, const dp_node *node, const char *name) {
  dp_allowed allowed = {.given = name};
  for (size_t i = 0; i < r->file->models.count; i++) dp_allowed_add(&allowed, r->file->models.items[i]->name);
  for (size_t i = 0; i < r->catalogue->devices.count; i++)
    dp_allowed_add(&allowed, r->catalogue->devices.items[i].name);
  const dp_status status = dp_fail_at(r->error, node, "[[node.device]].model: found \"%.60s\", %s", name,
                                      dp_allowed_text(&allowed));
  dp_allowed_free(&allowed);
  return status;
}

typedef struct device_keys {
  const char *name, *model, *pcie, *link, *virtual_link;
  int64_t count, parts;
  double memory_gb, memory_limit_gb, price_usd_per_h, purchase_usd, tdp_w;
  bool peer_to_peer;
} device_keys;

static const dp_field device_fields[] = {
    {"model", DP_FIELD_STRING, offsetof(device_keys, model), true, 0, 0, NULL,
     "a card of the catalogue or of [[cluster.device]]"},
    {"count", DP_FIELD_INTEGER, offsetof(device_keys, count), false, 1, PLAN_MAX_DEVICES, NULL, "default 1"},
    {"name", DP_FIELD_STRING, offsetof(device_keys, name), false, 0, 0, NULL, "default gpu and its index"},
    {"pcie", DP_FIELD_STRING, offsetof(device_keys, pcie), false, 0, 0, NULL,
     "the [[node.pcie]] it is plugged in; default the first root complex"},
    {"link", DP_FIELD_STRING, offsetof(device_keys, link), false, 0, 0, NULL,
     "class of its PCIe link; default by the model"},
    {"peer_to_peer", DP_FIELD_BOOLEAN, offsetof(device_keys, peer_to_peer), false, 0, 0, NULL,
     "direct copies over PCIe; default the model's"},
    {"virtual", DP_FIELD_INTEGER, offsetof(device_keys, parts), false, 1, 64, NULL,
     "cut each card into this many devices; default 1"},
    {"virtual_link", DP_FIELD_STRING, offsetof(device_keys, virtual_link), false, 0, 0, NULL,
     "class of copies between parts; default device-copy"},
    {"memory_gb", DP_FIELD_REAL, offsetof(device_keys, memory_gb), false, 0.001, 1e6, NULL,
     "GB of a card; default the model's"},
    {"memory_limit_gb", DP_FIELD_REAL, offsetof(device_keys, memory_limit_gb), false, 0.001, 1e6, NULL,
     "GB of it that may be used; default all"},
    {"price_usd_per_h", DP_FIELD_REAL, offsetof(device_keys, price_usd_per_h), false, 0, 1e6, NULL,
     "USD an hour for a card; default the model's"},
    {"purchase_usd", DP_FIELD_REAL, offsetof(device_keys, purchase_usd), false, 0, 1e9, NULL,
     "USD to buy a card; default the model's"},
    {"tdp_w", DP_FIELD_REAL, offsetof(device_keys, tdp_w), false, 1, 1e5, NULL, "W of a card; default the model's"},
};

static int64_t part_sms(const plan_device_model *model, int64_t parts) {
  const int64_t step = plan_device_sm_step(model);
  return model->sm_count / parts / step * step;
}

static dp_status default_link(const plan_cluster_reader *r, const dp_node *table, plan_device_row *row) {
  const plan_device_model *model = row->model;
  const char *name = plan_device_is_processor(model) ? model->interconnect_link
                     : model->c2c_bytes_per_s > 0    ? "c2c"
                                                : dp_arena_printf(r->arena, "pcie%d-x16%s", (int)model->pcie_generation,
                                                                  row->peer_to_peer ? "" : "-host");
  if (!name) return dp_fail_memory(r->error);
  DP_TRY(plan_cluster_read_link(r, table, "[[node.device]]", "link", name, &row->link));
  row->link_bytes_per_s = row->link->bandwidth_bytes_per_s;
  if (!dp_node_get(table, "link") && model->c2c_bytes_per_s == 0)
    row->link_bytes_per_s *= (double)model->pcie_lanes / 16;
  return DP_OK;
}

dp_status plan_cluster_read_device(const plan_cluster_reader *r, const dp_node *table, const dp_node *peer_to_peer,
                                   plan_node_row *node) {
  device_keys keys = {.count = 1, .parts = 1};
  DP_TRY(dp_schema_read(table, NULL, "[[node.device]]", device_fields, DP_COUNT_OF(device_fields), &keys, r->error));
  DP_TRY(plan_cluster_check_name(r, table, "[[node.device]]", keys.name));
  plan_device_row row = {.name = keys.name,
                         .model = plan_cluster_find_model(r, keys.model),
                         .count = (int)keys.count,
                         .parts = (int)keys.parts,
                         .node = table};
  if (!row.model) return fail_unknown_model(r, dp_node_get(table, "model"), keys.model);
  const plan_device_model *model = row.model;
  row.peer_to_peer = dp_node_get(table, "peer_to_peer") ? keys.peer_to_peer
                     : peer_to_peer                     ? peer_to_peer->boolean
                                                        : model->peer_to_peer;
  DP_TRY(place(r, table, "[[node.device]]", keys.pcie, node, &row.pcie));
  DP_TRY(default_link(r, table, &row));
  DP_TRY(plan_cluster_read_link(r, table, "[[node.device]]", "virtual_link", "device-copy", &row.part_link));
  row.part_sm_count = keys.parts > 1 ? part_sms(model, keys.parts) : model->sm_count;
  if (row.part_sm_count == 0)
    return dp_fail_at(
        r->error, dp_node_get(table, "virtual"),
        "[[node.device]].virtual: found %lld parts of %lld SMs, allowed: parts of at least 8 SMs (2 before Hopper)",
        (long long)keys.parts, (long long)model->sm_count);
  row.memory_bytes = keys.memory_gb > 0 ? (int64_t)llround(keys.memory_gb * 1e9) : model->memory_bytes;
  const int64_t limit = (int64_t)llround(keys.memory_limit_gb * 1e9);
  if (limit > row.memory_bytes)
    return dp_fail_at(r->error, dp_node_get(table, "memory_limit_gb"),
                      "[[node.device]].memory_limit_gb: found %.9g, allowed: at most the card's %.9g",
                      keys.memory_limit_gb, (double)row.memory_bytes / 1e9);
  if (limit > 0) row.memory_bytes = limit;
  row.price_usd_per_h = dp_node_get(table, "price_usd_per_h") ? keys.price_usd_per_h : model->price_usd_per_h;
  row.purchase_usd = dp_node_get(table, "purchase_usd") ? keys.purchase_usd : model->purchase_usd;
  row.tdp_w = keys.tdp_w > 0 ? keys.tdp_w : model->tdp_w;
  for (size_t i = 0; i < node->devices.count; i++)
    if (keys.name && node->devices.items[i].name && strcmp(node->devices.items[i].name, keys.name) == 0)
      return dp_fail_at(r->error, dp_node_get(table, "name"),
                        "[[node.device]]: found the name \"%.60s\" again, allowed: unique names", keys.name);
  node->card_count += row.count;
  if (node->card_count > PLAN_MAX_DEVICES)
    return dp_fail_at(r->error, table, "[[node.device]]: found %d cards in the node, allowed: at most %d",
                      node->card_count, PLAN_MAX_DEVICES);
  return dp_array_push(&node->devices, row) ? DP_OK : dp_fail_memory(r->error);
}

static const plan_device_row *row_of_card(const plan_node_row *node, int card) {
  const plan_device_row *row = node->devices.items;
  while (card >= row->count) card -= row++->count;
  return row;
}

/* ---- [[node.nvlink]] ---- */

typedef struct nvlink_keys {
  const char *name, *link;
  int kind;
  double bandwidth_gb_per_s;
  const dp_node *devices;
} nvlink_keys;

static const char *const nvlink_choices[] = {"nvswitch", "mesh", "pairs", NULL};
static const dp_field nvlink_fields[] = {
    {"kind", DP_FIELD_CHOICE, offsetof(nvlink_keys, kind), true, 0, 0, nvlink_choices, "nvswitch, mesh or pairs"},
    {"name", DP_FIELD_STRING, offsetof(nvlink_keys, name), false, 0, 0, NULL, "of the switch; default nvswitch"},
    {"link", DP_FIELD_STRING, offsetof(nvlink_keys, link), false, 0, 0, NULL, "class; default by the cards"},
    {"bandwidth_gb_per_s", DP_FIELD_REAL, offsetof(nvlink_keys, bandwidth_gb_per_s), false, 1e-6, 1e6, NULL,
     "GB/s one way of each link; default its class's"},
    {"devices", DP_FIELD_NODE, offsetof(nvlink_keys, devices), false, 0, 0, NULL,
     "indices of cards in the node; default all"},
};

/* Classes that the cards' models name must exist; mesh size and parity. */
static dp_status check_nvlink(const plan_cluster_reader *r, const dp_node *at, const plan_node_row *node,
                              const plan_nvlink_row *row) {
  if (row->shape == PLAN_NVLINK_MESH && row->card_count > PLAN_MAX_MESH)
    return dp_fail_at(r->error, at, "[[node.nvlink]]: found a mesh of %d cards, allowed: at most %d", row->card_count,
                      PLAN_MAX_MESH);
  if (row->shape == PLAN_NVLINK_PAIRS && row->card_count % 2)
    return dp_fail_at(r->error, at, "[[node.nvlink]]: found pairs of %d cards, allowed: an even number",
                      row->card_count);
  if (row->link) return DP_OK;
  for (int i = 0; i < row->card_count; i++) {
    const plan_device_model *model = row_of_card(node, row->cards[i])->model;
    if (!model->interconnect_link[0])
      return dp_fail_at(
          r->error, at,
          "[[node.nvlink]]: found card %d, %.60s, which has no NVLink, allowed: only cards that have it, or give link",
          row->cards[i], model->name);
    if (!plan_cluster_find_link(r, model->interconnect_link))
      return dp_fail_at(
          r->error, at,
          "[[node.nvlink]]: found link class \"%.60s\" of %.60s, allowed: a class of links.toml, or give link",
          model->interconnect_link, model->name);
  }
  return DP_OK;
}

static int compare_ints(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

dp_status plan_cluster_read_nvlink(const plan_cluster_reader *r, const dp_node *table, plan_node_row *node) {
  nvlink_keys keys = {0};
  DP_TRY(dp_schema_read(table, NULL, "[[node.nvlink]]", nvlink_fields, DP_COUNT_OF(nvlink_fields), &keys, r->error));
  DP_TRY(plan_cluster_check_name(r, table, "[[node.nvlink]]", keys.name));
  plan_nvlink_row row = {.name = keys.name,
                         .shape = (plan_nvlink_shape)keys.kind,
                         .bandwidth_bytes_per_s = keys.bandwidth_gb_per_s * 1e9,
                         .node = table};
  if (keys.link) DP_TRY(plan_cluster_read_link(r, table, "[[node.nvlink]]", "link", NULL, &row.link));
  int64_t *indices = NULL;
  size_t count = (size_t)node->card_count;
  if (keys.devices)
    DP_TRY(dp_schema_read_integers(keys.devices, "[[node.nvlink]].devices", 0, node->card_count - 1, r->arena, &indices,
                                   &count, r->error));
  row.cards = DP_ARENA_NEW(r->arena, int, count);
  if (!row.cards) return dp_fail_memory(r->error);
  for (size_t i = 0; i < count; i++) row.cards[i] = indices ? (int)indices[i] : (int)i;
  if (indices) {
    qsort(indices, count, sizeof *indices, compare_ints);
    for (size_t i = 1; i < count; i++)
      if (indices[i] == indices[i - 1])
        return dp_fail_at(r->error, keys.devices, "[[node.nvlink]].devices: found card %lld twice, allowed: once",
                          (long long)indices[i]);
  }
  if (count < 2)
    return dp_fail_at(r->error, keys.devices ? keys.devices : table,
                      "[[node.nvlink]].devices: found %zu cards, allowed: at least 2", count);
  row.card_count = (int)count;
  DP_TRY(check_nvlink(r, table, node, &row));
  return dp_array_push(&node->nvlinks, row) ? DP_OK : dp_fail_memory(r->error);
}

/* Cards of one interconnect joined as their boards are: SXM through NVSwitch, AMD by a mesh. */
dp_status plan_cluster_default_nvlink(const plan_cluster_reader *r, plan_node_row *node, plan_interconnect interconnect,
                                      plan_nvlink_shape shape) {
  plan_nvlink_row row = {
      .shape = shape, .node = node->node, .cards = DP_ARENA_NEW(r->arena, int, (size_t)node->card_count)};
  if (!row.cards) return dp_fail_memory(r->error);
  int card = 0;
  for (size_t i = 0; i < node->devices.count; i++)
    for (int c = 0; c < node->devices.items[i].count; c++, card++)
      if (interconnect == PLAN_INTERCONNECT_NONE || node->devices.items[i].model->interconnect == interconnect)
        row.cards[row.card_count++] = card;
  if (row.card_count < 2) return DP_OK;
  DP_TRY(check_nvlink(r, node->node, node, &row));
  return dp_array_push(&node->nvlinks, row) ? DP_OK : dp_fail_memory(r->error);
}

/* ---- [[node.nic]] ---- */

typedef struct nic_keys {
  const char *name, *pcie, *link, *pcie_link, *fabric;
  int64_t count;
} nic_keys;

static const dp_field nic_fields[] = {
    {"link", DP_FIELD_STRING, offsetof(nic_keys, link), true, 0, 0, NULL, "class of its network link"},
    {"fabric", DP_FIELD_STRING, offsetof(nic_keys, fabric), true, 0, 0, NULL, "name of a [[fabric]]"},
    {"count", DP_FIELD_INTEGER, offsetof(nic_keys, count), false, 1, 64, NULL, "default 1"},
    {"name", DP_FIELD_STRING, offsetof(nic_keys, name), false, 0, 0, NULL, "default nic and its index"},
    {"pcie", DP_FIELD_STRING, offsetof(nic_keys, pcie), false, 0, 0, NULL,
     "the [[node.pcie]] it is plugged in; default the first root complex"},
    {"pcie_link", DP_FIELD_STRING, offsetof(nic_keys, pcie_link), false, 0, 0, NULL,
     "class of its PCIe link; default one as fast as the network"},
};

dp_status plan_cluster_read_nic(const plan_cluster_reader *r, const dp_node *table, plan_node_row *node) {
  nic_keys keys = {.count = 1};
  DP_TRY(dp_schema_read(table, NULL, "[[node.nic]]", nic_fields, DP_COUNT_OF(nic_fields), &keys, r->error));
  DP_TRY(plan_cluster_check_name(r, table, "[[node.nic]]", keys.name));
  plan_nic_row row = {.name = keys.name, .count = (int)keys.count, .fabric = -1, .node = table};
  DP_TRY(place(r, table, "[[node.nic]]", keys.pcie, node, &row.pcie));
  DP_TRY(plan_cluster_read_link(r, table, "[[node.nic]]", "link", NULL, &row.link));
  if (row.link->kind != PLAN_LINK_NETWORK)
    return dp_fail_at(r->error, dp_node_get(table, "link"),
                      "[[node.nic]].link: found \"%.60s\", allowed: a class of kind \"network\"", keys.link);
  const double needed = row.link->bandwidth_bytes_per_s;
  const char *pcie = needed <= 24e9 ? "pcie4-x16" : needed <= 55.4e9 ? "pcie5-x16" : "pcie6-x16";
  DP_TRY(plan_cluster_read_link(r, table, "[[node.nic]]", "pcie_link", pcie, &row.pcie_link));
  for (size_t i = 0; i < r->file->fabrics.count; i++)
    if (strcmp(r->file->fabrics.items[i], keys.fabric) == 0) row.fabric = (int)i;
  if (row.fabric < 0) {
    dp_str known = {0};
    for (size_t i = 0; i < r->file->fabrics.count; i++)
      dp_str_addf(&known, "%s%.40s", i ? ", " : "", r->file->fabrics.items[i]);
    const dp_status status =
        dp_fail_at(r->error, dp_node_get(table, "fabric"), "[[node.nic]].fabric: found \"%.60s\", allowed: %s",
                   keys.fabric, known.length ? dp_str_text(&known) : "the name of a [[fabric]]; there is none");
    dp_str_free(&known);
    return status;
  }
  return dp_array_push(&node->nics, row) ? DP_OK : dp_fail_memory(r->error);
}

size_t plan_cluster_row_tables(const plan_key_table **tables) {
  static const plan_key_table all[] = {
      {"[[node.pcie]]", pcie_fields, DP_COUNT_OF(pcie_fields)},
      {"[[node.device]]", device_fields, DP_COUNT_OF(device_fields)},
      {"[[node.nvlink]]", nvlink_fields, DP_COUNT_OF(nvlink_fields)},
      {"[[node.nic]]", nic_fields, DP_COUNT_OF(nic_fields)},
  };
  *tables = all;
  return DP_COUNT_OF(all);
}
