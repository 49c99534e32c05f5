#define _DEFAULT_SOURCE
/* base/: the tree and its lines, schemas and their error texts, files that are whole or not there, random numbers. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allowed.h"
#include "base/array.h"
#include "base/file.h"
#include "base/node.h"
#include "base/random.h"
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

static void toml(const char *text) {
  const dp_status status = dp_document_parse_toml(text, strlen(text), "t.toml", &document, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
}
static void json(const char *text) {
  const dp_status status = dp_document_parse_json(text, strlen(text), "t.json", &document, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
}
static const dp_node *at(const dp_node *node, const char *key) {
  const dp_node *found = dp_node_get(node, key);
  ck_assert_msg(found != NULL, "no key %s", key);
  return found;
}

START_TEST(toml_keeps_order_and_lines) {
  toml("b = 1\na = \"x\"\n\n[plan]\nz = 2.5\ny = true\n[[node]]\nk = [1,\n  2]\n[[node]]\nk = {p = 1}\n");
  ck_assert_uint_eq(document.root->count, 4);
  const char *const keys[] = {"b", "a", "plan", "node"};
  const int lines[] = {1, 2, 4, 7};
  for (size_t i = 0; i < 4; i++) {
    ck_assert_str_eq(document.root->items[i]->key, keys[i]);
    ck_assert_int_eq(document.root->items[i]->line, lines[i]);
    ck_assert_str_eq(document.root->items[i]->file, "t.toml");
  }
  const dp_node *plan = at(document.root, "plan"), *nodes = at(document.root, "node");
  ck_assert_double_eq(at(plan, "z")->real, 2.5);
  ck_assert(at(plan, "y")->boolean);
  ck_assert_int_eq(at(plan, "y")->line, 6);
  ck_assert_uint_eq(nodes->count, 2);
  ck_assert_int_eq(nodes->items[1]->line, 10);
  const dp_node *list = at(nodes->items[0], "k");
  ck_assert_int_eq(list->items[1]->line, 9);
  ck_assert_int_eq(list->items[1]->integer, 2);
  ck_assert_double_eq(list->items[1]->real, 2);
}
END_TEST

START_TEST(json_keeps_order_and_lines) {
  json(
      "{\n \"z\": {\"q\": [1, -2.5e1,\n  \"a\\\"}]\", null]},\n \"a\\u0041\": true,\n\n \"b\": {} , \"c\": [[],{}]\n}");
  ck_assert_uint_eq(document.root->count, 4);
  ck_assert_int_eq(document.root->items[0]->line, 2);
  ck_assert_str_eq(document.root->items[1]->key, "aA");
  ck_assert_int_eq(document.root->items[1]->line, 4);
  ck_assert_int_eq(document.root->items[2]->line, 6);
  ck_assert_int_eq(document.root->items[3]->line, 6);
  const dp_node *list = at(at(document.root, "z"), "q");
  ck_assert_uint_eq(list->count, 4);
  ck_assert_double_eq(list->items[1]->real, -25);
  ck_assert_int_eq(list->items[1]->line, 2);
  ck_assert_str_eq(list->items[2]->string, "a\"}]");
  ck_assert_int_eq(list->items[2]->line, 3);
  ck_assert_int_eq(list->items[3]->kind, DP_NODE_NULL);
}
END_TEST

static const struct {
  bool json;
  const char *text, *expected;
} broken[] = {
    {false, "a = 1\nb = nan\n", "t:2: b: found nan, allowed: a finite number"},
    {false, "a = -inf", "t:1: a: found -inf, allowed: a finite number"},
    {false, "\na = 1979-05-27", "t:2: a: found a date or time"},
    {false, "a = 1\n\na = 2", "t:3: not valid TOML"},
    {false, "a = [1, 2", "t:1: not valid TOML"},
    {false, "[a]\nb = folded # why", "t:2: not valid TOML: found folded, allowed: a string in quotes, \"folded\""},
    {false, "b = 1f1b",
     "t:1: not valid TOML: found 1f1b, allowed: a number without a unit, or a string in quotes, \"1f1b\""},
    {false, "b = models/x_y.json\n", "t:1: not valid TOML: found models/x_y.json, allowed: a string in quotes"},
    {false, "b = ", "t:1: not valid TOML: Error"},
    {false, "b = 1.2.3", "t:1: not valid TOML: Error"},
    {false, "b = 1e999", "t:1: not valid TOML: Error"},
    {false, "b = 0xg", "t:1: not valid TOML: found 0xg"},
    {false, "a = 99999999999999999999", "t:1: not valid TOML"},
    {false, "a = \"\xff\"", "t:1: not valid TOML"},
    {false, "a = 1\nb = 2\n[~[x]]\nc = 1\n", "t:3: not valid TOML: malformed key or value"}, /* toml++ 3.3 asserts */
    {false, "a = \"\xc3\xa9\" # \xc3\xa9\nb\xcd\x82 = 1", "t:2: not valid TOML"},
    {true, "{\"a\": 1,\n \"a\": 2}", "t:2: not valid JSON: duplicate object key"},
    {true, "{\"a\": 1,\n", "t:2: not valid JSON"},
    {true, "{\"a\": NaN}", "t:1: not valid JSON"},
    {true, "{\"a\": 1e999}", "t:1: not valid JSON: real number overflow"},
    {true, "{\"a\": 99999999999999999999}", "t:1: not valid JSON: too big integer"},
    {true, "", "t:1: not valid JSON"},
    {true, "{} x", "t:1: not valid JSON"},
};

