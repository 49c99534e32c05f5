#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "exec/watch_parts.h"

__attribute__((format(printf, 2, 3))) static void add(char *line, const char *format, ...) {
  const size_t at = strlen(line);
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(line + at, DP_ERROR_TEXT_BYTES - at, format, arguments);
  va_end(arguments);
}

static int workers_each(const exec_loss *loss) {
  return loss->program ? loss->program->worker_count / loss->process_count : 0;
}

static void add_name(const exec_loss *loss, int process, char *line) {
  const exec_peer *peer = &loss->peers[process];
  const int each = workers_each(loss), first = process * each;
  if (each == 0)
    add(line, "process %d (host %s, pid %d)", process, peer->host, peer->pid);
  else if (each == 1)
    add(line, "worker %d (process %d, host %s, pid %d)", first, process, peer->host, peer->pid);
  else
    add(line, "workers %d to %d (process %d, host %s, pid %d)", first, first + each - 1, process, peer->host,
        peer->pid);
}

static void add_fate(const exec_loss *loss, char *line) {
  const bool many = workers_each(loss) > 1;
  if (loss->peers[loss->process].fate == EXEC_SILENT)
    add(line, " %s been silent for %g s", many ? "have" : "has", loss->silence_s);
  else
    add(line, " %s gone", many ? "are" : "is");
}

static void add_place(const exec_loss *loss, char *line) {
  const exec_alive *alive = &loss->peers[loss->process].alive;
  char text[128];
  if (loss->step == 0) {
    add(line, " before the first step");
    return;
  }
  add(line, " at step %lld", (long long)loss->step);
  if (loss->program && alive->step == loss->step && alive->instruction < loss->program->instruction_count)
    add(line, ", last heard of during %s", plan_instruction_show(loss->program, alive->instruction, text));
}

/* With a host several are lost at once. */
static void add_others(const exec_loss *loss, char *line) {
  const char *before = "; so is ";
  for (int p = 0; p < loss->process_count; p++) {
    if (p == loss->process || (loss->peers[p].fate != EXEC_GONE && loss->peers[p].fate != EXEC_SILENT)) continue;
    add(line, "%s", before);
    add_name(loss, p, line);
    before = ", ";
  }
}

void exec_loss_show(const exec_loss *loss, char line[DP_ERROR_TEXT_BYTES]) {
  line[0] = 0;
  add_name(loss, loss->process, line);
  add_fate(loss, line);
  add_place(loss, line);
  if (loss->checkpoint[0])
    add(line, "; last good checkpoint: %s", loss->checkpoint);
  else
    add(line, "; there is no checkpoint yet");
  add_others(loss, line);
}
