/* Writing records while a program runs: for the library that is loaded into it, so everything here is bounded, and the
 * path of a record neither allocates nor touches a file.
 *
 * Threads. prof_writer_string, _add, _device, _clock, _lost may be called by any threads at the same time; each holds
 * one mutex for as long as it copies. prof_writer_flush does all the work of files, under a second mutex, so a slow
 * disk stops nobody else. Call it from a thread of one's own, or where buffers of CUPTI come in, several times a
 * second: between two calls `buffers` * PROF_BLOCK_RECORDS records find room, what comes beyond is dropped and counted.
 *
 * Memory is taken by prof_writer_open alone. Files: FOLDER/records-HOST-PID-START.NNNN.dpr, at most `files` of them,
 * each at most file_bytes and what one block's strings take; before one more is opened the oldest is removed, and its
 * records are counted as rotated. Files are opened with O_CLOEXEC. When a program closes descriptors that are not its
 * own, the writer notices before its next block and goes on in a new file.
 *
 * fork: register prof_writer_before_fork, _parent and _child by pthread_atfork. The child goes on with files of its own
 *   under its own pid; what the parent had not written yet is the parent's. After vfork and posix_spawn nothing is to
 * be done. exec: nothing runs before it, so what was not flushed is lost; the next image starts files under another
 * START. exit: prof_writer_close from a destructor or atexit writes all that is left and the end block. Later calls of
 * the other functions are safe and do nothing, since threads may still run. Signals: prof_writer_emergency may be
 * called in a handler of a deadly signal: it takes the mutexes only when they are free, and calls nothing but write,
 * open, close, fstat, ftruncate and unlink. SIGKILL leaves what was flushed.
 *
 * What the system refuses (a full disk) is counted as not_written and tried again with the next block; the program
 * under the profiler never sees an error.
 */
#ifndef DP_PROFILER_WRITER_H
#define DP_PROFILER_WRITER_H

#include "base/status.h"
#include "profiler/record.h"

enum { PROF_MAX_DEVICES = 64, PROF_MAX_FILES = 256 };

typedef struct prof_writer_options {
  const char *folder;    /* exists */
  uint64_t file_bytes;   /* at least 256 KiB; 0: 64 MiB */
  int files;             /* 2 to PROF_MAX_FILES; 0: 8 */
  int buffers;           /* 2 to 65536; 0: 64, 4 MiB */
  uint32_t strings;      /* of different names, 16 to 2^20; 0: 32768; */
  uint32_t string_bytes; /* of all of them, at least 16 KiB; 0: 8 MiB */
} prof_writer_options;

typedef struct prof_writer prof_writer;

/* `header`: of the process; its file number is the writer's. DP_BAD_INPUT for options out of range and for a folder in
 * which no file can be made. */
dp_status prof_writer_open(const prof_writer_options *options, const prof_header *header, prof_writer **writer,
                           dp_error *error);
/* Safe on NULL and a second time. The memory stays until prof_writer_free, which no other thread may outrun. */
void prof_writer_close(prof_writer *writer);
void prof_writer_free(prof_writer *writer);

/* The number of a name, the same for the same text; of NULL and "" 0. Text that is not UTF-8 is taken as it is. */
uint32_t prof_writer_string(prof_writer *writer, const char *text);
/* False: dropped, and counted. */
bool prof_writer_add(prof_writer *writer, const prof_record *record);
/* A device, once; indices from PROF_MAX_DEVICES on are not noted. */
void prof_writer_device(prof_writer *writer, uint16_t device, const char *name, uint32_t multiprocessors,
                        uint64_t memory_bytes);
/* A pair of clocks, now and then in a long run. */
void prof_writer_clock(prof_writer *writer, int64_t realtime_ns, int64_t clock_ns);
/* Records that were lost before they came here. */
void prof_writer_lost(prof_writer *writer, uint64_t records);

/* Writes the buffers that are full; with `all` also the one that is being filled. */
void prof_writer_flush(prof_writer *writer, bool all);
/* The same with `all`, from a signal handler; false: somebody is at work, nothing was done. */
bool prof_writer_emergency(prof_writer *writer);

void prof_writer_before_fork(prof_writer *writer);
void prof_writer_parent(prof_writer *writer);
void prof_writer_child(prof_writer *writer, const prof_header *header);

prof_counts prof_writer_counts(prof_writer *writer);

#endif
