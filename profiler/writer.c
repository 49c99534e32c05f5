#define _GNU_SOURCE /* realpath */
#include "profiler/writer.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/writer_parts.h"

static const char more_names[] = "(more names)"; /* number 1 */

/* ---- names ---- */

static uint32_t hash_of(const char *text, size_t length) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
  return hash;
}

static uint32_t find_or_add(prof_writer *w, const char *text, size_t length, uint32_t hash) {
  uint32_t *slot = &w->slots[hash & w->slot_mask];
  for (uint32_t s = *slot; s; s = w->strings[s].next)
    if (w->strings[s].hash == hash && w->strings[s].length == length &&
        memcmp(w->text + w->strings[s].offset, text, length) == 0)
      return s;
  if (w->string_count == w->string_limit || length > w->text_limit - w->text_used) {
    w->counts.unnamed++;
    w->count_version++;
    return 1;
  }
  const uint32_t number = ++w->string_count;
  memcpy(w->text + w->text_used, text, length);
  w->strings[number] = (string_row){.offset = w->text_used, .length = (uint32_t)length, .hash = hash, .next = *slot};
  w->text_used += (uint32_t)length;
  *slot = number;
  return number;
}

uint32_t prof_writer_string(prof_writer *w, const char *text) {
  if (!w || !text || !text[0]) return 0;
  const size_t length = strnlen(text, PROF_STRING_BYTES);
  const uint32_t hash = hash_of(text, length);
  (void)pthread_mutex_lock(&w->lock);
  const uint32_t number = w->closed ? 0 : find_or_add(w, text, length, hash);
  (void)pthread_mutex_unlock(&w->lock);
  return number;
}

/* ---- the path of a record ---- */

static bool take_buffer(prof_writer *w) {
  if (w->idle_count == 0) return false;
  w->current = w->idle[--w->idle_count];
  w->fill[w->current] = 0;
  return true;
}

static void queue_current(prof_writer *w) {
  w->queue[(w->queue_first + w->queue_count++) % w->buffers] = w->current;
  w->current = w->buffers;
}

bool prof_writer_add(prof_writer *w, const prof_record *record) {
  if (!w) return false;
  (void)pthread_mutex_lock(&w->lock);
  const bool room = !w->closed && (w->current < w->buffers || take_buffer(w));
  if (room) {
    w->records[(size_t)w->current * PROF_BLOCK_RECORDS + w->fill[w->current]++] = *record;
    if (w->fill[w->current] == PROF_BLOCK_RECORDS) queue_current(w);
  } else if (!w->closed) {
    w->counts.no_buffer++;
    w->count_version++;
  }
  (void)pthread_mutex_unlock(&w->lock);
  return room;
}

void prof_writer_device(prof_writer *w, uint16_t device, const char *name, uint32_t multiprocessors,
                        uint64_t memory_bytes) {
  if (!w || device >= PROF_MAX_DEVICES) return;
  const uint32_t number = prof_writer_string(w, name);
  (void)pthread_mutex_lock(&w->lock);
  w->devices[device] = (device_row){true, number, multiprocessors, memory_bytes};
  w->device_version++;
  (void)pthread_mutex_unlock(&w->lock);
}

void prof_writer_clock(prof_writer *w, int64_t realtime_ns, int64_t clock_ns) {
  if (!w) return;
  (void)pthread_mutex_lock(&w->lock);
  w->realtime_ns = realtime_ns;
  w->clock_ns = clock_ns;
  w->clock_version++;
  (void)pthread_mutex_unlock(&w->lock);
}

void prof_writer_lost(prof_writer *w, uint64_t records) {
  if (!w || records == 0) return;
  (void)pthread_mutex_lock(&w->lock);
  w->counts.source += records;
  w->count_version++;
  (void)pthread_mutex_unlock(&w->lock);
}

prof_counts prof_writer_counts(prof_writer *w) {
  (void)pthread_mutex_lock(&w->lock);
  const prof_counts counts = w->counts;
  (void)pthread_mutex_unlock(&w->lock);
  return counts;
}

/* The next buffer to write, or w->buffers. `lock` is held. */
static uint32_t next_buffer(prof_writer *w, bool all) {
  if (w->queue_count == 0 && all && w->current < w->buffers && w->fill[w->current] > 0) queue_current(w);
  if (w->queue_count == 0) return w->buffers;
  const uint32_t buffer = w->queue[w->queue_first];
  w->queue_first = (w->queue_first + 1) % w->buffers;
  w->queue_count--;
  return buffer;
}

