/* Any bytes as a file of records, and as the payloads of blocks whose checksums are right: refused with one line, or a
 * session whose steps and figures can be told. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/summary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void tell(const prof_session *session) {
  unsigned char *classes = calloc(session->names.count + 1, 1);
  prof_steps steps;
  prof_summary summary;
  dp_error error = DP_ERROR_INIT;
  if (!classes) return;
  for (size_t n = 1; n < session->names.count; n++) classes[n] = (unsigned char)(n % PROF_CLASS_COUNT);
  if (prof_steps_find(session, classes, PROF_STEPS_AUTO, NULL, &steps, &error) != DP_OK) abort();
  if (prof_summary_of(session, classes, &steps, 0, &summary, &error) != DP_OK) abort();
  for (size_t d = 0; d < summary.devices.count; d++) {
    double sum = 0;
    for (int p = 0; p < PROF_PART_COUNT; p++) sum += summary.devices.items[d].parts_s[p];
    const double off = sum - summary.devices.items[d].window_s;
    if (!(off < 1e-6 * (1 + sum) && off > -1e-6 * (1 + sum))) abort();
  }
  prof_summary_free(&summary);
  prof_steps_free(&steps);
  free(classes);
}

static void read(const void *bytes, size_t length) {
  prof_session session = {.slots = NULL};
  dp_error error = DP_ERROR_INIT;
  const dp_status status = prof_session_add(&session, bytes, length, "fuzz", &error);
  if (status == DP_OK) {
    if (prof_session_finish(&session, &error) != DP_OK) abort();
    tell(&session);
  } else if (status != DP_BAD_INPUT || strncmp(error.text, "fuzz: offset ", 13) != 0 || strchr(error.text, '\n')) {
    abort();
  }
  prof_session_free(&session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  read(data, size);
  /* the same as blocks: a byte for the kind, one for the entries, two for the length in words, the payload */
  const prof_header header = {.rank = -1, .realtime_ns = 1000, .clock_ns = 1000};
  unsigned char *file = malloc(PROF_HEADER_BYTES + size * (PROF_BLOCK_HEAD_BYTES + 1) + PROF_BLOCK_HEAD_BYTES);
  if (!file) return 0;
  prof_header_encode(&header, file);
  size_t length = PROF_HEADER_BYTES;
  while (size >= 4) {
    size_t bytes = 4 * (size_t)(data[2] | (data[3] & 63) << 8);
    if (bytes > size - 4) bytes = (size - 4) / 4 * 4;
    prof_block_head((prof_block)(data[0] % 8), data + 4, (uint32_t)bytes, data[1], file + length);
    memcpy(file + length + PROF_BLOCK_HEAD_BYTES, data + 4, bytes);
    length += PROF_BLOCK_HEAD_BYTES + bytes;
    data += 4 + bytes;
    size -= 4 + bytes;
  }
  read(file, length);
  free(file);
  return 0;
}
