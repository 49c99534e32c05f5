/* Any bytes as an image, once as they are and once behind the first bytes of a PPM: refused in one line, or as many
 * pixels as it says, that can be scaled. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "exec/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_PIXELS = 1 << 18 };

static void try_bytes(const unsigned char *bytes, size_t size) {
  static float planes[3 * 8 * 16];
  exec_image image = {0};
  dp_error error = DP_ERROR_INIT;
  const dp_status status = exec_image_parse(bytes, size, "fuzz", MOST_PIXELS, &image, &error);
  if (status != DP_OK) {
    if ((status != DP_BAD_INPUT && status != DP_UNSUPPORTED) || strncmp(error.text, "fuzz: ", 6) != 0) abort();
    if (strchr(error.text, '\n') || image.rgb) abort();
    return;
  }
  if (image.width < 1 || image.height < 1 || image.width * image.height > MOST_PIXELS) abort();
  unsigned char least = 255, most = 0; /* every pixel is there, and a mean of pixels lies between them */
  for (int64_t i = 0; i < 3 * image.width * image.height; i++) {
    least = image.rgb[i] < least ? image.rgb[i] : least;
    most = image.rgb[i] > most ? image.rgb[i] : most;
  }
  if (exec_image_fit(&image, 16, 8, planes, &error) == DP_OK)
    for (int i = 0; i < 3 * 8 * 16; i++)
      if (!(255 * planes[i] > (float)least - 0.01F && 255 * planes[i] < (float)most + 0.01F)) abort();
  exec_image_free(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char head[] = "P6\n";
  try_bytes(data, size);
  unsigned char *bytes = malloc(size + sizeof head);
  if (!bytes) return 0;
  memcpy(bytes, head, sizeof head - 1);
  if (size) memcpy(bytes + sizeof head - 1, data, size);
  try_bytes(bytes, size + sizeof head - 1);
  free(bytes);
  return 0;
}
