#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/progress.h"
#include "reports/report.h"
#include "reports/tables.h"

/* One row an opcode: the slice's name in front of its microbatch, and its category. Viewers colour by name with the
 * numbers left out, so the names alone set the colours. */
static const struct {
  const char *name, *category;
} rows[PLAN_OPCODE_COUNT] = {
    [PLAN_FORWARD] = {"forward", "forward"},
    [PLAN_BACKWARD] = {"backward", "backward"},
    [PLAN_BACKWARD_INPUT] = {"backward input", "backward"},
    [PLAN_BACKWARD_WEIGHT] = {"backward weight", "backward_weight"},
    [PLAN_SEND] = {"send", "communication"},
    [PLAN_RECV] = {"receive", "communication"},
    [PLAN_ALL_REDUCE] = {"all-reduce", "communication"},
    [PLAN_OPTIMIZER_STEP] = {"optimizer step", "optimizer"},
};

typedef struct tracer {
  const report_run *run;
  const char *which;     /* after the names of processes, where the file has two runs; "" */
  uint32_t worker_count; /* of the runs before this one in the file, and */
  uint32_t lane_count;   /* their lanes, and */
  uint32_t flow_count;   /* their instructions: no two events of the file have a number of theirs in common */
  int place, places;     /* of this run among the runs: a worker's processes stand together */
  FILE *stream;
  bool first; /* no event is out yet */
  dp_arena arena;
} tracer;

/* Perfetto gives threads with id 0 a meaning of its own, so ids start at 1; lanes are numbered across the program. */
static uint32_t process_id(const tracer *t, uint32_t worker) { return t->worker_count + worker + 1; }
static uint32_t thread_id(const tracer *t, uint32_t lane) { return t->lane_count + lane + 1; }

/* Clocks of several hosts may put a start before the step's. */
static int64_t nanoseconds(double seconds) { return seconds > 0 ? llround(seconds * 1e9) : 0; }

static void begin_event(tracer *t) {
  fputs(t->first ? "\n" : ",\n", t->stream);
  t->first = false;
}

/* Takes the event. */
static dp_status write_json(tracer *t, json_t *event, dp_error *error) {
  if (!event) return dp_fail_memory(error);
  begin_event(t);
  const int failed = json_dumpf(event, t->stream, JSON_COMPACT | JSON_REAL_PRECISION(15));
  json_decref(event);
  return failed ? dp_fail(error, DP_IO_FAILED, "timeline.json: cannot be written") : DP_OK;
}

static dp_status write_metadata(tracer *t, const char *what, uint32_t pid, uint32_t tid, const char *key, json_t *value,
                                dp_error *error) {
  return write_json(t,
                    json_pack("{s:s, s:s, s:I, s:I, s:{s:o}}", "name", what, "ph", "M", "pid", (json_int_t)pid, "tid",
                              (json_int_t)tid, "args", key, value),
                    error);
}

static json_t *text(tracer *t, const char *value) {
  const char *clean = value ? report_text_clean(&t->arena, value) : NULL;
  return clean ? json_string(clean) : NULL;
}

static json_t *lane_name(tracer *t, const plan_lane *lane) {
  switch (lane->kind) {
    case PLAN_LANE_COMPUTE:
      return json_string("compute");
    case PLAN_LANE_SEND:
      return text(t, dp_arena_printf(&t->arena, "send %s to worker %" PRIu32,
                                     lane->backward ? "gradients" : "activations", lane->peer));
    case PLAN_LANE_RECV:
      return text(t, dp_arena_printf(&t->arena, "receive %s from worker %" PRIu32,
                                     lane->backward ? "gradients" : "activations", lane->peer));
    default:
      return json_string("collectives");
  }
}

