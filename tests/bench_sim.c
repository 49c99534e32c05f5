/* How fast the engine plays programs: instructions a second on one core, for 1F1B of 8 workers by 512 microbatches and of
 * 4096 by 256, over links of their own and over links that many share and fill; beside that, in the same run, the plain
 * engine of tests/sim_reference.c ("textbook engine") and, where configure found it, SimGrid. All three must find the same
 * step.
 *
 * The rate is instructions / CPU seconds (one thread) of making a timeline and sim_run with all its preparation. Every case
 * runs in a process of its own, so that peak memory is that case's. `bench_sim growth` prints how cost grows instead;
 * `bench_sim play WORKERS MICROBATCHES own|ports|GROUP TIMES` plays one case again and again, for profilers. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "config.h"
#include "graph/model.h"
#include "plan/program.h"
#include "sim/predict.h"
#include "tests/bench.h"
#include "tests/peer_simgrid.h"
#include "tests/sim_programs.h"
#include "tests/sim_reference.h"

enum { MAX_RUNS = 9 };
static const double FORWARD_S = 1.03e-3, BACKWARD_S = 2.1e-3, LATENCY_S = 5e-6;
static const int64_t BOUNDARY_BYTES = 1000000;

/* How transfers travel. */
typedef enum wiring {
  OWN_LINKS,   /* each stage boundary and direction has a link: 25 GB/s, a tenth of a forward for a message */
  PORTS,       /* each worker one port out and one in, shared by both directions of the pipeline: 0.5 GB/s, full */
  ROOTS        /* ports, and groups of workers behind one root out and one root in, of the group's half */
} wiring;

typedef struct bench_case {
  const char *name;
  int ranks, microbatches;
  wiring wiring;
  int group; /* workers behind a root */
  int runs, textbook_runs, simgrid_runs;
  bool whole;  /* report compilation and memory too */
  int repeats; /* of the last run, for `play` */
} bench_case;

typedef struct measurement {
  double compile_s, run_s[MAX_RUNS], textbook_s[MAX_RUNS], simgrid_s[MAX_RUNS], step_s, peak_bytes;
  uint32_t instructions;
  sim_statistics statistics;
} measurement;

static void die(const dp_error *error) {
  fprintf(stderr, "bench_sim: %s\n", error->text);
  exit(1);
}

static dp_status compile(int ranks, int microbatches, plan_plan *plan, graph *model, plan_program *program, dp_error *error) {
  const graph_synthetic_options options = {.units = ranks,
                                           .batch = 1,
                                           .forward_s = FORWARD_S,
                                           .backward_s = BACKWARD_S,
                                           .weight_backward_s = BACKWARD_S / 2,
                                           .boundary_bytes = BOUNDARY_BYTES,
                                           .parameters = 1000,
                                           .precision = GRAPH_BF16};
  DP_TRY(graph_synthetic_build(&options, model, error));
  *plan = (plan_plan){.training = true,
                      .ranks = ranks,
                      .chunks_per_rank = 1,
                      .replicas = 1,
                      .schedule = PLAN_1F1B,
                      .microbatches = microbatches,
                      .microbatch_size = 1,
                      .denoise_steps = 1,
                      .gradient_fp32 = true,
                      .gradient_buckets = 1,
                      .chunk_count = ranks};
  plan->recompute = DP_ARENA_NEW(&plan->arena, uint8_t, ranks);
  plan->chunks = DP_ARENA_NEW(&plan->arena, plan_chunk, ranks);
  plan->devices = DP_ARENA_NEW(&plan->arena, int, ranks);
  if (plan->recompute == NULL || plan->chunks == NULL || plan->devices == NULL) return dp_fail_memory(error);
  for (int r = 0; r < ranks; r++) {
    plan->chunks[r] = (plan_chunk){.first_unit = r, .unit_count = 1, .rank = r};
    plan->devices[r] = r;
  }
  DP_TRY(plan_order_generate(plan, NULL, NULL, error));
  return plan_compile(plan, model, program, error);
}

