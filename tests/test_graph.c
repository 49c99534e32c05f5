/* Models: published parameter and FLOP totals, diffusers' weights, unit lists, skips, LoRA, what is refused. */
#include "tests/graph_helpers.h"

/* Parameters and forward FLOPs: those of the published models confirmed with diffusers and PyTorch's FlopCounterMode.
 * backward_flops: the same counter's (tests/reference/flops.py), whose attention takes 4 products backward. */
static const struct {
  const char *name, *model;
  int64_t side, text_tokens, parameters, forward_flops, backward_flops;
} totals[] = {
    {"SD 1.5", "sd15_unet", 512, 77, 859520964, 803273441280, 1603499622400},
    {"SD 2.1", "sd21_unet", 768, 77, 865910724, 2149105745920, 4294062243840},
    {"SDXL", "sdxl_unet", 1024, 77, 2567463684, 6761236398080, 13469606051840},
    {"SD3 medium", "sd3_medium", 1024, 333, 2028328000, 8904337539072, 17803672584192},
    {"SD3.5 medium", "sd35_medium", 1024, 333, 2243171520, 11249573707776, 22494144921600},
    {"SD3.5 large", "sd35_large", 1024, 333, 8056627520, 31121114907648, 62234309199872},
    {"Flux dev", "flux_dev", 1024, 512, 11901408320, 74384653418496, 148754803458048},
    {"Flux schnell", "flux_schnell", 1024, 512, 11891178560, 74384632971264, 148754764136448},
    {"UNet by default", "{\"_class_name\":\"UNet2DConditionModel\"}", 512, 77, 872300484, 805241487360, 1605467668480},
    {"SD3 by default", "{\"_class_name\":\"SD3Transformer2DModel\"}", 1024, 333, 856159552, 4163192644608,
     8322633418752},
    {"Flux by default", "{\"_class_name\":\"FluxTransformer2DModel\"}", 512, 100, 11891178560, 15405663584256,
     30808401641472},
    {"SDXL refiner", NULL, 1024, 77, 2259526660, 7286010937344, 14550971056128},
    {"small UNet", NULL, 256, 11, 6093896, 4163798528, 8294543360},
    {"small UNet without mid block", NULL, 256, 11, 5916584, 4078842368, 8124631040},
    {"small SD3", NULL, 256, 9, 775872, 49807040, 98220160},
    {"small Flux", NULL, 256, 20, 244636, 90610944, 180715776},
};
enum { TOTAL_COUNT = sizeof totals / sizeof *totals, SMALL_FIRST = 11 };

static const char *model_of(int i) {
  const char *const small[] = {sdxl_refiner, small_unet, small_unet_without_mid, small_sd3, small_flux};
  return i < SMALL_FIRST ? totals[i].model : small[i - SMALL_FIRST];
}

START_TEST(totals_equal_the_published) {
  const graph_model_options options = options_of(1, totals[_i].side, totals[_i].text_tokens);
  graph g = build_model(model_of(_i), &options);
  int64_t backward = 0, parameters = 0, from_units = 0;
  for (size_t o = 0; o < g.ops.count; o++) {
    const graph_op *op = &g.ops.items[o];
    backward +=
        op->backward_weight.matrix_flops +
        (op->kind == GRAPH_ATTENTION ? op->backward_input.matrix_flops / 5 * 4 : op->backward_input.matrix_flops);
  }
  for (size_t w = 0; w < g.weights.count; w++) parameters += g.weights.items[w].parameters;
  for (size_t u = 0; u < g.units.count; u++) from_units += g.units.items[u].parameters;
  ck_assert_msg(g.parameters == totals[_i].parameters, "%s: %" PRId64, totals[_i].name, g.parameters);
  ck_assert_int_eq(parameters, g.parameters);
  ck_assert_int_eq(from_units, g.parameters);
  ck_assert_int_eq(g.trainable_parameters, g.parameters);
  ck_assert_msg(g.matrix_flops == totals[_i].forward_flops, "%s: %" PRId64, totals[_i].name, g.matrix_flops);
  ck_assert_msg(backward == totals[_i].backward_flops, "%s: %" PRId64, totals[_i].name, backward);
  graph_free(&g);
}
END_TEST

static int by_name(const void *a, const void *b) {
  return strcmp((*(const graph_weight *const *)a)->name, (*(const graph_weight *const *)b)->name);
}

