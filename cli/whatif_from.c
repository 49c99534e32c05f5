/* A recorded run set in time again on each cluster. */
#include "cli/whatif_from.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/median.h"
#include "base/schema.h"
#include "cli/efficiency.h"
#include "plan/machine.h"

typedef struct place { /* a cluster, with all that it points into */
  plan_catalogue catalogue;
  dp_document document;
  plan_cluster cluster;
  prof_side side;
} place;

typedef struct asked {
  const cli_from_question *question;
  dp_arena arena;
  cli_recorded recorded;
  sim_efficiency *efficiency;
  unsigned char *precisions;
  double used[PROF_PRECISION_COUNT]; /* seconds of each, with what is assumed */
  int devices;
  double host_factor; /* 0: the clusters' */
  place was;
  cli_from_answer answer;
} asked;

static void place_free(place *p) {
  plan_cluster_free(&p->cluster);
  dp_document_free(&p->document);
  plan_catalogue_free(&p->catalogue);
}

/* ---- what was recorded ---- */

static dp_status read_records(asked *a, dp_error *error) {
  cli_recorded_how how = {.range = NULL};
  DP_TRY(cli_profile_steps_from("whatif", a->question->steps_from, &how.range, error));
  DP_TRY(cli_recorded_read(a->question->folder, &how, &a->recorded, error));
  const prof_summary *summary = &a->recorded.summary;
  if (summary->streams.count == 0)
    return dp_fail(
        error, DP_BAD_INPUT,
        "%s: found no work of a device in the records, allowed: what diffpipe profile -o DIR -- PROGRAM wrote "
        "of a program that used CUDA",
        a->question->folder);
  if (summary->step_count == 0)
    return dp_fail(error, DP_BAD_INPUT,
                   "%s: found no steps (%s), allowed: --steps-from nvtx:NAME, or a recording of three steps or more",
                   a->question->folder, a->recorded.steps.processes[0].why);
  for (size_t s = 0; s < summary->streams.count; s++) {
    const prof_stream_row *row = &summary->streams.items[s];
    a->devices += s == 0 || row[-1].process != row->process || row[-1].device != row->device;
  }
  for (size_t p = 0; p < a->recorded.session.processes.count; p++) /* ranks that were not recorded */
    if (a->recorded.session.processes.items[p].header.rank >= a->devices && summary->classes[PROF_NCCL].time.count)
      a->devices = a->recorded.session.processes.items[p].header.rank + 1;
  for (size_t d = 0; d < summary->devices.count; d++)
    if (summary->devices.items[d].peak_bytes > a->answer.peak_bytes)
      a->answer.peak_bytes = summary->devices.items[d].peak_bytes;
  return DP_OK;
}

static dp_status find_named(const plan_catalogue *catalogue, const char *name, const plan_device_model **model,
                            dp_error *error) {
  *model = plan_catalogue_device(catalogue, name);
  if (*model) return DP_OK;
  const char **names = malloc((catalogue->devices.count + 1) * sizeof *names);
  if (!names) return dp_fail_memory(error);
  for (size_t i = 0; i < catalogue->devices.count; i++) names[i] = catalogue->devices.items[i].name;
  const dp_status status =
      cli_fail_name("whatif: --device-was: unknown device ", name, names, (int)catalogue->devices.count, "", error);
  free(names);
  return status;
}

/* The card that the run used: all the same, by what the driver called it. */
static dp_status find_device(asked *a, const plan_device_model **model, dp_error *error) {
  const prof_summary *summary = &a->recorded.summary;
  a->answer.device = "";
  *model = NULL;
  for (size_t s = 0; s < summary->streams.count; s++) {
    const prof_device *device =
        prof_session_device(&a->recorded.session, summary->streams.items[s].process, summary->streams.items[s].device);
    const plan_machine_gpu gpu = {.name = device ? device->name : "",
                                  .memory_bytes = device ? (int64_t)device->memory_bytes : 0};
    const plan_device_model *found = NULL;
    dp_error why = DP_ERROR_INIT;
    if (s == 0) a->answer.device = gpu.name;
    if (a->question->device_was) continue;
    if (plan_machine_model(&gpu, &a->was.catalogue, &found, &why) != DP_OK)
      return dp_fail(
          error, DP_BAD_INPUT,
          "%s: found the device \"%.80s\" with %.1f GB, allowed: cards that catalogue/devices.toml knows; or "
          "--device-was MODEL, which of its rows it is like",
          a->question->folder, gpu.name, (double)gpu.memory_bytes / 1e9);
    if (*model && *model != found)
      return dp_fail(error, DP_BAD_INPUT, "%s: found devices %s and %s, allowed: devices of one kind",
                     a->question->folder, (*model)->name, found->name);
    *model = found;
  }
  return a->question->device_was ? find_named(&a->was.catalogue, a->question->device_was, model, error) : DP_OK;
}

