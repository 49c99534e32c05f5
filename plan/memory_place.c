/* Offsets of buffers with known lifetimes: offset allocation is NP-hard, so two good rules and the better result. */
#include <stdlib.h>
#include <string.h>

#include "plan/memory.h"

enum { MAX_BY_SIZE = 4096 }; /* first fit by size looks at all pairs */

static int by_begin(const void *left, const void *right) {
  const plan_buffer *a = *(plan_buffer *const *)left, *b = *(plan_buffer *const *)right;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  if (a->end != b->end) return a->end > b->end ? -1 : 1; /* those that stay longest lowest */
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a < b ? -1 : a > b;
}

static int by_size(const void *left, const void *right) {
  const plan_buffer *a = *(plan_buffer *const *)left, *b = *(plan_buffer *const *)right;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  const uint32_t a_life = a->end - a->begin, b_life = b->end - b->begin;
  if (a_life != b_life) return a_life > b_life ? -1 : 1;
  return a < b ? -1 : a > b;
}

static int by_end(const void *left, const void *right) {
  const plan_buffer *a = *(plan_buffer *const *)left, *b = *(plan_buffer *const *)right;
  if (a->end != b->end) return a->end < b->end ? -1 : 1;
  return a < b ? -1 : a > b;
}

/* Free runs below the highest buffer that lives, ascending, never adjacent. */
typedef struct hole {
  int64_t offset_bytes, bytes;
} hole;

typedef struct heap_space {
  hole *holes;
  uint32_t count;
  int64_t end_bytes; /* of the highest buffer that lives, or the base */
} heap_space;

static void remove_hole(heap_space *s, uint32_t at) {
  memmove(&s->holes[at], &s->holes[at + 1], (--s->count - at) * sizeof *s->holes);
}

static void release(heap_space *s, const plan_buffer *buffer) {
  uint32_t low = 0, high = s->count; /* the first hole above it */
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (s->holes[middle].offset_bytes < buffer->offset_bytes)
      low = middle + 1;
    else
      high = middle;
  }
  memmove(&s->holes[low + 1], &s->holes[low], (s->count++ - low) * sizeof *s->holes);
  s->holes[low] = (hole){buffer->offset_bytes, buffer->bytes};
  if (low + 1 < s->count && s->holes[low].offset_bytes + s->holes[low].bytes == s->holes[low + 1].offset_bytes) {
    s->holes[low].bytes += s->holes[low + 1].bytes;
    remove_hole(s, low + 1);
  }
  if (low > 0 && s->holes[low - 1].offset_bytes + s->holes[low - 1].bytes == s->holes[low].offset_bytes) {
    s->holes[low - 1].bytes += s->holes[low].bytes;
    remove_hole(s, low--);
  }
  if (s->holes[low].offset_bytes + s->holes[low].bytes == s->end_bytes) {
    s->end_bytes = s->holes[low].offset_bytes;
    remove_hole(s, low);
  }
}

/* The smallest hole that is large enough, the lowest of equals; else on top. */
static void take(heap_space *s, plan_buffer *buffer) {
  uint32_t best = s->count;
  for (uint32_t h = 0; h < s->count; h++)
    if (s->holes[h].bytes >= buffer->bytes && (best == s->count || s->holes[h].bytes < s->holes[best].bytes)) best = h;
  if (best == s->count) {
    buffer->offset_bytes = s->end_bytes;
    s->end_bytes += buffer->bytes;
    return;
  }
  buffer->offset_bytes = s->holes[best].offset_bytes;
  s->holes[best].offset_bytes += buffer->bytes;
  s->holes[best].bytes -= buffer->bytes;
  if (s->holes[best].bytes == 0) remove_hole(s, best);
}

