/* Images of a data set: PPM (P6) always, PNG and JPEG where the build has libpng and libjpeg; made 8-bit RGB on the way
 * in. What is transparent is laid over white; colour profiles and the orientation that a camera notes are not looked
 * at.
 */
#ifndef DP_EXEC_IMAGE_H
#define DP_EXEC_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { EXEC_IMAGE_SIDE = 32768, EXEC_IMAGE_PIXELS = 1 << 28, EXEC_IMAGE_FILE_BYTES = 1 << 30 }; /* at most */

typedef struct exec_image {
  int64_t width, height;
  unsigned char *rgb; /* [height, width, 3], sRGB; free with exec_image_free */
} exec_image;

/* By its ending: .ppm, .png, .jpg or .jpeg, in any case. */
bool exec_image_is_named(const char *file);
/* Which kind it is its first bytes say, not its name. DP_BAD_INPUT: it cannot be read, is no image, is damaged or too
 * large; DP_UNSUPPORTED: this build cannot read that kind. The error names the file. */
dp_status exec_image_read(const char *path, exec_image *image, dp_error *error);
/* The same from memory; `name` stands in for the path. More pixels than `most_pixels` are refused. */
dp_status exec_image_parse(const unsigned char *bytes, size_t length, const char *name, int64_t most_pixels,
                           exec_image *image, dp_error *error);
void exec_image_free(exec_image *image); /* safe on a zeroed one */

/* Writes P6; beside, then renamed. */
dp_status exec_image_write(const char *path, const exec_image *image, dp_error *error);

/* How an image is made to fill a size: scaled to the smallest size that covers it in both directions, then cut to its
 * middle. */
typedef struct exec_cover {
  int64_t width, height;       /* after scaling */
  int64_t crop_left, crop_top; /* cut off on these sides; on the others what is left over */
} exec_cover;
exec_cover exec_cover_of(int64_t width, int64_t height, int64_t to_width, int64_t to_height);

/* Scales and cuts into planes: out[3][to_height][to_width], red, green, blue from 0 to 1. Scaled by a triangle as wide
 * as a pixel of the coarser of the two grids, as Pillow's BILINEAR does but for its rounding to 8 bits. */
dp_status exec_image_fit(const exec_image *image, int64_t to_width, int64_t to_height, float *out, dp_error *error);

/* ---- the readers of one kind each (exec/image.c, image_png.c, image_jpeg.c) ---- */

/* DP_BAD_INPUT when a size is 0 or too large; else room for the pixels. */
dp_status exec_image_make(const char *name, int64_t width, int64_t height, int64_t most_pixels, exec_image *image,
                          dp_error *error);
dp_status exec_image_parse_png(const unsigned char *bytes, size_t length, const char *name, int64_t most_pixels,
                               exec_image *image, dp_error *error);
dp_status exec_image_parse_jpeg(const unsigned char *bytes, size_t length, const char *name, int64_t most_pixels,
                                exec_image *image, dp_error *error);

#endif
