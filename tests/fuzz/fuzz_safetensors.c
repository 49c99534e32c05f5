/* Any bytes as a safetensors file, once as they are and once behind the length of a header that ends at their last
 * closing brace: refused in one line, or tensors that lie side by side in the data, are found by name, and can be read
 * whole. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_file(const dp_safetensors *file, const unsigned char *end) {
  uint64_t place = 0;
  for (size_t i = 0; i < file->count; i++) {
    const dp_safetensor *tensor = &file->tensors[i];
    if (tensor->offset_bytes != place || tensor->bytes < 0 || tensor->rank < 0) abort();
    if (tensor->elements * dp_dtype_bytes(tensor->dtype) != tensor->bytes) abort();
    if (tensor->data + tensor->bytes > end || dp_safetensors_find(file, tensor->name) != tensor) abort();
    place += (uint64_t)tensor->bytes;
    dp_error error = DP_ERROR_INIT;
    float *out = malloc((size_t)tensor->elements * sizeof *out + 1);
    char shape[96];
    if (out && dp_safetensor_read_fp32(file, tensor, out, &error) != DP_OK && !strstr(error.text, ": found dtype "))
      abort();
    if (strlen(dp_safetensor_shape(tensor, shape)) > 95) abort();
    free(out);
  }
  if (place != file->data_bytes) abort();
  for (size_t i = 1; i < file->count; i++)
    if (strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) >= 0) abort();
  for (size_t i = 0; i < file->metadata_count; i++)
    if (dp_safetensors_metadata(file, file->metadata[i].key) != file->metadata[i].value) abort();
}

static void try_bytes(const unsigned char *bytes, size_t size) {
  dp_safetensors file = {0};
  dp_error error = DP_ERROR_INIT;
  const dp_status status = dp_safetensors_parse(bytes, size, "fuzz", &file, &error);
  if (status == DP_OK)
    check_file(&file, bytes + size);
  else if (status != DP_BAD_INPUT || strncmp(error.text, "fuzz: ", 6) != 0 || strchr(error.text, '\n') || file.path)
    abort();
  dp_safetensors_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try_bytes(data, size);
  size_t header = size;
  while (header > 0 && data[header - 1] != '}') header--;
  unsigned char *bytes = malloc(size + 8);
  if (!bytes) return 0;
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)header >> 8 * i);
  if (size) memcpy(bytes + 8, data, size);
  try_bytes(bytes, size + 8);
  free(bytes);
  return 0;
}
