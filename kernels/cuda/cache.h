/* What a file found out about each size: values by keys of a few integers, so that a warm call looks once. */
#ifndef DP_KERNELS_CUDA_CACHE_H
#define DP_KERNELS_CUDA_CACHE_H

#include "kernels/cuda/context.h"

enum { KERN_CUDA_KEY_WORDS = 24 };
typedef struct kern_cuda_key {
  int64_t words[KERN_CUDA_KEY_WORDS]; /* those not needed are 0 */
} kern_cuda_key;

/* NULL: not there. A cache that is NULL is empty. */
void *kern_cuda_cache_find(const kern_cuda_cache *cache, const kern_cuda_key *key);
/* The key is not there yet. False: there is no memory, the context says so, and the value stays the caller's. */
bool kern_cuda_cache_add(kern_cuda *context, kern_cuda_cache **cache, const kern_cuda_key *key, void *value);
/* All values, in no order that means anything. */
void kern_cuda_cache_each(const kern_cuda_cache *cache, void (*look)(const void *value, void *data), void *data);
void kern_cuda_cache_free(kern_cuda_cache *cache, void (*release)(void *value));

#endif
