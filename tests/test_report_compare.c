#define _DEFAULT_SOURCE
/* What is said of a run and its prediction: the sentences word by word, files that fit together, the log. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "reports/comparison.h"
#include "reports/log.h"
#include "reports/read.h"
#include "sim/unit_times.h"
#include "tests/compare_world.h"
#include "tests/scratch.h"
#include "tests/sim_texts.h"
#include "tests/suite.h"

#define STUDY \
  HEAD "[model]\nsynthetic_units = 8\nforward_us = 1000\nboundary_bytes = 10000000\n" CARDS("A100-SXM4-80GB", "8")
static const char pipeline[] = STUDY "[plan]\nstages = 4\nmicrobatches = 8\nschedule = \"1f1b\"\n";
static const char replicas[] = STUDY "[plan]\nstages = 2\nmicrobatches = 4\ndata_parallel = 2\n";
static const char unet[] =
    HEAD SD15 "[task]\nkind = \"train\"\n" CARDS("A100-SXM4-80GB", "2") "[plan]\nstages = 2\nmicrobatches = 4\n";

/* A scenario, its prediction, and a run of it that was made. */
typedef struct world {
  run of;
  plan_timeline timeline;
  plan_metrics metrics;
  plan_memory memory;
  plan_worker_memory workers[16];
  plan_step_spread steps;
  plan_unit_times units[2];
  report_bound bounds[REPORT_MAX_BOUNDS];
  report_run predicted, measured;
  report_pair pair;
} world;

typedef struct recipe {
  const plan_program *program;
  int worker;                      /* -1: all */
  double forward, backward, links; /* factors */
  double delay_s;                  /* of compute */
  int outlier;                     /* the instruction that takes ten times as long; -1: none */
} recipe;

static const recipe plain = {.worker = -1, .forward = 1, .backward = 1, .links = 1, .outlier = -1};

static void cook(const void *how, uint32_t id, distortion *what) {
  const recipe *r = how;
  const plan_instruction *i = &r->program->instructions[id];
  const plan_lane *lane = &r->program->lanes[plan_instruction_lane(r->program, id)];
  if (i->opcode == PLAN_SEND) what->factor = r->links;
  if (lane->kind != PLAN_LANE_COMPUTE || (r->worker >= 0 && lane->worker != (uint32_t)r->worker)) return;
  if (i->opcode == PLAN_FORWARD) what->factor = r->forward;
  if (i->opcode == PLAN_BACKWARD) what->factor = r->backward;
  what->delay_s = r->delay_s;
  if ((int)id == r->outlier) what->factor = 10;
}

static void make_world(const char *text, recipe how, world *w) {
  *w = (world){.of = {.scenario = {.name = NULL}}};
  load_as("study.toml", text, &w->of.scenario);
  predict(&w->of.scenario, &w->of.prediction);
  const sim_prediction *p = &w->of.prediction;
  dp_error error = DP_ERROR_INIT;
  how.program = &p->program;
  distorted_timeline(&p->timeline, cook, &how, &w->timeline);
  ck_assert_int_eq(plan_metrics_of(&w->timeline, &w->metrics, &error), DP_OK);
  ck_assert_int_le(p->memory.worker_count, 16);
  memcpy(w->workers, p->memory.workers, (size_t)p->memory.worker_count * sizeof *w->workers);
  w->memory = (plan_memory){.workers = w->workers, .worker_count = p->memory.worker_count};
  w->predicted = (report_run){.name = "study",
                              .origin = "predicted",
                              .graph = &p->graph,
                              .cluster = &w->of.scenario.cluster,
                              .program = &p->program,
                              .timeline = &p->timeline,
                              .metrics = &p->metrics,
                              .memory = &p->memory,
                              .memory_limit_bytes = p->memory_limit_bytes,
                              .fits = p->fits,
                              .tightest_worker = p->tightest_worker};
  w->measured = w->predicted;
  w->measured.origin = "measured";
  w->measured.timeline = &w->timeline;
  w->measured.metrics = &w->metrics;
  w->measured.memory = &w->memory;
  w->measured.bounds = w->bounds;
  report_bounds_of(&w->metrics, w->bounds, &w->measured.bound_count);
  w->steps = (plan_step_spread){.count = 7, .median_s = w->timeline.step_s, .p95_s = 1, .max_s = 2};
  w->measured.steps = &w->steps;
  w->pair = (report_pair){.predicted = &w->predicted, .measured = &w->measured};
}

