/* profile.json: the same rows read, write and describe it. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "graph/op_table.h"
#include "plan/describe.h"
#include "plan/profile.h"

#define MAX_S 1e6
#define MIN_S 1e-12
#define MAX_WORK 1e24

typedef struct profile_file {
  const char *format;
  int64_t version;
  const dp_node *ops, *laws, *copies, *sums, *staged, *links, *parts, *units;
  plan_profile profile;
} profile_file;

#define AT(field) offsetof(profile_file, profile.field)
#define TIME(key, target, required, help) \
  { key, DP_FIELD_REAL, target, required, 0, MAX_S, NULL, help }
static const dp_field file_fields[] = {
    {"format", DP_FIELD_STRING, offsetof(profile_file, format), true, 0, 0, NULL, "diffpipe-profile"},
    {"version", DP_FIELD_INTEGER, offsetof(profile_file, version), true, 1, 1, NULL, "1"},
    {"device", DP_FIELD_STRING, AT(device), true, 0, 0, NULL, "of the catalogue: what a worker was"},
    {"processor", DP_FIELD_STRING, AT(processor), true, 0, 0, NULL, "what the machine calls it"},
    {"cores", DP_FIELD_INTEGER, AT(cores), true, 1, 65536, NULL, "of the machine"},
    {"threads", DP_FIELD_INTEGER, AT(threads), true, 1, 1024, NULL, "of each worker's kernels"},
    {"workers", DP_FIELD_INTEGER, AT(workers), true, 1, 65536, NULL, "that computed side by side for the busy times"},
    {"implementation", DP_FIELD_STRING, AT(implementation), true, 0, 0, NULL, "task.implementation that this is"},
    {"precision", DP_FIELD_CHOICE, AT(precision), true, 0, 0, graph_dtype_names, "of weights and activations"},
    {"gemm", DP_FIELD_STRING, AT(gemm), true, 0, 0, NULL, "the library that multiplied matrices"},
    {"made", DP_FIELD_STRING, AT(made), true, 0, 0, NULL, "when, in UTC"},
    {"driver", DP_FIELD_STRING, AT(driver), false, 0, 0, NULL, "of the GPU"},
    {"libraries", DP_FIELD_STRING, AT(libraries), false, 0, 0, NULL, "whose kernels ran, with their versions"},
    {"clock_hz", DP_FIELD_REAL, AT(clock_hz), false, 0, 1e12, NULL, "of the GPU's multiprocessors; 0: not known"},
    TIME("optimizer_s", AT(optimizer_s), true, "s of an optimizer step, beside its parameters"),
    TIME("optimizer_s_per_parameter", AT(optimizer_s_per_parameter), true, "s"),
    {"optimizer_busy_factor", DP_FIELD_REAL, AT(optimizer_busy_factor), true, 1, 1000, NULL, "busy over alone"},
    TIME("loss_s", AT(loss_s), true, "s of the loss and its gradient, beside what goes by size"),
    TIME("loss_s_per_byte", AT(loss_s_per_byte), true, "s, for each byte of the prediction"),
    TIME("instruction_s", AT(instruction_s), true, "s of an instruction beside its ops"),
    TIME("norm_s_per_parameter", AT(norm_s_per_parameter), false,
         "s, of the gradients' norm; 0: the optimizer's times have it"),
    TIME("handover_s", AT(handover_s), true, "s beside a transfer, from what it waits for to what waits for it"),
    TIME("handover_after_s", AT(handover_after_s), false, "s, the part of this that comes after the transfer's end"),
    TIME("step_s", AT(step_s), true, "s of a step beside its instructions"),
    {"copies_bytes_per_s", DP_FIELD_REAL, AT(copies_bytes_per_s), false, 0, 1e15, NULL,
     "of all messages between parts of a GPU at once; 0: not known"},
    {"staged_bytes_per_s", DP_FIELD_REAL, AT(staged_bytes_per_s), false, 0, 1e15, NULL,
     "the same through the host's memory"},
    {"links_error", DP_FIELD_REAL, AT(links_error), false, 0, 1e6, NULL,
     "median error between the sizes of messages, on sizes kept aside, relative"},
    {"copy_slowdown", DP_FIELD_REAL, AT(copy_slowdown), false, 0, 100, NULL,
     "compute takes 1 + this times as long while its device copies to another worker"},
    {"nccl_slowdown", DP_FIELD_REAL, AT(nccl_slowdown), false, 0, 100, NULL,
     "the same beside NCCL's kernels, where no row of `links` says it; 0: not known"},
    TIME("launch_s", AT(launch_s), false,
         "s of the host of a recorded program, from a launch to the next, which is told alone; 0: not known"),
    {"repeat_error", DP_FIELD_REAL, AT(repeat_error), true, 0, 1e6, NULL, "median difference of two halves, relative"},
    {"held_out_error", DP_FIELD_REAL, AT(held_out_error), true, 0, 1e6, NULL,
     "median error of laws on ops kept aside, relative"},
    {"held_out", DP_FIELD_INTEGER, AT(held_out), true, 0, 1e9, NULL, "how many these were"},
    {"copies", DP_FIELD_NODE, offsetof(profile_file, copies), true, 0, 0, NULL, "messages between workers, ascending"},
    {"sums", DP_FIELD_NODE, offsetof(profile_file, sums), true, 0, 0, NULL,
     "gradients of two workers added, ascending"},
    {"staged", DP_FIELD_NODE, offsetof(profile_file, staged), false, 0, 0, NULL,
     "messages through the host's memory, ascending"},
    {"links", DP_FIELD_NODE, offsetof(profile_file, links), false, 0, 0, NULL, "of whole GPUs of one host, by way"},
    {"parts", DP_FIELD_NODE, offsetof(profile_file, parts), false, 0, 0, NULL,
     "what workers take beside their units, by multiprocessors"},
    {"units", DP_FIELD_NODE, offsetof(profile_file, units), false, 0, 0, NULL, "what units take that run whole"},
    {"laws", DP_FIELD_NODE, offsetof(profile_file, laws), true, 0, 0, NULL, "what interpolates"},
    {"ops", DP_FIELD_NODE, offsetof(profile_file, ops), true, 0, 0, NULL, "what was measured"},
};
enum { LISTS = 8 }; /* the last rows are lists, in this order */

