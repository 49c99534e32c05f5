/* base/: what the readers must hold for any text: a line for every node, limits on depth, no NUL; assignments that
 * change all or nothing; schemas that write all or nothing. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/node.h"
#include "base/schema.h"
#include "base/str.h"
#include "tests/suite.h"

static dp_document document;
static dp_error error;

static void setup(void) {
  document = (dp_document){0};
  error = (dp_error)DP_ERROR_INIT;
}
static void teardown(void) { dp_document_free(&document); }

static dp_status read_text(bool json, const char *text, size_t length) {
  dp_document_free(&document);
  error = (dp_error)DP_ERROR_INIT;
  return (json ? dp_document_parse_json : dp_document_parse_toml)(text, length, "t", &document, &error);
}
static void must_read(bool json, const char *text) {
  const dp_status status = read_text(json, text, strlen(text));
  ck_assert_msg(status == DP_OK, "%s", error.text);
}
static void must_begin(const char *expected) {
  ck_assert_msg(strncmp(error.text, expected, strlen(expected)) == 0, "found: %s\nwanted: %s", error.text, expected);
}
static const dp_node *at(const dp_node *node, const char *key) {
  const dp_node *found = dp_node_get(node, key);
  ck_assert_msg(found != NULL, "no key %s", key);
  return found;
}

START_TEST(broken_texts_name_the_line) {
  static const struct {
    bool json;
    const char *text, *expected;
  } cases[] = {
      {false, "a = 1\nb = \"\xed\xa0\x80\"", "t:2: not valid TOML"}, /* half of a surrogate pair */
      {false, "a = 1\n[b]\nc = \"\\u0000\"", "t:3: found a NUL in a string"},
      {false, "a = 1\n\"\\u0000\" = 2", "t:2: found a NUL in a key"},
      {false, "[a]\nx = [1,\n  2,\n  1979-05-27T07:32:00Z]", "t:4: a value: found a date or time"},
      {false, "a = [1.0,\n inf]", "t:2: a value: found inf, allowed: a finite number"},
      {false, "[a]\n[b]\n[a]", "t:3: not valid TOML"},
      {false, "a.b = 1\na.b.c = 2", "t:2: not valid TOML"},
      {true, "[1,\n\"\xc3\"]", "t:2: not valid JSON"},
      {true, "[1,\n\"\\ud800\"]", "t:2: not valid JSON"},
      {true, "[1,\n\"\\u0000\"]", "t:2: not valid JSON"},
      {true, "[1,\n -99999999999999999999]", "t:2: not valid JSON: too big negative integer"},
      {true, "[1,\n// no comments\n2]", "t:2: not valid JSON"},
      {true, "[1,\n2,]", "t:2: not valid JSON"},
      {true, "[1,\n2", "t:2: not valid JSON"},
  };
  for (size_t i = 0; i < DP_COUNT_OF(cases); i++) {
    ck_assert_int_eq(read_text(cases[i].json, cases[i].text, strlen(cases[i].text)), DP_BAD_INPUT);
    must_begin(cases[i].expected);
    ck_assert_ptr_null(document.root);
  }
}
END_TEST

START_TEST(nul_bytes_are_refused) {
  static const struct {
    bool json;
    size_t length;
    const char *text, *expected;
  } cases[] = {
      {true, 7, "[1,\n1\0]", "t:2: not valid JSON: found a NUL byte, allowed: text"}, /* jansson passes over this one */
      {true, 8, "[1,\n1\0\n]", "t:2: not valid JSON: found a NUL byte"},
      {true, 6, "[\xff,\n\0", "t:1: not valid JSON: unable to decode byte 0xff"}, /* what comes first is told */
      {true, 4, "[1]\0", "t:1: not valid JSON"},
      {true, 5, "[\"\0\"]", "t:1: not valid JSON"},
      {false, 13, "a = 1\nb = 2\0\n", "t:2: not valid TOML"},
      {false, 10, "a = 1\n# \0\n", "t:2: not valid TOML"},
      {false, 7, "a = 1\n\0", "t:2: not valid TOML"},
  };
  for (size_t i = 0; i < DP_COUNT_OF(cases); i++) {
    ck_assert_int_eq(read_text(cases[i].json, cases[i].text, cases[i].length), DP_BAD_INPUT);
    must_begin(cases[i].expected);
  }
}
END_TEST

