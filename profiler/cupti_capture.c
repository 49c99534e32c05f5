#define _GNU_SOURCE /* RTLD_NOLOAD */
#include "profiler/cupti_capture.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/cupti_convert.h"
#include "profiler/process.h"

/* ---- the functions of CUPTI: type of the pointer is that of the header; an optional one may be missing ---- */

#define NEEDED(F)                           \
  F(cuptiGetVersion)                        \
  F(cuptiGetResultString)                   \
  F(cuptiGetCallbackName)                   \
  F(cuptiActivityEnable)                    \
  F(cuptiActivityDisable)                   \
  F(cuptiActivityRegisterCallbacks)         \
  F(cuptiActivityRegisterTimestampCallback) \
  F(cuptiActivityGetNextRecord)             \
  F(cuptiActivityGetNumDroppedRecords)      \
  F(cuptiActivityFlushAll)                  \
  F(cuptiActivitySetAttribute)              \
  F(cuptiSetThreadIdType)
#define OPTIONAL(F)                \
  F(cuptiActivityEnableDriverApi)  \
  F(cuptiActivityEnableRuntimeApi) \
  F(cuptiSubscribe)                \
  F(cuptiUnsubscribe)              \
  F(cuptiEnableCallback)           \
  F(cuptiGetGraphNodeId)           \
  F(cuptiGetGraphExecId)

#define POINTER(name) __typeof__(&name) name;
static struct {
  NEEDED(POINTER)
  OPTIONAL(POINTER)
} cupti;
#undef POINTER

static const char *const library_name = "libcupti.so.13"; /* whose records profiler/cupti_convert.h knows */
enum { LEAST_VERSION = 130000, LEAST_RECORDS = 512, FIRST_RECORDS = 1024 };

/* The one that the program has loaded, as PyTorch brings its own; else the system's; else that of the toolkit. */
static void *find_library(void) {
  static const char *const places[] = {
#ifdef DP_CUPTI_LIBDIR
      DP_CUPTI_LIBDIR "/libcupti.so.13",
#endif
#ifdef DP_CUDA_LIBDIR
      DP_CUDA_LIBDIR "/libcupti.so.13",
#endif
      "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13", "/usr/local/cuda/lib64/libcupti.so.13"};
  void *library = dlopen(library_name, RTLD_NOW | RTLD_NOLOAD);
  if (!library) library = dlopen(library_name, RTLD_NOW);
  for (size_t i = 0; !library && i < sizeof places / sizeof places[0]; i++) library = dlopen(places[i], RTLD_NOW);
  return library;
}

