/* Every op of kernels/cuda on a device, at the sizes of the table of ops and at some of real models, in fp32 and bf16;
 * then what the table has no row for. Ends with a table of what failed and `N passed, N failed`; exits with 77 where
 * there is no device.
 *
 * usage: test_cuda_kernels [--only TEXT] [--skip TEXT] [--mode fp32|bf16|bf16+fp32] [--small] [--seconds N]
 *                          [--workers N] [--tell] [--list]
 *   --only TEXT    entries whose name contains it; may be given several times
 *   --skip TEXT    not those whose name contains it; may be given several times
 *   --small        no sizes of real models
 *   --workers N    processes; 0: none, all in this one (for compute-sanitizer)
 *   --seconds N    no entry is begun after
 *   --tell         each entry's name when it begins
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cuda/context.h"
#include "tests/cuda_plans.h"
#include "tests/cuda_suite.h"

static const cuda_mode modes[] = {
    {"fp32", KERN_FP32, KERN_FP32}, {"bf16", KERN_BF16, KERN_BF16}, {"bf16+fp32", KERN_BF16, KERN_FP32}};
enum { MODES = 3, MAX_JOBS = 1000, MAX_FAILURES = 400, MAX_TEXTS = 16, PART_SMS = 16, JOB_S = 150, MAX_RESTARTS = 60 };

/* Sizes of SDXL, SD 1.5, SD3 and Flux; kind, terms of the longest sum (over all rows, for weights' gradients), 0, sizes
 */
static const ops_row large_rows[] = {
    {&ops_linear, 4096, 0, {4096, 640, 5120, 1, 0}},
    {&ops_linear, 5120, 0, {1024, 5120, 1280, 1, 0}},
    {&ops_linear, 2048, 0, {154, 2048, 1280, 0, 0}},
    {&cuda_ops_siblings, 4096, 0, {4096, 640, 640, 0, 0, 3}},
    {&cuda_ops_siblings, 2048, 0, {1024, 1280, 1280, 0, 0, 3}},
    {&cuda_ops_siblings, 2048, 0, {616, 2048, 640, 0, 0, 2}},
    {&ops_lora, 4096, 0, {4096, 640, 640, 16}},
    {&ops_conv, 16384, 0, {1, 128, 128, 320, 320, 3, 3, 1, 1, 1, 1}},
    {&ops_conv, 11520, 0, {2, 32, 32, 1280, 1280, 3, 3, 1, 1, 1, 1}},
    {&ops_conv, 16384, 0, {1, 128, 128, 4, 320, 3, 3, 1, 1, 1, 1}},
    {&ops_conv, 16384, 0, {1, 128, 128, 320, 4, 3, 3, 1, 1, 1, 1}},
    {&ops_conv, 8640, 0, {2, 64, 64, 640, 640, 3, 3, 2, 1, 1, 1}},
    {&ops_conv, 16384, 0, {1, 128, 128, 640, 320, 1, 1, 1, 0, 0, 1}},
    {&ops_attention, 4096, 0, {1, 10, 64, 4096, 4096, 0}},
    {&ops_attention, 4096, 0, {1, 10, 64, 4096, 77, 0}},
    {&ops_attention, 1024, 0, {2, 20, 64, 1024, 1024, 0}},
    {&ops_attention, 4096, 0, {1, 8, 40, 4096, 4096, 0}},
    {&ops_attention, 1024, 0, {1, 8, 80, 1024, 77, 0}},
    {&ops_attention, 1024, 0, {2, 20, 64, 1024, 77, 0}},
    {&cuda_ops_few_keys, 4096, 0, {1, 10, 64, 4096, 77, 0}},
    {&cuda_ops_few_keys, 4096, 0, {8, 10, 8, 4000, 77, 0}}, /* slabs of 8 tiles, the last one shorter */
    {&cuda_ops_few_keys, 4096, 0, {1, 8, 40, 4096, 77, 0}},
    {&cuda_ops_few_keys, 1024, 0, {1, 8, 80, 1000, 77, 0}},
    {&cuda_ops_few_keys, 1024, 0, {1, 20, 64, 1024, 120, 0}},
    {&cuda_ops_few_keys, 256, 0, {2, 8, 160, 256, 77, 0}},
    {&ops_attention, 256, 0, {1, 8, 160, 256, 256, 0}},
    {&ops_attention, 1178, 0, {2, 24, 64, 1178, 1178, 1}},
    {&ops_attention, 1536, 0, {1, 24, 128, 1536, 1536, 0}},
    {&ops_separable, 8192, 0, {2, 64, 64, 640, 16, 16, 64}},
    {&ops_group_norm, 163840, 0, {1, 16384, 320, 32, 1}},
    {&ops_group_norm, 491520, 0, {1, 16384, 960, 32, 1}},
    {&ops_group_norm, 40960, 0, {4, 1024, 1280, 32, 1}},
    {&ops_layer_norm, 8192, 0, {8192, 640, 1}},
    {&ops_layer_norm, 2048, 0, {2048, 1280, 1}},
    {&ops_layer_norm, 4429, 0, {4429, 1536, 0}},
    {&ops_layer_norm, 1000, 0, {333, 1000, 1}}, /* the last accesses of a warp are of some lanes alone */
    {&ops_rms_norm, 777, 0, {777, 776, 1}},
    {&ops_rms_norm, 56544, 0, {56544, 64, 1}},
    {&ops_rms_norm, 56544, 0, {36864, 128, 1}},
    {&ops_activation, 8, 0, {KERN_SILU, 5242880}},
    {&ops_activation, 8, 0, {KERN_GELU_TANH, 6291459}},
    {&ops_gated, 8, 0, {KERN_GEGLU, 4096, 2560}},
    {&ops_add, 1, 0, {10485761}},
    {&ops_add_vector, 16384, 0, {2, 16384, 320, 0}},
    {&ops_add_vector, 16384, 0, {4, 4096, 640, -1}},
    {&ops_modulate, 4096, 0, {2, 4096, 1536, 3}},
    {&ops_gate, 4096, 0, {2, 4096, 1536, 3}},
    {&ops_concat, 1, 0, {8192, 640, 320, 320}},
    {&ops_split, 1, 0, {2, 2457600, 511488, 8}},
    {&ops_upsample, 4, 0, {1, 64, 64, 640, 2}},
    {&ops_downsample, 4, 0, {1, 128, 128, 320, 2}},
    {&ops_patchify, 1, 0, {4, 128, 128, 16, 2, 0}},
    {&ops_unpatchify, 1, 0, {4, 128, 128, 16, 2, 1}},
    {&ops_rotary, 2, 0, {1, 4608, 24, 128}},
    {&ops_loss, 65536, 0, {8, 65536, 1}},
    {&ops_adamw, 64, 0, {3000017, 3}},
};

