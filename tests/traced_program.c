/* A program under `diffpipe profile`, for tests/traced.sh: loads the library as the driver does, says its steps by NVTX
 * and lets tests/fake_cupti.c work.
 *
 * usage: traced_program STEPS END [WAIT_MS]
 *   END: return, _exit (status 3), kill (itself), term, exec (/bin/true), fork (a child with two ranges and a status
 * 0), worker (a child that does the steps, while this one only waits), graph (with nodes of a graph), hold (until a
 *        signal comes). WAIT_MS: after the last step, before the end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void (*fake_step)(int graph);

/* What cuInit does with CUDA_INJECTION64_PATH. */
static int initialise(void) {
  const char *path = getenv("CUDA_INJECTION64_PATH");
  void *library = path ? dlopen(path, RTLD_NOW) : NULL;
  int (*begin)(void) = NULL;
  void *found = library ? dlsym(library, "InitializeInjection") : NULL;
  memcpy(&begin, &found, sizeof found);
  if (!begin || begin() != 1) return 1;
  void *cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
  found = cupti ? dlsym(cupti, "fake_step") : NULL;
  memcpy(&fake_step, &found, sizeof found);
  return fake_step == NULL;
}

static void do_steps(int count, int graph) {
  for (int i = 0; i < count; i++) {
    nvtxRangePushA("step");
    fake_step(graph);
    if (count <= 200) (void)usleep(count <= 100 ? 300 : 10000); /* as long as the step's work, in its range */
    nvtxRangePop();
  }
}

/* Ranges of another domain that cross those of the default one. */
static void say_ranges(void) {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("data");
  nvtxEventAttributes_t event = {
      .version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE, .messageType = NVTX_MESSAGE_TYPE_REGISTERED};
  event.message.registered = nvtxDomainRegisterStringA(domain, "crossing");
  (void)nvtxDomainRangePushEx(domain, &event);
  (void)nvtxRangePushW(L"outer");
  (void)nvtxDomainRangePop(domain);
  (void)nvtxRangePop();
  nvtxRangeEnd(nvtxRangeStartA("started"));
  nvtxMarkA("mark");
}

static int wait_for(pid_t child) {
  int how = 0;
  if (child < 0 || waitpid(child, &how, 0) != child) return 1;
  return WIFEXITED(how) ? WEXITSTATUS(how) : 1;
}

int main(int argc, char **argv) {
  const int steps = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
  const char *end = argc > 2 ? argv[2] : "return";
  const useconds_t wait_us = argc > 3 ? (useconds_t)strtol(argv[3], NULL, 10) * 1000 : 0;
  if (strcmp(end, "worker") == 0) {
    nvtxMarkA("before");
    const pid_t child = fork();
    if (child != 0) return wait_for(child);
  }
  if (initialise() != 0) return 9;
  do_steps(steps, strcmp(end, "graph") == 0);
  say_ranges();
  if (strcmp(end, "fork") == 0) {
    const pid_t child = fork();
    if (child == 0) {
      nvtxRangePushA("in the child");
      (void)nvtxRangePop();
      exit(0);
    }
    if (wait_for(child) != 0) return 8;
  }
  (void)usleep(wait_us);
  if (strcmp(end, "_exit") == 0) _exit(3);
  if (strcmp(end, "kill") == 0) (void)raise(SIGKILL);
  if (strcmp(end, "term") == 0) (void)raise(SIGTERM);
  if (strcmp(end, "exec") == 0) (void)execl("/bin/true", "true", (char *)NULL);
  if (strcmp(end, "hold") == 0) {
    (void)puts("held");
    (void)fflush(stdout);
    for (;;) (void)pause();
  }
  return 0;
}
