#include "plan/cluster_change.h"

#include <math.h>
#include <string.h>

#include "base/allowed.h"
#include "base/schema.h"
#include "plan/describe.h"

typedef struct changer {
  const plan_catalogue *catalogue;
  plan_cluster *cluster;
  dp_error *error;
} changer;

/* ---- tables within tables ---- */

/* The table's own keys, without the tables in it. */
static dp_status own_keys(const changer *c, const dp_node *table, dp_node *own) {
  *own = *table;
  own->count = 0;
  own->items = DP_ARENA_NEW(&c->cluster->arena, dp_node *, table->count);
  if (!own->items) return dp_fail_memory(c->error);
  for (size_t i = 0; i < table->count; i++)
    if (table->items[i]->kind != DP_NODE_TABLE) own->items[own->count++] = table->items[i];
  return DP_OK;
}

static dp_status check_table(const changer *c, const dp_node *table, const char *name) {
  char shown[80];
  if (table->kind == DP_NODE_TABLE) return DP_OK;
  return dp_fail_at(c->error, table, "%s: found %s, allowed: a table", name, dp_node_show(table, shown));
}

static dp_status fail_unknown(const changer *c, const dp_node *table, const char *section, dp_allowed *allowed) {
  const dp_status status = dp_fail_at(c->error, table, "%s: found \"%.60s\", which %.60s does not have, %s", section,
                                      table->key, c->cluster->name, dp_allowed_text(allowed));
  dp_allowed_free(allowed);
  return status;
}

/* ---- [link] ---- */

typedef struct link_change {
  double bandwidth_gb_per_s, latency_us;
} link_change;

