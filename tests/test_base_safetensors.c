#define _DEFAULT_SOURCE
/* base/safetensors: files of other writers, files that are wrong in every way, round trips, files that cannot be
 * written. */
#include "base/safetensors.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "base/str.h"
#include "tests/scratch.h"
#include "tests/suite.h"

static dp_error error;
static dp_safetensors file;

static void setup(void) {
  scratch_enter();
  error = (dp_error)DP_ERROR_INIT;
  file = (dp_safetensors){0};
}

/* scratch_leave fails, and the test with it, when a temporary file was left. */
static void teardown(void) {
  dp_safetensors_close(&file);
  (void)remove("a.safetensors");
  (void)remove("pipe");
  scratch_leave();
}

static void must(dp_status status) { ck_assert_msg(status == DP_OK, "%s", error.text); }

/* A file of bytes: the header's length, the header, data. */
static dp_str build(const char *header, const void *data, size_t data_bytes) {
  dp_str bytes = {0};
  const size_t length = strlen(header);
  unsigned char prefix[8];
  for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)((uint64_t)length >> 8 * i);
  dp_str_add_bytes(&bytes, (const char *)prefix, 8);
  dp_str_add_bytes(&bytes, header, length);
  dp_str_add_bytes(&bytes, data, data_bytes);
  ck_assert(!bytes.failed);
  return bytes;
}

static void put(const char *path, const char *bytes, size_t length) {
  FILE *stream = fopen(path, "wb");
  ck_assert_ptr_nonnull(stream);
  ck_assert_uint_eq(fwrite(bytes, 1, length, stream), length);
  ck_assert_int_eq(fclose(stream), 0);
}

/* What the Python library safetensors 0.8 wrote of {"b.weight": fp32 [[1.5, -2, 3.25], [0.5, 0.001, 65504]], "a": fp16
 * [1, -2, 0.099976], "s": int64 7, "e": fp32 of shape (0, 4)}. */
static const char reference_header[] =
    "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"x\"},\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}"
    ","
    "\"b.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},\"e\":{\"dtype\":\"F32\",\"shape\":[0,4],"
    "\"data_offsets\":[32,32]},\"a\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[32,38]}}  ";
static const unsigned char reference_data[] = {
    0x07, 0, 0, 0, 0,    0,    0,    0,    0,    0, 0xc0, 0x3f, 0,    0, 0,    0xc0, 0,    0,    0x50,
    0x40, 0, 0, 0, 0x3f, 0x6f, 0x12, 0x83, 0x3a, 0, 0xe0, 0x7f, 0x47, 0, 0x3c, 0,    0xc0, 0x66, 0x2e};

