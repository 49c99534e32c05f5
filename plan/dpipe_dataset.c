/* The dataset file of a diffusion-pipe configuration, and the sizes that its batches have. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "plan/describe.h"
#include "plan/dpipe_reader.h"

typedef struct dataset_keys {
  const dp_node *resolutions, *size_buckets, *ar_buckets, *frame_buckets, *directory;
  bool enable_ar_bucket;
  double min_ar, max_ar;
  int64_t num_ar_buckets;
} dataset_keys;

#define ROW(key, type, min, max, help) \
  { #key, type, offsetof(dataset_keys, key), false, min, max, NULL, help }
static const dp_field dataset_fields[] = {
    ROW(resolutions, DP_FIELD_NODE, 0, 0, "sides of squares, or [width, height]: areas to train on"),
    ROW(size_buckets, DP_FIELD_NODE, 0, 0, "[width, height, frames]: sizes to train on, in place of resolutions"),
    ROW(enable_ar_bucket, DP_FIELD_BOOLEAN, 0, 0, "aspect ratios other than 1; default false"),
    ROW(min_ar, DP_FIELD_REAL, 0.001, 1000, "least width / height"),
    ROW(max_ar, DP_FIELD_REAL, 0.001, 1000, "greatest width / height"),
    ROW(num_ar_buckets, DP_FIELD_INTEGER, 1, 256, "aspect ratios from min_ar to max_ar, evenly in the logarithm"),
    ROW(ar_buckets, DP_FIELD_NODE, 0, 0, "width / height or [width, height], in place of those three"),
    ROW(frame_buckets, DP_FIELD_NODE, 0, 0, "frames of videos; pictures (1) are always there"),
    ROW(directory, DP_FIELD_NODE, 0, 0, "[[directory]]: each may have the keys above for itself"),
};
#undef ROW
static const char *const dataset_others[] = {"path",
                                             "mask_path",
                                             "control_path",
                                             "default_mask_file",
                                             "num_repeats",
                                             "shuffle_tags",
                                             "caption_prefix",
                                             "cache_shuffle_num",
                                             "cache_shuffle_delimiter",
                                             "skip_empty_caption",
                                             "shuffle_metadata",
                                             "online_captions",
                                             "subsample_ratio",
                                             NULL};
static const plan_dpipe_section dataset_section = {"dataset", "dataset.", dataset_fields, DP_COUNT_OF(dataset_fields),
                                                   dataset_others};
static const plan_dpipe_section directory_section = {"directory", "dataset.", dataset_fields,
                                                     DP_COUNT_OF(dataset_fields) - 1, dataset_others};

static double round_to(double x, double unit) { return rint(x / unit) * unit; } /* half to even, as Python */

static dp_status fail_size(const dp_node *node, const char *what, const char *allowed, dp_error *error) {
  char shown[80];
  return dp_fail_at(error, node, "dataset.%s: found %s, allowed: %s", what, dp_node_show(node, shown), allowed);
}

static bool positive(const dp_node *node, double most) {
  return (node->kind == DP_NODE_INTEGER || node->kind == DP_NODE_REAL) && node->real > 0 && node->real <= most;
}

/* A list of numbers or pairs becomes one number each, to three digits, ascending, without double ones. */
static dp_status read_numbers(plan_dpipe *c, const dp_node *node, const char *what, bool area, double most,
                              double **values, size_t *count, dp_error *error) {
  const char *allowed =
      area ? "sides or [width, height], up to 16384" : "width / height, 0 to 1000, or [width, height]";
  if (node->kind != DP_NODE_ARRAY || node->count == 0) return fail_size(node, what, allowed, error);
  double *read = DP_ARENA_NEW(&c->arena, double, node->count);
  if (!read) return dp_fail_memory(error);
  size_t n = 0;
  for (size_t i = 0; i < node->count; i++) {
    const dp_node *item = node->items[i];
    const bool pair = item->kind == DP_NODE_ARRAY && item->count == 2 && positive(item->items[0], 16384) &&
                      positive(item->items[1], 16384);
    if (!pair && !positive(item, most)) return fail_size(item, what, allowed, error);
    const double x = !pair  ? item->real
                     : area ? sqrt(item->items[0]->real * item->items[1]->real)
                            : item->items[0]->real / item->items[1]->real;
    read[n++] = rint(x * 1000) / 1000;
  }
  size_t kept = 0;
  for (size_t i = 0; i < n; i++) { /* insertion, double ones left out */
    const double x = read[i];
    size_t at = kept;
    while (at > 0 && read[at - 1] > x) at--;
    if (at > 0 && read[at - 1] == x) continue;
    memmove(&read[at + 1], &read[at], (kept - at) * sizeof *read);
    read[at] = x;
    kept++;
  }
  if (read[0] <= 0) return fail_size(node, what, allowed, error);
  *values = read;
  *count = kept;
  return DP_OK;
}

