#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

dp_status dp_fail(dp_error *error, dp_status status, const char *format, ...) {
  if (!error) return status;
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  /* an error is one line, whatever bytes the user's file brought into it */
  for (char *c = error->text; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
  error->status = status;
  return status;
}

dp_status dp_fail_memory(dp_error *error) { return dp_fail(error, DP_NO_MEMORY, "out of memory"); }

int dp_exit_status(dp_status status) { return status == DP_OK ? 0 : status == DP_BAD_INPUT ? 2 : 1; }
