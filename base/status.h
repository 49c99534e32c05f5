/* Status codes and the one error text of a call.
 *
 * The rule for the whole project: a function that can fail returns dp_status, 0 is success, outputs are written only
 * on success, and whoever decides that something is an error formats it once into the dp_error it was given; callers
 * only pass it on. Libraries never print and never exit: only cli/ does. A dp_error pointer may be NULL.
 */
#ifndef DP_BASE_STATUS_H
#define DP_BASE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dp_status {
  DP_OK = 0,
  DP_BAD_INPUT,   /* the user's files or arguments are wrong: exit status 2 */
  DP_NO_MEMORY,   /* the host has no memory left: exit status 1, as all below */
  DP_IO_FAILED,   /* the operating system refused to read or write */
  DP_UNSUPPORTED, /* this build or machine cannot do it */
  DP_INTERNAL,    /* a law of the program itself does not hold: a bug */
  DP_RUN_FAILED   /* a run cannot go on: a worker is gone, a loss is not finite */
} dp_status;

enum { DP_ERROR_TEXT_BYTES = 1024 };

/* text is one line without a final newline, in the form `FILE:LINE: what is wrong, what was found, what is allowed`
 * (or without FILE:LINE where no file is to blame). Start from DP_ERROR_INIT. */
typedef struct dp_error {
  dp_status status;
  char text[DP_ERROR_TEXT_BYTES];
} dp_error;

#define DP_ERROR_INIT \
  {                   \
    DP_OK, { 0 }      \
  }

/* Formats the error (cut at DP_ERROR_TEXT_BYTES) and returns `status`, so that `return dp_fail(...)` reads well. */
dp_status dp_fail(dp_error *error, dp_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* `return dp_fail_memory(error)`: the host is out of memory. */
dp_status dp_fail_memory(dp_error *error);

/* The process exit status for a status: 0, 2 for DP_BAD_INPUT, 1 for all others. */
int dp_exit_status(dp_status status);

/* Evaluates a call once and returns its status from the enclosing function when it is not DP_OK. */
#define DP_TRY(call)                                    \
  do {                                                  \
    const dp_status dp_try_status_ = (call);            \
    if (dp_try_status_ != DP_OK) return dp_try_status_; \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
