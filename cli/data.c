/* diffpipe data: data sets made, described and cached. */
#include "cli/data.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "cli/command.h"
#include "cli/json.h"
#include "exec/manifest.h"
#include "exec/shapes.h"

/* ---- sizes ---- */

static dp_status fail_size(const cli_data_size_options *how, const char *text, dp_error *error) {
  return dp_fail(error, DP_BAD_INPUT,
                 "%s: --%s: found \"%.100s\", allowed: HEIGHTxWIDTH,HEIGHTxWIDTH,... with sides from %" PRId64
                 " to %" PRId64 ", multiples of %" PRId64 ", each size once",
                 how->command, how->list, text, how->least, how->most, how->multiple);
}

static bool is_side(const cli_data_size_options *how, int64_t side) {
  return side >= how->least && side <= how->most && side % how->multiple == 0;
}

/* A number and the character behind it, at which *at then stands; -1: there is none. */
static int64_t read_side(const char **at) {
  char *end = NULL;
  if (**at < '0' || **at > '9') return -1;
  errno = 0;
  const long long number = strtoll(*at, &end, 10);
  *at = end;
  return errno ? -1 : (int64_t)number;
}

static dp_status read_list(const cli_data_size_options *how, const char *text, dp_arena *arena, int64_t (**sizes)[2],
                           size_t *count, dp_error *error) {
  size_t most = 1, made = 0;
  for (const char *c = text; *c; c++) most += *c == ',';
  int64_t(*list)[2] = dp_arena_alloc(arena, most, sizeof *list);
  if (!list) return dp_fail_memory(error);
  for (const char *at = text;; at++) {
    list[made][0] = read_side(&at);
    if (*at++ != 'x') return fail_size(how, text, error);
    list[made][1] = read_side(&at);
    if (!is_side(how, list[made][0]) || !is_side(how, list[made][1])) return fail_size(how, text, error);
    for (size_t before = 0; before < made; before++)
      if (memcmp(list[before], list[made], sizeof *list) == 0) return fail_size(how, text, error);
    made++;
    if (!*at) break;
    if (*at != ',') return fail_size(how, text, error);
  }
  *sizes = list;
  *count = made;
  return DP_OK;
}

dp_status cli_data_sizes(const cli_data_size_options *how, const cli_values *values, dp_arena *arena,
                         int64_t (**sizes)[2], size_t *count, dp_error *error) {
  const bool height = values->slots[how->height_slot].given, width = values->slots[how->width_slot].given;
  *count = 0;
  if (values->slots[how->list_slot].given && (height || width))
    return dp_fail(error, DP_BAD_INPUT, "%s: found --%s beside --height or --width, allowed: one way to say the sizes",
                   how->command, how->list);
  if (values->slots[how->list_slot].given)
    return read_list(how, values->slots[how->list_slot].string, arena, sizes, count, error);
  if (!height && !width) return DP_OK;
  if (!height || !width)
    return dp_fail(error, DP_BAD_INPUT, "%s: found --%s alone, allowed: --height and --width", how->command,
                   height ? "height" : "width");
  int64_t(*one)[2] = dp_arena_alloc(arena, 1, sizeof *one);
  if (!one) return dp_fail_memory(error);
  (*one)[0] = values->slots[how->height_slot].integer;
  (*one)[1] = values->slots[how->width_slot].integer;
  if (!is_side(how, (*one)[0]) || !is_side(how, (*one)[1]))
    return dp_fail(error, DP_BAD_INPUT,
                   "%s: found --height %" PRId64 " --width %" PRId64 ", allowed: from %" PRId64 " to %" PRId64
                   ", multiples of %" PRId64,
                   how->command, (*one)[0], (*one)[1], how->least, how->most, how->multiple);
  *sizes = one;
  *count = 1;
  return DP_OK;
}

/* ---- shapes ---- */

enum { SHAPES_COUNT, SHAPES_HEIGHT, SHAPES_WIDTH, SHAPES_SIZES, SHAPES_SEED, SHAPES_JSON };

