#include "tests/exec_cuts.h"

#include <check.h>
#include <math.h>
#include <string.h>

#include "exec/fusion.h"
#include "graph/op_table.h"

static void *zeros(exec_cuts *c, size_t count, size_t size) {
  void *made = dp_arena_alloc(&c->arena, count, size);
  ck_assert_ptr_nonnull(made);
  return made;
}

static int64_t elements(const exec_cuts *c, int tensor) {
  return graph_tensor_elements(&c->graph->tensors.items[tensor]);
}

static int maker_of(const exec_cuts *c, int tensor) {
  int chunk = 0;
  while (c->graph->tensors.items[tensor].producer_unit >=
         c->plan.chunks[chunk].first_unit + c->plan.chunks[chunk].unit_count)
    chunk++;
  return chunk;
}

static float *own(exec_cuts *c, float **of, int tensor) {
  if (!of[tensor]) of[tensor] = zeros(c, (size_t)elements(c, tensor), sizeof(float));
  return of[tensor];
}

static float *outside(exec_cuts *c, const plan_outside *what) {
  const graph_tensor *t = &c->graph->tensors.items[what->tensor];
  if (what->gradient) return own(c, c->gradients, what->tensor);
  if (t->is_constant) return c->inputs[what->tensor];
  const int maker = maker_of(c, what->tensor);
  const plan_place place = plan_places_made(&c->places[maker], what->tensor);
  ck_assert(place.block == PLAN_BLOCK_SAVED || place.block == PLAN_BLOCK_OUTSIDE);
  return place.block == PLAN_BLOCK_SAVED ? exec_memory_at(&c->memory[maker], place) : own(c, c->values, what->tensor);
}

static void make_plan(exec_cuts *c, const int *cuts, int count, const uint8_t *recompute) {
  const int units = (int)c->graph->units.count;
  c->plan = (plan_plan){.training = true, .ranks = 1, .chunks_per_rank = count + 1, .replicas = 1, .microbatches = 1};
  c->plan.chunk_count = count + 1;
  c->plan.chunks = zeros(c, (size_t)count + 1, sizeof *c->plan.chunks);
  c->plan.recompute = zeros(c, (size_t)units, 1);
  if (recompute) memcpy(c->plan.recompute, recompute, (size_t)units);
  for (int i = 0; i <= count; i++) {
    const int first = i ? cuts[i - 1] : 0;
    c->plan.chunks[i] = (plan_chunk){first, (i < count ? cuts[i] : units) - first, 0};
  }
}

void exec_cuts_make(const graph *g, const int *cuts, int count, const uint8_t *recompute, bool split_backward,
                    const exec_parameters *parameters, kern_context *kern, exec_cuts *c) {
  dp_error error = DP_ERROR_INIT;
  *c = (exec_cuts){.graph = g, .split_backward = split_backward};
  make_plan(c, cuts, count, recompute);
  c->places = zeros(c, (size_t)count + 1, sizeof *c->places);
  c->chunks = zeros(c, (size_t)count + 1, sizeof *c->chunks);
  c->memory = zeros(c, (size_t)count + 1, sizeof *c->memory);
  c->values = zeros(c, g->tensors.count, sizeof *c->values);
  c->gradients = zeros(c, g->tensors.count, sizeof *c->gradients);
  c->inputs = zeros(c, g->tensors.count, sizeof *c->inputs);
  uint8_t *begun = zeros(c, g->tensors.count, 1);
  int64_t workspace_bytes = 0;
  for (int k = 0; k <= count; k++) {
    const dp_status status = plan_places_of(&c->plan, g, k, split_backward, &c->arena, &c->places[k], &error);
    ck_assert_msg(status == DP_OK, "%s", error.text);
    if (c->places[k].block_bytes[PLAN_BLOCK_WORKSPACE] > workspace_bytes)
      workspace_bytes = c->places[k].block_bytes[PLAN_BLOCK_WORKSPACE];
  }
  char *workspace = zeros(c, (size_t)workspace_bytes, 1);
  for (int k = 0; k <= count; k++) {
    c->chunks[k] =
        (exec_chunk){.graph = g, .places = &c->places[k], .parameters = parameters, .kern = kern, .poison = true};
    for (int b = PLAN_BLOCK_SAVED; b < PLAN_BLOCK_OUTSIDE; b++)
      c->memory[k].blocks[b] = b == PLAN_BLOCK_WORKSPACE ? workspace : zeros(c, (size_t)c->places[k].block_bytes[b], 1);
    c->memory[k].begun = begun;
    c->memory[k].outside = zeros(c, (size_t)c->places[k].outside_count, sizeof(float *));
  }
  for (size_t t = 0; t < g->tensors.count; t++)
    if (g->tensors.items[t].is_output) c->output_tensor = (int)t;
  c->output = zeros(c, (size_t)elements(c, c->output_tensor), sizeof(float));
}

