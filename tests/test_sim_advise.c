/* Advice on diffusion-pipe configurations. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/advise.h"
#include "sim/predict.h"
#include "tests/scratch.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"

static plan_dpipe config;
static plan_scenario scenario;
static sim_advise_result result;

static dp_status try_advise(const char *text, const char *sizes, const char *cluster, dp_error *error) {
  const sim_advise_options how = {.cluster = cluster};
  *error = (dp_error)DP_ERROR_INIT;
  ck_assert_msg(plan_dpipe_parse(text, strlen(text), "c.toml", &config, error) == DP_OK, "%s", error->text);
  ck_assert_msg(plan_dpipe_parse_dataset(&config, sizes, strlen(sizes), "d.toml", error) == DP_OK, "%s", error->text);
  return sim_advise(&config, efficiency, &how, &scenario, &result, error);
}

static void advise(const char *text, const char *sizes, const char *cluster) {
  dp_error error;
  ck_assert_msg(try_advise(text, sizes, cluster, &error) == DP_OK, "%s", error.text);
}

static void end(void) {
  sim_advise_result_free(&result);
  plan_scenario_free(&scenario);
  plan_dpipe_free(&config);
}

#define SQUARES "resolutions=[1024]\n[[directory]]\n"
#define SMALL "resolutions=[512]\n[[directory]]\n"
#define FLUX \
  "[model]\ntype='flux'\ndtype='bfloat16'\n[optimizer]\ntype='adamw_optimi'\n[adapter]\ntype='lora'\nrank=16\n"
#define SDXL "[model]\ntype='sdxl'\ndtype='bfloat16'\n[optimizer]\ntype='adamw_optimi'\n"
#define SD3 "[model]\ntype='sd3'\ndtype='bfloat16'\n[optimizer]\ntype='adamw8bit'\n[adapter]\ntype='lora'\nrank=16\n"
#define CARDS "clusters/4xrtx4090.toml"

/* As to_layers() makes them. */
START_TEST(layers_of_the_models) {
  advise("pipeline_stages=2\n" SDXL, SMALL, CARDS);
  ck_assert_int_eq(result.layers, 23);
  int64_t sum = 0;
  for (int l = 0; l < 23; l++) sum += result.layer_weights[l];
  ck_assert_int_eq(sum, 2567463684 + PLAN_DPIPE_TEXT_ENCODERS);
  ck_assert_str_eq(result.layer_names[9], "mid_block.resnets.0");
  ck_assert_str_eq(result.layer_names[10], "mid_block.attentions.0.transformer_blocks.0");
  ck_assert_str_eq(result.layer_names[11], "up_blocks.0.resnets.0");
  ck_assert_int_eq(result.now.split[0], 10); /* DeepSpeed's function, on these weights */
  end();
  advise("pipeline_stages=4\n" FLUX, SMALL, CARDS);
  ck_assert_int_eq(result.layers, 59);
  ck_assert_str_eq(result.layer_names[20], "single_transformer_blocks.0");
  end();
  advise("pipeline_stages=2\npartition_method='uniform'\n" SD3, SMALL, CARDS);
  ck_assert_int_eq(result.layers, 26);
  ck_assert_int_eq(result.now.split[0], 13);
  end();
}
END_TEST

/* Rank r of every linear layer of Flux's blocks: attention 8 projections of 3072 + 3072, two feed-forwards, two
 * modulations in a double block; q, k, v, mlp, out, modulation in a single one. */
START_TEST(adapters_on_all_linear_layers) {
  advise("pipeline_stages=4\n" FLUX, SMALL, CARDS);
  const int64_t w = 3072, two = 8 * 2 * w + 2 * 2 * 5 * w + 2 * (w + 6 * w);
  const int64_t one = 3 * 2 * w + 5 * w + (5 * w + w) + (w + 3 * w);
  ck_assert_int_eq(result.trainable_parameters, 16 * (19 * two + 38 * one));
  end();
}
END_TEST

static int64_t global_batch(const sim_advise_setting *s) {
  return s->accumulation * s->replicas * (s->micro_batch ? s->micro_batch : 1);
}

