/* How fast a machine's GPUs exchange data, and what that costs those who compute meanwhile.
 *
 * One process measures copies by the copy engines of all GPUs that it sees; under mpirun, a process a GPU, NCCL is
 * measured. Lines of JSON go to stdout, a table to stderr. Rows that two GPUs are needed for are left out, with a line,
 * where there is one, or where one cannot reach the other's memory.
 *
 *   peer        cudaMemcpyPeerAsync in a queue of the receiver, as workers of one process exchange data
 *   to host, from host    between a GPU and pinned memory; messages above 128 MiB in pieces of that
 *   staged      from one GPU into pinned memory and on to the other, by two pieces of 4 MiB in turns
 *   nccl        ncclSend and ncclRecv, a communicator for each direction; ncclAllReduce in place, of bf16
 *   one way     GPU 0 to 1;  both ways: also 1 to 0, at once;  neighbours: 0 to 1, 1 to 2, ... at once
 *
 * Columns, with S the bytes of one message:
 *   us          microseconds of one of K messages, which lie in the queue one behind another: the time from the
 *               beginning of the first to the end of the last / K, of the slowest of all that go at once; K is what
 *               lasts 5 ms, at most 100. Median of 5 runs. A message alone takes a few microseconds more.
 *   gb_per_s    S / us of each that goes, in 10^9 bytes a second; of an all-reduce of n GPUs 2 (n - 1) / n S / us, what
 *               crosses each GPU's link when a ring does it ("bus bandwidth")
 *   beside_us, beside_gb_per_s    the same while every GPU that takes part computes products of bf16, 8192^3, from
 *               before the first message to after the last (2.5 times their time alone)
 *   gemm_slowing    what one of 3 products takes while messages go from before the first of them to after the last, over
 *               what it takes alone, of the GPU where it is most; for messages from 16 MiB on
 *   waiting_slowing    of NCCL's receive, and all-reduce, the same while its kernel waits for another GPU that sends
 *               nothing yet; of 16 MiB
 *   sms         of --sms; 0: NCCL took as many as it likes
 *
 * `diffpipe calibrate --links FILE` reads NCCL's rows (plan/profile_rows.h).
 *
 * usage: bench_cuda_links [--seconds N] [--only TEXT] [--sms N]
 *   --seconds   no row is begun after so long (default 120)    --only   rows with this in their name
 *   --sms       multiprocessors that NCCL's kernels may take (default: as many as it likes)
 */
#define _POSIX_C_SOURCE 200809L
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/median.h"
#include "exec/device.h"
#include "exec/transport_mpi.h"
#include "tests/cuda_links.h"

enum { MAX_FLOWS = 2 * LINKS_MAX_GPUS, MOST_MESSAGES = 100, SLOWED = 3, MOST_CALLS = 400, PIECE = 4 << 20 };

/* ---- messages ---- */

typedef enum way { PEER, TO_HOST, FROM_HOST, STAGED } way;

/* One direction between two GPUs, or between one and the host. */
typedef struct flow {
  way way;
  links_gpu *from, *to; /* TO_HOST, FROM_HOST: the same */
  int lane;             /* which of the receiver's buffers, and of the host's */
  cudaStream_t stream;  /* of `to` */
  cudaStream_t source;  /* STAGED: of `from` */
  cudaEvent_t begin, end;
  cudaEvent_t full[2], empty[2]; /* STAGED: of the pieces in the host's memory */
} flow;

static void open_flow(flow *f) {
  LINKS_TRY(cudaSetDevice(f->from->index));
  if (f->way == STAGED) LINKS_TRY(cudaStreamCreateWithFlags(&f->source, cudaStreamNonBlocking));
  for (int i = 0; f->way == STAGED && i < 2; i++)
    LINKS_TRY(cudaEventCreateWithFlags(&f->full[i], cudaEventDisableTiming));
  LINKS_TRY(cudaSetDevice(f->to->index));
  LINKS_TRY(cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking));
  for (int i = 0; f->way == STAGED && i < 2; i++)
    LINKS_TRY(cudaEventCreateWithFlags(&f->empty[i], cudaEventDisableTiming));
  LINKS_TRY(cudaEventCreate(&f->begin));
  LINKS_TRY(cudaEventCreate(&f->end));
}

static void close_flow(flow *f) {
  for (int i = 0; f->way == STAGED && i < 2; i++) {
    LINKS_TRY(cudaEventDestroy(f->full[i]));
    LINKS_TRY(cudaEventDestroy(f->empty[i]));
  }
  LINKS_TRY(cudaEventDestroy(f->begin));
  LINKS_TRY(cudaEventDestroy(f->end));
  LINKS_TRY(cudaStreamDestroy(f->stream));
  if (f->source) LINKS_TRY(cudaStreamDestroy(f->source));
}