/* Sizes at which the kernels of few keys have their edges; z as attention's. */
static const ops_row few_rows[] = {
    {&cuda_ops_few_keys, 64, 0, {1, 1, 64, 1, 1, 0}},     {&cuda_ops_few_keys, 64, 0, {2, 3, 64, 63, 77, 0}},
    {&cuda_ops_few_keys, 130, 0, {1, 2, 64, 130, 80, 0}}, {&cuda_ops_few_keys, 385, 0, {2, 2, 64, 385, 77, 0}},
    {&cuda_ops_few_keys, 81, 0, {1, 2, 64, 65, 81, 0}},   {&cuda_ops_few_keys, 257, 0, {2, 1, 56, 257, 128, 0}},
    {&cuda_ops_few_keys, 77, 0, {2, 2, 64, 77, 77, 1}},   {&cuda_ops_few_keys, 120, 0, {1, 2, 48, 120, 120, 1}},
    {&cuda_ops_few_keys, 200, 0, {1, 3, 40, 200, 77, 0}}, {&cuda_ops_few_keys, 129, 0, {2, 2, 8, 129, 5, 0}},
    {&cuda_ops_few_keys, 131, 0, {1, 3, 80, 131, 77, 0}}, {&cuda_ops_few_keys, 72, 0, {1, 2, 72, 64, 16, 0}},
    {&cuda_ops_few_keys, 152, 0, {1, 2, 152, 99, 79, 0}},
};

/* Small sizes at which kernels go other ways than at the table's: accesses of 16 bytes, rings in shared memory and more
 * than one turn of them, groups that a block keeps whole or that reach over blocks, rows of a part of a warp, of a warp
 * and of a block, wide heads of our own attention. */
