#include "plan/profile_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/median.h"
#include "base/schema.h"
#include "plan/transport.h"

enum { MOST_ROWS = 256, LIMIT_BYTES = 1 << 22 };

typedef struct row {
  const char *name;
  int64_t gpus, flows, bytes, sms;
  double us, gb_per_s;
  const dp_node *beside_us, *beside_gb_per_s, *gemm_slowing, *waiting_slowing; /* null: not measured */
} row;

#define AT(field) offsetof(row, field)
static const dp_field fields[] = {
    {"row", DP_FIELD_STRING, AT(name), true, 0, 0, NULL, "what is exchanged"},
    {"gpus", DP_FIELD_INTEGER, AT(gpus), true, 1, 65536, NULL, "that take part"},
    {"flows", DP_FIELD_INTEGER, AT(flows), true, 1, 65536, NULL, "messages at once"},
    {"bytes", DP_FIELD_INTEGER, AT(bytes), true, 1, 1e15, NULL, "of one"},
    {"us", DP_FIELD_REAL, AT(us), true, 1e-6, 1e12, NULL, "of one"},
    {"gb_per_s", DP_FIELD_REAL, AT(gb_per_s), true, 0, 1e6, NULL, "of each"},
    {"beside_us", DP_FIELD_NODE, AT(beside_us), true, 0, 0, NULL, "of one beside compute"},
    {"beside_gb_per_s", DP_FIELD_NODE, AT(beside_gb_per_s), true, 0, 0, NULL, "of each"},
    {"gemm_slowing", DP_FIELD_NODE, AT(gemm_slowing), true, 0, 0, NULL, "of compute beside messages"},
    {"waiting_slowing", DP_FIELD_NODE, AT(waiting_slowing), false, 0, 0, NULL, "of compute beside one that waits"},
    {"sms", DP_FIELD_INTEGER, AT(sms), false, 0, 65536, NULL, "that NCCL was bounded to; 0: to none"},
};

typedef struct series {
  double values[MOST_ROWS];
  size_t count;
} series;

typedef struct reader {
  plan_profile_link links[2]; /* nccl, all-reduce */
  series slowings[2], waitings[2];
  double most_bytes[2]; /* of both ways, and of all neighbours */
  dp_error *error;
} reader;

/* A positive number, or null. */
static dp_status number_of(const reader *r, const dp_node *node, double *value) {
  char shown[80];
  *value = 0;
  if (!node || node->kind == DP_NODE_NULL) return DP_OK;
  if ((node->kind != DP_NODE_INTEGER && node->kind != DP_NODE_REAL) || node->real <= 0)
    return dp_fail_at(r->error, node, "%s: found %s, allowed: a positive number, or null", node->key,
                      dp_node_show(node, shown));
  *value = node->real;
  return DP_OK;
}

static void keep(series *s, double value) {
  if (value > 0 && s->count < MOST_ROWS) s->values[s->count++] = value;
}

static dp_status add_point(reader *r, int which, const row *of, const dp_node *node) {
  plan_profile_link *link = &r->links[which];
  plan_profile_point before = {0, 0, 0};
  double beside_us, slowing, waiting;
  DP_TRY(number_of(r, of->beside_us, &beside_us));
  DP_TRY(number_of(r, of->gemm_slowing, &slowing));
  DP_TRY(number_of(r, of->waiting_slowing, &waiting));
  if (link->points.count) before = link->points.items[link->points.count - 1];
  if ((double)of->bytes <= before.bytes)
    return dp_fail_at(r->error, node, "bytes: found %lld after %.9g, allowed: ascending sizes of a kind, each once",
                      (long long)of->bytes, before.bytes);
  const double alone_s = fmax(before.alone_s, 1e-6 * of->us); /* larger never takes less, nor does it beside compute */
  const plan_profile_point point = {(double)of->bytes, alone_s, fmax(fmax(before.busy_s, alone_s), 1e-6 * beside_us)};
  if (of->gpus > link->gpus) link->gpus = of->gpus;
  keep(&r->slowings[which], slowing);
  keep(&r->waitings[which], waiting);
  return dp_array_push(&link->points, point) ? DP_OK : dp_fail_memory(r->error);
}

static void keep_together(reader *r, int which, const row *of, double *bytes_per_s) {
  if ((double)of->bytes <= r->most_bytes[which]) return;
  r->most_bytes[which] = (double)of->bytes;
  *bytes_per_s = (double)of->flows * (double)of->bytes / (1e-6 * of->us);
}

