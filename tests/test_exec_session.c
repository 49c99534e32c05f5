/* Training sessions: the same course for every plan, the same bits after any stop, and what is refused or fails. */
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "exec/adapter.h"
#include "exec/checkpoint.h"
#include "exec/checkpoint_model.h"
#include "tests/scratch.h"
#include "tests/train_world.h"

static dp_error error;

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  read_efficiency();
  scratch_enter();
}

static void teardown(void) {
  scratch_clean(".");
  scratch_leave();
  free_efficiency();
}

#define DATA "[data]\npath = \"data\"\n"
#define FULL \
  DATA "[train]\nseed = 3\nlearning_rate = 1e-3\nema_decay = 0.9\nlr_schedule = \"cosine\"\nwarmup_steps = 2\n"

static double step_once(world *w) {
  exec_session_report report;
  MUST(exec_session_step(w->session, &report, NULL, &must_error));
  ck_assert_int_eq(report.step, exec_session_done(w->session));
  return report.loss;
}

/* All of a session that lasts: weights, moments and means of every worker. */
static float *everything(world *w, size_t *bytes) {
  const plan_program *program = &w->prediction.program;
  size_t count = 0;
  for (int worker = 0; worker < program->worker_count; worker++) {
    const exec_parameters *p = exec_pipeline_parameters(exec_session_pipeline(w->session), worker);
    count += (size_t)(p->count + 3 * p->trained_count);
  }
  float *all = calloc(count, sizeof *all), *at = all;
  ck_assert_ptr_nonnull(all);
  for (int worker = 0; worker < program->worker_count; worker++) {
    const exec_parameters *p = exec_pipeline_parameters(exec_session_pipeline(w->session), worker);
    const size_t trained = (size_t)p->trained_count;
    const float *const arrays[] = {p->values, p->first, p->second, p->means};
    for (int a = 0; a < 4; a++) {
      const size_t n = a == 0 ? (size_t)p->count : trained;
      if (arrays[a]) memcpy(at, arrays[a], n * sizeof *at);
      at += n;
    }
  }
  *bytes = count * sizeof *all;
  return all;
}

/* A weight by its number, in the layout of files, from whichever worker has it. */
static float *weight_of(world *w, int weight) {
  exec_pipeline *pipeline = exec_session_pipeline(w->session);
  float *file = malloc((size_t)w->prediction.graph.weights.items[weight].parameters * sizeof *file);
  int worker = 0;
  ck_assert_ptr_nonnull(file);
  while (!exec_parameters_value(exec_pipeline_parameters(pipeline, worker), weight)) worker++;
  const exec_parameters *p = exec_pipeline_parameters(pipeline, worker);
  exec_parameters_to_file(exec_pipeline_kernels(pipeline, worker), p, p->values, weight, file);
  return file;
}

/* How many of the model's weights are those of a folder, to the bit. */
static int count_same(world *w, const char *folder) {
  const graph *g = &w->prediction.graph;
  exec_weights weights = {0};
  int same = 0;
  MUST(exec_weights_open(folder, g, &weights, &must_error));
  for (size_t i = 0; i < g->weights.count; i++) {
    const size_t n = (size_t)g->weights.items[i].parameters;
    float *mine = weight_of(w, (int)i), *file = malloc(n * sizeof *file);
    ck_assert_ptr_nonnull(file);
    MUST(exec_weights_read(&weights, (int)i, file, &must_error));
    same += memcmp(mine, file, n * sizeof *file) == 0;
    free(mine);
    free(file);
  }
  exec_weights_close(&weights);
  return same;
}

/* ---- first weights ---- */

