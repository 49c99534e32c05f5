/* What a worker computes on: its memory and its arithmetic, as a table of functions that workers are written against;
 * internal to exec/.
 *
 * On the host (exec/device_cpu.c) a function has done its work when it returns. On a device (exec/device_cuda*.c) it has
 * put it in the queue of the calling lane (kind->deferred): an instruction is "done" when it has been put there, lanes
 * wait for one another by events of the device, and nobody waits for the device before the step ends. So whatever the
 * host needs to know of a step (losses, norms, what is not finite) is fetched at its end, by `collect`.
 */
#ifndef DP_EXEC_DEVICE_H
#define DP_EXEC_DEVICE_H

#include "exec/ops.h"
#include "exec/place.h"
#include "exec/pipeline.h"
#include "plan/memory.h"

struct exec_work;
struct exec_worker;
struct exec_pipeline;

typedef struct exec_piece { /* of a message: a tensor */
  void *at;
  size_t bytes;
} exec_piece;

/* For a probe of a link (exec/probe.h). */
enum { EXEC_PROBES = 3 };
typedef struct exec_probe_copy {
  int from_gpu, to_gpu;
  bool staged; /* through pinned memory of the host */
  size_t bytes;
} exec_probe_copy;

typedef struct exec_device_kind {
  const char *name; /* "cpu", "cuda" */
  bool deferred;
  const exec_math *math;
  plan_library_workspace workspace;
  /* DP_UNSUPPORTED naming what of the plan it cannot do. */
  dp_status (*check)(const struct exec_work *work, dp_error *error);

  /* Where workers go, when there are several processes: what this one has, for all to know. NULL: nobody asks. */
  dp_status (*survey)(exec_host_facts *facts, dp_error *error);
  /* When memory is laid out and before any is taken: whether the devices have as much. NULL: nobody asks. */
  dp_status (*fits)(const struct exec_pipeline *p, dp_error *error);

  /* ---- a worker's device: open, allocate, start (memory is laid out, its kernels get their workspace); close ---- */
  dp_status (*open)(const struct exec_work *work, struct exec_worker *w, dp_error *error);
  dp_status (*allocate)(struct exec_worker *w, int64_t bytes, char **base, dp_error *error);
  void (*release)(struct exec_worker *w, char *base);
  dp_status (*start)(const struct exec_work *work, struct exec_worker *w, dp_error *error);
  /* Between start and the first step: the algorithms of its libraries are taken anew from those that are remembered.
   * NULL: it remembers none. */
  dp_status (*choose_again)(const struct exec_work *work, struct exec_worker *w, dp_error *error);
  void (*close)(struct exec_worker *w);

  int64_t (*taken)(
      const struct exec_pipeline *p); /* of the memory of the devices here; NULL: the host's memory it is */
  void (*wait_idle)(const struct exec_pipeline *p); /* for the devices here; NULL: there are none */

  /* The least of EXEC_PROBES copies, apart from any worker. */
  dp_status (*probe)(const exec_probe_copy *copy, double *seconds, dp_error *error);

  /* ---- between the host and the device, at once; n values of a dtype, fp32 on the host ---- */
  dp_status (*read)(struct exec_worker *w, graph_dtype dtype, int64_t n, const void *from, float *to, dp_error *error);
  dp_status (*write)(struct exec_worker *w, graph_dtype dtype, int64_t n, const float *from, void *to, dp_error *error);
  /* n masters, both of whose halves are on the device. NULL: this kind keeps none. */
  dp_status (*read_masters)(struct exec_worker *w, int64_t n, const void *weights, const uint16_t *low, float *to,
                            dp_error *error);
  dp_status (*write_masters)(struct exec_worker *w, int64_t n, const float *from, void *weights, uint16_t *low,
                             dp_error *error);
  /* Within a compute instruction of a rare step that the host looks into: n values of the graph's dtype, once they are
   * there, in memory to be freed. NULL: it failed, and the instruction will say so. No such function: the host has it.
   */
  float *(*fetch)(struct exec_worker *w, int64_t n, const void *from);

  /* ---- put in the worker's compute queue ---- */
  void (*zero)(struct exec_worker *w, int64_t bytes, void *at);
  /* Before a forward: what the feed has for it, for the device to take up; then, in the queue, each to its place. */
  void (*prepare)(const struct exec_work *work, struct exec_worker *w, const exec_chunk *chunk, int microbatch);
  void (*feed)(const struct exec_work *work, struct exec_worker *w, int tensor, int microbatch, void *place);
  /* Whether what leaves the chunk's last unit is finite; `collect` will tell, of the chunk. NULL: the host looks at
   * once.
   */
  void (*look)(const struct exec_work *work, struct exec_worker *w, const exec_chunk *chunk, const exec_memory *memory,
               uint32_t instruction);
  /* The loss of a microbatch, with its target in place; and its gradient, unless the step only evaluates. */
  void (*loss)(const struct exec_work *work, struct exec_worker *w, int microbatch, const void *target);
  void (*norm)(struct exec_worker *w);
  void (*optimize)(const struct exec_work *work, struct exec_worker *w);
  /* Before the first and after the last instruction of a step. */
  void (*begin)(const struct exec_work *work, struct exec_worker *w);
  dp_status (*collect)(const struct exec_work *work, struct exec_worker *w, dp_error *error);

  /* Before an evaluation and after it: weights and running means change places, so that kernels read the means, or
   * again the weights, to the bit. */
  void (*use_means)(struct exec_worker *w, bool means);

  /* ---- measuring (exec/measure_units.h) ---- */
  /* Moments of a worker's queue, by number: room for so many; one comes; when they came, in s by the host's clock,
   * after a step. */
  dp_status (*make_marks)(struct exec_worker *w, uint32_t count, dp_error *error);
  void (*mark)(struct exec_worker *w, uint32_t number);
  dp_status (*read_mark)(const struct exec_pipeline *p, struct exec_worker *w, uint32_t number, double *at_s,
                         dp_error *error);
  /* Which device and libraries these are. NULL: the host. */
  const char *(*describe)(const struct exec_worker *w);
  /* Instructions are run and recorded anew. NULL: none is recorded. */
  void (*forget)(struct exec_worker *w);
  /* Puts `bytes` of arbitrary finite values of the graph's dtype in place, in the compute queue. */
  void (*strew)(struct exec_worker *w, int64_t bytes, void *at);

  /* Between the ends of RECV lanes whose ends are both here: room for copies of so many bytes, also through the host's
   * memory; then what one message takes that goes on each of the lanes at once, alone or while workers compute. And
   * from the end of what a message waits for to the start of what waits for it, without the message; between two
   * devices the second lane is to lead back. */
  dp_status (*open_copies)(struct exec_pipeline *p, const uint32_t *lanes, int count, int64_t bytes, dp_error *error);
  void (*close_copies)(struct exec_pipeline *p);
  dp_status (*time_copies)(struct exec_pipeline *p, int count, bool host, int64_t bytes, double *seconds,
                           dp_error *error);
  dp_status (*time_handover)(struct exec_pipeline *p, double *seconds, dp_error *error); /* NULL: not known */
  /* NCCL between the first two workers, on devices of their own, with room for messages of so many bytes; what each of
   * so many takes that go there one behind another, after one that is not timed, or there and back at once; and a receive
   * by the second waits from when it `begins` until it does not. NULL: there is no NCCL. */
  dp_status (*open_pair)(struct exec_pipeline *p, int64_t bytes, dp_error *error);
  void (*close_pair)(struct exec_pipeline *p);
  dp_status (*time_pair)(struct exec_pipeline *p, bool both, int64_t bytes, int messages, double *seconds,
                         dp_error *error);
  dp_status (*wait_in_pair)(struct exec_pipeline *p, bool begins, dp_error *error);

  /* ---- between workers, in a lane's queue ---- */
  void (*copy)(struct exec_pipeline *p, uint32_t lane, int64_t bytes, uint32_t from_worker, const void *from,
               uint32_t to_worker, void *to);
  void (*clear)(struct exec_pipeline *p, uint32_t lane, int64_t bytes, void *at);
  void (*delay)(struct exec_pipeline *p, uint32_t lane); /* by exec_pipeline.throttle */
  void (*add_gradients)(struct exec_pipeline *p, uint32_t lane, uint32_t worker, int64_t n, const void *from, void *to);

  /* ---- deferred kinds alone; the others' are NULL ---- */
  /* Plays what a compute instruction put in the queue in an earlier step like this one; false: it must be run, between
   * record_begin and record_end, and once more as long as that returns false. */
  bool (*replay)(const struct exec_work *work, struct exec_worker *w, uint32_t instruction);
  void (*record_begin)(const struct exec_work *work, struct exec_worker *w, uint32_t instruction);
  bool (*record_end)(const struct exec_work *work, struct exec_worker *w, uint32_t instruction);
  dp_status (*open_lanes)(struct exec_pipeline *p, dp_error *error);
  void (*close_lanes)(struct exec_pipeline *p);
  dp_status (*begin_lanes)(struct exec_pipeline *p, dp_error *error);
  /* Around an instruction's work: its lane's queue waits for all that it and those it meets wait for; then marks. */
  void (*enter)(struct exec_pipeline *p, uint32_t lane, uint32_t instruction);
  dp_status (*leave)(struct exec_pipeline *p, uint32_t lane, uint32_t instruction, dp_error *error);
  dp_status (*share_norms)(struct exec_pipeline *p, uint32_t lane, uint32_t instruction, dp_error *error);
  /* ---- between processes, in a lane's queue ---- */
  /* A SEND's, or a RECV's, tensors; none: a token, that all put there before it has been done. */
  dp_status (*send)(struct exec_pipeline *p, uint32_t instruction, int count, const exec_piece *pieces,
                    dp_error *error);
  dp_status (*receive)(struct exec_pipeline *p, uint32_t instruction, int count, const exec_piece *pieces,
                       dp_error *error);
  /* This process's sum of a collective's gradients, n of them, becomes that of all processes. */
  dp_status (*reduce)(struct exec_pipeline *p, uint32_t instruction, int64_t n, void *gradients, dp_error *error);
  /* ---- while a step is waited for, by one thread (exec/stall.h); put[instruction]: it is in a queue ---- */
  /* How many instructions here the devices have ended. */
  uint32_t (*ended)(struct exec_pipeline *p, const uint8_t *put);
  /* After that, an instruction that has begun and not ended: one that waits for no other process, if there is one.
   * PLAN_NO_PEER: nothing has begun. */
  uint32_t (*begun)(const struct exec_pipeline *p, const uint8_t *put);
  /* What a library has found since: DP_RUN_FAILED, naming the peer, when what is in a queue cannot end. */
  dp_status (*look_at_wires)(struct exec_pipeline *p, dp_error *error);
  /* After a step that was stopped: what waits for other processes ends where it is. And whether all queues are empty. */
  void (*abandon_wires)(struct exec_pipeline *p);
  bool (*idle)(const struct exec_pipeline *p);
  /* When all has been put there: waits, and times of all instructions here by the host's clock. */
  dp_status (*finish_lanes)(struct exec_pipeline *p, dp_error *error);
} exec_device_kind;

extern const exec_device_kind exec_device_cpu, exec_device_cuda;
int64_t exec_trained_floats(const plan_program *program, const graph *graph, int rank); /* compressors' too */

#endif
