#define _DEFAULT_SOURCE
/* What data sets are made of: manifests that come back and what they refuse, the shapes and the toy encoders. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "exec/encoders.h"
#include "exec/image.h"
#include "exec/manifest.h"
#include "exec/shapes.h"
#include "tests/scratch.h"
#include "tests/suite.h"

static dp_error error;
static exec_image image;
static exec_manifest manifest, again;

static void must(dp_status status) { ck_assert_msg(status == DP_OK, "%s", error.text); }

static void setup(void) {
  scratch_enter();
  error = (dp_error)DP_ERROR_INIT;
}

static void teardown(void) {
  exec_image_free(&image);
  exec_manifest_free(&manifest);
  exec_manifest_free(&again);
  scratch_clean(scratch);
  scratch_leave();
}

static void must_fail(dp_status got, dp_status status, const char *text) {
  ck_assert_int_eq(got, status);
  ck_assert_msg(strstr(error.text, text) != NULL, "%s", error.text);
  error = (dp_error)DP_ERROR_INIT;
}

static void put(const char *path, const void *bytes, size_t count) {
  FILE *stream = fopen(path, "wb");
  ck_assert_ptr_nonnull(stream);
  ck_assert_uint_eq(fwrite(bytes, 1, count, stream), count);
  ck_assert_int_eq(fclose(stream), 0);
}

static void put_text(const char *path, const char *text) { put(path, text, strlen(text)); }

/* ---- manifests ---- */

static void make_folder(void) {
  must(exec_shapes_write("set", 1, 3, (const int64_t[][2]){{16, 24}}, 1, NULL, NULL, &error));
}

START_TEST(a_manifest_comes_back) {
  make_folder();
  put_text("set/shape-000001.txt", "  \"quoted\"\t\\ and \xc3\xa9\n  in two lines \r\n");
  ck_assert_int_eq(unlink("set/shape-000002.txt"), 0);
  put_text("set/readme.md", "not an image");
  put_text("set/.hidden.png", "not one either");
  ck_assert_int_eq(mkdir("set/folder.png.d", 0777), 0);
  must(exec_manifest_make("set/", NULL, NULL, &manifest, &error));
  must(exec_manifest_write(&manifest, &error));
  must(exec_manifest_read("set", &again, &error));
  ck_assert_uint_eq(manifest.count, 3);
  ck_assert_uint_eq(again.count, 3);
  ck_assert_uint_eq(again.hash, manifest.hash);
  ck_assert_str_eq(again.samples[1].caption, "\"quoted\"\t\\ and \xc3\xa9\n  in two lines");
  ck_assert_str_eq(again.samples[2].caption, "");
  for (size_t i = 0; i < 3; i++) {
    ck_assert_str_eq(again.samples[i].file, manifest.samples[i].file);
    ck_assert_str_eq(again.samples[i].caption, manifest.samples[i].caption);
    ck_assert(again.samples[i].width == 24 && again.samples[i].height == 16);
    ck_assert_uint_eq(again.samples[i].crc32, manifest.samples[i].crc32);
    must(exec_manifest_image(&again, i, &image, &error));
    exec_image_free(&image);
  }
  exec_manifest_free(&again);
  must(exec_manifest_read("set/manifest.json", &again, &error));
  ck_assert_str_eq(again.folder, "set");
}
END_TEST