/* The lines of one model in weights.txt: name and dimensions, sorted by name. */
static void compare_weights(const graph *g, const char *model, FILE *file, char *line, int size) {
  const graph_weight **sorted = calloc(g->weights.count, sizeof *sorted);
  for (size_t i = 0; i < g->weights.count; i++) sorted[i] = &g->weights.items[i];
  qsort(sorted, g->weights.count, sizeof *sorted, by_name);
  size_t i = 0;
  while (fgets(line, size, file) != NULL && strncmp(line, "MODEL ", 6) != 0) {
    char mine[512];
    ck_assert_msg(i < g->weights.count, "%s lacks %s", model, line);
    int length = snprintf(mine, sizeof mine, "%s", sorted[i]->name);
    for (int d = 0; d < sorted[i]->rank; d++)
      length += snprintf(mine + length, sizeof mine - (size_t)length, " %" PRId64, sorted[i]->dims[d]);
    line[strcspn(line, "\n")] = '\0';
    ck_assert_msg(strcmp(line, mine) == 0, "%s: made %s, diffusers has %s", model, mine, line);
    i++;
  }
  ck_assert_msg(i == g->weights.count, "%s makes %s, which diffusers has not", model,
                sorted[i < g->weights.count ? i : 0]->name);
  free(sorted);
}

START_TEST(weights_are_diffusers_own) {
  const char *source = getenv("SRCDIR");
  char command[4096], line[512], model[64];
  snprintf(command, sizeof command, "gzip -dc '%s/tests/reference/weights.txt.gz'", source != NULL ? source : ".");
  FILE *file = popen(command, "r");
  ck_assert_ptr_nonnull(file);
  ck_assert_msg(fgets(line, sizeof line, file) != NULL, "%s gave nothing", command);
  int models = 0;
  while (sscanf(line, "MODEL %63s", model) == 1) {
    const graph_model_options options = options_of(1, 0, 0);
    graph g = build_model(model, &options);
    line[0] = '\0';
    compare_weights(&g, model, file, line, sizeof line);
    graph_free(&g);
    models++;
  }
  ck_assert_int_eq(pclose(file), 0);
  ck_assert_int_eq(models, 8);
}
END_TEST

/* What a batch multiplies: FLOPs but for nothing, and bytes of all that is no constant. */
START_TEST(work_and_memory_are_linear_in_batch) {
  const graph_model_options one = options_of(1, totals[_i].side, totals[_i].text_tokens);
  const graph_model_options three = options_of(3, totals[_i].side, totals[_i].text_tokens);
  graph a = build_model(model_of(_i), &one), b = build_model(model_of(_i), &three);
  ck_assert_int_eq(a.ops.count, b.ops.count);
  ck_assert_int_eq(b.forward_flops, 3 * a.forward_flops);
  ck_assert_int_eq(b.matrix_flops, 3 * a.matrix_flops);
  ck_assert_int_eq(b.saved_bytes, 3 * a.saved_bytes);
  ck_assert_int_eq(b.latent_bytes, 3 * a.latent_bytes);
  ck_assert_int_eq(b.parameters, a.parameters);
  for (size_t t = 0; t < a.tensors.count; t++)
    ck_assert_int_eq(b.tensors.items[t].bytes, (a.tensors.items[t].is_constant ? 1 : 3) * a.tensors.items[t].bytes);
  for (size_t u = 0; u < a.units.count; u++) {
    ck_assert_int_eq(b.units.items[u].output_bytes, 3 * a.units.items[u].output_bytes);
    ck_assert_int_eq(b.units.items[u].input_bytes, 3 * a.units.items[u].input_bytes);
    ck_assert_int_eq(b.units.items[u].forward_transient_bytes, 3 * a.units.items[u].forward_transient_bytes);
    ck_assert_int_eq(b.units.items[u].backward_transient_bytes, 3 * a.units.items[u].backward_transient_bytes);
  }
  graph_free(&a);
  graph_free(&b);
}
END_TEST

