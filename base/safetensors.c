#define _POSIX_C_SOURCE 200809L
#include "base/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allowed.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian and are read in place: a big-endian host needs conversions here"
#endif

enum { PREFIX_BYTES = 8 };

static const struct {
  const char *name;
  int bytes;
} dtypes[DP_DTYPE_COUNT] = {
    [DP_DTYPE_BOOL] = {"BOOL", 1},       [DP_DTYPE_U8] = {"U8", 1},           [DP_DTYPE_I8] = {"I8", 1},
    [DP_DTYPE_F8_E5M2] = {"F8_E5M2", 1}, [DP_DTYPE_F8_E4M3] = {"F8_E4M3", 1}, [DP_DTYPE_I16] = {"I16", 2},
    [DP_DTYPE_U16] = {"U16", 2},         [DP_DTYPE_F16] = {"F16", 2},         [DP_DTYPE_BF16] = {"BF16", 2},
    [DP_DTYPE_I32] = {"I32", 4},         [DP_DTYPE_U32] = {"U32", 4},         [DP_DTYPE_F32] = {"F32", 4},
    [DP_DTYPE_F64] = {"F64", 8},         [DP_DTYPE_I64] = {"I64", 8},         [DP_DTYPE_U64] = {"U64", 8},
};

const char *dp_dtype_name(dp_dtype dtype) { return dtypes[dtype].name; }
int64_t dp_dtype_bytes(dp_dtype dtype) { return dtypes[dtype].bytes; }

const char *dp_shape_text(int rank, const int64_t *dims, char out[96]) {
  size_t length = 1;
  out[0] = '[';
  for (int d = 0; d < rank; d++) {
    if (length > 96 - 32) { /* a dimension takes at most 22, the end 5 */
      (void)snprintf(out + length, 96 - length, ", ...");
      length = strlen(out);
      break;
    }
    (void)snprintf(out + length, 96 - length, "%s%lld", d ? ", " : "", (long long)dims[d]);
    length += strlen(out + length);
  }
  (void)snprintf(out + length, 96 - length, "]");
  return out;
}

const char *dp_safetensor_shape(const dp_safetensor *tensor, char out[96]) {
  return dp_shape_text(tensor->rank, tensor->dims, out);
}

bool dp_safetensor_has_shape(const dp_safetensor *tensor, int rank, const int64_t *dims) {
  return tensor->rank == rank && (rank == 0 || memcmp(tensor->dims, dims, sizeof *dims * (size_t)rank) == 0);
}

/* A name for an error line: a long one is cut between characters, so that the rest of the line is not lost. */
static const char *shown(const char *name, char out[160]) {
  const size_t length = strlen(name);
  size_t kept = length < 150 ? length : 150;
  while (kept < length && kept > 0 && ((unsigned char)name[kept] & 0xC0) == 0x80) kept--;
  memcpy(out, name, kept);
  (void)snprintf(out + kept, 160 - kept, "%s", kept < length ? "..." : "");
  return out;
}

