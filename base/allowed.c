#include "base/allowed.h"

#include <string.h>

enum { LONGEST = 40, SHORTEST_WHOLE = 4 };

typedef struct bare {
  char letters[LONGEST + 1]; /* lower case letters and digits */
  char digits[LONGEST + 1];
  size_t length;
} bare;

static bool strip(const char *name, bare *out) {
  size_t digits = 0;
  *out = (bare){0};
  for (; *name; name++) {
    const bool upper = *name >= 'A' && *name <= 'Z', digit = *name >= '0' && *name <= '9';
    if (!upper && !digit && !(*name >= 'a' && *name <= 'z')) continue;
    if (out->length == LONGEST) return false;
    out->letters[out->length++] = upper ? (char)(*name - 'A' + 'a') : *name;
    if (digit) out->digits[digits++] = *name;
  }
  return out->length > 0;
}

static bool ends_with(const bare *whole, const bare *end) {
  return whole->length >= end->length && strcmp(whole->letters + whole->length - end->length, end->letters) == 0;
}

/* 0 the same, 1 and 5 one begins or ends with the other, 2 to 4 edits; 6 far. */
static int rank_of(const char *given, const char *name) {
  bare a, b;
  if (!strip(given, &a) || !strip(name, &b)) return 6;
  if (strcmp(a.letters, b.letters) == 0) return 0;
  if (a.length >= 2 && strncmp(a.letters, b.letters, a.length) == 0) return 1;
  const int distance = dp_name_distance(a.letters, b.letters);
  if (distance < 3 && (size_t)distance < a.length && strcmp(a.digits, b.digits) == 0) return 2 + distance;
  if (a.length >= SHORTEST_WHOLE && ends_with(&b, &a)) return 5;
  if (b.length >= SHORTEST_WHOLE && (strncmp(a.letters, b.letters, b.length) == 0 || ends_with(&a, &b))) return 5;
  return 6;
}

void dp_allowed_add(dp_allowed *allowed, const char *name) {
  const int rank = allowed->given ? rank_of(allowed->given, name) : 6;
  if (rank < (allowed->nearest ? allowed->rank : 6)) {
    allowed->nearest = name;
    allowed->rank = rank;
  }
  dp_str_addf(&allowed->names, "%s%s", allowed->names.length ? ", " : "", name);
}

const char *dp_allowed_text(dp_allowed *allowed) {
  dp_str text = {0};
  if (allowed->nearest) dp_str_addf(&text, "did you mean \"%s\"? ", allowed->nearest);
  dp_str_addf(&text, "allowed: %s", dp_str_text(&allowed->names));
  dp_str_free(&allowed->names);
  allowed->names = text;
  return dp_str_text(&text);
}

void dp_allowed_free(dp_allowed *allowed) { dp_str_free(&allowed->names); }
