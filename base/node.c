#include "base/node.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"

enum { FILE_LIMIT_BYTES = 64 << 20, MAX_DEPTH = 64 };

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
  const dp_status status = dp_ends_with(path, ".toml") ? dp_document_parse_toml(text, length, path, document, error)
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

/* The shortest text that reads back as the same number and cannot be taken for an integer: 4.0, 0.1, 1e+30. */
static void show_real(double value, char out[80]) {
  for (int digits = 6; digits <= 17; digits++) {
    (void)snprintf(out, 80, "%.*g", digits, value);
    if (strtod(out, NULL) == value) break;
  }
  const size_t length = strlen(out);
  if (!strpbrk(out, ".en")) (void)snprintf(out + length, 80 - length, ".0");
}

const char *dp_node_show(const dp_node *node, char out[80]) {
  switch (node->kind) {
    case DP_NODE_BOOLEAN:
      (void)snprintf(out, 80, "%s", node->boolean ? "true" : "false");
      break;
    case DP_NODE_INTEGER:
      (void)snprintf(out, 80, "%lld", (long long)node->integer);
      break;
    case DP_NODE_REAL:
      show_real(node->real, out);
      break;
    case DP_NODE_STRING: {
      size_t length = strlen(node->string);
      const bool cut = length > 60;
      if (cut)
        for (length = 60; length && ((unsigned char)node->string[length] & 0xC0) == 0x80;)
          length--; /* whole characters */
      (void)snprintf(out, 80, "\"%.*s%s\"", (int)length, node->string, cut ? "..." : "");
      break;
    }
    default:
      (void)snprintf(out, 80, "%s", dp_node_kind_name(node->kind));
      break;
  }
  return out;
}

/* ---- assignments from the command line ---- */

