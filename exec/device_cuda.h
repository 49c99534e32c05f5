/* Workers on CUDA devices, or on parts of one; internal to exec/. */
#ifndef DP_EXEC_DEVICE_CUDA_H
#define DP_EXEC_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "exec/lanes.h"
#include "exec/ops.h"
#include "kernels/cuda/context.h"

enum { EXEC_CUDA_MAX_GPUS = EXEC_MAX_GPUS };
enum { EXEC_CUDA_PIECE = 4 << 20 }; /* bytes that go through pinned memory of the host at a time */

/* What a compute instruction put in the queue, to be played again; and which gradients had begun when it had run. */
typedef struct exec_cuda_record {
  cudaGraphExec_t graph; /* NULL: none yet */
  uint8_t *begun;        /* [tensor] of its microbatch, after it; while it is recorded, before it */
  int failures;          /* to instantiate it */
} exec_cuda_record;

/* Pinned memory of the host that an input of a microbatch is filled into, and that the device reads. */
typedef struct exec_cuda_slot {
  float *host;
  int64_t count;
} exec_cuda_slot;

/* What the host reads when a step has ended; the first is filled by the device, the second by the host. */
typedef struct exec_cuda_scalars {
  double *loss;        /* sum over the microbatches */
  double *square;      /* of the norm of this worker's gradients */
  double *norm_square; /* of those that clipping goes by */
  double *squares;     /* [microbatches * microbatch_size] */
  uint32_t *flags;     /* [compute instruction] something was not finite */
  int64_t bytes;       /* all of them, from loss on */
} exec_cuda_scalars;

typedef struct exec_cuda {
  int gpu, sm_count;
  void *green;      /* CUgreenCtx of its part; NULL: the whole device */
  void *nccl_green; /* of the multiprocessors that the plan keeps for NCCL; NULL: none */
  cudaStream_t stream;
  kern_cuda *kernels;
  exec_cuda_scalars device, host;
  float *weights;               /* [microbatches * microbatch_size] of losses, on the device */
  exec_cuda_slot *slots;        /* [tensor * microbatches + microbatch] what is fed */
  exec_cuda_slot *weigh;        /* [microbatch] */
  exec_cuda_record *records[2]; /* [compute instruction] of steps that train, and that evaluate */
  uint32_t instructions;
  int64_t steps; /* that have ended */
  bool recording;
  int microbatches;
  size_t tensors;
  cudaEvent_t *marks; /* while units are told apart */
  uint32_t mark_count;
  void *noise;
} exec_cuda;

typedef struct exec_cuda_wire exec_cuda_wire;   /* exec/device_cuda_wire.h */
typedef struct exec_cuda_stage exec_cuda_stage; /* exec/device_cuda_stage.h */

/* A process's lanes: each has a queue, and each instruction an event at its start and one at its end. */
typedef struct exec_cuda_lanes {
  cudaStream_t *streams;                /* [lane] a compute lane's is its worker's */
  bool *patient;                        /* [lane] its thread waits, and its queue for nothing; it is `shared` */
  cudaStream_t *shared;                 /* [worker] NULL: none of its lanes is patient */
  exec_cuda_wire **wires;               /* [lane] to other processes; NULL: it leads to none */
  exec_cuda_stage **stages;             /* [lane] of copies through the host's memory in this process; NULL: none */
  cudaEvent_t *start, *end;             /* [instruction] */
  uint32_t *marker;                     /* [instruction] whose end event marks it */
  uint32_t *doer;                       /* [instruction] in whose lane's queue it was put */
  uint32_t *next;                       /* [lane] the first instruction that has not been seen to have ended */
  cudaEvent_t base[EXEC_CUDA_MAX_GPUS]; /* [gpu] when the step began */
  bool has_base[EXEC_CUDA_MAX_GPUS];
  double base_s[EXEC_CUDA_MAX_GPUS];    /* by dp_clock_s */
  double *norms;                        /* [worker] mapped memory of the host */
  cudaEvent_t *normed;                  /* [worker] */
} exec_cuda_lanes;

