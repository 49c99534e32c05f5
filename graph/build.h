/* Building a graph: what model files call. The builder is sticky: after the first failure every call is a no-op that
 * returns GRAPH_NONE, and graph_build_finish reports the failure, so model files read straight down.
 */
#ifndef DP_GRAPH_BUILD_H
#define DP_GRAPH_BUILD_H

#include "graph/graph.h"
#include "graph/model.h"

typedef struct graph_builder graph_builder;

/* Starts building into `graph` (zeroed by the caller). NULL: no memory. */
graph_builder *graph_build_begin(graph *graph, const graph_model_options *options, const dp_node *config);
int graph_build_input(graph_builder *b, const char *name, int rank, const int64_t dims[]);
/* An input that no sample changes, such as a table of positions. */
int graph_build_constant(graph_builder *b, const char *name, int rank, const int64_t dims[], graph_dtype dtype);
/* An input of numbers that stay fp32 whatever the precision: timesteps, sizes. */
int graph_build_scalars(graph_builder *b, const char *name, int rank, const int64_t dims[]);
/* A name in the graph's memory; "" after a failure. */
const char *graph_build_name(graph_builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool graph_build_failed(const graph_builder *b);
const graph_tensor *graph_build_tensor(const graph_builder *b, int tensor); /* a tensor so far; NULL after a failure */
void graph_build_unit(graph_builder *b, const char *name); /* ops that follow belong to it */
/* Whether a target of LoRA means the layer: its whole name, or the end of it after a dot. */
bool graph_is_target(const char *target, const char *name);
/* Adds an op, infers its output shapes, appends its weights under `name` ("<name>.weight", "<name>.bias"). Returns the
 * first output tensor; the others have the ids that follow. */
int graph_build_op(graph_builder *b, graph_op_kind kind, const char *name, const graph_attributes *attributes,
                   const int *inputs, int input_count);
void graph_build_output(graph_builder *b, int tensor);
void graph_build_latent(graph_builder *b, int tensor); /* the input that a sampler denoises: sets latent_bytes */
/* Fails the build with an error at a config key. */
void graph_build_fail(graph_builder *b, const dp_node *node, const char *format, ...) __attribute__((format(printf, 3, 4)));
void graph_build_fail_memory(graph_builder *b);
/* Liveness, gradients, costs, totals; frees the builder. On failure the graph is freed too. */
dp_status graph_build_finish(graph_builder *b, dp_error *error);

#endif