/* ---- clusters ---- */

/* One machine with so many of the card, as a cluster file without more says it. */
static dp_status build_was(asked *a, const plan_device_model *model, dp_error *error) {
  const prof_session *session = &a->recorded.session;
  for (size_t p = 1; p < session->processes.count && a->recorded.summary.classes[PROF_NCCL].time.count; p++)
    if (strcmp(session->processes.items[p].header.host, session->processes.items[0].header.host) != 0)
      return dp_fail(
          error, DP_BAD_INPUT, "%s: found the hosts %s and %s, allowed: one; or --cluster-was FILE, what joins them",
          a->question->folder, session->processes.items[0].header.host, session->processes.items[p].header.host);
  dp_str text = {0};
  dp_str_addf(&text,
              "format = \"diffpipe-cluster\"\nversion = 1\nname = \"as recorded\"\n[[node]]\n[[node.device]]\n"
              "model = \"%s\"\ncount = %d\n",
              model->name, a->devices);
  dp_status status = text.failed ? dp_fail_memory(error) : DP_OK;
  if (status == DP_OK)
    status =
        dp_document_parse_toml(dp_str_text(&text), strlen(dp_str_text(&text)), "as recorded", &a->was.document, error);
  if (status == DP_OK) status = plan_cluster_build(a->was.document.root, &a->was.catalogue, &a->was.cluster, error);
  dp_str_free(&text);
  return status;
}

static dp_status read_place(asked *a, const char *option, const char *file, place *p, dp_error *error) {
  const char *path = dp_path_resolve(&a->arena, NULL, file);
  if (!path) return dp_fail_memory(error);
  FILE *stream = fopen(path, "rb");
  if (!stream)
    return dp_fail(error, DP_BAD_INPUT, "--%s %.200s: cannot be opened, allowed: a file here or in the installed data",
                   option, file);
  (void)fclose(stream);
  if (p->catalogue.devices.count == 0) DP_TRY(plan_catalogue_read(NULL, &p->catalogue, error));
  return plan_cluster_read(path, &p->catalogue, &p->document, &p->cluster, error);
}

static dp_status find_was(asked *a, dp_error *error) {
  const plan_device_model *model = NULL;
  DP_TRY(plan_catalogue_read(NULL, &a->was.catalogue, error));
  DP_TRY(find_device(a, &model, error));
  if (a->question->cluster_was)
    DP_TRY(read_place(a, "cluster-was", a->question->cluster_was, &a->was, error));
  else
    DP_TRY(build_was(a, model, error));
  DP_TRY(prof_side_of(&a->was.catalogue, &a->was.cluster, a->devices, &a->was.side, error));
  if (strcmp(a->was.side.model->name, model->name) != 0)
    return dp_fail(error, DP_BAD_INPUT, "--cluster-was %.200s: found %s, allowed: a cluster of %s, which was recorded",
                   a->question->cluster_was, a->was.side.model->name, model->name);
  return DP_OK;
}

/* ---- precision ---- */

static dp_status find_precision(asked *a, dp_error *error) {
  double *told = a->answer.precision_s;
  int most = PROF_PRECISION_COUNT;
  a->precisions = prof_scale_precisions(&a->recorded.session, a->recorded.classes, told);
  if (!a->precisions) return dp_fail_memory(error);
  for (int p = 0; p < PROF_PRECISION_COUNT; p++) {
    a->used[p] = told[p];
    if (told[p] > 0 && (most == PROF_PRECISION_COUNT || told[p] > told[most])) most = p;
  }
  if (a->question->precision) {
    for (most = 0; prof_precision_names[most] && strcmp(prof_precision_names[most], a->question->precision) != 0;)
      most++;
    if (!prof_precision_names[most])
      return cli_fail_name("whatif: --precision: unknown precision ", a->question->precision, prof_precision_names,
                           PROF_PRECISION_COUNT, "", error);
  } else if (most == PROF_PRECISION_COUNT && told[most] > 0) {
    return dp_fail(error, DP_BAD_INPUT,
                   "%s: found matrix products whose kernels' names do not tell their precision, needed: --precision "
                   "fp32|tf32|fp16|bf16|fp8",
                   a->question->folder);
  }
  a->answer.assumed = most == PROF_PRECISION_COUNT ? PROF_BF16 : (prof_precision)most;
  a->used[a->answer.assumed] += told[PROF_PRECISION_COUNT];
  return DP_OK;
}

/* ---- rows ---- */

static double median_step_s(const prof_steps *steps, double *values) {
  for (size_t i = 0; i < steps->items.count; i++)
    values[i] = (double)(steps->items.items[i].end_ns - steps->items.items[i].start_ns) * 1e-9;
  return dp_median(values, steps->items.count);
}

