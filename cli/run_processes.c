#include "cli/run_processes.h"

#include <stdio.h>
#include <unistd.h>

#include "exec/transport_mpi.h"

static void end_late(int launched, double waited_s) {
  fprintf(stderr, "diffpipe: of %d processes some have not started MPI within %.0f s (DIFFPIPE_START_S)\n", launched,
          waited_s);
  _exit(dp_exit_status(DP_RUN_FAILED));
}

dp_status cli_processes_begin(cli_processes *p, dp_error *error) {
  *p = (cli_processes){.transport = NULL};
  return exec_transport_open_mpi(&p->transport, end_late, error);
}

bool cli_processes_speak(const cli_processes *p) { return exec_process(p->transport) == 0; }

static void say(void *data, const char *line) {
  (void)data;
  fprintf(stderr, "diffpipe: %s\n", line);
}

/* Files are written beside and renamed, and lines of the log are flushed: nothing is lost. */
static void end(void *data, dp_status status) {
  (void)data;
  _exit(dp_exit_status(status));
}

dp_status cli_processes_ready(cli_processes *p, const plan_program *program, dp_error *error) {
  p->agreed = true;
  DP_TRY(exec_agree(p->transport, DP_OK, error));
  const exec_watch_options how = {.transport = p->transport, .program = program, .say = say, .end = end};
  return exec_watch_open(&how, &p->watch, error);
}

static uint32_t position(const void *pipeline) { return exec_pipeline_position(pipeline); }

void cli_processes_follow(cli_processes *p, exec_session *session) {
  if (session)
    exec_watch_follow(p->watch, position, exec_session_pipeline(session));
  else
    exec_watch_follow(p->watch, NULL, NULL);
}

void cli_processes_note(cli_processes *p, const exec_session *session) {
  exec_watch_step(p->watch, exec_session_done(session) + 1);
  if (exec_session_checkpoint(session)[0]) exec_watch_checkpoint(p->watch, exec_session_checkpoint(session));
}

void cli_processes_fail(cli_processes *p, dp_status status, const dp_error *error) {
  if (status != DP_OK) exec_watch_fail(p->watch, status, error->text);
}

void cli_processes_leave(exec_session *session, dp_status status, const dp_error *error) {
  if (status == DP_OK || exec_session_leave(session)) return;
  say(NULL, error->text);
  end(NULL, status);
}

dp_status cli_processes_end(cli_processes *p, dp_status status, dp_error *error) {
  if (p->ended) return status;
  p->ended = true;
  if (!p->agreed) status = exec_agree(p->transport, status, error);
  cli_processes_fail(p, status, error);
  /* said before the transport is freed, where all wait for all: mpirun ends the others when the first one leaves */
  if (status != DP_OK && p->transport && cli_processes_speak(p)) say(NULL, error->text);
  if (p->transport) p->transport->free(p->transport);
  exec_watch_close(p->watch);
  if (status != DP_OK && p->transport) end(NULL, status);
  return status;
}

void cli_processes_note_transport(const cli_processes *p, const plan_plan *plan) {
  const int workers = plan_worker_count(plan), processes = exec_process_count(p->transport);
  if (plan->transport_wanted != PLAN_TRANSPORT_NCCL || workers <= processes || !cli_processes_speak(p)) return;
  fprintf(stderr,
          "diffpipe: note: plan.transport is nccl, but %s share a process and copy: mpirun -np %d gives each its own\n",
          processes == 1 ? "all workers" : "some workers", workers);
}
