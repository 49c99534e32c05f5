/* Messages from process to process through pinned memory of both, without a device: the executor's own ring over a stand-in
 * of the runtime, whose copies are done when an event behind them is asked for, and that not at once. So what is counted
 * before it was copied, or copied over before it was read, is seen in what arrives. */
#define _GNU_SOURCE /* RUSAGE_THREAD */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "exec/device_cuda_ring.h"
#include "tests/suite.h"

enum { PIECE = EXEC_CUDA_RING_PIECE, SLOTS = EXEC_CUDA_RING_SLOTS };

static dp_error error;
static exec_pipeline p;

/* ---- the runtime: queues of one thread each ---- */

enum { MOST_COPIES = 1 << 9 };

struct CUstream_st {
  struct {
    void *to;
    const void *from;
    size_t bytes;
  } copies[MOST_COPIES];
  size_t count, done;
  dp_random chance;
};

struct CUevent_st {
  struct CUstream_st *stream;
  size_t copies; /* that come before it */
  double ready_s;
};

static struct CUstream_st queue;
static int registered;
static bool refuses;

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned int flags) {
  ck_assert(at && bytes > (size_t)SLOTS * PIECE && flags == cudaHostRegisterPortable);
  if (refuses) return cudaErrorNotSupported;
  registered++;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *at) {
  ck_assert(at && registered > 0);
  registered--;
  return cudaSuccess;
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  ck_assert_uint_eq(flags, cudaEventDisableTiming);
  *event = calloc(1, sizeof **event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  free(event);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  (void)kind;
  ck_assert_uint_lt(stream->count, MOST_COPIES);
  stream->copies[stream->count].to = to;
  stream->copies[stream->count].from = from;
  stream->copies[stream->count++].bytes = bytes;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  event->copies = stream->count;
  event->ready_s = dp_clock_s() + 300e-6 * dp_random_uniform(&stream->chance);
  return cudaSuccess;
}

static void finish_copies(cudaStream_t stream, size_t count) {
  for (; stream->done < count; stream->done++)
    memcpy(stream->copies[stream->done].to, stream->copies[stream->done].from, stream->copies[stream->done].bytes);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (dp_clock_s() < event->ready_s) return cudaErrorNotReady;
  finish_copies(event->stream, event->copies);
  return cudaSuccess;
}
dp_status exec_cuda_check(cudaError_t result, const char *what, dp_error *why) {
  return result == cudaSuccess ? DP_OK : dp_fail(why, DP_RUN_FAILED, "%s", what);
}

/* ---- messages ---- */

enum { TENSORS = 3, MESSAGES = 9 };

static const size_t sizes[MESSAGES][TENSORS] = {
    {0, 0, 0},
    {1, 0, 3},
    {PIECE, 0, 0},
    {PIECE - 1, 2, 0},
    {PIECE + 1, PIECE, 5},
    {5, 0, 0},
    {7 * PIECE + 9, 0, 4},
    {0, 0, 0},
    {0, 3 * PIECE, 1},
};

/* A byte of a tensor of a message, of one round. */
static unsigned char byte_of(int round, int message, int tensor, size_t at) {
  return (unsigned char)(at * 31 + at / PIECE * 7 + (size_t)(round * 101 + message * 17 + tensor * 3));
}

static void make_pieces(int round, int message, bool filled, exec_piece *pieces) {
  for (int t = 0; t < TENSORS; t++) {
    const size_t bytes = sizes[message][t];
    unsigned char *at = calloc(bytes + 1, 1);
    ck_assert_ptr_nonnull(at);
    for (size_t i = 0; filled && i < bytes; i++) at[i] = byte_of(round, message, t, i);
    pieces[t] = (exec_piece){at, bytes};
  }
}

enum { ROUNDS = 2 };

static void send_all(exec_cuda_ring *ring) {
  exec_piece pieces[TENSORS];
  for (int round = 0; round < ROUNDS; round++)
    for (int m = 0; m < MESSAGES; m++) {
      make_pieces(round, m, true, pieces);
      const dp_status status = exec_cuda_ring_send(&p, ring, &queue, m == 0 ? 0 : TENSORS, pieces, &error);
      ck_assert_msg(status == DP_OK, "%s", error.text);
      /* it has been read when the call is back: the tensor may be another's now */
      for (int t = 0; t < TENSORS; t++) {
        memset(pieces[t].at, 0xee, pieces[t].bytes);
        free(pieces[t].at);
      }
    }
}

static bool is_right(int round, int message, const exec_piece *pieces) {
  for (int t = 0; t < TENSORS; t++)
    for (size_t i = 0; i < pieces[t].bytes; i++)
      if (((const unsigned char *)pieces[t].at)[i] != byte_of(round, message, t, i)) return false;
  return true;
}

/* The other process: how many messages were wrong. */
static int receive_all(exec_cuda_ring *ring) {
  static exec_piece pieces[ROUNDS][MESSAGES][TENSORS];
  int wrong = 0;
  for (int round = 0; round < ROUNDS; round++)
    for (int m = 0; m < MESSAGES; m++) {
      make_pieces(round, m, false, pieces[round][m]);
      if (exec_cuda_ring_receive(&p, ring, &queue, m == 0 ? 0 : TENSORS, pieces[round][m], &error) != DP_OK) wrong++;
    }
  finish_copies(&queue, queue.count); /* of the last pieces, which nobody waits for here */
  for (int round = 0; round < ROUNDS; round++)
    for (int m = 0; m < MESSAGES; m++) {
      wrong += !is_right(round, m, pieces[round][m]);
      for (int t = 0; t < TENSORS; t++) free(pieces[round][m][t].at);
    }
  return wrong;
}

START_TEST(what_is_sent_arrives) {
  exec_cuda_ring_name name;
  exec_cuda_ring *ring = exec_cuda_ring_make(&name);
  ck_assert_ptr_nonnull(ring);
  ck_assert(name.path[0] == '/');
  (void)fflush(NULL);
  const pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    dp_random_init(&queue.chance, 1, 2);
    exec_cuda_ring *other = exec_cuda_ring_join(&name);
    const int wrong = other ? receive_all(other) : 100;
    exec_cuda_ring_close(other);
    _exit(wrong);
  }
  send_all(ring);
  int status = -1;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d: of the messages so many were wrong", status);
  exec_cuda_ring_hide(ring);
  ck_assert_ptr_null(exec_cuda_ring_join(&name));
  exec_cuda_ring_close(ring);
  ck_assert_int_eq(registered, 0);
}
END_TEST

