/* The main function of a Check suite: `suite_run` where all tests are plain ones of one case; else
 * `suite_case`, Check's own tcase_add_test and tcase_add_loop_test, and `suite_finish`. */
#ifndef DP_TESTS_SUITE_H
#define DP_TESTS_SUITE_H

#include <check.h>
#include <stdlib.h>

/* Whether this build is many times slower than a plain one: long runs are cut then. */
#if defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SUITE_IS_SLOW 1
#endif
#endif
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SUITE_IS_SLOW 1
#endif
#ifndef SUITE_IS_SLOW
#define SUITE_IS_SLOW 0
#endif

/* Whether long runs are to be cut: in such a build, or where SHORT_TESTS is set, for a second run of what a first one
 * did at length (make distcheck). */
static inline int suite_is_short(void) { return SUITE_IS_SLOW || getenv("SHORT_TESTS") != NULL; }

/* A new case of the suite. setup and teardown may be NULL; timeout_s 0: CK_DEFAULT_TIMEOUT, else Check's own. */
static inline TCase *suite_case(Suite *suite, const char *name, void (*setup)(void), void (*teardown)(void),
                                double timeout_s) {
  TCase *tcase = tcase_create(name);
  if (timeout_s > 0) tcase_set_timeout(tcase, timeout_s);
  tcase_add_checked_fixture(tcase, setup, teardown);
  suite_add_tcase(suite, tcase);
  return tcase;
}

/* Runs and frees the suite in the mode that CK_FORK and its friends say; exit status 1 when a test failed. */
static inline int suite_finish(Suite *suite) {
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Of one case that is named as the suite. */
static inline int suite_run(const char *name, const TTest *const *tests, size_t count, void (*setup)(void),
                            void (*teardown)(void), double timeout_s) {
  Suite *suite = suite_create(name);
  TCase *tcase = suite_case(suite, name, setup, teardown, timeout_s);
  for (size_t i = 0; i < count; i++) tcase_add_test(tcase, tests[i]);
  return suite_finish(suite);
}

#endif
