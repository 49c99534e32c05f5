#include "sim/predictor.h"

#include <math.h>
#include <string.h>

#include "plan/transport.h"
#include "sim/efficiency.h"
#include "sim/fit.h"

/* Alone, what a chunk's tensors for the next chunk take to reach it: for the list scheduler. */
static dp_status cost_next_transfers(const sim_predictor *p, double *transfer_s) {
  const plan_plan *plan = &p->out->plan;
  const graph *model = &p->out->graph;
  for (int c = 0; c + 1 < plan->chunk_count; c++) {
    const plan_chunk *from = &plan->chunks[c], *to = &plan->chunks[c + 1];
    if (from->rank == to->rank) continue;
    double bytes = 0;
    for (size_t t = 0; t < model->tensors.count; t++) {
      const graph_tensor *tensor = &model->tensors.items[t];
      if (tensor->producer_unit < from->first_unit || tensor->producer_unit >= to->first_unit) continue;
      int i = 0; /* the first consumer in the next chunk or beyond */
      while (i < tensor->consumer_unit_count && tensor->consumer_units[i] < to->first_unit) i++;
      if (i < tensor->consumer_unit_count && tensor->consumer_units[i] < to->first_unit + to->unit_count)
        bytes += (double)tensor->bytes;
    }
    plan_route route;
    DP_TRY(plan_transport_route(plan, &p->scenario->cluster, from->rank, to->rank, &route, p->error));
    if (bytes > 0 && route.count > 0)
      transfer_s[c] = route.latency_s + bytes / (route.bandwidth_bytes_per_s * plan_link_factor(route.limiting, bytes));
  }
  return DP_OK;
}

static dp_status set_order(sim_predictor *p, const int *in_flight_limit) {
  plan_plan *plan = &p->out->plan;
  double *forward = SIM_SCRATCH(p, double, plan->chunk_count), *input = SIM_SCRATCH(p, double, plan->chunk_count);
  double *weight = SIM_SCRATCH(p, double, plan->chunk_count), *transfer = SIM_SCRATCH(p, double, plan->chunk_count);
  if (!forward || !input || !weight || !transfer) return dp_fail_memory(p->error);
  if (plan->schedule == PLAN_FOLDED) DP_TRY(cost_next_transfers(p, transfer));
  for (int c = 0; c < plan->chunk_count; c++) {
    const plan_chunk *chunk = &plan->chunks[c];
    const sim_device_kind *kind = &p->kinds[p->rank_kind[chunk->rank]];
    forward[c] = sim_kind_span_s(kind, SIM_FORWARD, chunk->first_unit, chunk->unit_count);
    input[c] = sim_kind_span_s(kind, SIM_BACKWARD_INPUT, chunk->first_unit, chunk->unit_count) +
               sim_prefix_span(kind->recompute_prefix, chunk->first_unit, chunk->unit_count);
    weight[c] = sim_kind_span_s(kind, SIM_BACKWARD_WEIGHT, chunk->first_unit, chunk->unit_count);
  }
  const plan_chunk_costs costs = {forward, input, weight, transfer};
  return plan_order_generate(plan, &costs, in_flight_limit, p->error);
}

/* ---- memory ---- */

static int most_peers(const plan_program *program) {
  int most = 0;
  for (int w = 0; w < (int)program->worker_count; w++) {
    int peers = 0;
    for (uint32_t l = program->worker_lane[w]; l < program->worker_lane[w + 1]; l++)
      if (program->lanes[l].kind != PLAN_LANE_COMPUTE) peers++;
    if (peers > most) most = peers;
  }
  return most;
}

static int64_t worker_limit_bytes(const sim_predictor *p, int worker) {
  return p->scenario->cluster.devices.items[sim_worker_device(&p->out->plan, worker)].memory_bytes;
}

/* Of the workers that are on one machine: the fewest of all machines that have any. counts: zeroed, [node]. */
static int fewest_on_a_machine(const sim_predictor *p, int *counts) {
  const plan_device *devices = p->scenario->cluster.devices.items;
  const int workers = p->out->program.worker_count;
  int fewest = workers;
  for (int w = 0; w < workers; w++) counts[devices[sim_worker_device(&p->out->plan, w)].node]++;
  for (int n = 0; n < p->scenario->cluster.node_count; n++)
    if (counts[n] > 0 && counts[n] < fewest) fewest = counts[n];
  return fewest;
}

