#include "cli/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "cli/command.h"

static const cli_option *find(const cli_command *command, const char *name, size_t length) {
  for (int i = 0; i < command->option_count; i++)
    if (strlen(command->options[i].name) == length && strncmp(command->options[i].name, name, length) == 0)
      return &command->options[i];
  return NULL;
}

static dp_status fail_unknown(const cli_command *command, const char *given, dp_error *error) {
  dp_str known = {0};
  for (int i = 0; i < command->option_count; i++) dp_str_addf(&known, "%s--%s", i ? ", " : "", command->options[i].name);
  const dp_status status = dp_fail(error, DP_BAD_INPUT, "%s: unknown option \"%s\", allowed: %s", command->name, given,
                                   command->option_count ? dp_str_text(&known) : "none");
  dp_str_free(&known);
  return status;
}

static dp_status fail_choice(const cli_command *command, const cli_option *option, const char *value, dp_error *error) {
  dp_str known = {0};
  for (int i = 0; option->choices[i]; i++) dp_str_addf(&known, "%s%s", i ? ", " : "", option->choices[i]);
  const dp_status status = dp_fail(error, DP_BAD_INPUT, "%s: --%s: found \"%s\", allowed: %s", command->name, option->name,
                                   value, dp_str_text(&known));
  dp_str_free(&known);
  return status;
}

static dp_status take(const cli_command *command, const cli_option *option, const char *value, const char **sets,
                      cli_values *values, dp_error *error) {
  values->slots[option->slot].given = true;
  values->slots[option->slot].string = value;
  if (option->type == CLI_LIST) sets[values->set_count++] = value;
  if (option->type == CLI_INTEGER) {
    char *end = NULL;
    errno = 0;
    const long long number = strtoll(value, &end, 10);
    if (errno || end == value || *end || number < option->min || number > option->max)
      return dp_fail(error, DP_BAD_INPUT, "%s: --%s: found \"%s\", allowed: an integer from %lld to %lld", command->name,
                     option->name, value, (long long)option->min, (long long)option->max);
    values->slots[option->slot].integer = number;
  }
  if (option->type == CLI_CHOICE) {
    int i = 0;
    while (option->choices[i] && strcmp(option->choices[i], value) != 0) i++;
    if (!option->choices[i]) return fail_choice(command, option, value, error);
    values->slots[option->slot].integer = i;
  }
  return DP_OK;
}

dp_status cli_options_parse(const cli_command *command, int argc, char **argv, const char **storage, cli_values *values,
                            dp_error *error) {
  const char **arguments = storage, **sets = storage + argc;
  bool only_arguments = false;
  *values = (cli_values){.arguments = arguments, .sets = sets};
  for (int i = 0; i < argc; i++) {
    const char *given = argv[i];
    if (only_arguments || given[0] != '-' || !given[1]) {
      arguments[values->argument_count++] = given;
      continue;
    }
    if (strcmp(given, "--") == 0) {
      only_arguments = true;
      continue;
    }
    if (strcmp(given, "-o") == 0) given = "--out";
    if (given[1] != '-') return fail_unknown(command, given, error);
    const char *name = given + 2, *equals = strchr(name, '=');
    const cli_option *option = find(command, name, equals ? (size_t)(equals - name) : strlen(name));
    if (!option) return fail_unknown(command, given, error);
    const char *value = equals ? equals + 1 : NULL;
    if (option->type == CLI_FLAG) {
      if (value) return dp_fail(error, DP_BAD_INPUT, "%s: --%s takes no value, found \"%s\"", command->name, option->name, value);
    } else if (!value) {
      if (i + 1 == argc) return dp_fail(error, DP_BAD_INPUT, "%s: --%s needs a value: %s", command->name, option->name, option->argument);
      value = argv[++i];
    }
    DP_TRY(take(command, option, value, sets, values, error));
  }
  return DP_OK;
}

void cli_options_help(const cli_command *command, FILE *out) {
  fprintf(out, "Usage: diffpipe %s%s%s%s\n\n%s\n", command->name, command->arguments[0] ? " " : "", command->arguments,
          command->option_count ? " [OPTION]..." : "", command->summary);
  if (command->option_count) fprintf(out, "\nOptions:\n");
  for (int i = 0; i < command->option_count; i++) {
    const cli_option *option = &command->options[i];
    dp_str left = {0};
    dp_str_addf(&left, "--%s%s%s", option->name, option->argument ? " " : "", option->argument ? option->argument : "");
    fprintf(out, "  %-26s %s", dp_str_text(&left), option->help);
    if (option->type == CLI_CHOICE) {
      fprintf(out, " (");
      for (int c = 0; option->choices[c]; c++) fprintf(out, "%s%s", c ? ", " : "", option->choices[c]);
      fprintf(out, ")");
    }
    fprintf(out, "\n");
    dp_str_free(&left);
  }
  if (command->help) fprintf(out, "\n%s\n", command->help);
}
