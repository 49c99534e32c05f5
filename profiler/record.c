#define _GNU_SOURCE /* strnlen */
#include "profiler/record.h"

#include <string.h>

void prof_put_u32(unsigned char *to, uint32_t value) {
  for (int i = 0; i < 4; i++) to[i] = (unsigned char)(value >> 8 * i);
}
void prof_put_u64(unsigned char *to, uint64_t value) {
  prof_put_u32(to, (uint32_t)value);
  prof_put_u32(to + 4, (uint32_t)(value >> 32));
}
static void put_u16(unsigned char *to, uint16_t value) {
  to[0] = (unsigned char)value;
  to[1] = (unsigned char)(value >> 8);
}
uint32_t prof_get_u32(const unsigned char *from) {
  return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}
uint64_t prof_get_u64(const unsigned char *from) { return prof_get_u32(from) | (uint64_t)prof_get_u32(from + 4) << 32; }
static uint16_t get_u16(const unsigned char *from) { return (uint16_t)(from[0] | from[1] << 8); }

void prof_record_encode(const prof_record *record, unsigned char to[PROF_RECORD_BYTES]) {
  to[0] = record->kind;
  to[1] = record->detail;
  put_u16(to + 2, record->device);
  prof_put_u32(to + 4, record->name);
  prof_put_u64(to + 8, (uint64_t)record->start_ns);
  prof_put_u64(to + 16, (uint64_t)record->end_ns);
  prof_put_u32(to + 24, record->stream);
  prof_put_u32(to + 28, record->thread);
  prof_put_u32(to + 32, record->correlation);
  prof_put_u32(to + 36, record->graph);
  prof_put_u64(to + 40, record->value);
  for (int i = 0; i < 3; i++) prof_put_u32(to + 48 + 4 * i, record->grid[i]);
  put_u16(to + 60, record->block_threads);
  put_u16(to + 62, 0);
}

void prof_record_decode(const unsigned char from[PROF_RECORD_BYTES], prof_record *record) {
  *record = (prof_record){.kind = from[0],
                          .detail = from[1],
                          .device = get_u16(from + 2),
                          .name = prof_get_u32(from + 4),
                          .start_ns = (int64_t)prof_get_u64(from + 8),
                          .end_ns = (int64_t)prof_get_u64(from + 16),
                          .stream = prof_get_u32(from + 24),
                          .thread = prof_get_u32(from + 28),
                          .correlation = prof_get_u32(from + 32),
                          .graph = prof_get_u32(from + 36),
                          .value = prof_get_u64(from + 40),
                          .grid = {prof_get_u32(from + 48), prof_get_u32(from + 52), prof_get_u32(from + 56)},
                          .block_threads = get_u16(from + 60)};
}

void prof_header_encode(const prof_header *header, unsigned char to[PROF_HEADER_BYTES]) {
  memset(to, 0, PROF_HEADER_BYTES);
  memcpy(to, PROF_MAGIC, 16);
  prof_put_u32(to + 16, PROF_VERSION);
  prof_put_u32(to + 20, PROF_HEADER_BYTES);
  prof_put_u32(to + 24, (uint32_t)header->pid);
  prof_put_u32(to + 28, (uint32_t)header->parent);
  prof_put_u32(to + 32, (uint32_t)header->rank);
  prof_put_u32(to + 36, header->file);
  prof_put_u64(to + 40, (uint64_t)header->realtime_ns);
  prof_put_u64(to + 48, (uint64_t)header->clock_ns);
  memcpy(to + 56, header->host, strnlen(header->host, PROF_HOST_BYTES - 1));
  memcpy(to + 56 + PROF_HOST_BYTES, header->command, strnlen(header->command, PROF_COMMAND_BYTES - 1));
  prof_put_u32(to + PROF_HEADER_BYTES - 4, prof_checksum(to, PROF_HEADER_BYTES - 4));
}

void prof_block_head(prof_block kind, const unsigned char *payload, uint32_t bytes, uint32_t entries,
                     unsigned char to[PROF_BLOCK_HEAD_BYTES]) {
  prof_put_u32(to, PROF_BLOCK_MAGIC);
  prof_put_u32(to + 4, (uint32_t)kind);
  prof_put_u32(to + 8, bytes);
  prof_put_u32(to + 12, entries);
  prof_put_u32(to + 16, prof_checksum(payload, bytes));
  prof_put_u32(to + 20, prof_checksum(to, PROF_BLOCK_HEAD_BYTES - 4));
}

/* At most 16384 words: the first sum stays below 2^47 and the second below 2^61, so both are reduced once. */
uint32_t prof_checksum(const unsigned char *from, size_t bytes) {
  uint64_t a = 1, b = 0;
  for (size_t i = 0; i + 4 <= bytes; i += 4) {
    a += prof_get_u32(from + i);
    b += a;
  }
  a %= 0xffffffffu;
  b %= 0xffffffffu;
  return (uint32_t)(a ^ (b << 16 | b >> 16));
}

const char *prof_kind_name(int kind) {
  static const char *const names[PROF_KIND_END] = {[PROF_KERNEL] = "kernel",
                                                   [PROF_COPY] = "copy",
                                                   [PROF_MEMSET] = "memset",
                                                   [PROF_GRAPH] = "graph",
                                                   [PROF_SYNC] = "sync",
                                                   [PROF_CALL] = "call",
                                                   [PROF_RANGE_BEGIN] = "range begin",
                                                   [PROF_RANGE_END] = "range end",
                                                   [PROF_ALLOCATE] = "allocate",
                                                   [PROF_FREE] = "free",
                                                   [PROF_OVERHEAD] = "overhead",
                                                   [PROF_STEP] = "step",
                                                   [PROF_INSTRUCTION] = "instruction",
                                                   [PROF_NODE] = "node",
                                                   [PROF_MADE] = "graph made"};
  return kind > 0 && kind < PROF_KIND_END ? names[kind] : "unknown";
}

const char *prof_copy_name(int copy) {
  static const char *const names[PROF_COPY_END] = {"other", "to device", "to host", "on device", "peer"};
  return copy >= 0 && copy < PROF_COPY_END ? names[copy] : "unknown";
}

uint64_t prof_record_node(const prof_record *record) { return (uint64_t)record->thread << 32 | record->graph; }

bool prof_on_device(const prof_record *record) {
  return record->device != PROF_NO_DEVICE && (record->kind == PROF_KERNEL || record->kind == PROF_COPY ||
                                              record->kind == PROF_MEMSET || record->kind == PROF_GRAPH);
}
