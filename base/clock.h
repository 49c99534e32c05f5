/* Time that only goes forward. */
#ifndef DP_BASE_CLOCK_H
#define DP_BASE_CLOCK_H

/* Seconds since some fixed moment before the program began; safe to call from several threads. */
double dp_clock_s(void);
/* Sleeps for about so long; a signal may wake it. */
void dp_sleep_s(double seconds);
/* The calling thread is woken within a microsecond of when it is due. Linux may wake a thread 50 us late else, to wake
 * others with it: more than a short message takes. Where the system knows no such thing, nothing. */
void dp_wake_in_time(void);

#endif
