/* Messages from process to process through pinned memory of both, without a device: the executor's own ring over a stand-in
 * of the runtime, whose copies are done when an event behind them is asked for, and that not at once. So what is counted
 * before it was copied, or copied over before it was read, is seen in what arrives. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "exec/device_cuda_ring.h"
#include "tests/suite.h"

enum { PIECE = EXEC_CUDA_RING_PIECE, SLOTS = EXEC_CUDA_RING_SLOTS };

static dp_error error;
static exec_pipeline p;

/* ---- the runtime: one queue ---- */

enum { MOST_COPIES = 1 << 12 };

struct CUevent_st {
  size_t copies; /* that come before it */
  double ready_s;
};

static struct {
  void *to;
  const void *from;
  size_t bytes;
} copies[MOST_COPIES];
static size_t copy_count, copies_done;
static dp_random chance;
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
  (void)kind, (void)stream;
  ck_assert_uint_lt(copy_count, MOST_COPIES);
  copies[copy_count].to = to;
  copies[copy_count].from = from;
  copies[copy_count++].bytes = bytes;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  (void)stream;
  event->copies = copy_count;
  event->ready_s = dp_clock_s() + 300e-6 * dp_random_uniform(&chance);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (dp_clock_s() < event->ready_s) return cudaErrorNotReady;
  for (; copies_done < event->copies; copies_done++)
    memcpy(copies[copies_done].to, copies[copies_done].from, copies[copies_done].bytes);
  return cudaSuccess;
}
dp_status exec_cuda_check(cudaError_t result, const char *what, dp_error *why) {
  return result == cudaSuccess ? DP_OK : dp_fail(why, DP_RUN_FAILED, "%s", what);
}

static void finish_copies(void) {
  for (; copies_done < copy_count; copies_done++)
    memcpy(copies[copies_done].to, copies[copies_done].from, copies[copies_done].bytes);
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
      const dp_status status = exec_cuda_ring_send(&p, ring, NULL, m == 0 ? 0 : TENSORS, pieces, &error);
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
      if (exec_cuda_ring_receive(&p, ring, NULL, m == 0 ? 0 : TENSORS, pieces[round][m], &error) != DP_OK) wrong++;
    }
  finish_copies(); /* of the last pieces, which nobody waits for here */
  for (int round = 0; round < ROUNDS; round++)
    for (int m = 0; m < MESSAGES; m++) {
      wrong += !is_right(round, m, pieces[round][m]);
      for (int t = 0; t < TENSORS; t++) free(pieces[round][m][t].at);
    }
  return wrong;
}

START_TEST(what_is_sent_arrives) {
  exec_cuda_ring_name name;
  dp_random_init(&chance, 1, 1);
  exec_cuda_ring *ring = exec_cuda_ring_make(&name);
  ck_assert_ptr_nonnull(ring);
  ck_assert(name.path[0] == '/');
  (void)fflush(NULL);
  const pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    dp_random_init(&chance, 1, 2);
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
  ck_assert_int_eq(exec_cuda_ring_send(&p, ring, NULL, 1, &large, &error), DP_RUN_FAILED);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  exec_cuda_ring_close(joined);
  exec_cuda_ring_hide(ring);
  exec_cuda_ring_close(ring);
  ring = exec_cuda_ring_make(&name);
  joined = exec_cuda_ring_join(&name);
  error = (dp_error)DP_ERROR_INIT;
  ck_assert_int_eq(exec_cuda_ring_receive(&p, joined, NULL, 1, &small, &error), DP_RUN_FAILED);
  exec_cuda_ring_close(joined);
  exec_cuda_ring_hide(ring);
  exec_cuda_ring_close(ring);
  free(much);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {what_is_sent_arrives, who_cannot_join_is_told,
                                nothing_is_left_of_a_process_that_is_killed, a_stopped_step_is_not_waited_for};
  return suite_run("cuda_ring", tests, sizeof tests / sizeof *tests, NULL, NULL, 60);
}
