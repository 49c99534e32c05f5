#include "sim/efficiency.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allowed.h"
#include "base/file.h"
#include "base/schema.h"

static const char *const direction_choices[] = {"forward", "backward", NULL};
static const char *const backend_choices[] = {"cudnn", "flash", NULL};

double sim_curve_time_s(const sim_curve *curve, double ideal_s) {
  const int n = curve->points;
  const double *x = curve->ideal_s, *e = curve->share;
  if (ideal_s <= 0) return 0;
  if (ideal_s <= x[0]) return x[0] / e[0];
  if (ideal_s >= x[n - 1]) return ideal_s / e[n - 1];
  int i = 1;
  while (x[i] < ideal_s) i++;
  const double t = log(ideal_s / x[i - 1]) / log(x[i] / x[i - 1]);
  const double before = log(x[i - 1] / e[i - 1]), after = log(x[i] / e[i]);
  return exp(before + t * (after - before));
}

const sim_curve *sim_efficiency_curve(const sim_efficiency *efficiency, const sim_implementation *implementation,
                                      int op_class, int backward, int backend, int64_t head_dim, bool any_order) {
  const sim_curve *found = NULL;
  int found_rank = 0;
  for (size_t i = 0; i < efficiency->curves.count; i++) {
    const sim_curve *curve = &efficiency->curves.items[i];
    if (curve->op_class != op_class || curve->backward != backward || curve->backend != backend ||
        curve->head_dim != head_dim || (curve->any_order && !any_order))
      continue;
    const bool own =
        curve->implementation && implementation && strcmp(curve->implementation, implementation->name) == 0;
    if (curve->implementation && !own) continue;
    const int rank = 1 + 2 * own + curve->any_order;
    if (rank > found_rank) {
      found = curve;
      found_rank = rank;
    }
  }
  return found;
}

/* An array of numbers within [min, max] into out; *count is set by the first and must be met by the rest. */
static dp_status read_numbers(const dp_node *node, const dp_node *table, const char *key, double min, double max,
                              double factor, int *count, double *out, dp_error *error) {
  if (!node) return dp_fail_at(error, table, "missing key \"%s\", allowed: a list of numbers", key);
  if (node->kind != DP_NODE_ARRAY || node->count == 0 || node->count > SIM_MAX_POINTS ||
      (*count && (int)node->count != *count))
    return dp_fail_at(error, node, "%s: found %s, allowed: a list of 1 to %d numbers, all lists of a row of one length",
                      key, dp_node_kind_name(node->kind), SIM_MAX_POINTS);
  for (size_t i = 0; i < node->count; i++) {
    const dp_node *item = node->items[i];
    char shown[80];
    if ((item->kind != DP_NODE_REAL && item->kind != DP_NODE_INTEGER) || !(item->real >= min && item->real <= max))
      return dp_fail_at(error, item, "%s[%zu]: found %s, allowed: a number from %g to %g", key, i,
                        dp_node_show(item, shown), min, max);
    out[i] = item->real * factor;
  }
  *count = (int)node->count;
  return DP_OK;
}

static dp_status check_ascending(const dp_node *node, const double *values, int count, dp_error *error) {
  for (int i = 1; i < count; i++)
    if (!(values[i] > values[i - 1])) return dp_fail_at(error, node, "%s: not ascending at item %d", node->key, i);
  return DP_OK;
}

typedef struct curve_row {
  int op_class, direction, backend;
  int64_t head_dim;
  bool any_order;
  const dp_node *ideal_us, *efficiency;
  const char *source, *implementation;
} curve_row;