static dp_status add_bucket(plan_dpipe *c, const plan_dpipe_bucket *bucket, dp_error *error) {
  if (bucket->frames > 1) {
    c->video_buckets++;
    return DP_OK;
  }
  for (size_t i = 0; i < c->buckets.count; i++)
    if (c->buckets.items[i].width == bucket->width && c->buckets.items[i].height == bucket->height) return DP_OK;
  if (c->buckets.count == PLAN_DPIPE_MAX_BUCKETS)
    return dp_fail_at(error, bucket->node, "dataset: found more than %d sizes, allowed: at most %d",
                      PLAN_DPIPE_MAX_BUCKETS, PLAN_DPIPE_MAX_BUCKETS);
  return dp_array_push(&c->buckets, *bucket) ? DP_OK : dp_fail_memory(error);
}

static dp_status add_size_buckets(plan_dpipe *c, const dp_node *node, dp_error *error) {
  if (node->kind != DP_NODE_ARRAY || node->count == 0)
    return fail_size(node, "size_buckets", "[width, height, frames]", error);
  for (size_t i = 0; i < node->count; i++) {
    const dp_node *item = node->items[i];
    bool good = item->kind == DP_NODE_ARRAY && item->count == 3;
    for (size_t k = 0; good && k < 3; k++)
      good = item->items[k]->kind == DP_NODE_INTEGER && positive(item->items[k], 16384);
    if (!good) return fail_size(item, "size_buckets", "[width, height, frames], each 1 to 16384", error);
    plan_dpipe_bucket bucket = {.frames = item->items[2]->integer, .node = node};
    bucket.width = (int64_t)round_to(item->items[0]->real, 16);
    bucket.height = (int64_t)round_to(item->items[1]->real, 16);
    if (bucket.width < 16 || bucket.height < 16)
      return fail_size(item, "size_buckets", "sides of at least 16 pixels", error);
    bucket.resolution = sqrt((double)bucket.width * (double)bucket.height);
    bucket.ratio = (double)bucket.width / (double)bucket.height;
    DP_TRY(add_bucket(c, &bucket, error));
  }
  return DP_OK;
}

static dp_status read_ratios(plan_dpipe *c, const dataset_keys *keys, const dp_node *where, double **ratios,
                             size_t *count, dp_error *error) {
  static double square[] = {1};
  *ratios = square;
  *count = 1;
  if (!keys->enable_ar_bucket) return DP_OK;
  if (keys->ar_buckets) return read_numbers(c, keys->ar_buckets, "ar_buckets", false, 1000, ratios, count, error);
  if (keys->min_ar <= 0 || keys->max_ar <= 0 || keys->num_ar_buckets <= 0)
    return dp_fail_at(
        error, where,
        "dataset: found enable_ar_bucket without aspect ratios, needed: ar_buckets, or min_ar, max_ar and "
        "num_ar_buckets");
  const int64_t n = keys->num_ar_buckets;
  double *made = DP_ARENA_NEW(&c->arena, double, (size_t)n);
  if (!made) return dp_fail_memory(error);
  size_t kept = 0;
  const bool falls = keys->max_ar < keys->min_ar;
  const double from = falls ? keys->max_ar : keys->min_ar, to = falls ? keys->min_ar : keys->max_ar;
  for (int64_t i = 0; i < n; i++) {
    const double x = n == 1 ? keys->min_ar : from * pow(to / from, (double)i / (double)(n - 1));
    const double rounded = rint(x * 1000) / 1000;
    if (kept == 0 || made[kept - 1] != rounded) made[kept++] = rounded;
  }
  *ratios = made;
  *count = kept;
  return DP_OK;
}

