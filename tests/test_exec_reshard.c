/* A training that goes over to another plan between two steps, by a copy in memory: nothing is lost, nothing differs
 * but roundings, and its checkpoints are those of the plan that it began with. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>

#include "tests/scratch.h"
#include "tests/train_world.h"

static void setup(void) {
  read_efficiency();
  scratch_enter();
}

static void teardown(void) {
  scratch_clean(".");
  scratch_leave();
  free_efficiency();
}

#define TRAIN                                                                                                     \
  "[data]\npath = \"data\"\n[train]\nseed = 3\nlearning_rate = 1e-3\nema_decay = 0.9\nlr_schedule = \"cosine\"\n" \
  "warmup_steps = 2\n"
#define FIRST TRAIN "[plan]\nstages = 2\nschedule = \"folded\"\n"

enum { STEPS = 9 };

static void train(world *w, int64_t to, double *losses) {
  while (exec_session_done(w->session) < to) {
    exec_session_report report;
    MUST(exec_session_step(w->session, &report, NULL, &must_error));
    losses[report.step - 1] = report.loss;
  }
}

/* The session of `to` goes on where that of `from` is, which is gone then. */
static void go_over(world *from, world *to) {
  exec_session_copy *copy = NULL;
  MUST(exec_session_take(from->session, &copy, &must_error));
  world_close(from);
  MUST(exec_session_put(to->session, copy, &must_error));
  exec_session_copy_free(copy);
}

static double evaluate(world *w, bool means) {
  exec_evaluation evaluation;
  MUST(exec_session_evaluate(w->session, means, &evaluation, &must_error));
  return evaluation.loss;
}

/* Two steps by the first plan, two by each other one, and so on to the end by the first again. */
static void check_course(const char *model, const char *task, const char *first, const char *const *others, int count) {
  double alone[STEPS], changed[STEPS];
  world whole, worlds[4]; /* they do not move */
  world_open(model, task, first, NULL, STEPS, &whole);
  train(&whole, STEPS, alone);
  const double loss = evaluate(&whole, false), means = evaluate(&whole, true);
  world_close(&whole);
  for (int i = 0; i < count + 2; i++) {
    world_open(model, task, i == 0 || i > count ? first : others[i - 1], NULL, STEPS, &worlds[i]);
    if (i > 0) go_over(&worlds[i - 1], &worlds[i]);
    train(&worlds[i], i > count ? STEPS : 2 * i + 2, changed);
  }
  for (int i = 0; i < STEPS; i++)
    ck_assert_msg(fabs(changed[i] / alone[i] - 1) < 1e-6, "%s, step %d: %.9g, alone %.9g", model, i + 1, changed[i],
                  alone[i]);
  ck_assert_double_eq_tol(evaluate(&worlds[count + 1], false) / loss, 1, 1e-5);
  ck_assert_double_eq_tol(evaluate(&worlds[count + 1], true) / means, 1, 1e-5);
  world_close(&worlds[count + 1]);
}

START_TEST(losses_do_not_depend_on_when_a_plan_is_left) {
  static const char *const others[] = {TRAIN "[plan]\nstages = 1\ndata_parallel = 2\n",
                                       TRAIN "[plan]\nstages = 3\nschedule = \"zb-h1\"\n"};
  check_course("sd15", "", FIRST, others, 2);
}
END_TEST

START_TEST(adapters_go_along) {
  static const char *const others[] = {TRAIN "lora_alpha = 6\n[plan]\nstages = 1\n"};
  check_course("sd3", "trainable = \"lora\"\nlora_rank = 3", TRAIN "lora_alpha = 6\n[plan]\nstages = 2\n", others, 1);
}
END_TEST

START_TEST(the_same_plan_goes_on_with_the_same_bits) {
  double alone[STEPS], changed[STEPS];
  world one, other;
  world_open("sd15", "", FIRST, NULL, STEPS, &one);
  train(&one, STEPS, alone);
  world_close(&one);
  world_open("sd15", "", FIRST, NULL, STEPS, &one);
  train(&one, 4, changed);
  world_open("sd15", "", FIRST, NULL, STEPS, &other);
  go_over(&one, &other);
  train(&other, STEPS, changed);
  ck_assert_mem_eq(changed, alone, sizeof alone);
  world_close(&other);
}
END_TEST

/* A run that is stopped while it goes by another plan is resumed by its own. */
START_TEST(checkpoints_are_the_first_plans) {
  double alone[STEPS], changed[STEPS];
  dp_error error = DP_ERROR_INIT;
  dp_str notes = {0};
  world one, other, again;
  world_open("sd15", "", FIRST, "run", STEPS, &one);
  train(&one, 3, alone);
  world_open("sd15", "", TRAIN "[plan]\nstages = 1\n", "run", STEPS, &other);
  go_over(&one, &other);
  train(&other, 5, alone);
  MUST(exec_session_save(other.session, &must_error));
  train(&other, STEPS, alone);
  world_close(&other);
  world_open("sd15", "", TRAIN "[plan]\nstages = 1\n", "run", STEPS, &again);
  ck_assert_int_eq(exec_session_resume(again.session, &notes, &error), DP_BAD_INPUT);
  world_close(&again);
  world_open("sd15", "", FIRST, "run", STEPS, &again);
  MUST(exec_session_resume(again.session, &notes, &must_error));
  ck_assert_int_eq(exec_session_done(again.session), 5);
  train(&again, STEPS, changed);
  for (int i = 5; i < STEPS; i++) ck_assert_double_eq_tol(changed[i] / alone[i], 1, 1e-6);
  world_close(&again);
  dp_str_free(&notes);
}
END_TEST

START_TEST(what_a_plan_lacks_is_said) {
  dp_error error = DP_ERROR_INIT;
  exec_session_copy *copy = NULL;
  world one, other;
  world_open("sd15", "", FIRST, NULL, STEPS, &one);
  world_open("sd15", "trainable = \"lora\"\nlora_rank = 3", TRAIN "[plan]\nstages = 1\n", NULL, STEPS, &other);
  MUST(exec_session_take(one.session, &copy, &must_error));
  ck_assert_int_eq(exec_session_put(other.session, copy, &error), DP_INTERNAL);
  ck_assert_msg(strstr(error.text, "is not in what the other session had"), "%s", error.text);
  exec_session_copy_free(copy);
  world_close(&one);
  world_close(&other);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {losses_do_not_depend_on_when_a_plan_is_left, adapters_go_along,
                                the_same_plan_goes_on_with_the_same_bits, checkpoints_are_the_first_plans,
                                what_a_plan_lacks_is_said};
  return suite_run("exec_reshard", tests, sizeof tests / sizeof tests[0], setup, teardown, 300);
}
