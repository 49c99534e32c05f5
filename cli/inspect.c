/* diffpipe inspect: what a model is made of. Units, skips, FLOPs, parameters and activation bytes of a diffusers
 * config, as a table, as JSON, or as a Graphviz drawing. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/schema.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/json.h"
#include "graph/model.h"

enum {
  SLOT_HEIGHT,
  SLOT_WIDTH,
  SLOT_FRAMES,
  SLOT_TEXT_TOKENS,
  SLOT_BATCH,
  SLOT_PRECISION,
  SLOT_TRAINABLE,
  SLOT_LORA_RANK,
  SLOT_JSON,
  SLOT_DOT
};

static const char *const trainables[] = {"full", "frozen", "lora", NULL}; /* in the order of graph_trainable */

static const cli_option options[] = {
    {.name = "height",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "pixels",
     .fallback = "the model's own size",
     .slot = SLOT_HEIGHT,
     .min = 1,
     .max = 65536},
    {.name = "width",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "pixels",
     .fallback = "the model's own size",
     .slot = SLOT_WIDTH,
     .min = 1,
     .max = 65536},
    {.name = "frames",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "frames of a video",
     .fallback = "1",
     .slot = SLOT_FRAMES,
     .min = 1,
     .max = 65536},
    {.name = "text-tokens",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "tokens of the prompt",
     .fallback = "the model's own: 77, 333 or 512",
     .slot = SLOT_TEXT_TOKENS,
     .min = 1,
     .max = 1000000},
    {.name = "batch",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "samples in a microbatch",
     .fallback = "1",
     .slot = SLOT_BATCH,
     .min = 1,
     .max = 65536},
    {.name = "precision",
     .type = CLI_CHOICE,
     .argument = "P",
     .help = "of weights and activations",
     .fallback = "bf16",
     .slot = SLOT_PRECISION,
     .choices = graph_dtype_names},
    {.name = "trainable",
     .type = CLI_CHOICE,
     .argument = "WHAT",
     .help = "what training changes",
     .fallback = "full",
     .slot = SLOT_TRAINABLE,
     .choices = trainables},
    {.name = "lora-rank",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "rank of the adapters of --trainable lora",
     .fallback = "16",
     .slot = SLOT_LORA_RANK,
     .min = 1,
     .max = 65536},
    {.name = "json", .type = CLI_FLAG, .help = "print JSON", .slot = SLOT_JSON},
    {.name = "dot", .type = CLI_FLAG, .help = "print a Graphviz drawing (dot -Tsvg)", .slot = SLOT_DOT},
};

static graph_model_options model_options(const cli_values *values) {
  graph_model_options o;
  graph_model_options_default(&o);
  const struct {
    int slot;
    int64_t *target;
  } integers[] = {{SLOT_HEIGHT, &o.height},           {SLOT_WIDTH, &o.width}, {SLOT_FRAMES, &o.frames},
                  {SLOT_TEXT_TOKENS, &o.text_tokens}, {SLOT_BATCH, &o.batch}, {SLOT_LORA_RANK, &o.lora_rank}};
  for (size_t i = 0; i < DP_COUNT_OF(integers); i++)
    if (values->slots[integers[i].slot].given) *integers[i].target = values->slots[integers[i].slot].integer;
  if (values->slots[SLOT_PRECISION].given) o.precision = (graph_dtype)values->slots[SLOT_PRECISION].integer;
  if (values->slots[SLOT_TRAINABLE].given) o.trainable = (graph_trainable)values->slots[SLOT_TRAINABLE].integer;
  return o;
}

static const char *unit_name(const graph *g, int unit) { return g->units.items[unit].name; }

/* Units apart, that a tensor skips to: its readers but for its own unit and the next one. */
static bool skips_to(const graph_tensor *tensor, int consumer) {
  return tensor->producer_unit != GRAPH_NONE && tensor->consumer_units[consumer] > tensor->producer_unit + 1;
}

static json_t *unit_json(const graph_unit *unit) {
  return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", unit->name, "parameters",
                   (json_int_t)unit->parameters, "trainable_parameters", (json_int_t)unit->trainable_parameters,
                   "forward_flops", (json_int_t)unit->forward_flops, "matrix_flops", (json_int_t)unit->matrix_flops,
                   "output_bytes", (json_int_t)unit->output_bytes, "input_bytes", (json_int_t)unit->input_bytes,
                   "saved_bytes", (json_int_t)unit->saved_bytes);
}

