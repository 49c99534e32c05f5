/* How seldom a run records itself, so that recording takes no more than a bound of its time: which steps are recorded,
 * and what one that is costs, by the run's own steps.
 *
 * The first PROF_PACE_COLD steps are recorded, since graphs are made in them, and count for nothing. Then steps are
 * recorded in bursts of PROF_PACE_BURST, with at least as many plain ones between two. The last of a burst is not kept:
 * CUPTI 13.0 gave kernels of CUDA graphs in it the ends of later, plain launches. It costs as much as the others. What
 * switching off leaves behind falls into the step after a burst, so that one is counted with the burst. Terms, by plain
 * steps:
 *   base  the median of the last PROF_PACE_BASE plain steps before a burst
 *   c     what a recorded step costs: the median over bursts of what their steps and the one after took longer than as
 *         many bases, and the switching, by their recorded steps * base
 *   cost  of the run: c * recorded steps, cold ones too, by all its steps
 * After PROF_PACE_TRIALS bursts another one begins when the cost with it is at most PROF_PACE_AIM of the bound, so the
 * trials themselves are worked off, too. Where as many as are to be kept cannot be recorded so in the steps that are
 * left, the run is too short: what is missing, and one more, is recorded at its end, whatever it costs.
 */
#ifndef DP_PROFILER_PACE_H
#define DP_PROFILER_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  PROF_PACE_COLD = 3,
  PROF_PACE_BURST = 5,
  PROF_PACE_KEPT = PROF_PACE_BURST - 1,
  PROF_PACE_TRIALS = 2,
  PROF_PACE_BASE = 8,
  PROF_PACE_MEASURED = 16, /* bursts whose costs are kept */
  PROF_PACE_TIMES = 64     /* steps of either kind whose times are kept */
};
#define PROF_PACE_BOUND 0.02 /* of a run's time, unless told otherwise */
#define PROF_PACE_AIM 0.75

typedef enum prof_pace_kind { PROF_PACE_WARMS, PROF_PACE_RECORDED, PROF_PACE_AFTER, PROF_PACE_PLAIN } prof_pace_kind;

typedef struct prof_pace { /* prof_pace_begin fills it */
  double bound;
  int64_t steps, keep;   /* that the run is to do, and of which records are to be kept */
  int64_t done, taken;   /* steps that were, and those of them that recorded, cold ones too */
  int64_t recorded;      /* usual steps that recorded, without cold ones */
  int64_t kept;          /* those of them that were not the last of a burst */
  prof_pace_kind kind;   /* of the step that is asked about */
  int64_t left;          /* of the burst */
  int64_t since;         /* plain steps since the last burst */
  double base_s, more_s; /* of the burst that is under way, or was the last: its base, what it took beyond that */
  int64_t burst;         /* usual steps recorded in it; 0: none is under way */
  double recorded_s[PROF_PACE_TIMES], plain_s[PROF_PACE_TIMES], costs[PROF_PACE_MEASURED]; /* rings, of the latest */
  int64_t plain, measured, bursts; /* how many went there; measured: recorded steps behind the costs */
} prof_pace;

/* What recording costs. */
typedef struct prof_pace_cost {
  bool known;                 /* both kinds of steps were there; else all below but the counts is 0 */
  int64_t recorded, plain;    /* steps that it was measured on */
  double recorded_s, plain_s; /* their medians, of the latest */
  double step;                /* c */
  int64_t taken, done;        /* recorded steps, cold ones too, of so many */
  double run;                 /* c * taken / done */
} prof_pace_cost;

/* bound: 0 is PROF_PACE_BOUND. steps: that are to be done from now on. */
void prof_pace_begin(prof_pace *pace, double bound, size_t keep, int64_t steps);
/* Whether the next step is to be recorded. Ask once before each step, then tell of it. */
bool prof_pace_next(prof_pace *pace);
/* What it took; switch_s: what switching on or off before it took besides. usual: it is one of those that are told of,
 * not of another size or plan, whose time says nothing. */
void prof_pace_step(prof_pace *pace, double step_s, double switch_s, bool usual);
prof_pace_cost prof_pace_cost_of(const prof_pace *pace);

#endif