/* What every reader of a graph may rely on. */
START_TEST(graphs_are_well_formed) {
  const graph_model_options options = options_of(2, totals[_i].side, totals[_i].text_tokens);
  graph g = build_model(model_of(_i), &options);
  int next_op = 0, outputs = 0, next_weight = 0;
  for (size_t u = 0; u < g.units.count; u++) {
    ck_assert_int_eq(g.units.items[u].first_op, next_op);
    ck_assert_int_gt(g.units.items[u].op_count, 0);
    for (; next_op < g.units.items[u].first_op + g.units.items[u].op_count; next_op++)
      ck_assert_int_eq(g.ops.items[next_op].unit, (int)u);
    for (size_t other = 0; other < u; other++) ck_assert_str_ne(g.units.items[other].name, g.units.items[u].name);
  }
  ck_assert_int_eq(next_op, (int)g.ops.count);
  for (size_t o = 0; o < g.ops.count; o++) {
    const graph_op *op = &g.ops.items[o];
    ck_assert_int_eq(op->first_weight, next_weight);
    next_weight += op->weight_count;
    for (int i = 0; i < op->input_count; i++) ck_assert_int_lt(g.tensors.items[op->inputs[i]].producer_op, (int)o);
    for (int i = 0; i < op->output_count; i++) {
      ck_assert_int_eq(g.tensors.items[op->outputs[i]].producer_op, (int)o);
      ck_assert_int_eq(g.tensors.items[op->outputs[i]].producer_unit, op->unit);
      ck_assert_int_eq(op->outputs[i], op->outputs[0] + i);
    }
  }
  ck_assert_int_eq(next_weight, (int)g.weights.count);
  for (size_t t = 0; t < g.tensors.count; t++) {
    const graph_tensor *tensor = &g.tensors.items[t];
    int64_t bytes = graph_dtype_bytes(tensor->dtype);
    for (int d = 0; d < tensor->rank; d++) bytes *= tensor->dims[d];
    ck_assert_int_eq(tensor->bytes, bytes);
    outputs += tensor->is_output;
    /* no dead ends: all that is made is read, but for pieces of a split and the output */
    if (!tensor->is_output && tensor->view_of == GRAPH_NONE)
      ck_assert_msg(tensor->consumer_op_count > 0, "%s", tensor->name);
    for (int i = 1; i < tensor->consumer_unit_count; i++)
      ck_assert_int_lt(tensor->consumer_units[i - 1], tensor->consumer_units[i]);
    /* views stay within their unit, so no memory is counted twice at a cut */
    if (tensor->view_of != GRAPH_NONE && tensor->consumer_unit_count > 0)
      ck_assert_int_eq(tensor->consumer_units[tensor->consumer_unit_count - 1], tensor->producer_unit);
  }
  ck_assert_int_eq(outputs, 1);
  graph_free(&g);
}
END_TEST

static const char *const sd15_units[] = {"conv_in",
                                         "down_blocks.0.resnets.0",
                                         "down_blocks.0.attentions.0.transformer_blocks.0",
                                         "down_blocks.0.resnets.1",
                                         "down_blocks.0.attentions.1.transformer_blocks.0",
                                         "down_blocks.0.downsamplers.0",
                                         "down_blocks.1.resnets.0"};

START_TEST(units_are_named_after_modules) {
  const graph_model_options options = options_of(1, 0, 0);
  graph g = build_model("sd15_unet", &options);
  for (size_t u = 0; u < sizeof sd15_units / sizeof *sd15_units; u++)
    ck_assert_str_eq(g.units.items[u].name, sd15_units[u]);
  /* 3 levels of 2 resnets, 2 transformer blocks, a down-sampler; 2 resnets; 2 + 1; 3 resnets and an up-sampler; 2
   * levels of 3 + 3 + 1; 3 + 3; first and last */
  ck_assert_int_eq((int)g.units.count, 3 * 5 + 2 + 3 + 4 + 2 * 7 + 6 + 2);
  graph_free(&g);
  g = build_model("sdxl_unet", &options);
  ck_assert_int_eq((int)g.units.count,
                   1 + 3 + (2 + 2 * 2 + 1) + (2 + 2 * 10) + (2 + 10) + (3 + 3 * 10 + 1) + (3 + 3 * 2 + 1) + 3 + 1);
  ck_assert_str_eq(g.units.items[g.units.count - 1].name, "conv_out");
  graph_free(&g);
  g = build_model("flux_dev", &options);
  ck_assert_int_eq((int)g.units.count, 1 + 19 + 38 + 1);
  ck_assert_str_eq(g.units.items[20].name, "single_transformer_blocks.0");
  graph_free(&g);
}
END_TEST