static bool is_key(const char *text, size_t length) {
  if (length == 0) return false;
  for (size_t i = 0; i < length; i++) {
    const char c = text[i];
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-'))
      return false;
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

static size_t levels_below(const dp_node *node) {
  size_t most = 0;
  for (size_t i = 0; i < node->count; i++) {
    const size_t levels = 1 + levels_below(node->items[i]);
    if (levels > most) most = levels;
  }
  return most;
}

static bool is_utf8(const char *text) {
  for (const unsigned char *c = (const unsigned char *)text; *c;) {
    if (*c < 0x80) {
      c++;
      continue;
    }
    const int more = *c >= 0xF0 ? 3 : *c >= 0xE0 ? 2 : 1;
    if (*c < 0xC2 || *c > 0xF4) return false;
    unsigned long code = *c & (0x3Fu >> more);
    for (int i = 1; i <= more; i++) {
      if ((c[i] & 0xC0) != 0x80) return false; /* the terminator ends here too */
      code = code << 6 | (c[i] & 0x3Fu);
    }
    static const unsigned long least[] = {0, 0x80, 0x800, 0x10000};
    if (code < least[more] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
    c += more + 1;
  }
  return true;
}

/* The value as TOML, else as a string; `depth` is where it will lie. */
static dp_status assigned_value(dp_document *document, const char *key, const char *value, size_t depth,
                                const char *label, dp_node **out, dp_error *error) {
  if (!is_utf8(value)) return dp_fail(error, DP_BAD_INPUT, "%s: found bytes that are no text, allowed: UTF-8", label);
  const char *line = dp_arena_printf(&document->arena, "x = %s", value);
  if (!line) return dp_fail_memory(error);
  dp_document parsed = {0};
  dp_node *node = NULL;
  const dp_status status =
      strchr(value, '\n') ? DP_BAD_INPUT : dp_document_parse_toml(line, strlen(line), label, &parsed, NULL);
  if (status == DP_NO_MEMORY) return dp_fail_memory(error);
  const bool single = status == DP_OK && parsed.root->count == 1;
  const bool too_deep = single && depth + levels_below(parsed.root->items[0]) > MAX_DEPTH;
  if (single && !too_deep) node = copy_node(document, parsed.root->items[0], key, label);
  dp_document_free(&parsed);
  if (too_deep)
    return dp_fail(error, DP_BAD_INPUT, "%s: found more than %d levels, allowed: at most %d", label, MAX_DEPTH,
                   MAX_DEPTH);
  if (!single && (node = dp_node_new(document, DP_NODE_STRING, key, 0))) {
    node->file = label;
    node->string = dp_arena_strdup(&document->arena, value);
  }
  if (!node || (node->kind == DP_NODE_STRING && !node->string)) return dp_fail_memory(error);
  *out = node;
  return DP_OK;
}

/* Cuts the `length` bytes of a dotted path into keys. */
static dp_status split_path(dp_document *document, const char *path, size_t length, const char *label,
                            char *keys[MAX_DEPTH], size_t *count, dp_error *error) {
  size_t parts = 0;
  for (size_t begin = 0; begin <= length; parts++) {
    size_t end = begin;
    while (end < length && path[end] != '.') end++;
    if (!is_key(path + begin, end - begin))
      return dp_fail(error, DP_BAD_INPUT,
                     "%s: found the key \"%.*s\", allowed: letters, digits, _ and - joined by dots", label, (int)length,
                     path);
    if (parts == MAX_DEPTH)
      return dp_fail(error, DP_BAD_INPUT, "%s: found more than %d levels, allowed: at most %d", label, MAX_DEPTH,
                     MAX_DEPTH);
    if (!(keys[parts] = dp_arena_printf(&document->arena, "%.*s", (int)(end - begin), path + begin)))
      return dp_fail_memory(error);
    begin = end + 1;
  }
  *count = parts;
  return DP_OK;
}

/* Where `key` stands in `at`, itself the first `path_length` bytes of `path`; NULL: a table that has no such key. */
static dp_status find_place(const dp_node *at, const char *key, const char *path, size_t path_length, const char *label,
                            dp_node ***place, dp_error *error) {
  const int n = path_length ? (int)path_length : 8;
  if (!path_length) path = "the file"; /* JSON's root may be anything */
  *place = NULL;
  if (at->kind == DP_NODE_TABLE) {
    for (size_t i = 0; i < at->count; i++)
      if (strcmp(at->items[i]->key, key) == 0) *place = &at->items[i];
    return DP_OK;
  }
  if (at->kind != DP_NODE_ARRAY)
    return dp_fail(error, DP_BAD_INPUT, "%s: \"%.*s\" is %s, allowed: a table", label, n, path,
                   dp_node_kind_name(at->kind));
  if (at->count == 0)
    return dp_fail(error, DP_BAD_INPUT, "%s: found item \"%s\" of \"%.*s\", allowed: none, the array is empty", label,
                   key, n, path);
  const bool digits = strspn(key, "0123456789") == strlen(key);
  const unsigned long long index =
      digits ? strtoull(key, NULL, 10) : ULLONG_MAX; /* too large gives ULLONG_MAX as well */
  if (index >= at->count)
    return dp_fail(error, DP_BAD_INPUT, "%s: found item \"%s\" of \"%.*s\", allowed: 0 to %zu", label, key, n, path,
                   at->count - 1);
  *place = &at->items[index];
  return DP_OK;
}

dp_status dp_document_set(dp_document *document, const char *assignment, dp_error *error) {
  const char *equals = strchr(assignment, '=');
  if (!equals || equals == assignment)
    return dp_fail(error, DP_BAD_INPUT, "--set %s: found no key=value, allowed: for example plan.stages=4", assignment);
  const char *label = dp_arena_printf(&document->arena, "--set %s", assignment);
  if (!label) return dp_fail_memory(error);
  char *keys[MAX_DEPTH];
  size_t parts = 0;
  DP_TRY(split_path(document, assignment, (size_t)(equals - assignment), label, keys, &parts, error));
  /* down as far as the path exists; the tree changes only in the last step, so that a refused assignment changes
   * nothing */
  dp_node **place = &document->root;
  size_t found = 0, length = 0;
  while (found < parts) {
    dp_node **next = NULL;
    DP_TRY(find_place(*place, keys[found], assignment, length, label, &next, error));
    if (!next) break;
    place = next;
    length += strlen(keys[found]) + (found > 0);
    found++;
  }
  dp_node *value = NULL;
  const char *key = found == parts ? (*place)->key : keys[parts - 1];
  DP_TRY(assigned_value(document, key, equals + 1, parts, label, &value, error));
  if (found == parts) {
    *place = value;
    return DP_OK;
  }
  for (size_t i = parts - 1; i > found; i--) {
    dp_node *table = dp_node_new(document, DP_NODE_TABLE, keys[i - 1], 0);
    if (!table || !dp_node_append(document, table, value)) return dp_fail_memory(error);
    table->file = label;
    value = table;
  }
  return dp_node_append(document, *place, value) ? DP_OK : dp_fail_memory(error);
}
