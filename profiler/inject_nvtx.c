/* NVTX's ranges of all domains: what NVTX calls in place of nothing once these functions stand in its tables.
 *
 * Ranges that a thread pushes in the default domain nest, and are records without an id. Those of other domains may
 * cross them, so each has an id of its own, as started ranges have; a mark is a range of no length.
 */
#define _GNU_SOURCE
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <wchar.h>

#include "profiler/process.h"
#include "profiler/inject.h"

enum { STACK = 64, TEXT_BYTES = 256 };

/* What the thread has pushed: deeper ranges than STACK of other domains get no end. */
static _Thread_local struct {
  int depth; /* of the default domain */
  int others;
  struct {
    nvtxDomainHandle_t domain;
    uint64_t id;
  } pushed[STACK];
} stack;

static _Atomic uint64_t last_id;

void prof_nvtx_child(void) {
  stack.depth = 0;
  stack.others = 0;
}

/* ---- texts ---- */

/* UTF-8 of as many characters as fit. */
static const char *narrow(const wchar_t *text, char out[TEXT_BYTES]) {
  size_t used = 0;
  for (; text && *text && used + 5 < TEXT_BYTES; text++) {
    const uint32_t c = (uint32_t)*text;
    if (c < 0x80) {
      out[used++] = (char)c;
    } else if (c < 0x800) {
      out[used++] = (char)(0xc0 | c >> 6);
      out[used++] = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
      out[used++] = (char)(0xe0 | c >> 12);
      out[used++] = (char)(0x80 | (c >> 6 & 0x3f));
      out[used++] = (char)(0x80 | (c & 0x3f));
    } else {
      out[used++] = (char)(0xf0 | (c >> 18 & 7));
      out[used++] = (char)(0x80 | (c >> 12 & 0x3f));
      out[used++] = (char)(0x80 | (c >> 6 & 0x3f));
      out[used++] = (char)(0x80 | (c & 0x3f));
    }
  }
  out[used] = 0;
  return out;
}

/* A registered string is the number of its name, which is never 0. */
static uint32_t name_of(prof_writer *writer, const nvtxEventAttributes_t *event) {
  char text[TEXT_BYTES];
  if (!event) return 0;
  switch (event->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      return prof_writer_string(writer, event->message.ascii);
    case NVTX_MESSAGE_TYPE_UNICODE:
      return prof_writer_string(writer, narrow(event->message.unicode, text));
    case NVTX_MESSAGE_TYPE_REGISTERED:
      return (uint32_t)(uintptr_t)event->message.registered;
    default:
      return 0;
  }
}

static uint32_t name_a(prof_writer *writer, const char *text) { return prof_writer_string(writer, text); }

static uint32_t name_w(prof_writer *writer, const wchar_t *text) {
  char out[TEXT_BYTES];
  return prof_writer_string(writer, narrow(text, out));
}

/* ---- records ---- */

static void add(prof_writer *writer, prof_kind kind, uint32_t name, uint64_t id) {
  const int64_t now = prof_process_now_ns();
  const prof_record record = {.kind = (uint8_t)kind,
                              .device = PROF_NO_DEVICE,
                              .name = name,
                              .start_ns = now,
                              .end_ns = now,
                              .thread = prof_inject_thread(),
                              .value = id};
  (void)prof_writer_add(writer, &record);
}

static uint64_t new_id(void) { return atomic_fetch_add(&last_id, 1) + 1; }

static void mark(prof_writer *writer, uint32_t name) {
  const uint64_t id = new_id();
  add(writer, PROF_RANGE_BEGIN, name, id);
  add(writer, PROF_RANGE_END, name, id);
}

static uint64_t start(prof_writer *writer, uint32_t name) {
  const uint64_t id = new_id();
  add(writer, PROF_RANGE_BEGIN, name, id);
  return id;
}

/* Returns how many the thread had pushed before, as NVTX wants it. */
static int push(prof_writer *writer, uint32_t name) {
  add(writer, PROF_RANGE_BEGIN, name, 0);
  return stack.depth++;
}

static int pop(prof_writer *writer) {
  if (stack.depth == 0) return -1;
  add(writer, PROF_RANGE_END, 0, 0);
  return --stack.depth;
}

static int push_in(prof_writer *writer, nvtxDomainHandle_t domain, uint32_t name) {
  const int level = stack.others++;
  if (level >= STACK) return level;
  stack.pushed[level].domain = domain;
  stack.pushed[level].id = start(writer, name);
  return level;
}

/* The last one of that domain; those that others pushed since stay. */
static int pop_in(prof_writer *writer, nvtxDomainHandle_t domain) {
  if (stack.others > STACK) return --stack.others;
  for (int at = stack.others - 1; at >= 0; at--) {
    if (stack.pushed[at].domain != domain) continue;
    add(writer, PROF_RANGE_END, 0, stack.pushed[at].id);
    for (int above = at + 1; above < stack.others; above++) stack.pushed[above - 1] = stack.pushed[above];
    return --stack.others;
  }
  return -1;
}

/* ---- the functions of NVTX's default domain ---- */

