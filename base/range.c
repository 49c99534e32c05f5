#include "base/range.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"

static dp_status refuse(const char *what, const char *text, dp_error *error) {
  return dp_fail(
      error, DP_BAD_INPUT,
      "%s: found \"%.80s\", allowed: FROM:TO:logN (both above 0), FROM:TO:linN with N from 2 to %d, or A,B,C", what,
      text, DP_RANGE_VALUES);
}

/* A finite number up to `end`, one of `stops` or the end of the text. */
static bool number(const char **at, const char *stops, double *value) {
  char *end;
  errno = 0;
  *value = strtod(*at, &end);
  if (end == *at || errno == ERANGE || !isfinite(*value) || (*end && !strchr(stops, *end))) return false;
  *at = end;
  return true;
}

static dp_status parse_list(const char *what, const char *text, dp_arena *arena, dp_range *range, dp_error *error) {
  size_t count = 1;
  for (const char *c = text; *c; c++) count += *c == ',';
  if (count > DP_RANGE_VALUES) return refuse(what, text, error);
  range->values = DP_ARENA_NEW(arena, double, count);
  if (!range->values) return dp_fail_memory(error);
  for (const char *at = text;; at++) {
    if (!number(&at, ",", &range->values[range->count])) return refuse(what, text, error);
    range->count++;
    if (*at == '\0') return DP_OK;
  }
}

size_t dp_range_steps(const char *text, size_t most, bool *logarithmic) {
  *logarithmic = strncmp(text, "log", 3) == 0;
  if ((!*logarithmic && strncmp(text, "lin", 3) != 0) || text[3] < '0' || text[3] > '9') return 0;
  char *end;
  const long count = strtol(text + 3, &end, 10);
  return *end || count < 2 || count > (long)most ? 0 : (size_t)count;
}

double dp_range_value(double from, double to, size_t count, bool logarithmic, size_t i) {
  if (i == 0) return from;
  if (i + 1 == count) return to;
  const double share = (double)i / (double)(count - 1);
  return logarithmic ? from * pow(to / from, share) : from + (to - from) * share;
}

dp_status dp_range_parse(const char *what, const char *text, dp_arena *arena, dp_range *range, dp_error *error) {
  *range = (dp_range){NULL, 0, false};
  if (!strchr(text, ':')) return parse_list(what, text, arena, range, error);
  const char *at = text;
  double from, to;
  if (!number(&at, ":", &from) || *at++ != ':' || !number(&at, ":", &to) || *at++ != ':')
    return refuse(what, text, error);
  const size_t count = dp_range_steps(at, DP_RANGE_VALUES, &range->logarithmic);
  if (!count || (range->logarithmic && (from <= 0 || to <= 0))) return refuse(what, text, error);
  range->values = DP_ARENA_NEW(arena, double, count);
  if (!range->values) return dp_fail_memory(error);
  range->count = count;
  for (size_t i = 0; i < count; i++) range->values[i] = dp_range_value(from, to, count, range->logarithmic, i);
  return DP_OK;
}

void dp_range_round(dp_range *range) {
  size_t kept = 0;
  for (size_t i = 0; i < range->count; i++) {
    const double whole = round(range->values[i]);
    if (kept == 0 || range->values[kept - 1] != whole) range->values[kept++] = whole;
  }
  range->count = kept;
}

dp_status dp_range_read_integers(const dp_node *node, const char *what, int64_t min, int64_t max, dp_arena *arena,
                                 int64_t **values, size_t *count, dp_error *error) {
  if (node->kind != DP_NODE_STRING) return dp_schema_read_integers(node, what, min, max, arena, values, count, error);
  dp_error refused = DP_ERROR_INIT;
  dp_range range;
  const dp_status status = dp_range_parse(what, node->string, arena, &range, &refused);
  if (status == DP_BAD_INPUT) return dp_fail_at(error, node, "%s", refused.text);
  if (status != DP_OK) return dp_fail_memory(error);
  dp_range_round(&range);
  int64_t *whole = DP_ARENA_NEW(arena, int64_t, range.count);
  if (!whole) return dp_fail_memory(error);
  for (size_t i = 0; i < range.count; i++) {
    if (range.values[i] < (double)min || range.values[i] > (double)max)
      return dp_fail_at(error, node, "%s: found %.0f in \"%.80s\", allowed: %lld to %lld", what, range.values[i],
                        node->string, (long long)min, (long long)max);
    whole[i] = (int64_t)range.values[i];
  }
  *values = whole;
  *count = range.count;
  return DP_OK;
}