/* An event that was never recorded holds nobody up, so the first two pieces find their places empty. */
static int put_staged(flow *f, int64_t bytes) {
  int calls = 0;
  for (int64_t at = 0, half = 0; at < bytes; at += PIECE, half = 1 - half, calls += 3) {
    const size_t count = (size_t)(bytes - at < PIECE ? bytes - at : PIECE);
    char *pinned = f->from->host[f->lane] + half * PIECE;
    LINKS_TRY(cudaSetDevice(f->from->index));
    LINKS_TRY(cudaStreamWaitEvent(f->source, f->empty[half], 0));
    LINKS_TRY(cudaMemcpyAsync(pinned, f->from->out + at, count, cudaMemcpyDeviceToHost, f->source));
    LINKS_TRY(cudaEventRecord(f->full[half], f->source));
    LINKS_TRY(cudaSetDevice(f->to->index));
    LINKS_TRY(cudaStreamWaitEvent(f->stream, f->full[half], 0));
    LINKS_TRY(cudaMemcpyAsync(f->to->in[f->lane] + at, pinned, count, cudaMemcpyHostToDevice, f->stream));
    LINKS_TRY(cudaEventRecord(f->empty[half], f->stream));
  }
  return calls;
}

/* One message in the queue; how many calls that was. */
static int put(flow *f, int64_t bytes) {
  int calls = 0;
  if (f->way == STAGED) return put_staged(f, bytes);
  LINKS_TRY(cudaSetDevice(f->to->index));
  if (f->way == PEER) {
    LINKS_TRY(
        cudaMemcpyPeerAsync(f->to->in[f->lane], f->to->index, f->from->out, f->from->index, (size_t)bytes, f->stream));
    return 1;
  }
  for (int64_t at = 0; at < bytes; at += LINKS_HOST_BYTES, calls++) {
    const size_t count = (size_t)(bytes - at < LINKS_HOST_BYTES ? bytes - at : LINKS_HOST_BYTES);
    if (f->way == TO_HOST)
      LINKS_TRY(cudaMemcpyAsync(f->from->host[0], f->from->out + at, count, cudaMemcpyDeviceToHost, f->stream));
    else
      LINKS_TRY(cudaMemcpyAsync(f->to->in[0] + at, f->to->host[1], count, cudaMemcpyHostToDevice, f->stream));
  }
  return calls;
}

/* ---- many at once ---- */

typedef struct row {
  const char *name;
  flow flows[MAX_FLOWS];
  int flow_count;
  links_gpu *gpus[LINKS_MAX_GPUS]; /* that take part */
  int gpu_count;
} row;

/* All queues wait behind one that waits for the host, so that what is in them begins at once and as soon as it can. A
 * queue takes about a thousand entries before who puts them there has to wait: so the gate opens before that. */
static atomic_bool gate;
static cudaStream_t gate_stream; /* of GPU 0 */
static cudaEvent_t gate_open;

static void CUDART_CB wait_for_gate(void *data) {
  (void)data;
  while (!atomic_load(&gate)) (void)sched_yield();
}

static void begin_flow(flow *f) {
  LINKS_TRY(cudaSetDevice(f->to->index));
  LINKS_TRY(cudaStreamWaitEvent(f->stream, gate_open, 0));
  LINKS_TRY(cudaEventRecord(f->begin, f->stream));
  if (!f->source) return;
  LINKS_TRY(cudaSetDevice(f->from->index));
  LINKS_TRY(cudaStreamWaitEvent(f->source, gate_open, 0));
}

/* So many messages of each flow and so many products on each GPU; seconds of a message of the slowest flow, and how
 * much longer products take where they take longest. */
