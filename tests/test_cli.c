#define _POSIX_C_SOURCE 200809L
/* Options of subcommands: each type, repeated --set, and one error line that says what is allowed. */
#include <string.h>

#include "base/schema.h"
#include "cli/command.h"
#include "tests/suite.h"

enum { SLOT_JSON, SLOT_HEIGHT, SLOT_OUT, SLOT_SCHEDULE, SLOT_SET };
static const char *const schedules[] = {"gpipe", "1f1b", NULL};
static const cli_option options[] = {
    {.name = "json", .type = CLI_FLAG, .help = "print JSON", .slot = SLOT_JSON},
    {.name = "height", .type = CLI_INTEGER, .argument = "N", .help = "pixels", .slot = SLOT_HEIGHT, .min = 8, .max = 16384},
    {.name = "out", .letter = 'o', .type = CLI_STRING, .argument = "DIR", .help = "where to write", .slot = SLOT_OUT},
    {.name = "schedule", .type = CLI_CHOICE, .argument = "NAME", .help = "order", .slot = SLOT_SCHEDULE, .choices = schedules},
    {.name = "set", .type = CLI_LIST, .argument = "KEY=VALUE", .help = "change a key", .slot = SLOT_SET},
};
static const cli_command command = {
    .name = "try", .arguments = "SCENARIO", .summary = "Try.", .options = options, .option_count = (int)DP_COUNT_OF(options)};

enum { MAX_WORDS = 12 };
static const char *storage[CLI_LISTS * MAX_WORDS];
static cli_values values;
static dp_error error;

/* Splits `line` at spaces, as a shell would, and parses it. */
static dp_status parse(const char *line) {
  static char text[256];
  static char *words[MAX_WORDS];
  int count = 0;
  ck_assert_uint_lt(strlen(line), sizeof text);
  memcpy(text, line, strlen(line) + 1);
  for (char *at = text; *at;) {
    ck_assert_int_lt(count, MAX_WORDS);
    words[count++] = at;
    at += strcspn(at, " ");
    if (*at) *at++ = 0;
  }
  error = (dp_error)DP_ERROR_INIT;
  return cli_options_parse(&command, count, words, storage, &values, &error);
}

START_TEST(letters_stand_for_options) {
  ck_assert_int_eq(parse("a.toml -o d"), DP_OK);
  ck_assert_str_eq(values.slots[SLOT_OUT].string, "d");
  ck_assert_int_eq(parse("-o"), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "try: --out needs a value: DIR");
  ck_assert_int_eq(parse("-od"), DP_BAD_INPUT);
  ck_assert_int_eq(parse("-j"), DP_BAD_INPUT); /* --json has no letter */
}
END_TEST

START_TEST(every_type_is_read) {
  ck_assert_int_eq(parse("a.toml --json --height 512 --out=d --schedule 1f1b b.toml"), DP_OK);
  ck_assert_int_eq(values.argument_count, 2);
  ck_assert_str_eq(values.arguments[0], "a.toml");
  ck_assert_str_eq(values.arguments[1], "b.toml");
  ck_assert(values.slots[SLOT_JSON].given);
  ck_assert_int_eq(values.slots[SLOT_HEIGHT].integer, 512);
  ck_assert_str_eq(values.slots[SLOT_OUT].string, "d");
  ck_assert_int_eq(values.slots[SLOT_SCHEDULE].integer, 1);
  ck_assert(!values.slots[SLOT_SET].given);
}
END_TEST

START_TEST(set_repeats_in_order) {
  ck_assert_int_eq(parse("--set a.b=c --set=d.e=1 s.toml --set f=-2"), DP_OK);
  ck_assert_int_eq(values.set_count, 3);
  ck_assert_str_eq(values.sets[0], "a.b=c");
  ck_assert_str_eq(values.sets[1], "d.e=1");
  ck_assert_str_eq(values.sets[2], "f=-2");
  ck_assert_int_eq(values.argument_count, 1);
}
END_TEST

START_TEST(two_dashes_end_the_options) {
  ck_assert_int_eq(parse("-- --json -x -"), DP_OK);
  ck_assert(!values.slots[SLOT_JSON].given);
  ck_assert_int_eq(values.argument_count, 3);
  ck_assert_int_eq(parse("-"), DP_OK);
  ck_assert_str_eq(values.arguments[0], "-");
}
END_TEST

static const struct {
  const char *line, *text;
} wrong[] = {
    {"--hieght 5", "try: unknown option \"--hieght\", did you mean --height? "
                   "allowed: --json, --height, --out, --schedule, --set"},
    {"--jso=1", "try: unknown option \"--jso=1\", did you mean --json? allowed: --json, --height, --out, --schedule, --set"},
    {"--nothinglikeit", "try: unknown option \"--nothinglikeit\", allowed: --json, --height, --out, --schedule, --set"},
    {"-q", "try: unknown option \"-q\", allowed: --json, --height, --out, --schedule, --set"},
    {"--json=yes", "try: --json takes no value, found \"yes\""},
    {"s.toml --out", "try: --out needs a value: DIR"},
    {"--height", "try: --height needs a value: N"},
    {"--height 7", "try: --height: found \"7\", allowed: an integer from 8 to 16384"},
    {"--height 16385", "try: --height: found \"16385\", allowed: an integer from 8 to 16384"},
    {"--height=", "try: --height: found \"\", allowed: an integer from 8 to 16384"},
    {"--height 64x", "try: --height: found \"64x\", allowed: an integer from 8 to 16384"},
    {"--height 99999999999999999999", "try: --height: found \"99999999999999999999\", allowed: an integer from 8 to 16384"},
    {"--schedule 1f1", "try: --schedule: found \"1f1\", did you mean 1f1b? allowed: gpipe, 1f1b"},
    {"--schedule zb", "try: --schedule: found \"zb\", allowed: gpipe, 1f1b"},
};

START_TEST(wrong_options_say_what_is_allowed) {
  for (size_t i = 0; i < DP_COUNT_OF(wrong); i++) {
    ck_assert_int_eq(parse(wrong[i].line), DP_BAD_INPUT);
    ck_assert_str_eq(error.text, wrong[i].text);
  }
}
END_TEST

START_TEST(a_long_or_odd_name_is_one_line) {
  char long_name[200] = "--";
  memset(long_name + 2, 'x', sizeof long_name - 3);
  ck_assert_int_eq(parse(long_name), DP_BAD_INPUT);
  ck_assert_int_eq(parse("--js\non"), DP_BAD_INPUT);
  ck_assert_ptr_null(strchr(error.text, '\n'));
}
END_TEST

START_TEST(help_comes_from_the_same_rows) {
  char text[2048] = "";
  FILE *out = fmemopen(text, sizeof text, "w");
  ck_assert_ptr_nonnull(out);
  cli_options_help(&command, out);
  fclose(out);
  ck_assert_ptr_nonnull(strstr(text, "Usage: diffpipe try SCENARIO [OPTION]...\n"));
  for (size_t i = 0; i < DP_COUNT_OF(options); i++) {
    ck_assert_ptr_nonnull(strstr(text, options[i].name));
    ck_assert_ptr_nonnull(strstr(text, options[i].help));
  }
  ck_assert_ptr_nonnull(strstr(text, ": gpipe, 1f1b"));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {letters_stand_for_options, every_type_is_read,
                                set_repeats_in_order,
                                two_dashes_end_the_options,
                                wrong_options_say_what_is_allowed,
                                a_long_or_odd_name_is_one_line,
                                help_comes_from_the_same_rows};
  return suite_run("cli", tests, DP_COUNT_OF(tests), NULL, NULL, 30);
}
