/* Tensor parallelism: shares add up to the whole, what stays whole is whole, and the collectives are those worked by
 * hand. */
#include "graph/op_table.h"
#include "graph/shard.h"
#include "tests/graph_helpers.h"

static const struct {
  const char *model;
  int64_t side;
} models[] = {
    {"sd15_unet", 512},  {"sd21_unet", 512}, {"sdxl_unet", 512},    {"sd3_medium", 512},          {"sd35_medium", 512},
    {"sd35_large", 512}, {"flux_dev", 512},  {"flux_schnell", 512}, {NULL, 256} /* small_unet */,
};
enum { MODEL_COUNT = sizeof models / sizeof *models };
static const int degrees[] = {2, 4, 8};
enum { DEGREE_COUNT = sizeof degrees / sizeof *degrees, CASE_COUNT = MODEL_COUNT * DEGREE_COUNT };

static graph model_of(int i, graph_trainable trainable) {
  graph_model_options options = options_of(2, models[i].side, 77);
  options.trainable = trainable;
  return build_model(models[i].model != NULL ? models[i].model : small_unet, &options);
}

static graph share_of(const graph *whole, int degree) {
  graph share = {0};
  dp_error error = DP_ERROR_INIT;
  const dp_status status = graph_shard(whole, degree, &share, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  return share;
}

static void same_work(const char *name, const graph_work *a, const graph_work *b) {
  ck_assert_msg(a->op_class == b->op_class && a->flops == b->flops && a->matrix_flops == b->matrix_flops &&
                    a->bytes_read == b->bytes_read && a->bytes_written == b->bytes_written && a->batch == b->batch &&
                    a->m == b->m && a->n == b->n && a->k == b->k && a->kernels == b->kernels &&
                    a->collective == b->collective && a->collective_bytes == b->collective_bytes,
                "%s", name);
}

static void same_unit(const graph_unit *a, const graph_unit *b) {
  ck_assert_str_eq(a->name, b->name);
  ck_assert_int_eq(a->parameters, b->parameters);
  ck_assert_int_eq(a->trainable_parameters, b->trainable_parameters);
  ck_assert_int_eq(a->adapter_parameters, b->adapter_parameters);
  ck_assert_int_eq(a->partial_parameters, b->partial_parameters);
  ck_assert_int_eq(a->saved_bytes, b->saved_bytes);
  ck_assert_int_eq(a->input_bytes, b->input_bytes);
  ck_assert_int_eq(a->output_bytes, b->output_bytes);
  ck_assert_int_eq(a->forward_transient_bytes, b->forward_transient_bytes);
  ck_assert_int_eq(a->inference_transient_bytes, b->inference_transient_bytes);
  ck_assert_int_eq(a->backward_transient_bytes, b->backward_transient_bytes);
}

START_TEST(a_group_of_one_is_the_whole) {
  for (int lora = 0; lora < 2; lora++) {
    graph whole = model_of(_i, lora ? GRAPH_TRAIN_LORA : GRAPH_TRAIN_FULL), share = share_of(&whole, 1);
    ck_assert_uint_eq(share.ops.count, whole.ops.count);
    ck_assert_uint_eq(share.tensors.count, whole.tensors.count);
    ck_assert_uint_eq(share.weights.count, whole.weights.count);
    ck_assert_uint_eq(share.units.count, whole.units.count);
    for (size_t o = 0; o < whole.ops.count; o++) {
      const graph_op *a = &share.ops.items[o], *b = &whole.ops.items[o];
      ck_assert_str_eq(a->name, b->name);
      same_work(b->name, &a->forward, &b->forward);
      same_work(b->name, &a->backward_input, &b->backward_input);
      same_work(b->name, &a->backward_weight, &b->backward_weight);
      ck_assert(a->fused == b->fused && a->trainable == b->trainable && a->saved_count == b->saved_count);
    }
    for (size_t u = 0; u < whole.units.count; u++) same_unit(&share.units.items[u], &whole.units.items[u]);
    ck_assert_int_eq(share.saved_bytes, whole.saved_bytes);
    ck_assert_int_eq(share.latent_bytes, whole.latent_bytes);
    ck_assert_int_eq(share.model_parameters, whole.model_parameters);
    ck_assert_int_eq(whole.model_parameters, whole.parameters);
    ck_assert_int_eq(share.whole_products, 0);
    ck_assert_str_eq(share.class_name, whole.class_name);
    graph_free(&whole);
    graph_free(&share);
  }
}
END_TEST

/* Whether a weight of the share is a T-th of the whole's along one dimension; else it must be all of it. */
static bool weight_is_split(const graph_weight *mine, const graph_weight *whole, int degree) {
  ck_assert_str_eq(mine->name, whole->name);
  ck_assert_int_eq(mine->rank, whole->rank);
  int split = 0;
  for (int d = 0; d < mine->rank; d++) {
    if (mine->dims[d] == whole->dims[d]) continue;
    ck_assert_int_eq(mine->dims[d] * degree, whole->dims[d]);
    split++;
  }
  ck_assert_int_le(split, 1);
  return split == 1;
}

static bool is_product(const graph_op *op) {
  return op->kind == GRAPH_LINEAR || op->kind == GRAPH_CONV2D || op->kind == GRAPH_ATTENTION;
}

/* T members do an op of the whole model: each a T-th, or each all of it. Returns whether it is split. */
static bool check_op(const graph *share, const graph_op *mine, const graph *whole, const graph_op *op, int degree) {
  bool split = false;
  ck_assert_int_eq(mine->weight_count, op->weight_count);
  for (int w = 0; w < op->weight_count; w++)
    split = weight_is_split(&share->weights.items[mine->first_weight + w], &whole->weights.items[op->first_weight + w],
                            degree) ||
            split;
  if (op->kind == GRAPH_ATTENTION) split = mine->attributes.heads != op->attributes.heads;
  if (!is_product(op)) return split;
  const int64_t times = split ? degree : 1;
  ck_assert_int_eq(mine->forward.matrix_flops * times, op->forward.matrix_flops);
  ck_assert_int_eq(mine->backward_input.matrix_flops * times, op->backward_input.matrix_flops);
  ck_assert_int_eq(mine->backward_weight.matrix_flops * times, op->backward_weight.matrix_flops);
  return split;
}

/* What passes between units has one shape on one member and in the whole model. */
static void check_boundaries(const graph *share, const graph *whole) {
  for (int cut = 1; cut < (int)whole->units.count; cut++) {
    int *a = calloc(share->tensors.count, sizeof *a), *b = calloc(whole->tensors.count, sizeof *b);
    const int count = graph_cut_tensors(share, cut, a);
    ck_assert_int_eq(count, graph_cut_tensors(whole, cut, b));
    for (int i = 0; i < count; i++)
      ck_assert_int_eq(share->tensors.items[a[i]].bytes, whole->tensors.items[b[i]].bytes);
    free(a);
    free(b);
  }
}

/* Over all models and degrees: parameters, FLOPs, boundaries, memory. */
START_TEST(shares_add_up_to_the_whole) {
  const bool thirds = _i == CASE_COUNT; /* Flux has 24 heads */
  const int degree = thirds ? 3 : degrees[_i % DEGREE_COUNT];
  graph whole = model_of(thirds ? 6 : _i / DEGREE_COUNT, GRAPH_TRAIN_FULL), share = {0};
  dp_error error = DP_ERROR_INIT;
  const dp_status status = graph_shard(&whole, degree, &share, &error);
  ck_assert_msg(status == DP_OK, "%s in %d: %s", whole.config_file, degree, error.text);
  int64_t parameters = 0;
  int whole_products = 0;
  size_t at = 0;
  for (size_t o = 0; o < whole.ops.count; o++, at++) {
    const graph_op *op = &whole.ops.items[o];
    for (; share.ops.items[at].kind >= GRAPH_TENSOR_ENTER; at++) /* only a member has those */
      ck_assert_int_eq(share.ops.items[at].parameters, 0);
    const graph_op *mine = &share.ops.items[at];
    ck_assert_str_eq(mine->name, op->name);
    ck_assert_int_eq(mine->unit, op->unit);
    const bool split = check_op(&share, mine, &whole, op, degree);
    whole_products += is_product(op) && !split;
    for (int w = 0; w < op->weight_count; w++) {
      const graph_weight *a = &share.weights.items[mine->first_weight + w];
      const graph_weight *b = &whole.weights.items[op->first_weight + w];
      parameters += a->parameters == b->parameters ? a->parameters : degree * a->parameters;
    }
  }
  ck_assert_int_eq(parameters, whole.parameters);
  ck_assert_int_eq(share.model_parameters, whole.parameters);
  ck_assert_int_eq(share.whole_products, whole_products);
  ck_assert_int_ge(share.parameters * degree, whole.parameters);
  ck_assert_int_lt(share.parameters, whole.parameters);
  ck_assert_int_lt(share.saved_bytes, whole.saved_bytes);
  ck_assert_int_ge(share.saved_bytes * degree, whole.saved_bytes);
  check_boundaries(&share, &whole);
  graph_free(&whole);
  graph_free(&share);
}
END_TEST

/* The collectives of a unit, by kind and direction. */
typedef struct tally {
  int reduces[2], gathers[2];
  int64_t reduce_bytes[2], gather_bytes[2];
} tally;

static tally tally_of(const graph *g, const char *unit_name) {
  const graph_unit *unit = &g->units.items[find_unit(g, unit_name)];
  tally t = {0};
  for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++)
    for (int d = 0; d < 2; d++) {
      const graph_work *work = d ? &g->ops.items[o].backward_input : &g->ops.items[o].forward;
      t.reduces[d] += work->collective == GRAPH_COLLECTIVE_ALL_REDUCE;
      t.gathers[d] += work->collective == GRAPH_COLLECTIVE_ALL_GATHER;
      if (work->collective == GRAPH_COLLECTIVE_ALL_REDUCE) t.reduce_bytes[d] += work->collective_bytes;
      if (work->collective == GRAPH_COLLECTIVE_ALL_GATHER) t.gather_bytes[d] += work->collective_bytes;
    }
  return t;
}