START_TEST(skips_of_sd15_mirror_the_down_path) {
  const graph_model_options options = options_of(1, 512, 77);
  graph g = build_model("sd15_unet", &options);
  /* diffusers' down_block_res_samples, last first, and who takes them */
  static const struct {
    const char *from, *to;
    int64_t channels, side;
  } expected[] = {
      {"down_blocks.3.resnets.1.output", "up_blocks.0.resnets.0", 1280, 8},
      {"down_blocks.3.resnets.0.output", "up_blocks.0.resnets.1", 1280, 8},
      {"down_blocks.2.downsamplers.0.conv.output", "up_blocks.0.resnets.2", 1280, 8},
      {"down_blocks.2.attentions.1.output", "up_blocks.1.resnets.0", 1280, 16},
      {"down_blocks.2.attentions.0.output", "up_blocks.1.resnets.1", 1280, 16},
      {"down_blocks.1.downsamplers.0.conv.output", "up_blocks.1.resnets.2", 640, 16},
      {"down_blocks.1.attentions.1.output", "up_blocks.2.resnets.0", 640, 32},
      {"down_blocks.1.attentions.0.output", "up_blocks.2.resnets.1", 640, 32},
      {"down_blocks.0.downsamplers.0.conv.output", "up_blocks.2.resnets.2", 320, 32},
      {"down_blocks.0.attentions.1.output", "up_blocks.3.resnets.0", 320, 64},
      {"down_blocks.0.attentions.0.output", "up_blocks.3.resnets.1", 320, 64},
      {"conv_in.output", "up_blocks.3.resnets.2", 320, 64},
  };
  enum { EXPECTED = sizeof expected / sizeof *expected };
  int64_t bytes = 0;
  for (int i = 0; i < EXPECTED; i++) {
    const int id = find_tensor(&g, expected[i].from);
    ck_assert_msg(id != GRAPH_NONE, "no %s", expected[i].from);
    const graph_tensor *t = &g.tensors.items[id];
    ck_assert(graph_tensor_is_skip(&g, id));
    ck_assert_int_eq(t->consumer_units[t->consumer_unit_count - 1], find_unit(&g, expected[i].to));
    ck_assert_int_eq(t->rank, 4);
    ck_assert_int_eq(t->dims[1], expected[i].channels);
    ck_assert_int_eq(t->dims[2], expected[i].side);
    bytes += t->bytes;
  }
  /* the only other one is the time embedding, which every resnet reads */
  int skips = 0;
  for (size_t t = 0; t < g.tensors.count; t++) skips += graph_tensor_is_skip(&g, (int)t);
  ck_assert_int_eq(skips, EXPECTED + 1);
  ck_assert(graph_tensor_is_skip(&g, find_tensor(&g, "time_embedding.linear_2.output")));
  /* 2 bytes x (3 x 320 x 64^2 + (320 + 2 x 640) x 32^2 + (640 + 2 x 1280) x 16^2 + 3 x 1280 x 8^2) */
  ck_assert_int_eq(bytes, 2 * (3 * 320 * 4096 + 1600 * 1024 + 3200 * 256 + 3840 * 64));
  graph_free(&g);
}
END_TEST

START_TEST(shapes_of_sdxl) {
  const graph_model_options options = options_of(2, 1024, 77);
  graph g = build_model("sdxl_unet", &options);
  static const struct {
    const char *name;
    int rank;
    int64_t dims[4];
  } expected[] = {
      {"sample", 4, {2, 4, 128, 128}},
      {"encoder_hidden_states", 3, {2, 77, 2048}},
      {"text_embeds", 2, {2, 1280}},
      {"add_time_proj.output", 2, {2, 6 * 256}},
      {"conv_in.output", 4, {2, 320, 128, 128}},
      {"down_blocks.2.attentions.0.transformer_blocks.9.output", 3, {2, 1024, 1280}},
      {"mid_block.resnets.1.output", 4, {2, 1280, 32, 32}},
      {"up_blocks.0.resnets.2.concat.output", 4, {2, 1920, 32, 32}},
      {"up_blocks.1.upsamplers.0.conv.output", 4, {2, 640, 128, 128}},
      {"up_blocks.2.resnets.0.concat.output", 4, {2, 960, 128, 128}},
      {"conv_out.output", 4, {2, 4, 128, 128}},
  };
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const int id = find_tensor(&g, expected[i].name);
    ck_assert_msg(id != GRAPH_NONE, "no %s", expected[i].name);
    ck_assert_int_eq(g.tensors.items[id].rank, expected[i].rank);
    for (int d = 0; d < expected[i].rank; d++) ck_assert_int_eq(g.tensors.items[id].dims[d], expected[i].dims[d]);
  }
  ck_assert_int_eq(g.latent_bytes, 2 * 2 * 4 * 128 * 128);
  graph_free(&g);
}
END_TEST

/* What the oracles say of traffic: SD3's block output is (4096 + 333) x 1536 values. */
START_TEST(cut_of_sd3_carries_both_kinds_of_tokens) {
  const graph_model_options options = options_of(1, 1024, 333);
  graph g = build_model("sd3_medium", &options);
  int *ids = calloc(g.tensors.count, sizeof *ids);
  const int count = graph_cut_tensors(&g, find_unit(&g, "transformer_blocks.12"), ids);
  int64_t bytes = 0;
  ck_assert_int_eq(count, 3); /* image, text, conditioning */
  for (int i = 0; i < count; i++) bytes += g.tensors.items[ids[i]].bytes;
  ck_assert_int_eq(bytes, 13605888 + 1536 * 2);
  free(ids);
  graph_free(&g);
}
END_TEST

