#define _POSIX_C_SOURCE 200809L
#include "cli/search.h"

#include <signal.h>

static volatile sig_atomic_t stop_asked;
static struct sigaction before;

static void ask_stop(int number) {
  (void)number;
  stop_asked = 1;
}

static void show_progress(void *data, uint64_t done, uint64_t total, const sim_trial *best) {
  dp_progress *progress = data;
  (void)best;
  progress->total = total; /* what is pruned goes fast: the time left is at most that */
  dp_progress_update(progress, done, NULL);
}

sim_tune_options cli_search_options(const cli_values *values, int slot, dp_progress *progress) {
  return (sim_tune_options){.threads = values->slots[slot].given ? (int)values->slots[slot].integer : 0,
                            .stop = &stop_asked,
                            .progress = progress ? show_progress : NULL,
                            .progress_data = progress};
}

void cli_search_begin(void) {
  const struct sigaction caught = {.sa_handler = ask_stop};
  (void)sigaction(SIGINT, &caught, &before);
}

void cli_search_end(void) { (void)sigaction(SIGINT, &before, NULL); }
