/* Files of records: written as a program would, by threads, with rotation and after fork; read back; cut and broken. */
#define _GNU_SOURCE
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/file.h"
#include "profiler/writer.h"
#include "tests/profiler_world.h"
#include "tests/scratch.h"

static prof_header header_of(int pid) { return world_header(pid, 3, 5000000, 1000); }

static prof_writer *open_writer(const prof_writer_options *options, int pid) {
  prof_writer *writer = NULL;
  dp_error error = DP_ERROR_INIT;
  const prof_header header = header_of(pid);
  ck_assert_msg(prof_writer_open(options, &header, &writer, &error) == DP_OK, "%s", error.text);
  return writer;
}

static prof_session read_here(void) {
  prof_session session;
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(prof_session_read(".", &session, &error) == DP_OK, "%s", error.text);
  return session;
}

static prof_record kernel(uint32_t name, int64_t start_ns) {
  return (prof_record){.kind = PROF_KERNEL,
                       .detail = 2,
                       .device = 1,
                       .name = name,
                       .start_ns = start_ns,
                       .end_ns = start_ns + 5,
                       .stream = 4,
                       .thread = 5,
                       .correlation = 6,
                       .graph = 7,
                       .value = 0x123456789abcdef0u,
                       .grid = {0xfffffff0u, 9, 10},
                       .block_threads = 1024};
}

START_TEST(comes_back) {
  prof_writer *w = open_writer(&(prof_writer_options){.folder = "."}, 10);
  const uint32_t name = prof_writer_string(w, "gemm");
  ck_assert_uint_eq(prof_writer_string(w, "gemm"), name);
  ck_assert_uint_eq(prof_writer_string(w, ""), 0);
  prof_writer_device(w, 1, "NVIDIA H200", 132, 150000000000u);
  const prof_record record = kernel(name, 2000);
  ck_assert(prof_writer_add(w, &record));
  prof_writer_lost(w, 12);
  prof_writer_close(w);
  ck_assert(!prof_writer_add(w, &record)); /* threads that are late do no harm */
  prof_writer_flush(w, true);
  prof_writer_close(w);
  prof_writer_free(w);
  prof_session s = read_here();
  ck_assert_uint_eq(s.records.count, 1);
  prof_record expected = record;
  const prof_record *found = &s.records.items[0];
  expected.start_ns = 5001000; /* 1000 after the header's moment, on CLOCK_REALTIME */
  expected.end_ns = 5001005;
  expected.name = found->name;
  ck_assert_str_eq(s.names.items[found->name], "gemm");
  ck_assert_mem_eq(found, &expected, sizeof expected);
  const prof_process *p = &s.processes.items[0];
  ck_assert(p->ended && !p->cut);
  ck_assert_int_eq(p->header.pid, 10);
  ck_assert_int_eq(p->header.rank, 3);
  ck_assert_str_eq(p->header.host, "host");
  ck_assert_str_eq(p->header.command, "python train.py");
  ck_assert_uint_eq(p->counts.source, 12);
  const prof_device *device = prof_session_device(&s, 0, 1);
  ck_assert_str_eq(device->name, "NVIDIA H200");
  ck_assert_uint_eq(device->multiprocessors, 132);
  ck_assert_uint_eq(device->memory_bytes, 150000000000u);
  ck_assert_ptr_null(prof_session_device(&s, 0, 0));
  prof_session_free(&s);
}
END_TEST

START_TEST(full_buffers_drop_and_count) {
  prof_writer *w = open_writer(&(prof_writer_options){.folder = ".", .buffers = 2}, 10);
  uint64_t taken = 0;
  for (int i = 0; i < 3000; i++) {
    const prof_record r = kernel(0, i + 1);
    taken += prof_writer_add(w, &r);
  }
  ck_assert_uint_eq(taken, 2 * PROF_BLOCK_RECORDS);
  ck_assert_uint_eq(prof_writer_counts(w).no_buffer, 3000 - 2 * PROF_BLOCK_RECORDS);
  ck_assert(prof_writer_emergency(w)); /* what a signal handler does makes room */
  const prof_record r = kernel(0, 5000);
  ck_assert(prof_writer_add(w, &r));
  prof_writer_close(w);
  prof_writer_free(w);
  prof_session s = read_here();
  ck_assert_uint_eq(s.records.count, taken + 1);
  ck_assert_uint_eq(s.processes.items[0].counts.no_buffer, 3000 - taken);
  prof_session_free(&s);
}
END_TEST

