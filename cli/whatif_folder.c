/* The folder that `diffpipe whatif --out` fills. */
#include "base/file.h"
#include "cli/folder.h"
#include "cli/whatif.h"
#include "reports/json.h"
#include "reports/plot_whatif.h"

static dp_status write_csv(const cli_whatif_answer *answer, const char *path, dp_error *error) {
  dp_output output;
  DP_TRY(dp_output_open(path, &output, error));
  cli_whatif_csv(answer, output.stream);
  return dp_output_commit(&output, error);
}

/* ---- the figures of the plots ---- */

static void take_row(const sim_hardware *h, report_whatif_row *row) {
  *row = (report_whatif_row){.cluster = h->scenario.cluster.name,
                             .fits = h->fits,
                             .measured = h->measured,
                             .samples_per_s = h->fits ? h->best.throughput_samples_per_s : 0,
                             .usd_per_million = h->fits ? h->best.usd_per_million_samples : 0};
  for (int r = 0; r < SIM_RESOURCE_COUNT; r++) row->gain[r] = h->gain[r];
}

static dp_status take_sweep(const sim_whatif_result *result, const sim_sweep_result *swept, dp_arena *arena,
                            report_whatif_sweep *out, dp_error *error) {
  const sim_sweep *sweep = swept->sweep;
  const size_t count = (size_t)result->row_count * (size_t)sweep->count;
  report_whatif_point *points = DP_ARENA_NEW(arena, report_whatif_point, count);
  const char **values = DP_ARENA_NEW(arena, const char *, (size_t)sweep->count);
  if (!points || !values) return dp_fail_memory(error);
  for (int v = 0; v < sweep->count; v++) values[v] = sweep->values[v].text;
  for (size_t i = 0; i < count; i++) {
    const sim_sweep_point *from = &swept->points[i];
    char plan[128];
    points[i] = (report_whatif_point){.number = sweep->values[i % (size_t)sweep->count].number,
                                      .known = from->done,
                                      .fits = from->fits,
                                      .changed = from->changed,
                                      .samples_per_s = from->fits ? from->trial.throughput_samples_per_s : 0};
    points[i].plan = from->found ? dp_arena_strdup(arena, sim_candidate_brief(&from->trial.candidate, plan)) : "";
    if (!points[i].plan) return dp_fail_memory(error);
  }
  *out = (report_whatif_sweep){.key = sweep->key,
                               .numeric = sweep->numeric,
                               .logarithmic = sweep->logarithmic,
                               .values = values,
                               .value_count = sweep->count,
                               .points = points};
  return DP_OK;
}

static dp_status take(const cli_whatif_answer *answer, dp_arena *arena, report_whatif *out, dp_error *error) {
  const sim_whatif_result *result = answer->result;
  report_whatif_row *rows = DP_ARENA_NEW(arena, report_whatif_row, (size_t)result->row_count);
  report_whatif_sweep *sweeps = DP_ARENA_NEW(arena, report_whatif_sweep, (size_t)result->sweep_count);
  if (!rows || !sweeps) return dp_fail_memory(error);
  for (int r = 0; r < result->row_count; r++) take_row(&result->rows[r], &rows[r]);
  for (int s = 0; s < result->sweep_count; s++)
    DP_TRY(take_sweep(result, &result->sweeps[s], arena, &sweeps[s], error));
  *out = (report_whatif){.scenario = answer->scenario,
                         .global_batch = answer->global_batch,
                         .rows = rows,
                         .row_count = result->row_count,
                         .resources = sim_resource_names,
                         .resource_count = SIM_RESOURCE_COUNT,
                         .sweeps = sweeps,
                         .sweep_count = result->sweep_count};
  return DP_OK;
}

static dp_status write_all(const cli_whatif_answer *answer, const json_t *json, const char *folder, bool plots,
                           dp_arena *arena, dp_str *notes, dp_error *error) {
  const char *json_path = dp_arena_printf(arena, "%s/whatif.json", folder);
  const char *csv_path = dp_arena_printf(arena, "%s/whatif.csv", folder);
  const char *plots_path = dp_arena_printf(arena, "%s/plots", folder);
  report_whatif figures;
  if (!json_path || !csv_path || !plots_path) return dp_fail_memory(error);
  DP_TRY(take(answer, arena, &figures, error));
  DP_TRY(dp_folder_make(plots_path, error));
  DP_TRY(report_json_write(json, json_path, error));
  DP_TRY(write_csv(answer, csv_path, error));
  DP_TRY(report_whatif_plots_write(&figures, folder, plots ? cli_folder_gnuplot() : NULL, notes, error));
  return notes->failed ? dp_fail_memory(error) : DP_OK;
}

dp_status cli_whatif_folder(const cli_whatif_answer *answer, const json_t *json, const char *folder, bool plots,
                            dp_error *error) {
  dp_arena arena = {0};
  dp_str notes = {0};
  const dp_status status = write_all(answer, json, folder, plots, &arena, &notes, error);
  if (status == DP_OK && plots && notes.length) fprintf(stderr, "diffpipe: note: %s", dp_str_text(&notes));
  if (status == DP_OK)
    fprintf(stderr, "diffpipe: wrote %s: whatif.json, whatif.csv, plots/*.gp and *.tsv%s\n", folder,
            plots && !notes.length ? ", plots as SVG and PNG" : "");
  dp_str_free(&notes);
  dp_arena_free(&arena);
  return status;
}