/* `roughly`: ranks that cannot fit are not placed. */
static dp_status lay_out_memory(sim_predictor *p, bool roughly) {
  sim_prediction *out = p->out;
  const plan_train *train = &p->scenario->train;
  plan_memory_options options = {.limit_bytes = NULL};
  int *counts = SIM_SCRATCH(p, int, p->scenario->cluster.node_count);
  if (!counts) return dp_fail_memory(p->error);
  if (!p->scenario->synthetic)
    options = sim_cost_memory_options(&p->kinds[0].context, most_peers(&out->program) + (plan_tensor(&out->plan) > 1),
                                      fewest_on_a_machine(p, counts));
  if (train->threads > 0) options.threads = (int)train->threads;
  options.means = out->plan.training && train->ema_decay > 0;
  const int ranks = out->plan.ranks, workers = out->program.worker_count;
  int64_t *least_bytes = SIM_SCRATCH(p, int64_t, ranks); /* of a rank's replicas */
  if (!least_bytes) return dp_fail_memory(p->error);
  for (int w = 0; w < workers; w++)
    if (w < ranks || worker_limit_bytes(p, w) < least_bytes[w % ranks])
      least_bytes[w % ranks] = worker_limit_bytes(p, w);
  if (roughly) options.limit_bytes = least_bytes;
  DP_TRY(plan_memory_layout(&out->program, &out->graph, &options, &out->memory, p->error));
  out->memory_limit_bytes = DP_ARENA_NEW(&out->arena, int64_t, (size_t)workers);
  if (!out->memory_limit_bytes) return dp_fail_memory(p->error);
  out->fits = true;
  double tightest = INFINITY;
  for (int w = 0; w < workers; w++) {
    const int64_t limit = worker_limit_bytes(p, w);
    const double room = (double)(limit - out->memory.workers[w].peak_bytes) / (double)(limit ? limit : 1);
    out->memory_limit_bytes[w] = limit;
    if (room < 0) out->fits = false;
    if (room < tightest) {
      tightest = room;
      out->tightest_worker = w;
    }
  }
  return DP_OK;
}

dp_status sim_predict_place(sim_predictor *p) {
  if (p->out->fits || p->roughly) return DP_OK;
  plan_memory_free(&p->out->memory);
  return lay_out_memory(p, false);
}

/* Lowers the number of microbatches in flight of every rank whose memory is over its limit, by as many as hold the
 * excess. False when nothing can be lowered any more. */
static bool lower_in_flight(const sim_predictor *p, const int64_t *saved_bytes, int *limit) {
  const sim_prediction *out = p->out;
  bool lowered = false;
  for (int r = 0; r < out->plan.ranks; r++) {
    const int64_t each = saved_bytes[r] + 1;
    int64_t excess = 0;
    for (int w = r; w < out->memory.worker_count; w += out->plan.ranks) {
      const int64_t over = out->memory.workers[w].peak_bytes - out->memory_limit_bytes[w];
      if (over > excess) excess = over;
    }
    const int64_t fewer = excess > 0 ? (excess + each - 1) / each : 0;
    const int64_t next = limit[r] - fewer < 1 ? 1 : limit[r] - fewer;
    if (next < limit[r]) lowered = true;
    limit[r] = (int)next;
  }
  return lowered;
}

/* Order, program and memory. The list scheduler of folded placement may keep fewer microbatches in flight where memory
 * is short, `most` at most; closed orders have theirs. */
