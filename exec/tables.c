#include "exec/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t integer(const dp_node *config, const char *key, int64_t otherwise) {
  const dp_node *node = dp_node_get(config, key);
  return node && node->kind == DP_NODE_INTEGER ? node->integer : otherwise;
}

/* ---- SD 3: sines and cosines of x, then of y; a square of `side` patches, of which the middle is cut out ---- */

/* One place of the whole table: a quarter of the channels each for sin x, cos x, sin y, cos y. */
static void position(double x, double y, int64_t channels, float *out) {
  const int64_t quarter = channels / 4;
  const double at[2] = {x, y};
  for (int axis = 0; axis < 2; axis++)
    for (int64_t k = 0; k < quarter; k++) {
      const double angle = at[axis] * pow(10000, -(double)k / (double)quarter);
      out[axis * 2 * quarter + k] = (float)sin(angle);
      out[(axis * 2 + 1) * quarter + k] = (float)cos(angle);
    }
}

static dp_status fill_positions(const graph *g, const graph_tensor *t, const dp_node *config,
                                const dp_safetensors *file, const dp_safetensor *buffer, float *out, dp_error *error) {
  const int64_t patch = integer(config, "patch_size", 2), side = integer(config, "pos_embed_max_size", 96);
  const int64_t base = integer(config, "sample_size", 128) / patch, channels = t->dims[2];
  const int64_t height = g->height / 8 / patch, width = g->width / 8 / patch;
  const int64_t top = (side - height) / 2, left = (side - width) / 2;
  float *whole = NULL;
  if (buffer) {
    if (buffer->elements != side * side * channels)
      return dp_fail(error, DP_BAD_INPUT, "%s: %s has %lld values, needed: %lld", file->path, buffer->name,
                     (long long)buffer->elements, (long long)(side * side * channels));
    whole = malloc((size_t)buffer->elements * sizeof *whole);
    if (!whole) return dp_fail_memory(error);
    const dp_status status = dp_safetensor_read_fp32(file, buffer, whole, error);
    if (status != DP_OK) {
      free(whole);
      return status;
    }
  }
  for (int64_t y = 0; y < height; y++)
    for (int64_t x = 0; x < width; x++) {
      float *to = out + (y * width + x) * channels;
      const int64_t row = top + y, column = left + x;
      const float scale = (float)side / (float)base; /* coordinates are i / (side / base) in fp32 */
      if (whole)
        memcpy(to, whole + (row * side + column) * channels, (size_t)channels * sizeof *to);
      else
        position((double)((float)column / scale), (double)((float)row / scale), channels, to);
    }
  free(whole);
  return DP_OK;
}

/* ---- Flux: angles by axis, one behind the other along the head; text tokens stand at 0 ---- */

static dp_status fill_rotary(const graph *g, const graph_tensor *t, const dp_node *config, float *out,
                             dp_error *error) {
  static const int64_t usual[] = {16, 56, 56};
  const dp_node *axes = dp_node_get(config, "axes_dims_rope");
  const int64_t tokens = t->dims[1], head_dim = t->dims[2], width = g->width / 16;
  int64_t sizes[3], sum = 0;
  for (int a = 0; a < 3; a++) {
    sizes[a] = axes && axes->kind == DP_NODE_ARRAY && axes->count == 3 ? axes->items[a]->integer : usual[a];
    sum += sizes[a];
  }
  if (sum != head_dim)
    return dp_fail_at(error, axes ? axes : config,
                      "axes_dims_rope: found a sum of %lld, needed: the head dimension, %lld", (long long)sum,
                      (long long)head_dim);
  float *cosines = out, *sines = out + tokens * head_dim;
  for (int64_t token = 0; token < tokens; token++) {
    const int64_t image = token - g->text_tokens;
    const double at[3] = {0, image < 0 ? 0 : (double)(image / width), image < 0 ? 0 : (double)(image % width)};
    int64_t channel = token * head_dim;
    for (int a = 0; a < 3; a++)
      for (int64_t k = 0; k < sizes[a]; k++, channel++) { /* a pair has one angle */
        const double angle = at[a] * pow(10000, -2.0 * (double)(k / 2) / (double)sizes[a]);
        cosines[channel] = (float)cos(angle);
        sines[channel] = (float)sin(angle);
      }
  }
  return DP_OK;
}

dp_status exec_table_fill(const graph *g, int tensor, const dp_node *config, const dp_safetensors *file,
                          const dp_safetensor *buffer, float *out, dp_error *error) {
  const graph_tensor *t = &g->tensors.items[tensor];
  if (strcmp(t->name, "pos_embed.pos_embed") == 0) return fill_positions(g, t, config, file, buffer, out, error);
  if (strcmp(t->name, "image_rotary_emb") == 0) return fill_rotary(g, t, config, out, error);
  return dp_fail(error, DP_UNSUPPORTED, "%s: no rule is known for this constant", t->name);
}
