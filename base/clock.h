/* Time that only goes forward. */
#ifndef DP_BASE_CLOCK_H
#define DP_BASE_CLOCK_H

/* Seconds since some fixed moment before the program began; safe to call from several threads. */
double dp_clock_s(void);
/* Sleeps for about so long; a signal may wake it. */
void dp_sleep_s(double seconds);

#endif
