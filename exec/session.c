#define _GNU_SOURCE /* sched_getaffinity */
#include "exec/session.h"
#include "exec/algorithms.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "exec/place.h"
#include "exec/session_parts.h"

/* ---- what all share ---- */

double exec_learning_rate(const plan_train *train, int64_t step, int64_t steps) {
  const double pi = 3.14159265358979323846;
  const int64_t warmup = train->warmup_steps;
  if (step < warmup) return train->learning_rate * (double)(step + 1) / (double)warmup;
  const int64_t falling = steps - 1 - warmup; /* steps in which it falls */
  const double part = falling > 0 ? fmin(1, (double)(step - warmup) / (double)falling) : 0;
  double share = 1;
  if (train->rate_schedule == PLAN_RATE_COSINE) share = (1 + cos(pi * part)) / 2;
  if (train->rate_schedule == PLAN_RATE_LINEAR) share = 1 - part;
  if (train->rate_schedule == PLAN_RATE_CONSTANT) return train->learning_rate;
  return train->learning_rate * (train->rate_floor + (1 - train->rate_floor) * share);
}

/* ---- making it ---- */

int exec_session_workers_here(const exec_session *s) {
  return s->program->worker_count / exec_process_count(s->options.transport);
}

int exec_session_first_worker(const exec_session *s) {
  return exec_process(s->options.transport) * exec_session_workers_here(s);
}

/* Where the cluster's devices are processors, as many as the prediction speaks of: a device's cores. */
static int threads_of(const exec_session *s) {
  const plan_device *device = &s->options.scenario->cluster.devices.items[s->program->plan->devices[0]];
  cpu_set_t processors;
  if (s->options.threads > 0) return s->options.threads;
  if (s->options.scenario->train.threads > 0) return (int)s->options.scenario->train.threads;
  if (sched_getaffinity(0, sizeof processors, &processors) != 0) return 1;
  const int here = CPU_COUNT(&processors);
  if (plan_device_is_processor(device->model))
    return device->model->sm_count < here ? (int)device->model->sm_count : here;
  const int workers = exec_session_workers_here(s), each = here / (workers > 0 ? workers : 1);
  return each > 0 ? each : 1;
}

/* What the executor cannot do, or the plan does not have. */
static dp_status check(const exec_session *s, dp_error *error) {
  const plan_scenario *scenario = s->options.scenario;
  const plan_train *train = &scenario->train;
  if (!scenario->training)
    return dp_fail_at(error, plan_scenario_node(scenario, "task", "kind"),
                      "task.kind: found \"sample\", allowed: \"train\"");
  if (scenario->optimizer != PLAN_ADAMW)
    return dp_fail_at(error, plan_scenario_node(scenario, "task", "optimizer"),
                      "task.optimizer: found \"%s\", allowed: \"adamw\" in a run",
                      plan_optimizer_names[scenario->optimizer]);
  if (train->stage_rates && (int)train->stage_rate_count != s->plan->ranks)
    return dp_fail_at(error, plan_scenario_node(scenario, "train", "stage_rates"),
                      "train.stage_rates: found %zu factors, allowed: %d, one a stage", train->stage_rate_count,
                      s->plan->ranks);
  if (!scenario->data.path)
    return dp_fail_at(error, plan_scenario_node(scenario, "data", "path"),
                      "data: the key \"path\" is missing, needed: a data set's folder");
  return DP_OK;
}

/* The sizes are the buckets, and one of them is the model's own, of which the prediction is. */
static dp_status check_sizes(exec_session *s, dp_error *error) {
  const plan_scenario *scenario = s->options.scenario;
  const size_t count = s->options.size_count, buckets = scenario->data.bucket_count;
  if (count != (buckets ? buckets : 1))
    return dp_fail(error, DP_INTERNAL, "a session of %zu sizes and %zu buckets", count, buckets);
  s->base = count;
  for (size_t i = 0; i < count; i++) {
    const graph *g = s->options.sizes[i].graph;
    if (buckets && (g->height != scenario->data.buckets[i].height || g->width != scenario->data.buckets[i].width))
      return dp_fail(error, DP_INTERNAL, "a program of %lld x %lld for another bucket", (long long)g->height,
                     (long long)g->width);
    const graph_model_options *own = &scenario->model_options;
    if (!buckets || ((!own->height || g->height == own->height) && (!own->width || g->width == own->width)))
      s->base = i;
  }
  if (s->base == count)
    return dp_fail_at(
        error, plan_scenario_node(scenario, "data", "buckets"),
        "data.buckets: found %zu without the model's own size, needed: [%lld, %lld] among them, which the "
        "plan is made for",
        count, (long long)scenario->model_options.height, (long long)scenario->model_options.width);
  s->graph = s->options.sizes[s->base].graph;
  s->program = s->options.sizes[s->base].program;
  s->plan = s->program->plan;
  if (count > 1 && plan_skip_is_used(s->plan, s->graph, PLAN_SKIP_COMPRESS))
    return dp_fail_at(
        error, plan_scenario_node(scenario, "data", "buckets"),
        "data.buckets: found %zu with compressed skips, allowed: one, since what compresses is of one size", count);
  return DP_OK;
}