START_TEST(lora_trains_only_adapters) {
  graph_model_options options = options_of(1, totals[_i].side, totals[_i].text_tokens);
  graph full = build_model(model_of(_i), &options);
  options.trainable = GRAPH_TRAIN_LORA;
  options.lora_rank = 8;
  graph lora = build_model(model_of(_i), &options);
  int64_t adapters = 0, extra = 0;
  int adapted = 0;
  for (size_t o = 0; o < lora.ops.count; o++) {
    const graph_op *op = &lora.ops.items[o], *whole = &full.ops.items[o];
    const int64_t in = op->attributes.in_channels, out = op->attributes.out_channels;
    const bool attention = op->kind == GRAPH_LINEAR &&
                           (strstr(op->name, ".to_") != NULL || strstr(op->name, ".add_") != NULL) &&
                           strstr(op->name, "attn") != NULL;
    ck_assert_int_eq(op->parameters, whole->parameters);
    ck_assert_msg((op->adapter_parameters > 0) == attention, "%s", op->name);
    if (!attention) {
      ck_assert_int_eq(op->backward_weight.kernels, 0);
      ck_assert_int_eq(op->backward_weight.flops, 0);
      continue;
    }
    const graph_tensor *y = &lora.tensors.items[op->outputs[0]];
    const int64_t rows = y->dims[0] * y->dims[1], more = 2 * rows * 8 * (in + out);
    ck_assert_int_eq(op->adapter_parameters, 8 * (in + out));
    ck_assert_int_eq(op->forward.matrix_flops, whole->forward.matrix_flops + more);
    const bool input_gradient = lora.tensors.items[op->inputs[0]].needs_gradient;
    ck_assert_int_eq(op->backward_input.matrix_flops, input_gradient ? whole->backward_input.matrix_flops + more : 0);
    /* dA and dB, and dy B' where backward_input does not make it */
    ck_assert_int_eq(op->backward_weight.matrix_flops, more + (input_gradient ? 0 : 2 * rows * 8 * out));
    ck_assert_int_eq(op->saved_extra_bytes, rows * 8 * 2);
    adapters += op->adapter_parameters;
    extra += more;
    adapted++;
  }
  ck_assert_int_gt(adapted, 0);
  ck_assert_int_eq(lora.parameters, full.parameters);
  ck_assert_int_eq(lora.trainable_parameters, adapters);
  ck_assert_int_eq(lora.matrix_flops, full.matrix_flops + extra);
  ck_assert_int_lt(lora.saved_bytes, full.saved_bytes);
  /* nothing lies upstream of the first adapter: no gradient, nothing kept */
  ck_assert_int_eq(lora.units.items[0].saved_bytes, 0);
  ck_assert_int_eq(lora.units.items[0].trainable_parameters, 0);
  for (size_t t = 0; t < lora.tensors.count; t++) {
    const graph_tensor *tensor = &lora.tensors.items[t];
    if (tensor->producer_unit <= 0) ck_assert(!tensor->needs_gradient);
    if (tensor->is_output) ck_assert(tensor->needs_gradient);
    ck_assert(full.tensors.items[t].needs_gradient || !tensor->needs_gradient);
  }
  graph_free(&full);
  graph_free(&lora);
}
END_TEST

START_TEST(frozen_models_have_no_backward) {
  graph_model_options options = options_of(1, totals[_i].side, totals[_i].text_tokens);
  options.trainable = GRAPH_TRAIN_FROZEN;
  graph g = build_model(model_of(_i), &options);
  for (size_t o = 0; o < g.ops.count; o++) {
    ck_assert_int_eq(g.ops.items[o].backward_input.kernels + g.ops.items[o].backward_weight.kernels, 0);
    ck_assert_int_eq(g.ops.items[o].saved_count, 0);
  }
  ck_assert_int_eq(g.saved_bytes, 0);
  ck_assert_int_eq(g.trainable_parameters, 0);
  ck_assert_int_eq(g.matrix_flops, totals[_i].forward_flops);
  graph_free(&g);
}
END_TEST

