/* The cluster file of a machine: its PCIe tree from how far GPUs are apart, its NVLinks from what each is linked to. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/schema.h"
#include "plan/cluster_file.h"
#include "plan/machine.h"

/* Classes of GPUs that are no farther apart than some path: each is named by its first GPU. */
typedef struct nearness {
  int root[PLAN_MAX_GPUS], socket[PLAN_MAX_GPUS]; /* root complex, socket */
  int outer[PLAN_MAX_GPUS], inner[PLAN_MAX_GPUS]; /* PCIe switches: below the root complex, below that one */
} nearness;

typedef struct writer {
  const plan_machine *machine;
  const plan_catalogue *catalogue;
  const plan_device_model *models[PLAN_MAX_GPUS];
  nearness near;
  dp_str *out;
} writer;

/* ---- the PCIe tree ---- */

static void find_classes(const plan_machine *machine, plan_pcie_path farthest, int classes[PLAN_MAX_GPUS]) {
  for (int g = 0; g < machine->gpu_count; g++) {
    classes[g] = g;
    for (int before = 0; before < g && classes[g] == g; before++)
      if (plan_machine_pair_of(machine, before, g)->path <= (int)farthest) classes[g] = classes[before];
  }
}

static int size_of(const writer *w, const int *classes, int class) {
  int size = 0;
  for (int g = 0; g < w->machine->gpu_count; g++) size += classes[g] == class;
  return size;
}

/* The place of a class among those of its kind. */
static int place_of(const int *classes, int class) {
  int place = 0;
  for (int g = 0; g < class; g++) place += classes[g] == g;
  return place;
}

static void find_tree(writer *w) {
  find_classes(w->machine, PLAN_PATH_NODE, w->near.socket);
  find_classes(w->machine, PLAN_PATH_HOSTBRIDGE, w->near.root);
  find_classes(w->machine, PLAN_PATH_MULTIPLE, w->near.outer);
  find_classes(w->machine, PLAN_PATH_SINGLE, w->near.inner);
}

static bool is_outer_switch(const writer *w, int class) { return size_of(w, w->near.outer, class) > 1; }

/* One switch alone is the outer one. */
static bool is_inner_switch(const writer *w, int g) {
  const int inner = size_of(w, w->near.inner, w->near.inner[g]);
  return inner > 1 && inner < size_of(w, w->near.outer, w->near.outer[g]);
}

static int generation_of(const writer *w, int g) {
  const int64_t found = w->machine->gpus[g].pcie_generation;
  return (int)(found > 0 ? found : w->models[g]->pcie_generation);
}

static bool knows_class(const writer *w, const char *name) { return plan_catalogue_link(w->catalogue, name) != NULL; }

static void write_switch(writer *w, int g, const char *kind, int place, const char *above, int above_place) {
  dp_str_addf(w->out, "  [[node.pcie]]\n  name = \"%s%d\"\n  parent = \"%s%d\"\n", kind, place, above, above_place);
  char class[32];
  (void)snprintf(class, sizeof class, "pcie%d-x16", generation_of(w, g));
  if (knows_class(w, class)) dp_str_addf(w->out, "  link = \"%s\"\n", class);
}

static bool has_tree(const writer *w) {
  for (int g = 0; g < w->machine->gpu_count; g++)
    if (w->near.root[g] != 0 || is_outer_switch(w, w->near.outer[g])) return true;
  return false;
}

static void write_tree(writer *w) {
  const nearness *near = &w->near;
  const int n = w->machine->gpu_count;
  for (int g = 0; g < n; g++) {
    if (near->root[g] != g) continue;
    const int socket = place_of(near->socket, near->socket[g]);
    dp_str_addf(w->out, "  [[node.pcie]]\n  name = \"root%d\"\n  socket = %d\n", place_of(near->root, g),
                socket < PLAN_MAX_SOCKETS ? socket : PLAN_MAX_SOCKETS - 1);
  }
  for (int g = 0; g < n; g++)
    if (near->outer[g] == g && is_outer_switch(w, g))
      write_switch(w, g, "switch", place_of(near->outer, g), "root", place_of(near->root, near->root[g]));
  for (int g = 0; g < n; g++)
    if (near->inner[g] == g && is_inner_switch(w, g))
      write_switch(w, g, "inner", place_of(near->inner, g), "switch", place_of(near->outer, near->outer[g]));
}

/* ---- cards ---- */

typedef struct card_row {
  const plan_device_model *model;
  char link[32], pcie[24];
  int peer; /* -1: the model's */
  double memory_gb, tdp_w;
} card_row;

