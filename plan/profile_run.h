/* A profile from one measured step of a run: what its units, optimizers, messages and hand-overs took, as other plans
 * of the same model may be predicted by.
 *
 * An instruction stands for all of its class, the same chunk and pass: the middle of these counts, of what they would have
 * taken alone (plan/profile_run_beside.h), and the units of the chunk share it as they were recorded, else as is said. What lies between the instructions of a lane, of which the second waits for nothing else,
 * is what one takes beside its units; what lies between the end of a message and what waited for it is a hand-over.
 * Every fifth instruction of a class is kept aside, and the middle of their errors told.
 */
#ifndef DP_PLAN_PROFILE_RUN_H
#define DP_PLAN_PROFILE_RUN_H

#include "plan/cluster.h"
#include "plan/profile.h"
#include "plan/timeline.h"

/* What the units of a pass took one by one, where the work of devices was recorded: seconds by class of instructions
 * (plan_work) and unit, of some steps that may have been longer than others for that. Only what they are to each other
 * counts: together they take what the measured step says. What of a pass is of no unit, as the arrival of gradients and
 * the loss, is part of an instruction, or of a forward that has the inputs or the loss. */
typedef struct plan_recorded_units {
  uint32_t work_count;
  size_t unit_count;
  double *unit_s; /* [work_count * unit_count] */
  double *none_s; /* [work_count] */
  bool *known;    /* [work_count] else its units share its time as is said below */
} plan_recorded_units;

typedef struct plan_profile_run {
  const plan_timeline *timeline; /* of a training program */
  const graph *graph;
  const plan_cluster *cluster;          /* NULL: of one machine's processors, or of one card's parts */
  const double *forward_s, *backward_s; /* [unit] in proportion to which the units of a chunk share its passes */
  const double *again;                  /* [unit] share of a forward that its recomputation adds; NULL: all of each */
  const plan_recorded_units *recorded;  /* NULL: none were */
  int64_t sms;                          /* of every worker, as the cost model counts them */
  int sharers;                          /* workers of a device */
  bool staged;                          /* messages went through the host's memory */
  double step_s;                        /* of the step by the wall's clock */
  int64_t runtime_bytes;
} plan_profile_run;

enum { PLAN_PROFILE_ASIDE = 5 }; /* every so many-th is kept aside, of messages between whole GPUs, too */

/* A line for each instruction that took more than PLAN_PROFILE_OUTLIER times the middle of its class, at most so many.
 */
#define PLAN_PROFILE_OUTLIER 1.5
enum { PLAN_PROFILE_OUTLIERS = 8 };

/* Sets units, parts, copies or staged, links (plan/profile_run_links.h), sums, handover_s, held_out and held_out_error of an empty profile. `outliers`
 * gets lines; NULL: nobody asks. `recorded_share`: of the time of passes, what is of units that were recorded; NULL. */
dp_status plan_profile_of_run(const plan_profile_run *run, plan_profile *profile, dp_str *outliers,
                              double *recorded_share, dp_error *error);

#endif
