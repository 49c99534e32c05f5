#include "base/schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/allowed.h"

static dp_status fail_unknown(const dp_node *item, const char *section, const dp_field *fields, size_t count,
                              dp_error *error) {
  const char *nearest = NULL;
  int best = 3;
  for (size_t i = 0; i < count; i++) {
    const int d = dp_name_distance(item->key, fields[i].key);
    if (d < best) {
      best = d;
      nearest = fields[i].key;
    }
  }
  dp_str known = {0};
  for (size_t i = 0; i < count; i++) dp_str_addf(&known, "%s%s", i ? ", " : "", fields[i].key);
  const dp_status status =
      nearest ? dp_fail_at(error, item, "%s: unknown key \"%s\", did you mean \"%s\"? allowed: %s", section, item->key,
                           nearest, dp_str_text(&known))
              : dp_fail_at(error, item, "%s: unknown key \"%s\", allowed: %s", section, item->key, dp_str_text(&known));
  dp_str_free(&known);
  return status;
}

static void number_text(double x, char out[32]) {
  if (x == floor(x) && fabs(x) < 1e15)
    (void)snprintf(out, 32, "%.0f", x);
  else
    (void)snprintf(out, 32, "%g", x);
}

static void range_text(const dp_field *field, char out[96]) {
  char low[32], high[32];
  number_text(field->min, low);
  number_text(field->max, high);
  const char *what = field->type == DP_FIELD_INTEGER ? "an integer" : "a number";
  if (field->min == 0 && field->max == 0)
    (void)snprintf(out, 96, "%s", what);
  else
    (void)snprintf(out, 96, "%s from %s to %s", what, low, high);
}

/* Whether an integer lies within bounds given as doubles; exact, also where a double cannot hold the integer. */
static bool within(int64_t x, double min, double max) {
  const bool above = min <= -0x1p63 || (min < 0x1p63 && x >= (int64_t)ceil(min));
  const bool below = max >= 0x1p63 || (max >= -0x1p63 && x <= (int64_t)floor(max));
  return above && below;
}

static dp_status read_choice(const dp_node *node, const char *section, const dp_field *field, void *target,
                             dp_error *error) {
  if (node->kind == DP_NODE_STRING)
    for (int i = 0; field->choices[i]; i++)
      if (strcmp(field->choices[i], node->string) == 0) {
        memcpy(target, &i, sizeof i);
        return DP_OK;
      }
  dp_allowed allowed = {.given = node->kind == DP_NODE_STRING ? node->string : NULL};
  for (int i = 0; field->choices[i]; i++) dp_allowed_add(&allowed, field->choices[i]);
  char shown[80];
  const dp_status status = dp_fail_at(error, node, "%s.%s: found %s, %s", section, field->key,
                                      dp_node_show(node, shown), dp_allowed_text(&allowed));
  dp_allowed_free(&allowed);
  return status;
}

static dp_status read_field(const dp_node *node, const char *section, const dp_field *field, void *target,
                            dp_error *error) {
  char shown[80], allowed[96];
  switch (field->type) {
    case DP_FIELD_BOOLEAN:
      if (node->kind != DP_NODE_BOOLEAN)
        return dp_fail_at(error, node, "%s.%s: found %s, allowed: true or false", section, field->key,
                          dp_node_show(node, shown));
      memcpy(target, &node->boolean, sizeof node->boolean);
      return DP_OK;
    case DP_FIELD_INTEGER:
    case DP_FIELD_REAL: {
      const bool fits = node->kind == DP_NODE_INTEGER || (node->kind == DP_NODE_REAL && field->type == DP_FIELD_REAL);
      const bool bounded = field->min != 0 || field->max != 0;
      const bool inside =
          !bounded || (field->type == DP_FIELD_INTEGER && fits ? within(node->integer, field->min, field->max)
                                                               : node->real >= field->min && node->real <= field->max);
      if (!fits || !isfinite(node->real) || !inside) {
        range_text(field, allowed);
        return dp_fail_at(error, node, "%s.%s: found %s, allowed: %s", section, field->key, dp_node_show(node, shown),
                          allowed);
      }
      if (field->type == DP_FIELD_INTEGER)
        memcpy(target, &node->integer, sizeof node->integer);
      else
        memcpy(target, &node->real, sizeof node->real);
      return DP_OK;
    }
    case DP_FIELD_STRING:
      if (node->kind != DP_NODE_STRING || !node->string[0])
        return dp_fail_at(error, node, "%s.%s: found %s, allowed: a string that is not empty", section, field->key,
                          dp_node_show(node, shown));
      memcpy(target, &node->string, sizeof node->string);
      return DP_OK;
    case DP_FIELD_CHOICE:
      return read_choice(node, section, field, target, error);
    case DP_FIELD_NODE:
      memcpy(target, &node, sizeof node);
      return DP_OK;
  }
  return dp_fail(error, DP_INTERNAL, "field \"%s\" has no type", field->key);
}