static void check_proposal(const sim_advise_proposal *p) {
  ck_assert(p->mix.fits);
  ck_assert_int_eq(global_batch(&p->setting), global_batch(&result.now));
  ck_assert_int_eq(p->setting.stages * p->setting.replicas, result.gpus);
  ck_assert_double_eq_tol(p->gain, p->mix.throughput_samples_per_s / result.mix.throughput_samples_per_s - 1, 1e-12);
  int64_t before = 0;
  for (int s = 0; s + 1 < p->setting.stages; s++) {
    ck_assert_int_gt(p->setting.split[s], before);
    before = p->setting.split[s];
  }
  ck_assert_int_lt(before, result.layers);
  if (p->change_count == 1 && p->changes[0].possible) ck_assert_double_eq_tol(p->changes[0].gain, p->gain, 1e-12);
}

/* Two thirds of the work on the first card: moving the cuts must pay, and the global batch stays. */
START_TEST(a_bad_split_is_mended) {
  advise(
      "pipeline_stages=4\ngradient_accumulation_steps=8\nactivation_checkpointing=true\npartition_method='manual'\n"
      "partition_split=[40, 45, 50]\n" FLUX,
      SQUARES, CARDS);
  check_proposal(&result.fastest);
  ck_assert_double_gt(result.fastest.gain, 0.3);
  end();
}
END_TEST

/* The advice, written into the file, is kept: there is nothing better any more. */
START_TEST(advice_is_stable) {
  char text[1024];
  advise("pipeline_stages=4\ngradient_accumulation_steps=8\nactivation_checkpointing=true\n" FLUX, SQUARES, CARDS);
  const sim_advise_setting s = result.fastest.setting;
  const double rate = result.fastest.mix.throughput_samples_per_s;
  int n = snprintf(text, sizeof text,
                   "pipeline_stages=%d\ngradient_accumulation_steps=%d\nmicro_batch_size_per_gpu=%d\n"
                   "activation_checkpointing=%s\npartition_method='%s'\n",
                   s.stages, (int)s.accumulation, (int)s.micro_batch, plan_dpipe_checkpointing_names[s.checkpointing],
                   plan_dpipe_partition_names[s.partition]);
  for (int k = 0; s.partition == PLAN_DPIPE_MANUAL && k + 1 < s.stages; k++)
    n += snprintf(text + n, sizeof text - (size_t)n, "%s%d%s", k ? ", " : "partition_split=[", (int)s.split[k],
                  k + 2 < s.stages ? "" : "]\n");
  (void)snprintf(text + n, sizeof text - (size_t)n, "%s", FLUX);
  end();
  advise(text, SQUARES, CARDS);
  ck_assert_double_eq_tol(result.mix.throughput_samples_per_s, rate, 1e-9 * rate);
  ck_assert_double_lt(result.fastest.gain, 0.02);
  end();
}
END_TEST

/* 16 + 24 GB: SDXL's first stage, with the text encoders, is too much for the small card as DeepSpeed cuts. */
START_TEST(a_split_that_fits_is_found) {
  advise("pipeline_stages=2\ngradient_accumulation_steps=8\nactivation_checkpointing=true\n" SDXL, SQUARES,
         "clusters/unlike-16gb-24gb.toml");
  ck_assert(!result.mix.fits);
  ck_assert(result.any_fits);
  check_proposal(&result.fastest);
  check_proposal(&result.smallest);
  ck_assert_int_le(result.smallest.change_count, result.fastest.change_count);
  end();
}
END_TEST

/* One card of 24 GB and 23.8 GB of weights: fp8 is the least that helps; without an adapter nothing does. */
START_TEST(what_helps_when_nothing_fits) {
  static const char one_card[] =
      "format = \"diffpipe-cluster\"\nversion = 1\n[[node]]\n  [[node.device]]\n  model = \"RTX-4090\"\n  count = 1\n";
  char path[] = "/tmp/diffpipe-advise-XXXXXX.toml";
  scratch_file(path, one_card);
  advise("activation_checkpointing=true\ngradient_accumulation_steps=4\n" FLUX, SQUARES, path);
  ck_assert(!result.mix.fits && result.any_fits);
  ck_assert_int_eq(result.smallest.change_count, 1);
  ck_assert_int_eq(result.smallest.changes[0].group, SIM_ADVISE_FP8);
  check_proposal(&result.smallest);
  end();
  advise("activation_checkpointing=true\ngradient_accumulation_steps=4\n" SDXL, SQUARES, path);
  ck_assert(!result.any_fits);
  end();
  (void)unlink(path);
}
END_TEST

