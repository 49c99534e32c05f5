/* What a recorded program's devices did, by class, stream, device and step.
 *
 * A process is looked at from its first step's start to its last step's end; without steps from its first to its last
 * work on a device. What starts in that time counts. On each device every moment of it is one of these, the first that
 * holds, so their sum is its length (the law of prof_device_row):
 *
 * - compute: a kernel that is not NCCL's, or a graph, runs;
 * - exposed NCCL: one of NCCL's kernels runs;
 * - exposed copies: a copy or a memset runs;
 * - host-bound: nothing runs, and the call that launched the next work came after the device had run dry;
 * - data: the same, but that call's thread was in no call of CUDA for longer than `away_ns` before it;
 * - other: nothing runs though the next work was launched before (it waited for an event or a launch's own delay), or its
 *   launch was not recorded, or nothing follows.
 *
 * Shares are of the sum of all work's durations. Percentiles are linear between ranks.
 */
#ifndef DP_PROFILER_SUMMARY_H
#define DP_PROFILER_SUMMARY_H

#include "profiler/classes.h"
#include "profiler/steps.h"

typedef enum prof_part {
  PROF_COMPUTE,
  PROF_EXPOSED_NCCL,
  PROF_EXPOSED_COPIES,
  PROF_IDLE_HOST,
  PROF_IDLE_DATA,
  PROF_IDLE_OTHER,
  PROF_PART_COUNT
} prof_part;
extern const char *const prof_part_names[PROF_PART_COUNT]; /* "compute", ... as above with _ */

typedef struct prof_spread {
  uint64_t count;
  double sum_s, p50_s, p95_s, max_s;
} prof_spread;

typedef struct prof_class_row {
  prof_spread time;
  double share;
} prof_class_row;

/* All launches of one kernel: those whose names are the same. */
typedef struct prof_kernel_row {
  uint32_t name; /* of the session's */
  prof_class class;
  prof_spread time;
  double share;
} prof_kernel_row;

typedef struct prof_copy_row {
  uint64_t count, bytes;
  double sum_s;
} prof_copy_row;

typedef struct prof_stream_row {
  uint16_t process, device;
  uint32_t stream;
  uint64_t count;
  double sum_s;
} prof_stream_row;

typedef struct prof_device_row {
  uint16_t process, device;
  double window_s, parts_s[PROF_PART_COUNT]; /* parts sum to the window */
  double nccl_s, copies_s;                   /* all time in which one runs; hidden: what is not exposed */
  prof_spread gaps;                          /* times in which nothing runs, between two pieces of work */
  int64_t peak_bytes, end_bytes;             /* of allocations that were recorded, over the whole recording; 0: none */
} prof_device_row;

typedef struct prof_step_row {
  prof_step step;
  double parts_s[PROF_PART_COUNT];    /* of the process' devices together */
  double classes_s[PROF_CLASS_COUNT]; /* durations of the work that starts in it */
} prof_step_row;

typedef struct prof_summary {
  prof_class_row classes[PROF_CLASS_COUNT];
  DP_ARRAY(prof_kernel_row) kernels; /* by their sums, the largest first */
  prof_copy_row copies[PROF_COPY_END];
  DP_ARRAY(prof_stream_row) streams; /* by process, device, stream */
  DP_ARRAY(prof_device_row) devices; /* by process, device */
  prof_step_row *steps;              /* [step_count] as in prof_steps; malloc'ed */
  size_t step_count;
  prof_spread step_time; /* of all processes' steps */
  double work_s;         /* sum of all durations */
} prof_summary;

/* away_ns: 0 is 1 ms. */
dp_status prof_summary_of(const prof_session *session, const unsigned char *classes, const prof_steps *steps,
                          int64_t away_ns, prof_summary *summary, dp_error *error);
void prof_summary_free(prof_summary *summary);

/* Inside: fills the parts of the devices' and the steps' rows, the gaps, nccl_s and copies_s. `windows`: of each
 * process, start and end. */
dp_status prof_summary_parts(const prof_session *session, const unsigned char *classes, const int64_t (*windows)[2],
                             int64_t away_ns, prof_summary *summary, dp_error *error);
dp_status prof_summary_kernels(const prof_session *session, const unsigned char *classes, const int64_t (*windows)[2],
                               prof_summary *summary, dp_error *error);
bool prof_summary_counts(const prof_record *record, const int64_t window[2]); /* whether it starts in that time */
prof_spread prof_spread_of(double *values, size_t count); /* sorts them */

#endif