static void wire(const plan_program *program, const bench_case *c, sim_figures *figures) {
  if (c->wiring == OWN_LINKS) sim_figures_line(program, FORWARD_S, BACKWARD_S, 0, LATENCY_S, 25e9, figures);
  if (c->wiring == PORTS) sim_figures_switch(program, FORWARD_S, BACKWARD_S, 0, LATENCY_S, 0.5e9, figures);
  if (c->wiring == ROOTS) sim_figures_roots(program, FORWARD_S, BACKWARD_S, 0, LATENCY_S, 0.5e9, c->group, figures);
  for (uint32_t i = 0; i < program->work_count; i++) {
    const int opcode = program->works[i].opcode;
    figures->work_s[i] = opcode == PLAN_FORWARD ? FORWARD_S : opcode == PLAN_BACKWARD ? BACKWARD_S : 1e-4;
  }
  for (uint32_t m = 0; m < program->message_count; m++) figures->messages[m].bytes = (double)program->messages[m].bytes;
}

/* The peers must find the same step, else they did not do the same work. */
static void check_step(const bench_case *c, const char *peer, double ours_s, double theirs_s, double tolerance) {
  if (fabs(ours_s - theirs_s) <= tolerance * ours_s) return;
  fprintf(stderr, "bench_sim: %s: a step of %.12g s, %s says %.12g s\n", c->name, ours_s, peer, theirs_s);
  exit(1);
}

#ifdef HAVE_SIMGRID
#define SIMGRID_NAME SIMGRID_VERSION
static bool follows(uint32_t (*orders)[2], uint32_t from, uint32_t to, uint32_t before) {
  for (uint32_t o = from; o < to; o++) {
    if (orders[o][0] == before) return true;
  }
  return false;
}

/* A SEND with its RECV is one task; a lane is a chain. */
static void measure_simgrid(const bench_case *c, const plan_program *program, const sim_figures *figures, measurement *found) {
  const uint32_t count = program->instruction_count;
  uint32_t *task = calloc(count, sizeof *task), tasks = 0, orders = 0;
  peer_task *made = calloc(count, sizeof *made);
  uint32_t(*order)[2] = calloc((size_t)count + program->wait_first[count], sizeof *order);
  peer_route *routes = calloc(program->message_count + 1, sizeof *routes);
  double *latency_s = calloc((size_t)figures->input.link_count + 1, sizeof *latency_s);
  if (task == NULL || made == NULL || order == NULL || routes == NULL || latency_s == NULL) exit(1);
  for (uint32_t l = 0; l < program->lane_count; l++) {
    const plan_lane *lane = &program->lanes[l];
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      const uint32_t class_id = program->instructions[i].class_id;
      if (lane->kind == PLAN_LANE_RECV) continue;
      task[i] = tasks;
      if (lane->kind == PLAN_LANE_SEND) {
        task[program->instructions[i].peer] = tasks;
        made[tasks++] = (peer_task){lane->worker, lane->peer, 0, (uint64_t)figures->messages[class_id].bytes};
      } else {
        made[tasks++] = (peer_task){lane->worker, lane->worker, figures->work_s[class_id], 0};
      }
    }
  }
  for (uint32_t l = 0; l < program->lane_count; l++) {
    const plan_lane *lane = &program->lanes[l];
    for (uint32_t i = lane->first; i < lane->first + lane->count && lane->kind != PLAN_LANE_RECV; i++) {
      const uint32_t from = orders;
      const uint32_t ends[2] = {i, lane->kind == PLAN_LANE_SEND ? program->instructions[i].peer : i};
      if (i > lane->first) {
        order[orders][0] = task[i - 1];
        order[orders++][1] = task[i];
      }
      for (int e = 0; e < (ends[1] == i ? 1 : 2); e++) {
        for (uint32_t w = program->wait_first[ends[e]]; w < program->wait_first[ends[e] + 1]; w++) {
          if (follows(order, from, orders, task[program->waits[w]])) continue;
          order[orders][0] = task[program->waits[w]];
          order[orders++][1] = task[i];
        }
      }
    }
  }
  for (uint32_t m = 0; m < program->message_count; m++) {
    routes[m] = (peer_route){program->messages[m].from_worker, program->messages[m].to_worker, figures->messages[m].links,
                             figures->messages[m].hops};
    latency_s[figures->messages[m].links[0]] = LATENCY_S; /* of the whole route */
  }
  const peer_input input = {.host_count = (uint32_t)program->worker_count,
                            .task_count = tasks,
                            .order_count = orders,
                            .route_count = program->message_count,
                            .link_count = figures->input.link_count,
                            .tasks = made,
                            .orders = (const uint32_t(*)[2])order,
                            .routes = routes,
                            .capacity_bytes_per_s = figures->capacity,
                            .link_latency_s = latency_s};
  for (int run = 0; run < c->simgrid_runs; run++) {
    double step_s, build_s;
    uint64_t peak_bytes;
    if (peer_simgrid_run(&input, &step_s, &build_s, &found->simgrid_s[run], &peak_bytes) != 0) exit(1);
    /* Its latency comes first, ours last, and it takes what is 1e-5 apart for equal. Where flows of many lanes share
     * links, such differences grow from microbatch to microbatch: for 32 of them and no latency, 9 digits are the same. */
    check_step(c, "SimGrid", found->step_s, step_s, c->wiring == OWN_LINKS ? 1e-6 : c->wiring == PORTS ? 1e-3 : 2e-2);
  }
  free(task);
  free(made);
  free(order);
  free(routes);
  free(latency_s);
}
#else
#define SIMGRID_NAME ""
static void measure_simgrid(const bench_case *c, const plan_program *program, const sim_figures *figures, measurement *found) {
  (void)c, (void)program, (void)figures, (void)found;
}
#endif

