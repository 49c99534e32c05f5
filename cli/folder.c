#include "cli/folder.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

const char *cli_folder_gnuplot(void) {
  const char *given = getenv("GNUPLOT");
  if (given && *given) return given;
#ifdef DP_GNUPLOT
  return DP_GNUPLOT;
#else
  return "gnuplot";
#endif
}

void cli_folder_run(const plan_scenario *scenario, const sim_prediction *prediction, const cli_values *values,
                    report_bound bounds[SIM_MAX_BOUNDS], report_run *run) {
  for (int b = 0; b < prediction->bound_count; b++)
    bounds[b] = (report_bound){prediction->bounds[b].name, prediction->bounds[b].share};
  *run = (report_run){.name = scenario->name,
                      .origin = "predicted",
                      .scenario_file = values->arguments[0],
                      .assignments = values->sets,
                      .assignment_count = values->set_count,
                      .graph = &prediction->graph,
                      .cluster = &scenario->cluster,
                      .program = &prediction->program,
                      .timeline = &prediction->timeline,
                      .metrics = &prediction->metrics,
                      .memory = &prediction->memory,
                      .memory_limit_bytes = prediction->memory_limit_bytes,
                      .fits = prediction->fits,
                      .tightest_worker = prediction->tightest_worker,
                      .bounds = bounds,
                      .bound_count = prediction->bound_count,
                      .error_band = prediction->error_band,
                      .usd_per_million_samples = prediction->usd_per_million_samples,
                      .joules_per_sample = prediction->joules_per_sample,
                      .job_steps = scenario->training ? scenario->steps : 0};
}

dp_status cli_folder_write(const report_run *run, const json_t *tune, const char *folder, bool plots, dp_error *error) {
  dp_str notes = {0};
  const report_options how = {.gnuplot = plots ? cli_folder_gnuplot() : NULL, .tune = tune};
  const dp_status status = report_folder_write(run, folder, &how, &notes, error);
  if (status == DP_OK && plots && notes.length) fprintf(stderr, "diffpipe: note: %s", dp_str_text(&notes));
  dp_str_free(&notes);
  if (status == DP_OK)
    fprintf(stderr, "diffpipe: wrote %s: report.html, timeline.json (for Perfetto), metrics.json, plan.json%s\n",
            folder, tune ? ", tune.json" : "");
  return status;
}
