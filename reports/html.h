/* report.html: one page without any reference to the network or to other files. */
#ifndef DP_REPORTS_HTML_H
#define DP_REPORTS_HTML_H

#include "reports/report.h"

/* `svg_folder`: where the plots' SVGs lie, to be put into the page; NULL: no plots. */
dp_status report_html_write(const report_run *run, const char *svg_folder, const char *path, dp_error *error);

#endif
