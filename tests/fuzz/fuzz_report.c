/* Any bytes as the files of a run, metrics.json, setup.json, tune.json and comparison.json with a line of %% between:
 * refused with one line, or a page in both ways of writing it, whose tags are as many as they should be. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "reports/page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_page(const report_files *files, bool markdown) {
  dp_str page = {0};
  dp_error error = DP_ERROR_INIT;
  if (report_page_build(files, "/nonexistent", markdown, &page, &error) != DP_OK) abort();
  size_t open = 0, closed = 0;
  for (const char *at = page.text; (at = strstr(at, "<section")); at++) open++;
  for (const char *at = page.text; (at = strstr(at, "</section>")); at++) closed++;
  if (!markdown && (open != closed || open < 4)) abort();
  dp_str_free(&page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  report_files files;
  dp_error error = DP_ERROR_INIT;
  if (!text) return 0;
  memcpy(text, data, size);
  text[size] = 0;
  char *setup = strstr(text, "\n%%\n"), *tune = setup ? strstr(setup + 4, "\n%%\n") : NULL;
  char *comparison = tune ? strstr(tune + 4, "\n%%\n") : NULL;
  if (setup) *setup = 0;
  if (tune) *tune = 0;
  if (comparison) *comparison = 0;
  if (report_files_parse(text, setup ? setup + 4 : "{}", tune ? tune + 4 : NULL, comparison ? comparison + 4 : NULL,
                         &files, &error) == DP_OK) {
    check_page(&files, false);
    check_page(&files, true);
    report_files_free(&files);
  } else if (!error.text[0] || strchr(error.text, '\n')) {
    abort();
  }
  free(text);
  return 0;
}
