#define _GNU_SOURCE
#include "profiler/session.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"

typedef struct pair {
  int64_t realtime_ns, clock_ns;
} pair;

typedef struct reader {
  prof_session *session;
  const unsigned char *bytes;
  size_t length, at; /* at: of the block that is read */
  const char *name;
  uint16_t process;
  DP_ARRAY(uint32_t) names; /* numbers of the file to those of the session; 0: not said */
  DP_ARRAY(pair) pairs;
  int64_t set_ns; /* by so much CLOCK_REALTIME was set since the first of them */
  size_t first_record;
  dp_error *error;
} reader;

static dp_status wrong(const reader *r, const char *what, unsigned long long found, const char *allowed) {
  return dp_fail(r->error, DP_BAD_INPUT, "%s: offset %zu: %s: found %llu, allowed: %s", r->name, r->at, what, found,
                 allowed);
}

/* ---- names ---- */

static size_t slot_of(const prof_session *session, const char *text) {
  uint64_t hash = 14695981039346656037u;
  for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
  size_t slot = (size_t)(hash % session->slot_count);
  while (session->slots[slot] && strcmp(session->names.items[session->slots[slot]], text) != 0)
    slot = (slot + 1) % session->slot_count;
  return slot;
}

static bool grow_slots(prof_session *session) {
  if (session->slots && session->names.count * 2 < session->slot_count) return true;
  const size_t count = session->slot_count ? session->slot_count * 4 : 1024;
  uint32_t *slots = calloc(count, sizeof *slots);
  if (!slots) return false;
  free(session->slots);
  session->slots = slots;
  session->slot_count = count;
  for (size_t n = 1; n < session->names.count; n++) slots[slot_of(session, session->names.items[n])] = (uint32_t)n;
  return true;
}

/* Takes over `text`, of the session's arena; 0: no memory. */
static uint32_t intern(prof_session *session, const char *text) {
  if (!grow_slots(session)) return 0;
  const size_t slot = slot_of(session, text);
  if (session->slots[slot] == 0) {
    if (!dp_array_push(&session->names, text)) return 0;
    session->slots[slot] = (uint32_t)(session->names.count - 1);
  }
  return session->slots[slot];
}

static dp_status read_strings(reader *r, const unsigned char *payload, uint32_t bytes, uint32_t entries) {
  uint32_t used = 0;
  for (uint32_t e = 0; e < entries; e++) {
    if (bytes - used < 8) return wrong(r, "strings: entry", e, "entries within the block");
    const uint32_t number = prof_get_u32(payload + used), length = prof_get_u32(payload + used + 4);
    if (length == 0 || length > PROF_STRING_BYTES) return wrong(r, "strings: bytes of one", length, "1 to 4000");
    const uint32_t padded = (length + 3) / 4 * 4;
    if (bytes - used - 8 < padded) return wrong(r, "strings: bytes of one", length, "what is left of the block");
    if (number == 0 || number > 1u << 20) return wrong(r, "strings: number", number, "1 to 1048576");
    char *text = dp_arena_alloc(&r->session->arena, length + 1, 1);
    if (!text) return dp_fail_memory(r->error);
    memcpy(text, payload + used + 8, length);
    for (uint32_t i = 0; i < length; i++)
      if (!text[i]) text[i] = '?';
    text[length] = 0;
    dp_text_clean(text); /* long names are cut at a byte */
    const uint32_t mine = intern(r->session, text);
    if (mine == 0) return dp_fail_memory(r->error);
    while (r->names.count <= number)
      if (!dp_array_push(&r->names, 0)) return dp_fail_memory(r->error);
    r->names.items[number] = mine;
    used += 8 + padded;
  }
  return used == bytes ? DP_OK : wrong(r, "strings: bytes used", used, "all of the block");
}

static dp_status find_name(const reader *r, uint32_t number, uint32_t *mine) {
  if (number != 0 && (number >= r->names.count || r->names.items[number] == 0))
    return wrong(r, "name", number, "a string that the file has said before");
  *mine = number ? r->names.items[number] : 0;
  return DP_OK;
}

/* ---- blocks ---- */

static dp_status check_entries(const reader *r, uint32_t bytes, uint32_t entries, uint32_t each) {
  return entries > 0 && (uint64_t)entries * each == bytes
             ? DP_OK
             : wrong(r, "entries", entries, "as many as the block's bytes hold");
}

