/* Traces of made-up records: what the kept run of tests/profiler.sh has not. */
#define _GNU_SOURCE
#include <check.h>
#include <unistd.h>

#include "base/file.h"
#include "base/node.h"
#include "profiler/trace.h"
#include "tests/profiler_world.h"
#include "tests/scratch.h"

static dp_document trace;

static void write_trace(world *w) {
  prof_session session = {.slots = NULL};
  prof_steps steps;
  dp_error error = DP_ERROR_INIT;
  unsigned char classes[300];
  memset(classes, PROF_OTHER, sizeof classes);
  world_read(w, &session);
  ck_assert_int_eq(prof_session_finish(&session, &error), DP_OK);
  ck_assert_int_eq(prof_steps_find(&session, classes, PROF_STEPS_AUTO, NULL, &steps, &error), DP_OK);
  ck_assert_msg(prof_trace_write(&session, classes, &steps, "t.json", &error) == DP_OK, "%s", error.text);
  ck_assert_msg(dp_document_read("t.json", &trace, &error) == DP_OK, "%s", error.text);
  ck_assert_int_eq(unlink("t.json"), 0);
  prof_steps_free(&steps);
  prof_session_free(&session);
}

/* The event that is number `skip` of those with that phase; NULL: there are no more. */
static const dp_node *event(const char *ph, int skip) {
  const dp_node *events = dp_node_get(trace.root, "traceEvents");
  for (size_t i = 0; i < events->count; i++)
    if (strcmp(dp_node_get(events->items[i], "ph")->string, ph) == 0 && skip-- == 0) return events->items[i];
  return NULL;
}

static void add_range(world *w, prof_kind kind, const char *name, uint64_t id, uint32_t thread, int64_t at_ns) {
  world_add(w, &(prof_record){.kind = (uint8_t)kind,
                              .device = PROF_NO_DEVICE,
                              .name = name ? world_name(w, name) : 0,
                              .value = id,
                              .thread = thread,
                              .start_ns = at_ns,
                              .end_ns = at_ns});
}

START_TEST(ranges_find_their_ends) {
  const prof_header header = world_header(1, -1, 1000, 1000);
  world w;
  world_begin(&w, &header);
  add_range(&w, PROF_RANGE_END, NULL, 0, 1, 1500); /* a pop without a push */
  add_range(&w, PROF_RANGE_BEGIN, "outer", 0, 1, 2000);
  add_range(&w, PROF_RANGE_BEGIN, "of a thread", 0, 2, 2100);
  add_range(&w, PROF_RANGE_BEGIN, "crossing", 9, 1, 2200);
  add_range(&w, PROF_RANGE_BEGIN, "inner \"quoted\" \xff", 0, 1, 2300);
  add_range(&w, PROF_RANGE_END, NULL, 0, 1, 2400);
  add_range(&w, PROF_RANGE_END, NULL, 0, 1, 2500);
  add_range(&w, PROF_RANGE_END, NULL, 9, 3, 2600);
  add_range(&w, PROF_RANGE_END, NULL, 0, 2, 2700);
  add_range(&w, PROF_RANGE_BEGIN, "never popped", 0, 1, 2800);
  write_trace(&w);
  static const struct {
    const char *name;
    double ts, dur;
  } rows[] = {{"inner \"quoted\" ?", 0.8, 0.1}, {"outer", 0.5, 0.5}, {"of a thread", 0.6, 0.6}};
  for (int i = 0; i < 3; i++) {
    const dp_node *e = event("X", i);
    ck_assert_ptr_nonnull(e);
    ck_assert_str_eq(dp_node_get(e, "name")->string, rows[i].name);
    ck_assert_double_eq_tol(dp_node_get(e, "ts")->real, rows[i].ts, 1e-9);
    ck_assert_double_eq_tol(dp_node_get(e, "dur")->real, rows[i].dur, 1e-9);
  }
  ck_assert_ptr_null(event("X", 3));
  ck_assert_str_eq(dp_node_get(event("b", 0), "name")->string, "crossing");
  ck_assert_double_eq_tol(dp_node_get(event("b", 0), "ts")->real, 0.7, 1e-9);
  ck_assert_double_eq_tol(dp_node_get(event("e", 0), "ts")->real, 1.1, 1e-9);
  ck_assert_str_eq(dp_node_get(event("b", 0), "id")->string, dp_node_get(event("e", 0), "id")->string);
  ck_assert_ptr_null(event("e", 1));
  ck_assert_int_eq(dp_node_get(event("X", 0), "tid")->integer, dp_node_get(event("X", 1), "tid")->integer);
  ck_assert_int_ne(dp_node_get(event("X", 0), "tid")->integer, dp_node_get(event("X", 2), "tid")->integer);
  ck_assert_int_eq(dp_node_get(dp_node_get(trace.root, "otherData"), "start_ns")->integer, 1500);
}
END_TEST

START_TEST(memory_is_a_counter) {
  const prof_header header = world_header(1, -1, 1000, 1000);
  world w;
  world_begin(&w, &header);
  for (int i = 0; i < 4; i++)
    world_add(&w, &(prof_record){.kind = i % 2 ? PROF_FREE : PROF_ALLOCATE,
                                 .device = (uint16_t)(i / 3),
                                 .start_ns = 2000 + i,
                                 .end_ns = 2000 + i,
                                 .value = 100 + (uint64_t)i});
  write_trace(&w);
  static const int64_t bytes[] = {100, 0, 102, 0}; /* of a device that frees more than was seen, 0 */
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(dp_node_get(dp_node_get(event("C", i), "args"), "bytes")->integer, bytes[i]);
  ck_assert_str_eq(dp_node_get(event("C", 3), "name")->string, "memory of device 1");
}
END_TEST

static void clean(void) {
  dp_document_free(&trace);
  scratch_leave();
}

int main(void) {
  const TTest *const tests[] = {ranges_find_their_ends, memory_is_a_counter};
  return suite_run("profiler_trace", tests, sizeof tests / sizeof tests[0], scratch_enter, clean, 0);
}
