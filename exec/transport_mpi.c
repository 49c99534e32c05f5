#define _POSIX_C_SOURCE 200809L
#include "exec/transport_mpi.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

/* ---- who started this process ---- */

/* A number of the environment; 0: it is not there. */
static int read_count(const char *name) {
  const char *text = getenv(name);
  return text ? (int)strtol(text, NULL, 10) : 0;
}

int exec_mpi_launched(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (read_count(names[i]) > 0) return read_count(names[i]);
  return 1;
}

#ifndef HAVE_MPI

dp_status exec_transport_open_mpi(exec_transport **transport, exec_mpi_late *late, dp_error *error) {
  const int launched = exec_mpi_launched();
  (void)late;
  if (launched > 1)
    return dp_fail(error, DP_UNSUPPORTED, "%d processes were started, but this diffpipe was built without MPI",
                   launched);
  *transport = NULL;
  return DP_OK;
}

#else

#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/condition.h"

static dp_status fail_mpi(const char *call, int code, dp_error *error) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) (void)snprintf(text, sizeof text, "error %d", code);
  return dp_fail(error, DP_RUN_FAILED, "%s: %s", call, text);
}

#define MPI_TRY(call, error)                                                        \
  do {                                                                              \
    const int mpi_try_code_ = (call);                                               \
    if (mpi_try_code_ != MPI_SUCCESS) return fail_mpi(#call, mpi_try_code_, error); \
  } while (0)

enum { PIECE_BYTES = 1 << 30 };
static const double LONGEST_NAP_S = 200e-6;
static const double LOOK_S = 0.05; /* how often a sleeper looks whether it may go on waiting */

/* ---- waiting: the lock is held, but while asleep ---- */

typedef struct waiter {
  pthread_cond_t done_changed; /* or it is to test for all */
  MPI_Status status;
  int code;
  bool done;
} waiter;

typedef struct mpi_transport {
  exec_transport base;
  MPI_Comm comm;
  pthread_mutex_t lock; /* held for every call of MPI */
  bool spin;
  bool broken; /* a message was given up half-way, or MPI failed */
  /* Messages under way, [count] each. */
  waiter **waiters;
  MPI_Request *requests;
  MPI_Status *statuses; /* room for MPI_Testsome */
  int *done;            /* the same */
  int count, capacity;
  waiter *tester; /* who tests for all; NULL: nobody waits */
  double quiet_s; /* since when nothing came or went */
} mpi_transport;

static dp_status make_room(mpi_transport *t, dp_error *error) {
  if (t->count < t->capacity) return DP_OK;
  const size_t more = t->capacity ? 2 * (size_t)t->capacity : 16;
  waiter **waiters = realloc(t->waiters, more * sizeof *waiters);
  if (waiters) t->waiters = waiters;
  MPI_Request *requests = realloc(t->requests, more * sizeof *requests);
  if (requests) t->requests = requests;
  MPI_Status *statuses = realloc(t->statuses, more * sizeof *statuses);
  if (statuses) t->statuses = statuses;
  int *done = realloc(t->done, more * sizeof *done);
  if (done) t->done = done;
  if (!waiters || !requests || !statuses || !done) return dp_fail_memory(error);
  t->capacity = (int)more;
  return DP_OK;
}

static void take_out(mpi_transport *t, int at) {
  t->count--;
  t->waiters[at] = t->waiters[t->count];
  t->requests[at] = t->requests[t->count];
}

static int compare_down(const void *a, const void *b) { return *(const int *)b - *(const int *)a; }

static void test_all(mpi_transport *t) {
  int count = 0;
  const int code = MPI_Testsome(t->count, t->requests, &count, t->done, t->statuses);
  if (code != MPI_SUCCESS) t->broken = true;
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) /* nobody's in particular */
    for (count = 0; count < t->count; count++) t->done[count] = count;
  if (count == MPI_UNDEFINED || count <= 0) return;
  for (int i = 0; i < count; i++) {
    waiter *w = t->waiters[t->done[i]];
    w->code = code == MPI_ERR_IN_STATUS ? t->statuses[i].MPI_ERROR : code;
    w->status = t->statuses[i];
    w->done = true;
    if (w != t->tester) (void)pthread_cond_signal(&w->done_changed);
  }
  qsort(t->done, (size_t)count, sizeof *t->done, compare_down); /* from the last: those before keep their places */
  for (int i = 0; i < count; i++) take_out(t, t->done[i]);
  t->quiet_s = dp_clock_s();
}

