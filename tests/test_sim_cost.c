/* The cost model: curves, rooflines, the laws they obey, and the measured cells they came from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/build.h"
#include "sim/cost.h"
#include "sim/efficiency.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"

static plan_catalogue catalogue;

static void setup(void) {
  dp_error error = DP_ERROR_INIT;
  read_efficiency();
  ck_assert_msg(plan_catalogue_read(NULL, &catalogue, &error) == DP_OK, "%s", error.text);
}

static void teardown(void) {
  free_efficiency();
  plan_catalogue_free(&catalogue);
}

static plan_device device_of(const char *name, double share) {
  const plan_device_model *model = plan_catalogue_device(&catalogue, name);
  ck_assert_ptr_nonnull(model);
  return (plan_device){
      .name = name, .model = model, .memory_bytes = model->memory_bytes, .compute_share = share, .parts = 1};
}

static sim_cost_context context_of(const plan_device *device, const char *implementation) {
  sim_cost_context context = {
      .efficiency = efficiency, .device = device, .precision = GRAPH_BF16, .cuda_graphs = true, .host_issue_factor = 1};
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(
      sim_efficiency_implementation(efficiency, implementation, NULL, &context.implementation, &error) == DP_OK, "%s",
      error.text);
  return context;
}

static graph_op gemm(int64_t m, int64_t n, int64_t k) {
  graph_op op = {.kind = GRAPH_LINEAR};
  op.forward = (graph_work){.op_class = GRAPH_CLASS_GEMM,
                            .flops = 2 * m * n * k,
                            .matrix_flops = 2 * m * n * k,
                            .bytes_read = 2 * (m * k + n * k),
                            .bytes_written = 2 * m * n,
                            .batch = 1,
                            .m = m,
                            .n = n,
                            .k = k,
                            .kernels = 1};
  return op;
}

START_TEST(curve_hits_its_points_and_grows) {
  for (size_t i = 0; i < efficiency->curves.count; i++) {
    const sim_curve *curve = &efficiency->curves.items[i];
    for (int p = 0; p < curve->points; p++)
      ck_assert_double_eq_tol(sim_curve_time_s(curve, curve->ideal_s[p]), curve->ideal_s[p] / curve->share[p], 1e-15);
    double before = 0;
    for (double ideal = 1e-9; ideal < 1; ideal *= 1.07) { /* more work never takes less time */
      const double t = sim_curve_time_s(curve, ideal);
      ck_assert_msg(t >= before, "curve %zu at %g s: %g after %g", i, ideal, t, before);
      ck_assert(t >= ideal);
      before = t;
    }
  }
}
END_TEST

/* Cells of reports/measured/h200/op_rates.csv; the curve is a median over shapes, so single shapes lie around it. */
START_TEST(h200_products_near_measured) {
  static const struct {
    int64_t m, n, k;
    double measured_s;
  } cells[] = {{4096, 4096, 4096, 188.3e-6}, {4096, 10240, 1280, 150.2e-6}, {4096, 1280, 5120, 83.0e-6},
               {1024, 1280, 1280, 7.15e-6},  {4096, 640, 640, 7.73e-6},     {4096, 12288, 3072, 448.6e-6}};
  const plan_device device = device_of("H200-SXM-141GB", 1);
  const sim_cost_context context = context_of(&device, "fused");
  for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
    const graph_op op = gemm(cells[i].m, cells[i].n, cells[i].k);
    const double t = sim_cost_op(&context, &op, SIM_FORWARD);
    ck_assert_msg(fabs(t / cells[i].measured_s - 1) < 0.25, "%ldx%ldx%ld: %g us against %g", (long)cells[i].m,
                  (long)cells[i].n, (long)cells[i].k, t * 1e6, cells[i].measured_s * 1e6);
  }
}
END_TEST

START_TEST(thin_products_are_bound_by_memory) {
  const plan_device device = device_of("H200-SXM-141GB", 1);
  const sim_cost_context context = context_of(&device, "fused");
  const graph_op op = gemm(1, 16384, 16384);
  const double t = sim_cost_op(&context, &op, SIM_FORWARD);
  const double traffic_s = 2.0 * 16384 * 16384 / device.model->memory_bandwidth_bytes_per_s;
  ck_assert_double_gt(t, traffic_s);
  ck_assert_double_lt(t, 1.5 * traffic_s);
}
END_TEST

