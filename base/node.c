#include "base/node.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { FILE_LIMIT_BYTES = 64 << 20 };

dp_node *dp_node_new(dp_document *document, dp_node_kind kind, const char *key, int line) {
  dp_node *node = DP_ARENA_NEW(&document->arena, dp_node, 1);
  if (!node) return NULL;
  node->kind = kind;
  node->file = document->file;
  node->line = line;
  if (key && !(node->key = dp_arena_strdup(&document->arena, key))) return NULL;
  return node;
}

bool dp_node_append(dp_document *document, dp_node *parent, dp_node *child) {
  if (parent->count == parent->capacity) {
    const size_t capacity = parent->capacity ? 2 * parent->capacity : 4;
    dp_node **items = DP_ARENA_NEW(&document->arena, dp_node *, capacity);
    if (!items) return false;
    if (parent->count) memcpy(items, parent->items, parent->count * sizeof *items);
    parent->items = items;
    parent->capacity = capacity;
  }
  parent->items[parent->count++] = child;
  return true;
}

dp_node *dp_node_get(const dp_node *table, const char *key) {
  if (!table || table->kind != DP_NODE_TABLE) return NULL;
  for (size_t i = 0; i < table->count; i++)
    if (strcmp(table->items[i]->key, key) == 0) return table->items[i];
  return NULL;
}

void dp_document_free(dp_document *document) {
  dp_arena_free(&document->arena);
  *document = (dp_document){0};
}

dp_status dp_document_read(const char *path, dp_document *document, dp_error *error) {
  char *text = NULL;
  size_t length = 0;
  DP_TRY(dp_file_read(path, FILE_LIMIT_BYTES, &text, &length, error));
  const size_t n = strlen(path);
  const bool toml = n >= 5 && strcmp(path + n - 5, ".toml") == 0;
  const dp_status status = toml ? dp_document_parse_toml(text, length, path, document, error)
                                : dp_document_parse_json(text, length, path, document, error);
  free(text);
  return status;
}

dp_status dp_fail_at(dp_error *error, const dp_node *node, const char *format, ...) {
  char text[DP_ERROR_TEXT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (!node) return dp_fail(error, DP_BAD_INPUT, "%s", text);
  if (node->line > 0) return dp_fail(error, DP_BAD_INPUT, "%s:%d: %s", node->file, node->line, text);
  return dp_fail(error, DP_BAD_INPUT, "%s: %s", node->file, text);
}

const char *dp_node_kind_name(dp_node_kind kind) {
  static const char *const names[] = {"null",     "a boolean", "an integer", "a real number",
                                      "a string", "an array",  "a table"};
  return names[kind];
}

const char *dp_node_show(const dp_node *node, char out[80]) {
  switch (node->kind) {
    case DP_NODE_BOOLEAN: (void)snprintf(out, 80, "%s", node->boolean ? "true" : "false"); break;
    case DP_NODE_INTEGER: (void)snprintf(out, 80, "%lld", (long long)node->integer); break;
    case DP_NODE_REAL: (void)snprintf(out, 80, "%.9g", node->real); break;
    case DP_NODE_STRING:
      (void)snprintf(out, 80, "\"%.60s%s\"", node->string, strlen(node->string) > 60 ? "..." : "");
      break;
    default: (void)snprintf(out, 80, "%s", dp_node_kind_name(node->kind)); break;
  }
  return out;
}

/* ---- assignments from the command line ---- */

static bool is_key(const char *text, size_t length) {
  if (length == 0) return false;
  for (size_t i = 0; i < length; i++) {
    const char c = text[i];
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-')) return false;
  }
  return true;
}

/* A deep copy into the document's arena; at most 64 levels, as the readers allow. NULL: no memory. */
static dp_node *copy_node(dp_document *document, const dp_node *from, const char *key, const char *label) {
  dp_node *to = dp_node_new(document, from->kind, key, 0);
  if (!to) return NULL;
  to->file = label;
  to->boolean = from->boolean;
  to->integer = from->integer;
  to->real = from->real;
  if (from->string && !(to->string = dp_arena_strdup(&document->arena, from->string))) return NULL;
  for (size_t i = 0; i < from->count; i++) {
    dp_node *child = copy_node(document, from->items[i], from->items[i]->key, label);
    if (!child || !dp_node_append(document, to, child)) return NULL;
  }
  return to;
}

/* The value as TOML, else as a string; NULL: no memory. */
static dp_node *assigned_value(dp_document *document, const char *key, const char *value, const char *label) {
  char *line = dp_arena_printf(&document->arena, "x = %s", value);
  if (!line) return NULL;
  dp_document parsed = {0};
  dp_node *node = NULL;
  if (!strchr(value, '\n') && dp_document_parse_toml(line, strlen(line), label, &parsed, NULL) == DP_OK) {
    if (parsed.root->count == 1) node = copy_node(document, parsed.root->items[0], key, label);
    dp_document_free(&parsed);
    return node;
  }
  node = dp_node_new(document, DP_NODE_STRING, key, 0);
  if (!node || !(node->string = dp_arena_strdup(&document->arena, value))) return NULL;
  node->file = label;
  return node;
}

dp_status dp_document_set(dp_document *document, const char *assignment, dp_error *error) {
  const char *equals = strchr(assignment, '=');
  if (!equals || equals == assignment)
    return dp_fail(error, DP_BAD_INPUT, "--set %s: found no key=value, allowed: for example plan.stages=4", assignment);
  const char *label = dp_arena_printf(&document->arena, "--set %s", assignment);
  if (!label) return dp_fail_memory(error);
  dp_node *at = document->root;
  const char *part = assignment;
  for (;;) {
    const char *dot = part;
    while (*dot != '.' && dot != equals) dot++;
    const size_t length = (size_t)(dot - part);
    if (!is_key(part, length))
      return dp_fail(error, DP_BAD_INPUT, "%s: found the key \"%.*s\", allowed: letters, digits, _ and - joined by dots", label,
                     (int)(equals - assignment), assignment);
    char *key = dp_arena_printf(&document->arena, "%.*s", (int)length, part);
    if (!key) return dp_fail_memory(error);
    const bool last = dot == equals;
    dp_node **place = NULL;
    if (at->kind == DP_NODE_ARRAY) {
      char *end = NULL;
      const unsigned long index = strtoul(key, &end, 10);
      if (*end || index >= at->count)
        return dp_fail(error, DP_BAD_INPUT, "%s: found item \"%s\", allowed: 0 to %zu", label, key, at->count - 1);
      place = &at->items[index];
    } else if (at->kind == DP_NODE_TABLE) {
      for (size_t i = 0; i < at->count; i++)
        if (strcmp(at->items[i]->key, key) == 0) place = &at->items[i];
    } else {
      return dp_fail(error, DP_BAD_INPUT, "%s: \"%s\" lies in %s, allowed: a table", label, key, dp_node_kind_name(at->kind));
    }
    if (last) {
      dp_node *value = assigned_value(document, at->kind == DP_NODE_ARRAY ? NULL : key, equals + 1, label);
      if (!value) return dp_fail_memory(error);
      if (place) {
        *place = value;
        return DP_OK;
      }
      return dp_node_append(document, at, value) ? DP_OK : dp_fail_memory(error);
    }
    if (!place) {
      dp_node *table = dp_node_new(document, DP_NODE_TABLE, key, 0);
      if (!table || !dp_node_append(document, at, table)) return dp_fail_memory(error);
      table->file = label;
      at = table;
    } else {
      at = *place;
    }
    part = dot + 1;
  }
}