static void add_units(world *w, size_t slow, double factor) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(sim_unit_times(&w->of.scenario, &w->of.prediction, &w->units[0], &error), DP_OK);
  ck_assert_int_eq(plan_unit_times_init(w->units[0].unit_count, &w->units[1], &error), DP_OK);
  for (size_t u = 0; u < w->units[0].unit_count; u++) {
    const double by = u == slow ? factor : 1;
    plan_unit_times_add(&w->units[1], u, PLAN_UNIT_FORWARD, by * plan_unit_forward_s(&w->units[0], u));
    plan_unit_times_add(&w->units[1], u, PLAN_UNIT_BACKWARD_INPUT, by * plan_unit_backward_s(&w->units[0], u));
  }
  w->pair.predicted_units = &w->units[0];
  w->pair.measured_units = &w->units[1];
}

static void free_world(world *w) {
  plan_unit_times_free(&w->units[0]);
  plan_unit_times_free(&w->units[1]);
  plan_metrics_free(&w->metrics);
  plan_timeline_free(&w->timeline);
  end_run(&w->of);
}

static json_t *compare(const world *w) {
  dp_error error = DP_ERROR_INIT;
  void *json = NULL;
  ck_assert_msg(report_comparison_json(&w->pair, &json, &error) == DP_OK, "%s", error.text);
  return json;
}

/* All that is said of a world, which ends with it. */
static void said(world *w, const char *const *lines) {
  json_t *json = compare(w);
  const json_t *why = json_object_get(json, "why");
  for (size_t i = 0; lines[i] || i < json_array_size(why); i++) {
    const char *line = json_string_value(json_array_get(why, i));
    ck_assert_msg(line && lines[i] && strcmp(line, lines[i]) == 0, "line %zu: found \"%s\", expected \"%s\"", i,
                  line ? line : "", lines[i] ? lines[i] : "");
  }
  json_decref(json);
  free_world(w);
}
#define SAID(w, ...) said(w, (const char *const[]){__VA_ARGS__, NULL})

/* ---- sentences ---- */

START_TEST(nothing_to_say) {
  world w;
  make_world(pipeline, plain, &w);
  SAID(&w, "A step takes 66.9 ms, predicted were 66.9 ms: the same.");
}
END_TEST

START_TEST(one_slow_worker) {
  world w;
  recipe how = plain;
  how.worker = 1;
  how.backward = 1.5;
  make_world(pipeline, how, &w);
  SAID(&w, "A step takes 78.6 ms, predicted were 66.9 ms: 11.7 ms or 17.6 % more.",
       "Worker 1's BACKWARD takes 6.01 ms against 4.00 ms predicted: +11.7 ms a step, 100 % of the difference.",
       "The load is less even than predicted: the busiest worker, 1, computes 1.23 times the mean, predicted 1.00.",
       "Workers wait 33.8 % of the time, predicted 28.1 %.");
}
END_TEST

START_TEST(all_are_slow) {
  world w;
  recipe how = plain;
  how.forward = 1.2;
  how.backward = 1.3;
  how.delay_s = 1e-4;
  make_world(pipeline, how, &w);
  SAID(&w, "A step takes 86.8 ms, predicted were 66.9 ms: 19.9 ms or 29.8 % more.",
       "BACKWARD on every worker takes 1.30 times as long as predicted (5.20 ms against 4.00 ms on average): +13.2 ms "
       "a step, 66 % of the difference.",
       "FORWARD on every worker takes 1.20 times as long as predicted (2.41 ms against 2.00 ms on average): +4.41 ms a "
       "step, 22 % of the difference.",
       "Workers begin to compute 100.0 us after all that an instruction waits for is done (predicted: at once): +2.30 "
       "ms a step, 12 % of the difference.");
}
END_TEST

