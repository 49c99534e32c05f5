/* The writer's state and its files: between profiler/writer.c, which keeps buffers and names, and writer_files.c. */
#ifndef DP_PROFILER_WRITER_PARTS_H
#define DP_PROFILER_WRITER_PARTS_H

#include <pthread.h>
#include <sys/types.h>

#include "profiler/writer.h"

enum { PROF_PATH_BYTES = 4096 };

typedef struct string_row {
  uint32_t offset, length, hash, next; /* next: the string of the same slot; 0: none */
} string_row;

typedef struct device_row {
  bool noted;
  uint32_t name, multiprocessors;
  uint64_t memory_bytes;
} device_row;

struct prof_writer {
  pthread_mutex_t lock; /* of what follows, to `disk` */
  bool closed;
  prof_record *records;                                            /* [buffers][PROF_BLOCK_RECORDS] */
  uint32_t *queue;                                                 /* [buffers] ring of full buffers, in their order */
  uint32_t *fill;                                                  /* [buffers] records in each */
  uint32_t *idle;                                                  /* [buffers] stack of empty ones */
  uint32_t buffers, queue_first, queue_count, idle_count, current; /* current = buffers: none */
  char *text;
  string_row *strings; /* [string_limit + 1], from 1 */
  uint32_t *slots;     /* heads of the strings by hash, a power of two */
  uint32_t string_count, string_limit, text_used, text_limit, slot_mask;
  device_row devices[PROF_MAX_DEVICES];
  uint32_t device_version; /* counts their changes */
  int64_t realtime_ns, clock_ns;
  uint32_t clock_version;
  prof_counts counts;
  uint64_t count_version;

  pthread_mutex_t disk; /* of what follows; taken before `lock` */
  prof_header header;
  char path[PROF_PATH_BYTES];
  size_t path_length; /* without number and ending */
  int file;           /* -1: none open */
  dev_t file_device;
  ino_t file_inode;
  uint64_t file_bytes, used_bytes;
  uint32_t files, number;        /* of the next file to open */
  uint64_t held[PROF_MAX_FILES]; /* records of file n at n % files */
  uint32_t *string_file;         /* [string_limit + 1] which file, from 1, holds the string already */
  uint32_t said_devices, said_clock;
  uint64_t said_counts;
  unsigned char payload[PROF_PAYLOAD_BYTES];
};

/* All with `disk` held and `lock` not. */
bool prof_writer_open_file(prof_writer *writer); /* the next one; the oldest is removed when there are too many */
void prof_writer_close_file(prof_writer *writer);
bool prof_writer_ready(prof_writer *writer,
                       uint32_t bytes); /* a file that is open, ours, and has room for such a block */
bool prof_writer_write_records(prof_writer *writer, const prof_record *records, uint32_t count);
bool prof_writer_write_counts(prof_writer *writer); /* where they changed */
bool prof_writer_write_end(prof_writer *writer);

#endif
