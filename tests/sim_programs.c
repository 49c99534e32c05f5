#include "tests/sim_programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *must(void *memory) {
  if (memory != NULL) return memory;
  fputs("no memory\n", stderr);
  exit(1);
}
#define MUST_PUSH(array, value) \
  if (!dp_array_push((array), (value))) must(NULL)

uint32_t sim_draft_lane(sim_draft *draft, uint32_t worker, plan_lane_kind kind, uint32_t peer, bool backward) {
  /* The last lanes first: drafts are mostly written worker by worker. */
  for (size_t l = draft->lanes.count; l-- > 0;) {
    const plan_lane *lane = &draft->lanes.items[l];
    if (lane->worker == worker && lane->kind == kind && lane->peer == peer && lane->backward == backward) return (uint32_t)l;
  }
  const plan_lane lane = {.worker = worker, .kind = (uint16_t)kind, .backward = backward, .peer = peer};
  MUST_PUSH(&draft->lanes, lane);
  return (uint32_t)draft->lanes.count - 1;
}

uint32_t sim_draft_add(sim_draft *draft, uint32_t lane, plan_opcode opcode, uint32_t microbatch, uint32_t class_id,
                       uint32_t peer) {
  const plan_instruction instruction = {
      .opcode = (uint8_t)opcode, .microbatch = microbatch, .class_id = class_id, .peer = peer};
  MUST_PUSH(&draft->instructions, instruction);
  MUST_PUSH(&draft->lane_of, lane);
  draft->lanes.items[lane].count++;
  uint32_t *count = opcode == PLAN_SEND || opcode == PLAN_RECV ? &draft->message_count
                    : opcode == PLAN_ALL_REDUCE                ? &draft->collective_count
                                                               : &draft->work_count;
  if (class_id >= *count) *count = class_id + 1;
  return (uint32_t)draft->instructions.count - 1;
}

uint32_t sim_draft_pair(sim_draft *draft, uint32_t from, uint32_t to, bool backward, uint32_t microbatch, uint32_t class_id) {
  const uint32_t send_lane = sim_draft_lane(draft, from, PLAN_LANE_SEND, to, backward);
  const uint32_t receive_lane = sim_draft_lane(draft, to, PLAN_LANE_RECV, from, backward);
  const uint32_t send = (uint32_t)draft->instructions.count;
  sim_draft_add(draft, send_lane, PLAN_SEND, microbatch, class_id, send + 1);
  sim_draft_add(draft, receive_lane, PLAN_RECV, microbatch, class_id, send);
  return send;
}

void sim_draft_wait(sim_draft *draft, uint32_t instruction, uint32_t waits_for) {
  MUST_PUSH(&draft->waits, (uint64_t)instruction << 32 | waits_for);
}

static int lane_compare(const void *a, const void *b) {
  const plan_lane *x = *(plan_lane *const *)a, *y = *(plan_lane *const *)b;
  if (x->worker != y->worker) return x->worker < y->worker ? -1 : 1;
  if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
  return x < y ? -1 : x > y;
}