#define AT_OP(field) offsetof(plan_profile_op, field)
static const dp_field op_fields[] = {
    {"op", DP_FIELD_STRING, AT_OP(op), true, 0, 0, NULL, "kind, shapes in > out, attributes; dx: gradients made"},
    {"direction", DP_FIELD_CHOICE, AT_OP(direction), true, 0, 0, plan_direction_names, "pass"},
    {"matrix_flops", DP_FIELD_REAL, AT_OP(work.matrix_flops), true, 0, MAX_WORK, NULL, "of matrix products"},
    {"flops", DP_FIELD_REAL, AT_OP(work.flops), true, 0, MAX_WORK, NULL, "all others"},
    {"bytes", DP_FIELD_REAL, AT_OP(work.bytes), true, 0, MAX_WORK, NULL, "read and written"},
    {"alone_s", DP_FIELD_REAL, AT_OP(alone_s), true, MIN_S, MAX_S, NULL, "s, nothing else running"},
    {"busy_s", DP_FIELD_REAL, AT_OP(busy_s), true, MIN_S, MAX_S, NULL, "s, all workers computing"},
    {"runs", DP_FIELD_INTEGER, AT_OP(runs), true, 1, 1e12, NULL, "measurements behind them"},
};

#define AT_UNIT(field) offsetof(plan_profile_unit, field)
static const dp_field unit_fields[] = {
    {"unit", DP_FIELD_STRING, AT_UNIT(unit), true, 0, 0, NULL, "of the shapes and attributes of all its ops"},
    {"name", DP_FIELD_STRING, AT_UNIT(name), true, 0, 0, NULL, "of one such unit"},
    {"sms", DP_FIELD_INTEGER, AT_UNIT(sms), true, 0, 65536, NULL, "multiprocessors it ran on"},
    {"pass", DP_FIELD_CHOICE, AT_UNIT(pass), true, 0, 0, plan_profile_pass_names, "backward: both parts in one"},
    {"alone_s", DP_FIELD_REAL, AT_UNIT(alone_s), true, MIN_S, MAX_S, NULL, "s, nobody else on the device computing"},
    {"beside_forward_s", DP_FIELD_REAL, AT_UNIT(beside_forward_s), true, MIN_S, MAX_S, NULL,
     "s, all other workers of the device running forwards"},
    {"beside_backward_s", DP_FIELD_REAL, AT_UNIT(beside_backward_s), true, MIN_S, MAX_S, NULL,
     "s, all of them running anything else"},
    TIME("first_s", AT_UNIT(first_s), false, "s, alone, of a step's first microbatch; 0: as the others"),
    {"runs", DP_FIELD_INTEGER, AT_UNIT(runs), true, 1, 1e12, NULL, "measurements behind them"},
};

