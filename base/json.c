/* JSON by jansson. jansson keeps no lines per value, so after it has accepted the text a scanner walks text and tree side
 * by side in document order. The text is known to be valid JSON, which keeps the scanner to a few lines; it still never
 * reads past the end. */
#include <jansson.h>
#include <math.h>
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

static void skip_string(scanner *s) {
  for (s->at++; s->at < s->end && *s->at != '"'; s->at++)
    if (*s->at == '\\') s->at++;
  if (s->at < s->end) s->at++;
}

static void skip_scalar(scanner *s) {
  if (*s->at == '"') {
    skip_string(s);
    return;
  }
  while (s->at < s->end && !strchr(",]} \t\r\n", *s->at)) s->at++;
}

static dp_status convert(scanner *s, json_t *json, const char *key, int line, int depth, dp_node **out);

static dp_status convert_array(scanner *s, json_t *json, dp_node *node, int depth) {
  s->at++;
  for (size_t i = 0; i < json_array_size(json); i++) {
    if (skip_space(s) == ',') {
      s->at++;
      skip_space(s);
    }
    dp_node *child = NULL;
    DP_TRY(convert(s, json_array_get(json, i), NULL, s->line, depth + 1, &child));
    if (!dp_node_append(s->document, node, child)) return dp_fail_memory(s->error);
  }
  if (skip_space(s) == ']') s->at++;
  return DP_OK;
}

static dp_status convert_object(scanner *s, json_t *json, dp_node *node, int depth) {
  const char *key;
  json_t *value;
  s->at++;
  json_object_foreach(json, key, value) { /* jansson iterates in the order of the text */
    if (skip_space(s) == ',') {
      s->at++;
      skip_space(s);
    }
    const int line = s->line;
    skip_string(s);
    if (skip_space(s) == ':') s->at++;
    skip_space(s);
    dp_node *child = NULL;
    DP_TRY(convert(s, value, key, line, depth + 1, &child));
    if (!dp_node_append(s->document, node, child)) return dp_fail_memory(s->error);
  }
  if (skip_space(s) == '}') s->at++;
  return DP_OK;
}

static dp_status convert(scanner *s, json_t *json, const char *key, int line, int depth, dp_node **out) {
  static const dp_node_kind kinds[] = {[JSON_OBJECT] = DP_NODE_TABLE, [JSON_ARRAY] = DP_NODE_ARRAY,
                                       [JSON_STRING] = DP_NODE_STRING, [JSON_INTEGER] = DP_NODE_INTEGER,
                                       [JSON_REAL] = DP_NODE_REAL,     [JSON_TRUE] = DP_NODE_BOOLEAN,
                                       [JSON_FALSE] = DP_NODE_BOOLEAN, [JSON_NULL] = DP_NODE_NULL};
  dp_node *node = dp_node_new(s->document, kinds[json_typeof(json)], key, line);
  if (!node) return dp_fail_memory(s->error);
  if (depth > MAX_DEPTH) return dp_fail_at(s->error, node, "found more than %d levels, allowed: at most %d", MAX_DEPTH, MAX_DEPTH);
  *out = node;
  switch (json_typeof(json)) {
    case JSON_OBJECT: return convert_object(s, json, node, depth);
    case JSON_ARRAY: return convert_array(s, json, node, depth);
    case JSON_STRING:
      if (!(node->string = dp_arena_strdup(&s->document->arena, json_string_value(json)))) return dp_fail_memory(s->error);
      break;
    case JSON_INTEGER:
      node->integer = json_integer_value(json);
      node->real = (double)node->integer;
      break;
    case JSON_REAL: node->real = json_real_value(json); break;
    case JSON_TRUE: node->boolean = true; break;
    default: break;
  }
  skip_scalar(s);
  return DP_OK;
}

dp_status dp_document_parse_json(const char *text, size_t length, const char *name, dp_document *document, dp_error *error) {
  json_error_t reason;
  json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &reason);
  if (!json) {
    if (json_error_code(&reason) == json_error_out_of_memory) return dp_fail_memory(error);
    return dp_fail(error, DP_BAD_INPUT, "%s:%d: not valid JSON: %s", name, reason.line > 0 ? reason.line : 1, reason.text);
  }
  dp_document made = {0};
  made.file = dp_arena_strdup(&made.arena, name);
  scanner s = {text, text + length, 1, &made, error};
  dp_status status = made.file ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) {
    skip_space(&s);
    status = convert(&s, json, NULL, s.line, 0, &made.root);
  }
  json_decref(json);
  if (status != DP_OK) {
    dp_document_free(&made);
    return status;
  }
  *document = made;
  return DP_OK;
}
