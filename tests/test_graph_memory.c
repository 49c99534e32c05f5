/* Liveness: cuts, consumers, saved bytes and transients, against brute force from the ops and against arithmetic by
 * hand. */
#include "base/random.h"
#include "tests/graph_helpers.h"

enum { MODEL_COUNT = 6 };

static graph build_case(int i, graph_trainable trainable) {
  const char *const models[MODEL_COUNT] = {"sd15_unet", "sd3_medium", "flux_schnell",
                                           small_unet,  small_sd3,    small_flux};
  const int64_t sides[MODEL_COUNT] = {256, 256, 256, 256, 256, 256};
  graph_model_options options = options_of(2, sides[i], 20);
  options.trainable = trainable;
  return build_model(models[i], &options);
}

static bool reads(const graph_op *op, int tensor) {
  for (int i = 0; i < op->input_count; i++)
    if (op->inputs[i] == tensor) return true;
  return false;
}

static bool saves(const graph_op *op, int tensor) {
  for (int i = 0; i < op->saved_count; i++)
    if (op->saved[i] == tensor) return true;
  return false;
}

static bool makes(const graph_op *op, int tensor) {
  return op->output_count > 0 && tensor >= op->outputs[0] && tensor < op->outputs[0] + op->output_count;
}

START_TEST(cuts_are_what_ops_read_across) {
  graph g = build_case(_i, GRAPH_TRAIN_FULL);
  int *ids = calloc(g.tensors.count, sizeof *ids);
  uint8_t *made = calloc(g.tensors.count, 1), *read = calloc(g.tensors.count, 1);
  for (int cut = 0; cut <= (int)g.units.count; cut++) {
    memset(made, 0, g.tensors.count);
    memset(read, 0, g.tensors.count);
    for (size_t o = 0; o < g.ops.count; o++) {
      const graph_op *op = &g.ops.items[o];
      for (int i = 0; i < op->output_count && op->unit < cut; i++) made[op->outputs[i]] = 1;
      for (int i = 0; i < op->input_count && op->unit >= cut; i++) read[op->inputs[i]] = 1;
    }
    const int count = graph_cut_tensors(&g, cut, ids);
    int expected = 0;
    for (size_t t = 0; t < g.tensors.count; t++) {
      if (!made[t] || !read[t]) continue;
      ck_assert_int_lt(expected, count);
      ck_assert_int_eq(ids[expected++], (int)t);
    }
    ck_assert_int_eq(count, expected);
    if (cut > 0 && cut < (int)g.units.count) ck_assert_int_gt(count, 0);
  }
  free(ids);
  free(made);
  free(read);
  graph_free(&g);
}
END_TEST

START_TEST(consumers_and_skips_follow_from_ops) {
  graph g = build_case(_i, GRAPH_TRAIN_FULL);
  for (size_t t = 0; t < g.tensors.count; t++) {
    const graph_tensor *tensor = &g.tensors.items[t];
    int consumer = 0, saver = 0, ops = 0;
    bool skip = false;
    for (size_t u = 0; u < g.units.count; u++) {
      const graph_unit *unit = &g.units.items[u];
      bool read = false, saved = false;
      for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++) {
        ops += reads(&g.ops.items[o], (int)t);
        read = read || reads(&g.ops.items[o], (int)t);
        saved = saved || saves(&g.ops.items[o], (int)t);
      }
      if (read) ck_assert_int_eq(tensor->consumer_units[consumer++], (int)u);
      if (saved) ck_assert_int_eq(tensor->saver_units[saver++], (int)u);
      if (read && tensor->producer_unit != GRAPH_NONE && (int)u > tensor->producer_unit + 1) skip = true;
    }
    ck_assert_int_eq(tensor->consumer_unit_count, consumer);
    ck_assert_int_eq(tensor->saver_unit_count, saver);
    ck_assert_int_eq(tensor->consumer_op_count, ops);
    ck_assert_int_eq(graph_tensor_is_skip(&g, (int)t), skip);
  }
  graph_free(&g);
}
END_TEST

/* The definition, tensor by tensor: what an unflagged unit of the range saves, and what a flagged one reads from
 * elsewhere. */
