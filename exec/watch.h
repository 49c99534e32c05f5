/* The watch over the processes of a run: a process that dies or hangs ends the run everywhere within seconds, and so
 * does one that fails; one of them says why, in one line.
 *
 * Every two processes hold a TCP connection, apart from the transport, and a thread of each tells the others ten times
 * a second that it is alive, at which step, and which instruction it began last. The system closes the connections of a
 * process that dies, however it does; one that is stopped, or whose host or network is gone, falls silent. Whoever was
 * itself stopped for a while forgives the silence that it slept through.
 *
 * When a process is lost, or calls exec_watch_fail, then within 1.5 s of its being noticed: the transport's calls fail
 * everywhere (exec_transport.lost), the lowest process that lives says the line, and all end. A loss is told before
 * failures, which may have come of it; else the failure that was heard of first is.
 *
 * mpirun notices a process that dies, too: after 1 s it sends SIGTERM to the others, and SIGKILL a second later. So
 * `end` ends its process at once: nothing is lost by it, for files are written beside and renamed. A handler of SIGTERM
 * that only asks for the end after this step agrees with that: the step does not end.
 *
 * All functions are fine with NULL, the watch of a run that is one process.
 */
#ifndef DP_EXEC_WATCH_H
#define DP_EXEC_WATCH_H

#include "exec/transport.h"
#include "plan/program.h"

typedef struct exec_watch_options {
  /* Used by exec_watch_open alone, but for `lost`, which it sets. NULL, or of one process: there is nothing to watch.
   */
  exec_transport *transport;
  /* Tells which workers a process has (in equal runs, as exec_pipeline deals them out) and what an instruction is. It
   * outlives the watch; NULL: the line tells of processes alone. */
  const plan_program *program;
  double silence_s; /* after which a process is given up; 0: DIFFPIPE_SILENCE_S of the environment, else 5 */
  /* Both are called by the watch's own thread, once. say: of one process, with the line, before any other process hears
   * that the run has ended: what mpirun does when the first of them leaves would be too late for it. end: of every
   * process, which is then to end with dp_exit_status(status), by _exit; it need not return. */
  void (*say)(void *data, const char *line);
  void (*end)(void *data, dp_status status);
  void *data;
} exec_watch_options;

typedef struct exec_watch exec_watch;

/* Every process calls it, before a thread uses the transport. DP_RUN_FAILED: a process cannot be reached. */
dp_status exec_watch_open(const exec_watch_options *options, exec_watch **watch, dp_error *error);
/* At a clean end, after the transport was freed. The others then do not take this process's end for a loss. When the
 * run has been lost before, `end` comes first. */
void exec_watch_close(exec_watch *watch);

/* ---- what this process is doing: for the line, when it is lost ---- */

void exec_watch_step(exec_watch *watch, int64_t step); /* under way, from 1 */
/* Asked from the watch's thread for the id of the instruction begun last (exec_pipeline_position); NULL: no more, and
 * it is not being called when this returns. */
void exec_watch_follow(exec_watch *watch, uint32_t (*position)(const void *data), const void *data);
void exec_watch_checkpoint(exec_watch *watch, const char *path); /* the last good one; copied, cut at 1000 bytes */

/* ---- the end ---- */

/* Whether a process is lost or has failed. */
bool exec_watch_lost(const exec_watch *watch);
/* Ends the run with this process's failure. Returns when `end` has returned; with NULL at once. */
void exec_watch_fail(exec_watch *watch, dp_status status, const char *line);

#endif
