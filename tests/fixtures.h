/* Where the files of tests/fixtures are. */
#ifndef DP_TESTS_FIXTURES_H
#define DP_TESTS_FIXTURES_H

#include <stdio.h>
#include <stdlib.h>

/* A file of the folder, or with "" the folder; valid until the next call. Without SRCDIR the source tree is here. */
static inline const char *fixture_path(const char *folder, const char *file) {
  static char path[4096];
  const char *source = getenv("SRCDIR");
  (void)snprintf(path, sizeof path, "%s/tests/fixtures/%s%s%s", source ? source : ".", folder, file[0] ? "/" : "",
                 file);
  return path;
}

#endif
