/* Compressed skips: who projects which tensor for whom, and to what.
 *
 * A skip tensor [B, C, H, W] that travels under PLAN_SKIP_COMPRESS is projected by three matrices, C x kc, H x kh and
 * W x kw, to kc kh kw <= k values a sample, and at the other end restored by three of the transposed shapes. Both ends
 * are weights of their workers, trained with the model where the tensor has a gradient; they count as those of the unit
 * that makes the tensor, and of the first unit of the receiving chunk that uses it. Video [B, C, T, H, W] counts T H
 * rows. Each matrix takes a multiple of 8 values, the last of which may be 0 for ever, so that what lies behind it begins
 * on a boundary of 16 bytes if it does.
 */
#ifndef DP_PLAN_COMPRESSOR_H
#define DP_PLAN_COMPRESSOR_H

#include "plan/program.h"

typedef struct plan_compressor {
  uint32_t message; /* of the first pipeline, forward */
  int tensor;       /* of the graph */
  int down_unit, up_unit;
  int64_t batch, dims[3]; /* channels, height, width */
  int64_t kept[3];        /* the same, projected */
  int64_t parameters;     /* of either end: what its matrices take */
  bool trained;
} plan_compressor;

/* What an end's matrix of a dimension takes: channels, height, width lie one behind the other. */
static inline int64_t plan_compressor_matrix(const plan_compressor *c, int dimension) {
  return (c->dims[dimension] * c->kept[dimension] + 7) / 8 * 8;
}

/* Gives a program that has its messages its compressors. */
dp_status plan_compressors_make(plan_program *program, const graph *graph, dp_error *error);

/* Of a tensor at its place in message_tensors, in either direction; -1: it travels whole. */
static inline int plan_compressor_at(const plan_program *program, int message_tensor) {
  return program->message_compressors ? program->message_compressors[message_tensor] : -1;
}

/* kept[]: of all with a product of at most k whose dimensions shrink alike (the most shrunken at most 4 times as much
 * as the least), the largest product, then the most alike; where there is none, the most alike. */
void plan_compressor_shape(const int64_t dims[3], int64_t k, int64_t kept[3]);

#endif
