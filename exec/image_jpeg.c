#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "exec/image.h"

#ifdef HAVE_JPEG
/* jpeglib.h needs FILE and does not include it */
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>

/* What libjpeg calls; `base` is first, so that a pointer to it is one to all. */
typedef struct reader_errors {
  struct jpeg_error_mgr base;
  jmp_buf failed;
  char text[JMSG_LENGTH_MAX];
} reader_errors;

static void leave(j_common_ptr reader) {
  reader_errors *errors = (reader_errors *)(void *)reader->err;
  errors->base.format_message(reader, errors->text);
  longjmp(errors->failed, 1);
}

/* Pixels that libjpeg made up are no pixels of ours; its other warnings are harmless. */
static void warn(j_common_ptr reader, int level) {
  const int code = reader->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE)) leave(reader);
}

static void say_nothing(j_common_ptr reader) { (void)reader; }

/* What has to outlive a longjmp. */
typedef struct jpeg_reader {
  struct jpeg_decompress_struct jpeg;
  reader_errors errors;
  exec_image made;
} jpeg_reader;

/* libjpeg may leave it by longjmp. */
static dp_status read_jpeg(jpeg_reader *r, const unsigned char *bytes, size_t length, const char *name,
                           int64_t most_pixels, dp_error *error) {
  jpeg_create_decompress(&r->jpeg);
  jpeg_mem_src(&r->jpeg, bytes, (unsigned long)length);
  (void)jpeg_read_header(&r->jpeg, TRUE);
  if (r->jpeg.jpeg_color_space == JCS_CMYK || r->jpeg.jpeg_color_space == JCS_YCCK)
    return dp_fail(error, DP_BAD_INPUT, "%s: found a JPEG for printing (CMYK), allowed: colour or grey", name);
  r->jpeg.out_color_space = JCS_RGB;
  DP_TRY(exec_image_make(name, r->jpeg.image_width, r->jpeg.image_height, most_pixels, &r->made, error));
  (void)jpeg_start_decompress(&r->jpeg);
  while (r->jpeg.output_scanline < r->jpeg.output_height) {
    JSAMPROW row = r->made.rgb + (size_t)3 * (size_t)r->made.width * r->jpeg.output_scanline;
    (void)jpeg_read_scanlines(&r->jpeg, &row, 1);
  }
  (void)jpeg_finish_decompress(&r->jpeg);
  return DP_OK;
}

static dp_status read_or_fail(jpeg_reader *r, const unsigned char *bytes, size_t length, const char *name,
                              int64_t most_pixels, dp_error *error) {
  if (setjmp(r->errors.failed))
    return dp_fail(error, DP_BAD_INPUT, "%s: the JPEG is damaged: %s", name, r->errors.text);
  return read_jpeg(r, bytes, length, name, most_pixels, error);
}

dp_status exec_image_parse_jpeg(const unsigned char *bytes, size_t length, const char *name, int64_t most_pixels,
                                exec_image *image, dp_error *error) {
  jpeg_reader r = {0};
  r.jpeg.err = jpeg_std_error(&r.errors.base);
  r.errors.base.error_exit = leave;
  r.errors.base.emit_message = warn;
  r.errors.base.output_message = say_nothing;
  const dp_status status = read_or_fail(&r, bytes, length, name, most_pixels, error);
  jpeg_destroy_decompress(&r.jpeg);
  if (status == DP_OK)
    *image = r.made;
  else
    exec_image_free(&r.made);
  return status;
}
#else
dp_status exec_image_parse_jpeg(const unsigned char *bytes, size_t length, const char *name, int64_t most_pixels,
                                exec_image *image, dp_error *error) {
  (void)bytes, (void)length, (void)most_pixels, (void)image;
  return dp_fail(error, DP_UNSUPPORTED, "%s: is a JPEG, and this build has no libjpeg; allowed: PPM", name);
}
#endif
