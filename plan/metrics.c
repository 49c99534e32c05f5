#include <stdlib.h>

#include "plan/timeline.h"

/* Walks the spans of a worker's transfer lanes in order of their starts, and the part of them in which its compute lane
 * is idle. Lanes are sorted already: take the earliest head of all. */
typedef struct walker {
  const plan_timeline *timeline;
  uint32_t *head;   /* [lane of the worker] */
  uint32_t compute; /* next span of the compute lane that may matter */
} walker;

/* Time of [from_s, to_s] in which the compute lane works. Intervals ascend from call to call. */
static double overlap_s(walker *w, const plan_lane *compute, double from_s, double to_s) {
  const double *start_s = w->timeline->start_s, *end_s = w->timeline->end_s;
  const uint32_t end = compute->first + compute->count;
  double sum_s = 0;
  while (w->compute < end && end_s[w->compute] <= from_s) w->compute++;
  for (uint32_t i = w->compute; i < end && start_s[i] < to_s; i++) {
    const double a = start_s[i] > from_s ? start_s[i] : from_s, b = end_s[i] < to_s ? end_s[i] : to_s;
    if (b > a) sum_s += b - a;
  }
  return sum_s;
}

static void communication(walker *w, uint32_t first_lane, uint32_t end_lane, plan_worker_metrics *metrics) {
  const plan_program *program = w->timeline->program;
  const plan_lane *compute = &program->lanes[first_lane];
  const double *start_s = w->timeline->start_s, *end_s = w->timeline->end_s;
  for (uint32_t l = first_lane + 1; l < end_lane; l++) w->head[l - first_lane] = program->lanes[l].first;
  w->compute = compute->first;
  double from_s = 0, to_s = -1; /* the union's current interval; none yet */
  for (;;) {
    uint32_t best = 0;
    double best_s = 0;
    for (uint32_t l = first_lane + 1; l < end_lane; l++) {
      const plan_lane *lane = &program->lanes[l];
      uint32_t *head = &w->head[l - first_lane];
      while (*head < lane->first + lane->count && end_s[*head] <= start_s[*head]) ++*head; /* took no time */
      if (*head == lane->first + lane->count) continue;
      if (!best || start_s[*head] < best_s) {
        best = l;
        best_s = start_s[*head];
      }
    }
    const double best_end_s = best ? end_s[w->head[best - first_lane]++] : 0;
    if (best && to_s >= from_s && best_s <= to_s) {
      if (best_end_s > to_s) to_s = best_end_s;
      continue;
    }
    if (to_s >= from_s) {
      metrics->comm_s += to_s - from_s;
      metrics->exposed_comm_s += to_s - from_s - overlap_s(w, compute, from_s, to_s);
    }
    if (!best) return;
    from_s = best_s;
    to_s = best_end_s;
  }
}

static void compute_times(const plan_timeline *timeline, const plan_lane *lane, plan_worker_metrics *metrics) {
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
    double length_s = timeline->end_s[i] - timeline->start_s[i];
    const plan_instruction *instruction = &timeline->program->instructions[i];
    const uint8_t opcode = instruction->opcode;
    if (timeline->work_tensor_s) {
      const double tensor_s = timeline->work_tensor_s[instruction->class_id];
      metrics->tensor_s += tensor_s < length_s ? tensor_s : length_s;
      length_s -= tensor_s < length_s ? tensor_s : length_s;
    }
    metrics->compute_s += length_s;
    if (opcode == PLAN_FORWARD)
      metrics->forward_s += length_s;
    else if (opcode == PLAN_OPTIMIZER_STEP)
      metrics->optimizer_s += length_s;
    else
      metrics->backward_s += length_s;
  }
}

/* What a worker sends by kind. A ring all-reduce of n bytes between k workers sends 2 (k - 1) / k * n from each. */
static void traffic(const plan_program *program, const plan_lane *lane, plan_worker_metrics *worker,
                    plan_metrics *metrics) {
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
    const uint32_t class_id = program->instructions[i].class_id;
    if (lane->kind == PLAN_LANE_COMPUTE) {
      const int64_t bytes = program->works[class_id].tensor_bytes;
      worker->sent_bytes += bytes;
      worker->received_bytes += bytes;
      metrics->comm_bytes_by_kind[PLAN_TRAFFIC_TENSOR] += bytes;
      continue;
    }
    if (lane->kind == PLAN_LANE_COLLECTIVE) {
      const plan_collective *collective = &program->collectives[class_id];
      if (collective->norm) continue;
      const int64_t n = collective->member_count,
                    bytes = collective->bytes / n * 2 * (n - 1) + collective->bytes % n * 2 * (n - 1) / n;
      worker->sent_bytes += bytes;
      worker->received_bytes += bytes;
      metrics->comm_bytes_by_kind[PLAN_TRAFFIC_GRADIENT] += bytes;
      continue;
    }
    const plan_message *message = &program->messages[class_id];
    if (lane->kind == PLAN_LANE_RECV) {
      worker->received_bytes += message->bytes;
      continue;
    }
    worker->sent_bytes += message->bytes;
    for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) metrics->comm_bytes_by_kind[k] += message->kind_bytes[k];
  }
}

dp_status plan_metrics_of(const plan_timeline *timeline, plan_metrics *metrics, dp_error *error) {
  const plan_program *program = timeline->program;
  const plan_plan *plan = program->plan;
  uint32_t most_lanes = 1;
  for (int w = 0; w < program->worker_count; w++) {
    const uint32_t lanes = program->worker_lane[w + 1] - program->worker_lane[w];
    if (lanes > most_lanes) most_lanes = lanes;
  }
  *metrics = (plan_metrics){.worker_count = program->worker_count,
                            .workers = calloc((size_t)program->worker_count, sizeof(plan_worker_metrics))};
  walker walk = {.timeline = timeline, .head = malloc(most_lanes * sizeof(uint32_t))};
  if (!metrics->workers || !walk.head) {
    free(walk.head);
    plan_metrics_free(metrics);
    return dp_fail_memory(error);
  }
  metrics->step_s = timeline->step_s;
  double busy_s = 0;
  for (int w = 0; w < program->worker_count; w++) {
    plan_worker_metrics *worker = &metrics->workers[w];
    const uint32_t first = program->worker_lane[w], end = program->worker_lane[w + 1];
    compute_times(timeline, &program->lanes[first], worker);
    for (uint32_t l = first; l < end; l++) traffic(program, &program->lanes[l], worker, metrics);
    communication(&walk, first, end, worker);
    worker->idle_s = timeline->step_s - worker->compute_s - worker->tensor_s;
    busy_s += worker->compute_s + worker->tensor_s;
  }
  free(walk.head);
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) metrics->comm_bytes += metrics->comm_bytes_by_kind[k];
  const double whole_s = timeline->step_s * program->worker_count;
  metrics->bubble_ratio = whole_s > busy_s ? 1 - busy_s / whole_s : 0; /* sums round */
  const double samples = (double)plan->microbatches * plan->microbatch_size * plan->replicas;
  metrics->throughput_samples_per_s = timeline->step_s > 0 ? samples / timeline->step_s : 0;
  return DP_OK;
}

void plan_metrics_free(plan_metrics *metrics) {
  free(metrics->workers);
  *metrics = (plan_metrics){0};
}