START_TEST(first_weights_are_pytorchs_and_the_same_for_every_plan) {
  world one, two, other;
  world_open("sd15", "", FULL "[plan]\nstages = 1\n", NULL, 1, &one);
  world_open("sd15", "", FULL "[plan]\nstages = 2\nschedule = \"folded\"\ndata_parallel = 2\n", NULL, 1, &two);
  world_open("sd15", "", DATA "[train]\nseed = 4\n[plan]\nstages = 1\n", NULL, 1, &other);
  const graph *g = &one.prediction.graph;
  int changed = 0, matrices = 0;
  for (size_t i = 0; i < g->weights.count; i++) {
    const graph_weight *weight = &g->weights.items[i];
    float *a = weight_of(&one, (int)i), *b = weight_of(&two, (int)i), *c = weight_of(&other, (int)i);
    const size_t bytes = (size_t)weight->parameters * sizeof *a;
    ck_assert_mem_eq(a, b, bytes);
    if (weight->rank >= 2) {
      double most = 0, square = 0;
      const double bound = 1 / sqrt((double)(weight->parameters / weight->dims[0]));
      for (int64_t k = 0; k < weight->parameters; k++) {
        most = fmax(most, fabs((double)a[k]));
        square += (double)a[k] * a[k] / (double)weight->parameters;
      }
      ck_assert_msg(most <= bound, "%s", weight->name);
      if (weight->parameters > 2000) /* an even spread has a third of the square of its bound */
        ck_assert_msg(fabs(square / (bound * bound) - 1.0 / 3) < 0.05, "%s: %g", weight->name,
                      square / (bound * bound));
      changed += memcmp(a, c, bytes) != 0;
      matrices++;
    } else if (strstr(weight->name, "norm")) {
      for (int64_t k = 0; k < weight->parameters; k++)
        ck_assert_float_eq(a[k], dp_ends_with(weight->name, ".weight") ? 1 : 0);
    }
    free(a);
    free(b);
    free(c);
  }
  ck_assert(matrices > 20 && changed == matrices);
  world_close(&one);
  world_close(&two);
  world_close(&other);
}
END_TEST

START_TEST(weights_of_a_folder_are_taken) {
  char lines[5000];
  world w;
  (void)snprintf(lines, sizeof lines, DATA "[train]\nweights = \"%s\"\n[plan]\nstages = 2\n", fixture_path("sd15", ""));
  world_open("sd15", "", lines, NULL, 1, &w);
  ck_assert_int_eq(count_same(&w, fixture_path("sd15", "")), (int)w.prediction.graph.weights.count);
  world_close(&w);
}
END_TEST

/* ---- steps ---- */

START_TEST(rates_follow_their_schedule) {
  plan_train t = {.learning_rate = 2, .warmup_steps = 4, .rate_floor = 0.1};
  static const double rising[] = {0.5, 1, 1.5, 2};
  for (int schedule = 0; schedule < 3; schedule++) {
    t.rate_schedule = (plan_rate_schedule)schedule;
    for (int s = 0; s < 4; s++) ck_assert_double_eq_tol(exec_learning_rate(&t, s, 25), rising[s], 1e-12);
    ck_assert_double_eq_tol(exec_learning_rate(&t, 4, 25), 2, 1e-12);
    ck_assert_double_eq_tol(exec_learning_rate(&t, 24, 25), schedule == PLAN_RATE_CONSTANT ? 2 : 0.2, 1e-12);
    ck_assert_double_eq_tol(exec_learning_rate(&t, 14, 25), schedule == PLAN_RATE_CONSTANT ? 2 : 1.1, 1e-12);
    ck_assert_double_eq_tol(exec_learning_rate(&t, 99, 25), schedule == PLAN_RATE_CONSTANT ? 2 : 0.2, 1e-12);
  }
  t.rate_schedule = PLAN_RATE_COSINE; /* a quarter of the way it has fallen little */
  ck_assert_double_eq_tol(exec_learning_rate(&t, 9, 25), 2 * (0.1 + 0.9 * (1 + sqrt(0.5)) / 2), 1e-12);
}
END_TEST

START_TEST(every_plan_has_the_same_course) {
  static const char *const plans[] = {"[plan]\nstages = 1\n", "[plan]\nstages = 2\nschedule = \"zb-h1\"\n",
                                      "[plan]\nstages = 2\nschedule = \"folded\"\nmicrobatch_size = 2\n",
                                      "[plan]\nstages = 2\ndata_parallel = 2\n"};
  static const char *const models[] = {"sd15", "sd3", "flux-dev"};
  enum { STEPS = 4 };
  for (int m = 0; m < 3; m++) {
    double first[STEPS];
    for (int p = 0; p < 4; p++) {
      char lines[1000];
      world w;
      (void)snprintf(lines, sizeof lines, FULL "min_snr_gamma = 5\n%s", plans[p]);
      world_open(models[m], "", lines, NULL, STEPS, &w);
      for (int s = 0; s < STEPS; s++) {
        const double loss = step_once(&w);
        if (p == 0) first[s] = loss;
        ck_assert_msg(fabs(loss - first[s]) < 1e-6, "%s, plan %d, step %d: %.9g, one worker %.9g", models[m], p, s,
                      loss, first[s]);
      }
      world_close(&w);
    }
    scratch_clean(".");
  }
}
END_TEST

