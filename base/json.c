/* JSON by jansson. jansson keeps no lines per value, so after it has accepted the text a scanner walks text and tree
 * side by side in document order. The text is known to be valid JSON, which keeps the scanner to a few lines; it still
 * never reads past the end, and where text and tree do not agree (a bug here or a change in jansson) it fails rather
 * than give wrong lines. */
#include <jansson.h>
#include <string.h>

#include "base/node.h"

enum { MAX_DEPTH = 64 };

typedef struct scanner {
  const char *at, *end;
  int line;
  dp_document *document;
  dp_error *error;
} scanner;

static char skip_space(scanner *s) {
  while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n')) {
    if (*s->at == '\n') s->line++;
    s->at++;
  }
  return s->at < s->end ? *s->at : 0;
}

static bool take(scanner *s, char c) {
  if (skip_space(s) != c) return false;
  s->at++;
  return true;
}

static dp_status fail_disagreement(scanner *s) {
  return dp_fail(s->error, DP_INTERNAL, "%s:%d: the lines of the JSON text cannot be found", s->document->file,
                 s->line);
}

/* Passes a string that means `text`; false when it cannot. */
static bool take_string(scanner *s, const char *text) {
  if (!take(s, '"')) return false;
  const char *begin = s->at;
  bool escaped = false;
  while (s->at < s->end && *s->at != '"') {
    if (*s->at == '\\') {
      escaped = true;
      if (++s->at == s->end) return false;
    }
    s->at++;
  }
  const size_t length = (size_t)(s->at - begin);
  if (!take(s, '"')) return false;
  return escaped || (strlen(text) == length && memcmp(text, begin, length) == 0);
}

static bool take_scalar(scanner *s, const json_t *json) {
  if (json_is_string(json)) return take_string(s, json_string_value(json));
  const char first = skip_space(s);
  const char *const letters = json_is_true(json)    ? "t"
                              : json_is_false(json) ? "f"
                              : json_is_null(json)  ? "n"
                                                    : "-0123456789";
  if (!first || !strchr(letters, first)) return false;
  while (s->at < s->end && !strchr(",]} \t\r\n", *s->at)) s->at++;
  return true;
}

static dp_status convert(scanner *s, json_t *json, const char *key, int line, int depth, dp_node **out);

static dp_status convert_array(scanner *s, json_t *json, dp_node *node, int depth) {
  if (!take(s, '[')) return fail_disagreement(s);
  for (size_t i = 0; i < json_array_size(json); i++) {
    if (i && !take(s, ',')) return fail_disagreement(s);
    skip_space(s);
    dp_node *child = NULL;
    DP_TRY(convert(s, json_array_get(json, i), NULL, s->line, depth + 1, &child));
    if (!dp_node_append(s->document, node, child)) return dp_fail_memory(s->error);
  }
  return take(s, ']') ? DP_OK : fail_disagreement(s);
}

static dp_status convert_object(scanner *s, json_t *json, dp_node *node, int depth) {
  const char *key;
  json_t *value;
  if (!take(s, '{')) return fail_disagreement(s);
  json_object_foreach(json, key, value) { /* jansson iterates in the order of the text */
    if (node->count && !take(s, ',')) return fail_disagreement(s);
    skip_space(s);
    const int line = s->line;
    if (!take_string(s, key) || !take(s, ':')) return fail_disagreement(s);
    dp_node *child = NULL;
    DP_TRY(convert(s, value, key, line, depth + 1, &child));
    if (!dp_node_append(s->document, node, child)) return dp_fail_memory(s->error);
  }
  return take(s, '}') ? DP_OK : fail_disagreement(s);
}

static dp_status convert(scanner *s, json_t *json, const char *key, int line, int depth, dp_node **out) {
  static const dp_node_kind kinds[] = {
      [JSON_OBJECT] = DP_NODE_TABLE,    [JSON_ARRAY] = DP_NODE_ARRAY, [JSON_STRING] = DP_NODE_STRING,
      [JSON_INTEGER] = DP_NODE_INTEGER, [JSON_REAL] = DP_NODE_REAL,   [JSON_TRUE] = DP_NODE_BOOLEAN,
      [JSON_FALSE] = DP_NODE_BOOLEAN,   [JSON_NULL] = DP_NODE_NULL};
  dp_node *node = dp_node_new(s->document, kinds[json_typeof(json)], key, line);
  if (!node) return dp_fail_memory(s->error);
  if (depth > MAX_DEPTH)
    return dp_fail_at(s->error, node, "found more than %d levels, allowed: at most %d", MAX_DEPTH, MAX_DEPTH);
  *out = node;
  switch (json_typeof(json)) {
    case JSON_OBJECT:
      return convert_object(s, json, node, depth);
    case JSON_ARRAY:
      return convert_array(s, json, node, depth);
    case JSON_STRING:
      if (!(node->string = dp_arena_strdup(&s->document->arena, json_string_value(json))))
        return dp_fail_memory(s->error);
      break;
    case JSON_INTEGER:
      node->integer = json_integer_value(json);
      node->real = (double)node->integer;
      break;
    case JSON_REAL:
      node->real = json_real_value(json);
      break;
    case JSON_TRUE:
      node->boolean = true;
      break;
    default:
      break;
  }
  return take_scalar(s, json) ? DP_OK : fail_disagreement(s);
}

dp_status dp_document_parse_json(const char *text, size_t length, const char *name, dp_document *document,
                                 dp_error *error) {
  if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark, as some editors write it */
    text += 3;
    length -= 3;
  }
  json_error_t reason;
  json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &reason);
  if (!json) {
    if (json_error_code(&reason) == json_error_out_of_memory) return dp_fail_memory(error);
    return dp_fail(error, DP_BAD_INPUT, "%s:%d: not valid JSON: %s", name, reason.line > 0 ? reason.line : 1,
                   reason.text);
  }
  const char *nul = memchr(text, 0, length);
  if (nul) { /* jansson passes over one that follows a number */
    json_decref(json);
    int line = 1;
    for (const char *c = text; c < nul; c++) line += *c == '\n';
    return dp_fail(error, DP_BAD_INPUT, "%s:%d: not valid JSON: found a NUL byte, allowed: text", name, line);
  }
  dp_document made = {0};
  made.file = dp_arena_strdup(&made.arena, name);
  scanner s = {text, text + length, 1, &made, error};
  dp_status status = made.file ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) {
    skip_space(&s);
    status = convert(&s, json, NULL, s.line, 0, &made.root);
    if (status == DP_OK && (skip_space(&s) || s.at != s.end)) status = fail_disagreement(&s);
  }
  json_decref(json);
  if (status != DP_OK) {
    dp_document_free(&made);
    return status;
  }
  *document = made;
  return DP_OK;
}