static const cli_option shapes_options[] = {
    {.name = "count",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "pictures",
     .fallback = "64",
     .slot = SHAPES_COUNT,
     .min = 1,
     .max = EXEC_SHAPES_MOST},
    {.name = "height",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "pixels",
     .fallback = "128",
     .slot = SHAPES_HEIGHT,
     .min = EXEC_SHAPES_SIDE_LEAST,
     .max = EXEC_SHAPES_SIDE_MOST},
    {.name = "width",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "pixels",
     .fallback = "128",
     .slot = SHAPES_WIDTH,
     .min = EXEC_SHAPES_SIDE_LEAST,
     .max = EXEC_SHAPES_SIDE_MOST},
    {.name = "sizes",
     .type = CLI_STRING,
     .argument = "HxW,...",
     .help = "several sizes in turn, in place of --height and --width",
     .slot = SHAPES_SIZES},
    {.name = "seed",
     .type = CLI_INTEGER,
     .argument = "S",
     .help = "which pictures",
     .fallback = "0",
     .slot = SHAPES_SEED,
     .min = 0,
     .max = INT64_MAX},
    {.name = "json", .type = CLI_FLAG, .help = "print JSON", .slot = SHAPES_JSON},
};

static void show_count(void *data, int64_t done) { dp_progress_update(data, (uint64_t)done, NULL); }

static dp_status print_shapes(const char *folder, int64_t count, int64_t seed, bool json, dp_error *error) {
  if (!json) {
    printf("%s: %" PRId64 " picture%s and their captions; next: diffpipe data manifest %s\n", folder, count,
           count == 1 ? "" : "s", folder);
    return DP_OK;
  }
  json_t *root = json_pack("{ss sI sI}", "folder", folder, "samples", (json_int_t)count, "seed", (json_int_t)seed);
  if (!root) return dp_fail_memory(error);
  const dp_status status = cli_json_print(root, error);
  json_decref(root);
  return status;
}

static dp_status run_shapes(const cli_values *values, dp_error *error) {
  static const cli_data_size_options how = {
      "data shapes",         "sizes", SHAPES_HEIGHT, SHAPES_WIDTH, SHAPES_SIZES, EXEC_SHAPES_SIDE_LEAST,
      EXEC_SHAPES_SIDE_MOST, 1};
  static const int64_t usual[1][2] = {{128, 128}};
  const int64_t count = values->slots[SHAPES_COUNT].given ? values->slots[SHAPES_COUNT].integer : 64;
  const int64_t seed = values->slots[SHAPES_SEED].given ? values->slots[SHAPES_SEED].integer : 0;
  const char *folder = values->arguments[0];
  dp_arena arena = {0};
  int64_t(*sizes)[2] = NULL;
  size_t size_count = 0;
  dp_status status = cli_data_sizes(&how, values, &arena, &sizes, &size_count, error);
  if (status == DP_OK) {
    dp_progress progress;
    dp_progress_begin(&progress, "shapes", (uint64_t)count);
    status = exec_shapes_write(folder, (uint64_t)seed, count, size_count ? (const int64_t(*)[2])sizes : usual,
                               size_count ? size_count : 1, show_count, &progress, error);
    dp_progress_end(&progress);
  }
  dp_arena_free(&arena);
  return status == DP_OK ? print_shapes(folder, count, seed, values->slots[SHAPES_JSON].given, error) : status;
}

static const cli_command shapes = {
    .name = "data shapes",
    .arguments = "DIR",
    .takes = "one, the folder to write",
    .summary = "Make a small data set by code: plain shapes, and captions that say what is to be seen.",
    .help =
        "Writes DIR/shape-000000.ppm and shape-000000.txt and so on. A folder that is there may hold\n"
        "nothing but what `diffpipe data` writes, and is replaced. The same seed gives the same files.",
    .options = shapes_options,
    .option_count = (int)DP_COUNT_OF(shapes_options),
    .run = run_shapes,
};

/* ---- manifest ---- */

enum { MANIFEST_CHECK, MANIFEST_JSON };

static const cli_option manifest_options[] = {
    {.name = "check",
     .type = CLI_FLAG,
     .help = "write nothing: fail when the folder is not what its manifest says",
     .slot = MANIFEST_CHECK},
    {.name = "json", .type = CLI_FLAG, .help = "print JSON", .slot = MANIFEST_JSON},
};

