#include "sim/cost.h"

#include <math.h>
#include <string.h>

#include "plan/places.h"
#include "plan/profile.h"
#include "sim/efficiency.h"

/* The measured factor of a part of a card beyond its share of SMs; log-linear in the share. */
static double partition_factor(const sim_cost_context *context, int op_class, int backward) {
  const sim_partition *own = &context->implementation->partition;
  const sim_partition *partition = own->points ? own : &context->efficiency->partition;
  const double share = context->device->compute_share;
  const double *x = partition->share, *y = partition->factor[backward][op_class];
  const int n = partition->points;
  if (share <= x[0]) return y[0];
  if (share >= x[n - 1]) return y[n - 1];
  int i = 1;
  while (x[i] < share) i++;
  return y[i - 1] + log(share / x[i - 1]) / log(x[i] / x[i - 1]) * (y[i] - y[i - 1]);
}

/* What this architecture reaches against the curves' card. */
static double architecture_factor(const sim_cost_context *context, int op_class, int backward) {
  const sim_efficiency *efficiency = context->efficiency;
  const plan_device_model *model = context->device->model;
  if (op_class == GRAPH_CLASS_GEMM || op_class == GRAPH_CLASS_CONVOLUTION) {
    const double peak = model->peak_flops_per_s[GRAPH_BF16];
    if (model->achieved_flops_per_s <= 0 || peak <= 0) return 1;
    return model->achieved_flops_per_s / peak / efficiency->best_product_share;
  }
  if (op_class == GRAPH_CLASS_ATTENTION)
    for (size_t i = 0; i < efficiency->architectures.count; i++) {
      const sim_architecture *architecture = &efficiency->architectures.items[i];
      if (strncmp(model->architecture, architecture->prefix, strlen(architecture->prefix)) == 0)
        return architecture->attention[context->implementation->attention_backend][backward];
    }
  return 1;
}

/* Of the context's implementation, and with sums as the job has them. */
static const sim_curve *curve_of(const sim_cost_context *context, int op_class, int backward, int backend,
                                 int64_t head_dim) {
  return sim_efficiency_curve(context->efficiency, context->implementation, op_class, backward, backend, head_dim,
                              context->any_order);
}

/* Time of `flops` in a class at ideal speed `peak`. */
static double curve_time_s(const sim_cost_context *context, int op_class, int backward, int64_t head_dim,
                           double ideal_s) {
  if (op_class != GRAPH_CLASS_ATTENTION) return sim_curve_time_s(curve_of(context, op_class, backward, 0, 0), ideal_s);
  const int backend = context->implementation->attention_backend;
  const double narrow = sim_curve_time_s(curve_of(context, op_class, backward, backend, 64), ideal_s);
  const double wide = sim_curve_time_s(curve_of(context, op_class, backward, backend, 128), ideal_s);
  if (head_dim <= 64) return narrow;
  if (head_dim >= 128) return wide;
  const double t = log((double)head_dim / 64) / log(2.0);
  return narrow + t * (wide - narrow);
}

static double traffic_s(const sim_cost_context *context, double bytes, int backward) {
  const plan_device *device = context->device;
  const double share = fmin(1, device->compute_share * partition_factor(context, GRAPH_CLASS_MEMORY, backward));
  const double bandwidth = device->model->memory_bandwidth_bytes_per_s * share;
  return sim_curve_time_s(curve_of(context, GRAPH_CLASS_MEMORY, backward, 0, 0), bytes / bandwidth);
}

/* Of gradients of a matrix product's weights, which the graph has written once in the model's precision: they are added
 * to what lies there, or in a step's first microbatch written. */
static double weight_traffic_s(const sim_cost_context *context, const graph_work *work, bool first) {
  const double wider = context->gradient_fp32 ? 4 / (double)graph_dtype_bytes(context->precision) : 1;
  const double bytes = (double)work->bytes_written * wider * (first ? 1 : 2);
  return traffic_s(context, (double)work->bytes_read, 1) +
         context->implementation->gradient_share * traffic_s(context, bytes, 1);
}

