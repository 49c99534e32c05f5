/* Toy encoders: they turn images and captions into numbers of the right shape, with enough in them for a model to learn
 * from, and need no download. For demonstrations and tests: what a model learns on them is of no use beside a real VAE
 * or a real text encoder, which scripts/cache_with_diffusers.py runs.
 */
#ifndef DP_EXEC_ENCODERS_H
#define DP_EXEC_ENCODERS_H

#include <stdint.h>

/* Each block of 8 × 8 pixels becomes one latent. Constant factors bring each channel to about the variance of noise on
 * the generated shapes (exec/shapes.h), so scaling_factor is 1 and shift_factor 0; and what is made of an image does
 * not depend on any other. */
typedef struct exec_image_encoder {
  const char *name;
  int64_t channels;
  const struct exec_cosine *cosines; /* [channels] */
} exec_image_encoder;

const exec_image_encoder *exec_image_encoder_find(const char *name);        /* NULL: none of that name */
const exec_image_encoder *exec_image_encoder_of_channels(int64_t channels); /* NULL: none makes so many */
/* planes[3][height][width], RGB from 0 to 1, as exec_image_fit gives them; height and width multiples of 8;
 * out[channels][height / 8][width / 8]. */
void exec_image_encode(const exec_image_encoder *encoder, const float *planes, int64_t height, int64_t width,
                       float *out);

/* Each word (letters and digits, in lower case; bytes above 127 count as letters) becomes a pseudo-random direction
 * that its hash decides, of length sqrt(channels), so that a component's variance is 1. Words beyond `tokens` are cut
 * off; the rest is filled with the direction of the empty word. `pooled` is the sum of the words' directions in its own
 * width, brought to length sqrt(pooled_channels); where there are no words, the empty word's. */
typedef struct exec_text_encoder {
  const char *name;
  void (*encode)(const char *caption, int64_t tokens, int64_t channels, int64_t pooled_channels, float *text,
                 float *pooled);
} exec_text_encoder;

const exec_text_encoder *exec_text_encoder_find(const char *name); /* NULL: none of that name */

/* All names, "a, b", for errors and help. */
const char *exec_image_encoder_names(void);
const char *exec_text_encoder_names(void);

#endif
