#include "plan/cluster_file.h"

#include <string.h>

#include "base/allowed.h"
#include "base/schema.h"
#include "plan/describe.h"
#include "plan/cluster_reader.h"

/* ---- names ---- */

const plan_device_model *plan_cluster_find_model(const plan_cluster_reader *r, const char *name) {
  for (size_t i = 0; i < r->file->models.count; i++)
    if (strcmp(r->file->models.items[i]->name, name) == 0) return r->file->models.items[i];
  return plan_catalogue_device(r->catalogue, name);
}

const plan_link_model *plan_cluster_find_link(const plan_cluster_reader *r, const char *name) {
  for (size_t i = 0; i < r->file->links.count; i++)
    if (strcmp(r->file->links.items[i]->name, name) == 0) return r->file->links.items[i];
  return plan_catalogue_link(r->catalogue, name);
}

/* The link class under `key` of `table`, or the class called `fallback` (NULL: none). */
dp_status plan_cluster_read_link(const plan_cluster_reader *r, const dp_node *table, const char *section,
                                 const char *key, const char *fallback, const plan_link_model **link) {
  const dp_node *node = dp_node_get(table, key);
  const char *name = node && node->kind == DP_NODE_STRING ? node->string : fallback;
  *link = name ? plan_cluster_find_link(r, name) : NULL;
  if (*link || !name) return DP_OK;
  dp_allowed allowed = {.given = name};
  for (size_t i = 0; i < r->file->links.count; i++) dp_allowed_add(&allowed, r->file->links.items[i]->name);
  for (size_t i = 0; i < r->catalogue->links.count; i++) dp_allowed_add(&allowed, r->catalogue->links.items[i].name);
  const dp_status status = dp_fail_at(r->error, node ? node : table, "%s.%s: found \"%.60s\", %s", section, key, name,
                                      dp_allowed_text(&allowed));
  dp_allowed_free(&allowed);
  return status;
}

/* Names stand in the name of every link they touch. */
dp_status plan_cluster_check_name(const plan_cluster_reader *r, const dp_node *table, const char *section,
                                  const char *name) {
  if (!name || strlen(name) <= PLAN_MAX_NAME) return DP_OK;
  return dp_fail_at(r->error, dp_node_get(table, "name"), "%s.name: found %zu bytes, allowed: at most %d", section,
                    strlen(name), PLAN_MAX_NAME);
}

dp_status plan_cluster_count_rows(const plan_cluster_reader *r, const dp_node *node, const char *section, size_t most,
                                  size_t *count) {
  *count = 0;
  if (!node) return DP_OK;
  if (node->kind != DP_NODE_ARRAY)
    return dp_fail_at(r->error, node, "%s: found %s, allowed: a list of tables", section,
                      dp_node_kind_name(node->kind));
  if (node->count > most)
    return dp_fail_at(r->error, node, "%s: found %zu of them, allowed: at most %zu", section, node->count, most);
  *count = node->count;
  return DP_OK;
}
/* ---- [[node]] ---- */

typedef struct node_keys {
  const char *name, *host_link;
  int64_t count;
  double power_w, price_usd_per_h;
  int interconnect;
  bool peer_to_peer;
  const dp_node *pcie, *device, *nvlink, *nic;
} node_keys;

enum { INTERCONNECT_AUTO, INTERCONNECT_PCIE, INTERCONNECT_NVSWITCH, INTERCONNECT_MESH, INTERCONNECT_PAIRS };
static const char *const interconnect_choices[] = {"auto", "pcie", "nvswitch", "mesh", "pairs", NULL};
static const dp_field node_fields[] = {
    {"name", DP_FIELD_STRING, offsetof(node_keys, name), false, 0, 0, NULL, "default node and its index"},
    {"count", DP_FIELD_INTEGER, offsetof(node_keys, count), false, 1, PLAN_MAX_DEVICES, NULL,
     "equal machines; default 1"},
    {"power_w", DP_FIELD_REAL, offsetof(node_keys, power_w), false, 0, 1e6, NULL,
     "W of the machine without its cards; default 0"},
    {"price_usd_per_h", DP_FIELD_REAL, offsetof(node_keys, price_usd_per_h), false, 0, 1e6, NULL,
     "USD an hour for the machine; default: of its cards"},
    {"host_link", DP_FIELD_STRING, offsetof(node_keys, host_link), false, 0, 0, NULL,
     "class between sockets; default socket-amd"},
    {"interconnect", DP_FIELD_CHOICE, offsetof(node_keys, interconnect), false, 0, 0, interconnect_choices,
     "between the cards besides PCIe; default auto: NVSwitch for SXM boards, a mesh for Infinity Fabric, else none"},
    {"peer_to_peer", DP_FIELD_BOOLEAN, offsetof(node_keys, peer_to_peer), false, 0, 0, NULL,
     "direct copies over PCIe; default each model's"},
    {"pcie", DP_FIELD_NODE, offsetof(node_keys, pcie), false, 0, 0, NULL, "[[node.pcie]]; default one root complex"},
    {"device", DP_FIELD_NODE, offsetof(node_keys, device), true, 0, 0, NULL, "[[node.device]]"},
    {"nvlink", DP_FIELD_NODE, offsetof(node_keys, nvlink), false, 0, 0, NULL, "[[node.nvlink]]"},
    {"nic", DP_FIELD_NODE, offsetof(node_keys, nic), false, 0, 0, NULL, "[[node.nic]]"},
};