START_TEST(files_rotate) {
  enum { COUNT = 40 * PROF_BLOCK_RECORDS };
  prof_writer *w = open_writer(&(prof_writer_options){.folder = ".", .files = 3, .file_bytes = 300 << 10}, 10);
  prof_writer_device(w, 0, "card", 1, 1);
  for (int i = 0; i < COUNT; i++) {
    char name[32];
    (void)snprintf(name, sizeof name, "kernel %d", i / 4096); /* the last files use names that the first ones said */
    prof_record r = kernel(prof_writer_string(w, i % 2 ? name : "always"), i + 1);
    r.device = 0;
    ck_assert(prof_writer_add(w, &r));
    if (i % 500 == 0) prof_writer_flush(w, false);
  }
  prof_writer_close(w);
  prof_writer_free(w);
  ck_assert_int_eq(count_entries("."), 3);
  prof_session s = read_here();
  const prof_process *p = &s.processes.items[0];
  ck_assert_uint_eq(p->files, 3);
  ck_assert_uint_gt(p->counts.rotated, 0);
  ck_assert_uint_eq(p->counts.rotated + s.records.count, COUNT);
  /* the newest are kept, without a hole */
  for (size_t i = 0; i < s.records.count; i++)
    ck_assert_int_eq(s.records.items[i].start_ns, 5000000 - 1000 + COUNT - (int64_t)s.records.count + (int64_t)i + 1);
  ck_assert_str_eq(s.names.items[s.records.items[s.records.count - 2].name], "always");
  ck_assert_str_eq(s.names.items[s.records.items[s.records.count - 1].name], "kernel 9");
  ck_assert_str_eq(prof_session_device(&s, 0, 0)->name, "card");
  prof_session_free(&s);
}
END_TEST

START_TEST(names_are_bounded) {
  prof_writer *w = open_writer(&(prof_writer_options){.folder = ".", .strings = 16}, 10);
  uint32_t last = 0;
  for (int i = 0; i < 20; i++) {
    char name[32];
    (void)snprintf(name, sizeof name, "kernel %d", i);
    last = prof_writer_string(w, name);
  }
  const prof_record r = kernel(last, 1);
  ck_assert(prof_writer_add(w, &r));
  ck_assert_uint_eq(prof_writer_counts(w).unnamed, 5);
  prof_writer_close(w);
  prof_writer_free(w);
  prof_session s = read_here();
  ck_assert_str_eq(s.names.items[s.records.items[0].name], "(more names)");
  prof_session_free(&s);
}
END_TEST

/* What does not fit is counted, and the program lives on. */
START_TEST(files_may_not_grow) {
  enum { COUNT = 10 * PROF_BLOCK_RECORDS };
  struct rlimit before;
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit limit = {.rlim_cur = 200000, .rlim_max = before.rlim_max};
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  prof_writer *w = open_writer(&(prof_writer_options){.folder = "."}, 10);
  bool added = true; /* Check writes a file, too */
  for (int i = 0; i < COUNT; i++) {
    const prof_record r = kernel(prof_writer_string(w, "name"), i + 1);
    added = prof_writer_add(w, &r) && added;
  }
  prof_writer_close(w);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
  ck_assert(added);
  ck_assert_uint_eq(prof_writer_counts(w).not_written, 7 * PROF_BLOCK_RECORDS);
  prof_writer_free(w);
  prof_session s = read_here();
  ck_assert_uint_eq(s.records.count, 3 * PROF_BLOCK_RECORDS);
  ck_assert(!s.processes.items[0].cut && s.processes.items[0].ended);
  ck_assert_uint_eq(s.processes.items[0].counts.not_written, 7 * PROF_BLOCK_RECORDS);
  prof_session_free(&s);
}
END_TEST

