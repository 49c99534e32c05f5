#include <jansson.h>
#include <stdlib.h>

#include "base/schema.h"
#include "cli/json.h"
#include "cli/profile_report.h"
#include "profiler/names.h"

/* Takes over the value. */
static bool append(json_t *array, json_t *value) { return json_array_append_new(array, value) == 0; }

json_t *cli_spread_json(const prof_spread *s) {
  return json_pack("{s:I, s:f, s:f, s:f, s:f}", "count", (json_int_t)s->count, "sum_s", s->sum_s, "p50_s", s->p50_s,
                   "p95_s", s->p95_s, "max_s", s->max_s);
}

static json_t *parts(const double *parts_s) {
  json_t *object = json_object();
  bool done = object != NULL;
  for (int i = 0; done && i < PROF_PART_COUNT; i++) {
    char key[32];
    (void)snprintf(key, sizeof key, "%s_s", prof_part_names[i]);
    done = cli_json_put(object, key, json_real(parts_s[i]));
  }
  if (done) return object;
  json_decref(object);
  return NULL;
}

static bool add_processes(json_t *array, const cli_recorded *p) {
  for (size_t i = 0; i < p->session.processes.count; i++) {
    const prof_process *process = &p->session.processes.items[i];
    const prof_process_steps *steps = &p->steps.processes[i];
    static const char *const hows[] = {"auto", "range", "marks"};
    json_t *row = json_pack(
        "{s:s, s:i, s:i, s:s, s:I, s:b, s:b, s:f, s:{s:I, s:I, s:I, s:I, s:I}, s:{s:s, s:I, s:I, s:f, s:s}}", "host",
        process->header.host, "pid", (int)process->header.pid, "rank", (int)process->header.rank, "command",
        process->header.command, "records", (json_int_t)process->records, "ended", process->ended, "cut", process->cut,
        "recording_s", cli_recorded_recording_s(p, i), "lost", "no_buffer", (json_int_t)process->counts.no_buffer,
        "rotated", (json_int_t)process->counts.rotated, "not_written", (json_int_t)process->counts.not_written,
        "unnamed", (json_int_t)process->counts.unnamed, "source", (json_int_t)process->counts.source, "steps", "from",
        hows[steps->how], "count", (json_int_t)steps->count, "period_kernels", (json_int_t)steps->period, "confidence",
        steps->confidence, "why", steps->why);
    if (!append(array, row)) return false;
  }
  return true;
}

static bool add_classes(json_t *array, const cli_recorded *p) {
  for (int c = 0; c < PROF_CLASS_COUNT; c++) {
    json_t *row = cli_spread_json(&p->summary.classes[c].time);
    if (!append(array, row) || !cli_json_put(row, "class", json_string(prof_class_names[c])) ||
        !cli_json_put(row, "share", json_real(p->summary.classes[c].share)))
      return false;
  }
  return true;
}

static bool add_kernels(json_t *array, const cli_recorded *p) {
  for (size_t k = 0; k < p->summary.kernels.count; k++) {
    const prof_kernel_row *row = &p->summary.kernels.items[k];
    char *name = prof_readable_name(p->session.names.items[row->name]);
    json_t *object = name ? cli_spread_json(&row->time) : NULL;
    const bool done = append(array, object) && cli_json_put(object, "name", json_string(name)) &&
                      cli_json_put(object, "class", json_string(prof_class_names[row->class])) &&
                      cli_json_put(object, "share", json_real(row->share));
    free(name);
    if (!done) return false;
  }
  return true;
}

static bool add_copies(json_t *array, const cli_recorded *p) {
  for (int c = 0; c < PROF_COPY_END; c++) {
    const prof_copy_row *row = &p->summary.copies[c];
    if (!append(array, json_pack("{s:s, s:I, s:I, s:f}", "direction", prof_copy_name(c), "count",
                                 (json_int_t)row->count, "bytes", (json_int_t)row->bytes, "sum_s", row->sum_s)))
      return false;
  }
  return true;
}

static bool add_streams(json_t *array, const cli_recorded *p) {
  for (size_t s = 0; s < p->summary.streams.count; s++) {
    const prof_stream_row *row = &p->summary.streams.items[s];
    if (!append(array,
                json_pack("{s:i, s:i, s:I, s:I, s:f}", "process", (int)row->process, "device", (int)row->device,
                          "stream", (json_int_t)row->stream, "count", (json_int_t)row->count, "sum_s", row->sum_s)))
      return false;
  }
  return true;
}

static bool add_devices(json_t *array, const cli_recorded *p) {
  for (size_t d = 0; d < p->summary.devices.count; d++) {
    const prof_device_row *row = &p->summary.devices.items[d];
    if (!append(array, json_pack("{s:i, s:i, s:f, s:o, s:f, s:f, s:o, s:I, s:I}", "process", (int)row->process,
                                 "device", (int)row->device, "window_s", row->window_s, "parts", parts(row->parts_s),
                                 "nccl_s", row->nccl_s, "copies_s", row->copies_s, "gaps", cli_spread_json(&row->gaps),
                                 "peak_bytes", (json_int_t)row->peak_bytes, "end_bytes", (json_int_t)row->end_bytes)))
      return false;
  }
  return true;
}

static bool add_steps(json_t *array, const cli_recorded *p) {
  for (size_t s = 0; s < p->summary.step_count; s++) {
    const prof_step_row *row = &p->summary.steps[s];
    json_t *classes = json_object();
    json_t *step = json_pack("{s:i, s:I, s:I, s:f, s:b, s:o, s:o}", "process", (int)row->step.process, "number",
                             (json_int_t)row->step.number, "start_ns", (json_int_t)row->step.start_ns, "step_s",
                             (double)(row->step.end_ns - row->step.start_ns) * 1e-9, "odd", row->step.odd, "parts",
                             parts(row->parts_s), "classes_s", classes);
    if (!append(array, step)) return false;
    for (int c = 0; c < PROF_CLASS_COUNT; c++)
      if (row->classes_s[c] > 0 && !cli_json_put(classes, prof_class_names[c], json_real(row->classes_s[c])))
        return false;
  }
  return true;
}

json_t *cli_profile_json(const cli_recorded *p) {
  static const struct {
    const char *key;
    bool (*add)(json_t *array, const cli_recorded *profile);
  } lists[] = {{"processes", add_processes}, {"classes", add_classes}, {"kernels", add_kernels}, {"copies", add_copies},
               {"streams", add_streams},     {"devices", add_devices}, {"steps", add_steps}};
  json_t *root = json_object();
  bool done = root && cli_json_put(root, "format", json_string("diffpipe-profile-summary")) &&
              cli_json_put(root, "version", json_integer(1)) &&
              cli_json_put(root, "work_s", json_real(p->summary.work_s)) &&
              cli_json_put(root, "step", cli_spread_json(&p->summary.step_time));
  for (int i = 0; done && i < (int)DP_COUNT_OF(lists); i++) {
    json_t *array = json_array();
    done = cli_json_put(root, lists[i].key, array) && lists[i].add(array, p);
  }
  if (done) return root;
  json_decref(root);
  return NULL;
}
