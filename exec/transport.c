#include "exec/transport.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { TAG_BROADCAST = EXEC_TAG_CONTROL, TAG_GATHER, TAG_MAXIMUM, TAG_CLOCK };

static bool alone(const exec_transport *t) { return exec_process_count(t) == 1; }

dp_status exec_broadcast(exec_transport *t, void *bytes, size_t count, dp_error *error) {
  if (alone(t)) return DP_OK;
  if (t->process > 0) return t->receive(t, 0, TAG_BROADCAST, bytes, count, NULL, error);
  for (int p = 1; p < t->process_count; p++) DP_TRY(t->send(t, p, TAG_BROADCAST, bytes, count, NULL, error));
  return DP_OK;
}

dp_status exec_broadcast_from(exec_transport *t, int process, void *bytes, size_t count, dp_error *error) {
  if (alone(t)) return DP_OK;
  if (t->process != process) return t->receive(t, process, EXEC_TAG_COPY, bytes, count, NULL, error);
  for (int p = 0; p < t->process_count; p++)
    if (p != process) DP_TRY(t->send(t, p, EXEC_TAG_COPY, bytes, count, NULL, error));
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

dp_status exec_agree(exec_transport *transport, dp_status mine, dp_error *error) {
  if (exec_process_count(transport) == 1) return mine;
  dp_error own = DP_ERROR_INIT;
  int64_t gravest = mine;
  if (mine != DP_OK) own = error ? *error : (dp_error){.status = mine};
  own.status = mine;
  DP_TRY(exec_maximum(transport, &gravest, error));
  if (gravest == DP_OK) return DP_OK;
  dp_error *all = calloc((size_t)transport->process_count, sizeof *all);
  if (!all) return dp_fail_memory(error);
  dp_status status = exec_gather(transport, &own, sizeof own, all, error);
  for (int p = transport->process_count - 1; p >= 0 && transport->process == 0; p--)
    if (all[p].status == (dp_status)gravest) own = all[p];
  free(all);
  if (status == DP_OK) status = exec_broadcast(transport, &own, sizeof own, error);
  if (status != DP_OK) return status;
  if (error) *error = own;
  return own.status;
}

dp_status exec_barrier(exec_transport *t, dp_error *error) {
  int64_t none = 0;
  return exec_maximum(t, &none, error);
}

enum { ROUND_TRIPS = 64 };

static dp_status answer_clock(exec_transport *t, int process, dp_error *error) {
  for (int i = 0; i < ROUND_TRIPS; i++) {
    char token;
    DP_TRY(t->receive(t, process, TAG_CLOCK, &token, 1, NULL, error));
    const double now_s = dp_clock_s();
    DP_TRY(t->send(t, process, TAG_CLOCK, &now_s, sizeof now_s, NULL, error));
  }
  return DP_OK;
}

static dp_status ask_clock(exec_transport *t, dp_error *error) {
  double least_s = HUGE_VAL, offset_s = 0;
  for (int i = 0; i < ROUND_TRIPS; i++) {
    const char token = 0;
    double theirs_s;
    const double before_s = dp_clock_s();
    DP_TRY(t->send(t, 0, TAG_CLOCK, &token, 1, NULL, error));
    DP_TRY(t->receive(t, 0, TAG_CLOCK, &theirs_s, sizeof theirs_s, NULL, error));
    const double after_s = dp_clock_s();
    if (after_s - before_s >= least_s) continue;
    least_s = after_s - before_s;
    offset_s = theirs_s - (before_s + after_s) / 2;
  }
  t->clock_offset_s = fabs(offset_s) <= least_s / 2 ? 0 : offset_s;
  return DP_OK;
}

dp_status exec_measure_clock(exec_transport *t, dp_error *error) {
  if (alone(t)) return DP_OK;
  if (t->process > 0) return ask_clock(t, error);
  for (int p = 1; p < t->process_count; p++) DP_TRY(answer_clock(t, p, error));
  return DP_OK;
}
