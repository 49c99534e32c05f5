/* Which algorithm was found to be the fastest for each problem on each device, and the file that keeps it
 * (algorithms.json): so workers with equal problems on equal devices take the same, a resumed run has the bits of one
 * that went on, and a second start times nothing.
 *
 * Devices, problems and algorithms are texts that who times makes (kernels/cuda/memory.h); here they are compared,
 * no more. A device's text tells the libraries' versions, too: with others nothing is known of it.
 */
#ifndef DP_EXEC_ALGORITHMS_H
#define DP_EXEC_ALGORITHMS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"
#include "exec/transport.h"
#include "plan/describe.h"

typedef struct exec_algorithms exec_algorithms;

dp_status exec_algorithms_create(exec_algorithms **algorithms, dp_error *error);
void exec_algorithms_free(exec_algorithms *algorithms); /* NULL is fine */

/* ---- while problems are met; from any thread ---- */

/* NULL: none is known. The text stays until exec_algorithms_free. */
const char *exec_algorithms_find(exec_algorithms *algorithms, const char *device, const char *problem);
/* In the place of one that was known. Where there is no memory it is not kept. */
void exec_algorithms_keep(exec_algorithms *algorithms, const char *device, const char *problem, const char *algorithm);

/* ---- files, and other processes; from one thread ---- */

/* Adds what a file has and is not known yet; a file that is not there has nothing. `own`: they are this run's, and so
 * written by exec_algorithms_text though no worker asks for them. DP_BAD_INPUT, one line with file, line and key. */
dp_status exec_algorithms_read(exec_algorithms *algorithms, const char *path, bool own, dp_error *error);
dp_status exec_algorithms_parse(exec_algorithms *algorithms, const char *text, size_t length, const char *name,
                                bool own, dp_error *error);
/* Appends the text of a file: of all that is known, or of what this run has asked for, kept or called its own. */
dp_status exec_algorithms_text(const exec_algorithms *algorithms, bool all, dp_str *text, dp_error *error);
/* Written beside and renamed. */
dp_status exec_algorithms_write(const exec_algorithms *algorithms, const char *path, dp_error *error);
/* Into a file that other runs may use: what is there by now stays, all that is known here is added. */
dp_status exec_algorithms_add_to(exec_algorithms *algorithms, const char *path, dp_error *error);

/* Every process calls it: all then have what the first that met a problem found. `changed`: some of it is not what this
 * process found, so its workers must take the others'. */
dp_status exec_algorithms_agree(exec_algorithms *algorithms, exec_transport *transport, bool *changed, dp_error *error);

/* Adds a line when what was read is of other devices or libraries alone, and one for those that had to be timed again.
 */
void exec_algorithms_note(const exec_algorithms *algorithms, dp_str *lines);

/* The keys, for `diffpipe formats`. */
size_t exec_algorithms_tables(const plan_key_table **tables);

#endif
