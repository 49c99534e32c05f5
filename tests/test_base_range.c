/* Values to try, written short. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/range.h"
#include "tests/suite.h"

static dp_arena arena;
static void setup(void) { arena = (dp_arena){0}; }
static void teardown(void) { dp_arena_free(&arena); }

static dp_range parse(const char *text) {
  dp_range range;
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(dp_range_parse("key", text, &arena, &range, &error) == DP_OK, "%s", error.text);
  return range;
}

START_TEST(lists_are_taken_as_they_stand) {
  const dp_range range = parse("4, 1,2.5,-3e2");
  static const double values[] = {4, 1, 2.5, -300};
  ck_assert_uint_eq(range.count, 4);
  ck_assert(!range.logarithmic);
  for (int i = 0; i < 4; i++) ck_assert_double_eq(range.values[i], values[i]);
  ck_assert_uint_eq(parse("7").count, 1);
}
END_TEST

START_TEST(ends_are_exact_and_steps_are_equal) {
  static const struct { double from, to; } ends[] = {{16, 900}, {900, 16}, {1e-6, 1e9}, {1, 1}, {0.3, 0.7}};
  for (size_t e = 0; e < sizeof ends / sizeof ends[0]; e++)
    for (int n = 2; n <= 40; n++) {
      char text[80];
      (void)snprintf(text, sizeof text, "%.17g:%.17g:log%d", ends[e].from, ends[e].to, n);
      const dp_range range = parse(text);
      ck_assert_uint_eq(range.count, (size_t)n);
      ck_assert(range.logarithmic);
      ck_assert_double_eq(range.values[0], ends[e].from);
      ck_assert_double_eq(range.values[n - 1], ends[e].to);
      const double ratio = pow(ends[e].to / ends[e].from, 1.0 / (n - 1));
      for (int i = 1; i < n; i++) ck_assert_double_eq_tol(range.values[i] / range.values[i - 1] / ratio, 1, 1e-9);
    }
  const dp_range even = parse("-1:1:lin5");
  for (int i = 0; i < 5; i++) ck_assert_double_eq_tol(even.values[i], -1 + 0.5 * i, 1e-15);
}
END_TEST

START_TEST(whole_numbers_come_once) {
  dp_range range = parse("1:8:log10");
  dp_range_round(&range);
  ck_assert_uint_eq(range.count, 7); /* 1 1.26 1.59 2 2.52 3.17 4 5.04 6.35 8 */
  static const double values[] = {1, 2, 3, 4, 5, 6, 8};
  for (int i = 0; i < 7; i++) ck_assert_double_eq(range.values[i], values[i]);
}
END_TEST

START_TEST(what_is_no_range_is_refused) {
  static const char *const texts[] = {"",
                                      ",",
                                      "1,",
                                      "a",
                                      "1:2",
                                      "1:2:",
                                      "1:2:3",
                                      "1:2:log",
                                      "1:2:log1",
                                      "1:2:log1001",
                                      "0:2:log3",
                                      "1:-2:log3",
                                      "1:2:exp3",
                                      "1:2:lin3x",
                                      "1::lin3",
                                      ":2:lin3",
                                      "nan",
                                      "inf",
                                      "1e999",
                                      "1:2:lin-3",
                                      "1:2:lin 3",
                                      "1,2;3",
                                      "1:2:log99999999999999999999"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    dp_range range;
    dp_error error = DP_ERROR_INIT;
    ck_assert_msg(dp_range_parse("key", texts[i], &arena, &range, &error) == DP_BAD_INPUT, "%s", texts[i]);
    ck_assert_msg(strncmp(error.text, "key: found \"", 12) == 0, "%s", error.text);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {lists_are_taken_as_they_stand, ends_are_exact_and_steps_are_equal,
                                whole_numbers_come_once, what_is_no_range_is_refused};
  return suite_run("base_range", tests, sizeof tests / sizeof tests[0], setup, teardown, 30);
}