/* Noise costs the host milliseconds a step, which devices would wait for: it is drawn while they are at the step before. */
static void prepare_sample(const void *session, const exec_batch *batch, int64_t sample, float *given, float *wanted) {
  const exec_session *s = session;
  exec_objective_prepare(&s->lanes[batch->bucket].objective, batch->step, sample, batch->samples[sample].latents, given,
                         wanted);
}

static dp_status open_data(exec_session *s, dp_error *error) {
  const plan_data *data = &s->options.scenario->data;
  const exec_objective_sizes *sizes = &s->lanes[s->base].objective.sizes;
  int64_t(*buckets)[2] = dp_arena_alloc(&s->arena, s->options.size_count, sizeof *buckets);
  if (!buckets) return dp_fail_memory(error);
  for (size_t i = 0; i < s->options.size_count; i++) {
    buckets[i][0] = s->options.sizes[i].graph->height;
    buckets[i][1] = s->options.sizes[i].graph->width;
  }
  const int64_t each = s->plan->microbatches * s->plan->microbatch_size; /* samples of a replica */
  const int first_worker = exec_session_first_worker(s);
  const int first = plan_worker_replica(s->plan, first_worker),
            last = plan_worker_replica(s->plan, first_worker + exec_session_workers_here(s) - 1);
  const exec_dataset_options options = {.path = data->path,
                                        .buckets = (const int64_t(*)[2])buckets,
                                        .bucket_count = s->options.size_count,
                                        .latent_channels = sizes->channels,
                                        .text_tokens = sizes->text_tokens,
                                        .text_channels = sizes->text_channels,
                                        .pooled_channels = sizes->pooled_channels,
                                        .wanted = {.model = s->graph->class_name},
                                        .global_batch = s->global_batch,
                                        .first_sample = first * each,
                                        .sample_count = (last - first + 1) * each,
                                        .seed = s->seed,
                                        .shuffle = data->shuffle,
                                        .trust_cache = data->trust_cache,
                                        .prefetch = true,
                                        .prepare = prepare_sample,
                                        .prepare_data = s};
  return exec_dataset_open(&options, &s->dataset, error);
}

/* NULL: there is no GPU. */
static dp_status place_workers(const exec_session *s, exec_place **places, dp_error *error) {
  const int gpus = exec_device_cuda_count();
  *places = NULL;
  if (gpus == 0) return DP_OK;
  *places = calloc((size_t)s->program->worker_count, sizeof **places);
  if (!*places) return dp_fail_memory(error);
  exec_place_workers(s->program, &s->options.scenario->cluster, gpus, *places);
  return DP_OK;
}

/* The base first: the others take its parameters. */
static dp_status make_pipelines(exec_session *s, dp_error *error) {
  const plan_train *train = &s->options.scenario->train;
  exec_place *places = NULL;
  dp_status status = s->options.cuda ? place_workers(s, &places, error) : DP_OK;
  for (size_t i = 0; status == DP_OK && i < s->options.size_count; i++) {
    const size_t at = i == 0 ? s->base : i <= s->base ? i - 1 : i;
    exec_session_lane *lane = &s->lanes[at];
    const exec_pipeline_options options = {.cuda = s->options.cuda,
                                           .places = places,
                                           .cluster = &s->options.scenario->cluster,
                                           .threads = threads_of(s),
                                           .feed = exec_objective_feed(&lane->objective),
                                           .transport = s->options.transport,
                                           .lora_alpha = train->lora_alpha,
                                           .means = s->means,
                                           .algorithms = s->options.algorithms,
                                           .any_order = !s->options.scenario->train.deterministic,
                                           .observer = at == s->base ? s->options.observer : NULL,
                                           .witness = at == s->base ? s->options.witness : NULL,
                                           .shortage = s->options.shortage,
                                           .shared = s->pipeline};
    const exec_session_size *size = &s->options.sizes[at];
    status = exec_pipeline_create(size->program, size->graph, &options, &lane->pipeline, error);
    if (status == DP_OK && at == s->base) s->pipeline = lane->pipeline;
  }
  free(places);
  return status;
}

