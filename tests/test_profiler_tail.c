/* The end of records that are being written. */
#define _GNU_SOURCE
#include <check.h>
#include <fcntl.h>

#include "base/file.h"
#include "profiler/tail.h"
#include "profiler/writer.h"
#include "tests/profiler_world.h"
#include "tests/scratch.h"

enum { KEPT = 4 * PROF_BLOCK_RECORDS * PROF_RECORD_BYTES };

static prof_writer *open_writer(const prof_writer_options *options, const prof_header *header) {
  prof_writer *writer = NULL;
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(prof_writer_open(options, header, &writer, &error) == DP_OK, "%s", error.text);
  return writer;
}

static prof_tail *open_tail(void) {
  prof_tail *tail = NULL;
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(prof_tail_open(".", KEPT, &tail, &error), DP_OK);
  return tail;
}

static prof_session look(prof_tail *tail) {
  prof_session session;
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(prof_tail_read(tail, &session, &error) == DP_OK, "%s", error.text);
  return session;
}

static void add(prof_writer *w, prof_kind kind, const char *name, int64_t at, uint64_t value) {
  const prof_record r = {
      .kind = (uint8_t)kind, .name = prof_writer_string(w, name), .start_ns = at, .end_ns = at + 1, .value = value};
  ck_assert(prof_writer_add(w, &r));
}

START_TEST(goes_on_where_it_was) {
  const prof_header header = world_header(10, 0, 1000, 1000);
  prof_tail *tail = open_tail();
  prof_session s = look(tail);
  ck_assert_uint_eq(s.processes.count, 0);
  prof_session_free(&s);
  prof_writer *w = open_writer(&(prof_writer_options){.folder = "."}, &header);
  for (int i = 1; i <= 3; i++) {
    add(w, PROF_KERNEL, i % 2 ? "odd" : "even", 1000 * i, 0);
    add(w, i < 3 ? PROF_ALLOCATE : PROF_FREE, NULL, 1000 * i + 5, (uint64_t)1 << (30 + i % 3));
    prof_writer_flush(w, true);
    s = look(tail);
    ck_assert_uint_eq(s.records.count, 2 * (size_t)i);
    ck_assert_str_eq(s.names.items[s.records.items[2 * i - 2].name], i % 2 ? "odd" : "even");
    ck_assert(!s.processes.items[0].ended);
    prof_session_free(&s);
  }
  ck_assert_int_eq(prof_tail_memory(tail, &header, 0), ((int64_t)1 << 31) + ((int64_t)1 << 32) - ((int64_t)1 << 30));
  ck_assert_int_eq(prof_tail_memory(tail, &header, 1), 0);
  prof_writer_close(w);
  prof_writer_free(w);
  s = look(tail);
  ck_assert(s.processes.items[0].ended && !s.processes.items[0].cut);
  ck_assert_uint_eq(s.records.count, 6);
  prof_session_free(&s);
  prof_tail_free(tail);
}
END_TEST

/* Any cut is waited for: what is there of a block is read when it is whole. */
START_TEST(waits_for_whole_blocks) {
  const prof_header header = world_header(10, 0, 1000, 1000);
  prof_tail *tail = open_tail();
  world w;
  size_t before = 0;
  world_begin(&w, &header);
  for (int i = 0; i < 3; i++) {
    world_work(&w, PROF_KERNEL, "gemm", 1, 2000 + 10 * i, 2005 + 10 * i, 0);
    world_flush(&w);
  }
  const int file = open("a.dpr", O_WRONLY | O_CREAT | O_TRUNC, 0666);
  ck_assert_int_ge(file, 0);
  for (size_t at = 0; at < w.length; at++) {
    ck_assert_int_eq(write(file, w.bytes + at, 1), 1);
    prof_session s = look(tail);
    ck_assert_uint_ge(s.records.count, before);
    before = s.records.count;
    prof_session_free(&s);
  }
  ck_assert_uint_eq(before, 3);
  ck_assert_int_eq(close(file), 0);
  free(w.bytes);
  prof_tail_free(tail);
}
END_TEST

