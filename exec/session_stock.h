/* What of a session lasts: every trained array by its name in diffusers, of each worker those that it has. A checkpoint
 * on disk and one in memory are both made of it; internal to exec/.
 */
#ifndef DP_EXEC_SESSION_STOCK_H
#define DP_EXEC_SESSION_STOCK_H

#include "exec/checkpoint.h"
#include "exec/session_parts.h"

/* An array: a weight, or factor a or b of an op's adapter, or the end of a compressed skip. */
typedef struct exec_stock_item {
  int kind, weight; /* kind: of its array; weight -1: a factor or an end */
  int64_t at;       /* of those: in the arrays */
} exec_stock_item;

typedef struct exec_stock {
  exec_session *session;
  int worker;
  exec_checkpoint_array *arrays; /* names and shapes; no values */
  exec_stock_item *items;
  size_t count;
  int64_t largest; /* floats */
} exec_stock;

int64_t exec_stock_floats(const exec_checkpoint_array *array);
/* Of a worker that is here. */
dp_status exec_stock_take(exec_session *session, int worker, dp_arena *arena, exec_stock *stock, dp_error *error);
/* The values of one of its arrays, in the layout of files. */
dp_status exec_stock_read(const exec_stock *stock, size_t index, float *out, dp_error *error);
dp_status exec_stock_write(const exec_stock *stock, size_t index, const float *values, dp_error *error);

#endif
