/* What the profiler records of a program that uses CUDA: one flat record for each thing that happened, whoever saw it;
 * and the bytes in which records lie in files of the format `diffpipe-records`. Nothing here knows CUPTI.
 *
 * Times are nanoseconds of the clock of the recording process: all of one process, of the host and of its devices, by
 * one clock, which the file ties to CLOCK_REALTIME. A record without a duration has end = start.
 *
 * A file is a header of PROF_HEADER_BYTES and then blocks, each a head of PROF_BLOCK_HEAD_BYTES and its payload.
 * Numbers are little-endian. Nothing in a file points forward, so a file that is cut anywhere (SIGKILL, a full disk) is
 * good up to its last whole block, and each file of a process can be read without the others.
 *
 *   header    magic "diffpipe-records", u32 version, u32 header bytes, i32 pid, i32 parent's pid, i32 rank (-1: none),
 *             u32 file number, i64 CLOCK_REALTIME and i64 record clock when the process began to record,
 *             char host[64], char command[128] (both end in zeros), u32 0, u32 checksum of all bytes before it
 *   block     u32 magic, u32 kind, u32 payload bytes (a multiple of 4, at most PROF_PAYLOAD_BYTES), u32 entries,
 *             u32 checksum of the payload, u32 checksum of the 20 bytes before it
 *   strings   for each: u32 number (from 1), u32 length, bytes, zeros up to a multiple of 4; before the first record of
 *             the file that uses the number
 *   devices   for each: u32 device, u32 string number of its name, u32 multiprocessors, u32 0, u64 memory bytes
 *   records   for each PROF_RECORD_BYTES: the fields of prof_record in their order, without `process`
 *   clocks    for each: i64 CLOCK_REALTIME, i64 record clock: later pairs, for clocks that drift apart
 *   counts    u64 each, of prof_counts in its order, since the process began; the last one holds
 *   end       no entries: the process closed its files
 *
 * The checksum of bytes is Fletcher's with 32-bit words, both sums folded into 32 bits (prof_checksum).
 */
#ifndef DP_PROFILER_RECORD_H
#define DP_PROFILER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum prof_kind {
  PROF_KERNEL = 1,  /* also of NCCL: the rules of profiler/classes.h tell them by their names */
  PROF_COPY,        /* detail: prof_copy; value: bytes */
  PROF_MEMSET,      /* value: bytes */
  PROF_GRAPH,       /* the device's work of a CUDA graph launched as a whole, where its nodes were not recorded */
  PROF_SYNC,        /* the host waits for a stream, an event or a device */
  PROF_CALL,        /* a call of the runtime or the driver; its correlation is that of the work which it launched */
  PROF_RANGE_BEGIN, /* NVTX, name and value: 0 for push and pop, which nest in their thread, else the range's id */
  PROF_RANGE_END,   /* value as above; the name may be 0 */
  PROF_ALLOCATE,    /* value: bytes of device memory */
  PROF_FREE,        /* value: bytes */
  PROF_OVERHEAD,    /* time that recording itself took */
  PROF_STEP,        /* the program says that a step begins; value: its number; its end, where it says that, too */
  PROF_INSTRUCTION, /* a thread of a run of our own puts an instruction's work into queues; value: its number */
  PROF_NODE,        /* a node of a run's CUDA graphs, by graph and thread; value: the unit that its work is of */
  PROF_MADE,        /* such a graph; thread: its id, the upper half of its nodes'; value: the instruction that it is */
  PROF_KIND_END
} prof_kind;

typedef enum prof_copy {
  PROF_COPY_OTHER,
  PROF_COPY_TO_DEVICE,
  PROF_COPY_TO_HOST,
  PROF_COPY_ON_DEVICE,
  PROF_COPY_PEER,
  PROF_COPY_END
} prof_copy;

enum { PROF_NO_DEVICE = 0xffff };