/* Shoeybi et al. 2019, section 3: a transformer layer takes one all-reduce after its attention and one after its MLP,
 * and as many backward, before them. A joint block (SD3, Flux) is two such layers, for image and for text; its
 * modulations, linear layers of one vector, are gathered, and the gradient of the vector is reduced. Batch 2, bf16. */
START_TEST(a_transformer_block_takes_the_reductions_of_the_paper) {
  static const struct {
    const char *model, *unit;
    int reduces, gathers;
    int64_t reduced_values, channels, gathered; /* values of all tensors reduced; of the vector; gathered vectors */
  } cases[] = {
      {"sd3_medium", "transformer_blocks.3", 4, 2, 2LL * (2 * 1024 + 2 * 77) * 1536, 1536, 12},
      {"sd35_medium", "transformer_blocks.3", 5, 2, 2LL * (3 * 1024 + 2 * 77) * 1536, 1536, 15}, /* two attentions */
      {"flux_dev", "transformer_blocks.7", 4, 2, 2LL * (2 * 1024 + 2 * 77) * 3072, 3072, 12},
      /* attention and MLP side by side, their output layers joined: one of each */
      {"flux_dev", "single_transformer_blocks.7", 1, 1, 2LL * (1024 + 77) * 3072, 3072, 3},
      /* self-attention, cross-attention, MLP; no modulation, and text needs no gradient */
      {"sdxl_unet", "down_blocks.2.attentions.0.transformer_blocks.3", 3, 0, 2LL * 3 * 256 * 1280, 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const graph_model_options options = options_of(2, 512, 77);
    graph whole = build_model(cases[i].model, &options), share = share_of(&whole, 4);
    const tally t = tally_of(&share, cases[i].unit);
    const int vectors = cases[i].gathers > 0;
    ck_assert_msg(t.reduces[0] == cases[i].reduces, "%s: %d", cases[i].unit, t.reduces[0]);
    ck_assert_int_eq(t.reduce_bytes[0], 2 * cases[i].reduced_values);
    ck_assert_int_eq(t.reduces[1], cases[i].reduces + vectors);
    ck_assert_int_eq(t.reduce_bytes[1], 2 * (cases[i].reduced_values + 2 * cases[i].channels));
    ck_assert_int_eq(t.gathers[0], cases[i].gathers);
    ck_assert_int_eq(t.gather_bytes[0], 2 * 2 * cases[i].gathered * cases[i].channels);
    ck_assert_int_eq(t.gathers[1], 0);
    graph_free(&whole);
    graph_free(&share);
  }
}
END_TEST

/* A resnet: the first convolution by output channels, the second by input channels. Where the channels change, the 1 x
 * 1 convolution of the shortcut is gathered. A down-sampler is one convolution by output channels and a gather. */
START_TEST(convolutions_go_by_channels) {
  const graph_model_options options = options_of(2, 512, 77);
  graph whole = build_model("sd15_unet", &options), share = share_of(&whole, 2);
  const int64_t image = 2LL * 1280 * 16 * 16 * 2, wide = 2LL * 640 * 32 * 32 * 2, temb = 2LL * 1280 * 2;
  tally t = tally_of(&share, "down_blocks.2.resnets.1");
  ck_assert(t.reduces[0] == 1 && t.reduces[1] == 2 && t.gathers[0] == 0 && t.gathers[1] == 0);
  ck_assert_int_eq(t.reduce_bytes[0], image);
  ck_assert_int_eq(t.reduce_bytes[1], image + temb);
  t = tally_of(&share, "down_blocks.2.resnets.0"); /* 640 to 1280 channels, at 16 x 16 */
  ck_assert(t.reduces[0] == 1 && t.reduces[1] == 3 && t.gathers[0] == 1 && t.gathers[1] == 0);
  ck_assert_int_eq(t.gather_bytes[0], image);
  ck_assert_int_eq(t.reduce_bytes[1], 2 * (image / 2) + temb);
  t = tally_of(&share, "down_blocks.1.downsamplers.0");
  ck_assert(t.reduces[0] == 0 && t.reduces[1] == 1 && t.gathers[0] == 1);
  ck_assert_int_eq(t.gather_bytes[0], wide / 4);
  ck_assert_int_eq(t.reduce_bytes[1], wide);
  const graph_op *first = find_op(&share, "down_blocks.2.resnets.1.conv1"),
                 *second = find_op(&share, "down_blocks.2.resnets.1.conv2");
  ck_assert(first->attributes.in_channels == 1280 && first->attributes.out_channels == 640);
  ck_assert(second->attributes.in_channels == 640 && second->attributes.out_channels == 1280);
  ck_assert_int_eq(find_op(&share, "down_blocks.2.resnets.1.norm2")->attributes.groups, 16);
  ck_assert_int_eq(find_op(&share, "down_blocks.2.resnets.1.norm1")->attributes.groups, 32);
  graph_free(&whole);
  graph_free(&share);
}
END_TEST

/* SDXL has attentions of 10 and of 20 heads, 10 and 60 blocks of two each: what 4 and 8 do not divide stays whole with
 * its four linear layers; so do 4 output channels in 8 parts. SD 2.1 has 5 heads at the widest level. */
START_TEST(indivisible_heads_stay_whole) {
  const graph_model_options options = options_of(1, 512, 77);
  static const struct {
    const char *model;
    int degree, whole;
  } cases[] = {{"sdxl_unet", 2, 0},
               {"sdxl_unet", 4, 10 * 2 * 5},
               {"sdxl_unet", 8, 70 * 2 * 5 + 1},
               {"sd15_unet", 4, 0},
               {"sd15_unet", 8, 1},
               {"sd21_unet", 2, 5 * 2 * 5},
               {"sd3_medium", 8, 0},
               {"flux_dev", 8, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    graph whole = build_model(cases[i].model, &options), share = share_of(&whole, cases[i].degree);
    ck_assert_msg(share.whole_products == cases[i].whole, "%s in %d: %d", cases[i].model, cases[i].degree,
                  share.whole_products);
    graph_free(&whole);
    graph_free(&share);
  }
}
END_TEST

/* An adapter's factor at the side that is not split is on every member, with a part of its gradient. So are the weights
 * of the norms of q and k, 128 each, when all is trained. */
START_TEST(adapters_follow_their_layer) {
  graph_model_options options = options_of(1, 512, 77);
  for (int lora = 0; lora < 2; lora++) {
    options.trainable = lora ? GRAPH_TRAIN_LORA : GRAPH_TRAIN_FULL;
    graph whole = build_model("flux_dev", &options), share = share_of(&whole, 2);
    const graph_unit *unit = &share.units.items[find_unit(&share, "transformer_blocks.0")];
    ck_assert_int_eq(unit->partial_parameters, lora ? 8LL * 16 * 3072 : 4 * 128);
    ck_assert_int_eq(unit->adapter_parameters, lora ? 8LL * 16 * (3072 + 1536) : 0);
    if (lora) ck_assert_int_eq(unit->trainable_parameters, unit->adapter_parameters);
    graph_free(&whole);
    graph_free(&share);
  }
}
END_TEST

/* A share has adapters on the layers that have them in the whole, however those were chosen. */
START_TEST(shares_adapt_the_same_layers) {
  static const char *const targets[] = {"ff.net.2", "context_embedder"};
  graph_model_options options = options_of(1, 512, 77);
  options.trainable = GRAPH_TRAIN_LORA;
  for (int all = 0; all < 2; all++) {
    options.lora_all_linear = all;
    options.lora_targets = all ? NULL : targets;
    options.lora_target_count = all ? 0 : 2;
    graph whole = build_model("flux_dev", &options), share = share_of(&whole, 2);
    int adapted = 0;
    for (size_t o = 0; o < whole.ops.count; o++) {
      const graph_op *op = &whole.ops.items[o];
      if (op->kind != GRAPH_LINEAR) continue;
      ck_assert_int_eq(op->adapter_parameters > 0, find_op(&share, op->name)->adapter_parameters > 0);
      adapted += op->adapter_parameters > 0;
    }
    ck_assert(all ? adapted > 20 : adapted == 20); /* 19 joint blocks and the embedder */
    graph_free(&whole);
    graph_free(&share);
  }
}
END_TEST

START_TEST(refusals) {
  dp_error error = DP_ERROR_INIT;
  graph share = {0}, synthetic = {0};
  const graph_model_options options = options_of(1, 512, 77);
  graph whole = build_model("sd15_unet", &options);
  ck_assert_int_eq(graph_shard(&whole, 7, &share, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "found a tensor group of 7, allowed: one that divides some layer of the model");
  ck_assert_int_eq(graph_shard(&whole, 65, &share, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "found a tensor group of 65, allowed: 1 to 64");
  const graph_synthetic_options units = {.units = 2, .batch = 1, .forward_s = 1, .backward_s = 2};
  ck_assert_int_eq(graph_synthetic_build(&units, &synthetic, &error), DP_OK);
  ck_assert_int_eq(graph_shard(&synthetic, 2, &share, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "found a tensor group of 2 with synthetic units, allowed: 1");
  graph_free(&whole);
  graph_free(&synthetic);
}
END_TEST

START_TEST(bytes_of_a_ring) {
  graph_work work = {.collective = GRAPH_COLLECTIVE_ALL_REDUCE, .collective_bytes = 1000};
  ck_assert_int_eq(graph_collective_sent_bytes(&work, 4), 1500);
  work.collective = GRAPH_COLLECTIVE_ALL_GATHER;
  ck_assert_int_eq(graph_collective_sent_bytes(&work, 4), 750);
  ck_assert_int_eq(graph_collective_sent_bytes(&work, 1), 0);
  work.collective = GRAPH_COLLECTIVE_NONE;
  ck_assert_int_eq(graph_collective_sent_bytes(&work, 4), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("graph shard");
  TCase *shares = suite_case(suite, "shares", NULL, NULL, 0);
  const TTest *const tests[] = {a_transformer_block_takes_the_reductions_of_the_paper,
                                convolutions_go_by_channels,
                                indivisible_heads_stay_whole,
                                adapters_follow_their_layer,
                                shares_adapt_the_same_layers,
                                refusals,
                                bytes_of_a_ring};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(shares, tests[i]);
  tcase_add_loop_test(shares, a_group_of_one_is_the_whole, 0, MODEL_COUNT);
  tcase_add_loop_test(shares, shares_add_up_to_the_whole, 0, CASE_COUNT + 1);
  return suite_finish(suite);
}
