/* NCCL between the first two workers of a pipeline of one process, timed message by message (exec/measure_links.h): a
 * thread for each end, as two processes have, and a communicator for each direction, as a pipeline has, with as many
 * multiprocessors. Whatever does not come to its end within LIMIT_S is given up: nobody waits for ever. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "exec/device_cuda.h"
#include "exec/device_cuda_nccl.h"

enum { LIMIT_S = 40, RELEASE_S = 20 };
enum { THERE, BACK, WAYS };

typedef struct pair pair;

/* The first worker's sends there, the second's back. */
typedef struct end {
  pair *of;
  int number, gpu;
  exec_nccl *nccl[WAYS];
  cudaStream_t streams[WAYS];
  cudaEvent_t begin, done; /* of what it receives */
  char *out, *in;
  double seconds; /* of a message that it received */
  pthread_t thread;
  dp_status status;
  dp_error error;
  bool first; /* of the two that failed: the other one only gave up */
  atomic_bool left;
} end;

struct pair {
  end ends[2];
  unsigned char ids[WAYS][EXEC_NCCL_ID_BYTES];
  int most_sms;
  int64_t room; /* bytes of each buffer */
  dp_status (*job)(end *e, dp_error *error);
  int64_t bytes;
  int messages;
  bool both;
  atomic_bool stop, posted, released;
};

static pair *pair_of(const exec_pipeline *p) { return p->pair; }

/* ---- both ends at once ---- */

static void *do_job(void *data) {
  end *e = data;
  e->error = (dp_error)DP_ERROR_INIT;
  e->first = false;
  e->status = exec_cuda_check(cudaSetDevice(e->gpu), "cudaSetDevice", &e->error);
  if (e->status == DP_OK) e->status = e->of->job(e, &e->error);
  if (e->status != DP_OK) e->first = !atomic_exchange(&e->of->stop, true); /* the other need not wait */
  atomic_store(&e->left, true);
  return NULL;
}

static dp_status begin_job(pair *n, dp_status (*job)(end *e, dp_error *error), dp_error *error) {
  n->job = job;
  for (int i = 0; i < 2; i++) atomic_store(&n->ends[i].left, false);
  if (pthread_create(&n->ends[0].thread, NULL, do_job, &n->ends[0]) != 0)
    return dp_fail(error, DP_UNSUPPORTED, "the system gives no more threads");
  if (pthread_create(&n->ends[1].thread, NULL, do_job, &n->ends[1]) == 0) return DP_OK;
  atomic_store(&n->stop, true);
  (void)pthread_join(n->ends[0].thread, NULL);
  return dp_fail(error, DP_UNSUPPORTED, "the system gives no more threads");
}

static dp_status end_job(pair *n, dp_error *error) {
  const double began_s = dp_clock_s();
  while (!atomic_load(&n->ends[0].left) || !atomic_load(&n->ends[1].left)) {
    if (dp_clock_s() - began_s > LIMIT_S) atomic_store(&n->stop, true);
    dp_sleep_s(50e-6);
  }
  for (int i = 0; i < 2; i++) (void)pthread_join(n->ends[i].thread, NULL);
  const bool of_other = n->ends[1].first || n->ends[0].status == DP_OK; /* the cause */
  const end *told = &n->ends[of_other];
  return told->status == DP_OK ? DP_OK : dp_fail(error, told->status, "%s", told->error.text);
}

static dp_status do_both(pair *n, dp_status (*job)(end *e, dp_error *error), dp_error *error) {
  DP_TRY(begin_job(n, job, error));
  return end_job(n, error);
}

/* ---- what an end does ---- */

