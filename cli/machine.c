/* diffpipe machine: this machine's GPUs as a cluster file. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/schema.h"
#include "cli/command.h"
#include "cli/json.h"
#include "exec/machine.h"

enum { SLOT_FROM, SLOT_OUT, SLOT_JSON };

static const cli_option options[] = {
    {.name = "from",
     .type = CLI_STRING,
     .argument = "FILE",
     .help = "ask no driver: take what --json said, here or elsewhere",
     .slot = SLOT_FROM},
    {.name = "out",
     .letter = 'o',
     .type = CLI_STRING,
     .argument = "FILE",
     .help = "write the cluster file here",
     .fallback = "default stdout",
     .slot = SLOT_OUT},
    {.name = "json", .type = CLI_FLAG, .help = "print what the driver says instead of a cluster", .slot = SLOT_JSON},
};

static dp_status print_facts(const plan_machine *machine, dp_error *error) {
  json_t *root = plan_machine_json(machine);
  if (!root) return dp_fail_memory(error);
  const dp_status status = cli_json_print(root, error);
  json_decref(root);
  return status;
}

/* What was written, as the reader of clusters sees it. */
static dp_status tell(const plan_catalogue *catalogue, const dp_str *toml, const char *path, dp_error *error) {
  dp_document document = {.root = NULL};
  plan_cluster cluster = {.name = NULL};
  DP_TRY(dp_document_parse_toml(toml->text, toml->length, path ? path : "the cluster", &document, error));
  plan_catalogue unchanged = *catalogue;
  dp_status status = plan_cluster_build(document.root, &unchanged, &cluster, error);
  if (status == DP_OK) {
    const size_t count = cluster.devices.count;
    fprintf(stderr, "%zu GPU%s, %s%s", count, count == 1 ? "" : "s", cluster.devices.items[0].model->name,
            count > 1 ? ": the slowest way between two neighbours is " : "");
    const plan_link_model *slowest = NULL;
    double bytes_per_s = 0;
    for (size_t d = 0; d + 1 < count; d++) {
      plan_route route;
      if (plan_cluster_route(&cluster, (int)d, (int)d + 1, &route, NULL) != DP_OK ||
          (slowest && route.bandwidth_bytes_per_s >= bytes_per_s))
        continue;
      slowest = route.limiting;
      bytes_per_s = route.bandwidth_bytes_per_s;
    }
    if (slowest) fprintf(stderr, "%s, %.4g GB/s", slowest->name, bytes_per_s / 1e9);
    fprintf(stderr, "\n");
    plan_cluster_free(&cluster);
  }
  dp_document_free(&document);
  return status;
}

static dp_status write_cluster(const plan_machine *machine, const char *path, dp_error *error) {
  plan_catalogue catalogue = {.nccl = NULL};
  dp_str toml = {0};
  DP_TRY(plan_catalogue_read(NULL, &catalogue, error));
  dp_status status = plan_machine_cluster(machine, &catalogue, &toml, error);
  if (status == DP_OK && path) status = dp_file_write(path, toml.text, toml.length, error);
  if (status == DP_OK && !path) fputs(dp_str_text(&toml), stdout);
  if (status == DP_OK) status = tell(&catalogue, &toml, path, error);
  dp_str_free(&toml);
  plan_catalogue_free(&catalogue);
  return status;
}

static dp_status run_command(const cli_values *values, dp_error *error) {
  plan_machine machine;
  dp_document document = {.root = NULL};
  dp_arena arena = {0};
  dp_status status = values->slots[SLOT_FROM].given
                         ? plan_machine_read(values->slots[SLOT_FROM].string, &document, &arena, &machine, error)
                         : exec_machine_read(&arena, &machine, error);
  if (status == DP_OK)
    status =
        values->slots[SLOT_JSON].given
            ? print_facts(&machine, error)
            : write_cluster(&machine, values->slots[SLOT_OUT].given ? values->slots[SLOT_OUT].string : NULL, error);
  dp_arena_free(&arena);
  dp_document_free(&document);
  return status;
}

const cli_command cli_machine = {
    .name = "machine",
    .arguments = "",
    .summary = "Write a cluster file of this machine's GPUs.",
    .help =
        "Asks the NVIDIA driver (NVML) for each GPU's name, memory and PCIe link, how far GPUs are apart,\n"
        "which copy to each other, and their NVLinks, and writes the cluster file that a scenario names under\n"
        "[cluster]: cards of catalogue/devices.toml, PCIe switches, root complexes and sockets, NVSwitch or\n"
        "direct NVLinks. Parts of a card (`virtual`), prices, NICs and further machines are added by hand:\n"
        "`diffpipe formats`.\n\n"
        "--json prints the facts; `diffpipe machine --from FILE` makes the cluster of them elsewhere.",
    .options = options,
    .option_count = (int)DP_COUNT_OF(options),
    .run = run_command};