static void measure(const bench_case *c, measurement *found) {
  dp_error error = DP_ERROR_INIT;
  graph model = {.class_name = NULL};
  plan_plan plan;
  plan_program program = {.plan = NULL};
  const double begun_s = bench_cpu_s();
  if (compile(c->ranks, c->microbatches, &plan, &model, &program, &error) != DP_OK) die(&error);
  found->compile_s = bench_cpu_s() - begun_s;
  found->instructions = program.instruction_count;
  sim_figures figures;
  wire(&program, c, &figures);
  for (int play = 0; play < c->runs + c->repeats; play++) {
    const int run = play < c->runs ? play : c->runs - 1;
    plan_timeline timeline;
    const double started_s = bench_cpu_s();
    if (plan_timeline_init(&program, &timeline, &error) != DP_OK) die(&error);
    if (sim_run(&figures.input, &timeline, &found->statistics, &error) != DP_OK) die(&error);
    found->run_s[run] = bench_cpu_s() - started_s;
    found->step_s = timeline.step_s;
    plan_timeline_free(&timeline);
  }
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  found->peak_bytes = 1024.0 * (double)usage.ru_maxrss; /* before the peers */
  for (int run = 0; run < c->textbook_runs; run++) {
    plan_timeline timeline;
    if (plan_timeline_init(&program, &timeline, &error) != DP_OK) die(&error);
    const double started_s = bench_cpu_s();
    if (reference_run(&figures.input, &timeline, NULL, &error) != DP_OK) die(&error);
    found->textbook_s[run] = bench_cpu_s() - started_s;
    check_step(c, "textbook engine", found->step_s, timeline.step_s, 1e-9);
    plan_timeline_free(&timeline);
  }
  if (c->simgrid_runs > 0) measure_simgrid(c, &program, &figures, found);
  sim_figures_free(&figures);
  plan_program_free(&program);
  plan_plan_free(&plan);
  graph_free(&model);
}