static dp_status open_end(end *e, dp_error *error) {
  pair *n = e->of;
  for (int way = 0; way < WAYS; way++)
    EXEC_CUDA_TRY(cudaStreamCreateWithFlags(&e->streams[way], cudaStreamNonBlocking), error);
  EXEC_CUDA_TRY(cudaEventCreate(&e->begin), error);
  EXEC_CUDA_TRY(cudaEventCreate(&e->done), error);
  EXEC_CUDA_TRY(cudaMalloc((void **)&e->out, (size_t)n->room), error);
  EXEC_CUDA_TRY(cudaMalloc((void **)&e->in, (size_t)n->room), error);
  EXEC_CUDA_TRY(cudaMemset(e->out, 0x3c, (size_t)n->room), error);
  for (int way = 0; way < WAYS; way++) {
    exec_nccl_how how = {
        .rank = e->number, .ranks = 2, .most_sms = n->most_sms, .peer = "the other GPU", .stop = &n->stop};
    memcpy(how.id, n->ids[way], sizeof how.id);
    DP_TRY(exec_nccl_open(&how, &e->nccl[way], error));
  }
  return DP_OK;
}

static dp_status close_end(end *e, dp_error *error) {
  (void)error;
  for (int way = 0; way < WAYS; way++) {
    exec_nccl_close(e->nccl[way]);
    e->nccl[way] = NULL;
  }
  return DP_OK;
}

static dp_status put(end *e, int way, dp_error *error) {
  const bool sends = e->number == way;
  const exec_piece piece = {.at = sends ? e->out : e->in, .bytes = (size_t)e->of->bytes};
  return sends ? exec_nccl_send(e->nccl[way], 1, &piece, e->streams[way], error)
               : exec_nccl_receive(e->nccl[way], 1, &piece, e->streams[way], error);
}

static dp_status wait_stream(end *e, int way, dp_error *error) {
  for (;;) {
    const cudaError_t result = cudaStreamQuery(e->streams[way]);
    if (result == cudaSuccess) return DP_OK;
    if (result != cudaErrorNotReady) return exec_cuda_check(result, "cudaStreamQuery", error);
    DP_TRY(exec_nccl_look(e->nccl[way], error));
    if (atomic_load(&e->of->stop)) return dp_fail(error, DP_RUN_FAILED, "NCCL between two GPUs was given up");
    dp_sleep_s(20e-6);
  }
}

/* The first message brings the ends together; the time is that of those behind it. */
static dp_status exchange(end *e, dp_error *error) {
  const int received = e->number == 0 ? BACK : THERE, messages = e->of->messages;
  for (int m = 0; m <= messages; m++) {
    DP_TRY(put(e, THERE, error));
    if (e->of->both) DP_TRY(put(e, BACK, error));
    if (m == 0) EXEC_CUDA_TRY(cudaEventRecord(e->begin, e->streams[received]), error);
  }
  EXEC_CUDA_TRY(cudaEventRecord(e->done, e->streams[received]), error);
  for (int way = 0; way < WAYS; way++) DP_TRY(wait_stream(e, way, error));
  float ms = 0;
  EXEC_CUDA_TRY(cudaEventElapsedTime(&ms, e->begin, e->done), error);
  e->seconds = received == THERE || e->of->both ? ms * 1e-3 / messages : 0;
  return DP_OK;
}

/* The second's receive waits until the first sends, which it does when it is told, or after a while: should what else
 * the second's device is to do wait for the receive, it goes on all the same. */
static dp_status wait_for_first(end *e, dp_error *error) {
  const double began_s = dp_clock_s();
  pair *n = e->of;
  while (e->number == 0 && !atomic_load(&n->released) && !atomic_load(&n->stop) && dp_clock_s() - began_s < RELEASE_S)
    dp_sleep_s(50e-6);
  DP_TRY(put(e, THERE, error));
  if (e->number == 1) atomic_store(&n->posted, true);
  return wait_stream(e, THERE, error);
}

/* ---- the table's functions ---- */