static const ops_row edge_rows[] = {
    {&ops_linear, 300, 0, {300, 64, 96, 1, 0}},
    {&cuda_ops_siblings, 300, 0, {300, 64, 96, 0, 0, 3}},
    {&cuda_ops_siblings, 77, 0, {77, 40, 24, 0, 0, 2}},
    {&cuda_ops_siblings, 33, 0, {33, 17, 29, 0, 0, 3}},
    {&ops_attention, 300, 0, {1, 2, 100, 70, 90, 0}},
    {&ops_attention, 300, 0, {1, 1, 150, 70, 90, 0}},
    {&ops_attention, 300, 0, {1, 2, 200, 70, 90, 0}},
    {&ops_attention, 300, 0, {1, 1, 250, 70, 90, 0}},
    {&ops_attention, 96, 0, {1, 2, 96, 1, 1, 0}},
    {&ops_group_norm, 1120, 0, {2, 70, 64, 4, 1}},
    {&ops_group_norm, 1400, 0, {2, 70, 80, 4, 1}},
    {&ops_group_norm, 500, 0, {1, 50, 40, 4, 1}},
    {&ops_group_norm, 2367, 0, {1, 9, 2104, 8, 1}},
    {&ops_group_norm, 72000, 0, {2, 9000, 64, 8, 1}},
    {&ops_group_norm, 40990, 0, {2, 4099, 320, 32, 1}},
    {&ops_group_norm, 1344, 0, {2, 70, 36, 3, 1}},
    {&ops_layer_norm, 333, 0, {333, 72, 1}},
    {&ops_layer_norm, 333, 0, {333, 200, 1}},
    {&ops_layer_norm, 400, 0, {333, 400, 1}},
    {&ops_layer_norm, 1500, 0, {1500, 640, 1}},
    {&ops_layer_norm, 888, 0, {300, 888, 1}},
    {&ops_layer_norm, 1240, 0, {170, 1240, 1}},
    {&ops_layer_norm, 1504, 0, {70, 1504, 1}},
    {&ops_layer_norm, 1800, 0, {600, 1800, 1}},
    {&ops_layer_norm, 8200, 0, {9, 8200, 1}},
    {&ops_rms_norm, 333, 0, {333, 72, 1}},
    {&ops_rms_norm, 1500, 0, {1500, 640, 1}},
    {&ops_rms_norm, 1800, 0, {600, 1800, 1}},
    {&ops_add_vector, 1000, 0, {2, 500, 48, 3}},
    {&ops_modulate, 500, 0, {2, 500, 48, 3}},
    {&ops_gate, 500, 0, {2, 500, 48, 3}},
    {&ops_loss, 256, 0, {3, 4096, 1}},
};

/* ---- what is found, shared with the children ---- */

typedef struct failure {
  char name[40], sizes[72], mode[12], place[12], what[48], text[224];
} failure;
typedef struct board {
  atomic_int next, passed, failed, kept, begun;
  int running[64];     /* the job of each worker; -1: none */
  char part[256];      /* why there is no part, or its size */
  char libraries[256]; /* as kern_cuda_describe */
  failure failures[MAX_FAILURES];
} board;
static board *found;
static cuda_job jobs[MAX_JOBS];
static int job_count, worker_index, current;
static bool alone, telling; /* without children; which entry begins */
static const char *current_place = "whole";
static double began_s, deadline_s;
cuda_world cuda_suite_world;

