#include "exec/probe.h"

#include "base/clock.h"
#include "exec/device.h"
#include "exec/throttle.h"

/* A card of the machine. */
static int gpu_of(const plan_cluster *cluster, int device) {
  const int gpus = exec_device_cuda_count(), card = cluster->devices.items[device].card;
  return gpus > 0 ? card % gpus : 0;
}

dp_status exec_probe_link(const exec_probe *probe, double *seconds, dp_error *error) {
  const exec_device_kind *kind = probe->cuda ? &exec_device_cuda : &exec_device_cpu;
  exec_probe_copy copy = {.staged = probe->way == PLAN_TRANSPORT_HOST, .bytes = (size_t)EXEC_PROBE_BYTES};
  exec_throttle throttle;
  DP_TRY(exec_throttle_read(&throttle, error));
  if (probe->bytes < EXEC_PROBE_BYTES) copy.bytes = probe->bytes > 0 ? (size_t)probe->bytes : 1;
  if (probe->cuda) {
    copy.from_gpu = gpu_of(probe->cluster, probe->from_device);
    copy.to_gpu = gpu_of(probe->cluster, probe->to_device);
  }
  DP_TRY(kind->probe(&copy, seconds, error));
  if (!exec_throttle_hits(&throttle, probe->from_device, probe->to_device, probe->step)) return DP_OK;
  const double from_s = dp_clock_s();
  exec_throttle_sleep(&throttle);
  *seconds += dp_clock_s() - from_s;
  return DP_OK;
}