/* As a pipeline of as many processes has it, for all lanes of a worker. */
static int share(const exec_pipeline *p) {
  const plan_program *program = p->work.program;
  int most = 1;
  for (int w = 0; w < program->worker_count; w++) {
    int lanes = 0;
    for (uint32_t l = program->worker_lane[w]; l < program->worker_lane[w + 1]; l++)
      lanes += program->lanes[l].kind == PLAN_LANE_SEND || program->lanes[l].kind == PLAN_LANE_RECV;
    if (lanes > most) most = lanes;
  }
  return exec_nccl_share(exec_cuda_at(p, 0)->sm_count, most);
}

static dp_status open_pair(exec_pipeline *p, pair *n, dp_error *error) {
  for (int way = 0; way < WAYS; way++) DP_TRY(exec_nccl_make_id(n->ids[way], error));
  n->most_sms = share(p);
  for (int i = 0; i < 2; i++) {
    n->ends[i].of = n;
    n->ends[i].number = i;
    n->ends[i].gpu = exec_cuda_at(p, i)->gpu;
  }
  if (n->ends[0].gpu == n->ends[1].gpu)
    return dp_fail(error, DP_UNSUPPORTED, "NCCL is timed between two GPUs, found one");
  DP_TRY(do_both(n, open_end, error));
  n->bytes = n->room;
  n->messages = 1;
  n->both = true;
  return do_both(n, exchange, error); /* they connect, and kernels are loaded, while nothing else runs */
}

dp_status exec_cuda_open_pair(exec_pipeline *p, int64_t bytes, dp_error *error) {
  if (!exec_nccl_is_there()) return dp_fail(error, DP_UNSUPPORTED, "NCCL is not in this build, or not on this machine");
  pair *n = calloc(1, sizeof *n);
  if (!n) return dp_fail_memory(error);
  n->room = bytes;
  p->pair = n;
  const dp_status status = open_pair(p, n, error);
  if (status != DP_OK) exec_cuda_close_pair(p);
  return status;
}

void exec_cuda_close_pair(exec_pipeline *p) {
  pair *n = pair_of(p);
  if (!n) return;
  if (atomic_load(&n->stop)) {
    exec_nccl *const all[] = {n->ends[0].nccl[0], n->ends[1].nccl[0], n->ends[0].nccl[1], n->ends[1].nccl[1]};
    exec_nccl_abort(all, 4);
  }
  if (n->ends[0].of) (void)do_both(n, close_end, NULL);
  for (int i = 0; i < 2; i++) {
    end *e = &n->ends[i];
    if (e->of) (void)cudaSetDevice(e->gpu);
    for (int way = 0; way < WAYS; way++)
      if (e->streams[way]) (void)cudaStreamDestroy(e->streams[way]);
    if (e->begin) (void)cudaEventDestroy(e->begin);
    if (e->done) (void)cudaEventDestroy(e->done);
    if (e->out) (void)cudaFree(e->out);
    if (e->in) (void)cudaFree(e->in);
  }
  free(n);
  p->pair = NULL;
}

dp_status exec_cuda_time_pair(exec_pipeline *p, bool both, int64_t bytes, int messages, double *seconds,
                              dp_error *error) {
  pair *n = pair_of(p);
  n->bytes = bytes;
  n->messages = messages;
  n->both = both;
  DP_TRY(do_both(n, exchange, error));
  *seconds = n->ends[0].seconds > n->ends[1].seconds ? n->ends[0].seconds : n->ends[1].seconds;
  return DP_OK;
}

dp_status exec_cuda_wait_in_pair(exec_pipeline *p, bool begins, dp_error *error) {
  pair *n = pair_of(p);
  if (!begins) {
    atomic_store(&n->released, true);
    return end_job(n, error);
  }
  n->bytes = n->room;
  atomic_store(&n->posted, false);
  atomic_store(&n->released, false);
  DP_TRY(begin_job(n, wait_for_first, error));
  while (!atomic_load(&n->posted) && !atomic_load(&n->ends[1].left)) dp_sleep_s(50e-6);
  dp_sleep_s(2e-3); /* its kernel has begun to wait */
  return DP_OK;
}