static dp_status add_resolutions(plan_dpipe *c, const dataset_keys *keys, const dp_node *where, dp_error *error) {
  double *sides, *ratios;
  size_t side_count, ratio_count;
  int64_t *frames = NULL, one = 1;
  size_t frame_count = 0;
  if (!keys->resolutions)
    return dp_fail_at(error, where, "dataset: found neither resolutions nor size_buckets, needed: one of the two");
  DP_TRY(read_numbers(c, keys->resolutions, "resolutions", true, 16384, &sides, &side_count, error));
  DP_TRY(read_ratios(c, keys, where, &ratios, &ratio_count, error));
  if (keys->frame_buckets)
    DP_TRY(dp_schema_read_integers(keys->frame_buckets, "dataset.frame_buckets", 1, 65536, &c->arena, &frames,
                                   &frame_count, error));
  for (size_t s = 0; s < side_count; s++)
    for (size_t r = 0; r < ratio_count; r++) {
      plan_dpipe_bucket bucket = {.frames = one, .resolution = sides[s], .ratio = ratios[r], .node = keys->resolutions};
      const double width = sqrt(sides[s] * sides[s] * ratios[r]), height = sides[s] * sides[s] / width;
      bucket.width = (int64_t)round_to(width, 16);
      bucket.height = (int64_t)round_to(height, 16);
      if (bucket.width < 16 || bucket.height < 16 || bucket.width > 65536 || bucket.height > 65536)
        return dp_fail_at(
            error, keys->resolutions,
            "dataset.resolutions: found %.9g at the aspect ratio %.9g, allowed: sides of 16 to 65536 pixels", sides[s],
            ratios[r]);
      DP_TRY(add_bucket(c, &bucket, error));
      for (size_t f = 0; f < frame_count; f++) {
        bucket.frames = frames[f];
        if (frames[f] > 1) DP_TRY(add_bucket(c, &bucket, error));
      }
    }
  return DP_OK;
}

/* Top-level keys, then the directory's own over them. */
static dp_status add_directory(plan_dpipe *c, const dataset_keys *top, const dp_node *directory, dp_error *error) {
  dataset_keys keys = *top;
  DP_TRY(plan_dpipe_read_section(c, &directory_section, directory, &keys, error));
  return keys.size_buckets ? add_size_buckets(c, keys.size_buckets, error)
                           : add_resolutions(c, &keys, directory, error);
}

static void sort_buckets(plan_dpipe *c) { /* few, and nearly in order */
  plan_dpipe_bucket *b = c->buckets.items;
  for (size_t i = 1; i < c->buckets.count; i++)
    for (size_t j = i; j > 0 && (b[j - 1].resolution > b[j].resolution ||
                                 (b[j - 1].resolution == b[j].resolution && b[j - 1].ratio > b[j].ratio));
         j--) {
      const plan_dpipe_bucket swap = b[j];
      b[j] = b[j - 1];
      b[j - 1] = swap;
    }
}

static dp_status read_dataset(plan_dpipe *c, dp_error *error) {
  dataset_keys top = {0};
  const dp_node *root = c->dataset.root;
  char shown[80];
  DP_TRY(plan_dpipe_read_section(c, &dataset_section, root, &top, error));
  const dp_node *list = top.directory;
  if (!list || list->kind != DP_NODE_ARRAY || list->count == 0)
    return dp_fail_at(error, list ? list : root, "dataset.directory: found %s, needed: at least one [[directory]]",
                      list ? dp_node_show(list, shown) : "none");
  for (size_t d = 0; d < list->count; d++) DP_TRY(add_directory(c, &top, list->items[d], error));
  sort_buckets(c);
  if (c->buckets.count) return DP_OK;
  return dp_fail_at(error, root,
                    "dataset: found %d sizes of videos and none of pictures, needed: pictures, which is what "
                    "%s takes",
                    c->video_buckets, plan_dpipe_family_names[c->family]);
}

dp_status plan_dpipe_read_dataset(plan_dpipe *config, const char *path, dp_error *error) {
  if (!path && !config->dataset_path)
    return dp_fail_at(error, config->document.root,
                      "config: the key \"dataset\" is missing, needed: the dataset file, here or with --dataset");
  if (!path) {
    const dp_node *node = plan_dpipe_node(config, NULL, "dataset");
    path = dp_path_resolve(&config->arena, config->document.file, config->dataset_path);
    if (!path) return dp_fail_memory(error);
    FILE *there = fopen(path, "rb");
    if (!there && (there = fopen(config->dataset_path, "rb"))) path = config->dataset_path;
    if (!there)
      return dp_fail_at(error, node,
                        "config.dataset: found \"%.200s\", which cannot be opened, allowed: a file beside this one, or "
                        "--dataset FILE",
                        config->dataset_path);
    (void)fclose(there);
  }
  DP_TRY(dp_document_read(path, &config->dataset, error));
  return read_dataset(config, error);
}

dp_status plan_dpipe_parse_dataset(plan_dpipe *config, const char *text, size_t length, const char *name,
                                   dp_error *error) {
  DP_TRY(dp_document_parse_toml(text, length, name, &config->dataset, error));
  return read_dataset(config, error);
}

size_t plan_dpipe_dataset_tables(const plan_key_table **tables) {
  static const plan_key_table all[] = {
      {"diffusion-pipe: the dataset file, and [[directory]]", dataset_fields, DP_COUNT_OF(dataset_fields)},
  };
  *tables = all;
  return DP_COUNT_OF(all);
}
