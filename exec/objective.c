#include "exec/objective.h"

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "graph/op_table.h"

/* ---- the schedule ---- */

static bool is_unet(const graph *g) { return strcmp(g->class_name, "UNet2DConditionModel") == 0; }
static bool is_flux(const graph *g) { return strcmp(g->class_name, "FluxTransformer2DModel") == 0; }

/* Stable Diffusion's noise, SD 3's shift. Flux's own is shifted by the image's size while it samples, not in training.
 */
static void usual_scheduler(const graph *g, bool flow, exec_scheduler_options *options) {
  exec_scheduler_defaults(flow ? EXEC_FLOW_EULER : EXEC_DDPM, options);
  options->betas = EXEC_SCALED_LINEAR;
  options->beta_start = 0.00085;
  options->beta_end = 0.012;
  options->clip_sample = false;
  if (flow && !is_unet(g) && !is_flux(g)) options->shift = 3;
}

dp_status exec_objective_scheduler(const plan_scenario *scenario, const graph *g, exec_scheduler_options *options,
                                   dp_error *error) {
  const plan_train *train = &scenario->train;
  exec_scheduler_options made;
  if (train->scheduler) {
    dp_document document = {0};
    DP_TRY(dp_document_read(train->scheduler, &document, error));
    const dp_status status = exec_scheduler_read(document.root, NULL, &made, error);
    dp_document_free(&document);
    DP_TRY(status);
  } else {
    usual_scheduler(g, train->objective < 0 ? !is_unet(g) : train->objective == EXEC_FLOW, &made);
  }
  if (train->objective >= 0) {
    const bool flow = made.solver == EXEC_FLOW_EULER;
    if (flow != (train->objective == EXEC_FLOW))
      return dp_fail_at(error, plan_scenario_node(scenario, "train", "objective"),
                        "train.objective: found \"%s\" with the scheduler %s, allowed: %s",
                        plan_objective_names[train->objective], exec_solver_names[made.solver],
                        flow ? "flow" : "epsilon, v_prediction or sample");
    made.prediction = (exec_prediction)train->objective;
  }
  *options = made;
  return DP_OK;
}

/* ---- making it ---- */

static const struct {
  const char *name;
  exec_role role;
} inputs[] = {{"sample", EXEC_ROLE_LATENTS},
              {"hidden_states", EXEC_ROLE_LATENTS},
              {"timestep", EXEC_ROLE_TIMESTEP},
              {"encoder_hidden_states", EXEC_ROLE_TEXT},
              {"text_embeds", EXEC_ROLE_POOLED},
              {"time_ids", EXEC_ROLE_TIME_IDS},
              {"pooled_projections", EXEC_ROLE_POOLED},
              {"guidance", EXEC_ROLE_GUIDANCE}};
enum { TIME_IDS = 6, PACK = 2 };

static dp_status take_latents(exec_objective *o, const graph_tensor *t, dp_error *error) {
  const bool image = t->rank == 4;
  o->packed = !image;
  o->sizes.channels = image ? t->dims[1] : t->dims[2] / (PACK * PACK);
  o->sizes.height = image ? t->dims[2] : o->graph->height / EXEC_LATENT_PIXELS;
  o->sizes.width = image ? t->dims[3] : o->graph->width / EXEC_LATENT_PIXELS;
  if (o->graph->frames == 1 && t->rank <= 4 && (image || t->dims[2] % (PACK * PACK) == 0)) return DP_OK;
  return dp_fail(error, DP_UNSUPPORTED, "%s: training is not known for these latents, allowed: images",
                 o->graph->class_name);
}

static dp_status take_input(exec_objective *o, int tensor, dp_error *error) {
  const graph_tensor *t = &o->graph->tensors.items[tensor];
  exec_role role = EXEC_ROLE_NONE;
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
    if (strcmp(t->name, inputs[i].name) == 0) role = inputs[i].role;
  o->roles[tensor] = (uint8_t)role;
  switch (role) {
    case EXEC_ROLE_LATENTS:
      return take_latents(o, t, error);
    case EXEC_ROLE_TEXT:
      o->sizes.text_tokens = t->dims[1];
      o->sizes.text_channels = t->dims[2];
      return DP_OK;
    case EXEC_ROLE_POOLED:
      o->sizes.pooled_channels = t->dims[1];
      return DP_OK;
    case EXEC_ROLE_TIME_IDS:
      if (t->dims[1] == TIME_IDS) return DP_OK;
      return dp_fail(error, DP_UNSUPPORTED, "%s: found %lld time_ids, allowed: %d", o->graph->class_name,
                     (long long)t->dims[1], TIME_IDS);
    case EXEC_ROLE_NONE:
      return dp_fail(error, DP_UNSUPPORTED, "%s: nothing is known to feed its input %s with", o->graph->class_name,
                     t->name);
    default:
      return DP_OK;
  }
}