static double now_s(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void cuda_suite_pass(void) { atomic_fetch_add(&found->passed, 1); }
static void sizes_of(const cuda_job *job, size_t bytes, char *out) {
  int count = OPS_MAX_SIZES;
  size_t length = 0;
  out[0] = 0;
  while (job->z != NULL && count > 0 && job->z[count - 1] == 0) count--;
  for (int i = 0; job->z != NULL && i < count && length + 1 < bytes; i++) {
    const int wrote = snprintf(out + length, bytes - length, i ? ",%lld" : "%lld", (long long)job->z[i]);
    length += wrote > 0 ? (size_t)wrote : 0;
  }
}
static void print_entry(const char *before, const cuda_job *job) {
  char sizes[72];
  sizes_of(job, sizeof sizes, sizes);
  printf("%s%s (%s) %s\n", before, job->name, sizes, job->mode.name);
}
static void tell(int job, const char *place, const char *what, const char *text) {
  atomic_fetch_add(&found->failed, 1);
  const int i = atomic_fetch_add(&found->kept, 1);
  if (i >= MAX_FAILURES) return;
  failure *f = &found->failures[i];
  (void)snprintf(f->name, sizeof f->name, "%s", jobs[job].name);
  sizes_of(&jobs[job], sizeof f->sizes, f->sizes);
  (void)snprintf(f->mode, sizeof f->mode, "%s", jobs[job].mode.name);
  (void)snprintf(f->place, sizeof f->place, "%s", place);
  (void)snprintf(f->what, sizeof f->what, "%s", what);
  (void)snprintf(f->text, sizeof f->text, "%s", text);
}
void cuda_suite_fail(const char *what, const char *format, ...) {
  char text[sizeof found->failures[0].text];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  tell(current, current_place, what, text);
}
void cuda_suite_check(bool right, const char *what, const char *text) {
  if (right)
    cuda_suite_pass();
  else
    cuda_suite_fail(what, "%s", text);
}
void cuda_suite_say_place(int place) {
  static const char *const names[] = {"whole", "tuned", "part"};
  current_place = names[place];
}
void *cuda_suite_host(size_t bytes) {
  void *memory = malloc(bytes > 0 ? bytes : 1);
  if (memory == NULL) {
    (void)fprintf(stderr, "no memory\n");
    exit(1);
  }
  return memory;
}

/* ---- contexts ---- */

enum { BROKEN = 3 }; /* exit status of a process whose device context can do no more */
static int report(void);

bool cuda_suite_went_well(kern_cuda *c, cudaStream_t stream, const char *what) {
  const cudaError_t result = cudaStreamSynchronize(stream);
  dp_error error = DP_ERROR_INIT;
  const dp_status status = kern_cuda_status(c, &error);
  (void)cudaGetLastError();
  if (result == cudaSuccess && status == DP_OK) return true;
  cuda_suite_fail(what, "%.120s%s%.90s", error.text, result != cudaSuccess ? "; the stream: " : "",
                  result != cudaSuccess ? cudaGetErrorString(result) : "");
  const cudaError_t still = cudaDeviceSynchronize();
  (void)cudaGetLastError();
  if (still == cudaSuccess || still == cudaErrorStreamCaptureUnsupported) return false;
  if (alone) (void)report(); /* else the parent tells */
  (void)fflush(stdout);
  _exit(BROKEN);
}

kern_cuda *cuda_suite_context(int place, kern_dtype dtype, kern_dtype gradient, size_t workspace_bytes) {
  cuda_world *w = &cuda_suite_world;
  const cuda_place *at = &w->places[place];
  kern_cuda **c = &w->contexts[place][(dtype == KERN_BF16 ? 2 : 0) + (gradient == KERN_BF16 ? 1 : 0)];
  if (!cuda_place_enter(at)) {
    cuda_suite_fail("context", "the place cannot be entered");
    return NULL;
  }
  if (*c == NULL) {
    const kern_cuda_options options = {.dtype = dtype,
                                       .gradient = gradient,
                                       .stream = at->stream,
                                       .sm_count = at->sm_count,
                                       .workspace = w->workspace,
                                       .workspace_bytes = w->workspace_bytes};
    dp_error error = DP_ERROR_INIT;
    if (kern_cuda_create(&options, c, &error) != DP_OK) {
      *c = NULL;
      cuda_suite_fail("context", "%s", error.text);
      return NULL;
    }
    if (!found->libraries[0]) kern_cuda_describe(*c, found->libraries);
  }
  (*c)->options.workspace_bytes = workspace_bytes; /* no more than this op says that it needs */
  (void)cudaMemsetAsync(w->workspace, 0xff, workspace_bytes, at->stream);
  (void)cudaMemsetAsync(w->workspace + workspace_bytes, 0xa5, CUDA_GUARD, at->stream);
  return *c;
}
bool cuda_suite_workspace_is_whole(size_t workspace_bytes, cudaStream_t stream) {
  unsigned char guard[CUDA_GUARD];
  (void)cudaStreamSynchronize(stream);
  (void)cudaMemcpy(guard, cuda_suite_world.workspace + workspace_bytes, CUDA_GUARD, cudaMemcpyDeviceToHost);
  for (int i = 0; i < CUDA_GUARD; i++)
    if (guard[i] != 0xa5) return false;
  return true;
}

/* False: there is no device. */
static bool make_world(void) {
  cuda_world *w = &cuda_suite_world;
  char why[200];
  if (!cuda_device_is_there(why)) {
    if (worker_index == 0) printf("skipped: %s\n", why);
    (void)fflush(stdout);
    return false;
  }
  if (!cuda_place_whole(&w->places[CUDA_WHOLE], why)) {
    (void)fprintf(stderr, "the device cannot be used: %s\n", why);
    exit(1);
  }
  w->there[CUDA_WHOLE] = w->there[CUDA_TUNED] = true;
  w->places[CUDA_TUNED] = w->places[CUDA_WHOLE];
  w->there[CUDA_PART] = cuda_place_part(PART_SMS, &w->places[CUDA_PART], why);
  (void)snprintf(found->part, sizeof found->part, "%s", why);
  if (w->there[CUDA_PART])
    (void)snprintf(found->part, sizeof found->part, "a part of %d multiprocessors", w->places[CUDA_PART].sm_count);
  (void)cuda_place_enter(&w->places[CUDA_WHOLE]);
  for (int i = 0; i < job_count; i++) {
    const size_t bytes = jobs[i].kind ? cuda_trial_workspace(&jobs[i]) : 0;
    if (bytes > w->workspace_bytes) w->workspace_bytes = bytes;
  }
  if (w->workspace_bytes < 1 << 26) w->workspace_bytes = 1 << 26; /* for what the table has no row for */
  if (cudaMalloc((void **)&w->workspace, w->workspace_bytes + CUDA_GUARD) != cudaSuccess) {
    (void)fprintf(stderr, "no workspace of %zu bytes\n", w->workspace_bytes);
    exit(1);
  }
  return true;
}

/* Takes jobs until none is left. `watched`: one that hangs ends the process, which another then follows. */
static void work(bool watched) {
  while (now_s() < deadline_s && (current = atomic_fetch_add(&found->next, 1)) < job_count) {
    found->running[worker_index] = current;
    atomic_fetch_add(&found->begun, 1);
    cuda_suite_say_place(CUDA_WHOLE);
    if (telling) print_entry("begins: ", &jobs[current]), (void)fflush(stdout);
    if (watched) (void)alarm(JOB_S);
    if (jobs[current].kind)
      cuda_trial_run(&jobs[current], (uint64_t)current + 1);
    else
      jobs[current].special();
    (void)alarm(0);
    found->running[worker_index] = -1;
  }
}

static void add_jobs(const ops_row *rows, size_t count, bool large) {
  const cuda_ops_kind *const *const lists[] = {cuda_ops_products, cuda_ops_moves};
  for (size_t r = 0; r < count; r++)
    for (int l = 0; l < 2; l++)
      for (const cuda_ops_kind *const *k = lists[l]; *k; k++)
        for (int m = large ? 1 : 0; m < MODES && (*k)->rows == rows[r].kind && job_count < MAX_JOBS; m++) {
          /* gradients' dtype is looked at where there is such a gradient */
          if (m == 2 && (large || ((*k)->weights | (*k)->given) == 0)) continue;
          jobs[job_count++] = (cuda_job){.kind = *k,
                                         .name = cuda_ops_name(*k),
                                         .z = rows[r].z,
                                         .longest = rows[r].longest,
                                         .large = large,
                                         .mode = modes[m]};
        }
}

typedef struct texts {
  char *text[MAX_TEXTS];
  int count;
} texts;
static bool has_any(const char *name, const texts *of) {
  for (int k = 0; k < of->count; k++)
    if (strstr(name, of->text[k]) != NULL) return true;
  return false;
}
static void choose(const texts *only, const texts *skip, const char *mode) {
  int kept = 0;
  for (int i = 0; i < job_count; i++) {
    bool wanted = (only->count == 0 || has_any(jobs[i].name, only)) && !has_any(jobs[i].name, skip);
    if (mode != NULL && jobs[i].kind != NULL) wanted = wanted && strcmp(jobs[i].mode.name, mode) == 0;
    if (wanted) jobs[kept++] = jobs[i];
  }
  job_count = kept;
}

static pid_t start(int worker) {
  (void)fflush(stdout);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  worker_index = worker;
  if (!make_world()) _exit(77);
  work(true);
  (void)fflush(stdout);
  _exit(0);
}

/* True: some worker found a device. */
static bool run_workers(int workers) {
  pid_t pids[64];
  int alive = 0, restarts = 0, status = 0;
  bool any = false;
  for (int i = 0; i < workers; i++) {
    found->running[i] = -1;
    pids[i] = start(i);
    if (pids[i] > 0) alive++;
  }
  while (alive > 0) {
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) break;
    int w = 0;
    while (w < workers && pids[w] != pid) w++;
    if (w == workers) continue;
    alive--;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1, job = found->running[w];
    if (code == 77) continue;
    any = true;
    if (code == 0) continue;
    char text[100];
    (void)snprintf(text, sizeof text, "%s %d", code < 0 ? "the process was ended by signal" : "the process ended with",
                   code < 0 ? WTERMSIG(status) : code);
    if (job >= 0) tell(job, "", "entry", text);
    if (job < 0) atomic_fetch_add(&found->failed, 1), printf("a worker: %s\n", text);
    found->running[w] = -1;
    if (restarts++ < MAX_RESTARTS && job >= 0 && (pids[w] = start(w)) > 0) alive++;
  }
  return any;
}

