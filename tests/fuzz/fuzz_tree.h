/* What must hold for any tree that a reader accepted: lines within the text, kinds and fields in agreement. */
#ifndef DP_TESTS_FUZZ_TREE_H
#define DP_TESTS_FUZZ_TREE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_check_tree(const dp_node *node, int first_line, int lines, int depth) {
  if (depth > 64 || node->line < first_line || node->line > lines || !node->file) abort();
  if ((node->kind == DP_NODE_STRING) != (node->string != NULL)) abort();
  if (node->kind == DP_NODE_REAL && !isfinite(node->real)) abort();
  if (node->kind == DP_NODE_INTEGER && node->real != (double)node->integer) abort();
  if (node->count && node->kind != DP_NODE_ARRAY && node->kind != DP_NODE_TABLE) abort();
  for (size_t i = 0; i < node->count; i++) {
    const dp_node *child = node->items[i];
    if ((node->kind == DP_NODE_TABLE) != (child->key != NULL)) abort();
    /* a repeated key was refused: looking it up finds this child */
    if (child->key && node->count < 64 && dp_node_get(node, child->key) != child) abort();
    fuzz_check_tree(child, first_line, lines, depth + 1);
  }
}

static inline int fuzz_reader(dp_status (*parse)(const char *, size_t, const char *, dp_document *, dp_error *),
                              const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  if (!text) return 0;
  memcpy(text, data, size);
  text[size] = 0;
  int lines = 1;
  for (size_t i = 0; i < size; i++) lines += text[i] == '\n';
  dp_document document = {0};
  dp_error error = DP_ERROR_INIT;
  const dp_status status = parse(text, size, "fuzz", &document, &error);
  if (status == DP_OK) {
    if (memchr(text, 0, size)) abort(); /* NUL bytes are errors */
    fuzz_check_tree(document.root, 1, lines, 0);
  } else {
    /* "fuzz:LINE: what", the line within the text; nothing but bad input can go wrong */
    char *end = NULL;
    const long line = strncmp(error.text, "fuzz:", 5) == 0 ? strtol(error.text + 5, &end, 10) : 0;
    if (status != DP_BAD_INPUT || line < 1 || line > lines || strncmp(end, ": ", 2) != 0) abort();
    if (!end[2] || strchr(error.text, '\n') || document.root) abort();
  }
  dp_document_free(&document);
  free(text);
  return 0;
}

#endif