#define ROW(key, min, max, help) \
  { #key, DP_FIELD_REAL, offsetof(link_change, key), false, min, max, NULL, help }
static const dp_field link_fields[] = {
    ROW(bandwidth_gb_per_s, 1e-6, 1e6, "GB/s one way of each link; [link.nvlink]: of a kind or class; default as read"),
    ROW(latency_us, 0, 1e9, "us of a whole transfer; default as read"),
};
#undef ROW

static bool is_card(const plan_cluster *cluster, int vertex) {
  const plan_vertex_kind kind = cluster->vertices.items[vertex].kind;
  return kind == PLAN_VERTEX_DEVICE || kind == PLAN_VERTEX_CARD;
}

/* Which part of its class's latency a link carries: that of a transfer is halved at both ends of a crossing. */
static double latency_share(const plan_cluster *cluster, const plan_link *link) {
  const plan_vertex *vertices = cluster->vertices.items;
  const plan_vertex_kind from = vertices[link->from].kind, to = vertices[link->to].kind;
  const bool card_from = is_card(cluster, link->from), card_to = is_card(cluster, link->to);
  if (link->from == link->to) return card_from ? 1 : 0;
  if (card_from && card_to) /* a part's port into its card, or a link of a mesh */
    return link->model->kind == PLAN_LINK_MEMORY ? 0 : 1;
  if (card_from || card_to) return 0.5;
  if (from == PLAN_VERTEX_HOST && to == PLAN_VERTEX_HOST) return 1;
  return from == PLAN_VERTEX_FABRIC || to == PLAN_VERTEX_FABRIC ? 0.5 : 0;
}

static bool is_root(const plan_cluster *cluster, const plan_link *link) {
  return link->from == link->to && cluster->vertices.items[link->from].kind == PLAN_VERTEX_PCIE_ROOT;
}

static bool speaks_of(const char *name, const plan_link *link) {
  return !name || strcmp(name, plan_link_kind_names[link->model->kind]) == 0 || strcmp(name, link->model->name) == 0;
}

static dp_status change_links(const changer *c, const dp_node *table, const char *name, const char *section) {
  plan_cluster *cluster = c->cluster;
  link_change change = {NAN, NAN};
  dp_node own;
  DP_TRY(own_keys(c, table, &own));
  DP_TRY(dp_schema_read(&own, NULL, section, link_fields, DP_COUNT_OF(link_fields), &change, c->error));
  bool any = false;
  for (size_t l = 0; l < cluster->links.count; l++) {
    plan_link *link = &cluster->links.items[l];
    if (!speaks_of(name, link)) continue;
    any = true;
    if (!isnan(change.bandwidth_gb_per_s))
      link->bandwidth_bytes_per_s = change.bandwidth_gb_per_s * 1e9 * (is_root(cluster, link) ? 2 : 1);
    if (!isnan(change.latency_us)) link->latency_s = change.latency_us * 1e-6 * latency_share(cluster, link);
  }
  if (any) return DP_OK;
  dp_allowed allowed = {.given = name};
  for (size_t l = 0; l < cluster->links.count; l++) {
    const plan_link_model *model = cluster->links.items[l].model;
    bool kind_seen = false, seen = false;
    for (size_t before = 0; before < l && !seen; before++) {
      kind_seen = kind_seen || cluster->links.items[before].model->kind == model->kind;
      seen = seen || cluster->links.items[before].model == model;
    }
    if (!seen && !kind_seen) dp_allowed_add(&allowed, plan_link_kind_names[model->kind]);
    if (!seen) dp_allowed_add(&allowed, model->name);
  }
  return fail_unknown(c, table, "link", &allowed);
}

/* ---- [device] ---- */

typedef struct device_change {
  double memory_gb, memory_bandwidth_gb_per_s, fp32_tflops, fp16_tflops, bf16_tflops, achieved_bf16_tflops, tdp_w,
      price_usd_per_h, purchase_usd;
} device_change;

#define ROW(key, min, max, help) \
  { #key, DP_FIELD_REAL, offsetof(device_change, key), false, min, max, NULL, help }
static const dp_field device_fields[] = {
    ROW(memory_gb, 0.001, 1e6, "GB of each card that may be used; [device.RTX-4090]: of one model; default as read"),
    ROW(memory_bandwidth_gb_per_s, 0.001, 1e7, "GB/s; default as read"),
    ROW(fp32_tflops, 1e-6, 1e7, "default as read"),
    ROW(fp16_tflops, 1e-6, 1e7, "default as read"),
    ROW(bf16_tflops, 1e-6, 1e7, "default as read"),
    ROW(achieved_bf16_tflops, 1e-6, 1e7, "best matrix product; default as read, in proportion to bf16_tflops"),
    ROW(tdp_w, 1, 1e5, "W; default as read"),
    ROW(price_usd_per_h, 0, 1e6, "USD an hour for a card; default as read"),
    ROW(purchase_usd, 0, 1e9, "USD to buy a card; default as read"),
};
#undef ROW

static void change_model(const device_change *change, plan_device_model *model) {
  const double bf16_before = model->peak_flops_per_s[GRAPH_BF16];
  if (!isnan(change->fp32_tflops)) model->peak_flops_per_s[GRAPH_FP32] = change->fp32_tflops * 1e12;
  if (!isnan(change->fp16_tflops)) model->peak_flops_per_s[GRAPH_FP16] = change->fp16_tflops * 1e12;
  if (!isnan(change->bf16_tflops)) {
    model->peak_flops_per_s[GRAPH_BF16] = change->bf16_tflops * 1e12;
    if (bf16_before > 0) model->achieved_flops_per_s *= model->peak_flops_per_s[GRAPH_BF16] / bf16_before;
  }
  if (!isnan(change->achieved_bf16_tflops)) model->achieved_flops_per_s = change->achieved_bf16_tflops * 1e12;
  if (!isnan(change->memory_bandwidth_gb_per_s))
    model->memory_bandwidth_bytes_per_s = change->memory_bandwidth_gb_per_s * 1e9;
}

/* Links inside the card of a device whose memory became `ratio` times as fast. */
static void change_copies(plan_cluster *cluster, const plan_device *device, double ratio, bool *done) {
  for (size_t l = 0; l < cluster->links.count; l++) {
    plan_link *link = &cluster->links.items[l];
    if (done[l] || link->model->reference_memory_bytes_per_s <= 0) continue;
    const bool port = link->from == device->vertex || link->to == device->vertex;
    bool inside = port;
    for (size_t p = 0; !inside && link->from == link->to && p < cluster->links.count; p++)
      inside = cluster->links.items[p].from == device->vertex && cluster->links.items[p].to == link->to;
    if (!inside) continue;
    link->bandwidth_bytes_per_s *= ratio;
    done[l] = true;
  }
}

/* Prices alone: such a list may name cards that are in other clusters of a comparison. */
static bool is_price_list(const dp_node *table) {
  for (size_t i = 0; i < table->count; i++)
    if (strcmp(table->items[i]->key, "price_usd_per_h") != 0 && strcmp(table->items[i]->key, "purchase_usd") != 0)
      return false;
  return true;
}

/* A model of its own for each model that devices of `name` have: what is equal stays one, since costs are shared by it.
 */
static dp_status change_devices(const changer *c, const dp_node *table, const char *name, const char *section,
                                bool *repriced, bool *revalued) {
  plan_cluster *cluster = c->cluster;
  device_change change = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
  dp_node own;
  DP_TRY(own_keys(c, table, &own));
  DP_TRY(dp_schema_read(&own, NULL, section, device_fields, DP_COUNT_OF(device_fields), &change, c->error));
  const size_t count = cluster->devices.count;
  const plan_device_model **before = DP_ARENA_NEW(&cluster->arena, const plan_device_model *, count);
  bool *copies = DP_ARENA_NEW(&cluster->arena, bool, cluster->links.count);
  if (!before || !copies) return dp_fail_memory(c->error);
  for (size_t d = 0; d < count; d++) before[d] = cluster->devices.items[d].model;
  bool any = false;
  for (size_t d = 0; d < count; d++) {
    plan_device *device = &cluster->devices.items[d];
    if (name && strcmp(name, before[d]->name) != 0) continue;
    any = true;
    for (size_t e = 0; e < d && device->model == before[d]; e++)
      if (before[e] == before[d]) device->model = cluster->devices.items[e].model;
    if (device->model == before[d]) {
      plan_device_model *model = DP_ARENA_NEW(&cluster->arena, plan_device_model, 1);
      if (!model) return dp_fail_memory(c->error);
      *model = *before[d];
      change_model(&change, model);
      device->model = model;
    }
    if (!isnan(change.memory_gb)) device->memory_bytes = (int64_t)llround(change.memory_gb * 1e9) / device->parts;
    if (!isnan(change.tdp_w)) {
      cluster->power_w += change.tdp_w / device->parts - device->tdp_w;
      device->tdp_w = change.tdp_w / device->parts;
    }
    if (!isnan(change.price_usd_per_h)) device->price_usd_per_h = change.price_usd_per_h / device->parts;
    if (!isnan(change.purchase_usd)) device->purchase_usd = change.purchase_usd / device->parts;
    if (device->parts > 1 && !isnan(change.memory_bandwidth_gb_per_s))
      change_copies(cluster, device,
                    device->model->memory_bandwidth_bytes_per_s / before[d]->memory_bandwidth_bytes_per_s, copies);
  }
  *repriced = *repriced || !isnan(change.price_usd_per_h);
  *revalued = *revalued || !isnan(change.purchase_usd);
  if (any || (is_price_list(&own) && plan_catalogue_device(c->catalogue, name))) return DP_OK;
  dp_allowed allowed = {.given = name};
  for (size_t d = 0; d < count; d++) {
    bool seen = false;
    for (size_t e = 0; e < d; e++) seen = seen || strcmp(before[e]->name, before[d]->name) == 0;
    if (!seen) dp_allowed_add(&allowed, before[d]->name);
  }
  return fail_unknown(c, table, "device", &allowed);
}

static double sum_of(const plan_cluster *cluster, bool purchase) {
  double sum = 0;
  for (size_t d = 0; d < cluster->devices.count; d++) {
    const plan_device *device = &cluster->devices.items[d];
    const double price = purchase ? device->purchase_usd : device->price_usd_per_h;
    if (price <= 0) return 0;
    sum += price;
  }
  return sum;
}

/* ---- [host] ---- */

typedef struct host_change {
  double issue_factor, power_w, price_usd_per_h, purchase_usd;
} host_change;

#define ROW(key, min, max, help) \
  { #key, DP_FIELD_REAL, offsetof(host_change, key), false, min, max, NULL, help }
static const dp_field host_fields[] = {
    ROW(issue_factor, 0.01, 100, "host_issue_factor of the cluster; default as read"),
    ROW(power_w, 0, 1e6, "W of each machine without its cards; default as read"),
    ROW(price_usd_per_h, 0, 1e6, "USD an hour for each machine with its cards; default as read"),
    ROW(purchase_usd, 0, 1e9, "USD to buy each machine with its cards; default as read"),
};
#undef ROW

static dp_status change_hosts(const changer *c, const dp_node *table) {
  plan_cluster *cluster = c->cluster;
  host_change change = {NAN, NAN, NAN, NAN};
  DP_TRY(dp_schema_read(table, NULL, "host", host_fields, DP_COUNT_OF(host_fields), &change, c->error));
  if (!isnan(change.issue_factor)) cluster->host_issue_factor = change.issue_factor;
  if (!isnan(change.power_w)) {
    cluster->power_w = change.power_w * cluster->node_count;
    for (size_t d = 0; d < cluster->devices.count; d++) cluster->power_w += cluster->devices.items[d].tdp_w;
  }
  if (!isnan(change.price_usd_per_h)) cluster->price_usd_per_h = change.price_usd_per_h * cluster->node_count;
  if (!isnan(change.purchase_usd)) cluster->purchase_usd = change.purchase_usd * cluster->node_count;
  return DP_OK;
}

/* ---- all ---- */

static dp_status change_link_table(const changer *c, const dp_node *table) {
  DP_TRY(check_table(c, table, "link"));
  DP_TRY(change_links(c, table, NULL, "link"));
  for (int by_class = 0; by_class < 2; by_class++) /* kinds first: a class has the last word */
    for (size_t i = 0; i < table->count; i++) {
      const dp_node *part = table->items[i];
      bool kind = false;
      for (int k = 0; k < PLAN_LINK_KIND_COUNT; k++) kind = kind || strcmp(part->key, plan_link_kind_names[k]) == 0;
      if (part->kind != DP_NODE_TABLE || kind != (by_class == 0)) continue;
      const char *section = dp_arena_printf(&c->cluster->arena, "link.%.60s", part->key);
      if (!section) return dp_fail_memory(c->error);
      DP_TRY(change_links(c, part, part->key, section));
    }
  return DP_OK;
}

static dp_status change_device_table(const changer *c, const dp_node *table) {
  bool repriced = false, revalued = false;
  DP_TRY(check_table(c, table, "device"));
  DP_TRY(change_devices(c, table, NULL, "device", &repriced, &revalued));
  for (size_t i = 0; i < table->count; i++) {
    const dp_node *part = table->items[i];
    if (part->kind != DP_NODE_TABLE) continue;
    const char *section = dp_arena_printf(&c->cluster->arena, "device.%.60s", part->key);
    if (!section) return dp_fail_memory(c->error);
    DP_TRY(change_devices(c, part, part->key, section, &repriced, &revalued));
  }
  if (repriced) c->cluster->price_usd_per_h = sum_of(c->cluster, false);
  if (revalued) c->cluster->purchase_usd = sum_of(c->cluster, true);
  return DP_OK;
}

dp_status plan_cluster_change(const dp_node *root, const plan_catalogue *catalogue, plan_cluster *cluster,
                              dp_error *error) {
  const changer c = {catalogue, cluster, error};
  const dp_node *link = dp_node_get(root, "link"), *device = dp_node_get(root, "device"),
                *host = dp_node_get(root, "host");
  if (device) DP_TRY(change_device_table(&c, device));
  if (link) DP_TRY(change_link_table(&c, link));
  if (host) DP_TRY(change_hosts(&c, host));
  return DP_OK;
}

size_t plan_cluster_change_tables(const plan_key_table **tables) {
  static const plan_key_table all[] = {
      {"[link]", link_fields, DP_COUNT_OF(link_fields)},
      {"[device]", device_fields, DP_COUNT_OF(device_fields)},
      {"[host]", host_fields, DP_COUNT_OF(host_fields)},
  };
  *tables = all;
  return DP_COUNT_OF(all);
}