START_TEST(parts_cost_more_than_their_share) {
  const plan_device whole = device_of("H200-SXM-141GB", 1), part = device_of("H200-SXM-141GB", 32.0 / 132.0);
  const sim_cost_context a = context_of(&whole, "fused"), b = context_of(&part, "fused");
  const graph_op op = gemm(4096, 4096, 4096);
  const double ratio = sim_cost_op(&b, &op, SIM_FORWARD) / sim_cost_op(&a, &op, SIM_FORWARD);
  ck_assert_msg(fabs(ratio / 4.9 - 1) < 0.05, "32 of 132 SMs: %g times slower, measured 4.9", ratio);
}
END_TEST

/* An implementation whose algorithms are chosen on the very part has factors of its own, for half a card half way. */
START_TEST(parts_may_have_factors_of_their_own) {
  const plan_device whole = device_of("H200-SXM-141GB", 1), half = device_of("H200-SXM-141GB", 0.5),
                    part = device_of("H200-SXM-141GB", 0.2424), small = device_of("H200-SXM-141GB", 0.1212);
  const sim_cost_context on_whole = context_of(&whole, "cuda"), on_half = context_of(&half, "cuda"),
                         on_part = context_of(&part, "cuda"), on_small = context_of(&small, "cuda");
  const sim_partition *own = &on_whole.implementation->partition;
  ck_assert_int_eq(own->points, 2);
  ck_assert_int_eq(context_of(&whole, "fused").implementation->partition.points, 0);
  const double factor_gemm = own->factor[0][GRAPH_CLASS_GEMM][0], factor_memory = own->factor[0][GRAPH_CLASS_MEMORY][0];
  graph_op op = gemm(65536, 8192, 8192); /* as efficient as any on all of them */
  const double whole_s = sim_cost_op(&on_whole, &op, SIM_FORWARD);
  ck_assert_double_eq_tol(sim_cost_op(&on_part, &op, SIM_FORWARD) / whole_s, 1 / (0.2424 * factor_gemm), 0.01);
  ck_assert_double_eq_tol(sim_cost_op(&on_small, &op, SIM_FORWARD) / whole_s, 1 / (0.1212 * factor_gemm), 0.01);
  const double between = 1 + log(0.5) / log(own->share[0]) * (factor_gemm - 1);
  ck_assert_double_eq_tol(sim_cost_op(&on_half, &op, SIM_FORWARD) / whole_s, 1 / (0.5 * between), 0.01);
  op.forward.op_class = GRAPH_CLASS_MEMORY;
  op.forward.matrix_flops = 0;
  op.forward.bytes_read = INT64_C(1) << 36;
  ck_assert_double_eq_tol(sim_cost_op(&on_part, &op, SIM_FORWARD) / sim_cost_op(&on_whole, &op, SIM_FORWARD),
                          1 / (0.2424 * factor_memory), 0.01);
  op.forward.op_class = op.backward_input.op_class = GRAPH_CLASS_ATTENTION;
  op.forward.matrix_flops = INT64_C(1) << 46;
  op.forward.k = 64;
  op.backward_input = op.forward;
  ck_assert_double_eq_tol(sim_cost_op(&on_part, &op, SIM_BACKWARD_INPUT) / sim_cost_op(&on_part, &op, SIM_FORWARD),
                          sim_cost_op(&on_whole, &op, SIM_BACKWARD_INPUT) / sim_cost_op(&on_whole, &op, SIM_FORWARD) *
                              own->factor[0][GRAPH_CLASS_ATTENTION][0] / own->factor[1][GRAPH_CLASS_ATTENTION][0],
                          0.02);
}
END_TEST

