/* Growable arrays of any type: `DP_ARRAY(int) numbers = {0}; dp_array_push(&numbers, 7);`
 *
 * Zero-initialised is a valid empty array. items may move whenever the array grows. Growth is geometric.
 */
#ifndef DP_BASE_ARRAY_H
#define DP_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DP_ARRAY(type)      \
  struct {                  \
    type *items;            \
    size_t count, capacity; \
  }

/* True when there is room for `extra` more items; false (array unchanged) when the host has no memory. */
#define dp_array_reserve(array, extra) \
  dp_array_grow(&(array)->items, &(array)->capacity, (array)->count, (extra), sizeof *(array)->items)

/* Appends a value: true, or false (array unchanged) when the host has no memory. */
#define dp_array_push(array, value) (dp_array_reserve((array), 1) && ((array)->items[(array)->count++] = (value), true))

#define dp_array_free(array) (dp_array_release(&(array)->items, &(array)->count, &(array)->capacity))

/* What the macros call; `items` points at a pointer of any object type. */
bool dp_array_grow(void *items, size_t *capacity, size_t count, size_t extra, size_t item_bytes);
void dp_array_release(void *items, size_t *count, size_t *capacity);

#ifdef __cplusplus
}
#endif
#endif