/* Both ends in this process. */
START_TEST(who_cannot_join_is_told) {
  exec_cuda_ring_name name, other;
  exec_cuda_ring *ring = exec_cuda_ring_make(&name), *joined = exec_cuda_ring_join(&name);
  ck_assert(ring && joined);
  other = name;
  other.token++; /* a ring of another process that has this one's number, in a container of its own */
  ck_assert_ptr_null(exec_cuda_ring_join(&other));
  (void)snprintf(other.path, sizeof other.path, "/proc/%ld/fd/2", (long)getpid()); /* or another file of its */
  other.token--;
  ck_assert_ptr_null(exec_cuda_ring_join(&other));
  other.path[0] = 0;
  ck_assert_ptr_null(exec_cuda_ring_join(&other));
  exec_cuda_ring_close(joined);
  exec_cuda_ring_hide(ring);
  exec_cuda_ring_close(ring);
  refuses = true;
  ck_assert_ptr_null(exec_cuda_ring_make(&other));
  ck_assert_int_eq(other.path[0], 0);
  refuses = false;
  ck_assert_int_eq(setenv("DIFFPIPE_SHARED_MEMORY", "0", 1), 0);
  ck_assert_ptr_null(exec_cuda_ring_make(&other));
  ck_assert_int_eq(other.path[0], 0);
  ck_assert_int_eq(unsetenv("DIFFPIPE_SHARED_MEMORY"), 0);
  ck_assert_int_eq(registered, 0);
}
END_TEST

/* ---- many at once ---- */

enum { RINGS = 6, MANY = 40 };

typedef struct lane {
  exec_cuda_ring *ring;
  struct CUstream_st stream;
  bool sends;
  int number, wrong;
} lane;

/* Messages of nothing, of little, and of more than a piece. */
static size_t bytes_of(int message) {
  static const size_t bytes[] = {0, 1, 5000, PIECE + 1, 0, 17};
  return bytes[message % (int)(sizeof bytes / sizeof *bytes)];
}

/* Every so often, and at the end. False: it was to be read, and is another. */
static bool stamp(bool write, char *at, int number, int message) {
  const size_t bytes = bytes_of(message);
  bool right = true;
  for (size_t i = 0; i < bytes; i += 4096) {
    const size_t last = i + 4096 < bytes ? i : bytes - 1;
    const char want = (char)(number * 41 + message * 7 + (int)(last / 4096));
    if (write) at[last] = want;
    right = right && at[last] == want;
  }
  return right;
}