START_TEST(broken_files_name_the_line) {
  for (size_t i = 0; i < DP_COUNT_OF(broken); i++) {
    dp_status (*parse)(const char *, size_t, const char *, dp_document *, dp_error *) =
        broken[i].json ? dp_document_parse_json : dp_document_parse_toml;
    ck_assert_int_eq(parse(broken[i].text, strlen(broken[i].text), "t", &document, &error), DP_BAD_INPUT);
    ck_assert_msg(strncmp(error.text, broken[i].expected, strlen(broken[i].expected)) == 0, "found: %s\nwanted: %s",
                  error.text, broken[i].expected);
    ck_assert_ptr_null(document.root);
    ck_assert_ptr_null(strchr(error.text, '\n'));
  }
}
END_TEST

START_TEST(deep_nesting_is_refused) {
  for (int kind = 0; kind < 2; kind++) {
    dp_str text = {0};
    if (kind == 0) dp_str_add(&text, "a = ");
    for (int i = 0; i < 1000; i++) dp_str_add(&text, "[");
    for (int i = 0; i < 1000; i++) dp_str_add(&text, "]");
    const dp_status status =
        (kind ? dp_document_parse_json : dp_document_parse_toml)(text.text, text.length, "t", &document, &error);
    ck_assert_int_eq(status, DP_BAD_INPUT);
    dp_str_free(&text);
  }
}
END_TEST

START_TEST(assignments_set_and_make) {
  toml("[plan]\nstages = 2\n[[node]]\ncount = 1\n");
  static const char *const good[] = {"plan.stages=4",    "plan.new.deep=1.5",  "name=hello world",
                                     "plan.list=[1, 2]", "node.0.count=7",     "text=\"4\"",
                                     "yes=true",         "plan.schedule=zb-v", "empty="};
  for (size_t i = 0; i < DP_COUNT_OF(good); i++) ck_assert_int_eq(dp_document_set(&document, good[i], &error), DP_OK);
  const dp_node *plan = at(document.root, "plan");
  ck_assert_int_eq(at(plan, "stages")->integer, 4);
  ck_assert_int_eq(at(plan, "stages")->line, 0);
  ck_assert_str_eq(at(plan, "stages")->file, "--set plan.stages=4");
  ck_assert_double_eq(at(at(plan, "new"), "deep")->real, 1.5);
  ck_assert_str_eq(at(document.root, "name")->string, "hello world");
  ck_assert_int_eq(at(plan, "list")->items[1]->integer, 2);
  ck_assert_int_eq(at(at(document.root, "node")->items[0], "count")->integer, 7);
  ck_assert_int_eq(at(document.root, "text")->kind, DP_NODE_STRING);
  ck_assert(at(document.root, "yes")->boolean);
  ck_assert_str_eq(at(plan, "schedule")->string, "zb-v");
  ck_assert_str_eq(at(document.root, "empty")->string, "");
  static const char *const bad[] = {"plan",           "=4",    "plan..x=1", "plan.stages.x=1", "node.1.count=1",
                                    "node.x.count=1", "a b=1", ".=1"};
  for (size_t i = 0; i < DP_COUNT_OF(bad); i++) {
    ck_assert_msg(dp_document_set(&document, bad[i], &error) == DP_BAD_INPUT, "%s was taken", bad[i]);
    ck_assert_ptr_nonnull(strstr(error.text, bad[i]));
  }
}
END_TEST