static const dp_field curve_fields[] = {
    {"class", DP_FIELD_CHOICE, offsetof(curve_row, op_class), true, 0, 0, graph_op_class_names, "op class"},
    {"direction", DP_FIELD_CHOICE, offsetof(curve_row, direction), true, 0, 0, direction_choices, "pass"},
    {"backend", DP_FIELD_CHOICE, offsetof(curve_row, backend), false, 0, 0, backend_choices, "attention kernel"},
    {"head_dim", DP_FIELD_INTEGER, offsetof(curve_row, head_dim), false, 1, 1024, NULL, "attention: 64 or 128"},
    {"any_order", DP_FIELD_BOOLEAN, offsetof(curve_row, any_order), false, 0, 0, NULL,
     "with train.deterministic = false; default false"},
    {"ideal_us", DP_FIELD_NODE, offsetof(curve_row, ideal_us), true, 0, 0, NULL, "time at the peak, ascending"},
    {"efficiency", DP_FIELD_NODE, offsetof(curve_row, efficiency), true, 0, 0, NULL, "achieved share, 0 to 1"},
    {"source", DP_FIELD_STRING, offsetof(curve_row, source), true, 0, 0, NULL, "who says so"},
    {"implementation", DP_FIELD_STRING, offsetof(curve_row, implementation), false, 0, 0, NULL, "of this one alone"},
};

static dp_status read_curve(const dp_node *table, sim_efficiency *efficiency, dp_error *error) {
  curve_row row = {0};
  DP_TRY(dp_schema_read(table, NULL, "[[curve]]", curve_fields, DP_COUNT_OF(curve_fields), &row, error));
  sim_curve curve = {.implementation = row.implementation,
                     .op_class = row.op_class,
                     .backward = row.direction,
                     .backend = row.backend,
                     .head_dim = row.head_dim,
                     .any_order = row.any_order};
  DP_TRY(read_numbers(row.ideal_us, table, "ideal_us", 1e-6, 1e9, 1e-6, &curve.points, curve.ideal_s, error));
  DP_TRY(check_ascending(row.ideal_us, curve.ideal_s, curve.points, error));
  DP_TRY(read_numbers(row.efficiency, table, "efficiency", 1e-6, 1, 1, &curve.points, curve.share, error));
  for (int i = 1; i < curve.points; i++) /* more work must not take less time */
    if (curve.ideal_s[i] / curve.share[i] < curve.ideal_s[i - 1] / curve.share[i - 1])
      return dp_fail_at(error, row.efficiency,
                        "efficiency[%d]: found %g, allowed: at most %g, else more work takes less time", i,
                        curve.share[i], curve.ideal_s[i] / curve.ideal_s[i - 1] * curve.share[i - 1]);
  if (!dp_array_push(&efficiency->curves, curve)) return dp_fail_memory(error);
  return DP_OK;
}

typedef struct architecture_row {
  const char *prefix, *source;
  const dp_node *cudnn, *flash;
  bool verified;
} architecture_row;

static const dp_field architecture_fields[] = {
    {"prefix", DP_FIELD_STRING, offsetof(architecture_row, prefix), true, 0, 0, NULL,
     "start of the device's architecture"},
    {"attention_cudnn", DP_FIELD_NODE, offsetof(architecture_row, cudnn), true, 0, 0, NULL, "forward, backward factor"},
    {"attention_flash", DP_FIELD_NODE, offsetof(architecture_row, flash), true, 0, 0, NULL, "forward, backward factor"},
    {"source", DP_FIELD_STRING, offsetof(architecture_row, source), true, 0, 0, NULL, "who says so"},
    {"verified", DP_FIELD_BOOLEAN, offsetof(architecture_row, verified), false, 0, 0, NULL,
     "checked against a measurement"},
};

static dp_status read_architecture(const dp_node *table, sim_efficiency *efficiency, dp_error *error) {
  architecture_row row = {0};
  DP_TRY(dp_schema_read(table, NULL, "[[architecture]]", architecture_fields, DP_COUNT_OF(architecture_fields), &row,
                        error));
  sim_architecture architecture = {.prefix = row.prefix};
  int count = 2;
  DP_TRY(read_numbers(row.cudnn, table, "attention_cudnn", 0.01, 100, 1, &count, architecture.attention[0], error));
  DP_TRY(read_numbers(row.flash, table, "attention_flash", 0.01, 100, 1, &count, architecture.attention[1], error));
  if (!dp_array_push(&efficiency->architectures, architecture)) return dp_fail_memory(error);
  return DP_OK;
}

