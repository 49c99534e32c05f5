#include "plan/nccl.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"

enum { HARDWARE_NVLINK, HARDWARE_PCI, HARDWARE_NET, HARDWARE_COUNT };
enum { NODES_ONE, NODES_TWO, NODES_MORE, NODES_COUNT };
enum { GENERATION_SM70, GENERATION_SM80, GENERATION_SM86, GENERATION_SM90, GENERATION_SM100, GENERATION_COUNT };
enum { CHANNEL_RING_LL128, CHANNEL_TREE_LL128, CHANNEL_TREE, CHANNEL_NVLS_TREE, CHANNEL_COUNT };

const char *const plan_nccl_algorithm_names[] = {"tree", "ring", NULL};
const char *const plan_nccl_protocol_names[] = {"LL", "LL128", "Simple", NULL};

struct plan_nccl_model {
  double base_s[PLAN_NCCL_ALGORITHM_COUNT][PLAN_NCCL_PROTOCOL_COUNT];
  double step_s[HARDWARE_COUNT][PLAN_NCCL_ALGORITHM_COUNT][PLAN_NCCL_PROTOCOL_COUNT];
  double ll_max_bytes_per_s[PLAN_NCCL_ARCH_COUNT][NODES_COUNT];
  double channel_max_bytes_per_s[CHANNEL_COUNT][PLAN_NCCL_ARCH_COUNT][NODES_COUNT];
  double nvlink_bytes_per_s[GENERATION_COUNT]; /* effective, a link */
  double channel_bytes_per_s;                  /* what one channel over PCIe or a NIC carries */
  double ring_ll, ring_ll128, tree_all_reduce, tree_ll_divisor, tree_ll128_one_node, tree_ll128_more_nodes;
};

/* ---- reading ---- */

/* A list of exactly `count` numbers >= 0 under `key`, times `factor`. */
static dp_status read_list(const dp_node *table, const char *section, const char *key, size_t count, double factor,
                           double *out, dp_error *error) {
  const dp_node *node = dp_node_get(table, key);
  if (!node || node->kind != DP_NODE_ARRAY || node->count != count)
    return dp_fail_at(error, node ? node : table, "[%s].%s: found %s, allowed: a list of %zu numbers", section, key,
                      node ? dp_node_kind_name(node->kind) : "nothing", count);
  for (size_t i = 0; i < count; i++) {
    const dp_node *item = node->items[i];
    char shown[80];
    if ((item->kind != DP_NODE_INTEGER && item->kind != DP_NODE_REAL) || !(item->real >= 0 && item->real <= 1e9))
      return dp_fail_at(error, item, "[%s].%s: found %s at item %zu, allowed: a number from 0 to 1e9", section, key,
                        dp_node_show(item, shown), i);
    out[i] = item->real * factor;
  }
  return DP_OK;
}

static dp_status read_number(const dp_node *table, const char *section, const char *key, double factor, double *out,
                             dp_error *error) {
  const dp_node *node = dp_node_get(table, key);
  char shown[80];
  if (!node || (node->kind != DP_NODE_INTEGER && node->kind != DP_NODE_REAL) || !(node->real > 0 && node->real <= 1e9))
    return dp_fail_at(error, node ? node : table, "[%s].%s: found %s, allowed: a number above 0, at most 1e9", section,
                      key, node ? dp_node_show(node, shown) : "nothing");
  *out = node->real * factor;
  return DP_OK;
}

static dp_status find_table(const dp_node *root, const char *key, const dp_node **table, dp_error *error) {
  *table = dp_node_get(root, key);
  if (!*table || (*table)->kind != DP_NODE_TABLE)
    return dp_fail_at(error, *table ? *table : root, "[%s]: found %s, allowed: a table", key,
                      *table ? dp_node_kind_name((*table)->kind) : "nothing");
  return DP_OK;
}

static dp_status read_by_arch(const dp_node *root, const char *key, double out[PLAN_NCCL_ARCH_COUNT][NODES_COUNT],
                              dp_error *error) {
  static const char *const archs[PLAN_NCCL_ARCH_COUNT] = {"volta", "ampere", "hopper", "blackwell"};
  const dp_node *table = NULL;
  DP_TRY(find_table(root, key, &table, error));
  for (int a = 0; a < PLAN_NCCL_ARCH_COUNT; a++)
    DP_TRY(read_list(table, key, archs[a], NODES_COUNT, 1e9, out[a], error));
  return DP_OK;
}

