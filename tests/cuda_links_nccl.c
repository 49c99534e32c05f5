/* bench_cuda_links under mpirun: NCCL, a process a GPU. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/median.h"
#include "exec/device.h"
#include "exec/device_cuda_nccl.h"
#include "tests/cuda_links.h"

/* Up: to the process one further; down: to the one before. The order is that in which a process begins them: so all
 * meet, for the last process has nothing to send up, and the first nothing to send down. */
enum { SEND_UP, RECEIVE_UP, SEND_DOWN, RECEIVE_DOWN, SUM, LANES };
enum { MOST_MESSAGES = 50, SLOWED = 3 };

typedef struct lane {
  exec_nccl *nccl; /* NULL: this process has no such neighbour */
  cudaStream_t stream;
  cudaEvent_t begin, end;
  char *at;
} lane;

static exec_transport *transport;
static dp_error error = DP_ERROR_INIT;
static atomic_bool stop;
static links_gpu *gpu;
static lane lanes[LANES];

/* ---- communicators ---- */

static void open_lane(lane *l, int rank, int ranks, const unsigned char *id, int sms, char *at) {
  const exec_nccl_how base = {.rank = rank, .ranks = ranks, .most_sms = sms, .peer = "another process", .stop = &stop};
  exec_nccl_how how = base;
  for (int i = 0; i < EXEC_NCCL_ID_BYTES; i++) how.id[i] = id[i];
  links_must(exec_nccl_open(&how, &l->nccl, &error), &error);
  LINKS_TRY(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking));
  LINKS_TRY(cudaEventCreate(&l->begin));
  LINKS_TRY(cudaEventCreate(&l->end));
  l->at = at;
}

static void share_id(unsigned char id[EXEC_NCCL_ID_BYTES]) {
  if (exec_process(transport) == 0) links_must(exec_nccl_make_id(id, &error), &error);
  links_must(exec_broadcast(transport, id, EXEC_NCCL_ID_BYTES, &error), &error);
}

static void open_lanes(int sms) {
  const int me = exec_process(transport), count = exec_process_count(transport);
  unsigned char id[EXEC_NCCL_ID_BYTES] = {0};
  for (int low = 0; low + 1 < count; low++)
    for (int down = 0; down < 2; down++) {
      share_id(id);
      if (me == low) /* rank 0 of the two */
        open_lane(&lanes[down ? RECEIVE_DOWN : SEND_UP], 0, 2, id, sms, down ? gpu->in[1] : gpu->out);
      if (me == low + 1) open_lane(&lanes[down ? SEND_DOWN : RECEIVE_UP], 1, 2, id, sms, down ? gpu->out : gpu->in[0]);
    }
  share_id(id);
  open_lane(&lanes[SUM], me, count, id, sms, gpu->out);
}

static void close_lanes(void) {
  for (int k = LANES - 1; k >= 0; k--) {
    if (!lanes[k].nccl) continue;
    exec_nccl_close(lanes[k].nccl);
    LINKS_TRY(cudaEventDestroy(lanes[k].begin));
    LINKS_TRY(cudaEventDestroy(lanes[k].end));
    LINKS_TRY(cudaStreamDestroy(lanes[k].stream));
  }
}

/* ---- many at once ---- */

static void barrier(void) { links_must(exec_barrier(transport, &error), &error); }

/* The largest of all processes' seconds, or of other numbers. */
static double largest(double value) {
  int64_t billionths = (int64_t)(value * 1e9);
  links_must(exec_maximum(transport, &billionths, &error), &error);
  return (double)billionths * 1e-9;
}

static void put(int k, int64_t bytes) {
  lane *l = &lanes[k];
  const exec_piece piece = {.at = l->at, .bytes = (size_t)bytes};
  dp_status status;
  if (k == SUM)
    status = exec_nccl_sum(l->nccl, true, bytes / 2, l->at, l->stream, &error);
  else if (k == SEND_UP || k == SEND_DOWN)
    status = exec_nccl_send(l->nccl, 1, &piece, l->stream, &error);
  else
    status = exec_nccl_receive(l->nccl, 1, &piece, l->stream, &error);
  links_must(status, &error);
}