static void show_images(void *data, size_t done, size_t total) {
  dp_progress *progress = data;
  progress->total = total;
  dp_progress_update(progress, done, NULL);
}

static size_t without_caption(const exec_manifest *m) {
  size_t count = 0;
  for (size_t i = 0; i < m->count; i++) count += m->samples[i].caption[0] == 0;
  return count;
}

static dp_status print_manifest(const exec_manifest *m, bool json, dp_error *error) {
  const size_t bare = without_caption(m);
  char hash[9];
  (void)snprintf(hash, sizeof hash, "%08" PRIx32, m->hash);
  if (!json) {
    printf("%s: %zu sample%s, hash %s", m->path, m->count, m->count == 1 ? "" : "s", hash);
    if (bare) printf("; %zu without a caption", bare);
    printf("\n");
    return DP_OK;
  }
  json_t *root = json_pack("{ss sI ss sI}", "manifest", m->path, "samples", (json_int_t)m->count, "hash", hash,
                           "without_caption", (json_int_t)bare);
  if (!root) return dp_fail_memory(error);
  const dp_status status = cli_json_print(root, error);
  json_decref(root);
  return status;
}

/* The first sample in which two manifests differ: DP_BAD_INPUT. Both are in the order of names, when this wrote them.
 */
static dp_status compare(const exec_manifest *said, const exec_manifest *found, dp_error *error) {
  if (said->hash == found->hash) return DP_OK;
  const char *what = "another order";
  for (size_t i = 0; i < said->count || i < found->count; i++) {
    const exec_sample *s = i < said->count ? &said->samples[i] : NULL,
                      *f = i < found->count ? &found->samples[i] : NULL;
    const int order = !s ? 1 : !f ? -1 : strcmp(s->file, f->file);
    if (order == 0 && s->crc32 == f->crc32 && strcmp(s->caption, f->caption) == 0) continue;
    what = order < 0              ? "it is missing"
           : order > 0            ? "it is new"
           : s->crc32 != f->crc32 ? "another image"
                                  : "another caption";
    return dp_fail(error, DP_BAD_INPUT, "%s: %.200s: %s, allowed: what the manifest says", said->path,
                   order < 0 ? s->file : f->file, what);
  }
  return dp_fail(error, DP_BAD_INPUT, "%s: found %s, allowed: what the manifest says", said->path, what);
}

static dp_status run_manifest(const cli_values *values, dp_error *error) {
  exec_manifest found = {0}, said = {0};
  dp_progress progress;
  dp_status status = DP_OK;
  const bool checks = values->slots[MANIFEST_CHECK].given;
  if (checks) status = exec_manifest_read(values->arguments[0], &said, error);
  if (status == DP_OK) {
    dp_progress_begin(&progress, "manifest", 0);
    status = exec_manifest_make(checks ? said.folder : values->arguments[0], show_images, &progress, &found, error);
    dp_progress_end(&progress);
  }
  if (status == DP_OK) status = checks ? compare(&said, &found, error) : exec_manifest_write(&found, error);
  if (status == DP_OK) status = print_manifest(&found, values->slots[MANIFEST_JSON].given, error);
  exec_manifest_free(&found);
  exec_manifest_free(&said);
  return status;
}

static const cli_command manifest = {
    .name = "data manifest",
    .arguments = "DIR",
    .takes = "one, the folder of images",
    .summary = "Describe a folder of images and captions: write its manifest.json.",
    .help =
        "Images end in .ppm, .png, .jpg or .jpeg; the caption of a.png is a.txt beside it. Folders in DIR\n"
        "are not looked at. Each image is read whole, and its checksum noted.",
    .options = manifest_options,
    .option_count = (int)DP_COUNT_OF(manifest_options),
    .run = run_manifest,
};

static const cli_command *const commands[] = {&shapes, &manifest, &cli_data_cache, &cli_data_check, NULL};

const cli_command cli_data = {
    .name = "data",
    .arguments = "COMMAND DIR",
    .summary = "Make, describe, cache and check the data set of a training.",
    .help =
        "A data set is a folder of images with captions beside them. Training reads caches of what a VAE\n"
        "and a text encoder make of them; doc/data.md tells the way there.",
    .commands = commands,
};