static dp_status read_model(const dp_node *root, plan_nccl_model *model, dp_error *error) {
  static const char *const hardware[HARDWARE_COUNT] = {"nvlink_latency_us", "pci_latency_us", "net_latency_us"};
  static const char *const channels[CHANNEL_COUNT] = {"channel_max_ring_ll128_gb_per_s",
                                                      "channel_max_tree_ll128_gb_per_s", "channel_max_tree_gb_per_s",
                                                      "channel_max_nvls_tree_gb_per_s"};
  static const char *const generations[GENERATION_COUNT] = {"sm70", "sm80", "sm86", "sm90", "sm100"};
  const dp_node *table = NULL;
  DP_TRY(find_table(root, "base_latency_us", &table, error));
  for (int a = 0; a < PLAN_NCCL_ALGORITHM_COUNT; a++)
    DP_TRY(read_list(table, "base_latency_us", plan_nccl_algorithm_names[a], PLAN_NCCL_PROTOCOL_COUNT, 1e-6,
                     model->base_s[a], error));
  for (int h = 0; h < HARDWARE_COUNT; h++) {
    DP_TRY(find_table(root, hardware[h], &table, error));
    for (int a = 0; a < PLAN_NCCL_ALGORITHM_COUNT; a++)
      DP_TRY(read_list(table, hardware[h], plan_nccl_algorithm_names[a], PLAN_NCCL_PROTOCOL_COUNT, 1e-6,
                       model->step_s[h][a], error));
  }
  DP_TRY(read_by_arch(root, "ll_max_gb_per_s", model->ll_max_bytes_per_s, error));
  for (int c = 0; c < CHANNEL_COUNT; c++)
    DP_TRY(read_by_arch(root, channels[c], model->channel_max_bytes_per_s[c], error));
  DP_TRY(find_table(root, "nvlink_gb_per_s", &table, error));
  for (int g = 0; g < GENERATION_COUNT; g++)
    DP_TRY(read_number(table, "nvlink_gb_per_s", generations[g], 1e9, &model->nvlink_bytes_per_s[g], error));
  DP_TRY(find_table(root, "path_gb_per_s", &table, error));
  DP_TRY(read_number(table, "path_gb_per_s", "net_100gbit", 1e9, &model->channel_bytes_per_s, error));
  DP_TRY(find_table(root, "factor", &table, error));
  DP_TRY(read_number(table, "factor", "ring_ll", 1, &model->ring_ll, error));
  DP_TRY(read_number(table, "factor", "ring_ll128", 1, &model->ring_ll128, error));
  DP_TRY(read_number(table, "factor", "tree_all_reduce", 1, &model->tree_all_reduce, error));
  DP_TRY(read_number(table, "factor", "tree_ll_divisor", 1, &model->tree_ll_divisor, error));
  DP_TRY(read_number(table, "factor", "tree_ll128_one_node", 1, &model->tree_ll128_one_node, error));
  return read_number(table, "factor", "tree_ll128_more_nodes", 1, &model->tree_ll128_more_nodes, error);
}

dp_status plan_nccl_read(const dp_node *root, dp_arena *arena, plan_nccl_model **out, dp_error *error) {
  plan_nccl_model *model = DP_ARENA_NEW(arena, plan_nccl_model, 1);
  if (!model) return dp_fail_memory(error);
  DP_TRY(read_model(root, model, error));
  *out = model;
  return DP_OK;
}

/* ---- the model ---- */

static int nodes_row(int nodes) { return nodes == 1 ? NODES_ONE : nodes == 2 ? NODES_TWO : NODES_MORE; }

static int floor_log2(int n) {
  int log = 0;
  while (n >>= 1) log++;
  return log;
}

static double channel_bytes_per_s(const plan_nccl_model *model, const plan_nccl_query *query) {
  static const int generation[PLAN_NCCL_ARCH_COUNT] = {GENERATION_SM70, GENERATION_SM80, GENERATION_SM90,
                                                       GENERATION_SM100};
  if (query->intra == PLAN_LINK_NVLINK && query->nodes == 1) return model->nvlink_bytes_per_s[generation[query->arch]];
  return model->channel_bytes_per_s;
}