START_TEST(slow_links) {
  world w;
  recipe how = plain;
  how.links = 20;
  make_world(pipeline, how, &w);
  SAID(&w, "A step takes 81.9 ms, predicted were 66.9 ms: 15.0 ms or 22.5 % more.",
       "Transfers take 990.1 us against 49.5 us predicted: +15.0 ms a step, 100 % of the difference.",
       "Workers wait 41.3 % of the time, predicted 28.1 %.");
}
END_TEST

/* A forward of the last worker is on the way of the first microbatch. */
START_TEST(one_long_instruction) {
  world w;
  recipe how = plain;
  make_world(pipeline, plain, &w);
  const plan_program *program = &w.of.prediction.program;
  how.outlier = (int)program->lanes[program->worker_lane[3]].first;
  free_world(&w);
  make_world(pipeline, how, &w);
  SAID(&w, "A step takes 84.9 ms, predicted were 66.9 ms: 18.0 ms or 26.9 % more.",
       "Worker 3's FORWARD takes 4.25 ms against 2.00 ms predicted: +18.0 ms a step, 100 % of the difference; 100 % of "
       "that is one instruction, worker 3 FORWARD chunk 3 microbatch 0.",
       "The load is less even than predicted: the busiest worker, 3, computes 1.26 times the mean, predicted 1.00.",
       "Workers wait 38.1 % of the time, predicted 28.1 %.");
}
END_TEST

START_TEST(faster_than_predicted) {
  world w;
  recipe how = plain;
  how.forward = 0.5;
  how.backward = 1.1;
  make_world(replicas, how, &w);
  w.workers[1].peak_bytes = 3 * w.workers[1].peak_bytes / 2;
  SAID(&w, "A step takes 54.2 ms, predicted were 60.2 ms: 6.00 ms or 10.0 % less.",
       "FORWARD on every worker takes 0.50 times as long as predicted (2.00 ms against 4.00 ms on average): -10.0 ms a "
       "step.",
       "BACKWARD on every worker takes 1.10 times as long as predicted (5.03 ms against 4.57 ms on average): +4.00 ms "
       "a step.",
       "Worker 1's memory peaks at 90.0 MB, predicted were 60.0 MB.");
}
END_TEST

START_TEST(a_slow_unit) {
  world w;
  recipe how = plain;
  how.worker = 1;
  how.backward = 1.25;
  make_world(unet, how, &w);
  const plan_chunk *chunk = &w.of.prediction.plan.chunks[1];
  add_units(&w, (size_t)chunk->first_unit + 2, 3);
  SAID(&w, "A step takes 72.6 ms, predicted were 65.8 ms: 6.80 ms or 10.3 % more.",
       "Worker 1's BACKWARD takes 8.50 ms against 6.80 ms predicted: +6.80 ms a step, 100 % of the difference; most of "
       "it in up_blocks.1.upsamplers.0 (convolution), 776.9 us against 259.0 us.",
       "The load is more even than predicted: the busiest worker, 0, computes 1.03 times the mean, predicted 1.10.",
       "Workers wait 27.0 % of the time, predicted 24.6 %.");
}
END_TEST

/* ---- figures ---- */

static double number(const json_t *object, const char *key) { return json_number_value(json_object_get(object, key)); }

/* What comparison.json says of causes adds up, and its errors are those of doc/reports.md. */
START_TEST(figures_of_the_file) {
  world w;
  recipe how = plain;
  how.backward = 1.4;
  how.links = 3;
  how.delay_s = 2e-5;
  make_world(_i ? replicas : pipeline, how, &w);
  add_units(&w, 1, 2);
  json_t *json = compare(&w);
  const json_t *step = json_object_get(json, "step_s"), *error = json_object_get(json, "error");
  size_t at;
  const json_t *row;
  double effects_s = 0, shares = 0;
  json_array_foreach(json_object_get(json, "causes"), at, row) {
    effects_s += number(row, "effect_s");
    shares += number(row, "share");
  }
  ck_assert_double_eq_tol(effects_s, number(json, "difference_s"), 1e-12);
  ck_assert_double_eq_tol(shares, 1, 1e-9);
  ck_assert_double_eq_tol(number(json, "difference_s"), number(step, "measured") - number(step, "predicted"), 1e-12);
  ck_assert_double_eq_tol(number(error, "step"), number(step, "predicted") / number(step, "measured") - 1, 1e-12);
  ck_assert_double_eq_tol(number(error, "memory"), 0, 1e-12);
  ck_assert_double_eq_tol(number(error, "bubble"), w.predicted.metrics->bubble_ratio - w.measured.metrics->bubble_ratio,
                          1e-12);
  ck_assert_uint_eq(json_array_size(json_object_get(json, "units")), w.of.prediction.graph.units.count);
  ck_assert_uint_eq(json_array_size(json_object_get(json, "workers")), (size_t)w.metrics.worker_count);
  ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(json, "steps"), "count")), 7);
  double shares_of_bounds = 0;
  for (int b = 0; b < w.measured.bound_count; b++) {
    shares_of_bounds += w.bounds[b].share;
    if (b) ck_assert(w.bounds[b - 1].share >= w.bounds[b].share);
  }
  ck_assert_double_eq_tol(shares_of_bounds, 1, 1e-9);
  json_decref(json);
  free_world(&w);
}
END_TEST