typedef struct target {
  bool flag;
  int64_t count;
  double rate;
  const char *name;
  int choice;
  const dp_node *node;
} target;
static const char *const choices[] = {"one", "two", NULL};
static const dp_field fields[] = {
    {"flag", DP_FIELD_BOOLEAN, offsetof(target, flag), false, 0, 0, NULL, "a flag"},
    {"count", DP_FIELD_INTEGER, offsetof(target, count), true, 1, 4096, NULL, "how many"},
    {"rate", DP_FIELD_REAL, offsetof(target, rate), false, 0, 1.5, NULL, "a rate"},
    {"name", DP_FIELD_STRING, offsetof(target, name), false, 0, 0, NULL, "a name"},
    {"choice", DP_FIELD_CHOICE, offsetof(target, choice), false, 0, 0, choices, "a choice"},
    {"node", DP_FIELD_NODE, offsetof(target, node), false, 0, 0, NULL, "anything"},
};

START_TEST(schema_reads) {
  toml("flag = true\ncount = 4096\nrate = 1\nname = \"n\"\nchoice = \"two\"\nnode = [1]\n");
  target t = {0};
  ck_assert_int_eq(dp_schema_read(document.root, NULL, "[x]", fields, DP_COUNT_OF(fields), &t, &error), DP_OK);
  ck_assert(t.flag);
  ck_assert_int_eq(t.count, 4096);
  ck_assert_double_eq(t.rate, 1);
  ck_assert_str_eq(t.name, "n");
  ck_assert_int_eq(t.choice, 1);
  ck_assert_uint_eq(t.node->count, 1);
}
END_TEST

static const struct {
  const char *text, *expected;
} mistakes[] = {
    {"\ncuont = 1",
     "t.toml:2: [x]: unknown key \"cuont\", did you mean \"count\"? allowed: flag, count, rate, name, choice, node"},
    {"count = 1\nzzzzzz = 1", "t.toml:2: [x]: unknown key \"zzzzzz\", allowed: flag, count"},
    {"count = 0", "t.toml:1: [x].count: found 0, allowed: an integer from 1 to 4096"},
    {"count = 1000000000", "t.toml:1: [x].count: found 1000000000, allowed: an integer from 1 to 4096"},
    {"count = 1.5", "t.toml:1: [x].count: found 1.5, allowed: an integer from 1 to 4096"},
    {"count = \"4\"", "t.toml:1: [x].count: found \"4\", allowed: an integer from 1 to 4096"},
    {"count = 1\nrate = 1.6", "t.toml:2: [x].rate: found 1.6, allowed: a number from 0 to 1.5"},
    {"count = 1\nflag = 1", "t.toml:2: [x].flag: found 1, allowed: true or false"},
    {"count = 1\nname = \"\"", "t.toml:2: [x].name: found \"\", allowed: a string that is not empty"},
    {"count = 1\nchoice = \"three\"", "t.toml:2: [x].choice: found \"three\", allowed: one, two"},
    {"count = 1\nchoice = []", "t.toml:2: [x].choice: found an array, allowed: one, two"},
    {"flag = true", "t.toml:1: [x]: the key \"count\" is missing, needed: how many"},
};

START_TEST(schema_errors_say_what_is_allowed) {
  for (size_t i = 0; i < DP_COUNT_OF(mistakes); i++) {
    toml(mistakes[i].text);
    target t = {0};
    ck_assert_int_eq(dp_schema_read(document.root, NULL, "[x]", fields, DP_COUNT_OF(fields), &t, &error), DP_BAD_INPUT);
    ck_assert_msg(strncmp(error.text, mistakes[i].expected, strlen(mistakes[i].expected)) == 0, "found: %s\nwanted: %s",
                  error.text, mistakes[i].expected);
    dp_document_free(&document);
  }
}
END_TEST

