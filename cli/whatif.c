/* diffpipe whatif: one job on several clusters. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/json.h"
#include "sim/whatif.h"

enum { SLOT_SET, SLOT_CLUSTER, SLOT_JSON, SLOT_CSV };

static const cli_option options[] = {
    {.name = "cluster",
     .type = CLI_LIST,
     .argument = "FILE",
     .help = "a cluster to compare; repeat it; the first is the reference",
     .slot = SLOT_CLUSTER},
    {.name = "set",
     .type = CLI_LIST,
     .argument = "TABLE.KEY=VALUE",
     .help = "set a key of the scenario; may be repeated",
     .slot = SLOT_SET},
    {.name = "json", .type = CLI_FLAG, .help = "print JSON instead of a table", .slot = SLOT_JSON},
    {.name = "csv", .type = CLI_FLAG, .help = "print CSV instead of a table", .slot = SLOT_CSV},
};

typedef struct rows {
  sim_hardware *items;
  int count;
} rows;

static int most_helpful(const sim_hardware *h) {
  int most = 0;
  for (int r = 1; r < SIM_RESOURCE_COUNT; r++)
    if (h->gain[r] > h->gain[most]) most = r;
  return most;
}

/* ---- JSON and CSV ---- */

static bool add_row(json_t *list, const sim_hardware *h, const sim_hardware *reference) {
  json_t *row = json_object(), *plan = cli_json_candidate(&h->best.candidate), *gains = json_object();
  const double months = sim_break_even_months(h, reference);
  bool done =
      json_array_append_new(list, row) == 0 && cli_json_put(row, "best", plan) &&
      cli_json_put(row, "gain_of_10_percent_more", gains) &&
      cli_json_put(row, "cluster", json_string(h->scenario.cluster.name)) &&
      cli_json_put(row, "file", json_string(h->file)) &&
      cli_json_put(row, "devices", json_integer((json_int_t)h->scenario.cluster.devices.count)) &&
      cli_json_put(row, "fits", json_boolean(h->fits)) &&
      cli_json_put(row, "throughput_samples_per_s", json_real(h->fits ? h->best.throughput_samples_per_s : 0)) &&
      cli_json_put(row, "step_s", json_real(h->best.step_s)) &&
      cli_json_put(row, "peak_memory_bytes", json_integer(h->best.peak_bytes)) &&
      cli_json_put(
          row, "usd_per_million_samples",
          h->fits && h->best.usd_per_million_samples > 0 ? json_real(h->best.usd_per_million_samples) : json_null()) &&
      cli_json_put(row, "joules_per_sample", h->fits ? json_real(h->best.joules_per_sample) : json_null()) &&
      cli_json_put(row, "break_even_months", months > 0 ? json_real(months) : json_null());
  for (int r = 0; done && r < SIM_RESOURCE_COUNT; r++)
    done = cli_json_put(gains, sim_resource_names[r], json_real(h->gain[r]));
  return done;
}

static dp_status print_json(const rows *all, dp_error *error) {
  json_t *root = json_object(), *list = json_array();
  bool done = root && cli_json_put(root, "format", json_string("diffpipe-whatif")) &&
              cli_json_put(root, "version", json_integer(1)) && cli_json_put(root, "rows", list);
  for (int i = 0; done && i < all->count; i++) done = add_row(list, &all->items[i], &all->items[0]);
  if (done)
    done = json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) == 0 && fputc('\n', stdout) != EOF;
  json_decref(root);
  return done ? DP_OK : dp_fail_memory(error);
}

static void print_csv_text(const char *text) { /* quoted, quotes doubled */
  putchar('"');
  for (; *text; text++) {
    if (*text == '"') putchar('"');
    putchar(*text);
  }
  putchar('"');
}

static void print_csv(const rows *all) {
  printf(
      "cluster,devices,fits,throughput_samples_per_s,usd_per_million_samples,joules_per_sample,peak_memory_bytes,break_"
      "even_months,plan");
  for (int r = 0; r < SIM_RESOURCE_COUNT; r++) printf(",gain_of_10_percent_more_%s", sim_resource_names[r]);
  printf("\n");
  for (int i = 0; i < all->count; i++) {
    const sim_hardware *h = &all->items[i];
    char plan[128];
    print_csv_text(h->scenario.cluster.name);
    printf(",%zu,%s,%.9g,%.9g,%.9g,%lld,%.9g,", h->scenario.cluster.devices.count, h->fits ? "true" : "false",
           h->fits ? h->best.throughput_samples_per_s : 0, h->best.usd_per_million_samples, h->best.joules_per_sample,
           (long long)h->best.peak_bytes, sim_break_even_months(h, &all->items[0]));
    print_csv_text(sim_candidate_brief(&h->best.candidate, plan));
    for (int r = 0; r < SIM_RESOURCE_COUNT; r++) printf(",%.6g", h->gain[r]);
    printf("\n");
  }
}

