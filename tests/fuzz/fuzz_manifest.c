/* Any text as a data set's manifest: refused in one line, or samples that stay in their folder, with a hash that does
 * not depend on when it is read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "exec/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_manifest(const exec_manifest *m) {
  if (m->count == 0 || strcmp(m->folder, "fuzz") != 0) abort();
  for (size_t i = 0; i < m->count; i++) {
    const exec_sample *s = &m->samples[i];
    if (!s->file[0] || s->file[0] == '/' || strncmp(s->file, "../", 3) == 0 || strstr(s->file, "/../")) abort();
    if (!s->caption || s->width < 1 || s->height < 1 || s->width > EXEC_IMAGE_SIDE || s->height > EXEC_IMAGE_SIDE)
      abort();
    for (size_t k = 0; k < i && i < 64; k++)
      if (strcmp(m->samples[k].file, s->file) == 0) abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  if (!text) return 0;
  memcpy(text, data, size);
  text[size] = 0;
  exec_manifest first = {0}, second = {0};
  dp_error error = DP_ERROR_INIT;
  const dp_status status = exec_manifest_parse(text, size, "fuzz/m.json", &first, &error);
  if (status == DP_OK) {
    check_manifest(&first);
    if (exec_manifest_parse(text, size, "fuzz/m.json", &second, &error) != DP_OK || second.hash != first.hash) abort();
  } else if (status != DP_BAD_INPUT || strncmp(error.text, "fuzz/m.json:", 12) != 0 || strchr(error.text, '\n') ||
             first.samples) {
    abort();
  }
  exec_manifest_free(&first);
  exec_manifest_free(&second);
  free(text);
  return 0;
}
