/* Compressed skips at work (plan/compressor.h says which): the matrices of both ends, packing and restoring, their
 * gradients, the fit to real activations and the PSNR of what comes through. Internal to exec/.
 *
 * The fit is a truncated higher-order SVD (De Lathauwer et al. 2000): of each dimension the leading eigenvectors of the
 * sum of x x^T over the other dimensions, by orthogonal iteration. Up is the transposed of down then: for orthonormal
 * matrices that restores best. PSNR = 20 log10((max - min) / root mean squared error), of one microbatch's tensor.
 */
#ifndef DP_EXEC_COMPRESS_H
#define DP_EXEC_COMPRESS_H

#include "exec/chunk.h"
#include "plan/compressor.h"

/* An end on a worker: `down` where the tensor is made, else up. Matrices lie channels, height, width. */
typedef struct exec_squeeze {
  bool here; /* false: the worker has neither end */
  bool down;
  int extra;              /* of the worker's parameters */
  void **whole;           /* [microbatch] the tensor */
  void **packed;          /* [microbatch] the values kept */
  void **gradients;       /* [microbatch] of those; up alone */
  void **whole_gradients; /* [microbatch] of the tensor; up alone */
  float *up;              /* on the host: the matrices that restore, where PSNR is measured or they are fitted */
  void *shown;            /* down: the same, where kernels read them; on the host `up` itself */
  double *moments[3];     /* down of replica 0, during a fit: dims x dims */
  float *product;         /* as long: room for the largest of them */
  double psnr;            /* of the last microbatch measured; 0: none */
} exec_squeeze;

int64_t exec_compress_kept(const plan_compressor *c);    /* values of a microbatch */
int64_t exec_compress_longest(const plan_compressor *c); /* of its dimensions */
/* Most that projections need. */
size_t exec_compress_workspace(const plan_program *program, const exec_math *math, graph_dtype dtype, int threads);
/* What a device's workspace has beyond its kernels' share, at its end: exec_squeeze.shown of a rank's ends, in their
 * order. */
size_t exec_compress_shown_bytes(const plan_program *program, graph_dtype dtype, int rank);
size_t exec_compress_shown_each(const plan_compressor *c, graph_dtype dtype);

/* An end at work, on a device or the host. */
typedef struct exec_projector {
  const plan_compressor *compressor;
  const exec_math *math;
  void *kern;                       /* what it works on */
  void *matrices[3], *gradients[3]; /* gradients NULL: not trained */
} exec_projector;
/* The three matrices of an end that lie one behind the other. */
void exec_compress_matrices(const plan_compressor *c, graph_dtype dtype, void *first, void *matrices[3]);

/* values -> packed -> values */
void exec_compress_pack(const exec_projector *p, const void *whole, void *packed);
void exec_compress_restore(const exec_projector *p, const void *packed, void *whole);
/* The gradient of the whole to that of the values kept, or back (added or not); and of the matrices, added. */
void exec_compress_restore_backward(const exec_projector *p, const void *packed, const void *dwhole, void *dpacked);
void exec_compress_pack_backward(const exec_projector *p, const void *whole, const void *dpacked, void *dwhole,
                                 bool accumulate);

/* On the host: adds a tensor's second moments; scratch: floats of the largest dimension squared. */
void exec_compress_gather(kern_context *kern, const plan_compressor *c, const float *whole, double *const moments[3],
                          float *scratch);
/* From the moments to both ends' matrices. */
dp_status exec_compress_fit(const plan_compressor *c, double *const moments[3], float *down, float *up,
                            dp_error *error);
/* EXEC_PSNR_EXACT where nothing is lost. */
#define EXEC_PSNR_EXACT 999.0
double exec_compress_psnr(int64_t n, const float *whole, const float *restored);

#endif
