/* diffpipe profile: its commands. */
#include "cli/command.h"

static const cli_command *const commands[] = {&cli_profile_report, NULL};

const cli_command cli_profile = {
    .name = "profile",
    .arguments = "COMMAND DIR",
    .summary = "Tell what was recorded of a program that uses CUDA.",
    .help =
        "A record is what one kernel, copy, call or range did and when; doc/profiling.md tells the files, the\n"
        "rules by which steps and classes of kernels are found, and what the figures mean.",
    .commands = commands,
};
