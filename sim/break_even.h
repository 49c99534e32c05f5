/* When does buying pay? All figures at the plans found, at full load for `utilisation` of the month.
 *
 * The bought machine makes S = throughput * hours_per_month * 3600 s * utilisation samples a month and its power costs
 * p = joules_per_sample / 3.6e6 * usd_per_kwh a sample (idle power, room, people, interest and resale are not counted).
 *
 * Against renting, where a sample costs r = price_usd_per_h / 3600 / throughput of the rented machine (it is rented for
 * as long as the same samples take it): months = purchase / (S * (r - p)),  never when r <= p.
 *
 * Against buying the reference, of which the same samples need n = throughput / throughput of the reference machines,
 * with P its price and q its power a sample: the extra price is E = purchase - n * P, the monthly saving M = S * (q -
 * p); E > 0, M > 0: after E / M months;  E > 0, M <= 0: never;  E <= 0: from the first day, and with M < 0 only for the
 *   first E / M months.
 */
#ifndef DP_SIM_BREAK_EVEN_H
#define DP_SIM_BREAK_EVEN_H

#include <stdbool.h>

/* One machine with its best plan; 0: unknown. */
typedef struct sim_price {
  const char *name; /* borrowed */
  bool fits;
  double throughput_samples_per_s, joules_per_sample, price_usd_per_h, purchase_usd;
} sim_price;

typedef struct sim_terms {
  double usd_per_kwh, hours_per_month, utilisation;
} sim_terms;

typedef enum sim_pays {
  SIM_PAYS_UNKNOWN, /* a price is not known, or nothing fits */
  SIM_PAYS_NEVER,
  SIM_PAYS_AFTER,   /* `months` */
  SIM_PAYS_AT_ONCE, /* from the first day */
  SIM_PAYS_UNTIL    /* from the first day, for `months` */
} sim_pays;
extern const char *const sim_pays_names[]; /* "unknown", "never", "after", "at once", "until", NULL */

typedef struct sim_break_even {
  sim_pays pays;
  double months;
  char why[320]; /* one sentence with the figures */
} sim_break_even;

sim_break_even sim_break_even_rent(const sim_price *bought, const sim_price *rented, const sim_terms *terms);
sim_break_even sim_break_even_purchase(const sim_price *bought, const sim_price *reference, const sim_terms *terms);

#endif
