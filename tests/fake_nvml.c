/* A stand-in for the driver's libnvidia-ml.so.1, which tests/machine.sh builds: two GPUs, by FAKE_NVML
 *   bridge   RTX 3090, four NVLinks from one to the other
 *   switch   H200, 18 NVLinks each into switches
 *   hidden   the same, but where links go is not told, as in a virtual machine, nor the compute capability
 *   old      the same by a driver that knows nothing of NVLink, nor of reserved memory
 *   broken   the driver does not answer */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, INVALID = 2 };

typedef struct pci_info {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char text[32];
} pci_info;
typedef struct memory_info {
  unsigned long long total, free, used;
} memory_info;
typedef struct memory_info_2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
} memory_info_2;

static char devices[2];

static int is(const char *what) {
  const char *fake = getenv("FAKE_NVML");
  return fake && strcmp(fake, what) == 0;
}
static int index_of(const char *device) { return device == &devices[1]; }

static void fill_pci(unsigned bus, pci_info *pci) {
  memset(pci, 0, sizeof *pci);
  pci->domain = 1;
  pci->bus = bus;
  (void)snprintf(pci->text, sizeof pci->text, "%08X:%02X:%02X.0", pci->domain, bus, 0U);
}

int nvmlInit_v2(void) { return is("broken") ? DRIVER_NOT_LOADED : OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int status) { return status == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "another"; }
int nvmlSystemGetDriverVersion(char *out, unsigned bytes) {
  (void)snprintf(out, bytes, "%s", "999.1");
  return OK;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = 2;
  return OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, char **device) {
  if (index > 1) return INVALID;
  *device = &devices[index];
  return OK;
}
int nvmlDeviceGetName(char *device, char *out, unsigned bytes) {
  (void)device;
  (void)snprintf(out, bytes, "%s", is("bridge") ? "NVIDIA GeForce RTX 3090" : "NVIDIA H200");
  return OK;
}
int nvmlDeviceGetUUID(char *device, char *out, unsigned bytes) {
  (void)snprintf(out, bytes, "GPU-%d", index_of(device));
  return OK;
}
int nvmlDeviceGetMemoryInfo(char *device, memory_info *memory) {
  (void)device;
  *memory = (memory_info){(is("bridge") ? 24576ULL : 143771ULL) << 20, 1, 1};
  return OK;
}
int nvmlDeviceGetMemoryInfo_v2(char *device, memory_info_2 *memory) {
  memory_info old;
  if (memory->version != (sizeof *memory | 2U << 24)) return INVALID;
  if (is("old")) return NOT_SUPPORTED;
  (void)nvmlDeviceGetMemoryInfo(device, &old);
  memory->total = old.total;
  memory->reserved = 512ULL << 20;
  return OK;
}
int nvmlDeviceGetPciInfo_v3(char *device, pci_info *pci) {
  fill_pci(0x10U + (unsigned)index_of(device), pci);
  return OK;
}
int nvmlDeviceGetCudaComputeCapability(char *device, int *major, int *minor) {
  (void)device;
  if (is("hidden")) return NOT_SUPPORTED;
  *major = is("bridge") ? 8 : 9;
  *minor = is("bridge") ? 6 : 0;
  return OK;
}
int nvmlDeviceGetMaxPcieLinkGeneration(char *device, unsigned *generation) {
  (void)device;
  *generation = is("bridge") ? 4 : 5;
  return OK;
}
int nvmlDeviceGetMaxPcieLinkWidth(char *device, unsigned *lanes) {
  (void)device;
  *lanes = 16;
  return OK;
}
int nvmlDeviceGetPowerManagementDefaultLimit(char *device, unsigned *milliwatts) {
  (void)device;
  *milliwatts = is("bridge") ? 350000 : 700000;
  return OK;
}
int nvmlDeviceGetNvLinkState(char *device, unsigned link, unsigned *active) {
  (void)device;
  if (is("old")) return NOT_SUPPORTED;
  if (link >= (is("bridge") ? 4U : 18U)) return INVALID;
  *active = 1;
  return OK;
}
/* By NVML's count 3.0, and 4.0; or 5.0, as a driver told of Hopper. */
int nvmlDeviceGetNvLinkVersion(char *device, unsigned link, unsigned *version) {
  (void)device;
  (void)link;
  *version = is("bridge") ? 4 : is("hidden") ? 6 : 7;
  return OK;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(char *device, unsigned link, unsigned *type) {
  (void)device;
  (void)link;
  if (is("hidden")) return NOT_SUPPORTED;
  *type = is("bridge") ? 0 : 2;
  return OK;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(char *device, unsigned link, pci_info *pci) {
  if (is("hidden")) return NOT_SUPPORTED;
  fill_pci(is("bridge") ? 0x11U - (unsigned)index_of(device) : 0x80U + link, pci);
  return OK;
}
int nvmlDeviceGetTopologyCommonAncestor(char *a, char *b, unsigned *level) {
  if (a == b) return INVALID;
  *level = is("bridge") ? 30 : 50;
  return OK;
}
int nvmlDeviceGetP2PStatus(char *a, char *b, unsigned what, unsigned *status) {
  if (a == b || what > 1) return INVALID;
  *status = 0;
  return OK;
}