static dp_status read_devices(reader *r, const unsigned char *payload, uint32_t bytes, uint32_t entries) {
  DP_TRY(check_entries(r, bytes, entries, PROF_DEVICE_BYTES));
  for (uint32_t e = 0; e < entries; e++, payload += PROF_DEVICE_BYTES) {
    const uint32_t index = prof_get_u32(payload);
    uint32_t name = 0;
    if (index >= PROF_NO_DEVICE) return wrong(r, "device", index, "0 to 65534");
    DP_TRY(find_name(r, prof_get_u32(payload + 4), &name));
    const prof_device device = {.process = r->process,
                                .device = (uint16_t)index,
                                .name = r->session->names.items[name],
                                .multiprocessors = prof_get_u32(payload + 8),
                                .memory_bytes = prof_get_u64(payload + 16)};
    prof_device *known = (prof_device *)prof_session_device(r->session, r->process, device.device);
    if (known)
      *known = device;
    else if (!dp_array_push(&r->session->devices, device))
      return dp_fail_memory(r->error);
  }
  return DP_OK;
}

/* Times within 2^62 ns of the epoch, so that sums and differences fit. */
static bool is_time(int64_t ns) { return ns >= 0 && ns <= INT64_MAX / 4; }

static dp_status read_records(reader *r, const unsigned char *payload, uint32_t bytes, uint32_t entries) {
  DP_TRY(check_entries(r, bytes, entries, PROF_RECORD_BYTES));
  if (!dp_array_reserve(&r->session->records, entries)) return dp_fail_memory(r->error);
  for (uint32_t e = 0; e < entries; e++) {
    prof_record record;
    prof_record_decode(payload + (size_t)e * PROF_RECORD_BYTES, &record);
    if (record.kind == 0 || record.kind >= PROF_KIND_END) return wrong(r, "kind of a record", record.kind, "1 to 15");
    if (record.start_ns == 0 || record.end_ns < record.start_ns) { /* CUPTI writes 0 where a time was lost */
      r->session->processes.items[r->process].counts.source++;
      continue;
    }
    if (!is_time(record.end_ns)) /* which is not before the start */
      return wrong(r, "time of a record", (unsigned long long)record.end_ns, "below 2^61 ns");
    if (!is_time(record.start_ns)) return wrong(r, "time of a record", (unsigned long long)record.start_ns, "from 0");
    DP_TRY(find_name(r, record.name, &record.name));
    record.process = r->process;
    r->session->records.items[r->session->records.count++] = record;
  }
  return DP_OK;
}

/* Clocks drift apart by less than 100 parts in a million. What is more was set by somebody, and is taken away again:
 * nothing happened faster or slower by it. */
static void follow_setting(reader *r, pair *found) {
  const pair *last = &r->pairs.items[r->pairs.count - 1];
  const int64_t change = found->realtime_ns - r->set_ns - found->clock_ns - (last->realtime_ns - last->clock_ns);
  const int64_t drift = 1000000 + (found->clock_ns - last->clock_ns) / 10000;
  if (change > drift || change < -drift) r->set_ns += change;
  found->realtime_ns -= r->set_ns;
}

static dp_status read_clocks(reader *r, const unsigned char *payload, uint32_t bytes, uint32_t entries) {
  DP_TRY(check_entries(r, bytes, entries, PROF_CLOCK_BYTES));
  for (uint32_t e = 0; e < entries; e++, payload += PROF_CLOCK_BYTES) {
    pair found = {(int64_t)prof_get_u64(payload), (int64_t)prof_get_u64(payload + 8)};
    const pair *last = &r->pairs.items[r->pairs.count - 1];
    if (!is_time(found.realtime_ns)) return wrong(r, "clock", (unsigned long long)found.realtime_ns, "below 2^61 ns");
    if (!is_time(found.clock_ns) || found.clock_ns < last->clock_ns)
      return wrong(r, "clock", (unsigned long long)found.clock_ns, "not before the last one, below 2^61 ns");
    follow_setting(r, &found);
    if (found.clock_ns > last->clock_ns && !dp_array_push(&r->pairs, found)) return dp_fail_memory(r->error);
  }
  return DP_OK;
}

static dp_status read_counts(reader *r, const unsigned char *payload, uint32_t bytes, uint32_t entries) {
  DP_TRY(check_entries(r, bytes, entries, PROF_COUNTS_BYTES));
  prof_counts *counts = &r->session->processes.items[r->process].counts;
  uint64_t *const to[] = {&counts->no_buffer, &counts->rotated, &counts->not_written, &counts->unnamed,
                          &counts->source};
  for (int i = 0; i < 5; i++) {
    const uint64_t said = prof_get_u64(payload + bytes - PROF_COUNTS_BYTES + 8 * i);
    if (said > *to[i]) *to[i] = said;
  }
  return DP_OK;
}