typedef struct partition_row {
  const dp_node *share, *gemm, *convolution, *attention, *attention_backward, *memory;
  const char *source;
  double bandwidth;
} partition_row;

static const dp_field partition_fields[] = {
    {"share", DP_FIELD_NODE, offsetof(partition_row, share), true, 0, 0, NULL, "of the SMs, ascending"},
    {"gemm", DP_FIELD_NODE, offsetof(partition_row, gemm), true, 0, 0, NULL, "factor beyond the share"},
    {"convolution", DP_FIELD_NODE, offsetof(partition_row, convolution), true, 0, 0, NULL, "factor beyond the share"},
    {"attention", DP_FIELD_NODE, offsetof(partition_row, attention), true, 0, 0, NULL, "factor beyond the share"},
    {"attention_backward", DP_FIELD_NODE, offsetof(partition_row, attention_backward), false, 0, 0, NULL,
     "default attention"},
    {"memory", DP_FIELD_NODE, offsetof(partition_row, memory), false, 0, 0, NULL,
     "of the bandwidth, at most all of it; default 1"},
    {"source", DP_FIELD_STRING, offsetof(partition_row, source), true, 0, 0, NULL, "who says so"},
    /* the file's alone */
    {"bandwidth", DP_FIELD_REAL, offsetof(partition_row, bandwidth), true, 1, 100, NULL,
     "of the memory, that an optimizer's part has while no other computes, in times its share of SMs; at most all"},
};

/* most: of factors. bandwidth: NULL where the table has none. */
static dp_status read_partition(const dp_node *table, const char *name, double most, sim_partition *partition,
                                double *bandwidth, dp_error *error) {
  partition_row row = {0};
  DP_TRY(dp_schema_read(table, NULL, name, partition_fields, DP_COUNT_OF(partition_fields) - (bandwidth ? 0 : 1), &row,
                        error));
  if (bandwidth) *bandwidth = row.bandwidth;
  int *count = &partition->points;
  DP_TRY(read_numbers(row.share, table, "share", 1e-4, 1, 1, count, partition->share, error));
  DP_TRY(check_ascending(row.share, partition->share, *count, error));
  const dp_node *const lists[] = {row.gemm, row.convolution, row.attention, row.memory};
  double(*factors)[GRAPH_CLASS_COUNT][SIM_MAX_POINTS] = partition->factor;
  for (int i = 0; i < *count; i++) factors[0][GRAPH_CLASS_MEMORY][i] = 1;
  for (int c = 0; c < GRAPH_CLASS_COUNT; c++)
    if (lists[c])
      DP_TRY(read_numbers(lists[c], table, graph_op_class_names[c], 0.01, most, 1, count, factors[0][c], error));
  memcpy(factors[1], factors[0], sizeof factors[1]);
  if (!row.attention_backward) return DP_OK;
  return read_numbers(row.attention_backward, table, "attention_backward", 0.01, most, 1, count,
                      factors[1][GRAPH_CLASS_ATTENTION], error);
}

typedef struct implementation_row {
  const char *name, *source;
  int attention;
  int64_t key_tile, least_head_dim;
  bool measured, fuses, splits_masters, overwrites_gradients;
  double issue_us_per_kernel, issue_us_per_backward_kernel, issue_us_per_instruction, instruction_us,
      optimizer_efficiency, gradient_share, error_band;
  double context_gb, process_gb, communicator_gb, workspace_gb;
  const dp_node *kernel_share, *backward_kernel_share, *partition;
} implementation_row;