static dp_status read_interconnect(const plan_cluster_reader *r, const dp_node *table, const node_keys *keys,
                                   plan_node_row *node) {
  size_t count = 0;
  DP_TRY(plan_cluster_count_rows(r, keys->nvlink, "[[node.nvlink]]", 256, &count));
  if (count && keys->interconnect != INTERCONNECT_AUTO)
    return dp_fail_at(r->error, dp_node_get(table, "interconnect"),
                      "[[node]].interconnect: found \"%s\" beside [[node.nvlink]], allowed: one of the two",
                      interconnect_choices[keys->interconnect]);
  for (size_t i = 0; i < count; i++) DP_TRY(plan_cluster_read_nvlink(r, keys->nvlink->items[i], node));
  if (count) return DP_OK;
  switch (keys->interconnect) {
    case INTERCONNECT_NVSWITCH:
      return plan_cluster_default_nvlink(r, node, PLAN_INTERCONNECT_NONE, PLAN_NVLINK_SWITCH);
    case INTERCONNECT_MESH:
      return plan_cluster_default_nvlink(r, node, PLAN_INTERCONNECT_NONE, PLAN_NVLINK_MESH);
    case INTERCONNECT_PAIRS:
      return plan_cluster_default_nvlink(r, node, PLAN_INTERCONNECT_NONE, PLAN_NVLINK_PAIRS);
    case INTERCONNECT_AUTO:
      DP_TRY(plan_cluster_default_nvlink(r, node, PLAN_INTERCONNECT_NVLINK, PLAN_NVLINK_SWITCH));
      return plan_cluster_default_nvlink(r, node, PLAN_INTERCONNECT_INFINITY_FABRIC, PLAN_NVLINK_MESH);
    default:
      return DP_OK;
  }
}

/* Adds the node's share of devices, vertices and links; refuses what would not fit. */
static dp_status count_node(const plan_cluster_reader *r, const plan_node_row *node) {
  int64_t devices = 0, cards_cut = 0, nics = 0, switches = 0, nvlinks = 0;
  for (size_t i = 0; i < node->devices.count; i++) {
    devices += (int64_t)node->devices.items[i].count * node->devices.items[i].parts;
    if (node->devices.items[i].parts > 1) cards_cut += node->devices.items[i].count;
  }
  for (size_t i = 0; i < node->nics.count; i++) nics += node->nics.items[i].count;
  for (size_t i = 0; i < node->nvlinks.count; i++) {
    const plan_nvlink_row *row = &node->nvlinks.items[i];
    switches += row->shape == PLAN_NVLINK_SWITCH;
    nvlinks += (int64_t)row->card_count * (row->shape == PLAN_NVLINK_MESH ? row->card_count - 1 : 2);
  }
  const int64_t inner = node->socket_count + (int64_t)node->pcie.count + nics + switches;
  if (inner > PLAN_MAX_INNER)
    return dp_fail_at(r->error, node->node,
                      "[[node]]: found %lld switches, root complexes, sockets and NICs, allowed: at most %d",
                      (long long)inner, PLAN_MAX_INNER);
  r->file->device_count += devices * node->count;
  r->file->vertex_count += (devices + cards_cut + inner) * node->count;
  r->file->link_count += (2 * (devices + cards_cut) + 2 * (int64_t)node->pcie.count + 4 * nics + nvlinks +
                          node->socket_count * (node->socket_count - 1)) *
                         node->count;
  if (r->file->device_count > PLAN_MAX_DEVICES)
    return dp_fail_at(r->error, node->node, "[[node]]: found %lld devices in the cluster, allowed: at most %d",
                      (long long)r->file->device_count, PLAN_MAX_DEVICES);
  if (r->file->vertex_count > PLAN_MAX_VERTICES)
    return dp_fail_at(r->error, node->node,
                      "[[node]]: found %lld devices, switches, sockets and NICs in the cluster, allowed: at most %d",
                      (long long)r->file->vertex_count, PLAN_MAX_VERTICES);
  if (r->file->link_count > PLAN_MAX_LINKS)
    return dp_fail_at(r->error, node->node, "[[node]]: found %lld links in the cluster, allowed: at most %d",
                      (long long)r->file->link_count, PLAN_MAX_LINKS);
  return DP_OK;
}

