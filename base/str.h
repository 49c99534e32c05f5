/* String building.
 *
 * Invariants: text is always a valid, terminated string once anything was added (use dp_str_text for the empty case);
 * after the host ran out of memory `failed` stays true and further additions do nothing, so one check at the end is
 * enough. Zero-initialised is a valid empty string.
 */
#ifndef DP_BASE_STR_H
#define DP_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dp_str {
  char *text;
  size_t length, capacity;
  bool failed;
} dp_str;

void dp_str_add(dp_str *str, const char *text);
void dp_str_add_bytes(dp_str *str, const char *bytes, size_t count);
void dp_str_addf(dp_str *str, const char *format, ...) __attribute__((format(printf, 2, 3)));
void dp_str_add_quoted(dp_str *str, const char *text); /* "text" as TOML has it */
void dp_str_add_word(dp_str *str, const char *word);   /* of a shell: quoted where it must be */
void dp_str_clear(dp_str *str);                        /* empties, keeps the memory */
void dp_str_free(dp_str *str);
const char *dp_str_text(const dp_str *str); /* "" when empty */

/* Human figures for tables, written into out (any size >= 32 is enough) and returned.
 * bytes: "12.3 GB" with GB = 1e9; count: "6.76 T"; seconds: "12.3 ms". */
const char *dp_format_bytes(double bytes, char out[32]);
const char *dp_format_count(double count, char out[32]);
const char *dp_format_seconds(double seconds, char out[32]);

/* Puts ? in the place of control characters, which would break lines, and of bytes that are no UTF-8, which no JSON takes. */
void dp_text_clean(char *text);

bool dp_ends_with(const char *text, const char *ending);

/* Levenshtein distance of two names, cut at 3: what is nearer is close enough to be suggested for a mistyped name. */
int dp_name_distance(const char *a, const char *b);

#ifdef __cplusplus
}
#endif
#endif
