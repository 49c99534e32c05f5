#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "exec/image.h"

#ifdef HAVE_PNG
#include <png.h>

dp_status exec_image_parse_png(const unsigned char *bytes, size_t length, const char *name, int64_t most_pixels,
                               exec_image *image, dp_error *error) {
  static const png_color white = {255, 255, 255};
  png_image reader = {.version = PNG_IMAGE_VERSION};
  if (!png_image_begin_read_from_memory(&reader, bytes, length))
    return dp_fail(error, DP_BAD_INPUT, "%s: the PNG is damaged: %s", name, reader.message);
  exec_image made = {0};
  reader.format = PNG_FORMAT_RGB;
  const dp_status status = exec_image_make(name, reader.width, reader.height, most_pixels, &made, error);
  if (status != DP_OK) {
    png_image_free(&reader);
    return status;
  }
  if (!png_image_finish_read(&reader, &white, made.rgb, (png_int_32)(3 * made.width), NULL)) {
    exec_image_free(&made);
    return dp_fail(error, DP_BAD_INPUT, "%s: the PNG is damaged: %s", name, reader.message);
  }
  *image = made;
  return DP_OK;
}
#else
dp_status exec_image_parse_png(const unsigned char *bytes, size_t length, const char *name, int64_t most_pixels,
                               exec_image *image, dp_error *error) {
  (void)bytes, (void)length, (void)most_pixels, (void)image;
  return dp_fail(error, DP_UNSUPPORTED, "%s: is a PNG, and this build has no libpng; allowed: PPM", name);
}
#endif