static dp_status fill_node(const plan_cluster_reader *r, const dp_node *table, const node_keys *keys,
                           plan_node_row *node) {
  DP_TRY(plan_cluster_read_link(r, table, "[[node]]", "host_link", "socket-amd", &node->host_link));
  DP_TRY(plan_cluster_read_pcie(r, keys->pcie, node));
  size_t count = 0;
  DP_TRY(plan_cluster_count_rows(r, keys->device, "[[node.device]]", 1024, &count));
  if (count == 0)
    return dp_fail_at(r->error, keys->device, "[[node.device]]: found none, allowed: at least one device in a node");
  const dp_node *peer_to_peer = dp_node_get(table, "peer_to_peer");
  for (size_t i = 0; i < count; i++) DP_TRY(plan_cluster_read_device(r, keys->device->items[i], peer_to_peer, node));
  DP_TRY(read_interconnect(r, table, keys, node));
  DP_TRY(plan_cluster_count_rows(r, keys->nic, "[[node.nic]]", 64, &count));
  for (size_t i = 0; i < count; i++) DP_TRY(plan_cluster_read_nic(r, keys->nic->items[i], node));
  return count_node(r, node);
}

static dp_status read_node(const plan_cluster_reader *r, const dp_node *table) {
  node_keys keys = {.count = 1};
  DP_TRY(dp_schema_read(table, NULL, "[[node]]", node_fields, DP_COUNT_OF(node_fields), &keys, r->error));
  DP_TRY(plan_cluster_check_name(r, table, "[[node]]", keys.name));
  for (size_t i = 0; i < r->file->nodes.count; i++)
    if (keys.name && r->file->nodes.items[i].name && strcmp(r->file->nodes.items[i].name, keys.name) == 0)
      return dp_fail_at(r->error, dp_node_get(table, "name"),
                        "[[node]]: found the name \"%.60s\" again, allowed: unique names", keys.name);
  const plan_node_row empty = {.name = keys.name,
                               .count = (int)keys.count,
                               .power_w = keys.power_w,
                               .price_usd_per_h = keys.price_usd_per_h,
                               .node = table};
  if (!dp_array_push(&r->file->nodes, empty)) return dp_fail_memory(r->error);
  return fill_node(r, table, &keys, &r->file->nodes.items[r->file->nodes.count - 1]);
}

/* ---- the file ---- */

typedef struct file_keys {
  const char *format, *name;
  int64_t version;
  double price_usd_per_h, purchase_usd, host_issue_factor;
  const dp_node *device, *link, *node, *fabric;
} file_keys;

static const dp_field file_fields[] = {
    {"format", DP_FIELD_STRING, offsetof(file_keys, format), false, 0, 0, NULL, "diffpipe-cluster"},
    {"version", DP_FIELD_INTEGER, offsetof(file_keys, version), false, 1, 1, NULL, "1"},
    {"name", DP_FIELD_STRING, offsetof(file_keys, name), false, 0, 0, NULL, "default cluster"},
    {"price_usd_per_h", DP_FIELD_REAL, offsetof(file_keys, price_usd_per_h), false, 0, 1e9, NULL,
     "USD an hour for all of it; default: of its nodes"},
    {"purchase_usd", DP_FIELD_REAL, offsetof(file_keys, purchase_usd), false, 0, 1e12, NULL,
     "USD to buy all of it; default: of its cards"},
    {"host_issue_factor", DP_FIELD_REAL, offsetof(file_keys, host_issue_factor), false, 0.01, 100, NULL,
     "how much slower these hosts issue work; default 1"},
    {"node", DP_FIELD_NODE, offsetof(file_keys, node), true, 0, 0, NULL, "[[node]]"},
    {"fabric", DP_FIELD_NODE, offsetof(file_keys, fabric), false, 0, 0, NULL, "[[fabric]]"},
    {"device", DP_FIELD_NODE, offsetof(file_keys, device), false, 0, 0, NULL, "[[device]]: rows as in the catalogue"},
    {"link", DP_FIELD_NODE, offsetof(file_keys, link), false, 0, 0, NULL, "[[link]]: rows as in the catalogue"},
};

static const dp_field fabric_fields[] = {{"name", DP_FIELD_STRING, 0, true, 0, 0, NULL, "unique"}};

