/* A profile: what ops, links and the host were measured to cost on one kind of device, as a file (profile.json) and as
 * what the cost model asks.
 *
 * The cost of an op in one direction, best source first:
 *   measured      the same key stands in `ops`: this kind, these shapes and attributes, in this direction
 *   interpolated  the law of its kind and direction, else of its class and direction:
 *                   seconds = overhead_s + s_per_matrix_flop M + s_per_flop F + s_per_byte B
 *                 with M the FLOPs of matrix products, F all others, B bytes read and written (graph_work; of forward,
 *                 where the graph counts nothing for the direction). No coefficient is negative. A law speaks of work
 *                 up to PLAN_PROFILE_REACH times the largest that it was fitted to. That of a kind is corrected by what
 *                 ops of alike shapes took: with r their time over the law's, of each of the same direction and number
 *                 of dims, and d the distance between the logarithms of the dims, it is multiplied by
 *                   exp(sum w ln r / (sum w + 0.1)),  w = exp(-(d / 1.4)^2),  ln r from -1 to 1
 *   neither       the caller's own model
 * Every time is there twice: alone_s with nothing else running, busy_s while `workers` workers compute side by side.
 *
 * Ownership: a profile owns all through its arena; plan_profile_free.
 */
#ifndef DP_PLAN_PROFILE_H
#define DP_PLAN_PROFILE_H

#include "base/array.h"
#include "base/node.h"
#include "base/str.h"
#include "graph/graph.h"

#define PLAN_PROFILE_REACH 8.0

typedef enum plan_direction {
  PLAN_DIRECTION_FORWARD,
  PLAN_DIRECTION_BACKWARD_INPUT,
  PLAN_DIRECTION_BACKWARD_WEIGHT,
  PLAN_DIRECTION_COUNT
} plan_direction;
extern const char *const plan_direction_names[]; /* "forward", "backward_input", "backward_weight", NULL */

typedef enum plan_source {
  PLAN_SOURCE_MEASURED,
  PLAN_SOURCE_INTERPOLATED,
  PLAN_SOURCE_ANALYTIC,
  PLAN_SOURCE_COUNT
} plan_source;
extern const char *const plan_source_names[]; /* "measured", "interpolated", "analytic", NULL */

/* What laws go by. */
typedef struct plan_profile_work {
  double matrix_flops, flops, bytes;
} plan_profile_work;

typedef struct plan_profile_op {
  const char *op; /* its key, see plan_profile_key; the first word is the kind */
  plan_direction direction;
  graph_op_kind kind;
  plan_profile_work work;
  double alone_s, busy_s;
  int64_t runs;           /* behind the medians */
  const double *log_dims; /* logarithms of the dims in its key: plan_profile_finish */
  int dim_count;
} plan_profile_op;

typedef struct plan_profile_law {
  int kind;     /* graph_op_kind; GRAPH_NONE: all of the class */
  int op_class; /* graph_op_class; of the kind where there is one */
  plan_direction direction;
  double overhead_s, s_per_matrix_flop, s_per_flop, s_per_byte; /* alone */
  double busy_factor;                                           /* busy_s over alone_s, at least 1 */
  plan_profile_work largest;                                    /* of each, among the ops it was fitted to */
  double error;                                                 /* median relative error on them */
  int64_t points;
} plan_profile_law;

/* Time by size: copies between workers, sums of gradients. Log-log between points; beyond the last, in proportion;
 * below the first, the first's. */
typedef struct plan_profile_point {
  double bytes, alone_s, busy_s;
} plan_profile_point;
typedef DP_ARRAY(plan_profile_point) plan_profile_points;

/* A unit as an executor that puts whole units in a device's queue runs it: its kernels are fused and follow on one
 * another, so its ops have no times of their own. */
typedef enum plan_profile_pass {
  PLAN_PROFILE_FORWARD,
  PLAN_PROFILE_BACKWARD, /* both parts in one */
  PLAN_PROFILE_BACKWARD_INPUT,
  PLAN_PROFILE_BACKWARD_WEIGHT,
  PLAN_PROFILE_PASS_COUNT
} plan_profile_pass;
extern const char *const plan_profile_pass_names[]; /* "forward", "backward", "backward_input", ..., NULL */