static double work_s(const sim_cost_context *context, const graph_work *work, sim_direction direction, bool first) {
  const plan_device *device = context->device;
  const plan_device_model *model = device->model;
  const double share = device->compute_share;
  const int backward = direction != SIM_FORWARD;
  const bool matrix = work->op_class != GRAPH_CLASS_MEMORY && work->matrix_flops != 0;
  const double memory_s = matrix && direction == SIM_BACKWARD_WEIGHT && context->implementation->gradient_share > 0
                              ? weight_traffic_s(context, work, first)
                              : traffic_s(context, (double)(work->bytes_read + work->bytes_written), backward);
  if (!matrix) return memory_s;
  double flops = (double)work->matrix_flops;
  int64_t head_dim = 0;
  if (work->op_class == GRAPH_CLASS_ATTENTION) {
    head_dim = work->k;
    const int64_t tile = context->implementation->key_tile, least = context->implementation->least_head_dim;
    const int64_t padded_keys = (work->n + tile - 1) / tile * tile;
    flops *= (double)padded_keys / (double)work->n;
    if (head_dim < least) flops *= (double)least / (double)head_dim;
  }
  const double peak = model->peak_flops_per_s[context->precision] * share;
  const double compute_s = curve_time_s(context, work->op_class, backward, head_dim, flops / peak) /
                           architecture_factor(context, work->op_class, backward) /
                           partition_factor(context, work->op_class, backward);
  return compute_s > memory_s ? compute_s : memory_s;
}

static const graph_work *work_of(const graph_op *op, sim_direction direction) {
  return direction == SIM_FORWARD          ? &op->forward
         : direction == SIM_BACKWARD_INPUT ? &op->backward_input
                                           : &op->backward_weight;
}

/* An adapter's products, which the graph counts in one with the layer's own, and an executor that fuses nothing does by
 * themselves, each as long as a product takes that is so thin. *rest: the op's work, then without them. */
static double adapter_s(const sim_cost_context *context, const graph_op *op, sim_direction direction, bool first,
                        graph_work *rest) {
  const graph_adapter adapter = graph_adapter_of(op, op->forward.m, graph_dtype_bytes(context->precision));
  const graph_work *products = direction == SIM_FORWARD          ? adapter.forward
                               : direction == SIM_BACKWARD_INPUT ? adapter.backward_input
                                                                 : adapter.backward_weight;
  const int count = direction == SIM_BACKWARD_WEIGHT ? rest->kernels : 2;
  double seconds = 0;
  for (int i = 0; i < count; i++) {
    seconds += work_s(context, &products[i], direction, first);
    rest->matrix_flops -= products[i].matrix_flops;
    rest->bytes_read -= products[i].bytes_read;
    rest->bytes_written -= products[i].bytes_written;
  }
  return seconds;
}

static bool reads_from(const graph_op *reader, const graph_op *op) {
  for (int i = 0; i < reader->input_count; i++)
    for (int k = 0; k < op->output_count; k++)
      if (reader->inputs[i] == op->outputs[k]) return true;
  return false;
}

/* Whether somebody's backward rests on what an op makes, by itself or through what is made of it: where nothing is fused
 * that is made again in place of being kept, which shares of backward kernels count. */
static bool is_made_again(const graph *model, const graph_op *op) {
  const graph_unit *unit = &model->units.items[op->unit];
  const graph_op *const end = &model->ops.items[unit->first_op] + unit->op_count;
  for (int i = 0; i < op->output_count; i++)
    if (model->tensors.items[op->outputs[i]].saver_unit_count > 0) return true;
  for (const graph_op *reader = op + 1; reader < end; reader++)
    if (plan_places_is_cheap(reader) && reads_from(reader, op) && is_made_again(model, reader)) return true;
  return false;
}

/* model: NULL, as if all were made again */
static double kernel_share(const sim_cost_context *context, const graph *model, const graph_op *op,
                           sim_direction direction) {
  const sim_implementation *implementation = context->implementation;
  const double forward = implementation->kernel_share[0][op->kind],
               backward = implementation->kernel_share[1][op->kind];
  if (direction == SIM_FORWARD) return forward;
  return !implementation->fuses && model && backward > forward && !is_made_again(model, op) ? forward : backward;
}

