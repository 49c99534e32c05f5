/* The cost model: curves, rooflines, the laws they obey, and the measured cells they came from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
  const sim_curve *own = sim_efficiency_curve(efficiency, cpu.implementation, GRAPH_CLASS_GEMM, 0, 0, 0);
  ck_assert_str_eq(own->implementation, "cpu");
  ck_assert_ptr_null(sim_efficiency_curve(efficiency, fused.implementation, GRAPH_CLASS_GEMM, 0, 0, 0)->implementation);
  ck_assert_ptr_null(
      sim_efficiency_curve(efficiency, cpu.implementation, GRAPH_CLASS_ATTENTION, 0, 1, 64)->implementation);
  const graph_op op = gemm(512, 512, 512);
  ck_assert_double_eq(sim_cost_op(&cpu, &op, SIM_FORWARD),
                      sim_curve_time_s(own, 2.0 * 512 * 512 * 512 / device.model->peak_flops_per_s[GRAPH_FP32]));
  ck_assert_double_eq(sim_cost_instruction_s(&fused), 0);
  ck_assert_double_gt(sim_cost_instruction_s(&cpu), 0);
  graph_op attention = {.kind = GRAPH_ATTENTION};
  attention.forward = (graph_work){
      .op_class = GRAPH_CLASS_ATTENTION, .matrix_flops = 1 << 24, .m = 256, .n = 17, .k = 16, .kernels = 1};
  const sim_curve *curve = sim_efficiency_curve(efficiency, cpu.implementation, GRAPH_CLASS_ATTENTION, 0, 0, 64);
  /* 17 keys to 20, heads of 16 to 32 */
  ck_assert_double_eq_tol(sim_cost_op(&cpu, &attention, SIM_FORWARD),
                          sim_curve_time_s(curve, (1 << 24) * 20.0 / 17 * 2 / device.model->peak_flops_per_s[0]),
                          1e-12);
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
  const TTest *const tests[] = {curve_hits_its_points_and_grows,          h200_products_near_measured,
                                thin_products_are_bound_by_memory,        parts_cost_more_than_their_share,
                                implementations_differ_where_they_should, an_implementation_has_curves_of_its_own,
                                unknown_implementation_lists_the_known,   optimizer_is_bound_by_its_bytes};
  return suite_run("sim_cost", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
