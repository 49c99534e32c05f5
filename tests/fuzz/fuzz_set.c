/* `--set`: the first line of the input is the assignment, the rest the file it changes. A refused assignment changes
 * nothing; one that was taken leaves a tree that keeps the laws of every other. */
#include "base/str.h"
#include "tests/fuzz/fuzz_tree.h"

static void write_tree(const dp_node *node, dp_str *out) {
  char shown[80];
  dp_str_addf(out, "%s=%s@%s:%d(", node->key ? node->key : "", dp_node_show(node, shown), node->file, node->line);
  for (size_t i = 0; i < node->count; i++) write_tree(node->items[i], out);
  dp_str_add(out, ")");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  if (!text) return 0;
  memcpy(text, data, size);
  text[size] = 0;
  char *end = memchr(text, '\n', size);
  char *rest = end ? end + 1 : text + size;
  if (end) *end = 0;
  dp_document document = {0};
  dp_error error = DP_ERROR_INIT;
  int lines = 1;
  for (const char *c = rest; c < text + size; c++) lines += *c == '\n';
  if (dp_document_parse_toml(rest, (size_t)(text + size - rest), "fuzz", &document, &error) == DP_OK) {
    dp_str before = {0}, after = {0};
    write_tree(document.root, &before);
    const dp_status status = dp_document_set(&document, text, &error);
    if (status == DP_OK) {
      fuzz_check_tree(document.root, 0, lines, 0);
    } else {
      write_tree(document.root, &after);
      if (status != DP_BAD_INPUT || strncmp(error.text, "--set ", 6) != 0 || strchr(error.text, '\n')) abort();
      if (strcmp(dp_str_text(&before), dp_str_text(&after)) != 0) abort();
    }
    dp_str_free(&before);
    dp_str_free(&after);
  }
  dp_document_free(&document);
  free(text);
  return 0;
}