static double play(row *r, int64_t bytes, int messages, int products, double *slowing) {
  double worst_s = 0;
  int calls = 0;
  atomic_store(&gate, false);
  LINKS_TRY(cudaSetDevice(0));
  LINKS_TRY(cudaLaunchHostFunc(gate_stream, wait_for_gate, NULL));
  LINKS_TRY(cudaEventRecord(gate_open, gate_stream));
  for (int g = 0; products > 0 && g < r->gpu_count; g++) {
    LINKS_TRY(cudaSetDevice(r->gpus[g]->index));
    LINKS_TRY(cudaStreamWaitEvent(r->gpus[g]->compute, gate_open, 0));
    links_products(r->gpus[g], products);
  }
  for (int i = 0; i < r->flow_count; i++) begin_flow(&r->flows[i]);
  for (int m = 0; m < messages; m++) {
    int most = 0;
    for (int i = 0; i < r->flow_count; i++) {
      const int put_calls = put(&r->flows[i], bytes);
      most = put_calls > most ? put_calls : most;
    }
    calls += most;
    if (calls > MOST_CALLS) atomic_store(&gate, true);
  }
  for (int i = 0; i < r->flow_count; i++) {
    LINKS_TRY(cudaSetDevice(r->flows[i].to->index));
    LINKS_TRY(cudaEventRecord(r->flows[i].end, r->flows[i].stream));
  }
  atomic_store(&gate, true);
  for (int i = 0; i < r->flow_count; i++) {
    const double s = links_elapsed_s(r->flows[i].begin, r->flows[i].end) / messages;
    worst_s = s > worst_s ? s : worst_s;
  }
  for (int g = 0; products > 0 && g < r->gpu_count; g++) {
    const double times = links_products_s(r->gpus[g], products) / r->gpus[g]->product_s;
    if (slowing && times > *slowing) *slowing = times;
  }
  return worst_s;
}

static double median_of(row *r, int64_t bytes, int messages, int products, double *slowing) {
  double seconds[LINKS_RUNS], times[LINKS_RUNS] = {0};
  for (int i = 0; i < LINKS_RUNS; i++) seconds[i] = play(r, bytes, messages, products, &times[i]);
  if (slowing) *slowing = dp_median(times, LINKS_RUNS);
  return dp_median(seconds, LINKS_RUNS);
}

static void measure(row *r, int64_t bytes) {
  links_result result = {0};
  double product_s = 0;
  for (int g = 0; g < r->gpu_count; g++)
    if (r->gpus[g]->product_s > product_s) product_s = r->gpus[g]->product_s;
  (void)play(r, bytes, 1, 0, NULL);
  const int first = links_count(2e-3, play(r, bytes, 1, 0, NULL), 1, 20);
  const int messages = links_count(5e-3, play(r, bytes, first, 0, NULL), 1, MOST_MESSAGES);
  result.alone_s = median_of(r, bytes, messages, 0, NULL);
  const int products = links_count(2.5 * messages * result.alone_s, product_s, 2, 128);
  result.beside_s = median_of(r, bytes, messages, products, NULL);
  if (bytes >= LINKS_SLOWING_BYTES) {
    const int cover = links_count(1.5 * SLOWED * product_s, result.alone_s, 2, 4 * MOST_MESSAGES);
    (void)median_of(r, bytes, cover, SLOWED, &result.slowing);
  }
  links_tell(r->name, r->gpu_count, r->flow_count, bytes, 1, 0, &result);
}

/* ---- rows ---- */

static void add_flow(row *r, way how, links_gpu *from, links_gpu *to) {
  links_gpu *const ends[] = {from, to};
  flow *f = &r->flows[r->flow_count++];
  *f = (flow){.way = how, .from = from, .to = to, .lane = from->index > to->index};
  open_flow(f);
  for (int e = 0; e < 2; e++) {
    bool is_there = false;
    for (int g = 0; g < r->gpu_count; g++) is_there = is_there || r->gpus[g] == ends[e];
    if (!is_there) r->gpus[r->gpu_count++] = ends[e];
  }
}

static void run_row(row *r, const links_options *options) {
  for (int g = 0; g < r->gpu_count; g++) links_time_products(r->gpus[g]);
  for (int s = 0; s < links_size_count && dp_clock_s() < options->end_s; s++) measure(r, links_sizes[s]);
  for (int i = 0; i < r->flow_count; i++) close_flow(&r->flows[i]);
}

/* Between the first `gpu_count` neighbours. */
static void between(const char *name, way how, bool both, links_gpu *gpus, int gpu_count,
                    const links_options *options) {
  row r = {.name = name};
  if (!links_wanted(options, name)) return;
  for (int g = 0; g + 1 < gpu_count; g++) {
    add_flow(&r, how, &gpus[g], &gpus[g + 1]);
    if (both) add_flow(&r, how, &gpus[g + 1], &gpus[g]);
  }
  run_row(&r, options);
}

static void with_host(const char *name, bool to, bool from, links_gpu *gpus, int gpu_count,
                      const links_options *options) {
  row r = {.name = name};
  if (!links_wanted(options, name)) return;
  for (int g = 0; g < gpu_count; g++) {
    if (to) add_flow(&r, TO_HOST, &gpus[g], &gpus[g]);
    if (from) add_flow(&r, FROM_HOST, &gpus[g], &gpus[g]);
  }
  run_row(&r, options);
}

