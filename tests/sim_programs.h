/* Programs made by hand, apart from plan_compile: for tests of the engine and as a cross-check of the compiler. */
#ifndef DP_TESTS_SIM_PROGRAMS_H
#define DP_TESTS_SIM_PROGRAMS_H

#include "base/array.h"
#include "base/random.h"
#include "plan/program.h"
#include "sim/engine.h"

/* Collects instructions in any order that is possible in time; sorts them into lanes at the end. Runs out of memory by
 * exiting: it serves tests only. */
typedef struct sim_draft {
  DP_ARRAY(plan_lane) lanes;
  struct {
    plan_instruction *items;
    size_t count, capacity;
  } instructions;
  DP_ARRAY(uint32_t) lane_of;
  DP_ARRAY(uint64_t) waits; /* instruction << 32 | waits for */
  DP_ARRAY(uint32_t) groups; /* class of each */
  uint32_t work_count, message_count, collective_count;
} sim_draft;

uint32_t sim_draft_lane(sim_draft *draft, uint32_t worker, plan_lane_kind kind, uint32_t peer, bool backward);
/* Returns the draft's number of the instruction, which sim_draft_wait and `peer` take. */
uint32_t sim_draft_add(sim_draft *draft, uint32_t lane, plan_opcode opcode, uint32_t microbatch, uint32_t class_id,
                       uint32_t peer);
/* A SEND with its RECV; returns the SEND's number, the RECV's is one more. */
uint32_t sim_draft_pair(sim_draft *draft, uint32_t from, uint32_t to, bool backward, uint32_t microbatch, uint32_t class_id);
void sim_draft_wait(sim_draft *draft, uint32_t instruction, uint32_t waits_for);
/* Makes the program (freed by dp_arena_free of its arena) and empties the draft. */
void sim_draft_finish(sim_draft *draft, int worker_count, plan_program *program);

/* 1F1B over `ranks` equal stages: work class 2 r is rank r's forward, 2 r + 1 its backward; message class 2 r goes from
 * rank r to r + 1, 2 r + 1 back. Receives wait for the compute instruction PLAN_PREFETCH before their consumer. */
void sim_program_1f1b(int ranks, int microbatches, plan_program *program);

/* A random program that can always finish: a few workers, compute, pairs and groups with random waits. With `unlike`,
 * each instruction is of a class of its own, so that no two sums of durations are equal but for their rounding: who is
 * first then does not hang on the last bit. */
void sim_program_random(dp_random *random, bool unlike, plan_program *program);

/* Figures for a program. Everything malloc'ed; sim_figures_free releases it. */
typedef struct sim_figures {
  sim_input input;
  double *work_s, *work_issue_s, *capacity;
  sim_transfer *messages, *collectives;
  int *links, *worker_host;
} sim_figures;

typedef struct sim_figures_options {
  int link_count, max_hops;
  bool hosts, shared_hosts, busy, slowdown;
  bool unbounded_caps; /* else some are bounded */
  bool zero_bytes;     /* some messages are empty */
} sim_figures_options;
void sim_figures_random(dp_random *random, const plan_program *program, const sim_figures_options *options,
                        sim_figures *figures);
/* Every message class has a link of its own (capacity, latency, bytes the same for all) and every work class a time. */
void sim_figures_line(const plan_program *program, double forward_s, double backward_s, double bytes, double latency_s,
                      double capacity, sim_figures *figures);
/* A switch: worker w sends over link 2 w and receives over link 2 w + 1, both directions of the pipeline alike. */
void sim_figures_switch(const plan_program *program, double forward_s, double backward_s, double bytes, double latency_s,
                        double capacity, sim_figures *figures);
/* The same ports, and every transfer also crosses the root out of its sender's group of workers and the root into its
 * receiver's: half of what the group's ports carry together. */
void sim_figures_roots(const plan_program *program, double forward_s, double backward_s, double bytes, double latency_s,
                       double capacity, int group, sim_figures *figures);
void sim_figures_free(sim_figures *figures);

#endif
