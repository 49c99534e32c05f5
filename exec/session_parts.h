/* What the files of a session share; internal to exec/. */
#ifndef DP_EXEC_SESSION_PARTS_H
#define DP_EXEC_SESSION_PARTS_H

#include "exec/session.h"

struct exec_session {
  exec_session_options options;
  const plan_plan *plan;
  const graph *graph;
  exec_objective objective;
  exec_dataset *dataset;
  exec_pipeline *pipeline;
  int64_t done;
  int64_t saved; /* steps done at the last checkpoint; -1: none */
  bool lora, means;
  double *squares;    /* [global_batch] */
  double *rank_norms; /* [rank] */
  dp_str checkpoint;  /* the last one's path */
  dp_arena arena;
};

/* The weights of the workers here: first ones, and the constants of the model. */
dp_status exec_session_fill(exec_session *session, dp_error *error);

/* Whether a worker is here, and then its parameters and kernels; else NULL. */
exec_parameters *exec_session_parameters(exec_session *session, int worker);

#endif
