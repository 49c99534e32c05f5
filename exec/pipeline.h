/* A program run for real: the workers of one process, a thread a lane, and through a transport those of others.
 *
 * Every lane runs its instructions in their order, each when all in its wait list are done; a SEND and its RECV meet,
 * and the members of an ALL_REDUCE. So what runs is the program that the simulator plays, and the timeline has the same
 * type. Each worker has one allocation, laid out by the plan (plan/memory.h); a step allocates nothing. Sums have one
 * order whoever is faster and wherever the workers are: gradients that arrive wait in buffers of their own and are
 * added, the furthest chunk's first, when the backward that needs them begins; all-reduces add in the order of their
 * members, on CUDA devices each process's own first (NCCL in its own order).
 *
 * Not yet: tensor groups, sampling (DP_UNSUPPORTED).
 */
#ifndef DP_EXEC_PIPELINE_H
#define DP_EXEC_PIPELINE_H

#include "exec/chunk.h"
#include "exec/transport.h"
#include "plan/compressor.h"
#include "plan/memory.h"
#include "plan/program.h"
#include "plan/transport.h"
#include "plan/timeline.h"

typedef struct exec_pipeline exec_pipeline;

/* What the model is fed. Called by several threads; the same again, where a device looks for what was not finite. */
typedef struct exec_feed {
  /* Fills `out` with a graph input as it lies in memory, or with the target where tensor is the output. */
  void (*fill)(void *data, int replica, int microbatch, int tensor, float *out);
  /* The weight of each sample's loss, out[microbatch_size]; NULL: all 1. */
  void (*weigh)(void *data, int replica, int microbatch, float *out);
  void *data;
} exec_feed;

/* Where a worker computes: a GPU by its number in this process, whole, or one of so many equal parts of it. */
typedef struct exec_place {
  int gpu, part, parts;
} exec_place;

/* Less memory is free on a GPU than the workers there need. */
typedef struct exec_shortage {
  int gpu, workers;
  int64_t needed_bytes, free_bytes;
} exec_shortage;

/* Is told when a thread of the host begins and ends to work on an instruction: on devices, to put its work, and that of
 * those it meets, into queues. By that thread, in any step, so many at a time. And where it asks for units, of each that
 * a pass comes to, and when it has done all (GRAPH_NONE): not where a device plays again what it has recorded. And where
 * it asks for them, of what that is, when it is made: the cudaGraphExec_t of an instruction. */
typedef struct exec_witness {
  void (*note)(void *data, const plan_program *program, uint32_t instruction, bool begins);
  void (*unit)(void *data, const plan_program *program, int unit); /* NULL: units are not asked for */
  void (*graph)(void *data, const plan_program *program, uint32_t instruction, void *graph); /* the same */
  void *data;
} exec_witness;

typedef struct exec_pipeline_options {
  bool cuda; /* on CUDA devices, else on the host's processors */
  /* cuda: [worker_count]; NULL: the workers of this process are dealt out over its GPUs, in order, and share them in
   * equal parts where they are more. */
  const exec_place *places; /* not asked where there are several processes */
  const plan_cluster *cluster; /* which way workers exchange data (plan/transport.h); NULL: all are on one machine */
  int threads; /* of each worker's kernels; 0: 1 */
  exec_feed feed;
  /* NULL: all workers are in this process. Else they are dealt out in equal runs: worker w is with process
   * w / (workers / processes). */
  exec_transport *transport;
  double lora_alpha; /* of adapters, whose scale is alpha / rank; 0: the rank */
  bool means;        /* keep running means of what is trained */
  bool any_order;    /* sums on CUDA devices may have any order where that is faster; else a step has the same bits */
  bool poison;       /* for tests: memory is NaN before and after the life that the plan gives it */
  /* A pipeline of the same model, split and workers for another resolution, on whose weights, gradients and moments
   * this one works. It must outlive this one, and only one of the two may be in a step. NULL: it has its own. */
  exec_pipeline *shared;
  /* cuda: what is remembered of the libraries' algorithms, asked and told while it is made; it must outlive the
   * pipeline. NULL: every worker times its own. */
  struct exec_algorithms *algorithms;
  const exec_observer *observer; /* of every op; must outlive the pipeline; NULL: none */
  const exec_witness *witness;   /* of every instruction; must outlive the pipeline; NULL: none */
  /* Filled where that is why there is no pipeline; NULL: nobody asks. */
  exec_shortage *shortage;
} exec_pipeline_options;

/* The program, its plan, the graph and the transport must outlive it. Weights are zero: fill exec_pipeline_parameters.
 * DP_UNSUPPORTED names what is not known yet, or the first op without arithmetic; DP_BAD_INPUT: the processes cannot
 * share out the workers, or the split is not that of `shared`. */
dp_status exec_pipeline_create(const plan_program *program, const graph *graph, const exec_pipeline_options *options,
                               exec_pipeline **pipeline, dp_error *error);
/* NULL is fine. After a step that failed nothing is freed where exec_pipeline_leave has said false. */
void exec_pipeline_free(exec_pipeline *pipeline);
/* After a step that failed on CUDA devices: ends what waits there for other processes. False: something of the step
 * stays, a thread in a call of the driver or work on a device that hangs; then the process is to say why and to end by
 * _exit, without waiting for it any longer. */
bool exec_pipeline_leave(exec_pipeline *pipeline);
/* Before weights are filled and steps are taken: the workers here take their algorithms anew from those remembered. */
dp_status exec_pipeline_choose_again(exec_pipeline *pipeline, dp_error *error);