static dp_status print_json(const graph *g, dp_error *error) {
  json_t *units = json_array(), *skips = json_array();
  bool complete = units != NULL && skips != NULL;
  for (size_t u = 0; u < g->units.count && complete; u++)
    complete = json_array_append_new(units, unit_json(&g->units.items[u])) == 0;
  for (size_t t = 0; t < g->tensors.count && complete; t++) {
    const graph_tensor *tensor = &g->tensors.items[t];
    for (int c = 0; c < tensor->consumer_unit_count && complete; c++)
      if (skips_to(tensor, c))
        complete =
            json_array_append_new(skips, json_pack("{s:s, s:s, s:s, s:I}", "from", unit_name(g, tensor->producer_unit),
                                                   "to", unit_name(g, tensor->consumer_units[c]), "tensor",
                                                   tensor->name, "bytes", (json_int_t)tensor->bytes)) == 0;
  }
  json_t *root = json_pack(
      "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o}", "class", g->class_name, "parameters",
      (json_int_t)g->parameters, "trainable_parameters", (json_int_t)g->trainable_parameters, "forward_flops",
      (json_int_t)g->forward_flops, "matrix_flops", (json_int_t)g->matrix_flops, "activation_bytes",
      (json_int_t)g->saved_bytes, "height", (json_int_t)g->height, "width", (json_int_t)g->width, "frames",
      (json_int_t)g->frames, "text_tokens", (json_int_t)g->text_tokens, "batch", (json_int_t)g->batch, "precision",
      graph_dtype_name(g->precision), "units", units, "skips", skips);
  if (root == NULL || !complete) {
    json_decref(root);
    return dp_fail_memory(error);
  }
  const dp_status status = cli_json_print(root, error);
  json_decref(root);
  return status;
}

/* Inside a quoted string of Graphviz. */
static void print_quoted(const char *text) {
  for (; *text != '\0'; text++) {
    if (*text == '"' || *text == '\\') putchar('\\');
    putchar(*text);
  }
}

/* Bytes that `from` makes and `to` reads. */
static int64_t bytes_between(const graph *g, int from, int to) {
  const graph_unit *unit = &g->units.items[from];
  int64_t bytes = 0;
  for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++)
    for (int i = 0; i < g->ops.items[o].output_count; i++) {
      const graph_tensor *tensor = &g->tensors.items[g->ops.items[o].outputs[i]];
      for (int c = 0; c < tensor->consumer_unit_count; c++)
        if (tensor->consumer_units[c] == to) bytes += tensor->bytes;
    }
  return bytes;
}

/* One node a unit, an edge to the next one, a dashed edge for what skips units. */
static void print_dot(const graph *g) {
  char bytes[32], flops[32], parameters[32];
  printf("digraph model {\n  label=\"");
  print_quoted(g->class_name);
  printf(" ");
  print_quoted(g->config_file);
  printf(", %" PRId64 " x %" PRId64 ", batch %" PRId64 ", %s\";\n", g->width, g->height, g->batch,
         graph_dtype_name(g->precision));
  printf("  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n  edge [fontname=\"sans-serif\", fontsize=9];\n");
  for (size_t u = 0; u < g->units.count; u++) {
    const graph_unit *unit = &g->units.items[u];
    printf("  u%zu [label=\"%s\\n%s parameters, %s FLOPs\"];\n", u, unit->name,
           dp_format_count((double)unit->parameters, parameters), dp_format_count((double)unit->forward_flops, flops));
  }
  for (int from = 0; from < (int)g->units.count; from++)
    for (int to = from + 1; to < (int)g->units.count; to++) {
      const int64_t between = bytes_between(g, from, to);
      if (between == 0) continue;
      printf(
          "  u%d -> u%d [label=\"%s\"%s];\n", from, to, dp_format_bytes((double)between, bytes),
          to > from + 1 ? ", style=dashed, color=\"#c05020\", fontcolor=\"#c05020\", constraint=false" : ", weight=10");
    }
  printf("}\n");
}

static int longest_name(const graph *g) {
  int longest = 4;
  for (size_t u = 0; u < g->units.count; u++) {
    const int length = (int)strlen(g->units.items[u].name);
    if (length > longest) longest = length;
  }
  return longest;
}

static void print_units(const graph *g) {
  char flops[32], parameters[32], output[32], saved[32];
  const int width = longest_name(g);
  printf("%-*s  %10s  %8s  %8s  %8s\n", width, "unit", "parameters", "FLOPs", "output", "saved");
  for (size_t u = 0; u < g->units.count; u++) {
    const graph_unit *unit = &g->units.items[u];
    printf("%-*s  %10s  %8s  %8s  %8s\n", width, unit->name, dp_format_count((double)unit->parameters, parameters),
           dp_format_count((double)unit->forward_flops, flops), dp_format_bytes((double)unit->output_bytes, output),
           dp_format_bytes((double)unit->saved_bytes, saved));
  }
}