/* Alone a part's optimizer has more of the memory's bandwidth than its share of the card; beside all others no more. */
START_TEST(optimizers_of_parts_share_memory) {
  plan_device whole = device_of("H200-SXM-141GB", 1), part = device_of("H200-SXM-141GB", 0.2424), half = part;
  part.parts = 4;
  half.parts = 2, half.compute_share = 0.4848;
  const sim_cost_context on_whole = context_of(&whole, "cuda"), on_part = context_of(&part, "cuda"),
                         on_half = context_of(&half, "cuda");
  const int64_t n = 1 << 28;
  const double whole_s = sim_cost_optimizer(&on_whole, PLAN_ADAMW, true, n);
  const double alone_s = sim_cost_optimizer(&on_part, PLAN_ADAMW, true, n);
  ck_assert_double_eq(sim_cost_optimizer_crowd(&on_whole), 1);
  ck_assert_double_eq(sim_cost_optimizer_busy_s(&on_whole, PLAN_ADAMW, true, n), 0);
  ck_assert_double_eq_tol(alone_s / whole_s, 1 / (0.2424 * efficiency->partition_bandwidth), 1e-9);
  /* AdamW on 32 of 132 SMs was seen to have 0.54 of the bandwidth */
  ck_assert_double_eq_tol(whole_s / alone_s, 0.54, 0.03);
  ck_assert_double_eq_tol((alone_s + sim_cost_optimizer_busy_s(&on_part, PLAN_ADAMW, true, n)) / whole_s, 4, 1e-9);
  ck_assert_double_eq_tol(sim_cost_optimizer(&on_half, PLAN_ADAMW, true, n), whole_s, 1e-12);
  ck_assert_double_eq_tol(sim_cost_optimizer_crowd(&on_half), 2, 1e-9);
}
END_TEST

/* y = x w of 1024 tokens, after a norm and a layer before it; with adapters on `count` of the two, or all trained. */
static void build_layer(graph *model, graph_trainable trainable, size_t count) {
  static const char *const targets[] = {"before", "layer"};
  const graph_model_options options = {.batch = 1,
                                       .height = 8,
                                       .width = 8,
                                       .frames = 1,
                                       .precision = GRAPH_BF16,
                                       .trainable = trainable,
                                       .lora_rank = 16,
                                       .lora_targets = targets,
                                       .lora_target_count = count};
  dp_error error = DP_ERROR_INIT;
  graph_builder *b = graph_build_begin(model, &options, NULL);
  ck_assert_ptr_nonnull(b);
  int x = graph_build_input(b, "latent", 3, (const int64_t[]){1, 1024, 1280});
  graph_build_latent(b, x);
  graph_build_unit(b, "unit");
  const graph_attributes linear = {.in_channels = 1280, .out_channels = 1280}, norm = {.affine = true, .epsilon = 1e-5};
  int before = graph_build_op(b, GRAPH_LINEAR, "before", &linear, &x, 1);
  int normed = graph_build_op(b, GRAPH_LAYER_NORM, "norm", &norm, &before, 1);
  graph_build_output(b, graph_build_op(b, GRAPH_LINEAR, "layer", &linear, &normed, 1));
  ck_assert_msg(graph_build_finish(b, &error) == DP_OK, "%s", error.text);
}

/* Two products of rank 16 each way, which are thin: they take what such products take, not what their FLOPs add to a large
 * one's; where they are fused that is all they take. */
START_TEST(adapters_are_products_of_their_own) {
  const plan_device device = device_of("H200-SXM-141GB", 1);
  const sim_cost_context cuda = context_of(&device, "cuda"), fused = context_of(&device, "fused");
  graph plain = {0}, adapted = {0};
  build_layer(&plain, GRAPH_TRAIN_FULL, 0);
  build_layer(&adapted, GRAPH_TRAIN_LORA, 2);
  const int o = (int)plain.ops.count - 1;
  ck_assert_int_eq(plain.ops.items[o].kind, GRAPH_LINEAR);
  ck_assert_int_eq(adapted.ops.items[o].adapter_parameters, 16 * (1280 + 1280));
  for (int d = SIM_FORWARD; d <= SIM_BACKWARD_INPUT; d++) {
    const double without = sim_cost_op_of(&cuda, &plain, o, (sim_direction)d);
    const double with = sim_cost_op_of(&cuda, &adapted, o, (sim_direction)d);
    /* 7.5 us forward and 9 for the input's gradient were measured on an H200, 9 for those of both factors */
    ck_assert_msg(with - without > 4e-6 && with - without < 11e-6, "%g us more", 1e6 * (with - without));
    const double merged = sim_cost_op_of(&fused, &adapted, o, (sim_direction)d);
    ck_assert_double_lt(merged - sim_cost_op_of(&fused, &plain, o, (sim_direction)d), 2e-6);
  }
  /* its own weights are frozen: nothing but the factors' gradients */
  const double factors_s = sim_cost_op_of(&cuda, &adapted, o, SIM_BACKWARD_WEIGHT);
  ck_assert_msg(factors_s > 4e-6 && factors_s < 13e-6, "%g us", 1e6 * factors_s);
  graph_free(&plain);
  graph_free(&adapted);
}
END_TEST