#define AT_PART(field) offsetof(plan_profile_part, field)
static const dp_field part_fields[] = {
    {"sms", DP_FIELD_INTEGER, AT_PART(sms), true, 0, 65536, NULL, "multiprocessors of a worker"},
    {"workers", DP_FIELD_INTEGER, AT_PART(workers), true, 1, 65536, NULL, "that shared the device"},
    TIME("optimizer_s", AT_PART(optimizer_s), true, "s of an optimizer step, beside its parameters"),
    TIME("optimizer_s_per_parameter", AT_PART(optimizer_s_per_parameter), true, "s"),
    TIME("norm_s_per_parameter", AT_PART(norm_s_per_parameter), false,
         "s, of the gradients' norm before workers meet over it"),
    {"optimizer_busy_factor", DP_FIELD_REAL, AT_PART(optimizer_busy_factor), true, 1, 1000, NULL, "busy over alone"},
    TIME("instruction_s", AT_PART(instruction_s), true, "s of an instruction beside its units"),
    TIME("feed_s", AT_PART(feed_s), false, "s more of a forward that takes the model's inputs"),
    TIME("loss_s", AT_PART(loss_s), false, "s more of a forward that has the loss"),
    TIME("issue_s", AT_PART(issue_s), true, "s of the host, to issue an instruction"),
    TIME("step_s", AT_PART(step_s), true, "s of a step beside its instructions"),
    {"forward_factor", DP_FIELD_REAL, AT_PART(forward_factor), false, 0, 1e3, NULL,
     "what units took over the catalogue's curves, for units that were not measured; 0: not known"},
    {"backward_factor", DP_FIELD_REAL, AT_PART(backward_factor), false, 0, 1e3, NULL, "the same"},
    {"runtime_bytes", DP_FIELD_INTEGER, AT_PART(runtime_bytes), true, 0, 1e15, NULL, "of a worker, outside its layout"},
};