/* Each setting of memory alone: what it must give back or take. */
START_TEST(memory_is_put_right) {
  advise("pipeline_stages=4\nactivation_checkpointing=true\ngradient_accumulation_steps=4\n" FLUX, SQUARES, CARDS);
  const int64_t *at = result.rows[0].figures.class_bytes;
  const int64_t weights = at[PLAN_MEMORY_WEIGHTS], states = at[PLAN_MEMORY_OPTIMIZER];
  const int64_t gradients = at[PLAN_MEMORY_GRADIENTS], kept = at[PLAN_MEMORY_ACTIVATIONS];
  ck_assert_int_eq(states, 3 * gradients); /* three values beside the gradient, each as wide */
  end();
  advise(
      "pipeline_stages=4\nactivation_checkpointing='unsloth'\ngradient_accumulation_steps=4\n"
      "[model]\ntype='flux'\ndtype='bfloat16'\ntransformer_dtype='float8'\n[optimizer]\ntype='adamw8bit'\n"
      "[adapter]\ntype='lora'\nrank=16\ndtype='float32'\n",
      SQUARES, CARDS);
  at = result.rows[0].figures.class_bytes;
  ck_assert_int_lt(at[PLAN_MEMORY_ACTIVATIONS], kept);
  ck_assert_int_lt(at[PLAN_MEMORY_WEIGHTS], weights * 6 / 10);
  ck_assert_int_gt(at[PLAN_MEMORY_WEIGHTS], weights / 2);
  ck_assert_int_eq(at[PLAN_MEMORY_GRADIENTS] / 2, at[PLAN_MEMORY_OPTIMIZER]); /* 4 and 2 bytes */
  end();
}
END_TEST

/* DeepSpeed's ranks: stage s of replica r is on GPU s * replicas + r. Workers are numbered replica by replica. */
START_TEST(stages_lie_as_deepspeed_lays_them) {
  advise("pipeline_stages=2\nactivation_checkpointing=true\n" SDXL, SQUARES, CARDS);
  const sim_advise_figures *f = &result.rows[0].figures;
  ck_assert_int_eq(f->worker % 2, 1); /* the second stage has most of the UNet */
  ck_assert_int_eq(f->device, (f->worker % 2) * 2 + f->worker / 2);
  end();
}
END_TEST

/* Of many micro batches only the first are simulated: the step is that of the whole simulation. */
START_TEST(long_steps_repeat) {
  advise("pipeline_stages=4\ngradient_accumulation_steps=200\n" FLUX, SMALL, CARDS);
  plan_scenario whole = scenario;
  whole.stages = 4;
  whole.data_parallel = 1;
  whole.tensor_parallel = 1;
  whole.microbatches = whole.global_batch = 200;
  whole.microbatch_size = 1;
  whole.split = (int64_t *)result.now.split;
  whole.split_count = 3;
  sim_prediction p;
  dp_error error = DP_ERROR_INIT;
  whole.model_options.width = whole.model_options.height = 512;
  ck_assert_msg(sim_predict(&whole, efficiency, &p, &error) == DP_OK, "%s", error.text);
  const sim_advise_figures *f = &result.rows[0].figures;
  ck_assert_double_eq_tol(f->step_s, p.metrics.step_s, 1e-4 * p.metrics.step_s);
  ck_assert_double_eq_tol(f->bubble_ratio, p.metrics.bubble_ratio, 1e-3);
  sim_prediction_free(&p);
  end();
}
END_TEST

START_TEST(gpus_and_stages_must_agree) {
  dp_error error;
  ck_assert_int_eq(try_advise("pipeline_stages=3\n" FLUX, SMALL, CARDS, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "c.toml:1: config.pipeline_stages: found 3 with 4 GPUs, allowed: what divides them");
  plan_dpipe_free(&config);
  ck_assert_int_eq(
      try_advise("pipeline_stages=2\npartition_method='manual'\npartition_split=[59]\n" FLUX, SMALL, CARDS, &error),
      DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "c.toml:3: config.partition_split: found 59, allowed: 1 to 58, the last layer");
  plan_dpipe_free(&config);
  ck_assert_int_eq(try_advise(FLUX, "resolutions=[512]\n[[directory]]\n", "no-such-file.toml", &error), DP_BAD_INPUT);
  plan_dpipe_free(&config);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {
      layers_of_the_models,       adapters_on_all_linear_layers,    a_bad_split_is_mended, advice_is_stable,
      a_split_that_fits_is_found, what_helps_when_nothing_fits,     memory_is_put_right,   long_steps_repeat,
      gpus_and_stages_must_agree, stages_lie_as_deepspeed_lays_them};
  return suite_run("sim_advise", tests, sizeof tests / sizeof tests[0], read_efficiency, free_efficiency, 60);
}