typedef struct plan_profile_unit {
  const char *unit; /* plan_profile_unit_key: what makes two units the same work */
  const char *name; /* of one of them */
  int64_t sms;      /* multiprocessors of the device, or of the part of it, that it ran on */
  plan_profile_pass pass;
  /* While no other worker of its device computes; while all others run forwards; while all run anything else. Where
   * shares f and b of them do: alone_s + f (beside_forward_s - alone_s) + b (beside_backward_s - alone_s). */
  double alone_s, beside_forward_s, beside_backward_s;
  double first_s; /* alone, where it is the first microbatch of a step, which overwrites gradients; 0: as the others */
  int64_t runs;
} plan_profile_unit;

/* How whole GPUs of one host exchange data: message by message between neighbours (GPU 0 and 1, 1 and 2, ...), measured
 * by the executor's own functions, or NCCL's. Parts of one GPU are joined otherwise: `copies` and `staged` below. Two
 * hosts, and GPUs of a host that are linked by another class than those that were measured, are by the catalogue. */
typedef enum plan_profile_way {
  PLAN_PROFILE_LOCAL,      /* peer copies */
  PLAN_PROFILE_HOST,       /* through pinned memory of the host */
  PLAN_PROFILE_NCCL,       /* its send and receive */
  PLAN_PROFILE_ALL_REDUCE, /* its all-reduce, of all `gpus`; bytes of the buffer */
  /* Of one GPU, as records of a program tell it (profiler/links.h): kept and told, and no prediction rests on them, for
   * records do not say whether the host's memory was pinned. */
  PLAN_PROFILE_TO_DEVICE,
  PLAN_PROFILE_TO_HOST,
  PLAN_PROFILE_ON_DEVICE, /* link: "memory" */
  PLAN_PROFILE_WAY_COUNT
} plan_profile_way;
extern const char *const plan_profile_way_names[]; /* "local", "host", "nccl", "all-reduce", "to-device", ..., NULL */

typedef struct plan_profile_link {
  plan_profile_way way;
  const char *link;                        /* the class of the slowest link of that way, as the cluster had it */
  double link_bytes_per_s, link_latency_s; /* of that way, as the cluster had it: another cluster's in proportion */
  int64_t gpus;
  double handover_s;       /* from the end of what a message waits for to the start of what waits for it, without it */
  double slowdown;         /* compute on both GPUs takes 1 + this times as long while a message is under way */
  double waiting_slowdown; /* the same of one whose message waits for the other GPU; NCCL's kernels do that */
  double both_bytes_per_s; /* of a GPU, into it and out of it at once; 0: not known */
  double together_bytes_per_s; /* of all messages, between all neighbours both ways at once; 0: not known */
  double error;                /* median relative error of what lies between the sizes, on sizes kept aside */
  plan_profile_points points;  /* ascending in bytes, of one message one way; busy_s: both GPUs compute */
} plan_profile_link;

/* What a worker on so many multiprocessors takes beside its units. */
typedef struct plan_profile_part {
  int64_t sms, workers;                                                 /* the device was shared by so many */
  /* Of a step; the norm of gradients, which several workers meet over before it, is apart, but for a lone worker's. While
   * n of `workers` run theirs, each takes n optimizer_busy_factor / workers times as long, if that is more than 1. */
  double optimizer_s, optimizer_s_per_parameter, optimizer_busy_factor, norm_s_per_parameter;
  double instruction_s, issue_s; /* of an instruction: of the device, and of the host that issues it */
  double feed_s, loss_s; /* more of a forward that takes the model's inputs, and of one that has the loss */
  double step_s;
  double forward_factor, backward_factor; /* what units took over what the catalogue's curves say; 0: not known */
  int64_t runtime_bytes; /* of a worker, outside its layout: contexts, libraries */
} plan_profile_part;

