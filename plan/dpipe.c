#include "plan/dpipe.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/allowed.h"
#include "base/file.h"
#include "plan/describe.h"
#include "plan/dpipe_reader.h"

const char *const plan_dpipe_family_names[] = {"sdxl", "sd3", "flux", NULL};
const char *const plan_dpipe_family_classes[] = {"UNet2DConditionModel", "SD3Transformer2DModel",
                                                 "FluxTransformer2DModel", NULL};
const char *const plan_dpipe_checkpointing_names[] = {"false", "true", "'unsloth'"};
const char *const plan_dpipe_partition_names[] = {"parameters", "uniform", "manual", NULL};
const char *const plan_dpipe_dtype_names[] = {"float32", "float16", "bfloat16", "float8"};

/* Sources: torch and bitsandbytes (states in the weights' dtype; 8 bits a state), optimi (Kahan's compensation beside
 * low-precision weights), the project's optimizers/ (adamw_8bit.py: 8-bit states and a compensation; automagic.py:
 * 8-bit learning rates, a sign, a factored second moment; generic_optim.py: by its settings), pytorch_optimizer. */
static const plan_dpipe_optimizer optimizers[] = {
    {"adamw", 2, 0, PLAN_ADAMW, "two moments in the weights' dtype"},
    {"adamw_optimi", 3, 0, PLAN_ADAMW, "two moments and a compensation in the weights' dtype"},
    {"stableadamw", 3, 0, PLAN_ADAMW, "two moments and a compensation in the weights' dtype"},
    {"adamw8bit", 0, 2, PLAN_ADAMW_8BIT, "two moments in 8 bits"},
    {"adamw8bitkahan", 1, 2, PLAN_ADAMW_8BIT, "two moments in 8 bits, a compensation in the weights' dtype"},
    {"automagic", 0, 2.1, PLAN_ADAMW_8BIT, "learning rates in 8 bits, a sign, a factored moment"},
    {"sgd", 1, 0, PLAN_SGD, "one momentum in the weights' dtype"},
    {"offload", 0, 0, PLAN_ADAFACTOR, "states in the host's memory; copies to and from there take no time here"},
    {"genericoptim", 2, 0, PLAN_ADAMW, "taken as adamw: its states depend on its settings"},
    {"prodigy", 4, 0, PLAN_ADAMW, "four values a weight in the weights' dtype"},
    {"came", 1, 0.1, PLAN_ADAFACTOR, "one moment in the weights' dtype, factored ones beside it"},
    {"adafactor", 0, 0.01, PLAN_ADAFACTOR, "a factored second moment"},
    {"lion", 1, 0, PLAN_SGD, "one moment in the weights' dtype"},
};

const plan_dpipe_optimizer *plan_dpipe_optimizer_find(const char *name) {
  char lower[40];
  const size_t n = strlen(name);
  if (n >= sizeof lower) return NULL;
  for (size_t i = 0; i <= n; i++) lower[i] = (char)tolower((unsigned char)name[i]);
  for (size_t i = 0; i < DP_COUNT_OF(optimizers); i++)
    if (strcmp(optimizers[i].name, lower) == 0) return &optimizers[i];
  return NULL;
}

/* ---- tables whose other keys are somebody else's ---- */

static bool is_field(const plan_dpipe_section *s, const char *key) {
  for (size_t f = 0; f < s->field_count; f++)
    if (strcmp(s->fields[f].key, key) == 0) return true;
  return false;
}

dp_status plan_dpipe_read_section(plan_dpipe *c, const plan_dpipe_section *s, const dp_node *table, void *target,
                                  dp_error *error) {
  if (table->kind != DP_NODE_TABLE)
    return dp_schema_read(table, NULL, s->name, s->fields, s->field_count, target, error);
  dp_node known = *table;
  known.items = DP_ARENA_NEW(&c->arena, dp_node *, table->count + 1);
  if (!known.items) return dp_fail_memory(error);
  known.count = 0;
  for (size_t i = 0; i < table->count; i++) {
    dp_node *item = table->items[i];
    if (is_field(s, item->key)) {
      known.items[known.count++] = item;
      continue;
    }
    plan_dpipe_key key = {dp_arena_printf(&c->arena, "%s%s", s->prefix, item->key), item, false};
    for (int o = 0; s->others[o]; o++) key.known = key.known || strcmp(s->others[o], item->key) == 0;
    bool listed = false; /* directories have the same keys many times */
    for (size_t k = 0; key.name && k < c->unused.count; k++)
      listed = listed || strcmp(c->unused.items[k].name, key.name) == 0;
    if (!key.name || (!listed && !dp_array_push(&c->unused, key))) return dp_fail_memory(error);
  }
  return dp_schema_read(&known, NULL, s->name, s->fields, s->field_count, target, error);
}

