/* Profiles: what is written is what is read, what is wrong is refused, and who answers for an op. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/random.h"
#include "plan/profile.h"
#include "tests/graph_helpers.h"
#include "tests/profile_text.h"
#include "tests/scratch.h"

static dp_error error;
#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  scratch_enter();
}

static void teardown(void) {
  scratch_clean(scratch);
  scratch_leave();
}

static const char whole[] = PROFILE_HEAD PROFILE_POINTS
    "\"laws\": [" PROFILE_LAW("\"kind\": \"linear\", ", "gemm", "forward", "1e-6", "1e-11", "0") ",\n" PROFILE_LAW(
        "", "gemm", "forward", "5e-6", "2e-11", "0") ",\n" PROFILE_LAW("", "memory", "forward", "1e-7", "0", "1e-10") "],\n"
    "\"ops\": [" PROFILE_OP("linear 1x8 > 1x16 bias", "forward", "2e-6", "3e-6") ",\n" PROFILE_OP(
        "linear 1x8 > 1x16 bias", "backward_weight", "4e-6", "5e-6") ",\n" PROFILE_OP("add 1x8 1x8 > 1x8", "forward",
                                                                                      "1e-7", "1e-7") "]}\n";

static plan_profile parse(const char *text) {
  plan_profile profile;
  OK(plan_profile_parse(text, strlen(text), "p.json", &profile, &error));
  return profile;
}

START_TEST(a_profile_is_written_as_it_was_read) {
  plan_profile first = parse(whole), second;
  dp_str a = {0}, b = {0};
  OK(plan_profile_write(&first, "profile.json", &error));
  OK(plan_profile_read("profile.json", &second, &error));
  OK(plan_profile_text(&first, &a, &error));
  OK(plan_profile_text(&second, &b, &error));
  ck_assert_str_eq(dp_str_text(&a), dp_str_text(&b));
  ck_assert_int_eq(count_entries("."), 1); /* nothing is left beside it */
  ck_assert_uint_eq(second.ops.count, 3);
  ck_assert_str_eq(second.ops.items[0].op, "add 1x8 1x8 > 1x8"); /* sorted */
  ck_assert_int_eq(second.ops.items[2].direction, PLAN_DIRECTION_BACKWARD_WEIGHT);
  ck_assert_int_eq(second.ops.items[1].kind, GRAPH_LINEAR);
  ck_assert_double_eq(second.optimizer_s_per_parameter, 1e-9);
  ck_assert_str_eq(second.processor, "by hand");
  ck_assert_int_eq(second.laws.items[1].kind, GRAPH_NONE);
  dp_str_free(&a);
  dp_str_free(&b);
  plan_profile_free(&first);
  plan_profile_free(&second);
}
END_TEST

/* Replaces the first `old` of the whole text by `new`: refused with that line. */
static void refused(const char *old, const char *new, const char *says) {
  const char *at = strstr(whole, old);
  ck_assert_msg(at != NULL, "%s", old);
  dp_str text = {0};
  dp_str_add_bytes(&text, whole, (size_t)(at - whole));
  dp_str_add(&text, new);
  dp_str_add(&text, at + strlen(old));
  plan_profile profile;
  error = (dp_error)DP_ERROR_INIT;
  ck_assert_int_eq(plan_profile_parse(dp_str_text(&text), text.length, "p.json", &profile, &error), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, says) != NULL && strchr(error.text, '\n') == NULL, "%s: found %s", says, error.text);
  ck_assert_msg(strncmp(error.text, "p.json:", 7) == 0, "%s", error.text);
  dp_str_free(&text);
}