/* A norm's output is made again for the gradient of a layer's weights; where the layer is frozen nobody asks for it. */
START_TEST(what_nobody_reads_backward_is_not_made_again) {
  const plan_device device = device_of("H200-SXM-141GB", 1);
  const sim_cost_context cuda = context_of(&device, "cuda");
  graph trained = {0}, frozen = {0}, adapted = {0};
  build_layer(&trained, GRAPH_TRAIN_FULL, 0);
  build_layer(&adapted, GRAPH_TRAIN_LORA, 2);
  build_layer(&frozen, GRAPH_TRAIN_LORA, 1);
  const int norm = (int)trained.ops.count - 2;
  ck_assert_int_eq(trained.ops.items[norm].kind, GRAPH_LAYER_NORM);
  const double forward = cuda.implementation->kernel_share[0][GRAPH_LAYER_NORM],
               backward = cuda.implementation->kernel_share[1][GRAPH_LAYER_NORM];
  ck_assert_double_gt(backward, forward);
  const double again_s = sim_cost_op_of(&cuda, &adapted, norm, SIM_BACKWARD_INPUT);
  ck_assert_double_gt(again_s, 0);
  ck_assert_double_eq_tol(sim_cost_op_of(&cuda, &frozen, norm, SIM_BACKWARD_INPUT) / again_s, forward / backward, 1e-9);
  ck_assert_double_ge(sim_cost_op_of(&cuda, &trained, norm, SIM_BACKWARD_INPUT), again_s);
  graph_free(&trained);
  graph_free(&frozen);
  graph_free(&adapted);
}
END_TEST

START_TEST(implementations_differ_where_they_should) {
  const plan_device device = device_of("H200-SXM-141GB", 1);
  const sim_cost_context fused = context_of(&device, "fused"), eager = context_of(&device, "pytorch-eager");
  graph_op op = {.kind = GRAPH_GROUP_NORM};
  op.forward =
      (graph_work){.op_class = GRAPH_CLASS_MEMORY, .bytes_read = 83886080, .bytes_written = 83886080, .kernels = 1};
  ck_assert_double_gt(sim_cost_op(&eager, &op, SIM_FORWARD), 3 * sim_cost_op(&fused, &op, SIM_FORWARD));
  op.kind = GRAPH_SILU;
  ck_assert_double_eq(sim_cost_op(&fused, &op, SIM_FORWARD), 0);
  ck_assert_double_gt(sim_cost_op(&eager, &op, SIM_FORWARD), 0);
}
END_TEST

/* One of its own has only the curves that it names; what it does not pad costs less. */
START_TEST(an_implementation_has_curves_of_its_own) {
  const plan_device device = device_of("CPU-core", 1);
  sim_cost_context cpu = context_of(&device, "cpu"), fused = context_of(&device, "fused");
  cpu.precision = fused.precision = GRAPH_FP32;
  const sim_curve *own = sim_efficiency_curve(efficiency, cpu.implementation, GRAPH_CLASS_GEMM, 0, 0, 0, false);
  ck_assert_str_eq(own->implementation, "cpu");
  ck_assert_ptr_null(
      sim_efficiency_curve(efficiency, fused.implementation, GRAPH_CLASS_GEMM, 0, 0, 0, false)->implementation);
  ck_assert_ptr_null(
      sim_efficiency_curve(efficiency, cpu.implementation, GRAPH_CLASS_ATTENTION, 0, 1, 64, false)->implementation);
  const graph_op op = gemm(512, 512, 512);
  ck_assert_double_eq(sim_cost_op(&cpu, &op, SIM_FORWARD),
                      sim_curve_time_s(own, 2.0 * 512 * 512 * 512 / device.model->peak_flops_per_s[GRAPH_FP32]));
  ck_assert_double_eq(sim_cost_instruction_s(&fused), 0);
  ck_assert_double_gt(sim_cost_instruction_s(&cpu), 0);
  graph_op attention = {.kind = GRAPH_ATTENTION};
  attention.forward = (graph_work){
      .op_class = GRAPH_CLASS_ATTENTION, .matrix_flops = 1 << 24, .m = 256, .n = 17, .k = 16, .kernels = 1};
  const sim_curve *curve = sim_efficiency_curve(efficiency, cpu.implementation, GRAPH_CLASS_ATTENTION, 0, 0, 64, false);
  /* 17 keys to 20, heads of 16 to 32 */
  ck_assert_double_eq_tol(sim_cost_op(&cpu, &attention, SIM_FORWARD),
                          sim_curve_time_s(curve, (1 << 24) * 20.0 / 17 * 2 / device.model->peak_flops_per_s[0]),
                          1e-12);
}
END_TEST