START_TEST(numbers_by_set_must_be_finite) {
  toml("count = 1\n");
  ck_assert_int_eq(dp_document_set(&document, "rate=nan", &error), DP_OK); /* stays a string */
  target t = {0};
  ck_assert_int_eq(dp_schema_read(document.root, NULL, "[x]", fields, DP_COUNT_OF(fields), &t, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "--set rate=nan: [x].rate: found \"nan\", allowed: a number from 0 to 1.5");
}
END_TEST

START_TEST(format_is_checked) {
  toml("format = \"diffpipe-plan\"\nversion = 2\n");
  ck_assert_int_eq(dp_schema_check_format(document.root, "diffpipe-plan", 1, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "t.toml:2: version: found 2, allowed: 1");
  ck_assert_int_eq(dp_schema_check_format(document.root, "diffpipe-scenario", 2, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "t.toml:1: format: found \"diffpipe-plan\", allowed: \"diffpipe-scenario\"");
  ck_assert_int_eq(dp_schema_check_format(document.root, "diffpipe-plan", 2, &error), DP_OK);
}
END_TEST

START_TEST(output_is_whole_or_not_there) {
  char folder[] = "/tmp/diffpipe-test-XXXXXX", path[128];
  ck_assert_ptr_nonnull(mkdtemp(folder));
  (void)snprintf(path, sizeof path, "%s/a/b/out.txt", folder);
  dp_output output;
  ck_assert_int_eq(dp_output_open(path, &output, &error), DP_IO_FAILED); /* no such folder */
  (void)snprintf(path, sizeof path, "%s/a/b", folder);
  ck_assert_int_eq(dp_folder_make(path, &error), DP_OK);
  ck_assert_int_eq(dp_folder_make(path, &error), DP_OK);
  (void)snprintf(path, sizeof path, "%s/a/b/out.txt", folder);
  for (int round = 0; round < 3; round++) {
    ck_assert_int_eq(dp_output_open(path, &output, &error), DP_OK);
    fprintf(output.stream, "round %d", round);
    if (round == 1) { /* abandoned: the old file stays */
      dp_output_abandon(&output);
    } else {
      ck_assert_int_eq(dp_output_commit(&output, &error), DP_OK);
    }
    dp_output_abandon(&output);
    char *text = NULL;
    size_t length = 0;
    ck_assert_int_eq(dp_file_read(path, 100, &text, &length, &error), DP_OK);
    ck_assert_str_eq(text, round == 2 ? "round 2" : "round 0");
    free(text);
  }
  char *text = NULL;
  size_t length = 0;
  ck_assert_int_eq(dp_file_read(path, 3, &text, &length, &error), DP_BAD_INPUT); /* over the limit */
  ck_assert_int_eq(dp_file_read(folder, 100, &text, &length, &error), DP_BAD_INPUT);
  ck_assert_int_eq(dp_file_read("/nonexistent", 100, &text, &length, &error), DP_BAD_INPUT);
  struct stat about;
  ck_assert_int_eq(stat(path, &about), 0);
  ck_assert_int_eq(about.st_mode & 0600, 0600);
  ck_assert_int_eq(unlink(path), 0);
  (void)snprintf(path, sizeof path, "%s/a/b", folder);
  ck_assert_int_eq(rmdir(path), 0); /* empty: no temporary was left */
  (void)snprintf(path, sizeof path, "%s/a", folder);
  ck_assert_int_eq(rmdir(path), 0);
  ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

START_TEST(containers) {
  dp_arena arena = {0};
  ck_assert_ptr_null(dp_arena_alloc(&arena, SIZE_MAX / 2, 4));
  ck_assert_ptr_null(dp_arena_alloc(&arena, 2, SIZE_MAX / 2 + 2)); /* 2, were it not for the overflow */
  ck_assert_ptr_null(dp_arena_alloc(&arena, SIZE_MAX, 1));
  ck_assert_uint_eq(arena.reserved_bytes, 0);
  unsigned char *a = dp_arena_alloc(&arena, 3, 1), *b = dp_arena_alloc(&arena, 1 << 20, 1),
                *c = dp_arena_alloc(&arena, 5, 1);
  ck_assert(((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0);
  for (int i = 0; i < 1 << 20; i++) ck_assert_uint_eq(b[i], 0);
  ck_assert_ptr_eq(c, a + 16); /* a large block does not waste the rest of the small one */
  ck_assert_ptr_nonnull(dp_arena_alloc(&arena, 0, 8));
  ck_assert_ptr_ne(dp_arena_alloc(&arena, 0, 8), dp_arena_alloc(&arena, 1, 1));
  ck_assert_str_eq(dp_arena_printf(&arena, "%s-%d", "a", 7), "a-7");
  dp_arena_free(&arena);
  ck_assert_uint_eq(arena.used_bytes, 0);
  DP_ARRAY(int) numbers = {0};
  for (int i = 0; i < 1000; i++) ck_assert(dp_array_push(&numbers, i));
  for (int i = 0; i < 1000; i++) ck_assert_int_eq(numbers.items[i], i);
  const size_t capacity = numbers.capacity;
  const size_t too_many[] = {SIZE_MAX / 2, SIZE_MAX, SIZE_MAX - 1000 + 1, PTRDIFF_MAX / sizeof(int) - 1000 + 1};
  for (size_t i = 0; i < DP_COUNT_OF(too_many); i++) ck_assert(!dp_array_reserve(&numbers, too_many[i]));
  ck_assert_uint_eq(numbers.count, 1000);
  ck_assert_uint_eq(numbers.capacity, capacity);
  ck_assert_int_eq(numbers.items[999], 999);
  dp_array_free(&numbers);
  dp_str text = {0};
  for (int i = 0; i < 100; i++) dp_str_addf(&text, "%d,", i);
  ck_assert_uint_eq(text.length, 290);
  ck_assert(strncmp(text.text + 284, "98,99,", 6) == 0);
  dp_str_free(&text);
  char out[32];
  ck_assert_str_eq(dp_format_bytes(24e9, out), "24.0 GB");
  ck_assert_str_eq(dp_format_bytes(0, out), "0 B");
  ck_assert_str_eq(dp_format_seconds(0.0123, out), "12.3 ms");
  ck_assert_str_eq(dp_format_count(6761236398080.0, out), "6.76 T");
  ck_assert_str_eq(dp_format_count(-1500, out), "-1.50 k");
  ck_assert_str_eq(dp_format_count(999.96, out), "1.00 k");
  ck_assert_str_eq(dp_format_count(1e300, out), "1e+282 E");
  ck_assert_str_eq(dp_format_bytes(999, out), "999 B");
  ck_assert_str_eq(dp_format_seconds(0, out), "0.000 s");
  ck_assert_str_eq(dp_format_seconds(0.99999, out), "1.000 s");
  ck_assert_str_eq(dp_format_seconds(2.5e-6, out), "2.50 us");
  ck_assert_str_eq(dp_format_seconds(12345, out), "12345 s");
  ck_assert_int_eq(dp_name_distance("stages", "stage"), 1);
  ck_assert_int_eq(dp_name_distance("ab", "ba"), 2);
  ck_assert_int_eq(dp_name_distance("", "abcdef"), 3);
  ck_assert(dp_ends_with("a.toml", ".toml") && dp_ends_with(".toml", ".toml") && dp_ends_with("a", ""));
  ck_assert(!dp_ends_with("toml", ".toml") && !dp_ends_with("a.tomlx", ".toml"));
}
END_TEST

static const char *nearest(const char *given) {
  static const char *const names[] = {"A10", "A100-SXM4-40GB", "L40", "L40S", "RTX-3090", "RTX-4090", "adamw", "train"};
  dp_allowed allowed = {.given = given};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) dp_allowed_add(&allowed, names[i]);
  const char *text = dp_allowed_text(&allowed);
  ck_assert_ptr_nonnull(strstr(text, "allowed: A10, A100-SXM4-40GB, L40, L40S, RTX-3090, RTX-4090, adamw, train"));
  ck_assert_int_eq(strncmp(text, "did you mean \"", 14) == 0, allowed.nearest != NULL);
  dp_allowed_free(&allowed);
  return allowed.nearest ? allowed.nearest : "";
}

START_TEST(near_names_are_suggested) {
  ck_assert_str_eq(nearest("RTX 3090"), "RTX-3090");
  ck_assert_str_eq(nearest("rtx4090"), "RTX-4090");
  ck_assert_str_eq(nearest("4090"), "RTX-4090");
  ck_assert_str_eq(nearest("NVIDIA L40S"), "L40S");
  ck_assert_str_eq(nearest("A100"), "A100-SXM4-40GB");
  ck_assert_str_eq(nearest("adam"), "adamw");
  ck_assert_str_eq(nearest("training"), "train");
  ck_assert_str_eq(nearest("tarin"), "train");
  ck_assert_str_eq(nearest("RTX 3080"), ""); /* another card, not another spelling */
  ck_assert_str_eq(nearest("A11"), "");
  ck_assert_str_eq(nearest(""), "");
  ck_assert_str_eq(nearest("-"), "");
  ck_assert_str_eq(nearest("a name that is longer than any that could ever be near to one"), "");
  ck_assert_str_eq(nearest(NULL), "");
}
END_TEST

START_TEST(errors_are_one_line) {
  ck_assert_int_eq(dp_fail(&error, DP_BAD_INPUT, "a\nb\x01%s", "c"), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "a?b?c");
  ck_assert_int_eq(dp_fail(NULL, DP_IO_FAILED, "x"), DP_IO_FAILED);
  char text[2 * DP_ERROR_TEXT_BYTES];
  for (size_t shift = 0; shift < 3; shift++) { /* long texts are cut between characters */
    memset(text, 'x', shift);
    for (size_t i = shift; i + 4 <= sizeof text; i += 3) memcpy(text + i, "\xe2\x82\xac", 4);
    ck_assert_int_eq(dp_fail(&error, DP_BAD_INPUT, "%s", text), DP_BAD_INPUT);
    const size_t length = strlen(error.text);
    ck_assert(length < DP_ERROR_TEXT_BYTES && length > DP_ERROR_TEXT_BYTES - 8);
    ck_assert_uint_eq((length - shift) % 3, 0);
    ck_assert(strncmp(text, error.text, length) == 0);
  }
  ck_assert_int_eq(dp_exit_status(DP_BAD_INPUT), 2);
  ck_assert_int_eq(dp_exit_status(DP_IO_FAILED), 1);
  ck_assert_int_eq(dp_exit_status(DP_OK), 0);
}
END_TEST

/* Known answers of Random123 1.14, tests/kat_vectors, philox4x32 10. */
START_TEST(philox_known_answers) {
  static const uint32_t cases[3][10] = {{0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0,
                                         0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
  for (int i = 0; i < 3; i++) {
    uint32_t out[4];
    dp_philox4x32(cases[i], cases[i] + 4, out);
    ck_assert_mem_eq(out, cases[i] + 6, sizeof out);
  }
}
END_TEST

START_TEST(random_streams) {
  dp_random a, b, other;
  dp_random_init(&a, 7, 0);
  dp_random_init(&b, 7, 0);
  dp_random_init(&other, 7, 1);
  int same = 0;
  double sum = 0;
  for (int i = 0; i < 10000; i++) {
    const double x = dp_random_uniform(&a);
    ck_assert(x >= 0 && x < 1);
    ck_assert_double_eq(x, dp_random_uniform(&b));
    same += x == dp_random_uniform(&other);
    sum += x;
  }
  ck_assert_int_eq(same, 0);
  ck_assert_double_eq_tol(sum / 10000, 0.5, 0.02);
  int counts[7] = {0};
  for (int i = 0; i < 7000; i++) counts[dp_random_below(&a, 7)]++;
  for (int i = 0; i < 7; i++) ck_assert(counts[i] > 850 && counts[i] < 1150);
  /* the seed is the key, a stream the upper half of the counter */
  const uint32_t key[2] = {0x89abcdef, 0x01234567};
  dp_random_init(&a, UINT64_C(0x0123456789abcdef), UINT64_C(0xfedcba9876543210));
  for (uint32_t block = 0; block < 3; block++) {
    const uint32_t counter[4] = {block, 0, 0x76543210, 0xfedcba98};
    uint32_t out[4];
    dp_philox4x32(counter, key, out);
    for (int i = 0; i < 4; i++) ck_assert_uint_eq(dp_random_u32(&a), out[i]);
  }
  static const uint64_t bounds[] = {1, 2, 3, UINT64_C(1) << 63, (UINT64_C(1) << 63) + 1, UINT64_MAX};
  for (size_t k = 0; k < DP_COUNT_OF(bounds); k++)
    for (int i = 0; i < 100; i++) ck_assert(dp_random_below(&a, bounds[k]) < bounds[k]);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {toml_keeps_order_and_lines,
                                json_keeps_order_and_lines,
                                broken_files_name_the_line,
                                deep_nesting_is_refused,
                                assignments_set_and_make,
                                schema_reads,
                                schema_errors_say_what_is_allowed,
                                numbers_by_set_must_be_finite,
                                format_is_checked,
                                output_is_whole_or_not_there,
                                containers,
                                near_names_are_suggested,
                                errors_are_one_line,
                                philox_known_answers,
                                random_streams};
  return suite_run("base", tests, DP_COUNT_OF(tests), setup, teardown, 60);
}
