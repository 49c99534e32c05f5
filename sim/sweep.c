#include "sim/sweep.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/range.h"
#include "base/str.h"
#include "plan/describe.h"

typedef struct parser {
  const char *text;
  const dp_node *node;
  dp_arena *arena;
  sim_sweep *sweep;
  bool integer;
  dp_error *error;
} parser;

static dp_status refuse(const parser *p, const char *what, const char *allowed) {
  if (p->node)
    return dp_fail_at(p->error, p->node, "whatif.sweep: found \"%.200s\", %s, allowed: %s", p->text, what, allowed);
  return dp_fail(p->error, DP_BAD_INPUT, "--sweep %.200s: %s, allowed: %s", p->text, what, allowed);
}

static bool read_number(const char *text, double *number) {
  char *end = NULL;
  errno = 0;
  *number = strtod(text, &end);
  /* what strtod takes and TOML does not: hexadecimal, " 1", "inf" */
  return end != text && !*end && isfinite(*number) && strspn(text, "0123456789+-.eE") == strlen(text);
}

static bool is_integer_row(const plan_key_table *table, const char *key) {
  for (size_t f = 0; f < table->count; f++)
    if (strcmp(table->fields[f].key, key) == 0) return table->fields[f].type == DP_FIELD_INTEGER;
  return false;
}

/* By the rows that read the scenario: "[task]" has the keys "task.*". */
static bool is_integer_key(const char *key) {
  const char *dot = strchr(key, '.');
  const plan_key_table *tables;
  const size_t count = plan_scenario_tables(&tables);
  if (!dot) return false;
  for (size_t t = 0; t < count; t++) {
    const char *title = tables[t].title;
    if (title[0] == '[' && strncmp(title + 1, key, (size_t)(dot - key)) == 0 &&
        strcmp(title + 1 + (dot - key), "]") == 0)
      return is_integer_row(&tables[t], dot + 1);
  }
  return false;
}

static dp_status add(parser *p, const char *text, double number) {
  sim_sweep *sweep = p->sweep;
  for (int i = 0; i < sweep->count; i++)
    if (strcmp(sweep->values[i].text, text) == 0) return DP_OK;
  if (sweep->count == SIM_MAX_SWEEP_VALUES) return refuse(p, "it has too many values", "at most 256");
  sweep->values[sweep->count++] = (sim_sweep_value){text, number};
  return DP_OK;
}

/* ---- FROM:TO:logN ---- */

static dp_status read_range(parser *p, const char *from_text, const char *to_text, const char *steps) {
  sim_sweep *sweep = p->sweep;
  double from, to;
  if (!read_number(from_text, &from) || !read_number(to_text, &to))
    return refuse(p, "FROM or TO is no number", "KEY=FROM:TO:logN with numbers");
  const size_t count = dp_range_steps(steps, SIM_MAX_SWEEP_VALUES, &sweep->logarithmic);
  if (!count) return refuse(p, "the steps are wrong", "logN or linN with N from 2 to 256");
  if (!(from < to)) return refuse(p, "FROM is not below TO", "ascending values");
  if (sweep->logarithmic && from <= 0) return refuse(p, "FROM is not above 0", "logN only between numbers above 0");
  if (p->integer && (from != floor(from) || to != floor(to)))
    return refuse(p, "FROM or TO is no integer, as the key's values are", "integers");
  for (size_t i = 0; i < count; i++) {
    double number = dp_range_value(from, to, count, sweep->logarithmic, i);
    const char *text = i == 0 ? from_text : to_text;
    if (i > 0 && i + 1 < count) {
      if (p->integer) number = round(number);
      text = dp_arena_printf(p->arena, p->integer ? "%.0f" : "%.6g", number);
      if (!text) return dp_fail_memory(p->error);
      number = strtod(text, NULL);
      if (number <= sweep->values[sweep->count - 1].number || number >= to) continue; /* rounded to a neighbour */
    }
    DP_TRY(add(p, text, number));
  }
  sweep->numeric = true;
  return DP_OK;
}

/* ---- A,B,C ---- */

/* The comma that ends the value: not one within brackets or quotes. */
static size_t value_length(const char *text) {
  int depth = 0;
  bool quoted = false;
  size_t i = 0;
  for (; text[i] && (text[i] != ',' || depth > 0 || quoted); i++) {
    if (text[i] == '"') quoted = !quoted;
    if (!quoted) depth += (text[i] == '[' || text[i] == '{') - (text[i] == ']' || text[i] == '}');
  }
  return i;
}

static int by_number(const void *left, const void *right) {
  const sim_sweep_value *a = left, *b = right;
  return (a->number > b->number) - (a->number < b->number);
}

static dp_status read_list(parser *p, const char *list) {
  bool numeric = true;
  for (const char *at = list;; at++) {
    const size_t length = value_length(at);
    const char *text = dp_arena_printf(p->arena, "%.*s", (int)length, at);
    double number = 0;
    if (!text) return dp_fail_memory(p->error);
    if (!length) return refuse(p, "a value is empty", "KEY=A,B,C");
    numeric = read_number(text, &number) && numeric;
    DP_TRY(add(p, text, number));
    at += length;
    if (!*at) break;
  }
  p->sweep->numeric = numeric;
  if (numeric) qsort(p->sweep->values, (size_t)p->sweep->count, sizeof *p->sweep->values, by_number);
  return DP_OK;
}

static dp_status parse(parser *p) {
  const char *equals = strchr(p->text, '=');
  if (!equals || equals == p->text || !equals[1])
    return refuse(p, "it is no sweep", "KEY=FROM:TO:logN, KEY=FROM:TO:linN or KEY=A,B,C");
  p->sweep->text = p->text;
  p->sweep->key = dp_arena_printf(p->arena, "%.*s", (int)(equals - p->text), p->text);
  p->sweep->values = DP_ARENA_NEW(p->arena, sim_sweep_value, SIM_MAX_SWEEP_VALUES);
  if (!p->sweep->key || !p->sweep->values) return dp_fail_memory(p->error);
  p->integer = is_integer_key(p->sweep->key);
  const char *first = strchr(equals, ':'), *second = first ? strchr(first + 1, ':') : NULL;
  if (!first || strpbrk(equals, ",[\"")) return read_list(p, equals + 1);
  if (!second || strchr(second + 1, ':'))
    return refuse(p, "the range has not three parts", "KEY=FROM:TO:logN or KEY=FROM:TO:linN");
  const char *from = dp_arena_printf(p->arena, "%.*s", (int)(first - equals - 1), equals + 1);
  const char *to = dp_arena_printf(p->arena, "%.*s", (int)(second - first - 1), first + 1);
  if (!from || !to) return dp_fail_memory(p->error);
  return read_range(p, from, to, second + 1);
}

dp_status sim_sweep_parse(const char *text, const dp_node *node, dp_arena *arena, sim_sweep *sweep, dp_error *error) {
  sim_sweep made = {0};
  parser p = {.text = text, .node = node, .arena = arena, .sweep = &made, .error = error};
  DP_TRY(parse(&p));
  *sweep = made;
  return DP_OK;
}
