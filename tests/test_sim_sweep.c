/* Sweeps as they are written, and when buying pays. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "sim/break_even.h"
#include "sim/sweep.h"
#include "tests/suite.h"

static dp_arena arena;
static void setup(void) {}
static void teardown(void) { dp_arena_free(&arena); }

static sim_sweep parsed(const char *text) {
  sim_sweep sweep;
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(sim_sweep_parse(text, NULL, &arena, &sweep, &error) == DP_OK, "%s", error.text);
  return sweep;
}

static void refused(const char *text, const char *says) {
  sim_sweep sweep;
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(sim_sweep_parse(text, NULL, &arena, &sweep, &error), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, says) != NULL, "%s: %s", text, error.text);
  ck_assert_ptr_nonnull(strstr(error.text, ", allowed: "));
}

START_TEST(ranges) {
  const sim_sweep linear = parsed("task.global_batch=32:128:lin4");
  static const double expected[] = {32, 64, 96, 128};
  ck_assert_int_eq(linear.count, 4);
  ck_assert_str_eq(linear.key, "task.global_batch");
  ck_assert(linear.numeric && !linear.logarithmic);
  for (int i = 0; i < 4; i++) ck_assert_double_eq(linear.values[i].number, expected[i]);
  const sim_sweep logs = parsed("link.bandwidth_gb_per_s=1:1000:log4");
  ck_assert_int_eq(logs.count, 4);
  ck_assert(logs.logarithmic);
  for (int i = 0; i < 4; i++) ck_assert_double_eq_tol(logs.values[i].number, pow(10, i), 1e-9);
  ck_assert_str_eq(logs.values[1].text, "10");
}
END_TEST

/* From 1 to 8 in twenty equal multiples: only eight integers lie there. */
START_TEST(integer_keys_are_rounded_without_doubles) {
  const sim_sweep sweep = parsed("plan.microbatch_size=1:8:log20");
  ck_assert_int_eq(sweep.count, 8);
  for (int i = 0; i < 8; i++) ck_assert_double_eq(sweep.values[i].number, i + 1);
  refused("task.global_batch=1.5:8:log3", "no integer");
  ck_assert_double_eq(parsed("device.memory_gb=1.5:8:log3").values[0].number, 1.5); /* not an integer key */
}
END_TEST

START_TEST(points_ascend_and_ends_are_exact) {
  dp_random random;
  dp_random_init(&random, 7, 0);
  for (int i = 0; i < 500; i++) {
    char text[128];
    const double from = pow(10, 6 * dp_random_uniform(&random) - 3), to = from * (1 + 1000 * dp_random_uniform(&random));
    const int count = 2 + (int)(254 * dp_random_uniform(&random));
    const bool logarithmic = i % 2;
    (void)snprintf(text, sizeof text, "link.latency_us=%.9g:%.9g:%s%d", from, to, logarithmic ? "log" : "lin", count);
    const sim_sweep sweep = parsed(text);
    char first[32], last[32];
    (void)snprintf(first, sizeof first, "%.9g", from);
    (void)snprintf(last, sizeof last, "%.9g", to);
    ck_assert_str_eq(sweep.values[0].text, first);
    ck_assert_str_eq(sweep.values[sweep.count - 1].text, last);
    ck_assert_int_le(sweep.count, count);
    for (int v = 0; v < sweep.count; v++) {
      ck_assert_double_eq(strtod(sweep.values[v].text, NULL), sweep.values[v].number);
      if (v) ck_assert_double_gt(sweep.values[v].number, sweep.values[v - 1].number);
      const double share = (double)v / (count - 1);
      if (sweep.count == count)
        ck_assert_double_eq_tol(
            sweep.values[v].number / (logarithmic ? from * pow(to / from, share) : from + (to - from) * share), 1,
            6e-6);
    }
  }
}
END_TEST

START_TEST(lists) {
  const sim_sweep numbers = parsed("model.height=1024,512,1024,768");
  ck_assert_int_eq(numbers.count, 3);
  ck_assert(numbers.numeric);
  ck_assert_double_eq(numbers.values[0].number, 512);
  const sim_sweep names = parsed("plan.schedule=gpipe,1f1b,zb-v");
  ck_assert_int_eq(names.count, 3);
  ck_assert(!names.numeric);
  ck_assert_str_eq(names.values[2].text, "zb-v");
  const sim_sweep stages = parsed("search.stages=[1, 2],[4]");
  ck_assert_int_eq(stages.count, 2);
  ck_assert_str_eq(stages.values[0].text, "[1, 2]");
}
END_TEST