/* ---- files ---- */

static void write_run(const world *w, const char *folder) {
  const report_options options = {.gnuplot = NULL};
  dp_error error = DP_ERROR_INIT;
  dp_str notes = {0};
  ck_assert_msg(report_run_folder_write(&w->pair, folder, &options, &notes, &error) == DP_OK, "%s", error.text);
  dp_str_free(&notes);
}

static bool there_is(const char *path) {
  struct stat about;
  return stat(path, &about) == 0;
}

static json_t *read_json(const char *path) {
  json_error_t trouble;
  json_t *json = json_load_file(path, 0, &trouble);
  ck_assert_msg(json != NULL, "%s: %s", path, trouble.text);
  return json;
}

static void write_text(const char *path, const char *text) {
  FILE *stream = fopen(path, "w");
  ck_assert_ptr_nonnull(stream);
  ck_assert_int_ge(fputs(text, stream), 0);
  ck_assert_int_eq(fclose(stream), 0);
}

START_TEST(a_run_s_folder) {
  world w;
  recipe how = plain;
  how.backward = 1.4;
  make_world(pipeline, how, &w);
  write_run(&w, "out");
  static const char *const files[] = {"out/plan.json",         "out/setup.json",
                                      "out/metrics.json",      "out/timeline.json",
                                      "out/comparison.json",   "out/predicted/metrics.json",
                                      "out/report.html",       "out/predicted/timeline.json",
                                      "out/plots/compared.gp", "out/plots/compared.tsv"};
  for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) ck_assert_msg(there_is(files[f]), "%s", files[f]);
  json_t *metrics = read_json("out/metrics.json"), *predicted = read_json("out/predicted/metrics.json");
  ck_assert_str_eq(json_string_value(json_object_get(metrics, "origin")), "measured");
  ck_assert_str_eq(json_string_value(json_object_get(predicted, "origin")), "predicted");
  ck_assert_double_eq_tol(number(metrics, "step_s"), w.timeline.step_s, 1e-12);
  ck_assert_double_eq_tol(number(predicted, "step_s"), w.of.prediction.timeline.step_s, 1e-12);
  ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(metrics, "steps"), "count")), 7);
  ck_assert_ptr_null(json_object_get(predicted, "steps"));
  json_decref(metrics);
  json_decref(predicted);
  /* read back */
  report_files read;
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(report_files_read("out", &read, &error) == DP_OK, "%s", error.text);
  ck_assert_ptr_nonnull(read.comparison);
  ck_assert_ptr_null(report_files_log(&read));
  ck_assert_double_eq_tol(report_files_predicted(&read)->metrics->step_s, w.of.prediction.timeline.step_s, 1e-12);
  report_files_free(&read);
  /* a prediction in its place leaves nothing of the comparison */
  const report_options options = {.gnuplot = NULL};
  dp_str notes = {0};
  ck_assert_int_eq(report_folder_write(&w.predicted, "out", &options, &notes, &error), DP_OK);
  dp_str_free(&notes);
  ck_assert(!there_is("out/comparison.json") && !there_is("out/predicted") && !there_is("out/plots/compared.tsv"));
  free_world(&w);
  scratch_clean(scratch);
}
END_TEST