static void put_all(unsigned mask, int64_t bytes) {
  for (int k = 0; k < LANES; k++)
    if (mask >> k & 1U) put(k, bytes);
}

/* The first message brings the processes together; the time is that of those behind it. `covered`: products begin
 * before the messages and go on behind them; else they begin behind the first message. */
static double play(unsigned mask, int64_t bytes, int messages, int products, bool covered, double *slowing) {
  double worst_s = 0;
  cudaEvent_t met = NULL;
  barrier();
  if (mask && covered && products > 0) links_products(gpu, products);
  put_all(mask, bytes);
  for (int k = 0; k < LANES; k++) {
    if (!(mask >> k & 1U)) continue;
    LINKS_TRY(cudaEventRecord(lanes[k].begin, lanes[k].stream));
    met = lanes[k].begin;
  }
  if (met && !covered && products > 0) {
    LINKS_TRY(cudaStreamWaitEvent(gpu->compute, met, 0));
    links_products(gpu, products);
  }
  for (int m = 0; m < messages; m++) put_all(mask, bytes);
  for (int k = 0; k < LANES; k++)
    if (mask >> k & 1U) LINKS_TRY(cudaEventRecord(lanes[k].end, lanes[k].stream));
  for (int k = 0; k < LANES; k++) {
    if (!(mask >> k & 1U)) continue;
    const double s = links_elapsed_s(lanes[k].begin, lanes[k].end) / messages;
    worst_s = s > worst_s ? s : worst_s;
    links_must(exec_nccl_look(lanes[k].nccl, &error), &error);
  }
  const double times = met && products > 0 ? links_products_s(gpu, products) / gpu->product_s : 0;
  if (slowing) *slowing = largest(times);
  return largest(worst_s);
}

static double median_of(unsigned mask, int64_t bytes, int messages, int products, bool covered, double *slowing) {
  double seconds[LINKS_RUNS], times[LINKS_RUNS] = {0};
  for (int i = 0; i < LINKS_RUNS; i++) seconds[i] = play(mask, bytes, messages, products, covered, &times[i]);
  if (slowing) *slowing = dp_median(times, LINKS_RUNS);
  return dp_median(seconds, LINKS_RUNS);
}

/* What products take while process 1 waits for the others, which begin when it has told how long: its kernels take
 * multiprocessors all the while. */
static double time_waiting(unsigned mask, int64_t bytes) {
  enum { WAITS = 1U << RECEIVE_UP | 1U << SUM };
  double times[LINKS_RUNS] = {0};
  const unsigned early = exec_process(transport) == 1 ? mask & WAITS : 0;
  for (int i = 0; i < LINKS_RUNS; i++) {
    barrier();
    put_all(early, bytes);
    if (early) {
      dp_sleep_s(1e-3); /* they have begun to */
      links_products(gpu, SLOWED);
      times[i] = links_products_s(gpu, SLOWED) / gpu->product_s;
    }
    barrier();
    put_all(mask & ~early, bytes);
    for (int k = 0; k < LANES; k++) {
      if (!(mask >> k & 1U)) continue;
      LINKS_TRY(cudaStreamSynchronize(lanes[k].stream));
      links_must(exec_nccl_look(lanes[k].nccl, &error), &error);
    }
  }
  return largest(dp_median(times, LINKS_RUNS));
}

/* ---- rows ---- */

