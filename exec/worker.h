/* One worker of a pipeline: its weights and memory, and its compute instructions; internal to exec/. */
#ifndef DP_EXEC_WORKER_H
#define DP_EXEC_WORKER_H

#include "exec/compress.h"
#include "exec/device.h"
#include "exec/fusion.h"
#include "exec/layout.h"
#include "exec/pipeline.h"

/* Where something first was not finite. */
typedef struct exec_trouble {
  int64_t at;              /* the instruction, plus 1: the least counts; 0: none */
  int32_t unit, last_unit; /* it is one of these */
  int32_t microbatch;
} exec_trouble;

/* What came of a worker's step, as processes send it. */
typedef struct exec_report {
  double loss, square;
  exec_trouble trouble;
} exec_report;

typedef struct exec_worker {
  int index;
  exec_parameters parameters;
  bool borrows; /* them from a worker of another pipeline */
  const exec_device_kind *kind;
  void *device;       /* the kind's own; NULL: it has none */
  kern_context *kern; /* of the host */
  void *context;      /* what the kernels of the kind work on: `kern`, or a kern_cuda */
  char *base;         /* the one allocation, on the device */
  exec_layout layout;
  /* [chunk] the microbatch whose backward is the first of a step, and overwrites gradients of weights; NULL: all are
   * added, to zeros. */
  int *first_microbatch;
  exec_fusion *fusions;   /* [chunk] of those of this worker; NULL: every action runs by itself */
  uint8_t *here;          /* [unit] */
  exec_squeeze *squeezes; /* [compressor of the program] */
  float *weights;         /* of a microbatch's losses, where the output is made */
  /* of this step */
  double loss;     /* sum over the microbatches */
  double *squares; /* [microbatches * microbatch_size], where the output is made */
  double square;   /* of the norm of its gradients */
  double *norms;   /* [worker] squares of all, where the plan has global_norm */
  double scale;    /* of gradients: what clipping makes of the norm */
  bool spoilt;     /* the norm is not finite: no weight changes */
  exec_trouble trouble;
  /* while its units are told apart */
  const uint32_t *mark_first; /* [compute instruction] its first mark; NULL: they are not */
  bool mark_ends;             /* of an instruction's marks only the first and the last are there */
  bool unrecorded;            /* on a device instructions are not recorded, but run anew each time */
  double *marks_s;            /* [mark] of the host */
  float *noise;               /* of the host */
} exec_worker;

/* What the workers of a pipeline have in common. */
typedef struct exec_work {
  const plan_program *program;
  const plan_plan *plan;
  const graph *graph;
  const exec_device_kind *kind;
  exec_pipeline_options options;
  int output;   /* tensor */
  bool fitting; /* this step gathers what the fit of compressed skips needs */
  bool searching; /* this step is to find which unit of a chunk was the first whose output is not finite */
  plan_memory memory;
  void *lanes; /* the kind's queues: exec_pipeline.device */
  exec_host_facts *facts; /* [process] where there are several and the kind wants to know; else NULL */
  exec_place *places;     /* [worker] of all processes, then; else options.places */
  const exec_step *step;
  /* [instruction] Only those marked are done, by compute lanes that wait for nobody, on whatever has been received;
   * NULL: a step as it is. */
  const uint8_t *only;
  double hold_s;  /* on a device such a step begins so long after the host has begun to issue it */
  bool with_norm; /* before an optimizer's step: else it is part of meeting the others, whom a lone worker has not */
} exec_work;

int exec_work_threads(const exec_work *work);    /* of each worker's kernels */
kern_loss exec_loss_size(const exec_work *work); /* of a microbatch */
static inline int64_t exec_work_samples(const exec_work *work) { /* of a step of a replica */
  return work->plan->microbatches * work->graph->tensors.items[work->output].dims[0];
}
/* Frees what it has made when it fails. arena: of the pipeline. */
/* shared: the worker of another pipeline whose parameters it takes; NULL: its own. */
dp_status exec_worker_init(const exec_work *work, int index, const exec_worker *shared, dp_arena *arena,
                           exec_worker *worker, dp_error *error);
dp_status exec_worker_choose_again(const exec_work *work, exec_worker *worker, dp_error *error);
void exec_worker_free(exec_worker *worker);                         /* safe on a zeroed one */
void exec_worker_begin(const exec_work *work, exec_worker *worker); /* a step */
/* A compute instruction. */
void exec_worker_run(const exec_work *work, exec_worker *worker, uint32_t instruction);
/* Takes the global norm from `norms`. */
void exec_worker_clip(const exec_work *work, exec_worker *worker);

/* ---- its ends of compressed skips: exec/worker_skips.c ---- */

/* The worker's end of a compressed skip that is the k-th tensor of a message; NULL: that travels whole. */
exec_squeeze *exec_worker_squeeze(const exec_work *work, const exec_worker *worker, const plan_message *message, int k);
/* Values of the k-th tensor of a message. */
int64_t exec_wire_values(const exec_work *work, const plan_message *message, int k);
/* One end or the other of each compressor; an end's matrices are an extra of the unit that it counts as. */
dp_status exec_worker_list_squeezes(const exec_work *work, exec_worker *worker, dp_arena *arena, exec_extra **extras,
                                    int *extra_count, dp_error *error);
/* When memory is laid out. */
dp_status exec_worker_make_squeezes(const exec_work *work, exec_worker *worker, dp_arena *arena, dp_error *error);
/* Everything that the worker will call for them, once, on whatever lies in memory. */
void exec_worker_meet_squeezes(const exec_work *work, exec_worker *worker);
/* Where a first microbatch overwrites the other gradients: those of its matrices become zero, to be added to. */
void exec_worker_begin_skips(const exec_work *work, exec_worker *worker);
/* What a chunk receives packed is restored before it runs. */
void exec_worker_restore_skips(const exec_work *work, exec_worker *worker, int chunk, int microbatch);
/* And what it sends is packed after. scratch: of the workspace, for a tensor. */
void exec_worker_pack_skips(const exec_work *work, exec_worker *worker, void *scratch, int chunk, int microbatch);
/* Before a backward: the gradient that has arrived for a tensor that was packed. */
void exec_worker_pack_backward(const exec_work *work, exec_worker *worker, const exec_squeeze *squeeze,
                               uint32_t microbatch, const void *from, void *to, bool accumulate);
/* And after, for those that were restored: they are complete when the first unit that uses them has run backward. */
void exec_worker_restore_skips_backward(const exec_work *work, exec_worker *worker, const plan_work *what,
                                        uint32_t microbatch);

#endif
