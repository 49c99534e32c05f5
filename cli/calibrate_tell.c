#include "cli/calibrate_tell.h"

#include <jansson.h>
#include <stdio.h>

#include "base/progress.h"
#include "base/schema.h"
#include "cli/json.h"

void cli_calibrate_tell_next(const char *path, const char *scenario) {
  dp_str line = {0};
  dp_str_add_word(&line, scenario);
  dp_str_add(&line, " --profile ");
  dp_str_add_word(&line, path);
  if (!line.failed) printf("\n  diffpipe simulate %s\n", dp_str_text(&line));
  dp_str_free(&line);
}

/* ---- a processor ---- */

dp_status cli_calibrate_tell_ops_json(const plan_profile *profile, const char *path, dp_error *error) {
  json_t *root = json_pack(
      "{s:o, s:I, s:I, s:f, s:f, s:s, s:s, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f}", "profile",
      cli_json_text(path), "measurements", (json_int_t)profile->ops.count, "held_out", (json_int_t)profile->held_out,
      "held_out_error", profile->held_out_error, "repeat_error", profile->repeat_error, "device", profile->device,
      "processor", profile->processor, "cores", (json_int_t)profile->cores, "threads", (json_int_t)profile->threads,
      "workers", (json_int_t)profile->workers, "gemm", profile->gemm, "optimizer_s_per_parameter",
      profile->optimizer_s_per_parameter, "norm_s_per_parameter", profile->norm_s_per_parameter, "instruction_s",
      profile->instruction_s, "handover_s", profile->handover_s, "step_s", profile->step_s);
  if (!root) return dp_fail_memory(error);
  const dp_status status = cli_json_print(root, error);
  json_decref(root);
  return status;
}

static void print_classes(const plan_profile *profile) {
  printf("\n  class        direction        ops  up to         law errs   busy\n");
  for (size_t i = 0; i < profile->laws.count; i++) {
    const plan_profile_law *law = &profile->laws.items[i];
    if (law->kind != GRAPH_NONE) continue;
    const bool matrix = law->largest.matrix_flops > 0;
    const double work = matrix ? law->largest.matrix_flops : law->largest.bytes;
    char size[32];
    printf("  %-11s  %-15s  %3lld  %7s%-6s  %6.1f %%  %.2f x\n", graph_op_class_name((graph_op_class)law->op_class),
           plan_direction_names[law->direction], (long long)law->points, dp_format_count(work, size),
           matrix ? "FLOP" : "B", 100 * law->error, law->busy_factor);
  }
}

void cli_calibrate_tell_ops(const plan_profile *profile, const char *path, const char *scenario) {
  char figure[32], norm[32];
  printf("%s: %zu ops measured on %s, %lld cores, %lld thread%s a worker\n", path, profile->ops.count,
         profile->processor, (long long)profile->cores, (long long)profile->threads, profile->threads == 1 ? "" : "s");
  printf("  two halves of the measurements differ by %.1f %% (median)\n", 100 * profile->repeat_error);
  printf("  interpolation errs by %.1f %% (median of %lld ops kept aside)\n", 100 * profile->held_out_error,
         (long long)profile->held_out);
  printf("  optimizer   %s a million parameters, and %s the norm of their gradients\n",
         dp_format_seconds(1e6 * profile->optimizer_s_per_parameter, figure),
         dp_format_seconds(1e6 * profile->norm_s_per_parameter, norm));
  printf("  instruction %s beside its ops\n", dp_format_seconds(profile->instruction_s, figure));
  printf("  hand-over   %s beside a transfer's copy\n", dp_format_seconds(profile->handover_s, figure));
  print_classes(profile);
  cli_calibrate_tell_next(path, scenario);
}

/* ---- a GPU ---- */

/* A row for each way between whole GPUs. */
static bool add_links(json_t *root, const plan_profile *profile) {
  json_t *list = json_array();
  if (json_object_set_new(root, "links", list) != 0) return false;
  for (size_t i = 0; i < profile->links.count; i++) {
    const plan_profile_link *link = &profile->links.items[i];
    const plan_profile_point *largest = &link->points.items[link->points.count - 1];
    json_t *row =
        json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "way", plan_profile_way_names[link->way],
                  "link", link->link, "gpus", (json_int_t)link->gpus, "bytes_per_s", largest->bytes / largest->alone_s,
                  "busy_bytes_per_s", largest->bytes / largest->busy_s, "both_bytes_per_s", link->both_bytes_per_s,
                  "together_bytes_per_s", link->together_bytes_per_s, "handover_s", link->handover_s, "slowdown",
                  link->slowdown, "waiting_slowdown", link->waiting_slowdown, "error", link->error);
    if (!row || json_array_append_new(list, row) != 0) return false;
  }
  return true;
}