static void check_reference(void) {
  ck_assert_uint_eq(file.count, 4);
  ck_assert_uint_eq(file.data_bytes, sizeof reference_data);
  static const char *const in_place[] = {"s", "b.weight", "e", "a"}, *const sorted[] = {"a", "b.weight", "e", "s"};
  for (size_t i = 0; i < 4; i++) {
    ck_assert_str_eq(file.tensors[i].name, in_place[i]);
    ck_assert_str_eq(file.by_name[i]->name, sorted[i]);
    ck_assert_ptr_eq(dp_safetensors_find(&file, sorted[i]), file.by_name[i]);
  }
  ck_assert_ptr_null(dp_safetensors_find(&file, "b"));
  ck_assert_str_eq(dp_safetensors_metadata(&file, "format"), "pt");
  ck_assert_str_eq(dp_safetensors_metadata(&file, "note"), "x");
  ck_assert_ptr_null(dp_safetensors_metadata(&file, "formats"));
  const dp_safetensor *b = dp_safetensors_find(&file, "b.weight"), *e = dp_safetensors_find(&file, "e");
  char shape[96];
  ck_assert_str_eq(dp_safetensor_shape(b, shape), "[2, 3]");
  ck_assert_int_eq(b->elements, 6);
  static const float values[] = {1.5F, -2, 3.25F, 0.5F, 0.001F, 65504}, halves[] = {1, -2, 0.09997558593750F};
  float read[6] = {0};
  must(dp_safetensor_read_fp32(&file, b, read, &error));
  ck_assert_mem_eq(read, values, sizeof values);
  must(dp_safetensor_read_fp32(&file, dp_safetensors_find(&file, "a"), read, &error));
  ck_assert_mem_eq(read, halves, sizeof halves);
  ck_assert_int_eq(e->bytes, 0);
  must(dp_safetensor_read_fp32(&file, e, read, &error));
  ck_assert_int_eq(dp_safetensors_find(&file, "s")->rank, 0);
  ck_assert_int_eq(dp_safetensors_find(&file, "s")->data[0], 7);
  ck_assert_int_eq(dp_safetensor_read_fp32(&file, dp_safetensors_find(&file, "s"), read, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "a.safetensors: tensor s: found dtype I64, allowed: F32, F16, BF16, F64");
}

START_TEST(a_file_of_the_python_library_is_read) {
  dp_str bytes = build(reference_header, reference_data, sizeof reference_data);
  put("a.safetensors", bytes.text, bytes.length);
  must(dp_safetensors_open("a.safetensors", &file, &error));
  check_reference();
  dp_safetensors_close(&file);
  must(dp_safetensors_parse(bytes.text, bytes.length, "a.safetensors", &file, &error));
  check_reference();
  dp_str_free(&bytes);
}
END_TEST

START_TEST(the_same_tensors_give_the_same_bytes) {
  static const int64_t none = 0, b[] = {2, 3}, e[] = {0, 4}, a[] = {3};
  const dp_safetensors_entry entries[] = {{"s", DP_DTYPE_I64, 0, &none},
                                          {"b.weight", DP_DTYPE_F32, 2, b},
                                          {"e", DP_DTYPE_F32, 2, e},
                                          {"a", DP_DTYPE_F16, 1, a}};
  const dp_safetensors_string metadata[] = {{"note", "x"}, {"format", "pt"}};
  dp_safetensors_writer writer = {0};
  must(dp_safetensors_create("a.safetensors", entries, 4, metadata, 2, &writer, &error));
  for (size_t i = 0; i < sizeof reference_data; i += 5) /* pieces that know nothing of tensors */
    must(dp_safetensors_write(&writer, reference_data + i,
                              sizeof reference_data - i < 5 ? sizeof reference_data - i : 5, &error));
  ck_assert_int_ne(access("a.safetensors", F_OK), 0); /* not before it is complete */
  uint64_t file_bytes = 0;
  must(dp_safetensors_commit(&writer, &file_bytes, &error));
  dp_safetensors_abandon(&writer);
  dp_str expected = build(reference_header, reference_data, sizeof reference_data);
  char *text = NULL;
  size_t length = 0;
  must(dp_file_read("a.safetensors", 1000, &text, &length, &error));
  ck_assert_uint_eq(length, expected.length);
  ck_assert_uint_eq(length, file_bytes);
  ck_assert_mem_eq(text, expected.text, length);
  free(text);
  dp_str_free(&expected);
}
END_TEST

/* Bytes of data are 16 in each. */
static const struct {
  const char *header, *expected;
} malformed[] = {
    {"", "t: the header does not begin with {, allowed: a file in the safetensors format"},
    {" {}", "t: the header does not begin with {"},
    {"{", "t: the header is not valid JSON: byte 1: "},
    {"{} x", "t: the header is not valid JSON: byte 4: end of file expected"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"a\":{\"dtype\":\"F32\",\"shape\":[4],"
     "\"data_offsets\":[0,16]}}",
     "t: the header is not valid JSON: byte 58: duplicate object key near '\"a\"'"},
    {"{\"__metadata__\":{\"k\":\"v\",\"k\":\"v\"}}", "t: the header is not valid JSON: byte 28: duplicate object key"},
    {"{\"a\\u0000b\":1}", "t: the header is not valid JSON: byte 11: NUL byte in object key"},
    {"{\"a\xff\":1}", "t: the header is not valid JSON: byte 3: unable to decode byte 0xff"},
    {"{\"a\xc0\x80\":1}", "t: the header is not valid JSON: byte 3: unable to decode byte 0xc0"},
    {"{\"a\":[]}", "t: tensor a: found no object, allowed: {dtype, shape, data_offsets}"},
    {"{\"a\":{\"shape\":[4],\"data_offsets\":[0,16]}}", "t: tensor a: dtype is missing, allowed: {"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", "t: tensor a: data_offsets is missing, allowed: {"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16],\"x\":0}}",
     "t: tensor a: found 4 keys, allowed: {"},
    {"{\"a\":{\"dtype\":\"f32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
     "t: tensor a: dtype: found f32, did you mean \"F32\"? allowed: BOOL, U8, "},
    {"{\"a\":{\"dtype\":32,\"shape\":[4],\"data_offsets\":[0,16]}}", "t: tensor a: dtype: found no string, allowed: "},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]}}", "t: tensor a: shape: found no list, allowed: "},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}",
     "t: tensor a: shape: dimension 0 is no size, allowed: integers from 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2.0],\"data_offsets\":[0,16]}}",
     "t: tensor a: shape: dimension 1 is no size"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3037000500,3037000500],\"data_offsets\":[0,16]}}",
     "t: tensor a: shape: found [3037000500, 3037000500], allowed: less than 2^63 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}", /* 2^62 + 1: 4 in 64 bits */
     "t: tensor a: shape: found [4611686018427387905], allowed: less than 2^63 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,16]}}",
     "t: the header is not valid JSON: byte 49: too big integer"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":16}}", "t: tensor a: data_offsets: found no pair"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16,0]}}", "t: tensor a: data_offsets: found no pair"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[4,20]}}",
     "t: tensor a: data_offsets: found [4, 20], allowed: from 0 to the 16 bytes of data in the file"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[-4,12]}}", "t: tensor a: data_offsets: found [-4, 12]"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]}}", "t: tensor a: data_offsets: found [16, 0]"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[0,16]}}",
     "t: tensor a: data_offsets: found 16 bytes, allowed: 12, the size of F32 [1, 3]"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],"
     "\"data_offsets\":[8,16]}}",
     "t: tensor b: begins at 8, within tensor a, allowed: tensors that do not overlap"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],"
     "\"data_offsets\":[8,16]}}",
     "t: tensor b: begins at 8, but the bytes from 4 on belong to no tensor, allowed: no holes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"b\":{\"dtype\":\"F32\",\"shape\":[0],"
     "\"data_offsets\":[8,8]}}",
     "t: tensor b: begins at 8, within tensor a, allowed"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
     "t: found 16 bytes of data, allowed: 8, those of its tensors"},
    {"{}", "t: found 16 bytes of data, allowed: 0, those of its tensors"},
    {"{\"__metadata__\":[]}", "t: __metadata__: found no object, allowed: {KEY: STRING}"},
    {"{\"__metadata__\":{\"step\":7}}", "t: __metadata__: step is no string, allowed: strings"},
};