enum { THREADS = 4, EACH = 20000 };

static void *add_many(void *argument) {
  prof_writer *w = argument;
  for (int i = 0; i < EACH; i++) {
    char name[32];
    (void)snprintf(name, sizeof name, "kernel %d", i % 50);
    const prof_record r = kernel(prof_writer_string(w, name), i + 1);
    (void)prof_writer_add(w, &r);
    if (i % 1000 == 0) prof_writer_flush(w, i % 3000 == 0);
  }
  return NULL;
}

START_TEST(threads_lose_nothing) {
  pthread_t threads[THREADS];
  prof_writer *w = open_writer(&(prof_writer_options){.folder = "."}, 10);
  for (int t = 0; t < THREADS; t++) ck_assert_int_eq(pthread_create(&threads[t], NULL, add_many, w), 0);
  for (int t = 0; t < THREADS; t++) ck_assert_int_eq(pthread_join(threads[t], NULL), 0);
  prof_writer_close(w);
  const uint64_t dropped = prof_writer_counts(w).no_buffer;
  prof_writer_free(w);
  prof_session s = read_here();
  ck_assert_uint_eq(s.records.count + dropped, THREADS * EACH);
  size_t wrong = 0;
  for (size_t i = 0; i < s.records.count; i++) {
    char name[32];
    (void)snprintf(name, sizeof name, "kernel %d", (int)((s.records.items[i].start_ns - 5000000 + 1000 - 1) % 50));
    wrong += strcmp(s.names.items[s.records.items[i].name], name) != 0;
  }
  ck_assert_uint_eq(wrong, 0);
  prof_session_free(&s);
}
END_TEST

START_TEST(a_child_has_its_own) {
  prof_writer *w = open_writer(&(prof_writer_options){.folder = "."}, 10);
  const uint32_t name = prof_writer_string(w, "before");
  prof_record r = kernel(name, 1);
  ck_assert(prof_writer_add(w, &r));
  prof_writer_before_fork(w);
  const pid_t child = fork();
  if (child == 0) {
    const prof_header header = header_of(11);
    prof_writer_child(w, &header);
    r = kernel(name, 2);
    (void)prof_writer_add(w, &r);
    r = kernel(name, 3);
    (void)prof_writer_add(w, &r);
    prof_writer_flush(w, true);
    _exit(0); /* without a close: exec, or a kill */
  }
  prof_writer_parent(w);
  int status = -1;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  prof_writer_close(w);
  prof_writer_free(w);
  prof_session s = read_here();
  ck_assert_uint_eq(s.processes.count, 2);
  ck_assert_uint_eq(s.processes.items[0].records, 1);
  ck_assert(s.processes.items[0].ended);
  ck_assert_int_eq(s.processes.items[1].header.pid, 11);
  ck_assert_uint_eq(s.processes.items[1].records, 2);
  ck_assert(!s.processes.items[1].ended && !s.processes.items[1].cut);
  prof_session_free(&s);
}
END_TEST

START_TEST(a_closed_descriptor_is_noticed) {
  prof_writer *w = open_writer(&(prof_writer_options){.folder = "."}, 10);
  prof_record r = kernel(0, 1);
  ck_assert(prof_writer_add(w, &r));
  prof_writer_flush(w, true);
  int first = open("/dev/null", O_RDONLY);
  ck_assert_int_ge(first, 0);
  ck_assert_int_eq(close(first), 0);
  ck_assert_int_eq(close(first - 1), 0); /* the writer's, as a program that becomes a daemon does */
  const int other = open("other.txt", O_WRONLY | O_CREAT, 0666);
  ck_assert_int_eq(other, first - 1);
  r = kernel(0, 2);
  ck_assert(prof_writer_add(w, &r));
  prof_writer_close(w);
  prof_writer_free(w);
  ck_assert_int_eq(lseek(other, 0, SEEK_END), 0); /* not a byte went there, and it is still open */
  ck_assert_int_eq(close(other), 0);
  prof_session s = read_here();
  ck_assert_uint_eq(s.records.count, 2);
  ck_assert_uint_eq(s.processes.items[0].files, 2);
  prof_session_free(&s);
}
END_TEST

