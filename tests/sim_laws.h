/* What holds for every program that the engine has played. */
#ifndef DP_TESTS_SIM_LAWS_H
#define DP_TESTS_SIM_LAWS_H

#include "tests/sim_programs.h"

/* Figures that random cases are drawn from; the first shares nothing at all. */
enum { SIM_MIX_COUNT = 8 };
extern const sim_figures_options SIM_MIXES[SIM_MIX_COUNT];

/* Fails the test unless no two spans overlap on a lane, waits are respected, a SEND and its RECV and the members of a
 * group start and end together, hosts issue before the end, and the step is the latest end and no shorter than any lane's
 * busy time. */
void sim_laws_check(const sim_input *input, const plan_timeline *timeline);

/* Earliest starts [instruction] with every transfer alone, at the better of its two kinds of figures, and no compute
 * slowed down or waiting for its host, by relaxation; returns the latest end: the critical path. */
double sim_laws_lone_starts(const sim_input *input, double *start_s);

#endif
