#include "sim/remedy.h"

#include <string.h>

typedef struct doctor {
  const plan_scenario *scenario;
  const sim_efficiency *efficiency;
  const sim_tune_options *options;
  int64_t global_batch;
  sim_remedies *out;
  dp_error *error;
} doctor;

static bool must_stop(const doctor *d) { return d->options->stop && *d->options->stop; }

/* ---- a quick search ---- */

static dp_node *list_node(dp_arena *arena, const char *key, int count) {
  dp_node *list = DP_ARENA_NEW(arena, dp_node, 1);
  dp_node **items = DP_ARENA_NEW(arena, dp_node *, (size_t)count);
  if (!list || !items) return NULL;
  for (int i = 0; i < count; i++)
    if (!(items[i] = DP_ARENA_NEW(arena, dp_node, 1))) return NULL;
  *list = (dp_node){.kind = DP_NODE_ARRAY, .key = key, .file = "", .items = items, .count = (size_t)count};
  return list;
}

static dp_node *integers(dp_arena *arena, const char *key, const int64_t *values, int count) {
  dp_node *list = list_node(arena, key, count);
  for (int i = 0; list && i < count; i++)
    *list->items[i] = (dp_node){.kind = DP_NODE_INTEGER, .integer = values[i], .real = (double)values[i]};
  return list;
}

static dp_node *names(dp_arena *arena, const char *key, const char *const *values, int count) {
  dp_node *list = list_node(arena, key, count);
  for (int i = 0; list && i < count; i++) *list->items[i] = (dp_node){.kind = DP_NODE_STRING, .string = values[i]};
  return list;
}

/* Where [search] leaves these open, a few choices that fit whenever others do: to know that it fits is what matters. */
static dp_status narrow(dp_arena *arena, const dp_node *search, const dp_node **narrowed, dp_error *error) {
  static const int64_t sizes[] = {1, 2, 4}, chunks[] = {2};
  static const char *const schedules[] = {"1f1b", "interleaved", "folded"};
  static const char *const automatic[] = {"auto"};
  dp_node *added[] = {integers(arena, "microbatch_sizes", sizes, 3), integers(arena, "chunks", chunks, 1),
                      names(arena, "schedules", schedules, 3), names(arena, "recompute", automatic, 1)};
  enum { ADDED = sizeof added / sizeof *added };
  const size_t count = search ? search->count : 0;
  dp_node *table = DP_ARENA_NEW(arena, dp_node, 1);
  dp_node **items = DP_ARENA_NEW(arena, dp_node *, count + ADDED);
  if (!table || !items) return dp_fail_memory(error);
  *table = (dp_node){.kind = DP_NODE_TABLE, .key = "search", .file = "", .items = items, .count = count};
  for (size_t i = 0; i < count; i++) items[i] = search->items[i];
  for (int i = 0; i < ADDED; i++) {
    if (!added[i]) return dp_fail_memory(error);
    if (!dp_node_get(search, added[i]->key)) items[table->count++] = added[i];
  }
  *narrowed = table;
  return DP_OK;
}

/* Searches; `best` is set where something fits. A job that cannot be so (a batch that nothing divides) does not fit. */
static dp_status attempt(const doctor *d, const plan_scenario *scenario, bool *fits, sim_trial *best) {
  plan_scenario changed = *scenario;
  DP_TRY(narrow(&d->out->arena, scenario->search, &changed.search, d->error));
  const sim_tune_options options = {.threads = d->options->threads, .stop = d->options->stop};
  sim_tune_result result;
  dp_error error = DP_ERROR_INIT;
  *fits = false;
  const dp_status status = sim_tune(&changed, d->efficiency, &options, &result, &error);
  if (status == DP_BAD_INPUT) return DP_OK;
  if (status != DP_OK) {
    *d->error = error;
    return status;
  }
  if (result.best >= 0) {
    *fits = true;
    *best = result.trials[result.best];
    best->candidate.skips = NULL; /* the result's */
    best->candidate.skip_count = 0;
    best->why = "";
  }
  sim_tune_result_free(&result);
  return DP_OK;
}

static void add(doctor *d, const char *what, const char *how, const sim_trial *best) {
  if (d->out->count < SIM_MAX_REMEDIES) d->out->items[d->out->count++] = (sim_remedy){what, how, *best};
}

/* ---- the job ---- */

