/* json_equal EXPECTED GOT: are two JSON files the same, numbers to a relative 1e-9? Says where they differ; exit status
 * 1 when they do, 2 when one cannot be read. Zero is compared to 1e-12, which is less than a picosecond. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static int differences;

static void differ(const char *path, const json_t *expected, const json_t *got) {
  if (++differences > 20) return;
  char *texts[2] = {json_dumps(expected, JSON_ENCODE_ANY | JSON_COMPACT),
                    json_dumps(got, JSON_ENCODE_ANY | JSON_COMPACT)};
  printf("%s: expected %.120s, got %.120s\n", path[0] ? path : "(all)", texts[0] ? texts[0] : "nothing",
         texts[1] ? texts[1] : "nothing");
  free(texts[0]);
  free(texts[1]);
}

static int equal_numbers(double a, double b) { return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-12; }

static void compare(const json_t *expected, const json_t *got, dp_str *path);

static void compare_at(const json_t *expected, const json_t *got, dp_str *path, const char *step) {
  const size_t length = path->length;
  dp_str_add(path, step);
  if (expected && got)
    compare(expected, got, path);
  else
    differ(dp_str_text(path), expected, got);
  path->length = length;
  path->text[length] = 0;
}

static void compare_objects(json_t *expected, json_t *got, dp_str *path) {
  const char *key = NULL;
  json_t *value = NULL;
  char step[128];
  json_object_foreach(expected, key, value) {
    (void)snprintf(step, sizeof step, ".%s", key);
    compare_at(value, json_object_get(got, key), path, step);
  }
  json_object_foreach(got, key, value) {
    (void)snprintf(step, sizeof step, ".%s", key);
    if (!json_object_get(expected, key)) compare_at(NULL, value, path, step);
  }
}

static void compare_arrays(const json_t *expected, const json_t *got, dp_str *path) {
  const size_t counts[2] = {json_array_size(expected), json_array_size(got)};
  char step[32];
  for (size_t i = 0; i < counts[0] || i < counts[1]; i++) {
    (void)snprintf(step, sizeof step, "[%zu]", i);
    compare_at(json_array_get(expected, i), json_array_get(got, i), path, step);
  }
}

static void compare(const json_t *expected, const json_t *got, dp_str *path) {
  if (json_is_number(expected) && json_is_number(got)) {
    if (!equal_numbers(json_number_value(expected), json_number_value(got))) differ(dp_str_text(path), expected, got);
  } else if (json_is_object(expected) && json_is_object(got)) {
    compare_objects((json_t *)expected, (json_t *)got, path);
  } else if (json_is_array(expected) && json_is_array(got)) {
    compare_arrays(expected, got, path);
  } else if (!json_equal(expected, got)) {
    differ(dp_str_text(path), expected, got);
  }
}

int main(int argc, char **argv) {
  json_t *files[2] = {NULL, NULL};
  if (argc != 3) {
    fprintf(stderr, "usage: json_equal EXPECTED GOT\n");
    return 2;
  }
  for (int i = 0; i < 2; i++) {
    json_error_t error;
    files[i] = json_load_file(argv[i + 1], JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!files[i]) {
      fprintf(stderr, "%s:%d: %s\n", argv[i + 1], error.line, error.text);
      json_decref(files[0]);
      return 2;
    }
  }
  dp_str path = {0};
  compare(files[0], files[1], &path);
  if (differences > 20) printf("and %d more\n", differences - 20);
  dp_str_free(&path);
  json_decref(files[0]);
  json_decref(files[1]);
  return differences ? 1 : 0;
}