static void take_parts(const prof_summary *summary, cli_from_row *row) {
  double parts_s[PROF_PART_COUNT] = {0}, window_s = 0, matrix_s = 0, compute_s = 0;
  for (size_t d = 0; d < summary->devices.count; d++) {
    window_s += summary->devices.items[d].window_s;
    for (int p = 0; p < PROF_PART_COUNT; p++) parts_s[p] += summary->devices.items[d].parts_s[p];
  }
  for (int c = 0; c < PROF_CLASS_COUNT; c++) {
    const double sum_s = summary->classes[c].time.sum_s;
    if (c != PROF_NCCL && c != PROF_COPIES) compute_s += sum_s;
    if (c == PROF_GEMM || c == PROF_CONVOLUTION || c == PROF_ATTENTION) matrix_s += sum_s;
    row->classes_s[c] = 0;
    for (size_t s = 0; s < summary->step_count; s++)
      row->classes_s[c] += summary->steps[s].classes_s[c] / (double)summary->step_count;
  }
  if (window_s <= 0) return;
  const double matrix = compute_s > 0 ? matrix_s / compute_s : 0;
  row->parts[FROM_MATRIX] = parts_s[PROF_COMPUTE] / window_s * matrix;
  row->parts[FROM_MEMORY] = parts_s[PROF_COMPUTE] / window_s * (1 - matrix);
  row->parts[FROM_NCCL] = parts_s[PROF_EXPOSED_NCCL] / window_s;
  row->parts[FROM_COPIES] = parts_s[PROF_EXPOSED_COPIES] / window_s;
  row->parts[FROM_HOST] = parts_s[PROF_IDLE_HOST] / window_s;
  row->parts[FROM_DATA] = parts_s[PROF_IDLE_DATA] / window_s;
  row->parts[FROM_OTHER] = parts_s[PROF_IDLE_OTHER] / window_s;
}

static void take_cluster(const asked *a, const plan_cluster *cluster, const plan_device_model *model,
                         cli_from_row *row) {
  const double share = (double)a->devices / (double)cluster->devices.count;
  row->model = model->name;
  row->memory_bytes = cluster->devices.items[0].memory_bytes;
  row->usd_per_1000_steps = share * cluster->price_usd_per_h / 3600 * row->step_s * 1000;
  row->joules_per_step = share * cluster->power_w * row->step_s;
}

static void take_recorded(asked *a, double *values, cli_from_row *row) {
  const prof_steps *steps = &a->recorded.steps;
  row->name = "as recorded";
  row->step_s = median_step_s(steps, values); /* sorted from here on */
  row->low_s = dp_quantile(values, steps->items.count, 0.05);
  row->high_s = dp_quantile(values, steps->items.count, 0.95);
  a->answer.spread_low = row->step_s > 0 ? row->low_s / row->step_s : 1;
  a->answer.spread_high = row->step_s > 0 ? row->high_s / row->step_s : 1;
  take_parts(&a->recorded.summary, row);
  take_cluster(a, &a->was.cluster, a->was.side.model, row);
  if (!a->question->cluster_was) row->joules_per_step = 0; /* the machine beside its cards is not known */
}

/* The run there at one edge of the band; the middle tells its parts. */
static dp_status set_again(asked *a, const prof_scale *scale, double host_factor, double *values, cli_from_row *row,
                           dp_error *error) {
  const cli_recorded *recorded = &a->recorded;
  const prof_retime_how how = {.work_s = prof_scale_work_s, .context = scale, .host_factor = host_factor};
  prof_retimed again;
  DP_TRY(prof_retime(&recorded->session, recorded->classes, &recorded->steps, &how, &again, error));
  const double step_s = median_step_s(&again.steps, values);
  dp_status status = DP_OK;
  if (scale->edge == 0) {
    prof_summary summary;
    a->answer.collectives = again.collectives;
    row->step_s = step_s;
    status = prof_summary_of(&again.session, recorded->classes, &again.steps, 0, &summary, error);
    if (status == DP_OK) {
      take_parts(&summary, row);
      prof_summary_free(&summary);
    }
  } else if (scale->edge < 0) {
    row->low_s = step_s;
  } else {
    row->high_s = step_s;
  }
  prof_retimed_free(&again);
  return status;
}

/* The band of the classes and the spread of steps are taken to be independent. */
static void add_spread(const cli_from_answer *answer, cli_from_row *row) {
  if (row->step_s <= 0) return;
  row->low_s = row->step_s * fmax(0, 1 - hypot(1 - row->low_s / row->step_s, 1 - answer->spread_low));
  row->high_s = row->step_s * (1 + hypot(row->high_s / row->step_s - 1, answer->spread_high - 1));
}

