/* One tree for everything that is read: TOML and JSON become the same nodes, and every node remembers the file and the
 * line it came from, so that an error can name them.
 *
 * Ownership: a dp_document owns all its nodes and strings through one arena; free it last. Tables keep the order of the
 * file; keys are unique (a repeated key is an error of reading).
 */
#ifndef DP_BASE_NODE_H
#define DP_BASE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dp_node_kind {
  DP_NODE_NULL, /* JSON null */
  DP_NODE_BOOLEAN,
  DP_NODE_INTEGER,
  DP_NODE_REAL,
  DP_NODE_STRING,
  DP_NODE_ARRAY,
  DP_NODE_TABLE
} dp_node_kind;

typedef struct dp_node {
  dp_node_kind kind;
  const char *key;  /* NULL for array items and the root */
  const char *file; /* as the user named it, or "--set plan.stages=4" for a key given on the command line */
  int line;         /* 1-based; of the key for table members, of the value otherwise; 0: no line (command line) */
  bool boolean;
  int64_t integer;
  double real; /* set for integers too */
  const char *string;
  struct dp_node **items; /* members of an array or a table */
  size_t count, capacity;
} dp_node;

typedef struct dp_document {
  dp_arena arena;
  dp_node *root; /* always a table for TOML; any kind for JSON */
  const char *file;
} dp_document;

/* Reads a file by its ending: .toml, else JSON. Files over 64 MiB, nesting over 64 levels, NUL bytes, invalid UTF-8,
 * NaN and infinities, dates and times are errors (DP_BAD_INPUT) that name file and line. */
dp_status dp_document_read(const char *path, dp_document *document, dp_error *error);
/* The same from memory; `name` stands in for the path in errors. */
dp_status dp_document_parse_toml(const char *text, size_t length, const char *name, dp_document *document,
                                 dp_error *error);
dp_status dp_document_parse_json(const char *text, size_t length, const char *name, dp_document *document,
                                 dp_error *error);
void dp_document_free(dp_document *document);

/* `--set plan.stages=4`: sets root.plan.stages. The value is read as TOML (4, 1.5, true, "x", [1,2]); what is not
 * valid TOML is taken as a string. Missing tables are made; an existing value is replaced. Nodes made here carry
 * file = the assignment itself ("--set plan.stages=4") and line 0. */
dp_status dp_document_set(dp_document *document, const char *assignment, dp_error *error);

/* NULL when `table` is NULL, no table, or has no such key. */
dp_node *dp_node_get(const dp_node *table, const char *key);

/* `return dp_fail_at(error, node, "what %s", x)`: DP_BAD_INPUT with the node's FILE:LINE in front (only FILE for line
 * 0). */
dp_status dp_fail_at(dp_error *error, const dp_node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "a boolean", "an integer", "a table", ... for error texts. */
const char *dp_node_kind_name(dp_node_kind kind);
/* The value as a short text for error messages ("-3", "\"abc\"", "a table"), cut to fit. */
const char *dp_node_show(const dp_node *node, char out[80]);

/* Implementation detail shared by the readers in base/ (toml.cc, json.c): makes a node in the document's arena, or
 * appends a child; NULL/false when the host has no memory. */
dp_node *dp_node_new(dp_document *document, dp_node_kind kind, const char *key, int line);
bool dp_node_append(dp_document *document, dp_node *parent, dp_node *child);

#ifdef __cplusplus
}
#endif
#endif
