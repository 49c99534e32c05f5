#include "plan/link_class.h"

#include <math.h>
#include <string.h>

typedef struct finder {
  const plan_cluster_file *file;
  const plan_catalogue *catalogue;
  dp_arena *arena;
  bool failed; /* no memory */
} finder;

/* What estimates go by: measured in both ways. */
static const char measured_link[] = "nvlink4", measured_pcie[] = "pcie5-x16", parts_host[] = "host-staged",
                  parts_nccl[] = "nccl-sockets";

static const plan_link_model *row_of(finder *f, const char *class, const char *suffix) {
  const char *name = dp_arena_printf(f->arena, "%s%s", class, suffix);
  if (!name) {
    f->failed = true;
    return NULL;
  }
  for (size_t i = 0; i < f->file->links.count; i++)
    if (strcmp(f->file->links.items[i]->name, name) == 0) return f->file->links.items[i];
  return plan_catalogue_link(f->catalogue, name);
}

static plan_link_size_factor *scale_sizes(finder *f, const plan_link_size_factor *factors, int count, double ratio) {
  plan_link_size_factor *scaled = count ? DP_ARENA_NEW(f->arena, plan_link_size_factor, (size_t)count) : NULL;
  if (count && !scaled) f->failed = true;
  for (int i = 0; scaled && i < count; i++)
    scaled[i] = (plan_link_size_factor){factors[i].bytes * ratio, factors[i].factor};
  return scaled;
}

/* A class like `model` under the name of it and a suffix. */
static plan_link_model *begin_estimate(finder *f, const plan_link_model *model, const char *suffix,
                                       const plan_link_model *row, const plan_link_model *beside) {
  plan_link_model *made = DP_ARENA_NEW(f->arena, plan_link_model, 1);
  const char *name = dp_arena_printf(f->arena, "%s%s", model->name, suffix);
  const char *source =
      dp_arena_printf(f->arena, "an estimate: %s, changed as %s is against %s", model->name, row->name, beside->name);
  if (!made || !name || !source) {
    f->failed = true;
    return NULL;
  }
  *made = *model;
  made->name = name;
  made->source = source;
  made->notes = "";
  made->verified = false;
  made->node = row->node;
  made->reference_memory_bytes_per_s = 0;
  return made;
}

static const plan_link_model *estimate(finder *f, const plan_link_model *model, const char *suffix,
                                       const plan_link_model *beside, const plan_link_model *row) {
  plan_link_model *made = beside && row ? begin_estimate(f, model, suffix, row, beside) : NULL;
  if (!made) return NULL;
  const double ratio = model->bandwidth_bytes_per_s / beside->bandwidth_bytes_per_s;
  made->bandwidth_bytes_per_s = row->bandwidth_bytes_per_s * ratio;
  made->latency_s = model->latency_s + fmax(row->latency_s - beside->latency_s, 0);
  made->busy_latency_s = made->latency_s + plan_link_busy_latency_s(row) - row->latency_s;
  made->busy_bandwidth_factor = row->busy_bandwidth_factor;
  made->size_factors = scale_sizes(f, row->size_factors, row->size_factor_count, ratio);
  made->size_factor_count = row->size_factor_count;
  made->busy_size_factors = scale_sizes(f, row->busy_size_factors, row->busy_size_factor_count, ratio);
  made->busy_size_factor_count = row->busy_size_factor_count;
  made->compute_slowdown = fmax(model->compute_slowdown, row->compute_slowdown * fmin(ratio, 1));
  return made;
}

/* NCCL over `nccl` on multiprocessors of its own, as `row` is against `beside`. */
static const plan_link_model *estimate_partition(finder *f, const plan_link_model *model, const plan_link_model *nccl) {
  const plan_link_model *beside = row_of(f, measured_link, "-nccl"), *row = row_of(f, measured_link, "-nccl-partition");
  if (!nccl || !beside || !row) return NULL;
  plan_link_model *made = begin_estimate(f, model, "-nccl-partition", row, beside);
  if (!made) return NULL;
  made->bandwidth_bytes_per_s = row->bandwidth_bytes_per_s;
  made->nccl_sms = row->nccl_sms;
  made->latency_s = nccl->latency_s + fmax(row->latency_s - beside->latency_s, 0);
  made->busy_latency_s = 0;
  made->busy_bandwidth_factor = 1;
  made->size_factors = nccl->size_factors;
  made->size_factor_count = nccl->size_factor_count;
  made->busy_size_factors = NULL;
  made->busy_size_factor_count = 0;
  made->compute_slowdown = row->compute_slowdown;
  return made;
}

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

static plan_link_class class_of(finder *f, const plan_link_model *model, bool nccls_own) {
  plan_link_class class = {.model = model, .nccl = nccls_own ? model : row_of(f, model->name, "-nccl")};
  if (!class.nccl)
    class.nccl = estimate(f, model, "-nccl", row_of(f, measured_link, ""), row_of(f, measured_link, "-nccl"));
  class.partition = row_of(f, model->name, "-nccl-partition");
  if (!class.partition) class.partition = estimate_partition(f, model, class.nccl);
  if (model->kind != PLAN_LINK_PCIE && model->kind != PLAN_LINK_HOST) return class;
  class.host = ends_with(model->name, "-host") ? model : row_of(f, model->name, "-host");
  if (!class.host)
    class.host = estimate(f, model, "-host", row_of(f, measured_pcie, ""), row_of(f, measured_pcie, "-host"));
  return class;
}

const plan_link_class *plan_cluster_link_class(const plan_cluster *cluster, const plan_link_model *model) {
  for (int c = 0; c < cluster->classes.count; c++)
    if (cluster->classes.items[c].model == model) return &cluster->classes.items[c];
  return NULL;
}

dp_status plan_link_classes_find(const plan_cluster_file *file, const plan_catalogue *catalogue, plan_cluster *cluster,
                                 dp_error *error) {
  finder f = {file, catalogue, &cluster->arena, false};
  plan_link_classes *classes = &cluster->classes;
  /* a link's model is a row of the file or of the catalogue */
  classes->items = DP_ARENA_NEW(f.arena, plan_link_class, file->links.count + catalogue->links.count + 1);
  if (!classes->items) return dp_fail_memory(error);
  const plan_link_model *last = NULL;
  for (size_t l = 0; l < cluster->links.count; l++) {
    const plan_link_model *model = cluster->links.items[l].model;
    if (model == last || plan_cluster_link_class(cluster, model)) continue;
    classes->items[classes->count++] = class_of(&f, model, model->kind == PLAN_LINK_NETWORK);
    last = model;
  }
  classes->parts_host = row_of(&f, parts_host, "");
  classes->parts_host_link = row_of(&f, measured_pcie, "");
  const plan_link_model *sockets = row_of(&f, parts_nccl, "");
  if (sockets) classes->parts_nccl = class_of(&f, sockets, true);
  return f.failed ? dp_fail_memory(error) : DP_OK;
}
