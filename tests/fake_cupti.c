/* CUPTI's activity API without a device, as a library named libcupti.so.13: a program asks for work by fake_step and
 * the records of it come as CUPTI brings them, through buffers that are asked for and given back. Loaded by
 * tests/traced.sh. Calls are those of the thread that asks.
 *
 * FAKE_CUPTI=busy: another tool has it. forbidden: kernels are. old: an older version. held: no buffer is complete
 * before it is full, but by a forced flush. lost: the kernels of each step have no time, and 3 records were dropped.
 * As CUPTI 13.0 does, it gives kernels of graphs wrong ends that it did not bring before their kind was switched off:
 * those of the last step, or (late, which is held, too) all.
 */
#define _GNU_SOURCE
#include <cupti.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LAUNCH = 211, GRAPH = 311, COPY = 41, SET = 51, WAIT = 131, ALLOCATE = 20, QUERY = 12, DRIVER_LAUNCH = 307 };

void fake_step(int graph);
void fake_node(int node, int copy);

static struct {
  pthread_mutex_t lock;
  CUpti_BuffersCallbackRequestFunc request;
  CUpti_BuffersCallbackCompleteFunc complete;
  CUpti_TimestampCallbackFunc clock;
  uint8_t *bytes;
  size_t size, used, records, most, dropped;
  bool enabled[64], denied[1024], driver_call[1024];
  uint32_t correlation;
  int steps;
  CUpti_CallbackFunc told; /* of resources */
  uint32_t off;            /* of graphs' correlations, once kernels were off: as CUPTI 13.0 has it */
  size_t last;             /* bytes of the buffer before those of the last step */
  bool wanted[64];
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static char fake_node_bytes[0x300]; /* nobody reads what a node points to */

static bool is(const char *how) {
  const char *set = getenv("FAKE_CUPTI");
  return set && strcmp(set, how) == 0;
}

CUptiResult cuptiGetVersion(uint32_t *version) {
  *version = is("old") ? 28 : CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
  *text = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? "MULTIPLE_SUBSCRIBERS" : "INSUFFICIENT_PRIVILEGES";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char **name) {
  *name = NULL;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
    if (id == DRIVER_LAUNCH) *name = "cuLaunchKernel";
  } else {
    *name = id == LAUNCH     ? "cudaLaunchKernel_v7000"
            : id == GRAPH    ? "cudaGraphLaunch_v10000"
            : id == COPY     ? "cudaMemcpyAsync_v3020"
            : id == SET      ? "cudaMemsetAsync_v3020"
            : id == WAIT     ? "cudaStreamSynchronize_v3020"
            : id == ALLOCATE ? "cudaMalloc_v3020"
            : id == QUERY    ? "cudaGetDevice_v3020"
                             : NULL;
  }
  return *name ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (is("forbidden") && kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  fake.enabled[kind] = true;
  if (kind == CUPTI_ACTIVITY_KIND_RUNTIME) memset(fake.denied, 0, sizeof fake.denied); /* it overrides them */
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t enable) {
  fake.denied[id] = !enable;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t enable) {
  fake.driver_call[id] = enable;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  if (is("busy")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  fake.request = request;
  fake.complete = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
  fake.clock = clock;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t *size, void *value) {
  (void)attribute;
  (void)size;
  (void)value;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
  (void)type;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped) {
  (void)context;
  (void)stream;
  (void)pthread_mutex_lock(&fake.lock);
  *dropped = fake.dropped;
  fake.dropped = 0;
  (void)pthread_mutex_unlock(&fake.lock);
  return CUPTI_SUCCESS;
}

static size_t size_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return sizeof(CUpti_ActivityMemory4);
    case CUPTI_ACTIVITY_KIND_DEVICE:
      return sizeof(CUpti_ActivityDevice5);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return sizeof(CUpti_ActivityOverhead3);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return sizeof(CUpti_ActivityAPI);
    default:
      abort(); /* never written */
  }
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *bytes, size_t valid, CUpti_Activity **record) {
  uint8_t *next = *record ? (uint8_t *)*record + size_of((*record)->kind) : bytes;
  if (next >= bytes + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = (CUpti_Activity *)(void *)next;
  return CUPTI_SUCCESS;
}

/* The ends of kernels of graphs in the buffer become those of a launch three steps later. */
static void spoil(void) {
  CUpti_Activity *record = NULL;
  while (fake.bytes && cuptiActivityGetNextRecord(fake.bytes, fake.used, &record) == CUPTI_SUCCESS) {
    CUpti_ActivityKernel10 *kernel = (CUpti_ActivityKernel10 *)(void *)record;
    const bool is_late = is("late") || (size_t)((uint8_t *)record - fake.bytes) >= fake.last;
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && kernel->graphNodeId && is_late)
      kernel->end += 261000000;
  }
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  (void)pthread_mutex_lock(&fake.lock);
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && fake.enabled[kind]) spoil();
  fake.enabled[kind] = false;
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) fake.off = 1000000;
  (void)pthread_mutex_unlock(&fake.lock);
  return CUPTI_SUCCESS;
}