static const dp_field implementation_fields[] = {
    {"name", DP_FIELD_STRING, offsetof(implementation_row, name), true, 0, 0, NULL, "as the scenario says"},
    {"measured", DP_FIELD_BOOLEAN, offsetof(implementation_row, measured), true, 0, 0, NULL,
     "whole models were compared"},
    {"fuses", DP_FIELD_BOOLEAN, offsetof(implementation_row, fuses), false, 0, 0, NULL,
     "elementwise ops run inside the kernels before them, and need no memory of their own; default true"},
    {"splits_masters", DP_FIELD_BOOLEAN, offsetof(implementation_row, splits_masters), false, 0, 0, NULL,
     "of a bf16 model an fp32 master is kept as the weight and 16 more bits; default false"},
    {"overwrites_gradients", DP_FIELD_BOOLEAN, offsetof(implementation_row, overwrites_gradients), false, 0, 0, NULL,
     "with fuses = false: of one microbatch they lie where saved activations have been; default false"},
    {"attention", DP_FIELD_CHOICE, offsetof(implementation_row, attention), true, 0, 0, backend_choices, "kernel"},
    {"key_tile", DP_FIELD_INTEGER, offsetof(implementation_row, key_tile), false, 1, 4096, NULL,
     "attention pads keys to a multiple of this; default 128"},
    {"least_head_dim", DP_FIELD_INTEGER, offsetof(implementation_row, least_head_dim), false, 1, 4096, NULL,
     "attention pads smaller heads to this; default 64"},
    {"issue_us_per_kernel", DP_FIELD_REAL, offsetof(implementation_row, issue_us_per_kernel), true, 0, 1e6, NULL,
     "host"},
    {"issue_us_per_backward_kernel", DP_FIELD_REAL, offsetof(implementation_row, issue_us_per_backward_kernel), true, 0,
     1e6, NULL, "host"},
    {"issue_us_per_instruction", DP_FIELD_REAL, offsetof(implementation_row, issue_us_per_instruction), true, 0, 1e6,
     NULL, "host"},
    {"instruction_us", DP_FIELD_REAL, offsetof(implementation_row, instruction_us), false, 0, 1e6, NULL,
     "the device's own time, beside its ops"},
    {"optimizer_efficiency", DP_FIELD_REAL, offsetof(implementation_row, optimizer_efficiency), true, 0.001, 1, NULL,
     "share of memory bandwidth"},
    {"gradient_share", DP_FIELD_REAL, offsetof(implementation_row, gradient_share), false, 0, 1000, NULL,
     "how many times its curve's time adding to weights' gradients takes; default 0: they are written once"},
    {"error_band", DP_FIELD_REAL, offsetof(implementation_row, error_band), false, 0, 10, NULL,
     "of whole steps on the curves' architecture, one standard deviation; default that of [error_band]"},
    {"context_gb", DP_FIELD_REAL, offsetof(implementation_row, context_gb), true, 0, 1000, NULL, "per worker"},
    {"process_gb", DP_FIELD_REAL, offsetof(implementation_row, process_gb), false, 0, 1000, NULL,
     "of a process, which its workers on a processor, or on parts of one card, share; default 0"},
    {"communicator_gb", DP_FIELD_REAL, offsetof(implementation_row, communicator_gb), true, 0, 1000, NULL, "per peer"},
    {"workspace_gb", DP_FIELD_REAL, offsetof(implementation_row, workspace_gb), true, 0, 1000, NULL, "per worker"},
    {"source", DP_FIELD_STRING, offsetof(implementation_row, source), true, 0, 0, NULL, "who says so"},
    {"kernel_share", DP_FIELD_NODE, offsetof(implementation_row, kernel_share), false, 0, 0, NULL, "by op kind"},
    {"backward_kernel_share", DP_FIELD_NODE, offsetof(implementation_row, backward_kernel_share), false, 0, 0, NULL,
     "by op kind; default kernel_share"},
    {"partition", DP_FIELD_NODE, offsetof(implementation_row, partition), false, 0, 0, NULL,
     "as [partition], where algorithms are chosen on the very part of a card; default: that"},
};

