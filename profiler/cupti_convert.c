#define _GNU_SOURCE /* strnlen */
#include "profiler/cupti_convert.h"

#include <cupti.h>
#include <stdlib.h>
#include <string.h>

static void add(prof_cupti *cupti, prof_record *record, uint64_t start_ns, uint64_t end_ns) {
  if (start_ns == 0 || end_ns < start_ns || end_ns > INT64_MAX / 4) {
    prof_writer_lost(cupti->writer, 1);
    return;
  }
  record->start_ns = (int64_t)start_ns;
  record->end_ns = (int64_t)end_ns;
  (void)prof_writer_add(cupti->writer, record);
}

static uint16_t device_of(uint32_t device) { return device < PROF_NO_DEVICE ? (uint16_t)device : PROF_NO_DEVICE - 1; }

/* What kernels, copies and memsets tell alike, in records of different types. */
#define WORK_OF(r)                                                                                \
  .device = device_of((r)->deviceId), .stream = (r)->streamId, .correlation = (r)->correlationId, \
  .graph = (uint32_t)(r)->graphNodeId, .thread = (uint32_t)((r)->graphNodeId >> 32)

static uint32_t positive(int32_t value) { return value > 0 ? (uint32_t)value : 0; }

static void take_kernel(prof_cupti *cupti, const CUpti_ActivityKernel10 *k) {
  const uint64_t threads = (uint64_t)positive(k->blockX) * positive(k->blockY) * positive(k->blockZ);
  prof_record record = {.kind = PROF_KERNEL,
                        .name = prof_writer_string(cupti->writer, k->name),
                        WORK_OF(k),
                        .grid = {positive(k->gridX), positive(k->gridY), positive(k->gridZ)},
                        .block_threads = (uint16_t)(threads < UINT16_MAX ? threads : UINT16_MAX)};
  add(cupti, &record, k->start, k->end);
}

static prof_copy copy_of(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return PROF_COPY_TO_DEVICE;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return PROF_COPY_TO_HOST;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOA:
      return PROF_COPY_ON_DEVICE;
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return PROF_COPY_PEER;
    default:
      return PROF_COPY_OTHER;
  }
}

static void take_copy(prof_cupti *cupti, const CUpti_ActivityMemcpy6 *m) {
  prof_record record = {.kind = PROF_COPY, .detail = (uint8_t)copy_of(m->copyKind), WORK_OF(m), .value = m->bytes};
  add(cupti, &record, m->start, m->end);
}

static void take_peer_copy(prof_cupti *cupti, const CUpti_ActivityMemcpyPtoP4 *m) {
  prof_record record = {.kind = PROF_COPY, .detail = PROF_COPY_PEER, WORK_OF(m), .value = m->bytes};
  add(cupti, &record, m->start, m->end);
}

static void take_memset(prof_cupti *cupti, const CUpti_ActivityMemset4 *m) {
  prof_record record = {.kind = PROF_MEMSET, WORK_OF(m), .value = m->bytes};
  add(cupti, &record, m->start, m->end);
}

static void take_graph(prof_cupti *cupti, const CUpti_ActivityGraphTrace2 *g) {
  prof_record record = {.kind = PROF_GRAPH,
                        .device = device_of(g->deviceId),
                        .stream = g->streamId,
                        .correlation = g->correlationId,
                        .value = g->graphId};
  add(cupti, &record, g->start, g->end);
}

/* "cudaLaunchKernel_v7000" says since when; "cuMemAlloc_v2" is the function's own name. */
static uint32_t put_call_name(prof_cupti *cupti, const char *name) {
  char bare[128];
  const size_t length = strnlen(name, sizeof bare - 1);
  size_t digits = length;
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') digits--;
  const bool dated = length - digits >= 4 && digits > 2 && name[digits - 1] == 'v' && name[digits - 2] == '_';
  const size_t kept = dated ? digits - 2 : length;
  memcpy(bare, name, kept);
  bare[kept] = 0;
  return prof_writer_string(cupti->writer, bare);
}

static void take_call(prof_cupti *cupti, const CUpti_ActivityAPI *a, bool runtime) {
  const uint32_t id = a->cbid < PROF_CUPTI_CALLS ? a->cbid : 0;
  if (cupti->names[runtime][id] == 0) {
    const char *name = cupti->call_name(runtime, id);
    cupti->names[runtime][id] = put_call_name(cupti, name ? name : runtime ? "(runtime)" : "(driver)");
    cupti->waits[runtime][id] = name && strstr(name, "Synchronize");
  }
  prof_record record = {.kind = cupti->waits[runtime][id] ? PROF_SYNC : PROF_CALL,
                        .device = PROF_NO_DEVICE,
                        .name = cupti->names[runtime][id],
                        .thread = a->threadId,
                        .correlation = a->correlationId};
  add(cupti, &record, a->start, a->end);
}

