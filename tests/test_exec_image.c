/* exec/image: images of every kind against the files of Pillow, what is refused, and the laws of scaling. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "exec/image.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/random.h"
#include "tests/fixtures.h"
#include "tests/suite.h"

#ifdef HAVE_PNG
static const bool has_png = true;
#else
static const bool has_png = false;
#endif
#ifdef HAVE_JPEG
static const bool has_jpeg = true;
#else
static const bool has_jpeg = false;
#endif

static dp_error error;
static exec_image image;

static void must(dp_status status) { ck_assert_msg(status == DP_OK, "%s", error.text); }

static void teardown(void) { exec_image_free(&image); }

static void must_fail(dp_status got, dp_status status, const char *text) {
  ck_assert_int_eq(got, status);
  ck_assert_msg(strstr(error.text, text) != NULL, "%s", error.text);
  error = (dp_error)DP_ERROR_INIT;
}

/* tests/reference/make_images.py has the same formulas. */
static void pixel(int64_t x, int64_t y, int out[3]) {
  out[0] = (int)(30 * x);
  out[1] = (int)(50 * y);
  out[2] = (int)(20 * (x + y));
}

static void plain(int64_t x, int64_t y, int out[3]) { pixel(x, y, out); }
static void grey(int64_t x, int64_t y, int out[3]) { out[0] = out[1] = out[2] = (int)(30 * x + 5 * y); }
static void alpha(int64_t x, int64_t y, int out[3]) {
  pixel(x, y, out);
  if (x % 2 == 0) out[0] = out[1] = out[2] = 255; /* white shows */
}
static void smooth(int64_t x, int64_t y, int out[3]) {
  out[0] = (int)(60 + 8 * x);
  out[1] = (int)(60 + 8 * y);
  out[2] = (int)(180 - 4 * (x + y));
}
static void smooth_grey(int64_t x, int64_t y, int out[3]) {
  int rgb[3];
  smooth(x, y, rgb);
  out[0] = out[1] = out[2] = (299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2]) / 1000;
}

static const struct {
  const char *file;
  const bool *is_known;
  int64_t width, height;
  void (*pixel)(int64_t x, int64_t y, int out[3]);
  int within;
} images[] = {
    {"rgb.ppm", NULL, 7, 5, plain, 0},
    {"rgb.png", &has_png, 7, 5, plain, 0},
    {"grey.png", &has_png, 7, 5, grey, 0},
    {"alpha.png", &has_png, 7, 5, alpha, 0},
    {"palette.png", &has_png, 7, 5, plain, 0},
    {"rgb.jpg", &has_jpeg, 16, 16, smooth, 6},
    {"grey.jpg", &has_jpeg, 16, 16, smooth_grey, 4},
    {"progressive.jpg", &has_jpeg, 16, 16, smooth, 6},
};
enum { IMAGES = sizeof images / sizeof images[0] };

START_TEST(images_are_read_as_they_were_written) {
  const char *path = fixture_path("images", images[_i].file);
  const dp_status status = exec_image_read(path, &image, &error);
  if (images[_i].is_known && !*images[_i].is_known) {
    must_fail(status, DP_UNSUPPORTED, "and this build has no lib");
    return;
  }
  must(status);
  ck_assert(image.width == images[_i].width && image.height == images[_i].height);
  for (int64_t y = 0; y < image.height; y++)
    for (int64_t x = 0; x < image.width; x++) {
      int wanted[3];
      images[_i].pixel(x, y, wanted);
      for (int c = 0; c < 3; c++)
        ck_assert_int_le(abs(wanted[c] - image.rgb[3 * (y * image.width + x) + c]), images[_i].within);
    }
}
END_TEST

/* Cut anywhere before its last pixel, an image is refused in one line; no part of it is taken for the whole. What
 * follows the pixels is in a PNG 16 bytes, the sum of the last data and the chunk that ends it, with 4 more of zlib's
 * own sum; in a JPEG a mark of 2. */
