/* NCCL's communicators under lanes, without a device: the executor's own code over a stand-in of the library, which
 * watches that one thread at a time is in a communicator, and whose ends wait for each other as the driver makes them. */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "exec/device_cuda_nccl.h"
#include "tests/suite.h"

#ifndef HAVE_NCCL
int main(void) { return 77; }
#else

#include <nccl.h>

#include "kernels/cuda/libraries.h"

/* nccl.h leaves their arguments open */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

static dp_error error;

#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

/* ---- the library ---- */

enum { MOST = 4 };

struct ncclComm {
  atomic_int inside, asked;
  atomic_int state;   /* what ncclCommGetAsyncError says */
  atomic_bool kernel; /* of it one is on the device, which ends when it is aborted */
  atomic_bool destroyed, aborted;
};

static struct ncclComm comms[MOST];
static int comm_count;
static atomic_bool crowded; /* two threads were in one */

static void come(struct ncclComm *c) {
  if (atomic_fetch_add(&c->inside, 1) > 0) atomic_store(&crowded, true);
}

static void go(struct ncclComm *c) { (void)atomic_fetch_sub(&c->inside, 1); }

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  (void)ranks, (void)id, (void)rank;
  ck_assert_int_eq(config->blocking, 0);
  ck_assert_int_eq(config->cgaClusterSize,
                   0); /* blocks that must be placed at once could wait for those that wait for them */
  *comm = &comms[comm_count++];
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
  come(comm);
  dp_sleep_s(20e-6);
  (void)atomic_fetch_add(&comm->asked, 1);
  *result = (ncclResult_t)atomic_load(&comm->state);
  go(comm);
  return ncclSuccess;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  (void)from, (void)count, (void)type, (void)peer, (void)stream;
  come(comm);
  atomic_store(&comm->kernel, true);
  go(comm);
  return ncclInProgress;
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return ncclSend(to, count, type, peer, comm, stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  (void)from, (void)op;
  return ncclSend(to, count, type, 0, comm, stream);
}

ncclResult_t ncclGroupStart(void) { return ncclSuccess; }
ncclResult_t ncclGroupEnd(void) { return ncclInProgress; }
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  memset(id, 1, sizeof *id);
  return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "something else";
}
const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return "";
}

/* Memory is freed when no kernel runs any more, of whichever communicator. */
static void wait_for_all(void) {
  for (int i = 0; i < comm_count; i++)
    while (atomic_load(&comms[i].kernel)) dp_sleep_s(1e-4);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  come(comm);
  atomic_store(&comm->kernel, false);
  wait_for_all();
  atomic_store(&comm->aborted, true);
  go(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  (void)comm;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  atomic_store(&comm->destroyed, true);
  return ncclSuccess;
}

dp_status kern_cuda_load_nccl(dp_error *why) {
  (void)why;
  return DP_OK;
}
cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  (void)device;
  return cudaSuccess;
}

/* ---- the tests ---- */

static atomic_bool stop;

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  memset(comms, 0, sizeof comms);
  comm_count = 0;
  atomic_store(&crowded, false);
  atomic_store(&stop, false);
}

static exec_nccl *open_one(void) {
  exec_nccl *nccl = NULL;
  const exec_nccl_how how = {.rank = 0, .ranks = 2, .peer = "worker 3 (process 1)", .stop = &stop};
  OK(exec_nccl_open(&how, &nccl, &error));
  return nccl;
}

START_TEST(an_error_is_seen_at_once_and_names_the_peer) {
  exec_nccl *nccl = open_one();
  OK(exec_nccl_look(nccl, &error));
  atomic_store(&comms[0].state, ncclInProgress);
  OK(exec_nccl_look(nccl, &error));
  atomic_store(&comms[0].state, ncclRemoteError);
  ck_assert_int_eq(exec_nccl_look(nccl, &error), DP_RUN_FAILED);
  ck_assert_str_eq(error.text, "NCCL with worker 3 (process 1): under way: remote process exited");
  exec_nccl_abort(&nccl, 1);
  OK(exec_nccl_look(nccl, &error)); /* there is nothing any more */
  exec_nccl_close(nccl);
  ck_assert(atomic_load(&comms[0].aborted) && !atomic_load(&comms[0].destroyed));
}
END_TEST