/* In order of begin; every buffer's place is free again after its end. */
static int64_t place_by_begin(plan_buffer **order, uint32_t count, int64_t base_bytes, plan_buffer **ends,
                              hole *holes) {
  heap_space space = {.holes = holes, .end_bytes = base_bytes};
  int64_t top_bytes = base_bytes;
  memcpy(ends, order, count * sizeof *order);
  qsort(order, count, sizeof *order, by_begin);
  qsort(ends, count, sizeof *ends, by_end);
  for (uint32_t i = 0, ended = 0; i < count; i++) {
    while (ends[ended]->end < order[i]->begin) release(&space, ends[ended++]);
    take(&space, order[i]);
    if (space.end_bytes > top_bytes) top_bytes = space.end_bytes;
  }
  return top_bytes;
}

/* What place_by_size asks of a placed buffer, side by side: the list is walked for every buffer. */
typedef struct seat {
  uint32_t begin, end;
  int64_t offset_bytes, end_bytes;
} seat;

/* In order of size: the lowest offset that is free throughout the buffer's life. placed[count]: by offset. Ends early
 * where it does not stay below best_bytes. */
static int64_t place_by_size(plan_buffer **order, uint32_t count, int64_t base_bytes, int64_t best_bytes,
                             seat *placed) {
  uint32_t placed_count = 0;
  int64_t top_bytes = base_bytes;
  qsort(order, count, sizeof *order, by_size);
  for (uint32_t i = 0; i < count; i++) {
    plan_buffer *buffer = order[i];
    const uint32_t begin = buffer->begin, end = buffer->end;
    const int64_t bytes = buffer->bytes;
    int64_t free_bytes = base_bytes;
    for (uint32_t l = 0; l < placed_count; l++) {
      const seat *other = &placed[l];
      if ((other->end < begin) | (other->begin > end)) continue;
      if (other->offset_bytes - free_bytes >= bytes) break;
      if (other->end_bytes > free_bytes) free_bytes = other->end_bytes;
    }
    if (free_bytes + bytes >= best_bytes) return best_bytes;
    buffer->offset_bytes = free_bytes;
    uint32_t low = 0, high = placed_count;
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      if (placed[middle].offset_bytes <= free_bytes)
        low = middle + 1;
      else
        high = middle;
    }
    memmove(&placed[low + 1], &placed[low], (placed_count - low) * sizeof *placed);
    placed[low] = (seat){begin, end, free_bytes, free_bytes + bytes};
    placed_count++;
    if (free_bytes + bytes > top_bytes) top_bytes = free_bytes + bytes;
  }
  return top_bytes;
}

dp_status plan_memory_place(plan_buffer *buffers, uint32_t count, int64_t base_bytes, int64_t live_peak_bytes,
                            int64_t *top_bytes, dp_error *error) {
  dp_arena scratch = {0};
  plan_buffer **order = DP_ARENA_NEW(&scratch, plan_buffer *, count),
              **list = DP_ARENA_NEW(&scratch, plan_buffer *, count + 1);
  int64_t *offsets = DP_ARENA_NEW(&scratch, int64_t, count);
  hole *holes = DP_ARENA_NEW(&scratch, hole, count + 1);
  if (!order || !list || !offsets || !holes) {
    dp_arena_free(&scratch);
    return dp_fail_memory(error);
  }
  for (uint32_t i = 0; i < count; i++) order[i] = &buffers[i];
  int64_t best_bytes = place_by_begin(order, count, base_bytes, list, holes);
  if (best_bytes > live_peak_bytes && count <= MAX_BY_SIZE) {
    for (uint32_t i = 0; i < count; i++) offsets[i] = buffers[i].offset_bytes;
    seat *seats = DP_ARENA_NEW(&scratch, seat, count);
    if (!seats) {
      dp_arena_free(&scratch);
      return dp_fail_memory(error);
    }
    const int64_t size_bytes = place_by_size(order, count, base_bytes, best_bytes, seats);
    if (size_bytes < best_bytes)
      best_bytes = size_bytes;
    else
      for (uint32_t i = 0; i < count; i++) buffers[i].offset_bytes = offsets[i];
  }
  *top_bytes = best_bytes;
  dp_arena_free(&scratch);
  return DP_OK;
}
