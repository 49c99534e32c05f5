#include "base/array.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The caller's pointer has a type of its own, so it is copied as bytes and never read as a void pointer. */
static void *load(const void *items) {
  void *pointer;
  memcpy(&pointer, items, sizeof pointer);
  return pointer;
}

bool dp_array_grow(void *items, size_t *capacity, size_t count, size_t extra, size_t item_bytes) {
  if (extra <= *capacity - count) return true;
  const size_t most = PTRDIFF_MAX / item_bytes; /* no object is larger */
  if (count > most || extra > most - count) return false;
  size_t wanted = *capacity + *capacity / 2;
  if (wanted < count + extra) wanted = count + extra;
  if (wanted < 8) wanted = 8;
  if (wanted > most) wanted = count + extra;
  void *grown = realloc(load(items), wanted * item_bytes);
  if (!grown) return false;
  memcpy(items, &grown, sizeof grown);
  *capacity = wanted;
  return true;
}

void dp_array_release(void *items, size_t *count, size_t *capacity) {
  free(load(items));
  void *const none = NULL;
  memcpy(items, &none, sizeof none);
  *count = *capacity = 0;
}