dp_status cli_calibrate_tell_units_json(const plan_profile *profile, const exec_units_took *took, const char *path,
                                        dp_error *error) {
  json_t *root =
      json_pack("{s:o, s:i, s:f, s:f, s:I, s:I, s:f, s:f, s:f, s:s, s:s, s:s, s:s, s:[]}", "profile",
                cli_json_text(path), "programs", took->programs, "made_s", took->made_s, "measured_s", took->measured_s,
                "measurements", (json_int_t)profile->units.count, "held_out", (json_int_t)profile->held_out,
                "held_out_error", profile->held_out_error, "repeat_error", profile->repeat_error, "links_error",
                profile->links_error, "device", profile->device, "processor", profile->processor, "driver",
                profile->driver, "libraries", profile->libraries, "parts");
  json_t *list = root ? json_object_get(root, "parts") : NULL;
  for (size_t i = 0; list && i < profile->parts.count; i++) {
    const plan_profile_part *part = &profile->parts.items[i];
    json_t *row =
        json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I}", "sms", (json_int_t)part->sms, "workers",
                  (json_int_t)part->workers, "optimizer_s_per_parameter", part->optimizer_s_per_parameter,
                  "optimizer_busy_factor", part->optimizer_busy_factor, "instruction_s", part->instruction_s, "issue_s",
                  part->issue_s, "step_s", part->step_s, "runtime_bytes", (json_int_t)part->runtime_bytes);
    if (!row || json_array_append_new(list, row) != 0) {
      json_decref(root);
      return dp_fail_memory(error);
    }
  }
  if (!root || !add_links(root, profile)) {
    json_decref(root);
    return dp_fail_memory(error);
  }
  const dp_status status = cli_json_print(root, error);
  json_decref(root);
  return status;
}

static void print_points(const plan_profile_points *points) {
  for (size_t i = 0; i < points->count; i++)
    printf("%s %.0f KiB %.1f / %.1f us", i ? "," : "", points->items[i].bytes / 1024, 1e6 * points->items[i].alone_s,
           1e6 * points->items[i].busy_s);
}

static void print_links_apart(const plan_profile *profile) {
  if (profile->links.count) printf("\n  between whole GPUs of this host, alone and beside compute\n");
  for (size_t i = 0; i < profile->links.count; i++) {
    const plan_profile_link *link = &profile->links.items[i];
    printf("    %s, %lld GPUs, %s (between sizes to %.1f %%):", plan_profile_way_names[link->way],
           (long long)link->gpus, link->link, 100 * link->error);
    print_points(&link->points);
    printf("\n      hand-over %.1f us; compute takes %.1f %% longer beside one, %.1f %% while one waits",
           1e6 * link->handover_s, 100 * link->slowdown, 100 * link->waiting_slowdown);
    if (link->both_bytes_per_s > 0) printf("; into and out of a GPU at once %.0f GB/s", link->both_bytes_per_s / 1e9);
    if (link->together_bytes_per_s > 0) printf(", all neighbours %.0f GB/s", link->together_bytes_per_s / 1e9);
    printf("\n");
  }
}

static void print_links(const plan_profile *profile) {
  const struct {
    const char *name;
    const plan_profile_points *points;
    double together;
  } ways[] = {{"copies", &profile->copies, profile->copies_bytes_per_s},
              {"staged", &profile->staged, profile->staged_bytes_per_s}};
  if (profile->copies.count == 0) return;
  printf("\n  messages between parts of the card, alone and beside compute (between sizes to %.1f %%)\n",
         100 * profile->links_error);
  for (size_t w = 0; w < DP_COUNT_OF(ways); w++) {
    printf("    %s", ways[w].name);
    print_points(ways[w].points);
    printf("; together %.0f GB/s\n", ways[w].together / 1e9);
  }
  printf("    hand-over %.1f us; compute takes %.1f %% longer beside one\n", 1e6 * profile->handover_s,
         100 * profile->copy_slowdown);
}

/* How many times as long as alone all units of a part take beside forwards of all others, and beside backwards. */
static void find_beside(const plan_profile *profile, int64_t sms, double beside[2]) {
  double alone_s = 0, forward_s = 0, backward_s = 0;
  for (size_t u = 0; u < profile->units.count; u++)
    if (profile->units.items[u].sms == sms) {
      alone_s += profile->units.items[u].alone_s;
      forward_s += profile->units.items[u].beside_forward_s;
      backward_s += profile->units.items[u].beside_backward_s;
    }
  beside[0] = alone_s > 0 ? forward_s / alone_s : 1;
  beside[1] = alone_s > 0 ? backward_s / alone_s : 1;
}

static void print_beside(const plan_profile *profile, int64_t sms, const char *indent) {
  double beside[2];
  find_beside(profile, sms, beside);
  printf("%sunits take %.3f times as long beside forwards of all others, %.3f beside backwards\n", indent, beside[0],
         beside[1]);
}