typedef struct plan_profile {
  dp_arena arena;
  const char *device;              /* of the catalogue: what a worker was */
  const char *processor;           /* what the machine calls itself */
  int64_t cores, threads, workers; /* of the machine; of each worker's kernels; that computed side by side */
  const char *implementation;      /* of efficiency.toml */
  graph_dtype precision;
  const char *gemm;                /* the library of matrix products */
  const char *made;                /* UTC, "2026-01-31T12:00:00Z" */
  const char *driver, *libraries;  /* versions, of a GPU; "" */
  double clock_hz;                 /* of a GPU's multiprocessors while it was measured; 0: not known */
  DP_ARRAY(plan_profile_unit) units; /* ascending by unit, multiprocessors and pass: plan_profile_finish */
  DP_ARRAY(plan_profile_part) parts; /* ascending by multiprocessors; none: the figures below are of every worker */
  DP_ARRAY(plan_profile_link) links; /* of whole GPUs; one of each way at most */
  DP_ARRAY(plan_profile_op) ops;   /* ascending by op and direction: plan_profile_finish */
  DP_ARRAY(plan_profile_law) laws; /* ascending by kind, class and direction */
  double optimizer_s, optimizer_s_per_parameter, optimizer_busy_factor;
  double loss_s, loss_s_per_byte; /* and its gradient; bytes of the prediction */
  double instruction_s;           /* of an instruction, beside its ops */
  /* Of an optimizer without the norm of its gradients, which is apart: processors. 0: the optimizer has it, or `parts` */
  double norm_s_per_parameter;
  /* Beside a transfer of `copies` or `sums`: from the end of what it waits for to its start, and from its end to the
   * start of what waits for it. handover_after_s: the second of these, where it is known apart */
  double handover_s, handover_after_s;
  double step_s;                  /* of a step, beside its instructions */
  plan_profile_points copies;     /* ascending in bytes, of one message; of a GPU: between parts of it */
  plan_profile_points staged;     /* the same through the host's memory */
  double copies_bytes_per_s, staged_bytes_per_s; /* of all such messages of a GPU at once; 0: not known */
  double links_error; /* of these: median relative error of what lies between the sizes, on sizes kept aside */
  double copy_slowdown;           /* compute on a GPU takes 1 + this times as long while such a copy is under way */
  double nccl_slowdown; /* the same beside NCCL's kernels, where no link of `links` says it; 0: not known */
  double launch_s; /* of the host of a recorded program, from a launch to the next; told alone. 0: not known */
  /* Of a gradient of so many bytes, one worker adding another's and copying back; of 8 bytes: the squares of two
   * workers' norms, each told to both. */
  plan_profile_points sums;
  double repeat_error;            /* median relative difference of two halves of the measurements */
  double held_out_error;          /* median relative error of laws on ops kept aside */
  int64_t held_out;               /* how many these were */
} plan_profile;

/* DP_BAD_INPUT, one line with file, line and key. */
dp_status plan_profile_read(const char *path, plan_profile *profile, dp_error *error);
dp_status plan_profile_parse(const char *text, size_t length, const char *name, plan_profile *profile, dp_error *error);
/* Appends the file's text. DP_NO_MEMORY. */
dp_status plan_profile_text(const plan_profile *profile, dp_str *text, dp_error *error);
/* Written beside and renamed. A profile that was written and read is the same to nine digits. */
dp_status plan_profile_write(const plan_profile *profile, const char *path, dp_error *error);
void plan_profile_free(plan_profile *profile); /* safe on a zeroed one */

/* Whether it says what any work takes. One that does not, as of a recorded program, has links alone, and work is by the
 * catalogue's curves. */
static inline bool plan_profile_has_work(const plan_profile *profile) {
  return profile->ops.count + profile->laws.count + profile->units.count + profile->parts.count > 0;
}