#define FAIL(file, name, ...) fail_tensor(file, name, error, __VA_ARGS__)
static dp_status fail_tensor(const dp_safetensors *file, const char *name, dp_error *error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static dp_status fail_tensor(const dp_safetensors *file, const char *name, dp_error *error, const char *format, ...) {
  char text[512], short_name[160];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return dp_fail(error, DP_BAD_INPUT, "%s: tensor %s: %s", file->path, shown(name, short_name), text);
}

static dp_status read_dtype(const dp_safetensors *file, const char *name, const json_t *json, dp_dtype *dtype,
                            dp_error *error) {
  const char *text = json_string_value(json);
  for (int d = 0; text && d < DP_DTYPE_COUNT; d++) {
    if (strcmp(text, dtypes[d].name) != 0) continue;
    *dtype = (dp_dtype)d;
    return DP_OK;
  }
  char found[160];
  dp_allowed allowed = {.given = text};
  for (int d = 0; d < DP_DTYPE_COUNT; d++) dp_allowed_add(&allowed, dtypes[d].name);
  const dp_status status =
      FAIL(file, name, "dtype: found %s, %s", text ? shown(text, found) : "no string", dp_allowed_text(&allowed));
  dp_allowed_free(&allowed);
  return status;
}

static dp_status read_shape(dp_safetensors *file, const char *name, const json_t *json, dp_safetensor *tensor,
                            dp_error *error) {
  if (!json_is_array(json) || json_array_size(json) > INT32_MAX)
    return FAIL(file, name, "shape: found no list, allowed: a list of integers");
  tensor->rank = (int)json_array_size(json);
  int64_t *dims = DP_ARENA_NEW(&file->arena, int64_t, json_array_size(json));
  if (!dims) return dp_fail_memory(error);
  tensor->dims = dims;
  tensor->elements = 1;
  bool overflows = false;
  for (int d = 0; d < tensor->rank; d++) {
    const json_t *dim = json_array_get(json, (size_t)d);
    if (!json_is_integer(dim) || json_integer_value(dim) < 0)
      return FAIL(file, name, "shape: dimension %d is no size, allowed: integers from 0", d);
    dims[d] = json_integer_value(dim);
    overflows = overflows || __builtin_mul_overflow(tensor->elements, dims[d], &tensor->elements);
  }
  char shape[96];
  if (overflows || __builtin_mul_overflow(tensor->elements, dtypes[tensor->dtype].bytes, &tensor->bytes))
    return FAIL(file, name, "shape: found %s, allowed: less than 2^63 bytes", dp_safetensor_shape(tensor, shape));
  return DP_OK;
}

static dp_status read_offsets(const dp_safetensors *file, const char *name, const json_t *json, dp_safetensor *tensor,
                              dp_error *error) {
  const json_t *begin = json_array_get(json, 0), *end = json_array_get(json, 1);
  if (json_array_size(json) != 2 || !json_is_integer(begin) || !json_is_integer(end))
    return FAIL(file, name, "data_offsets: found no pair of integers, allowed: [BEGIN, END]");
  const int64_t from = json_integer_value(begin), to = json_integer_value(end);
  if (from < 0 || to < from || (uint64_t)to > file->data_bytes)
    return FAIL(file, name, "data_offsets: found [%lld, %lld], allowed: from 0 to the %llu bytes of data in the file",
                (long long)from, (long long)to, (unsigned long long)file->data_bytes);
  char shape[96];
  if (to - from != tensor->bytes)
    return FAIL(file, name, "data_offsets: found %lld bytes, allowed: %lld, the size of %s %s", (long long)(to - from),
                (long long)tensor->bytes, dtypes[tensor->dtype].name, dp_safetensor_shape(tensor, shape));
  tensor->offset_bytes = (uint64_t)from;
  return DP_OK;
}

static dp_status read_tensor(dp_safetensors *file, const char *name, const json_t *json, dp_safetensor *tensor,
                             dp_error *error) {
  static const char *const keys[] = {"dtype", "shape", "data_offsets"};
  if (!json_is_object(json)) return FAIL(file, name, "found no object, allowed: {dtype, shape, data_offsets}");
  for (size_t k = 0; k < 3; k++)
    if (!json_object_get(json, keys[k]))
      return FAIL(file, name, "%s is missing, allowed: {dtype, shape, data_offsets}", keys[k]);
  if (json_object_size(json) != 3)
    return FAIL(file, name, "found %zu keys, allowed: {dtype, shape, data_offsets}", json_object_size(json));
  if (!(tensor->name = dp_arena_strdup(&file->arena, name))) return dp_fail_memory(error);
  DP_TRY(read_dtype(file, name, json_object_get(json, keys[0]), &tensor->dtype, error));
  DP_TRY(read_shape(file, name, json_object_get(json, keys[1]), tensor, error));
  return read_offsets(file, name, json_object_get(json, keys[2]), tensor, error);
}

static dp_status read_metadata(dp_safetensors *file, json_t *json, dp_error *error) {
  if (!json_is_object(json))
    return dp_fail(error, DP_BAD_INPUT, "%s: __metadata__: found no object, allowed: {KEY: STRING}", file->path);
  file->metadata = DP_ARENA_NEW(&file->arena, dp_safetensors_string, json_object_size(json));
  if (!file->metadata) return dp_fail_memory(error);
  const char *key;
  json_t *value;
  json_object_foreach(json, key, value) {
    char name[160];
    if (!json_is_string(value))
      return dp_fail(error, DP_BAD_INPUT, "%s: __metadata__: %s is no string, allowed: strings", file->path,
                     shown(key, name));
    dp_safetensors_string *entry = &file->metadata[file->metadata_count++];
    entry->key = dp_arena_strdup(&file->arena, key);
    entry->value = dp_arena_strdup(&file->arena, json_string_value(value));
    if (!entry->key || !entry->value) return dp_fail_memory(error);
  }
  return DP_OK;
}

static int by_place(const void *a, const void *b) {
  const dp_safetensor *left = a, *right = b;
  if (left->offset_bytes != right->offset_bytes) return left->offset_bytes < right->offset_bytes ? -1 : 1;
  if (left->bytes != right->bytes) return left->bytes < right->bytes ? -1 : 1; /* the empty ones first */
  return strcmp(left->name, right->name);
}

static int by_name(const void *a, const void *b) {
  return strcmp((*(const dp_safetensor *const *)a)->name, (*(const dp_safetensor *const *)b)->name);
}

/* Every byte of the data belongs to exactly one tensor. */
static dp_status check_places(const dp_safetensors *file, dp_error *error) {
  uint64_t end = 0;
  char before[160];
  for (size_t i = 0; i < file->count; i++) {
    const dp_safetensor *tensor = &file->tensors[i];
    if (tensor->offset_bytes < end)
      return FAIL(file, tensor->name, "begins at %llu, within tensor %s, allowed: tensors that do not overlap",
                  (unsigned long long)tensor->offset_bytes, shown(file->tensors[i - 1].name, before));
    if (tensor->offset_bytes > end)
      return FAIL(file, tensor->name,
                  "begins at %llu, but the bytes from %llu on belong to no tensor, allowed: no holes",
                  (unsigned long long)tensor->offset_bytes, (unsigned long long)end);
    end += (uint64_t)tensor->bytes;
  }
  if (end == file->data_bytes) return DP_OK;
  return dp_fail(error, DP_BAD_INPUT, "%s: found %llu bytes of data, allowed: %llu, those of its tensors", file->path,
                 (unsigned long long)file->data_bytes, (unsigned long long)end);
}

static dp_status read_tree(dp_safetensors *file, json_t *root, const unsigned char *data, dp_error *error) {
  if (!json_is_object(root))
    return dp_fail(error, DP_BAD_INPUT, "%s: the header is no object, allowed: {NAME: TENSOR}", file->path);
  const size_t most = json_object_size(root);
  file->tensors = DP_ARENA_NEW(&file->arena, dp_safetensor, most);
  file->by_name = DP_ARENA_NEW(&file->arena, const dp_safetensor *, most);
  if (!file->tensors || !file->by_name) return dp_fail_memory(error);
  const char *name;
  json_t *value;
  json_object_foreach(root, name, value) {
    if (strcmp(name, "__metadata__") == 0)
      DP_TRY(read_metadata(file, value, error));
    else
      DP_TRY(read_tensor(file, name, value, &file->tensors[file->count++], error));
  }
  qsort(file->tensors, file->count, sizeof *file->tensors, by_place);
  DP_TRY(check_places(file, error));
  for (size_t i = 0; i < file->count; i++) {
    file->tensors[i].data = data + file->tensors[i].offset_bytes;
    file->by_name[i] = &file->tensors[i];
  }
  qsort(file->by_name, file->count, sizeof *file->by_name, by_name);
  return DP_OK;
}

/* Reads a header of header_bytes; `data` are the data_bytes that follow it. */
static dp_status read_header(const char *header, size_t header_bytes, const unsigned char *data, uint64_t data_bytes,
                             dp_safetensors *file, dp_error *error) {
  if (header_bytes == 0 || header[0] != '{')
    return dp_fail(error, DP_BAD_INPUT,
                   "%s: the header does not begin with {, allowed: a file in the safetensors format", file->path);
  if (memchr(header, 0, header_bytes)) /* jansson passes over one that follows a number */
    return dp_fail(error, DP_BAD_INPUT, "%s: the header is not valid JSON: found a NUL byte, allowed: text",
                   file->path);
  json_error_t reason;
  json_t *root = json_loadb(header, header_bytes, JSON_REJECT_DUPLICATES, &reason);
  if (!root) {
    if (json_error_code(&reason) == json_error_out_of_memory) return dp_fail_memory(error);
    return dp_fail(error, DP_BAD_INPUT, "%s: the header is not valid JSON: byte %d: %s", file->path, reason.position,
                   reason.text);
  }
  file->data_bytes = data_bytes;
  const dp_status status = read_tree(file, root, data, error);
  json_decref(root);
  return status;
}

/* The length of the header of a file of file_bytes, from its first 8 bytes. */
static dp_status read_prefix(const unsigned char prefix[PREFIX_BYTES], uint64_t file_bytes, const char *path,
                             size_t *header_bytes, dp_error *error) {
  uint64_t length = 0;
  for (int i = PREFIX_BYTES - 1; i >= 0; i--) length = length << 8 | prefix[i];
  const uint64_t rest = file_bytes - PREFIX_BYTES;
  if (length > DP_SAFETENSORS_HEADER_BYTES || length > rest)
    return dp_fail(error, DP_BAD_INPUT, "%s: found a header of %llu bytes in a file of %llu, allowed: at most %llu%s",
                   path, (unsigned long long)length, (unsigned long long)file_bytes,
                   (unsigned long long)(rest < DP_SAFETENSORS_HEADER_BYTES ? rest : DP_SAFETENSORS_HEADER_BYTES),
                   length > DP_SAFETENSORS_HEADER_BYTES ? " (is it a safetensors file?)" : " (is the file complete?)");
  *header_bytes = (size_t)length;
  return DP_OK;
}

static dp_status fail_short(const char *path, uint64_t length, dp_error *error) {
  return dp_fail(error, DP_BAD_INPUT, "%s: found %llu bytes, allowed: a safetensors file, which has at least 10", path,
                 (unsigned long long)length);
}

dp_status dp_safetensors_parse(const void *bytes, size_t length, const char *name, dp_safetensors *file,
                               dp_error *error) {
  size_t header_bytes = 0;
  if (length < PREFIX_BYTES) return fail_short(name, length, error);
  DP_TRY(read_prefix(bytes, length, name, &header_bytes, error));
  dp_safetensors made = {0};
  made.path = dp_arena_strdup(&made.arena, name);
  const char *header = (const char *)bytes + PREFIX_BYTES;
  const dp_status status = made.path ? read_header(header, header_bytes, (const unsigned char *)header + header_bytes,
                                                   length - PREFIX_BYTES - header_bytes, &made, error)
                                     : dp_fail_memory(error);
  if (status == DP_OK)
    *file = made;
  else
    dp_safetensors_close(&made);
  return status;
}

static dp_status fail_read(const char *path, dp_error *error) {
  return dp_fail(error, DP_BAD_INPUT, "%s: cannot be read: %s", path, errno ? strerror(errno) : "it became shorter");
}

/* Reads at a place of the file; the reason is errno, or 0 where the file ends too early. */
static bool read_at(int descriptor, uint64_t place, void *out, size_t bytes) {
  for (size_t got = 0; got < bytes;) {
    errno = 0;
    const ssize_t count = pread(descriptor, (char *)out + got, bytes - got, (off_t)(place + got));
    if (count <= 0 && errno != EINTR) return false;
    if (count > 0) got += (size_t)count;
  }
  return true;
}

/* The header is read, not mapped: a file that is cut meanwhile then is an error and not a signal. */
static dp_status open_descriptor(int descriptor, const char *path, dp_safetensors *file, dp_error *error) {
  struct stat about;
  if (fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode))
    return dp_fail(error, DP_BAD_INPUT, "%s: found a folder or a device, allowed: a regular file", path);
  const uint64_t file_bytes = (uint64_t)about.st_size;
  unsigned char prefix[PREFIX_BYTES];
  size_t header_bytes = 0;
  if (file_bytes < PREFIX_BYTES) return fail_short(path, file_bytes, error);
  if (!read_at(descriptor, 0, prefix, sizeof prefix)) return fail_read(path, error);
  DP_TRY(read_prefix(prefix, file_bytes, path, &header_bytes, error));
  char *header = malloc(header_bytes + 1);
  if (!header || !(file->path = dp_arena_strdup(&file->arena, path))) {
    free(header);
    return dp_fail_memory(error);
  }
  dp_status status = DP_OK;
  if (!read_at(descriptor, PREFIX_BYTES, header, header_bytes)) {
    status = fail_read(path, error);
  } else if (file_bytes > SIZE_MAX ||
             (file->map = mmap(NULL, (size_t)file_bytes, PROT_READ, MAP_PRIVATE, descriptor, 0)) == MAP_FAILED) {
    file->map = NULL;
    status = dp_fail(error, DP_IO_FAILED, "%s: cannot be mapped into memory: %s", path, strerror(errno));
  } else {
    file->map_bytes = (size_t)file_bytes;
    const size_t before = PREFIX_BYTES + header_bytes;
    status =
        read_header(header, header_bytes, (const unsigned char *)file->map + before, file_bytes - before, file, error);
  }
  free(header);
  return status;
}