/* The hash is of what is said: of each of its parts and of the order, and not of the layout. */
START_TEST(a_hash_changes_with_what_is_said) {
  static const char *const texts[] = {
      "{\"format\":\"diffpipe-dataset\",\"version\":1,\"samples\":[{\"file\":\"a\",\"caption\":\"b\",\"width\":1,"
      "\"height\":2,\"crc32\":\"00000003\"},{\"file\":\"c\",\"width\":1,\"height\":2,\"crc32\":\"00000003\"}]}",
      /* the same in another layout */
      "{\"version\": 1, \"format\": \"diffpipe-dataset\",\n\"samples\": [{\"crc32\": \"00000003\", \"file\": \"a\", "
      "\"caption\": \"b\", \"height\": 2, \"width\": "
      "1},\n{\"file\":\"c\",\"width\":1,\"height\":2,\"crc32\":\"00000003\"}]}",
      /* in another order, another file, caption, width, height, sum */
      "{\"format\":\"diffpipe-dataset\",\"version\":1,\"samples\":[{\"file\":\"c\",\"width\":1,\"height\":2,"
      "\"crc32\":\"00000003\"},{\"file\":\"a\",\"caption\":\"b\",\"width\":1,\"height\":2,\"crc32\":\"00000003\"}]}",
      "{\"format\":\"diffpipe-dataset\",\"version\":1,\"samples\":[{\"file\":\"ab\",\"width\":1,"
      "\"height\":2,\"crc32\":\"00000003\"},{\"file\":\"c\",\"width\":1,\"height\":2,\"crc32\":\"00000003\"}]}",
      "{\"format\":\"diffpipe-dataset\",\"version\":1,\"samples\":[{\"file\":\"a\",\"caption\":\"b \",\"width\":1,"
      "\"height\":2,\"crc32\":\"00000003\"},{\"file\":\"c\",\"width\":1,\"height\":2,\"crc32\":\"00000003\"}]}",
      "{\"format\":\"diffpipe-dataset\",\"version\":1,\"samples\":[{\"file\":\"a\",\"caption\":\"b\",\"width\":2,"
      "\"height\":2,\"crc32\":\"00000003\"},{\"file\":\"c\",\"width\":1,\"height\":2,\"crc32\":\"00000003\"}]}",
      "{\"format\":\"diffpipe-dataset\",\"version\":1,\"samples\":[{\"file\":\"a\",\"caption\":\"b\",\"width\":1,"
      "\"height\":2,\"crc32\":\"00000003\"},{\"file\":\"c\",\"width\":1,\"height\":2,\"crc32\":\"00000004\"}]}"};
  uint32_t hashes[7];
  for (int i = 0; i < 7; i++) {
    must(exec_manifest_parse(texts[i], strlen(texts[i]), "m.json", &manifest, &error));
    hashes[i] = manifest.hash;
    exec_manifest_free(&manifest);
  }
  ck_assert_uint_eq(hashes[0], hashes[1]);
  for (int i = 0; i < 7; i++)
    for (int k = 2; k < i; k++) ck_assert_uint_ne(hashes[i], hashes[k]);
  for (int i = 2; i < 7; i++) ck_assert_uint_ne(hashes[i], hashes[0]);
}
END_TEST

