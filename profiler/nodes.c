#include "profiler/nodes.h"

#include <stdlib.h>

void prof_nodes_init(prof_nodes *nodes) {
  *nodes = (prof_nodes){.slots = NULL};
  (void)pthread_mutex_init(&nodes->lock, NULL);
}

void prof_nodes_free(prof_nodes *nodes) {
  free(nodes->slots);
  nodes->slots = NULL;
  nodes->slot_count = nodes->count = 0;
}

/* Where an id is, or would be; slot_count is a power of two, and more than `count`. */
static prof_node *slot_of(prof_node *slots, size_t slot_count, uint64_t id) {
  size_t at = (size_t)((id * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (slot_count - 1);
  while (slots[at].id != 0 && slots[at].id != id) at = (at + 1) & (slot_count - 1);
  return &slots[at];
}

static bool grow(prof_nodes *nodes) {
  const size_t slot_count = nodes->slot_count ? 2 * nodes->slot_count : 1024;
  prof_node *slots = calloc(slot_count, sizeof *slots);
  if (!slots) return false;
  for (size_t i = 0; i < nodes->slot_count; i++)
    if (nodes->slots[i].id) *slot_of(slots, slot_count, nodes->slots[i].id) = nodes->slots[i];
  free(nodes->slots);
  nodes->slots = slots;
  nodes->slot_count = slot_count;
  return true;
}

static int32_t find(const prof_nodes *nodes, uint64_t id) {
  if (id == 0 || nodes->slot_count == 0) return PROF_NO_UNIT;
  const prof_node *slot = slot_of(nodes->slots, nodes->slot_count, id);
  return slot->id == id ? slot->unit : PROF_NO_UNIT;
}

void prof_nodes_add(prof_nodes *nodes, uint64_t id, uint64_t from, int32_t unit) {
  (void)pthread_mutex_lock(&nodes->lock);
  if (from != 0) unit = find(nodes, from);
  if (id != 0 && unit != PROF_NO_UNIT) {
    const bool room = nodes->count < PROF_NODES_MOST && (2 * nodes->count < nodes->slot_count || grow(nodes));
    prof_node *slot = room ? slot_of(nodes->slots, nodes->slot_count, id) : NULL;
    if (slot) {
      nodes->count += slot->id == 0;
      *slot = (prof_node){id, unit};
    } else {
      nodes->left_out++;
    }
  }
  (void)pthread_mutex_unlock(&nodes->lock);
}

int32_t prof_nodes_unit(prof_nodes *nodes, uint64_t id) {
  (void)pthread_mutex_lock(&nodes->lock);
  const int32_t unit = find(nodes, id);
  (void)pthread_mutex_unlock(&nodes->lock);
  return unit;
}