typedef struct prof_record {
  uint8_t kind, detail;
  uint16_t device; /* index of the process; PROF_NO_DEVICE for what happens on the host */
  uint32_t name;   /* number of a string; 0: none */
  int64_t start_ns, end_ns;
  uint32_t stream; /* of the device */
  uint32_t thread; /* of the host, for what happens there; of work in a CUDA graph the upper half of its node's id */
  uint32_t correlation; /* joins a call and the work that it launched; 0: none */
  uint32_t graph;       /* the lower half of that id; both 0: it is no node */
  uint64_t value;
  uint32_t grid[3]; /* blocks of a kernel */
  uint16_t block_threads;
  uint16_t process; /* when read: which of the session's processes; not in files */
} prof_record;

typedef struct prof_counts {
  uint64_t no_buffer;   /* records lost since all buffers were full */
  uint64_t rotated;     /* records in files that were removed to keep to the limit */
  uint64_t not_written; /* records that the system did not take */
  uint64_t unnamed;     /* strings that the table had no room for: their records carry the name "(more names)" */
  uint64_t source;      /* records that were lost before they came here, as CUPTI counts them */
} prof_counts;

#define PROF_MAGIC "diffpipe-records" /* 16 bytes without the zero */
#define PROF_BLOCK_MAGIC 0x42525044u  /* "DPRB" */
enum {
  PROF_VERSION = 1,
  PROF_HEADER_BYTES = 256,
  PROF_BLOCK_HEAD_BYTES = 24,
  PROF_RECORD_BYTES = 64,
  PROF_DEVICE_BYTES = 24,
  PROF_CLOCK_BYTES = 16,
  PROF_COUNTS_BYTES = 40,
  PROF_PAYLOAD_BYTES = 65536,
  PROF_BLOCK_RECORDS = PROF_PAYLOAD_BYTES / PROF_RECORD_BYTES,
  PROF_HOST_BYTES = 64,
  PROF_COMMAND_BYTES = 128,
  PROF_STRING_BYTES = 4000 /* of one string; longer ones are cut */
};

typedef enum prof_block {
  PROF_STRINGS_BLOCK = 1,
  PROF_DEVICES_BLOCK,
  PROF_RECORDS_BLOCK,
  PROF_CLOCKS_BLOCK,
  PROF_COUNTS_BLOCK,
  PROF_END_BLOCK,
  PROF_BLOCK_END
} prof_block;

/* A file's header without what is always the same. */
typedef struct prof_header {
  int32_t pid, parent, rank;
  uint32_t file;
  int64_t realtime_ns, clock_ns;
  char host[PROF_HOST_BYTES], command[PROF_COMMAND_BYTES]; /* terminated */
} prof_header;

/* Plain turning into bytes and back; no checks but those that are returned. */
void prof_put_u32(unsigned char *to, uint32_t value);
void prof_put_u64(unsigned char *to, uint64_t value);
uint32_t prof_get_u32(const unsigned char *from);
uint64_t prof_get_u64(const unsigned char *from);
void prof_record_encode(const prof_record *record, unsigned char to[PROF_RECORD_BYTES]);
void prof_record_decode(const unsigned char from[PROF_RECORD_BYTES], prof_record *record);
void prof_header_encode(const prof_header *header, unsigned char to[PROF_HEADER_BYTES]);
void prof_block_head(prof_block kind, const unsigned char *payload, uint32_t bytes, uint32_t entries,
                     unsigned char to[PROF_BLOCK_HEAD_BYTES]);
/* `bytes` is a multiple of 4 and at most PROF_PAYLOAD_BYTES. */
uint32_t prof_checksum(const unsigned char *from, size_t bytes);

const char *prof_kind_name(int kind); /* "kernel"; "unknown" */
const char *prof_copy_name(int copy); /* "to device"; "unknown" */
/* Of work: the id of the CUDA graph's node that it is; 0: none. */
uint64_t prof_record_node(const prof_record *record);
/* Whether the record is work of a device that takes its time: kernels, copies, memsets, graphs. */
bool prof_on_device(const prof_record *record);

#endif