static inline exec_cuda *exec_cuda_of(const exec_worker *w) { return w->device; }
static inline exec_cuda *exec_cuda_at(const exec_pipeline *p, uint32_t worker) { return p->workers[worker].device; }
static inline exec_cuda_lanes *exec_cuda_lanes_of(const exec_pipeline *p) { return p->device; }
static inline uint32_t exec_cuda_worker_of(const exec_pipeline *p, uint32_t lane) {
  return p->work.program->lanes[lane].worker;
}
static inline kern_dtype exec_cuda_dtype(const kern_cuda *kernels) { return kernels->options.dtype; }

/* An input's place among those of a microbatch, and a compute instruction's among those of its worker. */
static inline exec_cuda_slot *exec_cuda_slot_of(const exec_cuda *d, int tensor, int microbatch) {
  return &d->slots[(size_t)tensor * (size_t)d->microbatches + (size_t)microbatch];
}
static inline uint32_t exec_cuda_position(const exec_work *work, const exec_worker *w, uint32_t instruction) {
  return instruction - work->program->lanes[work->program->worker_lane[w->index]].first;
}

extern const exec_math exec_math_cuda; /* device_cuda_math.c, over ops_cuda.c: */
extern const exec_op_row exec_cuda_rows[GRAPH_OP_KIND_COUNT];
extern void (*const exec_cuda_fused[EXEC_FUSION_COUNT])(const exec_call *call);

/* Functions of exec_device_kind, one file a sort: device_cuda.c has the table. */

/* device_cuda_place.c: a worker's GPU and memory */
dp_status exec_cuda_open(const exec_work *work, exec_worker *w, dp_error *error);
dp_status exec_cuda_fits(const exec_pipeline *p, dp_error *error);
dp_status exec_cuda_allocate(exec_worker *w, int64_t bytes, char **base, dp_error *error);
void exec_cuda_release(exec_worker *w, char *base);
int64_t exec_cuda_taken(const exec_pipeline *p);
void exec_cuda_wait_idle(const exec_pipeline *p);

/* device_cuda_start.c: from the layout to the first step, and the end */
dp_status exec_cuda_start(const exec_work *work, exec_worker *w, dp_error *error);
dp_status exec_cuda_choose_again(const exec_work *work, exec_worker *w, dp_error *error);
void exec_cuda_close(exec_worker *w);

/* device_cuda_step.c: within a step */
void exec_cuda_zero(exec_worker *w, int64_t bytes, void *at);
void exec_cuda_begin(const exec_work *work, exec_worker *w);
void exec_cuda_prepare(const exec_work *work, exec_worker *w, const exec_chunk *chunk, int microbatch);
void exec_cuda_feed(const exec_work *work, exec_worker *w, int tensor, int microbatch, void *place);
void exec_cuda_look(const exec_work *work, exec_worker *w, const exec_chunk *chunk, const exec_memory *memory,
                    uint32_t instruction);
void exec_cuda_loss(const exec_work *work, exec_worker *w, int microbatch, const void *target);
void exec_cuda_norm(exec_worker *w);
void exec_cuda_optimize(const exec_work *work, exec_worker *w);
dp_status exec_cuda_collect(const exec_work *work, exec_worker *w, dp_error *error);
void exec_cuda_use_means(exec_worker *w, bool means);

/* device_cuda_graphs.c: instructions recorded and played again */
bool exec_cuda_replay(const exec_work *work, exec_worker *w, uint32_t instruction);
void exec_cuda_record_begin(const exec_work *work, exec_worker *w, uint32_t instruction);
bool exec_cuda_record_end(const exec_work *work, exec_worker *w, uint32_t instruction);

/* device_cuda_part.c: a stream on a part of a device's multiprocessors. parts 1: on all of them. */
dp_status exec_cuda_part_open(exec_cuda *device, int part, int parts, int nccl_sms, dp_error *error);
/* A further stream of the device: on what is kept for NCCL, where something is. */
dp_status exec_cuda_part_stream(const exec_cuda *device, cudaStream_t *stream, dp_error *error);
void exec_cuda_part_close(exec_cuda *device);

/* device_cuda_values.c: the table's read, write and so on */
void exec_cuda_add_bf16(int64_t n, const uint16_t *from, uint16_t *to); /* to += from, on the host */
dp_status exec_cuda_read(exec_worker *w, graph_dtype dtype, int64_t n, const void *from, float *to, dp_error *error);
dp_status exec_cuda_write(exec_worker *w, graph_dtype dtype, int64_t n, const float *from, void *to, dp_error *error);
dp_status exec_cuda_read_masters(exec_worker *w, int64_t n, const void *weights, const uint16_t *low, float *to,
                                 dp_error *error);