START_TEST(what_is_no_sweep) {
  refused("", "it is no sweep");
  refused("task.global_batch", "it is no sweep");
  refused("=1:2:lin2", "it is no sweep");
  refused("a.b=1:2", "three parts");
  refused("a.b=1:2:lin3:4", "three parts");
  refused("a.b=1:x:lin3", "is no number");
  refused("a.b=inf:2:lin3", "is no number");
  refused("a.b=2:1:lin3", "not below TO");
  refused("a.b=1:1:lin3", "not below TO");
  refused("a.b=0:1:log3", "not above 0");
  refused("a.b=1:2:log1", "steps are wrong");
  refused("a.b=1:2:log257", "steps are wrong");
  refused("a.b=1:2:log+3", "steps are wrong");
  refused("a.b=1:2:geo3", "steps are wrong");
  refused("a.b=1:2:log", "steps are wrong");
  refused("a.b=1,,2", "a value is empty");
}
END_TEST

/* ---- buying ---- */

static const sim_terms terms = {.usd_per_kwh = 0.2, .hours_per_month = 500, .utilisation = 0.5};
/* a sample a second for 250 of 500 h: 900000 a month; 720 J a sample are 0.0002 kWh: 40 USD of power a million */
static const sim_price own = {
    .name = "own", .fits = true, .throughput_samples_per_s = 1, .joules_per_sample = 720, .purchase_usd = 5400};
/* 0.36 USD/h at two samples a second: 50 USD a million */
static const sim_price rented = {
    .name = "rented", .fits = true, .throughput_samples_per_s = 2, .joules_per_sample = 1, .price_usd_per_h = 0.36};

/* 0.9 million samples a month save 50 - 40 USD each: 9 USD a month, of 5400. */
START_TEST(renting_by_hand) {
  const sim_break_even b = sim_break_even_rent(&own, &rented, &terms);
  ck_assert_int_eq(b.pays, SIM_PAYS_AFTER);
  ck_assert_double_eq_tol(b.months, 600, 1e-9);
  const sim_terms no_power = {.usd_per_kwh = 0, .hours_per_month = 500, .utilisation = 1};
  ck_assert_double_eq_tol(sim_break_even_rent(&own, &rented, &no_power).months, 60, 1e-9); /* 1.8 M * 50 = 90 a month */
}
END_TEST

START_TEST(renting_never_pays_where_power_costs_more) {
  const sim_terms dear = {.usd_per_kwh = 0.25, .hours_per_month = 500, .utilisation = 0.5}; /* 50 USD: just as much */
  const sim_break_even b = sim_break_even_rent(&own, &rented, &dear);
  ck_assert_int_eq(b.pays, SIM_PAYS_NEVER);
  ck_assert_str_eq(b.why, "renting rented costs 50 USD per million samples, the power of own alone 50");
}
END_TEST

START_TEST(unknown_prices) {
  sim_price other = own;
  other.purchase_usd = 0;
  ck_assert_int_eq(sim_break_even_rent(&other, &rented, &terms).pays, SIM_PAYS_UNKNOWN);
  ck_assert_ptr_nonnull(strstr(sim_break_even_rent(&other, &rented, &terms).why, "to buy is not known"));
  ck_assert_int_eq(sim_break_even_rent(&own, &own, &terms).pays, SIM_PAYS_UNKNOWN);
  ck_assert_ptr_nonnull(strstr(sim_break_even_rent(&own, &own, &terms).why, "to rent is not known"));
  other = rented;
  other.fits = false;
  ck_assert_str_eq(sim_break_even_rent(&own, &other, &terms).why, "no plan fits rented");
  ck_assert_int_eq(sim_break_even_purchase(&own, &rented, &terms).pays, SIM_PAYS_UNKNOWN);
}
END_TEST

/* The other makes half as much for 2000 USD: two of them are 4000, 1400 less. Its power decides:
 * 1080 J are 60 USD a million, 20 more: 18 USD a month, 77.8 months. */
START_TEST(buying_by_hand) {
  sim_price other = {
      .name = "other", .fits = true, .throughput_samples_per_s = 0.5, .joules_per_sample = 1080, .purchase_usd = 2000};
  sim_break_even b = sim_break_even_purchase(&own, &other, &terms);
  ck_assert_int_eq(b.pays, SIM_PAYS_AFTER);
  ck_assert_double_eq_tol(b.months, 1400.0 / 18, 1e-9);
  other.joules_per_sample = 720;
  ck_assert_int_eq(sim_break_even_purchase(&own, &other, &terms).pays, SIM_PAYS_NEVER);
  other.purchase_usd = 2700; /* as dear, as hungry */
  ck_assert_int_eq(sim_break_even_purchase(&own, &other, &terms).pays, SIM_PAYS_AT_ONCE);
  other.purchase_usd = 3150; /* 900 dearer, 36 USD a million less power: 32.4 a month */
  other.joules_per_sample = 72;
  b = sim_break_even_purchase(&own, &other, &terms);
  ck_assert_int_eq(b.pays, SIM_PAYS_UNTIL);
  ck_assert_double_eq_tol(b.months, 900 / 32.4, 1e-9);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {ranges,
                                integer_keys_are_rounded_without_doubles,
                                points_ascend_and_ends_are_exact,
                                lists,
                                what_is_no_sweep,
                                renting_by_hand,
                                renting_never_pays_where_power_costs_more,
                                unknown_prices,
                                buying_by_hand};
  return suite_run("sim_sweep", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
