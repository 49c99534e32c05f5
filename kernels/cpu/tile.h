/* Inside kernels/cpu/: the innermost loops of matrix products. A tile of C is held in registers while the products of
 * its rows of A and columns of B are added; B is packed so that a tile's columns lie together, A is read where it lies.
 * (Goto & van de Geijn, "Anatomy of high-performance matrix multiplication", 2008; that rows of A are given by
 * pointers, so that a convolution copies no image: Dukhan, "The indirect convolution algorithm", 2019.)
 *
 * An element of C is one sum in the order of A's columns, whatever the tile: how a product is cut into tiles changes no
 * bit. With fused multiply-add where the machine has it, so bits differ between machines that have it or not.
 */
#ifndef DP_KERNELS_CPU_TILE_H
#define DP_KERNELS_CPU_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most rows and columns of any tile, and most rows of B that are packed at once: a block of them is KERN_TILE_DEPTH *
 * KERN_TILE_COLUMNS floats, on the stack of the thread that works on it. */
enum { KERN_TILE_ROWS = 8, KERN_TILE_COLUMNS = 32, KERN_TILE_DEPTH = 320, KERN_TILE_TAPS = 32, KERN_TILE_WIDTHS = 3 };

/* c[i][j] = alpha sum over t < taps and l < k of rows[t * tile rows + i][l] b[t * k + l][j] + bias[j] + old c[i][j] */
typedef struct kern_tile_call {
  int64_t taps, k;
  const float *const *rows; /* NULL: A lies transposed, a[l][i] = columns[l * stride + i], and taps is 1 */
  const float *columns;
  int64_t stride;
  const float *b; /* [taps * k][tile columns] */
  float *const *c;
  const float *bias; /* NULL: none */
  float alpha;
  bool add; /* else the old c is not read */
} kern_tile_call;

typedef void (*kern_tile)(const kern_tile_call *call);

/* The tiles for one kind of processor: of all rows, and of several widths, the widest first. */
typedef struct kern_tiles {
  const char *name;
  bool (*supported)(void);
  bool fast; /* as fast as the machine's products can be; else a library for its own vectors may be faster */
  int rows;
  struct {
    int columns;
    kern_tile of_rows, of_columns;
  } widths[KERN_TILE_WIDTHS]; /* columns 0: there are no more */
} kern_tiles;

/* The fastest that this machine can run. */
const kern_tiles *kern_tiles_get(void);
/* For tests: all there are, the fastest first, NULL beyond; and another choice, for all threads, NULL: the fastest. */
const kern_tiles *kern_tiles_all(int index);
void kern_tiles_choose(const kern_tiles *tiles);

/* The narrowest width that has so many columns, or the widest. */
static inline int kern_tile_width(const kern_tiles *tiles, int64_t columns) {
  int width = 0;
  while (width + 1 < KERN_TILE_WIDTHS && tiles->widths[width + 1].columns >= columns) width++;
  return width;
}

/* B's rows [0, k) and columns [0, columns) to packed[k][width], 0 beyond `columns`. b[l * stride + j], transposed
 * b[j * stride + l]. */
void kern_tile_pack(int64_t k, int64_t columns, int width, bool transposed, const float *b, int64_t stride,
                    float *packed);

/* Runs a tile where only the first `rows` and `columns` are wanted; c and bias of the call are those of the wanted
 * ones. Of further rows c is not looked at. Where A is given by pointers it has them for further rows too, as good as
 * any; where it lies transposed k is at most KERN_TILE_DEPTH, and no further rows are read. */
void kern_tile_run(const kern_tiles *tiles, int width, const kern_tile_call *call, int64_t rows, int64_t columns);

#endif
