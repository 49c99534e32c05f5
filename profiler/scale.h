/* How long recorded work takes on another device and other links: a ratio for each class, from the catalogue.
 *
 *   gemm, convolution, attention   the devices' matrix rates for the kernel's precision, which its name tells or the
 *                                  caller assumes: the data sheet's peak, times the share of it that the best bf16
 *                                  product was measured to reach where both rows have that (bf16 and fp16)
 *   norm, elementwise, optimizer,
 *   other, memsets, copies on a device    memory bandwidth
 *   nccl      NCCL's own cost model (plan/nccl.h) over a ring of the cluster's first devices: the bytes are those which
 *             it would have moved in that time, all-reduce unless the name says otherwise, so that short ones are as
 *             long as the latency and long ones as the bandwidth
 *   copies to and from the host    latency + bytes / bandwidth of the card's link to the host, and between devices of
 *             the route; what took more than twice as long was bound by the host (pageable memory) and stays
 *
 * Edges of the band, `edge` -1 and 1: times over (1 + band) and times (1 + band), where device or link is another one.
 * At the slow edge a kernel of less than SCALE_SMALL_S becomes no shorter; what is `other`, or a graph recorded as a
 * whole, is between both ratios.
 */
#ifndef DP_PROFILER_SCALE_H
#define DP_PROFILER_SCALE_H

#include "plan/nccl.h"
#include "profiler/classes.h"

#define SCALE_SMALL_S 5e-6

typedef enum prof_precision {
  PROF_FP32,
  PROF_TF32,
  PROF_FP16,
  PROF_BF16,
  PROF_FP8,
  PROF_PRECISION_COUNT
} prof_precision;
extern const char *const prof_precision_names[PROF_PRECISION_COUNT + 1]; /* "fp32", ...; NULL at the end */

/* What the name tells; PROF_PRECISION_COUNT: nothing. */
prof_precision prof_precision_of(const char *kernel);

/* Devices and links of a cluster as a run of `devices` recorded devices and `ranks` processes uses them. */
typedef struct prof_side {
  const plan_cluster *cluster;
  const plan_device_model *model;
  plan_nccl_query ring;  /* ranks 1: no communication */
  const plan_link *host; /* NULL: none */
  plan_route peer;       /* count 0: there is no other device */
} prof_side;

/* DP_BAD_INPUT: too few devices, cards of several kinds, parts of cards, or processors. */
dp_status prof_side_of(const plan_catalogue *catalogue, const plan_cluster *cluster, int devices, prof_side *side,
                       dp_error *error);

enum { SCALE_POINTS = 160, SCALE_COLLECTIVES = 3 };

typedef struct prof_scale {
  const prof_session *session;
  const unsigned char *classes, *precisions; /* by name; precisions: none is PROF_PRECISION_COUNT */
  prof_side was, is;
  bool same_device, same_links;
  double matrix[PROF_PRECISION_COUNT], memory;       /* of times, there over here; matrix 0: one of them cannot */
  prof_precision assumed;                            /* of `other` */
  double nccl_s[SCALE_COLLECTIVES][2][SCALE_POINTS]; /* [plan_nccl_op][was, is]: 2^(i/4) bytes */
  double band;
  int edge; /* -1, 0, 1 */
} prof_scale;

/* Precisions of matrix kernels by name, malloc'ed: what the name does not tell is `assumed`. `seconds`: of each
 * precision, as its name tells, [PROF_PRECISION_COUNT] that of those which do not tell. NULL: no memory. */
unsigned char *prof_scale_precisions(const prof_session *session, const unsigned char *classes,
                                     double seconds[PROF_PRECISION_COUNT + 1]);

/* Fills the ratios; session, classes, precisions, was, is, assumed and band are there. DP_BAD_INPUT: a device does not
 * have a precision that the run uses; `used`: seconds of each. */
dp_status prof_scale_make(const plan_nccl_model *nccl, const double used[PROF_PRECISION_COUNT], prof_scale *scale,
                          dp_error *error);

/* For prof_retime_how.work_s; the context is a prof_scale. */
double prof_scale_work_s(const void *scale, const prof_record *work, double measured_s);

#endif
