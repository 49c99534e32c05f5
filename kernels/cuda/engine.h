/* cuDNN's engines in words: which one, for how many multiprocessors, and the choices of its knobs. An engine's number
 * and its knobs stand for the same kernels as long as the version of the library is the same. */
#ifndef DP_KERNELS_CUDA_ENGINE_H
#define DP_KERNELS_CUDA_ENGINE_H

#include "kernels/cuda/memory.h"

/* Writes a finished configuration of a graph's engine: "ENGINE MULTIPROCESSORS KNOB VALUE KNOB VALUE ...", 0
 * multiprocessors where it is for none in particular. False: it could not be made again from these words. */
bool kern_cuda_engine_tell(cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t config, char *out, size_t bytes);
/* The configuration of these words, which go on to the end of the text; the caller destroys it. NULL: this version of
 * the library has no such engine for the graph, or these are no such words. */
cudnnBackendDescriptor_t kern_cuda_engine_of(cudnnBackendDescriptor_t graph, const char *words);

#endif
