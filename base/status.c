#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

dp_status dp_fail(dp_error *error, dp_status status, const char *format, ...) {
  if (!error) return status;
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  if (length < 0) error->text[0] = 0;
  if (length >= DP_ERROR_TEXT_BYTES) { /* cut between characters, not within one */
    size_t end = DP_ERROR_TEXT_BYTES - 1;
    while (end > 0 && ((unsigned char)error->text[end - 1] & 0xC0) == 0x80) end--;
    if (end > 0 && (unsigned char)error->text[end - 1] >= 0xC0) end--;
    error->text[end] = 0;
  }
  /* an error is one line, whatever bytes the user's file brought into it */
  for (char *c = error->text; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
  error->status = status;
  return status;
}

dp_status dp_fail_memory(dp_error *error) { return dp_fail(error, DP_NO_MEMORY, "out of memory"); }

int dp_exit_status(dp_status status) { return status == DP_OK ? 0 : status == DP_BAD_INPUT ? 2 : 1; }
