#include "exec/pipeline.h"

#include <stdlib.h>

#include "exec/lanes.h"
#include "exec/stall.h"

/* ---- making it ---- */

static dp_status check_plan(const exec_work *work, dp_error *error) {
  const plan_plan *plan = work->plan;
  const char *missing = NULL;
  if (plan_tensor(plan) > 1) missing = "tensor groups";
  if (!plan->training) missing = "sampling";
  if (plan->optimizer != PLAN_ADAMW) missing = "optimizers other than adamw";
  if (missing) return dp_fail(error, DP_UNSUPPORTED, "the executor does not know %s yet", missing);
  return work->kind->check(work, error);
}

int exec_process_of(const exec_pipeline *p, int worker) {
  return worker / (p->work.program->worker_count / exec_process_count(p->work.options.transport));
}

static dp_status share_out(exec_pipeline *p, dp_error *error) {
  const plan_program *program = p->work.program;
  const exec_transport *t = p->work.options.transport;
  const int processes = exec_process_count(t);
  if (program->worker_count % processes != 0)
    return dp_fail(error, DP_BAD_INPUT,
                   "found %d processes for a plan of %d workers, allowed: a number that divides them evenly", processes,
                   program->worker_count);
  const int each = program->worker_count / processes;
  p->first_worker = exec_process(t) * each;
  p->end_worker = p->first_worker + each;
  p->first_lane = program->worker_lane[p->first_worker];
  p->end_lane = program->worker_lane[p->end_worker];
  if (program->lane_count >= EXEC_TAG_CONTROL)
    return dp_fail(error, DP_UNSUPPORTED, "the plan has %u lanes, allowed: fewer than %d", program->lane_count,
                   EXEC_TAG_CONTROL);
  return DP_OK;
}

static dp_status lay_out(exec_pipeline *p, dp_error *error) {
  const plan_memory_options options = {.library_workspace = p->work.kind->workspace,
                                       .threads = exec_work_threads(&p->work),
                                       .unfused = true,
                                       .splits_masters = p->work.kind->read_masters != NULL,
                                       .overwrites = true,
                                       .means = p->work.options.means};
  return plan_memory_layout(p->work.program, p->work.graph, &options, &p->work.memory, error);
}

/* Who waits for whom, and on which lane each is. */
static dp_status make_index(exec_pipeline *p, dp_error *error) {
  const plan_program *program = p->work.program;
  const uint32_t n = program->instruction_count;
  p->lane_of = DP_ARENA_NEW(&p->arena, uint32_t, n);
  p->dependent_first = DP_ARENA_NEW(&p->arena, uint32_t, (size_t)n + 2);
  p->dependents = DP_ARENA_NEW(&p->arena, uint32_t, (size_t)program->wait_first[n] + 1);
  if (!p->lane_of || !p->dependent_first || !p->dependents) return dp_fail_memory(error);
  for (uint32_t l = 0; l < program->lane_count; l++)
    for (uint32_t i = 0; i < program->lanes[l].count; i++) p->lane_of[program->lanes[l].first + i] = l;
  /* counted two places on, so that filling leaves first[] where it must be */
  for (uint32_t w = 0; w < program->wait_first[n]; w++) p->dependent_first[program->waits[w] + 2]++;
  for (uint32_t i = 2; i < n + 2; i++) p->dependent_first[i] += p->dependent_first[i - 1];
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t w = program->wait_first[i]; w < program->wait_first[i + 1]; w++)
      p->dependents[p->dependent_first[program->waits[w] + 1]++] = i;
  return DP_OK;
}

/* At least 1. */
static size_t most_tensors(const plan_program *program, uint32_t lane_id) {
  const plan_lane *lane = &program->lanes[lane_id];
  size_t most = 1;
  if (lane->kind != PLAN_LANE_SEND && lane->kind != PLAN_LANE_RECV) return most;
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
    const size_t count = (size_t)program->messages[program->instructions[i].class_id].tensor_count;
    if (count > most) most = count;
  }
  return most;
}

