#include "exec/transport.h"

#include <string.h>

enum { TAG_BROADCAST = EXEC_TAG_CONTROL, TAG_GATHER, TAG_MAXIMUM };

static bool alone(const exec_transport *t) { return !t || t->process_count == 1; }

dp_status exec_broadcast(exec_transport *t, void *bytes, size_t count, dp_error *error) {
  if (alone(t)) return DP_OK;
  if (t->process > 0) return t->receive(t, 0, TAG_BROADCAST, bytes, count, NULL, error);
  for (int p = 1; p < t->process_count; p++) DP_TRY(t->send(t, p, TAG_BROADCAST, bytes, count, NULL, error));
  return DP_OK;
}

dp_status exec_gather(exec_transport *t, const void *mine, size_t count, void *all, dp_error *error) {
  if (alone(t) || t->process == 0) memcpy(all, mine, count);
  if (alone(t)) return DP_OK;
  if (t->process > 0) return t->send(t, 0, TAG_GATHER, mine, count, NULL, error);
  for (int p = 1; p < t->process_count; p++)
    DP_TRY(t->receive(t, p, TAG_GATHER, (char *)all + (size_t)p * count, count, NULL, error));
  return DP_OK;
}

dp_status exec_maximum(exec_transport *t, int64_t *value, dp_error *error) {
  if (alone(t)) return DP_OK;
  if (t->process > 0) {
    DP_TRY(t->send(t, 0, TAG_MAXIMUM, value, sizeof *value, NULL, error));
  } else {
    for (int p = 1; p < t->process_count; p++) {
      int64_t other;
      DP_TRY(t->receive(t, p, TAG_MAXIMUM, &other, sizeof other, NULL, error));
      if (other > *value) *value = other;
    }
  }
  return exec_broadcast(t, value, sizeof *value, error);
}

dp_status exec_barrier(exec_transport *t, dp_error *error) {
  int64_t none = 0;
  return exec_maximum(t, &none, error);
}
