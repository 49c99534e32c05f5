#define _POSIX_C_SOURCE 200809L
#include "exec/cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/schema.h"

#define AGAIN "make it again with `diffpipe data cache` or scripts/cache_with_diffusers.py"

const char *exec_cache_latents_path(dp_arena *arena, const char *folder, int64_t height, int64_t width) {
  return dp_arena_printf(arena, "%s/latents-%" PRId64 "x%" PRId64 ".safetensors", folder, height, width);
}

const char *exec_cache_text_path(dp_arena *arena, const char *folder) {
  return dp_arena_printf(arena, "%s/text.safetensors", folder);
}

static bool is_known(const char *text) { return text != NULL && text[0] != 0; }

/* A key of the metadata, how a sentence names it, and the value that it has to have, one of text and number, with whose
 * wish that is. */
typedef struct expectation {
  const char *key, *words, *who, *text;
  double number;
} expectation;

static dp_status fail_stale(const char *path, const expectation *e, const char *found, dp_error *error) {
  char number[32];
  (void)snprintf(number, sizeof number, "%.9g", e->number);
  return dp_fail(error, DP_BAD_INPUT, "cache %s: %s %.100s, %.100s %.100s; " AGAIN ", or give --trust-cache", path,
                 e->words, is_known(found) ? found : "nobody knows which", e->who, e->text ? e->text : number);
}

/* Texts have to be equal, numbers up to how they are written. */
static bool is_met(const expectation *e, const char *found) {
  if (!found) return false;
  if (e->text) return strcmp(found, e->text) == 0;
  char *end = NULL;
  const double number = strtod(found, &end);
  const double far = number > e->number ? number - e->number : e->number - number;
  return end != found && !*end && far <= 1e-6 * (e->number < 0 ? -e->number : e->number);
}

static dp_status check_all(const dp_safetensors *file, const expectation *all, size_t count, dp_error *error) {
  for (size_t i = 0; i < count; i++) {
    const char *found = dp_safetensors_metadata(file, all[i].key);
    if (!is_met(&all[i], found)) return fail_stale(file->path, &all[i], found, error);
  }
  return DP_OK;
}

/* What every file of a cache has: format, version, manifest. */
static dp_status check_kind(const dp_safetensors *file, const char *format, const exec_cache_wanted *wanted,
                            dp_error *error) {
  char manifest[16];
  (void)snprintf(manifest, sizeof manifest, "%08" PRIx32, wanted->manifest);
  const char *found = dp_safetensors_metadata(file, "format");
  if (!is_met(&(expectation){.text = format}, found))
    return dp_fail(error, DP_BAD_INPUT,
                   "cache %s: found the format %.100s in its metadata, allowed: %s; " AGAIN ", or give --trust-cache",
                   file->path, found ? found : "none", format);
  const expectation all[] = {{"version", "is of version", "this program reads", "1", 0},
                             {"manifest", "was made of the manifest", "the data set's is", manifest, 0}};
  return check_all(file, all, DP_COUNT_OF(all), error);
}

static const char *who(bool is_run) { return is_run ? "the run wants" : "the other files have"; }

/* Holds a key to the text that the run wants, or that the files before have; to nothing where neither says. */
static dp_status check_text(const dp_safetensors *file, const char *key, const char *words, const char *run,
                            const char *others, dp_error *error) {
  if (!is_known(run) && !is_known(others)) return DP_OK;
  const expectation e = {key, words, who(is_known(run)), is_known(run) ? run : others, 0};
  return check_all(file, &e, 1, error);
}

/* A file that names no model is for any. */
static dp_status check_model(const dp_safetensors *file, const exec_cache_wanted *wanted, dp_error *error) {
  if (!is_known(dp_safetensors_metadata(file, "model"))) return DP_OK;
  return check_text(file, "model", "was made for the model", wanted->run.model, wanted->others.model, error);
}

static dp_status check_factors(const dp_safetensors *file, const exec_cache_wanted *wanted, dp_error *error) {
  const bool runs = wanted->run.scaling_factor != 0;
  const exec_fingerprint *w = runs ? &wanted->run : &wanted->others;
  const expectation all[] = {{"scaling_factor", "was made with the scaling factor", who(runs), NULL, w->scaling_factor},
                             {"shift_factor", "was made with the shift factor", who(runs), NULL, w->shift_factor}};
  return w->scaling_factor != 0 ? check_all(file, all, DP_COUNT_OF(all), error) : DP_OK;
}

static dp_status open_file(const char *path, dp_safetensors *file, dp_error *error) {
  if (access(path, F_OK) != 0 && errno == ENOENT)
    return dp_fail(error, DP_BAD_INPUT, "cache %s: is missing; " AGAIN, path);
  return dp_safetensors_open(path, file, error);
}

