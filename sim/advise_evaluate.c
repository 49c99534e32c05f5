/* One setting of a diffusion-pipe configuration on one size: the scenario it stands for, predicted; memory put right.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/adviser.h"

const char *const sim_advise_class_names[] = {"weights",  "gradients", "optimizer", "activations",   "skips",
                                              "boundary", "workspace", "runtime",   "text encoders", NULL};
enum { OFFLOADED_ELEMENTS = 5000000, SDXL_MULTIPLE = 32 };

/* ---- graphs ---- */

/* Our UNet takes whole halvings alone: the next larger size that has them. */
static int64_t side(const sim_adviser *a, int64_t pixels) {
  if (a->config->family != PLAN_DPIPE_SDXL) return pixels;
  return (pixels + SDXL_MULTIPLE - 1) / SDXL_MULTIPLE * SDXL_MULTIPLE;
}

dp_status sim_adviser_graph_of(sim_adviser *a, const plan_dpipe_bucket *bucket, int64_t micro_batch,
                               const sim_prepared **prepared) {
  const int64_t width = side(a, bucket->width), height = side(a, bucket->height);
  for (size_t i = 0; i < a->graphs.count; i++) {
    sim_adviser_graph *g = a->graphs.items[i];
    if (g->width == width && g->height == height && g->micro_batch == micro_batch) {
      *prepared = &g->prepared;
      return DP_OK;
    }
  }
  sim_adviser_graph *made = calloc(1, sizeof *made);
  if (!made || !dp_array_reserve(&a->graphs, 1)) {
    free(made);
    return dp_fail_memory(a->error);
  }
  made->width = width;
  made->height = height;
  made->micro_batch = micro_batch;
  plan_scenario *s = a->scenario;
  s->model_options.width = width;
  s->model_options.height = height;
  dp_error reason = DP_ERROR_INIT;
  const dp_status status = sim_prepare(s, a->efficiency, micro_batch, &made->prepared, &reason);
  if (status != DP_OK) {
    free(made);
    /* "FILE:4: height is ...": it is the dataset that asks for it */
    const char *said = strstr(reason.text, ": height");
    if (!said) said = strstr(reason.text, ": width");
    if (!said && strncmp(reason.text, "advise:", 7) == 0) said = strstr(reason.text, ": ");
    return said ? dp_fail_at(a->error, bucket->node, "dataset: %lld x %lld pixels: %s", (long long)bucket->width,
                             (long long)bucket->height, said + 2)
                : dp_fail(a->error, status, "%s", reason.text);
  }
  (void)dp_array_push(&a->graphs, made);
  *prepared = &made->prepared;
  return DP_OK;
}

void sim_adviser_close(sim_adviser *a) {
  for (size_t i = 0; i < a->graphs.count; i++) {
    sim_prepared_free(&a->graphs.items[i]->prepared);
    free(a->graphs.items[i]);
  }
  dp_array_free(&a->graphs);
}

/* ---- cuts ---- */

dp_status sim_adviser_cut(sim_adviser *a, plan_dpipe_partition partition, int stages, const int64_t **split) {
  const int layers = a->out->layers;
  int *parts = SIM_ADVISER_NEW(a, int, stages + 1);
  int64_t *cuts = SIM_ADVISER_NEW(a, int64_t, stages);
  if (!parts || !cuts) return dp_fail_memory(a->error);
  if (partition == PLAN_DPIPE_UNIFORM)
    plan_deepspeed_uniform(layers, stages, parts);
  else
    DP_TRY(plan_deepspeed_balanced(a->out->layer_weights, layers, stages, parts, a->error));
  for (int s = 1; s < stages; s++) cuts[s - 1] = parts[s];
  *split = cuts;
  return DP_OK;
}

/* GPU of a stage of a replica. */
static int gpu_of(const sim_advise_setting *setting, int replica, int stage) {
  return stage * setting->replicas + replica;
}