/* ---- the table ---- */

static void print_table(const rows *all) {
  printf("  %-22s %4s %10s %12s %9s  %s\n", "cluster", "GPUs", "samples/s", "USD/M smpl", "J/sample", "best plan");
  for (int i = 0; i < all->count; i++) {
    const sim_hardware *h = &all->items[i];
    char plan[128], usd[32] = "?";
    if (h->best.usd_per_million_samples > 0) (void)snprintf(usd, sizeof usd, "%.4g", h->best.usd_per_million_samples);
    if (h->fits)
      printf("  %-22.22s %4zu %10.4g %12s %9.4g  %s\n", h->scenario.cluster.name, h->scenario.cluster.devices.count,
             h->best.throughput_samples_per_s, usd, h->best.joules_per_sample, sim_candidate_brief(&h->best.candidate, plan));
    else
      printf("  %-22.22s %4zu  does not fit: at least %.1f of %.1f GB a card\n", h->scenario.cluster.name,
             h->scenario.cluster.devices.count, (double)h->best.tightest.peak_bytes / 1e9,
             (double)h->best.tightest.limit_bytes / 1e9);
  }
  printf(
      "\nA plan reads stages x replicas, schedule, microbatches x size; 4/T2: four stages on two devices each.\n\nThroughput gained by 10 %% more of\n  %-22s "
      "%9s %9s %9s %9s %9s\n",
      "cluster", "compute", "mem. bw", "links", "host", "mem. size");
  for (int i = 0; i < all->count; i++) {
    const sim_hardware *h = &all->items[i];
    if (!h->fits) continue;
    printf("  %-22.22s", h->scenario.cluster.name);
    for (int r = 0; r < SIM_RESOURCE_COUNT; r++) printf(" %7.1f %%", 100 * h->gain[r]);
    printf("   %s helps most\n", sim_resource_names[most_helpful(h)]);
  }
  for (int i = 1; i < all->count; i++) {
    const double months = sim_break_even_months(&all->items[i], &all->items[0]);
    if (months > 0)
      printf("\nBuying %s pays after %.1f months against renting %s for the same samples (power not counted).\n",
             all->items[i].scenario.cluster.name, months, all->items[0].scenario.cluster.name);
  }
}

static dp_status compare(const cli_values *values, const sim_efficiency *efficiency, rows *all, dp_error *error) {
  const sim_tune_options how = {.threads = 0};
  for (int i = 0; i < values->repeated_count; i++) {
    DP_TRY(sim_whatif(values->arguments[0], values->sets, values->set_count, values->repeated[i], efficiency, &how,
                      &all->items[i], error));
    all->count++;
  }
  if (values->slots[SLOT_JSON].given) return print_json(all, error);
  if (values->slots[SLOT_CSV].given)
    print_csv(all);
  else
    print_table(all);
  return DP_OK;
}

static dp_status run(const cli_values *values, dp_error *error) {
  if (values->argument_count != 1)
    return dp_fail(error, DP_BAD_INPUT, "whatif: found %d arguments, allowed: one, the scenario",
                   values->argument_count);
  if (values->repeated_count == 0)
    return dp_fail(error, DP_BAD_INPUT, "whatif: found no cluster, allowed: --cluster FILE, once for each choice");
  if (values->slots[SLOT_JSON].given && values->slots[SLOT_CSV].given)
    return dp_fail(error, DP_BAD_INPUT, "whatif: found --json and --csv, allowed: one of them");
  rows all = {calloc((size_t)values->repeated_count, sizeof *all.items), 0};
  if (!all.items) return dp_fail_memory(error);
  sim_efficiency *efficiency = NULL;
  dp_status status = sim_efficiency_read(NULL, &efficiency, error);
  if (status == DP_OK) status = compare(values, efficiency, &all, error);
  for (int i = 0; i < all.count; i++) sim_hardware_free(&all.items[i]);
  free(all.items);
  sim_efficiency_free(efficiency);
  return status;
}

const cli_command cli_whatif = {
    .name = "whatif",
    .arguments = "SCENARIO",
    .summary = "Compare clusters for one job: the best plan on each, its cost, and what would help it.",
    .help = "Searches as `diffpipe tune` does on every cluster. [cluster] of the scenario must name a file.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = run};
