#include "tests/plan_reference.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

void reference_plan_shape(const reference_plan *wanted, const graph *g, plan_plan *plan) {
  const int v = wanted->chunks_per_rank ? wanted->chunks_per_rank : 1;
  *plan = (plan_plan){.training = !wanted->sampling,
                      .ranks = wanted->ranks,
                      .chunks_per_rank = v,
                      .replicas = wanted->replicas ? wanted->replicas : 1,
                      .tensor = wanted->tensor,
                      .schedule = wanted->schedule,
                      .microbatches = wanted->microbatches,
                      .microbatch_size = 1,
                      .denoise_steps = wanted->denoise_steps ? wanted->denoise_steps : 1,
                      .skip_policy = wanted->skip_policy,
                      .k = wanted->k,
                      .optimizer = PLAN_ADAMW,
                      .gradient_fp32 = true,
                      .global_norm = wanted->global_norm && !wanted->sampling,
                      .gradient_buckets = wanted->gradient_buckets ? wanted->gradient_buckets : 1,
                      .chunk_count = wanted->ranks * v};
  const int units = (int)g->units.count;
  plan->recompute = DP_ARENA_NEW(&plan->arena, uint8_t, (size_t)units);
  plan->chunks = DP_ARENA_NEW(&plan->arena, plan_chunk, (size_t)plan->chunk_count);
  plan->devices = DP_ARENA_NEW(&plan->arena, int, (size_t)plan_worker_count(plan));
  ck_assert(plan->recompute && plan->chunks && plan->devices);
  for (int w = 0; w < plan_worker_count(plan); w++) plan->devices[w] = w;
  for (int c = 0; c < plan->chunk_count; c++) {
    const int first = wanted->cuts ? c ? wanted->cuts[c - 1] : 0 : units * c / plan->chunk_count;
    const int end = !wanted->cuts               ? units * (c + 1) / plan->chunk_count
                    : c + 1 < plan->chunk_count ? wanted->cuts[c]
                                                : units;
    plan->chunks[c] = (plan_chunk){first, end - first, plan_schedule_chunk_rank(plan->schedule, plan->ranks, c)};
  }
}