/* A small file with each kind of block. */
static world made_file(void) {
  world w;
  unsigned char clock[PROF_CLOCK_BYTES], device[PROF_DEVICE_BYTES] = {0}, counts[PROF_COUNTS_BYTES] = {0};
  const prof_header header = world_header(1, -1, 10000, 0);
  world_begin(&w, &header);
  prof_put_u32(device + 4, world_name(&w, "card"));
  world_block(&w, PROF_DEVICES_BLOCK, device, sizeof device, 1);
  world_work(&w, PROF_KERNEL, "gemm", 1, 1000, 2000, 500);
  world_flush(&w);
  prof_put_u64(clock, 10000 + 4000 + 400); /* REALTIME gains 400 ns in 4000 */
  prof_put_u64(clock + 8, 4000);
  world_block(&w, PROF_CLOCKS_BLOCK, clock, sizeof clock, 1);
  world_work(&w, PROF_COPY, NULL, 1, 6000, 6100, 0);
  world_flush(&w);
  world_block(&w, PROF_COUNTS_BLOCK, counts, sizeof counts, 1);
  world_block(&w, PROF_END_BLOCK, NULL, 0, 0);
  return w;
}

/* Names are cut at a byte, and a program may call its kernels and itself what it likes. */
START_TEST(texts_are_clean) {
  world w;
  prof_header header = world_header(1, -1, 10000, 0);
  prof_session s = {.slots = NULL};
  dp_error error = DP_ERROR_INIT;
  (void)snprintf(header.command, sizeof header.command, "\xc3\xa9 \xe2\x82");
  world_begin(&w, &header);
  world_work(&w, PROF_KERNEL, "k\xc3\xa9rnel\n\xe2\x82", 1, 1000, 2000, 0);
  world_flush(&w);
  world_read(&w, &s);
  ck_assert_int_eq(prof_session_finish(&s, &error), DP_OK);
  ck_assert_str_eq(s.names.items[s.records.items[0].name], "k\xc3\xa9rnel???");
  ck_assert_str_eq(s.processes.items[0].header.command, "\xc3\xa9 ??");
  prof_session_free(&s);
}
END_TEST

START_TEST(clocks_are_joined) {
  world w = made_file();
  prof_session s = {.slots = NULL};
  dp_error error = DP_ERROR_INIT;
  world_read(&w, &s);
  ck_assert_int_eq(prof_session_finish(&s, &error), DP_OK);
  ck_assert_uint_eq(s.records.count, 3);
  ck_assert_int_eq(s.records.items[0].start_ns, 10550); /* the call at 500, between the pairs */
  ck_assert_int_eq(s.records.items[1].start_ns, 11100); /* the kernel at 1000 */
  ck_assert_int_eq(s.records.items[1].end_ns, 12100);   /* as long as it was */
  ck_assert_int_eq(s.records.items[2].start_ns, 16400); /* behind them, by the last */
  prof_session_free(&s);
}
END_TEST

/* By a second forward, and by five back: what lies between two records stays what it was. */
START_TEST(clocks_that_are_set_move_nothing) {
  enum { SECOND = 1000000000, COUNT = 30 };
  static const int64_t set_ns[3] = {0, SECOND, -4 * (int64_t)SECOND};
  const int64_t first_ns = 10 * (int64_t)SECOND, realtime_ns = 1000 * (int64_t)SECOND;
  const prof_header header = world_header(1, -1, realtime_ns, first_ns);
  prof_session s = {.slots = NULL};
  dp_error error = DP_ERROR_INIT;
  world w;
  world_begin(&w, &header);
  for (int i = 0; i < COUNT; i++) {
    unsigned char clock[PROF_CLOCK_BYTES];
    const int64_t at = first_ns + i * (int64_t)SECOND;
    world_work(&w, PROF_MEMSET, NULL, 1, at + 1000, at + 2000, 0);
    world_flush(&w);
    prof_put_u64(clock, (uint64_t)(realtime_ns + (i + 1) * (int64_t)SECOND + set_ns[i / 10]));
    prof_put_u64(clock + 8, (uint64_t)(at + SECOND));
    world_block(&w, PROF_CLOCKS_BLOCK, clock, sizeof clock, 1);
  }
  world_read(&w, &s);
  ck_assert_int_eq(prof_session_finish(&s, &error), DP_OK);
  ck_assert_uint_eq(s.records.count, COUNT);
  for (int i = 0; i < COUNT; i++)
    ck_assert_int_eq(s.records.items[i].start_ns, realtime_ns + i * (int64_t)SECOND + 1000);
  prof_session_free(&s);
}
END_TEST

