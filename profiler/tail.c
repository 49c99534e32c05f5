#define _GNU_SOURCE /* scandir */
#include "profiler/tail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "profiler/writer.h"

enum { NEWEST_FILES = 2 };

typedef struct bytes {
  unsigned char *items;
  size_t count, capacity;
} bytes;

typedef struct file {
  char *path;
  int process;         /* -1: its header was not read yet */
  uint32_t number;     /* of the process' files */
  uint64_t at;         /* behind the last whole block */
  bool done;           /* newer files hold what is to be kept */
  bytes fixed, blocks; /* header and all blocks but those of records; the last of those */
} file;

typedef struct process {
  prof_header header;
  uint32_t newest, first; /* of its files; older ones than the first have no end that follows on another */
  int64_t memory[PROF_MAX_DEVICES];
} process;

struct prof_tail {
  char *folder;
  size_t keep_bytes;
  DP_ARRAY(file) files;
  DP_ARRAY(process) processes;
  unsigned char block[PROF_BLOCK_HEAD_BYTES + PROF_PAYLOAD_BYTES];
};

static bool append(bytes *to, const unsigned char *from, size_t count) {
  if (to->capacity - to->count < count) {
    const size_t capacity = (to->count + count) * 2;
    unsigned char *items = realloc(to->items, capacity);
    if (!items) return false;
    to->items = items;
    to->capacity = capacity;
  }
  memcpy(to->items + to->count, from, count);
  to->count += count;
  return true;
}

static void forget(file *f) {
  free(f->fixed.items);
  free(f->blocks.items);
  f->fixed = f->blocks = (bytes){.items = NULL};
}

dp_status prof_tail_open(const char *folder, size_t keep_bytes, prof_tail **tail, dp_error *error) {
  prof_tail *t = calloc(1, sizeof *t);
  if (t) t->folder = strdup(folder);
  if (!t || !t->folder) {
    free(t);
    return dp_fail_memory(error);
  }
  t->keep_bytes = keep_bytes;
  *tail = t;
  return DP_OK;
}

void prof_tail_free(prof_tail *t) {
  if (!t) return;
  for (size_t i = 0; i < t->files.count; i++) {
    forget(&t->files.items[i]);
    free(t->files.items[i].path);
  }
  dp_array_free(&t->files);
  dp_array_free(&t->processes);
  free(t->folder);
  free(t);
}

/* ---- one file ---- */

/* Whether so many bytes lie there. */
static bool read_at(int from, uint64_t at, unsigned char *to, size_t count) {
  while (count > 0) {
    const ssize_t got = pread(from, to, count, (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    at += (uint64_t)got;
    count -= (size_t)got;
  }
  return true;
}

static int find_process(const prof_tail *t, const prof_header *header) {
  for (size_t p = 0; p < t->processes.count; p++) {
    const prof_header *known = &t->processes.items[p].header;
    if (known->pid == header->pid && known->realtime_ns == header->realtime_ns &&
        strcmp(known->host, header->host) == 0)
      return (int)p;
  }
  return -1;
}

/* Reads the header through a session, which checks it. */
static dp_status read_header(prof_tail *t, file *f, int from, dp_error *error) {
  unsigned char header[PROF_HEADER_BYTES];
  prof_session session = {.slots = NULL};
  if (!read_at(from, 0, header, sizeof header)) return DP_OK;
  dp_status status = prof_session_add(&session, header, sizeof header, f->path, error);
  if (status == DP_OK) {
    const prof_header *found = &session.processes.items[0].header;
    int p = find_process(t, found);
    if (p < 0 && dp_array_push(&t->processes, ((process){.header = *found}))) p = (int)t->processes.count - 1;
    if (p < 0 || !append(&f->fixed, header, sizeof header)) status = dp_fail_memory(error);
    f->process = p;
    f->number = found->file;
    f->at = PROF_HEADER_BYTES;
  }
  prof_session_free(&session);
  if (status == DP_OK && f->number > t->processes.items[f->process].newest)
    t->processes.items[f->process].newest = f->number;
  return status;
}

static void sum_memory(process *p, const unsigned char *payload, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    prof_record r;
    prof_record_decode(payload + (size_t)i * PROF_RECORD_BYTES, &r);
    if ((r.kind != PROF_ALLOCATE && r.kind != PROF_FREE) || r.device >= PROF_MAX_DEVICES) continue;
    const int64_t bytes_now = r.value > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)r.value;
    int64_t *memory = &p->memory[r.device];
    *memory += r.kind == PROF_ALLOCATE ? bytes_now : -bytes_now;
    if (*memory < 0 || *memory > INT64_MAX / 2) *memory = 0; /* of what was there before recording began */
  }
}

/* Drops whole blocks from the front, but seldom, since what stays is moved; whether it did. */
static bool trim(bytes *blocks, size_t keep_bytes) {
  size_t from = 0;
  if (blocks->count <= keep_bytes + keep_bytes / 2) return false;
  while (blocks->count - from > keep_bytes)
    from += PROF_BLOCK_HEAD_BYTES + prof_get_u32(blocks->items + from + 8); /* its head was checked */
  memmove(blocks->items, blocks->items + from, blocks->count - from);
  blocks->count -= from;
  return true;
}