static double bus_of(const plan_nccl_model *model, const plan_nccl_query *query, plan_nccl_algorithm algorithm,
                     plan_nccl_protocol protocol) {
  const int row = nodes_row(query->nodes);
  /* several nodes: by the CPU's vendor */
  const int ll_arch = query->nodes == 1 ? (int)query->arch : query->intel_cpu ? PLAN_NCCL_VOLTA : PLAN_NCCL_AMPERE;
  const double ll_max = model->ll_max_bytes_per_s[ll_arch][row];
  const double channels = query->channels > 0
                              ? query->channels
                              : fmax(1, ceil(query->bus_bytes_per_s / channel_bytes_per_s(model, query) - 1e-6));
  double bus = query->bus_bytes_per_s;
  if (algorithm == PLAN_NCCL_RING) {
    if (protocol == PLAN_NCCL_LL) return fmin(ll_max, bus * model->ring_ll);
    if (protocol == PLAN_NCCL_LL128)
      return fmin(bus * model->ring_ll128,
                  channels * model->channel_max_bytes_per_s[CHANNEL_RING_LL128][query->arch][row]);
    return bus;
  }
  bus = fmin(bus * model->tree_all_reduce, channels * model->channel_max_bytes_per_s[CHANNEL_TREE][query->arch][row]);
  if (protocol == PLAN_NCCL_LL) return fmin(bus / model->tree_ll_divisor, ll_max);
  if (protocol == PLAN_NCCL_LL128)
    return fmin(bus * (query->nodes == 1 ? model->tree_ll128_one_node : model->tree_ll128_more_nodes),
                channels * model->channel_max_bytes_per_s[CHANNEL_TREE_LL128][query->arch][row]);
  return bus;
}

static double latency_of(const plan_nccl_model *model, const plan_nccl_query *query, plan_nccl_algorithm algorithm,
                         plan_nccl_protocol protocol) {
  const int intra = query->intra == PLAN_LINK_NVLINK ? HARDWARE_NVLINK : HARDWARE_PCI;
  const double intra_s = model->step_s[intra][algorithm][protocol];
  /* with one rank a node the network's latency is fully exposed: the tree's figure */
  const bool alone = query->ranks == query->nodes;
  const double net_s = model->step_s[HARDWARE_NET][alone ? PLAN_NCCL_TREE : algorithm][protocol];
  const double base_s = model->base_s[algorithm][protocol];
  if (algorithm == PLAN_NCCL_TREE)
    return base_s + 2 * (((double)query->ranks / query->nodes - 1) * intra_s + floor_log2(query->nodes) * net_s);
  const int passes = query->op == PLAN_NCCL_ALL_REDUCE ? 2 : 1;
  const double steps = passes * (double)(query->ranks - 1), inter = passes * (double)(query->nodes - 1);
  return base_s + (steps - inter) * intra_s + inter * net_s;
}

double plan_nccl_time_of_s(const plan_nccl_model *model, const plan_nccl_query *query, plan_nccl_algorithm algorithm,
                           plan_nccl_protocol protocol, plan_nccl_cost *cost) {
  plan_nccl_cost found = {.algorithm = algorithm, .protocol = protocol};
  if (query->ranks > 1 && query->bytes > 0) {
    if (algorithm == PLAN_NCCL_TREE && query->op != PLAN_NCCL_ALL_REDUCE) return INFINITY;
    if (protocol == PLAN_NCCL_LL128 && query->intra != PLAN_LINK_NVLINK) return INFINITY;
    const double n = query->ranks, steps = (query->op == PLAN_NCCL_ALL_REDUCE ? 2 : 1) * (n - 1);
    const double share = algorithm == PLAN_NCCL_RING ? n / steps : 0.5;
    found.latency_s = latency_of(model, query, algorithm, protocol);
    found.bandwidth_s = query->bytes / (bus_of(model, query, algorithm, protocol) * share);
    found.bus_bytes_per_s = query->bytes * steps / n / found.bandwidth_s;
  }
  if (cost) *cost = found;
  return found.latency_s + found.bandwidth_s;
}