typedef struct law_row {
  const char *kind;
  plan_profile_law law;
} law_row;
#define AT_LAW(field) offsetof(law_row, law.field)
static const dp_field law_fields[] = {
    {"kind", DP_FIELD_STRING, offsetof(law_row, kind), false, 0, 0, NULL, "of op; absent: all of the class"},
    {"class", DP_FIELD_CHOICE, AT_LAW(op_class), true, 0, 0, graph_op_class_names, "of the kind"},
    {"direction", DP_FIELD_CHOICE, AT_LAW(direction), true, 0, 0, plan_direction_names, "pass"},
    TIME("overhead_s", AT_LAW(overhead_s), true, "s"),
    TIME("s_per_matrix_flop", AT_LAW(s_per_matrix_flop), true, "s"),
    TIME("s_per_flop", AT_LAW(s_per_flop), true, "s"),
    TIME("s_per_byte", AT_LAW(s_per_byte), true, "s"),
    {"busy_factor", DP_FIELD_REAL, AT_LAW(busy_factor), true, 1, 1000, NULL, "busy over alone"},
    {"largest_matrix_flops", DP_FIELD_REAL, AT_LAW(largest.matrix_flops), true, 0, MAX_WORK, NULL, "it was fitted to"},
    {"largest_flops", DP_FIELD_REAL, AT_LAW(largest.flops), true, 0, MAX_WORK, NULL, "it was fitted to"},
    {"largest_bytes", DP_FIELD_REAL, AT_LAW(largest.bytes), true, 0, MAX_WORK, NULL, "it was fitted to"},
    {"error", DP_FIELD_REAL, AT_LAW(error), true, 0, 1e6, NULL, "median, relative, on what it was fitted to"},
    {"points", DP_FIELD_INTEGER, AT_LAW(points), true, 1, 1e9, NULL, "ops that it was fitted to"},
};

#define AT_POINT(field) offsetof(plan_profile_point, field)
static const dp_field point_fields[] = {
    {"bytes", DP_FIELD_REAL, AT_POINT(bytes), true, 1, 1e15, NULL, "size"},
    {"alone_s", DP_FIELD_REAL, AT_POINT(alone_s), true, MIN_S, MAX_S, NULL, "s, nothing else running"},
    {"busy_s", DP_FIELD_REAL, AT_POINT(busy_s), true, MIN_S, MAX_S, NULL, "s, all workers computing"},
};

typedef struct link_row {
  plan_profile_link link;
  const dp_node *points;
} link_row;
#define AT_LINK(field) offsetof(link_row, link.field)
static const dp_field link_fields[] = {
    {"way", DP_FIELD_CHOICE, AT_LINK(way), true, 0, 0, plan_profile_way_names,
     "peer copies, through the host's memory, NCCL's send and receive, its all-reduce; "
     "copies of one GPU, which are told alone"},
    {"link", DP_FIELD_STRING, AT_LINK(link), true, 0, 0, NULL, "class of the slowest link of that way in the cluster"},
    {"link_bytes_per_s", DP_FIELD_REAL, AT_LINK(link_bytes_per_s), true, 1, 1e15, NULL,
     "of that way, as the cluster had it; another cluster's in proportion"},
    TIME("link_latency_s", AT_LINK(link_latency_s), true, "s, likewise; what another's is more or less is added"),
    {"gpus", DP_FIELD_INTEGER, AT_LINK(gpus), true, 1, 65536, NULL, "that took part"},
    TIME("handover_s", AT_LINK(handover_s), true, "s from what a message waits for to what waits for it, without it"),
    {"slowdown", DP_FIELD_REAL, AT_LINK(slowdown), true, 0, 100, NULL,
     "compute takes 1 + this times as long on both GPUs beside a message"},
    {"waiting_slowdown", DP_FIELD_REAL, AT_LINK(waiting_slowdown), true, 0, 100, NULL,
     "the same where a message waits for the other GPU"},
    {"both_bytes_per_s", DP_FIELD_REAL, AT_LINK(both_bytes_per_s), true, 0, 1e15, NULL,
     "into a GPU and out of it at once; 0: not known"},
    {"together_bytes_per_s", DP_FIELD_REAL, AT_LINK(together_bytes_per_s), true, 0, 1e15, NULL,
     "of all messages between all neighbours, both ways at once; 0: not known"},
    {"error", DP_FIELD_REAL, AT_LINK(error), true, 0, 1e6, NULL,
     "median error between the sizes, on sizes kept aside, relative"},
    {"points", DP_FIELD_NODE, offsetof(link_row, points), true, 0, 0, NULL,
     "messages one way, ascending; see `copies`"},
};

