/* Records of CUPTI, made up, as records of ours. */
#define _GNU_SOURCE
#include <check.h>
#include <cupti.h>

#include "profiler/cupti_convert.h"
#include "tests/profiler_world.h"
#include "tests/scratch.h"

static const char *call_name(bool runtime, uint32_t id) {
  if (!runtime) return id == 307 ? "cuLaunchKernel" : id == 243 ? "cuMemAlloc_v2" : NULL;
  return id == 211 ? "cudaLaunchKernel_v7000" : id == 131 ? "cudaStreamSynchronize_ptsz_v7000" : NULL;
}

static prof_cupti convert;

static void begin(void) {
  dp_error error = DP_ERROR_INIT;
  const prof_header header = world_header(10, -1, 1000, 1000);
  convert = (prof_cupti){.call_name = call_name};
  ck_assert_msg(prof_writer_open(&(prof_writer_options){.folder = "."}, &header, &convert.writer, &error) == DP_OK,
                "%s", error.text);
}

/* What was taken since, in the order of time; the clocks are the same. */
static prof_session end(void) {
  prof_session s;
  dp_error error = DP_ERROR_INIT;
  prof_writer_close(convert.writer);
  prof_writer_free(convert.writer);
  ck_assert_msg(prof_session_read(".", &s, &error) == DP_OK, "%s", error.text);
  scratch_clean(".");
  return s;
}

static const char *name_of(const prof_session *s, size_t i) { return s->names.items[s->records.items[i].name]; }

START_TEST(kernels) {
  CUpti_ActivityKernel10 k = {.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                              .start = 2000,
                              .end = 2500,
                              .deviceId = 3,
                              .contextId = 1,
                              .streamId = 9,
                              .gridX = 2147483647,
                              .gridY = 65535,
                              .gridZ = 2,
                              .blockX = 32,
                              .blockY = 4,
                              .blockZ = 2,
                              .correlationId = 4000000000u,
                              .graphNodeId = 0x700000005u,
                              .name = "_Z4gemmPf"};
  begin();
  prof_cupti_take(&convert, &k);
  k.start = 3000;
  k.end = 3000;
  k.name = NULL;
  k.graphNodeId = 0x700000000u;
  prof_cupti_take(&convert, &k);
  k.start = k.end = 0; /* CUPTI had no time */
  prof_cupti_take(&convert, &k);
  k.start = 10;
  k.end = 9;
  prof_cupti_take(&convert, &k);
  prof_session s = end();
  ck_assert_uint_eq(s.records.count, 2);
  ck_assert_uint_eq(s.processes.items[0].counts.source, 2);
  const prof_record *r = s.records.items;
  ck_assert_str_eq(name_of(&s, 0), "_Z4gemmPf");
  ck_assert_int_eq(r->kind, PROF_KERNEL);
  ck_assert_uint_eq(r->device, 3);
  ck_assert_int_eq(r->start_ns, 2000);
  ck_assert_int_eq(r->end_ns, 2500);
  ck_assert_uint_eq(r->stream, 9);
  ck_assert_uint_eq(r->correlation, 4000000000u);
  ck_assert_uint_eq(prof_record_node(r), 0x700000005u);
  ck_assert_uint_eq(r->grid[0], 2147483647);
  ck_assert_uint_eq(r->grid[1], 65535);
  ck_assert_uint_eq(r->grid[2], 2);
  ck_assert_uint_eq(r->block_threads, 256);
  ck_assert_str_eq(name_of(&s, 1), "");
  ck_assert_uint_eq(prof_record_node(&r[1]), 0x700000000u);
  prof_session_free(&s);
}
END_TEST