dp_status dp_schema_read(const dp_node *table, const dp_node *parent, const char *section, const dp_field *fields,
                         size_t field_count, void *target, dp_error *error) {
  if (table && table->kind != DP_NODE_TABLE) {
    char shown[80];
    return dp_fail_at(error, table, "%s: found %s, allowed: a table", section, dp_node_show(table, shown));
  }
  for (size_t i = 0; table && i < table->count; i++) {
    const dp_node *item = table->items[i];
    size_t f = 0;
    while (f < field_count && strcmp(fields[f].key, item->key) != 0) f++;
    if (f == field_count) return fail_unknown(item, section, fields, field_count, error);
    union {
      bool boolean;
      int64_t integer;
      double real;
      const void *pointer;
      int choice;
    } unused;
    DP_TRY(read_field(item, section, &fields[f], &unused, error));
  }
  for (size_t f = 0; f < field_count; f++)
    if (fields[f].required && !dp_node_get(table, fields[f].key))
      return dp_fail_at(error, table ? table : parent, "%s: the key \"%s\" is missing, needed: %s", section,
                        fields[f].key, fields[f].help);
  /* the target changes only now that nothing can fail */
  for (size_t f = 0; f < field_count; f++) {
    const dp_node *item = dp_node_get(table, fields[f].key);
    if (item) DP_TRY(read_field(item, section, &fields[f], (char *)target + fields[f].offset, error));
  }
  return DP_OK;
}

dp_status dp_schema_read_integers(const dp_node *node, const char *what, int64_t min, int64_t max, dp_arena *arena,
                                  int64_t **values, size_t *count, dp_error *error) {
  const size_t n = node->kind == DP_NODE_ARRAY ? node->count : 1;
  int64_t *read = DP_ARENA_NEW(arena, int64_t, n);
  if (!read) return dp_fail_memory(error);
  for (size_t i = 0; i < n; i++) {
    const dp_node *item = node->kind == DP_NODE_ARRAY ? node->items[i] : node;
    char shown[80];
    if (item->kind != DP_NODE_INTEGER || item->integer < min || item->integer > max)
      return dp_fail_at(error, item, "%s: found %s, allowed: %s from %lld to %lld", what, dp_node_show(item, shown),
                        item == node ? "a list of integers" : "integers", (long long)min, (long long)max);
    read[i] = item->integer;
  }
  *values = read;
  *count = n;
  return DP_OK;
}

dp_status dp_schema_check_format(const dp_node *root, const char *format, int64_t version, dp_error *error) {
  char shown[80];
  if (root->kind != DP_NODE_TABLE)
    return dp_fail_at(error, root, "found %s, allowed: a table with format = \"%s\"", dp_node_show(root, shown),
                      format);
  const dp_node *node = dp_node_get(root, "format");
  if (!node) return dp_fail_at(error, root, "the key \"format\" is missing, allowed: format = \"%s\"", format);
  if (node->kind != DP_NODE_STRING || strcmp(node->string, format) != 0)
    return dp_fail_at(error, node, "format: found %s, allowed: \"%s\"", dp_node_show(node, shown), format);
  node = dp_node_get(root, "version");
  if (!node)
    return dp_fail_at(error, root, "the key \"version\" is missing, allowed: version = %lld", (long long)version);
  if (node->kind != DP_NODE_INTEGER || node->integer != version)
    return dp_fail_at(error, node, "version: found %s, allowed: %lld", dp_node_show(node, shown), (long long)version);
  return DP_OK;
}

void dp_schema_describe(const dp_field *fields, size_t field_count, dp_str *out) {
  static const char *const types[] = {"boolean", "integer", "number", "string", "choice", "see text"};
  dp_str_add(out, "| key | type | allowed | required | meaning |\n|---|---|---|---|---|\n");
  for (size_t i = 0; i < field_count; i++) {
    const dp_field *field = &fields[i];
    dp_str_addf(out, "| `%s` | %s | ", field->key, types[field->type]);
    if (field->type == DP_FIELD_CHOICE) {
      for (int c = 0; field->choices[c]; c++) dp_str_addf(out, "%s`%s`", c ? ", " : "", field->choices[c]);
    } else if ((field->type == DP_FIELD_INTEGER || field->type == DP_FIELD_REAL) &&
               (field->min != 0 || field->max != 0)) {
      char low[32], high[32];
      number_text(field->min, low);
      number_text(field->max, high);
      dp_str_addf(out, "%s to %s", low, high);
    }
    dp_str_addf(out, " | %s | %s |\n", field->required ? "yes" : "", field->help);
  }
}