/* Into shares[GRAPH_OP_KIND_COUNT]. */
static dp_status read_kernel_shares(const dp_node *table, double *shares, dp_error *error) {
  if (!table) return DP_OK;
  if (table->kind != DP_NODE_TABLE)
    return dp_fail_at(error, table, "%s: found %s, allowed: a table", table->key, dp_node_kind_name(table->kind));
  for (size_t i = 0; i < table->count; i++) {
    const dp_node *item = table->items[i];
    int kind = 0;
    while (kind < GRAPH_OP_KIND_COUNT && strcmp(graph_op_kind_name((graph_op_kind)kind), item->key) != 0) kind++;
    if (kind == GRAPH_OP_KIND_COUNT)
      return dp_fail_at(error, item, "%s: found \"%s\", allowed: the name of an op kind", table->key, item->key);
    if ((item->kind != DP_NODE_REAL && item->kind != DP_NODE_INTEGER) || !(item->real >= 0 && item->real <= 1000))
      return dp_fail_at(error, item, "%s.%s: allowed: a number from 0 to 1000", table->key, item->key);
    shares[kind] = item->real;
  }
  return DP_OK;
}

static dp_status read_implementation(const dp_node *table, sim_efficiency *efficiency, dp_error *error) {
  implementation_row row = {.fuses = true, .key_tile = 128, .least_head_dim = 64};
  DP_TRY(dp_schema_read(table, NULL, "[[implementation]]", implementation_fields, DP_COUNT_OF(implementation_fields),
                        &row, error));
  sim_implementation implementation = {
      .name = row.name,
      .measured = row.measured,
      .fuses = row.fuses,
      .splits_masters = row.splits_masters,
      .overwrites_gradients = row.overwrites_gradients,
      .attention_backend = row.attention,
      .key_tile = row.key_tile,
      .least_head_dim = row.least_head_dim,
      .issue_s_per_kernel = {row.issue_us_per_kernel * 1e-6, row.issue_us_per_backward_kernel * 1e-6},
      .issue_s_per_instruction = row.issue_us_per_instruction * 1e-6,
      .instruction_s = row.instruction_us * 1e-6,
      .optimizer_efficiency = row.optimizer_efficiency,
      .gradient_share = row.gradient_share,
      .error_band = row.error_band,
      .context_bytes = row.context_gb * 1e9,
      .process_bytes = row.process_gb * 1e9,
      .communicator_bytes = row.communicator_gb * 1e9,
      .workspace_bytes = row.workspace_gb * 1e9};
  if (row.partition)
    DP_TRY(read_partition(row.partition, "[implementation.partition]", 100, &implementation.partition, NULL, error));
  double(*shares)[GRAPH_OP_KIND_COUNT] = implementation.kernel_share;
  for (int kind = 0; kind < GRAPH_OP_KIND_COUNT; kind++) shares[0][kind] = 1;
  DP_TRY(read_kernel_shares(row.kernel_share, shares[0], error));
  memcpy(shares[1], shares[0], sizeof shares[1]);
  DP_TRY(read_kernel_shares(row.backward_kernel_share, shares[1], error));
  if (!dp_array_push(&efficiency->implementations, implementation)) return dp_fail_memory(error);
  return DP_OK;
}

typedef struct reference_row {
  const char *device, *architecture, *source;
  double best_product_share;
} reference_row;

static const dp_field reference_fields[] = {
    {"device", DP_FIELD_STRING, offsetof(reference_row, device), true, 0, 0, NULL, "the card of the curves"},
    {"architecture", DP_FIELD_STRING, offsetof(reference_row, architecture), true, 0, 0, NULL, "its architecture"},
    {"best_product_share", DP_FIELD_REAL, offsetof(reference_row, best_product_share), true, 0.01, 1, NULL,
     "its best matrix product"},
    {"source", DP_FIELD_STRING, offsetof(reference_row, source), true, 0, 0, NULL, "who says so"},
};

typedef struct band_row {
  double reference, other, recalled, unmeasured, measured;
  const char *source;
} band_row;