/* "key@line(children)" */
static void write_lines(const dp_node *node, dp_str *out) {
  dp_str_addf(out, "%s@%d", node->key ? node->key : dp_node_kind_name(node->kind), node->line);
  for (size_t i = 0; i < node->count; i++) {
    dp_str_add(out, i ? " " : "(");
    write_lines(node->items[i], out);
  }
  if (node->count) dp_str_add(out, ")");
}

/* Also behind strings that hold the characters a scanner looks for, after a byte order mark, and with CR LF. */
START_TEST(every_node_has_its_line) {
  static const struct {
    bool json;
    const char *text, *expected;
  } cases[] = {
      {true, "\xef\xbb\xbf\n7", "an integer@2"},
      {true, "\r\n{\"a\"\r\n:\r\n[\r\n1\r\n,2.5]\r\n}", "a table@2(a@2(an integer@5 a real number@6))"},
      {true, "{\"a\\\"]\": \"\\\\\",\n\"b\": {\"c\": {\n\"d\": [\n{},\n[]]}},\n\n\"e\": null}",
       "a table@1(a\"]@1 b@2(c@2(d@3(a table@4 an array@5))) e@7)"},
      {true, "[[[\n1],\n\"{[,:\"],\ntrue,false\n]",
       "an array@1(an array@1(an array@1(an integer@2) a string@3) a boolean@4 a boolean@4)"},
      {false, "\xef\xbb\xbf\r\na = 1\r\nb = 2\r\n", "a table@1(a@2 b@3)"},
      {false, "z = \"\"\"\n\n\"\"\"\ny = 1\n[t]\nx.w = 1\nx.v = 2\n", "a table@1(z@1 y@4 t@5(x@6(w@6 v@7)))"},
      {false, "[b.c]\nk = 1\n[a]\n[b.a]\n", "a table@1(b@1(c@1(k@2) a@4) a@3)"},
      {false, "a = [\n  [1,\n 2],\n  {b = 1, a = 2},\n]\n",
       "a table@1(a@1(an array@2(an integer@2 an integer@3) a table@4(b@4 a@4)))"},
      {false, "[[n]]\n\"q.r\" = 1\n'q' = 2\n[[n]]\n[[n]]\nz = 1\na = 2\n",
       "a table@1(n@1(a table@1(q.r@2 q@3) a table@4 a table@5(z@6 a@7)))"},
  };
  for (size_t i = 0; i < DP_COUNT_OF(cases); i++) {
    must_read(cases[i].json, cases[i].text);
    dp_str found = {0};
    write_lines(document.root, &found);
    ck_assert_str_eq(dp_str_text(&found), cases[i].expected);
    dp_str_free(&found);
  }
}
END_TEST

static dp_status read_repeated(bool json, const char *before, const char *opening, const char *middle,
                               const char *closing, int times) {
  dp_str text = {0};
  dp_str_add(&text, before);
  for (int i = 0; i < times; i++) dp_str_add(&text, opening);
  dp_str_add(&text, middle);
  for (int i = 0; i < times; i++) dp_str_add(&text, closing);
  ck_assert(!text.failed);
  const dp_status status = read_text(json, text.text, text.length);
  dp_str_free(&text);
  return status;
}