static dp_status write_names(tracer *t, uint32_t worker, dp_error *error) {
  const plan_program *program = t->run->program;
  const plan_plan *plan = program->plan;
  const uint32_t pid = process_id(t, worker);
  const int replica = plan_worker_replica(plan, (int)worker), rank = plan_worker_rank(plan, (int)worker);
  const char *name =
      plan_tensor(plan) > 1 ? dp_arena_printf(&t->arena, "worker %" PRIu32 " (replica %d, tensor member %d, rank %d)%s",
                                              worker, replica, plan_worker_member(plan, (int)worker), rank, t->which)
      : plan->replicas > 1
          ? dp_arena_printf(&t->arena, "worker %" PRIu32 " (replica %d, rank %d)%s", worker, replica, rank, t->which)
          : dp_arena_printf(&t->arena, "worker %" PRIu32 "%s", worker, t->which);
  DP_TRY(write_metadata(t, "process_name", pid, 0, "name", text(t, name), error));
  DP_TRY(
      write_metadata(t, "process_labels", pid, 0, "labels", text(t, report_device_name(t->run, (int)worker)), error));
  DP_TRY(write_metadata(t, "process_sort_index", pid, 0, "sort_index",
                        json_integer((json_int_t)worker * t->places + t->place), error));
  for (uint32_t l = program->worker_lane[worker]; l < program->worker_lane[worker + 1]; l++) {
    DP_TRY(write_metadata(t, "thread_name", pid, thread_id(t, l), "name", lane_name(t, &program->lanes[l]), error));
    DP_TRY(write_metadata(t, "thread_sort_index", pid, thread_id(t, l), "sort_index",
                          json_integer(l - program->worker_lane[worker]), error));
  }
  return DP_OK;
}

/* Events of instructions hold numbers and fixed words only, so they are printed directly: a program can have millions.
 */
