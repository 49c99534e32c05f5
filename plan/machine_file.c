/* machine.json: the same rows read, write and describe it. */
#include <jansson.h>

#include "base/schema.h"
#include "plan/describe.h"
#include "plan/machine.h"

const char *const plan_pcie_path_names[] = {"internal", "single", "multiple", "hostbridge", "node", "system", NULL};

typedef struct machine_file {
  const char *format;
  int64_t version;
  plan_machine machine;
  const dp_node *gpus, *pairs;
} machine_file;

#define AT(field) offsetof(machine_file, machine.field)
static const dp_field file_fields[] = {
    {"format", DP_FIELD_STRING, offsetof(machine_file, format), true, 0, 0, NULL, "diffpipe-machine"},
    {"version", DP_FIELD_INTEGER, offsetof(machine_file, version), true, 1, 1, NULL, "1"},
    {"name", DP_FIELD_STRING, AT(name), false, 0, 0, NULL, "of the host"},
    {"driver", DP_FIELD_STRING, AT(driver), false, 0, 0, NULL, "its version"},
    {"cpu_vendor", DP_FIELD_STRING, AT(cpu_vendor), false, 0, 0, NULL, "as /proc/cpuinfo has it: AuthenticAMD"},
    {"cpu_model", DP_FIELD_INTEGER, AT(cpu_model), false, 0, 65535, NULL, "as /proc/cpuinfo has it"},
    {"gpus", DP_FIELD_NODE, offsetof(machine_file, gpus), true, 0, 0, NULL, "in the order of their bus addresses"},
    {"pairs", DP_FIELD_NODE, offsetof(machine_file, pairs), false, 0, 0, NULL, "each two GPUs once, by a and then b"},
};

#define GPU(field) offsetof(plan_machine_gpu, field)
static const dp_field gpu_fields[] = {
    {"name", DP_FIELD_STRING, GPU(name), true, 0, 0, NULL, "as the driver says: NVIDIA H200"},
    {"uuid", DP_FIELD_STRING, GPU(uuid), false, 0, 0, NULL, "of the card"},
    {"bus", DP_FIELD_STRING, GPU(bus), false, 0, 0, NULL, "its PCIe address"},
    {"memory_bytes", DP_FIELD_INTEGER, GPU(memory_bytes), true, 1, 1e15, NULL, "that can be allocated"},
    {"capability", DP_FIELD_INTEGER, GPU(capability), false, 0, 999, NULL, "compute capability: 90; default unknown"},
    {"pcie_generation", DP_FIELD_INTEGER, GPU(pcie_generation), false, 0, 9, NULL,
     "that card and slot reach; default unknown"},
    {"pcie_lanes", DP_FIELD_INTEGER, GPU(pcie_lanes), false, 0, 32, NULL, "that card and slot reach; default unknown"},
    {"power_w", DP_FIELD_REAL, GPU(power_w), false, 0, 1e5, NULL, "W, its limit; default unknown"},
    {"nvlink_version", DP_FIELD_INTEGER, GPU(nvlink_version), false, 0, 99, NULL, "default unknown"},
    {"switch_nvlinks", DP_FIELD_INTEGER, GPU(switch_nvlinks), false, 0, 999, NULL,
     "active NVLinks into switches; default 0"},
};

#define PAIR(field) offsetof(plan_machine_pair, field)
static const dp_field pair_fields[] = {
    {"a", DP_FIELD_INTEGER, PAIR(a), true, 0, PLAN_MAX_GPUS - 1, NULL, "a GPU, from 0"},
    {"b", DP_FIELD_INTEGER, PAIR(b), true, 0, PLAN_MAX_GPUS - 1, NULL, "another, greater"},
    {"path", DP_FIELD_CHOICE, PAIR(path), true, 0, 0, plan_pcie_path_names,
     "over PCIe: one board, one switch, several, one root complex, one socket, two sockets"},
    {"peer", DP_FIELD_BOOLEAN, PAIR(peer), true, 0, 0, NULL, "each reads and writes the other's memory"},
    {"nvlinks", DP_FIELD_INTEGER, PAIR(nvlinks), false, 0, 999, NULL, "active NVLinks between the two; default 0"},
};

/* ---- writing ---- */

static json_t *value_json(const dp_field *field, const void *target) {
  const char *at = (const char *)target + field->offset;
  switch (field->type) {
    case DP_FIELD_BOOLEAN:
      return json_boolean(*(const bool *)at);
    case DP_FIELD_INTEGER:
      return json_integer(*(const int64_t *)at);
    case DP_FIELD_REAL:
      return json_real(*(const double *)at);
    case DP_FIELD_CHOICE:
      return json_string(field->choices[*(const int *)at]);
    default:
      return json_string(*(const char *const *)at);
  }
}

/* What is not known is left out. */
static bool is_unknown(const dp_field *field, const void *target) {
  const char *at = (const char *)target + field->offset;
  if (field->required) return false;
  if (field->type == DP_FIELD_STRING) return !*(const char *const *)at || !**(const char *const *)at;
  return field->type == DP_FIELD_INTEGER && *(const int64_t *)at == 0 ? true
         : field->type == DP_FIELD_REAL                               ? *(const double *)at == 0
                                                                      : false;
}

