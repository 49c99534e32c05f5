/* What prof_retime knows of the records before it sets them in time: between retime.c and retime_lanes.c. */
#ifndef DP_PROFILER_RETIME_PARTS_H
#define DP_PROFILER_RETIME_PARTS_H

#include "profiler/retime.h"

#define RETIME_NONE SIZE_MAX

/* A moment as it was measured and as it is set again. */
typedef struct retime_moment {
  bool known;
  int64_t was_ns, is_ns;
} retime_moment;

/* A stream of a device, or a thread of the host. */
typedef struct retime_lane {
  uint16_t process;
  bool on_device, nccl; /* the last work that ended is NCCL's */
  retime_moment begun;  /* the last start; of a thread its last start or end of a call */
  retime_moment done;   /* of the work that ended last */
  int64_t done_launched_ns;
  size_t next; /* of the process; RETIME_NONE: the last */
} retime_lane;

typedef struct retime_process {
  size_t lanes;         /* the first */
  retime_moment call;   /* the last start or end of a call */
  size_t call_lane;     /* whose */
  retime_moment device; /* the last start or end of work */
  retime_moment done;   /* the work that ended last */
  size_t launches;      /* calls whose work has not ended */
  size_t step;          /* the next that no work has begun in */
} retime_process;

/* A collective as all processes took part in it. */
typedef struct retime_group {
  int64_t start_ns, end_ns; /* the last start, the first end */
  int64_t is_start_ns;      /* the last start, set again */
} retime_group;

typedef struct retime_end {
  int64_t at_ns;
  size_t record;
} retime_end;

typedef struct retime_plan {
  const prof_session *session;
  const unsigned char *classes;
  size_t *lane_of;   /* [record]; RETIME_NONE: it has neither stream nor thread */
  size_t *launch_of; /* [record] of work: the call; of a call: the work of it that ends last; or RETIME_NONE */
  size_t *group_of;  /* [record] of NCCL's kernels, or RETIME_NONE */
  retime_end *ends;  /* [end_count] of records with a length, by time */
  size_t end_count;
  retime_process *processes; /* [session->processes.count] */
  DP_ARRAY(retime_lane) lanes;
  DP_ARRAY(retime_group) groups;
} retime_plan;

/* DP_NO_MEMORY is the only failure; free it after one, too. */
dp_status retime_plan_make(const prof_session *session, const unsigned char *classes, retime_plan *plan,
                           dp_error *error);
void retime_plan_free(retime_plan *plan);

#endif