START_TEST(training_learns) {
  world w;
  world_open("sd15", "", DATA "[train]\nlearning_rate = 2e-3\nevaluate_samples = 16\n[plan]\nstages = 2\n", NULL, 60,
             &w);
  exec_evaluation before, after;
  MUST(exec_session_evaluate(w.session, false, &before, &must_error));
  for (int s = 0; s < 60; s++) (void)step_once(&w);
  MUST(exec_session_evaluate(w.session, false, &after, &must_error));
  ck_assert_msg(after.loss < 0.8 * before.loss, "%g, then %g", before.loss, after.loss);
  world_close(&w);
}
END_TEST

/* ---- several sizes, and skips that are compressed ---- */

#define BUCKETS DATA "buckets = [[128, 128], [64, 192]]\n[train]\nlearning_rate = 1e-3\nema_decay = 0.9\n"

/* Pictures of two shapes are trained at two sizes, by one set of weights. */
START_TEST(buckets_train_one_model_whatever_the_plan) {
  static const char *const plans[] = {"[plan]\nstages = 1\n", "[plan]\nstages = 2\nschedule = \"folded\"\n"};
  enum { STEPS = 6 };
  double losses[STEPS];
  for (int p = 0; p < 2; p++) {
    char lines[500];
    world w;
    exec_session_report report;
    exec_evaluation evaluation;
    int timed = 0;
    (void)snprintf(lines, sizeof lines, BUCKETS "%s", plans[p]);
    world_plan("sd15", "", lines, &w);
    world_bucket(&w, 64, 192);
    plan_timeline timeline;
    MUST(plan_timeline_init(&w.prediction.program, &timeline, &must_error));
    MUST(world_try_open(&w, NULL, STEPS, &must_error));
    for (int s = 0; s < STEPS; s++) {
      MUST(exec_session_step(w.session, &report, &timeline, &must_error));
      timed += report.timed;
      if (p == 0) losses[s] = report.loss;
      ck_assert_msg(fabs(losses[s] - report.loss) < 1e-6, "step %d: %.9g and %.9g", s, losses[s], report.loss);
    }
    ck_assert(timed > 0 && timed < STEPS); /* both sizes came */
    MUST(exec_session_evaluate(w.session, true, &evaluation, &must_error));
    ck_assert(isfinite(evaluation.loss));
    plan_timeline_free(&timeline);
    world_close(&w);
  }
}
END_TEST

#define COMPRESSED                                                                                          \
  DATA "[train]\nlearning_rate = 1e-3\nema_decay = 0.9\npsnr_every = 2\n[plan]\nstages = 2\nskip_policy = " \
       "\"compress\"\nk = 300\n"

START_TEST(compressed_skips_are_measured) {
  world w;
  exec_session_report report;
  world_open("sd15", "", COMPRESSED, NULL, 4, &w);
  const int skips = exec_session_skips(w.session);
  ck_assert_int_gt(skips, 0);
  for (int i = 0; i < skips; i++) ck_assert_ptr_nonnull(strstr(exec_session_skip_name(w.session, i), " to up_blocks."));
  for (int s = 1; s <= 4; s++) {
    MUST(exec_session_step(w.session, &report, NULL, &must_error));
    ck_assert_int_eq(report.psnr != NULL, s % 2 == 0);
    /* fitted, not drawn: more than half of the signal comes through from the beginning */
    for (int i = 0; i < skips && report.psnr; i++) ck_assert_msg(report.psnr[i] > 10, "%g dB", report.psnr[i]);
  }
  world_close(&w);
}
END_TEST

/* ---- stopping and going on ---- */

/* `stop` steps, a checkpoint, and the rest by another session: the same as without a break. */
static void check_resume(const char *model, const char *task, const char *lines) {
  enum { STEPS = 6 };
  double losses[STEPS];
  size_t bytes, other_bytes;
  world w;
  world_open(model, task, lines, "whole", STEPS, &w);
  for (int s = 0; s < STEPS; s++) losses[s] = step_once(&w);
  float *right = everything(&w, &bytes);
  world_close(&w);
  for (int from = 0; from < STEPS; from += 2) {
    dp_str notes = {0};
    world_open(model, task, lines, "parts", STEPS, &w);
    if (from) {
      MUST(exec_session_resume(w.session, &notes, &must_error));
      ck_assert_int_eq(exec_session_done(w.session), from);
      ck_assert_str_eq(dp_str_text(&notes), "");
    }
    for (int s = from; s < from + 2; s++) ck_assert(step_once(&w) == losses[s]);
    MUST(exec_session_save(w.session, &must_error));
    if (from + 2 == STEPS) {
      float *found = everything(&w, &other_bytes);
      ck_assert_uint_eq(bytes, other_bytes);
      ck_assert_mem_eq(right, found, bytes);
      free(found);
    }
    world_close(&w);
    dp_str_free(&notes);
  }
  free(right);
  scratch_clean(".");
}

