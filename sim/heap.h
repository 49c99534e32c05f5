/* The event queue: a 4-ary min-heap of (time, lane), at most one event a lane, with each lane's position at hand so that
 * an event can be moved earlier.
 *
 * The four children of a node lie in one cache line; unused places hold infinity, so that picking the least of four
 * needs no bounds. Taking the top leaves a hole at the root, which the next push fills with one pass down: most events
 * cause one other. Internal to sim/.
 */
#ifndef DP_SIM_HEAP_H
#define DP_SIM_HEAP_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct sim_event {
  double time_s;
  uint32_t lane, unused;
} sim_event;

#define SIM_NOT_QUEUED UINT32_MAX

typedef struct sim_heap {
  sim_event *nodes;    /* node i's children are 4 i + 1 .. 4 i + 4 */
  uint32_t *position;  /* of each lane's event, or SIM_NOT_QUEUED */
  uint32_t count;      /* places in use, the hole included */
  bool hole;           /* the root is vacant */
} sim_heap;

/* Bytes that sim_heap_place needs for lanes 0 .. lane_count - 1, at a 64-byte boundary. */
static inline size_t sim_heap_bytes(uint32_t lane_count) {
  return ((size_t)lane_count + 3 + 8) * sizeof(sim_event) + (size_t)lane_count * sizeof(uint32_t);
}

static inline void sim_heap_place(sim_heap *heap, void *memory, uint32_t lane_count) {
  sim_event *events = memory;
  heap->nodes = events + 3; /* children of 0 start at events[4], a cache line */
  heap->position = (uint32_t *)(events + lane_count + 3 + 8);
  heap->count = 0;
  heap->hole = false;
  for (uint32_t i = 0; i < lane_count + 8; i++) heap->nodes[i] = (sim_event){INFINITY, 0, 0};
  for (uint32_t i = 0; i < lane_count; i++) heap->position[i] = SIM_NOT_QUEUED;
}

static inline void sim_heap_set(sim_heap *heap, uint32_t at, sim_event event) {
  heap->nodes[at] = event;
  heap->position[event.lane] = at;
}

static inline void sim_heap_down(sim_heap *heap, uint32_t at, sim_event event) {
  const sim_event *nodes = heap->nodes;
  for (;;) {
    const uint32_t child = 4 * at + 1;
    if (child >= heap->count) break;
    const uint32_t left = child + (nodes[child + 1].time_s < nodes[child].time_s);
    const uint32_t right = child + 2 + (nodes[child + 3].time_s < nodes[child + 2].time_s);
    const uint32_t least = nodes[right].time_s < nodes[left].time_s ? right : left;
    if (!(nodes[least].time_s < event.time_s)) break;
    sim_heap_set(heap, at, nodes[least]);
    at = least;
  }
  sim_heap_set(heap, at, event);
}

static inline void sim_heap_up(sim_heap *heap, uint32_t at, sim_event event) {
  while (at > 0) {
    const uint32_t parent = (at - 1) / 4;
    if (!(event.time_s < heap->nodes[parent].time_s)) break;
    sim_heap_set(heap, at, heap->nodes[parent]);
    at = parent;
  }
  sim_heap_set(heap, at, event);
}

static inline void sim_heap_push(sim_heap *heap, double time_s, uint32_t lane) {
  const sim_event event = {time_s, lane, 0};
  if (heap->hole) {
    heap->hole = false;
    sim_heap_down(heap, 0, event);
  } else {
    sim_heap_up(heap, heap->count++, event);
  }
}

static inline void sim_heap_close_hole(sim_heap *heap) {
  if (!heap->hole) return;
  heap->hole = false;
  const sim_event last = heap->nodes[--heap->count];
  heap->nodes[heap->count].time_s = INFINITY;
  if (heap->count > 0) sim_heap_down(heap, 0, last);
}

/* False when no event is left. */
static inline bool sim_heap_first(sim_heap *heap, double *time_s) {
  sim_heap_close_hole(heap);
  *time_s = heap->nodes[0].time_s;
  return heap->count > 0;
}

/* Takes the first event away. Only right after sim_heap_first. */
static inline uint32_t sim_heap_take(sim_heap *heap) {
  const uint32_t lane = heap->nodes[0].lane;
  heap->position[lane] = SIM_NOT_QUEUED;
  heap->hole = true;
  return lane;
}

/* Moves an event to an earlier time; a later one is left to be found out when the event comes up. Nothing for a lane
 * without an event. */
static inline void sim_heap_hasten(sim_heap *heap, double time_s, uint32_t lane) {
  sim_heap_close_hole(heap);
  const uint32_t at = heap->position[lane];
  if (at != SIM_NOT_QUEUED && time_s < heap->nodes[at].time_s) sim_heap_up(heap, at, (sim_event){time_s, lane, 0});
}

#endif