dp_status sim_adviser_balance(sim_adviser *a, const sim_advise_setting *setting, const int64_t **split) {
  const plan_dpipe_bucket *bucket = a->out->rows[a->out->row_count - 1].bucket;
  const int64_t batch = sim_adviser_batch_of(a, setting, bucket);
  const sim_prepared *prepared;
  DP_TRY(sim_adviser_graph_of(a, bucket, batch, &prepared));
  const int n = a->out->layers, stages = setting->stages;
  double *cost = SIM_ADVISER_NEW(a, double, n), *speed = SIM_ADVISER_NEW(a, double, stages), first_s = 0;
  int *cuts = SIM_ADVISER_NEW(a, int, stages);
  int64_t *wide = SIM_ADVISER_NEW(a, int64_t, stages);
  if (!cost || !speed || !cuts || !wide) return dp_fail_memory(a->error);
  for (int s = 0; s < stages; s++) { /* the slowest replica's device */
    for (int r = 0; r < setting->replicas; r++) {
      const plan_device *device = &a->scenario->cluster.devices.items[gpu_of(setting, r, s)];
      const sim_prepared_kind *kind = sim_prepared_kind_of(prepared, device);
      double all_s = 0;
      for (int u = 0; u < n; u++) {
        const sim_unit_cost *unit = &kind->units[u];
        const bool again = setting->checkpointing != PLAN_DPIPE_KEEP_ALL &&
                           plan_dpipe_is_checkpointed(a->config->family, a->out->layer_names[u]);
        double device_s = again ? unit->device_s[SIM_FORWARD] : 0, issue_s = again ? unit->issue_s[SIM_FORWARD] : 0;
        for (int d = 0; d < 3; d++) {
          device_s += unit->device_s[d];
          issue_s += unit->issue_s[d];
        }
        const double s_u = fmax(device_s, issue_s);
        if (s == 0 && r == 0) cost[u] = s_u;
        all_s += s_u;
      }
      if (first_s <= 0) first_s = all_s;
      const double now = all_s > 0 ? first_s / all_s : 1;
      if (r == 0 || now < speed[s]) speed[s] = now;
    }
  }
  DP_TRY(plan_split_balanced(cost, n, stages, speed, cuts, a->error));
  for (int s = 0; s + 1 < stages; s++) wide[s] = cuts[s];
  *split = wide;
  return DP_OK;
}

/* ---- memory ---- */

static int64_t dtype_bytes(plan_dpipe_dtype dtype) {
  return dtype == PLAN_DPIPE_FP32 ? 4 : dtype == PLAN_DPIPE_FP8 ? 1 : 2;
}

/* Weights of the blocks' matrices (what fp8 and swapping are about) and of everything in a unit's blocks. */
static int64_t block_weights(const graph *model, const graph_unit *unit, bool matrices) {
  int64_t sum = 0;
  if (!strstr(unit->name, "transformer_blocks.")) return 0;
  for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++)
    for (int w = 0; w < model->ops.items[o].weight_count; w++) {
      const graph_weight *weight = &model->weights.items[model->ops.items[o].first_weight + w];
      if (!matrices || weight->rank > 1) sum += weight->parameters;
    }
  return sum;
}

/* Bytes that leave the card when blocks are swapped: n / 2 double blocks, twice the rest and one single ones. */
static int64_t swapped_bytes(const sim_adviser *a, const graph *model, const sim_advise_setting *setting) {
  const int64_t two = setting->blocks_to_swap / 2, one = (setting->blocks_to_swap - two) * 2 + 1;
  const int64_t width = dtype_bytes(a->config->dtype);
  int64_t doubles = 0, singles = 0, bytes = 0;
  for (size_t u = 0; u < model->units.count; u++) {
    const graph_unit *unit = &model->units.items[u];
    const bool single = strncmp(unit->name, "single_", 7) == 0;
    if (!strstr(unit->name, "transformer_blocks.") || (single ? singles >= one : doubles >= two)) continue;
    *(single ? &singles : &doubles) += 1;
    const int64_t matrices = block_weights(model, unit, true);
    bytes += (block_weights(model, unit, false) - matrices) * width + matrices * (setting->fp8 ? 1 : width);
  }
  return bytes;
}

