/* Units in sentences and tables: what they mostly are, and which of them took longer than predicted. */
#ifndef DP_REPORTS_UNITS_H
#define DP_REPORTS_UNITS_H

#include "plan/compare.h"
#include "reports/report.h"

/* The class of ops with most forward FLOPs: "convolution", ...; NULL where no op counts any. */
const char *report_unit_class(const graph *model, size_t unit);

/* Where times of units are compared: appends "; most of it in UNIT (class), 3.1 ms against 2.0 ms", or how the classes
 * differ. Of the units of the workers that have a flag, in the direction of an opcode. */
void report_slow_units(const report_pair *pair, const plan_comparison *comparison, int opcode, const uint8_t *workers,
                       dp_str *out);

#endif