START_TEST(processes_are_merged) {
  dp_error error = DP_ERROR_INIT;
  prof_session s = {.slots = NULL};
  for (int rank = 1; rank >= 0; rank--) {
    world w;
    const prof_header header = world_header(100 + rank, rank, 1000000, rank * 500000);
    world_begin(&w, &header);
    if (rank) (void)world_name(&w, "only here");
    for (int i = 0; i < 5; i++) {
      const int64_t at = rank * 500000 + 10 * i + rank + 1;
      world_work(&w, PROF_KERNEL, "same", 1, at, at + 5, 0);
    }
    world_read(&w, &s);
  }
  ck_assert_int_eq(prof_session_finish(&s, &error), DP_OK);
  ck_assert_uint_eq(s.processes.count, 2);
  ck_assert_int_eq(s.processes.items[0].header.rank, 0);
  for (size_t i = 0; i < 10; i++) { /* in turns, with one number for the name */
    ck_assert_uint_eq(s.records.items[i].process, i % 2);
    ck_assert_int_eq(s.records.items[i].start_ns, 1000001 + 10 * (int64_t)(i / 2) + (int64_t)(i % 2));
    ck_assert_uint_eq(s.records.items[i].name, s.records.items[0].name);
  }
  prof_session_free(&s);
}
END_TEST

/* Any beginning of a file is read, and holds the records of the blocks that are whole. */
START_TEST(any_cut_is_read) {
  world w = made_file();
  size_t before = 0, whole = 0;
  for (size_t length = PROF_HEADER_BYTES; length <= w.length; length++) {
    prof_session s = {.slots = NULL};
    dp_error error = DP_ERROR_INIT;
    unsigned char *copy = malloc(length); /* so that a sanitizer sees a step too far */
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, w.bytes, length);
    ck_assert_msg(prof_session_add(&s, copy, length, "cut", &error) == DP_OK, "%zu: %s", length, error.text);
    ck_assert_uint_ge(s.records.count, before);
    before = s.records.count;
    whole += !s.processes.items[0].cut;
    ck_assert(s.processes.items[0].ended == (length == w.length));
    prof_session_free(&s);
    free(copy);
  }
  ck_assert_uint_eq(before, 3);
  ck_assert_uint_eq(whole, 10); /* behind the header, and behind each of the nine blocks */
  free(w.bytes);
}
END_TEST

/* Any changed byte is noticed, by a line that names file and place. */
START_TEST(any_change_is_noticed) {
  world w = made_file();
  for (size_t at = 0; at < w.length; at++) {
    prof_session s = {.slots = NULL};
    dp_error error = DP_ERROR_INIT;
    w.bytes[at] ^= 0x41;
    const dp_status status = prof_session_add(&s, w.bytes, w.length, "changed.dpr", &error);
    w.bytes[at] ^= 0x41;
    ck_assert_msg(status == DP_BAD_INPUT, "byte %zu", at);
    ck_assert_msg(strncmp(error.text, "changed.dpr: offset ", 20) == 0 && !strchr(error.text, '\n'), "%s", error.text);
    prof_session_free(&s);
  }
  free(w.bytes);
}
END_TEST