START_TEST(cut_images_are_told) {
  char *bytes = NULL;
  size_t length = 0;
  const bool is_png = strstr(images[_i].file, ".png") != NULL, is_jpeg = strstr(images[_i].file, ".jpg") != NULL;
  const dp_status refusal = (is_png && !has_png) || (is_jpeg && !has_jpeg) ? DP_UNSUPPORTED : DP_BAD_INPUT;
  must(dp_file_read(fixture_path("images", images[_i].file), 1 << 20, &bytes, &length, &error));
  for (size_t cut = 0; cut < length - (is_png ? 20 : is_jpeg ? 2 : 0); cut++) {
    const dp_status status =
        exec_image_parse((const unsigned char *)bytes, cut, "cut", EXEC_IMAGE_PIXELS, &image, &error);
    ck_assert_msg(status == (cut < (is_png ? 8 : 3) ? DP_BAD_INPUT : refusal), "%zu: %s", cut, error.text);
    ck_assert_int_eq(strncmp(error.text, "cut: ", 5), 0);
    ck_assert_ptr_null(image.rgb);
  }
  free(bytes);
}
END_TEST

START_TEST(images_that_are_none_are_told) {
  static const struct {
    const char *bytes, *says;
  } cases[] = {
      {"", "a: is no image that is known by its first bytes, allowed: PPM (P6), PNG, JPEG"},
      {"GIF89a", "a: is no image"},
      {"P6", "a: the header of the PPM is not complete, allowed: P6 WIDTH HEIGHT 255"},
      {"P6 1 1 255", "a: the header of the PPM is not complete"},
      {"P6 -1 1 255 abc", "a: the header of the PPM is not complete"},
      {"P6 1 1 65535 abcdef", "a: found a PPM with values up to 65535, allowed: 255"},
      {"P6 1 1 255 ab", "a: found 2 bytes of pixels, allowed: 3, as 1 × 1 have (is the file complete?)"},
      {"P6 1 1 255 abcd", "a: found 4 bytes of pixels, allowed: 3, as 1 × 1 have"},
      {"P6 0 1 255 ", "a: found an image of 0 × 1 pixels, allowed: sides from 1 to 32768, at most 268435456 pixels"},
      {"P6 32769 1 255 ", "a: found an image of 32769 × 1 pixels"},
      {"P6 99999999999999999999 1 255 ", " × 1 pixels, allowed: sides from 1"},
      {"P6 32768 32768 255 ", "a: found an image of 32768 × 32768 pixels"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    must_fail(exec_image_parse((const unsigned char *)cases[i].bytes, strlen(cases[i].bytes), "a", EXEC_IMAGE_PIXELS,
                               &image, &error),
              DP_BAD_INPUT, cases[i].says);
  static const unsigned char commented[] = "P6\n# by hand\n 1 # wide\n2\n255\nabcdef";
  must(exec_image_parse(commented, sizeof commented - 1, "a", 2, &image, &error));
  ck_assert_mem_eq(image.rgb, "abcdef", 6);
  exec_image_free(&image);
  must_fail(exec_image_parse(commented, sizeof commented - 1, "a", 1, &image, &error), DP_BAD_INPUT,
            "at most 1 pixels");
  must_fail(exec_image_read("none.png", &image, &error), DP_BAD_INPUT, "none.png: cannot be read: ");
  if (has_jpeg)
    must_fail(exec_image_read(fixture_path("images", "cmyk.jpg"), &image, &error), DP_BAD_INPUT,
              "found a JPEG for printing (CMYK), allowed: colour or grey");
}
END_TEST

START_TEST(names_of_images_are_known_by_their_ending) {
  static const char *const yes[] = {"a.png", "b.JPG", "c.d.jpeg", "e.PpM"}, *const no[] = {"a", "png", "a.png.txt",
                                                                                           "a.gif"};
  for (int i = 0; i < 4; i++) ck_assert(exec_image_is_named(yes[i]) && !exec_image_is_named(no[i]));
}
END_TEST

static void check_fit(const char *from, const char *to) {
  static float planes[3 * 12 * 12];
  exec_image wanted = {0};
  char path[4096];
  (void)snprintf(path, sizeof path, "%s", fixture_path("images", from));
  must(exec_image_read(path, &image, &error));
  must(exec_image_read(fixture_path("images", to), &wanted, &error));
  must(exec_image_fit(&image, wanted.width, wanted.height, planes, &error));
  for (int64_t i = 0; i < wanted.width * wanted.height; i++)
    for (int c = 0; c < 3; c++) /* Pillow rounds twice */
      ck_assert(fabs(255 * (double)planes[c * wanted.width * wanted.height + i] - wanted.rgb[3 * i + c]) < 1.01);
  exec_image_free(&wanted);
  exec_image_free(&image);
}

START_TEST(images_are_scaled_and_cut_as_pillow_does) {
  check_fit("rgb.ppm", "fit-12x4.ppm");
  check_fit("busy.ppm", "fit-8x10.ppm");
}
END_TEST

/* Sizes cover and the cut is in the middle; an image of the right size stays as it is; a plain one stays plain. */
START_TEST(laws_of_scaling) {
  static float planes[3 * 64 * 64];
  dp_random random;
  dp_random_init(&random, 1, 0);
  for (int i = 0; i < 2000; i++) {
    const int64_t w = 1 + (int64_t)dp_random_below(&random, 3000), h = 1 + (int64_t)dp_random_below(&random, 3000);
    const int64_t tw = 8 + (int64_t)dp_random_below(&random, 100), th = 8 + (int64_t)dp_random_below(&random, 100);
    const exec_cover cover = exec_cover_of(w, h, tw, th);
    ck_assert(cover.width >= tw && cover.height >= th && (cover.width == tw || cover.height == th));
    ck_assert(llabs((cover.width - tw) - 2 * cover.crop_left) <= 1 &&
              llabs((cover.height - th) - 2 * cover.crop_top) <= 1);
    ck_assert(fabs((double)cover.width * (double)h - (double)cover.height * (double)w) <= (double)(w > h ? w : h));
  }
  must(exec_image_make("a", 41, 29, EXEC_IMAGE_PIXELS, &image, &error));
  for (int64_t i = 0; i < 3 * 41 * 29; i++) image.rgb[i] = (unsigned char)dp_random_u32(&random);
  must(exec_image_fit(&image, 41, 29, planes, &error));
  for (int64_t i = 0; i < 41 * 29; i++)
    for (int c = 0; c < 3; c++) ck_assert(planes[c * 41 * 29 + i] == (float)((double)image.rgb[3 * i + c] / 255));
  memset(image.rgb, 77, 3 * 41 * 29);
  for (int round = 0; round < 50; round++) {
    const int64_t w = 1 + (int64_t)dp_random_below(&random, 64), h = 1 + (int64_t)dp_random_below(&random, 64);
    must(exec_image_fit(&image, w, h, planes, &error));
    for (int64_t i = 0; i < 3 * w * h; i++) ck_assert(fabs(255 * (double)planes[i] - 77) < 1e-4);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("exec image");
  TCase *tcase = suite_case(suite, "exec image", NULL, teardown, 60);
  tcase_add_loop_test(tcase, images_are_read_as_they_were_written, 0, IMAGES);
  tcase_add_loop_test(tcase, cut_images_are_told, 0, IMAGES);
  tcase_add_test(tcase, images_that_are_none_are_told);
  tcase_add_test(tcase, names_of_images_are_known_by_their_ending);
  tcase_add_test(tcase, images_are_scaled_and_cut_as_pillow_does);
  tcase_add_test(tcase, laws_of_scaling);
  return suite_finish(suite);
}
