#define _POSIX_C_SOURCE 200809L
#include "reports/read.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/schema.h"

/* Sticky: after the first error nothing is read any more. */
typedef struct reader {
  report_files *files;
  dp_error *error;
  dp_status status;
} reader;

/* ---- getters that do not complain ---- */

double report_node_real(const dp_node *table, const char *key) {
  const dp_node *node = dp_node_get(table, key);
  return node && (node->kind == DP_NODE_REAL || node->kind == DP_NODE_INTEGER) ? node->real : 0;
}

int64_t report_node_integer(const dp_node *table, const char *key) {
  const dp_node *node = dp_node_get(table, key);
  return node && node->kind == DP_NODE_INTEGER ? node->integer : 0;
}

const char *report_node_text(const dp_node *table, const char *key) {
  const dp_node *node = dp_node_get(table, key);
  return node && node->kind == DP_NODE_STRING ? node->string : NULL;
}

bool report_node_true(const dp_node *table, const char *key) {
  const dp_node *node = dp_node_get(table, key);
  return node && node->kind == DP_NODE_BOOLEAN && node->boolean;
}

const dp_node *report_node_list(const dp_node *table, const char *key) {
  const dp_node *node = dp_node_get(table, key);
  return node && node->kind == DP_NODE_ARRAY && node->count ? node : NULL;
}

/* ---- getters that do ---- */

static void fail(reader *r, const dp_node *table, const char *key, const char *allowed) {
  char shown[80];
  const dp_node *node = dp_node_get(table, key);
  if (r->status != DP_OK) return;
  r->status = node ? dp_fail_at(r->error, node, "%s: found %s, allowed: %s", key, dp_node_show(node, shown), allowed)
                   : dp_fail_at(r->error, table, "the key \"%s\" is missing, needed: %s", key, allowed);
}

static const dp_node *get(reader *r, const dp_node *table, const char *key, dp_node_kind kind) {
  const dp_node *node = r->status == DP_OK ? dp_node_get(table, key) : NULL;
  if (r->status == DP_OK && (!node || node->kind != kind)) {
    fail(r, table, key, dp_node_kind_name(kind));
    node = NULL;
  }
  return node;
}

static const dp_node *list_of(reader *r, const dp_node *table, const char *key, size_t least, size_t most) {
  const dp_node *list = get(r, table, key, DP_NODE_ARRAY);
  if (!list || (list->count >= least && list->count <= most)) return list;
  if (r->status == DP_OK)
    r->status =
        least == most
            ? dp_fail_at(r->error, list, "%s: found %zu entries, allowed: %zu", key, list->count, least)
            : dp_fail_at(r->error, list, "%s: found %zu entries, allowed: %zu to %zu", key, list->count, least, most);
  return NULL;
}

/* null: unknown, 0 */
static double real(reader *r, const dp_node *table, const char *key) {
  const dp_node *node = r->status == DP_OK ? dp_node_get(table, key) : NULL;
  if (node && (node->kind == DP_NODE_REAL || node->kind == DP_NODE_INTEGER)) return node->real;
  if (!node || node->kind != DP_NODE_NULL) fail(r, table, key, "a number or null");
  return 0;
}

static int64_t integer(reader *r, const dp_node *table, const char *key, int64_t least, int64_t most) {
  char allowed[64];
  const dp_node *node = r->status == DP_OK ? dp_node_get(table, key) : NULL;
  if (node && node->kind == DP_NODE_INTEGER && node->integer >= least && node->integer <= most) return node->integer;
  (void)snprintf(allowed, sizeof allowed, "an integer from %lld to %lld", (long long)least, (long long)most);
  fail(r, table, key, allowed);
  return least;
}

/* A key that earlier programs of this version did not write: `absent` where it is missing. */
static int64_t later_integer(reader *r, const dp_node *table, const char *key, int64_t least, int64_t most,
                             int64_t absent) {
  return dp_node_get(table, key) ? integer(r, table, key, least, most) : absent;
}

static int64_t bytes_of(reader *r, const dp_node *table, const char *key) {
  return integer(r, table, key, 0, INT64_MAX);
}