static dp_status make_lanes(exec_pipeline *p, dp_error *error) {
  p->lanes = DP_ARENA_NEW(&p->arena, exec_lane, p->work.program->lane_count);
  if (!p->lanes) return dp_fail_memory(error);
  for (uint32_t l = p->first_lane; l < p->end_lane; l++) {
    p->lanes[l].pieces = DP_ARENA_NEW(&p->arena, exec_piece, most_tensors(p->work.program, l));
    if (!p->lanes[l].pieces) return dp_fail_memory(error);
    if (p->work.kind->deferred) continue; /* its own, on the device */
    const int64_t floats = exec_reduce_scratch(p, l);
    if (floats == 0) continue;
    p->lanes[l].scratch = DP_ARENA_NEW(&p->arena, float, (size_t)floats);
    if (!p->lanes[l].scratch) return dp_fail_memory(error);
  }
  if (p->work.kind->deferred) DP_TRY(p->work.kind->open_lanes(p, error));
  return exec_lanes_start(p, error);
}

/* The same weights must be with the same workers. */
static dp_status check_shared(const exec_pipeline *p, dp_error *error) {
  const exec_work *mine = &p->work, *other = &p->work.options.shared->work;
  bool same = mine->program->worker_count == other->program->worker_count &&
              mine->graph->units.count == other->graph->units.count &&
              mine->graph->weights.count == other->graph->weights.count &&
              mine->plan->chunk_count == other->plan->chunk_count && other->program->compressor_count == 0 &&
              !plan_skip_is_used(mine->plan, mine->graph, PLAN_SKIP_COMPRESS);
  for (int c = 0; same && c < mine->plan->chunk_count; c++)
    same = mine->plan->chunks[c].first_unit == other->plan->chunks[c].first_unit &&
           mine->plan->chunks[c].rank == other->plan->chunks[c].rank;
  if (same) return DP_OK;
  return dp_fail(
      error, DP_BAD_INPUT,
      "found a plan with other stages for another resolution, allowed: the same split, without compressed skips");
}

/* Where every process's workers compute. */
static dp_status survey(exec_pipeline *p, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  const int workers = p->work.program->worker_count, processes = exec_process_count(t);
  exec_host_facts mine;
  p->work.facts = DP_ARENA_NEW(&p->arena, exec_host_facts, (size_t)processes);
  p->work.places = DP_ARENA_NEW(&p->arena, exec_place, (size_t)workers);
  dp_status status = p->work.facts && p->work.places ? DP_OK : dp_fail_memory(error);
  exec_host_facts_init(&mine);
  if (status == DP_OK) status = p->work.kind->survey(&mine, error);
  DP_TRY(exec_agree(t, status, error));
  DP_TRY(exec_gather(t, &mine, sizeof mine, p->work.facts, error));
  DP_TRY(exec_broadcast(t, p->work.facts, (size_t)processes * sizeof mine, error));
  exec_deal_places(p->work.facts, processes, workers, p->work.places);
  return DP_OK;
}

static dp_status make_room(exec_pipeline *p, dp_error *error) {
  DP_TRY(lay_out(p, error));
  return p->work.kind->fits ? p->work.kind->fits(p, error) : DP_OK;
}

static dp_status make_workers(exec_pipeline *p, dp_error *error) {
  for (int w = p->first_worker; w < p->end_worker; w++)
    DP_TRY(exec_worker_init(&p->work, w, p->work.options.shared ? &p->work.options.shared->workers[w] : NULL, &p->arena,
                            &p->workers[w], error));
  return DP_OK;
}

static dp_status make(exec_pipeline *p, dp_error *error) {
  const plan_program *program = p->work.program;
  const uint32_t n = program->instruction_count;
  for (size_t t = 0; t < p->work.graph->tensors.count; t++)
    if (p->work.graph->tensors.items[t].is_output) p->work.output = (int)t;
  DP_TRY(share_out(p, error));
  if (p->work.options.shared) DP_TRY(check_shared(p, error));
  p->workers = DP_ARENA_NEW(&p->arena, exec_worker, (size_t)program->worker_count);
  p->done = DP_ARENA_NEW(&p->arena, uint8_t, n);
  p->ready = DP_ARENA_NEW(&p->arena, uint8_t, n);
  p->seen = DP_ARENA_NEW(&p->arena, uint8_t, n);
  p->start_s = DP_ARENA_NEW(&p->arena, double, n);
  p->end_s = DP_ARENA_NEW(&p->arena, double, n);
  p->group_ready = DP_ARENA_NEW(&p->arena, uint32_t, (size_t)program->group_count + 1);
  p->reports = DP_ARENA_NEW(&p->arena, exec_report, 2 * (size_t)program->worker_count);
  p->squares = DP_ARENA_NEW(&p->arena, double, 2 * (size_t)program->worker_count * (size_t)exec_work_samples(&p->work));
  if (!p->workers || !p->done || !p->ready || !p->seen || !p->start_s || !p->end_s || !p->group_ready || !p->reports ||
      !p->squares)
    return dp_fail_memory(error);
  DP_TRY(plan_groups_of(program, &p->arena, &p->groups, error));
  DP_TRY(make_index(p, error));
  return DP_OK;
}

