#define _POSIX_C_SOURCE 200809L
#include "exec/machine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/schema.h"

/* ---- NVML, as its nvml.h has it ---- */

enum { NVML_OK = 0, REMOTE_GPU = 0, REMOTE_SWITCH = 2, P2P_READ = 0, P2P_WRITE = 1, CLOCK_SM = 1, P2P_OK = 0, MAX_LINKS = 18 };

typedef struct nvml_device_s *nvml_device;

typedef struct nvml_pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char text[32];
} nvml_pci;

typedef struct nvml_memory {
  unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml_memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
} nvml_memory2;

typedef struct nvml {
  /* a driver without these tells nothing */
  int (*init)(void);
  int (*shutdown)(void);
  int (*count)(unsigned *);
  int (*handle)(unsigned, nvml_device *);
  int (*name)(nvml_device, char *, unsigned);
  int (*memory)(nvml_device, nvml_memory *);
  int (*pci)(nvml_device, nvml_pci *);
  /* those that follow may be missing */
  const char *(*error)(int);
  int (*driver)(char *, unsigned);
  int (*uuid)(nvml_device, char *, unsigned);
  int (*memory2)(nvml_device, nvml_memory2 *);
  int (*capability)(nvml_device, int *, int *);
  int (*pcie_generation)(nvml_device, unsigned *);
  int (*pcie_lanes)(nvml_device, unsigned *);
  int (*power)(nvml_device, unsigned *);
  int (*clock)(nvml_device, unsigned, unsigned *);
  int (*link_state)(nvml_device, unsigned, unsigned *);
  int (*link_version)(nvml_device, unsigned, unsigned *);
  int (*link_type)(nvml_device, unsigned, unsigned *);
  int (*link_pci)(nvml_device, unsigned, nvml_pci *);
  int (*ancestor)(nvml_device, nvml_device, unsigned *);
  int (*p2p)(nvml_device, nvml_device, unsigned, unsigned *);
} nvml;

enum { NEEDED = 7 };
#define ROW(field, symbol) \
  { symbol, offsetof(nvml, field) }