static dp_status compile_split(sim_predictor *p, int most, bool may_adapt) {
  sim_prediction *out = p->out;
  const bool limited = out->plan.schedule == PLAN_FOLDED && out->plan.training, can_adapt = limited && may_adapt;
  const int ranks = out->plan.ranks;
  int *limit = SIM_SCRATCH(p, int, ranks);
  int64_t *saved_bytes = SIM_SCRATCH(p, int64_t, ranks); /* of one microbatch */
  if (!limit || !saved_bytes) return dp_fail_memory(p->error);
  for (int r = 0; r < ranks; r++) limit[r] = most;
  for (int c = 0; can_adapt && c < out->plan.chunk_count; c++) {
    const plan_chunk *chunk = &out->plan.chunks[c];
    saved_bytes[chunk->rank] +=
        graph_saved_bytes(&out->graph, chunk->first_unit, chunk->unit_count, out->plan.recompute, NULL);
  }
  for (;;) {
    DP_TRY(set_order(p, limited ? limit : NULL));
    const dp_status status = plan_compile(&out->plan, &out->graph, &out->program, p->error);
    if (status == DP_BAD_INPUT) { /* says what, not where */
      char reason[sizeof p->error->text];
      memcpy(reason, p->error->text, sizeof reason);
      const char *key = strncmp(reason, "plan.skip_policy", 16) == 0 ? "skip_policy" : "";
      return dp_fail_at(p->error, plan_scenario_node(p->scenario, "plan", key), "%s", reason);
    }
    DP_TRY(status);
    DP_TRY(plan_program_check(&out->program, p->error));
    DP_TRY(lay_out_memory(p, true));
    if (out->fits || !can_adapt || !lower_in_flight(p, saved_bytes, limit)) return DP_OK;
    plan_memory_free(&out->memory);
    plan_program_free(&out->program);
  }
}

/* What compile_split makes, set aside. */
typedef struct compiled {
  plan_chunk *chunks;
  plan_step **order;
  int *order_count;
  plan_program program;
  plan_memory memory;
  int64_t *memory_limit_bytes;
  bool fits;
  int tightest_worker;
} compiled;

static dp_status set_aside(sim_predictor *p, compiled *c) {
  sim_prediction *out = p->out;
  const size_t count = (size_t)out->plan.chunk_count;
  plan_chunk *chunks = SIM_SCRATCH(p, plan_chunk, count);
  if (!chunks) return dp_fail_memory(p->error);
  memcpy(chunks, out->plan.chunks, count * sizeof *chunks);
  *c = (compiled){chunks,       out->plan.order,     out->plan.order_count,
                  out->program, out->memory,         out->memory_limit_bytes,
                  out->fits,    out->tightest_worker};
  out->program = (plan_program){0};
  out->memory = (plan_memory){0};
  return DP_OK;
}

static void bring_back(sim_predictor *p, compiled *c) {
  sim_prediction *out = p->out;
  plan_memory_free(&out->memory);
  plan_program_free(&out->program);
  memcpy(out->plan.chunks, c->chunks, (size_t)out->plan.chunk_count * sizeof *c->chunks);
  out->plan.order = c->order;
  out->plan.order_count = c->order_count;
  out->program = c->program;
  out->memory = c->memory;
  out->memory_limit_bytes = c->memory_limit_bytes;
  out->fits = c->fits;
  out->tightest_worker = c->tightest_worker;
}

/* Splits of the partitioner for the order at hand. It estimates memory: what the layout of a split takes more or less
 * than that corrects its limits for the next try. The fastest that fits replaces `kept`. `possible`: there may be one.
 */
static dp_status try_splits(sim_predictor *p, sim_fit *fit, const int64_t *limit_bytes, int most, compiled *kept,
                            bool *possible, bool *found) {
  enum { TRIES = 4 };
  sim_prediction *out = p->out;
  const int ranks = out->plan.ranks;
  int64_t *budget_bytes = SIM_SCRATCH(p, int64_t, ranks), *estimate_bytes = SIM_SCRATCH(p, int64_t, ranks);
  int *cuts = SIM_SCRATCH(p, int, out->plan.chunk_count);
  if (!budget_bytes || !estimate_bytes || !cuts) return dp_fail_memory(p->error);
  memcpy(budget_bytes, limit_bytes, (size_t)ranks * sizeof *budget_bytes);
  fit->memory_limit_bytes = budget_bytes;
  double fastest_s = INFINITY;
  *found = false;
  for (int i = 0; i < TRIES; i++) {
    sim_fit_split_result split;
    DP_TRY(sim_fit_split(fit, cuts, estimate_bytes, &split, p->error));
    *possible = split.possible;
    if (!split.possible || (i > 0 && !split.fits) || split.slowest_s >= fastest_s) return DP_OK;
    plan_memory_free(&out->memory);
    plan_program_free(&out->program);
    sim_predict_place_chunks(p, cuts);
    DP_TRY(compile_split(p, most, true));
    for (int r = 0; r < ranks; r++) {
      budget_bytes[r] = INT64_MAX / 4;
      for (int w = r; w < out->memory.worker_count; w += ranks) {
        const int64_t budget = out->memory_limit_bytes[w] - out->memory.workers[w].peak_bytes + estimate_bytes[r];
        if (budget < budget_bytes[r]) budget_bytes[r] = budget;
      }
    }
    if (!out->fits) continue;
    compiled better;
    DP_TRY(set_aside(p, &better));
    plan_memory_free(&kept->memory);
    plan_program_free(&kept->program);
    *kept = better;
    *found = true;
    fastest_s = split.slowest_s;
  }
  return DP_OK;
}