/* ---- the configuration ---- */

typedef struct top_keys {
  const char *dataset;
  int64_t pipeline_stages, gradient_accumulation_steps, blocks_to_swap;
  const dp_node *micro_batch, *image_micro_batch, *activation_checkpointing, *partition_split, *model, *adapter,
      *optimizer;
  const char *partition_method;
  bool compile;
} top_keys;

#define ROW(key, type, target, min, max, help) \
  { #key, type, offsetof(top_keys, target), false, min, max, NULL, help }
static const dp_field top_fields[] = {
    ROW(dataset, DP_FIELD_STRING, dataset, 0, 0, "the dataset file, relative to the configuration, else as written"),
    ROW(pipeline_stages, DP_FIELD_INTEGER, pipeline_stages, 1, 65536, "default 1; must divide the GPUs"),
    ROW(gradient_accumulation_steps, DP_FIELD_INTEGER, gradient_accumulation_steps, 1, 1e6,
        "micro batches a step and replica; default 1"),
    ROW(micro_batch_size_per_gpu, DP_FIELD_NODE, micro_batch, 0, 0,
        "samples, or [[size, samples], ...] by the square root of the pixels; default 1"),
    ROW(image_micro_batch_size_per_gpu, DP_FIELD_NODE, image_micro_batch, 0, 0,
        "the same for pictures; default micro_batch_size_per_gpu"),
    ROW(activation_checkpointing, DP_FIELD_NODE, activation_checkpointing, 0, 0,
        "true, false or 'unsloth'; default false"),
    ROW(partition_method, DP_FIELD_STRING, partition_method, 0, 0, "parameters, uniform or manual; default parameters"),
    ROW(partition_split, DP_FIELD_NODE, partition_split, 0, 0,
        "with manual: the first layer of every stage but the first, ascending"),
    ROW(blocks_to_swap, DP_FIELD_INTEGER, blocks_to_swap, 0, 10000,
        "blocks kept in the host's memory: flux with an adapter and one stage; default 0"),
    ROW(compile, DP_FIELD_BOOLEAN, compile, 0, 0, "torch.compile: predicted as without; default false"),
    {"model", DP_FIELD_NODE, offsetof(top_keys, model), true, 0, 0, NULL, "[model]"},
    ROW(adapter, DP_FIELD_NODE, adapter, 0, 0, "[adapter]; without it all weights are trained"),
    {"optimizer", DP_FIELD_NODE, offsetof(top_keys, optimizer), true, 0, 0, NULL, "[optimizer]"},
};
#undef ROW
static const char *const top_others[] = {"output_dir",
                                         "eval_datasets",
                                         "epochs",
                                         "max_steps",
                                         "gradient_clipping",
                                         "warmup_steps",
                                         "force_constant_lr",
                                         "lr_scheduler",
                                         "pseudo_huber_c",
                                         "huber_delta",
                                         "smooth_l1_beta",
                                         "eval_every_n_epochs",
                                         "eval_every_n_steps",
                                         "eval_every_n_examples",
                                         "eval_before_first_step",
                                         "eval_micro_batch_size_per_gpu",
                                         "eval_image_micro_batch_size_per_gpu",
                                         "image_eval_micro_batch_size_per_gpu",
                                         "eval_gradient_accumulation_steps",
                                         "disable_block_swap_for_eval",
                                         "save_every_n_epochs",
                                         "save_every_n_steps",
                                         "save_every_n_examples",
                                         "checkpoint_every_n_epochs",
                                         "checkpoint_every_n_minutes",
                                         "reentrant_activation_checkpointing",
                                         "save_dtype",
                                         "caching_batch_size",
                                         "map_num_proc",
                                         "steps_per_print",
                                         "logging_steps",
                                         "video_clip_mode",
                                         "x_axis_examples",
                                         "uncond_fraction",
                                         "resume_from_checkpoint",
                                         "regenerate_cache",
                                         "monitoring",
                                         NULL};

static const char *const dtype_choices[] = {"float32", "float16", "bfloat16", NULL};
static const char *const transformer_dtype_choices[] = {"float32",       "float16",     "bfloat16", "float8",
                                                        "float8_e4m3fn", "float8_e5m2", NULL};

typedef struct model_keys {
  int type, dtype, transformer_dtype;
  const char *diffusers_path, *transformer_path, *checkpoint_path;
} model_keys;

static const dp_field model_fields[] = {
    {"type", DP_FIELD_CHOICE, offsetof(model_keys, type), true, 0, 0, plan_dpipe_family_names, "the model's family"},
    {"dtype", DP_FIELD_CHOICE, offsetof(model_keys, dtype), true, 0, 0, dtype_choices, "dtype of weights and arithmetic"},
    {"transformer_dtype", DP_FIELD_CHOICE, offsetof(model_keys, transformer_dtype), false, 0, 0,
     transformer_dtype_choices, "sd3, flux: of the blocks' matrices; default dtype"},
    {"diffusers_path", DP_FIELD_STRING, offsetof(model_keys, diffusers_path), false, 0, 0, NULL,
     "sd3, flux: its transformer/config.json is read where there is one; else its name tells the variant"},
    {"transformer_path", DP_FIELD_STRING, offsetof(model_keys, transformer_path), false, 0, 0, NULL,
     "flux: its name tells dev from schnell"},
    {"checkpoint_path", DP_FIELD_STRING, offsetof(model_keys, checkpoint_path), false, 0, 0, NULL,
     "sdxl: of a folder, unet/config.json is read where there is one"},
};
static const char *const model_others[] = {"ckpt_path",
                                           "single_file_path",
                                           "vae_path",
                                           "llm_path",
                                           "clip_path",
                                           "text_encoder_path",
                                           "text_encoders",
                                           "guidance",
                                           "shift",
                                           "flux_shift",
                                           "v_pred",
                                           "timestep_sample_method",
                                           "sigmoid_scale",
                                           "min_snr_gamma",
                                           "unet_lr",
                                           "lumina_shift",
                                           "llama3_path",
                                           "bypass_guidance_embedding",
                                           "merge_adapters",
                                           "diffusion_model",
                                           "vae",
                                           "llama3_4bit",
                                           "min_t",
                                           "debiased_estimation_loss",
                                           "max_t",
                                           "byt5_path",
                                           "max_llama3_sequence_length",
                                           "text_encoder_1_lr",
                                           "text_encoder_2_lr",
                                           "cache_text_embeddings",
                                           "first_frame_conditioning_p",
                                           "diffusion_model_dtype",
                                           NULL};

typedef struct adapter_keys {
  int type, dtype;
  int64_t rank;
} adapter_keys;
static const char *const adapter_choices[] = {"lora", NULL};
static const dp_field adapter_fields[] = {
    {"type", DP_FIELD_CHOICE, offsetof(adapter_keys, type), true, 0, 0, adapter_choices, "lora; lokr is not modelled"},
    {"rank", DP_FIELD_INTEGER, offsetof(adapter_keys, rank), true, 1, 65536, NULL, "of the adapters"},
    {"dtype", DP_FIELD_CHOICE, offsetof(adapter_keys, dtype), false, 0, 0, dtype_choices,
     "of the adapters; default model.dtype"},
};
static const char *const adapter_others[] = {"dropout",       "decompose_factor", "rank_dropout", "init_from_existing",
                                             "fuse_adapters", "exclude_modules",  "alpha",        NULL};

typedef struct optimizer_keys {
  const char *type;
  bool gradient_release;
} optimizer_keys;
static const dp_field optimizer_fields[] = {
    {"type", DP_FIELD_STRING, offsetof(optimizer_keys, type), true, 0, 0, NULL,
     "adamw, adamw_optimi, stableadamw, adamw8bit, AdamW8bitKahan, automagic, sgd, offload, Prodigy, CAME, ...; "
     "another "
     "is taken as adamw"},
    {"gradient_release", DP_FIELD_BOOLEAN, offsetof(optimizer_keys, gradient_release), false, 0, 0, NULL,
     "gradients are used as they appear and not kept; default false"},
};
static const char *const optimizer_others[] = {"lr",
                                               "betas",
                                               "weight_decay",
                                               "eps",
                                               "stabilize",
                                               "momentum",
                                               "beta2_half_life",
                                               "foreach",
                                               "fused",
                                               "amsgrad",
                                               "d_coef",
                                               "use_bias_correction",
                                               "safeguard_warmup",
                                               "nesterov",
                                               "rank",
                                               "proj_type",
                                               "clip_threshold",
                                               "update_proj_gap",
                                               "second_moment_type",
                                               "muon",
                                               "automagic",
                                               "min_lr",
                                               "max_lr",
                                               "lr_bump",
                                               "kahan_sum",
                                               NULL};

static const plan_dpipe_section top_section = {"config", "", top_fields, DP_COUNT_OF(top_fields), top_others};
static const plan_dpipe_section model_section = {"model", "model.", model_fields, DP_COUNT_OF(model_fields),
                                                 model_others};
static const plan_dpipe_section adapter_section = {"adapter", "adapter.", adapter_fields, DP_COUNT_OF(adapter_fields),
                                                   adapter_others};
static const plan_dpipe_section optimizer_section = {"optimizer", "optimizer.", optimizer_fields,
                                                     DP_COUNT_OF(optimizer_fields), optimizer_others};

const dp_node *plan_dpipe_node(const plan_dpipe *config, const char *table, const char *key) {
  const dp_node *root = config->document.root, *in = table ? dp_node_get(root, table) : root;
  const dp_node *node = dp_node_get(in, key);
  return node ? node : in ? in : root;
}

static dp_status read_batches(plan_dpipe *c, const dp_node *node, const char *what, dp_error *error) {
  char shown[80];
  if (node->kind != DP_NODE_ARRAY) {
    if (node->kind != DP_NODE_INTEGER || node->integer < 1 || node->integer > 65536)
      return dp_fail_at(error, node, "config.%s: found %s, allowed: 1 to 65536, or a list of [size, samples]", what,
                        dp_node_show(node, shown));
    const plan_dpipe_batch any = {0, node->integer};
    return dp_array_push(&c->batches, any) ? DP_OK : dp_fail_memory(error);
  }
  for (size_t i = 0; i < node->count; i++) {
    const dp_node *item = node->items[i];
    const bool pair = item->kind == DP_NODE_ARRAY && item->count == 2;
    const dp_node *size = pair ? item->items[0] : NULL, *batch = pair ? item->items[1] : NULL;
    if (!pair || (size->kind != DP_NODE_INTEGER && size->kind != DP_NODE_REAL) || !(size->real > 0) ||
        batch->kind != DP_NODE_INTEGER || batch->integer < 1 || batch->integer > 65536)
      return dp_fail_at(error, item, "config.%s: found %s, allowed: pairs [size, samples], samples 1 to 65536", what,
                        dp_node_show(item, shown));
    const plan_dpipe_batch row = {size->real, batch->integer};
    if (!dp_array_push(&c->batches, row)) return dp_fail_memory(error);
  }
  if (c->batches.count) return DP_OK;
  return dp_fail_at(error, node, "config.%s: found an empty list, needed: pairs [size, samples]", what);
}

static dp_status read_partition(plan_dpipe *c, const top_keys *keys, dp_error *error) {
  const dp_node *node = plan_dpipe_node(c, NULL, "partition_method");
  if (keys->partition_method) {
    int m = 0; /* DeepSpeed looks at it in lower case */
    while (plan_dpipe_partition_names[m]) {
      const char *a = plan_dpipe_partition_names[m], *b = keys->partition_method;
      while (*a && *a == (char)tolower((unsigned char)*b)) a++, b++;
      if (!*a && !*b) break;
      m++;
    }
    if (!plan_dpipe_partition_names[m])
      return dp_fail_at(error, node, "config.partition_method: found \"%.80s\", allowed: parameters, uniform, manual",
                        keys->partition_method);
    c->partition = (plan_dpipe_partition)m;
  }
  if (keys->partition_split)
    DP_TRY(dp_schema_read_integers(keys->partition_split, "config.partition_split", 1, 65535, &c->arena, &c->split,
                                   &c->split_count, error));
  if (c->partition != PLAN_DPIPE_MANUAL) return DP_OK;
  if (!keys->partition_split && c->stages > 1)
    return dp_fail_at(
        error, node,
        "config.partition_method: found \"manual\" without partition_split, needed: partition_split, %lld "
        "first layers of stages",
        (long long)c->stages - 1);
  if ((int64_t)c->split_count != c->stages - 1)
    return dp_fail_at(error, keys->partition_split ? keys->partition_split : node,
                      "config.partition_split: found %zu items, allowed: %lld (pipeline_stages - 1)", c->split_count,
                      (long long)c->stages - 1);
  for (size_t i = 1; i < c->split_count; i++)
    if (c->split[i] <= c->split[i - 1])
      return dp_fail_at(error, keys->partition_split,
                        "config.partition_split: found %lld after %lld, allowed: ascending layers",
                        (long long)c->split[i], (long long)c->split[i - 1]);
  return DP_OK;
}

static dp_status read_top(plan_dpipe *c, const top_keys *keys, dp_error *error) {
  char shown[80];
  c->dataset_path = keys->dataset;
  c->stages = keys->pipeline_stages;
  c->accumulation = keys->gradient_accumulation_steps;
  c->blocks_to_swap = keys->blocks_to_swap;
  c->compile = keys->compile;
  c->batch_key = keys->image_micro_batch ? "image_micro_batch_size_per_gpu" : "micro_batch_size_per_gpu";
  const plan_dpipe_batch one = {0, 1};
  const dp_node *batch = keys->image_micro_batch ? keys->image_micro_batch : keys->micro_batch;
  if (batch)
    DP_TRY(read_batches(c, batch, c->batch_key, error));
  else if (!dp_array_push(&c->batches, one))
    return dp_fail_memory(error);
  const dp_node *how = keys->activation_checkpointing;
  if (how && how->kind == DP_NODE_BOOLEAN)
    c->checkpointing = how->boolean ? PLAN_DPIPE_RECOMPUTE : PLAN_DPIPE_KEEP_ALL;
  else if (how && how->kind == DP_NODE_STRING && strcmp(how->string, "unsloth") == 0)
    c->checkpointing = PLAN_DPIPE_UNSLOTH;
  else if (how)
    return dp_fail_at(error, how, "config.activation_checkpointing: found %s, allowed: true, false, 'unsloth'",
                      dp_node_show(how, shown));
  return read_partition(c, keys, error);
}

static plan_dpipe_dtype dtype_of(int choice) {
  return choice >= PLAN_DPIPE_FP8 ? PLAN_DPIPE_FP8 : (plan_dpipe_dtype)choice;
}

static dp_status read_model(plan_dpipe *c, const dp_node *table, dp_error *error) {
  model_keys keys = {.transformer_dtype = -1};
  DP_TRY(plan_dpipe_read_section(c, &model_section, table, &keys, error));
  c->family = (plan_dpipe_family)keys.type;
  c->dtype = dtype_of(keys.dtype);
  c->transformer_dtype = keys.transformer_dtype < 0 ? c->dtype : dtype_of(keys.transformer_dtype);
  c->diffusers_path = keys.diffusers_path;
  c->transformer_path = keys.transformer_path;
  c->checkpoint_path = keys.checkpoint_path;
  const dp_node *node = dp_node_get(table, "transformer_dtype");
  if (node && c->family == PLAN_DPIPE_SDXL)
    c->transformer_dtype = c->dtype; /* that model does not look at it */
  else if (c->transformer_dtype != c->dtype && c->transformer_dtype != PLAN_DPIPE_FP8)
    return dp_fail_at(error, node,
                      "model.transformer_dtype: found \"%s\" with dtype = \"%s\", allowed: float8 or dtype",
                      plan_dpipe_dtype_names[c->transformer_dtype], plan_dpipe_dtype_names[c->dtype]);
  return DP_OK;
}

static dp_status read_adapter(plan_dpipe *c, const dp_node *table, dp_error *error) {
  adapter_keys keys = {.dtype = -1};
  DP_TRY(plan_dpipe_read_section(c, &adapter_section, table, &keys, error));
  const dp_node *alpha = dp_node_get(table, "alpha");
  if (alpha)
    return dp_fail_at(error, alpha,
                      "adapter.alpha: found, allowed: none, diffusion-pipe takes alpha = rank and stops here");
  c->lora = true;
  c->rank = keys.rank;
  c->adapter_dtype = keys.dtype < 0 ? c->dtype : dtype_of(keys.dtype);
  return DP_OK;
}

/* What diffusion-pipe stops at. */
static dp_status check_together(const plan_dpipe *c, dp_error *error) {
  const dp_node *swap = plan_dpipe_node(c, NULL, "blocks_to_swap");
  if (!c->lora && c->transformer_dtype == PLAN_DPIPE_FP8)
    return dp_fail_at(error, plan_dpipe_node(c, "model", "transformer_dtype"),
                      "model.transformer_dtype: found \"float8\" without [adapter], allowed: only with an adapter");
  if (!c->blocks_to_swap) return DP_OK;
  if (c->family != PLAN_DPIPE_FLUX)
    return dp_fail_at(error, swap, "config.blocks_to_swap: found with model.type = \"%s\", allowed: only with flux",
                      plan_dpipe_family_names[c->family]);
  if (c->stages != 1)
    return dp_fail_at(
        error, swap, "config.blocks_to_swap: found with pipeline_stages = %lld, allowed: only with pipeline_stages = 1",
        (long long)c->stages);
  if (!c->lora)
    return dp_fail_at(error, swap, "config.blocks_to_swap: found without [adapter], allowed: only with an adapter");
  return DP_OK;
}

static dp_status read_root(plan_dpipe *c, dp_error *error) {
  top_keys keys = {.pipeline_stages = 1, .gradient_accumulation_steps = 1};
  DP_TRY(plan_dpipe_read_section(c, &top_section, c->document.root, &keys, error));
  DP_TRY(read_top(c, &keys, error));
  DP_TRY(read_model(c, keys.model, error));
  if (keys.adapter) DP_TRY(read_adapter(c, keys.adapter, error));
  optimizer_keys optimizer = {0};
  DP_TRY(plan_dpipe_read_section(c, &optimizer_section, keys.optimizer, &optimizer, error));
  c->optimizer_name = optimizer.type;
  c->optimizer = plan_dpipe_optimizer_find(optimizer.type);
  c->optimizer_known = c->optimizer != NULL;
  if (!c->optimizer) c->optimizer = &optimizers[0];
  c->gradient_release = optimizer.gradient_release;
  return check_together(c, error);
}

static dp_status finish(plan_dpipe *made, plan_dpipe *config, dp_error *error) {
  const dp_status status = read_root(made, error);
  if (status == DP_OK)
    *config = *made;
  else
    plan_dpipe_free(made);
  return status;
}

dp_status plan_dpipe_read(const char *path, const char *const *sets, int set_count, plan_dpipe *config,
                          dp_error *error) {
  plan_dpipe made = {0};
  dp_status status = dp_document_read(path, &made.document, error);
  for (int i = 0; i < set_count && status == DP_OK; i++) status = dp_document_set(&made.document, sets[i], error);
  if (status == DP_OK) return finish(&made, config, error);
  plan_dpipe_free(&made);
  return status;
}

dp_status plan_dpipe_parse(const char *text, size_t length, const char *name, plan_dpipe *config, dp_error *error) {
  plan_dpipe made = {0};
  DP_TRY(dp_document_parse_toml(text, length, name, &made.document, error));
  return finish(&made, config, error);
}

void plan_dpipe_free(plan_dpipe *config) {
  dp_array_free(&config->batches);
  dp_array_free(&config->buckets);
  dp_array_free(&config->unused);
  dp_document_free(&config->dataset);
  dp_document_free(&config->document);
  dp_arena_free(&config->arena);
  *config = (plan_dpipe){0};
}

int64_t plan_dpipe_batch_of(const plan_dpipe *config, const plan_dpipe_bucket *bucket) {
  const double size = sqrt((double)bucket->width * (double)bucket->height);
  const plan_dpipe_batch *nearest = &config->batches.items[0];
  for (size_t i = 1; i < config->batches.count; i++)
    if (fabs(config->batches.items[i].size - size) < fabs(nearest->size - size)) nearest = &config->batches.items[i];
  return nearest->batch;
}

size_t plan_dpipe_tables(const plan_key_table **tables) {
  static const plan_key_table all[] = {
      {"diffusion-pipe: the top of the configuration", top_fields, DP_COUNT_OF(top_fields)},
      {"diffusion-pipe: [model]", model_fields, DP_COUNT_OF(model_fields)},
      {"diffusion-pipe: [adapter]", adapter_fields, DP_COUNT_OF(adapter_fields)},
      {"diffusion-pipe: [optimizer]", optimizer_fields, DP_COUNT_OF(optimizer_fields)},
  };
  *tables = all;
  return DP_COUNT_OF(all);
}