/* Inputs that the layers of a stage keep for one micro batch and that are large enough to be moved to the host; those
 * that came from the stage before stay in DeepSpeed's buffers. */
static int64_t offloaded_bytes(const sim_adviser *a, const graph *model, const plan_chunk *chunk) {
  const int first = chunk->first_unit, last = first + chunk->unit_count;
  int64_t bytes = 0;
  for (size_t i = 0; i < model->tensors.count; i++) {
    const graph_tensor *t = &model->tensors.items[i];
    if (t->producer_unit < first || t->producer_unit >= last) continue;
    if (t->bytes / graph_dtype_bytes(t->dtype) < OFFLOADED_ELEMENTS) continue;
    bool kept = false;
    for (int k = 0; k < t->consumer_unit_count; k++) {
      const int u = t->consumer_units[k];
      if (u == t->producer_unit || u < first || u >= last) continue;
      kept = kept || plan_dpipe_is_checkpointed(a->config->family, model->units.items[u].name);
    }
    if (kept) bytes += t->bytes;
  }
  return bytes;
}

/* at[class]: of a worker at its peak; what plan/memory.c does not know is put right. */
static void correct_memory(const sim_adviser *a, const sim_prediction *p, const sim_advise_setting *setting, int rank,
                           int64_t *at) {
  const plan_dpipe *c = a->config;
  const graph *model = &p->graph;
  const plan_chunk *chunk = &p->plan.chunks[rank];
  const int64_t width = dtype_bytes(c->dtype), trained_width = c->lora ? dtype_bytes(c->adapter_dtype) : width;
  const double state = setting->optimizer->state_values * (double)trained_width + setting->optimizer->state_bytes;
  int64_t trainable = 0, adapters = 0, matrices = 0;
  for (int u = chunk->first_unit; u < chunk->first_unit + chunk->unit_count; u++) {
    const graph_unit *unit = &model->units.items[u];
    trainable += unit->trainable_parameters;
    adapters += unit->adapter_parameters;
    matrices += block_weights(model, unit, true);
  }
  at[PLAN_MEMORY_WEIGHTS] += adapters * (trained_width - width);
  at[PLAN_MEMORY_GRADIENTS] = c->gradient_release ? 0 : trainable * trained_width;
  at[PLAN_MEMORY_OPTIMIZER] = (int64_t)ceil((double)trainable * state);
  const int flying = p->plan.microbatches < setting->stages - rank ? p->plan.microbatches : setting->stages - rank;
  if (setting->fp8) at[PLAN_MEMORY_WEIGHTS] -= matrices * (width - 1);
  if (setting->fp8 && setting->checkpointing == PLAN_DPIPE_KEEP_ALL)
    at[PLAN_MEMORY_ACTIVATIONS] += flying * matrices * width;
  if (setting->blocks_to_swap) at[PLAN_MEMORY_WEIGHTS] -= swapped_bytes(a, model, setting);
  if (setting->checkpointing == PLAN_DPIPE_UNSLOTH) {
    at[PLAN_MEMORY_ACTIVATIONS] -= flying * offloaded_bytes(a, model, chunk);
    if (at[PLAN_MEMORY_ACTIVATIONS] < 0) at[PLAN_MEMORY_ACTIVATIONS] = 0;
  }
  if (c->family != PLAN_DPIPE_SDXL || rank != 0) return;
  const int64_t text_adapters = c->lora ? c->rank * PLAN_DPIPE_TEXT_ADAPTER : 0;
  const int64_t trained = c->lora ? text_adapters : PLAN_DPIPE_TEXT_ENCODERS;
  at[SIM_ADVISE_TEXT] = PLAN_DPIPE_TEXT_ENCODERS * width + text_adapters * trained_width +
                        (c->gradient_release ? 0 : trained * trained_width) + (int64_t)ceil((double)trained * state);
}

