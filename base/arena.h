/* An arena: many small allocations with one lifetime, freed together.
 *
 * Memory is zeroed and aligned to 16 bytes. Pointers stay valid until dp_arena_free. Not thread-safe.
 */
#ifndef DP_BASE_ARENA_H
#define DP_BASE_ARENA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dp_arena_block dp_arena_block;

/* Zero-initialised is a valid empty arena. */
typedef struct dp_arena {
  dp_arena_block *blocks;
  size_t used_bytes;     /* handed out so far */
  size_t reserved_bytes; /* taken from malloc so far */
} dp_arena;

/* NULL when the host has no memory or count * size overflows; a request of 0 bytes gives a valid pointer. */
void *dp_arena_alloc(dp_arena *arena, size_t count, size_t size);
char *dp_arena_strdup(dp_arena *arena, const char *text);
char *dp_arena_printf(dp_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void dp_arena_free(dp_arena *arena);

#define DP_ARENA_NEW(arena, type, count) ((type *)dp_arena_alloc((arena), (count), sizeof(type)))

#ifdef __cplusplus
}
#endif
#endif