void sim_draft_finish(sim_draft *draft, int worker_count, plan_program *program) {
  *program = (plan_program){.worker_count = worker_count};
  dp_arena *arena = &program->arena;
  const size_t lanes = draft->lanes.count, count = draft->instructions.count, waits = draft->waits.count;
  plan_lane **sorted = must(calloc(lanes + 1, sizeof *sorted));
  uint32_t *place = must(calloc(lanes + 1, sizeof *place)), *id_of = must(calloc(count + 1, sizeof *id_of));
  for (size_t l = 0; l < lanes; l++) sorted[l] = &draft->lanes.items[l];
  qsort(sorted, lanes, sizeof *sorted, lane_compare);

  program->lanes = must(DP_ARENA_NEW(arena, plan_lane, lanes + 1));
  program->worker_lane = must(DP_ARENA_NEW(arena, uint32_t, (size_t)worker_count + 1));
  uint32_t first = 0;
  for (size_t l = 0; l < lanes; l++) {
    program->lanes[l] = *sorted[l];
    program->lanes[l].first = place[sorted[l] - draft->lanes.items] = first;
    first += sorted[l]->count;
    program->worker_lane[sorted[l]->worker + 1]++;
  }
  for (int w = 0; w < worker_count; w++) program->worker_lane[w + 1] += program->worker_lane[w];
  program->lane_count = (uint32_t)lanes;

  program->instructions = must(DP_ARENA_NEW(arena, plan_instruction, count + 1));
  program->wait_first = must(DP_ARENA_NEW(arena, uint32_t, count + 2));
  program->waits = must(DP_ARENA_NEW(arena, uint32_t, waits + 1));
  program->instruction_count = (uint32_t)count;
  for (size_t i = 0; i < count; i++) id_of[i] = place[draft->lane_of.items[i]]++;
  for (size_t i = 0; i < count; i++) {
    plan_instruction instruction = draft->instructions.items[i];
    if (instruction.opcode == PLAN_SEND || instruction.opcode == PLAN_RECV) instruction.peer = id_of[instruction.peer];
    program->instructions[id_of[i]] = instruction;
  }
  for (size_t w = 0; w < waits; w++) program->wait_first[id_of[draft->waits.items[w] >> 32] + 2]++;
  for (size_t i = 0; i < count; i++) program->wait_first[i + 2] += program->wait_first[i + 1];
  for (size_t w = 0; w < waits; w++) {
    const uint64_t pair = draft->waits.items[w];
    program->waits[program->wait_first[id_of[pair >> 32] + 1]++] = id_of[pair & 0xffffffffu];
  }

  program->work_count = draft->work_count;
  program->message_count = draft->message_count;
  program->collective_count = draft->collective_count;
  program->group_count = (uint32_t)draft->groups.count;
  program->works = must(DP_ARENA_NEW(arena, plan_work, (size_t)program->work_count + 1));
  program->messages = must(DP_ARENA_NEW(arena, plan_message, (size_t)program->message_count + 1));
  program->collectives = must(DP_ARENA_NEW(arena, plan_collective, (size_t)program->collective_count + 1));
  program->group_class = must(DP_ARENA_NEW(arena, uint32_t, draft->groups.count + 1));
  if (draft->groups.count > 0) memcpy(program->group_class, draft->groups.items, draft->groups.count * sizeof(uint32_t));
  for (uint32_t l = 0; l < program->lane_count; l++) {
    const plan_lane *lane = &program->lanes[l];
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      if (lane->kind == PLAN_LANE_COMPUTE) program->works[program->instructions[i].class_id].worker = lane->worker;
      if (lane->kind != PLAN_LANE_SEND) continue;
      plan_message *message = &program->messages[program->instructions[i].class_id];
      message->from_worker = lane->worker;
      message->to_worker = lane->peer;
      message->backward = (uint8_t)lane->backward;
    }
  }
  free(sorted);
  free(place);
  free(id_of);
  dp_array_free(&draft->lanes);
  dp_array_free(&draft->instructions);
  dp_array_free(&draft->lane_of);
  dp_array_free(&draft->waits);
  dp_array_free(&draft->groups);
  *draft = (sim_draft){0};
}

/* Position of rank r's forward and backward of microbatch b in 1F1B: w = min(m, ranks - r - 1) forwards to warm up. */
typedef struct position_1f1b {
  int warm, microbatches;
} position_1f1b;
static int position_of(position_1f1b p, bool backward, int b) {
  if (!backward) return b < p.warm ? b : 2 * b - p.warm;
  return b < p.microbatches - p.warm ? p.warm + 2 * b + 1 : p.microbatches + b;
}

void sim_program_1f1b(int ranks, int microbatches, plan_program *program) {
  sim_draft draft = {0};
  const size_t steps = 2 * (size_t)microbatches;
  uint32_t *compute = must(calloc((size_t)ranks * steps, sizeof *compute));
  for (int r = 0; r < ranks; r++) {
    const position_1f1b p = {ranks - r - 1 < microbatches ? ranks - r - 1 : microbatches, microbatches};
    const uint32_t lane = sim_draft_lane(&draft, (uint32_t)r, PLAN_LANE_COMPUTE, PLAN_NO_PEER, false);
    uint32_t *at = &compute[(size_t)r * steps];
    for (int back = 0; back < 2; back++) {
      for (int b = 0; b < microbatches; b++) at[position_of(p, back, b)] = (uint32_t)(2 * b + back);
    }
    for (size_t k = 0; k < steps; k++) {
      const uint32_t back = at[k] % 2, b = at[k] / 2;
      at[k] = sim_draft_add(&draft, lane, back ? PLAN_BACKWARD : PLAN_FORWARD, b, (uint32_t)(2 * r) + back, PLAN_NO_PEER);
    }
  }
  for (int r = 0; r + 1 < ranks; r++) {
    for (int back = 0; back < 2; back++) {
      const int from = back ? r + 1 : r, to = back ? r : r + 1;
      const position_1f1b p = {ranks - from - 1 < microbatches ? ranks - from - 1 : microbatches, microbatches};
      const position_1f1b q = {ranks - to - 1 < microbatches ? ranks - to - 1 : microbatches, microbatches};
      for (int b = 0; b < microbatches; b++) {
        const uint32_t send =
            sim_draft_pair(&draft, (uint32_t)from, (uint32_t)to, back, (uint32_t)b, (uint32_t)(2 * r + back));
        const int consumer = position_of(q, back, b);
        sim_draft_wait(&draft, send, compute[(size_t)from * steps + (size_t)position_of(p, back, b)]);
        sim_draft_wait(&draft, compute[(size_t)to * steps + (size_t)consumer], send + 1);
        if (consumer >= PLAN_PREFETCH) {
          sim_draft_wait(&draft, send + 1, compute[(size_t)to * steps + (size_t)(consumer - PLAN_PREFETCH)]);
        }
      }
    }
  }
  free(compute);
  sim_draft_finish(&draft, ranks, program);
}

