/* Tensor parallelism: the share that one member of a tensor group has of a model, as a graph of its own.
 *
 * All members compute alike, each with its part of the weights, so one share stands for all. It has the units of the
 * whole model; its shapes, FLOPs, bytes, parameters and saved tensors are the member's; what the members do together
 * stands in the work of three kinds of op that no whole model has (graph_work.collective).
 *
 * A tensor is whole on every member, or split: every member has 1/T of its channels. Rules, op by op; those for linear
 * layers and attention are Megatron-LM's (Shoeybi et al. 2019, arXiv:1909.08053, section 3):
 * - Linear layers and convolutions with a whole input go by output channels, and their output is split. With a split
 *   input they go by input channels: the members' outputs are partial sums, and an all-reduce makes the output whole.
 *   So the two linear layers of an MLP, and the two convolutions of a resnet, take one all-reduce.
 * - Attention with split q, k and v goes by heads. Where T does not divide the heads it is whole, and so are the linear
 *   layers that make q, k and v and the one that projects its output.
 * - RMS norm by head, group norm, plain and gated activations, rotary, reshape, resampling, concatenation and a cut
 *   along tokens are split where their inputs are and T divides heads, groups or channels.
 * - Layer norm, modulation, a cut along channels and all else are whole.
 *
 * Where an op wants whole what is split, an all-gather makes it whole, once. Where an op goes by output channels, the
 * gradient of its whole input is a sum over the members: an all-reduce, once for all ops of a unit that read that
 * tensor (q, k and v share one). The gradient of what was gathered is whole on all members, and each takes its part.
 * What one unit makes for another is whole.
 *
 * Products whose channels T does not divide are done whole by every member, as are norms of whole tensors and the bias
 * after an all-reduce: all members have their weights and get the same gradients. An adapter (LoRA) is split as its
 * layer: the factor at the split side is, the other one every member has. Members see only a part of the gradient of
 * that one, and of the weights of norms by head, which their heads share (graph_unit.partial_parameters).
 *
 * Not modelled: sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198), reductions hidden behind the weight
 * gradient, a stage's members sending each a part of a boundary tensor (Megatron's scatter and gather): each sends all
 * of it to its peer of the next stage.
 */
#ifndef DP_GRAPH_SHARD_H
#define DP_GRAPH_SHARD_H

#include "graph/graph.h"

/* Into `share` (zeroed by the caller), a graph that needs `whole` no more; degree 1 gives an equal graph. DP_BAD_INPUT
 * for synthetic units, and where nothing of the model can be split so. */
dp_status graph_shard(const graph *whole, int degree, graph *share, dp_error *error);

/* Bytes that one member sends in a ring: 2 (T - 1) / T of an all-reduce's tensor, (T - 1) / T of an all-gather's. */
int64_t graph_collective_sent_bytes(const graph_work *work, int degree);

#endif