/* What is taken of the memory of the CUDA devices that its workers here are on, by whomever; 0: there are none. */
int64_t exec_pipeline_device_bytes(const exec_pipeline *pipeline);
/* After a step that went well: until these devices are idle, also in queues that are no worker's. */
void exec_pipeline_wait_idle(const exec_pipeline *pipeline);

/* Whether a worker is in this process; the following are for such ones. */
bool exec_pipeline_has(const exec_pipeline *pipeline, int worker);
exec_parameters *exec_pipeline_parameters(exec_pipeline *pipeline, int worker);
kern_context *exec_pipeline_kernels(exec_pipeline *pipeline, int worker);
/* A constant input of a worker, dense; NULL: none of its units reads it. */
void *exec_pipeline_constant(exec_pipeline *pipeline, int worker, int tensor);
/* From the host, in fp32: dense, channels last. */
dp_status exec_pipeline_write_constant(exec_pipeline *pipeline, int worker, int tensor, const float *from,
                                       dp_error *error);
/* Arrays of a worker's parameters on whatever device they are, as fp32 on the host: n values from an offset of
 * exec_parameters on, in memory's layout and all trained or none; or a weight as files have it. Trained values are fp32
 * masters where the device keeps such. Gradients are the last step's until the next one begins, whatever it does. */
typedef enum exec_array { EXEC_VALUES, EXEC_GRADIENTS, EXEC_FIRST, EXEC_SECOND, EXEC_MEANS } exec_array;
dp_status exec_pipeline_read(exec_pipeline *pipeline, int worker, exec_array array, int64_t offset, int64_t n,
                             float *to, dp_error *error);
dp_status exec_pipeline_write(exec_pipeline *pipeline, int worker, exec_array array, int64_t offset, int64_t n,
                              const float *from, dp_error *error);
dp_status exec_pipeline_read_weight(exec_pipeline *pipeline, int worker, exec_array array, int weight, float *file,
                                    dp_error *error);
dp_status exec_pipeline_write_weight(exec_pipeline *pipeline, int worker, exec_array array, int weight,
                                     const float *file, dp_error *error);
/* Of any worker, here or not: its layout_bytes are what it has allocated. */
const plan_worker_memory *exec_pipeline_memory(const exec_pipeline *pipeline, int worker);

/* What the kernels of a rank's workers need, for who lays memory out as the executor does, on CUDA devices or on the host.
 * NULL: this build does not know it. */
plan_library_workspace exec_library_workspace(bool cuda);
/* Why this build or machine cannot use CUDA devices; DP_OK: it can. And how many there are. */
dp_status exec_device_cuda_there(dp_error *error);
int exec_device_cuda_count(void);

/* What one step is to do. */
typedef struct exec_step {
  bool evaluate;            /* forward alone: nothing is learnt */
  bool use_means;           /* evaluate: with the running means in the place of the weights */
  kern_adamw adamw;         /* `step` and all but gradient_scale, which is decided here */
  const double *rank_rates; /* [ranks] factors of the learning rate; NULL: all 1 */
  /* Gradients are scaled by min(1, clip_norm / (norm + 1e-6)) with the global norm, as PyTorch's clip_grad_norm_ does;
   * 0: they are not. On several workers the plan needs global_norm for it. */
  double clip_norm;
  bool measure_skips; /* the PSNR of each compressed skip */
  double means_decay; /* of options.means: mean += (1 - decay) (weight - mean), after the step */
} exec_step;

/* What came of it, on every process the same. Arrays are the caller's, or NULL. */
typedef struct exec_step_result {
  double loss;     /* weighted mean over the samples of all replicas */
  double *squares; /* [replicas * microbatches * microbatch_size] mean squared error of each sample, not weighted */
  double gradient_norm; /* of all gradients before they are clipped; 0 in an evaluation */
  double *rank_norms;   /* [ranks] */
  double *psnr;         /* [exec_pipeline_skips] dB, of the last microbatch of replica 0; with measure_skips */
} exec_step_result;

/* One step: every instruction once; the instructions of an evaluation that only learn do nothing. `timeline` (NULL or
 * initialised for the program) gets the times of all workers on process 0, of this process's elsewhere.
 * DP_RUN_FAILED: a peer is gone, or something is not finite; then the line names the unit where that first shows, and
 * where the plan has global_norm, or one worker, the weights are still those before the step. */
dp_status exec_pipeline_step(exec_pipeline *pipeline, const exec_step *step, exec_step_result *result,
                             plan_timeline *timeline, dp_error *error);

/* ---- compressed skips ---- */

int exec_pipeline_skips(const exec_pipeline *pipeline); /* how many: compressors of one replica */
/* An end of one of a replica: the worker that has it, and where its matrices (channels, height, width, one behind the
 * other) begin in that worker's arrays: in `values`, and where it is trained in all others. */
typedef struct exec_skip {
  const plan_compressor *compressor;
  int worker[2];     /* down, up */
  int64_t offset[2]; /* of a worker of another process: -1 */
} exec_skip;
exec_skip exec_pipeline_skip(const exec_pipeline *pipeline, int skip, int replica);
/* Fits all of them to the activations of one step's samples: a forward pass that learns nothing else. Down keeps the
 * directions of most energy of each dimension, up is its transposed; the same in all replicas. */
dp_status exec_pipeline_fit_skips(exec_pipeline *pipeline, dp_error *error);

/* The instruction that this process began last, for those who must say where a run was; PLAN_NO_PEER: none. */
uint32_t exec_pipeline_position(const exec_pipeline *pipeline);

#endif