/* A kind whose processes must meet while they are made: none goes on where another has failed. */
static dp_status make_together(exec_pipeline *p, dp_status status, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  DP_TRY(exec_agree(t, status, error));
  DP_TRY(survey(p, error));
  DP_TRY(exec_agree(t, make_room(p, error), error)); /* before any takes some */
  DP_TRY(exec_agree(t, make_workers(p, error), error));
  return exec_agree(t, make_lanes(p, error), error);
}

static dp_status make_all(exec_pipeline *p, dp_error *error) {
  dp_status status = check_plan(&p->work, error);
  if (status == DP_OK) status = exec_throttle_read(&p->throttle, error);
  if (status == DP_OK) status = make(p, error);
  if (p->work.kind->survey && exec_process_count(p->work.options.transport) > 1)
    return make_together(p, status, error);
  if (status == DP_OK) status = make_room(p, error);
  if (status == DP_OK) status = make_workers(p, error);
  return status == DP_OK ? make_lanes(p, error) : status;
}

dp_status exec_pipeline_create(const plan_program *program, const graph *g, const exec_pipeline_options *options,
                               exec_pipeline **pipeline, dp_error *error) {
  exec_pipeline *p = calloc(1, sizeof *p);
  if (!p) return dp_fail_memory(error);
  p->work = (exec_work){.program = program,
                        .plan = program->plan,
                        .graph = g,
                        .kind = options->cuda ? &exec_device_cuda : &exec_device_cpu,
                        .options = *options};
  atomic_init(&p->stop, false);
  atomic_init(&p->position, PLAN_NO_PEER);
  const dp_status status = make_all(p, error);
  p->made = status == DP_OK;
  if (status != DP_OK)
    exec_pipeline_free(p);
  else
    *pipeline = p;
  return status;
}

bool exec_pipeline_leave(exec_pipeline *p) { return !p || exec_stall_leave(p); }

void exec_pipeline_free(exec_pipeline *p) {
  if (!exec_pipeline_leave(p) || !p) return;
  exec_lanes_stop(p);
  if (p->work.kind->deferred) p->work.kind->close_lanes(p);
  /* what another process has mapped of this one's memory goes when that process has let go of it */
  if (p->work.facts && p->made && !atomic_load(&p->stop)) (void)exec_barrier(p->work.options.transport, NULL);
  for (int w = p->first_worker; p->workers && w < p->end_worker; w++) exec_worker_free(&p->workers[w]);
  plan_memory_free(&p->work.memory);
  dp_arena_free(&p->arena);
  free(p);
}

dp_status exec_pipeline_choose_again(exec_pipeline *p, dp_error *error) {
  if (!p->work.kind->choose_again) return DP_OK;
  for (int w = p->first_worker; w < p->end_worker; w++)
    DP_TRY(exec_worker_choose_again(&p->work, &p->workers[w], error));
  return DP_OK;
}

void exec_pipeline_wait_idle(const exec_pipeline *p) {
  if (p->work.kind->wait_idle) p->work.kind->wait_idle(p);
}

