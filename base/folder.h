/* Folders that are whole or not there: what is written goes to a hidden folder beside and takes the name when it is
 * complete and on disk; a folder of that name is exchanged for it in one step of the file system, so that a reader, or
 * who comes after a crash, finds the old one or the new one. Folders here are flat: files, no folders in them.
 */
#ifndef DP_BASE_FOLDER_H
#define DP_BASE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero-initialised is closed. */
typedef struct dp_folder_output {
  char *path;      /* what it will be */
  char *temporary; /* write files here: PARENT/.NAME.XXXXXX */
  bool (*is_ours)(const char *name);
} dp_folder_output;

/* Opens a folder for writing; its parent must exist. A folder that is there may hold nothing but files of which is_ours
 * (NULL: any file) says that they may be removed: DP_BAD_INPUT names another, so that nobody's work is lost by a
 * mistyped path. */
dp_status dp_folder_output_open(const char *path, bool (*is_ours)(const char *name), dp_folder_output *output,
                                dp_error *error);
/* Syncs, exchanges, removes the old files, releases. Whether it succeeds or not, nothing stays open. Where the file
 * system cannot exchange, the old folder is moved away first: for that moment the name is missing. */
dp_status dp_folder_output_commit(dp_folder_output *output, dp_error *error);
void dp_folder_output_abandon(dp_folder_output *output); /* removes what was written; safe on a closed one */
/* In an error about a file in the hidden folder, writes the path as it will be. Returns `status`. */
dp_status dp_folder_output_blame(const dp_folder_output *output, dp_status status, dp_error *error);

/* Removes a folder of files. When it holds a folder, or a file that is not ours, nothing is removed. A missing one is
 * fine. */
dp_status dp_folder_remove(const char *path, bool (*is_ours)(const char *name), dp_error *error);

#ifdef __cplusplus
}
#endif
#endif
