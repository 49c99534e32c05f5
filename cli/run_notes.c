#include "cli/run_notes.h"

#include <stdio.h>
#include <string.h>

#include "exec/machine.h"
#include "exec/measure.h"

void cli_run_note_lines(const dp_str *lines) {
  for (const char *line = dp_str_text(lines), *end; (end = strchr(line, '\n')); line = end + 1)
    fprintf(stderr, "diffpipe: note: %.*s\n", (int)(end - line), line);
}

dp_status cli_run_note_differences(const cli_run_source *source, const plan_scenario *scenario,
                                   const sim_prediction *prediction, bool silent, dp_error *error) {
  dp_str lines = {0};
  const dp_status status = cli_run_differences(source, prediction, &scenario->cluster, &lines, error);
  if (status == DP_OK && !silent) cli_run_note_lines(&lines);
  dp_str_free(&lines);
  return status;
}

/* A profile of a GPU by another driver, or of another card. */
static dp_status note_gpu_profile(const plan_profile *profile) {
  dp_arena arena = {0};
  plan_machine machine;
  dp_error unread = DP_ERROR_INIT;
  if (exec_machine_read(&arena, &machine, &unread) == DP_OK && machine.gpu_count > 0 &&
      (strcmp(machine.driver, profile->driver ? profile->driver : "") != 0 ||
       strcmp(machine.gpus[0].name, profile->processor) != 0))
    fprintf(stderr, "diffpipe: note: the profile is of %s with driver %s; this is %s with %s\n", profile->processor,
            profile->driver ? profile->driver : "unknown", machine.gpus[0].name, machine.driver);
  dp_arena_free(&arena);
  return DP_OK;
}

dp_status cli_run_note_profile(const plan_scenario *scenario, int64_t threads, dp_error *error) {
  const plan_profile *profile = scenario->profile;
  dp_arena arena = {0};
  const char *processor = "";
  int cores = 0;
  if (!profile) return DP_OK;
  if (profile->units.count) return note_gpu_profile(profile);
  const dp_status status = exec_measure_machine(&arena, &processor, &cores, error);
  if (status == DP_OK && (strcmp(processor, profile->processor) != 0 || cores != profile->cores))
    fprintf(stderr, "diffpipe: note: the profile is of %s with %lld cores; this is %s with %d\n", profile->processor,
            (long long)profile->cores, processor, cores);
  dp_arena_free(&arena);
  if (threads > 0 && threads != profile->threads)
    fprintf(stderr, "diffpipe: note: the profile is of workers with %lld threads, not %lld\n",
            (long long)profile->threads, (long long)threads);
  return status;
}

dp_status cli_run_note_verdict(const report_run *run, dp_error *error) {
  dp_str text = {0};
  report_verdict(run, &text);
  if (!text.failed) fprintf(stderr, "diffpipe: note: %s\n", dp_str_text(&text));
  const dp_status status = text.failed ? dp_fail_memory(error) : DP_OK;
  dp_str_free(&text);
  return status;
}