/* A sixteenth of the time that nothing has happened: what comes late is noticed late in proportion. */
static void nap(mpi_transport *t, waiter *w) {
  const double pause_s = (dp_clock_s() - t->quiet_s) / 16;
  if (t->spin || pause_s < 2e-6) {
    (void)pthread_mutex_unlock(&t->lock);
    (void)sched_yield();
    (void)pthread_mutex_lock(&t->lock);
  } else {
    dp_condition_wait(&w->done_changed, &t->lock, pause_s < LONGEST_NAP_S ? pause_s : LONGEST_NAP_S);
  }
}

static bool given_up(const mpi_transport *t, const atomic_bool *stop) {
  return t->broken || (stop && atomic_load(stop)) || (t->base.lost && atomic_load(t->base.lost));
}

/* A receive whose message has not begun to come is taken back. All else stays with MPI, which cannot take it back. */
static void withdraw(mpi_transport *t, waiter *w, bool is_send) {
  int at = 0;
  while (t->waiters[at] != w) at++;
  MPI_Request request = t->requests[at];
  MPI_Status status;
  int done = 0, cancelled = 0;
  take_out(t, at);
  if (t->broken || is_send || (t->base.lost && atomic_load(t->base.lost)) || MPI_Cancel(&request) != MPI_SUCCESS ||
      MPI_Test(&request, &done, &status) != MPI_SUCCESS || !done ||
      MPI_Test_cancelled(&status, &cancelled) != MPI_SUCCESS || !cancelled)
    t->broken = true;
}

/* The message is done, with its code, or false: it was given up. */
static bool wait_for(mpi_transport *t, waiter *w, bool is_send, const atomic_bool *stop) {
  while (!w->done && !given_up(t, stop)) {
    if (!t->tester) {
      t->tester = w;
      dp_wake_in_time();
    }
    if (t->tester != w) {
      dp_condition_wait(&w->done_changed, &t->lock, LOOK_S);
      continue;
    }
    test_all(t);
    if (!w->done) nap(t, w);
  }
  if (!w->done) withdraw(t, w, is_send);
  if (t->tester == w) {
    t->tester = NULL;
    if (t->count > 0) (void)pthread_cond_signal(&t->waiters[0]->done_changed);
  }
  return w->done;
}

/* ---- messages ---- */

typedef struct message {
  bool is_send;
  int peer;
  uint32_t tag;
  char *bytes; /* a send only reads them */
  size_t count;
  const atomic_bool *stop;
} message;

static dp_status begin(mpi_transport *t, const message *m, int count, MPI_Request *request, dp_error *error) {
  if (m->is_send)
    MPI_TRY(MPI_Issend(m->bytes, count, MPI_BYTE, m->peer, (int)m->tag, t->comm, request), error);
  else
    MPI_TRY(MPI_Irecv(m->bytes, count, MPI_BYTE, m->peer, (int)m->tag, t->comm, request), error);
  return DP_OK;
}

static dp_status fail_given_up(const message *m, dp_error *error) {
  return dp_fail(error, DP_RUN_FAILED, "%s process %d was given up: the run cannot go on",
                 m->is_send ? "sending to" : "receiving from", m->peer);
}

static dp_status check_done(const message *m, const waiter *w, int count, dp_error *error) {
  int came = 0;
  if (w->code != MPI_SUCCESS) return fail_mpi(m->is_send ? "MPI_Issend" : "MPI_Irecv", w->code, error);
  if (m->is_send) return DP_OK;
  MPI_TRY(MPI_Get_count(&w->status, MPI_BYTE, &came), error);
  if (came != count)
    return dp_fail(error, DP_INTERNAL, "process %d sent %d bytes under tag %u, expected: %d", m->peer, came, m->tag,
                   count);
  return DP_OK;
}

