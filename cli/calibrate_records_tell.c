/* diffpipe calibrate --from records: what they told. */
#include <inttypes.h>
#include <stdio.h>

#include "base/schema.h"
#include "cli/calibrate_records.h"
#include "cli/calibrate_tell.h"
#include "cli/json.h"
#include "cli/profile_report.h"

static void cell_line(report_table *table, const prof_link_line *line) {
  char text[32];
  if (line->bytes_per_s > 0)
    report_table_cell(table, "%s, %.4g GB/s", dp_format_seconds(line->latency_s, text), line->bytes_per_s / 1e9);
  else if (line->latency_s > 0)
    report_table_cell(table, "%s", dp_format_seconds(line->latency_s, text));
  else
    report_table_cell(table, "-");
}

static void cell_share(report_table *table, bool known, double share) {
  if (known)
    report_table_cell(table, "%.1f %%", 100 * share);
  else
    report_table_cell(table, "-");
}

static void add_row(report_table *table, const prof_link *link, const char *name) {
  report_table_row(table, false);
  report_table_cell(table, "%s", name);
  report_table_cell(table, "%" PRIu64, link->count);
  report_table_cell(table, "%" PRIu64, link->alone);
  report_table_cell(table, "%" PRIu64, link->beside);
  report_table_cell(table, "%zu", link->points.count);
  cell_line(table, &link->line);
  cell_line(table, &link->beside_line);
  cell_share(table, link->aside > 0, link->error);
  cell_share(table, link->kernels > 0, link->slowdown);
  cell_share(table, link->runs_aside > 0, link->slowdown_error);
}

static dp_status print_table(const prof_links *links, dp_error *error) {
  static const char *const heads[] = {"messages",       "count", "alone",          "beside", "sizes", "alone",
                                      "beside compute", "error", "compute slower", "error",  NULL};
  report_table table = {.title = NULL};
  report_table_title(&table, "Messages alone and beside compute; errors are middles of those of what was kept aside");
  cli_columns(&table, heads);
  for (int way = 0; way < PROF_WAY_COUNT; way++)
    if (links->ways[way].count) add_row(&table, &links->ways[way], prof_way_names[way]);
  if (report_table_rows(&table) > 0) return cli_table_finish(&table, stdout, error);
  report_table_free(&table);
  return DP_OK;
}

static dp_status print(const cli_records_found *found, const plan_profile *profile, const char *path,
                       const char *scenario, dp_error *error) {
  const prof_links *links = &found->links;
  char text[32];
  printf("%s: links of %s, from records of %zu process%s on %d device%s (%s)\n\n", path, profile->device,
         found->processes, found->processes == 1 ? "" : "es", found->devices, found->devices == 1 ? "" : "s",
         found->device);
  DP_TRY(print_table(links, error));
  if (links->launch_s > 0)
    printf("a launch takes the host %s where it is not ahead (%" PRIu64 " of them; %" PRIu64
           " kept aside, off by %.1f %%)\n",
           dp_format_seconds(links->launch_s, text), links->launches, links->launches_aside, 100 * links->launch_error);
  if (found->peak_bytes > 0)
    printf("allocations of a device reached %s while it was recorded; contexts and libraries are not in them\n",
           dp_format_bytes((double)found->peak_bytes, text));
  if (found->lost > 0) printf("%" PRIu64 " records are missing\n", found->lost);
  if (links->ways[PROF_WAY_NCCL].count)
    printf("NCCL's kernels have no sizes in records: what its messages take is the catalogue's, or the profile's\n");
  printf("records do not say what kernels compute: %s\n",
         plan_profile_has_work(profile) ? "what work takes stays as the profile had it"
                                        : "there are no times of ops, and no efficiency; they are by the catalogue's "
                                          "curves");
  cli_calibrate_tell_next(path, scenario);
  return DP_OK;
}

static json_t *line_json(const prof_link_line *line) {
  return json_pack("{s:f, s:f}", "latency_s", line->latency_s, "bytes_per_s", line->bytes_per_s);
}

static json_t *way_json(const prof_link *link, const char *name) {
  json_t *row = json_pack("{s:s, s:I, s:I, s:I, s:I, s:b, s:f, s:I, s:f, s:I, s:I, s:I, s:f}", "way", name, "messages",
                          (json_int_t)link->count, "alone", (json_int_t)link->alone, "beside", (json_int_t)link->beside,
                          "sizes", (json_int_t)link->points.count, "beside_known", (int)link->beside_known, "error",
                          link->error, "kept_aside", (json_int_t)link->aside, "slowdown", link->slowdown, "kernels",
                          (json_int_t)link->kernels, "kernel_runs", (json_int_t)link->runs, "kernel_runs_aside",
                          (json_int_t)link->runs_aside, "slowdown_error", link->slowdown_error);
  if (row && cli_json_put(row, "line", line_json(&link->line)) &&
      cli_json_put(row, "beside_line", line_json(&link->beside_line)))
    return row;
  json_decref(row);
  return NULL;
}

static dp_status print_json(const cli_records_found *found, const plan_profile *profile, const char *path,
                            dp_error *error) {
  const prof_links *links = &found->links;
  json_t *root =
      json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:f, s:I, s:f, s:I, s:[]}", "profile", cli_json_text(path),
                "device", profile->device, "processor", found->device, "devices", (json_int_t)found->devices,
                "processes", (json_int_t)found->processes, "lost", (json_int_t)found->lost, "peak_bytes",
                (json_int_t)found->peak_bytes, "has_work", (int)plan_profile_has_work(profile), "launch_s",
                links->launch_s, "launches", (json_int_t)links->launches, "launch_error", links->launch_error,
                "launches_aside", (json_int_t)links->launches_aside, "ways");
  bool done = root != NULL;
  for (int way = 0; done && way < PROF_WAY_COUNT; way++)
    if (links->ways[way].count)
      done =
          json_array_append_new(json_object_get(root, "ways"), way_json(&links->ways[way], prof_way_names[way])) == 0;
  const dp_status status = done ? cli_json_print(root, error) : dp_fail_memory(error);
  json_decref(root);
  return status;
}

dp_status cli_calibrate_tell_records(const cli_records_found *found, const plan_profile *profile, const char *path,
                                     const char *scenario, bool json, dp_error *error) {
  return json ? print_json(found, profile, path, error) : print(found, profile, path, scenario, error);
}