/* No more buffers than there were at the beginning, or a fast program would hold its caller here for ever. */
static void flush(prof_writer *w, bool all) {
  for (uint32_t i = 0; i <= w->buffers; i++) {
    (void)pthread_mutex_lock(&w->lock);
    const uint32_t buffer = next_buffer(w, all);
    (void)pthread_mutex_unlock(&w->lock);
    if (buffer == w->buffers) break;
    const uint32_t count = w->fill[buffer];
    const bool done = prof_writer_write_records(w, w->records + (size_t)buffer * PROF_BLOCK_RECORDS, count);
    (void)pthread_mutex_lock(&w->lock);
    w->idle[w->idle_count++] = buffer;
    if (!done) {
      w->counts.not_written += count;
      w->count_version++;
    }
    (void)pthread_mutex_unlock(&w->lock);
  }
  if (w->file >= 0 && prof_writer_ready(w, 0)) (void)prof_writer_write_counts(w);
}

void prof_writer_flush(prof_writer *w, bool all) {
  if (!w) return;
  (void)pthread_mutex_lock(&w->disk);
  if (!w->closed) flush(w, all); /* only set with `disk` held */
  (void)pthread_mutex_unlock(&w->disk);
}

bool prof_writer_emergency(prof_writer *w) {
  if (!w || pthread_mutex_trylock(&w->disk) != 0) return false;
  bool done = false;
  if (pthread_mutex_trylock(&w->lock) == 0) { /* else this very thread may hold it, and flush would wait for ever */
    (void)pthread_mutex_unlock(&w->lock);
    if (!w->closed) flush(w, true);
    done = true;
  }
  (void)pthread_mutex_unlock(&w->disk);
  return done;
}

/* ---- the life of a writer ---- */

static size_t power_of_two(size_t least) {
  size_t size = 16;
  while (size < least) size *= 2;
  return size;
}

static bool allocate(prof_writer *w) {
  const size_t slots = power_of_two((size_t)w->string_limit * 2);
  w->slot_mask = (uint32_t)(slots - 1);
  w->records = calloc((size_t)w->buffers * PROF_BLOCK_RECORDS, sizeof *w->records);
  w->queue = calloc(w->buffers, sizeof *w->queue);
  w->fill = calloc(w->buffers, sizeof *w->fill);
  w->idle = calloc(w->buffers, sizeof *w->idle);
  w->text = calloc(w->text_limit, 1);
  w->strings = calloc((size_t)w->string_limit + 1, sizeof *w->strings);
  w->string_file = calloc((size_t)w->string_limit + 1, sizeof *w->string_file);
  w->slots = calloc(slots, sizeof *w->slots);
  return w->records && w->queue && w->fill && w->idle && w->text && w->strings && w->string_file && w->slots;
}

static void empty_buffers(prof_writer *w) {
  w->queue_first = w->queue_count = 0;
  w->idle_count = w->buffers;
  for (uint32_t b = 0; b < w->buffers; b++) w->idle[b] = w->buffers - 1 - b;
  w->current = w->buffers;
}

/* PATH/records-HOST-PID-START. and room for a number; false: too long. */
static bool name_process(prof_writer *w, size_t folder_length) {
  static const char digits[] = "0123456789abcdef";
  char *at = w->path + folder_length;
  if (folder_length + PROF_HOST_BYTES + 64 > sizeof w->path) return false;
  memcpy(at, "/records-", 9);
  at += 9;
  for (const char *c = w->header.host; *c; c++) *at++ = (char)(isalnum((unsigned char)*c) || *c == '.' ? *c : '_');
  *at++ = '-';
  char reversed[20];
  int count = 0;
  uint32_t pid = (uint32_t)w->header.pid;
  do reversed[count++] = digits[pid % 10];
  while ((pid /= 10) > 0);
  while (count > 0) *at++ = reversed[--count];
  *at++ = '-';
  for (int shift = 60; shift >= 0; shift -= 4) *at++ = digits[(uint64_t)w->header.realtime_ns >> shift & 15];
  *at++ = '.';
  w->path_length = (size_t)(at - w->path);
  return true;
}

static size_t folder_length(const prof_writer *w) {
  size_t length = w->path_length;
  while (length > 0 && w->path[length] != '/') length--;
  return length;
}

static dp_status check(const char *what, uint64_t value, uint64_t least, uint64_t most, dp_error *error) {
  if (value >= least && value <= most) return DP_OK;
  return dp_fail(error, DP_BAD_INPUT, "records: %s: found %llu, allowed: %llu to %llu", what, (unsigned long long)value,
                 (unsigned long long)least, (unsigned long long)most);
}

