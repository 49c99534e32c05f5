#include "plan/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/schema.h"
#include "plan/describe.h"
#include "plan/nccl.h"

static const double GB = 1e9, TFLOPS = 1e12, US = 1e-6;

const char *const plan_interconnect_names[] = {"none", "nvlink", "nvlink-bridge", "infinity-fabric", NULL};
const char *const plan_link_kind_names[] = {"nvlink", "pcie", "network", "memory", "host", NULL};

/* ---- devices ---- */

typedef struct device_row {
  const char *name, *driver_name, *architecture, *memory_type, *source, *price_source, *achieved_source, *verified, *recalled, *notes,
      *interconnect_link;
  double memory_gb, memory_bandwidth_gb_per_s, fp32_tflops, tf32_tflops, fp16_tflops, bf16_tflops, fp8_tflops, l2_mb,
      nvlink_bidirectional_gb_per_s, c2c_bidirectional_gb_per_s, tdp_w, achieved_bf16_tflops, price_usd_per_h,
      purchase_usd;
  int64_t sm_count, nvlink_generation, pcie_generation, pcie_lanes;
  int interconnect;
  bool peer_to_peer;
} device_row;

#define ROW(key, type, required, min, max, help) \
  { #key, type, offsetof(device_row, key), required, min, max, NULL, help }
static const dp_field device_fields[] = {
    ROW(name, DP_FIELD_STRING, true, 0, 0, "unique"),
    ROW(driver_name, DP_FIELD_STRING, false, 0, 0, "what its driver calls it, where that has other words than name"),
    ROW(architecture, DP_FIELD_STRING, true, 0, 0, "family and compute capability: \"Ampere sm80\""),
    ROW(memory_gb, DP_FIELD_REAL, true, 0.001, 1e6, "GB (1e9 bytes)"),
    ROW(memory_type, DP_FIELD_STRING, false, 0, 0, "\"HBM3\""),
    ROW(memory_bandwidth_gb_per_s, DP_FIELD_REAL, true, 0.001, 1e7, "GB/s"),
    ROW(fp32_tflops, DP_FIELD_REAL, true, 1e-6, 1e7, "without tensor cores"),
    ROW(tf32_tflops, DP_FIELD_REAL, false, 1e-6, 1e7, "dense; absent: not supported"),
    ROW(fp16_tflops, DP_FIELD_REAL, false, 1e-6, 1e7, "dense, fp32 accumulation; absent: not supported"),
    ROW(bf16_tflops, DP_FIELD_REAL, false, 1e-6, 1e7, "dense, fp32 accumulation; absent: not supported"),
    ROW(fp8_tflops, DP_FIELD_REAL, false, 1e-6, 1e7, "dense; absent: not supported"),
    ROW(sm_count, DP_FIELD_INTEGER, true, 1, 65536, "streaming multiprocessors or compute units"),
    ROW(l2_mb, DP_FIELD_REAL, false, 0.001, 1e6, "MB (1e6 bytes)"),
    {"interconnect", DP_FIELD_CHOICE, offsetof(device_row, interconnect), false, 0, 0, plan_interconnect_names,
     "besides PCIe; default none"},
    ROW(interconnect_link, DP_FIELD_STRING, false, 0, 0, "its link class, for clusters that name none"),
    ROW(nvlink_generation, DP_FIELD_INTEGER, false, 1, 99, "absent: no NVLink"),
    ROW(nvlink_bidirectional_gb_per_s, DP_FIELD_REAL, false, 0.001, 1e6, "GB/s, both ways, all links together"),
    ROW(c2c_bidirectional_gb_per_s, DP_FIELD_REAL, false, 0.001, 1e6, "GB/s, both ways, to a Grace CPU"),
    ROW(pcie_generation, DP_FIELD_INTEGER, false, 1, 9, "generation; absent: a processor, with interconnect_link"),
    ROW(pcie_lanes, DP_FIELD_INTEGER, false, 1, 32, "default 16"),
    ROW(peer_to_peer, DP_FIELD_BOOLEAN, false, 0, 0, "direct copies over PCIe; default true"),
    ROW(tdp_w, DP_FIELD_REAL, false, 1, 1e5, "W"),
    ROW(achieved_bf16_tflops, DP_FIELD_REAL, false, 1e-6, 1e7, "best matrix product that others measured"),
    ROW(achieved_source, DP_FIELD_STRING, false, 0, 0, "who measured it"),
    ROW(price_usd_per_h, DP_FIELD_REAL, false, 1e-6, 1e6, "USD an hour for one card; absent: unknown"),
    ROW(price_source, DP_FIELD_STRING, false, 0, 0, "who asks it"),
    ROW(purchase_usd, DP_FIELD_REAL, false, 0.01, 1e9, "USD to buy one; absent: unknown"),
    ROW(source, DP_FIELD_STRING, false, 0, 0, "default: the text of verified"),
    ROW(verified, DP_FIELD_STRING, false, 0, 0, "which figures were checked, against what"),
    ROW(recalled, DP_FIELD_STRING, false, 0, 0, "which figures are from memory"),
    ROW(notes, DP_FIELD_STRING, false, 0, 0, "anything else"),
};
#undef ROW

dp_status plan_device_model_read(const dp_node *table, plan_device_model *model, dp_error *error) {
  device_row row = {.memory_type = "",
                    .source = "",
                    .price_source = "",
                    .achieved_source = "",
                    .verified = "",
                    .recalled = "",
                    .notes = "",
                    .driver_name = "",
                    .interconnect_link = "",
                    .pcie_lanes = 16,
                    .peer_to_peer = true};
  DP_TRY(dp_schema_read(table, NULL, "[[device]]", device_fields, DP_COUNT_OF(device_fields), &row, error));
  if (row.interconnect == PLAN_INTERCONNECT_NVLINK && row.nvlink_generation == 0)
    return dp_fail_at(
        error, table,
        "[[device]] %s: interconnect is \"nvlink\" and nvlink_generation is missing, needed: a generation", row.name);
  if (row.pcie_generation == 0 && !row.interconnect_link[0])
    return dp_fail_at(
        error, table,
        "[[device]] %s: found neither pcie_generation nor interconnect_link, needed: a generation, or of a "
        "processor its class of link",
        row.name);
  *model = (plan_device_model){.name = row.name,
                               .architecture = row.architecture,
                               .memory_bytes = (int64_t)llround(row.memory_gb * GB),
                               .memory_bandwidth_bytes_per_s = row.memory_bandwidth_gb_per_s * GB,
                               .peak_flops_per_s = {[GRAPH_FP32] = row.fp32_tflops * TFLOPS,
                                                    [GRAPH_FP16] = row.fp16_tflops * TFLOPS,
                                                    [GRAPH_BF16] = row.bf16_tflops * TFLOPS},
                               .tf32_flops_per_s = row.tf32_tflops * TFLOPS,
                               .fp8_flops_per_s = row.fp8_tflops * TFLOPS,
                               .achieved_flops_per_s = row.achieved_bf16_tflops * TFLOPS,
                               .sm_count = row.sm_count,
                               .l2_bytes = (int64_t)llround(row.l2_mb * 1e6),
                               .driver_name = row.driver_name,
                               .tdp_w = row.tdp_w,
                               .price_usd_per_h = row.price_usd_per_h,
                               .purchase_usd = row.purchase_usd,
                               .nvlink_generation = row.nvlink_generation,
                               .pcie_generation = row.pcie_generation,
                               .pcie_lanes = row.pcie_lanes,
                               .nvlink_bytes_per_s = row.nvlink_bidirectional_gb_per_s / 2 * GB,
                               .c2c_bytes_per_s = row.c2c_bidirectional_gb_per_s / 2 * GB,
                               .interconnect = (plan_interconnect)row.interconnect,
                               .interconnect_link = row.interconnect_link,
                               .peer_to_peer = row.peer_to_peer,
                               .memory_type = row.memory_type,
                               .source = row.source[0] ? row.source : row.verified,
                               .price_source = row.price_source,
                               .achieved_source = row.achieved_source,
                               .notes = row.notes,
                               .verified = row.verified,
                               .recalled = row.recalled,
                               .node = table};
  return DP_OK;
}

/* ---- links ---- */

typedef struct link_row {
  const char *name, *source, *notes;
  int kind;
  double bandwidth_gb_per_s, theoretical_gb_per_s, latency_us, busy_latency_us, busy_bandwidth_factor, compute_slowdown,
      reference_memory_gb_per_s;
  const dp_node *size_bytes, *size_factor, *busy_size_bytes, *busy_size_factor;
  int64_t nccl_sms;
  bool whole_port, verified;
} link_row;

#define ROW(key, type, required, min, max, help) \
  { #key, type, offsetof(link_row, key), required, min, max, NULL, help }
static const dp_field link_fields[] = {
    ROW(name, DP_FIELD_STRING, true, 0, 0, "unique"),
    {"kind", DP_FIELD_CHOICE, offsetof(link_row, kind), true, 0, 0, plan_link_kind_names, "what it is"},
    ROW(bandwidth_gb_per_s, DP_FIELD_REAL, true, 1e-6, 1e6, "GB/s, one way, achieved"),
    ROW(theoretical_gb_per_s, DP_FIELD_REAL, false, 1e-6, 1e6, "GB/s, one way, data sheet"),
    ROW(latency_us, DP_FIELD_REAL, true, 0, 1e9, "us, of a whole transfer"),
    ROW(busy_latency_us, DP_FIELD_REAL, false, 0, 1e9, "us beside compute; default 0: unchanged"),
    ROW(busy_bandwidth_factor, DP_FIELD_REAL, false, 1e-6, 1, "share of the bandwidth beside compute; default 1"),
    ROW(compute_slowdown, DP_FIELD_REAL, false, 0, 10,
        "compute takes (1 + this) times longer beside a transfer; default 0"),
    ROW(size_bytes, DP_FIELD_NODE, false, 0, 0, "message sizes of size_factor, ascending"),
    ROW(size_factor, DP_FIELD_NODE, false, 0, 0, "share of the bandwidth that such messages reach"),
    ROW(busy_size_bytes, DP_FIELD_NODE, false, 0, 0, "message sizes of busy_size_factor, ascending"),
    ROW(busy_size_factor, DP_FIELD_NODE, false, 0, 0, "share of the bandwidth beside compute, by size"),
    ROW(nccl_sms, DP_FIELD_INTEGER, false, 1, 65536,
        "of NCCL on multiprocessors of its own: so many carry the bandwidth, fewer carry less"),
    ROW(whole_port, DP_FIELD_BOOLEAN, false, 0, 0, "a mesh divides the figure among the peers; default false"),
    ROW(reference_memory_gb_per_s, DP_FIELD_REAL, false, 1e-6, 1e7,
        "GB/s: scale by the card's memory bandwidth over this"),
    ROW(source, DP_FIELD_STRING, true, 0, 0, "who says so"),
    ROW(verified, DP_FIELD_BOOLEAN, true, 0, 0, "measured or published by the source"),
    ROW(notes, DP_FIELD_STRING, false, 0, 0, "anything else"),
};
#undef ROW

static dp_status fail_points(const dp_node *node, const char *what, dp_error *error) {
  return dp_fail_at(error, node,
                    "[[link]].%s: found %s, allowed: 1 to 32 ascending sizes with as many factors from 1e-6 to 1", what,
                    dp_node_kind_name(node->kind));
}

static dp_status read_size_factors(const dp_node *table, const char *what, const dp_node *bytes, const dp_node *factors,
                                   dp_arena *arena, plan_link_size_factor **points, int *count, dp_error *error) {
  if (!bytes && !factors) return DP_OK;
  if (!bytes || !factors)
    return dp_fail_at(error, table, "[[link]]: found only one of %sbytes and %sfactor, allowed: both or neither", what,
                      what);
  if (bytes->kind != DP_NODE_ARRAY || bytes->count < 1 || bytes->count > 32)
    return fail_points(bytes, bytes->key, error);
  if (factors->kind != DP_NODE_ARRAY || factors->count != bytes->count)
    return fail_points(factors, factors->key, error);
  plan_link_size_factor *read = DP_ARENA_NEW(arena, plan_link_size_factor, bytes->count);
  if (!read) return dp_fail_memory(error);
  for (size_t i = 0; i < bytes->count; i++) {
    const dp_node *size = bytes->items[i], *factor = factors->items[i];
    char shown[80];
    const bool size_fits = (size->kind == DP_NODE_INTEGER || size->kind == DP_NODE_REAL) && size->real >= 1 &&
                           size->real <= 1e18 && (i == 0 || size->real > read[i - 1].bytes);
    if (!size_fits)
      return dp_fail_at(error, size, "[[link]].%s: found %s at item %zu, allowed: ascending sizes from 1 to 1e18",
                        bytes->key, dp_node_show(size, shown), i);
    if ((factor->kind != DP_NODE_INTEGER && factor->kind != DP_NODE_REAL) ||
        !(factor->real >= 1e-6 && factor->real <= 1))
      return dp_fail_at(error, factor, "[[link]].%s: found %s at item %zu, allowed: a number from 1e-6 to 1",
                        factors->key, dp_node_show(factor, shown), i);
    read[i] = (plan_link_size_factor){size->real, factor->real};
  }
  *points = read;
  *count = (int)bytes->count;
  return DP_OK;
}

dp_status plan_link_model_read(const dp_node *table, dp_arena *arena, plan_link_model *model, dp_error *error) {
  link_row row = {.notes = "", .busy_bandwidth_factor = 1};
  DP_TRY(dp_schema_read(table, NULL, "[[link]]", link_fields, DP_COUNT_OF(link_fields), &row, error));
  plan_link_model made = {.name = row.name,
                          .kind = (plan_link_kind)row.kind,
                          .bandwidth_bytes_per_s = row.bandwidth_gb_per_s * GB,
                          .theoretical_bytes_per_s =
                              (row.theoretical_gb_per_s > 0 ? row.theoretical_gb_per_s : row.bandwidth_gb_per_s) * GB,
                          .latency_s = row.latency_us * US,
                          .busy_latency_s = row.busy_latency_us * US,
                          .busy_bandwidth_factor = row.busy_bandwidth_factor,
                          .compute_slowdown = row.compute_slowdown,
                          .nccl_sms = row.nccl_sms,
                          .whole_port = row.whole_port,
                          .reference_memory_bytes_per_s = row.reference_memory_gb_per_s * GB,
                          .source = row.source,
                          .notes = row.notes,
                          .verified = row.verified,
                          .node = table};
  DP_TRY(read_size_factors(table, "size_", row.size_bytes, row.size_factor, arena, &made.size_factors,
                           &made.size_factor_count, error));
  DP_TRY(read_size_factors(table, "busy_size_", row.busy_size_bytes, row.busy_size_factor, arena,
                           &made.busy_size_factors, &made.busy_size_factor_count, error));
  *model = made;
  return DP_OK;
}

static double interpolate(const plan_link_size_factor *points, int count, double bytes) {
  if (bytes <= points[0].bytes) return points[0].factor;
  if (bytes >= points[count - 1].bytes) return points[count - 1].factor;
  int i = 1;
  while (points[i].bytes < bytes) i++;
  const double t = log(bytes / points[i - 1].bytes) / log(points[i].bytes / points[i - 1].bytes);
  return points[i - 1].factor + t * (points[i].factor - points[i - 1].factor);
}

double plan_link_factor(const plan_link_model *link, double bytes) {
  return link->size_factor_count ? interpolate(link->size_factors, link->size_factor_count, bytes) : 1;
}

double plan_link_busy_factor(const plan_link_model *link, double bytes) {
  if (link->busy_size_factor_count) return interpolate(link->busy_size_factors, link->busy_size_factor_count, bytes);
  return plan_link_factor(link, bytes) * link->busy_bandwidth_factor;
}

int64_t plan_device_sm_step(const plan_device_model *model) {
  const char *sm = strstr(model->architecture, "sm");
  return sm && strtol(sm + 2, NULL, 10) >= 90 ? 8 : 2;
}

double plan_link_busy_latency_s(const plan_link_model *link) {
  return link->busy_latency_s > 0 ? link->busy_latency_s : link->latency_s;
}

/* ---- the catalogue ---- */

typedef struct rows_file {
  const char *format;
  int64_t version;
  const dp_node *rows;
} rows_file;

static dp_status read_document(const char *folder, const char *name, const char *format, dp_document *document,
                               dp_error *error) {
  dp_arena scratch = {0};
  const char *path = dp_arena_printf(&scratch, "%s/%s", folder, name);
  const dp_status status = path ? dp_document_read(path, document, error) : dp_fail_memory(error);
  dp_arena_free(&scratch);
  if (status != DP_OK) return status;
  return dp_schema_check_format(document->root, format, 1, error);
}

/* The root table of devices.toml and links.toml: format, version and one array of tables. */
static dp_status find_rows(const dp_document *document, const char *key, const dp_node **rows, dp_error *error) {
  const dp_field fields[] = {
      {"format", DP_FIELD_STRING, offsetof(rows_file, format), true, 0, 0, NULL, "what file this is"},
      {"version", DP_FIELD_INTEGER, offsetof(rows_file, version), true, 1, 1, NULL, "1"},
      {key, DP_FIELD_NODE, offsetof(rows_file, rows), true, 0, 0, NULL, "the rows of the catalogue"},
  };
  rows_file file = {0};
  DP_TRY(dp_schema_read(document->root, NULL, "the file", fields, DP_COUNT_OF(fields), &file, error));
  if (file.rows->kind != DP_NODE_ARRAY)
    return dp_fail_at(error, file.rows, "%s: found %s, allowed: [[%s]] tables", key, dp_node_kind_name(file.rows->kind),
                      key);
  *rows = file.rows;
  return DP_OK;
}

static dp_status read_devices(plan_catalogue *catalogue, dp_error *error) {
  const dp_node *rows = NULL;
  DP_TRY(find_rows(&catalogue->devices_document, "device", &rows, error));
  for (size_t i = 0; i < rows->count; i++) {
    plan_device_model model;
    DP_TRY(plan_device_model_read(rows->items[i], &model, error));
    const plan_device_model *same = plan_catalogue_device(catalogue, model.name);
    if (same)
      return dp_fail_at(error, model.node,
                        "[[device]]: found the name \"%s\" again, first on line %d, allowed: unique names", model.name,
                        same->node->line);
    if (!dp_array_push(&catalogue->devices, model)) return dp_fail_memory(error);
  }
  return DP_OK;
}

static dp_status read_links(plan_catalogue *catalogue, dp_error *error) {
  const dp_node *rows = NULL;
  DP_TRY(find_rows(&catalogue->links_document, "link", &rows, error));
  for (size_t i = 0; i < rows->count; i++) {
    plan_link_model model;
    DP_TRY(plan_link_model_read(rows->items[i], &catalogue->arena, &model, error));
    const plan_link_model *same = plan_catalogue_link(catalogue, model.name);
    if (same)
      return dp_fail_at(error, model.node,
                        "[[link]]: found the name \"%s\" again, first on line %d, allowed: unique names", model.name,
                        same->node->line);
    if (!dp_array_push(&catalogue->links, model)) return dp_fail_memory(error);
  }
  return DP_OK;
}

static dp_status read_all(const char *folder, plan_catalogue *catalogue, dp_error *error) {
  DP_TRY(read_document(folder, "devices.toml", "diffpipe-devices", &catalogue->devices_document, error));
  DP_TRY(read_devices(catalogue, error));
  DP_TRY(read_document(folder, "links.toml", "diffpipe-links", &catalogue->links_document, error));
  DP_TRY(read_links(catalogue, error));
  DP_TRY(read_document(folder, "nccl.toml", "diffpipe-nccl", &catalogue->nccl_document, error));
  return plan_nccl_read(catalogue->nccl_document.root, &catalogue->arena, &catalogue->nccl, error);
}

dp_status plan_catalogue_read(const char *folder, plan_catalogue *catalogue, dp_error *error) {
  plan_catalogue made = {0};
  const char *place = folder ? folder : dp_arena_printf(&made.arena, "%s/catalogue", dp_data_folder());
  const dp_status status = place ? read_all(place, &made, error) : dp_fail_memory(error);
  if (status != DP_OK) {
    plan_catalogue_free(&made);
    return status;
  }
  *catalogue = made;
  return DP_OK;
}

void plan_catalogue_free(plan_catalogue *catalogue) {
  dp_array_free(&catalogue->devices);
  dp_array_free(&catalogue->links);
  dp_document_free(&catalogue->devices_document);
  dp_document_free(&catalogue->links_document);
  dp_document_free(&catalogue->nccl_document);
  dp_arena_free(&catalogue->arena);
  *catalogue = (plan_catalogue){0};
}

const plan_device_model *plan_catalogue_device(const plan_catalogue *catalogue, const char *name) {
  for (size_t i = 0; i < catalogue->devices.count; i++)
    if (strcmp(catalogue->devices.items[i].name, name) == 0) return &catalogue->devices.items[i];
  return NULL;
}

const plan_link_model *plan_catalogue_link(const plan_catalogue *catalogue, const char *name) {
  for (size_t i = 0; i < catalogue->links.count; i++)
    if (strcmp(catalogue->links.items[i].name, name) == 0) return &catalogue->links.items[i];
  return NULL;
}

size_t plan_catalogue_tables(const plan_key_table **tables) {
  static const plan_key_table all[] = {
      {"[[device]]", device_fields, DP_COUNT_OF(device_fields)},
      {"[[link]]", link_fields, DP_COUNT_OF(link_fields)},
  };
  *tables = all;
  return DP_COUNT_OF(all);
}