static void measure(const char *name, unsigned mask, int gpus, int flows, int64_t bytes, bool waits, int sms) {
  const int count = exec_process_count(transport);
  links_result result = {0};
  const double product_s = largest(gpu->product_s);
  (void)play(mask, bytes, 1, 0, false, NULL);
  const int first = links_count(2e-3, play(mask, bytes, 1, 0, false, NULL), 1, 20);
  const int messages = links_count(5e-3, play(mask, bytes, first, 0, false, NULL), 1, MOST_MESSAGES);
  result.alone_s = median_of(mask, bytes, messages, 0, false, NULL);
  /* 4 ms: processes do not leave a barrier at one time */
  const int products = links_count(4e-3 + 2.5 * (messages + 1) * result.alone_s, product_s, 2, 256);
  result.beside_s = median_of(mask, bytes, messages, products, true, NULL);
  if (bytes >= LINKS_SLOWING_BYTES) {
    const int cover = links_count(1.5 * SLOWED * product_s, result.alone_s, 2, 4 * MOST_MESSAGES);
    (void)median_of(mask, bytes, cover, SLOWED, false, &result.slowing);
  }
  if (waits && bytes == LINKS_SLOWING_BYTES) result.waiting = time_waiting(mask, bytes);
  if (exec_process(transport) == 0)
    links_tell(name, gpus, flows, bytes, mask & 1U << SUM ? 2.0 * (count - 1) / count : 1, sms, &result);
}

/* All processes go on, or none. */
static bool all_go_on(const links_options *options, const char *name) {
  return largest(links_wanted(options, name) ? 0 : 1) == 0;
}

/* waits: of the one message of its first two processes, or the sum of all. */
static void run_row(const char *name, unsigned mask, int gpus, int flows, bool waits, const links_options *options) {
  if (!all_go_on(options, name)) return;
  barrier();
  links_time_products(gpu);
  for (int s = 0; s < links_size_count && all_go_on(options, name); s++)
    measure(name, mask, gpus, flows, links_sizes[s], waits, options->nccl_sms);
}

/* Each lane by itself: communicators connect and kernels are loaded, for which the driver may wait for all that is
 * under way on the device, and so for who waits for it. */
static void meet(void) {
  const int me = exec_process(transport), count = exec_process_count(transport);
  for (int s = 0; s < 2; s++)
    for (int low = 0; low < count; low++)
      for (int down = 0; down < 2; down++) {
        int k = -1;
        if (low + 1 < count && me == low) k = down ? RECEIVE_DOWN : SEND_UP;
        if (low + 1 < count && me == low + 1) k = down ? SEND_DOWN : RECEIVE_UP;
        if (low + 1 == count && !down) k = SUM;
        if (k >= 0) {
          put(k, links_sizes[s == 0 ? 0 : 3]);
          LINKS_TRY(cudaStreamSynchronize(lanes[k].stream));
        }
        barrier();
      }
}

void links_nccl(exec_transport *given, links_gpu *given_gpu, const links_options *options) {
  enum { UP = 1U << SEND_UP | 1U << RECEIVE_UP, DOWN = 1U << SEND_DOWN | 1U << RECEIVE_DOWN };
  transport = given;
  gpu = given_gpu;
  const int me = exec_process(transport), count = exec_process_count(transport);
  unsigned there = 0, first = 0;
  char name[3][64];
  static const char *const ways[] = {"one way", "both ways"};
  open_lanes(options->nccl_sms);
  meet();
  for (int k = 0; k < SUM; k++) there |= lanes[k].nccl ? 1U << k : 0;
  if (me == 0) first = 1U << SEND_UP | 1U << RECEIVE_DOWN;
  if (me == 1) first = 1U << RECEIVE_UP | 1U << SEND_DOWN;
  for (int both = 0; both < 2; both++) {
    const unsigned mask = both ? UP | DOWN : UP;
    (void)snprintf(name[0], sizeof name[0], "nccl, %s", ways[both]);
    (void)snprintf(name[1], sizeof name[1], "nccl, neighbours, %s", ways[both]);
    run_row(name[0], first & mask, 2, 1 + both, !both, options);
    if (count > 2) run_row(name[1], there & mask, count, (1 + both) * (count - 1), false, options);
  }
  run_row("nccl, all-reduce", 1U << SUM, count, 1, true, options);
  close_lanes();
}
