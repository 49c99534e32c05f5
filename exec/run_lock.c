#define _DEFAULT_SOURCE /* flock */
#include "exec/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/arena.h"

/* Who holds it has written its number into the file. */
static dp_status fail_held(const char *folder, int file, dp_error *error) {
  char who[32] = "";
  const ssize_t length = pread(file, who, sizeof who - 1, 0);
  const long process = length > 0 ? strtol(who, NULL, 10) : 0;
  if (process > 0)
    return dp_fail(error, DP_BAD_INPUT, "%s: another run is at work there, process %ld, allowed: one run a folder",
                   folder, process);
  return dp_fail(error, DP_BAD_INPUT, "%s: another run is at work there, allowed: one run a folder", folder);
}

static dp_status take(const char *folder, const char *path, int *lock, dp_error *error) {
  char own[32];
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return dp_fail(error, DP_IO_FAILED, "%s: cannot be opened: %s", path, strerror(errno));
  dp_status status = DP_OK;
  if (flock(file, LOCK_EX | LOCK_NB) != 0)
    status = errno == EWOULDBLOCK ? fail_held(folder, file, error)
                                  : dp_fail(error, DP_IO_FAILED, "%s: cannot be locked: %s", path, strerror(errno));
  if (status != DP_OK) {
    (void)close(file);
    return status;
  }
  /* only told to others: a full disk does not matter */
  const int length = snprintf(own, sizeof own, "%ld\n", (long)getpid());
  if (ftruncate(file, 0) == 0 && pwrite(file, own, (size_t)length, 0) < 0) errno = 0;
  *lock = file;
  return DP_OK;
}

dp_status exec_run_lock(const char *folder, int *lock, dp_error *error) {
  dp_arena arena = {0};
  const char *path = dp_arena_printf(&arena, "%s/lock", folder);
  const dp_status status = path ? take(folder, path, lock, error) : dp_fail_memory(error);
  dp_arena_free(&arena);
  return status;
}

void exec_run_unlock(int lock) {
  if (lock >= 0) (void)close(lock);
}
