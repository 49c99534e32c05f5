/* Files of named tensors in the safetensors format, read in place and written piece by piece.
 *
 * The format (github.com/huggingface/safetensors, README): 8 bytes, the length of the header, little-endian; the
 * header, a JSON object {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ..., "__metadata__":
 * {strings}} that may end in spaces; then the tensors' bytes, row-major and little-endian, at those offsets from the
 * header's end.
 *
 * What is refused, each with one line that names file and tensor and says what is allowed: a header of more than
 * DP_SAFETENSORS_HEADER_BYTES, or longer than the file, or not JSON in UTF-8, or with a name twice; an unknown dtype; a
 * key too many or missing; sizes that overflow; offsets whose difference is not the tensor's size; tensors that
 * overlap, bytes that belong to no tensor, and data that ends before or after the file does. Tensors may lie at any
 * address: writers that do not align are tolerated, so nobody may read `data` through a pointer to a wider type.
 */
#ifndef DP_BASE_SAFETENSORS_H
#define DP_BASE_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DP_SAFETENSORS_HEADER_BYTES = 100000000 }; /* at most, as in the reference implementation */

typedef enum dp_dtype {
  DP_DTYPE_BOOL, /* one byte */
  DP_DTYPE_U8,
  DP_DTYPE_I8,
  DP_DTYPE_F8_E5M2,
  DP_DTYPE_F8_E4M3,
  DP_DTYPE_I16,
  DP_DTYPE_U16,
  DP_DTYPE_F16,
  DP_DTYPE_BF16,
  DP_DTYPE_I32,
  DP_DTYPE_U32,
  DP_DTYPE_F32,
  DP_DTYPE_F64,
  DP_DTYPE_I64,
  DP_DTYPE_U64,
  DP_DTYPE_COUNT
} dp_dtype;
const char *dp_dtype_name(dp_dtype dtype); /* "F32", as in the files */
int64_t dp_dtype_bytes(dp_dtype dtype);
bool dp_dtype_is_float(dp_dtype dtype); /* F32, F16, BF16, F64 */

/* A tensor of an open file; all of it belongs to the file. */
typedef struct dp_safetensor {
  const char *name;
  dp_dtype dtype;
  int rank; /* 0: one number */
  const int64_t *dims;
  int64_t elements, bytes;
  uint64_t offset_bytes;     /* from the end of the header */
  const unsigned char *data; /* not aligned */
} dp_safetensor;

/* A string of __metadata__. */
typedef struct dp_safetensors_string {
  const char *key, *value;
} dp_safetensors_string;

typedef struct dp_safetensors {
  dp_arena arena;
  const char *path;
  dp_safetensor *tensors; /* in the order of their data */
  size_t count;
  const dp_safetensor **by_name; /* ascending */
  dp_safetensors_string *metadata;
  size_t metadata_count;
  uint64_t data_bytes;
  void *map; /* of the whole file; NULL when parsed from memory */
  size_t map_bytes;
  int descriptor; /* of the file, while it is mapped */
} dp_safetensors;

/* Opens a file and maps it: no data is read before somebody looks at it. DP_BAD_INPUT for a file that cannot be read or
 * is not right. The file may be replaced while it is open (the old one stays mapped), but may not be cut. */
dp_status dp_safetensors_open(const char *path, dp_safetensors *file, dp_error *error);
/* The same from memory that must outlive `file`; `name` stands in for the path. */
dp_status dp_safetensors_parse(const void *bytes, size_t length, const char *name, dp_safetensors *file,
                               dp_error *error);
void dp_safetensors_close(dp_safetensors *file); /* safe on a zeroed or closed one */

const dp_safetensor *dp_safetensors_find(const dp_safetensors *file, const char *name); /* NULL: none */
const char *dp_safetensors_metadata(const dp_safetensors *file, const char *key);       /* NULL: none */
const char *dp_safetensor_shape(const dp_safetensor *tensor, char out[96]);             /* "[2, 3]", cut to fit */
const char *dp_shape_text(int rank, const int64_t *dims, char out[96]);                 /* the same */
bool dp_safetensor_has_shape(const dp_safetensor *tensor, int rank, const int64_t *dims);

/* Converts a tensor to fp32 into `out` (room for tensor.elements): F32 bit by bit, F16 and BF16 exactly, F64 rounded to
 * nearest. DP_BAD_INPUT for any other dtype (dp_dtype_is_float). */
dp_status dp_safetensor_read_fp32(const dp_safetensors *file, const dp_safetensor *tensor, float *out, dp_error *error);
/* The same by reading the file and not its map: where the file was cut meanwhile or the disk cannot read, this is
 * DP_IO_FAILED, and not the signal that ends a program which looks at such a map. Threads may read at the same time. */
dp_status dp_safetensor_fetch_fp32(const dp_safetensors *file, const dp_safetensor *tensor, float *out,
                                   dp_error *error);
float dp_fp32_of_fp16(uint16_t bits);
float dp_fp32_of_bf16(uint16_t bits);

/* Writing. The header is written first, from the list of all tensors; then their bytes follow in that order, in pieces
 * of any size, so that no copy of the whole is needed. The file is written beside and renamed when it is complete and
 * on disk (fsync); until then the old file stays. The header is padded with spaces, so that the data begins at a
 * multiple of 8 bytes; metadata is sorted by key; equal input gives equal bytes. */
typedef struct dp_safetensors_entry {
  const char *name; /* UTF-8, unique, not "__metadata__" */
  dp_dtype dtype;
  int rank;
  const int64_t *dims;
} dp_safetensors_entry;

typedef struct dp_safetensors_writer {
  dp_output output;
  uint64_t header_bytes, data_bytes, written_bytes; /* of the data: promised by the header, written so far */
} dp_safetensors_writer;

/* All strings may be freed after the call. */
dp_status dp_safetensors_create(const char *path, const dp_safetensors_entry *entries, size_t count,
                                const dp_safetensors_string *metadata, size_t metadata_count,
                                dp_safetensors_writer *writer, dp_error *error);
/* Appends data. DP_IO_FAILED with the system's reason; DP_INTERNAL when it is more than the header promises. */
dp_status dp_safetensors_write(dp_safetensors_writer *writer, const void *data, size_t bytes, dp_error *error);
/* Completes and releases. DP_INTERNAL when data is missing. file_bytes (may be NULL) gets the size of the file. In any
 * failure the temporary file is removed. */
dp_status dp_safetensors_commit(dp_safetensors_writer *writer, uint64_t *file_bytes, dp_error *error);
void dp_safetensors_abandon(dp_safetensors_writer *writer); /* safe after a commit and on a zeroed one */

#ifdef __cplusplus
}
#endif
#endif