/* The lock is held; `count` fits into an int. */
static dp_status move_piece(mpi_transport *t, waiter *w, const message *m, int count, dp_error *error) {
  if (given_up(t, m->stop)) return fail_given_up(m, error);
  DP_TRY(make_room(t, error));
  DP_TRY(begin(t, m, count, &t->requests[t->count], error));
  t->waiters[t->count++] = w;
  t->quiet_s = dp_clock_s();
  if (t->tester) (void)pthread_cond_signal(&t->tester->done_changed);
  if (!wait_for(t, w, m->is_send, m->stop)) return fail_given_up(m, error);
  return check_done(m, w, count, error);
}

static dp_status move(mpi_transport *t, message m, dp_error *error) {
  waiter w = {.done = false};
  dp_status status = DP_OK;
  DP_TRY(dp_condition_init(&w.done_changed, error));
  (void)pthread_mutex_lock(&t->lock);
  do { /* an empty message is one, too */
    const int piece = m.count < PIECE_BYTES ? (int)m.count : PIECE_BYTES;
    w.done = false;
    status = move_piece(t, &w, &m, piece, error);
    m.bytes += piece;
    m.count -= (size_t)piece;
  } while (status == DP_OK && m.count > 0);
  (void)pthread_mutex_unlock(&t->lock);
  (void)pthread_cond_destroy(&w.done_changed);
  return status;
}

static dp_status send_bytes(exec_transport *self, int to, uint32_t tag, const void *bytes, size_t count,
                            const atomic_bool *stop, dp_error *error) {
  /* MPI's own argument is not const in old versions */
  return move((mpi_transport *)self, (message){true, to, tag, (char *)(uintptr_t)bytes, count, stop}, error);
}

static dp_status receive_bytes(exec_transport *self, int from, uint32_t tag, void *bytes, size_t count,
                               const atomic_bool *stop, dp_error *error) {
  return move((mpi_transport *)self, (message){false, from, tag, bytes, count, stop}, error);
}

/* ---- opening ---- */

static bool has_pmi(void) { return getenv("PMIX_RANK") || getenv("PMI_RANK") || getenv("PMI_FD"); }

static void free_mpi(exec_transport *self) {
  mpi_transport *t = (mpi_transport *)self;
  if (!t) return;
  if (!given_up(t, NULL)) {
    if (t->comm != MPI_COMM_NULL) (void)MPI_Comm_free(&t->comm);
    (void)MPI_Finalize();
  }
  (void)pthread_mutex_destroy(&t->lock);
  free(t->waiters);
  free(t->requests);
  free(t->statuses);
  free(t->done);
  free(t);
}

static dp_status check_tags(dp_error *error) {
  int *most = NULL, known = 0;
  MPI_TRY(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&most, &known), error);
  if (known && *most < EXEC_TAG_END - 1)
    return dp_fail(error, DP_UNSUPPORTED, "this MPI has tags up to %d, needed: %d", *most, EXEC_TAG_END - 1);
  return DP_OK;
}

/* MPI's start waits for every process for ever. A thread looks at the clock meanwhile. */
typedef struct starter {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool done;
  int launched;
  exec_mpi_late *late;
} starter;

static double start_s(void) {
  enum { USUAL_S = 120 };
  const char *text = getenv("DIFFPIPE_START_S");
  const double given = text ? strtod(text, NULL) : 0;
  return given > 0 ? given : USUAL_S;
}

static void *watch_start(void *data) {
  starter *s = data;
  const double limit_s = start_s(), until_s = dp_clock_s() + limit_s;
  (void)pthread_mutex_lock(&s->lock);
  while (!s->done && dp_clock_s() < until_s) dp_condition_wait(&s->changed, &s->lock, until_s - dp_clock_s());
  const bool late = !s->done;
  (void)pthread_mutex_unlock(&s->lock);
  if (late) s->late(s->launched, limit_s);
  return NULL;
}

