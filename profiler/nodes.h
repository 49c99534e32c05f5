/* Which unit of a model each node of a run's CUDA graphs comes from, by the nodes' ids.
 *
 * A node is made when a launch is captured, on the thread that launches, which knows what unit it works on; what runs
 * is a copy of it, with an id of its own, made when the graph is instantiated. Both are kept, and of copies of copies
 * the same. Any threads at the same time.
 */
#ifndef DP_PROFILER_NODES_H
#define DP_PROFILER_NODES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROF_NODES_MOST = 1 << 20, PROF_NO_UNIT = -1 };

typedef struct prof_node {
  uint64_t id; /* 0: none */
  int32_t unit;
} prof_node;

typedef struct prof_nodes {
  pthread_mutex_t lock;
  prof_node *slots; /* [slot_count] by the hash of the id; malloc'ed */
  size_t slot_count, count;
  uint64_t left_out; /* beyond PROF_NODES_MOST, or without memory */
} prof_nodes;

void prof_nodes_init(prof_nodes *nodes);
void prof_nodes_free(prof_nodes *nodes); /* after init; safe twice */
/* `from`: the node that it is a copy of, whose unit it has; 0: it is none, and `unit` is its own. A node of no unit is
 * not kept. */
void prof_nodes_add(prof_nodes *nodes, uint64_t id, uint64_t from, int32_t unit);
int32_t prof_nodes_unit(prof_nodes *nodes, uint64_t id); /* or PROF_NO_UNIT */

#endif
