#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "exec/cache.h"

static dp_safetensors_string number_pair(const char *key, int64_t value, char out[32]) {
  (void)snprintf(out, 32, "%" PRId64, value);
  return (dp_safetensors_string){key, out};
}

static dp_safetensors_string hash_pair(const exec_manifest *manifest, char out[32]) {
  (void)snprintf(out, 32, "%08" PRIx32, manifest->hash);
  return (dp_safetensors_string){"manifest", out};
}

/* Room for a sample on its way from the file to the cache. */
typedef struct latents_room {
  float *planes, *latents;
  size_t latent_bytes;
} latents_room;

static dp_status write_sample(const exec_manifest *manifest, const exec_cache_latents *what, int64_t sample,
                              const latents_room *room, dp_safetensors_writer *writer, dp_error *error) {
  exec_image image = {0};
  DP_TRY(exec_manifest_image(manifest, (size_t)sample, &image, error));
  const dp_status status = exec_image_fit(&image, what->width, what->height, room->planes, error);
  exec_image_free(&image);
  if (status != DP_OK) return status;
  exec_image_encode(what->encoder, room->planes, what->height, what->width, room->latents);
  return dp_safetensors_write(writer, room->latents, room->latent_bytes, error);
}

static dp_status create_latents(const exec_manifest *manifest, const exec_cache_latents *what, const int64_t dims[3],
                                dp_arena *arena, dp_safetensors_writer *writer, dp_error *error) {
  char numbers[4][32];
  const dp_safetensors_string metadata[] = {{"format", "diffpipe-latents"},
                                            {"version", "1"},
                                            hash_pair(manifest, numbers[0]),
                                            {"model", ""},
                                            {"encoder", what->encoder->name},
                                            {"scaling_factor", "1"},
                                            {"shift_factor", "0"},
                                            number_pair("height", what->height, numbers[1]),
                                            number_pair("width", what->width, numbers[2]),
                                            number_pair("latent_channels", what->encoder->channels, numbers[3])};
  const char *path = exec_cache_latents_path(arena, manifest->folder, what->height, what->width);
  dp_safetensors_entry *entries = DP_ARENA_NEW(arena, dp_safetensors_entry, what->sample_count);
  if (!path || !entries) return dp_fail_memory(error);
  for (size_t i = 0; i < what->sample_count; i++) {
    const char *name = dp_arena_printf(arena, "latents/%s", manifest->samples[what->samples[i]].file);
    if (!name) return dp_fail_memory(error);
    entries[i] = (dp_safetensors_entry){name, DP_DTYPE_F32, 3, dims};
  }
  return dp_safetensors_create(path, entries, what->sample_count, metadata, DP_COUNT_OF(metadata), writer, error);
}

dp_status exec_cache_write_latents(const exec_manifest *manifest, const exec_cache_latents *what,
                                   exec_cache_progress progress, void *data, uint64_t *bytes, dp_error *error) {
  const int64_t dims[] = {what->encoder->channels, what->height / EXEC_LATENT_PIXELS, what->width / EXEC_LATENT_PIXELS};
  const size_t latent_bytes = (size_t)(dims[0] * dims[1] * dims[2]) * sizeof(float);
  const latents_room room = {malloc((size_t)(3 * what->height * what->width) * sizeof(float)), malloc(latent_bytes),
                             latent_bytes};
  dp_arena arena = {0};
  dp_safetensors_writer writer = {0};
  dp_status status = room.planes && room.latents ? create_latents(manifest, what, dims, &arena, &writer, error)
                                                 : dp_fail_memory(error);
  for (size_t i = 0; i < what->sample_count && status == DP_OK; i++) {
    status = write_sample(manifest, what, what->samples[i], &room, &writer, error);
    if (status == DP_OK && progress) progress(data, i + 1);
  }
  if (status == DP_OK) status = dp_safetensors_commit(&writer, bytes, error);
  dp_safetensors_abandon(&writer);
  dp_arena_free(&arena);
  free(room.planes);
  free(room.latents);
  return status;
}

/* A tensor of text and, where there is one, of pooled text for each sample. */
static dp_status create_text(const exec_manifest *manifest, const exec_cache_text *what, const int64_t text_dims[2],
                             dp_arena *arena, dp_safetensors_writer *writer, dp_error *error) {
  char numbers[4][32];
  const dp_safetensors_string metadata[] = {{"format", "diffpipe-text"},
                                            {"version", "1"},
                                            hash_pair(manifest, numbers[0]),
                                            {"model", ""},
                                            {"text_encoder", what->encoder->name},
                                            number_pair("text_tokens", what->tokens, numbers[1]),
                                            number_pair("text_channels", what->channels, numbers[2]),
                                            number_pair("pooled_channels", what->pooled_channels, numbers[3])};
  const char *path = exec_cache_text_path(arena, manifest->folder);
  dp_safetensors_entry *entries = DP_ARENA_NEW(arena, dp_safetensors_entry, 2 * manifest->count);
  size_t count = 0;
  if (!path || !entries) return dp_fail_memory(error);
  for (size_t i = 0; i < manifest->count; i++) {
    const char *text = dp_arena_printf(arena, "text/%s", manifest->samples[i].file);
    const char *pooled = dp_arena_printf(arena, "pooled/%s", manifest->samples[i].file);
    if (!text || !pooled) return dp_fail_memory(error);
    entries[count++] = (dp_safetensors_entry){text, DP_DTYPE_F32, 2, text_dims};
    if (what->pooled_channels)
      entries[count++] = (dp_safetensors_entry){pooled, DP_DTYPE_F32, 1, &what->pooled_channels};
  }
  return dp_safetensors_create(path, entries, count, metadata, DP_COUNT_OF(metadata), writer, error);
}

dp_status exec_cache_write_text(const exec_manifest *manifest, const exec_cache_text *what,
                                exec_cache_progress progress, void *data, uint64_t *bytes, dp_error *error) {
  const int64_t dims[] = {what->tokens, what->channels};
  const size_t text_count = (size_t)(what->tokens * what->channels), all = text_count + (size_t)what->pooled_channels;
  float *room = malloc(all * sizeof *room);
  dp_arena arena = {0};
  dp_safetensors_writer writer = {0};
  dp_status status = room ? create_text(manifest, what, dims, &arena, &writer, error) : dp_fail_memory(error);
  for (size_t i = 0; i < manifest->count && status == DP_OK; i++) {
    what->encoder->encode(manifest->samples[i].caption, what->tokens, what->channels, what->pooled_channels, room,
                          room + text_count);
    status = dp_safetensors_write(&writer, room, all * sizeof *room, error);
    if (status == DP_OK && progress) progress(data, i + 1);
  }
  if (status == DP_OK) status = dp_safetensors_commit(&writer, bytes, error);
  dp_safetensors_abandon(&writer);
  dp_arena_free(&arena);
  free(room);
  return status;
}