dp_status dp_safetensors_open(const char *path, dp_safetensors *file, dp_error *error) {
  /* not blocking: the opening of a pipe that nobody writes to would never return */
  const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return fail_read(path, error);
  dp_safetensors made = {0};
  const dp_status status = open_descriptor(descriptor, path, &made, error);
  made.descriptor = descriptor;
  if (!made.map) (void)close(descriptor); /* else closing the file does it */
  if (status == DP_OK)
    *file = made;
  else
    dp_safetensors_close(&made);
  return status;
}

void dp_safetensors_close(dp_safetensors *file) {
  if (file->map) {
    (void)munmap(file->map, file->map_bytes);
    (void)close(file->descriptor);
  }
  dp_arena_free(&file->arena);
  *file = (dp_safetensors){0};
}

static int compare_with_name(const void *name, const void *tensor) {
  return strcmp(name, (*(const dp_safetensor *const *)tensor)->name);
}

const dp_safetensor *dp_safetensors_find(const dp_safetensors *file, const char *name) {
  if (!file->count) return NULL;
  const dp_safetensor **found = bsearch(name, file->by_name, file->count, sizeof *file->by_name, compare_with_name);
  return found ? *found : NULL;
}

const char *dp_safetensors_metadata(const dp_safetensors *file, const char *key) {
  for (size_t i = 0; i < file->metadata_count; i++)
    if (strcmp(file->metadata[i].key, key) == 0) return file->metadata[i].value;
  return NULL;
}