void exec_cuts_fuse(exec_cuts *c, const exec_math *math) {
  dp_error error = DP_ERROR_INIT;
  for (int k = 0; k < c->plan.chunk_count; k++) {
    exec_fusion *fusion = zeros(c, 1, sizeof *fusion);
    ck_assert_int_eq(exec_fusion_of(c->graph, &c->places[k], &c->arena, fusion, &error), DP_OK);
    c->chunks[k].math = math;
    c->chunks[k].fusion = fusion;
    c->chunks[k].poison = false;
    c->chunks[k].fresh = true;
  }
}

void exec_cuts_free(exec_cuts *c) {
  dp_arena_free(&c->arena);
  *c = (exec_cuts){.graph = NULL};
}

static void spoil(float *x, int64_t n) {
  for (int64_t i = 0; x && i < n; i++) x[i] = NAN;
}

static void begin(exec_cuts *c) {
  for (int k = 0; k < c->plan.chunk_count; k++) {
    for (int i = 0; i < c->places[k].outside_count; i++) c->memory[k].outside[i] = outside(c, &c->places[k].outside[i]);
    for (int b = PLAN_BLOCK_SAVED; b < PLAN_BLOCK_OUTSIDE; b++)
      spoil((float *)(void *)c->memory[k].blocks[b], c->places[k].block_bytes[b] / (int64_t)sizeof(float));
  }
  for (int t = 0; t < (int)c->graph->tensors.count; t++) {
    spoil(c->values[t], elements(c, t));
    spoil(c->gradients[t], elements(c, t));
    c->memory[0].begun[t] = 0;
  }
}

static double take_loss(exec_cuts *c) {
  const int last = c->plan.chunk_count - 1;
  const exec_memory *memory = &c->memory[last];
  float *output = exec_memory_at(memory, plan_places_made(&c->places[last], c->output_tensor));
  float *target = exec_memory_at(memory, c->places[last].target);
  const int64_t n = elements(c, c->output_tensor), batch = c->graph->tensors.items[c->output_tensor].dims[0];
  const kern_loss size = {.batch = batch, .n = n / batch, .factor = 1.0 / (double)batch};
  double squares[16];
  memcpy(target, c->target, (size_t)n * sizeof *target);
  memcpy(c->output, output, (size_t)n * sizeof *output);
  const double loss = kern_loss_forward(c->chunks[last].kern, &size, output, target, NULL, squares);
  kern_loss_backward(c->chunks[last].kern, &size, output, target, NULL, output);
  memory->begun[c->output_tensor] = 1;
  return loss;
}

double exec_cuts_step(exec_cuts *c) {
  begin(c);
  for (int k = 0; k < c->plan.chunk_count; k++) {
    for (int i = 0; i < c->places[k].input_count; i++) {
      const plan_port *input = &c->places[k].inputs[i];
      memcpy(exec_memory_at(&c->memory[k], input->place), c->inputs[input->tensor],
             (size_t)elements(c, input->tensor) * sizeof(float));
    }
    exec_chunk_forward(&c->chunks[k], &c->memory[k]);
  }
  const double loss = take_loss(c);
  for (int k = c->plan.chunk_count - 1; k >= 0; k--) {
    const plan_chunk *units = &c->plan.chunks[k];
    const int half = units->unit_count / 2; /* in two parts, as buckets of gradients are */
    exec_chunk_begin_backward(&c->chunks[k], &c->memory[k]);
    exec_chunk_backward(&c->chunks[k], &c->memory[k], units->first_unit + half, units->unit_count - half);
    if (half) exec_chunk_backward(&c->chunks[k], &c->memory[k], units->first_unit, half);
    spoil((float *)(void *)c->memory[k].blocks[PLAN_BLOCK_WORKSPACE],
          c->places[k].block_bytes[PLAN_BLOCK_WORKSPACE] / (int64_t)sizeof(float));
  }
  for (int k = c->plan.chunk_count - 1; c->split_backward && k >= 0; k--)
    exec_chunk_backward_weight(&c->chunks[k], &c->memory[k], c->plan.chunks[k].first_unit,
                               c->plan.chunks[k].unit_count);
  return loss;
}