static void follow_rotated_files(uint64_t file_bytes) {
  enum { COUNT = 60 * PROF_BLOCK_RECORDS };
  const prof_header header = world_header(10, 0, 1000, 1000);
  prof_tail *tail = open_tail();
  prof_writer *w = open_writer(&(prof_writer_options){.folder = ".", .files = 3, .file_bytes = file_bytes}, &header);
  int64_t allocated = 0;
  for (int i = 0; i < COUNT; i++) {
    const bool allocates = i % 100 == 0;
    add(w, allocates ? PROF_ALLOCATE : PROF_KERNEL, "always", 1000 + 10 * i, allocates ? 10 : 0);
    allocated += allocates ? 10 : 0;
    if (i % 2000 != 1999) continue;
    prof_writer_flush(w, true);
    prof_session s = look(tail);
    ck_assert_uint_le(s.records.count, 2 * (KEPT + KEPT / 2) / PROF_RECORD_BYTES);
    ck_assert_uint_ge(s.records.count, (size_t)(i < 3000 ? i + 1 : 3000));
    for (size_t r = 0; r < s.records.count; r++) /* the last ones, without a hole */
      ck_assert_int_eq(s.records.items[r].start_ns,
                       1000 + 10 * ((int64_t)i - (int64_t)s.records.count + 1 + (int64_t)r));
    ck_assert_int_eq(prof_tail_memory(tail, &header, 0), allocated);
    prof_session_free(&s);
  }
  prof_writer_close(w);
  prof_writer_free(w);
  prof_tail_free(tail);
}

START_TEST(keeps_the_last_of_rotated_files) { follow_rotated_files(300 << 10); }
END_TEST

START_TEST(leaves_no_hole_between_large_files) { follow_rotated_files(1 << 20); }
END_TEST

START_TEST(several_processes) {
  prof_tail *tail = open_tail();
  prof_header headers[3];
  prof_writer *writers[3];
  for (int p = 0; p < 3; p++) {
    headers[p] = world_header(10 + p, p, 1000, 1000);
    writers[p] = open_writer(&(prof_writer_options){.folder = "."}, &headers[p]);
    for (int i = 0; i <= p; i++) add(writers[p], PROF_ALLOCATE, NULL, 1000 + i, 100);
    prof_writer_close(writers[p]);
    prof_writer_free(writers[p]);
  }
  prof_session s = look(tail);
  ck_assert_uint_eq(s.processes.count, 3);
  ck_assert_uint_eq(s.records.count, 6);
  for (int p = 0; p < 3; p++) ck_assert_int_eq(prof_tail_memory(tail, &headers[p], 0), 100 * (p + 1));
  prof_session_free(&s);
  prof_tail_free(tail);
}
END_TEST

START_TEST(what_is_wrong) {
  dp_error error = DP_ERROR_INIT;
  prof_session s;
  prof_tail *tail = NULL;
  ck_assert_int_eq(prof_tail_open("missing", KEPT, &tail, &error), DP_OK);
  ck_assert_int_eq(prof_tail_read(tail, &s, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "missing: No such file or directory, allowed: a folder of records");
  prof_tail_free(tail);
  char other[PROF_HEADER_BYTES] = "something else";
  ck_assert_int_eq(dp_file_write("a.dpr", other, sizeof other, &error), DP_OK);
  tail = open_tail();
  ck_assert_int_eq(prof_tail_read(tail, &s, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "./a.dpr: offset 0: no file of records, allowed: the format diffpipe-records");
  prof_tail_free(tail);
  world w; /* behind records, which lie elsewhere in what is kept */
  const prof_header header = world_header(10, 0, 1000, 1000);
  world_begin(&w, &header);
  world_work(&w, PROF_MEMSET, NULL, 1, 2000, 2005, 0);
  world_flush(&w);
  const size_t at = w.length;
  world_block(&w, PROF_BLOCK_END, NULL, 0, 0);
  ck_assert_int_eq(dp_file_write("a.dpr", w.bytes, w.length, &error), DP_OK);
  free(w.bytes);
  tail = open_tail();
  ck_assert_int_eq(prof_tail_read(tail, &s, &error), DP_BAD_INPUT);
  char expected[128];
  (void)snprintf(expected, sizeof expected, "./a.dpr: offset %zu: kind of a block: found 7, allowed: 1 to 6", at);
  ck_assert_str_eq(error.text, expected);
  prof_tail_free(tail);
  ck_assert_int_eq(unlink("a.dpr"), 0);
  ck_assert_int_eq(symlink("a.dpr", "a.dpr"), 0);
  tail = open_tail();
  ck_assert_int_eq(prof_tail_read(tail, &s, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(error.text, "./a.dpr: cannot be read: "));
  prof_tail_free(tail);
  prof_tail_free(NULL);
}
END_TEST

static void clean(void) {
  scratch_clean(".");
  scratch_leave();
}

int main(void) {
  const TTest *const tests[] = {
      goes_on_where_it_was, waits_for_whole_blocks, keeps_the_last_of_rotated_files, leaves_no_hole_between_large_files,
      several_processes,    what_is_wrong};
  return suite_run("profiler_tail", tests, sizeof tests / sizeof tests[0], scratch_enter, clean, 0);
}
