/* The style sheet of the page, a line an entry, NULL at the end. */
#ifndef DP_REPORTS_STYLE_H
#define DP_REPORTS_STYLE_H

#include <stddef.h>

extern const char *const report_style[];

#endif