/* In a process of its own. */
static void measure_apart(const bench_case *c, measurement *found) {
  int ends[2];
  if (pipe(ends) != 0) exit(1);
  (void)fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    measurement mine = {.compile_s = 0};
    measure(c, &mine);
    _exit(write(ends[1], &mine, sizeof mine) == (ssize_t)sizeof mine ? 0 : 1);
  }
  close(ends[1]);
  const bool got = child > 0 && read(ends[0], found, sizeof *found) == (ssize_t)sizeof *found;
  close(ends[0]);
  if (child > 0) waitpid(child, NULL, 0);
  if (!got) {
    fprintf(stderr, "bench_sim: %s failed\n", c->name);
    exit(1);
  }
}

static void report(const bench_case *c, measurement *m) {
  char name[160];
  const double run_s = bench_median(m->run_s, c->runs), per_s = m->instructions / run_s;
  (void)snprintf(name, sizeof name, "simulate %s", c->name);
  if (c->textbook_runs == 0 && c->simgrid_runs == 0) bench_report(name, per_s, "instructions/s", NULL, 0, c->runs);
  if (c->textbook_runs > 0) {
    const double peer_per_s = m->instructions / bench_median(m->textbook_s, c->textbook_runs);
    bench_report(name, per_s, "instructions/s", "textbook engine", per_s / peer_per_s, c->runs);
  }
  if (c->simgrid_runs > 0 && m->simgrid_s[0] > 0) {
    const double peer_per_s = m->instructions / bench_median(m->simgrid_s, c->simgrid_runs);
    bench_report(name, per_s, "instructions/s", "SimGrid " SIMGRID_NAME, per_s / peer_per_s, c->runs);
  }
  (void)snprintf(name, sizeof name, "events of %s", c->name);
  bench_report(name, (double)m->statistics.events, "events", NULL, 0, 1);
  if (!c->whole) return;
  (void)snprintf(name, sizeof name, "instructions of %s", c->name);
  bench_report(name, m->instructions, "instructions", NULL, 0, 1);
  (void)snprintf(name, sizeof name, "compile %s", c->name);
  bench_report(name, m->compile_s, "s", NULL, 0, 1);
  (void)snprintf(name, sizeof name, "compile and simulate %s", c->name);
  bench_report(name, m->compile_s + run_s, "s", NULL, 0, c->runs);
  (void)snprintf(name, sizeof name, "peak memory of %s", c->name);
  bench_report(name, m->peak_bytes, "bytes", NULL, 0, 1);
}

static const bench_case CASES[] = {
    {"8 workers x 512 microbatches, own links", 8, 512, OWN_LINKS, 0, 9, 5, 3, false, 0},
    {"8 workers x 512 microbatches, full ports", 8, 512, PORTS, 0, 9, 5, 3, false, 0},
    {"8 workers x 512 microbatches, full roots of 4", 8, 512, ROOTS, 4, 9, 5, 3, false, 0},
    {"64 workers x 64 microbatches, full roots of 4", 64, 64, ROOTS, 4, 9, 3, 3, false, 0},
    {"4096 workers x 256 microbatches, own links", 4096, 256, OWN_LINKS, 0, 3, 0, 0, true, 0},
    {"4096 workers x 256 microbatches, full ports", 4096, 256, PORTS, 0, 3, 0, 0, false, 0},
    {"4096 workers x 256 microbatches, full roots of 4", 4096, 256, ROOTS, 4, 3, 0, 0, false, 0},
};