void reference_plan_make(const reference_plan *wanted, const graph *g, plan_plan *plan) {
  reference_plan_shape(wanted, g, plan);
  dp_error error = DP_ERROR_INIT;
  const dp_status status = plan_order_generate(plan, NULL, NULL, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
}

void reference_chain(int units, double forward_s, double backward_s, double weight_s, int64_t boundary_bytes,
                     graph *g) {
  *g = (graph){0};
  const graph_synthetic_options options = {.units = units,
                                           .batch = 1,
                                           .forward_s = forward_s,
                                           .backward_s = backward_s,
                                           .weight_backward_s = weight_s < 0 ? backward_s / 2 : weight_s,
                                           .boundary_bytes = boundary_bytes,
                                           .parameters = 1000,
                                           .activation_bytes = 4096,
                                           .precision = GRAPH_BF16};
  dp_error error = DP_ERROR_INIT;
  const dp_status status = graph_synthetic_build(&options, g, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
}

void reference_skip_graph(int units, int skips, dp_random *random, graph *g) {
  *g = (graph){0};
  const graph_model_options options = {.batch = 2, .height = 8, .width = 8, .frames = 1, .precision = GRAPH_BF16};
  graph_builder *b = graph_build_begin(g, &options, NULL);
  ck_assert_ptr_nonnull(b);
  const graph_attributes convolution = {.in_channels = 8,
                                        .out_channels = 8,
                                        .kernel = {1, 3, 3},
                                        .stride = {1, 1, 1},
                                        .padding = {0, 1, 1},
                                        .bias = true};
  int x = graph_build_input(b, "latent", 4, (const int64_t[]){2, 8, 8, 8});
  graph_build_latent(b, x);
  int *made = malloc((size_t)units * sizeof *made); /* output of each unit */
  ck_assert_ptr_nonnull(made);
  for (int u = 0; u < units; u++) {
    graph_build_unit(b, graph_build_name(b, "units.%d", u));
    x = graph_build_op(b, GRAPH_CONV2D, graph_build_name(b, "units.%d.conv", u), &convolution, &x, 1);
    for (int s = 0; u >= 2 && s < skips; s++)
      if (dp_random_below(random, (uint64_t)units) < (uint64_t)skips) { /* not too many */
        const int inputs[] = {x, made[dp_random_below(random, (uint64_t)u - 1)]};
        x = graph_build_op(b, GRAPH_ADD, graph_build_name(b, "units.%d.add%d", u, s), &(graph_attributes){0}, inputs,
                           2);
      }
    made[u] = x;
  }
  free(made);
  graph_build_output(b, x);
  dp_error error = DP_ERROR_INIT;
  const dp_status status = graph_build_finish(b, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
}

static double compute_s(const graph *g, const plan_work *work) {
  double sum_s = 0;
  if (work->opcode == PLAN_OPTIMIZER_STEP) return 0;
  for (uint32_t u = work->first_unit; u < work->first_unit + work->unit_count; u++) {
    const graph_fixed_cost *cost = &g->units.items[u].fixed;
    if (!cost->present)
      sum_s += 1;
    else if (work->opcode == PLAN_FORWARD)
      sum_s += cost->forward_s;
    else
      sum_s += (work->opcode != PLAN_BACKWARD_WEIGHT ? cost->backward_input_s : 0) +
               (work->opcode != PLAN_BACKWARD_INPUT ? cost->backward_weight_s : 0);
  }
  return sum_s;
}

/* Ready at: the latest of its lane's last end and its waits; false when one of them is not done. */
static bool ready_at(const plan_program *p, const bool *done, const double *end_s, uint32_t id, double *at_s) {
  const plan_lane *lane = &p->lanes[plan_instruction_lane(p, id)];
  *at_s = 0;
  if (id > lane->first) {
    if (!done[id - 1]) return false;
    *at_s = end_s[id - 1];
  }
  for (uint32_t w = p->wait_first[id]; w < p->wait_first[id + 1]; w++) {
    if (!done[p->waits[w]]) return false;
    if (end_s[p->waits[w]] > *at_s) *at_s = end_s[p->waits[w]];
  }
  return true;
}

static double stretched(double length_s, dp_random *jitter) {
  return jitter ? length_s * 4 * dp_random_uniform(jitter) : length_s;
}

void reference_play(const plan_program *p, const graph *g, double latency_s, double bytes_per_s, dp_random *jitter,
                    plan_timeline *timeline) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(plan_timeline_init(p, timeline, &error), DP_OK);
  bool *done = calloc(p->instruction_count + 1, sizeof *done);
  uint32_t *head = calloc(p->lane_count + 1, sizeof *head);
  ck_assert(done && head);
  uint32_t left = p->instruction_count;
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t l = 0; l < p->lane_count; l++)
      while (head[l] < p->lanes[l].count) {
        const uint32_t id = p->lanes[l].first + head[l];
        const plan_instruction *i = &p->instructions[id];
        if (done[id]) { /* as somebody's peer */
          head[l]++;
          continue;
        }
        double at_s, other_s, length_s = 0;
        if (!ready_at(p, done, timeline->end_s, id, &at_s)) break;
        if (i->opcode == PLAN_SEND || i->opcode == PLAN_RECV) {
          if (!ready_at(p, done, timeline->end_s, i->peer, &other_s)) break;
          if (other_s > at_s) at_s = other_s;
          const double bytes = (double)p->messages[i->class_id].bytes;
          if (bytes > 0 && bytes_per_s > 0) length_s = stretched(latency_s + bytes / bytes_per_s, jitter);
          timeline->start_s[i->peer] = at_s;
          timeline->end_s[i->peer] = at_s + length_s;
          done[i->peer] = true;
          left--;
        } else if (i->opcode == PLAN_ALL_REDUCE) {
          bool all = true;
          uint32_t members = 0;
          for (uint32_t o = 0; all && o < p->instruction_count; o++)
            if (p->instructions[o].opcode == PLAN_ALL_REDUCE && p->instructions[o].peer == i->peer) {
              all = ready_at(p, done, timeline->end_s, o, &other_s);
              if (other_s > at_s) at_s = other_s;
              members++;
            }
          if (!all) break;
          const plan_collective *collective = &p->collectives[i->class_id];
          ck_assert_uint_eq(members, collective->member_count);
          if (collective->bytes > 0 && bytes_per_s > 0)
            length_s = stretched(latency_s + 2 * (double)collective->bytes / bytes_per_s, jitter);
          for (uint32_t o = 0; o < p->instruction_count; o++)
            if (p->instructions[o].opcode == PLAN_ALL_REDUCE && p->instructions[o].peer == i->peer) {
              timeline->start_s[o] = at_s;
              timeline->end_s[o] = at_s + length_s;
              left -= !done[o];
              done[o] = true;
            }
          left++; /* this one is counted below */
        } else {
          length_s = stretched(compute_s(g, &p->works[i->class_id]), jitter);
        }
        timeline->start_s[id] = at_s;
        timeline->end_s[id] = at_s + length_s;
        if (at_s + length_s > timeline->step_s) timeline->step_s = at_s + length_s;
        done[id] = true;
        left--;
        head[l]++;
        moved = true;
      }
  }
  for (uint32_t l = 0; left && l < p->lane_count; l++)
    if (head[l] < p->lanes[l].count) {
      char shown[128];
      ck_abort_msg("stopped at %s", plan_instruction_show(p, p->lanes[l].first + head[l], shown));
    }
  free(done);
  free(head);
}