/* The next whole block, whose head is right; what is wrong with it otherwise is told when the session reads it. */
static bool next_block(prof_tail *t, const file *f, int from, uint32_t *payload_bytes) {
  if (!read_at(from, f->at, t->block, PROF_BLOCK_HEAD_BYTES)) return false;
  *payload_bytes = prof_get_u32(t->block + 8);
  return prof_get_u32(t->block) == PROF_BLOCK_MAGIC && *payload_bytes <= PROF_PAYLOAD_BYTES &&
         prof_get_u32(t->block + 20) == prof_checksum(t->block, PROF_BLOCK_HEAD_BYTES - 4) &&
         read_at(from, f->at + PROF_BLOCK_HEAD_BYTES, t->block + PROF_BLOCK_HEAD_BYTES, *payload_bytes);
}

static dp_status read_file(prof_tail *t, file *f, int from, dp_error *error) {
  uint32_t payload = 0;
  if (f->process < 0) DP_TRY(read_header(t, f, from, error));
  while (f->process >= 0 && next_block(t, f, from, &payload)) {
    const bool records = prof_get_u32(t->block + 4) == PROF_RECORDS_BLOCK;
    if (!append(records ? &f->blocks : &f->fixed, t->block, PROF_BLOCK_HEAD_BYTES + payload))
      return dp_fail_memory(error);
    if (records)
      sum_memory(&t->processes.items[f->process], t->block + PROF_BLOCK_HEAD_BYTES, payload / PROF_RECORD_BYTES);
    process *of = &t->processes.items[f->process];
    if (trim(&f->blocks, t->keep_bytes) && f->number > of->first) of->first = f->number;
    f->at += PROF_BLOCK_HEAD_BYTES + payload;
  }
  return DP_OK;
}

/* ---- all of them ---- */

static int is_records(const struct dirent *entry) {
  const size_t length = strlen(entry->d_name);
  return length > 4 && strcmp(entry->d_name + length - 4, ".dpr") == 0;
}

static file *find_file(prof_tail *t, const char *name) {
  dp_str path = {0};
  dp_str_addf(&path, "%s/%s", t->folder, name);
  for (size_t i = 0; !path.failed && i < t->files.count; i++) {
    if (strcmp(t->files.items[i].path, path.text) != 0) continue;
    dp_str_free(&path);
    return &t->files.items[i];
  }
  if (!path.failed && dp_array_push(&t->files, ((file){.path = path.text, .process = -1})))
    return &t->files.items[t->files.count - 1];
  dp_str_free(&path);
  return NULL;
}

static dp_status read_named(prof_tail *t, const char *name, dp_error *error) {
  file *f = find_file(t, name);
  if (!f) return dp_fail_memory(error);
  if (f->done) return DP_OK;
  const int from = open(f->path, O_RDONLY | O_CLOEXEC);
  if (from < 0 && errno == ENOENT) return DP_OK; /* it was rotated away just now */
  if (from < 0) return dp_fail(error, DP_BAD_INPUT, "%s: cannot be read: %s", f->path, strerror(errno));
  const dp_status status = read_file(t, f, from, error);
  (void)close(from);
  return status;
}

static dp_status scan(prof_tail *t, dp_error *error) {
  struct dirent **entries = NULL;
  const int count = scandir(t->folder, &entries, is_records, alphasort);
  if (count < 0)
    return dp_fail(error, DP_BAD_INPUT, "%s: %s, allowed: a folder of records", t->folder, strerror(errno));
  dp_status status = DP_OK;
  for (int i = 0; i < count; i++) {
    if (status == DP_OK) status = read_named(t, entries[i]->d_name, error);
    free(entries[i]);
  }
  free(entries);
  return status;
}

/* What was kept lies elsewhere than in the file: where that is wrong tells who reads all of it. */
static dp_status find_fault(const char *path, dp_error *error) {
  prof_session session = {.slots = NULL};
  char *all = NULL;
  size_t length = 0;
  dp_status status = dp_file_read(path, (size_t)1 << 41, &all, &length, error);
  if (status == DP_OK) status = prof_session_add(&session, all, length, path, error);
  prof_session_free(&session);
  free(all);
  return status == DP_OK ? DP_BAD_INPUT : status;
}

static dp_status add_file(const file *f, prof_session *session, dp_error *error) {
  bytes all = {.items = NULL};
  const bool done = append(&all, f->fixed.items, f->fixed.count) &&
                    (f->blocks.count == 0 || append(&all, f->blocks.items, f->blocks.count));
  const dp_status status =
      done ? prof_session_add(session, all.items, all.count, f->path, error) : dp_fail_memory(error);
  free(all.items);
  return status == DP_BAD_INPUT ? find_fault(f->path, error) : status;
}

dp_status prof_tail_read(prof_tail *t, prof_session *session, dp_error *error) {
  prof_session made = {.slots = NULL};
  dp_status status = scan(t, error);
  for (size_t i = 0; status == DP_OK && i < t->files.count; i++) {
    file *f = &t->files.items[i];
    if (f->process < 0 || f->done) continue;
    const process *of = &t->processes.items[f->process];
    f->done = f->number + NEWEST_FILES <= of->newest;
    if (f->done)
      forget(f);
    else if (f->number >= of->first)
      status = add_file(f, &made, error);
  }
  if (status == DP_OK) status = prof_session_finish(&made, error);
  if (status == DP_OK)
    *session = made;
  else
    prof_session_free(&made);
  return status;
}

int64_t prof_tail_memory(const prof_tail *t, const prof_header *header, uint16_t device) {
  const int p = find_process(t, header);
  return p >= 0 && device < PROF_MAX_DEVICES ? t->processes.items[p].memory[device] : 0;
}