static const char *text(reader *r, const dp_node *table, const char *key) {
  const dp_node *node = get(r, table, key, DP_NODE_STRING);
  return node ? node->string : "";
}

static bool boolean(reader *r, const dp_node *table, const char *key) {
  const dp_node *node = get(r, table, key, DP_NODE_BOOLEAN);
  return node && node->boolean;
}

static int choice(reader *r, const dp_node *table, const char *key, const char *const *names) {
  const char *given = text(r, table, key);
  for (int i = 0; names[i]; i++)
    if (strcmp(names[i], given) == 0) return i;
  fail(r, table, key, "a name that this version knows");
  return 0;
}

static void *make(reader *r, size_t count, size_t size) {
  void *memory = r->status == DP_OK ? dp_arena_alloc(&r->files->arena, count, size) : NULL;
  if (!memory && r->status == DP_OK) r->status = dp_fail_memory(r->error);
  return memory;
}
#define MAKE(r, type, count) ((type *)make((r), (size_t)(count), sizeof(type)))

/* ---- setup.json ---- */

static void read_model(reader *r, const dp_node *table) {
  graph *model = &r->files->graph;
  model->class_name = text(r, table, "class");
  model->parameters = bytes_of(r, table, "parameters");
  model->trainable_parameters = bytes_of(r, table, "trainable_parameters");
  model->whole_products = (int)later_integer(r, table, "whole_products", 0, INT32_MAX, 0);
  model->units.count = (size_t)integer(r, table, "units", 1, 65535);
  model->height = bytes_of(r, table, "height");
  model->width = bytes_of(r, table, "width");
  model->frames = bytes_of(r, table, "frames");
  model->text_tokens = bytes_of(r, table, "text_tokens");
  const char *precision = text(r, table, "precision");
  int dtype = 0;
  while (dtype < GRAPH_DTYPE_COUNT && strcmp(graph_dtype_name((graph_dtype)dtype), precision) != 0) dtype++;
  if (dtype == GRAPH_DTYPE_COUNT)
    fail(r, table, "precision", "a name that this version knows");
  else
    model->precision = (graph_dtype)dtype;
}

/* Cards of one name are one model. */
static const plan_device_model *model_named(reader *r, const char *name, const plan_device *devices, size_t count) {
  if (count && devices[count - 1].model && strcmp(devices[count - 1].model->name, name) == 0)
    return devices[count - 1].model;
  for (size_t d = 0; d < count; d++)
    if (devices[d].model && strcmp(devices[d].model->name, name) == 0) return devices[d].model;
  plan_device_model *model = name[0] ? MAKE(r, plan_device_model, 1) : NULL;
  if (model) model->name = name;
  return model;
}

static void read_cluster(reader *r, const dp_node *table) {
  plan_cluster *cluster = &r->files->cluster;
  const dp_node *devices = list_of(r, table, "devices", 1, PLAN_MAX_DEVICES);
  cluster->name = text(r, table, "name");
  cluster->node_count = (int)integer(r, table, "nodes", 1, PLAN_MAX_DEVICES);
  cluster->price_usd_per_h = real(r, table, "price_usd_per_h");
  cluster->power_w = real(r, table, "power_w");
  plan_device *made = devices ? MAKE(r, plan_device, devices->count) : NULL;
  if (!made) return;
  for (size_t d = 0; d < devices->count; d++) {
    const dp_node *row = devices->items[d];
    made[d].name = text(r, row, "name");
    made[d].node = (int)integer(r, row, "node", 0, cluster->node_count - 1);
    made[d].model = model_named(r, text(r, row, "model"), made, d);
    made[d].parts = (int)integer(r, row, "parts", 1, 1024);
    made[d].memory_bytes = bytes_of(r, row, "memory_bytes");
  }
  cluster->devices.items = made;
  cluster->devices.count = devices->count;
}

