/* Where configure found no CUPTI: nothing is recorded. */
#include "profiler/cupti_capture.h"

dp_status prof_capture_start(prof_writer *writer, bool whole_graphs, dp_error *error) {
  (void)writer;
  (void)whole_graphs;
  return dp_fail(error, DP_UNSUPPORTED, "this diffpipe was built without CUPTI");
}
void prof_capture_follow(prof_capture_node note, void *data) {
  (void)note;
  (void)data;
}
uint32_t prof_capture_graph(void *graph) {
  (void)graph;
  return 0;
}
bool prof_capture_switch(bool on) {
  (void)on;
  return false;
}
void prof_capture_pump(bool flush) { (void)flush; }
void prof_capture_finish(void) {}
void prof_capture_child(void) {}
