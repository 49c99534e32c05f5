/* Text for a terminal. */
#ifndef DP_CLI_TEXT_H
#define DP_CLI_TEXT_H

/* Prints to stdout, broken at spaces before column 100; what follows the first line is indented by two more. */
void cli_print_wrapped(int indent, const char *text);

#endif