static void read_assumptions(reader *r, const dp_node *list) {
  report_assumption *made = list ? MAKE(r, report_assumption, list->count) : NULL;
  if (!made) return;
  for (size_t a = 0; a < list->count; a++)
    made[a] = (report_assumption){.what = text(r, list->items[a], "what"),
                                  .value = text(r, list->items[a], "value"),
                                  .source = text(r, list->items[a], "source"),
                                  .error_band = real(r, list->items[a], "error_band")};
  r->files->run.assumptions = made;
  r->files->run.assumption_count = (int)list->count;
}

static void read_setup(reader *r, const dp_node *root) {
  report_run *run = &r->files->run;
  read_model(r, get(r, root, "model", DP_NODE_TABLE));
  read_cluster(r, get(r, root, "cluster", DP_NODE_TABLE));
  read_assumptions(r, get(r, root, "assumptions", DP_NODE_ARRAY));
  run->job_steps = bytes_of(r, root, "job_steps");
  run->scenario_file = report_node_text(root, "scenario_file");
  const dp_node *assignments = get(r, root, "assignments", DP_NODE_ARRAY);
  const char **made = assignments ? MAKE(r, const char *, assignments->count) : NULL;
  for (size_t i = 0; made && i < assignments->count; i++) {
    made[i] = assignments->items[i]->kind == DP_NODE_STRING ? assignments->items[i]->string : "";
    run->assignment_count++;
  }
  run->assignments = made;
  r->files->transfers = get(r, root, "transfers", DP_NODE_ARRAY);
  r->files->links = get(r, root, "links", DP_NODE_ARRAY);
  r->files->chunks = list_of(r, root, "chunks", (size_t)r->files->plan.chunk_count, (size_t)r->files->plan.chunk_count);
}

/* ---- metrics.json ---- */

static void read_chunks(reader *r, const dp_node *list) {
  plan_plan *plan = &r->files->plan;
  const int64_t units = (int64_t)r->files->graph.units.count;
  plan->chunks = list ? MAKE(r, plan_chunk, list->count) : NULL;
  plan->recompute = MAKE(r, uint8_t, units);
  for (size_t c = 0; r->status == DP_OK && c < list->count; c++) {
    const dp_node *row = list->items[c];
    const int64_t first = integer(r, row, "first_unit", 0, units - 1);
    plan->chunks[c] = (plan_chunk){.first_unit = (int)first,
                                   .unit_count = (int)integer(r, row, "unit_count", 1, units - first),
                                   .rank = (int)integer(r, row, "rank", 0, plan->ranks - 1)};
    const dp_node *again = get(r, row, "recompute", DP_NODE_ARRAY);
    for (size_t i = 0; again && i < again->count; i++)
      if (again->items[i]->kind == DP_NODE_INTEGER && again->items[i]->integer >= 0 && again->items[i]->integer < units)
        plan->recompute[again->items[i]->integer] = 1;
  }
}

static void read_plan(reader *r, const dp_node *table) {
  plan_plan *plan = &r->files->plan;
  static const char *const kinds[] = {"sample", "train", NULL};
  plan->training = choice(r, table, "kind", kinds) == 1;
  plan->schedule = (plan_schedule)choice(r, table, "schedule", plan_schedule_names);
  plan->ranks = (int)integer(r, table, "stages", 1, PLAN_MAX_DEVICES);
  plan->chunks_per_rank = (int)integer(r, table, "chunks", 1, 65535);
  plan->replicas = (int)integer(r, table, "data_parallel", 1, PLAN_MAX_DEVICES / plan->ranks);
  plan->tensor = (int)later_integer(r, table, "tensor_parallel", 1, PLAN_MAX_DEVICES / plan->ranks / plan->replicas, 1);
  plan->microbatches = (int)integer(r, table, "microbatches", 1, INT32_MAX);
  plan->microbatch_size = (int)integer(r, table, "microbatch_size", 1, INT32_MAX);
  plan->denoise_steps = (int)integer(r, table, "denoise_steps", 1, INT32_MAX);
  plan->skip_policy = (plan_skip_policy)choice(r, table, "skip_policy", plan_skip_policy_names);
  plan->k = bytes_of(r, table, "k");
  if (plan->training) plan->optimizer = (plan_optimizer)choice(r, table, "optimizer", plan_optimizer_names);
  plan->gradient_fp32 = boolean(r, table, "gradient_fp32");
  plan->global_norm = dp_node_get(table, "global_norm") && boolean(r, table, "global_norm");
  plan->gradient_buckets = (int)integer(r, table, "gradient_buckets", 1, INT32_MAX);
  if (dp_node_get(table, "transport"))
    plan->transport_wanted = (plan_transport)choice(r, table, "transport", plan_transport_names);
  plan->nccl_sms = (int)later_integer(r, table, "nccl_sms", 0, 65536, 0);
  const dp_node *chunks = list_of(r, table, "placement", 1, 65535);
  plan->chunk_count = chunks ? (int)chunks->count : 0;
}