/* Compressed skips begin fitted to what the first batch brings. All that can fail on one process alone. */
static dp_status prepare_skips(exec_session *s, dp_error *error) {
  const int count = exec_pipeline_skips(s->pipeline);
  const exec_batch *batch = NULL;
  if (count == 0) return DP_OK;
  s->psnr = DP_ARENA_NEW(&s->arena, double, (size_t)count);
  s->skip_names = DP_ARENA_NEW(&s->arena, const char *, (size_t)count);
  if (!s->psnr || !s->skip_names) return dp_fail_memory(error);
  for (int i = 0; i < count; i++) {
    const plan_compressor *c = exec_pipeline_skip(s->pipeline, i, 0).compressor;
    s->skip_names[i] = dp_arena_printf(&s->arena, "%s to %s", s->graph->tensors.items[c->tensor].name,
                                       s->graph->units.items[c->up_unit].name);
    if (!s->skip_names[i]) return dp_fail_memory(error);
  }
  DP_TRY(exec_dataset_batch(s->dataset, 0, &batch, error));
  exec_objective_begin(&s->lanes[s->base].objective, 0, batch);
  return DP_OK;
}

static dp_status make(exec_session *s, dp_error *error) {
  DP_TRY(check_sizes(s, error));
  DP_TRY(check(s, error));
  s->seed = (uint64_t)s->options.scenario->train.seed;
  s->lanes = DP_ARENA_NEW(&s->arena, exec_session_lane, s->options.size_count);
  if (!s->lanes) return dp_fail_memory(error);
  for (size_t i = 0; i < s->options.size_count; i++)
    DP_TRY(exec_objective_init(s->options.scenario, s->options.sizes[i].graph, s->plan, &s->lanes[i].objective, error));
  s->global_batch = s->lanes[s->base].objective.global_batch;
  s->squares = DP_ARENA_NEW(&s->arena, double, (size_t)s->global_batch);
  s->rank_norms = DP_ARENA_NEW(&s->arena, double, (size_t)s->plan->ranks);
  if (!s->squares || !s->rank_norms) return dp_fail_memory(error);
  return open_data(s, error);
}

/* All processes' workers take the algorithms that the first process found. */
static dp_status share_algorithms(exec_session *s, dp_error *error) {
  bool changed = false;
  dp_status status = DP_OK;
  if (!s->options.algorithms) return DP_OK;
  DP_TRY(exec_algorithms_agree(s->options.algorithms, s->options.transport, &changed, error));
  if (changed) status = exec_pipeline_choose_again(s->pipeline, error);
  for (size_t i = 0; changed && status == DP_OK && i < s->options.size_count; i++)
    if (i != s->base) status = exec_pipeline_choose_again(s->lanes[i].pipeline, error);
  return exec_agree(s->options.transport, status, error);
}

dp_status exec_session_create(const exec_session_options *options, exec_session **session, dp_error *error) {
  exec_session *s = calloc(1, sizeof *s);
  dp_status status = s ? DP_OK : dp_fail_memory(error);
  if (s) {
    s->options = *options;
    s->saved = -1;
    s->lora = options->scenario->model_options.trainable == GRAPH_TRAIN_LORA;
    s->means = options->scenario->train.ema_decay > 0;
    status = make(s, error);
  }
  status = exec_agree(options->transport, status, error); /* pipelines may meet the others' while they are made */
  if (status == DP_OK) status = exec_agree(options->transport, make_pipelines(s, error), error);
  if (status == DP_OK) status = share_algorithms(s, error);
  if (status == DP_OK) status = exec_agree(options->transport, exec_session_fill(s, error), error);
  if (status == DP_OK) status = exec_agree(options->transport, prepare_skips(s, error), error);
  if (status == DP_OK) status = exec_agree(options->transport, exec_pipeline_fit_skips(s->pipeline, error), error);
  if (status == DP_OK) status = exec_agree(options->transport, exec_session_begin_means(s, error), error);
  if (status == DP_OK) {
    *session = s;
  }
  if (status != DP_OK) exec_session_free(s);
  return status;
}

bool exec_session_leave(exec_session *s) {
  bool left = true;
  if (!s) return left;
  for (size_t i = 0; i < s->options.size_count; i++) left = exec_pipeline_leave(s->lanes[i].pipeline) && left;
  return left;
}

void exec_session_free(exec_session *s) {
  if (!s) return;
  for (size_t i = 0; s->lanes && i < s->options.size_count; i++)
    if (i != s->base) exec_pipeline_free(s->lanes[i].pipeline);
  exec_pipeline_free(s->pipeline); /* the others worked on its parameters */
  exec_dataset_free(s->dataset);
  for (size_t i = 0; s->lanes && i < s->options.size_count; i++) exec_objective_free(&s->lanes[i].objective);
  dp_str_free(&s->checkpoint);
  dp_arena_free(&s->arena);
  free(s);
}

