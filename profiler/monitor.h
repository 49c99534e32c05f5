/* The live monitor: the timeline of each step of a run, held to what the run was like before (profiler/series.h) and to
 * what was predicted (profiler/drift.h). It says what has become slow; what is done about it is the caller's.
 *
 * Watched are, each by its seconds in a step:
 *   the step     by what the caller measured of it
 *   each stage   what the compute lane of one worker was busy
 *   each link    what the messages from one worker to another took, both ends being ready: a late sender is no slow
 * link each sum     what the all-reduces of one stage's gradients took among its replicas For the step, stages and
 * drift one whose ops were timed one by one does not count: it takes longer than it would. A step that is slow because
 * a stage, link or sum is, is not told beside it.
 *
 * Drift is watched for each chunk and pass (forward, backward, its weight part where that comes apart), the mean over
 * the replicas.
 */
#ifndef DP_PROFILER_MONITOR_H
#define DP_PROFILER_MONITOR_H

#include "plan/timeline.h"
#include "profiler/drift.h"
#include "profiler/mix.h"
#include "profiler/series.h"

typedef enum prof_subject { PROF_OF_STEP, PROF_OF_STAGE, PROF_OF_LINK, PROF_OF_SUM } prof_subject;
extern const char *const prof_subject_names[]; /* "step", "stage", "link", "sum", NULL */

/* What is watched. `worker`: of a link the sender, of a sum the first member; of the step 0. */
typedef struct prof_watched {
  prof_subject subject;
  uint32_t worker, peer; /* peer: of a link the receiver, else PLAN_NO_PEER */
  uint32_t parts;        /* messages or all-reduces of a step; else 1 */
  double now_s;          /* of the last step */
  double predicted_s;    /* of a step; 0: without a prediction */
  prof_series series;
} prof_watched;

typedef struct prof_monitor {
  const plan_program *program;
  const plan_monitor *rule;
  prof_watched *watched; /* the step first, then the stages by worker, links by worker and peer, sums */
  uint32_t watched_count;
  uint32_t *lane_watched;           /* [lane] what the lane's instructions count for; the step: nothing */
  prof_drift *drifts;               /* [chunk * PLAN_PASS_COUNT + pass] */
  prof_mix *mixes;                  /* the same */
  double *predicted_s, *measured_s; /* the same: of a step, all replicas */
  bool step_told;                   /* the alarm that the step has was told */
  dp_arena arena;
} prof_monitor;

typedef enum prof_event_kind { PROF_EVENT_ALARM, PROF_EVENT_RECOVERED, PROF_EVENT_DRIFT } prof_event_kind;
extern const char *const prof_event_names[]; /* "alarm", "recovered", "drift", NULL */

typedef struct prof_event {
  prof_event_kind kind;
  const prof_watched *watched; /* NULL: a drift */
  int chunk, pass;             /* of a drift */
  int64_t step, since;
  double now_s, mean_s, median_s,
      score;          /* of a part, as watched->parts counts; of a drift: measured, predicted, 0, 0 */
  double reference;   /* of a drift: measured / predicted at first */
  int op_class;       /* of a drift: of the ops that it comes from most, graph_op_class; -1: not known */
  double class_ratio; /* their time now by that at first */
} prof_event;

/* `predicted`: a timeline of the program, for the drift and predicted_s; NULL: there is none. Program and rule must
 * outlive the monitor; the prediction need not. */
dp_status prof_monitor_init(const plan_program *program, const plan_monitor *rule, const plan_timeline *predicted,
                            prof_monitor *monitor, dp_error *error);
void prof_monitor_free(prof_monitor *monitor); /* a zeroed one is fine */

/* The most events of a step. */
static inline uint32_t prof_monitor_most(const prof_monitor *m) {
  return m->watched_count + (uint32_t)m->program->plan->chunk_count * PLAN_PASS_COUNT;
}
/* A step: its timeline, of the program; NULL (a batch of another size): nothing is judged. `step_s`: what it took in
 * all. `disturbed`: its ops were timed. Events go to `events`, of prof_monitor_most; how many is returned. */
uint32_t prof_monitor_step(prof_monitor *monitor, int64_t step, double step_s, const plan_timeline *timeline,
                           bool disturbed, prof_event *events);

/* Of a step whose ops were timed: [(chunk * PLAN_PASS_COUNT + pass) * GRAPH_CLASS_COUNT + class] seconds, of the
 * workers of the first replica; a backward that does not come apart is PLAN_PASS_BACKWARD. */
void prof_monitor_ops(prof_monitor *monitor, const double *seconds);

/* All that lasts is taken to be over, and nothing is told of it. Baselines stay. */
void prof_monitor_forgive(prof_monitor *monitor);

/* "link worker 0 > worker 1", "stage 2", "stage 2 of replica 1", "gradients of stage 1", "step" */
const char *prof_watched_show(const prof_monitor *monitor, const prof_watched *watched, char out[64]);
/* One line: "link worker 0 > worker 1: 20.3 ms a message, 12.1 times its mean of 1.68 ms (z 340) since step 1400" */
const char *prof_event_show(const prof_monitor *monitor, const prof_event *event, char out[256]);

#endif