static void *run_lane(void *data) {
  lane *l = data;
  dp_error own = DP_ERROR_INIT;
  char *at = malloc(PIECE + 1);
  l->wrong = at ? 0 : 1;
  for (int m = 0; at && m < MANY; m++) {
    const exec_piece piece = {at, bytes_of(m)};
    if (dp_random_uniform(&l->stream.chance) < 0.2) dp_sleep_s(1e-3 * dp_random_uniform(&l->stream.chance));
    if (l->sends) (void)stamp(true, at, l->number, m);
    l->wrong += (l->sends ? exec_cuda_ring_send(&p, l->ring, &l->stream, 1, &piece, &own)
                          : exec_cuda_ring_receive(&p, l->ring, &l->stream, 1, &piece, &own)) != DP_OK;
    if (l->sends) continue;
    finish_copies(&l->stream, l->stream.count);
    l->wrong += !stamp(false, at, l->number, m);
  }
  free(at);
  return NULL;
}

/* One end of each ring, by a thread each: how many messages were wrong. */
static int run_lanes(exec_cuda_ring *const *senders, exec_cuda_ring *const *receivers, int process) {
  static lane lanes[RINGS];
  pthread_t threads[RINGS];
  int wrong = 0;
  for (int i = 0; i < RINGS; i++) {
    lane *l = &lanes[i];
    l->number = i;
    l->sends = i % 2 == process;
    l->ring = l->sends ? senders[i] : receivers[i];
    dp_random_init(&l->stream.chance, 7, (uint64_t)(2 * i + process));
    if (pthread_create(&threads[i], NULL, run_lane, l) != 0) return 100;
  }
  for (int i = 0; i < RINGS; i++) {
    (void)pthread_join(threads[i], NULL);
    wrong += lanes[i].wrong;
  }
  return wrong;
}

START_TEST(many_go_both_ways_at_once) {
  exec_cuda_ring *senders[RINGS], *receivers[RINGS];
  exec_cuda_ring_name name;
  for (int i = 0; i < RINGS; i++) {
    senders[i] = exec_cuda_ring_make(&name);
    receivers[i] = exec_cuda_ring_join(&name);
    ck_assert(senders[i] && receivers[i]);
  }
  (void)fflush(NULL);
  const pid_t pid = fork(); /* what is mapped stays shared */
  ck_assert_int_ge(pid, 0);
  if (pid == 0) _exit(run_lanes(senders, receivers, 1));
  const int wrong = run_lanes(senders, receivers, 0);
  int status = -1;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert(wrong == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  for (int i = 0; i < RINGS; i++) {
    exec_cuda_ring_close(receivers[i]);
    exec_cuda_ring_close(senders[i]);
  }
}
END_TEST

typedef struct sleeper {
  exec_cuda_ring *ring;
  dp_status status;
  double waited_s;
  long naps;
} sleeper;

static void *receive_late(void *data) {
  sleeper *s = data;
  dp_error own = DP_ERROR_INIT;
  struct rusage before, after;
  char little[4];
  const exec_piece piece = {little, sizeof little};
  const double began_s = dp_clock_s();
  (void)getrusage(RUSAGE_THREAD, &before);
  s->status = exec_cuda_ring_receive(&p, s->ring, &queue, 1, &piece, &own);
  (void)getrusage(RUSAGE_THREAD, &after);
  s->waited_s = dp_clock_s() - began_s;
  s->naps = after.ru_nvcsw - before.ru_nvcsw;
  return NULL;
}

/* A receiver mostly waits, and there may be many on few processors: it looks for a stop, and no more often. */
START_TEST(who_waits_for_the_other_side_sleeps) {
  static struct CUstream_st other;
  exec_cuda_ring_name name;
  pthread_t thread;
  char little[4] = "yes";
  const exec_piece piece = {little, sizeof little};
  exec_cuda_ring *ring = exec_cuda_ring_make(&name);
  sleeper s = {.ring = exec_cuda_ring_join(&name)};
  ck_assert(ring && s.ring);
  dp_random_init(&other.chance, 1, 2);
  ck_assert_int_eq(pthread_create(&thread, NULL, receive_late, &s), 0);
  dp_sleep_s(0.2);
  ck_assert_int_eq(exec_cuda_ring_send(&p, ring, &other, 1, &piece, &error), DP_OK);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_int_eq(s.status, DP_OK);
  ck_assert_msg((double)s.naps < 20 + 200 * s.waited_s, "%ld naps in %g s", s.naps, s.waited_s);
  exec_cuda_ring_close(s.ring);
  exec_cuda_ring_close(ring);
}
END_TEST

/* ---- the other is gone ---- */

/* A process that makes one, tells where, and ends before anybody has joined. */
START_TEST(nothing_is_left_of_a_process_that_is_killed) {
  exec_cuda_ring_name name;
  int ends[2], status = 0;
  ck_assert_int_eq(pipe(ends), 0);
  (void)fflush(NULL);
  const pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    if (!exec_cuda_ring_make(&name) || write(ends[1], &name, sizeof name) != (ssize_t)sizeof name) _exit(1);
    (void)raise(SIGKILL);
  }
  ck_assert_int_eq(read(ends[0], &name, sizeof name), (int)sizeof name);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert(WIFSIGNALED(status) && name.path[0]);
  ck_assert_int_ne(access(name.path, F_OK), 0);
  ck_assert_ptr_null(exec_cuda_ring_join(&name));
  for (int i = 0; i < 2; i++) (void)close(ends[i]);
}
END_TEST