static dp_status read_own_rows(const plan_cluster_reader *r, const file_keys *keys) {
  size_t count = 0;
  DP_TRY(plan_cluster_count_rows(r, keys->device, "[[device]]", 1024, &count));
  for (size_t i = 0; i < count; i++) {
    plan_device_model *model = DP_ARENA_NEW(r->arena, plan_device_model, 1);
    if (!model) return dp_fail_memory(r->error);
    DP_TRY(plan_device_model_read(keys->device->items[i], model, r->error));
    if (plan_cluster_find_model(r, model->name))
      return dp_fail_at(r->error, model->node,
                        "[[device]]: found the name \"%.60s\" again, allowed: a name that is not in the catalogue",
                        model->name);
    if (!dp_array_push(&r->file->models, model)) return dp_fail_memory(r->error);
  }
  DP_TRY(plan_cluster_count_rows(r, keys->link, "[[link]]", 1024, &count));
  for (size_t i = 0; i < count; i++) {
    plan_link_model *model = DP_ARENA_NEW(r->arena, plan_link_model, 1);
    if (!model) return dp_fail_memory(r->error);
    DP_TRY(plan_link_model_read(keys->link->items[i], r->arena, model, r->error));
    if (plan_cluster_find_link(r, model->name))
      return dp_fail_at(r->error, model->node,
                        "[[link]]: found the name \"%.60s\" again, allowed: a name that is not in the catalogue",
                        model->name);
    if (!dp_array_push(&r->file->links, model)) return dp_fail_memory(r->error);
  }
  DP_TRY(plan_cluster_count_rows(r, keys->fabric, "[[fabric]]", 64, &count));
  for (size_t i = 0; i < count; i++) {
    const char *name = NULL;
    DP_TRY(dp_schema_read(keys->fabric->items[i], NULL, "[[fabric]]", fabric_fields, DP_COUNT_OF(fabric_fields), &name,
                          r->error));
    DP_TRY(plan_cluster_check_name(r, keys->fabric->items[i], "[[fabric]]", name));
    for (size_t f = 0; f < r->file->fabrics.count; f++)
      if (strcmp(r->file->fabrics.items[f], name) == 0)
        return dp_fail_at(r->error, keys->fabric->items[i],
                          "[[fabric]]: found the name \"%.60s\" again, allowed: unique names", name);
    if (!dp_array_push(&r->file->fabrics, name)) return dp_fail_memory(r->error);
  }
  return DP_OK;
}

static dp_status read_file(const plan_cluster_reader *r, const dp_node *table) {
  file_keys keys = {.name = "cluster", .host_issue_factor = 1};
  DP_TRY(dp_schema_read(table, NULL, "cluster", file_fields, DP_COUNT_OF(file_fields), &keys, r->error));
  r->file->name = keys.name;
  r->file->price_usd_per_h = keys.price_usd_per_h;
  r->file->purchase_usd = keys.purchase_usd;
  r->file->host_issue_factor = keys.host_issue_factor;
  DP_TRY(read_own_rows(r, &keys));
  r->file->vertex_count = (int64_t)r->file->fabrics.count;
  size_t count = 0;
  DP_TRY(plan_cluster_count_rows(r, keys.node, "[[node]]", PLAN_MAX_DEVICES, &count));
  if (count == 0) return dp_fail_at(r->error, keys.node, "[[node]]: found none, allowed: at least one node");
  for (size_t i = 0; i < count; i++) DP_TRY(read_node(r, keys.node->items[i]));
  return DP_OK;
}

dp_status plan_cluster_file_read(const dp_node *table, const plan_catalogue *catalogue, dp_arena *arena,
                                 plan_cluster_file *file, dp_error *error) {
  *file = (plan_cluster_file){0};
  const plan_cluster_reader r = {catalogue, arena, file, error};
  const dp_status status = read_file(&r, table);
  if (status != DP_OK) plan_cluster_file_free(file);
  return status;
}

void plan_cluster_file_free(plan_cluster_file *file) {
  for (size_t i = 0; i < file->nodes.count; i++) {
    dp_array_free(&file->nodes.items[i].pcie);
    dp_array_free(&file->nodes.items[i].devices);
    dp_array_free(&file->nodes.items[i].nvlinks);
    dp_array_free(&file->nodes.items[i].nics);
  }
  dp_array_free(&file->models);
  dp_array_free(&file->links);
  dp_array_free(&file->fabrics);
  dp_array_free(&file->nodes);
}

size_t plan_cluster_tables(const plan_key_table **tables) {
  static const plan_key_table all[] = {
      {"the top of the file", file_fields, DP_COUNT_OF(file_fields)},
      {"[[node]]", node_fields, DP_COUNT_OF(node_fields)},
      {"[[fabric]]", fabric_fields, DP_COUNT_OF(fabric_fields)},
  };
  *tables = all;
  return DP_COUNT_OF(all);
}