int64_t exec_pipeline_device_bytes(const exec_pipeline *p) { return p->work.kind->taken ? p->work.kind->taken(p) : 0; }
bool exec_pipeline_has(const exec_pipeline *p, int w) { return exec_is_here(p, (uint32_t)w); }
exec_parameters *exec_pipeline_parameters(exec_pipeline *p, int w) { return &p->workers[w].parameters; }
kern_context *exec_pipeline_kernels(exec_pipeline *p, int w) { return p->workers[w].kern; }
void *exec_pipeline_constant(exec_pipeline *p, int w, int tensor) { return p->workers[w].layout.constants[tensor]; }
const plan_worker_memory *exec_pipeline_memory(const exec_pipeline *p, int w) { return &p->work.memory.workers[w]; }
plan_library_workspace exec_library_workspace(bool cuda) {
  return cuda ? exec_device_cuda.workspace : exec_device_cpu.workspace;
}

/* ---- arrays of the parameters ---- */

/* One of the arrays from an offset on; its dtype. */
static void *place_in(const exec_parameters *p, exec_array array, int64_t offset, graph_dtype *dtype) {
  float *const arrays[] = {p->values, p->gradients, p->first, p->second, p->means};
  *dtype = array == EXEC_VALUES ? p->value_dtype : array == EXEC_GRADIENTS ? p->gradient_dtype : GRAPH_FP32;
  return (char *)arrays[array] + offset * graph_dtype_bytes(*dtype);
}

dp_status exec_pipeline_read(exec_pipeline *p, int w, exec_array array, int64_t offset, int64_t n, float *to,
                             dp_error *error) {
  exec_worker *worker = &p->workers[w];
  const exec_parameters *parameters = &worker->parameters;
  graph_dtype dtype;
  const void *from = place_in(parameters, array, offset, &dtype);
  if (array == EXEC_VALUES && parameters->low && offset < parameters->trained_count)
    return p->work.kind->read_masters(worker, n, from, parameters->low + offset, to, error);
  return p->work.kind->read(worker, dtype, n, from, to, error);
}

dp_status exec_pipeline_write(exec_pipeline *p, int w, exec_array array, int64_t offset, int64_t n, const float *from,
                              dp_error *error) {
  exec_worker *worker = &p->workers[w];
  const exec_parameters *parameters = &worker->parameters;
  graph_dtype dtype;
  void *to = place_in(parameters, array, offset, &dtype);
  if (array == EXEC_VALUES && parameters->low && offset < parameters->trained_count)
    return p->work.kind->write_masters(worker, n, from, to, parameters->low + offset, error);
  return p->work.kind->write(worker, dtype, n, from, to, error);
}

dp_status exec_pipeline_read_weight(exec_pipeline *p, int w, exec_array array, int weight, float *file,
                                    dp_error *error) {
  const graph_weight *of = &p->work.graph->weights.items[weight];
  const int64_t n = of->parameters, offset = p->workers[w].parameters.offset[weight];
  if (!exec_weight_is_permuted(of)) return exec_pipeline_read(p, w, array, offset, n, file, error);
  float *memory = malloc((size_t)n * sizeof *memory);
  if (!memory) return dp_fail_memory(error);
  const dp_status status = exec_pipeline_read(p, w, array, offset, n, memory, error);
  if (status == DP_OK) exec_weight_to_file(p->workers[w].kern, of, memory, file);
  free(memory);
  return status;
}

dp_status exec_pipeline_write_weight(exec_pipeline *p, int w, exec_array array, int weight, const float *file,
                                     dp_error *error) {
  const graph_weight *of = &p->work.graph->weights.items[weight];
  const int64_t n = of->parameters, offset = p->workers[w].parameters.offset[weight];
  if (!exec_weight_is_permuted(of)) return exec_pipeline_write(p, w, array, offset, n, file, error);
  float *memory = malloc((size_t)n * sizeof *memory);
  if (!memory) return dp_fail_memory(error);
  exec_weight_from_file(p->workers[w].kern, of, file, memory);
  const dp_status status = exec_pipeline_write(p, w, array, offset, n, memory, error);
  free(memory);
  return status;
}

dp_status exec_pipeline_write_constant(exec_pipeline *p, int w, int tensor, const float *from, dp_error *error) {
  const graph_tensor *t = &p->work.graph->tensors.items[tensor];
  return p->work.kind->write(&p->workers[w], t->dtype, graph_tensor_elements(t), from,
                             p->workers[w].layout.constants[tensor], error);
}

uint32_t exec_pipeline_position(const exec_pipeline *p) { return atomic_load(&p->position); }