/* [search] with lossiness and limits of time alone: nothing else keeps the search from a plan that fits. */
static dp_status loosen(doctor *d, plan_scenario *changed, bool *loosened) {
  static const char *const kept[] = {"allow_lossy_skips", "k", "max_seconds", "max_trials", "tensor_parallel"};
  const dp_node *search = d->scenario->search;
  *loosened = false;
  if (!search || search->count == 0) return DP_OK;
  dp_node *copy = DP_ARENA_NEW(&d->out->arena, dp_node, 1);
  dp_node **items = DP_ARENA_NEW(&d->out->arena, dp_node *, search->count);
  if (!copy || !items) return dp_fail_memory(d->error);
  *copy = *search;
  copy->items = items;
  copy->count = 0;
  for (size_t i = 0; i < search->count; i++) {
    size_t k = 0;
    while (k < sizeof kept / sizeof *kept && strcmp(search->items[i]->key, kept[k]) != 0) k++;
    if (k < sizeof kept / sizeof *kept) items[copy->count++] = search->items[i];
  }
  *loosened = copy->count < search->count;
  changed->search = copy;
  return DP_OK;
}

static dp_status try_search(doctor *d) {
  plan_scenario changed = *d->scenario;
  bool loosened, fits;
  sim_trial best;
  DP_TRY(loosen(d, &changed, &loosened));
  if (!loosened) return DP_OK;
  DP_TRY(attempt(d, &changed, &fits, &best));
  if (fits) add(d, "leave out the bounds of [search]", NULL, &best);
  return DP_OK;
}

static bool may_pack_optimizer(const plan_scenario *s) { return s->training && s->optimizer == PLAN_ADAMW; }

static dp_status try_optimizer(doctor *d) {
  plan_scenario changed = *d->scenario;
  bool fits;
  sim_trial best;
  if (!may_pack_optimizer(d->scenario)) return DP_OK;
  changed.optimizer = PLAN_ADAMW_8BIT;
  DP_TRY(attempt(d, &changed, &fits, &best));
  if (fits) add(d, "keep AdamW's moments in 8 bits", "--set task.optimizer=adamw-8bit", &best);
  return DP_OK;
}

static bool may_adapt(const plan_scenario *s) {
  return s->training && !s->synthetic && s->model_options.trainable == GRAPH_TRAIN_FULL;
}

static void adapt(plan_scenario *changed) {
  changed->model_options.trainable = GRAPH_TRAIN_LORA;
  if (changed->model_options.lora_rank == 0) changed->model_options.lora_rank = 16;
}

static dp_status try_lora(doctor *d) {
  plan_scenario changed = *d->scenario;
  bool fits;
  sim_trial best;
  if (!may_adapt(d->scenario)) return DP_OK;
  adapt(&changed);
  DP_TRY(attempt(d, &changed, &fits, &best));
  const char *what = dp_arena_printf(&d->out->arena, "train LoRA adapters of rank %lld instead of all weights",
                                     (long long)changed.model_options.lora_rank);
  if (!what) return dp_fail_memory(d->error);
  if (fits) add(d, what, "--set task.trainable=lora", &best);
  return DP_OK;
}

static dp_status try_batch(doctor *d) {
  for (int64_t batch = d->global_batch / 2; batch >= 1 && !must_stop(d); batch /= 2) {
    plan_scenario changed = *d->scenario;
    bool fits;
    sim_trial best;
    changed.global_batch = batch;
    DP_TRY(attempt(d, &changed, &fits, &best));
    if (!fits) continue;
    const char *what = dp_arena_printf(&d->out->arena, "a global batch of %lld instead of %lld", (long long)batch,
                                       (long long)d->global_batch);
    const char *how = dp_arena_printf(&d->out->arena, "--set task.global_batch=%lld", (long long)batch);
    if (!what || !how) return dp_fail_memory(d->error);
    add(d, what, how, &best);
    return DP_OK;
  }
  return DP_OK;
}