static const struct {
  const char *symbol;
  size_t slot;
} functions[] = {ROW(init, "nvmlInit_v2"),
                 ROW(shutdown, "nvmlShutdown"),
                 ROW(count, "nvmlDeviceGetCount_v2"),
                 ROW(handle, "nvmlDeviceGetHandleByIndex_v2"),
                 ROW(name, "nvmlDeviceGetName"),
                 ROW(memory, "nvmlDeviceGetMemoryInfo"),
                 ROW(pci, "nvmlDeviceGetPciInfo_v3"),
                 ROW(error, "nvmlErrorString"),
                 ROW(driver, "nvmlSystemGetDriverVersion"),
                 ROW(uuid, "nvmlDeviceGetUUID"),
                 ROW(memory2, "nvmlDeviceGetMemoryInfo_v2"),
                 ROW(capability, "nvmlDeviceGetCudaComputeCapability"),
                 ROW(pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration"),
                 ROW(pcie_lanes, "nvmlDeviceGetMaxPcieLinkWidth"),
                 ROW(power, "nvmlDeviceGetPowerManagementDefaultLimit"),
                 ROW(clock, "nvmlDeviceGetClockInfo"),
                 ROW(link_state, "nvmlDeviceGetNvLinkState"),
                 ROW(link_version, "nvmlDeviceGetNvLinkVersion"),
                 ROW(link_type, "nvmlDeviceGetNvLinkRemoteDeviceType"),
                 ROW(link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2"),
                 ROW(ancestor, "nvmlDeviceGetTopologyCommonAncestor"),
                 ROW(p2p, "nvmlDeviceGetP2PStatus")};
#undef ROW

typedef struct reader {
  nvml api;
  void *library;
  dp_arena *arena;
  nvml_device devices[PLAN_MAX_GPUS];
  nvml_pci pci[PLAN_MAX_GPUS];
  plan_machine_gpu *gpus;
  int count;
  dp_error *error;
} reader;

static const char *const library_name = "libnvidia-ml.so.1";

static dp_status open_library(reader *r) {
  r->library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (!r->library)
    return dp_fail(r->error, DP_UNSUPPORTED,
                   "machine: found no NVIDIA driver here (%s), needed: one, or --from FILE with what `diffpipe machine "
                   "--json` says on a machine that has one",
                   dlerror());
  for (int f = 0; f < (int)DP_COUNT_OF(functions); f++) {
    void *found = dlsym(r->library, functions[f].symbol);
    memcpy((char *)&r->api + functions[f].slot, &found, sizeof found); /* as POSIX has it */
    if (!found && f < NEEDED)
      return dp_fail(r->error, DP_UNSUPPORTED, "machine: %s has no %s, needed: a newer driver", library_name,
                     functions[f].symbol);
  }
  return DP_OK;
}

static dp_status ask(const reader *r, int status, const char *what) {
  if (status == NVML_OK) return DP_OK;
  const char *text = r->api.error ? r->api.error(status) : NULL;
  return dp_fail(r->error, DP_UNSUPPORTED, "machine: the NVIDIA driver does not tell %s: %s (%d)", what,
                 text ? text : "no reason", status);
}

/* ---- GPUs ---- */

static const char *keep(const reader *r, const char *text) {
  const char *kept = dp_arena_strdup(r->arena, text);
  return kept ? kept : "";
}

static int64_t number(int (*call)(nvml_device, unsigned *), nvml_device device) {
  unsigned value = 0;
  return call && call(device, &value) == NVML_OK ? (int64_t)value : 0;
}

static dp_status read_gpu(reader *r, int g) {
  nvml_device device = NULL;
  char name[96] = "", uuid[96] = "";
  nvml_memory memory = {0, 0, 0};
  nvml_memory2 memory2 = {.version = (unsigned)sizeof memory2 | 2U << 24};
  int major = 0, minor = 0;
  DP_TRY(ask(r, r->api.handle((unsigned)g, &device), "of a GPU"));
  DP_TRY(ask(r, r->api.name(device, name, sizeof name), "the name of a GPU"));
  DP_TRY(ask(r, r->api.memory(device, &memory), "the memory of a GPU"));
  DP_TRY(ask(r, r->api.pci(device, &r->pci[g]), "the address of a GPU"));
  r->pci[g].text[sizeof r->pci[g].text - 1] = '\0';
  r->devices[g] = device;
  plan_machine_gpu *gpu = &r->gpus[g];
  *gpu = (plan_machine_gpu){.name = keep(r, name), .uuid = "", .bus = keep(r, r->pci[g].text)};
  if (!gpu->name[0] || !gpu->bus[0]) return dp_fail_memory(r->error);
  if (r->api.uuid && r->api.uuid(device, uuid, sizeof uuid) == NVML_OK) gpu->uuid = keep(r, uuid);
  gpu->memory_bytes = (int64_t)memory.total;
  if (r->api.memory2 && r->api.memory2(device, &memory2) == NVML_OK && memory2.reserved < memory2.total)
    gpu->memory_bytes = (int64_t)(memory2.total - memory2.reserved);
  if (r->api.capability && r->api.capability(device, &major, &minor) == NVML_OK) gpu->capability = 10 * major + minor;
  gpu->pcie_generation = number(r->api.pcie_generation, device);
  gpu->pcie_lanes = number(r->api.pcie_lanes, device);
  gpu->power_w = (double)number(r->api.power, device) / 1000;
  return DP_OK;
}

/* ---- what is between them ---- */

static int gpu_at(const reader *r, const nvml_pci *pci) {
  for (int g = 0; g < r->count; g++)
    if (r->pci[g].domain == pci->domain && r->pci[g].bus == pci->bus && r->pci[g].device == pci->device) return g;
  return -1;
}

/* NVML counts versions with their halves (1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0), and drivers have told H100s' wrong. A card's
 * compute capability says of which generation its links are, where that is known. */
static int64_t nvlink_generation(int64_t capability, unsigned version) {
  static const struct {
    int capability, generation;
  } cards[] = {{100, 5}, {90, 4}, {80, 3}, {70, 2}, {60, 1}};
  static const int of_version[] = {0, 1, 2, 2, 3, 3, 4, 5};
  for (size_t i = 0; i < DP_COUNT_OF(cards); i++)
    if (capability >= cards[i].capability) return cards[i].generation;
  return version < DP_COUNT_OF(of_version) ? of_version[version] : 0;
}

/* Counts a GPU's active NVLinks: into switches, and to each other GPU. A link whose other end is not told counts as one
 * into a switch, as a virtual machine sees it, unless it is found to be a GPU. */
static void read_nvlinks(const reader *r, int g, int64_t to_gpu[PLAN_MAX_GPUS]) {
  const nvml *api = &r->api;
  plan_machine_gpu *gpu = &r->gpus[g];
  for (unsigned link = 0; api->link_state && link < MAX_LINKS; link++) {
    unsigned active = 0, version = 0, type = REMOTE_SWITCH;
    nvml_pci remote = {.domain = 0};
    if (api->link_state(r->devices[g], link, &active) != NVML_OK || !active) continue;
    if (api->link_version) (void)api->link_version(r->devices[g], link, &version);
    gpu->nvlink_version = nvlink_generation(gpu->capability, version);
    if (api->link_type) (void)api->link_type(r->devices[g], link, &type);
    const int other = api->link_pci && api->link_pci(r->devices[g], link, &remote) == NVML_OK ? gpu_at(r, &remote) : -1;
    if (other >= 0 && other != g && type != REMOTE_SWITCH)
      to_gpu[other]++;
    else if (type != REMOTE_GPU)
      gpu->switch_nvlinks++;
  }
}

static bool may(const reader *r, int a, int b, unsigned what) {
  unsigned status = P2P_OK + 1;
  return r->api.p2p && r->api.p2p(r->devices[a], r->devices[b], what, &status) == NVML_OK && status == P2P_OK;
}

/* NVML counts levels in tens. */
static int path_between(const reader *r, int a, int b) {
  unsigned level = 0;
  if (!r->api.ancestor || r->api.ancestor(r->devices[a], r->devices[b], &level) != NVML_OK) return PLAN_PATH_HOSTBRIDGE;
  return level / 10 < PLAN_PATH_COUNT ? (int)(level / 10) : PLAN_PATH_SYSTEM;
}

static dp_status read_pairs(const reader *r, plan_machine *machine) {
  plan_machine_pair *pairs = DP_ARENA_NEW(r->arena, plan_machine_pair, (size_t)plan_machine_pair_count(machine) + 1);
  int64_t(*links)[PLAN_MAX_GPUS] = calloc(PLAN_MAX_GPUS, sizeof *links);
  if (!pairs || !links) {
    free(links);
    return dp_fail_memory(r->error);
  }
  for (int g = 0; g < r->count; g++) read_nvlinks(r, g, links[g]);
  plan_machine_pair *next = pairs;
  for (int a = 0; a < r->count; a++)
    for (int b = a + 1; b < r->count; b++)
      *next++ = (plan_machine_pair){.a = a,
                                    .b = b,
                                    .path = path_between(r, a, b),
                                    .peer = may(r, a, b, P2P_READ) && may(r, a, b, P2P_WRITE),
                                    .nvlinks = links[a][b] < links[b][a] ? links[a][b] : links[b][a]};
  free(links);
  machine->pairs = pairs;
  return DP_OK;
}

/* ---- the host ---- */

/* "vendor_id : AuthenticAMD", "model : 17" of Linux. */
static void read_processor(const reader *r, plan_machine *machine) {
  FILE *stream = fopen("/proc/cpuinfo", "r");
  char line[256];
  bool vendor = false, model = false;
  while (stream && !(vendor && model) && fgets(line, sizeof line, stream)) {
    const char *colon = strchr(line, ':');
    if (!colon) continue;
    colon += 1 + strspn(colon + 1, " \t");
    if (!vendor && strncmp(line, "vendor_id", 9) == 0) {
      const char *kept = dp_arena_printf(r->arena, "%.*s", (int)strcspn(colon, "\n"), colon);
      if (kept) machine->cpu_vendor = kept;
      vendor = true;
    } else if (!model && strncmp(line, "model\t", 6) == 0) {
      machine->cpu_model = strtol(colon, NULL, 10);
      model = true;
    }
  }
  if (stream) (void)fclose(stream);
  if (machine->cpu_model < 0 || machine->cpu_model > 65535) machine->cpu_model = 0;
}

static void read_host(const reader *r, plan_machine *machine) {
  char name[256] = "", driver[96] = "";
  if (gethostname(name, sizeof name - 1) == 0) machine->name = keep(r, name);
  if (r->api.driver && r->api.driver(driver, sizeof driver) == NVML_OK) machine->driver = keep(r, driver);
  read_processor(r, machine);
}

static dp_status read_all(reader *r, plan_machine *machine) {
  unsigned count = 0;
  DP_TRY(ask(r, r->api.count(&count), "how many GPUs there are"));
  if (count == 0)
    return dp_fail(r->error, DP_UNSUPPORTED, "machine: the NVIDIA driver found no GPU, needed: at least one");
  if (count > PLAN_MAX_GPUS)
    return dp_fail(r->error, DP_UNSUPPORTED, "machine: found %u GPUs, allowed: at most %d", count, PLAN_MAX_GPUS);
  r->gpus = DP_ARENA_NEW(r->arena, plan_machine_gpu, count);
  if (!r->gpus) return dp_fail_memory(r->error);
  r->count = (int)count;
  for (int g = 0; g < r->count; g++) DP_TRY(read_gpu(r, g));
  machine->gpus = r->gpus;
  machine->gpu_count = r->count;
  DP_TRY(read_pairs(r, machine));
  read_host(r, machine);
  return DP_OK;
}

dp_status exec_machine_read(dp_arena *arena, plan_machine *machine, dp_error *error) {
  reader r = {.arena = arena, .error = error};
  plan_machine read = {.name = "", .driver = "", .cpu_vendor = ""};
  dp_status status = open_library(&r);
  if (status == DP_OK) status = ask(&r, r.api.init(), "anything");
  if (status == DP_OK) {
    status = read_all(&r, &read);
    (void)r.api.shutdown();
  }
  if (r.library) (void)dlclose(r.library);
  if (status == DP_OK) *machine = read;
  return status;
}

double exec_machine_clock_hz(int gpu) {
  reader r = {.error = NULL};
  nvml_device device = NULL;
  unsigned mhz = 0;
  const bool open = open_library(&r) == DP_OK && r.api.init() == NVML_OK;
  if (open && r.api.clock && r.api.handle((unsigned)gpu, &device) == NVML_OK &&
      r.api.clock(device, CLOCK_SM, &mhz) != NVML_OK)
    mhz = 0;
  if (open) (void)r.api.shutdown();
  if (r.library) (void)dlclose(r.library);
  return 1e6 * mhz;
}
