/* Measured timelines made from predicted ones by known distortions, without the code that is tested: what each
 * instruction takes is changed, and the ends follow by relaxation until nothing moves any more. */
#ifndef DP_TESTS_COMPARE_WORLD_H
#define DP_TESTS_COMPARE_WORLD_H

#include "plan/timeline.h"

/* What is done to an instruction. Pairs and groups: what is given for the SEND, or for the group's first member, is
 * done to all of it. */
typedef struct distortion {
  double factor;  /* of its length */
  double delay_s; /* it starts so much later than it could */
} distortion;

/* Of a whole backward, or of a part of one. */
bool is_backward(int opcode);

/* `distort` is asked for each instruction, a SEND before its RECV counts. The result is for plan_timeline_free. Ends
 * the program when the host has no memory. */
void distorted_timeline(const plan_timeline *predicted, void (*distort)(const void *how, uint32_t id, distortion *what),
                        const void *how, plan_timeline *measured);

#endif
