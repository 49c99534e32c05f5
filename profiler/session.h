/* What was recorded, read back: the files of any number of processes as one list of records on one clock.
 *
 * The clock is CLOCK_REALTIME. Each process' records are moved by the difference of the two clocks of its header, and
 * where its files hold later pairs by the line through the two pairs around a record (outside of all of them by the
 * nearest pair). Where CLOCK_REALTIME was set in between, by more than clocks drift, a process keeps the time it had.
 * Hosts are as far apart as their CLOCK_REALTIME is.
 *
 * A file that ends within a block (SIGKILL) is read up to that block and its process is `cut`. Anything else that is
 * not as profiler/record.h says is DP_BAD_INPUT: FILE: offset N: what is wrong, what was found, what is allowed.
 */
#ifndef DP_PROFILER_SESSION_H
#define DP_PROFILER_SESSION_H

#include "base/arena.h"
#include "base/array.h"
#include "base/status.h"
#include "profiler/record.h"

typedef struct prof_device {
  uint16_t process, device;
  const char *name; /* "" where unknown */
  uint32_t multiprocessors;
  uint64_t memory_bytes;
} prof_device;

typedef struct prof_process {
  prof_header header;
  prof_counts counts; /* the largest of its files */
  uint32_t files;
  uint64_t records;
  bool ended; /* it closed its files */
  bool cut;   /* one of them ends within a block */
} prof_process;

typedef struct prof_session {
  dp_arena arena;                   /* of the texts */
  DP_ARRAY(prof_process) processes; /* by rank, host, pid */
  DP_ARRAY(prof_device) devices;    /* by process and device */
  DP_ARRAY(prof_record) records;    /* by start, on the one clock, else as written; `name` counts in `names` */
  DP_ARRAY(const char *) names;     /* [0] is "" */
  uint32_t *slots;                  /* of the names by their hash */
  size_t slot_count;
  DP_ARRAY(uint64_t) files; /* that were added: process, as they came, and number */
} prof_session;

/* Adds the bytes of a file; `name` stands in for its path in errors. After a failure the session can only be freed. */
dp_status prof_session_add(prof_session *session, const void *bytes, size_t length, const char *name, dp_error *error);
/* Sorts; call it once, after all were added. */
dp_status prof_session_finish(prof_session *session, dp_error *error);
/* The records by their start; finish does it. */
dp_status prof_session_sort(prof_session *session, dp_error *error);
/* All files of a folder that end in .dpr, by name, finished. DP_BAD_INPUT: there is none. A file that ends within its
 * header holds nothing and is passed over. */
dp_status prof_session_read(const char *folder, prof_session *session, dp_error *error);
void prof_session_free(prof_session *session); /* safe on a zeroed one */

/* NULL: the process noted no such device. */
const prof_device *prof_session_device(const prof_session *session, uint16_t process, uint16_t device);

#endif
