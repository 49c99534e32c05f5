#include "cli/text.h"

#include <stdio.h>
#include <string.h>

void cli_print_wrapped(int indent, const char *text) {
  enum { COLUMNS = 100 };
  for (int margin = indent; *text; margin = indent + 2) {
    size_t length = strlen(text);
    if (length > (size_t)(COLUMNS - margin)) {
      size_t cut = (size_t)(COLUMNS - margin);
      while (cut > 0 && text[cut] != ' ') cut--;
      if (cut > 0) length = cut;
    }
    printf("%*s%.*s\n", margin, "", (int)length, text);
    text += length;
    while (*text == ' ') text++;
  }
}
