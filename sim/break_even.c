#include "sim/break_even.h"

#include <stdarg.h>
#include <stdio.h>

const char *const sim_pays_names[] = {"unknown", "never", "after", "at once", "until", (const char *)0};

#define JOULES_PER_KWH 3.6e6

static double samples_per_month(const sim_price *machine, const sim_terms *terms) {
  return machine->throughput_samples_per_s * terms->hours_per_month * 3600 * terms->utilisation;
}

static double power_usd(const sim_price *machine, const sim_terms *terms) { /* of a sample */
  return machine->joules_per_sample / JOULES_PER_KWH * terms->usd_per_kwh;
}

static sim_break_even answer(sim_pays pays, double months, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static sim_break_even answer(sim_pays pays, double months, const char *format, ...) {
  sim_break_even out = {.pays = pays, .months = months};
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(out.why, sizeof out.why, format, arguments);
  va_end(arguments);
  return out;
}

/* Whether the machines can be weighed at all; `out` says why not. */
static bool is_known(const sim_price *bought, const sim_price *other, sim_break_even *out) {
  const sim_price *const both[] = {bought, other};
  for (int i = 0; i < 2; i++)
    if (!both[i]->fits || both[i]->throughput_samples_per_s <= 0) {
      *out = answer(SIM_PAYS_UNKNOWN, 0, "no plan fits %.60s", both[i]->name);
      return false;
    }
  if (bought->purchase_usd > 0) return true;
  *out = answer(SIM_PAYS_UNKNOWN, 0, "what %.60s costs to buy is not known: purchase_usd of its cluster file",
                bought->name);
  return false;
}

sim_break_even sim_break_even_rent(const sim_price *bought, const sim_price *rented, const sim_terms *terms) {
  sim_break_even out;
  if (!is_known(bought, rented, &out)) return out;
  if (rented->price_usd_per_h <= 0)
    return answer(SIM_PAYS_UNKNOWN, 0, "what %.60s costs to rent is not known: price_usd_per_h of its cluster file",
                  rented->name);
  const double rent = rented->price_usd_per_h / 3600 / rented->throughput_samples_per_s;
  const double power = power_usd(bought, terms);
  if (rent <= power)
    return answer(SIM_PAYS_NEVER, 0, "renting %.60s costs %.4g USD per million samples, the power of %.60s alone %.4g",
                  rented->name, rent * 1e6, bought->name, power * 1e6);
  return answer(SIM_PAYS_AFTER, bought->purchase_usd / (samples_per_month(bought, terms) * (rent - power)),
                "%.60s costs %.0f USD and %.4g of power per million samples, renting %.60s %.4g", bought->name,
                bought->purchase_usd, power * 1e6, rented->name, rent * 1e6);
}

sim_break_even sim_break_even_purchase(const sim_price *bought, const sim_price *reference, const sim_terms *terms) {
  sim_break_even out;
  if (!is_known(bought, reference, &out)) return out;
  if (reference->purchase_usd <= 0)
    return answer(SIM_PAYS_UNKNOWN, 0, "what %.60s costs to buy is not known: purchase_usd of its cluster file",
                  reference->name);
  const double machines = bought->throughput_samples_per_s / reference->throughput_samples_per_s;
  const double extra = bought->purchase_usd - machines * reference->purchase_usd;
  const double power = power_usd(bought, terms), other = power_usd(reference, terms);
  const double saved = samples_per_month(bought, terms) * (other - power);
  char prices[200];
  (void)snprintf(prices, sizeof prices, "%.0f USD against %.0f for %.3g of %.60s, power %.4g against %.4g",
                 bought->purchase_usd, machines * reference->purchase_usd, machines, reference->name, power * 1e6,
                 other * 1e6);
  if (extra > 0 && saved <= 0)
    return answer(SIM_PAYS_NEVER, 0, "it costs more and needs no less power: %s USD per million samples", prices);
  if (extra > 0) return answer(SIM_PAYS_AFTER, extra / saved, "%s USD per million samples", prices);
  if (saved >= 0) return answer(SIM_PAYS_AT_ONCE, 0, "%s USD per million samples", prices);
  return answer(SIM_PAYS_UNTIL, extra / saved, "its power then has cost the difference: %s USD per million samples",
                prices);
}