static int report(void) {
  const int failed = atomic_load(&found->failed), kept = atomic_load(&found->kept);
  for (int i = 0; i < kept && i < MAX_FAILURES; i++) {
    const failure *f = &found->failures[i];
    printf("FAIL %s (%s) %s %s: %s: %s\n", f->name, f->sizes, f->mode, f->place, f->what, f->text);
  }
  /* how many of each and the first of them, so that the end of the output is enough to see where to look */
  for (int i = 0; i < kept && i < MAX_FAILURES; i++) {
    const failure *f = &found->failures[i];
    int count = 0, before = 0;
    for (int j = 0; j < kept && j < MAX_FAILURES; j++) {
      const failure *g = &found->failures[j];
      if (strcmp(f->name, g->name) == 0 && strcmp(f->mode, g->mode) == 0) count++, before += j < i;
    }
    if (before == 0)
      printf("%4d of %s %s: (%s) %s %s: %.140s\n", count, f->name, f->mode, f->sizes, f->place, f->what, f->text);
  }
  if (found->libraries[0]) printf("libraries: %s\n", found->libraries);
  printf("%d of %d entries in %.1f s; %s\n", atomic_load(&found->begun), job_count, now_s() - began_s, found->part);
  tell_plans();
  printf("%d passed, %d failed\n", atomic_load(&found->passed), failed);
  return failed > 0 || atomic_load(&found->passed) == 0;
}

