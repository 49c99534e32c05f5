/* One entry of the CUDA suite, and what it finds. Entries run in a child process, so that a kernel that breaks the
 * device's context ends its own entry alone; what is found lies in memory that parent and child share. */
#ifndef DP_TESTS_CUDA_SUITE_H
#define DP_TESTS_CUDA_SUITE_H

#include "tests/cuda_device.h"
#include "tests/cuda_ops.h"

typedef struct cuda_mode {
  const char *name;
  kern_dtype dtype, gradient;
} cuda_mode;

typedef struct cuda_job {
  const cuda_ops_kind *kind; /* NULL: `special` */
  void (*special)(void);
  const char *name;
  const int64_t *z;
  int64_t longest;
  bool large; /* held to the fp32 run on the device instead of a reference */
  cuda_mode mode;
} cuda_job;

/* Where the child runs: the whole device, sizes timed first, a part. A place that cannot be is left out. */
enum { CUDA_WHOLE, CUDA_TUNED, CUDA_PART, CUDA_PLACES };
typedef struct cuda_world {
  cuda_place places[CUDA_PLACES];
  bool there[CUDA_PLACES];
  kern_cuda *contexts[CUDA_PLACES][4]; /* by dtype and gradient dtype; NULL: not yet */
  char *workspace;                     /* device memory for all */
  size_t workspace_bytes;
} cuda_world;
extern cuda_world cuda_suite_world;
enum { CUDA_GUARD = 256 }; /* bytes behind an array, which nobody may write */

/* Enters the place. The context has exactly so many bytes of workspace, filled with NaN. NULL: a failure was told. */
kern_cuda *cuda_suite_context(int place, kern_dtype dtype, kern_dtype gradient, size_t workspace_bytes);
bool cuda_suite_workspace_is_whole(size_t workspace_bytes, cudaStream_t stream);
/* Waits, and tells a failure of `what`. After one that breaks the process, this does not return. */
bool cuda_suite_went_well(kern_cuda *c, cudaStream_t stream, const char *what);

void cuda_suite_pass(void);
void cuda_suite_fail(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Passes or fails. */
void cuda_suite_check(bool right, const char *what, const char *text);
void cuda_suite_say_place(int place); /* for failures to come */

void *cuda_suite_host(size_t bytes); /* malloc, or the end */

size_t cuda_trial_workspace(const cuda_job *job);
void cuda_trial_run(const cuda_job *job, uint64_t seed);

typedef struct cuda_special {
  const char *name;
  void (*run)(void);
} cuda_special;
extern const cuda_special cuda_specials[]; /* ends with NULL */
void cuda_special_adamw(void);             /* cuda_adamw.c */
void cuda_special_exchange(void);
void cuda_special_remember(void); /* cuda_remember.c */
void cuda_special_shifts(void);   /* cuda_shifts.c */
void cuda_special_siblings(void); /* cuda_siblings.c */

#endif