/* A sum over keys in one order costs more than one in any, where the implementation has both, and only backward. */
START_TEST(sums_in_any_order_have_curves_of_their_own) {
  const plan_device device = device_of("H200-SXM-141GB", 1);
  sim_cost_context one = context_of(&device, "cuda"), any = one, eager = context_of(&device, "pytorch-eager");
  any.any_order = true;
  graph_op op = {.kind = GRAPH_ATTENTION};
  op.forward = op.backward_input = (graph_work){.op_class = GRAPH_CLASS_ATTENTION,
                                                .matrix_flops = INT64_C(1000000000000),
                                                .batch = 96,
                                                .m = 4096,
                                                .n = 4096,
                                                .k = 64,
                                                .kernels = 1};
  /* 380 and 230 TFLOP/s were measured */
  ck_assert_double_eq_tol(sim_cost_op(&any, &op, SIM_BACKWARD_INPUT), 1 / 0.380e3, 0.1 / 0.380e3);
  ck_assert_double_eq_tol(sim_cost_op(&one, &op, SIM_BACKWARD_INPUT), 1 / 0.230e3, 0.1 / 0.230e3);
  ck_assert_double_eq(sim_cost_op(&any, &op, SIM_FORWARD), sim_cost_op(&one, &op, SIM_FORWARD));
  const double before = sim_cost_op(&eager, &op, SIM_BACKWARD_INPUT);
  eager.any_order = true;
  ck_assert_double_eq(sim_cost_op(&eager, &op, SIM_BACKWARD_INPUT), before);
}
END_TEST

/* Of a thin product: its weights' gradients are read and written in fp32, in the first microbatch only written. */
START_TEST(gradients_of_weights_are_added_to) {
  const plan_device device = device_of("H200-SXM-141GB", 1);
  sim_cost_context context = context_of(&device, "cuda"), fused = context_of(&device, "fused");
  const int64_t weights = INT64_C(65536) * 65536;
  graph_op op = {.kind = GRAPH_LINEAR, .unit = 0};
  op.backward_weight = (graph_work){.op_class = GRAPH_CLASS_GEMM,
                                    .matrix_flops = 2 * weights,
                                    .bytes_written = 2 * weights,
                                    .batch = 1,
                                    .m = 65536,
                                    .n = 65536,
                                    .k = 1,
                                    .kernels = 1};
  graph model = {.ops = {.items = &op, .count = 1}};
  graph_unit unit = {.first_op = 0, .op_count = 1};
  model.units.items = &unit;
  model.units.count = 1;
  const double share = context.implementation->gradient_share,
               written_s = sim_cost_op(&fused, &op, SIM_BACKWARD_WEIGHT);
  ck_assert_double_gt(share, 0);
  ck_assert_double_eq(fused.implementation->gradient_share, 0);
  ck_assert_double_eq_tol(sim_cost_op(&context, &op, SIM_BACKWARD_WEIGHT), 2 * share * written_s, 1e-9);
  context.gradient_fp32 = true;
  ck_assert_double_eq_tol(sim_cost_op(&context, &op, SIM_BACKWARD_WEIGHT), 4 * share * written_s, 1e-9);
  sim_unit_cost cost = {.whole_s = 0}, other = {.whole_s = 0};
  sim_cost_unit_by_curves(&context, &model, 0, &cost);
  ck_assert_double_eq_tol(cost.first_s[SIM_BACKWARD_WEIGHT], -2 * share * written_s, 1e-9);
  sim_cost_unit_by_curves(&fused, &model, 0, &other);
  ck_assert_double_eq(other.first_s[SIM_BACKWARD_WEIGHT], 0);
}
END_TEST