/* The balanced split does not fit: one that does, if there is any; else the balanced one stays. Folded, with as many
 * microbatches in flight as there is a split for, halved from `most`; but first with one, which tells whether there is
 * any. */
static dp_status find_split(sim_predictor *p, int most) {
  sim_prediction *out = p->out;
  const plan_plan *plan = &out->plan;
  const int ranks = plan->ranks, n = (int)out->graph.units.count;
  const bool adapts = plan->schedule == PLAN_FOLDED && plan->training;
  const double **rank_s = SIM_SCRATCH(p, const double *, ranks);
  double **kind_s = SIM_SCRATCH(p, double *, p->kind_count);
  int64_t *fixed_bytes = SIM_SCRATCH(p, int64_t, ranks), *limit_bytes = SIM_SCRATCH(p, int64_t, ranks);
  int *in_flight = SIM_SCRATCH(p, int, ranks);
  if (!rank_s || !kind_s || !fixed_bytes || !limit_bytes || !in_flight) return dp_fail_memory(p->error);
  for (int k = 0; k < p->kind_count; k++) {
    kind_s[k] = SIM_SCRATCH(p, double, n);
    if (!kind_s[k]) return dp_fail_memory(p->error);
    for (int u = 0; u < n; u++) kind_s[k][u] = sim_kind_unit_s(p, &p->kinds[k], u);
  }
  for (int r = 0; r < ranks; r++) {
    rank_s[r] = kind_s[p->rank_kind[r]];
    fixed_bytes[r] = out->memory.workers[r].at_peak_bytes[PLAN_MEMORY_RUNTIME];
    if (!p->scenario->synthetic) fixed_bytes[r] += sim_cost_workspace_bytes(&p->kinds[0].context);
    limit_bytes[r] = out->memory_limit_bytes[r];
    for (int w = r; w < out->memory.worker_count; w += ranks)
      if (out->memory_limit_bytes[w] < limit_bytes[r]) limit_bytes[r] = out->memory_limit_bytes[w];
  }
  sim_fit fit = {p->scenario, plan,        &out->graph, p->prepared->peaks,
                 rank_s,      fixed_bytes, NULL,        p->prepared->implementation->splits_masters};
  compiled kept;
  DP_TRY(set_aside(p, &kept));
  dp_status status = DP_OK;
  bool possible = true, found = false, any = false;
  for (int flying = adapts ? 1 : most; status == DP_OK; flying = flying == 1 ? most : flying / 2) {
    for (int r = 0; r < ranks; r++) in_flight[r] = flying;
    if (adapts) status = set_order(p, in_flight);
    if (status == DP_OK) status = try_splits(p, &fit, limit_bytes, flying, &kept, &possible, &found);
    const bool more = any ? !found && flying > 3 : found && most > 1; /* halved down to 2: one has been tried */
    any = any || found;
    if (!adapts || !possible || !more) break;
  }
  bring_back(p, &kept);
  return status;
}

static int most_in_flight(const plan_plan *plan) {
  return 2 * plan->ranks < plan->microbatches ? 2 * plan->ranks : plan->microbatches;
}

dp_status sim_predict_compile_once(sim_predictor *p) { return compile_split(p, most_in_flight(&p->out->plan), false); }

dp_status sim_predict_compile(sim_predictor *p) {
  const plan_plan *plan = &p->out->plan;
  const int most = most_in_flight(plan);
  DP_TRY(compile_split(p, most, true));
  const bool may_choose = !p->scenario->split_count && plan->ranks > 1 && plan->chunk_count <= SIM_FIT_CHUNKS;
  return p->out->fits || !may_choose ? DP_OK : find_split(p, most);
}
