#define _POSIX_C_SOURCE 200809L
#include "exec/shapes.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/random.h"
#include "base/schema.h"

/* Places are shares of the picture's sides, sizes of its shorter side; y grows downwards. */
typedef struct shape {
  int kind, colour;
  double x, y, radius;
} shape;

typedef struct colour {
  const char *name;
  double rgb[3];
} colour;

static const colour colours[] = {
    {"red", {0.86, 0.15, 0.14}},    {"green", {0.13, 0.60, 0.23}},  {"blue", {0.13, 0.27, 0.80}},
    {"yellow", {0.96, 0.84, 0.15}}, {"purple", {0.53, 0.20, 0.66}}, {"orange", {0.95, 0.52, 0.11}},
};
static const colour grounds[] = {
    {"white", {0.95, 0.95, 0.95}}, {"grey", {0.50, 0.50, 0.50}}, {"black", {0.05, 0.05, 0.05}}};

/* Each says whether (x, y), in units of the radius from the middle, is in the shape. */
static bool in_circle(double x, double y) { return x * x + y * y < 1; }
static bool in_square(double x, double y) { return x > -0.85 && x < 0.85 && y > -0.85 && y < 0.85; }
static bool in_triangle(double x, double y) { return y < 0.8 && y > -1 + 2 * (x < 0 ? -x : x) - 0.2; }
static bool in_ring(double x, double y) { return x * x + y * y < 1 && x * x + y * y > 0.36; }

static const struct {
  const char *name;
  bool (*contains)(double x, double y);
} kinds[] = {{"circle", in_circle}, {"square", in_square}, {"triangle", in_triangle}, {"ring", in_ring}};

typedef struct place {
  const char *name;
  double x, y;
} place;
static const place places[] = {{"on the left", 0.27, 0.5},
                               {"on the right", 0.73, 0.5},
                               {"at the top", 0.5, 0.27},
                               {"at the bottom", 0.5, 0.73},
                               {"in the middle", 0.5, 0.5}};
enum {
  PAIRS = 2 /* left and right, top and bottom: places 2 p and 2 p + 1 */,
  SAMPLES = 4 /* across and down a pixel */
};

static double between(dp_random *random, double low, double high) {
  return low + (high - low) * dp_random_uniform(random);
}

static shape choose(dp_random *random, const place *at, int other_colour, dp_str *caption) {
  shape s = {.kind = (int)dp_random_below(random, DP_COUNT_OF(kinds))};
  const bool is_large = dp_random_below(random, 2) == 1;
  do s.colour = (int)dp_random_below(random, DP_COUNT_OF(colours));
  while (s.colour == other_colour);
  s.radius = is_large ? between(random, 0.19, 0.23) : between(random, 0.10, 0.13);
  s.x = at->x + between(random, -0.03, 0.03);
  s.y = at->y + between(random, -0.03, 0.03);
  dp_str_addf(caption, "a %s %s %s %s", is_large ? "large" : "small", colours[s.colour].name, kinds[s.kind].name,
              at->name);
  return s;
}

/* The share of a pixel that a shape covers, of SAMPLES × SAMPLES. */
static double cover(const shape *s, const exec_image *image, int64_t px, int64_t py) {
  const double side = (double)(image->width < image->height ? image->width : image->height);
  int inside = 0;
  for (int j = 0; j < SAMPLES; j++)
    for (int i = 0; i < SAMPLES; i++) {
      const double x = (double)px + (i + 0.5) / SAMPLES - s->x * (double)image->width;
      const double y = (double)py + (j + 0.5) / SAMPLES - s->y * (double)image->height;
      inside += kinds[s->kind].contains(x / (s->radius * side), y / (s->radius * side));
    }
  return (double)inside / (SAMPLES * SAMPLES);
}

static void paint(const shape *shapes, int count, const colour *ground, exec_image *image) {
  for (int64_t y = 0; y < image->height; y++)
    for (int64_t x = 0; x < image->width; x++) {
      double rgb[3];
      memcpy(rgb, ground->rgb, sizeof rgb);
      for (int s = 0; s < count; s++) {
        const double share = cover(&shapes[s], image, x, y);
        for (int c = 0; c < 3; c++) rgb[c] += share * (colours[shapes[s].colour].rgb[c] - rgb[c]);
      }
      for (int c = 0; c < 3; c++) image->rgb[3 * (y * image->width + x) + c] = (unsigned char)(rgb[c] * 255 + 0.5);
    }
}

void exec_shapes_draw(uint64_t seed, int64_t index, exec_image *image, dp_str *caption) {
  dp_random random;
  dp_random_init(&random, seed, (uint64_t)index);
  shape shapes[2];
  const int count = 1 + (int)dp_random_below(&random, 2);
  const colour *ground = &grounds[dp_random_below(&random, DP_COUNT_OF(grounds))];
  if (count == 1) {
    shapes[0] = choose(&random, &places[dp_random_below(&random, DP_COUNT_OF(places))], -1, caption);
  } else {
    const place *pair = &places[2 * dp_random_below(&random, PAIRS)];
    shapes[0] = choose(&random, &pair[0], -1, caption);
    dp_str_add(caption, " and ");
    shapes[1] = choose(&random, &pair[1], shapes[0].colour, caption);
  }
  dp_str_addf(caption, ", on a %s ground", ground->name);
  paint(shapes, count, ground, image);
}

static bool is_ours(const char *name) {
  return (strncmp(name, "shape-", 6) == 0 && (dp_ends_with(name, ".ppm") || dp_ends_with(name, ".txt"))) ||
         strcmp(name, "manifest.json") == 0 || strcmp(name, "text.safetensors") == 0 ||
         (strncmp(name, "latents-", 8) == 0 && dp_ends_with(name, ".safetensors"));
}

static dp_status write_one(const char *folder, uint64_t seed, int64_t index, const int64_t size[2], dp_error *error) {
  dp_arena arena = {0};
  dp_str caption = {0};
  exec_image image = {0};
  const char *picture = dp_arena_printf(&arena, "%s/shape-%06" PRId64 ".ppm", folder, index);
  const char *text = dp_arena_printf(&arena, "%s/shape-%06" PRId64 ".txt", folder, index);
  dp_status status = picture && text ? exec_image_make(picture, size[1], size[0], EXEC_IMAGE_PIXELS, &image, error)
                                     : dp_fail_memory(error);
  if (status == DP_OK) {
    exec_shapes_draw(seed, index, &image, &caption);
    dp_str_add(&caption, "\n");
    status = caption.failed ? dp_fail_memory(error) : exec_image_write(picture, &image, error);
  }
  if (status == DP_OK) status = dp_file_write(text, caption.text, caption.length, error);
  exec_image_free(&image);
  dp_str_free(&caption);
  dp_arena_free(&arena);
  return status;
}

dp_status exec_shapes_write(const char *folder, uint64_t seed, int64_t count, const int64_t (*sizes)[2],
                            size_t size_count, exec_shapes_progress progress, void *data, dp_error *error) {
  dp_folder_output output = {0};
  DP_TRY(dp_folder_output_open(folder, is_ours, &output, error));
  dp_status status = DP_OK;
  for (int64_t i = 0; i < count && status == DP_OK; i++) {
    status = write_one(output.temporary, seed, i, sizes[(size_t)i % size_count], error);
    if (status == DP_OK && progress) progress(data, i + 1);
  }
  status = dp_folder_output_blame(&output, status, error);
  if (status == DP_OK) return dp_folder_output_commit(&output, error);
  dp_folder_output_abandon(&output);
  return status;
}