typedef struct sender {
  exec_nccl *nccl;
  dp_status status;
  dp_error why;
  atomic_bool done;
} sender;

static void *send_one(void *data) {
  sender *s = data;
  char byte = 0;
  const exec_piece piece = {&byte, 1};
  s->status = exec_nccl_send(s->nccl, 1, &piece, NULL, &s->why);
  atomic_store(&s->done, true);
  return NULL;
}

/* A lane's thread waits for its send to have begun, which looks at the errors too. */
START_TEST(one_thread_at_a_time_is_in_a_communicator) {
  pthread_t thread;
  sender s = {.nccl = open_one(), .why = DP_ERROR_INIT};
  atomic_init(&s.done, false);
  atomic_store(&comms[0].state, ncclInProgress);
  ck_assert_int_eq(pthread_create(&thread, NULL, send_one, &s), 0);
  while (atomic_load(&comms[0].asked) < 300) OK(exec_nccl_look(s.nccl, &error));
  atomic_store(&comms[0].state, ncclSuccess);
  (void)pthread_join(thread, NULL);
  ck_assert_int_eq(s.status, DP_OK);
  ck_assert(!atomic_load(&crowded));
  atomic_store(&comms[0].kernel, false); /* it has been done */
  exec_nccl_close(s.nccl);
  ck_assert(atomic_load(&comms[0].destroyed) && !atomic_load(&comms[0].aborted));
}
END_TEST

/* One after the other none would end: each waits for the kernels of all. And who is in one comes out of it. */
START_TEST(all_communicators_are_aborted_together) {
  exec_nccl *nccls[MOST];
  pthread_t threads[MOST];
  sender senders[MOST];
  for (int i = 0; i < MOST; i++) {
    nccls[i] = open_one();
    atomic_store(&comms[i].state, ncclInProgress);
    senders[i] = (sender){.nccl = nccls[i], .why = DP_ERROR_INIT};
    ck_assert_int_eq(pthread_create(&threads[i], NULL, send_one, &senders[i]), 0);
  }
  for (int i = 0; i < MOST; i++)
    while (!atomic_load(&comms[i].kernel)) dp_sleep_s(1e-4);
  atomic_store(&stop, true);
  exec_nccl_abort(nccls, MOST);
  for (int i = 0; i < MOST; i++) {
    (void)pthread_join(threads[i], NULL);
    ck_assert(atomic_load(&comms[i].aborted));
    ck_assert_int_eq(senders[i].status, DP_RUN_FAILED);
    ck_assert_str_eq(senders[i].why.text,
                     "NCCL with worker 3 (process 1): ncclSend was given up: the run cannot go on");
  }
  ck_assert(!atomic_load(&crowded));
  float value = 0;
  ck_assert_int_eq(exec_nccl_sum(nccls[0], false, 1, &value, NULL, &error), DP_RUN_FAILED);
  ck_assert_str_eq(error.text, "NCCL with worker 3 (process 1): the communicator was aborted");
  for (int i = 0; i < MOST; i++) {
    exec_nccl_close(nccls[i]);
    ck_assert(!atomic_load(&comms[i].destroyed));
  }
}
END_TEST

START_TEST(who_never_comes_is_named_after_the_limit) {
  exec_nccl *nccl = NULL;
  const exec_nccl_how how = {.rank = 1, .ranks = 2, .peer = "worker 0 (process 0)", .stop = &stop};
  ck_assert_int_eq(setenv("DIFFPIPE_NCCL_TIMEOUT_S", "0.05", 1), 0);
  atomic_store(&comms[0].state, ncclInProgress);
  ck_assert_int_eq(exec_nccl_open(&how, &nccl, &error), DP_RUN_FAILED);
  ck_assert_str_eq(error.text, "NCCL with worker 0 (process 0): ncclCommInitRank: nothing came of it within 0 s");
  ck_assert(atomic_load(&comms[0].aborted));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {an_error_is_seen_at_once_and_names_the_peer, one_thread_at_a_time_is_in_a_communicator,
                                all_communicators_are_aborted_together, who_never_comes_is_named_after_the_limit};
  return suite_run("cuda_nccl", tests, sizeof tests / sizeof tests[0], setup, NULL, 60);
}

#endif