double plan_nccl_time_s(const plan_nccl_model *model, const plan_nccl_query *query, plan_nccl_cost *cost) {
  double best = INFINITY;
  for (int a = 0; a < PLAN_NCCL_ALGORITHM_COUNT; a++)
    for (int p = 0; p < PLAN_NCCL_PROTOCOL_COUNT; p++) {
      plan_nccl_cost found;
      const double time = plan_nccl_time_of_s(model, query, (plan_nccl_algorithm)a, (plan_nccl_protocol)p, &found);
      if (time >= best) continue;
      best = time;
      if (cost) *cost = found;
    }
  return best;
}

/* ---- devices ---- */

/* 80 of "Ampere sm80"; 0 when there is none. */
static int compute_capability(const plan_device_model *device) {
  const char *sm = strstr(device->architecture, "sm");
  while (sm && !isdigit((unsigned char)sm[2])) sm = strstr(sm + 2, "sm");
  return sm ? (int)strtol(sm + 2, NULL, 10) : 0;
}

plan_nccl_arch plan_nccl_arch_of(const plan_device_model *device) {
  const int sm = compute_capability(device);
  if (sm >= 100) return PLAN_NCCL_BLACKWELL;
  if (sm >= 90) return PLAN_NCCL_HOPPER;
  return sm > 0 && sm < 80 ? PLAN_NCCL_VOLTA : PLAN_NCCL_AMPERE;
}

double plan_nccl_nvlink_bytes_per_s(const plan_nccl_model *model, const plan_device_model *device) {
  if (device->nvlink_generation == 0) return 0;
  const int sm = compute_capability(device);
  const int generation = sm >= 100  ? GENERATION_SM100
                         : sm >= 90 ? GENERATION_SM90
                         : sm == 86 ? GENERATION_SM86
                         : sm >= 80 ? GENERATION_SM80
                                    : GENERATION_SM70;
  /* data sheet speed of one link, one way: 25 GB/s up to NVLink 4 (14.0625 on GA102), 50 from NVLink 5 */
  const double link = generation == GENERATION_SM100 ? 50e9 : generation == GENERATION_SM86 ? 14.0625e9 : 25e9;
  return floor(device->nvlink_bytes_per_s / link + 0.5) * model->nvlink_bytes_per_s[generation];
}

plan_nccl_query plan_nccl_query_of(const plan_nccl_model *model, const plan_cluster *cluster, const int *devices,
                                   int count, double ring_bytes_per_s) {
  plan_nccl_query query = {.ranks = count,
                           .nodes = 0,
                           .intra = plan_cluster_weakest_kind(cluster, devices, count),
                           .bus_bytes_per_s = ring_bytes_per_s,
                           .arch = PLAN_NCCL_BLACKWELL};
  bool nvlink = true; /* inside the nodes, when the ring crosses a network */
  for (int i = 0; i < count; i++) {
    const plan_device *device = &cluster->devices.items[devices[i]];
    const plan_nccl_arch arch = plan_nccl_arch_of(device->model);
    if (arch < query.arch) query.arch = arch; /* NCCL tunes for the oldest */
    bool first = true;
    /* from the last on: rings mostly stay in a node before they go on */
    for (int j = i; j > 0 && first; j--) first = cluster->devices.items[devices[j - 1]].node != device->node;
    query.nodes += first;
    if (device->model->interconnect != PLAN_INTERCONNECT_NVLINK) nvlink = false;
    if (query.intra == PLAN_LINK_NVLINK && device->model->nvlink_generation > 0)
      query.bus_bytes_per_s = fmin(query.bus_bytes_per_s, plan_nccl_nvlink_bytes_per_s(model, device->model));
  }
  if (query.intra == PLAN_LINK_NETWORK) query.intra = nvlink ? PLAN_LINK_NVLINK : PLAN_LINK_PCIE;
  return query;
}

void plan_nccl_all_reduce(const plan_nccl_model *model, const plan_cluster *cluster, const int *devices, int count,
                          double ring_bytes_per_s, double bytes, plan_nccl_cost *cost) {
  plan_nccl_query query = plan_nccl_query_of(model, cluster, devices, count, ring_bytes_per_s);
  query.op = PLAN_NCCL_ALL_REDUCE;
  query.bytes = bytes;
  (void)plan_nccl_time_s(model, &query, cost);
}