START_TEST(wrong_profiles_are_refused_with_their_line) {
  refused("diffpipe-profile", "diffpipe-plan", "p.json:1: format: found \"diffpipe-plan\"");
  refused("\"version\": 1", "\"version\": 2", "version: found 2, allowed: 1");
  refused("\"cores\": 2", "\"coers\": 2", "unknown key \"coers\", did you mean \"cores\"?");
  refused("\"cores\": 2", "\"cores\": 0", "profile.cores: found 0, allowed:");
  refused("\"handover_s\": 4e-5", "\"handover_s\": -1", "profile.handover_s: found -1");
  refused("\"handover_s\": 4e-5,", "", "the key \"handover_s\" is missing");
  refused("\"bytes\": 100000", "\"bytes\": 1000", "copies: found 1000 bytes after 1000, allowed: ascending sizes");
  refused("\"kind\": \"linear\"", "\"kind\": \"liner\"", "laws.kind: found \"liner\", allowed: the name of an op kind");
  refused("\"kind\": \"linear\"", "\"kind\": \"conv2d\"", "laws.kind: found \"conv2d\"");
  refused("\"busy_factor\": 2", "\"busy_factor\": 0.5", "laws.busy_factor: found 0.5");
  refused("\"op\": \"linear 1x8", "\"op\": \"linaer 1x8",
          "ops.op: found \"linaer 1x8 > 1x16 bias\", allowed: what begins");
  refused("backward_weight", "forward", "ops: found \"linear 1x8 > 1x16 bias\", forward, twice");
  refused("\"alone_s\": 2e-6", "\"alone_s\": 0", "ops.alone_s: found 0");
  refused("\"laws\": [", "\"laws\": 3, \"lows\": [", "unknown key \"lows\"");
}
END_TEST

#define LINK(way, more)                                                                                         \
  "{\"way\": \"" way                                                                                            \
  "\", \"link\": \"nvlink4\", \"link_bytes_per_s\": 4e11, \"link_latency_s\": 2e-6, "                           \
  "\"gpus\": 2, \"handover_s\": 1e-5, \"slowdown\": 0.1, \"waiting_slowdown\": 0, \"both_bytes_per_s\": 7e11, " \
  "\"together_bytes_per_s\": 0, \"error\": 0.01, \"points\": [" more "]}"
#define POINT(bytes, seconds) "{\"bytes\": " bytes ", \"alone_s\": " seconds ", \"busy_s\": " seconds "}"

/* What one GPU does with itself. */
#define ALONE(way, gpus)                                                                                               \
  "{\"way\": \"" way "\", \"link\": \"memory\", \"link_bytes_per_s\": 4e11, \"link_latency_s\": 0, \"gpus\": " gpus    \
  ", \"handover_s\": 0, \"slowdown\": 0, \"waiting_slowdown\": 0, \"both_bytes_per_s\": 0, \"together_bytes_per_s\": " \
  "0, "                                                                                                                \
  "\"error\": 0, \"points\": [" POINT("1", "1") "]}"

static dp_status parse_links(const char *links, plan_profile *profile) {
  dp_str text = {0};
  error = (dp_error)DP_ERROR_INIT;
  dp_str_addf(&text, "%s\"links\": [%s],\n\"laws\": [], \"ops\": []}\n", PROFILE_HEAD PROFILE_POINTS, links);
  const dp_status status = plan_profile_parse(dp_str_text(&text), text.length, "p.json", profile, &error);
  dp_str_free(&text);
  return status;
}