/* 64 levels below the root are read. One more is an error, and a million more is that error, not a stack overflow. */
START_TEST(levels_are_limited) {
  static const struct {
    bool json;
    const char *before, *opening, *middle, *closing;
    int most;
  } cases[] = {
      {true, "\n", "[", "", "]", 65}, /* the first is the root */
      {true, "\n", "{\"a\":", "1", "}", 64},
      {false, "\na = ", "[", "", "]", 64},
      {false, "\na", ".a", " = 1", "", 63},
      {false, "\n[a", ".a", "]", "", 63},
      {false, "\n[[a", ".'a'", "]]", "", 62},
      {false, "\n\"\"", " . \"\"", " = 1", "", 63},
      {false, "\na = {b", ".a", " = 1}", "", 62},
      {false, "\na = \"\"\"'\\\"\"\"\"\"\"\nb", ".a", " = 1", "", 63}, /* the first two of the five quotes are text */
      {false, "\na = '''\"'''''\nb", ".a", " = 1", "", 63},
      {false, "\na = '\\'\nb", ".a", " = 1", "", 63},
  };
  static const int more[] = {1, 2, 1000, 1000000};
  for (size_t i = 0; i < DP_COUNT_OF(cases); i++) {
    const dp_status status = read_repeated(cases[i].json, cases[i].before, cases[i].opening, cases[i].middle,
                                           cases[i].closing, cases[i].most);
    ck_assert_msg(status == DP_OK, "case %zu: %s", i, error.text);
    for (size_t j = 0; j < DP_COUNT_OF(more); j++) {
      ck_assert_msg(read_repeated(cases[i].json, cases[i].before, cases[i].opening, cases[i].middle, cases[i].closing,
                                  cases[i].most + more[j]) == DP_BAD_INPUT,
                    "case %zu and %d more", i, more[j]);
      ck_assert_msg(strncmp(error.text, "t:", 2) == 0 && (strstr(error.text, "64") || strstr(error.text, "depth")),
                    "%s", error.text);
    }
  }
  /* each inline table brings long keys of its own */
  const char *const key =
      "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = {";
  ck_assert_int_eq(read_repeated(false, "x = {", key, "y = 1", "}", 60), DP_BAD_INPUT);
}
END_TEST

/* Dots that are no dotted keys. */
START_TEST(dots_elsewhere_are_no_levels) {
  static const struct {
    const char *before, *after;
  } cases[] = {
      {"a = \"", "\""}, {"a = '", "'"}, {"a = \"\"\"\\\"", "\"\"\""}, {"a = '''\n", "'''''"}, {"a = 1 # \"", ""},
      {"\"", "\" = 1"}, {"[x.'", "']"},
  };
  for (size_t i = 0; i < DP_COUNT_OF(cases); i++)
    ck_assert_msg(read_repeated(false, cases[i].before, ".", cases[i].after, "", 500) == DP_OK, "case %zu: %s", i,
                  error.text);
  ck_assert_int_eq(read_repeated(false, "a = [", "1.5, ", "]", "", 500), DP_OK);
  ck_assert_int_eq(read_repeated(false, "", "[[a.b]]\nc.d = 1.5\n", "", "", 500), DP_OK);
}
END_TEST

