/* Files of a test's own: a folder that is its working directory and that is gone afterwards, and single files in /tmp.
 * The suite defines _DEFAULT_SOURCE, or _GNU_SOURCE, before its first include. */
#ifndef DP_TESTS_SCRATCH_H
#define DP_TESTS_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/suite.h"

static char scratch[64]; /* the folder, from scratch_enter to scratch_leave */

static inline void scratch_enter(void) {
  (void)snprintf(scratch, sizeof scratch, "/tmp/diffpipe-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(scratch));
  ck_assert_int_eq(chdir(scratch), 0);
}

/* Removes what is in a folder, of any depth. */
static inline void scratch_clean(const char *path) {
  DIR *stream = opendir(path);
  ck_assert_ptr_nonnull(stream);
  for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
    char inner[600];
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    ck_assert_int_lt(snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name), (int)sizeof inner);
    if (entry->d_type == DT_DIR) scratch_clean(inner);
    (void)remove(inner);
  }
  (void)closedir(stream);
}

/* rmdir fails, and the test with it, when anything was left in the folder. */
static inline void scratch_leave(void) {
  ck_assert_int_eq(chdir("/"), 0);
  ck_assert_int_eq(rmdir(scratch), 0);
}

/* How many files and folders it holds; -2 where it cannot be read. */
static inline int count_entries(const char *path) {
  DIR *stream = opendir(path);
  int count = 0;
  while (stream && readdir(stream)) count++;
  if (stream) (void)closedir(stream);
  return count - 2;
}

/* Writes the text to a new file, whose name replaces `path`: "/tmp/NAME-XXXXXX.toml" or another ending of four letters.
 * Whoever makes it removes it. */
static inline void scratch_file(char *path, const char *text) {
  const int file = mkstemps(path, 5);
  ck_assert_int_ge(file, 0);
  ck_assert_int_eq(write(file, text, strlen(text)), (ssize_t)strlen(text));
  ck_assert_int_eq(close(file), 0);
}

#endif
