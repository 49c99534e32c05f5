/* Files and paths: whole-file reading, writing beside and renaming, and where the installed data lies. */
#ifndef DP_BASE_FILE_H
#define DP_BASE_FILE_H

#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a regular file of at most `limit_bytes` into malloc'ed, NUL-terminated memory that the caller frees. A missing
 * or unreadable file is DP_BAD_INPUT, since the user named it. */
dp_status dp_file_read(const char *path, size_t limit_bytes, char **text, size_t *length, dp_error *error);

/* Output files are written under a temporary name in the same folder and renamed when complete, so that a reader sees
 * the old file or the whole new one. */
typedef struct dp_output {
  FILE *stream; /* write here */
  char *path, *temporary;
} dp_output;
dp_status dp_output_open(const char *path, dp_output *output, dp_error *error);
/* Writes bytes and fails with the reason of the system at once, where fwrite on the stream is told of at the commit. */
dp_status dp_output_write(dp_output *output, const void *bytes, size_t count, dp_error *error);
dp_status dp_output_sync(dp_output *output, dp_error *error);   /* waits until what was written is on the disk */
dp_status dp_output_commit(dp_output *output, dp_error *error); /* flush, check, rename, release */
void dp_output_abandon(dp_output *output);                      /* remove the temporary; safe after commit */
/* All at once, beside and renamed. */
dp_status dp_file_write(const char *path, const void *bytes, size_t count, dp_error *error);

/* Makes a folder and its parents. */
dp_status dp_folder_make(const char *path, dp_error *error);
/* Waits until the names in a folder are on the disk: after files in it were renamed or removed. */
dp_status dp_folder_sync(const char *path, dp_error *error);

/* The folder of the installed data (`catalogue/`, `clusters/`, `models/`, scenarios): $DIFFPIPE_DATA_DIR, else the
 * source tree's `scenarios/` when the program runs from its build folder, else `../share/diffpipe` beside the program,
 * else the configured place. */
const char *dp_data_folder(void);

/* Resolves `name` as written in `from_file`: absolute as it is; else relative to from_file's folder; else relative to
 * the installed data. NULL from_file means the current folder. When neither exists the first candidate is returned,
 * so that the error of opening it names what the user expects. Arena-owned; NULL: no memory. */
const char *dp_path_resolve(dp_arena *arena, const char *from_file, const char *name);

#ifdef __cplusplus
}
#endif
#endif