static dp_status load(dp_error *error) {
  void *library = find_library();
  const char *missing = NULL;
  if (!library) return dp_fail(error, DP_UNSUPPORTED, "%s was not found", library_name);
    /* object pointers become function pointers as POSIX has it: through memory */
#define LOOK_UP(name)                          \
  {                                            \
    void *const found = dlsym(library, #name); \
    memcpy(&cupti.name, &found, sizeof found); \
    if (!found && !missing) missing = #name;   \
  }
  OPTIONAL(LOOK_UP)
  missing = NULL;
  NEEDED(LOOK_UP)
#undef LOOK_UP
  if (missing) return dp_fail(error, DP_UNSUPPORTED, "%s has no %s", library_name, missing);
  uint32_t version = 0;
  if (cupti.cuptiGetVersion(&version) != CUPTI_SUCCESS || version < LEAST_VERSION)
    return dp_fail(error, DP_UNSUPPORTED, "%s is of version %u, allowed: %d and later", library_name, version,
                   LEAST_VERSION);
  return DP_OK;
}

static dp_status refused(CUptiResult result, const char *what, dp_error *error) {
  const char *text = NULL;
  if (cupti.cuptiGetResultString(result, &text) != CUPTI_SUCCESS || !text) text = "unknown";
  const char *hint = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? " (another tool uses CUPTI)"
                     : result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES          ? " (the driver forbids it to this user)"
                                                                              : "";
  return dp_fail(error, DP_UNSUPPORTED, "CUPTI: %s: %s%s", what, text, hint);
}

#define CUPTI_TRY(call, what)                                             \
  do {                                                                    \
    const CUptiResult result_ = (call);                                   \
    if (result_ != CUPTI_SUCCESS) return refused(result_, (what), error); \
  } while (0)

/* ---- buffers ---- */

typedef struct buffer {
  uint8_t *bytes;
  size_t valid;
  struct buffer *next;
} buffer;

static struct {
  pthread_mutex_t calm; /* while CUPTI flushes, or kinds are switched: one after the other; taken before `lock` */
  pthread_mutex_t lock;
  buffer items[PROF_CUPTI_BUFFERS]; /* made: those before `made` */
  int made;
  buffer *idle;          /* zeroed */
  buffer *first, **last; /* done, in their order */
  bool started;          /* in this process: CUPTI may be called */
  bool whole_graphs;
  bool off;       /* work is not recorded at present */
  size_t most;    /* records of a buffer, where its bytes hold more */
  uint64_t taken; /* records since the last flush; of the pump alone */
  prof_cupti convert;
} capture = {.calm = PTHREAD_MUTEX_INITIALIZER,
             .lock = PTHREAD_MUTEX_INITIALIZER,
             .last = &capture.first,
             .most = FIRST_RECORDS};

/* With `lock`. Whole pages, so that what is never used takes no memory; zeroed, as CUPTI was told. */
static buffer *take_idle(void) {
  buffer *b = capture.idle;
  if (b) {
    capture.idle = b->next;
  } else if (capture.made < PROF_CUPTI_BUFFERS) {
    void *const bytes = calloc(1, PROF_CUPTI_BUFFER_BYTES);
    if (!bytes) return NULL;
    b = &capture.items[capture.made++];
    b->bytes = bytes;
  }
  return b;
}

static void CUPTIAPI on_request(uint8_t **bytes, size_t *size, size_t *records) {
  (void)pthread_mutex_lock(&capture.lock);
  buffer *b = take_idle();
  *records = capture.most;
  (void)pthread_mutex_unlock(&capture.lock);
  *bytes = b ? b->bytes : NULL;
  *size = b ? PROF_CUPTI_BUFFER_BYTES : 0;
}

static void CUPTIAPI on_complete(CUcontext context, uint32_t stream, uint8_t *bytes, size_t size, size_t valid) {
  (void)context;
  (void)stream;
  (void)pthread_mutex_lock(&capture.lock);
  for (int i = 0; i < capture.made; i++) {
    buffer *b = &capture.items[i];
    if (b->bytes != bytes) continue;
    b->valid = valid < size ? valid : size;
    b->next = NULL;
    *capture.last = b;
    capture.last = &b->next;
    break;
  }
  (void)pthread_mutex_unlock(&capture.lock);
}

static buffer *take_done(void) {
  (void)pthread_mutex_lock(&capture.lock);
  buffer *b = capture.first;
  if (b) capture.first = b->next;
  if (!capture.first) capture.last = &capture.first;
  (void)pthread_mutex_unlock(&capture.lock);
  return b;
}

static void give_back(buffer *b) {
  memset(b->bytes, 0, PROF_CUPTI_BUFFER_BYTES); /* here, since CUPTI would do it on the program's thread */
  (void)pthread_mutex_lock(&capture.lock);
  b->next = capture.idle;
  capture.idle = b;
  (void)pthread_mutex_unlock(&capture.lock);
}

/* ---- start, pump, finish ---- */

static uint64_t CUPTIAPI timestamp(void) { return (uint64_t)prof_process_now_ns(); }

static const char *call_name(bool runtime, uint32_t id) {
  const char *name = NULL;
  const CUpti_CallbackDomain domain = runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API;
  return cupti.cuptiGetCallbackName(domain, id, &name) == CUPTI_SUCCESS ? name : NULL;
}

/* What cannot be set keeps CUPTI's default: these save time or bound memory of the device (of 800 MB by default). */
static void set_attributes(void) {
  uint8_t zeroed = 1;
  size_t size = sizeof zeroed, most = 32;
  (void)cupti.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &zeroed);
  size = sizeof most;
  (void)cupti.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &size, &most);
}

/* Which calls are not wanted of the runtime, and which are of the driver: the numbers of their functions. */
static struct { bool known, denied[PROF_CUPTI_CALLS], wanted[PROF_CUPTI_CALLS]; } calls;

static void know_calls(void) {
  for (uint32_t id = 1; id < PROF_CUPTI_CALLS && !calls.known; id++) {
    const char *runtime = call_name(true, id), *driver = call_name(false, id);
    calls.denied[id] = runtime && !prof_cupti_wants(true, runtime);
    calls.wanted[id] = driver && prof_cupti_wants(false, driver);
  }
  calls.known = true;
}

static bool can_choose(void) { return cupti.cuptiActivityEnableRuntimeApi && cupti.cuptiActivityEnableDriverApi; }

/* All calls of the runtime, then without those that are not wanted: in this order, since the kind overrides what was
 * said of single ones. Of the driver only those that are, where this CUPTI can choose, else all. */
