#include "exec/encoders.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/random.h"

enum { BLOCK = 8, MOST_WAVES = 4 };

/* Luminance, and two differences of colour from it. */
typedef enum plane { LUMINANCE, BLUE, RED, PLANE_COUNT } plane;

/* A channel: the part of a plane that goes with the product of a cosine across and one down, of so many half waves in a
 * block, times a factor: the inverse of its standard deviation on generated shapes of 64 × 64 pixels. */
typedef struct exec_cosine {
  plane plane;
  int across, down;
  double factor;
} exec_cosine;

static const exec_cosine average[] = {{LUMINANCE, 0, 0, 3}, {BLUE, 0, 0, 9}, {RED, 0, 0, 12.5}, {LUMINANCE, 1, 0, 25}};

static const exec_cosine cosines[] = {
    {LUMINANCE, 0, 0, 3},  {LUMINANCE, 1, 0, 25}, {LUMINANCE, 0, 1, 27},  {LUMINANCE, 2, 0, 59},
    {LUMINANCE, 1, 1, 53}, {LUMINANCE, 0, 2, 60}, {LUMINANCE, 3, 0, 118}, {LUMINANCE, 0, 3, 105},
    {BLUE, 0, 0, 9},       {BLUE, 1, 0, 24},      {BLUE, 0, 1, 25},       {BLUE, 1, 1, 49},
    {RED, 0, 0, 12.5},     {RED, 1, 0, 34},       {RED, 0, 1, 35},        {RED, 1, 1, 71},
};

static const exec_image_encoder image_encoders[] = {{"average-8x8", sizeof average / sizeof average[0], average},
                                                    {"cosines-8x8", sizeof cosines / sizeof cosines[0], cosines}};

const char *exec_image_encoder_names(void) { return "average-8x8, cosines-8x8"; }

const exec_image_encoder *exec_image_encoder_find(const char *name) {
  for (size_t i = 0; i < sizeof image_encoders / sizeof image_encoders[0]; i++)
    if (strcmp(image_encoders[i].name, name) == 0) return &image_encoders[i];
  return NULL;
}

const exec_image_encoder *exec_image_encoder_of_channels(int64_t channels) {
  for (size_t i = 0; i < sizeof image_encoders / sizeof image_encoders[0]; i++)
    if (image_encoders[i].channels == channels) return &image_encoders[i];
  return NULL;
}

/* The planes of a block; luminance is that of BT.601, moved so that grey is 0. */
static void read_block(const float *planes, int64_t height, int64_t width, int64_t top, int64_t left,
                       double block[PLANE_COUNT][BLOCK][BLOCK]) {
  const int64_t plane_size = height * width;
  for (int64_t y = 0; y < BLOCK; y++)
    for (int64_t x = 0; x < BLOCK; x++) {
      const float *pixel = planes + (top + y) * width + left + x;
      const double r = (double)pixel[0], g = (double)pixel[plane_size], b = (double)pixel[2 * plane_size];
      const double light = 0.299 * r + 0.587 * g + 0.114 * b;
      block[LUMINANCE][y][x] = light - 0.5;
      block[BLUE][y][x] = b - light;
      block[RED][y][x] = r - light;
    }
}

/* Mean over the block of the plane times the two waves, each of mean square 1. */
static double part_of(double block[BLOCK][BLOCK], const double *across, const double *down) {
  double sum = 0;
  for (int y = 0; y < BLOCK; y++) {
    double row = 0;
    for (int x = 0; x < BLOCK; x++) row += block[y][x] * across[x];
    sum += row * down[y];
  }
  return sum / (BLOCK * BLOCK);
}

static void make_waves(double waves[MOST_WAVES][BLOCK]) {
  const double pi = acos(-1);
  for (int w = 0; w < MOST_WAVES; w++)
    for (int i = 0; i < BLOCK; i++) waves[w][i] = w ? sqrt(2) * cos(pi * w * (2 * i + 1) / (2 * BLOCK)) : 1;
}

void exec_image_encode(const exec_image_encoder *encoder, const float *planes, int64_t height, int64_t width,
                       float *out) {
  double waves[MOST_WAVES][BLOCK], block[PLANE_COUNT][BLOCK][BLOCK];
  const int64_t rows = height / BLOCK, columns = width / BLOCK;
  make_waves(waves);
  for (int64_t y = 0; y < rows; y++)
    for (int64_t x = 0; x < columns; x++) {
      read_block(planes, height, width, y * BLOCK, x * BLOCK, block);
      for (int64_t c = 0; c < encoder->channels; c++) {
        const exec_cosine *k = &encoder->cosines[c];
        out[(c * rows + y) * columns + x] =
            (float)(k->factor * part_of(block[k->plane], waves[k->across], waves[k->down]));
      }
    }
}

/* FNV-1a, of 64 bits. */
static uint64_t hash_of(const char *word, size_t length) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < length; i++) {
    const bool is_upper = word[i] >= 'A' && word[i] <= 'Z';
    hash = (hash ^ (unsigned char)(is_upper ? word[i] - 'A' + 'a' : word[i])) * UINT64_C(0x100000001b3);
  }
  return hash;
}

/* Brings a vector to length sqrt(count); one of length 0 stays. */
static void normalise(float *v, int64_t count) {
  double squares = 0;
  for (int64_t i = 0; i < count; i++) squares += (double)v[i] * (double)v[i];
  const double factor = squares > 0 ? sqrt((double)count / squares) : 0;
  for (int64_t i = 0; i < count; i++) v[i] = (float)((double)v[i] * factor);
}

/* Adds a word's direction; components are uniform, which needs nothing of the C library's mathematics and so gives the
 * same bits everywhere. `purpose` keeps text and pooled text apart. */
static void add_direction(const char *word, size_t length, uint64_t purpose, float *v, int64_t count) {
  dp_random random;
  dp_random_init(&random, hash_of(word, length), purpose);
  for (int64_t i = 0; i < count; i++) v[i] += (float)(2 * dp_random_uniform(&random) - 1);
}

static bool is_in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (unsigned char)c > 127;
}

/* The next word from *at on; its length, 0 at the end. */
static size_t next_word(const char **at) {
  while (**at && !is_in_word(**at)) ++*at;
  size_t length = 0;
  while (is_in_word((*at)[length])) length++;
  return length;
}

static void hash_words(const char *caption, int64_t tokens, int64_t channels, int64_t pooled_channels, float *text,
                       float *pooled) {
  enum { TEXT, POOLED };
  if (tokens * channels > 0) memset(text, 0, (size_t)(tokens * channels) * sizeof *text);
  if (pooled_channels > 0) memset(pooled, 0, (size_t)pooled_channels * sizeof *pooled);
  const char *at = caption;
  for (int64_t t = 0; t < tokens; t++) {
    const size_t length = next_word(&at);
    add_direction(at, length, TEXT, text + t * channels, channels);
    normalise(text + t * channels, channels);
    at += length;
  }
  if (pooled_channels == 0) return;
  at = caption;
  size_t length = next_word(&at);
  do {
    add_direction(at, length, POOLED, pooled, pooled_channels);
    at += length;
  } while ((length = next_word(&at)) > 0);
  normalise(pooled, pooled_channels);
}

static const exec_text_encoder text_encoders[] = {{"hashed-words", hash_words}};

const char *exec_text_encoder_names(void) { return "hashed-words"; }

const exec_text_encoder *exec_text_encoder_find(const char *name) {
  for (size_t i = 0; i < sizeof text_encoders / sizeof text_encoders[0]; i++)
    if (strcmp(text_encoders[i].name, name) == 0) return &text_encoders[i];
  return NULL;
}
