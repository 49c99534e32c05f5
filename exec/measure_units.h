/* What whole units take on a device, or on a part of one, measured in a pipeline's own memory by the executor's own
 * functions: the kernels that run, in the graphs that a device plays, one chunk's instruction after another. Nobody
 * waits for anybody, nothing travels: what is received is arbitrary, so what is seen is what units take, not a
 * pipeline.
 *
 * A program of V workers on V parts of a device is played in steps that do only some of it: one worker's instructions;
 * all forwards; all backwards; every other worker's forwards beside the others' backwards, and the other way round; all.
 * While a share f of the V - 1 others runs forwards and b of them something else, a unit takes
 *   alone + f (beside_forward - alone) + b (beside_backward - alone)
 * (plan/profile.h): backwards want more of what all share. How much longer it takes is solved by least squares for whole
 * instructions, and is that of all their units. On one H200 in four parts, instructions of pipelines follow this law to
 * 0.4 to 2 % (mean), and one that counts only how many others compute to 0.9 to 3 %. Units are told apart by moments in
 * the queue between them (exec_marks), which take time themselves: the same steps are played with two to an instruction,
 * which its units share. What the first instruction in a queue takes is counted between these alone: it lasts until the
 * host has issued it. A program whose workers share a device is made twice, and what was faster with all computing is
 * kept, with its errors alone.
 */
#ifndef DP_EXEC_MEASURE_UNITS_H
#define DP_EXEC_MEASURE_UNITS_H

#include "exec/pipeline.h"
#include "plan/profile.h"

typedef struct exec_units exec_units;

dp_status exec_units_create(exec_units **units, dp_error *error);
void exec_units_free(exec_units *units); /* NULL is fine */

typedef struct exec_units_how {
  const plan_program *program; /* of one replica and process that trains, with at least two microbatches */
  const graph *graph;
  int64_t sms;    /* of each worker, as the cost model counts them */
  int sharers;    /* workers on each device */
  bool nccl;      /* of devices of their own: also what they exchange by NCCL */
  double seconds; /* about so long, beside making the pipeline; each kind of step is done once at least */
  exec_pipeline_options options; /* feed and observer are its own */
} exec_units_how;
/* What exec_pipeline_create refuses is refused. */
dp_status exec_units_run(exec_units *units, const exec_units_how *how, dp_error *error);

/* Of the device and its libraries, once a program was run: "NVIDIA H200, 132 multiprocessors, ..."; "": the host. */
const char *exec_units_device(const exec_units *units);
typedef struct exec_units_took {
  int programs;              /* that were made */
  double made_s, measured_s; /* with their first steps, in which graphs are made; and after these */
} exec_units_took;
exec_units_took exec_units_has_taken(const exec_units *units);
/* Adds units and parts of all that was run, in the place of those that are there, with repeat_error, held_out and
 * held_out_error: every fifth run of a unit is kept aside and predicted from the others. */
dp_status exec_units_profile(const exec_units *units, plan_profile *profile, dp_error *error);

#endif