START_TEST(copies) {
  static const struct {
    uint8_t kind, copy;
  } rows[] = {
      {CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, PROF_COPY_TO_DEVICE}, {CUPTI_ACTIVITY_MEMCPY_KIND_HTOA, PROF_COPY_TO_DEVICE},
      {CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, PROF_COPY_TO_HOST},   {CUPTI_ACTIVITY_MEMCPY_KIND_ATOH, PROF_COPY_TO_HOST},
      {CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, PROF_COPY_ON_DEVICE}, {CUPTI_ACTIVITY_MEMCPY_KIND_ATOA, PROF_COPY_ON_DEVICE},
      {CUPTI_ACTIVITY_MEMCPY_KIND_ATOD, PROF_COPY_ON_DEVICE}, {CUPTI_ACTIVITY_MEMCPY_KIND_DTOA, PROF_COPY_ON_DEVICE},
      {CUPTI_ACTIVITY_MEMCPY_KIND_PTOP, PROF_COPY_PEER},      {CUPTI_ACTIVITY_MEMCPY_KIND_HTOH, PROF_COPY_OTHER},
      {CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN, PROF_COPY_OTHER}};
  enum { ROWS = sizeof rows / sizeof rows[0] };
  begin();
  for (size_t i = 0; i < ROWS; i++) {
    const CUpti_ActivityMemcpy6 c = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY,
                                     .copyKind = rows[i].kind,
                                     .bytes = 5000000000u + i,
                                     .start = 2000 + i,
                                     .end = 2100 + i,
                                     .deviceId = 1,
                                     .streamId = 2,
                                     .correlationId = 3,
                                     .graphNodeId = 4};
    prof_cupti_take(&convert, &c);
  }
  const CUpti_ActivityMemcpyPtoP4 p = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY2,
                                       .copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP,
                                       .bytes = 77,
                                       .start = 3000,
                                       .end = 3001,
                                       .deviceId = 1,
                                       .streamId = 5,
                                       .dstDeviceId = 2,
                                       .correlationId = 6,
                                       .graphNodeId = 7};
  prof_cupti_take(&convert, &p);
  const CUpti_ActivityMemset4 m = {.kind = CUPTI_ACTIVITY_KIND_MEMSET,
                                   .bytes = 88,
                                   .start = 4000,
                                   .end = 4001,
                                   .deviceId = 2,
                                   .streamId = 5,
                                   .correlationId = 8,
                                   .graphNodeId = 9};
  prof_cupti_take(&convert, &m);
  prof_session s = end();
  const prof_record *r = s.records.items;
  ck_assert_uint_eq(s.records.count, ROWS + 2);
  for (size_t i = 0; i < ROWS; i++) {
    ck_assert(r[i].kind == PROF_COPY && r[i].detail == rows[i].copy && r[i].value == 5000000000u + i);
    ck_assert(r[i].device == 1 && r[i].stream == 2 && r[i].correlation == 3 && r[i].graph == 4);
  }
  r += ROWS;
  ck_assert(r->kind == PROF_COPY && r->detail == PROF_COPY_PEER && r->value == 77 && r->device == 1 && r->stream == 5);
  ck_assert(r->correlation == 6 && r->graph == 7 && r->start_ns == 3000 && r->end_ns == 3001);
  r++;
  ck_assert(r->kind == PROF_MEMSET && r->value == 88 && r->device == 2 && r->stream == 5 && r->correlation == 8 &&
            r->graph == 9);
  prof_session_free(&s);
}
END_TEST

START_TEST(calls) {
  static const struct {
    CUpti_ActivityKind kind;
    uint32_t id;
    const char *name;
    int becomes;
  } rows[] = {{CUPTI_ACTIVITY_KIND_RUNTIME, 211, "cudaLaunchKernel", PROF_CALL},
              {CUPTI_ACTIVITY_KIND_RUNTIME, 131, "cudaStreamSynchronize_ptsz", PROF_SYNC},
              {CUPTI_ACTIVITY_KIND_RUNTIME, 1, "(runtime)", PROF_CALL},
              {CUPTI_ACTIVITY_KIND_DRIVER, 307, "cuLaunchKernel", PROF_CALL},
              {CUPTI_ACTIVITY_KIND_DRIVER, 243, "cuMemAlloc_v2", PROF_CALL},
              {CUPTI_ACTIVITY_KIND_DRIVER, PROF_CUPTI_CALLS, "(driver)", PROF_CALL},
              {CUPTI_ACTIVITY_KIND_RUNTIME, 131, "cudaStreamSynchronize_ptsz", PROF_SYNC}};
  enum { ROWS = sizeof rows / sizeof rows[0] };
  begin();
  for (size_t i = 0; i < ROWS; i++) {
    const CUpti_ActivityAPI a = {.kind = rows[i].kind,
                                 .cbid = rows[i].id,
                                 .start = 2000 + i,
                                 .end = 2500 + i,
                                 .processId = 1,
                                 .threadId = 12345,
                                 .correlationId = 6};
    prof_cupti_take(&convert, &a);
  }
  prof_session s = end();
  ck_assert_uint_eq(s.records.count, ROWS);
  for (size_t i = 0; i < ROWS; i++) {
    const prof_record *r = &s.records.items[i];
    ck_assert_str_eq(name_of(&s, i), rows[i].name);
    ck_assert_int_eq(r->kind, rows[i].becomes);
    ck_assert(r->device == PROF_NO_DEVICE && r->thread == 12345 && r->correlation == 6 &&
              r->end_ns - r->start_ns == 500);
  }
  prof_session_free(&s);
}
END_TEST

