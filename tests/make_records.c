/* Records of a program that never was, for the commands that read them:
 *
 *   make_records FOLDER DEVICE KERNEL STEPS [HOST [copies|uploads]]
 *
 * A step: three launches ahead of a kernel of 20 us, of KERNEL of 50 us and of the optimizer of 10 us, for which the host
 * then waits. With HOST there is a second process of that host, and a collective of 30 us beside KERNEL in both. With
 * copies there are in each step, by themselves and beside a kernel of 100 us that they slow by a quarter, those to the
 * device (10 us and 50 GB/s, beside compute 20 us and 40 GB/s) and to the other GPU (20 us and 200 GB/s, 25 and 100) of 1,
 * 2, 4 or 8 MiB, and that kernel by itself; with uploads of these only those to the device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/writer.h"

typedef struct run {
  prof_writer *writer;
  int64_t now_ns; /* of the host */
  uint32_t correlation;
} run;

static void add(const run *r, const prof_record *record) {
  if (r->correlation % 1024 == 0) prof_writer_flush(r->writer, false);
  if (!prof_writer_add(r->writer, record)) exit(1);
}

static void call(const run *r, prof_kind kind, const char *name, int64_t end_ns) {
  add(r, &(prof_record){.kind = (uint8_t)kind,
                        .device = PROF_NO_DEVICE,
                        .name = prof_writer_string(r->writer, name),
                        .start_ns = r->now_ns,
                        .end_ns = end_ns,
                        .thread = 1,
                        .correlation = r->correlation});
}

static void launch(run *r, const char *name, uint32_t stream, int64_t start_ns, int64_t us) {
  r->correlation++;
  call(r, PROF_CALL, "cudaLaunchKernel", r->now_ns + 1000);
  r->now_ns += 1000;
  add(r, &(prof_record){.kind = PROF_KERNEL,
                        .name = prof_writer_string(r->writer, name),
                        .start_ns = start_ns,
                        .end_ns = start_ns + us * 1000,
                        .stream = stream,
                        .correlation = r->correlation,
                        .grid = {8, 1, 1}});
}

static void add_work(run *r, const char *name, prof_copy way, int64_t start_ns, double seconds, uint64_t bytes) {
  r->correlation++;
  add(r, &(prof_record){.kind = name ? PROF_KERNEL : PROF_COPY,
                        .detail = (uint8_t)way,
                        .name = name ? prof_writer_string(r->writer, name) : 0,
                        .start_ns = start_ns,
                        .end_ns = start_ns + (int64_t)(1e9 * seconds),
                        .stream = name ? 7 : 9,
                        .correlation = r->correlation,
                        .value = bytes,
                        .grid = {8, 1, 1}});
}

static void copies(run *r, int step, int way_count) {
  static const struct {
    prof_copy way;
    double alone[2], beside[2];
  } ways[] = {{PROF_COPY_TO_DEVICE, {10e-6, 50e9}, {20e-6, 40e9}}, {PROF_COPY_PEER, {20e-6, 200e9}, {25e-6, 100e9}}};
  const double bytes = (double)(1 << (20 + step % 4));
  for (int w = 0; w < way_count; w++) {
    add_work(r, NULL, ways[w].way, r->now_ns, ways[w].alone[0] + bytes / ways[w].alone[1], (uint64_t)bytes);
    add_work(r, "slowed_kernel", 0, r->now_ns + 1000000, 100e-6, 0);
    const double seconds = ways[w].beside[0] + bytes / ways[w].beside[1];
    add_work(r, NULL, ways[w].way, r->now_ns + 2000000, seconds, (uint64_t)bytes);
    for (double at = 0, took; at < seconds; at += took) {
      const double left = seconds - at;
      took = left > 125e-6 ? 125e-6 : 100e-6 + 0.2 * left;
      add_work(r, "slowed_kernel", 0, r->now_ns + 2000000 + (int64_t)(1e9 * at), took, 0);
    }
    r->now_ns += 4000000;
  }
}

static void step(run *r, const char *kernel, bool communicates) {
  const int64_t t = r->now_ns + 10000;
  launch(r, "elementwise_kernel", 7, t, 20);
  if (communicates) launch(r, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20, t + 20000, 30);
  launch(r, kernel, 7, t + 20000, 50);
  launch(r, "fused_adam", 7, t + 70000, 10);
  r->correlation++;
  call(r, PROF_SYNC, "cudaDeviceSynchronize", t + 82000);
  r->now_ns = t + 85000;
}

static int write_process(char **argv, const char *host, int rank, bool communicates, int ways) {
  const int64_t start_ns = 1000000000;
  prof_header header = {.pid = 5000 + rank, .rank = rank, .realtime_ns = start_ns, .clock_ns = start_ns};
  run r = {.now_ns = start_ns};
  dp_error error = DP_ERROR_INIT;
  (void)snprintf(header.host, sizeof header.host, "%s", host);
  (void)snprintf(header.command, sizeof header.command, "made up");
  if (prof_writer_open(&(prof_writer_options){.folder = argv[1]}, &header, &r.writer, &error) != DP_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  prof_writer_device(r.writer, 0, argv[2], 132, 150109945856u);
  for (long i = strtol(argv[4], NULL, 10); i > 0; i--) {
    copies(&r, (int)i, ways);
    step(&r, argv[3], communicates);
  }
  prof_writer_close(r.writer);
  prof_writer_free(r.writer);
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "make_records FOLDER DEVICE KERNEL STEPS [HOST [copies|uploads]]\n");
    return 2;
  }
  const bool two = argc > 5;
  const int ways = argc < 7 ? 0 : strcmp(argv[6], "uploads") == 0 ? 1 : 2;
  const int status = write_process(argv, "first", 0, two, ways);
  return status || !two ? status : write_process(argv, argv[5], 1, true, ways);
}
