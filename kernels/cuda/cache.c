#include "kernels/cuda/cache.h"

#include <stdlib.h>
#include <string.h>

typedef struct slot {
  kern_cuda_key key;
  void *value; /* NULL: free */
} slot;

/* Open addressing; the size is a power of two, at most half full. */
struct kern_cuda_cache {
  size_t size, used;
  slot *slots;
};

/* FNV-1a (Fowler, Noll, Vo), by words; the high bits are folded into those that choose. */
static size_t hash(const kern_cuda_key *key) {
  uint64_t h = 14695981039346656037u;
  for (int i = 0; i < KERN_CUDA_KEY_WORDS; i++) h = (h ^ (uint64_t)key->words[i]) * 1099511628211u;
  return (size_t)(h ^ h >> 32);
}

static slot *place(const kern_cuda_cache *cache, const kern_cuda_key *key) {
  for (size_t i = hash(key);; i++) {
    slot *s = &cache->slots[i & (cache->size - 1)];
    if (!s->value || memcmp(&s->key, key, sizeof *key) == 0) return s;
  }
}

void *kern_cuda_cache_find(const kern_cuda_cache *cache, const kern_cuda_key *key) {
  return cache ? place(cache, key)->value : NULL;
}

static bool grow(kern_cuda_cache *cache) {
  kern_cuda_cache larger = {.size = cache->size ? 2 * cache->size : 64, .used = cache->used};
  larger.slots = calloc(larger.size, sizeof *larger.slots);
  if (!larger.slots) return false;
  for (size_t i = 0; i < cache->size; i++)
    if (cache->slots[i].value) *place(&larger, &cache->slots[i].key) = cache->slots[i];
  free(cache->slots);
  *cache = larger;
  return true;
}

bool kern_cuda_cache_add(kern_cuda *context, kern_cuda_cache **cache, const kern_cuda_key *key, void *value) {
  if (!*cache) *cache = calloc(1, sizeof **cache);
  if (!*cache || (2 * ((*cache)->used + 1) > (*cache)->size && !grow(*cache))) {
    kern_cuda_fail(context, DP_NO_MEMORY, "out of memory");
    return false;
  }
  *place(*cache, key) = (slot){.key = *key, .value = value};
  (*cache)->used++;
  return true;
}

void kern_cuda_cache_each(const kern_cuda_cache *cache, void (*look)(const void *value, void *data), void *data) {
  for (size_t i = 0; cache && i < cache->size; i++)
    if (cache->slots[i].value) look(cache->slots[i].value, data);
}

void kern_cuda_cache_free(kern_cuda_cache *cache, void (*release)(void *value)) {
  if (!cache) return;
  for (size_t i = 0; i < cache->size; i++)
    if (cache->slots[i].value) release(cache->slots[i].value);
  free(cache->slots);
  free(cache);
}