void cli_calibrate_tell_units(const plan_profile *profile, const exec_units_took *took, const char *path,
                              const char *scenario) {
  char figure[32], other[32];
  printf("%s: %zu units measured on %s, at %.0f MHz\n", path, profile->units.count, profile->libraries,
         1e-6 * profile->clock_hz);
  printf("  for %.0f s, after %d program%s had been made in %.0f s\n", took->measured_s, took->programs,
         took->programs == 1 ? "" : "s", took->made_s);
  printf("  two runs of a unit differ by %.1f %% (median)\n", 100 * profile->repeat_error);
  printf("  beside others they are foretold to %.1f %% (median of %lld runs kept aside)\n",
         100 * profile->held_out_error, (long long)profile->held_out);
  for (size_t i = 0; i < profile->parts.count; i++) {
    const plan_profile_part *part = &profile->parts.items[i];
    printf("\n  %lld x %lld multiprocessors\n", (long long)part->workers, (long long)part->sms);
    print_beside(profile, part->sms, "    ");
    printf("    optimizer   %s a million parameters, all at once %.2f times that\n",
           dp_format_seconds(1e6 * part->optimizer_s_per_parameter, figure), part->optimizer_busy_factor);
    printf("    instruction %s beside its units, %s of the host\n", dp_format_seconds(part->instruction_s, figure),
           dp_format_seconds(part->issue_s, other));
    printf("    a worker takes %.3f GB beside its layout\n", (double)part->runtime_bytes / 1e9);
  }
  print_links(profile);
  print_links_apart(profile);
  cli_calibrate_tell_next(path, scenario);
}

/* ---- a run ---- */

dp_status cli_calibrate_tell_factors(const plan_profile_factors *factors, const char *path, bool json,
                                     dp_error *error) {
  if (!json) {
    printf("%s: forward times %.3f, backward times %.3f, the optimizer times %.3f\n", path, factors->forward,
           factors->backward, factors->optimizer);
    return DP_OK;
  }
  json_t *root = json_pack("{s:o, s:f, s:f, s:f}", "profile", cli_json_text(path), "forward_factor", factors->forward,
                           "backward_factor", factors->backward, "optimizer_factor", factors->optimizer);
  if (!root) return dp_fail_memory(error);
  const dp_status status = cli_json_print(root, error);
  json_decref(root);
  return status;
}

dp_status cli_calibrate_tell_run(const plan_profile *profile, const cli_run_told *told, const char *path, bool json,
                                 dp_error *error) {
  const plan_profile_part *part = &profile->parts.items[0];
  if (!json) {
    char figure[32], other[32];
    printf("%s: %zu passes of units, from a run of %lld worker%s\n", path, profile->units.count,
           (long long)profile->workers, profile->workers == 1 ? "" : "s");
    printf("  instructions are foretold to %.1f %% (median of %lld kept aside)\n", 100 * profile->held_out_error,
           (long long)profile->held_out);
    printf("  optimizer %s a million parameters, an instruction %s beside its units\n",
           dp_format_seconds(1e6 * part->optimizer_s_per_parameter, figure),
           dp_format_seconds(part->instruction_s, other));
    if (profile->workers > 1) print_beside(profile, part->sms, "  ");
    if (told->recorded_share > 0)
      printf(
          "  of the passes' time %.0f %% is of units that were recorded one by one (off by %.1f %%, median of %llu "
          "instructions kept aside)\n",
          100 * told->recorded_share, 100 * told->units_error, (unsigned long long)told->units_aside);
    else
      printf(
          "  units share their chunk's time as they were measured or predicted: none was recorded (run "
          "--profile-steps, on GPUs)\n");
    print_links_apart(profile);
    if (told->outliers.length) printf("%s", dp_str_text(&told->outliers));
    return DP_OK;
  }
  double beside[2];
  find_beside(profile, part->sms, beside);
  json_t *root = json_pack("{s:o, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:f, s:f, s:s}", "profile",
                           cli_json_text(path), "measurements", (json_int_t)profile->units.count,
                           "beside_forward_factor", beside[0], "beside_backward_factor", beside[1], "recorded_share",
                           told->recorded_share, "units_error", told->units_error, "units_kept_aside",
                           (json_int_t)told->units_aside, "held_out", (json_int_t)profile->held_out, "held_out_error",
                           profile->held_out_error, "optimizer_s_per_parameter", part->optimizer_s_per_parameter,
                           "instruction_s", part->instruction_s, "outliers", dp_str_text(&told->outliers));
  if (!root || !add_links(root, profile)) {
    json_decref(root);
    return dp_fail_memory(error);
  }
  const dp_status status = cli_json_print(root, error);
  json_decref(root);
  return status;
}