/* The devices of the workers, by their names in the cluster; read in order, they are found where the last one ended. */
static void read_devices(reader *r, const dp_node *table) {
  plan_plan *plan = &r->files->plan;
  const plan_cluster *cluster = &r->files->cluster;
  const size_t workers = (size_t)plan_worker_count(plan);
  const dp_node *list = list_of(r, table, "devices", workers, workers);
  plan->devices = list ? MAKE(r, int, workers) : NULL;
  size_t at = 0;
  for (size_t w = 0; plan->devices && w < workers && r->status == DP_OK; w++) {
    const char *name = list->items[w]->kind == DP_NODE_STRING ? list->items[w]->string : "";
    size_t tried = 0;
    while (tried < cluster->devices.count && strcmp(cluster->devices.items[at].name, name) != 0) {
      at = (at + 1) % cluster->devices.count;
      tried++;
    }
    if (tried == cluster->devices.count) {
      char shown[80];
      r->status = dp_fail_at(r->error, list->items[w], "devices: found %s, allowed: a device of setup.json",
                             dp_node_show(list->items[w], shown));
      return;
    }
    plan->devices[w] = (int)at;
    at = (at + 1) % cluster->devices.count;
  }
}

static void read_bounds(reader *r, const dp_node *list) {
  report_bound *made = list ? MAKE(r, report_bound, list->count) : NULL;
  if (!made) return;
  for (size_t b = 0; b < list->count; b++)
    made[b] = (report_bound){text(r, list->items[b], "name"), real(r, list->items[b], "share")};
  r->files->run.bounds = made;
  r->files->run.bound_count = (int)list->count;
}

static void read_workers(reader *r, const dp_node *root, size_t workers) {
  const dp_node *list = list_of(r, root, "workers", workers, workers);
  const dp_node *memory = list_of(r, root, "memory", workers, workers);
  plan_worker_metrics *times = MAKE(r, plan_worker_metrics, workers);
  plan_worker_memory *bytes = MAKE(r, plan_worker_memory, workers);
  int64_t *limits = MAKE(r, int64_t, workers);
  for (size_t w = 0; r->status == DP_OK && w < workers; w++) {
    const dp_node *row = list->items[w], *held = memory->items[w];
    times[w] = (plan_worker_metrics){.compute_s = real(r, row, "compute_s"),
                                     .forward_s = real(r, row, "forward_s"),
                                     .backward_s = real(r, row, "backward_s"),
                                     .optimizer_s = real(r, row, "optimizer_s"),
                                     .tensor_s = report_node_real(row, "tensor_s"), /* came later */
                                     .comm_s = real(r, row, "comm_s"),
                                     .exposed_comm_s = real(r, row, "exposed_comm_s"),
                                     .idle_s = real(r, row, "idle_s"),
                                     .sent_bytes = bytes_of(r, row, "sent_bytes"),
                                     .received_bytes = bytes_of(r, row, "received_bytes")};
    limits[w] = bytes_of(r, row, "memory_limit_bytes");
    for (int c = 0; c < PLAN_MEMORY_CLASS_COUNT; c++)
      bytes[w].at_peak_bytes[c] = bytes_of(r, held, plan_memory_class_names[c]);
    bytes[w].layout_bytes = bytes_of(r, held, "layout_bytes");
    bytes[w].live_peak_bytes = bytes_of(r, held, "live_peak_bytes");
    bytes[w].resting_bytes = bytes_of(r, held, "resting_bytes");
    bytes[w].peak_bytes = bytes_of(r, held, "peak_bytes");
  }
  r->files->metrics.workers = times;
  r->files->metrics.worker_count = (int)workers;
  r->files->memory.workers = bytes;
  r->files->memory.worker_count = (int)workers;
  r->files->run.memory_limit_bytes = limits;
}