static bool set_row(json_t *object, const dp_field *fields, size_t count, const void *target) {
  bool done = object != NULL;
  for (size_t f = 0; done && f < count; f++)
    if (!is_unknown(&fields[f], target))
      done = json_object_set_new(object, fields[f].key, value_json(&fields[f], target)) == 0;
  return done;
}

void *plan_machine_json(const plan_machine *machine) {
  const machine_file file = {.format = "diffpipe-machine", .version = 1, .machine = *machine};
  json_t *root = json_object(), *gpus = json_array(), *pairs = json_array();
  bool done = set_row(root, file_fields, DP_COUNT_OF(file_fields) - 2, &file); /* the last two are lists */
  for (int g = 0; done && g < machine->gpu_count; g++) {
    json_t *row = json_object();
    done =
        json_array_append_new(gpus, row) == 0 && set_row(row, gpu_fields, DP_COUNT_OF(gpu_fields), &machine->gpus[g]);
  }
  for (int p = 0; done && p < plan_machine_pair_count(machine); p++) {
    json_t *row = json_object();
    done = json_array_append_new(pairs, row) == 0 &&
           set_row(row, pair_fields, DP_COUNT_OF(pair_fields), &machine->pairs[p]);
  }
  done = json_object_set_new(root, "gpus", gpus) == 0 && done;
  done = json_object_set_new(root, "pairs", pairs) == 0 && done;
  if (done) return root;
  json_decref(root);
  return NULL;
}

/* ---- reading ---- */

static dp_status read_gpus(const dp_node *list, dp_arena *arena, plan_machine *machine, dp_error *error) {
  if (list->kind != DP_NODE_ARRAY || list->count < 1 || list->count > PLAN_MAX_GPUS)
    return dp_fail_at(error, list, "gpus: found %s, allowed: a list of 1 to %d GPUs", dp_node_kind_name(list->kind),
                      PLAN_MAX_GPUS);
  plan_machine_gpu *gpus = DP_ARENA_NEW(arena, plan_machine_gpu, list->count);
  if (!gpus) return dp_fail_memory(error);
  for (size_t g = 0; g < list->count; g++) {
    gpus[g] = (plan_machine_gpu){.uuid = "", .bus = ""};
    DP_TRY(dp_schema_read(list->items[g], NULL, "gpus", gpu_fields, DP_COUNT_OF(gpu_fields), &gpus[g], error));
  }
  machine->gpus = gpus;
  machine->gpu_count = (int)list->count;
  return DP_OK;
}

static dp_status read_pairs(const dp_node *root, const dp_node *list, dp_arena *arena, plan_machine *machine,
                            dp_error *error) {
  const size_t count = (size_t)plan_machine_pair_count(machine);
  if (list ? list->kind != DP_NODE_ARRAY || list->count != count : count > 0)
    return dp_fail_at(error, list ? list : root, "pairs: found %zu, needed: %zu, each two of %d GPUs once",
                      list && list->kind == DP_NODE_ARRAY ? list->count : 0, count, machine->gpu_count);
  plan_machine_pair *pairs = DP_ARENA_NEW(arena, plan_machine_pair, count + 1);
  if (!pairs) return dp_fail_memory(error);
  int64_t a = 0, b = 1;
  for (size_t p = 0; p < count; p++) {
    DP_TRY(dp_schema_read(list->items[p], NULL, "pairs", pair_fields, DP_COUNT_OF(pair_fields), &pairs[p], error));
    if (pairs[p].a != a || pairs[p].b != b)
      return dp_fail_at(error, list->items[p], "pairs: found GPUs %lld and %lld, needed here: %lld and %lld",
                        (long long)pairs[p].a, (long long)pairs[p].b, (long long)a, (long long)b);
    if (++b == machine->gpu_count) b = ++a + 1;
  }
  machine->pairs = pairs;
  return DP_OK;
}

dp_status plan_machine_read(const char *path, dp_document *document, dp_arena *arena, plan_machine *machine,
                            dp_error *error) {
  dp_document read = {0};
  DP_TRY(dp_document_read(path, &read, error));
  machine_file file = {.machine = {.name = "", .driver = "", .cpu_vendor = ""}};
  dp_status status = dp_schema_check_format(read.root, "diffpipe-machine", 1, error);
  if (status == DP_OK)
    status = dp_schema_read(read.root, NULL, "machine", file_fields, DP_COUNT_OF(file_fields), &file, error);
  if (status == DP_OK) status = read_gpus(file.gpus, arena, &file.machine, error);
  if (status == DP_OK) status = read_pairs(read.root, file.pairs, arena, &file.machine, error);
  if (status != DP_OK) {
    dp_document_free(&read);
    return status;
  }
  *document = read;
  *machine = file.machine;
  return DP_OK;
}

size_t plan_machine_tables(const plan_key_table **tables) {
  static const plan_key_table all[] = {
      {"the machine", file_fields, DP_COUNT_OF(file_fields)},
      {"`gpus`", gpu_fields, DP_COUNT_OF(gpu_fields)},
      {"`pairs`", pair_fields, DP_COUNT_OF(pair_fields)},
  };
  *tables = all;
  return DP_COUNT_OF(all);
}