static bool is_linked(const plan_machine *machine, int a, int b) {
  return plan_machine_pair_of(machine, a, b)->nvlinks > 0 ||
         (machine->gpus[a].switch_nvlinks > 0 && machine->gpus[b].switch_nvlinks > 0);
}

/* Over PCIe alone; -1: it has only peers over NVLink, or none. */
static int copies_to_peers(const plan_machine *machine, int g) {
  int found = -1;
  for (int other = 0; other < machine->gpu_count; other++) {
    if (other == g || is_linked(machine, g, other)) continue;
    if (plan_machine_pair_of(machine, g, other)->peer) return 1;
    found = 0;
  }
  return found;
}

/* Of its link to the host, where that is not what the model has. */
static void name_link(const writer *w, int g, bool peer, char out[32]) {
  const plan_machine_gpu *gpu = &w->machine->gpus[g];
  const plan_device_model *model = w->models[g];
  out[0] = '\0';
  if (model->c2c_bytes_per_s > 0 || gpu->pcie_generation == 0 || gpu->pcie_lanes == 0) return;
  if (gpu->pcie_generation == model->pcie_generation && gpu->pcie_lanes == model->pcie_lanes) return;
  char whole[32];
  (void)snprintf(whole, sizeof whole, "pcie%d-x16%s", (int)gpu->pcie_generation, peer ? "" : "-host");
  if (knows_class(w, whole))
    (void)snprintf(out, 32, "pcie%d-x%d%s", (int)gpu->pcie_generation, (int)gpu->pcie_lanes, peer ? "" : "-host");
}

static card_row row_of(const writer *w, int g) {
  const plan_machine_gpu *gpu = &w->machine->gpus[g];
  const nearness *near = &w->near;
  card_row row = {.model = w->models[g], .peer = copies_to_peers(w->machine, g)};
  if (row.peer == (int)row.model->peer_to_peer) row.peer = -1;
  name_link(w, g, row.peer < 0 ? row.model->peer_to_peer : row.peer == 1, row.link);
  if (has_tree(w)) {
    const bool inner = is_inner_switch(w, g), outer = is_outer_switch(w, near->outer[g]);
    (void)snprintf(row.pcie, sizeof row.pcie, "%s%d",
                   inner   ? "inner"
                   : outer ? "switch"
                           : "root",
                   inner   ? place_of(near->inner, near->inner[g])
                   : outer ? place_of(near->outer, near->outer[g])
                           : place_of(near->root, near->root[g]));
  }
  row.memory_gb = floor((double)gpu->memory_bytes / 1e8) / 10;
  row.tdp_w = gpu->power_w >= 1 && fabs(gpu->power_w - row.model->tdp_w) > 0.5 ? gpu->power_w : 0;
  return row;
}

static bool same_row(const card_row *a, const card_row *b) {
  return a->model == b->model && strcmp(a->link, b->link) == 0 && strcmp(a->pcie, b->pcie) == 0 && a->peer == b->peer &&
         a->memory_gb == b->memory_gb && a->tdp_w == b->tdp_w;
}

/* Cards keep their order: only neighbours share a row. */
static void write_cards(writer *w) {
  for (int g = 0; g < w->machine->gpu_count;) {
    const card_row row = row_of(w, g);
    int count = 0;
    for (; g < w->machine->gpu_count; g++, count++) {
      const card_row next = row_of(w, g);
      if (!same_row(&row, &next)) break;
    }
    dp_str_addf(w->out, "  [[node.device]]\n  model = \"%s\"\n", row.model->name);
    if (count > 1) dp_str_addf(w->out, "  count = %d\n", count);
    if (row.pcie[0]) dp_str_addf(w->out, "  pcie = \"%s\"\n", row.pcie);
    if (row.link[0]) dp_str_addf(w->out, "  link = \"%s\"\n", row.link);
    if (row.peer >= 0) dp_str_addf(w->out, "  peer_to_peer = %s\n", row.peer ? "true" : "false");
    dp_str_addf(w->out, "  memory_gb = %.1f\n", row.memory_gb);
    if (row.tdp_w > 0) dp_str_addf(w->out, "  tdp_w = %.4g\n", row.tdp_w);
  }
}

