/* A progress bar on stderr, shown only when stderr is a terminal (and never with NO_PROGRESS set); at most ten updates
 * a second; its line is cleared at the end. Reads no clock when it is not shown. */
#ifndef DP_BASE_PROGRESS_H
#define DP_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dp_progress {
  bool shown;
  const char *what; /* borrowed */
  uint64_t done, total;
  double started_s, drawn_s;
} dp_progress;

void dp_progress_begin(dp_progress *progress, const char *what, uint64_t total); /* total 0: unknown */
void dp_progress_update(dp_progress *progress, uint64_t done, const char *note); /* note may be NULL ("best 1.2 s") */
/* Takes the line away, for another to stand there; the next update draws it again. */
void dp_progress_clear(dp_progress *progress);
void dp_progress_end(dp_progress *progress);

#ifdef __cplusplus
}
#endif
#endif