static dp_status set_up(prof_writer *w, const prof_writer_options *options, dp_error *error) {
  w->file_bytes = options->file_bytes ? options->file_bytes : 64u << 20;
  w->files = options->files ? (uint32_t)options->files : 8;
  w->buffers = options->buffers ? (uint32_t)options->buffers : 64;
  w->string_limit = options->strings ? options->strings : 32768;
  w->text_limit = options->string_bytes ? options->string_bytes : 8u << 20;
  DP_TRY(check("bytes of a file", w->file_bytes, 256 << 10, (uint64_t)1 << 40, error));
  DP_TRY(check("files", w->files, 2, PROF_MAX_FILES, error));
  DP_TRY(check("buffers", w->buffers, 2, 65536, error));
  DP_TRY(check("strings", w->string_limit, 16, 1 << 20, error));
  DP_TRY(check("bytes of strings", w->text_limit, 16 << 10, 1 << 30, error));
  char *folder = realpath(options->folder, NULL);
  if (!folder)
    return dp_fail(error, DP_BAD_INPUT, "%s: %s, allowed: a folder for records", options->folder, strerror(errno));
  const size_t length = strlen(folder);
  const bool fits = length + 1 < sizeof w->path;
  if (fits) memcpy(w->path, folder, length + 1);
  free(folder);
  if (!fits || !name_process(w, length))
    return dp_fail(error, DP_BAD_INPUT, "%.200s: the path is too long for records", options->folder);
  if (!allocate(w)) return dp_fail_memory(error);
  empty_buffers(w);
  (void)find_or_add(w, more_names, sizeof more_names - 1, hash_of(more_names, sizeof more_names - 1));
  if (!prof_writer_open_file(w))
    return dp_fail(error, DP_BAD_INPUT, "%s: cannot be written: %s", w->path, strerror(errno));
  return DP_OK;
}

dp_status prof_writer_open(const prof_writer_options *options, const prof_header *header, prof_writer **writer,
                           dp_error *error) {
  prof_writer *w = calloc(1, sizeof *w);
  if (!w) return dp_fail_memory(error);
  w->header = *header;
  w->header.host[PROF_HOST_BYTES - 1] = w->header.command[PROF_COMMAND_BYTES - 1] = 0;
  w->file = -1;
  (void)pthread_mutex_init(&w->lock, NULL);
  (void)pthread_mutex_init(&w->disk, NULL);
  const dp_status status = set_up(w, options, error);
  if (status == DP_OK)
    *writer = w;
  else
    prof_writer_free(w);
  return status;
}

void prof_writer_close(prof_writer *w) {
  if (!w) return;
  (void)pthread_mutex_lock(&w->disk);
  if (!w->closed) {
    flush(w, true);
    (void)pthread_mutex_lock(&w->lock);
    w->closed = true;
    (void)pthread_mutex_unlock(&w->lock);
    flush(w, true); /* what came in between */
    if (w->file >= 0) (void)prof_writer_write_end(w);
    prof_writer_close_file(w);
  }
  (void)pthread_mutex_unlock(&w->disk);
}

void prof_writer_free(prof_writer *w) {
  if (!w) return;
  prof_writer_close_file(w);
  (void)pthread_mutex_destroy(&w->lock);
  (void)pthread_mutex_destroy(&w->disk);
  free(w->records);
  free(w->queue);
  free(w->fill);
  free(w->idle);
  free(w->text);
  free(w->strings);
  free(w->string_file);
  free(w->slots);
  free(w);
}

/* ---- fork ---- */

void prof_writer_before_fork(prof_writer *w) {
  if (!w) return;
  (void)pthread_mutex_lock(&w->disk);
  (void)pthread_mutex_lock(&w->lock);
}

void prof_writer_parent(prof_writer *w) {
  if (!w) return;
  (void)pthread_mutex_unlock(&w->lock);
  (void)pthread_mutex_unlock(&w->disk);
}

void prof_writer_child(prof_writer *w, const prof_header *header) {
  if (!w) return;
  (void)pthread_mutex_init(&w->lock, NULL); /* the thread that locked them is not in this process */
  (void)pthread_mutex_init(&w->disk, NULL);
  prof_writer_close_file(w); /* the parent's stays open in the parent */
  if (w->closed) return;
  const size_t length = folder_length(w);
  w->header = *header;
  w->header.host[PROF_HOST_BYTES - 1] = w->header.command[PROF_COMMAND_BYTES - 1] = 0;
  (void)name_process(w, length); /* it fitted the parent */
  empty_buffers(w);
  memset(w->string_file, 0, ((size_t)w->string_limit + 1) * sizeof *w->string_file);
  memset(w->held, 0, sizeof w->held);
  w->number = 0; /* a file is opened with the first block: most children record nothing */
  w->counts = (prof_counts){0};
  w->count_version = 0;
  w->clock_version = 0;
}
