/* Recorded programs, made up: kernels on streams with the calls that launched them, to be read back as a session. */
#ifndef DP_TESTS_PROFILER_WORLD_H
#define DP_TESTS_PROFILER_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "profiler/classes.h"
#include "profiler/session.h"
#include "tests/suite.h"

/* A file in memory: blocks are added as the format says. */
typedef struct world {
  unsigned char *bytes;
  size_t length, capacity;
  char names[256][64];
  uint32_t name_count;
  prof_record pending[PROF_BLOCK_RECORDS];
  uint32_t pending_count;
  int64_t now_ns;       /* of the device */
  uint32_t correlation; /* the last one */
  int drop_every;       /* of device records one in so many is lost; 0: none */
  dp_random random;
} world;

static inline void world_bytes(world *w, const void *bytes, size_t count) {
  if (w->length + count > w->capacity) {
    w->capacity = (w->length + count) * 2;
    w->bytes = realloc(w->bytes, w->capacity);
    ck_assert_ptr_nonnull(w->bytes);
  }
  if (count) memcpy(w->bytes + w->length, bytes, count);
  w->length += count;
}

static inline void world_block(world *w, prof_block kind, const void *payload, uint32_t bytes, uint32_t entries) {
  unsigned char head[PROF_BLOCK_HEAD_BYTES];
  prof_block_head(kind, payload, bytes, entries, head);
  world_bytes(w, head, sizeof head);
  world_bytes(w, payload, bytes);
}

static inline prof_header world_header(int pid, int rank, int64_t realtime_ns, int64_t clock_ns) {
  prof_header header = {.pid = pid, .parent = 1, .rank = rank, .realtime_ns = realtime_ns, .clock_ns = clock_ns};
  (void)snprintf(header.host, sizeof header.host, "host");
  (void)snprintf(header.command, sizeof header.command, "python train.py");
  return header;
}

static inline void world_begin(world *w, const prof_header *header) {
  unsigned char bytes[PROF_HEADER_BYTES];
  *w = (world){.now_ns = 1000000};
  dp_random_init(&w->random, 1, 0);
  prof_header_encode(header, bytes);
  world_bytes(w, bytes, sizeof bytes);
}

static inline void world_flush(world *w) {
  static unsigned char payload[PROF_PAYLOAD_BYTES];
  for (uint32_t i = 0; i < w->pending_count; i++) prof_record_encode(&w->pending[i], payload + i * PROF_RECORD_BYTES);
  if (w->pending_count)
    world_block(w, PROF_RECORDS_BLOCK, payload, w->pending_count * PROF_RECORD_BYTES, w->pending_count);
  w->pending_count = 0;
}

static inline uint32_t world_name(world *w, const char *name) {
  for (uint32_t i = 0; i < w->name_count; i++)
    if (strcmp(w->names[i], name) == 0) return i + 1;
  unsigned char payload[8 + 64] = {0};
  const uint32_t length = (uint32_t)strlen(name), number = ++w->name_count;
  ck_assert(length < 64 && number <= 256);
  (void)snprintf(w->names[number - 1], sizeof w->names[0], "%s", name);
  prof_put_u32(payload, number);
  prof_put_u32(payload + 4, length);
  memcpy(payload + 8, name, length);
  world_block(w, PROF_STRINGS_BLOCK, payload, 8 + (length + 3) / 4 * 4, 1);
  return number;
}

static inline void world_add(world *w, const prof_record *record) {
  w->pending[w->pending_count++] = *record;
  if (w->pending_count == PROF_BLOCK_RECORDS) world_flush(w);
}

static inline void world_call(world *w, uint32_t thread, int64_t start_ns, int64_t end_ns, uint32_t correlation) {
  world_add(w, &(prof_record){.kind = PROF_CALL,
                              .device = PROF_NO_DEVICE,
                              .name = world_name(w, "cudaLaunchKernel"),
                              .start_ns = start_ns,
                              .end_ns = end_ns,
                              .thread = thread,
                              .correlation = correlation});
}

/* At a time on a stream; its call began at call_ns, 0: none was recorded. */
static inline void world_work(world *w, prof_kind kind, const char *name, uint32_t stream, int64_t start_ns,
                              int64_t end_ns, int64_t call_ns) {
  const uint32_t number = name ? world_name(w, name) : 0, correlation = ++w->correlation;
  if (call_ns) world_call(w, 7, call_ns, call_ns + 1000, correlation);
  world_add(w, &(prof_record){.kind = (uint8_t)kind,
                              .name = number,
                              .start_ns = start_ns,
                              .end_ns = end_ns,
                              .stream = stream,
                              .correlation = correlation,
                              .grid = {1, 1, 1}});
}

/* The next kernel of stream 1: 1 µs after the last one, 10 µs and up to 10 more by chance. */
static inline void world_kernel(world *w, const char *name, uint32_t grid) {
  const int64_t start = w->now_ns + 1000, end = start + 10000 + (int64_t)dp_random_below(&w->random, 10000);
  const uint32_t number = world_name(w, name);
  w->now_ns = end;
  if (w->drop_every && dp_random_below(&w->random, (uint64_t)w->drop_every) == 0) return;
  world_add(w, &(prof_record){.kind = PROF_KERNEL,
                              .name = number,
                              .start_ns = start,
                              .end_ns = end,
                              .stream = 1,
                              .correlation = ++w->correlation,
                              .grid = {grid, 1, 1}});
}

static inline void world_read(world *w, prof_session *session) {
  dp_error error = DP_ERROR_INIT;
  world_flush(w);
  ck_assert_msg(prof_session_add(session, w->bytes, w->length, "made up", &error) == DP_OK, "%s", error.text);
  free(w->bytes);
  w->bytes = NULL;
}

/* Between two steps of the program, by its own word. */
static inline void world_mark(world *w, int64_t at_us) {
  world_add(
      w, &(prof_record){.kind = PROF_STEP, .device = PROF_NO_DEVICE, .start_ns = at_us * 1000, .end_ns = at_us * 1000});
}

/* world_work by microseconds. */
static inline void world_work_us(world *w, prof_kind kind, const char *name, uint32_t stream, int64_t start_us,
                                 int64_t end_us, int64_t call_us) {
  world_work(w, kind, name, stream, start_us * 1000, end_us * 1000, call_us * 1000);
}

/* The classes of a session by the installed rules, malloc'ed. */
static inline unsigned char *world_classes(const prof_session *session) {
  dp_error error = DP_ERROR_INIT;
  prof_rules rules;
  ck_assert_msg(prof_rules_read(NULL, &rules, &error) == DP_OK, "%s", error.text);
  unsigned char *classes = prof_rules_classes(&rules, session);
  ck_assert_ptr_nonnull(classes);
  prof_rules_free(&rules);
  return classes;
}

#endif