/* A slot with fewer lanes: a class of its own, in proportion. */
static void write_narrow_links(writer *w) {
  for (int g = 0; g < w->machine->gpu_count; g++) {
    const card_row row = row_of(w, g);
    bool seen = !row.link[0] || knows_class(w, row.link);
    for (int before = 0; before < g && !seen; before++) {
      const card_row other = row_of(w, before);
      seen = strcmp(other.link, row.link) == 0;
    }
    if (seen) continue;
    const plan_machine_gpu *gpu = &w->machine->gpus[g];
    char whole[32];
    (void)snprintf(whole, sizeof whole, "pcie%d-x16%s", (int)gpu->pcie_generation,
                   dp_ends_with(row.link, "-host") ? "-host" : "");
    const plan_link_model *class = plan_catalogue_link(w->catalogue, whole);
    const double share = (double)gpu->pcie_lanes / 16;
    dp_str_addf(w->out,
                "[[link]]\nname = \"%s\"\nkind = \"pcie\"\nbandwidth_gb_per_s = %.6g\ntheoretical_gb_per_s = %.6g\n"
                "latency_us = %.6g\ncompute_slowdown = %.6g\nsource = \"%s, %d of 16 lanes\"\nverified = false\n\n",
                row.link, class->bandwidth_bytes_per_s * share / 1e9, class->theoretical_bytes_per_s * share / 1e9,
                class->latency_s * 1e6, class->compute_slowdown * share, whole, (int)gpu->pcie_lanes);
  }
}

/* ---- NVLink ---- */

/* Of a card with all its links, as the data sheet has them; 0: not known. */
static int all_links(const plan_device_model *model, int64_t version) {
  const double each = version >= 5 ? 50e9 : 25e9, links = model->nvlink_bytes_per_s / each;
  return links > 0.5 && fabs(links - round(links)) < 0.01 ? (int)lround(links) : 0;
}

/* GB/s of so many of a card's links, where these are not what its class has; 0: the class's figure. */
static double links_gb_per_s(const writer *w, int g, int64_t links, bool part_of_port) {
  const int all = all_links(w->models[g], w->machine->gpus[g].nvlink_version);
  const plan_link_model *class = plan_catalogue_link(w->catalogue, w->models[g]->interconnect_link);
  if (all == 0 || !class || (links >= all && !part_of_port)) return 0;
  return class->bandwidth_bytes_per_s / 1e9 * (double)links / all;
}

/* Cards whose model knows no class take that of another card's NVLink of their generation. */
static const char *class_of(const writer *w, int g) {
  const char *own = w->models[g]->interconnect_link;
  static const char *const by_version[] = {NULL, NULL, "nvlink2", "nvlink3", "nvlink4", "nvlink5"};
  const int64_t version = w->machine->gpus[g].nvlink_version;
  if (own[0]) return NULL;
  return version > 1 && version < (int64_t)DP_COUNT_OF(by_version) ? by_version[version] : "nvlink2";
}

static void write_nvlink(writer *w, const char *kind, const int *cards, int count, double gb_per_s) {
  const char *class = class_of(w, cards[0]);
  dp_str_addf(w->out, "  [[node.nvlink]]\n  kind = \"%s\"\n", kind);
  if (class) dp_str_addf(w->out, "  link = \"%s\"\n", class);
  if (gb_per_s > 0) dp_str_addf(w->out, "  bandwidth_gb_per_s = %.6g\n", gb_per_s);
  if (count == w->machine->gpu_count && strcmp(kind, "pairs") != 0) return;
  dp_str_add(w->out, "  devices = [");
  for (int i = 0; i < count; i++) dp_str_addf(w->out, "%s%d", i ? ", " : "", cards[i]);
  dp_str_add(w->out, "]\n");
}

static void write_switched(writer *w) {
  int cards[PLAN_MAX_GPUS], count = 0;
  int64_t fewest = INT64_MAX;
  for (int g = 0; g < w->machine->gpu_count; g++) {
    const int64_t links = w->machine->gpus[g].switch_nvlinks;
    if (links == 0) continue;
    cards[count++] = g;
    if (links < fewest) fewest = links;
  }
  if (count < 2) return;
  write_nvlink(w, "nvswitch", cards, count, links_gb_per_s(w, cards[0], fewest, false));
}

/* All cards linked to all by as many links each: then their number, else 0. */
static int64_t mesh_links(const plan_machine *machine) {
  const int64_t links = machine->gpu_count > 2 ? machine->pairs[0].nvlinks : 0;
  for (int p = 0; p < plan_machine_pair_count(machine); p++)
    if (machine->pairs[p].nvlinks != links) return 0;
  return links;
}