/* One trial: a whole prediction of a scenario, from its plan's figures to metrics and memory. */
static void report_trial(const char *file, const char *what) {
  enum { RUNS = 9 };
  dp_error error = DP_ERROR_INIT;
  char path[1024], name[160];
  (void)snprintf(path, sizeof path, "%s/%s", dp_data_folder(), file);
  plan_scenario scenario;
  sim_efficiency *efficiency = NULL;
  if (plan_scenario_read(path, NULL, 0, &scenario, &error) != DP_OK) die(&error);
  if (sim_efficiency_read(NULL, &efficiency, &error) != DP_OK) die(&error);
  double whole_s[RUNS];
  uint32_t instructions = 0;
  for (int run = 0; run < RUNS; run++) {
    sim_prediction prediction;
    const double started_s = bench_cpu_s();
    if (sim_predict(&scenario, efficiency, &prediction, &error) != DP_OK) die(&error);
    whole_s[run] = bench_cpu_s() - started_s;
    instructions = prediction.program.instruction_count;
    sim_prediction_free(&prediction);
  }
  (void)snprintf(name, sizeof name, "a trial: predict %s (%u instructions)", what, instructions);
  bench_report(name, bench_median(whole_s, RUNS), "s", NULL, 0, RUNS);
  sim_efficiency_free(efficiency);
  plan_scenario_free(&scenario);
}

static void growth_row(bench_case c, const char *what) {
  measurement m;
  c.name = what;
  c.runs = c.ranks * c.microbatches > 1 << 18 ? 3 : 7;
  measure_apart(&c, &m);
  const double run_s = bench_median(m.run_s, c.runs), flows = (double)m.statistics.shared_flows;
  printf("| %s | %d | %d | %u | %.1f | %.2f | %.2f | %.1f |\n", what, c.ranks, c.microbatches, m.instructions,
         m.instructions / run_s * 1e-6, (double)m.statistics.events / m.instructions,
         flows > 0 ? (double)m.statistics.solved_flows / flows : 0, run_s / (double)m.statistics.events * 1e9);
  (void)fflush(stdout);
}

static void growth(void) {
  puts("| links | workers | microbatches | instructions | M instructions/s | events an instruction | flows solved a transfer | ns an event |");
  puts("|---|---|---|---|---|---|---|---|");
  for (int p = 8; p <= 4096; p *= 8) growth_row((bench_case){.ranks = p, .microbatches = 256, .wiring = OWN_LINKS}, "own");
  for (int m = 32; m <= 8192; m *= 16) growth_row((bench_case){.ranks = 8, .microbatches = m, .wiring = OWN_LINKS}, "own");
  for (int p = 8; p <= 4096; p *= 8) growth_row((bench_case){.ranks = p, .microbatches = 256, .wiring = PORTS}, "ports");
  for (int g = 2; g <= 512; g *= 4) {
    char what[32];
    (void)snprintf(what, sizeof what, "roots of %d", g);
    growth_row((bench_case){.ranks = 512, .microbatches = 64, .wiring = ROOTS, .group = g}, what);
  }
}

static int play(char **argv) {
  bench_case c = {.name = "play", .ranks = (int)strtol(argv[0], NULL, 10), .microbatches = (int)strtol(argv[1], NULL, 10)};
  c.wiring = strcmp(argv[2], "own") == 0 ? OWN_LINKS : strcmp(argv[2], "ports") == 0 ? PORTS : ROOTS;
  c.group = (int)strtol(argv[2], NULL, 10);
  c.runs = 1;
  if (c.ranks < 1 || c.microbatches < 1 || (c.wiring == ROOTS && c.group < 1)) return 2;
  measurement m = {.compile_s = 0};
  c.repeats = (int)strtol(argv[3], NULL, 10);
  measure(&c, &m);
  printf("compiled in %.4f s, then %.4g instructions/s; the engine took %.0f bytes\n", m.compile_s, m.instructions / m.run_s[0],
         (double)m.statistics.memory_bytes);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 6 && strcmp(argv[1], "play") == 0) return play(&argv[2]);
  if (argc == 2 && strcmp(argv[1], "growth") == 0) {
    growth();
    return 0;
  }
#ifndef HAVE_SIMGRID
  fputs("bench_sim: SimGrid was not found by configure: no figures beside it\n", stderr);
#endif
  for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
    measurement m;
    measure_apart(&CASES[i], &m);
    report(&CASES[i], &m);
  }
  report_trial("sdxl-8xa100-sxm.toml", "SDXL on 8 A100");
  return 0;
}
