#define _POSIX_C_SOURCE 200809L
#include "cli/run_signals.h"

#include <signal.h>

static volatile sig_atomic_t asked_to_stop, asked_to_save;

static void take_signal(int signal_number) {
  if (signal_number == SIGUSR1)
    asked_to_save = 1;
  else
    asked_to_stop = 1;
}

void cli_run_listen(void) {
  struct sigaction action = {.sa_handler = take_signal, .sa_flags = SA_RESTART};
  (void)sigemptyset(&action.sa_mask);
  (void)sigaction(SIGUSR1, &action, NULL);
  (void)sigaction(SIGTERM, &action, NULL);
  action.sa_flags |= (int)SA_RESETHAND;
  (void)sigaction(SIGINT, &action, NULL);
}

dp_status cli_run_wish(exec_transport *transport, int64_t *wished, dp_error *error) {
  *wished = asked_to_stop ? CLI_RUN_WISH_STOP : asked_to_save ? CLI_RUN_WISH_SAVE : CLI_RUN_WISH_NONE;
  asked_to_save = 0;
  return exec_maximum(transport, wished, error);
}