size_t plan_profile_tables(const plan_key_table **tables) {
  static const plan_key_table all[] = {
      {"the profile", file_fields, DP_COUNT_OF(file_fields)},
      {"`ops`", op_fields, DP_COUNT_OF(op_fields)},
      {"`laws`", law_fields, DP_COUNT_OF(law_fields)},
      {"`copies`, `sums` and `staged`", point_fields, DP_COUNT_OF(point_fields)},
      {"`links`", link_fields, DP_COUNT_OF(link_fields)},
      {"`parts`", part_fields, DP_COUNT_OF(part_fields)},
      {"`units`", unit_fields, DP_COUNT_OF(unit_fields)},
  };
  *tables = all;
  return DP_COUNT_OF(all);
}

/* ---- reading ---- */

/* The kind whose name the first `length` characters are; GRAPH_OP_KIND_COUNT: none. */
static int kind_of(const char *text, size_t length) {
  int kind = 0;
  while (kind < GRAPH_OP_KIND_COUNT && (strlen(graph_op_kind_name((graph_op_kind)kind)) != length ||
                                        memcmp(graph_op_kind_name((graph_op_kind)kind), text, length) != 0))
    kind++;
  return kind;
}

static dp_status check_list(const dp_node *list, dp_error *error) {
  char shown[80];
  return list->kind == DP_NODE_ARRAY
             ? DP_OK
             : dp_fail_at(error, list, "%s: found %s, allowed: a list", list->key, dp_node_show(list, shown));
}

static dp_status read_ops(const dp_node *list, plan_profile *profile, dp_error *error) {
  DP_TRY(check_list(list, error));
  for (size_t i = 0; i < list->count; i++) {
    plan_profile_op op = {.op = NULL};
    DP_TRY(dp_schema_read(list->items[i], NULL, "ops", op_fields, DP_COUNT_OF(op_fields), &op, error));
    const int kind = kind_of(op.op, strcspn(op.op, " "));
    if (kind == GRAPH_OP_KIND_COUNT)
      return dp_fail_at(error, dp_node_get(list->items[i], "op"),
                        "ops.op: found \"%.60s\", allowed: what begins with the name of an op kind", op.op);
    op.kind = (graph_op_kind)kind;
    op.op = dp_arena_strdup(&profile->arena, op.op);
    if (!op.op || !dp_array_push(&profile->ops, op)) return dp_fail_memory(error);
  }
  dp_error reason = DP_ERROR_INIT;
  const dp_status status = plan_profile_finish(profile, &reason);
  return status == DP_OK ? DP_OK : dp_fail_at(error, list, "%s", reason.text);
}

static dp_status read_laws(const dp_node *list, plan_profile *profile, dp_error *error) {
  DP_TRY(check_list(list, error));
  for (size_t i = 0; i < list->count; i++) {
    law_row row = {.kind = NULL};
    DP_TRY(dp_schema_read(list->items[i], NULL, "laws", law_fields, DP_COUNT_OF(law_fields), &row, error));
    row.law.kind = row.kind ? kind_of(row.kind, strlen(row.kind)) : GRAPH_NONE;
    if (row.law.kind == GRAPH_OP_KIND_COUNT ||
        (row.kind && (int)graph_op_rows[row.law.kind].op_class != row.law.op_class))
      return dp_fail_at(error, dp_node_get(list->items[i], "kind"),
                        "laws.kind: found \"%.60s\", allowed: the name of an op kind of class \"%s\"", row.kind,
                        graph_op_class_names[row.law.op_class]);
    if (!dp_array_push(&profile->laws, row.law)) return dp_fail_memory(error);
  }
  return DP_OK;
}

