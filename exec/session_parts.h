/* What the files of a session share; internal to exec/. */
#ifndef DP_EXEC_SESSION_PARTS_H
#define DP_EXEC_SESSION_PARTS_H

#include "exec/session.h"

enum { EXEC_SESSION_PLAN = 512 }; /* bytes of what tells plans apart in a checkpoint */

/* A size of images at work. */
typedef struct exec_session_lane {
  exec_objective objective;
  exec_pipeline *pipeline;
} exec_session_lane;

struct exec_session {
  exec_session_options options;
  exec_session_lane *lanes; /* [size] */
  size_t base;              /* the model's own size: its pipeline has the parameters, the others work on them */
  const plan_plan *plan;    /* of it, as these: */
  const plan_program *program;
  const graph *graph;
  exec_pipeline *pipeline;
  int64_t global_batch;
  uint64_t seed;
  exec_dataset *dataset;
  int64_t done;
  int64_t saved; /* steps done at the last checkpoint; -1: none */
  bool lora, means;
  double *squares;    /* [global_batch] */
  double *rank_norms; /* [rank] */
  double *psnr;       /* [skip] */
  const char **skip_names;
  dp_str checkpoint; /* the last one's path */
  /* Of the session that this one goes on from (exec_session_put): its checkpoints are that plan's. 0 workers: its own. */
  int first_workers;
  char first_plan[EXEC_SESSION_PLAN];
  dp_arena arena;
};

/* The weights of the workers here: first ones, and the constants of the model in all sizes. */
dp_status exec_session_fill(exec_session *session, dp_error *error);
/* The running means begin as what is trained now. */
dp_status exec_session_begin_means(exec_session *session, dp_error *error);

/* What differs between plans, cut to fit. exec/session_state.c */
void exec_session_fingerprint(const exec_session *session, char out[EXEC_SESSION_PLAN]);

/* A worker's parameters where it is here, else NULL. The workers of a process are a run. */
exec_parameters *exec_session_parameters(exec_session *session, int worker);
int exec_session_first_worker(const exec_session *session);
int exec_session_workers_here(const exec_session *session);

/* Says after the line of a failure in which step it was, and what is left of the run. Returns `status`. */
dp_status exec_session_blame(const exec_session *session, int64_t step, dp_status status, dp_error *error);

#endif
