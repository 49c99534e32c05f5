/* The efficiency curves of the catalogue, as a fixture: suites that predict read them before each test. */
#ifndef DP_TESTS_SIM_EFFICIENCY_H
#define DP_TESTS_SIM_EFFICIENCY_H

#include "sim/efficiency.h"
#include "tests/suite.h"

static sim_efficiency *efficiency;

static inline void read_efficiency(void) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(sim_efficiency_read(NULL, &efficiency, &error) == DP_OK, "%s", error.text);
}
static inline void free_efficiency(void) { sim_efficiency_free(efficiency); }

#endif