static uint32_t below(dp_random *random, uint32_t bound) { return (uint32_t)dp_random_below(random, bound); }

void sim_program_random(dp_random *random, bool unlike, plan_program *program) {
  sim_draft draft = {0};
  const uint32_t workers = 1 + below(random, 6), count = below(random, 120), classes = 1 + below(random, 8);
  DP_ARRAY(uint32_t) of_worker[6] = {{0}};
  for (uint32_t n = 0; n < count; n++) {
    uint32_t made[6], on[6], made_count = 0;
    const uint32_t kind = below(random, 8), worker = below(random, workers), class_id = unlike ? n : below(random, classes);
    if (kind < 4 || workers == 1) {
      const uint32_t lane = sim_draft_lane(&draft, worker, PLAN_LANE_COMPUTE, PLAN_NO_PEER, false);
      on[made_count] = worker;
      made[made_count++] = sim_draft_add(&draft, lane, PLAN_FORWARD, n, class_id, PLAN_NO_PEER);
    } else if (kind < 7) {
      const uint32_t to = (worker + 1 + below(random, workers - 1)) % workers;
      const uint32_t send = sim_draft_pair(&draft, worker, to, below(random, 2), n, class_id);
      on[made_count] = worker;
      made[made_count++] = send;
      on[made_count] = to;
      made[made_count++] = send + 1;
    } else {
      const uint32_t group = (uint32_t)draft.groups.count;
      MUST_PUSH(&draft.groups, class_id);
      for (uint32_t w = 0; w < workers; w++) {
        if (w != worker && below(random, 2)) continue;
        const uint32_t lane = sim_draft_lane(&draft, w, PLAN_LANE_COLLECTIVE, PLAN_NO_PEER, false);
        on[made_count] = w;
        made[made_count++] = sim_draft_add(&draft, lane, PLAN_ALL_REDUCE, n, class_id, group);
      }
    }
    for (uint32_t i = 0; i < made_count; i++) {
      const size_t earlier = of_worker[on[i]].count;
      for (uint32_t w = below(random, 4); w > 0 && earlier > 0; w--) {
        const size_t back = below(random, earlier < 8 ? (uint32_t)earlier : 8);
        sim_draft_wait(&draft, made[i], of_worker[on[i]].items[earlier - 1 - back]);
      }
    }
    for (uint32_t i = 0; i < made_count; i++) MUST_PUSH(&of_worker[on[i]], made[i]);
  }
  for (size_t w = 0; w < 6; w++) dp_array_free(&of_worker[w]);
  sim_draft_finish(&draft, (int)workers, program);
}

static void figures_make(const plan_program *program, int link_count, int max_hops, sim_figures *figures) {
  const size_t works = program->work_count + 1, messages = program->message_count + 1,
               collectives = program->collective_count + 1, workers = (size_t)program->worker_count + 1;
  *figures = (sim_figures){
      .work_s = must(calloc(works, sizeof(double))),
      .work_issue_s = must(calloc(works, sizeof(double))),
      .capacity = must(calloc((size_t)link_count + 1, sizeof(double))),
      .messages = must(calloc(messages, sizeof(sim_transfer))),
      .collectives = must(calloc(collectives, sizeof(sim_transfer))),
      .links = must(calloc((messages + collectives) * (size_t)max_hops + 1, sizeof(int))),
      .worker_host = must(calloc(workers, sizeof(int))),
  };
  for (size_t c = 0; c < messages; c++) figures->messages[c].links = &figures->links[c * (size_t)max_hops];
  for (size_t c = 0; c < collectives; c++) {
    figures->collectives[c].links = &figures->links[(messages + c) * (size_t)max_hops];
  }
  figures->input = (sim_input){.program = program,
                               .work_s = figures->work_s,
                               .messages = figures->messages,
                               .collectives = figures->collectives,
                               .link_capacity_bytes_per_s = figures->capacity,
                               .link_count = link_count};
}

static double between(dp_random *random, double low, double high) { return low + (high - low) * dp_random_uniform(random); }