/* Beside what is exchanged within a card stands what whole GPUs exchange, way by way. */
START_TEST(links_between_gpus_are_kept) {
  plan_profile profile, again;
  dp_str a = {0}, b = {0};
  OK(parse_links(LINK("local", POINT("1000", "1e-6") ", " POINT("2000", "3e-6")) ", " LINK(
                     "nccl", POINT("5", "1")) ", " ALONE("on-device", "1"),
                 &profile));
  profile.nccl_slowdown = 0.125;
  profile.launch_s = 7e-6;
  OK(plan_profile_text(&profile, &a, &error));
  OK(plan_profile_parse(dp_str_text(&a), a.length, "p.json", &again, &error));
  OK(plan_profile_text(&again, &b, &error));
  ck_assert_str_eq(dp_str_text(&a), dp_str_text(&b));
  ck_assert_uint_eq(again.copies.count, 2);
  ck_assert(again.nccl_slowdown == 0.125 && again.launch_s == 7e-6);
  ck_assert_ptr_nonnull(plan_profile_find_link(&again, PLAN_PROFILE_ON_DEVICE, "memory"));
  ck_assert(!plan_profile_has_work(&again));
  const plan_profile_link *link = plan_profile_find_link(&again, PLAN_PROFILE_LOCAL, "nvlink4");
  ck_assert_ptr_nonnull(link);
  ck_assert_uint_eq(link->points.count, 2);
  ck_assert_double_eq(link->points.items[1].busy_s, 3e-6);
  ck_assert_double_eq(link->both_bytes_per_s, 7e11);
  ck_assert_ptr_null(plan_profile_find_link(&again, PLAN_PROFILE_LOCAL, "nvlink3")); /* another class of links */
  ck_assert_ptr_null(plan_profile_find_link(&again, PLAN_PROFILE_HOST, "nvlink4"));
  plan_profile_link other = {.way = PLAN_PROFILE_NCCL, .link = "pcie5-x16", .gpus = 4};
  ck_assert(dp_array_push(&other.points, ((plan_profile_point){1, 2, 3})));
  OK(plan_profile_set_link(&again, &other, &error)); /* in the place of what there was */
  ck_assert_uint_eq(again.links.count, 3);
  ck_assert_ptr_null(plan_profile_find_link(&again, PLAN_PROFILE_NCCL, "nvlink4"));
  ck_assert_ptr_nonnull(plan_profile_find_link(&again, PLAN_PROFILE_NCCL, "pcie5-x16"));
  dp_str_free(&a);
  dp_str_free(&b);
  plan_profile_free(&profile);
  plan_profile_free(&again);
}
END_TEST