static dp_status enable_calls(dp_error *error) {
  CUPTI_TRY(cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME), "calls of the runtime");
  if (!can_choose()) {
    CUPTI_TRY(cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DRIVER), "calls of the driver");
    return DP_OK;
  }
  know_calls();
  for (uint32_t id = 1; id < PROF_CUPTI_CALLS; id++) {
    if (calls.denied[id]) (void)cupti.cuptiActivityEnableRuntimeApi(id, 0);
    if (calls.wanted[id]) (void)cupti.cuptiActivityEnableDriverApi(id, 1);
  }
  return DP_OK;
}

static void disable_calls(void) {
  (void)cupti.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_RUNTIME);
  if (!can_choose()) (void)cupti.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_DRIVER);
  for (uint32_t id = 1; id < PROF_CUPTI_CALLS && can_choose(); id++)
    if (calls.wanted[id]) (void)cupti.cuptiActivityEnableDriverApi(id, 0);
}

static const struct {
  CUpti_ActivityKind kind;
  const char *what;
  bool needed, work; /* work: it is switched off where nothing is to be recorded for a while */
} kinds[] = {{CUPTI_ACTIVITY_KIND_DEVICE, "devices", false, false},
             {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "kernels", true, true},
             {CUPTI_ACTIVITY_KIND_MEMCPY, "copies", true, true},
             {CUPTI_ACTIVITY_KIND_MEMCPY2, "copies between devices", false, true},
             {CUPTI_ACTIVITY_KIND_MEMSET, "memsets", true, true},
             {CUPTI_ACTIVITY_KIND_MEMORY2, "memory", false, false},
             {CUPTI_ACTIVITY_KIND_OVERHEAD, "overhead", false, false}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static dp_status enable(bool again, bool whole_graphs, dp_error *error) {
  for (size_t i = 0; i < KINDS; i++) {
    if (again && !kinds[i].work) continue;
    const CUptiResult result = cupti.cuptiActivityEnable(kinds[i].kind);
    if (result != CUPTI_SUCCESS && kinds[i].needed) return refused(result, kinds[i].what, error);
  }
  if (whole_graphs) CUPTI_TRY(cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), "graphs as a whole");
  return enable_calls(error);
}

static void disable(bool whole_graphs) {
  for (size_t i = 0; i < KINDS; i++)
    if (kinds[i].work) (void)cupti.cuptiActivityDisable(kinds[i].kind);
  if (whole_graphs) (void)cupti.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  disable_calls();
}

/* ---- nodes of graphs ---- */

static struct {
  prof_capture_node note;
  void *data;
  CUpti_SubscriberHandle subscriber;
  bool works; /* CUPTI calls on_node for it */
} nodes;

void prof_capture_follow(prof_capture_node note, void *data) {
  nodes.note = note;
  nodes.data = data;
}

uint32_t prof_capture_graph(void *graph) {
  uint32_t id = 0;
  const bool knows = graph && cupti.cuptiGetGraphExecId;
  return knows && cupti.cuptiGetGraphExecId((CUgraphExec)graph, &id) == CUPTI_SUCCESS ? id : 0;
}

static uint64_t id_of(CUgraphNode node) {
  uint64_t id = 0;
  return node && cupti.cuptiGetGraphNodeId(node, &id) == CUPTI_SUCCESS ? id : 0;
}

static void CUPTIAPI on_node(void *data, CUpti_CallbackDomain domain, CUpti_CallbackId what, const void *told) {
  (void)data;
  if (domain != CUPTI_CB_DOMAIN_RESOURCE || !told) return;
  const CUpti_GraphData *graph = ((const CUpti_ResourceData *)told)->resourceDescriptor;
  if (!graph || (what != CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED && what != CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)) return;
  const uint64_t id = id_of(graph->node);
  const uint64_t from = what == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED ? id_of(graph->originalNode) : 0;
  const bool lost = what == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED && from == 0;
  if (id != 0 && !lost) nodes.note(nodes.data, id, from);
}

static void leave_nodes(void) {
  if (nodes.works) (void)cupti.cuptiUnsubscribe(nodes.subscriber);
  nodes.works = false;
}

/* Records are there without them, so nothing of this fails. */
static void follow_nodes(void) {
  static const CUpti_CallbackId wanted[] = {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                                            CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED};
  bool refused_any = false;
  if (!nodes.note || !cupti.cuptiSubscribe || !cupti.cuptiUnsubscribe || !cupti.cuptiEnableCallback ||
      !cupti.cuptiGetGraphNodeId || cupti.cuptiSubscribe(&nodes.subscriber, on_node, NULL) != CUPTI_SUCCESS)
    return;
  nodes.works = true;
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
    refused_any =
        cupti.cuptiEnableCallback(1, nodes.subscriber, CUPTI_CB_DOMAIN_RESOURCE, wanted[i]) != CUPTI_SUCCESS ||
        refused_any;
  if (refused_any) leave_nodes();
}

