/* Inside graph/: reading a diffusers config.json by rows, one for each key of the class. A key that is absent or null
 * takes the class default; a value that is known to diffusers but not built here is refused by name.
 */
#ifndef DP_GRAPH_CONFIG_H
#define DP_GRAPH_CONFIG_H

#include <stddef.h>

#include "base/node.h"

enum { GRAPH_CONFIG_MAX_LIST = 256 };

/* An integer given for all blocks, or one for each. `node` is where it stands: NULL when the default was taken. */
typedef struct graph_integers {
  int count; /* 0: null or absent without default; 1 with `single`: the same for all */
  bool single;
  int64_t values[GRAPH_CONFIG_MAX_LIST];
  const dp_node *node;
} graph_integers;

typedef struct graph_strings {
  int count;
  const char *values[GRAPH_CONFIG_MAX_LIST];
  const dp_node *node;
} graph_strings;

typedef enum graph_config_type {
  GRAPH_CONFIG_INTEGER,  /* target: int64_t, within [min, max] */
  GRAPH_CONFIG_INTEGERS, /* target: graph_integers, an integer or a list, each within [min, max] */
  GRAPH_CONFIG_STRINGS,  /* target: graph_strings, each one of `choices` */
  GRAPH_CONFIG_CHOICE,   /* target: int, index of the string in `choices`; null: the default */
  GRAPH_CONFIG_BOOLEAN,  /* target: bool */
  GRAPH_CONFIG_REAL,     /* target: double */
  GRAPH_CONFIG_ONLY,     /* no target: one of `choices`, written as JSON ("null", "false", "1", "default"), is built */
  GRAPH_CONFIG_ANY       /* no target: does not change the graph */
} graph_config_type;

typedef struct graph_config_key {
  const char *key;
  graph_config_type type;
  size_t offset;
  int64_t min, max;
  const char *const *choices; /* NULL-terminated */
} graph_config_key;

/* Reads every key of `config` into `target`, which holds the defaults. Unknown keys are errors; those that start with
 * an underscore belong to diffusers itself and are passed over. */
dp_status graph_config_read(const dp_node *config, const char *class_name, const graph_config_key *keys,
                            size_t key_count, void *target, dp_error *error);

/* The value for block `i`. */
static inline int64_t graph_integers_at(const graph_integers *integers, int i) {
  return integers->values[integers->single ? 0 : i];
}

/* The list has one item for each of `count` blocks (a single value does for all), else DP_BAD_INPUT. */
dp_status graph_integers_check(const graph_integers *integers, const dp_node *config, const char *key, int count,
                               dp_error *error);

#endif
