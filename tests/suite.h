/* The main function of a Check suite: `SUITE_MAIN("base", ADD(test_a) ADD(test_b))` with fixtures as needed. */
#ifndef DP_TESTS_SUITE_H
#define DP_TESTS_SUITE_H

#include <check.h>
#include <stdlib.h>

/* Runs the tests of one case in the mode that CK_FORK and its friends say; exit status 1 when one failed. */
static inline int suite_run(const char *name, const TTest *const *tests, size_t count, void (*setup)(void),
                            void (*teardown)(void), double timeout_s) {
  Suite *suite = suite_create(name);
  TCase *tcase = tcase_create(name);
  tcase_set_timeout(tcase, timeout_s);
  if (setup) tcase_add_checked_fixture(tcase, setup, teardown);
  for (size_t i = 0; i < count; i++) tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
