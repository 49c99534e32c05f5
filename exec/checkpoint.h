/* Checkpoints of a training run: RUN/checkpoints/step-N/, each a folder with state.json and files of named fp32 arrays
 * (safetensors): weights, moments of the optimizer, averages, whatever a run needs to go on with the same bits.
 *
 * A checkpoint is written beside and takes its name when all of it is on the disk (base/folder.h), so that a run that
 * is killed at any moment, or a disk that is full, leaves the ones before as they were. state.json has the CRC-32 (as
 * in gzip; zlib) of each file and of itself; opening reads everything once and refuses what is cut, changed or missing,
 * and exec_checkpoint_find passes over such ones to the newest that is whole.
 *
 * Arrays go by name, not by place: a run with other stages can take them. All of a run's files together may have a name
 * once. What the names mean is up to the caller; "weight/NAME", "adamw_m/NAME", "adamw_v/NAME", "ema/NAME" are meant.
 */
#ifndef DP_EXEC_CHECKPOINT_H
#define DP_EXEC_CHECKPOINT_H

#include <stdint.h>

#include "base/arena.h"
#include "base/folder.h"
#include "base/safetensors.h"
#include "base/status.h"
#include "base/str.h"

typedef struct exec_checkpoint_counter {
  const char *name; /* "samples", "epoch", ... */
  int64_t value;    /* >= 0 */
} exec_checkpoint_counter;

/* What is not arrays. */
typedef struct exec_checkpoint_state {
  int64_t step; /* steps done, >= 0 */
  uint64_t seed;
  int world;        /* workers that wrote it, >= 1 */
  const char *plan; /* fingerprint of the plan and the model; any text but none */
  const exec_checkpoint_counter *counters;
  size_t counter_count;
} exec_checkpoint_state;

/* An array to be saved; fp32, row-major. */
typedef struct exec_checkpoint_array {
  const char *name;
  int rank;
  const int64_t *dims;
  const float *values;
} exec_checkpoint_array;

/* A file that was written. Plain bytes, so that a process can send it to the one that commits. */
typedef struct exec_checkpoint_part {
  char name[64];
  uint64_t bytes;
  uint32_t crc32;
} exec_checkpoint_part;

/* ---- saving ---- */

typedef struct exec_checkpoint_output {
  dp_folder_output folder; /* another process on the same file system needs its two paths */
  int64_t step;
} exec_checkpoint_output;

/* Makes the folder beside, and removes what a killed run left of such: only one process of a run may do it. */
dp_status exec_checkpoint_begin(const char *run_folder, int64_t step, exec_checkpoint_output *output, dp_error *error);
/* Writes NAME.safetensors; name: letters, digits, - and _, at most 50. Threads may write different parts at the same
 * time. The file is synced and read back for its checksum. */
dp_status exec_checkpoint_write_part(const exec_checkpoint_output *output, const char *name,
                                     const exec_checkpoint_array *arrays, size_t count, exec_checkpoint_part *part,
                                     dp_error *error);
/* Gives the values of array `index`, valid until the next call; called once for each, in order. */
typedef dp_status (*exec_checkpoint_source)(void *context, size_t index, const float **values, dp_error *error);
/* The same from arrays whose `values` are not looked at, so that no copy of all of them is needed. */
dp_status exec_checkpoint_write_part_from(const exec_checkpoint_output *output, const char *name,
                                          const exec_checkpoint_array *arrays, size_t count,
                                          exec_checkpoint_source source, void *context, exec_checkpoint_part *part,
                                          dp_error *error);
/* Writes state.json over the parts and gives the folder its name; releases. Then removes old checkpoints but the `keep`
 * newest (0: all stay). Checkpoints of later steps are of a course of the run that this one has left: they are renamed
 * to stale-step-N, so that nobody resumes from them. bytes (may be NULL): of all files. */
dp_status exec_checkpoint_commit(exec_checkpoint_output *output, const exec_checkpoint_state *state,
                                 const exec_checkpoint_part *parts, size_t part_count, int keep, uint64_t *bytes,
                                 dp_error *error);
void exec_checkpoint_abandon(exec_checkpoint_output *output); /* safe on a zeroed one and after a commit */

/* ---- loading ---- */

typedef struct exec_checkpoint {
  dp_arena arena;
  const char *path;
  exec_checkpoint_state state;
  dp_safetensors *files;
  size_t file_count;
} exec_checkpoint;

/* Opens one and verifies all of it. DP_BAD_INPUT with what is wrong. */
dp_status exec_checkpoint_open(const char *path, exec_checkpoint *checkpoint, dp_error *error);
/* The newest one of a run that is whole. Each that is passed over adds a line "PATH: why\n" to `skipped` (may be NULL).
 * DP_BAD_INPUT when none is left. */
dp_status exec_checkpoint_find(const char *run_folder, exec_checkpoint *checkpoint, dp_str *skipped, dp_error *error);
void exec_checkpoint_close(exec_checkpoint *checkpoint); /* safe on a zeroed one */

/* Holds a checkpoint to the run that wants to go on from it: world, seed and plan; the line says which one differs. */
dp_status exec_checkpoint_check(const exec_checkpoint *checkpoint, const exec_checkpoint_state *run, dp_error *error);
/* Reads an array of this shape. DP_BAD_INPUT when it is not there or has another shape. */
dp_status exec_checkpoint_read(const exec_checkpoint *checkpoint, const char *name, int rank, const int64_t *dims,
                               float *out, dp_error *error);
/* -1: no such counter. */
int64_t exec_checkpoint_counter_of(const exec_checkpoint *checkpoint, const char *name);

/* ---- what saving and loading share (exec/checkpoint.c, exec/checkpoint_save.c) ---- */

/* CRC-32 of a file by reading it; a failure is DP_BAD_INPUT with the system's reason. */
dp_status exec_checkpoint_sum(const char *path, uint64_t *bytes, uint32_t *crc32, dp_error *error);
uint32_t exec_checkpoint_crc32(const char *bytes, size_t length);
/* The last key of state.json with all that follows it: the checksum of all before. */
enum { EXEC_CHECKPOINT_TAIL = 32 };
void exec_checkpoint_tail(uint32_t crc32, char out[EXEC_CHECKPOINT_TAIL + 1]);
/* N of "step-N" as this writes it; -1 for any other name. */
int64_t exec_checkpoint_step_of(const char *name);
/* The steps of the checkpoints in RUN/checkpoints, the newest first; arena-owned. A missing folder has none. */
dp_status exec_checkpoint_steps(const char *folder, dp_arena *arena, int64_t **steps, size_t *count, dp_error *error);

#endif