static void read_memory(const sim_adviser *a, const sim_prediction *p, const sim_advise_setting *setting,
                        sim_advise_figures *f) {
  double tightest = INFINITY;
  f->fits = true;
  for (int w = 0; w < p->memory.worker_count; w++) {
    const plan_worker_memory *memory = &p->memory.workers[w];
    int64_t at[SIM_ADVISE_CLASS_COUNT] = {0}, before = 0, after = 0;
    for (int k = 0; k < PLAN_MEMORY_CLASS_COUNT; k++) before += at[k] = memory->at_peak_bytes[k];
    correct_memory(a, p, setting, w % p->plan.ranks, at);
    for (int k = 0; k < SIM_ADVISE_CLASS_COUNT; k++) after += at[k];
    const int64_t need = memory->peak_bytes + after - before, limit = p->memory_limit_bytes[w];
    const double room = (double)(limit - need) / (double)(limit ? limit : 1);
    if (need > limit) f->fits = false;
    if (room >= tightest) continue;
    tightest = room;
    f->worker = w;
    f->device = p->plan.devices[w];
    f->need_bytes = need;
    f->limit_bytes = limit;
    memcpy(f->class_bytes, at, sizeof at);
  }
}

/* ---- one size, one setting ---- */

/* To the host's memory, one way; 0: unknown. */
static double host_bytes_per_s(const sim_adviser *a, int device) {
  const plan_cluster *cluster = &a->scenario->cluster;
  double most = 0;
  for (size_t l = 0; l < cluster->links.count; l++) {
    const plan_link *link = &cluster->links.items[l];
    if (link->from == cluster->devices.items[device].vertex && link->model->kind == PLAN_LINK_PCIE)
      most = fmax(most, link->bandwidth_bytes_per_s);
  }
  return most;
}

/* Least time of a step for what is copied from and to the host: swapped blocks come once a pass while others leave, and
 * kept inputs leave in the forward and come back in the backward. */
static double copies_s(const sim_adviser *a, const sim_prediction *p, const sim_advise_setting *setting) {
  double most_s = 0;
  for (int r = 0; r < p->plan.ranks; r++) {
    double bytes = setting->blocks_to_swap ? 2 * (double)swapped_bytes(a, &p->graph, setting) : 0;
    if (setting->checkpointing == PLAN_DPIPE_UNSLOTH)
      bytes += (double)offloaded_bytes(a, &p->graph, &p->plan.chunks[r]);
    const double rate = host_bytes_per_s(a, p->plan.devices[r]);
    if (rate > 0) most_s = fmax(most_s, p->plan.microbatches * bytes / rate);
  }
  return most_s;
}

static bool is_compute(const char *name) { return strncmp(name, "compute", 7) == 0; }

/* Micro batches beyond this many only repeat: a step is then as much longer as the second half of so many is. */
static int64_t simulated_micro_batches(const sim_advise_setting *setting) {
  const int64_t most = 4 * setting->stages > 64 ? 4 * setting->stages : 64;
  return setting->accumulation < most ? setting->accumulation : most;
}

static dp_status predict(sim_adviser *a, const sim_prepared *prepared, const sim_advise_setting *setting,
                         int64_t micro_batches, sim_prediction *p) {
  plan_scenario s = *a->scenario; /* shallow: it lives on */
  const int workers = setting->stages * setting->replicas;
  int64_t *map = malloc((size_t)workers * sizeof *map);
  if (!map) return dp_fail_memory(a->error);
  for (int r = 0; r < setting->replicas; r++)
    for (int k = 0; k < setting->stages; k++) map[r * setting->stages + k] = gpu_of(setting, r, k);
  s.stages = setting->stages;
  s.data_parallel = setting->replicas;
  s.tensor_parallel = 1;
  s.microbatches = micro_batches;
  s.microbatch_size = prepared->microbatch_size;
  s.global_batch = prepared->microbatch_size * micro_batches * setting->replicas;
  s.optimizer = setting->optimizer->cost;
  s.device_map = map;
  s.device_map_count = (size_t)workers;
  s.split = (int64_t *)setting->split; /* only read */
  s.split_count = (size_t)setting->stages - 1;
  s.recompute = setting->checkpointing == PLAN_DPIPE_KEEP_ALL ? PLAN_RECOMPUTE_NONE : PLAN_RECOMPUTE_LISTED;
  s.recompute_list = setting->checkpointing == PLAN_DPIPE_KEEP_ALL ? NULL : a->recompute;
  const dp_status status = sim_predict_prepared(&s, prepared, p, a->error);
  free(map);
  return status;
}

