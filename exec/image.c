#define _POSIX_C_SOURCE 200809L
#include "exec/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/schema.h"

bool exec_image_is_named(const char *file) {
  static const char *const endings[] = {".ppm", ".png", ".jpg", ".jpeg"};
  const char *dot = strrchr(file, '.');
  for (size_t e = 0; dot && e < DP_COUNT_OF(endings); e++)
    if (strcasecmp(dot, endings[e]) == 0) return true;
  return false;
}

dp_status exec_image_make(const char *name, int64_t width, int64_t height, int64_t most_pixels, exec_image *image,
                          dp_error *error) {
  if (width < 1 || height < 1 || width > EXEC_IMAGE_SIDE || height > EXEC_IMAGE_SIDE || width * height > most_pixels)
    return dp_fail(error, DP_BAD_INPUT,
                   "%s: found an image of %lld × %lld pixels, allowed: sides from 1 to %d, at most %lld pixels", name,
                   (long long)width, (long long)height, EXEC_IMAGE_SIDE, (long long)most_pixels);
  unsigned char *rgb = malloc((size_t)(3 * width * height));
  if (!rgb) return dp_fail_memory(error);
  *image = (exec_image){width, height, rgb};
  return DP_OK;
}

void exec_image_free(exec_image *image) {
  free(image->rgb);
  *image = (exec_image){0};
}

static bool is_space(unsigned char byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

/* The next number of a PPM's header, after spaces and comments; -1: there is none. Large ones are cut. */
static int64_t next_number(const unsigned char *bytes, size_t length, size_t *at) {
  while (*at < length && (is_space(bytes[*at]) || bytes[*at] == '#')) {
    if (bytes[*at] == '#')
      while (*at < length && bytes[*at] != '\n') ++*at;
    else
      ++*at;
  }
  int64_t number = 0;
  const size_t begin = *at;
  for (; *at < length && bytes[*at] >= '0' && bytes[*at] <= '9'; ++*at)
    if (number < INT32_MAX) number = 10 * number + bytes[*at] - '0';
  return *at > begin ? number : -1;
}

static dp_status parse_ppm(const unsigned char *bytes, size_t length, const char *name, int64_t most_pixels,
                           exec_image *image, dp_error *error) {
  size_t at = 2;
  const int64_t width = next_number(bytes, length, &at), height = next_number(bytes, length, &at);
  const int64_t most = next_number(bytes, length, &at);
  if (width < 0 || height < 0 || most < 0 || at == length || !is_space(bytes[at]))
    return dp_fail(error, DP_BAD_INPUT, "%s: the header of the PPM is not complete, allowed: P6 WIDTH HEIGHT 255",
                   name);
  if (most != 255)
    return dp_fail(error, DP_BAD_INPUT, "%s: found a PPM with values up to %lld, allowed: 255", name, (long long)most);
  at++;
  exec_image made = {0};
  DP_TRY(exec_image_make(name, width, height, most_pixels, &made, error));
  const size_t wanted = (size_t)(3 * width * height);
  if (length - at != wanted) {
    exec_image_free(&made);
    return dp_fail(error, DP_BAD_INPUT, "%s: found %zu bytes of pixels, allowed: %zu, as %lld × %lld have%s", name,
                   length - at, wanted, (long long)width, (long long)height,
                   length - at < wanted ? " (is the file complete?)" : "");
  }
  memcpy(made.rgb, bytes + at, wanted);
  *image = made;
  return DP_OK;
}

dp_status exec_image_parse(const unsigned char *bytes, size_t length, const char *name, int64_t most_pixels,
                           exec_image *image, dp_error *error) {
  static const struct {
    const char *magic;
    size_t bytes;
    dp_status (*parse)(const unsigned char *, size_t, const char *, int64_t, exec_image *, dp_error *);
  } kinds[] = {
      {"P6", 2, parse_ppm}, {"\x89PNG\r\n\x1a\n", 8, exec_image_parse_png}, {"\xff\xd8\xff", 3, exec_image_parse_jpeg}};
  for (size_t k = 0; k < DP_COUNT_OF(kinds); k++)
    if (length >= kinds[k].bytes && memcmp(bytes, kinds[k].magic, kinds[k].bytes) == 0)
      return kinds[k].parse(bytes, length, name, most_pixels, image, error);
  return dp_fail(error, DP_BAD_INPUT, "%s: is no image that is known by its first bytes, allowed: PPM (P6), PNG, JPEG",
                 name);
}

dp_status exec_image_read(const char *path, exec_image *image, dp_error *error) {
  char *bytes = NULL;
  size_t length = 0;
  DP_TRY(dp_file_read(path, EXEC_IMAGE_FILE_BYTES, &bytes, &length, error));
  const dp_status status =
      exec_image_parse((const unsigned char *)bytes, length, path, EXEC_IMAGE_PIXELS, image, error);
  free(bytes);
  return status;
}

dp_status exec_image_write(const char *path, const exec_image *image, dp_error *error) {
  char header[64];
  (void)snprintf(header, sizeof header, "P6\n%lld %lld\n255\n", (long long)image->width, (long long)image->height);
  dp_output output = {0};
  DP_TRY(dp_output_open(path, &output, error));
  dp_status status = dp_output_write(&output, header, strlen(header), error);
  if (status == DP_OK) status = dp_output_write(&output, image->rgb, (size_t)(3 * image->width * image->height), error);
  if (status == DP_OK) status = dp_output_commit(&output, error);
  dp_output_abandon(&output);
  return status;
}
