/* Conditions of threads whose waits may end in time, by the clock of base/clock.h. */
#ifndef DP_BASE_CONDITION_H
#define DP_BASE_CONDITION_H

#include <pthread.h>

#include "base/status.h"

/* To be destroyed by pthread_cond_destroy. DP_UNSUPPORTED: the system gives no more. */
dp_status dp_condition_init(pthread_cond_t *condition, dp_error *error);
/* Ends when the condition is signalled, or soon after so many seconds. */
void dp_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, double seconds);

#endif
