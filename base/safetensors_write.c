#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"

static int by_key(const void *a, const void *b) {
  return strcmp(((const dp_safetensors_string *)a)->key, ((const dp_safetensors_string *)b)->key);
}

static dp_status add_metadata(json_t *root, const char *path, const dp_safetensors_string *metadata, size_t count,
                              dp_error *error) {
  if (!count) return DP_OK;
  dp_safetensors_string *sorted = malloc(count * sizeof *sorted);
  json_t *strings = json_object();
  if (!sorted || json_object_set_new(root, "__metadata__", strings) != 0) { /* takes `strings`, also when it fails */
    free(sorted);
    return dp_fail_memory(error);
  }
  memcpy(sorted, metadata, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, by_key);
  dp_status status = DP_OK;
  for (size_t i = 0; i < count && status == DP_OK; i++) {
    if (json_object_get(strings, sorted[i].key))
      status = dp_fail(error, DP_BAD_INPUT, "%s: __metadata__: found %s twice, allowed: once", path, sorted[i].key);
    else if (json_object_set_new(strings, sorted[i].key, json_string(sorted[i].value)) != 0)
      status = dp_fail(error, DP_BAD_INPUT, "%s: __metadata__: %s is not text, allowed: UTF-8", path, sorted[i].key);
  }
  free(sorted);
  return status;
}

static dp_status add_tensor(json_t *root, const char *path, const dp_safetensors_entry *entry, uint64_t *offset,
                            dp_error *error) {
  if (strcmp(entry->name, "__metadata__") == 0 || json_object_get(root, entry->name))
    return dp_fail(error, DP_BAD_INPUT, "%s: tensor %s: the name is taken, allowed: unique names", path, entry->name);
  int64_t bytes = dp_dtype_bytes(entry->dtype);
  bool overflows = false;
  json_t *shape = json_array(), *offsets = NULL, *tensor = NULL;
  for (int d = 0; d < entry->rank; d++) {
    overflows = overflows || entry->dims[d] < 0 || __builtin_mul_overflow(bytes, entry->dims[d], &bytes);
    (void)json_array_append_new(shape, json_integer(entry->dims[d])); /* counted below */
  }
  const uint64_t end = *offset + (overflows ? 0 : (uint64_t)bytes);
  char text[96];
  dp_status status = DP_OK;
  if (overflows || end > INT64_MAX) {
    status = dp_fail(error, DP_BAD_INPUT, "%s: tensor %s: found %s, allowed: less than 2^63 bytes", path, entry->name,
                     dp_shape_text(entry->rank, entry->dims, text));
  } else if (json_array_size(shape) != (size_t)entry->rank ||
             !(offsets = json_pack("[II]", (json_int_t)*offset, (json_int_t)end)) ||
             !(tensor = json_pack("{sssOsO}", "dtype", dp_dtype_name(entry->dtype), "shape", shape, "data_offsets",
                                  offsets))) {
    status = dp_fail_memory(error);
  } else if (json_object_set(root, entry->name, tensor) != 0) {
    status = dp_fail(error, DP_BAD_INPUT, "%s: tensor %s: the name is not text, allowed: UTF-8", path, entry->name);
  }
  json_decref(tensor);
  json_decref(offsets);
  json_decref(shape);
  if (status == DP_OK) *offset = end;
  return status;
}

dp_status dp_safetensors_create(const char *path, const dp_safetensors_entry *entries, size_t count,
                                const dp_safetensors_string *metadata, size_t metadata_count,
                                dp_safetensors_writer *writer, dp_error *error) {
  dp_safetensors_writer made = {0};
  json_t *root = json_object();
  dp_status status = root ? add_metadata(root, path, metadata, metadata_count, error) : dp_fail_memory(error);
  for (size_t i = 0; i < count && status == DP_OK; i++)
    status = add_tensor(root, path, &entries[i], &made.data_bytes, error);
  char *header = status == DP_OK ? json_dumps(root, JSON_COMPACT) : NULL; /* in the order of adding */
  json_decref(root);
  if (status == DP_OK && !header) status = dp_fail_memory(error);
  if (status != DP_OK) return status;
  const size_t length = strlen(header), padded = (length + 7) / 8 * 8;
  unsigned char prefix[8];
  for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)((uint64_t)padded >> 8 * i);
  if (padded > DP_SAFETENSORS_HEADER_BYTES)
    status = dp_fail(error, DP_BAD_INPUT, "%s: found a header of %zu bytes for %zu tensors, allowed: at most %d", path,
                     padded, count, DP_SAFETENSORS_HEADER_BYTES);
  else
    status = dp_output_open(path, &made.output, error);
  if (status == DP_OK) {
    made.header_bytes = padded;
    status = dp_output_write(&made.output, prefix, sizeof prefix, error);
    if (status == DP_OK) status = dp_output_write(&made.output, header, length, error);
    if (status == DP_OK) status = dp_output_write(&made.output, "       ", padded - length, error);
    if (status != DP_OK) dp_output_abandon(&made.output);
  }
  free(header);
  if (status == DP_OK) *writer = made;
  return status;
}

dp_status dp_safetensors_write(dp_safetensors_writer *writer, const void *data, size_t bytes, dp_error *error) {
  if (bytes > writer->data_bytes - writer->written_bytes)
    return dp_fail(
        error, DP_INTERNAL, "%s: %llu bytes of data written and %zu more given, allowed: %llu, as the header says",
        writer->output.path, (unsigned long long)writer->written_bytes, bytes, (unsigned long long)writer->data_bytes);
  DP_TRY(dp_output_write(&writer->output, data, bytes, error));
  writer->written_bytes += bytes;
  return DP_OK;
}

dp_status dp_safetensors_commit(dp_safetensors_writer *writer, uint64_t *file_bytes, dp_error *error) {
  const uint64_t bytes = 8 + writer->header_bytes + writer->data_bytes;
  dp_status status = DP_OK;
  if (writer->written_bytes != writer->data_bytes)
    status =
        dp_fail(error, DP_INTERNAL, "%s: %llu bytes of data written, allowed: %llu, as the header says",
                writer->output.path, (unsigned long long)writer->written_bytes, (unsigned long long)writer->data_bytes);
  if (status == DP_OK) status = dp_output_sync(&writer->output, error);
  if (status == DP_OK) status = dp_output_commit(&writer->output, error);
  dp_safetensors_abandon(writer);
  if (status == DP_OK && file_bytes) *file_bytes = bytes;
  return status;
}

void dp_safetensors_abandon(dp_safetensors_writer *writer) {
  dp_output_abandon(&writer->output);
  *writer = (dp_safetensors_writer){0};
}