/* Both runs in one trace: no two processes, threads of one, or flows have a number in common. */
START_TEST(one_trace_of_both) {
  world w;
  recipe how = plain;
  how.links = 2;
  make_world(replicas, how, &w);
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(report_trace_write(&w.measured, &w.predicted, "pair.json", &error), DP_OK);
  json_t *root = read_json("pair.json");
  const json_t *events = json_object_get(root, "traceEvents"), *event;
  const int workers = w.of.prediction.program.worker_count;
  const uint32_t instructions = w.of.prediction.program.instruction_count;
  size_t at;
  int named = 0, spans[2] = {0, 0}, starts = 0, ends = 0;
  json_int_t flow_from = 0;
  json_array_foreach(events, at, event) {
    const char *phase = json_string_value(json_object_get(event, "ph"));
    const json_int_t pid = json_integer_value(json_object_get(event, "pid"));
    const json_t *name = json_object_get(json_object_get(event, "args"), "name");
    const bool predicted = pid > workers;
    ck_assert(pid >= 1 && pid <= 2 * workers);
    if (strcmp(json_string_value(json_object_get(event, "name")), "process_name") == 0) {
      ck_assert_ptr_nonnull(strstr(json_string_value(name), predicted ? ", predicted" : ", measured"));
      named++;
    }
    if (phase[0] == 'X') spans[predicted]++;
    if (phase[0] == 's' || phase[0] == 'f') {
      const json_int_t id = json_integer_value(json_object_get(event, "id"));
      ck_assert_int_eq(id >= instructions, predicted);
      if (phase[0] == 's')
        starts++;
      else
        ends++;
      flow_from += phase[0] == 's' ? id : -id;
    }
  }
  ck_assert_int_eq(named, 2 * workers);
  ck_assert_int_eq(spans[0], (int)instructions);
  ck_assert_int_eq(spans[1], (int)instructions);
  ck_assert_int_eq(starts, ends);
  ck_assert_int_eq(flow_from, 0);
  ck_assert_double_eq_tol(number(json_object_get(root, "otherData"), "predicted_step_s"), w.predicted.metrics->step_s,
                          1e-12);
  json_decref(root);
  free_world(&w);
  scratch_clean(scratch);
}
END_TEST

/* ---- the log ---- */

static dp_status read_log(const char *text, report_log *log, dp_error *error) {
  write_text("log.jsonl", text);
  return report_log_read("log.jsonl", log, error);
}

START_TEST(a_log_that_was_resumed) {
  dp_error error = DP_ERROR_INIT;
  report_log log;
  ck_assert_int_eq(read_log("{\"event\": \"start\"}\n"
                            "{\"step\": 1, \"loss\": 3.0, \"samples_per_s\": 5}\n"
                            "{\"step\": 2, \"loss\": 2.0, \"other\": [1]}\n"
                            "{\"step\": 2, \"eval_loss\": 2.5}\n"
                            "\n"
                            "{\"step\": 3, \"loss\": 9.0}\n"
                            "{\"step\": 4, \"eval_loss\": 9.5}\n"
                            "{\"event\": \"resume\", \"step\": 2}\n"
                            "{\"step\": 3, \"loss\": null}\n"
                            "{\"step\": 4, \"loss\": 1.0, \"lr\"",
                            &log, &error),
                   DP_OK);
  ck_assert_uint_eq(log.rows.count, 3); /* the last line is cut off */
  ck_assert_int_eq(log.rows.items[1].step, 2);
  ck_assert_double_eq(log.rows.items[1].loss, 2);
  ck_assert_double_eq(log.rows.items[0].samples_per_s, 5);
  ck_assert(isnan(log.rows.items[1].samples_per_s));
  ck_assert_int_eq(log.rows.items[2].step, 3);
  ck_assert(isnan(log.rows.items[2].loss));
  ck_assert_uint_eq(log.evaluations.count, 1);
  ck_assert_double_eq(log.evaluations.items[0].loss, 2.5);
  report_log_free(&log);
  ck_assert_int_eq(read_log("", &log, &error), DP_OK);
  ck_assert_uint_eq(log.rows.count, 0);
  report_log_free(&log);
  scratch_clean(scratch);
}
END_TEST