START_TEST(synthetic_units_cost_what_they_are_told) {
  const graph_synthetic_options options = {.units = 5,
                                           .batch = 3,
                                           .forward_s = 1e-3,
                                           .backward_s = 2.5e-3,
                                           .weight_backward_s = 1e-3,
                                           .boundary_bytes = 1001,
                                           .parameters = 7,
                                           .activation_bytes = 4000,
                                           .precision = GRAPH_BF16};
  graph g = {0};
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(graph_synthetic_build(&options, &g, &error), DP_OK);
  ck_assert_int_eq((int)g.units.count, 5);
  ck_assert_int_eq(g.parameters, 35);
  ck_assert_int_eq(g.trainable_parameters, 35);
  ck_assert_int_eq(g.saved_bytes, 5 * 12000);
  ck_assert_int_eq(graph_saved_bytes(&g, 1, 3, NULL, NULL), 3 * 12000);
  const uint8_t recompute[] = {0, 1, 0, 0, 0};
  int64_t received;
  ck_assert_int_eq(graph_saved_bytes(&g, 1, 2, recompute, &received), 12000 + 3003);
  ck_assert_int_eq(received, 3003);
  for (int u = 0; u < 5; u++) {
    const graph_fixed_cost *fixed = &g.units.items[u].fixed;
    ck_assert(fixed->present);
    ck_assert_double_eq_tol(fixed->forward_s, 3e-3, 1e-15);
    ck_assert_double_eq_tol(fixed->backward_input_s, 4.5e-3, 1e-15);
    ck_assert_double_eq_tol(fixed->backward_weight_s, 3e-3, 1e-15);
    ck_assert_int_eq(g.units.items[u].output_bytes, 3003);
    int ids[8];
    ck_assert_int_eq(graph_cut_tensors(&g, u, ids), u > 0);
    if (u > 0) ck_assert_int_eq(g.tensors.items[ids[0]].bytes, 3003);
    if (u > 0) ck_assert(g.tensors.items[ids[0]].needs_gradient);
  }
  graph_free(&g);
  graph_synthetic_options wrong = options;
  wrong.units = 0;
  ck_assert_int_eq(graph_synthetic_build(&wrong, &g, &error), DP_BAD_INPUT);
  wrong = options;
  wrong.weight_backward_s = 3e-3;
  ck_assert_int_eq(graph_synthetic_build(&wrong, &g, &error), DP_BAD_INPUT);
  wrong = options;
  wrong.activation_bytes = INT64_MAX / 4;
  ck_assert_int_eq(graph_synthetic_build(&wrong, &g, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(error.text, "must fit 64 bits"));
}
END_TEST

/* Each is refused as bad input, in one line that names the file, the line and what is allowed. */
#define UNET "{\"_class_name\":\"UNet2DConditionModel\",\"sample_size\":64,\n"
#define SD3 "{\"_class_name\":\"SD3Transformer2DModel\",\n"
#define FLUX "{\"_class_name\":\"FluxTransformer2DModel\",\n"
static const struct {
  const char *json, *error;
} refused[] = {
    {"{}",
     "model.json:1: _class_name is missing, must be UNet2DConditionModel, SD3Transformer2DModel or "
     "FluxTransformer2DModel"},
    {"{\n\"_class_name\": \"PixArt\"}", "model.json:2: _class_name is \"PixArt\", must be UNet2DConditionModel, "},
    {"{\"_class_name\": 7}", "model.json:1: _class_name is 7, must be "},
    {UNET "\"in_chanels\": 4}",
     "model.json:2: UNet2DConditionModel: unknown key \"in_chanels\", did you mean \"in_channels\"?"},
    {UNET "\"in_channels\": \"4\"}", "model.json:2: in_channels is \"4\", must be an integer from 1 to 1000000"},
    {UNET "\"in_channels\": -4}", "model.json:2: in_channels is -4, must be an integer from 1 to 1000000"},
    {UNET "\"in_channels\": 4.0}", "model.json:2: in_channels is 4"},
    {UNET "\"layers_per_block\": 100000}",
     "model.json:2: layers_per_block is 100000, must be an integer from 1 to 10000"},
    {UNET "\"layers_per_block\": [2, 2]}", "model.json:2: layers_per_block has 2 items, must have 4"},
    {UNET "\"layers_per_block\": 10000}", "model.json:1: the model has more than 131072 ops"},
    {UNET "\"class_embed_type\": \"timestep\"}", "model.json:2: class_embed_type is \"timestep\", must be null"},
    {UNET "\"num_class_embeds\": 1000}", "model.json:2: num_class_embeds is 1000, must be null"},
    {UNET "\"encoder_hid_dim_type\": \"text_proj\"}",
     "model.json:2: encoder_hid_dim_type is \"text_proj\", must be null"},
    {UNET "\"dual_cross_attention\": true}", "model.json:2: dual_cross_attention is true, must be false"},
    {UNET "\"only_cross_attention\": [true, true, true, false]}", "model.json:2: only_cross_attention is"},
    {UNET "\"resnet_time_scale_shift\": \"scale_shift\"}",
     "model.json:2: resnet_time_scale_shift is \"scale_shift\", must be default"},
    {UNET "\"act_fn\": \"gelu\"}", "model.json:2: act_fn is \"gelu\", must be silu or swish"},
    {UNET "\"dropout\": 0.1}", "model.json:2: dropout is 0.1, must be 0"},
    {UNET "\"norm_num_groups\": null}", "model.json:2: norm_num_groups is null, must be an integer"},
    {UNET "\"norm_num_groups\": 33}",
     "model.json:1: block_out_channels has 320, must be a multiple of norm_num_groups, 33"},
    {UNET "\"attention_head_dim\": 7}",
     "model.json:2: attention_head_dim says 7 heads, must divide the block's 320 channels"},
    {UNET "\"block_out_channels\": 320}", "model.json:2: block_out_channels must be a list of 4 integers"},
    {UNET "\"block_out_channels\": [320,\n640, 1280]}", "model.json:2: block_out_channels has 3 items, must have 4"},
    {UNET "\"block_out_channels\": [320,\n640, 0, 1280]}",
     "model.json:3: block_out_channels is 0, must be an integer from 1"},
    {UNET "\"down_block_types\": []}", "model.json:2: down_block_types has 0 items, must have 1 to 12"},
    {UNET "\"down_block_types\": \"DownBlock2D\"}",
     "model.json:2: down_block_types is \"DownBlock2D\", must be a list of strings"},
    {UNET "\"down_block_types\": [\"DownBlock2D\", \"AttnDownBlock2D\"]}",
     "model.json:2: down_block_types is \"AttnDownBlock2D\", must be DownBlock2D or CrossAttnDownBlock2D"},
    {UNET "\"up_block_types\": [\"UpBlock2D\"]}", "model.json:2: up_block_types has 1 items, must have 4"},
    {UNET "\"mid_block_type\": \"UNetMidBlock2DSimpleCrossAttn\"}",
     "model.json:2: mid_block_type is \"UNetMidBlock2DSimple"},
    {UNET "\"reverse_transformer_layers_per_block\": [1, 2, 10]}",
     "model.json:2: reverse_transformer_layers_per_block is"},
    {UNET "\"addition_embed_type\": \"text\"}", "model.json:2: addition_embed_type is \"text\", must be text_time"},
    {UNET "\"addition_embed_type\": \"text_time\"}", "model.json:2: addition_embed_type is text_time, which needs"},
    {UNET "\"addition_embed_type\": \"text_time\", \"addition_time_embed_dim\": "
          "256,\n\"projection_class_embeddings_input_dim\": 5}",
     "model.json:3: projection_class_embeddings_input_dim is 5, must exceed 6 times addition_time_embed_dim"},
    {UNET "\"cross_attention_dim\": [768, 768, 1024, 768]}",
     "to_k (linear): the input has 768 channels, must have 1024"},
    {UNET "\"conv_in_kernel\": 4}", "model.json:1: conv_in_kernel and conv_out_kernel must be odd"},
    {"{\"_class_name\":\"UNet2DConditionModel\"}",
     "model.json:1: height and width are not given and the file has no sample_size"},
    {SD3 "\"qk_norm\": \"layer_norm\"}", "model.json:2: qk_norm is \"layer_norm\", must be rms_norm"},
    {SD3 "\"caption_projection_dim\": 1000}",
     "model.json:2: caption_projection_dim is 1000, must be num_attention_heads times"},
    {SD3 "\"dual_attention_layers\": [0, 18]}",
     "model.json:2: dual_attention_layers has 18, must be below num_layers, 18"},
    {SD3 "\"pos_embed_max_size\": 32}",
     "model.json:2: height and width are up to 64 patches, must be at most pos_embed_max_size, 32"},
    {SD3 "\"num_attention_heads\": 65536,\n\"attention_head_dim\": 65536}",
     "model.json:1: num_attention_heads times attention_head_dim"},
    {SD3 "\"guidance_embeds\": true}", "model.json:2: SD3Transformer2DModel: unknown key \"guidance_embeds\""},
    {FLUX "\"axes_dims_rope\": [16, 56]}",
     "model.json:2: axes_dims_rope adds up to 72, must be a list that adds up to attention_head_dim, 128"},
    {FLUX "\"guidance_embeds\": 1}", "model.json:2: guidance_embeds is 1, must be true or false"},
    {FLUX "\"num_layers\": 0, \"num_single_layers\": 0}", "model.json:1: num_layers and num_single_layers are both 0"},
    {FLUX "\"num_layers\": 1e3}", "model.json:2: num_layers is 1000"},
};

START_TEST(bad_configs_are_refused_by_line) {
  const graph_model_options options = options_of(1, 0, 0);
  graph g = {0};
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(try_model(refused[_i].json, &options, &g, &error) == DP_BAD_INPUT, "%s", refused[_i].json);
  ck_assert_msg(strstr(error.text, refused[_i].error) != NULL, "%s: %s", refused[_i].json, error.text);
  ck_assert_ptr_null(strchr(error.text, '\n'));
  ck_assert_ptr_null(g.ops.items);
}
END_TEST

static const struct {
  const char *model;
  int64_t batch, height, width, frames, text_tokens;
  const char *error;
} absurd[] = {
    {"sdxl_unet", 1, 1000000000, 1024, 1, 77, "height is 1000000000, must be from 0 to 65536"},
    {"sdxl_unet", 1, 1024, 1024, 1, 1000000000, "text_tokens is 1000000000, must be from 0 to 1000000"},
    {"sdxl_unet", 0, 1024, 1024, 1, 77, "batch is 0, must be from 1 to 65536"},
    {"sdxl_unet", 1, -8, 1024, 1, 77, "height is -8, must be from 0 to 65536"},
    {"sdxl_unet", 1, 1024, 1000, 1, 77,
     "width is 1000, must be a multiple of 32 (8 pixels a latent, and 2 for each down-sampler)"},
    {"sd15_unet", 1, 1024, 1056, 1, 77, "width is 1056, must be a multiple of 64"},
    {"sdxl_unet", 1, 1024, 1024, 16, 77, "frames is 16, must be 1"},
    {"sd3_medium", 1, 1024, 1032, 1, 77, "width is 1032, must be a multiple of 16"},
    {"sd3_medium", 1, 4096, 1024, 1, 77, "are up to 256 patches, must be at most pos_embed_max_size, 192"},
    {"flux_dev", 1, 1000, 1024, 1, 77, "height is 1000, must be a multiple of 16"},
    /* within every limit, and yet more than 64 bits: scores of attention over (65536 / 16)^2 tokens */
    {"sdxl_unet", 65536, 65536, 65536, 1, 77, "more than 64 bits can count"},
    {"flux_dev", 65536, 65536, 65536, 1, 77, "more than 64 bits can count"},
};

START_TEST(absurd_sizes_are_refused) {
  graph_model_options options = options_of(absurd[_i].batch, absurd[_i].height, absurd[_i].text_tokens);
  options.width = absurd[_i].width;
  options.frames = absurd[_i].frames;
  graph g = {0};
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(try_model(absurd[_i].model, &options, &g, &error), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, absurd[_i].error) != NULL, "%s", error.text);
  ck_assert_ptr_nonnull(
      strstr(error.text, ".json:")); /* the model's file and the line of the key that sets the limit */
}
END_TEST

