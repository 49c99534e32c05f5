/* What the table of ops says of each: its arrays, a plain double reference, and how it is run. */
#ifndef DP_TESTS_KERNELS_OPS_H
#define DP_TESTS_KERNELS_OPS_H

#include "kernels/cpu/kern.h"

enum { OPS_MAX_ARRAYS = 8, OPS_MAX_SIZES = 12 };

typedef enum ops_role { OPS_CONSTANT, OPS_INPUT /* its gradient follows `accumulate` */, OPS_WEIGHT } ops_role;

typedef struct ops_arrays {
  int count;
  int64_t n[OPS_MAX_ARRAYS];
  ops_role role[OPS_MAX_ARRAYS];
  int64_t out, kept; /* values of the output, and of what forward keeps for backward */
} ops_arrays;

typedef struct ops_kind {
  const char *name;
  void (*arrays)(const int64_t *z, ops_arrays *arrays); /* z: the sizes of a row */
  size_t (*workspace)(const int64_t *z, int threads);   /* NULL: none */
  void (*reference)(const int64_t *z, const double *const *in, double *out);
  void (*forward)(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept);
  /* d[i] is NULL where in[i] needs no gradient; NULL: the op has no backward */
  void (*backward)(kern_context *c, const int64_t *z, const float *const *in, const float *out, const float *kept,
                   const float *dy, float *const *d, bool accumulate);
} ops_kind;

typedef struct ops_row {
  const ops_kind *kind;
  int64_t longest; /* terms of the longest sum: see ops_tolerance() */
  int probes;      /* entries of each gradient that are held to finite differences */
  int64_t z[OPS_MAX_SIZES];
} ops_row;

extern const ops_kind ops_linear, ops_lora, ops_conv, ops_attention, ops_separable; /* products: kernels_products.c */
extern const ops_kind ops_group_norm, ops_layer_norm, ops_rms_norm, ops_activation, ops_gated; /* kernels_ops.c */
extern const ops_kind ops_add, ops_add_vector, ops_modulate, ops_gate;
extern const ops_kind ops_concat, ops_split, ops_upsample, ops_downsample, ops_patchify, ops_unpatchify, ops_layout;
extern const ops_kind ops_time, ops_embedding, ops_rotary, ops_loss, ops_squares, ops_adamw,
    ops_flat; /* kernels_moves.c */

extern const ops_row ops_rows[]; /* kernels_rows.c */
extern const size_t ops_row_count;
double ops_tolerance(int64_t longest); /* of an fp32 result, relative to the largest value */

static inline double ops_draw(uint64_t *state) { /* in [-1, 1] */
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(*state >> 11) * (1.0 / 4503599627370496) - 1;
}

static inline void ops_add_array(ops_arrays *a, int64_t n, ops_role role) {
  a->n[a->count] = n;
  a->role[a->count++] = role;
}

#endif
