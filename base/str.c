#include "base/str.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static bool reserve(dp_str *str, size_t extra) {
  if (str->failed) return false;
  /* dp_array_grow counts items in use: the text and its terminator */
  if (!dp_array_grow(&str->text, &str->capacity, str->text ? str->length + 1 : 0, extra + 1, 1)) str->failed = true;
  return !str->failed;
}

void dp_str_add_bytes(dp_str *str, const char *bytes, size_t count) {
  if (!reserve(str, count)) return;
  if (count) memcpy(str->text + str->length, bytes, count);
  str->length += count;
  str->text[str->length] = 0;
}

void dp_str_add(dp_str *str, const char *text) { dp_str_add_bytes(str, text, strlen(text)); }

void dp_str_addf(dp_str *str, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (length < 0) {
    str->failed = true;
  } else if (reserve(str, (size_t)length)) {
    (void)vsnprintf(str->text + str->length, (size_t)length + 1, format, again);
    str->length += (size_t)length;
  }
  va_end(again);
}

void dp_str_add_quoted(dp_str *str, const char *text) {
  dp_str_add(str, "\"");
  for (; *text; text++) {
    const unsigned char c = (unsigned char)*text;
    if (c < 0x20 || c == 0x7f) {
      dp_str_addf(str, "\\u%04X", c);
      continue;
    }
    if (c == '"' || c == '\\') dp_str_add(str, "\\");
    dp_str_add_bytes(str, text, 1);
  }
  dp_str_add(str, "\"");
}

void dp_str_add_word(dp_str *str, const char *word) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (word[0] && word[strspn(word, plain)] == 0) {
    dp_str_add(str, word);
    return;
  }
  dp_str_add(str, "'");
  for (; *word; word++) {
    if (*word == '\'')
      dp_str_add(str, "'\\''");
    else
      dp_str_add_bytes(str, word, 1);
  }
  dp_str_add(str, "'");
}

void dp_str_clear(dp_str *str) {
  str->length = 0;
  if (str->text) str->text[0] = 0;
}

void dp_str_free(dp_str *str) {
  free(str->text);
  *str = (dp_str){0};
}

const char *dp_str_text(const dp_str *str) { return str->text ? str->text : ""; }

static const char *scaled(double value, const char *const *units, int count, double step, char out[32],
                          const char *suffix) {
  int unit = 0;
  double size = fabs(value);
  while (unit + 1 < count && size >= 0.99995 * step) {
    size /= step;
    value /= step;
    unit++;
  }
  if (size >= 1e6) { /* beyond the last unit */
    (void)snprintf(out, 32, "%.3g%s%s%s", value, units[unit][0] || suffix[0] ? " " : "", units[unit], suffix);
    return out;
  }
  const int digits = size >= 99.95 || unit == 0 ? (size == floor(size) ? 0 : 1) : size >= 9.995 ? 1 : 2;
  (void)snprintf(out, 32, "%.*f%s%s%s", digits, value, units[unit][0] || suffix[0] ? " " : "", units[unit], suffix);
  return out;
}

const char *dp_format_bytes(double bytes, char out[32]) {
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  return scaled(bytes, units, 7, 1000, out, "");
}

const char *dp_format_count(double count, char out[32]) {
  static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
  return scaled(count, units, 7, 1000, out, "");
}

const char *dp_format_seconds(double seconds, char out[32]) {
  const double size = fabs(seconds);
  if (size >= 0.99995 || size == 0) {
    (void)snprintf(out, 32,
                   size >= 1e6      ? "%.3g s"
                   : size >= 999.95 ? "%.0f s"
                   : size >= 100    ? "%.1f s"
                                    : "%.3f s",
                   seconds);
    return out;
  }
  static const char *const units[] = {"ns", "us", "ms"};
  return scaled(seconds * 1e9, units, 3, 1000, out, "");
}

bool dp_ends_with(const char *text, const char *ending) {
  const size_t length = strlen(text), tail = strlen(ending);
  return length >= tail && strcmp(text + length - tail, ending) == 0;
}

/* Length of the valid UTF-8 sequence at `text`, 0 when it is none (RFC 3629: no overlong forms, no surrogates). */
static int sequence_length(const unsigned char *text) {
  const unsigned char first = text[0];
  const int length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  for (int i = 1; i < length; i++)
    if ((text[i] & 0xc0) != 0x80) return 0;
  if ((first == 0xe0 && text[1] < 0xa0) || (first == 0xed && text[1] >= 0xa0)) return 0;
  if ((first == 0xf0 && text[1] < 0x90) || (first == 0xf4 && text[1] >= 0x90)) return 0;
  return length;
}

void dp_text_clean(char *text) {
  while (*text) {
    const int length = sequence_length((const unsigned char *)text);
    const bool control = length == 1 ? (unsigned char)*text < 0x20 || *text == 0x7f
                                     : length == 2 && (unsigned char)text[0] == 0xc2 && (unsigned char)text[1] < 0xa0;
    const int taken = length ? length : 1;
    if (length == 0 || control) memset(text, '?', (size_t)taken);
    text += taken;
  }
}

int dp_name_distance(const char *a, const char *b) {
  const size_t n = strlen(a), m = strlen(b);
  if (n > 40 || m > 40) return 3;
  int row[41];
  for (size_t j = 0; j <= m; j++) row[j] = (int)j;
  for (size_t i = 1; i <= n; i++) {
    int diagonal = row[0];
    row[0] = (int)i;
    for (size_t j = 1; j <= m; j++) {
      const int above = row[j];
      int best = diagonal + (a[i - 1] != b[j - 1]);
      if (above + 1 < best) best = above + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      diagonal = above;
      row[j] = best;
    }
  }
  return row[m] > 3 ? 3 : row[m];
}
