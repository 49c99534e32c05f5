/* Peaks of live memory over ranges of units, remembered: a search asks for the same ranges again and again. Several
 * threads may ask at once. */
#ifndef DP_GRAPH_PEAKS_H
#define DP_GRAPH_PEAKS_H

#include "graph/graph.h"

typedef struct graph_peaks graph_peaks;

/* The graph must outlive it. Graphs of more than GRAPH_PEAKS_UNITS units are looked at anew each time. */
enum { GRAPH_PEAKS_UNITS = 512 };
dp_status graph_peaks_new(const graph *graph, graph_peaks **peaks, dp_error *error);
void graph_peaks_free(graph_peaks *peaks); /* NULL: nothing */
/* As graph_transient_bytes. */
dp_status graph_peaks_of(graph_peaks *peaks, int first, int count, graph_transients *transients, dp_error *error);

#endif