static dp_status begin(bool whole_graphs, dp_error *error) {
  CUPTI_TRY(cupti.cuptiActivityRegisterTimestampCallback(timestamp), "clock");
  set_attributes();
  CUPTI_TRY(cupti.cuptiActivityRegisterCallbacks(on_request, on_complete), "buffers");
  (void)pthread_mutex_lock(&capture.lock);
  capture.started = true; /* from here on buffers may come, even if a kind is refused */
  (void)pthread_mutex_unlock(&capture.lock);
  capture.whole_graphs = whole_graphs;
  return enable(false, whole_graphs, error);
}

dp_status prof_capture_start(prof_writer *writer, bool whole_graphs, dp_error *error) {
  DP_TRY(load(error));
  capture.convert.writer = writer;
  capture.convert.call_name = call_name;
  (void)cupti.cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM); /* else a thread has another id in ranges */
  follow_nodes();
  const dp_status status = begin(whole_graphs, error);
  if (status != DP_OK) leave_nodes();
  return status;
}

static bool is_started(void) {
  (void)pthread_mutex_lock(&capture.lock);
  const bool started = capture.started;
  (void)pthread_mutex_unlock(&capture.lock);
  return started;
}

/* With `calm`, so that a flush of the pump's is over, which may hold what this one is to bring. Not forced: that would
 * also bring records without times, of what other threads may have just begun, and never bring those again. */
static bool switch_kinds(bool on) {
  dp_error why = DP_ERROR_INIT;
  if (on && enable(true, capture.whole_graphs, &why) == DP_OK) return true;
  if (!on) (void)cupti.cuptiActivityFlushAll(0);
  disable(capture.whole_graphs);
  return !on;
}

bool prof_capture_switch(bool on) {
  if (!is_started()) return false;
  (void)pthread_mutex_lock(&capture.lock);
  capture.off = !on;
  (void)pthread_mutex_unlock(&capture.lock);
  (void)pthread_mutex_lock(&capture.calm);
  const bool done = switch_kinds(on);
  (void)pthread_mutex_unlock(&capture.calm);
  return done;
}

static void convert(buffer *b) {
  CUpti_Activity *record = NULL;
  while (b->valid > 0 && cupti.cuptiActivityGetNextRecord(b->bytes, b->valid, &record) == CUPTI_SUCCESS) {
    prof_cupti_take(&capture.convert, record);
    capture.taken++;
  }
}

static void pump(void) {
  size_t dropped = 0;
  /* no more than all buffers, or a fast program would hold its caller here for ever */
  for (int i = 0; i < PROF_CUPTI_BUFFERS; i++) {
    buffer *b = take_done();
    if (!b) break;
    convert(b);
    give_back(b);
    prof_writer_flush(capture.convert.writer, false); /* a buffer is less than what the writer has room for */
  }
  if (cupti.cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped) == CUPTI_SUCCESS)
    prof_writer_lost(capture.convert.writer, dropped);
}

/* A buffer comes back when all its records are complete, and where a device is never idle one that is being filled
 * never is. So a buffer gets no more records than came in between two flushes, and is full in about that time. Where
 * work is not recorded nothing is learnt of how much comes. */
static void limit_buffers(void) {
  (void)pthread_mutex_lock(&capture.lock);
  if (!capture.off) capture.most = capture.taken > LEAST_RECORDS ? (size_t)capture.taken : LEAST_RECORDS;
  (void)pthread_mutex_unlock(&capture.lock);
  capture.taken = 0;
}

static void flush_all(uint32_t flag) {
  (void)pthread_mutex_lock(&capture.calm);
  (void)cupti.cuptiActivityFlushAll(flag);
  (void)pthread_mutex_unlock(&capture.calm);
}

void prof_capture_pump(bool flush) {
  if (!is_started()) return;
  if (flush) flush_all(0);
  pump();
  if (flush) limit_buffers();
}

void prof_capture_finish(void) {
  if (!is_started()) return;
  flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  pump();
  leave_nodes();
}

/* No lock is held across fork: CUPTI may wait for its own there while one of its threads waits for ours. The lists may
 * be torn in the child, which does not use them. */
void prof_capture_child(void) {
  (void)pthread_mutex_init(&capture.calm, NULL);
  (void)pthread_mutex_init(&capture.lock, NULL);
  capture.started = false;
}