static void refuses(world *w, const char *text) {
  prof_session s = {.slots = NULL};
  dp_error error = DP_ERROR_INIT;
  world_flush(w);
  ck_assert_int_eq(prof_session_add(&s, w->bytes, w->length, "f", &error), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, text) != NULL, "%s", error.text);
  prof_session_free(&s);
  free(w->bytes);
}

START_TEST(wrong_contents_are_refused) {
  const prof_header header = world_header(1, -1, 10000, 0);
  unsigned char payload[8] = {1, 0, 0, 0, 9, 0, 0, 0};
  world w;
  world_begin(&w, &header);
  world_add(&w, &(prof_record){.kind = PROF_KERNEL, .name = 4, .start_ns = 1, .end_ns = 2});
  refuses(&w, "f: offset 256: name: found 4, allowed: a string that the file has said before");
  world_begin(&w, &header);
  world_add(&w, &(prof_record){.kind = 99, .start_ns = 1, .end_ns = 2});
  refuses(&w, "kind of a record: found 99");
  world_begin(&w, &header);
  world_add(&w, &(prof_record){.kind = PROF_KERNEL, .start_ns = 1, .end_ns = INT64_MAX});
  refuses(&w, "time of a record: found 9223372036854775807, allowed: below 2^61 ns");
  world_begin(&w, &header);
  world_block(&w, PROF_STRINGS_BLOCK, payload, sizeof payload, 1);
  refuses(&w, "strings: bytes of one: found 9, allowed: what is left of the block");
  world_begin(&w, &header);
  world_block(&w, (prof_block)17, payload, sizeof payload, 1);
  refuses(&w, "kind of a block: found 17");
  world_begin(&w, &header);
  world_block(&w, PROF_RECORDS_BLOCK, payload, sizeof payload, 1u << 30);
  refuses(&w, "entries: found 1073741824");
}
END_TEST

START_TEST(lost_times_are_counted) {
  const prof_header header = world_header(1, -1, 10000, 0);
  world w;
  prof_session s = {.slots = NULL};
  world_begin(&w, &header);
  world_add(&w, &(prof_record){.kind = PROF_KERNEL, .start_ns = 0, .end_ns = 2});
  world_add(&w, &(prof_record){.kind = PROF_KERNEL, .start_ns = 9, .end_ns = 8});
  world_add(&w, &(prof_record){.kind = PROF_KERNEL, .start_ns = 9, .end_ns = 10});
  world_read(&w, &s);
  ck_assert_uint_eq(s.records.count, 1);
  ck_assert_uint_eq(s.processes.items[0].counts.source, 2);
  prof_session_free(&s);
}
END_TEST