START_TEST(a_run_that_was_stopped_has_the_same_bits) {
  check_resume("sd15", "", FULL "[plan]\nstages = 2\nschedule = \"folded\"\n");
  check_resume("sd15", "", FULL "stage_rates = [1, 0.3]\n[plan]\nstages = 2\ndata_parallel = 2\n");
  check_resume("sd3", "trainable = \"lora\"\nlora_rank = 3", FULL "lora_alpha = 6\n[plan]\nstages = 2\n");
  check_resume("sd15", "", COMPRESSED "data_parallel = 2\n");
}
END_TEST

START_TEST(checkpoints_hold_the_run_to_its_plan_and_pass_over_what_is_cut) {
  static const struct {
    const char *lines, *says;
  } cases[] = {{FULL "[plan]\nstages = 1\n", "found a run of 1 worker, allowed: 2, as the checkpoint was written by"},
               {FULL "[plan]\nstages = 2\nmicrobatch_size = 2\n", "found the plan 1f1b, stages 2 x 1, batch 1 x 2 x 2"},
               {DATA "[train]\nseed = 4\nema_decay = 0.9\n[plan]\nstages = 2\n",
                "found the seed 4, allowed: 3, that of the checkpoint"}};
  world w;
  dp_str notes = {0};
  world_open("sd15", "", FULL "[plan]\nstages = 2\n", "run", 9, &w);
  for (int s = 0; s < 2; s++) {
    (void)step_once(&w);
    MUST(exec_session_save(w.session, &must_error));
  }
  world_close(&w);
  for (int i = 0; i < 3; i++) {
    world_open("sd15", "", cases[i].lines, "run", 9, &w);
    ck_assert_int_eq(exec_session_resume(w.session, &notes, &error), DP_BAD_INPUT);
    ck_assert_msg(strstr(error.text, cases[i].says) != NULL, "%s", error.text);
    world_close(&w);
  }
  ck_assert_int_eq(truncate("run/checkpoints/step-2/worker-0001.safetensors", 1000), 0);
  world_open("sd15", "", FULL "[plan]\nstages = 2\n", "run", 10, &w);
  MUST(exec_session_resume(w.session, &notes, &must_error));
  ck_assert_int_eq(exec_session_done(w.session), 1);
  ck_assert_ptr_nonnull(strstr(dp_str_text(&notes), "run/checkpoints/step-2"));
  ck_assert_ptr_nonnull(strstr(dp_str_text(&notes), "was written in a job of 9 steps, now 10: the learning rate"));
  world_close(&w);
  ck_assert_int_eq(truncate("run/checkpoints/step-1/state.json", 10), 0);
  world_open("sd15", "", FULL "[plan]\nstages = 2\n", "run", 9, &w);
  ck_assert_int_eq(exec_session_resume(w.session, &notes, &error), DP_BAD_INPUT);
  world_close(&w);
  dp_str_free(&notes);
}
END_TEST

/* ---- evaluation ---- */

START_TEST(evaluation_changes_nothing_and_adds_up) {
  world with, without;
  exec_evaluation first, again, of_means;
  world_open("sd15", "", FULL "evaluate_samples = 10\n[plan]\nstages = 2\n", NULL, 6, &with);
  world_open("sd15", "", FULL "[plan]\nstages = 2\n", NULL, 6, &without);
  for (int s = 0; s < 3; s++) {
    MUST(exec_session_evaluate(with.session, false, &first, &must_error));
    MUST(exec_session_evaluate(with.session, true, &of_means, &must_error));
    MUST(exec_session_evaluate(with.session, false, &again, &must_error));
    ck_assert(memcmp(&first, &again, sizeof first) == 0);
    ck_assert_int_eq(first.samples, 12);
    double sum = 0;
    for (int q = 0; q < EXEC_QUANTILES; q++) sum += first.quantiles[q] / EXEC_QUANTILES;
    ck_assert_double_eq_tol(sum, first.loss, 1e-9);
    if (s == 0)
      ck_assert(of_means.loss == first.loss); /* means begin as the weights */
    else
      ck_assert(of_means.loss != first.loss);
    ck_assert(step_once(&with) == step_once(&without));
  }
  size_t bytes, other;
  float *a = everything(&with, &bytes), *b = everything(&without, &other);
  ck_assert_uint_eq(bytes, other);
  ck_assert_mem_eq(a, b, bytes);
  free(a);
  free(b);
  world_close(&with);
  world_close(&without);
}
END_TEST

