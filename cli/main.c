/* diffpipe: finds the subcommand, parses its options, prints its one error line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cli/command.h"

static const cli_command *const commands[] = {&cli_machine, &cli_inspect, &cli_calibrate, &cli_simulate, &cli_tune,
                                              &cli_whatif,  &cli_run,       &cli_profile,  &cli_top,      &cli_compare,  &cli_report,
                                              &cli_advise,  &cli_data,      &cli_formats,  &cli_version};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void print_help(FILE *out) {
  fprintf(out,
          "Usage: diffpipe COMMAND [ARGUMENT]... [OPTION]...\n\n"
          "Plan, simulate and profile pipeline-parallel diffusion models.\n\nCommands:\n");
  for (int i = 0; i < COMMAND_COUNT; i++) fprintf(out, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
  fprintf(out,
          "\n`diffpipe help COMMAND` tells the options of a command.\n"
          "Data goes to stdout, talk to stderr. Exit status: 0 done, 1 it failed, 2 the input is wrong.\n");
}

static int fail(const dp_error *error, dp_status status) {
  fprintf(stderr, "diffpipe: %s\n", error->text[0] ? error->text : "failed without a word: a bug");
  return dp_exit_status(status);
}

static const cli_command *find(const char *name) {
  for (int i = 0; i < COMMAND_COUNT; i++)
    if (strcmp(commands[i]->name, name) == 0) return commands[i];
  return NULL;
}

static int fail_command(const char *given) {
  const char *names[COMMAND_COUNT + 1] = {"help"};
  for (int i = 0; i < COMMAND_COUNT; i++) names[i + 1] = commands[i]->name;
  dp_error error = DP_ERROR_INIT;
  return fail(&error, cli_fail_name("unknown command ", given, names, COMMAND_COUNT + 1, "", &error));
}

/* The command of a family, whose name follows the family's. */
static const cli_command *find_in(const cli_command *family, const char *name) {
  const size_t before = strlen(family->name) + 1;
  for (int i = 0; family->commands[i]; i++)
    if (strcmp(family->commands[i]->name + before, name) == 0) return family->commands[i];
  return NULL;
}

static int fail_in(const cli_command *family, const char *given) {
  enum { MOST = 16 };
  const char *names[MOST];
  char lead[64];
  int count = 0;
  for (; family->commands[count] && count < MOST; count++)
    names[count] = family->commands[count]->name + strlen(family->name) + 1;
  if (family->run && count < MOST) names[count++] = family->arguments; /* what it is by itself */
  (void)snprintf(lead, sizeof lead, "%s: unknown command ", family->name);
  dp_error error = DP_ERROR_INIT;
  return fail(&error, cli_fail_name(lead, given, names, count, "", &error));
}

static bool wants_help(int argc, char **argv) {
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
  return false;
}

static dp_status check_arguments(const cli_command *command, const cli_values *values, dp_error *error) {
  const int most = command->takes ? 1 + command->more : 0, least = command->takes && !command->optional;
  if (values->argument_count >= least && values->argument_count <= most) return DP_OK;
  if (!command->takes)
    return dp_fail(error, DP_BAD_INPUT, "%s: found the argument \"%s\", allowed: none", command->name,
                   values->arguments[0]);
  return dp_fail(error, DP_BAD_INPUT, "%s: found %d arguments, allowed: %s", command->name, values->argument_count,
                 command->takes);
}

static int run(const cli_command *command, int argc, char **argv) {
  dp_error error = DP_ERROR_INIT;
  const char **storage = calloc((size_t)(CLI_LISTS * argc + 1), sizeof *storage);
  if (!storage) return fail(&error, dp_fail_memory(&error));
  cli_values values;
  dp_status status = cli_options_parse(command, argc, argv, storage, &values, &error);
  if (status == DP_OK && !command->run) { /* a family, after nothing but "--" */
    free(storage);
    return fail_in(command, argv[0]);
  }
  if (status == DP_OK) status = check_arguments(command, &values, &error);
  if (status == DP_OK) status = command->run(&values, &error);
  if (status == DP_OK && (fflush(stdout) != 0 || ferror(stdout)))
    status = dp_fail(&error, DP_IO_FAILED, "the output could not be written");
  dp_arena_free(&values.arena);
  free(storage);
  return status == DP_OK ? 0 : fail(&error, status);
}

/* The help of the command that the words name; without words the program's. */
static int help(int count, char **words) {
  if (count == 0 || strcmp(words[0], "help") == 0) {
    print_help(stdout);
    return 0;
  }
  const cli_command *asked = find(words[0]);
  if (!asked) return fail_command(words[0]);
  if (asked->commands && count > 1) {
    const cli_command *inner = find_in(asked, words[1]);
    if (!inner) return fail_in(asked, words[1]);
    asked = inner;
  }
  cli_options_help(asked, stdout);
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    print_help(stderr);
    return 2;
  }
  const char *name = argv[1];
  if (strcmp(name, "--version") == 0) name = "version";
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
  if (strcmp(name, "help") == 0) return help(argc - 2, argv + 2);
  const cli_command *command = find(name);
  if (!command) return fail_command(name);
  int words = 2;
  if (command->commands && argc > 2 && argv[2][0] != '-') {
    const cli_command *inner = find_in(command, argv[words++]);
    if (!inner) return fail_in(command, argv[2]);
    command = inner;
  }
  if (wants_help(argc - words, argv + words)) {
    cli_options_help(command, stdout);
    return 0;
  }
  if (!command->run && argc == words) {
    cli_options_help(command, stderr);
    return 2;
  }
  return run(command, argc - words, argv + words);
}