START_TEST(manifests_that_are_wrong_are_told) {
#define BEGIN "{\"format\": \"diffpipe-dataset\", \"version\": 1, \"samples\": "
#define SAMPLE "\"width\": 8, \"height\": 8, \"crc32\": \"0123abcd\"}"
  static const struct {
    const char *text, *says;
  } cases[] = {
      {"", "m.json:1: "},
      {"[1]", "m.json:1: "},
      {"{\"format\": \"diffpipe-cluster\", \"version\": 1}", "m.json:1: format: found \"diffpipe-cluster\""},
      {"{\"format\": \"diffpipe-dataset\", \"version\": 2}", "m.json:1: version"},
      {BEGIN "[]}", "m.json:1: samples: found an empty list, allowed: a list of at least one sample"},
      {BEGIN "{}}", "m.json:1: samples: found a table, allowed: a list"},
      {BEGIN "[\n3]}", "m.json:2: "},
      {BEGIN "[{\"file\": \"a.png\"}]}", "m.json:1: "},
      {BEGIN "[{\"file\": \"\", " SAMPLE "]}", "m.json:1: "},
      {BEGIN "[{\"file\": \"a\", \"captoin\": \"b\", " SAMPLE "]}", "caption"},
      {BEGIN "[{\"file\": \"a\", \"width\": 0, \"height\": 8, \"crc32\": \"0123abcd\"}]}", "m.json:1: "},
      {BEGIN "[{\"file\": \"a\", \"width\": 8, \"height\": 40000, \"crc32\": \"0123abcd\"}]}", "32768"},
      {BEGIN "[{\"file\": \"a\", \"width\": 8, \"height\": 8, \"crc32\": \"0123ABCD\"}]}",
       "crc32: found \"0123ABCD\", allowed: 8 hexadecimal digits, in lower case"},
      {BEGIN "[{\"file\": \"a\", \"width\": 8, \"height\": 8, \"crc32\": \"123\"}]}", "crc32: found \"123\""},
      {BEGIN "[{\"file\": \"/etc/a.png\", " SAMPLE "]}",
       "file: found \"/etc/a.png\", allowed: a path in the manifest's folder"},
      {BEGIN "[{\"file\": \"b/../../a.png\", " SAMPLE "]}", "allowed: a path in the manifest's folder"},
      {BEGIN "[{\"file\": \"..\", " SAMPLE "]}", "allowed: a path in the manifest's folder"},
      {BEGIN "[{\"file\": \"a\", " SAMPLE ", {\"file\": \"b\", " SAMPLE ", {\"file\": \"a\", " SAMPLE "]}",
       "m.json: samples: found the file \"a\" twice, allowed: once"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    must_fail(exec_manifest_parse(cases[i].text, strlen(cases[i].text), "m.json", &manifest, &error), DP_BAD_INPUT,
              cases[i].says);
  static const char dots[] = BEGIN "[{\"file\": \"..a/b..png\", " SAMPLE "]}";
  must(exec_manifest_parse(dots, sizeof dots - 1, "m.json", &manifest, &error));
#undef BEGIN
#undef SAMPLE
}
END_TEST

START_TEST(folders_that_cannot_be_described_are_told) {
  make_folder();
  ck_assert_int_eq(mkdir("empty", 0777), 0);
  must_fail(exec_manifest_make("none", NULL, NULL, &manifest, &error), DP_BAD_INPUT, "none: cannot be read: ");
  must_fail(exec_manifest_make("empty", NULL, NULL, &manifest, &error), DP_BAD_INPUT,
            "empty: found no image, allowed: files that end in .ppm, .png, .jpg or .jpeg");
  put_text("set/shape-000001.txt", "caf\xe9"); /* Latin-1 */
  must_fail(exec_manifest_make("set", NULL, NULL, &manifest, &error), DP_BAD_INPUT,
            "set/shape-000001.txt: the caption is not text, allowed: UTF-8");
  put("set/shape-000001.txt", "a\0b", 3);
  must_fail(exec_manifest_make("set", NULL, NULL, &manifest, &error), DP_BAD_INPUT,
            "set/shape-000001.txt: the caption");
  ck_assert_int_eq(unlink("set/shape-000001.txt"), 0);
  put_text("set/caf\xe9.ppm", "P6 1 1 255 abc");
  must_fail(exec_manifest_make("set", NULL, NULL, &manifest, &error), DP_BAD_INPUT,
            "the name is not text, allowed: UTF-8");
  ck_assert_int_eq(unlink("set/caf\xe9.ppm"), 0);
  put_text("set/z.png", "GIF89a");
  must_fail(exec_manifest_make("set", NULL, NULL, &manifest, &error), DP_BAD_INPUT, "set/z.png: is no image");
}
END_TEST

START_TEST(an_image_that_changed_is_refused) {
  make_folder();
  must(exec_manifest_make("set", NULL, NULL, &manifest, &error));
  must(exec_manifest_write(&manifest, &error));
  must(exec_manifest_check_files(&manifest, &error));
  ck_assert_int_eq(rename("set/shape-000002.ppm", "set/shape-000001.ppm"), 0);
  must_fail(exec_manifest_image(&manifest, 1, &image, &error), DP_BAD_INPUT,
            "set/shape-000001.ppm: was changed since the manifest was made");
  must_fail(exec_manifest_image(&manifest, 2, &image, &error), DP_BAD_INPUT, "set/shape-000002.ppm: cannot be read: ");
  ck_assert_int_eq(utimensat(AT_FDCWD, "set/shape-000001.ppm", NULL, 0), 0); /* now */
  must_fail(exec_manifest_check_files(&manifest, &error), DP_BAD_INPUT, "set/shape-000001.ppm: was changed");
}
END_TEST

/* The ending is that of the image's own name, though there be dots in the folders. */
START_TEST(a_caption_that_changed_is_refused_whatever_the_name) {
  static const char *const names[][2] = {
      {"a.png", "set.v2/a.txt"}, {"a", "set.v2/a.txt"}, {"b.c/a", "set.v2/b.c/a.txt"}};
  ck_assert(mkdir("set.v2", 0777) == 0 && mkdir("set.v2/b.c", 0777) == 0);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char text[300], part[64];
    (void)snprintf(text, sizeof text,
                   "{\"format\": \"diffpipe-dataset\", \"version\": 1, \"samples\": [{\"file\": \"%s\", \"caption\": "
                   "\"red\", \"width\": 8, \"height\": 8, \"crc32\": \"0123abcd\"}]}",
                   names[i][0]);
    put_text("set.v2/manifest.json", text);
    put_text(names[i][1], "red");
    must(exec_manifest_read("set.v2", &manifest, &error));
    must(exec_manifest_check_files(&manifest, &error));
    put_text(names[i][1], "blue");
    (void)snprintf(part, sizeof part, "%s: was changed", names[i][1]);
    must_fail(exec_manifest_check_files(&manifest, &error), DP_BAD_INPUT, part);
    ck_assert_int_eq(unlink(names[i][1]), 0);
    exec_manifest_free(&manifest);
  }
}
END_TEST

/* ---- shapes ---- */

START_TEST(shapes_are_the_same_for_the_same_seed) {
  dp_str captions[2] = {{0}, {0}};
  exec_image twice = {0};
  int differ = 0;
  must(exec_image_make("a", 40, 24, EXEC_IMAGE_PIXELS, &image, &error));
  must(exec_image_make("a", 40, 24, EXEC_IMAGE_PIXELS, &twice, &error));
  for (int64_t i = 0; i < 50; i++) {
    for (int k = 0; k < 2; k++) dp_str_clear(&captions[k]);
    exec_shapes_draw(7, i, &image, &captions[0]);
    exec_shapes_draw(7, i, &twice, &captions[1]);
    ck_assert_mem_eq(image.rgb, twice.rgb, 3 * 40 * 24);
    ck_assert_str_eq(captions[0].text, captions[1].text);
    dp_str_clear(&captions[1]);
    exec_shapes_draw(8, i, &twice, &captions[1]);
    differ += memcmp(image.rgb, twice.rgb, 3 * 40 * 24) != 0;
  }
  ck_assert_int_eq(differ, 50);
  exec_image_free(&twice);
  dp_str_free(&captions[0]);
  dp_str_free(&captions[1]);
}
END_TEST

/* The caption is true: a picture's most frequent colour is the ground, and there is as much of a colour as it says. */
START_TEST(captions_say_what_is_to_be_seen) {
  static const struct {
    const char *name;
    int rgb[3];
  } colours[] = {{"red", {219, 38, 36}},     {"green", {33, 153, 59}},   {"blue", {33, 69, 204}},
                 {"yellow", {245, 214, 38}}, {"purple", {135, 51, 168}}, {"orange", {242, 133, 28}}},
    grounds[] = {{"white", {242, 242, 242}}, {"grey", {128, 128, 128}}, {"black", {13, 13, 13}}};
  dp_str caption = {0};
  must(exec_image_make("a", 64, 64, EXEC_IMAGE_PIXELS, &image, &error));
  for (int64_t i = 0; i < 200; i++) {
    dp_str_clear(&caption);
    exec_shapes_draw(3, i, &image, &caption);
    for (size_t g = 0; g < 3; g++) {
      char words[32];
      (void)snprintf(words, sizeof words, ", on a %s ground", grounds[g].name);
      bool is_ground = true;
      for (int c = 0; c < 3; c++) is_ground = is_ground && abs(image.rgb[c] - grounds[g].rgb[c]) <= 1;
      ck_assert_int_eq(is_ground, strstr(caption.text, words) != NULL);
    }
    for (size_t k = 0; k < 6; k++) {
      double count = 0, x_sum = 0;
      for (int64_t p = 0; p < 64 * 64; p++) {
        bool same = true;
        for (int c = 0; c < 3; c++) same = same && abs(image.rgb[3 * p + c] - colours[k].rgb[c]) <= 1;
        count += same;
        x_sum += same ? (double)(p % 64) : 0;
      }
      const char *said = strstr(caption.text, colours[k].name);
      ck_assert_msg((count > 0) == (said != NULL), "%s: %g pixels of %s", caption.text, count, colours[k].name);
      if (!said) continue;
      const char *end = strchr(said, 0), *and_on = strstr(said, " and "), *left = strstr(said, "on the left"),
                 *right = strstr(said, "on the right");
      if (and_on) end = and_on;
      if (left && left < end) ck_assert(x_sum / count < 24);
      if (right && right < end) ck_assert(x_sum / count > 40);
    }
  }
  dp_str_free(&caption);
}
END_TEST

START_TEST(shapes_replace_their_own_folder_and_no_other) {
  static const int64_t sizes[][2] = {{16, 16}, {24, 16}};
  must(exec_shapes_write("set", 1, 5, sizes, 2, NULL, NULL, &error));
  ck_assert_int_eq(count_entries("set"), 10);
  put_text("set/manifest.json", "{}");
  put_text("set/latents-16x16.safetensors", "");
  must(exec_shapes_write("set", 2, 3, sizes, 2, NULL, NULL, &error));
  ck_assert_int_eq(count_entries("set"), 6);
  must(exec_image_read("set/shape-000001.ppm", &image, &error));
  ck_assert(image.height == 24 && image.width == 16);
  put_text("set/holiday.ppm", "mine");
  must_fail(exec_shapes_write("set", 2, 3, sizes, 2, NULL, NULL, &error), DP_BAD_INPUT, "set: found holiday.ppm in it");
  ck_assert_int_eq(count_entries("set"), 7);
}
END_TEST

/* ---- toy encoders ---- */

START_TEST(latents_are_means_and_waves_of_blocks) {
  enum { H = 16, W = 24, PLANE = H * W };
  static float planes[3 * PLANE], out[16 * 6];
  const exec_image_encoder *average = exec_image_encoder_find("average-8x8"),
                           *waves = exec_image_encoder_find("cosines-8x8");
  ck_assert(average->channels == 4 && waves->channels == 16 && !exec_image_encoder_find("vae"));
  ck_assert(exec_image_encoder_of_channels(16) == waves && !exec_image_encoder_of_channels(5));
  for (int i = 0; i < 3 * PLANE; i++) planes[i] = 0.5F; /* grey: nothing */
  exec_image_encode(average, planes, H, W, out);
  for (int i = 0; i < 4 * 6; i++) ck_assert(fabsf(out[i]) < 1e-5F);
  /* block (1, 2) goes evenly from black to white: by itself the second to last column of the last row */
  for (int y = 8; y < 16; y++)
    for (int x = 16; x < 24; x++)
      for (int c = 0; c < 3; c++) planes[c * PLANE + y * W + x] = (float)(x - 16) / 7;
  exec_image_encode(average, planes, H, W, out);
  double wave = 0;
  for (int x = 0; x < 8; x++) wave += (x / 7.0 - 0.5) * sqrt(2) * cos(acos(-1) * (2 * x + 1) / 16) / 8;
  for (int c = 0; c < 4; c++)
    for (int b = 0; b < 6; b++) ck_assert(fabs((double)out[c * 6 + b] - (c == 3 && b == 5 ? 25 * wave : 0)) < 1e-4);
  /* red: its luminance and its two differences */
  for (int i = 0; i < PLANE; i++) {
    planes[i] = 1;
    planes[PLANE + i] = planes[2 * PLANE + i] = 0;
  }
  exec_image_encode(waves, planes, H, W, out);
  for (int c = 0; c < 16; c++) {
    const double wanted = c == 0 ? 3 * (0.299 - 0.5) : c == 8 ? 9 * -0.299 : c == 12 ? 12.5 * 0.701 : 0;
    for (int b = 0; b < 6; b++) ck_assert(fabs((double)out[c * 6 + b] - wanted) < 1e-4);
  }
}
END_TEST

/* On the shapes, each channel has about the variance of noise. */
START_TEST(latents_of_shapes_are_of_unit_scale) {
  static float planes[3 * 64 * 64], out[16 * 64];
  dp_str caption = {0};
  must(exec_image_make("a", 64, 64, EXEC_IMAGE_PIXELS, &image, &error));
  for (int channels = 4; channels <= 16; channels += 12) {
    const exec_image_encoder *encoder = exec_image_encoder_of_channels(channels);
    double squares[16] = {0};
    for (int64_t i = 0; i < 300; i++) {
      exec_shapes_draw(99, i, &image, &caption);
      must(exec_image_fit(&image, 64, 64, planes, &error));
      exec_image_encode(encoder, planes, 64, 64, out);
      for (int k = 0; k < channels * 64; k++) squares[k / 64] += (double)out[k] * (double)out[k] / (300 * 64);
    }
    for (int c = 0; c < channels; c++) ck_assert_msg(squares[c] > 0.8 && squares[c] < 1.25, "%d: %g", c, squares[c]);
  }
  dp_str_free(&caption);
}
END_TEST

enum { TOKENS = 4, WIDE = 32, POOLED = 8 };
static void encode(const char *caption, float text[TOKENS * WIDE], float pooled[POOLED]) {
  exec_text_encoder_find("hashed-words")->encode(caption, TOKENS, WIDE, POOLED, text, pooled);
}

START_TEST(words_are_directions) {
  float a[TOKENS * WIDE], b[TOKENS * WIDE], pooled_a[POOLED], pooled_b[POOLED];
  encode("A red, red circle", a, pooled_a);
  ck_assert_mem_eq(a + WIDE, a + 2 * WIDE, WIDE * sizeof *a); /* one word, one direction */
  ck_assert_mem_ne(a, a + WIDE, WIDE * sizeof *a);
  for (int t = 0; t < TOKENS; t++) {
    double squares = 0;
    for (int c = 0; c < WIDE; c++) squares += (double)a[t * WIDE + c] * (double)a[t * WIDE + c];
    ck_assert(fabs(squares - WIDE) < 1e-3);
  }
  encode("  a RED-red... circle", b, pooled_b); /* case and punctuation do not matter */
  ck_assert_mem_eq(a, b, sizeof a);
  ck_assert_mem_eq(pooled_a, pooled_b, sizeof pooled_a);
  encode("a red red circle on the left", b, pooled_b); /* cut: but not in the pooled text */
  ck_assert_mem_eq(a, b, sizeof a);
  ck_assert_mem_ne(pooled_a, pooled_b, sizeof pooled_a);
  encode("circle red", b, pooled_b);
  ck_assert_mem_eq(b, a + 3 * WIDE, WIDE * sizeof *a);
  ck_assert_mem_eq(b + 2 * WIDE, b + 3 * WIDE, WIDE * sizeof *a); /* filled up with the empty word */
  encode("", a, pooled_a);
  ck_assert_mem_eq(a, b + 2 * WIDE, WIDE * sizeof *a);
  double squares = 0;
  for (int c = 0; c < POOLED; c++) squares += (double)pooled_a[c] * (double)pooled_a[c];
  ck_assert(fabs(squares - POOLED) < 1e-4);
}
END_TEST

/* Directions of unlike words have nothing to do with each other: of 100 words in 32 channels, the mean square of the
 * cosine is 1 / 32. */
START_TEST(directions_of_words_are_independent) {
  static float text[100][TOKENS * WIDE];
  float pooled[POOLED];
  double squares = 0;
  for (int i = 0; i < 100; i++) {
    char word[16];
    (void)snprintf(word, sizeof word, "word%d", i);
    encode(word, text[i], pooled);
  }
  for (int i = 0; i < 100; i++)
    for (int k = 0; k < i; k++) {
      double product = 0;
      for (int c = 0; c < WIDE; c++) product += (double)text[i][c] * (double)text[k][c] / WIDE;
      squares += product * product / 4950;
    }
  ck_assert(squares > 0.9 / WIDE && squares < 1.1 / WIDE);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_manifest_comes_back,
                                a_hash_changes_with_what_is_said,
                                manifests_that_are_wrong_are_told,
                                folders_that_cannot_be_described_are_told,
                                an_image_that_changed_is_refused,
                                a_caption_that_changed_is_refused_whatever_the_name,
                                shapes_are_the_same_for_the_same_seed,
                                captions_say_what_is_to_be_seen,
                                shapes_replace_their_own_folder_and_no_other,
                                latents_are_means_and_waves_of_blocks,
                                latents_of_shapes_are_of_unit_scale,
                                words_are_directions,
                                directions_of_words_are_independent};
  return suite_run("exec data", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