static void *lose_soon(void *lost) {
  dp_sleep_s(0.02);
  atomic_store((atomic_bool *)lost, true);
  return NULL;
}

/* As the watch has it: the other died within a message. */
START_TEST(a_lost_process_is_not_waited_for) {
  atomic_bool lost;
  exec_transport transport = {.lost = &lost};
  exec_cuda_ring_name name;
  pthread_t thread;
  char *much = calloc(2, PIECE);
  const exec_piece all = {much, 2 * (size_t)PIECE}, half = {much, PIECE};
  exec_cuda_ring *ring = exec_cuda_ring_make(&name), *joined = exec_cuda_ring_join(&name);
  ck_assert(much && ring && joined);
  atomic_init(&lost, false);
  p.work.options.transport = &transport;
  int status = 0;
  (void)fflush(NULL);
  const pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    if (exec_cuda_ring_send(&p, ring, &queue, 1, &half, &error) != DP_OK) _exit(1);
    (void)raise(SIGKILL);
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert(WIFSIGNALED(status));
  ck_assert_int_eq(pthread_create(&thread, NULL, lose_soon, &lost), 0);
  ck_assert_int_eq(exec_cuda_ring_receive(&p, joined, &queue, 1, &all, &error), DP_RUN_FAILED);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  p.work.options.transport = NULL;
  exec_cuda_ring_close(joined);
  exec_cuda_ring_close(ring);
  free(much);
}
END_TEST

static void *stop_soon(void *nothing) {
  dp_sleep_s(0.02);
  atomic_store(&p.stop, true);
  return nothing;
}

/* Nobody empties it, nobody fills it. */
START_TEST(a_stopped_step_is_not_waited_for) {
  exec_cuda_ring_name name;
  pthread_t thread;
  char *much = calloc(SLOTS + 1, PIECE), little[4] = "";
  exec_cuda_ring *ring = exec_cuda_ring_make(&name), *joined = exec_cuda_ring_join(&name);
  ck_assert(much && ring && joined);
  const exec_piece large = {much, (size_t)(SLOTS + 1) * PIECE}, small = {little, sizeof little};
  ck_assert_int_eq(pthread_create(&thread, NULL, stop_soon, NULL), 0);
  ck_assert_int_eq(exec_cuda_ring_send(&p, ring, &queue, 1, &large, &error), DP_RUN_FAILED);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  exec_cuda_ring_close(joined);
  exec_cuda_ring_hide(ring);
  exec_cuda_ring_close(ring);
  ring = exec_cuda_ring_make(&name);
  joined = exec_cuda_ring_join(&name);
  error = (dp_error)DP_ERROR_INIT;
  ck_assert_int_eq(exec_cuda_ring_receive(&p, joined, &queue, 1, &small, &error), DP_RUN_FAILED);
  exec_cuda_ring_close(joined);
  exec_cuda_ring_hide(ring);
  exec_cuda_ring_close(ring);
  free(much);
}
END_TEST

/* Copies that a test has left, and what its steps came to, are nothing to the next. */
static void begin_anew(void) {
  memset(&queue, 0, sizeof queue);
  dp_random_init(&queue.chance, 1, 1);
  error = (dp_error)DP_ERROR_INIT;
  atomic_store(&p.stop, false);
}

int main(void) {
  const TTest *const tests[] = {what_is_sent_arrives,
                                many_go_both_ways_at_once,
                                who_waits_for_the_other_side_sleeps,
                                who_cannot_join_is_told,
                                nothing_is_left_of_a_process_that_is_killed,
                                a_lost_process_is_not_waited_for,
                                a_stopped_step_is_not_waited_for};
  return suite_run("cuda_ring", tests, sizeof tests / sizeof *tests, begin_anew, NULL, 60);
}