/* With the lock, as CUPTI calls with locks of its own. */
static void complete(void) {
  if (!fake.bytes) return;
  fake.complete(NULL, 0, fake.bytes, fake.size, fake.used);
  fake.bytes = NULL;
  fake.used = fake.records = fake.last = 0;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  (void)pthread_mutex_lock(&fake.lock);
  if (flag || !(is("held") || is("late"))) complete();
  (void)pthread_mutex_unlock(&fake.lock);
  return CUPTI_SUCCESS;
}

static void add(const void *record, CUpti_ActivityKind kind) {
  const size_t bytes = size_of(kind);
  const bool of_driver = kind == CUPTI_ACTIVITY_KIND_DRIVER;
  if (of_driver ? !fake.driver_call[((const CUpti_ActivityAPI *)record)->cbid] : !fake.enabled[kind]) return;
  if (kind == CUPTI_ACTIVITY_KIND_RUNTIME && fake.denied[((const CUpti_ActivityAPI *)record)->cbid]) return;
  if (fake.bytes && (fake.size - fake.used < bytes || (fake.most && fake.records == fake.most))) complete();
  if (!fake.bytes) fake.request(&fake.bytes, &fake.size, &fake.most);
  if (!fake.bytes) {
    fake.dropped++;
    return;
  }
  for (size_t i = 0; i < bytes; i++)
    if (fake.bytes[fake.used + i]) abort(); /* it was said that they are zeroed */
  memcpy(fake.bytes + fake.used, record, bytes);
  fake.used += bytes;
  fake.records++;
}

static uint64_t now;

static void call(CUpti_ActivityKind kind, uint32_t id) {
  const CUpti_ActivityAPI a = {.kind = kind,
                               .cbid = id,
                               .start = now,
                               .end = now + 2000,
                               .threadId = (uint32_t)syscall(SYS_gettid),
                               .correlationId = fake.correlation};
  add(&a, kind);
}

