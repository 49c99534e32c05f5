/* The end of records that are being written: what a live view reads again and again.
 *
 * Each reading goes on where the last one stopped, so a long run costs no more than what it wrote since. Of each
 * process the newest files' last records are kept: of each file as many bytes as were asked for and at most half as many
 * more, and of an older one only while nothing of the newer one was dropped, so that there is no hole. Strings, devices
 * and clocks of these files all stay. Memory of devices is summed over all records that were read, which are all but
 * those in files that were removed before.
 */
#ifndef DP_PROFILER_TAIL_H
#define DP_PROFILER_TAIL_H

#include "profiler/session.h"

typedef struct prof_tail prof_tail;

/* `bytes`: of records of each process. The folder may be empty yet. */
dp_status prof_tail_open(const char *folder, size_t bytes, prof_tail **tail, dp_error *error);
void prof_tail_free(prof_tail *tail); /* safe on NULL */

/* Reads what is new and gives the last records, finished, to a session that the caller frees; without any file it has
 * no process. Errors are those of prof_session_read; after one the tail can only be freed. */
dp_status prof_tail_read(prof_tail *tail, prof_session *session, dp_error *error);

/* Bytes of a device that a process of the last session has allocated. */
int64_t prof_tail_memory(const prof_tail *tail, const prof_header *process, uint16_t device);

#endif