/* ---- what comes out ---- */

START_TEST(exported_folders_are_read_back) {
  world w;
  world_open("sd3", "", FULL "[plan]\nstages = 2\nschedule = \"folded\"\n", "run", 3, &w);
  for (int s = 0; s < 2; s++) (void)step_once(&w);
  MUST(exec_session_export(w.session, &must_error));
  const int all = (int)w.prediction.graph.weights.count;
  ck_assert_int_eq(count_same(&w, "run/model"), all);
  ck_assert_int_lt(count_same(&w, "run/model-ema"), all);
  world_close(&w);
}
END_TEST

START_TEST(exported_adapters_are_read_back) {
  world w;
  world_open("sd15", "trainable = \"lora\"\nlora_rank = 3",
             DATA "[train]\nlora_alpha = 6\nlora_targets = [\"to_q\", \"ff.net.2\"]\n[plan]\nstages = 2\n", "run", 3,
             &w);
  for (int s = 0; s < 2; s++) (void)step_once(&w);
  MUST(exec_session_export(w.session, &must_error));
  exec_adapter adapter = {.count = 0};
  MUST(exec_adapter_open("run/model", &w.prediction.graph, &adapter, &must_error));
  ck_assert_int_gt(adapter.count, 4);
  for (int l = 0; l < adapter.count; l++) {
    const exec_adapter_layer *layer = &adapter.layers[l];
    const size_t na = (size_t)(layer->rank * layer->in), nb = (size_t)(layer->rank * layer->out);
    float *a = malloc(na * sizeof *a), *b = malloc(nb * sizeof *b);
    MUST(exec_adapter_read(&adapter, l, a, b, &must_error));
    ck_assert(layer->alpha == 6);
    int worker = 0;
    const exec_lora *lora = NULL;
    for (; worker < 2; worker++) {
      const exec_parameters *p = exec_pipeline_parameters(exec_session_pipeline(w.session), worker);
      if (p->lora[layer->op].rank > 0) lora = &p->lora[layer->op];
    }
    ck_assert_ptr_nonnull(lora);
    ck_assert_mem_eq(a, lora->a, na * sizeof *a);
    ck_assert_mem_eq(b, lora->b, nb * sizeof *b);
    bool trained = false; /* B began as 0 */
    for (size_t i = 0; i < nb; i++) trained = trained || b[i] != 0;
    ck_assert(trained);
    free(a);
    free(b);
  }
  exec_adapter_close(&adapter);
  world_close(&w);
}
END_TEST

/* ---- what goes wrong ---- */

START_TEST(what_cannot_be_trained_is_refused) {
  static const struct {
    const char *task, *lines, *says;
  } cases[] = {
      {"optimizer = \"sgd\"", FULL, "world.toml:16: task.optimizer: found \"sgd\", allowed: \"adamw\" in a run"},
      {"kind = \"sample\"", DATA, "world.toml:16: task.kind: found \"sample\", allowed: \"train\""},
      {"", "[train]\nseed = 1\n", "world.toml:1: data: the key \"path\" is missing, needed: a data set's folder"},
      {"", DATA "[train]\nstage_rates = [1, 1]\n[plan]\nstages = 1\n",
       "world.toml:20: train.stage_rates: found 2 factors, allowed: 1, one a stage"},
      {"", DATA "buckets = [[64, 64]]\n",
       "world.toml:19: data.buckets: found 1 without the model's own size, needed: [128, 128] among them, which the "
       "plan "
       "is made for"},
      {"", DATA "buckets = [[128, 128], [64, 64]]\n[plan]\nstages = 2\nskip_policy = \"compress\"\nk = 300\n",
       "world.toml:19: data.buckets: found 2 with compressed skips, allowed: one, since what compresses is of one "
       "size"},
      {"", "[data]\npath = \"nowhere\"\n", "nowhere: cannot be read: No such file or directory"},
      {"", DATA "[train]\nweights = \"data\"\n", "data: "}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    world w;
    world_plan("sd15", cases[i].task, cases[i].lines, &w);
    if (w.scenario.data.bucket_count) world_bucket(&w, 64, 64);
    if (w.scenario.data.bucket_count == 1) w.sizes[0] = w.sizes[1];
    w.size_count = w.scenario.data.bucket_count ? w.scenario.data.bucket_count : 1;
    ck_assert_msg(world_try_open(&w, "run", 1, &error) == DP_BAD_INPUT, "case %zu", i);
    ck_assert_msg(strncmp(error.text, cases[i].says, strlen(cases[i].says)) == 0, "case %zu: %s", i, error.text);
    world_close(&w);
  }
}
END_TEST