static const dp_field band_fields[] = {
    {"reference_architecture", DP_FIELD_REAL, offsetof(band_row, reference), true, 0.001, 10, NULL,
     "one standard deviation"},
    {"other_architecture", DP_FIELD_REAL, offsetof(band_row, other), true, 0.001, 10, NULL, "one standard deviation"},
    {"recalled_device", DP_FIELD_REAL, offsetof(band_row, recalled), true, 0.001, 10, NULL, "data sheet from memory"},
    {"unmeasured_implementation", DP_FIELD_REAL, offsetof(band_row, unmeasured), true, 0, 10, NULL,
     "added in quadrature"},
    {"measured", DP_FIELD_REAL, offsetof(band_row, measured), true, 0, 10, NULL,
     "of a step all of whose ops a profile has"},
    {"source", DP_FIELD_STRING, offsetof(band_row, source), true, 0, 0, NULL, "who says so"},
};

typedef struct efficiency_file {
  const char *format;
  int64_t version;
  const dp_node *reference, *curve, *architecture, *partition, *implementation, *error_band;
} efficiency_file;

static const dp_field file_fields[] = {
    {"format", DP_FIELD_STRING, offsetof(efficiency_file, format), true, 0, 0, NULL, "diffpipe-efficiency"},
    {"version", DP_FIELD_INTEGER, offsetof(efficiency_file, version), true, 1, 1, NULL, "1"},
    {"reference", DP_FIELD_NODE, offsetof(efficiency_file, reference), true, 0, 0, NULL, "the card of the curves"},
    {"curve", DP_FIELD_NODE, offsetof(efficiency_file, curve), true, 0, 0, NULL, "[[curve]]"},
    {"architecture", DP_FIELD_NODE, offsetof(efficiency_file, architecture), false, 0, 0, NULL, "[[architecture]]"},
    {"partition", DP_FIELD_NODE, offsetof(efficiency_file, partition), true, 0, 0, NULL, "parts of a card"},
    {"implementation", DP_FIELD_NODE, offsetof(efficiency_file, implementation), true, 0, 0, NULL,
     "[[implementation]]"},
    {"error_band", DP_FIELD_NODE, offsetof(efficiency_file, error_band), true, 0, 0, NULL, "expected errors"},
};

static dp_status read_rows(const dp_node *rows, dp_status (*read)(const dp_node *, sim_efficiency *, dp_error *),
                           sim_efficiency *efficiency, dp_error *error) {
  if (!rows) return DP_OK;
  if (rows->kind != DP_NODE_ARRAY)
    return dp_fail_at(error, rows, "%s: found %s, allowed: [[%s]] tables", rows->key, dp_node_kind_name(rows->kind),
                      rows->key);
  for (size_t i = 0; i < rows->count; i++) DP_TRY(read(rows->items[i], efficiency, error));
  return DP_OK;
}

/* cost.c asks for these and relies on finding them. */
static dp_status check_complete(const dp_node *root, const sim_efficiency *efficiency, dp_error *error) {
  for (int backward = 0; backward < 2; backward++) {
    for (int op_class = 0; op_class < GRAPH_CLASS_COUNT; op_class++)
      if (op_class != GRAPH_CLASS_ATTENTION && !sim_efficiency_curve(efficiency, NULL, op_class, backward, 0, 0, false))
        return dp_fail_at(error, root, "no [[curve]] of class \"%s\", direction \"%s\"", graph_op_class_names[op_class],
                          direction_choices[backward]);
    for (int backend = 0; backend < 2; backend++)
      for (int64_t head_dim = 64; head_dim <= 128; head_dim += 64)
        if (!sim_efficiency_curve(efficiency, NULL, GRAPH_CLASS_ATTENTION, backward, backend, head_dim, false))
          return dp_fail_at(error, root,
                            "no [[curve]] of class \"attention\", backend \"%s\", direction \"%s\", head_dim %d",
                            backend_choices[backend], direction_choices[backward], (int)head_dim);
  }
  if (efficiency->implementations.count == 0) return dp_fail_at(error, root, "no [[implementation]]");
  return DP_OK;
}

