/* Compressed skips at work (plan/compressor.h says which): the matrices of both ends, packing and restoring, their
 * gradients, the fit to real activations and the PSNR of what comes through. Internal to exec/.
 *
 * The fit is a truncated higher-order SVD (De Lathauwer et al. 2000): of each dimension the leading eigenvectors of the
 * sum of x x^T over the other dimensions, by orthogonal iteration. Up is the transposed of down then: for orthonormal
 * matrices that restores best. PSNR = 20 log10((max - min) / root mean squared error), of one microbatch's tensor.
 */
#ifndef DP_EXEC_COMPRESS_H
#define DP_EXEC_COMPRESS_H

#include "exec/parameters.h"
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
  float *up;              /* down: the other end's matrices, where PSNR is measured or they are fitted */
  double *moments[3];     /* down, during a fit: dims x dims */
  double psnr;            /* of the last microbatch measured; 0: none */
} exec_squeeze;

int64_t exec_compress_kept(const plan_compressor *c); /* values of a microbatch */
size_t exec_compress_workspace(const plan_program *program, int threads);

/* values -> packed -> values */
void exec_compress_pack(kern_context *kern, const plan_compressor *c, const float *matrices, const float *whole,
                        float *packed);
void exec_compress_restore(kern_context *kern, const plan_compressor *c, const float *matrices, const float *packed,
                           float *whole);
/* The gradient of the whole to that of the values kept, or back (added or not); and of the matrices, added. */
void exec_compress_restore_backward(kern_context *kern, const plan_compressor *c, const float *matrices,
                                    const float *packed, const float *dwhole, float *dpacked, float *dmatrices);
void exec_compress_pack_backward(kern_context *kern, const plan_compressor *c, const float *matrices,
                                 const float *whole, const float *dpacked, float *dwhole, bool accumulate,
                                 float *dmatrices);

/* Adds a tensor's second moments; scratch: floats of the largest dimension squared. */
void exec_compress_gather(kern_context *kern, const plan_compressor *c, const float *whole, double *const moments[3],
                          float *scratch);
/* From the moments to both ends' matrices. */
dp_status exec_compress_fit(const plan_compressor *c, double *const moments[3], float *down, float *up,
                            dp_error *error);
/* EXEC_PSNR_EXACT where nothing is lost. */
#define EXEC_PSNR_EXACT 999.0
double exec_compress_psnr(int64_t n, const float *whole, const float *restored);

#endif