static float fp32_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

float dp_fp32_of_bf16(uint16_t bits) { return fp32_of_bits((uint32_t)bits << 16); }

/* 1 sign, 5 exponent (bias 15), 10 mantissa bits; exponent 31 is infinity or NaN, 0 is zero or a subnormal, which fp32
 * holds as a normal number. */
float dp_fp32_of_fp16(uint16_t bits) {
  const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
  if (exponent == 31) return fp32_of_bits(sign | 0x7f800000 | mantissa << 13);
  if (exponent) return fp32_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  const float small = (float)mantissa * 0x1p-24f; /* exact */
  return sign ? -small : small;
}

bool dp_dtype_is_float(dp_dtype dtype) {
  return dtype == DP_DTYPE_F32 || dtype == DP_DTYPE_F16 || dtype == DP_DTYPE_BF16 || dtype == DP_DTYPE_F64;
}

/* Of numbers of floating point. */
static void convert(dp_dtype dtype, const unsigned char *data, int64_t count, float *out) {
  if (dtype == DP_DTYPE_F32) {
    if (count) memcpy(out, data, (size_t)count * sizeof *out);
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    if (dtype == DP_DTYPE_F64) {
      double value;
      memcpy(&value, data + 8 * i, sizeof value);
      out[i] = (float)value;
    } else {
      uint16_t bits;
      memcpy(&bits, data + 2 * i, sizeof bits);
      out[i] = dtype == DP_DTYPE_F16 ? dp_fp32_of_fp16(bits) : dp_fp32_of_bf16(bits);
    }
  }
}