static dp_status read_file(const char *folder, sim_efficiency *efficiency, dp_error *error) {
  dp_arena scratch = {0};
  const char *path = folder ? dp_arena_printf(&scratch, "%s/efficiency.toml", folder)
                            : dp_arena_printf(&scratch, "%s/catalogue/efficiency.toml", dp_data_folder());
  dp_status status = path ? dp_document_read(path, &efficiency->document, error) : dp_fail_memory(error);
  dp_arena_free(&scratch);
  if (status != DP_OK) return status;
  const dp_node *root = efficiency->document.root;
  DP_TRY(dp_schema_check_format(root, "diffpipe-efficiency", 1, error));
  efficiency_file file = {0};
  DP_TRY(dp_schema_read(root, NULL, "the file", file_fields, DP_COUNT_OF(file_fields), &file, error));
  reference_row reference = {0};
  DP_TRY(dp_schema_read(file.reference, root, "[reference]", reference_fields, DP_COUNT_OF(reference_fields),
                        &reference, error));
  efficiency->reference_architecture = reference.architecture;
  efficiency->best_product_share = reference.best_product_share;
  DP_TRY(read_rows(file.curve, read_curve, efficiency, error));
  DP_TRY(read_rows(file.architecture, read_architecture, efficiency, error));
  DP_TRY(read_rows(file.implementation, read_implementation, efficiency, error));
  DP_TRY(read_partition(file.partition, "[partition]", 1, &efficiency->partition, &efficiency->partition_bandwidth,
                        error));
  band_row band = {0};
  DP_TRY(dp_schema_read(file.error_band, root, "[error_band]", band_fields, DP_COUNT_OF(band_fields), &band, error));
  efficiency->band_reference = band.reference;
  efficiency->band_other = band.other;
  efficiency->band_recalled = band.recalled;
  efficiency->band_unmeasured = band.unmeasured;
  efficiency->band_measured = band.measured;
  return check_complete(root, efficiency, error);
}

dp_status sim_efficiency_read(const char *folder, sim_efficiency **out, dp_error *error) {
  sim_efficiency *efficiency = calloc(1, sizeof *efficiency);
  if (!efficiency) return dp_fail_memory(error);
  const dp_status status = read_file(folder, efficiency, error);
  if (status != DP_OK) {
    sim_efficiency_free(efficiency);
    return status;
  }
  *out = efficiency;
  return DP_OK;
}

void sim_efficiency_use_library(sim_efficiency *efficiency, const char *implementation,
                                plan_library_workspace workspace) {
  for (size_t i = 0; i < efficiency->implementations.count; i++)
    if (strcmp(efficiency->implementations.items[i].name, implementation) == 0)
      efficiency->implementations.items[i].library_workspace = workspace;
}

void sim_efficiency_free(sim_efficiency *efficiency) {
  if (!efficiency) return;
  dp_array_free(&efficiency->curves);
  dp_array_free(&efficiency->architectures);
  dp_array_free(&efficiency->implementations);
  dp_document_free(&efficiency->document);
  free(efficiency);
}

dp_status sim_efficiency_implementation(const sim_efficiency *efficiency, const char *name, const dp_node *node,
                                        const sim_implementation **implementation, dp_error *error) {
  dp_allowed allowed = {.given = name};
  for (size_t i = 0; i < efficiency->implementations.count; i++) {
    const sim_implementation *candidate = &efficiency->implementations.items[i];
    if (strcmp(candidate->name, name) == 0) {
      dp_allowed_free(&allowed);
      *implementation = candidate;
      return DP_OK;
    }
    dp_allowed_add(&allowed, candidate->name);
  }
  const char *text = dp_allowed_text(&allowed);
  const dp_status status = node ? dp_fail_at(error, node, "task.implementation: found \"%.60s\", %s", name, text)
                                : dp_fail(error, DP_BAD_INPUT, "task.implementation: found \"%.60s\", %s", name, text);
  dp_allowed_free(&allowed);
  return status;
}
