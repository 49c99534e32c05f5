#define _POSIX_C_SOURCE 200809L
#include "base/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"

void dp_progress_begin(dp_progress *progress, const char *what, uint64_t total) {
  *progress = (dp_progress){.shown = isatty(STDERR_FILENO) && !getenv("NO_PROGRESS"), .what = what, .total = total};
  if (progress->shown) progress->started_s = dp_clock_s();
}

void dp_progress_update(dp_progress *progress, uint64_t done, const char *note) {
  progress->done = done;
  if (!progress->shown) return;
  const double now = dp_clock_s();
  if (now - progress->drawn_s < 0.1) return;
  progress->drawn_s = now;
  enum { WIDTH = 24 };
  char bar[WIDTH + 1];
  double part = progress->total ? (double)done / (double)progress->total : 0;
  if (part > 1) part = 1;
  for (int i = 0; i < WIDTH; i++) bar[i] = part * WIDTH > i ? '#' : '.';
  bar[WIDTH] = 0;
  fprintf(stderr, "\r\033[K%s ", progress->what);
  if (progress->total) {
    const double left = part > 0 ? (now - progress->started_s) * (1 - part) / part : 0;
    fprintf(stderr, "[%s] %3.0f%% %.0f s left", bar, 100 * part, left);
  } else {
    fprintf(stderr, "%llu", (unsigned long long)done);
  }
  if (note) fprintf(stderr, "  %s", note);
  fflush(stderr);
}

void dp_progress_clear(dp_progress *progress) {
  if (progress->shown && progress->drawn_s > 0) fprintf(stderr, "\r\033[K");
  progress->drawn_s = 0;
}

void dp_progress_end(dp_progress *progress) {
  dp_progress_clear(progress);
  progress->shown = false;
}