static void NVTX_API mark_ex(const nvtxEventAttributes_t *event) {
  prof_writer *w = prof_inject_writer();
  mark(w, name_of(w, event));
}
static void NVTX_API mark_a(const char *text) {
  prof_writer *w = prof_inject_writer();
  mark(w, name_a(w, text));
}
static void NVTX_API mark_w(const wchar_t *text) {
  prof_writer *w = prof_inject_writer();
  mark(w, name_w(w, text));
}
static nvtxRangeId_t NVTX_API start_ex(const nvtxEventAttributes_t *event) {
  prof_writer *w = prof_inject_writer();
  return start(w, name_of(w, event));
}
static nvtxRangeId_t NVTX_API start_a(const char *text) {
  prof_writer *w = prof_inject_writer();
  return start(w, name_a(w, text));
}
static nvtxRangeId_t NVTX_API start_w(const wchar_t *text) {
  prof_writer *w = prof_inject_writer();
  return start(w, name_w(w, text));
}
static void NVTX_API end_range(nvtxRangeId_t id) { add(prof_inject_writer(), PROF_RANGE_END, 0, id); }
static int NVTX_API push_ex(const nvtxEventAttributes_t *event) {
  prof_writer *w = prof_inject_writer();
  return push(w, name_of(w, event));
}
static int NVTX_API push_a(const char *text) {
  prof_writer *w = prof_inject_writer();
  return push(w, name_a(w, text));
}
static int NVTX_API push_w(const wchar_t *text) {
  prof_writer *w = prof_inject_writer();
  return push(w, name_w(w, text));
}
static int NVTX_API pop_range(void) { return pop(prof_inject_writer()); }

/* ---- and of any domain; NULL is the default one ---- */

static void NVTX_API domain_mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
  (void)domain;
  mark_ex(event);
}
static nvtxRangeId_t NVTX_API domain_start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
  (void)domain;
  return start_ex(event);
}
static void NVTX_API domain_end(nvtxDomainHandle_t domain, nvtxRangeId_t id) {
  (void)domain;
  end_range(id);
}
static int NVTX_API domain_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
  prof_writer *w = prof_inject_writer();
  return domain ? push_in(w, domain, name_of(w, event)) : push(w, name_of(w, event));
}
static int NVTX_API domain_pop(nvtxDomainHandle_t domain) {
  prof_writer *w = prof_inject_writer();
  return domain ? pop_in(w, domain) : pop(w);
}
/* A handle is a number that was not given before; nothing is kept for it. */
static nvtxDomainHandle_t NVTX_API domain_create_a(const char *name) {
  (void)name;
  return (nvtxDomainHandle_t)(uintptr_t)new_id();
}
static nvtxDomainHandle_t NVTX_API domain_create_w(const wchar_t *name) {
  (void)name;
  return (nvtxDomainHandle_t)(uintptr_t)new_id();
}
static nvtxStringHandle_t NVTX_API register_a(nvtxDomainHandle_t domain, const char *text) {
  (void)domain;
  return (nvtxStringHandle_t)(uintptr_t)name_a(prof_inject_writer(), text);
}
static nvtxStringHandle_t NVTX_API register_w(nvtxDomainHandle_t domain, const wchar_t *text) {
  (void)domain;
  return (nvtxStringHandle_t)(uintptr_t)name_w(prof_inject_writer(), text);
}

/* ---- the tables ---- */

typedef struct row {
  unsigned int id;
  NvtxFunctionPointer function;
} row;

#define ROW(id, function) \
  { id, (NvtxFunctionPointer)(function) }

static const row core[] = {ROW(NVTX_CBID_CORE_MarkEx, mark_ex),      ROW(NVTX_CBID_CORE_MarkA, mark_a),
                           ROW(NVTX_CBID_CORE_MarkW, mark_w),        ROW(NVTX_CBID_CORE_RangeStartEx, start_ex),
                           ROW(NVTX_CBID_CORE_RangeStartA, start_a), ROW(NVTX_CBID_CORE_RangeStartW, start_w),
                           ROW(NVTX_CBID_CORE_RangeEnd, end_range),  ROW(NVTX_CBID_CORE_RangePushEx, push_ex),
                           ROW(NVTX_CBID_CORE_RangePushA, push_a),   ROW(NVTX_CBID_CORE_RangePushW, push_w),
                           ROW(NVTX_CBID_CORE_RangePop, pop_range)};

static const row core2[] = {
    ROW(NVTX_CBID_CORE2_DomainMarkEx, domain_mark),         ROW(NVTX_CBID_CORE2_DomainRangeStartEx, domain_start),
    ROW(NVTX_CBID_CORE2_DomainRangeEnd, domain_end),        ROW(NVTX_CBID_CORE2_DomainRangePushEx, domain_push),
    ROW(NVTX_CBID_CORE2_DomainRangePop, domain_pop),        ROW(NVTX_CBID_CORE2_DomainRegisterStringA, register_a),
    ROW(NVTX_CBID_CORE2_DomainRegisterStringW, register_w), ROW(NVTX_CBID_CORE2_DomainCreateA, domain_create_a),
    ROW(NVTX_CBID_CORE2_DomainCreateW, domain_create_w)};

static bool fill(const NvtxExportTableCallbacks *callbacks, NvtxCallbackModule module, const row *rows, size_t count) {
  NvtxFunctionTable table = NULL;
  unsigned int size = 0;
  if (!callbacks->GetModuleFunctionTable(module, &table, &size) || !table) return false;
  for (size_t i = 0; i < count; i++)
    if (rows[i].id < size && table[rows[i].id]) *table[rows[i].id] = rows[i].function;
  return true;
}

/* Each library of the program that uses NVTX has tables of its own and asks once. */
__attribute__((visibility("default"))) int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table);
int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  const NvtxExportTableCallbacks *callbacks = export_table(NVTX_ETID_CALLBACKS);
  if (!callbacks || callbacks->struct_size < sizeof *callbacks || !prof_inject_writer()) return 0;
  const bool filled = fill(callbacks, NVTX_CB_MODULE_CORE, core, sizeof core / sizeof core[0]);
  return fill(callbacks, NVTX_CB_MODULE_CORE2, core2, sizeof core2 / sizeof core2[0]) && filled;
}
