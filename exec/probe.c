#include "exec/probe.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "exec/device.h"
#include "exec/place.h"
#include "exec/throttle.h"

static int device_of(const exec_probe *probe, int worker) { return probe->program->plan->devices[worker]; }

static void throttle_message(const exec_probe *probe, const exec_throttle *throttle) {
  if (exec_throttle_hits(throttle, device_of(probe, probe->from_worker), device_of(probe, probe->to_worker),
                         probe->step))
    exec_throttle_sleep(throttle);
}

/* Those of the workers. */
static dp_status find_gpus(const exec_probe *probe, exec_probe_copy *copy, dp_error *error) {
  const int gpus = exec_device_cuda_count();
  exec_place *places = calloc((size_t)probe->program->worker_count, sizeof *places);
  if (!places) return dp_fail_memory(error);
  exec_place_workers(probe->program, probe->cluster, gpus > 0 ? gpus : 1, places);
  copy->from_gpu = places[probe->from_worker].gpu;
  copy->to_gpu = places[probe->to_worker].gpu;
  free(places);
  return DP_OK;
}

/* In this process. */
static dp_status probe_here(const exec_probe *probe, const exec_throttle *throttle, size_t bytes, double *seconds,
                            dp_error *error) {
  const exec_device_kind *kind = probe->cuda ? &exec_device_cuda : &exec_device_cpu;
  exec_probe_copy copy = {.staged = probe->way == PLAN_TRANSPORT_HOST, .bytes = bytes};
  if (probe->cuda) DP_TRY(find_gpus(probe, &copy, error));
  DP_TRY(kind->probe(&copy, seconds, error));
  const double from_s = dp_clock_s();
  throttle_message(probe, throttle);
  if (throttle->more_s > 0) *seconds += dp_clock_s() - from_s;
  return DP_OK;
}

/* To another process, or from it. */
static dp_status probe_between(const exec_probe *probe, const exec_throttle *throttle, size_t bytes, char *buffer,
                               double *seconds, dp_error *error) {
  exec_transport *t = probe->transport;
  char token = 0;
  *seconds = HUGE_VAL;
  for (int i = 0; i <= EXEC_PROBES; i++) { /* the first is not timed */
    if (exec_process(t) == probe->to_process) {
      DP_TRY(t->receive(t, probe->from_process, EXEC_TAG_PROBE, buffer, bytes, NULL, error));
      DP_TRY(t->send(t, probe->from_process, EXEC_TAG_PROBE, &token, 1, NULL, error));
      continue;
    }
    const double from_s = dp_clock_s();
    throttle_message(probe, throttle);
    DP_TRY(t->send(t, probe->to_process, EXEC_TAG_PROBE, buffer, bytes, NULL, error));
    DP_TRY(t->receive(t, probe->to_process, EXEC_TAG_PROBE, &token, 1, NULL, error));
    if (i > 0) *seconds = fmin(*seconds, dp_clock_s() - from_s);
  }
  return DP_OK;
}

static dp_status probe_alone(const exec_probe *probe, size_t bytes, double *seconds, dp_error *error) {
  exec_throttle throttle;
  DP_TRY(exec_throttle_read(&throttle, error));
  return probe_here(probe, &throttle, bytes, seconds, error);
}

static dp_status probe_together(const exec_probe *probe, size_t bytes, double *seconds, dp_error *error) {
  exec_transport *t = probe->transport;
  const int self = exec_process(t), from = probe->from_process, to = probe->to_process;
  const bool within = from == to, takes_part = self == from || self == to;
  exec_throttle throttle;
  char *buffer = takes_part && !within ? calloc(bytes, 1) : NULL;
  dp_status status = takes_part && !within && !buffer ? dp_fail_memory(error) : exec_throttle_read(&throttle, error);
  *seconds = 0;
  status = exec_agree(t, status, error);
  if (status == DP_OK && takes_part)
    status = within ? probe_here(probe, &throttle, bytes, seconds, error)
                    : probe_between(probe, &throttle, bytes, buffer, seconds, error);
  free(buffer);
  DP_TRY(exec_agree(t, status, error));
  return exec_broadcast_from(t, from, seconds, sizeof *seconds, error);
}

dp_status exec_probe_link(const exec_probe *probe, double *seconds, dp_error *error) {
  size_t bytes = (size_t)EXEC_PROBE_BYTES;
  if (probe->bytes < EXEC_PROBE_BYTES) bytes = probe->bytes > 0 ? (size_t)probe->bytes : 1;
  return exec_process_count(probe->transport) == 1 ? probe_alone(probe, bytes, seconds, error)
                                                   : probe_together(probe, bytes, seconds, error);
}