static dp_status start_mpi(int launched, exec_mpi_late *late, int *provided, dp_error *error) {
  starter s = {.launched = launched, .late = late};
  pthread_t thread;
  if (pthread_mutex_init(&s.lock, NULL) != 0) return dp_fail(error, DP_UNSUPPORTED, "the system gives no more locks");
  dp_status status = dp_condition_init(&s.changed, error);
  if (status == DP_OK) {
    const bool watched = late && pthread_create(&thread, NULL, watch_start, &s) == 0;
    const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, provided);
    (void)pthread_mutex_lock(&s.lock);
    s.done = true;
    (void)pthread_cond_signal(&s.changed);
    (void)pthread_mutex_unlock(&s.lock);
    if (watched) (void)pthread_join(thread, NULL);
    (void)pthread_cond_destroy(&s.changed);
    if (code != MPI_SUCCESS) status = fail_mpi("MPI_Init_thread", code, error);
  }
  (void)pthread_mutex_destroy(&s.lock);
  return status;
}

static dp_status initialise(int launched, exec_mpi_late *late, exec_transport *base, dp_error *error) {
  int provided = 0, already = 0;
  MPI_TRY(MPI_Initialized(&already), error);
  if (!already) DP_TRY(start_mpi(launched, late, &provided, error));
  if (already) MPI_TRY(MPI_Query_thread(&provided), error);
  MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), error);
  MPI_TRY(MPI_Comm_size(MPI_COMM_WORLD, &base->process_count), error);
  MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, &base->process), error);
  if (base->process_count != launched) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_TRY(MPI_Get_library_version(version, &length), error);
    version[strcspn(version, ",\n")] = 0;
    return dp_fail(error, DP_UNSUPPORTED, "%d processes were started, this MPI (%s) sees %d: it needs its own mpirun",
                   launched, version, base->process_count);
  }
  if (provided < MPI_THREAD_SERIALIZED)
    return dp_fail(error, DP_UNSUPPORTED,
                   "this MPI cannot be called by several threads, needed: MPI_THREAD_SERIALIZED");
  return check_tags(error);
}

static dp_status open_mpi(mpi_transport *t, int launched, exec_mpi_late *late, dp_error *error) {
  DP_TRY(initialise(launched, late, &t->base, error));
  /* A communicator of our own: other libraries' messages cannot be taken for ours. It inherits MPI_ERRORS_RETURN. */
  MPI_TRY(MPI_Comm_dup(MPI_COMM_WORLD, &t->comm), error);
  return exec_measure_clock(&t->base, error);
}

dp_status exec_transport_open_mpi(exec_transport **transport, exec_mpi_late *late, dp_error *error) {
  const int launched = exec_mpi_launched();
  if (launched == 1) {
    *transport = NULL;
    return DP_OK;
  }
  if (!getenv("OMPI_COMM_WORLD_SIZE") && !has_pmi())
    return dp_fail(error, DP_UNSUPPORTED, "srun started %d processes that do not know each other: srun --mpi=pmix",
                   launched);
  mpi_transport *t = calloc(1, sizeof *t);
  if (!t) return dp_fail_memory(error);
  if (pthread_mutex_init(&t->lock, NULL) != 0) {
    free(t);
    return dp_fail(error, DP_UNSUPPORTED, "the system gives no more locks");
  }
  const char *spin = getenv("DIFFPIPE_MPI_SPIN");
  t->spin = spin && strcmp(spin, "1") == 0;
  t->comm = MPI_COMM_NULL;
  t->base.send = send_bytes;
  t->base.receive = receive_bytes;
  t->base.free = free_mpi;
  const dp_status status = open_mpi(t, launched, late, error);
  if (status != DP_OK) {
    t->broken = true; /* the others may be elsewhere: nothing that waits for them */
    free_mpi(&t->base);
    return status;
  }
  *transport = &t->base;
  return DP_OK;
}

#endif