static dp_status read_points(const dp_node *list, plan_profile_points *points, dp_error *error) {
  DP_TRY(check_list(list, error));
  double before = 0;
  for (size_t i = 0; i < list->count; i++) {
    plan_profile_point point = {0};
    DP_TRY(dp_schema_read(list->items[i], NULL, list->key, point_fields, DP_COUNT_OF(point_fields), &point, error));
    if (point.bytes <= before)
      return dp_fail_at(error, list->items[i], "%s: found %.9g bytes after %.9g, allowed: ascending sizes", list->key,
                        point.bytes, before);
    before = point.bytes;
    if (!dp_array_push(points, point)) return dp_fail_memory(error);
  }
  return DP_OK;
}

static bool has_link(const plan_profile *profile, plan_profile_way way) {
  for (size_t i = 0; i < profile->links.count; i++)
    if (profile->links.items[i].way == way) return true;
  return false;
}

static dp_status read_link(const dp_node *node, plan_profile *profile, dp_error *error) {
  link_row row = {.points = NULL};
  DP_TRY(dp_schema_read(node, NULL, "links", link_fields, DP_COUNT_OF(link_fields), &row, error));
  if (row.link.gpus < 2 && row.link.way < PLAN_PROFILE_TO_DEVICE)
    return dp_fail_at(error, dp_node_get(node, "gpus"), "links.gpus: found 1, allowed of \"%s\": 2 or more",
                      plan_profile_way_names[row.link.way]);
  if (has_link(profile, row.link.way))
    return dp_fail_at(error, dp_node_get(node, "way"), "links.way: found \"%s\" twice, allowed: each once",
                      plan_profile_way_names[row.link.way]);
  dp_status status = read_points(row.points, &row.link.points, error);
  if (status == DP_OK && row.link.points.count == 0)
    status = dp_fail_at(error, row.points, "links.points: found none, allowed: one or more");
  if (status == DP_OK) status = plan_profile_set_link(profile, &row.link, error);
  if (status != DP_OK) dp_array_free(&row.link.points);
  return status;
}

static dp_status read_links(const dp_node *list, plan_profile *profile, dp_error *error) {
  DP_TRY(check_list(list, error));
  for (size_t i = 0; i < list->count; i++) DP_TRY(read_link(list->items[i], profile, error));
  return DP_OK;
}

static dp_status read_parts(const dp_node *list, plan_profile *profile, dp_error *error) {
  DP_TRY(check_list(list, error));
  for (size_t i = 0; i < list->count; i++) {
    plan_profile_part part = {.sms = 0};
    DP_TRY(dp_schema_read(list->items[i], NULL, "parts", part_fields, DP_COUNT_OF(part_fields), &part, error));
    if (!dp_array_push(&profile->parts, part)) return dp_fail_memory(error);
  }
  return DP_OK;
}

static dp_status read_units(const dp_node *list, plan_profile *profile, dp_error *error) {
  DP_TRY(check_list(list, error));
  for (size_t i = 0; i < list->count; i++) {
    plan_profile_unit unit = {.unit = NULL};
    DP_TRY(dp_schema_read(list->items[i], NULL, "units", unit_fields, DP_COUNT_OF(unit_fields), &unit, error));
    unit.unit = dp_arena_strdup(&profile->arena, unit.unit);
    unit.name = dp_arena_strdup(&profile->arena, unit.name);
    if (!unit.unit || !unit.name || !dp_array_push(&profile->units, unit)) return dp_fail_memory(error);
  }
  return DP_OK;
}

/* Lists that GPUs' profiles have. */
static dp_status read_units_and_parts(const profile_file *file, plan_profile *profile, dp_error *error) {
  dp_error reason = DP_ERROR_INIT;
  if (file->staged) DP_TRY(read_points(file->staged, &profile->staged, error));
  if (file->links) DP_TRY(read_links(file->links, profile, error));
  if (file->parts) DP_TRY(read_parts(file->parts, profile, error));
  if (file->units) DP_TRY(read_units(file->units, profile, error));
  const dp_status status = plan_profile_finish_units(profile, &reason);
  return status == DP_OK ? DP_OK : dp_fail_at(error, file->units ? file->units : file->parts, "%s", reason.text);
}

