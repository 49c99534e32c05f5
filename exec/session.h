/* A training session: a plan's program run step by step on data, with evaluation, checkpoints and export.
 *
 * The caller has made plan and program; a session makes the pipeline, fills it with weights, and from then on a step is
 * a function of the weights, the moments, the number of steps done, the seed and the data alone: a session that resumes
 * from a checkpoint goes on with the same bits. With a transport every process makes a session with the same options
 * and calls the same functions in the same order; what fails on one of them fails on all, with its line. Process 0
 * writes what there is one of; each process writes its own workers' part of a checkpoint, so all see one file system.
 *
 * First weights, without train.weights: as PyTorch makes them. A layer with a matrix or kernel has all its weights even
 * between -1 / sqrt(n) and 1 / sqrt(n), n being the inputs of one output; norms have gain 1 and bias 0. Each is drawn
 * from the seed and its own name. Of adapters A is drawn so and B is 0 (PEFT). What compresses skips is fitted to the
 * activations of the first batch. Means begin as the weights.
 */
#ifndef DP_EXEC_SESSION_H
#define DP_EXEC_SESSION_H

#include "base/str.h"
#include "exec/objective.h"
#include "exec/pipeline.h"

/* A program of one size of images. All of a session's are of one split, schedule and batch. */
typedef struct exec_session_size {
  const graph *graph;
  const plan_program *program;
} exec_session_size;

/* All borrowed for the life of the session. */
typedef struct exec_session_options {
  const plan_scenario *scenario;  /* its files found: plan_scenario_find_training */
  const exec_session_size *sizes; /* one a bucket: those of data.buckets in that order, else the model's own */
  size_t size_count;
  exec_transport *transport; /* NULL: one process */
  const char *folder;        /* of the run; NULL: nothing is saved */
  int64_t steps;             /* of the whole job, for the learning rate; >= 1 */
  bool cuda;   /* on CUDA devices */
  int threads; /* of each worker's kernels on processors; 0: train.threads, else a device's cores; of a GPU, the processors shared
                  evenly */
  exec_shortage *shortage;       /* as exec_pipeline_options; NULL: nobody asks */
  struct exec_algorithms *algorithms; /* as exec_pipeline_options has it; all processes then have the same */
  const exec_observer *observer; /* of the ops of steps of the model's own size; NULL: none */
  const exec_witness *witness;   /* of the instructions of such steps, and of evaluations; NULL: none */
} exec_session_options;

typedef struct exec_session exec_session;

/* Opens the data, makes the pipeline and its first weights. */
dp_status exec_session_create(const exec_session_options *options, exec_session **session, dp_error *error);
void exec_session_free(exec_session *session); /* NULL is fine */
/* After something of it failed: exec_pipeline_leave of all that it has. */
bool exec_session_leave(exec_session *session);

/* Goes on from the newest whole checkpoint of the folder. `notes` gets, on process 0, a line for each that was passed
 * over, and for data that is another now. DP_BAD_INPUT: none is left, or it is of another plan, seed or number of
 * workers. */
dp_status exec_session_resume(exec_session *session, dp_str *notes, dp_error *error);
int64_t exec_session_done(const exec_session *session); /* steps */
const plan_plan *exec_session_plan(const exec_session *session);
/* Of the model's own size; it owns the parameters. */
exec_pipeline *exec_session_pipeline(exec_session *session);
/* Compressed skips: how many, and what each is called, "TENSOR to UNIT". */
int exec_session_skips(const exec_session *session);
const char *exec_session_skip_name(const exec_session *session, int skip);
/* "" until one was read or written. */
const char *exec_session_checkpoint(const exec_session *session);

typedef struct exec_session_report {
  int64_t step; /* steps done, with this one */
  int64_t epoch;
  double loss, learning_rate, gradient_norm;
  const double *rank_norms; /* [ranks] of the session, until the next step */
  const double *psnr;       /* [exec_session_skips] dB, the same; NULL: not measured in this step */
  bool timed;               /* the step was of the model's own size: the timeline is filled */
} exec_session_report;

/* timeline: of the program of the model's own size, or NULL. A failure leaves the run as it was before the step, or
 * (DP_RUN_FAILED on several workers) without weights that could be trusted; the line names the step and the last
 * checkpoint. */
dp_status exec_session_step(exec_session *session, exec_session_report *report, plan_timeline *timeline,
                            dp_error *error);

/* Mean squared errors at fixed timesteps of fixed samples. */
typedef struct exec_evaluation {
  int64_t samples;
  double loss, quantiles[EXEC_QUANTILES]; /* from little noise to all; a quantile without a sample: NaN */
} exec_evaluation;
/* `means`: with the running means of the weights, which the scenario must keep. */
dp_status exec_session_evaluate(exec_session *session, bool means, exec_evaluation *evaluation, dp_error *error);

/* Writes FOLDER/checkpoints/step-N; at once DP_OK when it is there. */
dp_status exec_session_save(exec_session *session, dp_error *error);
/* Writes FOLDER/model: a folder of diffusers, or its adapters; with means FOLDER/model-ema, too. */
dp_status exec_session_export(exec_session *session, dp_error *error);

/* All that a checkpoint has, by the same names, in memory of the host: for a session of another plan of the same
 * training, which then goes on with the same losses but for the rounding of sums. Every process has all of it.
 * A session that went on so writes its checkpoints as the first one's: that plan resumes from them. */
typedef struct exec_session_copy exec_session_copy;
dp_status exec_session_take(exec_session *session, exec_session_copy **copy, dp_error *error);
/* Into a session that was just made. A failure leaves it without weights that could be trusted. */
dp_status exec_session_put(exec_session *session, const exec_session_copy *copy, dp_error *error);
void exec_session_copy_free(exec_session_copy *copy); /* NULL is fine */

/* The rate of a step, from 0, of `steps`. */
double exec_learning_rate(const plan_train *train, int64_t step, int64_t steps);

#endif