static double op_s(const sim_cost_context *context, const graph *model, const graph_op *op, sim_direction direction,
                   bool first) {
  graph_work work = *work_of(op, direction);
  if (work.kernels == 0) return 0;
  double seconds = 0;
  if (op->adapter_parameters > 0 && !context->implementation->fuses) {
    seconds = adapter_s(context, op, direction, first, &work);
    if (direction == SIM_BACKWARD_WEIGHT) return seconds; /* of a layer that is frozen itself */
  }
  return seconds + kernel_share(context, model, op, direction) * work_s(context, &work, direction, first);
}

double sim_cost_op(const sim_cost_context *context, const graph_op *op, sim_direction direction) {
  return op_s(context, NULL, op, direction, false);
}

/* What the graph has for free, as a view or within its neighbours, and an executor that fuses nothing copies. */
static bool is_copied(const sim_cost_context *context, const graph *model, int o, sim_direction direction) {
  const graph_op *op = &model->ops.items[o];
  return !context->implementation->fuses && work_of(op, direction)->kernels == 0 &&
         (op->kind == GRAPH_CONCAT || op->kind == GRAPH_SPLIT || op->kind == GRAPH_ADD) &&
         plan_profile_runs(model, o, (plan_direction)direction);
}

double sim_cost_op_of(const sim_cost_context *context, const graph *model, int o, sim_direction direction) {
  const graph_op *op = &model->ops.items[o];
  if (!is_copied(context, model, o, direction)) return op_s(context, model, op, direction, false);
  const plan_profile_work work = plan_profile_work_of(model, o, (plan_direction)direction);
  const int backward = direction != SIM_FORWARD;
  return context->implementation->kernel_share[backward][op->kind] * traffic_s(context, work.bytes, backward);
}

double sim_cost_launch_s(const sim_cost_context *context, sim_direction direction) {
  if (context->cuda_graphs) return 0;
  return context->implementation->issue_s_per_kernel[direction != SIM_FORWARD] * context->host_issue_factor;
}

void sim_cost_unit_by_curves(const sim_cost_context *context, const graph *model, int u, sim_unit_cost *cost) {
  const graph_unit *unit = &model->units.items[u];
  if (unit->fixed.present) {
    cost->device_s[SIM_FORWARD] = unit->fixed.forward_s;
    cost->device_s[SIM_BACKWARD_INPUT] = unit->fixed.backward_input_s;
    cost->device_s[SIM_BACKWARD_WEIGHT] = unit->fixed.backward_weight_s;
    return;
  }
  for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++) {
    const graph_op *op = &model->ops.items[o];
    for (int d = SIM_FORWARD; d <= SIM_BACKWARD_WEIGHT; d++) {
      const graph_work *work = work_of(op, (sim_direction)d);
      const double seconds = sim_cost_op_of(context, model, o, (sim_direction)d);
      cost->device_s[d] += seconds;
      if (d == SIM_BACKWARD_WEIGHT && context->implementation->gradient_share > 0)
        cost->first_s[d] += op_s(context, model, op, (sim_direction)d, true) - seconds;
      cost->class_s[d][work->op_class] += seconds;
      /* a kernel that is fused away is not launched either */
      if (seconds > 0) cost->issue_s[d] += work->kernels * sim_cost_launch_s(context, (sim_direction)d);
    }
  }
}

/* NULL: no work was measured, links at most. */
static const plan_profile *measured_work(const sim_cost_context *context) {
  return context->profile && plan_profile_has_work(context->profile) ? context->profile : NULL;
}

dp_status sim_cost_units(const sim_cost_context *context, const graph *model, sim_unit_cost *units, dp_error *error) {
  memset(units, 0, model->units.count * sizeof *units);
  if (measured_work(context)) return sim_cost_profile_units(context, model, units, error);
  for (size_t u = 0; u < model->units.count; u++) sim_cost_unit_by_curves(context, model, (int)u, &units[u]);
  return DP_OK;
}