/* The number of a key; 0: it is not there or no number. */
static double number_of(const dp_safetensors *file, const char *key) {
  const char *text = dp_safetensors_metadata(file, key);
  return text ? strtod(text, NULL) : 0;
}

static const char *text_of(const dp_safetensors *file, const char *key) {
  const char *text = dp_safetensors_metadata(file, key);
  return text ? text : "";
}

static dp_status check_latents_file(const dp_safetensors *file, int64_t height, int64_t width,
                                    const exec_cache_wanted *wanted, dp_error *error) {
  const expectation size[] = {{"height", "was made for a height of", "the bucket has", NULL, (double)height},
                              {"width", "was made for a width of", "the bucket has", NULL, (double)width}};
  DP_TRY(check_kind(file, "diffpipe-latents", wanted, error));
  DP_TRY(check_all(file, size, DP_COUNT_OF(size), error));
  DP_TRY(check_model(file, wanted, error));
  DP_TRY(check_text(file, "encoder", "was made with the encoder", wanted->run.encoder, wanted->others.encoder, error));
  return check_factors(file, wanted, error);
}

static dp_status check_text_file(const dp_safetensors *file, const exec_cache_wanted *wanted, dp_error *error) {
  DP_TRY(check_kind(file, "diffpipe-text", wanted, error));
  DP_TRY(check_model(file, wanted, error));
  return check_text(file, "text_encoder", "was made with the text encoder", wanted->run.text_encoder,
                    wanted->others.text_encoder, error);
}

dp_status exec_cache_open_latents(const char *path, int64_t height, int64_t width, const exec_cache_wanted *wanted,
                                  dp_safetensors *file, exec_fingerprint *found, dp_error *error) {
  dp_safetensors made = {0};
  DP_TRY(open_file(path, &made, error));
  const dp_status status = wanted->trust ? DP_OK : check_latents_file(&made, height, width, wanted, error);
  if (status != DP_OK) {
    dp_safetensors_close(&made);
    return status;
  }
  *found = (exec_fingerprint){.model = text_of(&made, "model"),
                              .encoder = text_of(&made, "encoder"),
                              .scaling_factor = number_of(&made, "scaling_factor"),
                              .shift_factor = number_of(&made, "shift_factor")};
  *file = made;
  return DP_OK;
}

dp_status exec_cache_open_text(const char *path, const exec_cache_wanted *wanted, dp_safetensors *file,
                               exec_fingerprint *found, dp_error *error) {
  dp_safetensors made = {0};
  DP_TRY(open_file(path, &made, error));
  const dp_status status = wanted->trust ? DP_OK : check_text_file(&made, wanted, error);
  if (status != DP_OK) {
    dp_safetensors_close(&made);
    return status;
  }
  *found = (exec_fingerprint){.model = text_of(&made, "model"), .text_encoder = text_of(&made, "text_encoder")};
  *file = made;
  return DP_OK;
}

static dp_status check_tensor(const dp_safetensors *file, const dp_safetensor *tensor, const char *kind,
                              const char *name, int rank, const int64_t *dims, dp_error *error) {
  char found[96], wanted[96];
  if (!dp_dtype_is_float(tensor->dtype))
    return dp_fail(error, DP_BAD_INPUT, "cache %s: %s of sample %.200s: found %s, allowed: F32, F16, BF16, F64",
                   file->path, kind, name, dp_dtype_name(tensor->dtype));
  if (dp_safetensor_has_shape(tensor, rank, dims)) return DP_OK;
  return dp_fail(error, DP_BAD_INPUT, "cache %s: %s of sample %.200s: found the shape %s, the run wants %s; " AGAIN,
                 file->path, kind, name, dp_safetensor_shape(tensor, found), dp_shape_text(rank, dims, wanted));
}

dp_status exec_cache_find(const dp_safetensors *file, const char *kind, const char *name, int rank, const int64_t *dims,
                          const dp_safetensor **tensor, dp_error *error) {
  const size_t length = strlen(kind) + strlen(name) + 2;
  char *key = malloc(length);
  if (!key) return dp_fail_memory(error);
  (void)snprintf(key, length, "%s/%s", kind, name);
  const dp_safetensor *found = dp_safetensors_find(file, key);
  free(key);
  if (!found)
    return dp_fail(error, DP_BAD_INPUT, "cache %s: has no %s of sample %.200s; " AGAIN, file->path, kind, name);
  DP_TRY(check_tensor(file, found, kind, name, rank, dims, error));
  *tensor = found;
  return DP_OK;
}
