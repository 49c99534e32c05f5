/* The processes of a run, as mpirun or srun started them; without these it is one, and all of this does nothing.
 *
 * Up to cli_processes_ready a failure of one of them is agreed upon, so that all end alike and one speaks. From there
 * on the watch (exec/watch.h) ends all when one is lost or fails, and says its line.
 */
#ifndef DP_CLI_RUN_PROCESSES_H
#define DP_CLI_RUN_PROCESSES_H

#include "exec/session.h"
#include "exec/watch.h"

typedef struct cli_processes {
  exec_transport *transport; /* NULL: one process */
  exec_watch *watch;
  bool agreed, ended;
} cli_processes;

/* Before anything that can fail in one process alone. */
dp_status cli_processes_begin(cli_processes *processes, dp_error *error);
/* Process 0 writes and talks. */
bool cli_processes_speak(const cli_processes *processes);
/* A note where the plan wants NCCL between workers that share a process, and so copy. */
void cli_processes_note_transport(const cli_processes *processes, const plan_plan *plan);
/* All are here and well: from now on they are watched. The program outlives this. */
dp_status cli_processes_ready(cli_processes *processes, const plan_program *program, dp_error *error);
/* Where the run is: for the line, when a process is lost. NULL: the session goes. */
void cli_processes_follow(cli_processes *processes, exec_session *session);
/* Before a step, and after a checkpoint. */
void cli_processes_note(cli_processes *processes, const exec_session *session);
/* Nothing where all is well. A failure of processes that are watched is told by one of them, and this one ends here:
 * before buffers go that MPI may still use, of messages that were given up. */
void cli_processes_fail(cli_processes *processes, dp_status status, const dp_error *error);
/* A failure of a run of one process: where a device that hangs keeps something of the run, its line is said and the
 * process ends here, since freeing it would wait for the device. */
void cli_processes_leave(exec_session *session, dp_status status, const dp_error *error);
/* The end, whatever the status; the first call counts. A failure is told by one process, and all end here. Called while
 * the program is there: the watch's thread may be asking it what an instruction is. */
dp_status cli_processes_end(cli_processes *processes, dp_status status, dp_error *error);

#endif
