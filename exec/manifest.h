/* What a data set consists of: manifest.json in a folder of images with captions beside them (`diffpipe data
 * manifest`).
 *
 * The caption of a.png is the text of a.txt, without the spaces around it. Each sample's CRC-32 (as in gzip) is that of
 * the image's file, so that a changed image is noticed. The manifest's own hash is over what it says, not over its
 * bytes: it changes when a sample comes, goes, changes or moves, and not when the file is laid out anew.
 */
#ifndef DP_EXEC_MANIFEST_H
#define DP_EXEC_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "exec/image.h"
#include "exec/order.h"
#include "plan/describe.h"

typedef struct exec_sample {
  const char *file;    /* relative to the manifest's folder */
  const char *caption; /* "": none */
  int64_t width, height;
  uint32_t crc32;
} exec_sample;

/* All of it is in the arena. */
typedef struct exec_manifest {
  dp_arena arena;
  const char *path;   /* of the file */
  const char *folder; /* that it is in */
  exec_sample *samples;
  size_t count; /* >= 1 */
  uint32_t hash;
} exec_manifest;

/* Told how many images of how many are done; returns nothing and may be NULL. */
typedef void (*exec_manifest_progress)(void *data, size_t done, size_t total);

/* Reads PATH/manifest.json, or PATH itself where it is no folder. */
dp_status exec_manifest_read(const char *path, exec_manifest *manifest, dp_error *error);
/* The same from memory; `name` stands in for the path. */
dp_status exec_manifest_parse(const char *text, size_t length, const char *name, exec_manifest *manifest,
                              dp_error *error);
void exec_manifest_free(exec_manifest *manifest); /* safe on a zeroed one */

/* Looks at all images of a folder, in the order of their names; folders in it and hidden files are passed over. Reads
 * every image whole: one that is damaged is DP_BAD_INPUT, as is a name or caption that is not UTF-8. Writes nothing. */
dp_status exec_manifest_make(const char *folder, exec_manifest_progress progress, void *data, exec_manifest *manifest,
                             dp_error *error);
dp_status exec_manifest_write(const exec_manifest *manifest, dp_error *error);

/* Reads the image of a sample and holds it to the manifest: DP_BAD_INPUT when it is another one by now. */
dp_status exec_manifest_image(const exec_manifest *manifest, size_t sample, exec_image *image, dp_error *error);
/* DP_BAD_INPUT for the first image or caption that is there, is not older than the manifest, and has other contents. */
dp_status exec_manifest_check_files(const exec_manifest *manifest, dp_error *error);

/* Every sample into the bucket of its size, whether a cache is written or read. */
dp_status exec_manifest_order(const exec_manifest *manifest, const int64_t (*buckets)[2], size_t bucket_count,
                              int64_t global_batch, uint64_t seed, bool shuffle, exec_order *order, dp_error *error);

/* The keys, for `diffpipe formats`. */
size_t exec_manifest_tables(const plan_key_table **tables);

/* ---- what reading and making share (exec/manifest.c, exec/manifest_make.c) ---- */

enum { EXEC_CAPTION_BYTES = 1 << 16 };
/* Where the caption of an image is, whether there is one or not; arena-owned, NULL: no memory. */
const char *exec_manifest_caption_path(const char *folder, const char *file, dp_arena *arena);
/* The caption beside an image: "" where there is none, NULL without memory or with an error. Arena-owned. */
dp_status exec_manifest_caption(const char *folder, const char *file, dp_arena *arena, const char **caption,
                                dp_error *error);
void exec_manifest_rehash(exec_manifest *manifest);

#endif