/* Strings become the profile's own. */
static dp_status keep_strings(plan_profile *profile, dp_error *error) {
  const char **const strings[] = {&profile->device, &profile->processor, &profile->implementation, &profile->gemm,
                                  &profile->made,   &profile->driver,    &profile->libraries};
  for (size_t i = 0; i < DP_COUNT_OF(strings); i++) {
    if (!*strings[i]) continue; /* not required */
    *strings[i] = dp_arena_strdup(&profile->arena, *strings[i]);
    if (!*strings[i]) return dp_fail_memory(error);
  }
  return DP_OK;
}

static dp_status read_document(const dp_document *document, plan_profile *profile, dp_error *error) {
  profile_file file = {.format = NULL};
  DP_TRY(dp_schema_check_format(document->root, "diffpipe-profile", 1, error));
  DP_TRY(dp_schema_read(document->root, NULL, "profile", file_fields, DP_COUNT_OF(file_fields), &file, error));
  plan_profile made = file.profile;
  dp_status status = keep_strings(&made, error);
  if (status == DP_OK) status = read_points(file.copies, &made.copies, error);
  if (status == DP_OK) status = read_points(file.sums, &made.sums, error);
  if (status == DP_OK) status = read_units_and_parts(&file, &made, error);
  if (status == DP_OK) status = read_laws(file.laws, &made, error);
  if (status == DP_OK) status = read_ops(file.ops, &made, error);
  if (status == DP_OK)
    *profile = made;
  else
    plan_profile_free(&made);
  return status;
}

dp_status plan_profile_read(const char *path, plan_profile *profile, dp_error *error) {
  dp_document document;
  DP_TRY(dp_document_read(path, &document, error));
  const dp_status status = read_document(&document, profile, error);
  dp_document_free(&document);
  return status;
}

dp_status plan_profile_parse(const char *text, size_t length, const char *name, plan_profile *profile,
                             dp_error *error) {
  dp_document document;
  DP_TRY(dp_document_parse_json(text, length, name, &document, error));
  const dp_status status = read_document(&document, profile, error);
  dp_document_free(&document);
  return status;
}

/* ---- writing ---- */

static json_t *value_of(const dp_field *field, const void *row) {
  const char *at = (const char *)row + field->offset;
  int64_t integer;
  double real;
  const char *string;
  int choice;
  switch (field->type) {
    case DP_FIELD_INTEGER:
      memcpy(&integer, at, sizeof integer);
      return json_integer(integer);
    case DP_FIELD_REAL:
      memcpy(&real, at, sizeof real);
      return json_real(real);
    case DP_FIELD_STRING:
      memcpy(&string, at, sizeof string);
      return json_string(string);
    default:
      memcpy(&choice, at, sizeof choice);
      return json_string(field->choices[choice]);
  }
}

/* `"key": value` of a row's fields, with `separator` between; strings that are not there are left out. */
static void add_row(const dp_field *fields, size_t count, const void *row, const char *separator, dp_str *out) {
  bool any = false;
  for (size_t f = 0; f < count; f++) {
    const char *string = "";
    if (fields[f].type == DP_FIELD_STRING) memcpy(&string, (const char *)row + fields[f].offset, sizeof string);
    if (!string) continue;
    json_t *value = value_of(&fields[f], row);
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    out->failed = out->failed || !text;
    dp_str_addf(out, "%s\"%s\": %s", any ? separator : "", fields[f].key, text ? text : "");
    free(text);
    any = true;
  }
}