START_TEST(malformed_files_are_told) {
  static const unsigned char data[16] = {0};
  for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
    dp_str bytes = build(malformed[i].header, data, sizeof data);
    ck_assert_int_eq(dp_safetensors_parse(bytes.text, bytes.length, "t", &file, &error), DP_BAD_INPUT);
    ck_assert_msg(strncmp(error.text, malformed[i].expected, strlen(malformed[i].expected)) == 0,
                  "found:  %s\nwanted: %s", error.text, malformed[i].expected);
    ck_assert_ptr_null(file.path);
    dp_str_free(&bytes);
  }
  static const char text[] = "a text that is no such file";
  ck_assert_int_eq(dp_safetensors_parse(text, 7, "t", &file, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "t: found 7 bytes, allowed: a safetensors file, which has at least 10");
  ck_assert_int_eq(dp_safetensors_parse(text, sizeof text, "t", &file, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(error.text, "(is it a safetensors file?)"));
  ck_assert_int_eq(dp_safetensors_parse("\x0c\0\0\0\0\0\0\0{\"a\":1\0    }", 20, "t", &file, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "t: the header is not valid JSON: found a NUL byte, allowed: text");
}
END_TEST

START_TEST(a_long_name_leaves_room_for_the_reason) {
  dp_str header = {0};
  dp_str_add(&header, "{\"");
  for (int i = 0; i < 1000; i++) dp_str_add(&header, "\xc3\xa9");
  dp_str_add(&header, "\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,16]}}");
  dp_str bytes = build(header.text, "0123456789abcdef", 16);
  ck_assert_int_eq(dp_safetensors_parse(bytes.text, bytes.length, "t", &file, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(
      strstr(error.text, "\xc3\xa9...: data_offsets: found 16 bytes, allowed: 20, the size of F32 [5]"));
  dp_str_free(&bytes);
  dp_str_free(&header);
}
END_TEST

/* A file cut anywhere is refused; one with a wrong byte anywhere in front of the data is refused or has other names or
 * numbers, but never reaches outside. */
START_TEST(cut_and_damaged_files_are_told) {
  dp_str bytes = build(reference_header, reference_data, sizeof reference_data);
  for (size_t length = 0; length < bytes.length; length++) {
    char *part = malloc(length + 1); /* so that a sanitizer sees where it ends */
    ck_assert_ptr_nonnull(part);
    memcpy(part, bytes.text, length);
    ck_assert_int_eq(dp_safetensors_parse(part, length, "t", &file, &error), DP_BAD_INPUT);
    free(part);
    if (length % 16) continue;
    put("a.safetensors", bytes.text, length);
    ck_assert_int_eq(dp_safetensors_open("a.safetensors", &file, &error), DP_BAD_INPUT);
  }
  for (size_t at = 0; at < 8 + sizeof reference_header - 1; at++) {
    for (int bit = 0; bit < 8; bit++) {
      bytes.text[at] = (char)(bytes.text[at] ^ (1 << bit));
      if (dp_safetensors_parse(bytes.text, bytes.length, "t", &file, &error) == DP_OK) {
        uint64_t end = 0;
        for (size_t i = 0; i < file.count; i++) end += (uint64_t)file.tensors[i].bytes;
        ck_assert_uint_eq(end, sizeof reference_data);
      } else {
        ck_assert_int_eq(error.status, DP_BAD_INPUT);
        ck_assert_ptr_null(strchr(error.text, '\n'));
      }
      dp_safetensors_close(&file);
      bytes.text[at] = (char)(bytes.text[at] ^ (1 << bit));
    }
  }
  dp_str_free(&bytes);
}
END_TEST

START_TEST(what_is_no_file_is_told) {
  ck_assert_int_eq(dp_safetensors_open("a.safetensors", &file, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "a.safetensors: cannot be read: No such file or directory");
  ck_assert_int_eq(mkfifo("pipe", 0600), 0);
  static const char *const paths[] = {"pipe", ".", "/dev/null"};
  for (size_t i = 0; i < 3; i++) {
    ck_assert_int_eq(dp_safetensors_open(paths[i], &file, &error), DP_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(error.text, ": found a folder or a device, allowed: a regular file"));
  }
  /* a header longer than is allowed is not read at all, though the file is long enough */
  put("a.safetensors", "\xff\xff\xff\x7f\0\0\0\0{", 9);
  ck_assert_int_eq(truncate("a.safetensors", (off_t)3 << 30), 0); /* sparse */
  ck_assert_int_eq(dp_safetensors_open("a.safetensors", &file, &error), DP_BAD_INPUT);
  ck_assert_str_eq(
      error.text,
      "a.safetensors: found a header of 2147483647 bytes in a file of 3221225472, allowed: at most 100000000 "
      "(is it a safetensors file?)");
}
END_TEST

/* Against the definition of the formats: sign, power of two, fraction. */
START_TEST(halves_are_converted_exactly) {
  for (uint32_t bits = 0; bits < 65536; bits++) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double value = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    if (exponent == 31) value = mantissa ? NAN : INFINITY;
    if (bits & 0x8000) value = -value;
    const float found = dp_fp32_of_fp16((uint16_t)bits);
    ck_assert(isnan(value) ? isnan(found) : (double)found == value);
    ck_assert(!signbit(found) == !(bits & 0x8000));
    const uint32_t wide = bits << 16; /* bf16 is the upper half of fp32 */
    const float brain = dp_fp32_of_bf16((uint16_t)bits);
    ck_assert_mem_eq(&brain, &wide, 4);
  }
}
END_TEST

START_TEST(every_float_is_read_from_any_address) {
  /* an odd header puts the data at an odd address, and one byte in front of them once more */
  static const char header[] =
      "{\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_"
      "offsets\":[1,17]},"
      "\"f\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[17,21]},\"b\":{\"dtype\":\"BF16\",\"shape\":[1],"
      "\"data_offsets\":[21,23]}}";
  unsigned char data[23] = {9};
  const double doubles[2] = {0.1, 1e300};
  const float single = -0.3F;
  memcpy(data + 1, doubles, 16);
  memcpy(data + 17, &single, 4);
  memcpy(data + 21, "\x80\x3f", 2);
  dp_str bytes = build(header, data, sizeof data);
  must(dp_safetensors_parse(bytes.text, bytes.length, "t", &file, &error));
  float out[2];
  must(dp_safetensor_read_fp32(&file, dp_safetensors_find(&file, "d"), out, &error));
  ck_assert(out[0] == 0.1F && isinf(out[1]));
  must(dp_safetensor_read_fp32(&file, dp_safetensors_find(&file, "f"), out, &error));
  ck_assert(out[0] == single);
  must(dp_safetensor_read_fp32(&file, dp_safetensors_find(&file, "b"), out, &error));
  ck_assert(out[0] == 1);
  ck_assert_int_eq(dp_safetensor_read_fp32(&file, dp_safetensors_find(&file, "u"), out, &error), DP_BAD_INPUT);
  dp_safetensors_close(&file);
  dp_str_free(&bytes);
}
END_TEST

/* Random lists of tensors come back as they were, whatever the bits. */
START_TEST(what_is_written_is_read) {
  enum { MOST = 40 };
  dp_random random;
  dp_random_init(&random, 7, 0);
  for (int round = 0; round < 30; round++) {
    char names[MOST][24];
    int64_t dims[MOST][4];
    dp_safetensors_entry entries[MOST];
    const size_t count = dp_random_below(&random, MOST + 1);
    dp_str data = {0};
    size_t begins[MOST + 1] = {0};
    for (size_t i = 0; i < count; i++) {
      const char *const pattern = i % 3 ? "blocks.%zu.weight" : "\"\\\n\xc3\xa9%zu";
      (void)snprintf(names[i], sizeof names[i], pattern, i);
      entries[i] = (dp_safetensors_entry){names[i], (dp_dtype)dp_random_below(&random, DP_DTYPE_COUNT),
                                          (int)dp_random_below(&random, 5), dims[i]};
      int64_t bytes = dp_dtype_bytes(entries[i].dtype);
      for (int d = 0; d < entries[i].rank; d++) bytes *= dims[i][d] = (int64_t)dp_random_below(&random, 5);
      for (int64_t b = 0; b < bytes; b++) {
        const char byte = (char)dp_random_u32(&random);
        dp_str_add_bytes(&data, &byte, 1);
      }
      begins[i + 1] = data.length;
    }
    dp_safetensors_writer writer = {0};
    must(dp_safetensors_create("a.safetensors", entries, count, NULL, 0, &writer, &error));
    for (size_t at = 0; at < data.length;) {
      size_t piece = 1 + dp_random_below(&random, 5000);
      if (piece > data.length - at) piece = data.length - at;
      must(dp_safetensors_write(&writer, data.text + at, piece, &error));
      at += piece;
    }
    must(dp_safetensors_commit(&writer, NULL, &error));
    must(dp_safetensors_open("a.safetensors", &file, &error));
    ck_assert_uint_eq(file.count, count);
    for (size_t i = 0; i < count; i++) {
      const dp_safetensor *tensor = dp_safetensors_find(&file, names[i]);
      ck_assert_ptr_nonnull(tensor);
      ck_assert_int_eq(tensor->dtype, entries[i].dtype);
      ck_assert_int_eq(tensor->rank, entries[i].rank);
      for (int d = 0; d < tensor->rank; d++) ck_assert_int_eq(tensor->dims[d], dims[i][d]);
      ck_assert_uint_eq(tensor->offset_bytes, begins[i]);
      ck_assert_uint_eq((uint64_t)tensor->bytes, begins[i + 1] - begins[i]);
      if (tensor->bytes) ck_assert_mem_eq(tensor->data, data.text + begins[i], (size_t)tensor->bytes);
    }
    if (file.count) ck_assert_uint_eq((uintptr_t)file.tensors[0].data % 8, 0); /* the map begins on a page */
    dp_safetensors_close(&file);
    dp_str_free(&data);
  }
}
END_TEST

START_TEST(what_cannot_be_written_is_told) {
  static const int64_t two = 2, huge[] = {INT64_MAX, 2}, negative = -1;
  const dp_safetensors_entry twice[] = {{"a", DP_DTYPE_U8, 1, &two}, {"a", DP_DTYPE_U8, 1, &two}},
                             taken = {"__metadata__", DP_DTYPE_U8, 1, &two}, large = {"a", DP_DTYPE_F32, 2, huge},
                             minus = {"a", DP_DTYPE_F32, 1, &negative}, latin = {"\xe9", DP_DTYPE_U8, 1, &two};
  const dp_safetensors_string again[] = {{"k", "v"}, {"k", "w"}}, binary = {"k", "\xff"};
  const struct {
    const dp_safetensors_entry *entries;
    size_t count;
    const dp_safetensors_string *metadata;
    size_t metadata_count;
    const char *expected;
  } cases[] = {
      {twice, 2, NULL, 0, "a.safetensors: tensor a: the name is taken, allowed: unique names"},
      {&taken, 1, NULL, 0, "a.safetensors: tensor __metadata__: the name is taken, allowed: unique names"},
      {&large, 1, NULL, 0, "a.safetensors: tensor a: found [9223372036854775807, 2], allowed: less than 2^63 bytes"},
      {&minus, 1, NULL, 0, "a.safetensors: tensor a: found [-1], allowed: less than 2^63 bytes"},
      {&latin, 1, NULL, 0, "a.safetensors: tensor \xe9: the name is not text, allowed: UTF-8"},
      {NULL, 0, again, 2, "a.safetensors: __metadata__: found k twice, allowed: once"},
      {NULL, 0, &binary, 1, "a.safetensors: __metadata__: k is not text, allowed: UTF-8"},
  };
  dp_safetensors_writer writer = {0};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ck_assert_int_eq(dp_safetensors_create("a.safetensors", cases[i].entries, cases[i].count, cases[i].metadata,
                                           cases[i].metadata_count, &writer, &error),
                     DP_BAD_INPUT);
    ck_assert_str_eq(error.text, cases[i].expected);
  }
  ck_assert_int_eq(dp_safetensors_create("absent/a", NULL, 0, NULL, 0, &writer, &error), DP_IO_FAILED);
  ck_assert_str_eq(error.text, "absent/a: cannot be written: No such file or directory");
  must(dp_safetensors_create("a.safetensors", twice, 1, NULL, 0, &writer, &error));
  ck_assert_int_eq(dp_safetensors_write(&writer, "abc", 3, &error), DP_INTERNAL); /* more than the header promises */
  must(dp_safetensors_write(&writer, "a", 1, &error));
  ck_assert_int_eq(dp_safetensors_commit(&writer, NULL, &error), DP_INTERNAL);
  ck_assert_str_eq(error.text, "a.safetensors: 1 bytes of data written, allowed: 2, as the header says");
  ck_assert_int_ne(access("a.safetensors", F_OK), 0);
}
END_TEST

/* A limit on the file size is as good as a full disk: wherever it strikes the old file stays and nothing else is left.
 */
START_TEST(a_full_disk_leaves_the_old_file) {
  put("a.safetensors", "old", 3);
  static const int64_t many = 3000;
  static const float values[3000] = {0};
  const dp_safetensors_entry entry = {"a", DP_DTYPE_F32, 1, &many};
  struct rlimit before, small;
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  for (rlim_t limit = 0; limit < 12000; limit += 997) {
    small = before;
    small.rlim_cur = limit;
    dp_safetensors_writer writer = {0};
    (void)setrlimit(RLIMIT_FSIZE, &small);
    dp_status status = dp_safetensors_create("a.safetensors", &entry, 1, NULL, 0, &writer, &error);
    for (int i = 0; i < 30 && status == DP_OK; i++)
      status = dp_safetensors_write(&writer, values + 100 * i, 400, &error);
    if (status == DP_OK) status = dp_safetensors_commit(&writer, NULL, &error);
    (void)setrlimit(RLIMIT_FSIZE, &before);
    dp_safetensors_abandon(&writer);
    ck_assert_int_eq(status, DP_IO_FAILED);
    ck_assert_str_eq(error.text, "a.safetensors: cannot be written: File too large");
    char *text = NULL;
    size_t length = 0;
    must(dp_file_read("a.safetensors", 100, &text, &length, &error));
    ck_assert_str_eq(text, "old");
    free(text);
  }
  (void)signal(SIGXFSZ, handler);
}
END_TEST

/* More values than one piece of the reading holds, after a tensor that shifts them to an odd address. */
START_TEST(a_file_that_is_cut_while_it_is_open_is_an_error_of_reading) {
  enum { COUNT = 40000 };
  static const dp_dtype kinds[] = {DP_DTYPE_F16, DP_DTYPE_BF16, DP_DTYPE_F32, DP_DTYPE_F64};
  static float read[COUNT], fetched[COUNT];
  static double values[COUNT];
  const int64_t one = 1, many = COUNT;
  dp_random random;
  dp_random_init(&random, 11, 0);
  for (int i = 0; i < COUNT; i++) values[i] = dp_random_uniform(&random); /* as bits of any of the kinds */
  for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
    const dp_safetensors_entry entries[] = {{"pad", DP_DTYPE_U8, 1, &one}, {"t", kinds[k], 1, &many}};
    const size_t bytes = (size_t)(COUNT * dp_dtype_bytes(kinds[k]));
    dp_safetensors_writer writer = {0};
    must(dp_safetensors_create("a.safetensors", entries, 2, NULL, 0, &writer, &error));
    must(dp_safetensors_write(&writer, "x", 1, &error));
    must(dp_safetensors_write(&writer, values, bytes, &error));
    must(dp_safetensors_commit(&writer, NULL, &error));
    must(dp_safetensors_open("a.safetensors", &file, &error));
    const dp_safetensor *tensor = dp_safetensors_find(&file, "t");
    must(dp_safetensor_read_fp32(&file, tensor, read, &error));
    must(dp_safetensor_fetch_fp32(&file, tensor, fetched, &error));
    ck_assert_mem_eq(read, fetched, sizeof read);
    struct stat about;
    ck_assert_int_eq(stat("a.safetensors", &about), 0);
    ck_assert_int_eq(truncate("a.safetensors", about.st_size - 1), 0);
    ck_assert_int_eq(dp_safetensor_fetch_fp32(&file, tensor, fetched, &error), DP_IO_FAILED);
    ck_assert_str_eq(error.text, "a.safetensors: tensor t: cannot be read: the file became shorter");
    dp_safetensors_close(&file);
    error = (dp_error)DP_ERROR_INIT;
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_file_of_the_python_library_is_read,
                                the_same_tensors_give_the_same_bytes,
                                malformed_files_are_told,
                                a_long_name_leaves_room_for_the_reason,
                                cut_and_damaged_files_are_told,
                                what_is_no_file_is_told,
                                halves_are_converted_exactly,
                                every_float_is_read_from_any_address,
                                what_is_written_is_read,
                                what_cannot_be_written_is_told,
                                a_full_disk_leaves_the_old_file,
                                a_file_that_is_cut_while_it_is_open_is_an_error_of_reading};
  return suite_run("base safetensors", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