static dp_status try_all_of_job(doctor *d) {
  plan_scenario changed = *d->scenario;
  bool loosened, fits;
  sim_trial best;
  DP_TRY(loosen(d, &changed, &loosened));
  const bool packs = may_pack_optimizer(d->scenario), adapts = may_adapt(d->scenario);
  if (packs) changed.optimizer = PLAN_ADAMW_8BIT;
  if (adapts) adapt(&changed);
  if ((int)loosened + packs + adapts < 2) return DP_OK;
  DP_TRY(attempt(d, &changed, &fits, &best));
  const char *what =
      dp_arena_printf(&d->out->arena, "%s%s%s together", loosened ? "an open [search]" : "",
                      packs ? (loosened ? ", 8-bit AdamW" : "8-bit AdamW") : "", adapts ? " and LoRA" : "");
  const char *how = dp_arena_printf(&d->out->arena, "%s%s", packs ? "--set task.optimizer=adamw-8bit " : "",
                                    adapts ? "--set task.trainable=lora" : "");
  if (!what || !how) return dp_fail_memory(d->error);
  if (fits) add(d, what, how, &best);
  return DP_OK;
}

/* ---- the machine ---- */

static dp_node *copy_node(dp_arena *arena, const dp_node *node) {
  dp_node *copy = DP_ARENA_NEW(arena, dp_node, 1);
  if (!copy) return NULL;
  *copy = *node;
  if (node->count == 0) return copy;
  copy->items = DP_ARENA_NEW(arena, dp_node *, node->count);
  copy->capacity = node->count;
  for (size_t i = 0; copy->items && i < node->count; i++)
    if (!(copy->items[i] = copy_node(arena, node->items[i]))) return NULL;
  return copy->items ? copy : NULL;
}

static dp_node *last_item(dp_node *list) {
  return list && list->kind == DP_NODE_ARRAY && list->count ? list->items[list->count - 1] : NULL;
}

/* Adds to the count of a row, which may lack one. */
static bool add_to_count(dp_arena *arena, dp_node *row, int64_t more) {
  dp_node *count = dp_node_get(row, "count");
  if (!count) {
    dp_node **items = DP_ARENA_NEW(arena, dp_node *, row->count + 1);
    count = DP_ARENA_NEW(arena, dp_node, 1);
    if (!items || !count) return false;
    *count = (dp_node){.kind = DP_NODE_INTEGER, .key = "count", .file = row->file, .line = row->line, .integer = 1};
    if (row->count) memcpy(items, row->items, row->count * sizeof *items);
    items[row->count++] = count;
    row->items = items;
    row->capacity = row->count;
  }
  count->integer += more;
  count->real = (double)count->integer;
  return true;
}

/* The cluster with `more` devices like the last one, in its node; not `grown` where the file does not allow it. */
static dp_status grow_cluster(doctor *d, int64_t more, plan_cluster *cluster, bool *grown) {
  const plan_scenario *s = d->scenario;
  const dp_node *table = s->cluster_document.root ? s->cluster_document.root : dp_node_get(s->document.root, "cluster");
  *grown = false;
  if (!table) return DP_OK;
  dp_node *copy = copy_node(&d->out->arena, table);
  if (!copy) return dp_fail_memory(d->error);
  dp_node *node = last_item(dp_node_get(copy, "node")), *device = node ? last_item(dp_node_get(node, "device")) : NULL;
  if (!device) return DP_OK;
  if (!add_to_count(&d->out->arena, device, more)) return dp_fail_memory(d->error);
  dp_error refused = DP_ERROR_INIT;
  plan_catalogue catalogue = s->catalogue; /* rows of the cluster's own are the cluster's */
  *grown = plan_cluster_build(copy, &catalogue, cluster, &refused) == DP_OK;
  return DP_OK;
}

static dp_status try_devices(doctor *d) {
  enum { MOST = 64 };
  const int64_t now = (int64_t)d->scenario->cluster.devices.count;
  if (d->scenario->device_map_count) return DP_OK;
  for (int64_t more = 1; now + more <= MOST * now && now + more <= PLAN_MAX_DEVICES && !must_stop(d);
       more = more == 1 && now > 1 ? now : 2 * (now + more) - now) {
    plan_cluster cluster;
    bool grown, fits = false;
    sim_trial best;
    DP_TRY(grow_cluster(d, more, &cluster, &grown));
    if (!grown) return DP_OK; /* a fixed board */
    plan_scenario changed = *d->scenario;
    changed.cluster = cluster;
    const dp_status status = attempt(d, &changed, &fits, &best);
    const int64_t used = fits ? (int64_t)best.candidate.stages * best.candidate.replicas : 0;
    const char *name = cluster.devices.items[cluster.devices.count - 1].model->name;
    const char *what = !fits ? ""
                             : dp_arena_printf(&d->out->arena, "%lld more %s (%lld of %lld devices work)",
                                               (long long)more, name, (long long)used, (long long)(now + more));
    plan_cluster_free(&cluster);
    DP_TRY(status);
    if (!what) return dp_fail_memory(d->error);
    if (!fits) continue;
    add(d, what, NULL, &best);
    return DP_OK;
  }
  return DP_OK;
}