int reference_in_flight(const plan_plan *plan, int rank, plan_opcode until) {
  int now = 0, most = 0;
  for (int i = 0; i < plan->order_count[rank]; i++) {
    const uint8_t opcode = plan->order[rank][i].opcode;
    now += (opcode == PLAN_FORWARD) - (opcode == until);
    if (now > most) most = now;
  }
  return most;
}

reference_plan reference_random_plan(dp_random *random, int units, int *cuts) {
  static const int chunks[PLAN_SCHEDULE_COUNT] = {0, 1, 0, 2, 1, 2};
  reference_plan wanted = {.schedule = (plan_schedule)dp_random_below(random, PLAN_SCHEDULE_COUNT),
                           .skip_policy = (plan_skip_policy)dp_random_below(random, PLAN_SKIP_LOCAL),
                           .k = 16,
                           .microbatches = 1 + (int)dp_random_below(random, 12),
                           .sampling = dp_random_below(random, 3) == 0};
  const int v = chunks[wanted.schedule] ? chunks[wanted.schedule] : 1 + (int)dp_random_below(random, 3);
  wanted.chunks_per_rank = v <= units ? v : 1;
  wanted.ranks = 1 + (int)dp_random_below(random, (uint64_t)(units / v < 8 ? units / v : 8));
  wanted.replicas = 1 + (int)dp_random_below(random, 3);
  wanted.gradient_buckets = 1 + (int)dp_random_below(random, 4);
  wanted.denoise_steps = wanted.sampling ? 1 + (int)dp_random_below(random, 3) : 1;
  /* choose chunk_count - 1 of units - 1 places */
  int left = wanted.ranks * wanted.chunks_per_rank - 1, at = 0;
  for (int unit = 1; unit < units && left > 0; unit++)
    if (dp_random_below(random, (uint64_t)(units - unit)) < (uint64_t)left) {
      cuts[at++] = unit;
      left--;
    }
  wanted.cuts = cuts;
  wanted.tensor = (int)dp_random_below(random, 4); /* 0 and 1: none */
  wanted.global_norm = dp_random_below(random, 2) == 0;
  return wanted;
}
