/* What this machine says of its GPUs: through NVML, the driver's own library, which is loaded when it is asked for, and
 * of its processors and its name through the system. No build needs NVML or CUDA for it.
 */
#ifndef DP_EXEC_MACHINE_H
#define DP_EXEC_MACHINE_H

#include "plan/machine.h"

/* All in the arena. Every GPU of the machine, whatever CUDA_VISIBLE_DEVICES says. What the driver does not tell is
 * unknown; DP_UNSUPPORTED where there is no driver, or none that answers. */
dp_status exec_machine_read(dp_arena *arena, plan_machine *machine, dp_error *error);
/* At which its multiprocessors run just now; 0: not known. */
double exec_machine_clock_hz(int gpu);

#endif