static int64_t brute_saved_bytes(const graph *g, int first, int count, const uint8_t *recompute, int64_t *received) {
  uint8_t *kept = calloc(g->tensors.count, 1);
  int64_t total = 0;
  *received = 0;
  for (size_t o = 0; o < g->ops.count; o++) {
    const graph_op *op = &g->ops.items[o];
    if (op->unit < first || op->unit >= first + count) continue;
    if (!recompute[op->unit]) {
      for (int i = 0; i < op->saved_count; i++) kept[op->saved[i]] = 1;
      total += op->saved_extra_bytes;
    } else {
      for (int i = 0; i < op->input_count; i++)
        if (g->tensors.items[op->inputs[i]].producer_unit != op->unit) kept[op->inputs[i]] = 1;
    }
  }
  for (size_t t = 0; t < g->tensors.count; t++) {
    const graph_tensor *tensor = &g->tensors.items[t];
    if (!kept[t] || tensor->is_constant) continue;
    total += tensor->bytes;
    if (tensor->producer_unit != GRAPH_NONE &&
        (tensor->producer_unit < first || tensor->producer_unit >= first + count))
      *received += tensor->bytes;
  }
  free(kept);
  return total;
}

START_TEST(saved_bytes_count_every_tensor_once) {
  graph g = build_case(_i, _i % 2 ? GRAPH_TRAIN_LORA : GRAPH_TRAIN_FULL);
  const int units = (int)g.units.count;
  uint8_t *recompute = calloc((size_t)units, 1);
  dp_random random;
  dp_random_init(&random, 7, (uint64_t)_i);
  for (int trial = 0; trial < 300; trial++) {
    const int first = (int)dp_random_below(&random, (uint64_t)units);
    const int count = 1 + (int)dp_random_below(&random, (uint64_t)(units - first));
    const bool flags = trial % 3 != 0;
    for (int u = 0; u < units; u++) recompute[u] = flags && dp_random_below(&random, 2) == 1;
    int64_t expected_received, received = -1;
    const int64_t expected = brute_saved_bytes(&g, first, count, recompute, &expected_received);
    ck_assert_int_eq(graph_saved_bytes(&g, first, count, flags ? recompute : NULL, &received), expected);
    ck_assert_int_eq(received, expected_received);
    int64_t sum = 0; /* a shared tensor is kept once, so a range never keeps more than its units apart */
    for (int u = first; u < first + count; u++) sum += graph_saved_bytes(&g, u, 1, flags ? recompute : NULL, NULL);
    ck_assert_int_le(expected, sum);
  }
  memset(recompute, 1, (size_t)units);
  for (int u = 0; u < units; u++) {
    ck_assert_int_eq(graph_saved_bytes(&g, u, 1, NULL, NULL), g.units.items[u].saved_bytes);
    ck_assert_int_eq(graph_saved_bytes(&g, u, 1, recompute, NULL), g.units.items[u].input_bytes);
  }
  ck_assert_int_eq(graph_saved_bytes(&g, 0, units, NULL, NULL), g.saved_bytes);
  ck_assert_int_lt(graph_saved_bytes(&g, 0, units, recompute, NULL), g.saved_bytes);
  free(recompute);
  graph_free(&g);
}
END_TEST

START_TEST(outputs_and_inputs_of_units) {
  graph g = build_case(_i, GRAPH_TRAIN_FULL);
  for (size_t u = 0; u < g.units.count; u++) {
    int64_t output = 0, input = 0;
    for (size_t t = 0; t < g.tensors.count; t++) {
      const graph_tensor *tensor = &g.tensors.items[t];
      bool later = tensor->is_output, here = false;
      for (size_t o = 0; o < g.ops.count; o++) {
        if (!reads(&g.ops.items[o], (int)t)) continue;
        later = later || g.ops.items[o].unit > (int)u;
        here = here || g.ops.items[o].unit == (int)u;
      }
      if (tensor->producer_unit == (int)u && later) output += tensor->bytes;
      if (tensor->producer_unit != (int)u && here && !tensor->is_constant) input += tensor->bytes;
    }
    ck_assert_int_eq(g.units.items[u].output_bytes, output);
    ck_assert_int_eq(g.units.items[u].input_bytes, input);
  }
  graph_free(&g);
}
END_TEST

static int memory_of(const graph *g, int tensor, int first, int last) { /* looks through views made in the range */
  while (g->tensors.items[tensor].view_of != GRAPH_NONE && g->tensors.items[tensor].producer_unit >= first &&
         g->tensors.items[tensor].producer_unit < last)
    tensor = g->tensors.items[tensor].view_of;
  return tensor;
}