START_TEST(wrong_links_are_refused) {
  static const struct {
    const char *links, *says;
  } cases[] = {
      {LINK("nvlink", POINT("1", "1")), "links.way: found \"nvlink\", allowed: "},
      {LINK("host", POINT("1", "1")) ", " LINK("host", POINT("1", "1")), "links.way: found \"host\" twice"},
      {LINK("local", POINT("2", "1") ", " POINT("1", "1")), "points: found 1 bytes after 2, allowed: ascending sizes"},
      {ALONE("nccl", "1"), "links.gpus: found 1, allowed of \"nccl\": 2 or more"},
      {ALONE("to-host", "0"), "links.gpus: found 0, allowed: "},
      {LINK("local", ""), "links.points: found none, allowed: one or more"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    plan_profile profile;
    ck_assert_int_eq(parse_links(cases[i].links, &profile), DP_BAD_INPUT);
    ck_assert_msg(strstr(error.text, cases[i].says) != NULL, "%s: found %s", cases[i].says, error.text);
  }
}
END_TEST

static plan_profile_cost cost_of(const plan_profile *profile, const char *key, graph_op_kind kind, double flops,
                                 double bytes) {
  const plan_profile_work work = {flops, 0, bytes};
  plan_profile_cost cost = {0, 0, PLAN_SOURCE_ANALYTIC};
  (void)plan_profile_op_cost(profile, key, kind, PLAN_DIRECTION_FORWARD, &work, &cost);
  return cost;
}

START_TEST(the_best_source_answers) {
  plan_profile profile = parse(whole);
  plan_profile_cost cost = cost_of(&profile, "linear 1x8 > 1x16 bias", GRAPH_LINEAR, 1e6, 1000);
  ck_assert_int_eq(cost.source, PLAN_SOURCE_MEASURED);
  ck_assert_double_eq(cost.alone_s, 2e-6);
  ck_assert_double_eq(cost.busy_s, 3e-6);
  cost = cost_of(&profile, "linear 1x8x2 > 1x8x2 bias", GRAPH_LINEAR, 1e6, 1000); /* its kind's law */
  ck_assert_int_eq(cost.source, PLAN_SOURCE_INTERPOLATED);
  ck_assert_double_eq_tol(cost.alone_s, 1e-6 + 1e-5, 1e-18);
  ck_assert_double_eq_tol(cost.busy_s, 2 * (1e-6 + 1e-5), 1e-18);
  cost = cost_of(&profile, "linear 1x8 > 1x32 bias", GRAPH_LINEAR, 1e6, 1000); /* corrected by one of half the width */
  const double weight = exp(-pow(log(2) / 1.4, 2)), wrong = -1; /* it took 2 of 11 us: less than a part of e */
  ck_assert_double_eq_tol(cost.alone_s, (1e-6 + 1e-5) * exp(weight * wrong / (weight + 0.1)), 1e-15);
  cost = cost_of(&profile, "add 2x8 2x8 > 2x8", GRAPH_ADD, 0, 1000); /* its class's */
  ck_assert_int_eq(cost.source, PLAN_SOURCE_INTERPOLATED);
  ck_assert_double_eq_tol(cost.alone_s, 1e-7 + 1e-7, 1e-20);
  /* beyond what laws were fitted to, and a class that has none */
  ck_assert_int_eq(cost_of(&profile, "x", GRAPH_LINEAR, 7.9e7, 1000).source, PLAN_SOURCE_INTERPOLATED);
  ck_assert_int_eq(cost_of(&profile, "x", GRAPH_LINEAR, 8.1e7, 1000).source, PLAN_SOURCE_ANALYTIC);
  ck_assert_int_eq(cost_of(&profile, "x", GRAPH_CONV2D, 1e6, 1000).source, PLAN_SOURCE_ANALYTIC);
  plan_profile_free(&profile);
}
END_TEST

START_TEST(sizes_between_points_are_log_log) {
  plan_profile profile = parse(whole);
  const plan_profile_point *points = profile.copies.items;
  plan_profile_point at = plan_profile_at(points, 2, 10000);
  ck_assert_double_eq_tol(at.alone_s, sqrt(1e-6 * 1e-5), 1e-15);
  ck_assert_double_eq_tol(at.busy_s, sqrt(2e-6 * 4e-5), 1e-15);
  ck_assert_double_eq(plan_profile_at(points, 2, 10).alone_s, 1e-6);
  ck_assert_double_eq_tol(plan_profile_at(points, 2, 1e6).busy_s, 4e-4, 1e-15);
  ck_assert_double_eq(plan_profile_at(points, 0, 1e6).alone_s, 0);
  plan_profile_free(&profile);
}
END_TEST

/* Ops that take exactly what a law says, one in ten of them far too long. */
static void add_law_abiding(plan_profile *profile, graph_op_kind kind, double overhead, double flop, double byte,
                            bool outliers) {
  dp_random random;
  dp_random_init(&random, 5, (uint64_t)kind);
  for (int i = 0; i < 60; i++) {
    const double size = exp(4 * dp_random_uniform(&random));
    plan_profile_op op = {.op = dp_arena_printf(&profile->arena, "%s op%d", graph_op_kind_name(kind), i),
                          .direction = PLAN_DIRECTION_FORWARD,
                          .kind = kind,
                          .runs = 1};
    op.work = (plan_profile_work){flop > 0 ? 1e6 * size * (1 + dp_random_uniform(&random)) : 0, 1e3 * size,
                                  1e4 * size * (1 + dp_random_uniform(&random))};
    op.alone_s = overhead + flop * op.work.matrix_flops + byte * op.work.bytes;
    if (outliers && i % 10 == 3) op.alone_s *= 4;
    op.busy_s = 1.25 * op.alone_s;
    ck_assert(dp_array_push(&profile->ops, op));
  }
}

START_TEST(laws_are_found_again) {
  plan_profile profile = {.device = NULL};
  add_law_abiding(&profile, GRAPH_LINEAR, 3e-6, 1.2e-11, 5e-11, true);
  add_law_abiding(&profile, GRAPH_SILU, 1e-6, 0, 2e-10, false);
  OK(plan_profile_finish(&profile, &error));
  OK(plan_profile_hold_out(&profile, 5, &error));
  ck_assert_int_eq(profile.held_out, 24);
  ck_assert_double_lt(profile.held_out_error, 0.02);
  ck_assert_uint_eq(profile.laws.count, 4);
  const plan_profile_work linear = {2e7, 1e4, 2e5}, silu = {0, 1e4, 1e5};
  plan_profile_cost cost;
  ck_assert(plan_profile_op_cost(&profile, "linear new", GRAPH_LINEAR, PLAN_DIRECTION_FORWARD, &linear, &cost));
  ck_assert_double_eq_tol(cost.alone_s / (3e-6 + 1.2e-11 * 2e7 + 5e-11 * 2e5), 1, 0.05);
  ck_assert_double_eq_tol(cost.busy_s / cost.alone_s, 1.25, 1e-9);
  ck_assert(plan_profile_op_cost(&profile, "silu new", GRAPH_SILU, PLAN_DIRECTION_FORWARD, &silu, &cost));
  ck_assert_double_eq_tol(cost.alone_s / (1e-6 + 2e-10 * 1e5), 1, 1e-3);
  for (size_t i = 0; i < profile.laws.count; i++) {
    const plan_profile_law *law = &profile.laws.items[i];
    ck_assert(law->overhead_s >= 0 && law->s_per_matrix_flop >= 0 && law->s_per_flop >= 0 && law->s_per_byte >= 0);
  }
  plan_profile_free(&profile);
}
END_TEST

START_TEST(a_single_op_gives_a_law_too) {
  plan_profile profile = {.device = NULL};
  const plan_profile_op op = {.op = "linear one",
                              .direction = PLAN_DIRECTION_FORWARD,
                              .kind = GRAPH_LINEAR,
                              .work = {1e6, 0, 1e4},
                              .alone_s = 1e-4,
                              .busy_s = 1e-4,
                              .runs = 1};
  ck_assert(dp_array_push(&profile.ops, op));
  OK(plan_profile_fit(&profile, &error));
  const plan_profile_work twice = {2e6, 0, 2e4};
  plan_profile_cost cost;
  ck_assert(plan_profile_op_cost(&profile, "linear two", GRAPH_LINEAR, PLAN_DIRECTION_FORWARD, &twice, &cost));
  ck_assert_double_eq_tol(cost.alone_s, 2e-4, 1e-12);
  plan_profile_free(&profile);
}
END_TEST

/* Every op that runs has a key that begins with its kind, and ops of one key are of one work. */
START_TEST(keys_tell_works_apart) {
  const graph_model_options options = options_of(2, 64, 7);
  graph g = build_model(small_unet, &options);
  plan_profile_keys keys;
  dp_str key = {0}, other = {0};
  int alike = 0;
  OK(plan_profile_keys_init(&g, &keys, &error));
  for (size_t o = 0; o < g.ops.count; o++)
    for (int d = 0; d < PLAN_DIRECTION_COUNT; d++) {
      if (!plan_profile_runs(&g, (int)o, (plan_direction)d)) continue;
      plan_profile_key(&keys, (int)o, (plan_direction)d, &key);
      const char *kind = graph_op_kind_name(g.ops.items[o].kind);
      ck_assert_msg(strncmp(dp_str_text(&key), kind, strlen(kind)) == 0, "%s", dp_str_text(&key));
      const plan_profile_work work = plan_profile_work_of(&g, (int)o, (plan_direction)d);
      ck_assert(work.bytes > 0);
      for (size_t p = 0; p < o; p++) {
        if (!plan_profile_runs(&g, (int)p, (plan_direction)d)) continue;
        plan_profile_key(&keys, (int)p, (plan_direction)d, &other);
        if (strcmp(dp_str_text(&key), dp_str_text(&other)) != 0) continue;
        const plan_profile_work same = plan_profile_work_of(&g, (int)p, (plan_direction)d);
        ck_assert_msg(same.matrix_flops == work.matrix_flops, "%s", dp_str_text(&key));
        alike++;
      }
    }
  ck_assert_int_gt(alike, 100);
  dp_str_free(&key);
  dp_str_free(&other);
  plan_profile_keys_free(&keys);
  graph_free(&g);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_profile_is_written_as_it_was_read,
                                wrong_profiles_are_refused_with_their_line,
                                links_between_gpus_are_kept,
                                wrong_links_are_refused,
                                the_best_source_answers,
                                sizes_between_points_are_log_log,
                                laws_are_found_again,
                                a_single_op_gives_a_law_too,
                                keys_tell_works_apart};
  return suite_run("plan_profile", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