static dp_status read_end(reader *r, uint32_t bytes, uint32_t entries) {
  if (bytes || entries) return wrong(r, "bytes of the end", bytes, "0");
  r->session->processes.items[r->process].ended = true;
  return DP_OK;
}

static dp_status read_block(reader *r, uint32_t kind, const unsigned char *payload, uint32_t bytes, uint32_t entries) {
  switch (kind) {
    case PROF_STRINGS_BLOCK:
      return read_strings(r, payload, bytes, entries);
    case PROF_DEVICES_BLOCK:
      return read_devices(r, payload, bytes, entries);
    case PROF_RECORDS_BLOCK:
      return read_records(r, payload, bytes, entries);
    case PROF_CLOCKS_BLOCK:
      return read_clocks(r, payload, bytes, entries);
    case PROF_COUNTS_BLOCK:
      return read_counts(r, payload, bytes, entries);
    case PROF_END_BLOCK:
      return read_end(r, bytes, entries);
    default:
      return wrong(r, "kind of a block", kind, "1 to 6");
  }
}

static dp_status read_blocks(reader *r) {
  while (r->at < r->length) {
    const size_t left = r->length - r->at;
    const unsigned char *head = r->bytes + r->at;
    if (left < PROF_BLOCK_HEAD_BYTES) break;
    if (prof_get_u32(head) != PROF_BLOCK_MAGIC)
      return wrong(r, "block", prof_get_u32(head), "the magic number of a block");
    if (prof_get_u32(head + 20) != prof_checksum(head, PROF_BLOCK_HEAD_BYTES - 4))
      return wrong(r, "checksum of a block's head", prof_get_u32(head + 20), "that of its bytes");
    const uint32_t bytes = prof_get_u32(head + 8);
    if (bytes > PROF_PAYLOAD_BYTES || bytes % 4) return wrong(r, "bytes of a block", bytes, "0 to 65536, by 4");
    if (left - PROF_BLOCK_HEAD_BYTES < bytes) break;
    const unsigned char *payload = head + PROF_BLOCK_HEAD_BYTES;
    if (prof_get_u32(head + 16) != prof_checksum(payload, bytes))
      return wrong(r, "checksum of a block", prof_get_u32(head + 16), "that of its bytes");
    DP_TRY(read_block(r, prof_get_u32(head + 4), payload, bytes, prof_get_u32(head + 12)));
    r->at += PROF_BLOCK_HEAD_BYTES + bytes;
  }
  if (r->at < r->length) r->session->processes.items[r->process].cut = true;
  return DP_OK;
}

/* ---- the file ---- */

static dp_status read_header(reader *r, prof_header *header) {
  const unsigned char *b = r->bytes;
  if (r->length >= 16 && memcmp(b, PROF_MAGIC, 16) != 0)
    return dp_fail(r->error, DP_BAD_INPUT, "%s: offset 0: no file of records, allowed: the format " PROF_MAGIC,
                   r->name);
  if (r->length < PROF_HEADER_BYTES) return wrong(r, "bytes of the file", r->length, "256 or more");
  if (prof_get_u32(b + 16) != PROF_VERSION) return wrong(r, "version", prof_get_u32(b + 16), "1");
  if (prof_get_u32(b + 20) != PROF_HEADER_BYTES) return wrong(r, "bytes of the header", prof_get_u32(b + 20), "256");
  if (prof_get_u32(b + PROF_HEADER_BYTES - 4) != prof_checksum(b, PROF_HEADER_BYTES - 4))
    return wrong(r, "checksum of the header", prof_get_u32(b + PROF_HEADER_BYTES - 4), "that of its bytes");
  *header = (prof_header){.pid = (int32_t)prof_get_u32(b + 24),
                          .parent = (int32_t)prof_get_u32(b + 28),
                          .rank = (int32_t)prof_get_u32(b + 32),
                          .file = prof_get_u32(b + 36),
                          .realtime_ns = (int64_t)prof_get_u64(b + 40),
                          .clock_ns = (int64_t)prof_get_u64(b + 48)};
  if (!is_time(header->realtime_ns) || !is_time(header->clock_ns))
    return wrong(r, "clock", (unsigned long long)header->realtime_ns, "0 to 2^61 ns");
  memcpy(header->host, b + 56, PROF_HOST_BYTES - 1);
  memcpy(header->command, b + 56 + PROF_HOST_BYTES, PROF_COMMAND_BYTES - 1);
  dp_text_clean(header->host);
  dp_text_clean(header->command);
  return DP_OK;
}