/* Bytes alive while each op of the range runs, by asking of every tensor whether it was made and is still read. */
static int64_t brute_forward_peak(const graph *g, int first, int count, bool training) {
  const int last = first + count;
  const int op_first = g->units.items[first].first_op;
  const int op_last = g->units.items[last - 1].first_op + g->units.items[last - 1].op_count;
  int64_t peak = 0;
  int *end = calloc(g->tensors.count, sizeof *end);
  uint8_t *excluded = calloc(g->tensors.count, 1);
  for (size_t t = 0; t < g->tensors.count; t++) end[t] = g->tensors.items[t].producer_op;
  for (size_t o = 0; o < g->ops.count; o++) {
    const graph_op *op = &g->ops.items[o];
    for (int i = 0; i < op->input_count; i++) {
      const int t = memory_of(g, op->inputs[i], first, last);
      end[t] = (int)o;
      if (op->unit >= last) excluded[t] = excluded[op->inputs[i]] = 1;
    }
    for (int i = 0; i < op->saved_count && training && op->unit >= first && op->unit < last; i++)
      excluded[op->saved[i]] = 1;
  }
  for (size_t t = 0; t < g->tensors.count; t++) {
    const graph_tensor *tensor = &g->tensors.items[t];
    if (tensor->view_of != GRAPH_NONE || tensor->is_output) excluded[t] = 1;
    if (tensor->is_output) excluded[memory_of(g, (int)t, first, last)] = 1;
    /* never written: made and read by one fused kernel */
    if (tensor->producer_op != GRAPH_NONE && tensor->consumer_op_count == 1 &&
        (size_t)tensor->producer_op + 1 < g->ops.count && g->ops.items[tensor->producer_op + 1].fused &&
        reads(&g->ops.items[tensor->producer_op + 1], (int)t))
      excluded[t] = 1;
  }
  for (int o = op_first; o < op_last; o++) {
    int64_t live = 0;
    for (size_t t = 0; t < g->tensors.count; t++)
      if (!excluded[t] && g->tensors.items[t].producer_op >= op_first && g->tensors.items[t].producer_op <= o &&
          end[t] >= o)
        live += g->tensors.items[t].bytes;
    if (live > peak) peak = live;
  }
  free(end);
  free(excluded);
  return peak;
}

START_TEST(forward_transients_are_what_is_alive) {
  graph g = build_case(_i, GRAPH_TRAIN_FULL);
  const int units = (int)g.units.count;
  dp_random random;
  dp_random_init(&random, 11, (uint64_t)_i);
  for (int trial = 0; trial < 25; trial++) {
    const int first = (int)dp_random_below(&random, (uint64_t)units);
    const int count = trial < 12 ? 1 : 1 + (int)dp_random_below(&random, (uint64_t)(units - first));
    graph_transients t;
    dp_error error = DP_ERROR_INIT;
    ck_assert_int_eq(graph_transient_bytes(&g, first, count, &t, &error), DP_OK);
    ck_assert_int_eq(t.forward_bytes, brute_forward_peak(&g, first, count, true));
    ck_assert_int_eq(t.inference_bytes, brute_forward_peak(&g, first, count, false));
    ck_assert_int_ge(t.inference_bytes, t.forward_bytes);
    for (int u = first; u < first + count; u++) { /* more units in a row never need less */
      ck_assert_int_ge(t.inference_bytes, count == 1 ? g.units.items[u].inference_transient_bytes : 0);
      ck_assert_int_ge(t.backward_bytes, count == 1 ? g.units.items[u].backward_transient_bytes : 0);
    }
  }
  graph_free(&g);
}
END_TEST

/* Gradients of a residual branch: y = x + linear2(gelu(linear1(x))), bf16, x [1, 4, 8] from another unit, 32 inner
 * values. */