static void write_time(tracer *t, const char *key, int64_t ns) {
  fprintf(t->stream, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void write_instruction(tracer *t, uint32_t lane_index, uint32_t i) {
  const plan_program *program = t->run->program;
  const plan_instruction *instruction = &program->instructions[i];
  const uint32_t pid = process_id(t, program->lanes[lane_index].worker), tid = thread_id(t, lane_index);
  const int64_t start = nanoseconds(t->run->timeline->start_s[i]), end = nanoseconds(t->run->timeline->end_s[i]);
  const bool message = instruction->opcode == PLAN_SEND || instruction->opcode == PLAN_RECV;
  const bool numbered = instruction->opcode != PLAN_OPTIMIZER_STEP && instruction->opcode != PLAN_ALL_REDUCE;
  /* sampling counts on from denoise step to denoise step */
  const uint32_t count = (uint32_t)program->plan->microbatches, microbatch = instruction->microbatch % count;
  begin_event(t);
  fprintf(t->stream, "{\"name\":\"%s", rows[instruction->opcode].name);
  if (numbered) fprintf(t->stream, " %" PRIu32, microbatch);
  fprintf(t->stream, "\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32,
          rows[instruction->opcode].category, pid, tid);
  write_time(t, "ts", start);
  write_time(t, "dur", end - start);
  fprintf(t->stream, ",\"args\":{\"instruction\":%" PRIu32 ",\"chunk\":%u", i, (unsigned)instruction->chunk);
  if (numbered) fprintf(t->stream, ",\"microbatch\":%" PRIu32, microbatch);
  if (numbered && !program->plan->training)
    fprintf(t->stream, ",\"denoise_step\":%" PRIu32, instruction->microbatch / count);
  if (message) {
    const plan_message *class = &program->messages[instruction->class_id];
    fprintf(t->stream, ",\"bytes\":%" PRId64 ",\"gradients\":%s", class->bytes, class->backward ? "true" : "false");
    for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++)
      if (class->kind_bytes[k])
        fprintf(t->stream, ",\"%s_bytes\":%" PRId64, plan_traffic_names[k], class->kind_bytes[k]);
  } else if (instruction->opcode == PLAN_ALL_REDUCE) {
    fprintf(t->stream, ",\"bytes\":%" PRId64 ",\"part\":%u", program->collectives[instruction->class_id].bytes,
            (unsigned)instruction->part);
  } else if (program->works[instruction->class_id].parts > 1) {
    fprintf(t->stream, ",\"part\":%u", (unsigned)instruction->part);
  }
  fputs("}}", t->stream);
  if (!message) return;
  /* The flow leaves where the send starts and arrives in the last nanosecond of the receive; both lie inside their
   * slices, to which viewers bind them. Its id is the SEND's. */
  const bool send = instruction->opcode == PLAN_SEND;
  begin_event(t);
  fprintf(t->stream,
          "{\"name\":\"transfer\",\"cat\":\"transfer\",\"ph\":\"%s\"%s,\"id\":%" PRIu32 ",\"pid\":%" PRIu32
          ",\"tid\":%" PRIu32,
          send ? "s" : "f", send ? "" : ",\"bp\":\"e\"", t->flow_count + (send ? i : instruction->peer), pid, tid);
  write_time(t, "ts", send || end == start ? start : end - 1);
  fputs("}", t->stream);
}

static dp_status write_run(tracer *t, dp_error *error) {
  const plan_program *program = t->run->program;
  dp_progress progress;
  dp_progress_begin(&progress, "timeline.json", program->instruction_count);
  dp_status status = DP_OK;
  for (uint32_t w = 0; w < (uint32_t)program->worker_count && status == DP_OK; w++) {
    status = write_names(t, w, error);
    dp_arena_free(&t->arena);
    for (uint32_t l = program->worker_lane[w]; l < program->worker_lane[w + 1] && status == DP_OK; l++) {
      const plan_lane *lane = &program->lanes[l];
      for (uint32_t i = lane->first; i < lane->first + lane->count; i++) write_instruction(t, l, i);
      dp_progress_update(&progress, lane->first, NULL);
    }
  }
  dp_progress_end(&progress);
  return status;
}

/* `other`: the prediction of `run`, or NULL. */
static dp_status write_trace(tracer *t, const report_run *run, const report_run *other, dp_error *error) {
  json_t *about = json_pack("{s:s, s:i, s:o, s:o, s:f, s:f}", "format", "diffpipe-timeline", "version", 1, "scenario",
                            text(t, run->name), "origin", text(t, run->origin), "step_s", run->metrics->step_s, "end_s",
                            run->timeline->step_s);
  if (about && other && json_object_set_new(about, "predicted_step_s", json_real(other->metrics->step_s)) != 0) {
    json_decref(about);
    about = NULL;
  }
  if (!about) return dp_fail_memory(error);
  fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":", t->stream);
  const int failed = json_dumpf(about, t->stream, JSON_REAL_PRECISION(15));
  json_decref(about);
  if (failed) return dp_fail(error, DP_IO_FAILED, "timeline.json: cannot be written");
  fputs(",\"traceEvents\":[", t->stream);
  t->run = run;
  t->which = other ? ", measured" : "";
  t->places = other ? 2 : 1;
  t->place = t->places - 1;
  DP_TRY(write_run(t, error));
  if (other) {
    t->worker_count = (uint32_t)run->program->worker_count;
    t->lane_count = run->program->lane_count;
    t->flow_count = run->program->instruction_count;
    t->run = other;
    t->which = ", predicted";
    t->place = 0;
    DP_TRY(write_run(t, error));
  }
  fputs("\n]}\n", t->stream);
  return DP_OK;
}

dp_status report_trace_write(const report_run *run, const report_run *predicted, const char *path, dp_error *error) {
  dp_output output;
  DP_TRY(dp_output_open(path, &output, error));
  tracer t = {.stream = output.stream, .first = true};
  const dp_status status = write_trace(&t, run, predicted, error);
  dp_arena_free(&t.arena);
  if (status == DP_OK) return dp_output_commit(&output, error);
  dp_output_abandon(&output);
  return status;
}