static void take_memory(prof_cupti *cupti, const CUpti_ActivityMemory4 *m) {
  const bool of_device = m->memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE ||
                         m->memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_ARRAY ||
                         m->memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_MANAGED ||
                         m->memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC ||
                         m->memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC;
  const bool allocates = m->memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  if (!of_device || (!allocates && m->memoryOperationType != CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE)) return;
  prof_record record = {.kind = allocates ? PROF_ALLOCATE : PROF_FREE,
                        .device = device_of(m->deviceId),
                        .stream = m->isAsync ? m->streamId : 0,
                        .correlation = m->correlationId,
                        .value = m->bytes};
  add(cupti, &record, m->timestamp, m->timestamp);
}

/* CUPTI's own is what recording takes; the driver's is part of the call that had to wait for it. */
static const struct {
  CUpti_ActivityOverheadKind kind;
  const char *name;
  prof_kind becomes;
} overheads[] = {{CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH, "CUPTI: flush", PROF_OVERHEAD},
                 {CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION, "CUPTI: instrumentation", PROF_OVERHEAD},
                 {CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE, "CUPTI: resources", PROF_OVERHEAD},
                 {CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST, "CUPTI: buffer", PROF_OVERHEAD},
                 {CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER, "compiler of the driver", PROF_CALL},
                 {CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING, "loading of modules", PROF_CALL},
                 {CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING, "loading of functions", PROF_CALL},
                 {CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL, "command buffer is full", PROF_CALL}};

static void take_overhead(prof_cupti *cupti, const CUpti_ActivityOverhead3 *o) {
  const size_t count = sizeof overheads / sizeof overheads[0];
  size_t row = 0;
  free(o->overheadData);
  while (row < count && overheads[row].kind != o->overheadKind) row++;
  if (row == count) return;
  prof_record record = {.kind = (uint8_t)overheads[row].becomes,
                        .device = PROF_NO_DEVICE,
                        .name = prof_writer_string(cupti->writer, overheads[row].name),
                        .thread = o->objectKind == CUPTI_ACTIVITY_OBJECT_THREAD ? o->objectId.pt.threadId : 0};
  add(cupti, &record, o->start, o->end);
}

static void take_device(prof_cupti *cupti, const CUpti_ActivityDevice5 *d) {
  if (d->id < PROF_MAX_DEVICES)
    prof_writer_device(cupti->writer, (uint16_t)d->id, d->name, d->numMultiprocessors, d->globalMemorySize);
}

void prof_cupti_take(prof_cupti *cupti, const void *record) {
  switch (((const CUpti_Activity *)record)->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      take_kernel(cupti, record);
      break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      take_copy(cupti, record);
      break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      take_peer_copy(cupti, record);
      break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      take_memset(cupti, record);
      break;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      take_graph(cupti, record);
      break;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
      take_call(cupti, record, true);
      break;
    case CUPTI_ACTIVITY_KIND_DRIVER:
      take_call(cupti, record, false);
      break;
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      take_memory(cupti, record);
      break;
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      take_overhead(cupti, record);
      break;
    case CUPTI_ACTIVITY_KIND_DEVICE:
      take_device(cupti, record);
      break;
    default:
      break;
  }
}

static bool begins(const char *name, const char *const *with) {
  for (; *with; with++)
    if (strncmp(name, *with, strlen(*with)) == 0) return true;
  return false;
}

bool prof_cupti_wants(bool runtime, const char *name) {
  static const char *const at_once[] = {"cudaGet",
                                        "cudaSetDevice",
                                        "cudaPeek",
                                        "cudaEventCreate",
                                        "cudaEventDestroy",
                                        "cudaEventQuery",
                                        "cudaEventRecord",
                                        "cudaEventElapsedTime",
                                        "cudaStreamGet",
                                        "cudaStreamIsCapturing",
                                        "cudaStreamQuery",
                                        "cudaStreamWaitEvent",
                                        "cudaDeviceGet",
                                        "cudaDriverGetVersion",
                                        "cudaRuntimeGetVersion",
                                        "cudaFuncGet",
                                        "cudaFuncSet",
                                        "cudaOccupancy",
                                        "cudaPointerGet",
                                        "cudaThreadExchange",
                                        "__cudaPushCallConfiguration",
                                        "__cudaPopCallConfiguration",
                                        NULL};
  static const char *const works[] = {"cuLaunch",   "cuGraphLaunch", "cuMemcpy",      "cuMemset",
                                      "cuMemAlloc", "cuMemFree",     "cuMemPrefetch", NULL};
  return runtime ? !begins(name, at_once) : begins(name, works) || strstr(name, "Synchronize") != NULL;
}