static bool same_process(const prof_header *a, const prof_header *b) {
  return a->pid == b->pid && a->realtime_ns == b->realtime_ns && strcmp(a->host, b->host) == 0;
}

static dp_status find_process(reader *r, const prof_header *header) {
  prof_session *session = r->session;
  size_t p = 0;
  while (p < session->processes.count && !same_process(&session->processes.items[p].header, header)) p++;
  if (p == UINT16_MAX) return wrong(r, "processes", p, "65535 at most");
  if (p == session->processes.count && !dp_array_push(&session->processes, ((prof_process){.header = *header})))
    return dp_fail_memory(r->error);
  const uint64_t file = (uint64_t)p << 32 | header->file;
  for (size_t i = 0; i < session->files.count; i++)
    if (session->files.items[i] == file)
      return dp_fail(r->error, DP_BAD_INPUT,
                     "%s: offset 0: found a copy of file %u of process %d on %s, allowed: each once", r->name,
                     header->file, (int)header->pid, header->host);
  if (!dp_array_push(&session->files, file)) return dp_fail_memory(r->error);
  session->processes.items[p].files++;
  r->process = (uint16_t)p;
  return DP_OK;
}

/* What is added to the process' clock at a moment. */
static int64_t offset_at(const reader *r, int64_t clock_ns) {
  const pair *pairs = r->pairs.items;
  size_t low = 0, high = r->pairs.count - 1; /* the last pair not after the moment, found by halves */
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    if (pairs[middle].clock_ns <= clock_ns)
      low = middle;
    else
      high = middle - 1;
  }
  const int64_t before = pairs[low].realtime_ns - pairs[low].clock_ns;
  if (low + 1 == r->pairs.count || clock_ns <= pairs[low].clock_ns) return before;
  const int64_t after = pairs[low + 1].realtime_ns - pairs[low + 1].clock_ns;
  const double share =
      (double)(clock_ns - pairs[low].clock_ns) / (double)(pairs[low + 1].clock_ns - pairs[low].clock_ns);
  return before + (int64_t)((double)(after - before) * share);
}

static void move_records(reader *r) {
  for (size_t i = r->first_record; i < r->session->records.count; i++) {
    prof_record *record = &r->session->records.items[i];
    const int64_t duration = record->end_ns - record->start_ns; /* as it was measured */
    record->start_ns += offset_at(r, record->start_ns);
    record->end_ns = record->start_ns + duration;
  }
  r->session->processes.items[r->process].records += r->session->records.count - r->first_record;
}

dp_status prof_session_add(prof_session *session, const void *bytes, size_t length, const char *name, dp_error *error) {
  reader r = {.session = session, .bytes = bytes, .length = length, .name = name, .error = error};
  prof_header header;
  r.first_record = session->records.count;
  if (session->names.count == 0 && !dp_array_push(&session->names, "")) return dp_fail_memory(error);
  dp_status status = read_header(&r, &header);
  if (status == DP_OK) status = find_process(&r, &header);
  if (status == DP_OK && !dp_array_push(&r.pairs, ((pair){header.realtime_ns, header.clock_ns})))
    status = dp_fail_memory(error);
  r.at = PROF_HEADER_BYTES;
  if (status == DP_OK) status = read_blocks(&r);
  if (status == DP_OK) move_records(&r);
  dp_array_free(&r.names);
  dp_array_free(&r.pairs);
  return status;
}

/* ---- all of them ---- */

typedef struct place {
  prof_process process;
  uint16_t was;
} place;

static int by_rank(const void *a, const void *b) {
  const place *x = a, *y = b;
  const prof_header *p = &x->process.header, *q = &y->process.header;
  if (p->rank != q->rank) return p->rank < q->rank ? -1 : 1;
  const int host = strcmp(p->host, q->host);
  if (host) return host;
  if (p->pid != q->pid) return p->pid < q->pid ? -1 : 1;
  return (p->realtime_ns > q->realtime_ns) - (p->realtime_ns < q->realtime_ns);
}

static bool comes_first(const prof_record *x, const prof_record *y) {
  return x->start_ns != y->start_ns ? x->start_ns < y->start_ns : x->process < y->process;
}

/* Merges neighbours of 1, 2, 4, ... records. Equal ones keep their order, which qsort does not promise: at one moment a
 * thread ends one range and begins the next. */