static dp_status answer_on(asked *a, place *p, double *values, cli_from_row *row, dp_error *error) {
  prof_scale *scale = DP_ARENA_NEW(&a->arena, prof_scale, 1);
  if (!scale) return dp_fail_memory(error);
  row->name = dp_arena_strdup(&a->arena, p->cluster.name);
  if (!row->name) return dp_fail_memory(error);
  DP_TRY(prof_side_of(&p->catalogue, &p->cluster, a->devices, &p->side, error));
  *scale = (prof_scale){.session = &a->recorded.session,
                        .classes = a->recorded.classes,
                        .precisions = a->precisions,
                        .was = a->was.side,
                        .is = p->side,
                        .assumed = a->answer.assumed,
                        .band = hypot(sim_efficiency_device_band(a->efficiency, a->was.side.model),
                                      sim_efficiency_device_band(a->efficiency, p->side.model)) /
                                sqrt(2)};
  DP_TRY(prof_scale_make(p->catalogue.nccl, a->used, scale, error));
  const double host_factor =
      a->host_factor > 0 ? a->host_factor : p->cluster.host_issue_factor / a->was.cluster.host_issue_factor;
  for (int edge = -1; edge <= 1; edge++) {
    scale->edge = edge;
    DP_TRY(set_again(a, scale, host_factor, values, row, error));
  }
  add_spread(&a->answer, row);
  take_cluster(a, &p->cluster, p->side.model, row);
  row->model = dp_arena_strdup(&a->arena, row->model);
  return row->model ? DP_OK : dp_fail_memory(error);
}

/* A cluster that cannot be says why in its row, as long as there is another. */
static dp_status answer_all(asked *a, double *values, cli_from_row *rows, dp_error *error) {
  const cli_from_question *q = a->question;
  take_recorded(a, values, &rows[0]);
  int fine = 0;
  for (int c = 0; c < q->cluster_count; c++) {
    place p = {.cluster = {.name = NULL}};
    cli_from_row *row = &rows[c + 1];
    dp_error why = DP_ERROR_INIT;
    dp_status status = read_place(a, "cluster", q->clusters[c], &p, error);
    if (status != DP_OK) {
      place_free(&p);
      return status;
    }
    status = answer_on(a, &p, values, row, &why);
    place_free(&p);
    if (status == DP_OK) {
      fine++;
      continue;
    }
    if (status != DP_BAD_INPUT) return dp_fail(error, status, "%s", why.text);
    row->why = dp_arena_strdup(&a->arena, why.text);
    if (!row->name || !row->why) return dp_fail_memory(error);
  }
  return fine > 0 ? DP_OK : dp_fail(error, DP_BAD_INPUT, "%s", rows[1].why);
}

static dp_status tell(const asked *a, dp_error *error) {
  if (a->question->json) return cli_from_print_json(&a->answer, error);
  if (!a->question->csv) return cli_from_print(&a->answer, error);
  cli_from_csv(&a->answer, stdout);
  return DP_OK;
}

static dp_status find_host_factor(asked *a, dp_error *error) {
  const char *given = a->question->host_factor;
  char *end = NULL;
  if (!given) return DP_OK;
  a->host_factor = strtod(given, &end);
  if (end == given || *end || !(a->host_factor >= 0.01 && a->host_factor <= 100))
    return dp_fail(error, DP_BAD_INPUT, "whatif: --host-factor: found \"%.40s\", allowed: a number from 0.01 to 100",
                   given);
  return DP_OK;
}

static dp_status work_out(asked *a, dp_error *error) {
  DP_TRY(find_host_factor(a, error));
  DP_TRY(read_records(a, error));
  DP_TRY(find_was(a, error));
  DP_TRY(find_precision(a, error));
  DP_TRY(cli_efficiency_read(&a->efficiency, error));
  cli_from_row *rows = DP_ARENA_NEW(&a->arena, cli_from_row, (size_t)a->question->cluster_count + 1);
  double *values = DP_ARENA_NEW(&a->arena, double, a->recorded.steps.items.count + 1);
  if (!rows || !values) return dp_fail_memory(error);
  a->answer.rows = rows;
  a->answer.row_count = a->question->cluster_count + 1;
  a->answer.folder = a->question->folder;
  a->answer.devices = a->devices;
  a->answer.steps = a->recorded.steps.items.count;
  a->answer.processes = a->recorded.session.processes.count;
  DP_TRY(answer_all(a, values, rows, error));
  return tell(a, error);
}

dp_status cli_whatif_from(const cli_from_question *question, dp_error *error) {
  asked a = {.question = question};
  if (question->cluster_count == 0)
    return dp_fail(error, DP_BAD_INPUT, "whatif: found no cluster, allowed: --cluster FILE, once for each choice");
  const dp_status status = work_out(&a, error);
  cli_recorded_free(&a.recorded);
  sim_efficiency_free(a.efficiency);
  free(a.precisions);
  place_free(&a.was);
  dp_arena_free(&a.arena);
  return status;
}
