/* The files of a writer: blocks, rotation, and what a signal handler may call (no stdio, no memory). */
#define _GNU_SOURCE /* O_CLOEXEC */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "profiler/writer_parts.h"

/* Sets the path to that of a file. No snprintf: a signal handler may be here. */
static void name_file(prof_writer *w, uint32_t number) {
  char digits[10];
  int count = 0;
  do digits[count++] = (char)('0' + number % 10);
  while ((number /= 10) > 0 || count < 4);
  char *at = w->path + w->path_length;
  while (count > 0) *at++ = digits[--count];
  memcpy(at, ".dpr", sizeof ".dpr");
}

static bool put_all(int file, const unsigned char *bytes, size_t count) {
  while (count > 0) {
    const ssize_t written = write(file, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes += written;
    count -= (size_t)written;
  }
  return true;
}

/* Where files may not grow that far (ulimit -f) the signal that says so would end the program that is recorded. */
static bool write_all(int file, const unsigned char *bytes, size_t count) {
  const struct timespec none = {0, 0};
  sigset_t limit, before;
  (void)sigemptyset(&limit);
  (void)sigaddset(&limit, SIGXFSZ);
  (void)pthread_sigmask(SIG_BLOCK, &limit, &before);
  const bool done = put_all(file, bytes, count);
  const int reason = errno;
  if (!done && reason == EFBIG) (void)sigtimedwait(&limit, NULL, &none);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = reason;
  return done;
}

void prof_writer_close_file(prof_writer *w) {
  struct stat is;
  /* a descriptor that became somebody else's is not ours to close */
  if (w->file >= 0 && fstat(w->file, &is) == 0 && is.st_dev == w->file_device && is.st_ino == w->file_inode)
    (void)close(w->file);
  w->file = -1;
}

bool prof_writer_open_file(prof_writer *w) {
  struct stat is;
  if (w->number >= w->files) {
    name_file(w, w->number - w->files);
    const uint64_t held = w->held[w->number % w->files];
    if (unlink(w->path) == 0 && held > 0) {
      (void)pthread_mutex_lock(&w->lock);
      w->counts.rotated += held;
      w->count_version++;
      (void)pthread_mutex_unlock(&w->lock);
    }
  }
  name_file(w, w->number);
  w->file = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (w->file < 0) return false;
  unsigned char bytes[PROF_HEADER_BYTES];
  w->header.file = w->number;
  prof_header_encode(&w->header, bytes);
  if (fstat(w->file, &is) != 0 || !write_all(w->file, bytes, sizeof bytes)) {
    (void)close(w->file);
    (void)unlink(w->path);
    w->file = -1;
    return false;
  }
  w->file_device = is.st_dev;
  w->file_inode = is.st_ino;
  w->used_bytes = sizeof bytes;
  w->held[w->number % w->files] = 0;
  w->number++;
  w->said_devices = w->said_clock = 0;
  w->said_counts = UINT64_MAX;
  return true;
}

/* Appends a block from the payload, or leaves the file as it was. */
static bool write_block(prof_writer *w, prof_block kind, uint32_t bytes, uint32_t entries) {
  unsigned char head[PROF_BLOCK_HEAD_BYTES];
  prof_block_head(kind, w->payload, bytes, entries, head);
  if (write_all(w->file, head, sizeof head) && write_all(w->file, w->payload, bytes)) {
    w->used_bytes += sizeof head + bytes;
    return true;
  }
  if (ftruncate(w->file, (off_t)w->used_bytes) != 0 || lseek(w->file, (off_t)w->used_bytes, SEEK_SET) < 0)
    prof_writer_close_file(w); /* its end is a cut block, and nothing may follow it */
  return false;
}

/* Adds a string to the payload; writes the payload first when there is no room. `used`: bytes of it, `entries`: in it.
 */
static bool put_string(prof_writer *w, uint32_t number, uint32_t *used, uint32_t *entries) {
  const string_row *row = &w->strings[number];
  const uint32_t padded = (row->length + 3) / 4 * 4;
  if (*used + 8 + padded > PROF_PAYLOAD_BYTES) {
    if (!write_block(w, PROF_STRINGS_BLOCK, *used, *entries)) return false;
    *used = *entries = 0;
  }
  unsigned char *at = w->payload + *used;
  prof_put_u32(at, number);
  prof_put_u32(at + 4, row->length);
  memset(at + 8, 0, padded);
  memcpy(at + 8, w->text + row->offset, row->length);
  w->string_file[number] = w->number;
  *used += 8 + padded;
  ++*entries;
  return true;
}

/* After a failure strings that did not reach the file are to be written again. */
static bool finish_strings(prof_writer *w, bool done, uint32_t used, uint32_t entries) {
  if (done && (entries == 0 || write_block(w, PROF_STRINGS_BLOCK, used, entries))) return true;
  memset(w->string_file, 0, (w->string_limit + 1) * sizeof *w->string_file);
  return false;
}

static bool write_strings(prof_writer *w, const prof_record *records, uint32_t count) {
  uint32_t used = 0, entries = 0;
  bool done = true;
  for (uint32_t i = 0; done && i < count; i++) {
    const uint32_t name = records[i].name;
    if (name > 0 && name <= w->string_limit && w->string_file[name] != w->number)
      done = put_string(w, name, &used, &entries);
  }
  return finish_strings(w, done, used, entries);
}

static bool write_devices(prof_writer *w) {
  device_row rows[PROF_MAX_DEVICES];
  (void)pthread_mutex_lock(&w->lock);
  memcpy(rows, w->devices, sizeof rows);
  const uint32_t version = w->device_version;
  (void)pthread_mutex_unlock(&w->lock);
  if (version == w->said_devices) return true;
  uint32_t used = 0, entries = 0;
  bool done = true;
  for (int d = 0; done && d < PROF_MAX_DEVICES; d++)
    if (rows[d].noted && rows[d].name && w->string_file[rows[d].name] != w->number)
      done = put_string(w, rows[d].name, &used, &entries);
  if (!finish_strings(w, done, used, entries)) return false;
  used = entries = 0;
  for (uint32_t d = 0; d < PROF_MAX_DEVICES; d++) {
    if (!rows[d].noted) continue;
    unsigned char *at = w->payload + used;
    prof_put_u32(at, d);
    prof_put_u32(at + 4, rows[d].name);
    prof_put_u32(at + 8, rows[d].multiprocessors);
    prof_put_u32(at + 12, 0);
    prof_put_u64(at + 16, rows[d].memory_bytes);
    used += PROF_DEVICE_BYTES;
    entries++;
  }
  if (!write_block(w, PROF_DEVICES_BLOCK, used, entries)) return false;
  w->said_devices = version;
  return true;
}

static bool write_clock(prof_writer *w) {
  (void)pthread_mutex_lock(&w->lock);
  const uint32_t version = w->clock_version;
  prof_put_u64(w->payload, (uint64_t)w->realtime_ns);
  prof_put_u64(w->payload + 8, (uint64_t)w->clock_ns);
  (void)pthread_mutex_unlock(&w->lock);
  if (version == w->said_clock) return true;
  if (!write_block(w, PROF_CLOCKS_BLOCK, PROF_CLOCK_BYTES, 1)) return false;
  w->said_clock = version;
  return true;
}

bool prof_writer_write_counts(prof_writer *w) {
  (void)pthread_mutex_lock(&w->lock);
  const uint64_t version = w->count_version;
  const prof_counts counts = w->counts;
  (void)pthread_mutex_unlock(&w->lock);
  if (version == w->said_counts || (version == 0 && w->said_counts == UINT64_MAX)) return true;
  prof_put_u64(w->payload, counts.no_buffer);
  prof_put_u64(w->payload + 8, counts.rotated);
  prof_put_u64(w->payload + 16, counts.not_written);
  prof_put_u64(w->payload + 24, counts.unnamed);
  prof_put_u64(w->payload + 32, counts.source);
  if (!write_block(w, PROF_COUNTS_BLOCK, PROF_COUNTS_BYTES, 1)) return false;
  w->said_counts = version;
  return true;
}

/* A file that is open, ours, and has room for a block of records. */
bool prof_writer_ready(prof_writer *w, uint32_t bytes) {
  struct stat is;
  if (w->file >= 0 && (fstat(w->file, &is) != 0 || is.st_dev != w->file_device || is.st_ino != w->file_inode))
    w->file = -1;
  if (w->file >= 0 && w->used_bytes > PROF_HEADER_BYTES &&
      w->used_bytes + PROF_BLOCK_HEAD_BYTES + bytes > w->file_bytes) {
    (void)prof_writer_write_counts(w);
    prof_writer_close_file(w);
  }
  return w->file >= 0 || prof_writer_open_file(w);
}

bool prof_writer_write_records(prof_writer *w, const prof_record *records, uint32_t count) {
  const uint32_t bytes = count * PROF_RECORD_BYTES;
  if (!prof_writer_ready(w, bytes) || !write_devices(w) || !write_clock(w) || !write_strings(w, records, count))
    return false;
  for (uint32_t i = 0; i < count; i++) prof_record_encode(&records[i], w->payload + (size_t)i * PROF_RECORD_BYTES);
  if (!write_block(w, PROF_RECORDS_BLOCK, bytes, count)) return false;
  w->held[(w->number - 1) % w->files] += count;
  return true;
}

bool prof_writer_write_end(prof_writer *w) { return write_block(w, PROF_END_BLOCK, 0, 0); }