int64_t exec_session_done(const exec_session *s) { return s->done; }
const plan_plan *exec_session_plan(const exec_session *s) { return s->plan; }
exec_pipeline *exec_session_pipeline(exec_session *s) { return s->pipeline; }
int exec_session_skips(const exec_session *s) { return exec_pipeline_skips(s->pipeline); }
const char *exec_session_skip_name(const exec_session *s, int skip) { return s->skip_names[skip]; }
const char *exec_session_checkpoint(const exec_session *s) { return dp_str_text(&s->checkpoint); }

exec_parameters *exec_session_parameters(exec_session *s, int worker) {
  return exec_pipeline_has(s->pipeline, worker) ? exec_pipeline_parameters(s->pipeline, worker) : NULL;
}

/* ---- steps ---- */

dp_status exec_session_blame(const exec_session *s, int64_t step, dp_status status, dp_error *error) {
  if (status == DP_OK || !error) return status;
  const dp_error reason = *error;
  return dp_fail(error, status, "%s; step %lld, last good checkpoint: %s", reason.text, (long long)step,
                 s->checkpoint.length ? dp_str_text(&s->checkpoint) : "none");
}

static dp_status take_step(exec_session *s, exec_session_report *report, plan_timeline *timeline, dp_error *error) {
  const plan_train *train = &s->options.scenario->train;
  const exec_batch *batch = NULL;
  DP_TRY(exec_agree(s->options.transport, exec_dataset_batch(s->dataset, s->done, &batch, error), error));
  exec_session_lane *lane = &s->lanes[batch->bucket];
  exec_objective_begin(&lane->objective, s->done, batch);
  const bool looks = s->psnr && train->psnr_every > 0 && (s->done + 1) % train->psnr_every == 0;
  const bool timed = lane->pipeline == s->pipeline;
  const double rate = exec_learning_rate(train, s->done, s->options.steps);
  const exec_step step = {.adamw = {.lr = rate,
                                    .beta1 = train->betas[0],
                                    .beta2 = train->betas[1],
                                    .epsilon = train->epsilon,
                                    .weight_decay = train->weight_decay,
                                    .step = s->done + 1},
                          .rank_rates = train->stage_rates,
                          .clip_norm = train->clip_norm,
                          .measure_skips = looks,
                          .means_decay = train->ema_decay};
  exec_step_result result = {.rank_norms = s->rank_norms, .psnr = looks ? s->psnr : NULL};
  DP_TRY(exec_pipeline_step(lane->pipeline, &step, &result, timed ? timeline : NULL, error));
  s->done++;
  *report = (exec_session_report){.step = s->done,
                                  .epoch = batch->epoch,
                                  .loss = result.loss,
                                  .learning_rate = rate,
                                  .gradient_norm = result.gradient_norm,
                                  .rank_norms = s->rank_norms,
                                  .psnr = looks ? s->psnr : NULL,
                                  .timed = timed && timeline};
  return DP_OK;
}

dp_status exec_session_step(exec_session *s, exec_session_report *report, plan_timeline *timeline, dp_error *error) {
  const int64_t step = s->done + 1;
  return exec_session_blame(s, step, take_step(s, report, timeline, error), error);
}

static dp_status evaluate(exec_session *s, bool means, exec_evaluation *evaluation, dp_error *error) {
  const int64_t each = s->global_batch, wanted = s->options.scenario->train.evaluate_samples;
  const int64_t batches = wanted > each ? (wanted + each - 1) / each : 1;
  const exec_step step = {.evaluate = true, .use_means = means};
  double sums[EXEC_QUANTILES] = {0}, total = 0;
  int64_t counts[EXEC_QUANTILES] = {0};
  for (int64_t b = 0; b < batches; b++) {
    const exec_batch *batch = NULL;
    exec_step_result result = {.squares = s->squares};
    DP_TRY(exec_agree(s->options.transport, exec_dataset_batch(s->dataset, b, &batch, error), error));
    exec_session_lane *lane = &s->lanes[batch->bucket];
    exec_objective_begin_evaluation(&lane->objective, b, batches, batch);
    DP_TRY(exec_pipeline_step(lane->pipeline, &step, &result, NULL, error));
    for (int64_t i = 0; i < each; i++) {
      const int quantile = (int)((b * each + i) % EXEC_QUANTILES);
      sums[quantile] += s->squares[i];
      total += s->squares[i];
      counts[quantile]++;
    }
  }
  *evaluation = (exec_evaluation){.samples = batches * each, .loss = total / (double)(batches * each)};
  for (int q = 0; q < EXEC_QUANTILES; q++)
    evaluation->quantiles[q] = counts[q] ? sums[q] / (double)counts[q] : (double)NAN;
  return DP_OK;
}

dp_status exec_session_evaluate(exec_session *s, bool means, exec_evaluation *evaluation, dp_error *error) {
  if (means && !s->means) return dp_fail(error, DP_INTERNAL, "an evaluation of running means that are not kept");
  return exec_session_blame(s, s->done + 1, evaluate(s, means, evaluation, error), error);
}
