/* A pool of threads that sleep between jobs.
 *
 * A job is published under the lock with a new number; `ticket` holds that number and the next part to do, in one word,
 * so that a thread that wakes late for an old job cannot take a part of a new one. The caller works too, and waits only
 * for parts that a thread has taken: nobody waits for a sleeper to wake up.
 */
#define _POSIX_C_SOURCE 200112L
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/cpu/context.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_OPENBLAS
#include <cblas.h>
#endif

enum { MAX_THREADS = 1024, SPINS = 2000, CACHE_LINE = 64 };

typedef struct job {
  kern_part part;
  const void *data;
  uint32_t parts;
} job;

typedef struct worker {
  kern_context *context;
  pthread_t thread;
  int index;
} worker;

struct kern_context {
  int threads;
  size_t workspace_bytes;
  void *workspace, *owned;
  worker *workers; /* threads - 1 */
  int started;
  pthread_mutex_t lock;
  pthread_cond_t wake, finished;
  job job;
  bool stop;
  _Alignas(CACHE_LINE) _Atomic uint64_t ticket; /* number of the job << 32 | next part */
  _Alignas(CACHE_LINE) _Atomic uint32_t done;   /* parts of this job that are finished */
};

static void rest(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/* Does parts of the job with this number until none is left. */
static void work(kern_context *c, const job *j, uint32_t number, int thread) {
  uint64_t ticket = atomic_load(&c->ticket);
  for (;;) {
    const uint32_t next = (uint32_t)ticket;
    if ((uint32_t)(ticket >> 32) != number || next >= j->parts) return;
    if (!atomic_compare_exchange_weak(&c->ticket, &ticket, ticket + 1)) continue;
    j->part(j->data, next, thread);
    if (atomic_fetch_add(&c->done, 1) + 1 == j->parts) {
      pthread_mutex_lock(&c->lock);
      pthread_cond_signal(&c->finished);
      pthread_mutex_unlock(&c->lock);
    }
    ticket = atomic_load(&c->ticket);
  }
}

static void *run_worker(void *argument) {
  const worker *w = argument;
  kern_context *c = w->context;
  uint32_t seen = 0;
  for (;;) {
    for (int i = 0; i < SPINS && (uint32_t)(atomic_load(&c->ticket) >> 32) == seen; i++) rest();
    pthread_mutex_lock(&c->lock);
    uint32_t number;
    while ((number = (uint32_t)(atomic_load(&c->ticket) >> 32)) == seen && !c->stop)
      pthread_cond_wait(&c->wake, &c->lock);
    const bool stop = c->stop;
    const job j = c->job;
    pthread_mutex_unlock(&c->lock);
    if (stop) return NULL;
    seen = number;
    work(c, &j, number, w->index);
  }
}

void kern_parallel(kern_context *c, int64_t parts, kern_part part, const void *data) {
  assert(parts <= UINT32_MAX);
  if (c->threads == 1 || parts <= 1) {
    for (int64_t i = 0; i < parts; i++) part(data, i, 0);
    return;
  }
  const job j = {part, data, (uint32_t)parts};
  pthread_mutex_lock(&c->lock);
  const uint32_t number = (uint32_t)(atomic_load(&c->ticket) >> 32) + 1;
  c->job = j;
  atomic_store(&c->done, 0);
  atomic_store(&c->ticket, (uint64_t)number << 32);
  pthread_cond_broadcast(&c->wake);
  pthread_mutex_unlock(&c->lock);
  work(c, &j, number, 0);
  for (int i = 0; i < SPINS && atomic_load(&c->done) < j.parts; i++) rest();
  if (atomic_load(&c->done) == j.parts) return;
  pthread_mutex_lock(&c->lock);
  while (atomic_load(&c->done) < j.parts) pthread_cond_wait(&c->finished, &c->lock);
  pthread_mutex_unlock(&c->lock);
}

void *kern_workspace(kern_context *c, size_t bytes) {
  assert(bytes <= c->workspace_bytes);
  (void)bytes;
  return c->workspace;
}

int kern_context_threads(const kern_context *context) { return context->threads; }

dp_status kern_context_create(const kern_context_options *options, kern_context **context, dp_error *error) {
  if (options->threads < 1 || options->threads > MAX_THREADS)
    return dp_fail(error, DP_BAD_INPUT, "%d threads, allowed: 1 to %d", options->threads, MAX_THREADS);
  const size_t whole = (sizeof(kern_context) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
  kern_context *c = aligned_alloc(CACHE_LINE, whole);
  if (c == NULL) return dp_fail_memory(error);
  memset(c, 0, whole);
  c->threads = options->threads;
  c->workspace_bytes = options->workspace_bytes;
  c->workspace = options->workspace;
  dp_status status = DP_OK;
  if (pthread_mutex_init(&c->lock, NULL) != 0) goto no_lock;
  if (pthread_cond_init(&c->wake, NULL) != 0) goto no_wake;
  if (pthread_cond_init(&c->finished, NULL) != 0) goto no_finished;
  if (c->workspace == NULL && c->workspace_bytes > 0) {
    if (c->workspace_bytes > SIZE_MAX - CACHE_LINE) goto fail;
    c->owned = aligned_alloc(CACHE_LINE, (c->workspace_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (c->owned == NULL) goto fail;
    c->workspace = c->owned;
  }
  c->workers = calloc((size_t)c->threads, sizeof *c->workers);
  if (c->workers == NULL) goto fail;
#ifdef HAVE_OPENBLAS
  openblas_set_num_threads(1); /* the parts are the threads' work */
#endif
  for (; c->started < c->threads - 1; c->started++) {
    worker *w = &c->workers[c->started];
    *w = (worker){.context = c, .index = c->started + 1};
    if (pthread_create(&w->thread, NULL, run_worker, w) == 0) continue;
    status = dp_fail(error, DP_UNSUPPORTED, "the system gives no more than %d threads of the %d wanted", c->started + 1,
                     c->threads);
    kern_context_free(c);
    return status;
  }
  *context = c;
  return DP_OK;
fail:
  kern_context_free(c);
  return dp_fail_memory(error);
no_finished:
  pthread_cond_destroy(&c->wake);
no_wake:
  pthread_mutex_destroy(&c->lock);
no_lock:
  free(c);
  return dp_fail_memory(error);
}

void kern_context_free(kern_context *c) {
  if (c == NULL) return;
  pthread_mutex_lock(&c->lock);
  c->stop = true;
  pthread_cond_broadcast(&c->wake);
  pthread_mutex_unlock(&c->lock);
  for (int i = 0; i < c->started; i++) pthread_join(c->workers[i].thread, NULL);
  pthread_cond_destroy(&c->finished);
  pthread_cond_destroy(&c->wake);
  pthread_mutex_destroy(&c->lock);
  free(c->workers);
  free(c->owned);
  free(c);
}
