#define _GNU_SOURCE /* strcasestr */
#include "profiler/classes.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/schema.h"

const char *const prof_class_names[PROF_CLASS_COUNT + 1] = {
    "gemm", "convolution", "attention", "norm", "elementwise", "optimizer", "nccl", "copy", "other", NULL};

typedef struct rule_row {
  int class;
  const dp_node *any, *without;
} rule_row;

static const dp_field rule_fields[] = {
    {"class", DP_FIELD_CHOICE, offsetof(rule_row, class), true, 0, 0, prof_class_names, "of what the rule matches"},
    {"any", DP_FIELD_NODE, offsetof(rule_row, any), true, 0, 0, NULL, "texts of which the name contains one"},
    {"without", DP_FIELD_NODE, offsetof(rule_row, without), false, 0, 0, NULL, "texts of which it contains none"},
};

typedef struct file_row {
  const char *format;
  int64_t version;
  const dp_node *rule;
} file_row;

static const dp_field file_fields[] = {
    {"format", DP_FIELD_STRING, offsetof(file_row, format), true, 0, 0, NULL, "diffpipe-kernels"},
    {"version", DP_FIELD_INTEGER, offsetof(file_row, version), true, 1, 1, NULL, "1"},
    {"rule", DP_FIELD_NODE, offsetof(file_row, rule), true, 0, 0, NULL, "[[rule]], in their order"},
};

static dp_status read_texts(prof_rules *rules, const dp_node *node, const char *what, const char ***texts,
                            size_t *count, dp_error *error) {
  if (!node) return DP_OK;
  if (node->kind != DP_NODE_ARRAY || node->count == 0)
    return dp_fail_at(error, node, "%s: found %s, allowed: a list of texts", what,
                      node->kind == DP_NODE_ARRAY ? "an empty list" : dp_node_kind_name(node->kind));
  const char **made = DP_ARENA_NEW(&rules->arena, const char *, node->count);
  if (!made) return dp_fail_memory(error);
  for (size_t i = 0; i < node->count; i++) {
    if (node->items[i]->kind != DP_NODE_STRING || !node->items[i]->string[0])
      return dp_fail_at(error, node->items[i], "%s: found %s, allowed: a text that is not empty", what,
                        dp_node_kind_name(node->items[i]->kind));
    made[i] = node->items[i]->string;
  }
  *texts = made;
  *count = node->count;
  return DP_OK;
}

static dp_status read_rules(prof_rules *rules, dp_error *error) {
  file_row file = {.rule = NULL};
  DP_TRY(dp_schema_check_format(rules->document.root, "diffpipe-kernels", 1, error));
  DP_TRY(dp_schema_read(rules->document.root, NULL, "the top", file_fields, DP_COUNT_OF(file_fields), &file, error));
  if (file.rule->kind != DP_NODE_ARRAY)
    return dp_fail_at(error, file.rule, "rule: found %s, allowed: [[rule]]", dp_node_kind_name(file.rule->kind));
  rules->items = DP_ARENA_NEW(&rules->arena, prof_rule, file.rule->count);
  if (!rules->items) return dp_fail_memory(error);
  for (size_t i = 0; i < file.rule->count; i++) {
    rule_row row = {.any = NULL};
    prof_rule *rule = &rules->items[i];
    DP_TRY(
        dp_schema_read(file.rule->items[i], file.rule, "[[rule]]", rule_fields, DP_COUNT_OF(rule_fields), &row, error));
    rule->class = (prof_class)row.class;
    DP_TRY(read_texts(rules, row.any, "any", &rule->any, &rule->any_count, error));
    DP_TRY(read_texts(rules, row.without, "without", &rule->without, &rule->without_count, error));
    rules->count++;
  }
  return DP_OK;
}

static dp_status finish(dp_status status, prof_rules *made, prof_rules *rules, dp_error *error) {
  if (status == DP_OK) status = read_rules(made, error);
  if (status == DP_OK)
    *rules = *made;
  else
    prof_rules_free(made);
  return status;
}

dp_status prof_rules_parse(const char *text, size_t length, const char *name, prof_rules *rules, dp_error *error) {
  prof_rules made = {.items = NULL};
  return finish(dp_document_parse_toml(text, length, name, &made.document, error), &made, rules, error);
}

dp_status prof_rules_read(const char *path, prof_rules *rules, dp_error *error) {
  prof_rules made = {.items = NULL};
  if (!path) path = dp_arena_printf(&made.arena, "%s/catalogue/kernels.toml", dp_data_folder());
  if (!path) return dp_fail_memory(error);
  return finish(dp_document_read(path, &made.document, error), &made, rules, error);
}

void prof_rules_free(prof_rules *rules) {
  dp_document_free(&rules->document);
  dp_arena_free(&rules->arena);
  *rules = (prof_rules){.items = NULL};
}

static bool contains_one(const char *name, const char *const *texts, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcasestr(name, texts[i])) return true;
  return false;
}

prof_class prof_rules_class(const prof_rules *rules, const char *kernel) {
  for (size_t i = 0; i < rules->count; i++) {
    const prof_rule *rule = &rules->items[i];
    if (contains_one(kernel, rule->any, rule->any_count) && !contains_one(kernel, rule->without, rule->without_count))
      return rule->class;
  }
  return PROF_OTHER;
}

unsigned char *prof_rules_classes(const prof_rules *rules, const prof_session *session) {
  unsigned char *classes = malloc(session->names.count + 1);
  if (!classes) return NULL;
  classes[0] = PROF_OTHER;
  for (size_t n = 1; n < session->names.count; n++)
    classes[n] = (unsigned char)prof_rules_class(rules, session->names.items[n]);
  return classes;
}

prof_class prof_record_class(const prof_record *record, const unsigned char *classes) {
  if (record->kind == PROF_COPY || record->kind == PROF_MEMSET) return PROF_COPIES;
  return record->kind == PROF_KERNEL ? (prof_class)classes[record->name] : PROF_OTHER;
}
