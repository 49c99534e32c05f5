/* Synthetic graphs: equal units in a chain, with fixed costs. */
#include <inttypes.h>

#include "graph/build.h"
#include "graph/checked.h"

enum { MAX_UNITS = 100000, MAX_BATCH = 1 << 20 };

static dp_status check(const graph_synthetic_options *o, dp_error *error) {
  const int64_t most = INT64_MAX - 1;
  const struct {
    const char *name;
    int64_t value, min, max;
  } integers[] = {
      {"synthetic_units", o->units, 1, MAX_UNITS},        {"the synthetic batch", o->batch, 1, MAX_BATCH},
      {"boundary_bytes", o->boundary_bytes, 0, most},     {"parameters", o->parameters, 0, most},
      {"activation_bytes", o->activation_bytes, 0, most},
  };
  const struct {
    const char *name;
    double value, max;
  } times[] = {
      {"forward_s", o->forward_s, 1e9},
      {"backward_s", o->backward_s, 1e9},
      {"weight_backward_s", o->weight_backward_s, o->backward_s},
  };
  for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
    if (integers[i].value < integers[i].min || integers[i].value > integers[i].max)
      return dp_fail(error, DP_BAD_INPUT, "%s is %" PRId64 ", must be from %" PRId64 " to %" PRId64, integers[i].name,
                     integers[i].value, integers[i].min, integers[i].max);
    if (i > 1 && graph_is_huge(graph_mul3(integers[i].value, o->units, o->batch)))
      return dp_fail(error, DP_BAD_INPUT,
                     "%s is %" PRId64 ", which times %" PRId64 " units and a batch of %" PRId64 " must fit 64 bits",
                     integers[i].name, integers[i].value, o->units, o->batch);
  }
  for (size_t i = 0; i < sizeof times / sizeof *times; i++)
    if (!(times[i].value >= 0 && times[i].value <= times[i].max))
      return dp_fail(error, DP_BAD_INPUT, "%s is %g, must be from 0 to %g", times[i].name, times[i].value,
                     times[i].max);
  return DP_OK;
}

/* Sets every figure that the options give; op costs cannot know them. Values: dims[1] is in bytes. */
static void fix(const graph_synthetic_options *o, graph *g) {
  const int64_t boundary_bytes = graph_mul(o->boundary_bytes, o->batch);
  const int64_t activation_bytes = graph_mul(o->activation_bytes, o->batch);
  const double batch = (double)o->batch;
  for (size_t t = 0; t < g->tensors.count; t++) {
    g->tensors.items[t].dims[1] = o->boundary_bytes;
    g->tensors.items[t].bytes = boundary_bytes;
  }
  for (size_t u = 0; u < g->units.count; u++) {
    graph_unit *unit = &g->units.items[u];
    unit->output_bytes = unit->input_bytes = boundary_bytes;
    unit->saved_bytes = unit->saved_extra_bytes = activation_bytes;
    g->ops.items[unit->first_op].saved_extra_bytes = activation_bytes;
    unit->forward_transient_bytes = unit->inference_transient_bytes = unit->backward_transient_bytes = 0;
    unit->fixed = (graph_fixed_cost){.present = true,
                                     .forward_s = o->forward_s * batch,
                                     .backward_input_s = (o->backward_s - o->weight_backward_s) * batch,
                                     .backward_weight_s = o->weight_backward_s * batch};
  }
  g->saved_bytes = graph_mul(activation_bytes, o->units);
  g->latent_bytes = boundary_bytes;
}

dp_status graph_synthetic_build(const graph_synthetic_options *o, graph *g, dp_error *error) {
  DP_TRY(check(o, error));
  const graph_model_options options = {.batch = o->batch, .frames = 1, .precision = o->precision};
  const graph_attributes attributes = {.in_channels = o->parameters};
  graph_builder *b = graph_build_begin(g, &options, NULL);
  if (b == NULL) return dp_fail_memory(error);
  int x = graph_build_input(b, "input", 2, (const int64_t[]){o->batch, 1});
  for (int64_t u = 0; u < o->units; u++) {
    const char *name = graph_build_name(b, "units.%" PRId64, u);
    graph_build_unit(b, name);
    x = graph_build_op(b, GRAPH_SYNTHETIC, name, &attributes, &x, 1);
  }
  graph_build_output(b, x);
  DP_TRY(graph_build_finish(b, error));
  g->class_name = "synthetic";
  fix(o, g);
  return DP_OK;
}
