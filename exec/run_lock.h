/* One run at a time works in a folder: FOLDER/lock is held (flock) by its process 0, and goes free however that ends.
 */
#ifndef DP_EXEC_RUN_LOCK_H
#define DP_EXEC_RUN_LOCK_H

#include "base/status.h"

/* Takes the lock of a folder that is there. DP_BAD_INPUT: another process has it; the line says which. */
dp_status exec_run_lock(const char *folder, int *lock, dp_error *error);
void exec_run_unlock(int lock); /* -1 is fine */

#endif