START_TEST(memory) {
  CUpti_ActivityMemory4 m = {.kind = CUPTI_ACTIVITY_KIND_MEMORY2,
                             .memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION,
                             .memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
                             .correlationId = 5,
                             .bytes = 9000000000u,
                             .timestamp = 2000,
                             .deviceId = 1,
                             .streamId = 6};
  begin();
  prof_cupti_take(&convert, &m);
  m.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
  m.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
  m.isAsync = 1;
  m.timestamp = 3000;
  prof_cupti_take(&convert, &m);
  m.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED; /* of the host */
  prof_cupti_take(&convert, &m);
  m.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  m.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_INVALID;
  prof_cupti_take(&convert, &m);
  prof_session s = end();
  const prof_record *r = s.records.items;
  ck_assert_uint_eq(s.records.count, 2);
  ck_assert(r[0].kind == PROF_ALLOCATE && r[0].value == 9000000000u && r[0].device == 1 && r[0].stream == 0 &&
            r[0].start_ns == 2000 && r[0].end_ns == 2000 && r[0].correlation == 5);
  ck_assert(r[1].kind == PROF_FREE && r[1].stream == 6 && r[1].start_ns == 3000);
  prof_session_free(&s);
}
END_TEST

START_TEST(others) {
  const CUpti_ActivityGraphTrace2 g = {.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE,
                                       .correlationId = 3,
                                       .start = 2000,
                                       .end = 9000,
                                       .deviceId = 1,
                                       .graphId = 44,
                                       .streamId = 5};
  CUpti_ActivityOverhead3 o = {.kind = CUPTI_ACTIVITY_KIND_OVERHEAD,
                               .overheadKind = CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL,
                               .objectKind = CUPTI_ACTIVITY_OBJECT_THREAD,
                               .objectId.pt = {.processId = 1, .threadId = 12345},
                               .start = 3000,
                               .end = 3500,
                               .correlationId = 7};
  CUpti_ActivityDevice5 d = {.kind = CUPTI_ACTIVITY_KIND_DEVICE,
                             .globalMemorySize = 150000000000u,
                             .numMultiprocessors = 132,
                             .id = 1,
                             .name = "NVIDIA H200"};
  const CUpti_Activity unknown = {.kind = CUPTI_ACTIVITY_KIND_NVLINK};
  begin();
  o.overheadData = malloc(12); /* is ours to free, which a sanitizer sees */
  prof_cupti_take(&convert, &d);
  d.id = PROF_MAX_DEVICES;
  prof_cupti_take(&convert, &d);
  prof_cupti_take(&convert, &g);
  prof_cupti_take(&convert, &o);
  o.overheadData = NULL;
  o.overheadKind = CUPTI_ACTIVITY_OVERHEAD_UNKNOWN;
  prof_cupti_take(&convert, &o);
  o.overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION;
  o.objectKind = CUPTI_ACTIVITY_OBJECT_DEVICE;
  o.start = 4000;
  o.end = 4001;
  prof_cupti_take(&convert, &o);
  prof_cupti_take(&convert, &unknown);
  prof_session s = end();
  const prof_record *r = s.records.items;
  ck_assert_uint_eq(s.records.count, 3);
  ck_assert(r[0].kind == PROF_GRAPH && r[0].device == 1 && r[0].stream == 5 && r[0].correlation == 3 &&
            r[0].value == 44 && r[0].end_ns - r[0].start_ns == 7000);
  ck_assert(r[1].kind == PROF_CALL && r[1].device == PROF_NO_DEVICE && r[1].thread == 12345 &&
            r[1].end_ns - r[1].start_ns == 500 && r[1].correlation == 0);
  ck_assert_str_eq(name_of(&s, 1), "command buffer is full");
  ck_assert(r[2].kind == PROF_OVERHEAD && r[2].thread == 0);
  ck_assert_uint_eq(s.devices.count, 1);
  ck_assert_str_eq(s.devices.items[0].name, "NVIDIA H200");
  ck_assert_uint_eq(s.devices.items[0].multiprocessors, 132);
  prof_session_free(&s);
}
END_TEST

START_TEST(wanted_calls) {
  static const char *const wanted[] = {"cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaMalloc_v3020",
                                       "cudaGraphLaunch_v10000", "cudaStreamSynchronize_v3020"};
  static const char *const unwanted[] = {"cudaGetDevice_v3020", "cudaEventQuery_v3020", "cudaStreamIsCapturing_v10000",
                                         "__cudaPushCallConfiguration_v9020", "cudaPeekAtLastError_v3020"};
  static const char *const of_driver[] = {"cuLaunchKernelEx", "cuMemcpyHtoDAsync_v2", "cuGraphLaunch",
                                          "cuCtxSynchronize"};
  static const char *const not_of_driver[] = {"cuCtxGetDevice", "cuDeviceGetAttribute", "cuEventRecord"};
  for (size_t i = 0; i < 5; i++) ck_assert(prof_cupti_wants(true, wanted[i]) && !prof_cupti_wants(true, unwanted[i]));
  for (size_t i = 0; i < 4; i++) ck_assert(prof_cupti_wants(false, of_driver[i]));
  for (size_t i = 0; i < 3; i++) ck_assert(!prof_cupti_wants(false, not_of_driver[i]));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {kernels, copies, calls, memory, others, wanted_calls};
  return suite_run("profiler_convert", tests, sizeof tests / sizeof tests[0], scratch_enter, scratch_leave, 0);
}