START_TEST(folders_and_options) {
  dp_error error = DP_ERROR_INIT;
  prof_session s;
  prof_writer *w = NULL;
  const prof_header header = header_of(1);
  ck_assert_int_eq(prof_session_read("missing", &s, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "missing: No such file or directory, allowed: a folder of records");
  ck_assert_int_eq(prof_session_read(".", &s, &error), DP_BAD_INPUT);
  ck_assert_int_eq(dp_file_write("a.dpr", PROF_MAGIC "1", 17, &error), DP_OK);
  ck_assert_int_eq(prof_session_read(".", &s, &error), DP_BAD_INPUT); /* killed within its header: nothing is left */
  ck_assert_ptr_nonnull(strstr(error.text, "found no file of records"));
  ck_assert_int_eq(dp_file_write("a.dpr", "something else", 14, &error), DP_OK);
  ck_assert_int_eq(prof_session_read(".", &s, &error), DP_BAD_INPUT);
  ck_assert_int_eq(prof_writer_open(&(prof_writer_options){.folder = ".", .files = 1}, &header, &w, &error),
                   DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "records: files: found 1, allowed: 2 to 256");
  ck_assert_int_eq(prof_writer_open(&(prof_writer_options){.folder = "missing"}, &header, &w, &error), DP_BAD_INPUT);
  ck_assert_ptr_null(w);
}
END_TEST

/* What tests/profiler.sh reads: two processes of a training, by the writer; the second ends without closing them. */
static void write_run(const char *folder) {
  static const char *const names[] = {"nvjet_sm90_tst_128x160_64x5_2x1_v_bz_NNT", "vectorized_layer_norm_kernel",
                                      "pytorch_flash::flash_fwd_kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"};
  for (int rank = 0; rank < 2; rank++) {
    const prof_header header =
        world_header(4000 + rank, rank, 1700000000000000000 + rank * 1000, 5000000000 * (rank + 1));
    prof_writer *w = NULL;
    dp_error error = DP_ERROR_INIT;
    ck_assert_msg(prof_writer_open(&(prof_writer_options){.folder = folder}, &header, &w, &error) == DP_OK, "%s",
                  error.text);
    prof_writer_device(w, 0, "NVIDIA H200", 132, 150109945856u);
    int64_t now = header.clock_ns + 100000;
    uint32_t correlation = 0;
    const uint32_t step = prof_writer_string(w, "step"), call = prof_writer_string(w, "cudaLaunchKernel");
    prof_record r = {.kind = PROF_ALLOCATE, .start_ns = now, .end_ns = now, .value = 2000000000};
    ck_assert(prof_writer_add(w, &r));
    for (int s = 0; s < 6; s++) {
      r = (prof_record){.kind = PROF_RANGE_BEGIN,
                        .device = PROF_NO_DEVICE,
                        .name = step,
                        .start_ns = now,
                        .end_ns = now,
                        .thread = 1};
      ck_assert(prof_writer_add(w, &r));
      for (int k = 0; k < 8; k++) {
        const char *name = k < 6 ? names[k % 3] : k == 6 ? names[3] : "multi_tensor_apply_kernel<FusedAdamMathFunctor>";
        r = (prof_record){.kind = PROF_CALL,
                          .device = PROF_NO_DEVICE,
                          .name = call,
                          .start_ns = now,
                          .end_ns = now + 2000,
                          .thread = 1,
                          .correlation = ++correlation};
        ck_assert(prof_writer_add(w, &r));
        r = (prof_record){.kind = PROF_KERNEL,
                          .name = prof_writer_string(w, name),
                          .start_ns = now + 5000,
                          .end_ns = now + 45000 + 1000 * k,
                          .stream = k == 6 ? 20 : 7,
                          .correlation = correlation,
                          .grid = {16 + (uint32_t)k, 2, 1},
                          .block_threads = 256};
        ck_assert(prof_writer_add(w, &r));
        now += 40000 + 1000 * k;
      }
      r = (prof_record){.kind = PROF_RANGE_END, .device = PROF_NO_DEVICE, .start_ns = now, .end_ns = now, .thread = 1};
      ck_assert(prof_writer_add(w, &r));
      now += s == 3 ? 3000000 : 20000;
    }
    if (rank == 0) prof_writer_close(w);
    prof_writer_flush(w, true);
    prof_writer_free(w);
  }
}

START_TEST(kept_run_is_what_is_written) {
  const char *kept = getenv("DIFFPIPE_REWRITE_RECORDS");
  write_run(".");
  prof_session s = read_here();
  ck_assert_uint_eq(s.processes.count, 2);
  ck_assert_uint_eq(s.records.count, 2 * (1 + 6 * 18));
  prof_session_free(&s);
  if (kept) write_run(kept);
}
END_TEST

static void clean(void) {
  scratch_clean(".");
  scratch_leave();
}

int main(void) {
  const TTest *const tests[] = {comes_back,
                                full_buffers_drop_and_count,
                                files_rotate,
                                names_are_bounded,
                                files_may_not_grow,
                                threads_lose_nothing,
                                a_child_has_its_own,
                                a_closed_descriptor_is_noticed,
                                texts_are_clean,
                                clocks_are_joined,
                                clocks_that_are_set_move_nothing,
                                processes_are_merged,
                                any_cut_is_read,
                                any_change_is_noticed,
                                wrong_contents_are_refused,
                                lost_times_are_counted,
                                folders_and_options,
                                kept_run_is_what_is_written};
  return suite_run("profiler_record", tests, sizeof tests / sizeof tests[0], scratch_enter, clean, 0);
}