static dp_status take_tensors(exec_objective *o, dp_error *error) {
  int64_t latents = 0, predicted = 0;
  o->roles = DP_ARENA_NEW(&o->arena, uint8_t, o->graph->tensors.count);
  if (!o->roles) return dp_fail_memory(error);
  for (size_t i = 0; i < o->graph->tensors.count; i++) {
    const graph_tensor *t = &o->graph->tensors.items[i];
    if (t->is_output) {
      o->roles[i] = EXEC_ROLE_TARGET;
      predicted = t->bytes;
    } else if (t->producer_op == GRAPH_NONE && !t->is_constant) {
      DP_TRY(take_input(o, (int)i, error));
      if (o->roles[i] == EXEC_ROLE_LATENTS) latents = t->bytes;
    }
  }
  if (latents == predicted && latents > 0) return DP_OK;
  return dp_fail(error, DP_BAD_INPUT,
                 "%s: the model predicts %lld bytes of latents and is given %lld, allowed: the same, out_channels as "
                 "in_channels",
                 o->graph->config_file, (long long)predicted, (long long)latents);
}

static dp_status make(const plan_scenario *scenario, const plan_plan *plan, exec_objective *o, dp_error *error) {
  exec_scheduler_options options;
  DP_TRY(exec_objective_scheduler(scenario, o->graph, &options, error));
  DP_TRY(exec_scheduler_init(&options, &o->scheduler, error));
  DP_TRY(take_tensors(o, error));
  o->seed = (uint64_t)scenario->train.seed;
  o->min_snr_gamma = scenario->train.min_snr_gamma;
  o->guidance = scenario->train.guidance;
  o->microbatches = plan->microbatches;
  o->microbatch_size = plan->microbatch_size;
  o->global_batch = plan->replicas * plan->microbatches * plan->microbatch_size;
  const bool flow = options.solver == EXEC_FLOW_EULER;
  o->time_factor = flow ? 1000 : 1;
  if (is_flux(o->graph)) o->time_factor /= 1000;
  o->timesteps = DP_ARENA_NEW(&o->arena, double, (size_t)o->global_batch);
  return o->timesteps ? DP_OK : dp_fail_memory(error);
}

dp_status exec_objective_init(const plan_scenario *scenario, const graph *g, const plan_plan *plan,
                              exec_objective *objective, dp_error *error) {
  exec_objective made = {.graph = g};
  const dp_status status = make(scenario, plan, &made, error);
  if (status == DP_OK)
    *objective = made;
  else
    exec_objective_free(&made);
  return status;
}

void exec_objective_free(exec_objective *o) {
  exec_scheduler_free(&o->scheduler);
  dp_arena_free(&o->arena);
  *o = (exec_objective){.graph = NULL};
}

/* ---- numbers ---- */

static double unit_interval(uint32_t bits) { return ((double)bits + 0.5) * 0x1p-32; }

void exec_noise(uint64_t seed, uint64_t stream, int64_t first, int64_t n, float *out) {
  const double two_pi = 6.28318530717958647692;
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  for (int64_t i = 0; i < n; i += 4) {
    const uint64_t block = (uint64_t)(first + i) / 4;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    uint32_t bits[4];
    float normals[4];
    dp_philox4x32(counter, key, bits);
    for (int pair = 0; pair < 2; pair++) {
      const double radius = sqrt(-2 * log(unit_interval(bits[2 * pair]))),
                   angle = two_pi * unit_interval(bits[2 * pair + 1]);
      normals[2 * pair] = (float)(radius * cos(angle));
      normals[2 * pair + 1] = (float)(radius * sin(angle));
    }
    for (int k = 0; k < 4 && i + k < n; k++) out[i + k] = normals[k];
  }
}

/* Keys of their own for noise and for evaluations: timesteps are drawn with the seed and the step alone. */
static const uint64_t noise_key = UINT64_C(0x6e6f697365207831), evaluation_key = UINT64_C(0x6576616c75617465);

static uint64_t key_of(uint64_t seed, uint64_t step) {
  return seed ^ (step * UINT64_C(0x9e3779b97f4a7c15)) ^ noise_key;
}

void exec_objective_begin(exec_objective *o, int64_t step, const exec_batch *batch) {
  o->batch = batch;
  o->training = true;
  o->noise_seed = key_of(o->seed, (uint64_t)step);
  for (int i = 0; i < o->global_batch; i++)
    o->timesteps[i] = exec_scheduler_draw(&o->scheduler, o->seed, (uint64_t)step, (uint64_t)i);
}

void exec_objective_begin_evaluation(exec_objective *o, int64_t index, int64_t count, const exec_batch *batch) {
  const int64_t samples = count * o->global_batch, each = (samples + EXEC_QUANTILES - 1) / EXEC_QUANTILES;
  o->batch = batch;
  o->training = false;
  o->noise_seed = key_of(o->seed ^ evaluation_key, (uint64_t)index);
  for (int s = 0; s < o->global_batch; s++) {
    const int64_t i = index * o->global_batch + s;
    const double within = ((double)(i / EXEC_QUANTILES) + 0.5) / (double)each;
    const double rank = ((double)(i % EXEC_QUANTILES) + within) / EXEC_QUANTILES;
    o->timesteps[s] = exec_scheduler_at(&o->scheduler, rank);
  }
}