START_TEST(backward_transients_by_hand) {
  graph g = {0};
  graph_builder *b = begin_by_hand(&g, GRAPH_BF16, GRAPH_TRAIN_FULL);
  const int ids = graph_build_scalars(b, "ids", 2, (const int64_t[]){1, 4});
  const int x =
      graph_build_op(b, GRAPH_TEXT_EMBEDDING, "x", &(graph_attributes){.in_channels = 9, .out_channels = 8}, &ids, 1);
  graph_build_unit(b, "branch");
  const int h = graph_build_op(b, GRAPH_LINEAR, "l1", &(graph_attributes){.in_channels = 8, .out_channels = 32}, &x, 1);
  const int a = graph_build_op(b, GRAPH_GELU, "gelu", NULL, &h, 1);
  const int k = graph_build_op(b, GRAPH_LINEAR, "l2", &(graph_attributes){.in_channels = 32, .out_channels = 8}, &a, 1);
  const int y = graph_build_op(b, GRAPH_ADD, "y", NULL, (const int[]){k, x}, 2);
  graph_build_output(b, y);
  finish_by_hand(b);
  const graph_unit *unit = &g.units.items[1];
  const int64_t small = 2 * 32, large = 2 * 128;
  ck_assert_int_eq(unit->saved_bytes, small + 2 * large); /* x, linear1's output for the GELU, the GELU's for linear2 */
  ck_assert_int_eq(unit->output_bytes, small);
  ck_assert_int_eq(unit->input_bytes, small);
  ck_assert_int_eq(unit->forward_transient_bytes, 0);
  /* linear1 and the GELU are one kernel, linear2 and the sum another: of all between only the GELU's output exists */
  ck_assert_int_eq(unit->inference_transient_bytes, large);
  /* dy, which becomes dx as linear1 adds to it, and the gradient of the GELU's output, which becomes its input's */
  ck_assert_int_eq(unit->backward_transient_bytes, small + large);
  ck_assert_int_eq(g.units.items[0].backward_transient_bytes, small); /* dx comes in */
  graph_transients all;
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(graph_transient_bytes(&g, 0, 2, &all, &error), DP_OK);
  ck_assert_int_eq(all.backward_bytes, small + large);
  ck_assert_int_eq(all.inference_bytes, small + large); /* x stays for the sum */
  graph_free(&g);
}
END_TEST

/* Frozen layers between adapters pass gradients on, and where none is needed none lives. */
START_TEST(backward_transients_follow_gradients) {
  graph full = build_case(_i, GRAPH_TRAIN_FULL), lora = build_case(_i, GRAPH_TRAIN_LORA),
        frozen = build_case(_i, GRAPH_TRAIN_FROZEN);
  for (size_t u = 0; u < full.units.count; u++) {
    ck_assert_int_gt(full.units.items[u].backward_transient_bytes, 0);
    ck_assert_int_le(lora.units.items[u].backward_transient_bytes, full.units.items[u].backward_transient_bytes);
    ck_assert_int_eq(frozen.units.items[u].backward_transient_bytes, 0);
    ck_assert_int_eq(frozen.units.items[u].inference_transient_bytes, full.units.items[u].inference_transient_bytes);
    ck_assert_int_eq(frozen.units.items[u].forward_transient_bytes, frozen.units.items[u].inference_transient_bytes);
    ck_assert_int_ge(full.units.items[u].backward_transient_bytes, full.units.items[u].output_bytes);
  }
  graph_free(&full);
  graph_free(&lora);
  graph_free(&frozen);
}
END_TEST

/* A view is never kept beside what it shows. */
START_TEST(saved_tensors_own_their_memory) {
  graph g = build_case(_i, GRAPH_TRAIN_FULL);
  for (size_t o = 0; o < g.ops.count; o++)
    for (int i = 0; i < g.ops.items[o].saved_count; i++) {
      const int t = g.ops.items[o].saved[i];
      ck_assert_int_eq(t, memory_of(&g, t, g.ops.items[o].unit, g.ops.items[o].unit + 1));
      ck_assert(!g.tensors.items[t].is_constant);
      ck_assert(!makes(&g.ops.items[o], t) || g.ops.items[o].kind == GRAPH_ATTENTION);
    }
  graph_free(&g);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("graph memory");
  TCase *memory = suite_case(suite, "memory", NULL, NULL, 120);
  tcase_add_loop_test(memory, cuts_are_what_ops_read_across, 0, MODEL_COUNT);
  tcase_add_loop_test(memory, consumers_and_skips_follow_from_ops, 0, MODEL_COUNT);
  tcase_add_loop_test(memory, saved_bytes_count_every_tensor_once, 0, MODEL_COUNT);
  tcase_add_loop_test(memory, outputs_and_inputs_of_units, 0, MODEL_COUNT);
  tcase_add_loop_test(memory, forward_transients_are_what_is_alive, 0, MODEL_COUNT);
  tcase_add_test(memory, backward_transients_by_hand);
  tcase_add_loop_test(memory, backward_transients_follow_gradients, 0, MODEL_COUNT);
  tcase_add_loop_test(memory, saved_tensors_own_their_memory, 0, MODEL_COUNT);
  return suite_finish(suite);
}