static void read_metrics(reader *r, const dp_node *root) {
  report_run *run = &r->files->run;
  plan_metrics *metrics = &r->files->metrics;
  const size_t workers = (size_t)plan_worker_count(&r->files->plan);
  run->name = text(r, root, "scenario");
  run->origin = text(r, root, "origin");
  metrics->step_s = real(r, root, "step_s");
  run->error_band = real(r, root, "error_band");
  metrics->throughput_samples_per_s = real(r, root, "throughput_samples_per_s");
  metrics->bubble_ratio = real(r, root, "bubble_ratio");
  run->usd_per_million_samples = real(r, root, "usd_per_million_samples");
  run->joules_per_sample = real(r, root, "joules_per_sample");
  metrics->comm_bytes = bytes_of(r, root, "comm_bytes");
  const dp_node *kinds = get(r, root, "comm_bytes_by_kind", DP_NODE_TABLE);
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++)
    metrics->comm_bytes_by_kind[k] = later_integer(r, kinds, plan_traffic_names[k], 0, INT64_MAX, 0);
  run->fits = boolean(r, root, "fits");
  run->tightest_worker = (int)integer(r, root, "tightest_worker", 0, (int64_t)workers - 1);
  r->files->program.instruction_count = (uint32_t)integer(r, root, "instructions", 0, UINT32_MAX);
  read_bounds(r, get(r, root, "bounds", DP_NODE_ARRAY));
  read_workers(r, root, workers);
}

/* ---- the whole ---- */

dp_status report_root_check(const dp_node *root, const char *format, dp_error *error) {
  if (root->kind != DP_NODE_TABLE)
    return dp_fail_at(error, root, "found %s, allowed: a table", dp_node_kind_name(root->kind));
  return dp_schema_check_format(root, format, 1, error);
}

static const dp_node *check_root(reader *r, const dp_document *document, const char *format) {
  if (r->status == DP_OK) r->status = report_root_check(document->root, format, r->error);
  return r->status == DP_OK ? document->root : NULL;
}

static void open_document(reader *r, const char *folder, const char *name, dp_document *document) {
  if (r->status != DP_OK) return;
  const char *path = dp_arena_printf(&r->files->arena, "%s/%s", folder, name);
  r->status = path ? dp_document_read(path, document, r->error) : dp_fail_memory(r->error);
}

bool report_there_is(const char *folder, const char *name) {
  dp_str path = {0};
  dp_str_addf(&path, "%s/%s", folder, name);
  const bool found = !path.failed && access(dp_str_text(&path), F_OK) == 0;
  dp_str_free(&path);
  return found;
}

/* What plots and tables need of what was predicted. */
static void read_prediction(report_files *files) {
  files->predicted = files->run;
  files->predicted.origin = "predicted";
  files->predicted.metrics = &files->predicted_metrics;
  files->predicted_metrics.step_s = report_node_real(dp_node_get(files->comparison, "step_s"), "predicted");
  files->predicted_metrics.throughput_samples_per_s =
      report_node_real(dp_node_get(files->comparison, "throughput_samples_per_s"), "predicted");
}

