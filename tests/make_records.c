/* Records of a program that never was, for the commands that read them:
 *
 *   make_records FOLDER DEVICE KERNEL STEPS [HOST]
 *
 * A step: three launches ahead of a kernel of 20 us, of KERNEL of 50 us and of the optimizer of 10 us, for which the host
 * then waits. With HOST there is a second process of that host, and a collective of 30 us beside KERNEL in both. */
#include <stdio.h>
#include <stdlib.h>

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

static int write_process(char **argv, const char *host, int rank, bool communicates) {
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
  for (long i = strtol(argv[4], NULL, 10); i > 0; i--) step(&r, argv[3], communicates);
  prof_writer_close(r.writer);
  prof_writer_free(r.writer);
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "make_records FOLDER DEVICE KERNEL STEPS [HOST]\n");
    return 2;
  }
  const bool two = argc > 5;
  const int status = write_process(argv, "first", 0, two);
  return status || !two ? status : write_process(argv, argv[5], 1, true);
}