static void add_list(const char *key, const dp_field *fields, size_t field_count, const void *rows, size_t count,
                     size_t row_bytes, dp_str *out) {
  dp_str_addf(out, ",\n  \"%s\": [", key);
  for (size_t i = 0; i < count; i++) {
    dp_str_addf(out, "%s\n    {", i ? "," : "");
    add_row(fields, field_count, (const char *)rows + i * row_bytes, ", ", out);
    dp_str_add(out, "}");
  }
  dp_str_addf(out, "%s]", count ? "\n  " : "");
}

static dp_status add_laws(const plan_profile *profile, dp_str *out, dp_error *error) {
  law_row *rows = calloc(profile->laws.count + 1, sizeof *rows);
  if (!rows) return dp_fail_memory(error);
  for (size_t i = 0; i < profile->laws.count; i++) {
    const plan_profile_law *law = &profile->laws.items[i];
    rows[i] = (law_row){law->kind == GRAPH_NONE ? NULL : graph_op_kind_name((graph_op_kind)law->kind), *law};
  }
  add_list("laws", law_fields, DP_COUNT_OF(law_fields), rows, profile->laws.count, sizeof *rows, out);
  free(rows);
  return DP_OK;
}

/* Its points stand in a row, as the last key. */
static void add_links(const plan_profile *profile, dp_str *out) {
  dp_str_add(out, ",\n  \"links\": [");
  for (size_t i = 0; i < profile->links.count; i++) {
    const link_row row = {.link = profile->links.items[i]};
    const plan_profile_points *points = &row.link.points;
    dp_str_addf(out, "%s\n    {", i ? "," : "");
    add_row(link_fields, DP_COUNT_OF(link_fields) - 1, &row, ", ", out);
    dp_str_add(out, ", \"points\": [");
    for (size_t k = 0; k < points->count; k++) {
      dp_str_addf(out, "%s\n      {", k ? "," : "");
      add_row(point_fields, DP_COUNT_OF(point_fields), &points->items[k], ", ", out);
      dp_str_add(out, "}");
    }
    dp_str_add(out, "]}");
  }
  dp_str_add(out, "\n  ]");
}

dp_status plan_profile_text(const plan_profile *profile, dp_str *out, dp_error *error) {
  const profile_file file = {.format = "diffpipe-profile", .version = 1, .profile = *profile};
  dp_str_add(out, "{\n  ");
  add_row(file_fields, DP_COUNT_OF(file_fields) - LISTS, &file, ",\n  ", out);
  add_list("copies", point_fields, DP_COUNT_OF(point_fields), profile->copies.items, profile->copies.count,
           sizeof *profile->copies.items, out);
  add_list("sums", point_fields, DP_COUNT_OF(point_fields), profile->sums.items, profile->sums.count,
           sizeof *profile->sums.items, out);
  if (profile->staged.count)
    add_list("staged", point_fields, DP_COUNT_OF(point_fields), profile->staged.items, profile->staged.count,
             sizeof *profile->staged.items, out);
  if (profile->links.count) add_links(profile, out);
  if (profile->parts.count)
    add_list("parts", part_fields, DP_COUNT_OF(part_fields), profile->parts.items, profile->parts.count,
             sizeof *profile->parts.items, out);
  if (profile->units.count)
    add_list("units", unit_fields, DP_COUNT_OF(unit_fields), profile->units.items, profile->units.count,
             sizeof *profile->units.items, out);
  DP_TRY(add_laws(profile, out, error));
  add_list("ops", op_fields, DP_COUNT_OF(op_fields), profile->ops.items, profile->ops.count, sizeof *profile->ops.items,
           out);
  dp_str_add(out, "\n}\n");
  return out->failed ? dp_fail_memory(error) : DP_OK;
}

dp_status plan_profile_write(const plan_profile *profile, const char *path, dp_error *error) {
  dp_str text = {0};
  dp_status status = plan_profile_text(profile, &text, error);
  if (status == DP_OK) status = dp_file_write(path, text.text, text.length, error);
  dp_str_free(&text);
  return status;
}
