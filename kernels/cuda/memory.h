/* What is remembered of choices (kern_cuda_memory): the words in which problems and ways are told and found again. */
#ifndef DP_KERNELS_CUDA_MEMORY_H
#define DP_KERNELS_CUDA_MEMORY_H

#include "kernels/cuda/cache.h"

enum { KERN_CUDA_WAY_BYTES = 1024 };

/* How one problem is solved. */
typedef struct kern_cuda_chooser {
  /* Makes the way that was told; false: the libraries do not have it, or the text is not one of `choose`. */
  bool (*restore)(void *data, const char *way);
  /* Finds a way anew, by timing where the context is tuning, and tells it; false: it is not to be remembered. */
  bool (*choose)(void *data, char way[KERN_CUDA_WAY_BYTES]);
  void *data;
} kern_cuda_chooser;

/* The way that is remembered of a problem; else one is chosen and, while the context is tuning, remembered. `kind` is
 * one word, and another one whenever the key, the ways or what may be chosen get another meaning. The key has all that
 * the choice depends on beside the device and the context's dtypes. */
void kern_cuda_choose(kern_cuda *context, const char *kind, const kern_cuda_key *key, const kern_cuda_chooser *chooser);

/* Reading a way from its beginning: numbers and words with one space between; false, and nothing is passed. */
bool kern_cuda_take_word(const char **at, const char *word);
bool kern_cuda_take_number(const char **at, int base, uint64_t *number);

#endif