static void print_skips(const graph *g) {
  char bytes[32];
  bool any = false;
  for (size_t t = 0; t < g->tensors.count; t++) {
    const graph_tensor *tensor = &g->tensors.items[t];
    int readers = 0;
    for (int c = 0; c < tensor->consumer_unit_count; c++) readers += skips_to(tensor, c);
    if (readers == 0) continue;
    if (!any) printf("\n%10s  skip\n", "bytes");
    any = true;
    printf("%10s  %s → %s", dp_format_bytes((double)tensor->bytes, bytes), unit_name(g, tensor->producer_unit),
           unit_name(g, tensor->consumer_units[tensor->consumer_unit_count - 1]));
    if (readers > 1) printf(" and %d unit%s before it", readers - 1, readers == 2 ? "" : "s");
    printf("\n");
  }
  if (!any) printf("\nno skips: every unit reads only what the one before it made\n");
}

static void print_table(const graph *g) {
  char forward[32], matrix[32], saved[32], latent[32];
  printf("%s, %s\n%" PRId64 " × %" PRId64 " pixels", g->class_name, g->config_file, g->width, g->height);
  if (g->frames > 1) printf(" × %" PRId64 " frames", g->frames);
  printf(", %" PRId64 " text tokens, batch %" PRId64 ", %s; MB are 1e6 bytes\n\n", g->text_tokens, g->batch,
         graph_dtype_name(g->precision));
  print_units(g);
  print_skips(g);
  printf("\nparameters       %" PRId64, g->parameters);
  if (g->trainable_parameters != g->parameters) printf(", trainable %" PRId64, g->trainable_parameters);
  printf("\nforward          %s FLOPs, of them matrix products, convolutions and attention %s\n",
         dp_format_count((double)g->forward_flops, forward), dp_format_count((double)g->matrix_flops, matrix));
  printf("activations      %s kept for backward\n", dp_format_bytes((double)g->saved_bytes, saved));
  printf("latents          %s\n", dp_format_bytes((double)g->latent_bytes, latent));
}

/* "MODEL.json:1: height is 1000, must be ..." is about an option, where one was given: says so. */
static dp_status blame_option(const cli_values *values, const char *path, const dp_error *reason, dp_error *error) {
  static const struct {
    int slot;
    const char *key, *option;
  } keys[] = {{SLOT_HEIGHT, "height is ", "height"},
              {SLOT_WIDTH, "width is ", "width"},
              {SLOT_FRAMES, "frames is ", "frames"},
              {SLOT_TEXT_TOKENS, "text_tokens is ", "text-tokens"},
              {SLOT_LORA_RANK, "lora_rank is ", "lora-rank"}};
  const size_t length = strlen(path);
  const char *said = strncmp(reason->text, path, length) == 0 ? strstr(reason->text + length, ": ") : NULL;
  for (size_t k = 0; said && k < DP_COUNT_OF(keys); k++) {
    const size_t n = strlen(keys[k].key);
    if (values->slots[keys[k].slot].given && strncmp(said + 2, keys[k].key, n) == 0)
      return dp_fail(error, DP_BAD_INPUT, "inspect: --%s: found %s", keys[k].option, said + 2 + n);
  }
  return dp_fail(error, reason->status, "%s", reason->text);
}

static dp_status run(const cli_values *values, dp_error *error) {
  if (values->slots[SLOT_JSON].given && values->slots[SLOT_DOT].given)
    return dp_fail(error, DP_BAD_INPUT, "inspect: found --json and --dot, allowed: one of them");
  dp_arena arena = {0};
  graph g = {0};
  const graph_model_options o = model_options(values);
  const char *path = dp_path_resolve(&arena, NULL, values->arguments[0]);
  dp_error reason = DP_ERROR_INIT;
  dp_status status = path != NULL ? graph_model_read(path, &o, &g, &reason) : dp_fail_memory(&reason);
  if (status != DP_OK) status = blame_option(values, path != NULL ? path : "", &reason, error);
  if (status == DP_OK) {
    if (values->slots[SLOT_JSON].given)
      status = print_json(&g, error);
    else if (values->slots[SLOT_DOT].given)
      print_dot(&g);
    else
      print_table(&g);
  }
  graph_free(&g);
  dp_arena_free(&arena);
  return status;
}

const cli_command cli_inspect = {
    .name = "inspect",
    .arguments = "MODEL.json",
    .takes = "one MODEL.json",
    .summary = "Show what a model is made of: units, skips, FLOPs, parameters, activations.",
    .help =
        "MODEL.json is a diffusers config.json, or one of the installed data: models/sdxl_unet.json.\n"
        "A unit is the smallest part that a partition keeps together; a skip is a tensor that a unit other\n"
        "than the next one reads. FLOPs are those of one forward pass, a multiply-add counts as two; saved\n"
        "is what a unit keeps for its backward.",
    .options = options,
    .option_count = (int)DP_COUNT_OF(options),
    .run = run,
};