/* From the documents, which are read; a document without a root is none. */
static dp_status read_documents(reader *r) {
  report_files *files = r->files;
  const dp_node *metrics = check_root(r, &files->metrics_document, "diffpipe-metrics");
  const dp_node *setup = check_root(r, &files->setup_document, "diffpipe-setup");
  if (files->tune_document.root) files->tune = check_root(r, &files->tune_document, "diffpipe-tune");
  if (files->comparison_document.root)
    files->comparison = check_root(r, &files->comparison_document, "diffpipe-comparison");
  files->run.graph = &files->graph;
  files->run.cluster = &files->cluster;
  files->run.program = &files->program;
  files->run.timeline = &files->timeline;
  files->run.metrics = &files->metrics;
  files->run.memory = &files->memory;
  files->program.plan = &files->plan;
  const dp_node *plan = get(r, metrics, "plan", DP_NODE_TABLE);
  if (r->status == DP_OK) read_plan(r, plan);
  if (r->status == DP_OK) read_setup(r, setup);
  if (r->status == DP_OK) read_chunks(r, dp_node_get(plan, "placement"));
  if (r->status == DP_OK) read_devices(r, plan);
  if (r->status == DP_OK) read_metrics(r, metrics);
  files->program.worker_count = plan_worker_count(&files->plan);
  files->timeline.program = &files->program;
  files->timeline.step_s = files->metrics.step_s;
  read_prediction(files);
  if (r->status != DP_OK) report_files_free(files);
  return r->status;
}

static dp_status read_profile(reader *r, const char *folder) {
  if (strcmp(r->files->run.origin, "measured") != 0 || !report_there_is(folder, "profile.json")) return DP_OK;
  open_document(r, folder, "profile.json", &r->files->profile_document);
  if (r->status == DP_OK) r->files->profile = check_root(r, &r->files->profile_document, "diffpipe-run-profile");
  if (r->status != DP_OK) report_files_free(r->files);
  return r->status;
}

static dp_status read_log(reader *r, const char *folder) {
  if (strcmp(r->files->run.origin, "measured") != 0 || !report_there_is(folder, "log.jsonl")) return DP_OK;
  const char *path = dp_arena_printf(&r->files->arena, "%s/log.jsonl", folder);
  r->status = path ? report_log_read(path, &r->files->log, r->error) : dp_fail_memory(r->error);
  if (r->status != DP_OK) report_files_free(r->files);
  return r->status;
}

const report_log *report_files_log(const report_files *files) { return files->log.rows.count ? &files->log : NULL; }

const report_run *report_files_predicted(const report_files *files) {
  return files->comparison ? &files->predicted : NULL;
}

dp_status report_files_read(const char *folder, report_files *files, dp_error *error) {
  *files = (report_files){0};
  reader r = {.files = files, .error = error};
  open_document(&r, folder, "metrics.json", &files->metrics_document);
  open_document(&r, folder, "setup.json", &files->setup_document);
  if (report_there_is(folder, "tune.json")) open_document(&r, folder, "tune.json", &files->tune_document);
  if (report_there_is(folder, "comparison.json"))
    open_document(&r, folder, "comparison.json", &files->comparison_document);
  if (r.status == DP_OK) {
    DP_TRY(read_documents(&r));
    DP_TRY(read_profile(&r, folder));
    return read_log(&r, folder);
  }
  report_files_free(files);
  return r.status;
}

dp_status report_files_parse(const char *metrics, const char *setup, const char *tune, const char *comparison,
                             report_files *files, dp_error *error) {
  *files = (report_files){0};
  reader r = {.files = files, .error = error};
  r.status = dp_document_parse_json(metrics, strlen(metrics), "metrics.json", &files->metrics_document, error);
  if (r.status == DP_OK)
    r.status = dp_document_parse_json(setup, strlen(setup), "setup.json", &files->setup_document, error);
  if (r.status == DP_OK && tune)
    r.status = dp_document_parse_json(tune, strlen(tune), "tune.json", &files->tune_document, error);
  if (r.status == DP_OK && comparison)
    r.status =
        dp_document_parse_json(comparison, strlen(comparison), "comparison.json", &files->comparison_document, error);
  if (r.status == DP_OK) return read_documents(&r);
  report_files_free(files);
  return r.status;
}

void report_files_free(report_files *files) {
  dp_document_free(&files->metrics_document);
  dp_document_free(&files->setup_document);
  dp_document_free(&files->tune_document);
  dp_document_free(&files->comparison_document);
  dp_document_free(&files->profile_document);
  report_log_free(&files->log);
  dp_arena_free(&files->arena);
  *files = (report_files){0};
}