/* Alone: by a call of its own, or none where it is a node. */
static void kernel(const char *name, int grid, uint64_t node, bool alone) {
  fake.correlation += alone;
  if (node == 0) call(CUPTI_ACTIVITY_KIND_RUNTIME, LAUNCH);
  const CUpti_ActivityKernel10 k = {.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                    .start = is("lost") ? 0 : now + 3000,
                                    .end = is("lost") ? 0 : now + 53000,
                                    .deviceId = 0,
                                    .streamId = 7,
                                    .gridX = grid,
                                    .gridY = 1,
                                    .gridZ = 1,
                                    .blockX = 128,
                                    .blockY = 2,
                                    .blockZ = 1,
                                    .correlationId = fake.correlation + (node ? fake.off : 0),
                                    .graphNodeId = node,
                                    .name = name};
  add(&k, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  now += 55000;
}

static void first(void) {
  const CUpti_ActivityDevice5 d = {.kind = CUPTI_ACTIVITY_KIND_DEVICE,
                                   .globalMemorySize = 150000000000u,
                                   .numMultiprocessors = 132,
                                   .id = 0,
                                   .name = "NVIDIA H200"};
  add(&d, CUPTI_ACTIVITY_KIND_DEVICE);
  fake.correlation++;
  call(CUPTI_ACTIVITY_KIND_RUNTIME, ALLOCATE);
  const CUpti_ActivityMemory4 m = {.kind = CUPTI_ACTIVITY_KIND_MEMORY2,
                                   .memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION,
                                   .memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
                                   .correlationId = fake.correlation,
                                   .bytes = 2000000000,
                                   .timestamp = now};
  add(&m, CUPTI_ACTIVITY_KIND_MEMORY2);
  const CUpti_ActivityOverhead3 o = {.kind = CUPTI_ACTIVITY_KIND_OVERHEAD,
                                     .overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION,
                                     .objectKind = CUPTI_ACTIVITY_OBJECT_THREAD,
                                     .objectId.pt.threadId = 77,
                                     .start = now,
                                     .end = now + 250000};
  add(&o, CUPTI_ACTIVITY_KIND_OVERHEAD);
  fake.dropped += is("lost") ? 3 : 0;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *data) {
  (void)data;
  if (is("busy")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  *subscriber = NULL;
  fake.told = callback;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  (void)subscriber;
  fake.told = NULL;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId what) {
  (void)subscriber;
  if (domain == CUPTI_CB_DOMAIN_RESOURCE) fake.wanted[what] = enable;
  return CUPTI_SUCCESS;
}

/* Of nodes 1, 2, ... as they are captured, and of their copies, those of the steps' kernels. */
enum { CAPTURED = 0x100, COPIED = 0x200 };
static CUgraphNode pointer(int at) { return (CUgraphNode)(void *)(fake_node_bytes + at); }
CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id) {
  const ptrdiff_t at = (const char *)(const void *)node - fake_node_bytes;
  *id = at < COPIED ? 0x400000000u + (uint64_t)(at - CAPTURED) : 0x500000010u + (uint64_t)(at - COPIED);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphExecId(CUgraphExec graph, uint32_t *id) {
  (void)graph;
  *id = 5;
  return CUPTI_SUCCESS;
}

void fake_node(int node, int copy) {
  CUpti_GraphData graph = {.node = pointer(copy ? COPIED + node : CAPTURED + node)};
  const CUpti_ResourceData resource = {.resourceDescriptor = &graph};
  const CUpti_CallbackId what = copy ? CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED : CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED;
  if (copy) graph.originalNode = pointer(CAPTURED + node);
  if (fake.told && fake.wanted[what]) fake.told(NULL, CUPTI_CB_DOMAIN_RESOURCE, what, &resource);
}

/* A copy, a memset, three kernels and the optimizer's: 6 pieces of work, 6 calls, a driver's call below one of them, a
 * wait, and a query that is not wanted. With `graph` the three kernels are nodes of a graph, which no call launched, or
 * (2) one did. */
void fake_step(int graph) {
  (void)pthread_mutex_lock(&fake.lock);
  const uint64_t clock = fake.clock ? fake.clock() : 0;
  if (clock > now) now = clock; /* steps never overlap */
  if (fake.steps++ == 0) first();
  fake.last = fake.used;
  fake.correlation++;
  call(CUPTI_ACTIVITY_KIND_RUNTIME, QUERY);
  call(CUPTI_ACTIVITY_KIND_RUNTIME, COPY);
  const CUpti_ActivityMemcpy6 c = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY,
                                   .copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD,
                                   .bytes = 1000,
                                   .start = now + 3000,
                                   .end = now + 4000,
                                   .streamId = 7,
                                   .correlationId = fake.correlation};
  add(&c, CUPTI_ACTIVITY_KIND_MEMCPY);
  now += 5000;
  fake.correlation++;
  call(CUPTI_ACTIVITY_KIND_RUNTIME, SET);
  const CUpti_ActivityMemset4 s = {.kind = CUPTI_ACTIVITY_KIND_MEMSET,
                                   .bytes = 64,
                                   .start = now + 3000,
                                   .end = now + 4000,
                                   .streamId = 7,
                                   .correlationId = fake.correlation};
  add(&s, CUPTI_ACTIVITY_KIND_MEMSET);
  now += 5000;
  fake.correlation++;
  if (graph == 2) call(CUPTI_ACTIVITY_KIND_RUNTIME, GRAPH);
  kernel("nvjet_sm90_tst_128x160", 16, graph ? 0x500000011u : 0, graph != 2);
  kernel("vectorized_layer_norm_kernel", 17, graph ? 0x500000012u : 0, graph != 2);
  kernel("pytorch_flash::flash_fwd_kernel", 18, graph ? 0x500000013u : 0, graph != 2);
  kernel("multi_tensor_apply_kernel<FusedAdamMathFunctor>", 19, 0, true);
  call(CUPTI_ACTIVITY_KIND_DRIVER, DRIVER_LAUNCH);
  fake.correlation++;
  call(CUPTI_ACTIVITY_KIND_RUNTIME, WAIT);
  (void)pthread_mutex_unlock(&fake.lock);
}