/* Pairs that are linked by as many links as the first of them, and whose cards stand in no earlier one, share a row. */
static void write_direct(writer *w) {
  const plan_machine *machine = w->machine;
  bool written[PLAN_MAX_GPUS * PLAN_MAX_GPUS] = {false};
  const int64_t mesh = mesh_links(machine);
  int all[PLAN_MAX_GPUS];
  for (int g = 0; g < machine->gpu_count; g++) all[g] = g;
  if (mesh > 0) {
    write_nvlink(w, "mesh", all, machine->gpu_count, links_gb_per_s(w, 0, mesh, true));
    return;
  }
  for (int first = 0; first < plan_machine_pair_count(machine); first++) {
    int cards[PLAN_MAX_GPUS], count = 0;
    bool taken[PLAN_MAX_GPUS] = {false};
    const plan_machine_pair *lead = &machine->pairs[first];
    if (lead->nvlinks == 0 || written[first]) continue;
    for (int p = first; p < plan_machine_pair_count(machine); p++) {
      const plan_machine_pair *pair = &machine->pairs[p];
      const bool alike = pair->nvlinks == lead->nvlinks && w->models[pair->a] == w->models[lead->a];
      if (written[p] || !alike || taken[pair->a] || taken[pair->b]) continue;
      written[p] = taken[pair->a] = taken[pair->b] = true;
      cards[count++] = (int)pair->a;
      cards[count++] = (int)pair->b;
    }
    write_nvlink(w, "pairs", cards, count, links_gb_per_s(w, (int)lead->a, lead->nvlinks, false));
  }
}

/* ---- the file ---- */

/* NCCL's classes of links between sockets, by the processors' model; a guess for those that it does not name. */
static const char *socket_class(const plan_machine *machine) {
  if (strcmp(machine->cpu_vendor, "GenuineIntel") != 0) return "socket-amd";
  return machine->cpu_model >= 0xcf   ? "socket-intel-erp"
         : machine->cpu_model >= 0x8f ? "socket-intel-srp"
                                      : "socket-intel-skl";
}

static bool has_interconnect(const writer *w) {
  int cards = 0;
  for (int g = 0; g < w->machine->gpu_count; g++) cards += w->models[g]->interconnect == PLAN_INTERCONNECT_NVLINK;
  return cards > 1;
}

static bool has_nvlinks(const plan_machine *machine) {
  for (int p = 0; p < plan_machine_pair_count(machine); p++)
    if (is_linked(machine, (int)machine->pairs[p].a, (int)machine->pairs[p].b)) return true;
  return false;
}

static bool has_sockets(const writer *w) {
  for (int g = 0; g < w->machine->gpu_count; g++)
    if (w->near.socket[g] != 0) return true;
  return false;
}

static void write_file(writer *w) {
  const plan_machine *machine = w->machine;
  const char *name = machine->name[0] ? machine->name : "machine";
  dp_str_addf(w->out,
              "# What `diffpipe machine` found on %s%s%s. Prices, the power of the machine without its cards,\n"
              "# NICs and other machines are not in it: doc/formats.md has their keys.\n",
              name, machine->driver[0] ? ", NVIDIA driver " : "", machine->driver);
  dp_str_add(w->out, "format = \"diffpipe-cluster\"\nversion = 1\nname = ");
  dp_str_add_quoted(w->out, name);
  dp_str_add(w->out, "\n\n");
  write_narrow_links(w);
  dp_str_add(w->out, "[[node]]\n");
  if (has_sockets(w)) dp_str_addf(w->out, "host_link = \"%s\"\n", socket_class(machine));
  if (!has_nvlinks(machine) && has_interconnect(w)) dp_str_add(w->out, "interconnect = \"pcie\"\n");
  if (has_tree(w)) write_tree(w);
  write_cards(w);
  write_switched(w);
  write_direct(w);
}

dp_status plan_machine_cluster(const plan_machine *machine, const plan_catalogue *catalogue, dp_str *toml,
                               dp_error *error) {
  if (machine->gpu_count < 1) return dp_fail(error, DP_BAD_INPUT, "machine: found no GPU, needed: at least one");
  if (machine->gpu_count > PLAN_MAX_GPUS)
    return dp_fail(error, DP_BAD_INPUT, "machine: found %d GPUs, allowed: at most %d", machine->gpu_count,
                   PLAN_MAX_GPUS);
  writer w = {.machine = machine, .catalogue = catalogue, .out = toml};
  for (int g = 0; g < machine->gpu_count; g++)
    DP_TRY(plan_machine_model(&machine->gpus[g], catalogue, &w.models[g], error));
  find_tree(&w);
  write_file(&w);
  return toml->failed ? dp_fail_memory(error) : DP_OK;
}
