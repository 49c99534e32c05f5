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

static const cli_option *find_letter(const cli_command *command, const char *given) {
  for (int i = 0; i < command->option_count; i++)
    if (command->options[i].letter == given[1] && !given[2]) return &command->options[i];
  return NULL;
}

static const char *nearest_name(const char *given, size_t length, const char *const *names, int count) {
  char name[41]; /* longer ones are near to nothing */
  if (length >= sizeof name) return NULL;
  memcpy(name, given, length);
  name[length] = 0;
  const char *nearest = NULL;
  int best = 3;
  for (int i = 0; i < count; i++) {
    const int distance = dp_name_distance(name, names[i]);
    if (distance >= best || (size_t)distance >= length) continue;
    best = distance;
    nearest = names[i];
  }
  return nearest;
}

dp_status cli_fail_name(const char *lead, const char *given, const char *const *names, int count, const char *dashes,
                        dp_error *error) {
  const char *bare = given + strspn(given, "-");
  const char *nearest = nearest_name(bare, strcspn(bare, "="), names, count);
  dp_str text = {0};
  dp_str_addf(&text, "%s\"%s\", ", lead, given);
  if (nearest) dp_str_addf(&text, "did you mean %s%s? ", dashes, nearest);
  dp_str_addf(&text, "allowed: %s", count ? "" : "none");
  for (int i = 0; i < count; i++) dp_str_addf(&text, "%s%s%s", i ? ", " : "", dashes, names[i]);
  const dp_status status = dp_fail(error, DP_BAD_INPUT, "%s", dp_str_text(&text));
  dp_str_free(&text);
  return status;
}

static dp_status fail_unknown(const cli_command *command, const char *given, dp_error *error) {
  const char *names[CLI_MAX_SLOTS];
  char lead[64];
  int count = 0;
  for (int i = 0; i < command->option_count && count < CLI_MAX_SLOTS; i++) names[count++] = command->options[i].name;
  (void)snprintf(lead, sizeof lead, "%s: unknown option ", command->name);
  return cli_fail_name(lead, given, names, count, "--", error);
}

static dp_status fail_choice(const cli_command *command, const cli_option *option, const char *value, dp_error *error) {
  char lead[64];
  int count = 0;
  while (option->choices[count]) count++;
  (void)snprintf(lead, sizeof lead, "%s: --%s: found ", command->name, option->name);
  return cli_fail_name(lead, value, option->choices, count, "", error);
}

/* key="value", as TOML. */
static const char *assignment(const char *key, const char *value, dp_arena *arena) {
  dp_str text = {0};
  dp_str_addf(&text, "%s=", key);
  dp_str_add_quoted(&text, value);
  const char *kept = text.failed ? NULL : dp_arena_strdup(arena, dp_str_text(&text));
  dp_str_free(&text);
  return kept;
}

static dp_status take(const cli_command *command, const cli_option *option, const char *value, const char **lists,
                      int room, cli_values *values, dp_error *error) {
  values->slots[option->slot].given = true;
  values->slots[option->slot].string = value;
  if (option->type == CLI_LIST) {
    if (strcmp(option->name, "set") == 0)
      lists[values->set_count++] = value;
    else if (strcmp(option->name, "sweep") == 0)
      lists[room + values->sweep_count++] = value;
    else
      lists[2 * room + values->repeated_count++] = value;
  }
  if (option->type == CLI_KEY) {
    const char *set = assignment(option->key, value, &values->arena);
    if (!set) return dp_fail_memory(error);
    lists[values->set_count++] = set;
  }
  if (option->type == CLI_INTEGER) {
    char *end = NULL;
    errno = 0;
    const long long number = strtoll(value, &end, 10);
    if (errno || end == value || *end || number < option->min || number > option->max)
      return dp_fail(error, DP_BAD_INPUT, "%s: --%s: found \"%s\", allowed: an integer from %lld to %lld",
                     command->name, option->name, value, (long long)option->min, (long long)option->max);
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
  const char **arguments = storage, **lists = storage + argc;
  bool only_arguments = false;
  *values = (cli_values){.arguments = arguments,
                         .before_dashes = -1,
                         .sets = lists,
                         .sweeps = lists + argc,
                         .repeated = lists + 2 * argc};
  for (int i = 0; i < argc; i++) {
    const char *given = argv[i];
    if (only_arguments || given[0] != '-' || !given[1]) {
      arguments[values->argument_count++] = given;
      continue;
    }
    if (strcmp(given, "--") == 0) {
      only_arguments = true;
      values->before_dashes = values->argument_count;
      continue;
    }
    const bool is_short = given[1] != '-';
    const char *name = given + 2, *equals = is_short ? NULL : strchr(name, '=');
    const cli_option *option =
        is_short ? find_letter(command, given) : find(command, name, equals ? (size_t)(equals - name) : strlen(name));
    if (!option) return fail_unknown(command, given, error);
    const char *value = equals ? equals + 1 : NULL;
    if (option->type == CLI_FLAG) {
      if (value)
        return dp_fail(error, DP_BAD_INPUT, "%s: --%s takes no value, found \"%s\"", command->name, option->name,
                       value);
    } else if (!value) {
      if (i + 1 == argc)
        return dp_fail(error, DP_BAD_INPUT, "%s: --%s needs a value: %s", command->name, option->name,
                       option->argument);
      value = argv[++i];
    }
    DP_TRY(take(command, option, value, lists, argc, values, error));
  }
  return DP_OK;
}

void cli_options_help(const cli_command *command, FILE *out) {
  fprintf(out, "Usage: diffpipe %s%s%s%s\n\n%s\n", command->name, command->arguments[0] ? " " : "", command->arguments,
          command->option_count && !strstr(command->arguments, "[OPTION]") ? " [OPTION]..." : "", command->summary);
  if (command->option_count) fprintf(out, "\nOptions:\n");
  for (int i = 0; i < command->option_count; i++) {
    const cli_option *option = &command->options[i];
    dp_str left = {0};
    if (option->letter) dp_str_addf(&left, "-%c, ", option->letter);
    dp_str_addf(&left, "--%s%s%s", option->name, option->argument ? " " : "", option->argument ? option->argument : "");
    fprintf(out, "  %-26s %s", dp_str_text(&left), option->help);
    for (int c = 0; option->type == CLI_CHOICE && option->choices[c]; c++)
      fprintf(out, "%s%s", c ? ", " : ": ", option->choices[c]);
    if (option->fallback) fprintf(out, " (%s)", option->fallback);
    fprintf(out, "\n");
    dp_str_free(&left);
  }
  for (int i = 0; command->commands && command->commands[i]; i++)
    fprintf(out, "%s  %-12s %s\n", i ? "" : "\nCommands:\n", command->commands[i]->name + strlen(command->name) + 1,
            command->commands[i]->summary);
  if (command->help) fprintf(out, "\n%s\n", command->help);
}
