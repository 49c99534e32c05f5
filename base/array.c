#include "base/array.h"

#include <stdint.h>
#include <stdlib.h>

bool dp_array_grow(void **items, size_t *capacity, size_t count, size_t extra, size_t item_bytes) {
  if (extra <= *capacity - count) return true;
  if (extra > SIZE_MAX / 4 || count > SIZE_MAX / 4) return false;
  size_t wanted = *capacity + *capacity / 2;
  if (wanted < count + extra) wanted = count + extra;
  if (wanted < 8) wanted = 8;
  if (wanted > SIZE_MAX / item_bytes) return false;
  void *grown = realloc(*items, wanted * item_bytes);
  if (!grown) return false;
  *items = grown;
  *capacity = wanted;
  return true;
}

void dp_array_release(void **items, size_t *count, size_t *capacity) {
  free(*items);
  *items = NULL;
  *count = *capacity = 0;
}