/* Catalogue cards in the same places: less memory first, then the cheaper, then by name. */
static bool before(const plan_device_model *a, const plan_device_model *b) {
  if (a->memory_bytes != b->memory_bytes) return a->memory_bytes < b->memory_bytes;
  const double x = a->price_usd_per_h > 0 ? a->price_usd_per_h : 1e9;
  const double y = b->price_usd_per_h > 0 ? b->price_usd_per_h : 1e9;
  return x != y ? x < y : strcmp(a->name, b->name) < 0;
}

static dp_status try_cards(doctor *d) {
  const plan_scenario *s = d->scenario;
  const size_t count = s->cluster.devices.count;
  int64_t least = s->cluster.devices.items[0].memory_bytes;
  for (size_t i = 0; i < count; i++)
    if (s->cluster.devices.items[i].memory_bytes < least) least = s->cluster.devices.items[i].memory_bytes;
  plan_device *devices = DP_ARENA_NEW(&d->out->arena, plan_device, count);
  if (!devices) return dp_fail_memory(d->error);
  int64_t tried_bytes = least;
  while (!must_stop(d)) { /* one card for each size of memory */
    const plan_device_model *card = NULL;
    for (size_t i = 0; i < s->catalogue.devices.count; i++) {
      const plan_device_model *model = &s->catalogue.devices.items[i];
      if (plan_device_is_processor(model)) continue;
      if (model->memory_bytes > tried_bytes && model->peak_flops_per_s[s->model_options.precision] > 0 &&
          (!card || before(model, card)))
        card = model;
    }
    if (!card) return DP_OK;
    tried_bytes = card->memory_bytes;
    plan_scenario changed = *s;
    for (size_t i = 0; i < count; i++) {
      devices[i] = s->cluster.devices.items[i];
      if (devices[i].memory_bytes >= card->memory_bytes) continue;
      const double share = devices[i].compute_share;
      devices[i].model = card;
      devices[i].memory_bytes = card->memory_bytes / devices[i].parts;
      devices[i].price_usd_per_h = card->price_usd_per_h * share;
      devices[i].tdp_w = card->tdp_w * share;
      devices[i].purchase_usd = card->purchase_usd * share;
    }
    changed.cluster.devices.items = devices;
    changed.cluster.price_usd_per_h = 0;
    bool fits;
    sim_trial best;
    DP_TRY(attempt(d, &changed, &fits, &best));
    if (!fits) continue;
    const char *what = dp_arena_printf(&d->out->arena, "cards of %.0f GB in these places: %s",
                                       (double)card->memory_bytes / 1e9, card->name);
    if (!what) return dp_fail_memory(d->error);
    best.usd_per_million_samples = 0; /* of another machine */
    add(d, what, NULL, &best);
    return DP_OK;
  }
  return DP_OK;
}

static dp_status find(doctor *d) {
  d->global_batch = sim_tune_global_batch(d->scenario, d->error);
  if (!d->global_batch) return DP_BAD_INPUT;
  static dp_status (*const tries[])(doctor *) = {try_search, try_optimizer, try_lora, try_batch};
  for (size_t i = 0; i < sizeof tries / sizeof *tries && !must_stop(d); i++) DP_TRY(tries[i](d));
  if (d->out->count == 0 && !must_stop(d)) DP_TRY(try_all_of_job(d));
  if (!must_stop(d)) DP_TRY(try_devices(d));
  if (!must_stop(d)) DP_TRY(try_cards(d));
  d->out->stopped = must_stop(d);
  return DP_OK;
}

dp_status sim_remedies_find(const plan_scenario *scenario, const sim_efficiency *efficiency,
                            const sim_tune_options *options, sim_remedies *remedies, dp_error *error) {
  memset(remedies, 0, sizeof *remedies);
  doctor d = {scenario, efficiency, options, 0, remedies, error};
  const dp_status status = find(&d);
  if (status != DP_OK) sim_remedies_free(remedies);
  return status;
}

void sim_remedies_free(sim_remedies *remedies) {
  dp_arena_free(&remedies->arena);
  memset(remedies, 0, sizeof *remedies);
}