/* NULL: there is none, or it says nothing of such devices. */
static const plan_profile_part *part_of(const sim_cost_context *context) {
  return context->profile ? plan_profile_find_part(context->profile, context->device->sm_count) : NULL;
}

double sim_cost_instruction_issue_s(const sim_cost_context *context) {
  const plan_profile_part *part = part_of(context);
  if (part) return part->issue_s;
  return context->implementation->issue_s_per_instruction * context->host_issue_factor;
}

double sim_cost_instruction_s(const sim_cost_context *context) {
  const plan_profile_part *part = part_of(context);
  if (part) return part->instruction_s;
  const plan_profile *profile = measured_work(context);
  return profile ? profile->instruction_s : context->implementation->instruction_s;
}

double sim_cost_forward_s(const sim_cost_context *context, bool feeds, bool has_loss) {
  const plan_profile_part *part = part_of(context);
  return part ? (feeds ? part->feed_s : 0) + (has_loss ? part->loss_s : 0) : 0;
}

double sim_cost_norm_s(const sim_cost_context *context, int64_t parameters) {
  const plan_profile_part *part = part_of(context);
  if (part) return part->norm_s_per_parameter * (double)parameters;
  return sim_cost_own_norm_s(context, parameters);
}

double sim_cost_own_norm_s(const sim_cost_context *context, int64_t parameters) {
  const plan_profile *profile = measured_work(context);
  return profile && profile->parts.count == 0 ? profile->norm_s_per_parameter * (double)parameters : 0;
}

/* Of a GPU only where its very part was measured. */
static bool is_measured(const sim_cost_context *context, plan_optimizer optimizer) {
  const plan_profile *profile = measured_work(context);
  return profile && optimizer == PLAN_ADAMW && (profile->parts.count == 0 || part_of(context));
}

static double measured_optimizer_s(const sim_cost_context *context, int64_t parameters) {
  const plan_profile_part *part = part_of(context);
  const plan_profile *profile = context->profile;
  return part ? part->optimizer_s + part->optimizer_s_per_parameter * (double)parameters
              : profile->optimizer_s + profile->optimizer_s_per_parameter * (double)parameters;
}

/* Of the memory's bandwidth, while no other part of the card computes. */
static double bandwidth_share(const sim_cost_context *context) {
  const double share = context->device->compute_share;
  return context->device->parts > 1 ? fmin(1, share * context->efficiency->partition_bandwidth) : share;
}

double sim_cost_optimizer_crowd(const sim_cost_context *context) {
  const plan_profile_part *part = part_of(context);
  if (plan_device_is_processor(context->device->model)) return 1;
  if (part) return part->optimizer_busy_factor;
  return context->device->parts > 1 ? fmax(1, bandwidth_share(context) * context->device->parts) : 1;
}

double sim_cost_optimizer_busy_s(const sim_cost_context *context, plan_optimizer optimizer, bool gradient_fp32,
                                 int64_t parameters) {
  if (!is_measured(context, optimizer))
    return sim_cost_optimizer(context, optimizer, gradient_fp32, parameters) * (sim_cost_optimizer_crowd(context) - 1);
  const plan_profile_part *part = part_of(context);
  const double factor = part ? part->optimizer_busy_factor : context->profile->optimizer_busy_factor;
  return measured_optimizer_s(context, parameters) * (factor - 1);
}

double sim_cost_optimizer(const sim_cost_context *context, plan_optimizer optimizer, bool gradient_fp32,
                          int64_t parameters) {
  /* bytes of optimizer state read and written per parameter; plus fp32 master read and written where the model is not:
   * in two halves, one of which is the weight, or whole, and the weight is written beside it */
  static const double state_bytes[] = {
      [PLAN_ADAMW] = 16, [PLAN_ADAMW_8BIT] = 4, [PLAN_ADAFACTOR] = 0.1, [PLAN_SGD] = 8};
  if (is_measured(context, optimizer)) {
    const plan_profile_part *part = part_of(context);
    return (part ? part->step_s : context->profile->step_s) + measured_optimizer_s(context, parameters);
  }
  const double width = (double)graph_dtype_bytes(context->precision);
  const bool split = context->implementation->splits_masters && context->precision == GRAPH_BF16;
  const double parameter_bytes = context->precision == GRAPH_FP32 || split ? 8 : 8 + width;
  const double bytes = state_bytes[optimizer] + parameter_bytes + (gradient_fp32 ? 4 : width);
  const double bandwidth = context->device->model->memory_bandwidth_bytes_per_s * bandwidth_share(context);
  return (double)parameters * bytes / (bandwidth * context->implementation->optimizer_efficiency);
}