static void transfer_random(dp_random *random, const sim_figures_options *options, sim_transfer *t, int *links) {
  t->hops = options->link_count > 0 ? (int)below(random, (uint32_t)options->max_hops + 1) : 0;
  for (int h = 0; h < t->hops; h++) links[h] = (int)below(random, (uint32_t)options->link_count);
  t->bytes = options->zero_bytes && below(random, 4) == 0 ? 0 : between(random, 1, 100);
  t->latency_s = below(random, 3) == 0 ? 0 : between(random, 0, 1);
  t->cap_bytes_per_s = t->hops > 0 && (options->unbounded_caps || below(random, 2)) ? 0 : between(random, 5, 60);
  t->busy_latency_s = t->latency_s;
  t->busy_cap_bytes_per_s = t->cap_bytes_per_s;
  if (options->busy && below(random, 2)) {
    t->busy_latency_s += between(random, 0, 1);
    t->busy_cap_bytes_per_s = between(random, 3, 30);
  }
  t->compute_slowdown = options->slowdown && below(random, 2) ? between(random, 0, 1) : 0;
  t->waiting_slowdown = options->slowdown && below(random, 2) ? between(random, 0, 1) : 0;
}

void sim_figures_random(dp_random *random, const plan_program *program, const sim_figures_options *options,
                        sim_figures *figures) {
  figures_make(program, options->link_count, options->max_hops, figures);
  for (uint32_t i = 0; i < program->work_count; i++) {
    figures->work_s[i] = below(random, 6) == 0 ? 0 : between(random, 0, 3);
    figures->work_issue_s[i] = between(random, 0, 2);
  }
  for (int l = 0; l < options->link_count; l++) figures->capacity[l] = between(random, 10, 50);
  for (uint32_t c = 0; c < program->message_count; c++) {
    transfer_random(random, options, &figures->messages[c], (int *)figures->messages[c].links);
  }
  for (uint32_t c = 0; c < program->collective_count; c++) {
    transfer_random(random, options, &figures->collectives[c], (int *)figures->collectives[c].links);
  }
  for (int w = 0; w < program->worker_count; w++) figures->worker_host[w] = (int)below(random, 3);
  if (options->hosts) figures->input.work_issue_s = figures->work_issue_s;
  if (options->shared_hosts) figures->input.worker_host = figures->worker_host;
}

static void pipeline_figures(const plan_program *program, double forward_s, double backward_s, double bytes,
                             double latency_s, double capacity, sim_figures *figures) {
  for (uint32_t i = 0; i < program->work_count; i++) figures->work_s[i] = i % 2 ? backward_s : forward_s;
  for (int l = 0; l < figures->input.link_count; l++) figures->capacity[l] = capacity;
  for (uint32_t c = 0; c < program->message_count; c++) {
    sim_transfer *t = &figures->messages[c];
    t->bytes = bytes;
    t->latency_s = t->busy_latency_s = latency_s;
  }
}

void sim_figures_line(const plan_program *program, double forward_s, double backward_s, double bytes, double latency_s,
                      double capacity, sim_figures *figures) {
  figures_make(program, (int)program->message_count, 1, figures);
  pipeline_figures(program, forward_s, backward_s, bytes, latency_s, capacity, figures);
  for (uint32_t c = 0; c < program->message_count; c++) {
    figures->messages[c].hops = 1;
    figures->links[c] = (int)c;
  }
}

void sim_figures_switch(const plan_program *program, double forward_s, double backward_s, double bytes, double latency_s,
                        double capacity, sim_figures *figures) {
  figures_make(program, 2 * program->worker_count, 2, figures);
  pipeline_figures(program, forward_s, backward_s, bytes, latency_s, capacity, figures);
  for (uint32_t c = 0; c < program->message_count; c++) {
    figures->messages[c].hops = 2;
    figures->links[2 * c] = 2 * (int)program->messages[c].from_worker;
    figures->links[2 * c + 1] = 2 * (int)program->messages[c].to_worker + 1;
  }
}

void sim_figures_roots(const plan_program *program, double forward_s, double backward_s, double bytes, double latency_s,
                       double capacity, int group, sim_figures *figures) {
  const int ports = 2 * program->worker_count, roots = (program->worker_count + group - 1) / group;
  figures_make(program, ports + 2 * roots, 4, figures);
  pipeline_figures(program, forward_s, backward_s, bytes, latency_s, capacity, figures);
  for (int r = 0; r < 2 * roots; r++) figures->capacity[ports + r] = capacity * group / 2;
  for (uint32_t c = 0; c < program->message_count; c++) {
    const int from = (int)program->messages[c].from_worker, to = (int)program->messages[c].to_worker;
    const int path[] = {2 * from, ports + 2 * (from / group), ports + 2 * (to / group) + 1, 2 * to + 1};
    memcpy(&figures->links[4 * c], path, sizeof path);
    figures->messages[c].hops = 4;
  }
}

void sim_figures_free(sim_figures *figures) {
  free(figures->work_s);
  free(figures->work_issue_s);
  free(figures->capacity);
  free(figures->messages);
  free(figures->collectives);
  free(figures->links);
  free(figures->worker_host);
}