START_TEST(refused_assignments_change_nothing) {
  must_read(false, "e = []\nn = [1, 2, 3]\n[plan]\nstages = 2\n");
  static const struct {
    const char *assignment, *expected;
  } cases[] = {
      {"plan", "--set plan: found no key=value, allowed: for example plan.stages=4"},
      {"plan.stages.x=1", "--set plan.stages.x=1: \"plan.stages\" is an integer, allowed: a table"},
      {"n.3=1", "--set n.3=1: found item \"3\" of \"n\", allowed: 0 to 2"},
      {"n.-18446744073709551615=1",
       "--set n.-18446744073709551615=1: found item \"-18446744073709551615\" of \"n\", allowed: 0 to 2"},
      {"n.99999999999999999999=1",
       "--set n.99999999999999999999=1: found item \"99999999999999999999\" of \"n\", allowed: 0 to 2"},
      {"n.0.x=1", "--set n.0.x=1: \"n.0\" is an integer, allowed: a table"},
      {"e.0=1", "--set e.0=1: found item \"0\" of \"e\", allowed: none, the array is empty"},
      {"new.a..b=1", "--set new.a..b=1: found the key \"new.a..b\", allowed: letters, digits, _ and - joined by dots"},
      {"new.a.=1", "--set new.a.=1: found the key \"new.a.\", allowed: letters, digits, _ and - joined by dots"},
      {"new.a=\xff\xfe", "--set new.a=\xff\xfe: found bytes that are no text, allowed: UTF-8"},
      {"new.a=\xed\xa0\x80", "--set new.a=\xed\xa0\x80: found bytes that are no text, allowed: UTF-8"},
      {"new.a=\xc0\x80", "--set new.a=\xc0\x80: found bytes that are no text, allowed: UTF-8"},
      {"new.a=\xf4\x90\x80\x80", "--set new.a=\xf4\x90\x80\x80: found bytes that are no text, allowed: UTF-8"},
      {"new.a=\xe2\x82", "--set new.a=\xe2\x82: found bytes that are no text, allowed: UTF-8"},
  };
  dp_str before = {0}, after = {0};
  write_lines(document.root, &before);
  for (size_t i = 0; i < DP_COUNT_OF(cases); i++) {
    ck_assert_int_eq(dp_document_set(&document, cases[i].assignment, &error), DP_BAD_INPUT);
    ck_assert_str_eq(error.text, cases[i].expected);
    dp_str_clear(&after);
    write_lines(document.root, &after);
    ck_assert_str_eq(dp_str_text(&after), dp_str_text(&before));
  }
  dp_str_free(&before);
  dp_str_free(&after);
  must_read(true, "7");
  ck_assert_int_eq(dp_document_set(&document, "a=1", &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "--set a=1: \"the file\" is an integer, allowed: a table");
}
END_TEST

START_TEST(assignments_make_what_is_missing) {
  must_read(false, "b = 1\n[[cluster.node]]\ncount = 1\n[[cluster.node]]\n");
  ck_assert_int_eq(dp_document_set(&document, "cluster.node.1.count=2", &error), DP_OK);
  ck_assert_int_eq(dp_document_set(&document, "cluster.node.0={count = 7, name = 'x'}", &error), DP_OK);
  ck_assert_int_eq(dp_document_set(&document, "a.b.c=[1, {d = 2}]", &error), DP_OK);
  ck_assert_int_eq(dp_document_set(&document, "b=2", &error), DP_OK);
  dp_str found = {0};
  write_lines(document.root, &found);
  /* what was there keeps its place and what is new comes last */
  ck_assert_str_eq(dp_str_text(&found),
                   "a table@1(b@0 cluster@2(node@2(a table@0(count@0 name@0) a table@4(count@0))) "
                   "a@0(b@0(c@0(an integer@0 a table@0(d@0)))))");
  dp_str_free(&found);
  const dp_node *made = at(at(document.root, "a"), "b");
  ck_assert_str_eq(made->file, "--set a.b.c=[1, {d = 2}]");
  ck_assert_str_eq(at(at(made, "c")->items[1], "d")->file, "--set a.b.c=[1, {d = 2}]");
}
END_TEST

START_TEST(assignments_respect_the_levels) {
  must_read(false, "");
  dp_str path = {0};
  for (int i = 0; i < 63; i++) dp_str_add(&path, "a.");
  static const struct {
    const char *rest;
    dp_status expected;
  } cases[] = {{"a=[1]", DP_BAD_INPUT}, {"a.a=1", DP_BAD_INPUT}, {"a={}", DP_OK}, {"a=1", DP_OK}};
  for (size_t i = 0; i < DP_COUNT_OF(cases); i++) {
    char assignment[256];
    (void)snprintf(assignment, sizeof assignment, "%s%s", dp_str_text(&path), cases[i].rest);
    ck_assert_int_eq(dp_document_set(&document, assignment, &error), cases[i].expected);
    if (cases[i].expected != DP_OK)
      ck_assert_ptr_nonnull(strstr(error.text, ": found more than 64 levels, allowed: at most 64"));
  }
  dp_str_free(&path);
}
END_TEST

START_TEST(assigned_values_are_toml_or_text) {
  static const struct {
    const char *value;
    dp_node_kind kind;
    const char *shown;
  } cases[] = {
      {"4", DP_NODE_INTEGER, "4"},
      {"0x1F", DP_NODE_INTEGER, "31"},
      {"1e3", DP_NODE_REAL, "1000.0"},
      {"true", DP_NODE_BOOLEAN, "true"},
      {"'a'", DP_NODE_STRING, "\"a\""},
      {"\"4\"", DP_NODE_STRING, "\"4\""},
      {"a=b", DP_NODE_STRING, "\"a=b\""},
      {"4 # a comment", DP_NODE_INTEGER, "4"},
      {"{a = 1}", DP_NODE_TABLE, "a table"},
      {"[1, [2]]", DP_NODE_ARRAY, "an array"},
      {"inf", DP_NODE_STRING, "\"inf\""}, /* a number must be finite: the schema refuses the string */
      {"2024-01-02", DP_NODE_STRING, "\"2024-01-02\""},
      {"1\ny = 2", DP_NODE_STRING, "\"1\ny = 2\""}, /* no second key comes in by the back door */
      {"1\ry = 2", DP_NODE_STRING, "\"1\ry = 2\""},
      {"\xc3\xa9", DP_NODE_STRING, "\"\xc3\xa9\""},
      {"99999999999999999999", DP_NODE_STRING, "\"99999999999999999999\""},
      {"~[x]", DP_NODE_STRING, "\"~[x]\""},
  };
  for (size_t i = 0; i < DP_COUNT_OF(cases); i++) {
    must_read(false, "");
    char assignment[64], shown[80];
    (void)snprintf(assignment, sizeof assignment, "key=%s", cases[i].value);
    ck_assert_int_eq(dp_document_set(&document, assignment, &error), DP_OK);
    ck_assert_uint_eq(document.root->count, 1);
    ck_assert_int_eq(at(document.root, "key")->kind, cases[i].kind);
    ck_assert_str_eq(dp_node_show(at(document.root, "key"), shown), cases[i].shown);
  }
}
END_TEST

START_TEST(values_are_shown_so_that_they_can_be_told_apart) {
  static const struct {
    double value;
    const char *shown;
  } reals[] = {
      {4, "4.0"}, {0.1, "0.1"}, {-1e300, "-1e+300"}, {4096.0000001, "4096.0000001"}, {1.0 / 3, "0.3333333333333333"}};
  char out[80];
  for (size_t i = 0; i < DP_COUNT_OF(reals); i++) {
    const dp_node node = {.kind = DP_NODE_REAL, .real = reals[i].value};
    ck_assert_str_eq(dp_node_show(&node, out), reals[i].shown);
  }
  char text[100];
  memset(text, 'a', sizeof text);
  memcpy(text + 59, "\xe2\x82\xac", 3); /* a character across the place where it is cut */
  text[99] = 0;
  const dp_node node = {.kind = DP_NODE_STRING, .string = text};
  ck_assert_uint_eq(strlen(dp_node_show(&node, out)), 1 + 59 + 3 + 1);
  ck_assert_str_eq(out + 58, "aa...\"");
}
END_TEST

typedef struct target {
  bool flag;
  int64_t count, exact;
  double rate;
  const char *name;
  int choice;
} target;
static const char *const choices[] = {"one", "two", NULL};
static const dp_field fields[] = {
    {"flag", DP_FIELD_BOOLEAN, offsetof(target, flag), false, 0, 0, NULL, "a flag"},
    {"count", DP_FIELD_INTEGER, offsetof(target, count), true, 1, 4096, NULL, "how many"},
    {"rate", DP_FIELD_REAL, offsetof(target, rate), false, 0, 1.5, NULL, "a rate"},
    {"name", DP_FIELD_STRING, offsetof(target, name), false, 0, 0, NULL, "a name"},
    {"choice", DP_FIELD_CHOICE, offsetof(target, choice), false, 0, 0, choices, "a choice"},
    {"exact", DP_FIELD_INTEGER, offsetof(target, exact), false, -0x1p63, 0x1p53, NULL, "up to what a double holds"},
};

START_TEST(schema_writes_all_or_nothing) {
  static const struct {
    const char *text, *expected;
  } cases[] = {
      {"count = 1\nraet = 1", "t:2: [x]: unknown key \"raet\", did you mean \"rate\"?"},
      {"count = 1\nnames = 1", "t:2: [x]: unknown key \"names\", did you mean \"name\"?"},
      {"count = true", "t:1: [x].count: found true, allowed: an integer from 1 to 4096"},
      {"count = {}", "t:1: [x].count: found a table, allowed: an integer from 1 to 4096"},
      {"count = 4.0", "t:1: [x].count: found 4.0, allowed: an integer from 1 to 4096"},
      {"count = 4097", "t:1: [x].count: found 4097, allowed: an integer from 1 to 4096"},
      {"count = 1\nrate = \"1\"", "t:2: [x].rate: found \"1\", allowed: a number from 0 to 1.5"},
      {"count = 1\nrate = 1.5000000000000002",
       "t:2: [x].rate: found 1.5000000000000002, allowed: a number from 0 to 1.5"},
      {"count = 1\nname = 3", "t:2: [x].name: found 3, allowed: a string that is not empty"},
      {"count = 1\nchoice = 3", "t:2: [x].choice: found 3, allowed: one, two"},
      {"count = 1\nexact = 9007199254740993", "t:2: [x].exact: found 9007199254740993, allowed: an integer from"},
      {"flag = true\nname = \"a\"", "t:1: [x]: the key \"count\" is missing, needed: how many"},
      {"count = 1\nflag = true\nname = \"a\"\nrate = 9", "t:4: [x].rate: found 9, allowed: a number from 0 to 1.5"},
  };
  for (size_t i = 0; i < DP_COUNT_OF(cases); i++) {
    must_read(false, cases[i].text);
    target t, before;
    memset(&t, 0x5A, sizeof t);
    memcpy(&before, &t, sizeof t);
    ck_assert_int_eq(dp_schema_read(document.root, NULL, "[x]", fields, DP_COUNT_OF(fields), &t, &error), DP_BAD_INPUT);
    must_begin(cases[i].expected);
    ck_assert_mem_eq(&t, &before, sizeof t);
  }
  must_read(false, "count = 1\nexact = -9223372036854775808");
  target t = {.rate = 0.25};
  ck_assert_int_eq(dp_schema_read(document.root, NULL, "[x]", fields, DP_COUNT_OF(fields), &t, &error), DP_OK);
  ck_assert_int_eq(t.exact, INT64_MIN);
  ck_assert_double_eq(t.rate, 0.25); /* absent: keeps its default */
}
END_TEST

START_TEST(schema_of_what_is_absent_or_no_table) {
  must_read(false, "count = 1\n\nplan = 7\n[empty]\n");
  target t = {.count = 3};
  ck_assert_int_eq(dp_schema_read(NULL, at(document.root, "empty"), "[x]", fields, DP_COUNT_OF(fields), &t, &error),
                   DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "t:4: [x]: the key \"count\" is missing, needed: how many");
  ck_assert_int_eq(
      dp_schema_read(at(document.root, "plan"), document.root, "[plan]", fields, DP_COUNT_OF(fields), &t, &error),
      DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "t:3: [plan]: found 7, allowed: a table");
  ck_assert_int_eq(dp_document_set(&document, "empty.count=5000", &error), DP_OK);
  ck_assert_int_eq(dp_schema_read(at(document.root, "empty"), NULL, "[x]", fields, 2, &t, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "--set empty.count=5000: [x].count: found 5000, allowed: an integer from 1 to 4096");
  ck_assert_int_eq(dp_schema_read(NULL, NULL, "[x]", fields, 1, &t, &error), DP_OK); /* nothing of it is required */
  ck_assert_int_eq(t.count, 3);
}
END_TEST

START_TEST(schema_integers_and_documentation) {
  must_read(false, "a = [3, 1,\n 2]\nb = 7\nc = [1,\n 99]\nd = [1,\n \"2\"]\ne = []\n");
  dp_arena arena = {0};
  int64_t *values = NULL;
  size_t count = 99;
  ck_assert_int_eq(dp_schema_read_integers(at(document.root, "a"), "split", 0, 9, &arena, &values, &count, &error),
                   DP_OK);
  ck_assert(count == 3 && values[0] == 3 && values[1] == 1 && values[2] == 2);
  ck_assert_int_eq(dp_schema_read_integers(at(document.root, "b"), "split", 0, 9, &arena, &values, &count, &error),
                   DP_OK);
  ck_assert(count == 1 && values[0] == 7);
  ck_assert_int_eq(dp_schema_read_integers(at(document.root, "c"), "split", 0, 9, &arena, &values, &count, &error),
                   DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "t:5: split: found 99, allowed: integers from 0 to 9");
  ck_assert_int_eq(dp_schema_read_integers(at(document.root, "d"), "split", 0, 9, &arena, &values, &count, &error),
                   DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "t:7: split: found \"2\", allowed: integers from 0 to 9");
  ck_assert(count == 1 && values[0] == 7);
  ck_assert_int_eq(dp_schema_read_integers(at(document.root, "e"), "split", 0, 9, &arena, &values, &count, &error),
                   DP_OK);
  ck_assert_uint_eq(count, 0);
  dp_arena_free(&arena);
  dp_str text = {0};
  const dp_field two[] = {fields[1], fields[4]};
  dp_schema_describe(two, 2, &text);
  ck_assert_str_eq(dp_str_text(&text),
                   "| key | type | allowed | required | meaning |\n|---|---|---|---|---|\n"
                   "| `count` | integer | 1 to 4096 | yes | how many |\n"
                   "| `choice` | choice | `one`, `two` |  | a choice |\n");
  dp_str_free(&text);
}
END_TEST

START_TEST(format_is_checked_with_what_is_there) {
  static const struct {
    const char *text, *expected;
  } cases[] = {
      {"[1]", "t:1: found an array, allowed: a table with format = \"f\""},
      {"\n{}", "t:2: the key \"format\" is missing, allowed: format = \"f\""},
      {"{\n\"format\": 1}", "t:2: format: found 1, allowed: \"f\""},
      {"{\"format\": \"f\"}", "t:1: the key \"version\" is missing, allowed: version = 1"},
      {"{\"format\": \"f\",\n\"version\": \"1\"}", "t:2: version: found \"1\", allowed: 1"},
  };
  for (size_t i = 0; i < DP_COUNT_OF(cases); i++) {
    must_read(true, cases[i].text);
    ck_assert_int_eq(dp_schema_check_format(document.root, "f", 1, &error), DP_BAD_INPUT);
    ck_assert_str_eq(error.text, cases[i].expected);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {broken_texts_name_the_line,        nul_bytes_are_refused,
                                every_node_has_its_line,           levels_are_limited,
                                dots_elsewhere_are_no_levels,      refused_assignments_change_nothing,
                                assignments_make_what_is_missing,  assignments_respect_the_levels,
                                assigned_values_are_toml_or_text,  values_are_shown_so_that_they_can_be_told_apart,
                                schema_writes_all_or_nothing,      schema_of_what_is_absent_or_no_table,
                                schema_integers_and_documentation, format_is_checked_with_what_is_there};
  return suite_run("base tree", tests, DP_COUNT_OF(tests), setup, teardown, 120);
}