/* What the graph has as a view, an executor that fuses nothing copies: there and back. */
START_TEST(who_fuses_nothing_copies_views) {
  const plan_device device = device_of("H200-SXM-141GB", 1);
  const sim_cost_context cuda = context_of(&device, "cuda"), fused = context_of(&device, "fused");
  dp_error error = DP_ERROR_INIT;
  graph model = {0};
  const graph_model_options options = {.batch = 4, .height = 8, .width = 8, .frames = 1, .precision = GRAPH_BF16};
  graph_builder *b = graph_build_begin(&model, &options, NULL);
  ck_assert_ptr_nonnull(b);
  int x = graph_build_input(b, "latent", 3, (const int64_t[]){4, 1024, 1536});
  graph_build_latent(b, x);
  graph_build_unit(b, "unit");
  const graph_attributes linear = {.in_channels = 1536, .out_channels = 1536}, tokens = {.axis = 1};
  const int pair[] = {graph_build_op(b, GRAPH_LINEAR, "image", &linear, &x, 1),
                      graph_build_op(b, GRAPH_LINEAR, "text", &linear, &x, 1)};
  graph_build_output(b, graph_build_op(b, GRAPH_CONCAT, "joint", &tokens, pair, 2));
  ck_assert_msg(graph_build_finish(b, &error) == DP_OK, "%s", error.text);
  const int o = (int)model.ops.count - 1;
  ck_assert_int_eq(model.ops.items[o].kind, GRAPH_CONCAT);
  ck_assert_double_gt(sim_cost_op_of(&cuda, &model, o, SIM_BACKWARD_INPUT), 0);
  ck_assert_double_eq(sim_cost_op_of(&cuda, &model, o, SIM_BACKWARD_INPUT),
                      sim_cost_op_of(&cuda, &model, o, SIM_FORWARD));
  ck_assert_double_eq(sim_cost_op_of(&fused, &model, o, SIM_BACKWARD_INPUT), 0);
  graph_free(&model);
}
END_TEST

/* Where it is known of an implementation, on the card of the curves; other cards are as uncertain as ever. */
START_TEST(an_implementation_has_an_error_of_its_own) {
  const plan_device card = device_of("H200-SXM-141GB", 1), other = device_of("A100-SXM4-80GB", 1);
  const sim_cost_context cuda = context_of(&card, "cuda"), eager = context_of(&card, "pytorch-eager"),
                         elsewhere = context_of(&other, "cuda");
  ck_assert_double_eq(sim_cost_error_band(&cuda), cuda.implementation->error_band);
  ck_assert_double_lt(sim_cost_error_band(&cuda), sim_cost_error_band(&eager));
  ck_assert_double_eq(sim_cost_error_band(&elsewhere), efficiency->band_other);
}
END_TEST

START_TEST(unknown_implementation_lists_the_known) {
  const sim_implementation *implementation = NULL;
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(sim_efficiency_implementation(efficiency, "magic", NULL, &implementation, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(error.text, "\"magic\""));
  ck_assert_ptr_nonnull(strstr(error.text, "fused, pytorch-eager, cuda, cpu"));
  ck_assert_ptr_null(implementation);
}
END_TEST

START_TEST(optimizer_is_bound_by_its_bytes) {
  const plan_device device = device_of("H200-SXM-141GB", 1);
  const sim_cost_context context = context_of(&device, "pytorch-eager");
  sim_cost_context fp32 = context;
  fp32.precision = GRAPH_FP32;
  /* fp32: weight, m, v read and written, gradient read: 28 bytes, as measured: 2.43 ms for 2^28 parameters */
  ck_assert_double_eq_tol(sim_cost_optimizer(&fp32, PLAN_ADAMW, true, 1 << 28), 2.43e-3, 0.1e-3);
  ck_assert_double_gt(sim_cost_optimizer(&context, PLAN_ADAMW, true, 1 << 20),
                      sim_cost_optimizer(&context, PLAN_ADAMW_8BIT, true, 1 << 20));
  ck_assert_double_eq(sim_cost_optimizer(&context, PLAN_ADAMW, true, 0), 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {curve_hits_its_points_and_grows,
                                h200_products_near_measured,
                                thin_products_are_bound_by_memory,
                                parts_cost_more_than_their_share,
                                parts_may_have_factors_of_their_own,
                                optimizers_of_parts_share_memory,
                                adapters_are_products_of_their_own,
                                what_nobody_reads_backward_is_not_made_again,
                                implementations_differ_where_they_should,
                                an_implementation_has_curves_of_its_own,
                                sums_in_any_order_have_curves_of_their_own,
                                gradients_of_weights_are_added_to,
                                who_fuses_nothing_copies_views,
                                an_implementation_has_an_error_of_its_own,
                                unknown_implementation_lists_the_known,
                                optimizer_is_bound_by_its_bytes};
  return suite_run("sim_cost", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
