/* A data set made by code: one or two plain shapes on a plain ground, and a caption that says what is to be seen: "a
 * large red circle on the left and a small blue square on the right, on a white ground". Picture i is a function of
 * (seed, i, height, width) alone, with the same bits on every machine.
 */
#ifndef DP_EXEC_SHAPES_H
#define DP_EXEC_SHAPES_H

#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "exec/image.h"

enum { EXEC_SHAPES_SIDE_LEAST = 16, EXEC_SHAPES_SIDE_MOST = 4096, EXEC_SHAPES_MOST = 1000000 };

/* Draws picture `index` into an image of that size, whose pixels are there, and adds its caption. */
void exec_shapes_draw(uint64_t seed, int64_t index, exec_image *image, dp_str *caption);

/* Told how many pictures are done; may be NULL. */
typedef void (*exec_shapes_progress)(void *data, int64_t done);

/* Writes `count` pictures, shape-000000.ppm and shape-000000.txt and so on; picture i has sizes[i % size_count]
 * {height, width}. The folder is written beside and exchanged: one that is there may hold nothing but what this and
 * `diffpipe data` write into it, and loses all of it. */
dp_status exec_shapes_write(const char *folder, uint64_t seed, int64_t count, const int64_t (*sizes)[2],
                            size_t size_count, exec_shapes_progress progress, void *data, dp_error *error);

#endif