START_TEST(logs_that_are_refused) {
  static const char *const cases[][2] = {
      {"{\"step\": 1, \"loss\": 3.0}\n{\"step\": 2\n", "log.jsonl:2: no JSON"},
      {"{\"step\": 1, \"loss\": \"low\"}\n", "log.jsonl:1: loss: allowed: a number or null"},
      {"\n\n{\"step\": 1.5, \"loss\": 1}\n", "log.jsonl:3: step: allowed: an integer from 0"},
      {"{\"loss\": 1}\n", "log.jsonl:1: step: allowed: an integer from 0"},
      {"{\"step\": -1, \"eval_loss\": 1}\n", "log.jsonl:1: step: allowed"},
      {"[1]\n", "log.jsonl:1: found no object"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    dp_error error = DP_ERROR_INIT;
    report_log log;
    ck_assert_int_eq(read_log(cases[c][0], &log, &error), DP_BAD_INPUT);
    ck_assert_msg(strstr(error.text, cases[c][1]) == error.text, "found \"%s\", expected \"%s\"", error.text,
                  cases[c][1]);
  }
  scratch_clean(scratch);
}
END_TEST

/* A page of a run in training has its curves; one that is no longer a log cannot be read. */
START_TEST(a_log_in_a_folder) {
  world w;
  dp_error error = DP_ERROR_INIT;
  dp_str page = {0}, notes = {0};
  make_world(pipeline, plain, &w);
  ck_assert_int_eq(dp_folder_make("out", &error), DP_OK);
  write_text("out/log.jsonl",
             "{\"step\": 1, \"loss\": 3.0, \"samples_per_s\": 5}\n"
             "{\"step\": 2, \"loss\": 2.5, \"samples_per_s\": 4}\n{\"step\": 2, \"eval_loss\": 1.25}\n");
  write_run(&w, "out");
  ck_assert(there_is("out/plots/loss.tsv") && there_is("out/plots/rate.gp"));
  ck_assert_int_eq(report_again("out", true, NULL, &page, &notes, &error), DP_OK);
  ck_assert_ptr_nonnull(strstr(dp_str_text(&page), "## Training"));
  ck_assert_ptr_nonnull(strstr(dp_str_text(&page),
                               "Steps 1 to 2. The loss was 3 at first and is 2.75, the mean of the "
                               "last 2 steps. Evaluated at step 2: 1.25."));
  ck_assert_ptr_nonnull(strstr(dp_str_text(&page), "## Predicted and measured"));
  dp_str_free(&page);
  write_text("out/log.jsonl", "nothing\n");
  ck_assert_int_eq(report_again("out", true, NULL, &page, &notes, &error), DP_BAD_INPUT);
  ck_assert_msg(strncmp(error.text, "out/log.jsonl:1: no JSON", 24) == 0, "%s", error.text);
  dp_str_free(&page);
  dp_str_free(&notes);
  free_world(&w);
  scratch_clean(scratch);
}
END_TEST

static void enter(void) {
  read_efficiency();
  scratch_enter();
}

static void leave(void) {
  scratch_leave();
  free_efficiency();
}

int main(void) {
  Suite *suite = suite_create("report_compare");
  TCase *sentences = suite_case(suite, "sentences", read_efficiency, free_efficiency, 0);
  tcase_add_test(sentences, nothing_to_say);
  tcase_add_test(sentences, one_slow_worker);
  tcase_add_test(sentences, all_are_slow);
  tcase_add_test(sentences, slow_links);
  tcase_add_test(sentences, one_long_instruction);
  tcase_add_test(sentences, faster_than_predicted);
  tcase_add_test(sentences, a_slow_unit);
  TCase *figures = suite_case(suite, "figures", read_efficiency, free_efficiency, 0);
  tcase_add_loop_test(figures, figures_of_the_file, 0, 2);
  TCase *files = suite_case(suite, "files", enter, leave, 0);
  tcase_add_test(files, a_run_s_folder);
  tcase_add_test(files, one_trace_of_both);
  tcase_add_test(files, a_log_that_was_resumed);
  tcase_add_test(files, logs_that_are_refused);
  tcase_add_test(files, a_log_in_a_folder);
  return suite_finish(suite);
}
