/* Processes on one or several hosts, as mpirun or srun started them: the `mpi` transport.
 *
 * One thread at a time calls MPI, and one of those that wait tests the messages of all: the others sleep until theirs
 * is done. So waiting costs one wake-up a process, not one a lane, and MPI_THREAD_SERIALIZED is enough. Sends are
 * synchronous (MPI_Issend): they return when the receiver has begun to receive. Large messages go in pieces of 1 GiB.
 *
 * MPI by itself does not notice a process that died or hangs: exec/watch.h does.
 */
#ifndef DP_EXEC_TRANSPORT_MPI_H
#define DP_EXEC_TRANSPORT_MPI_H

#include "exec/transport.h"

/* How many processes mpirun or srun started together with this one, as their environment tells (OMPI_COMM_WORLD_SIZE of
 * Open MPI, PMI_SIZE of MPICH, SLURM_STEP_NUM_TASKS of srun); 1: none. */
int exec_mpi_launched(void);

/* MPI's start waits for every process for ever. Called once, by a thread of its own, when it has taken DIFFPIPE_START_S of
 * the environment, else 120 s: to end the process, for nothing else does. */
typedef void exec_mpi_late(int launched, double waited_s);

/* A NULL transport, and MPI is left alone, where exec_mpi_launched() is 1. Otherwise initialises MPI and measures the clock:
 * every process calls it, once, and before it starts threads that expect signals. late: NULL: nobody looks at the clock.
 * DP_UNSUPPORTED: this build has no MPI; this MPI is not the one of the launcher, knows no threads, or too few tags; srun
 * was not asked for PMI.
 *
 * DIFFPIPE_MPI_SPIN=1 in the environment: who waits does not sleep. Right where each lane has a processor of its own.
 *
 * Its `free` finalises MPI, for which it waits for all processes. After a failure it leaves MPI as it is, for
 * MPI_Finalize would wait for ever: the process then ends by _exit. A send that was given up may still read its buffer,
 * and no call succeeds any more; a receive that was given up is forgotten, if its message had not begun to come. */
dp_status exec_transport_open_mpi(exec_transport **transport, exec_mpi_late *late, dp_error *error);

#endif