static dp_status read_row(reader *r, const dp_node *node) {
  row of = {.name = NULL};
  DP_TRY(dp_schema_read(node, NULL, "row", fields, DP_COUNT_OF(fields), &of, r->error));
  if (strncmp(of.name, "nccl", 4) != 0) return DP_OK;
  if (of.sms)
    return dp_fail_at(r->error, dp_node_get(node, "sms"),
                      "sms: found %lld, allowed: 0, NCCL on as many multiprocessors as it likes", (long long)of.sms);
  if (strcmp(of.name, "nccl, one way") == 0) return add_point(r, 0, &of, node);
  if (strcmp(of.name, "nccl, all-reduce") == 0) return add_point(r, 1, &of, node);
  if (strcmp(of.name, "nccl, both ways") == 0)
    keep_together(r, 0, &of, &r->links[0].both_bytes_per_s);
  else if (strcmp(of.name, "nccl, neighbours, both ways") == 0)
    keep_together(r, 1, &of, &r->links[0].together_bytes_per_s);
  else if (strcmp(of.name, "nccl, neighbours, one way") != 0)
    return dp_fail_at(r->error, dp_node_get(node, "row"),
                      "row: found \"%.60s\", allowed: one of tests/bench_cuda_links", of.name);
  if (of.gpus > r->links[0].gpus) r->links[0].gpus = of.gpus;
  return DP_OK;
}

/* Lines become members of one array, each where it stood. */
static dp_status join_lines(const char *path, dp_str *joined, dp_error *error) {
  char *text = NULL;
  size_t length = 0;
  DP_TRY(dp_file_read(path, LIMIT_BYTES, &text, &length, error));
  bool any = false;
  dp_str_add(joined, "[");
  for (const char *line = text; line < text + length;) {
    const size_t whole = strcspn(line, "\n"), blank = strspn(line, " \t\r");
    if (blank < whole) dp_str_add(joined, any ? "," : "");
    any = any || blank < whole;
    dp_str_add_bytes(joined, line, whole);
    line += whole;
    if (*line == '\n')
      dp_str_add(joined, "\n");
    else if (line < text + length)
      dp_str_add_bytes(joined, line, 1); /* a NUL, which is refused */
    line++;
  }
  dp_str_add(joined, "]");
  free(text);
  return joined->failed ? dp_fail_memory(error) : DP_OK;
}

static dp_status read_lines(reader *r, const char *path) {
  dp_str text = {0};
  dp_document document;
  dp_status status = join_lines(path, &text, r->error);
  if (status == DP_OK) status = dp_document_parse_json(dp_str_text(&text), text.length, path, &document, r->error);
  dp_str_free(&text);
  DP_TRY(status);
  for (size_t i = 0; i < document.root->count && status == DP_OK; i++) status = read_row(r, document.root->items[i]);
  dp_document_free(&document);
  if (status == DP_OK && r->links[0].points.count == 0)
    return dp_fail(r->error, DP_BAD_INPUT,
                   "%s: found no row \"nccl, one way\", allowed: what tests/bench_cuda_links wrote under mpirun", path);
  return status;
}

/* The classes of links that the first two devices are joined by, for both. */
static dp_status find_classes(reader *r, const char *path, const plan_cluster *cluster) {
  const plan_plan any = {.nccl_sms = 0};
  const plan_device *devices = cluster->devices.items;
  plan_route routes[2];
  if (cluster->devices.count < 2 || plan_device_is_processor(devices[0].model) || devices[0].parts > 1 ||
      plan_device_is_processor(devices[1].model) || devices[1].parts > 1 || devices[0].node != devices[1].node)
    return dp_fail(r->error, DP_BAD_INPUT,
                   "%s: found a cluster that begins with %s%s%s, allowed: one of two or more whole GPUs in one machine",
                   path, devices[0].name, cluster->devices.count > 1 ? " and " : " alone",
                   cluster->devices.count > 1 ? devices[1].name : "");
  DP_TRY(plan_transport_route_by(&any, cluster, PLAN_TRANSPORT_NCCL, 0, 1, &routes[0], r->error));
  DP_TRY(plan_cluster_route(cluster, 0, 1, &routes[1], r->error));
  for (int which = 0; which < 2; which++) {
    r->links[which].link = routes[which].limiting->name;
    r->links[which].link_bytes_per_s = routes[which].bandwidth_bytes_per_s;
    r->links[which].link_latency_s = routes[which].latency_s;
  }
  return DP_OK;
}

static dp_status set_links(reader *r, plan_profile *profile) {
  for (int which = 0; which < 2; which++) {
    plan_profile_link *link = &r->links[which];
    if (link->points.count == 0) continue;
    link->way = which ? PLAN_PROFILE_ALL_REDUCE : PLAN_PROFILE_NCCL;
    if (r->slowings[which].count)
      link->slowdown = fmax(0, dp_median(r->slowings[which].values, r->slowings[which].count) - 1);
    if (r->waitings[which].count)
      link->waiting_slowdown = fmax(0, dp_median(r->waitings[which].values, r->waitings[which].count) - 1);
    DP_TRY(plan_profile_set_link(profile, link, r->error));
    link->points = (plan_profile_points){.items = NULL}; /* the profile's now */
  }
  return DP_OK;
}

dp_status plan_profile_read_rows(const char *path, const plan_cluster *cluster, plan_profile *profile,
                                 dp_error *error) {
  reader r = {.error = error};
  dp_status status = find_classes(&r, path, cluster);
  if (status == DP_OK) status = read_lines(&r, path);
  if (status == DP_OK) status = set_links(&r, profile);
  for (int which = 0; which < 2; which++) dp_array_free(&r.links[which].points);
  return status;
}