dp_status dp_safetensor_read_fp32(const dp_safetensors *file, const dp_safetensor *tensor, float *out,
                                  dp_error *error) {
  if (!dp_dtype_is_float(tensor->dtype))
    return FAIL(file, tensor->name, "found dtype %s, allowed: F32, F16, BF16, F64", dtypes[tensor->dtype].name);
  convert(tensor->dtype, tensor->data, tensor->elements, out);
  return DP_OK;
}

dp_status dp_safetensor_fetch_fp32(const dp_safetensors *file, const dp_safetensor *tensor, float *out,
                                   dp_error *error) {
  enum { PIECE_BYTES = 1 << 15 };
  if (!file->map || !dp_dtype_is_float(tensor->dtype)) return dp_safetensor_read_fp32(file, tensor, out, error);
  const uint64_t place = file->map_bytes - file->data_bytes + tensor->offset_bytes;
  const int64_t size = dtypes[tensor->dtype].bytes;
  unsigned char piece[PIECE_BYTES];
  for (int64_t done = 0; done < tensor->elements;) {
    const bool whole = tensor->dtype == DP_DTYPE_F32;
    const int64_t left = tensor->elements - done,
                  count = whole || left < PIECE_BYTES / size ? left : PIECE_BYTES / size;
    if (!read_at(file->descriptor, place + (uint64_t)(done * size), whole ? (void *)(out + done) : piece,
                 (size_t)(count * size)))
      return dp_fail(error, DP_IO_FAILED, "%s: tensor %s: cannot be read: %s", file->path, tensor->name,
                     errno ? strerror(errno) : "the file became shorter");
    if (!whole) convert(tensor->dtype, piece, count, out + done);
    done += count;
  }
  return DP_OK;
}
