#include "graph/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/schema.h"

enum { MAX_KEYS = 96 };

/* The node as JSON text, to be compared with the texts in a row's choices. */
static const char *show(const dp_node *node, char out[80]) {
  switch (node->kind) {
    case DP_NODE_NULL:
      return "null";
    case DP_NODE_BOOLEAN:
      return node->boolean ? "true" : "false";
    case DP_NODE_STRING:
      return node->string;
    case DP_NODE_INTEGER:
    case DP_NODE_REAL:
      snprintf(out, 80, "%g", node->kind == DP_NODE_INTEGER ? (double)node->integer : node->real);
      return out;
    default:
      return dp_node_show(node, out);
  }
}

/* "a, b or c" */
static void list_choices(const char *const *choices, char *out, size_t size) {
  size_t length = 0;
  out[0] = '\0';
  for (int i = 0; choices[i] != NULL && length < size; i++) {
    const char *between = i == 0 ? "" : choices[i + 1] == NULL ? " or " : ", ";
    length += (size_t)snprintf(out + length, size - length, "%s%s", between, choices[i]);
  }
}

static int find_choice(const char *const *choices, const char *text) {
  for (int i = 0; choices[i] != NULL; i++)
    if (strcmp(choices[i], text) == 0) return i;
  return -1;
}

static dp_status refuse(const dp_node *node, const graph_config_key *key, const char *allowed, dp_error *error) {
  char found[80];
  return dp_fail_at(error, node, "%s is %s, must be %s", key->key, dp_node_show(node, found), allowed);
}

static dp_status refuse_choice(const dp_node *node, const graph_config_key *key, dp_error *error) {
  char allowed[512];
  list_choices(key->choices, allowed, sizeof allowed);
  return refuse(node, key, allowed, error);
}

static dp_status read_integer(const dp_node *node, const graph_config_key *key, int64_t *value, dp_error *error) {
  if (node->kind != DP_NODE_INTEGER || node->integer < key->min || node->integer > key->max) {
    char allowed[96];
    snprintf(allowed, sizeof allowed, "an integer from %" PRId64 " to %" PRId64, key->min, key->max);
    return refuse(node, key, allowed, error);
  }
  *value = node->integer;
  return DP_OK;
}

static dp_status check_length(const dp_node *node, const graph_config_key *key, dp_error *error) {
  if (node->count <= GRAPH_CONFIG_MAX_LIST) return DP_OK;
  return dp_fail_at(error, node, "%s has %zu items, must have at most %d", key->key, node->count,
                    GRAPH_CONFIG_MAX_LIST);
}

static dp_status read_integers(const dp_node *node, const graph_config_key *key, graph_integers *target,
                               dp_error *error) {
  graph_integers read = {.count = 1, .single = true, .node = node};
  if (node->kind == DP_NODE_ARRAY) {
    DP_TRY(check_length(node, key, error));
    read.single = false;
    read.count = (int)node->count;
    for (int i = 0; i < read.count; i++) DP_TRY(read_integer(node->items[i], key, &read.values[i], error));
  } else {
    DP_TRY(read_integer(node, key, &read.values[0], error));
  }
  *target = read;
  return DP_OK;
}

static dp_status read_strings(const dp_node *node, const graph_config_key *key, graph_strings *target,
                              dp_error *error) {
  graph_strings read = {.node = node};
  if (node->kind != DP_NODE_ARRAY) return refuse(node, key, "a list of strings", error);
  DP_TRY(check_length(node, key, error));
  for (size_t i = 0; i < node->count; i++) {
    const dp_node *item = node->items[i];
    if (item->kind != DP_NODE_STRING || find_choice(key->choices, item->string) < 0)
      return refuse_choice(item, key, error);
    read.values[read.count++] = item->string;
  }
  *target = read;
  return DP_OK;
}

static dp_status read_key(const dp_node *node, const graph_config_key *key, void *target, dp_error *error) {
  void *const field = (char *)target + key->offset;
  char text[80];
  if (key->type == GRAPH_CONFIG_ANY) return DP_OK;
  if (key->type == GRAPH_CONFIG_ONLY)
    return find_choice(key->choices, show(node, text)) >= 0 ? DP_OK : refuse_choice(node, key, error);
  if (node->kind == DP_NODE_NULL) return DP_OK;
  switch (key->type) {
    case GRAPH_CONFIG_INTEGER:
      return read_integer(node, key, field, error);
    case GRAPH_CONFIG_INTEGERS:
      return read_integers(node, key, field, error);
    case GRAPH_CONFIG_STRINGS:
      return read_strings(node, key, field, error);
    case GRAPH_CONFIG_CHOICE: {
      const int choice = node->kind == DP_NODE_STRING ? find_choice(key->choices, node->string) : -1;
      if (choice < 0) return refuse_choice(node, key, error);
      *(int *)field = choice;
      return DP_OK;
    }
    case GRAPH_CONFIG_BOOLEAN:
      if (node->kind != DP_NODE_BOOLEAN) return refuse(node, key, "true or false", error);
      *(bool *)field = node->boolean;
      return DP_OK;
    case GRAPH_CONFIG_REAL:
      if (node->kind != DP_NODE_REAL && node->kind != DP_NODE_INTEGER) return refuse(node, key, "a number", error);
      *(double *)field = node->real;
      return DP_OK;
    default:
      return DP_OK;
  }
}

/* Unknown keys are the schema reader's to refuse: every key is a row of any kind. Keys that start with an underscore
 * are diffusers' own and become rows as they are met. `nodes` gets the node of each key, NULL where absent. */
static dp_status find_keys(const dp_node *config, const char *class_name, const graph_config_key *keys,
                           size_t key_count, const dp_node **nodes, dp_error *error) {
  dp_field fields[MAX_KEYS] = {{0}};
  size_t count = 0;
  for (; count < key_count; count++)
    fields[count] = (dp_field){.key = keys[count].key, .type = DP_FIELD_NODE, .offset = count * sizeof *nodes};
  for (size_t i = 0; i < config->count && count < MAX_KEYS; i++)
    if (config->items[i]->key[0] == '_') {
      fields[count] = (dp_field){.key = config->items[i]->key, .type = DP_FIELD_NODE, .offset = count * sizeof *nodes};
      count++;
    }
  return dp_schema_read(config, config, class_name, fields, count, nodes, error);
}

dp_status graph_config_read(const dp_node *config, const char *class_name, const graph_config_key *keys,
                            size_t key_count, void *target, dp_error *error) {
  const dp_node *nodes[MAX_KEYS] = {NULL};
  DP_TRY(find_keys(config, class_name, keys, key_count, nodes, error));
  for (size_t k = 0; k < key_count; k++)
    if (nodes[k] != NULL) DP_TRY(read_key(nodes[k], &keys[k], target, error));
  return DP_OK;
}

dp_status graph_integers_check(const graph_integers *integers, const dp_node *config, const char *key, int count,
                               dp_error *error) {
  if (integers->single || integers->count == count) return DP_OK;
  return dp_fail_at(error, integers->node != NULL ? integers->node : config,
                    "%s has %d items, must have %d (one for each block) or be one integer", key, integers->count,
                    count);
}