dp_status prof_session_sort(prof_session *session, dp_error *error) {
  const size_t count = session->records.count;
  prof_record *from = session->records.items, *to = malloc((count + 1) * sizeof *to), *const spare = to;
  if (!to) return dp_fail_memory(error);
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t begin = 0; begin < count; begin += 2 * width) {
      const size_t middle = count - begin < width ? count : begin + width;
      const size_t end = count - begin < 2 * width ? count : begin + 2 * width;
      size_t a = begin, b = middle;
      for (size_t at = begin; at < end; at++)
        to[at] = b == end || (a < middle && !comes_first(&from[b], &from[a])) ? from[a++] : from[b++];
    }
    prof_record *const swap = from;
    from = to;
    to = swap;
  }
  if (from != session->records.items) memcpy(session->records.items, from, count * sizeof *from);
  free(spare);
  return DP_OK;
}

static int by_device(const void *a, const void *b) {
  const prof_device *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  return (x->device > y->device) - (x->device < y->device);
}

dp_status prof_session_finish(prof_session *session, dp_error *error) {
  const size_t count = session->processes.count;
  place *places = calloc(count + 1, sizeof *places);
  uint16_t *now = calloc(count + 1, sizeof *now);
  if (!places || !now) {
    free(places);
    free(now);
    return dp_fail_memory(error);
  }
  for (size_t p = 0; p < count; p++) places[p] = (place){session->processes.items[p], (uint16_t)p};
  qsort(places, count, sizeof *places, by_rank);
  for (size_t p = 0; p < count; p++) {
    session->processes.items[p] = places[p].process;
    now[places[p].was] = (uint16_t)p;
  }
  for (size_t i = 0; i < session->records.count; i++)
    session->records.items[i].process = now[session->records.items[i].process];
  for (size_t d = 0; d < session->devices.count; d++)
    session->devices.items[d].process = now[session->devices.items[d].process];
  free(places);
  free(now);
  if (session->devices.count) qsort(session->devices.items, session->devices.count, sizeof(prof_device), by_device);
  return prof_session_sort(session, error);
}

static int is_records(const struct dirent *entry) {
  const size_t length = strlen(entry->d_name);
  return length > 4 && strcmp(entry->d_name + length - 4, ".dpr") == 0;
}

static dp_status add_file(prof_session *session, const char *folder, const char *name, dp_error *error) {
  dp_arena arena = {0};
  char *bytes = NULL;
  size_t length = 0;
  const char *path = dp_arena_printf(&arena, "%s/%s", folder, name);
  dp_status status = path ? dp_file_read(path, (size_t)1 << 41, &bytes, &length, error) : dp_fail_memory(error);
  const bool headless =
      length < PROF_HEADER_BYTES && memcmp(bytes ? bytes : "", PROF_MAGIC, length < 16 ? length : 16) == 0;
  if (status == DP_OK && !headless) status = prof_session_add(session, bytes, length, path, error);
  free(bytes);
  dp_arena_free(&arena);
  return status;
}

dp_status prof_session_read(const char *folder, prof_session *session, dp_error *error) {
  struct dirent **entries = NULL;
  const int count = scandir(folder, &entries, is_records, alphasort);
  if (count < 0) return dp_fail(error, DP_BAD_INPUT, "%s: %s, allowed: a folder of records", folder, strerror(errno));
  prof_session made = {.slots = NULL};
  dp_status status = DP_OK;
  for (int i = 0; i < count; i++) {
    if (status == DP_OK) status = add_file(&made, folder, entries[i]->d_name, error);
    free(entries[i]);
  }
  free(entries);
  if (status == DP_OK && made.processes.count == 0)
    status = dp_fail(error, DP_BAD_INPUT, "%s: found no file of records, allowed: a folder with files *.dpr", folder);
  if (status == DP_OK) status = prof_session_finish(&made, error);
  if (status == DP_OK)
    *session = made;
  else
    prof_session_free(&made);
  return status;
}

void prof_session_free(prof_session *session) {
  dp_arena_free(&session->arena);
  dp_array_free(&session->processes);
  dp_array_free(&session->devices);
  dp_array_free(&session->records);
  dp_array_free(&session->names);
  dp_array_free(&session->files);
  free(session->slots);
  *session = (prof_session){.slots = NULL};
}

const prof_device *prof_session_device(const prof_session *session, uint16_t process, uint16_t device) {
  for (size_t d = 0; d < session->devices.count; d++)
    if (session->devices.items[d].process == process && session->devices.items[d].device == device)
      return &session->devices.items[d];
  return NULL;
}