dp_status exec_cuda_write_masters(exec_worker *w, int64_t n, const float *from, void *weights, uint16_t *low,
                                  dp_error *error);
float *exec_cuda_fetch(exec_worker *w, int64_t n, const void *from);

/* device_cuda_measure.c */
dp_status exec_cuda_make_marks(exec_worker *w, uint32_t count, dp_error *error);
void exec_cuda_mark(exec_worker *w, uint32_t number);
dp_status exec_cuda_read_mark(const exec_pipeline *p, exec_worker *w, uint32_t number, double *at_s, dp_error *error);
const char *exec_cuda_describe(const exec_worker *w);
void exec_cuda_forget(exec_worker *w);
void exec_cuda_strew(exec_worker *w, int64_t bytes, void *at);
void exec_cuda_free_marks(exec_cuda *device); /* and all else that measuring took */

/* device_cuda_probe.c */
dp_status exec_cuda_probe(const exec_probe_copy *copy, double *seconds, dp_error *error);

/* device_cuda_copies.c */
dp_status exec_cuda_open_copies(exec_pipeline *p, const uint32_t *lanes, int count, int64_t bytes, dp_error *error);
void exec_cuda_close_copies(exec_pipeline *p);
dp_status exec_cuda_time_copies(exec_pipeline *p, int count, bool host, int64_t bytes, double *seconds,
                                dp_error *error);
dp_status exec_cuda_time_handover(exec_pipeline *p, double *seconds, dp_error *error);

/* device_cuda_pair.c */
dp_status exec_cuda_open_pair(exec_pipeline *p, int64_t bytes, dp_error *error);
void exec_cuda_close_pair(exec_pipeline *p);
dp_status exec_cuda_time_pair(exec_pipeline *p, bool both, int64_t bytes, int messages, double *seconds,
                              dp_error *error);
dp_status exec_cuda_wait_in_pair(exec_pipeline *p, bool begins, dp_error *error);

/* device_cuda_lanes.c */
dp_status exec_cuda_open_lanes(exec_pipeline *p, dp_error *error);
void exec_cuda_close_lanes(exec_pipeline *p);
/* device_cuda_queues.c: the lanes' streams, stages and events. */
dp_status exec_cuda_open_queues(exec_pipeline *p, exec_cuda_lanes *lanes, dp_error *error);
void exec_cuda_close_queues(exec_pipeline *p, exec_cuda_lanes *lanes);
dp_status exec_cuda_begin_lanes(exec_pipeline *p, dp_error *error);
void exec_cuda_enter(exec_pipeline *p, uint32_t lane, uint32_t instruction);
dp_status exec_cuda_leave(exec_pipeline *p, uint32_t lane, uint32_t instruction, dp_error *error);
void exec_cuda_copy(exec_pipeline *p, uint32_t lane, int64_t bytes, uint32_t from_worker, const void *from,
                    uint32_t to_worker, void *to);
void exec_cuda_clear(exec_pipeline *p, uint32_t lane, int64_t bytes, void *at);
void exec_cuda_delay(exec_pipeline *p, uint32_t lane);
void exec_cuda_add_gradients(exec_pipeline *p, uint32_t lane, uint32_t worker, int64_t n, const void *from, void *to);
dp_status exec_cuda_share_norms(exec_pipeline *p, uint32_t lane, uint32_t instruction, dp_error *error);
uint32_t exec_cuda_ended(exec_pipeline *p, const uint8_t *put);
uint32_t exec_cuda_begun(const exec_pipeline *p, const uint8_t *put);
bool exec_cuda_idle(const exec_pipeline *p);
dp_status exec_cuda_finish_lanes(exec_pipeline *p, dp_error *error);

/* What a call of the runtime in a worker's queue came to: its kernels keep the first failure, for `leave` to tell. */
void exec_cuda_note(exec_worker *w, cudaError_t result, const char *what);
#define EXEC_CUDA_NOTE(w, call) exec_cuda_note((w), (call), #call)
/* A status from a call of the runtime. */
dp_status exec_cuda_check(cudaError_t result, const char *what, dp_error *error);
#define EXEC_CUDA_TRY(call, error) DP_TRY(exec_cuda_check((call), #call, (error)))

#endif