/* ---- feeding ---- */

/* Where value i of a sample's latents, [height, width, channels], lies in what the model is given. */
static int64_t place_of(const exec_objective *o, int64_t i) {
  if (!o->packed) return i;
  const int64_t channels = o->sizes.channels, width = o->sizes.width;
  const int64_t c = i % channels, x = i / channels % width, y = i / channels / width;
  const int64_t token = y / PACK * (width / PACK) + x / PACK;
  return (token * channels + c) * PACK * PACK + y % PACK * PACK + x % PACK;
}

static int64_t latents_of(const exec_objective *o) { return o->sizes.height * o->sizes.width * o->sizes.channels; }

/* The noised latents of a sample, and what is to be predicted of them; of these one may be NULL. */
static void make_latents(const exec_objective *o, uint64_t seed, double timestep, int64_t sample, const float *clean,
                         float *given, float *wanted) {
  enum { RUN = 64 };
  const int64_t n = latents_of(o);
  for (int64_t first = 0; first < n; first += RUN) {
    const int64_t count = n - first < RUN ? n - first : RUN;
    float noise[RUN], noised[RUN], predicted[RUN];
    exec_noise(seed, (uint64_t)sample, first, count, noise);
    exec_scheduler_noise(&o->scheduler, timestep, clean + first, noise, count, noised, predicted);
    for (int64_t i = 0; i < count; i++) {
      const int64_t at = place_of(o, first + i);
      if (given) given[at] = noised[i];
      if (wanted) wanted[at] = predicted[i];
    }
  }
}

void exec_objective_prepare(const exec_objective *o, int64_t step, int64_t sample, const float *latents, float *given,
                            float *wanted) {
  const double timestep = exec_scheduler_draw(&o->scheduler, o->seed, (uint64_t)step, (uint64_t)sample);
  make_latents(o, key_of(o->seed, (uint64_t)step), timestep, sample, latents, given, wanted);
}

static void fill_latents(const exec_objective *o, int64_t sample, bool target, float *out) {
  const exec_sample_view *view = &o->batch->samples[sample];
  const float *const prepared = !o->training ? NULL : target ? view->wanted : view->given;
  if (prepared)
    memcpy(out, prepared, (size_t)latents_of(o) * sizeof *out);
  else
    make_latents(o, o->noise_seed, o->timesteps[sample], sample, view->latents, target ? NULL : out,
                 target ? out : NULL);
}

static void fill_sample(const exec_objective *o, exec_role role, int64_t sample, float *out) {
  const exec_sample_view *view = &o->batch->samples[sample];
  switch (role) {
    case EXEC_ROLE_LATENTS:
    case EXEC_ROLE_TARGET:
      fill_latents(o, sample, role == EXEC_ROLE_TARGET, out);
      return;
    case EXEC_ROLE_TIMESTEP:
      *out = (float)(o->timesteps[sample] * o->time_factor);
      return;
    case EXEC_ROLE_TEXT:
      memcpy(out, view->text, (size_t)(o->sizes.text_tokens * o->sizes.text_channels) * sizeof *out);
      return;
    case EXEC_ROLE_POOLED:
      memcpy(out, view->pooled, (size_t)o->sizes.pooled_channels * sizeof *out);
      return;
    case EXEC_ROLE_TIME_IDS: {
      const int64_t ids[TIME_IDS] = {view->original_height,
                                     view->original_width,
                                     view->crop_top,
                                     view->crop_left,
                                     o->sizes.height * EXEC_LATENT_PIXELS,
                                     o->sizes.width * EXEC_LATENT_PIXELS};
      for (int i = 0; i < TIME_IDS; i++) out[i] = (float)ids[i];
      return;
    }
    default:
      *out = (float)o->guidance;
  }
}

static int64_t first_sample(const exec_objective *o, int replica, int microbatch) {
  return ((int64_t)replica * o->microbatches + microbatch) * o->microbatch_size;
}

static void fill(void *data, int replica, int microbatch, int tensor, float *out) {
  const exec_objective *o = data;
  const graph_tensor *t = &o->graph->tensors.items[tensor];
  const int64_t each = t->dims[0] > 0 ? graph_tensor_elements(t) / t->dims[0] : 0;
  for (int s = 0; s < o->microbatch_size; s++)
    fill_sample(o, (exec_role)o->roles[tensor], first_sample(o, replica, microbatch) + s, out + s * each);
}

static void weigh(void *data, int replica, int microbatch, float *out) {
  const exec_objective *o = data;
  for (int s = 0; s < o->microbatch_size; s++) {
    const double t = o->timesteps[first_sample(o, replica, microbatch) + s];
    out[s] = o->min_snr_gamma > 0 ? (float)exec_scheduler_min_snr(&o->scheduler, t, o->min_snr_gamma) : 1;
  }
}

exec_feed exec_objective_feed(exec_objective *o) { return (exec_feed){.fill = fill, .weigh = weigh, .data = o}; }