START_TEST(keys_of_diffusers_itself_are_passed_over) {
  const graph_model_options options = options_of(1, 0, 0);
  graph g = build_model(UNET "\"_diffusers_version\": \"0.6.0\", \"_name_or_path\": \"x\"}", &options);
  graph_free(&g);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("graph");
  TCase *models = suite_case(suite, "models", NULL, NULL, 60);
  TCase *errors = suite_case(suite, "errors", NULL, NULL, 0);
  tcase_add_loop_test(models, totals_equal_the_published, 0, TOTAL_COUNT);
  tcase_add_test(models, weights_are_diffusers_own);
  tcase_add_loop_test(models, work_and_memory_are_linear_in_batch, 0, TOTAL_COUNT);
  tcase_add_loop_test(models, graphs_are_well_formed, 0, TOTAL_COUNT);
  tcase_add_test(models, units_are_named_after_modules);
  tcase_add_test(models, skips_of_sd15_mirror_the_down_path);
  tcase_add_test(models, shapes_of_sdxl);
  tcase_add_test(models, cut_of_sd3_carries_both_kinds_of_tokens);
  tcase_add_loop_test(models, lora_trains_only_adapters, 0, TOTAL_COUNT);
  tcase_add_loop_test(models, frozen_models_have_no_backward, 0, TOTAL_COUNT);
  tcase_add_test(models, synthetic_units_cost_what_they_are_told);
  tcase_add_loop_test(errors, bad_configs_are_refused_by_line, 0, sizeof refused / sizeof *refused);
  tcase_add_loop_test(errors, absurd_sizes_are_refused, 0, sizeof absurd / sizeof *absurd);
  tcase_add_test(errors, keys_of_diffusers_itself_are_passed_over);
  return suite_finish(suite);
}
