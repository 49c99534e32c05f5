#include "cli/folder.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cli/json.h"
#include "sim/assumptions.h"

const char *cli_folder_gnuplot(void) {
  const char *given = getenv("GNUPLOT");
  if (given && *given) return given;
#ifdef DP_GNUPLOT
  return DP_GNUPLOT;
#else
  return "gnuplot";
#endif
}

static dp_status add_assumptions(const plan_scenario *scenario, const sim_efficiency *efficiency,
                                 const sim_prediction *prediction, cli_folder_view *view, dp_error *error) {
  const sim_assumption *rows = NULL;
  int count = 0;
  DP_TRY(sim_assumptions_of(scenario, efficiency, prediction, &view->arena, &rows, &count, error));
  report_assumption *made = DP_ARENA_NEW(&view->arena, report_assumption, (size_t)count);
  if (!made) return dp_fail_memory(error);
  for (int i = 0; i < count; i++)
    made[i] = (report_assumption){rows[i].what, rows[i].value, rows[i].source, rows[i].error_band};
  view->run.assumptions = made;
  view->run.assumption_count = count;
  return DP_OK;
}

dp_status cli_folder_view_of(const plan_scenario *scenario, const sim_efficiency *efficiency,
                             const sim_prediction *prediction, const cli_values *values, cli_folder_view *view,
                             dp_error *error) {
  *view = (cli_folder_view){0};
  for (int b = 0; b < prediction->bound_count; b++)
    view->bounds[b] = (report_bound){prediction->bounds[b].name, prediction->bounds[b].share};
  view->run = (report_run){.name = scenario->name,
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
                           .bounds = view->bounds,
                           .bound_count = prediction->bound_count,
                           .error_band = prediction->error_band,
                           .usd_per_million_samples = prediction->usd_per_million_samples,
                           .joules_per_sample = prediction->joules_per_sample,
                           .job_steps = scenario->training ? scenario->steps : 0};
  const dp_status status = add_assumptions(scenario, efficiency, prediction, view, error);
  if (status != DP_OK) cli_folder_view_free(view);
  return status;
}

void cli_folder_view_free(cli_folder_view *view) {
  dp_arena_free(&view->arena);
  *view = (cli_folder_view){0};
}

dp_status cli_folder_check(const cli_values *values, const char *command, int out, int no_plots, dp_error *error) {
  if (values->slots[out].given && !values->slots[out].string[0])
    return dp_fail(error, DP_BAD_INPUT, "%s: --out: found \"\", allowed: a folder", command);
  if (values->slots[no_plots].given && !values->slots[out].given)
    return dp_fail(error, DP_BAD_INPUT, "%s: found --no-plots, allowed: only with --out DIR", command);
  return DP_OK;
}

json_t *cli_folder_assumptions(const report_run *run) {
  json_t *list = json_array();
  bool done = list != NULL;
  for (int i = 0; done && i < run->assumption_count; i++) {
    const report_assumption *row = &run->assumptions[i];
    json_t *object = json_object();
    done = json_array_append_new(list, object) == 0 && cli_json_put(object, "what", json_string(row->what)) &&
           cli_json_put(object, "value", json_string(row->value)) &&
           cli_json_put(object, "source", json_string(row->source)) &&
           cli_json_put(object, "error_band", row->error_band > 0 ? json_real(row->error_band) : json_null());
  }
  if (done) return list;
  json_decref(list);
  return NULL;
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