/* Whether all neighbours reach each other's memory, which they do from then on. */
static bool are_peers(int gpu_count) {
  for (int g = 0; g + 1 < gpu_count; g++)
    for (int back = 0; back < 2; back++) {
      const int here = g + back, there = g + 1 - back;
      int can = 0;
      LINKS_TRY(cudaDeviceCanAccessPeer(&can, here, there));
      if (!can) {
        fprintf(stderr, "bench_cuda_links: GPU %d cannot reach the memory of GPU %d: peer copies are left out\n", here,
                there);
        return false;
      }
      LINKS_TRY(cudaSetDevice(here));
      const cudaError_t result = cudaDeviceEnablePeerAccess(there, 0);
      if (result != cudaErrorPeerAccessAlreadyEnabled) links_check(result, "cudaDeviceEnablePeerAccess");
      (void)cudaGetLastError(); /* which that is, too */
    }
  return true;
}

static void copies(links_gpu *gpus, int count, const links_options *options) {
  LINKS_TRY(cudaSetDevice(0));
  LINKS_TRY(cudaStreamCreateWithFlags(&gate_stream, cudaStreamNonBlocking));
  LINKS_TRY(cudaEventCreateWithFlags(&gate_open, cudaEventDisableTiming));
  if (count < 2) fprintf(stderr, "bench_cuda_links: there is one GPU: rows of two or more are left out\n");
  if (count >= 2 && are_peers(count)) {
    between("peer, one way", PEER, false, gpus, 2, options);
    between("peer, both ways", PEER, true, gpus, 2, options);
    if (count > 2) between("peer, neighbours, one way", PEER, false, gpus, count, options);
    if (count > 2) between("peer, neighbours, both ways", PEER, true, gpus, count, options);
  }
  with_host("to host", true, false, gpus, 1, options);
  with_host("from host", false, true, gpus, 1, options);
  with_host("host, both ways", true, true, gpus, 1, options);
  if (count >= 2) {
    between("staged, one way", STAGED, false, gpus, 2, options);
    between("staged, both ways", STAGED, true, gpus, 2, options);
    with_host("host, both ways, all GPUs", true, true, gpus, count, options);
  }
  if (count > 2) between("staged, neighbours, both ways", STAGED, true, gpus, count, options);
  LINKS_TRY(cudaSetDevice(0));
  LINKS_TRY(cudaEventDestroy(gate_open));
  LINKS_TRY(cudaStreamDestroy(gate_stream));
}

/* ---- the program ---- */

static links_options read_options(int argc, char **argv) {
  links_options options = {.end_s = dp_clock_s() + 120};
  for (int i = 1; i < argc; i += 2) {
    const bool has_value = i + 1 < argc;
    if (has_value && strcmp(argv[i], "--seconds") == 0) {
      options.end_s = dp_clock_s() + strtod(argv[i + 1], NULL);
    } else if (has_value && strcmp(argv[i], "--only") == 0) {
      options.only = argv[i + 1];
    } else if (has_value && strcmp(argv[i], "--sms") == 0) {
      options.nccl_sms = (int)strtol(argv[i + 1], NULL, 10);
    } else {
      fprintf(stderr, "usage: bench_cuda_links [--seconds N] [--only TEXT] [--sms N]\n");
      exit(2);
    }
  }
  return options;
}

int main(int argc, char **argv) {
  const links_options options = read_options(argc, argv);
  dp_error error = DP_ERROR_INIT;
  exec_transport *transport = NULL;
  links_gpu gpus[LINKS_MAX_GPUS];
  if (exec_device_cuda_there(&error) != DP_OK) {
    printf("skipped: %s\n", error.text);
    return 77;
  }
  links_must(exec_transport_open_mpi(&transport, NULL, &error), &error);
  const int there = exec_device_cuda_count(), count = there < LINKS_MAX_GPUS ? there : LINKS_MAX_GPUS;
  if (transport) {
    char host[16]; /* who shares a GPU is taken for another host: NCCL does not know such processes otherwise */
    (void)snprintf(host, sizeof host, "links-%d", exec_process(transport));
    if (exec_process_count(transport) > count) (void)setenv("NCCL_HOSTID", host, 0);
    links_gpu_open(&gpus[0], exec_process(transport) % count);
    links_nccl(transport, &gpus[0], &options);
    links_gpu_close(&gpus[0]);
    transport->free(transport);
    return 0;
  }
  for (int g = 0; g < count; g++) links_gpu_open(&gpus[g], g);
  copies(gpus, count, &options);
  for (int g = 0; g < count; g++) links_gpu_close(&gpus[g]);
  return 0;
}