static void read_figures(const sim_adviser *a, const sim_prediction *p, const sim_advise_setting *setting,
                         sim_advise_figures *f) {
  read_memory(a, p, setting, f);
  f->step_s = p->metrics.step_s;
  f->bubble_ratio = p->metrics.bubble_ratio;
  f->error_band = p->error_band;
  for (int b = 0; b < p->bound_count && !f->bound_name; b++)
    if (!is_compute(p->bounds[b].name)) {
      f->bound_name = p->bounds[b].name;
      f->bound_share = p->bounds[b].share;
    }
}

dp_status sim_adviser_evaluate(sim_adviser *a, const plan_dpipe_bucket *bucket, const sim_advise_setting *setting,
                               sim_advise_figures *figures) {
  sim_advise_figures f = {0};
  f.micro_batch = sim_adviser_batch_of(a, setting, bucket);
  f.global_batch = f.micro_batch * setting->accumulation * setting->replicas;
  const int64_t most = simulated_micro_batches(setting);
  const sim_prepared *prepared;
  sim_prediction p;
  DP_TRY(sim_adviser_graph_of(a, bucket, f.micro_batch, &prepared));
  DP_TRY(predict(a, prepared, setting, most, &p));
  read_figures(a, &p, setting, &f);
  double copies = copies_s(a, &p, setting) * (double)setting->accumulation / (double)most;
  sim_prediction_free(&p);
  if (most < setting->accumulation) {
    sim_prediction half;
    DP_TRY(predict(a, prepared, setting, most / 2, &half));
    const double more = (double)(setting->accumulation - most) / (double)(most - most / 2);
    const double bubble_s = f.bubble_ratio * f.step_s;
    const double more_bubble_s = bubble_s - half.metrics.bubble_ratio * half.metrics.step_s;
    f.step_s += more * (f.step_s - half.metrics.step_s);
    f.bubble_ratio = (bubble_s + more * more_bubble_s) / f.step_s;
    sim_prediction_free(&half);
  }
  a->out->trials++;
  if (a->options->progress) a->options->progress(a->options->progress_data, (uint64_t)a->out->trials);
  f.step_s = fmax(f.step_s, copies);
  f.throughput_samples_per_s = (double)f.global_batch / f.step_s;
  *figures = f;
  return DP_OK;
}

dp_status sim_adviser_mix(sim_adviser *a, const sim_advise_setting *setting, bool hasty, bool rows,
                          sim_advise_mix *mix) {
  sim_advise_mix m = {.fits = true};
  double s_per_sample = 0, bubble_s = 0, step_s = 0, tightest = INFINITY;
  int counted = 0;
  for (int r = a->out->row_count - 1; r >= 0; r--) {
    const plan_dpipe_bucket *bucket = a->out->rows[r].bucket;
    if (hasty && !a->out->rows[r].representative) continue;
    sim_advise_figures f;
    DP_TRY(sim_adviser_evaluate(a, bucket, setting, &f));
    if (rows) a->out->rows[r].figures = f;
    const double room = (double)(f.limit_bytes - f.need_bytes) / (double)(f.limit_bytes ? f.limit_bytes : 1);
    if (room < tightest) {
      tightest = room;
      m.tightest = f;
      m.tightest_bucket = bucket;
    }
    m.fits = m.fits && f.fits;
    s_per_sample += f.step_s / (double)f.global_batch;
    bubble_s += f.bubble_ratio * f.step_s;
    step_s += f.step_s;
    counted++;
    if (hasty && !m.fits) break;
  }
  m.throughput_samples_per_s = counted / s_per_sample;
  m.bubble_ratio = bubble_s / step_s;
  *mix = m;
  return DP_OK;
}
