/* What the last steps of a run did, for --profile-steps: the timelines of its queues' events, and on CUDA devices what
 * CUPTI records in each process, with marks of steps and instructions, as files in DIR/records (doc/profiling.md).
 * There not every step is recorded, but as many as keep the run within PROF_PACE_BOUND of its time (profiler/pace.h),
 * and the last ones of those are told of. The last step before recording is switched off is none of them, since its
 * times may be wrong.
 *
 * Off unless it is asked for: CUPTI takes some of every launch's time, and while a run holds it no other tool can.
 * Bounded: the files of all processes hold CLI_RUN_RECORD_BYTES, the oldest goes first; of timelines as many are kept as
 * steps were asked for. Where one of the processes cannot record (another tool holds CUPTI, the driver forbids it) it
 * says so in one line, and the run goes by events alone.
 */
#ifndef DP_CLI_RUN_RECORD_H
#define DP_CLI_RUN_RECORD_H

#include <pthread.h>

#include "exec/pipeline.h"
#include "profiler/nodes.h"
#include "profiler/pace.h"
#include "profiler/run_tables.h"
#include "profiler/writer.h"

enum { CLI_RUN_RECORD_MOST = 100, CLI_RUN_RECORD_FILES = 8 };
#define CLI_RUN_RECORD_BYTES (256u << 20) /* of all processes together */

typedef struct cli_run_event_step {
  uint64_t number;
  plan_timeline timeline;
} cli_run_event_step;

/* Does not move once it has begun. */
typedef struct cli_run_record {
  exec_witness witness; /* for the session's options */
  const plan_program *program;
  size_t keep;                         /* steps; 0: nothing is recorded */
  char *folder;                        /* of the records */
  prof_writer *writer;                 /* NULL: no records */
  uint32_t opcodes[PLAN_OPCODE_COUNT]; /* numbers of their names there */
  prof_nodes nodes;                    /* of the graphs: what unit each is of */
  bool has_nodes;                      /* they are initialised */
  bool has_thread;
  pthread_t thread;
  _Atomic bool stop;
  prof_pace pace;                      /* in the process that speaks it decides for all */
  _Atomic bool on;                     /* the step is recorded */
  double switch_s;                     /* what switching took before it */
  int64_t plain;                       /* steps, told of otherwise, that were not recorded */
  bool refused;                        /* CUPTI did not go on, and that was said */
  DP_ARRAY(cli_run_event_step) events; /* at most `keep`; the next one goes to events.items[next] */
  size_t next;
  bool holds;              /* a recorded step, which is kept when the next one is recorded, too: */
  prof_record held;        /* its mark, */
  bool has_times;          /* and by events */
  cli_run_event_step step; /* its timeline, initialised with the first one */
} cli_run_record;

/* In the process that speaks, while it holds the run's lock: records of an earlier run go. */
dp_status cli_run_record_clear(const char *run_folder, dp_error *error);
/* In every process. First the witness, which says nothing yet, for the options of the session; keep 0: off. The program is
 * the run's own and outlives this. Then, when the session is made, so that its algorithms are timed without CUPTI, and
 * before the first step, in which graphs are made, the records. */
void cli_run_record_init(const plan_program *program, size_t keep, cli_run_record *record);
dp_status cli_run_record_begin(const char *run_folder, exec_transport *transport, cli_run_record *record,
                               dp_error *error);
/* Before the first step, of so many that are to be done: that one is recorded. And after each, when it was told of:
 * whether the next one is. The same calls in every process. pipeline: whose devices are waited for before recording is
 * switched off; NULL: there is nothing to wait for. */
void cli_run_record_expect(int64_t steps, cli_run_record *record);
dp_status cli_run_record_next(exec_transport *transport, const exec_pipeline *pipeline, cli_run_record *record,
                              dp_error *error);
/* Whether this step is recorded and others were not, which take less time. The same in every process. */
bool cli_run_record_slows(const cli_run_record *record);
/* A step, from and to by prof_process_now_ns, which took step_s. usual: it is by that program, and one that is told of.
 * `timeline`: of all workers; NULL: this process has none. */
dp_status cli_run_record_step(cli_run_record *record, uint64_t number, int64_t from_ns, int64_t to_ns, double step_s,
                              bool usual, const plan_timeline *timeline, dp_error *error);
/* After the last step: all that there is goes to the files. A second call does nothing. pipeline: as above; NULL where a
 * step failed, whose work may never end. */
void cli_run_record_end(const exec_pipeline *pipeline, cli_run_record *record);
void cli_run_record_free(cli_run_record *record); /* after the session; safe on a zeroed one */

/* What came of it, where the timelines are, after every process has ended its records. */
typedef struct cli_run_recorded {
  prof_join join;
  prof_run_tables tables; /* of no step: step_count 0 */
  double recording_s;     /* what CUPTI says that it took of the processes' threads */
  uint64_t lost;          /* records that are missing, but those in files that were removed */
  prof_pace_cost cost;    /* of recording, by the run's own steps */
  double events_s;        /* the median of the steps in the tables by the queues' events */
  double step_events_s[CLI_RUN_RECORD_MOST]; /* [tables.step_count] each of them by its events; 0: not known */
} cli_run_recorded;
dp_status cli_run_recorded_of(const cli_run_record *record, cli_run_recorded *recorded, dp_error *error);
void cli_run_recorded_free(cli_run_recorded *recorded); /* safe on a zeroed one */

#endif