/* Trains until a step fails, which says its number and the checkpoint after the first; its status. */
static dp_status train_until_it_fails(world *w, int most) {
  exec_session_report report;
  dp_status status = DP_OK;
  int step = 1;
  char end[100];
  while (status == DP_OK && step++ < most) status = exec_session_step(w->session, &report, NULL, &error);
  (void)snprintf(end, sizeof end, "; step %d, last good checkpoint: run/checkpoints/step-1", step);
  ck_assert_msg(dp_ends_with(error.text, end), "%s", error.text);
  return status;
}

START_TEST(a_loss_that_is_not_finite_names_unit_step_and_checkpoint) {
  world w;
  world_open("sd15", "", DATA "[train]\nlearning_rate = 100\nweight_decay = 100\n[plan]\nstages = 2\n", "run", 50, &w);
  (void)step_once(&w);
  MUST(exec_session_save(w.session, &must_error));
  ck_assert_int_eq(train_until_it_fails(&w, 50), DP_RUN_FAILED);
  ck_assert_msg(strstr(error.text, "finite") != NULL, "%s", error.text);
  world_close(&w);
}
END_TEST

/* Of the samples that have not been read yet. */
START_TEST(data_that_are_cut_while_they_are_read_name_the_last_good_checkpoint) {
  world w;
  world_open("sd15", "", FULL "[plan]\nstages = 2\n", "run", 50, &w);
  (void)step_once(&w);
  MUST(exec_session_save(w.session, &must_error));
  ck_assert_int_eq(truncate("data/latents-128x128.safetensors", 3000), 0);
  ck_assert_int_ne(train_until_it_fails(&w, 9), DP_OK);
  ck_assert_msg(strstr(error.text, "data/latents-128x128.safetensors") != NULL, "%s", error.text);
  world_close(&w);
}
END_TEST

START_TEST(a_full_disk_names_the_last_good_checkpoint) {
  world w;
  dp_str notes = {0};
  world_open("sd15", "", FULL "[plan]\nstages = 2\n", "run", 9, &w);
  (void)step_once(&w);
  MUST(exec_session_save(w.session, &must_error));
  (void)step_once(&w);
  struct rlimit before, small;
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  (void)signal(SIGXFSZ, SIG_IGN);
  small = before;
  small.rlim_cur = 100000;
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
  ck_assert_int_eq(exec_session_save(w.session, &error), DP_IO_FAILED);
  ck_assert_int_eq(exec_session_export(w.session, &(dp_error)DP_ERROR_INIT), DP_IO_FAILED);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
  ck_assert_msg(strncmp(error.text, "run/checkpoints/step-2/worker-0000.safetensors: ", 47) == 0 &&
                    dp_ends_with(error.text, "; step 2, last good checkpoint: run/checkpoints/step-1"),
                "%s", error.text);
  ck_assert_int_eq(count_entries("run/checkpoints"), 1);
  MUST(exec_session_save(w.session, &must_error)); /* there is room again */
  ck_assert_int_eq(count_entries("run/checkpoints"), 2);
  world_close(&w);
  dp_str_free(&notes);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {first_weights_are_pytorchs_and_the_same_for_every_plan,
                                weights_of_a_folder_are_taken,
                                rates_follow_their_schedule,
                                every_plan_has_the_same_course,
                                training_learns,
                                buckets_train_one_model_whatever_the_plan,
                                compressed_skips_are_measured,
                                a_run_that_was_stopped_has_the_same_bits,
                                checkpoints_hold_the_run_to_its_plan_and_pass_over_what_is_cut,
                                evaluation_changes_nothing_and_adds_up,
                                exported_folders_are_read_back,
                                exported_adapters_are_read_back,
                                what_cannot_be_trained_is_refused,
                                a_loss_that_is_not_finite_names_unit_step_and_checkpoint,
                                data_that_are_cut_while_they_are_read_name_the_last_good_checkpoint,
                                a_full_disk_names_the_last_good_checkpoint};
  return suite_run("exec_session", tests, sizeof tests / sizeof tests[0], setup, teardown, 300);
}
