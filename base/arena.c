#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dp_arena_block {
  dp_arena_block *next;
  size_t size, used;
  _Alignas(16) unsigned char bytes[];
};

enum { BLOCK_BYTES = 64 * 1024 };

void *dp_arena_alloc(dp_arena *arena, size_t count, size_t size) {
  if (size && count > (SIZE_MAX / 2) / size) return NULL;
  const size_t bytes = (count * size + 15) / 16 * 16 + (count * size == 0 ? 16 : 0);
  dp_arena_block *block = arena->blocks;
  if (!block || block->size - block->used < bytes) {
    const size_t wanted = bytes > BLOCK_BYTES / 4 ? bytes : BLOCK_BYTES;
    dp_arena_block *fresh = calloc(1, sizeof *fresh + wanted);
    if (!fresh) return NULL;
    fresh->size = wanted;
    arena->reserved_bytes += wanted;
    if (block && wanted == bytes) { /* a large one: keep filling the current block */
      fresh->next = block->next;
      block->next = fresh;
    } else {
      fresh->next = block;
      arena->blocks = fresh;
    }
    block = fresh;
  }
  void *result = block->bytes + block->used;
  block->used += bytes;
  arena->used_bytes += bytes;
  return result;
}

char *dp_arena_strdup(dp_arena *arena, const char *text) {
  const size_t length = strlen(text) + 1;
  char *copy = dp_arena_alloc(arena, length, 1);
  if (copy) memcpy(copy, text, length);
  return copy;
}

char *dp_arena_printf(dp_arena *arena, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  char *text = length < 0 ? NULL : dp_arena_alloc(arena, (size_t)length + 1, 1);
  if (text) (void)vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  return text;
}

void dp_arena_free(dp_arena *arena) {
  dp_arena_block *block = arena->blocks;
  while (block) {
    dp_arena_block *next = block->next;
    free(block);
    block = next;
  }
  *arena = (dp_arena){0};
}