double sim_cost_compress(const sim_cost_context *context, int64_t tensor_bytes, int64_t samples, int64_t k) {
  const double bytes =
      (double)tensor_bytes + (double)samples * (double)k * (double)graph_dtype_bytes(context->precision);
  return traffic_s(context, bytes, 0);
}

int64_t sim_cost_runtime_bytes(const sim_cost_context *context, int peers, int sharers) {
  const sim_implementation *implementation = context->implementation;
  const plan_profile_part *part = part_of(context);
  const bool processor = plan_device_is_processor(context->device->model);
  const int parts = context->device->parts;
  /* parts of a card exchange data without communicators */
  const double communicators = (parts > 1 ? 0 : peers) * implementation->communicator_bytes;
  /* a processor's part says what a run's workers had of their process, which is another share with more or fewer */
  if (part && !processor) return part->runtime_bytes + (int64_t)communicators;
  /* GPUs of a process have a context each, which the parts of one share */
  return (int64_t)(implementation->context_bytes + implementation->process_bytes / (processor ? sharers : parts) +
                   communicators);
}

int64_t sim_cost_workspace_bytes(const sim_cost_context *context) {
  return (int64_t)context->implementation->workspace_bytes;
}

double sim_cost_source_band(const sim_cost_context *context, plan_source source) {
  const plan_profile *profile = measured_work(context);
  /* what is interpolated beside whole units is by the curves, if corrected */
  if (!profile || source == PLAN_SOURCE_ANALYTIC || (source == PLAN_SOURCE_INTERPOLATED && profile->units.count))
    return sim_cost_error_band(context);
  const double measured = hypot(context->efficiency->band_measured, profile->repeat_error);
  return source == PLAN_SOURCE_MEASURED ? measured : hypot(measured, profile->held_out_error);
}

plan_memory_options sim_cost_memory_options(const sim_cost_context *context, int peers, int sharers) {
  const bool unfused = !context->implementation->fuses;
  const plan_library_workspace library = context->implementation->library_workspace;
  return (plan_memory_options){.runtime_bytes = sim_cost_runtime_bytes(context, peers, sharers),
                               .workspace_bytes = library ? 0 : sim_cost_workspace_bytes(context),
                               .library_workspace = library,
                               .threads = (int)context->device->sm_count,
                               .unfused = unfused,
                               .splits_masters = context->implementation->splits_masters,
                               .overwrites = context->implementation->overwrites_gradients};
}

/* `reference`: of the curves' architecture. */
static double device_band(const sim_efficiency *efficiency, const plan_device_model *model, double reference) {
  const char *of_curves = efficiency->reference_architecture;
  const bool recalled = strcmp(model->recalled, "all specs") == 0 || strcmp(model->recalled, "all") == 0;
  return recalled                                                          ? efficiency->band_recalled
         : strncmp(model->architecture, of_curves, strlen(of_curves)) == 0 ? reference
                                                                           : efficiency->band_other;
}

double sim_efficiency_device_band(const sim_efficiency *efficiency, const plan_device_model *model) {
  return device_band(efficiency, model, efficiency->band_reference);
}

double sim_cost_error_band(const sim_cost_context *context) {
  const sim_efficiency *efficiency = context->efficiency;
  const double own = context->implementation->error_band;
  const double device = device_band(efficiency, context->device->model, own > 0 ? own : efficiency->band_reference);
  return hypot(device, context->implementation->measured ? 0 : efficiency->band_unmeasured);
}
