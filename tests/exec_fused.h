/* The CPU's arithmetic with what a device that fuses does in one call, made of the CPU's ops one after another: what
 * groups of actions read, write and leave out is as on such a device, and every bit as if each action ran by itself. */
#ifndef DP_TESTS_EXEC_FUSED_H
#define DP_TESTS_EXEC_FUSED_H

#include "exec/fusion.h"

/* It can overwrite gradients of weights, too. Not from several threads. */
const exec_math *exec_math_fused(void);

#endif