int main(int argc, char **argv) {
  texts only = {.count = 0}, skip = {.count = 0};
  int workers = 4;
  const char *mode = NULL;
  bool list = false, small = false;
  double seconds = 1e9;
  for (int i = 1; i < argc; i++) {
    const bool more = i + 1 < argc;
    if (strcmp(argv[i], "--list") == 0)
      list = true;
    else if (strcmp(argv[i], "--small") == 0)
      small = true;
    else if (strcmp(argv[i], "--tell") == 0)
      telling = true;
    else if (more && strcmp(argv[i], "--only") == 0 && only.count < MAX_TEXTS)
      only.text[only.count++] = argv[++i];
    else if (more && strcmp(argv[i], "--skip") == 0 && skip.count < MAX_TEXTS)
      skip.text[skip.count++] = argv[++i];
    else if (more && strcmp(argv[i], "--mode") == 0)
      mode = argv[++i];
    else if (more && strcmp(argv[i], "--seconds") == 0)
      seconds = strtod(argv[++i], NULL);
    else if (more && strcmp(argv[i], "--workers") == 0)
      workers = (int)strtol(argv[++i], NULL, 10);
    else {
      (void)fprintf(stderr,
                    "usage: %s [--only TEXT] [--skip TEXT] [--mode fp32|bf16|bf16+fp32] [--small] [--seconds N] "
                    "[--workers N] [--tell] [--list]\n",
                    argv[0]);
      return 2;
    }
  }
  add_jobs(ops_rows, ops_row_count, false);
  add_jobs(few_rows, sizeof few_rows / sizeof *few_rows, false);
  add_jobs(edge_rows, sizeof edge_rows / sizeof *edge_rows, false);
  for (const cuda_special *s = cuda_specials; s->name != NULL && job_count < MAX_JOBS; s++)
    jobs[job_count++] = (cuda_job){.special = s->run, .name = s->name, .mode = {.name = ""}};
  if (!small) add_jobs(large_rows, sizeof large_rows / sizeof *large_rows, true);
  choose(&only, &skip, mode);
  if (list) {
    for (int i = 0; i < job_count; i++) print_entry("", &jobs[i]);
    return 0;
  }
  found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return 1;
  began_s = now_s();
  deadline_s = began_s + seconds;
  if (workers > 64) workers = 64;
  if (workers > 0) {
    if (!run_workers(workers)) return atomic_load(&found->failed) > 0 ? report() : 77;
  } else {
    alone = true;
    if (!make_world()) return 77;
    work(false);
  }
  return report();
}