/* Keys of a graph's ops. */
typedef struct plan_profile_keys {
  const graph *graph;
  int *last_reader; /* [tensor] op, GRAPH_NONE: none; malloc'ed */
} plan_profile_keys;
dp_status plan_profile_keys_init(const graph *graph, plan_profile_keys *keys, dp_error *error);
void plan_profile_keys_free(plan_profile_keys *keys);

/* Whether an executor that fuses nothing does anything for an op in a direction. */
bool plan_profile_runs(const graph *graph, int op, plan_direction direction);
/* "conv2d 1x32x16x16 > 1x48x16x16 kernel=3x3 stride=1x1 padding=1x1 bias": kind, shapes in and out, attributes, and for
 * backward_input which inputs' gradients are made ("dx=0,1+"; with + it is added to what lies there). Replaces `key`.
 */
void plan_profile_key(const plan_profile_keys *keys, int op, plan_direction direction, dp_str *key);
plan_profile_work plan_profile_work_of(const graph *graph, int op, plan_direction direction);

/* Kind, shapes, attributes and gradients of all ops of a unit, as 16 hexadecimal digits. `scratch` is used. */
void plan_profile_unit_key(const plan_profile_keys *keys, int unit, dp_str *scratch, char out[17]);
/* NULL: it was not measured. */
const plan_profile_unit *plan_profile_find_unit(const plan_profile *profile, const char *key, int64_t sms,
                                                plan_profile_pass pass);
/* NULL: none of so many multiprocessors. */
const plan_profile_part *plan_profile_find_part(const plan_profile *profile, int64_t sms);
/* Over such a class of links. NULL: it was not measured. */
const plan_profile_link *plan_profile_find_link(const plan_profile *profile, plan_profile_way way, const char *link);
/* In the place of what there is of its way. `link` and its points become the profile's: strings are copied, points are
 * taken over. DP_NO_MEMORY: they are still the caller's. */
dp_status plan_profile_set_link(plan_profile *profile, const plan_profile_link *link, dp_error *error);

/* Of points of which a time is 0, not known: it follows from the other by the median ratio of the points that have both.
 * Then larger never takes less, nor does it beside compute. */
dp_status plan_profile_fill_points(plan_profile_points *points, dp_error *error);

typedef struct plan_profile_cost {
  double alone_s, busy_s;
  plan_source source;
} plan_profile_cost;
/* False where the profile has neither measurement nor law: `cost` is not set. */
bool plan_profile_op_cost(const plan_profile *profile, const char *key, graph_op_kind kind, plan_direction direction,
                          const plan_profile_work *work, plan_profile_cost *cost);
/* The same for an op that was not measured. left_out[op]: as if that one had not been either; NULL: none. */
bool plan_profile_interpolate(const plan_profile *profile, const char *key, graph_op_kind kind,
                              plan_direction direction, const plan_profile_work *work, const uint8_t *left_out,
                              plan_profile_cost *cost);
double plan_profile_law_s(const plan_profile_law *law, const plan_profile_work *work); /* alone */
/* Both times for a size; 0 without points. */
plan_profile_point plan_profile_at(const plan_profile_point *points, size_t count, double bytes);

/* What all ops and units, alone and busy, and the laws of a pass take times a factor, and the optimizer; all positive. */
typedef struct plan_profile_factors {
  double forward, backward, optimizer;
} plan_profile_factors;
void plan_profile_scale(plan_profile *profile, const plan_profile_factors *factors);

/* Sorts ops, units and parts and reads the ops' dims; DP_BAD_INPUT when one is there twice. */
dp_status plan_profile_finish(plan_profile *profile, dp_error *error);
dp_status plan_profile_finish_units(plan_profile *profile, dp_error *error); /* the units and parts alone */
/* Makes `laws` from `ops`, which stand sorted: one for each kind and direction, and one for each class and direction.
 * Least squares of relative errors, without negative coefficients, in which what lies far off counts less (Huber). */
dp_status plan_profile_fit(plan_profile *profile, dp_error *error);
/* Fits without every `every`th op and sets held_out_error and held_out from the error on those; then fits with all. */
dp_status plan_profile_hold_out(plan_profile *profile, int every, dp_error *error);

#endif
