/* reports/ on runs made by hand: what is written can be read back, and says the same everywhere. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "base/file.h"
#include "base/schema.h"
#include "reports/plots.h"
#include "reports/table.h"
#include "reports/tables.h"
#include "tests/reports_fixture.h"
#include "tests/suite.h"

#ifdef DP_GNUPLOT
static const char *const gnuplot = DP_GNUPLOT;
#else
static const char *const gnuplot = NULL;
#endif

static const char hostile[] = "a <b>&\"c\"</b> 'd' `touch no` $(no) \\n {x_y^z} \x01 \xff \xc3\xa9";
/* Device names come out of files, whose readers let only UTF-8 pass; a scenario's can be any file name. */
static const char hostile_device[] = "a <b>&\"c\"</b> 'd' `touch no` \x01 \xc3\xa9";
static const fixture_options plain = {.name = "plain",
                                      .device_name = "node0/gpu0",
                                      .ranks = 4,
                                      .chunks_per_rank = 1,
                                      .replicas = 1,
                                      .microbatches = 6,
                                      .training = true,
                                      .one_f_one_b = true,
                                      .forward_s = 0.0123,
                                      .transfer_s = 0.0021,
                                      .limit_bytes = 40000000000};

static fixture made;
static char folder[64];

static void setup(void) {
  (void)snprintf(folder, sizeof folder, "/tmp/diffpipe-reports-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_tree(const char *path) {
  DIR *listing = opendir(path);
  for (struct dirent *entry = listing ? readdir(listing) : NULL; entry; entry = readdir(listing)) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    char inner[1024];
    struct stat about;
    (void)snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
    if (lstat(inner, &about) == 0 && S_ISDIR(about.st_mode))
      remove_tree(inner);
    else
      (void)unlink(inner);
  }
  if (listing) (void)closedir(listing);
  (void)rmdir(path);
}

static void teardown(void) {
  remove_tree(folder);
  fixture_free(&made);
}

static const char *in_folder(const char *name) {
  static char path[256];
  (void)snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static char *slurp(const char *name) {
  char *text = NULL;
  size_t length = 0;
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(dp_file_read(in_folder(name), 1u << 28, &text, &length, &error) == DP_OK, "%s", error.text);
  ck_assert_uint_gt(length, 0);
  return text;
}

static json_t *load(const char *name) {
  json_error_t error;
  json_t *json = json_load_file(in_folder(name), JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(json != NULL, "%s:%d: %s", name, error.line, error.text);
  return json;
}

static void write_folder(const char *program, dp_str *notes) {
  dp_error error = DP_ERROR_INIT;
  const report_options options = {.gnuplot = program};
  ck_assert_msg(report_folder_write(&made.run, folder, &options, notes, &error) == DP_OK, "%s", error.text);
}

/* ---- tables ---- */

START_TEST(table_wraps_and_aligns) {
  report_table table = {0};
  dp_str out = {0};
  report_table_column(&table, "", REPORT_LEFT);
  report_table_column(&table, "", REPORT_TEXT);
  report_table_row(&table, false);
  report_table_cell(&table, "%s", "k\xc3\xa9y");
  report_table_cell(&table, "%s", "one two three four");
  report_table_row(&table, false);
  report_table_cell(&table, "%s", "ab");
  report_table_cell(&table, "%s", "five");
  report_table_print(&table, 16, &out);
  ck_assert_str_eq(dp_str_text(&out), "  k\xc3\xa9y  one two\n       three\n       four\n  ab   five\n");
  dp_str_free(&out);
  report_table_free(&table);
}
END_TEST

START_TEST(bars_end_where_the_next_column_begins) {
  report_table table = {.title = NULL};
  dp_str out = {0};
  report_table_column(&table, "", REPORT_BAR);
  report_table_column(&table, "n", REPORT_RIGHT);
  for (int i = 0; i < 3; i++) {
    report_table_row(&table, false);
    report_table_cell(&table, "%.2f", 0.5 * i);
    report_table_cell(&table, "%d", i);
  }
  report_table_print(&table, 80, &out);
  for (const char *line = dp_str_text(&out), *end; *line; line = end + 1) {
    int columns = 0;
    end = strchr(line, '\n');
    for (const char *c = line; c < end; c++) columns += ((unsigned char)*c & 0xc0) != 0x80;
    ck_assert_int_eq(columns, 2 + 30 + 2 + 1);
  }
  dp_str_free(&out);
  report_table_free(&table);
}
END_TEST

START_TEST(texts_are_cleaned) {
  static const char *const cases[][2] = {{"plain", "plain"},
                                         {"a\nb\tc", "a?b?c"},
                                         {"\xff\xc3(",
                                          "?"
                                          "?("},
                                         {"\xe2\x82\xac", "\xe2\x82\xac"},
                                         {"\xc0\x80", "??"},
                                         {"\xed\xa0\x80", "???"},
                                         {"\xc2\x85", "??"},
                                         {"\xf0\x9f\x99", "???"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    dp_arena arena = {0};
    ck_assert_str_eq(report_text_clean(&arena, cases[i][0]), cases[i][1]);
    dp_arena_free(&arena);
  }
}
END_TEST

static void check_summary(const fixture_options *options, const char *const *expected, size_t count) {
  dp_str out = {0};
  dp_error error = DP_ERROR_INIT;
  fixture_make(options, &made);
  ck_assert_int_eq(report_summary(&made.run, &out, &error), DP_OK);
  ck_assert_ptr_nonnull(out.text);
  for (const char *line = out.text; *line; line += strcspn(line, "\n") + 1) {
    char one[1024] = "";
    memcpy(one, line, strcspn(line, "\n") < sizeof one ? strcspn(line, "\n") : sizeof one - 1);
    ck_assert_msg(report_text_width(one) <= REPORT_WIDTH, "%d columns: %s", report_text_width(one), one);
  }
  for (size_t i = 0; i < count; i++)
    ck_assert_msg(strstr(dp_str_text(&out), expected[i]) != NULL, "no \"%s\" in\n%s", expected[i], out.text);
  dp_str_free(&out);
}

START_TEST(summary_says_what_matters) {
  static const char *const expected[] = {"plain: training, predicted",
                                         "2.57 G parameters",
                                         "1f1b, 4 stages",
                                         "fits: worker 0 (node0/gpu0)",
                                         "\xc2\xb1 15 %",
                                         "bubble ratio",
                                         "samples/s",
                                         "1234.50 USD",
                                         "98.7 J",
                                         "compute: convolutions",
                                         "46.0 %",
                                         "GB = 1e9 bytes",
                                         "boundary",
                                         "skip",
                                         "27.84",
                                         "40.00",
                                         "70 %"};
  check_summary(&plain, expected, sizeof expected / sizeof expected[0]);
}
END_TEST

START_TEST(summary_says_that_it_does_not_fit) {
  fixture_options options = plain;
  options.limit_bytes = 25000000000;
  static const char *const expected[] = {
      "DOES NOT FIT: worker 0 (node0/gpu0) needs 27.8 GB of 25.0 GB, 2.84 GB too much",
      "2 of 4\n           workers are over"};
  check_summary(&options, expected, 2);
}
END_TEST

START_TEST(summary_of_many_workers_is_short) {
  fixture_options options = plain;
  options.ranks = 8;
  options.replicas = 4;
  options.limit_bytes = 80000000000;
  static const char *const expected[] = {"least", "median", "most", "tightest: 0", "busiest: ", "of 32 workers"};
  check_summary(&options, expected, 6);
}
END_TEST

START_TEST(summary_of_unknown_price) {
  dp_str out = {0};
  dp_error error = DP_ERROR_INIT;
  void *json = NULL;
  fixture_make(&plain, &made);
  made.run.usd_per_million_samples = made.run.joules_per_sample = 0;
  made.cluster.price_usd_per_h = 0;
  ck_assert_int_eq(report_summary(&made.run, &out, &error), DP_OK);
  ck_assert_ptr_nonnull(strstr(dp_str_text(&out), "unknown: some device has no price"));
  ck_assert_int_eq(report_metrics_json(&made.run, &json, &error), DP_OK);
  ck_assert(json_is_null(json_object_get(json, "usd_per_million_samples")));
  json_decref(json);
  dp_str_free(&out);
}
END_TEST

START_TEST(idle_devices_are_named) {
  dp_str out = {0};
  fixture_options options = plain;
  fixture_make(&options, &made);
  report_idle_devices(&made.run, &out);
  ck_assert_str_eq(dp_str_text(&out), "");
  fixture_free(&made);
  options.spare_devices = 2;
  fixture_make(&options, &made);
  report_idle_devices(&made.run, &out);
  ck_assert_str_eq(dp_str_text(&out), "2 of 6 devices are idle: node0/gpu4, node0/gpu5");
  dp_str_free(&out);
}
END_TEST

/* ---- metrics ---- */

START_TEST(metrics_have_their_keys) {
  static const char *const keys[] = {"format",
                                     "version",
                                     "step_s",
                                     "throughput_samples_per_s",
                                     "bubble_ratio",
                                     "comm_bytes",
                                     "comm_bytes_by_kind",
                                     "fits",
                                     "instructions",
                                     "workers",
                                     "memory",
                                     "plan",
                                     "bounds",
                                     "error_band",
                                     "usd_per_million_samples",
                                     "joules_per_sample",
                                     "trajectory_s"};
  static const char *const worker_keys[] = {
      "device", "rank",           "replica", "peak_memory_bytes", "memory_limit_bytes", "compute_s",
      "comm_s", "exposed_comm_s", "idle_s",  "sent_bytes",        "received_bytes"};
  static const char *const memory_keys[] = {"worker",      "weights",      "gradients",       "optimizer",
                                            "activations", "skips",        "boundary",        "workspace",
                                            "runtime",     "layout_bytes", "live_peak_bytes", "resting_bytes"};
  fixture_options options = plain;
  options.replicas = 2;
  dp_error error = DP_ERROR_INIT;
  void *metrics = NULL;
  fixture_make(&options, &made);
  ck_assert_int_eq(report_metrics_json(&made.run, &metrics, &error), DP_OK);
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    ck_assert_msg(json_object_get(metrics, keys[i]) != NULL, "%s", keys[i]);
  ck_assert_uint_eq(json_array_size(json_object_get(metrics, "workers")), 8);
  ck_assert_uint_eq(json_array_size(json_object_get(metrics, "memory")), 8);
  const json_t *worker = json_array_get(json_object_get(metrics, "workers"), 5);
  for (size_t i = 0; i < sizeof worker_keys / sizeof worker_keys[0]; i++)
    ck_assert_msg(json_object_get(worker, worker_keys[i]) != NULL, "%s", worker_keys[i]);
  ck_assert_int_eq(json_integer_value(json_object_get(worker, "rank")), 1);
  ck_assert_int_eq(json_integer_value(json_object_get(worker, "replica")), 1);
  const json_t *memory = json_array_get(json_object_get(metrics, "memory"), 0);
  for (size_t i = 0; i < sizeof memory_keys / sizeof memory_keys[0]; i++)
    ck_assert_msg(json_object_get(memory, memory_keys[i]) != NULL, "%s", memory_keys[i]);
  const json_t *kinds = json_object_get(metrics, "comm_bytes_by_kind");
  ck_assert_uint_eq(json_object_size(kinds), PLAN_TRAFFIC_COUNT);
  ck_assert_int_eq(json_integer_value(json_object_get(kinds, "skip")),
                   made.metrics.comm_bytes_by_kind[PLAN_TRAFFIC_SKIP]);
  ck_assert_double_eq(json_real_value(json_object_get(metrics, "step_s")), made.metrics.step_s);
  ck_assert(json_is_null(json_object_get(metrics, "trajectory_s")));
  json_decref(metrics);
}
END_TEST

/* ---- trace ---- */

typedef struct slice {
  uint64_t tid;
  int64_t start, end; /* ns */
  char name[32];
} slice;

static int64_t ns_of(const json_t *event, const char *key) {
  const json_t *value = json_object_get(event, key);
  ck_assert_msg(json_is_number(value), "%s", key);
  const double ns = json_number_value(value) * 1e3;
  ck_assert_double_eq_tol(ns, round(ns), 1e-3);
  return llround(ns);
}

static int by_place(const void *a, const void *b) {
  const slice *x = a, *y = b;
  if (x->tid != y->tid) return x->tid < y->tid ? -1 : 1;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

/* The flow's end must lie in a slice of this name on its thread; returns its thread. */
static uint64_t bound_slice(const slice *slices, size_t count, const json_t *event, const char *name) {
  const uint64_t tid = (uint64_t)json_integer_value(json_object_get(event, "tid"));
  const int64_t at = ns_of(event, "ts");
  for (size_t i = 0; i < count; i++)
    if (slices[i].tid == tid && strncmp(slices[i].name, name, strlen(name)) == 0 && slices[i].start <= at &&
        (at < slices[i].end || slices[i].start == slices[i].end))
      return tid;
  ck_abort_msg("no %s around a flow", name);
  return 0;
}

static void check_trace(const fixture_options *options) {
  dp_error error = DP_ERROR_INIT;
  fixture_make(options, &made);
  if (!made.plan.training) { /* as many microbatches, said to be those of two denoise steps */
    made.plan.denoise_steps = 2;
    made.plan.microbatches /= 2;
  }
  ck_assert_msg(report_trace_write(&made.run, NULL, in_folder("timeline.json"), &error) == DP_OK, "%s", error.text);
  json_t *trace = load("timeline.json");
  const json_t *about = json_object_get(trace, "otherData"), *events = json_object_get(trace, "traceEvents");
  ck_assert_str_eq(json_string_value(json_object_get(about, "format")), "diffpipe-timeline");
  ck_assert_int_eq(json_integer_value(json_object_get(about, "version")), 1);
  const size_t instructions = made.program.instruction_count;
  slice *slices = calloc(instructions, sizeof *slices);
  const json_t **starts = calloc(instructions, sizeof(json_t *)), **ends = calloc(instructions, sizeof(json_t *));
  size_t slice_count = 0, sends = 0, flows = 0, processes = 0, threads = 0, index = 0;
  ck_assert(slices && starts && ends);
  json_t *event;
  json_array_foreach(events, index, event) {
    const char *phase = json_string_value(json_object_get(event, "ph")),
               *name = json_string_value(json_object_get(event, "name"));
    processes += strcmp(name, "process_name") == 0;
    threads += strcmp(name, "thread_name") == 0;
    if (*phase == 'X') {
      ck_assert_uint_lt(slice_count, instructions);
      slice *s = &slices[slice_count++];
      s->tid = (uint64_t)json_integer_value(json_object_get(event, "tid"));
      s->start = ns_of(event, "ts");
      s->end = s->start + ns_of(event, "dur");
      (void)snprintf(s->name, sizeof s->name, "%s", name);
      const json_t *args = json_object_get(event, "args");
      const uint64_t id = (uint64_t)json_integer_value(json_object_get(args, "instruction"));
      ck_assert_uint_lt(id, instructions);
      ck_assert_int_eq(s->start, llround(made.timeline.start_s[id] * 1e9));
      ck_assert_int_eq(s->end, llround(made.timeline.end_s[id] * 1e9));
      ck_assert_int_ge(s->end, s->start);
      if (json_object_get(args, "microbatch")) {
        const json_int_t step = json_integer_value(json_object_get(args, "denoise_step"));
        const json_int_t microbatch = json_integer_value(json_object_get(args, "microbatch"));
        ck_assert_int_eq(json_object_get(args, "denoise_step") != NULL, !made.plan.training);
        ck_assert_int_lt(microbatch, made.plan.microbatches);
        ck_assert_int_eq(step * made.plan.microbatches + microbatch, made.program.instructions[id].microbatch);
      }
      sends += made.program.instructions[id].opcode == PLAN_SEND;
    } else if (*phase == 's' || *phase == 'f') {
      const uint64_t id = (uint64_t)json_integer_value(json_object_get(event, "id"));
      const json_t **side = *phase == 's' ? starts : ends;
      ck_assert_uint_lt(id, instructions);
      ck_assert_ptr_null(side[id]);
      side[id] = event;
      flows += *phase == 's';
    }
  }
  ck_assert_uint_eq(slice_count, instructions);
  ck_assert_uint_eq(processes, (size_t)made.program.worker_count);
  ck_assert_uint_eq(threads, made.program.lane_count);
  ck_assert_uint_gt(sends, 0);
  ck_assert_uint_eq(flows, sends);
  for (size_t i = 0; i < instructions; i++) {
    ck_assert_int_eq(starts[i] != NULL, ends[i] != NULL);
    ck_assert_int_eq(starts[i] != NULL, made.program.instructions[i].opcode == PLAN_SEND);
    if (!starts[i]) continue;
    const uint64_t from = bound_slice(slices, slice_count, starts[i], "send"),
                   to = bound_slice(slices, slice_count, ends[i], "receive");
    const plan_lane *lane = &made.program.lanes[from - 1];
    ck_assert_uint_eq(made.program.lanes[to - 1].worker, lane->peer);
    ck_assert_int_le(ns_of(starts[i], "ts"), ns_of(ends[i], "ts"));
  }
  qsort(slices, slice_count, sizeof *slices, by_place);
  for (size_t i = 1; i < slice_count; i++)
    if (slices[i].tid == slices[i - 1].tid) ck_assert_int_ge(slices[i].start, slices[i - 1].end);
  free(slices);
  free(starts);
  free(ends);
  json_decref(trace);
}

START_TEST(trace_joins_sends_to_receives) { check_trace(&plain); }
END_TEST

START_TEST(trace_of_chunks_and_replicas) {
  fixture_options options = plain;
  options.ranks = options.chunks_per_rank = options.replicas = 2;
  options.one_f_one_b = false;
  options.split_backward = true;
  check_trace(&options);
}
END_TEST

START_TEST(trace_of_instant_transfers) {
  fixture_options options = plain;
  options.transfer_s = 0;
  options.forward_s = 1e-3 / 3; /* no whole number of nanoseconds */
  check_trace(&options);
}
END_TEST

START_TEST(trace_of_sampling_with_a_hostile_name) {
  fixture_options options = plain;
  options.training = false;
  options.name = hostile;
  options.device_name = hostile_device;
  check_trace(&options);
}
END_TEST

/* ---- folder ---- */

static const char *const always[] = {"plan.json", "metrics.json", "setup.json", "timeline.json", "report.html"};
static const char *const pictures[] = {"timeline.svg", "timeline.png", "memory.svg",
                                       "memory.png",   "bounds.svg",   "bounds.png"};
static const char *const sources[] = {"plots/timeline.gp", "plots/timeline.tsv", "plots/memory.gp",
                                      "plots/memory.tsv",  "plots/bounds.gp",    "plots/bounds.tsv"};

static size_t count_files(const char *path) {
  size_t count = 0;
  DIR *listing = opendir(path);
  ck_assert_ptr_nonnull(listing);
  for (struct dirent *entry = readdir(listing); entry; entry = readdir(listing)) count += entry->d_name[0] != '.';
  (void)closedir(listing);
  return count;
}

static void check_files(bool drawn) {
  for (size_t i = 0; i < 5; i++) free(slurp(always[i]));
  for (size_t i = 0; i < 6; i++) free(slurp(sources[i]));
  for (size_t i = 0; i < 6; i++) ck_assert_int_eq(access(in_folder(pictures[i]), F_OK) == 0, drawn);
  /* nothing else: no temporary is left */
  ck_assert_uint_eq(count_files(folder), 5 + 1 + (drawn ? 6 : 0));
  ck_assert_uint_eq(count_files(in_folder("plots")), 6);
  json_decref(load("plan.json"));
  json_decref(load("metrics.json"));
  json_decref(load("setup.json"));
  json_decref(load("timeline.json"));
}

/* Every tag that is opened is closed, in order; no stray '<' or '&'. */
static void check_markup(const char *text) {
  enum { DEEPEST = 64 };
  char open[DEEPEST][24];
  int depth = 0;
  for (const char *at = text; *at; at++) {
    if (*at == '&') {
      const size_t length = strcspn(at, ";");
      ck_assert_msg(length < 8, "stray & at: %.40s", at);
    }
    if (*at != '<') continue;
    if (at[1] == '?' || at[1] == '!') {
      at = strchr(at, '>');
      continue;
    }
    const bool closing = at[1] == '/';
    const char *name = at + 1 + closing, *end = strchr(at, '>');
    const size_t length = strcspn(name, " \n\t/>");
    ck_assert_msg(end && length > 0 && length < 24, "bad tag: %.40s", at);
    const bool empty = end[-1] == '/' || (strncmp(name, "meta", length) == 0 && length == 4);
    if (closing) {
      ck_assert_int_gt(depth, 0);
      depth--;
      ck_assert_msg(strlen(open[depth]) == length && strncmp(open[depth], name, length) == 0, "%s closed by %.20s",
                    open[depth], at);
    } else if (!empty) {
      ck_assert_int_lt(depth, DEEPEST);
      (void)snprintf(open[depth++], sizeof open[0], "%.*s", (int)length, name);
    }
    at = end;
  }
  ck_assert_int_eq(depth, 0);
}

START_TEST(folder_holds_all_files_twice) {
  dp_str notes = {0};
  fixture_make(&plain, &made);
  for (int i = 0; i < 2; i++) {
    write_folder(gnuplot, &notes);
    check_files(gnuplot != NULL);
  }
  if (gnuplot) ck_assert_str_eq(dp_str_text(&notes), "");
  dp_str_free(&notes);
}
END_TEST

START_TEST(folder_without_gnuplot_says_so) {
  dp_str notes = {0};
  fixture_make(&plain, &made);
  if (gnuplot) write_folder(gnuplot, &notes);
  dp_str_clear(&notes);
  write_folder("/nonexistent/gnuplot", &notes);
  ck_assert_ptr_nonnull(strstr(dp_str_text(&notes), "no plots: /nonexistent/gnuplot: cannot be run: No such file"));
  check_files(false); /* and the pictures of before are gone */
  dp_str_clear(&notes);
  write_folder(NULL, &notes);
  ck_assert_ptr_nonnull(strstr(dp_str_text(&notes), "no plots: gnuplot was not found"));
  check_files(false);
  dp_str_free(&notes);
}
END_TEST

START_TEST(folder_that_cannot_be_made_is_an_error) {
  dp_str notes = {0};
  dp_error error = DP_ERROR_INIT;
  const report_options options = {.gnuplot = NULL};
  FILE *file = fopen(in_folder("file"), "w");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(fclose(file), 0);
  fixture_make(&plain, &made);
  char inside[128];
  (void)snprintf(inside, sizeof inside, "%s/file/out", folder);
  ck_assert_int_eq(report_folder_write(&made.run, inside, &options, &notes, &error), DP_IO_FAILED);
  ck_assert_ptr_nonnull(strstr(error.text, "file"));
  dp_str_free(&notes);
}
END_TEST

static void check_pictures(void) {
  for (size_t i = 0; i < 6; i++) {
    const char *name = pictures[i];
    if (strstr(name, ".png")) {
      static const unsigned char magic[8] = {0x89, 'P', 'N', 'G', 0x0d, 0x0a, 0x1a, 0x0a};
      unsigned char head[24];
      FILE *file = fopen(in_folder(name), "rb");
      ck_assert_ptr_nonnull(file);
      ck_assert_uint_eq(fread(head, 1, sizeof head, file), sizeof head);
      ck_assert_int_eq(fclose(file), 0);
      ck_assert_mem_eq(head, magic, sizeof magic);
      ck_assert_int_eq(head[18] << 8 | head[19], 2 * REPORT_PLOT_WIDTH);
    } else {
      char *svg = slurp(name);
      ck_assert_ptr_nonnull(strstr(svg, "<svg"));
      check_markup(svg);
      free(svg);
    }
  }
}

START_TEST(pictures_are_whole_whatever_the_name) {
  fixture_options options = plain;
  dp_str notes = {0};
  options.name = hostile;
  options.device_name = hostile_device;
  fixture_make(&options, &made);
  /* a folder whose name needs quoting too */
  char odd[160];
  (void)snprintf(odd, sizeof odd, "%s/it's `a` \"b\"", folder);
  dp_error error = DP_ERROR_INIT;
  const report_options drawn = {.gnuplot = gnuplot};
  ck_assert_msg(report_folder_write(&made.run, odd, &drawn, &notes, &error) == DP_OK, "%s", error.text);
  if (gnuplot) ck_assert_str_eq(dp_str_text(&notes), "");
  write_folder(gnuplot, &notes);
  if (gnuplot) {
    check_pictures();
    char *svg = slurp("timeline.svg");
    ck_assert_ptr_nonnull(strstr(svg, "a &lt;b>&amp;\"c\"&lt;/b> 'd' `touch no` $(no) \\n {x_y^z} ? ? \xc3\xa9"));
    free(svg);
  }
  ck_assert_int_ne(access("no", F_OK), 0);
  dp_str_free(&notes);
}
END_TEST

START_TEST(pictures_of_a_run_with_nothing_in_it) {
  fixture_options options = plain;
  dp_str notes = {0};
  options.ranks = options.microbatches = 1;
  options.training = false;
  options.forward_s = options.transfer_s = 0;
  fixture_make(&options, &made);
  made.run.bound_count = 0;
  memset(made.memory.workers[0].at_peak_bytes, 0, sizeof made.memory.workers[0].at_peak_bytes);
  made.memory.workers[0].peak_bytes = 0;
  made.metrics.bubble_ratio = 0;
  made.metrics.throughput_samples_per_s = 0;
  write_folder(gnuplot, &notes);
  check_files(gnuplot != NULL);
  ck_assert_str_eq(dp_str_text(&notes), gnuplot ? "" : dp_str_text(&notes));
  dp_str_free(&notes);
}
END_TEST

/* ---- the page ---- */

static void check_page(const report_run *run) {
  report_tables tables;
  dp_error error = DP_ERROR_INIT;
  char *page = slurp("report.html");
  check_markup(page);
  ck_assert_int_eq(report_tables_build(run, &tables, &error), DP_OK);
  for (int t = 0; t < REPORT_TABLE_COUNT; t++) {
    const report_table *table = &tables.tables[t];
    for (size_t c = 0; c < table->cells.count + 1; c++) {
      const char *text = c < table->cells.count ? table->cells.items[c] : table->title;
      if (t == REPORT_TABLE_RUN || t == REPORT_TABLE_RESULT) break; /* the answer says it in its own way */
      if (c < table->cells.count && table->columns[c % (size_t)table->column_count].align == REPORT_BAR) continue;
      dp_str escaped = {0};
      report_html_escape(text, &escaped);
      ck_assert_msg(strstr(page, dp_str_text(&escaped)) != NULL, "no %s", dp_str_text(&escaped));
      dp_str_free(&escaped);
    }
  }
  report_tables_free(&tables);
  size_t figures = 0;
  for (const char *at = page; (at = strstr(at, "<figure ")); at++) figures++;
  ck_assert_uint_eq(figures, gnuplot ? 3 : 1); /* the drawing; timeline and memory */
  /* no address but the names of XML's spaces, nothing to load, and none of the plots' own ink or ground */
  for (const char *at = page; (at = strstr(at, "http")); at++)
    ck_assert_int_eq(strncmp(at, "http://www.w3.org/", 18), 0);
  ck_assert_ptr_null(strstr(page, "src="));
  ck_assert_ptr_null(strstr(page, "@import"));
  ck_assert_ptr_null(strstr(page, REPORT_INK_SVG_TEXT));
  ck_assert_ptr_null(strstr(page, REPORT_INK_SVG_LINE));
  ck_assert_ptr_null(strstr(page, REPORT_BAND_SVG));
  ck_assert_ptr_null(strstr(page, REPORT_GRID_SVG));
  ck_assert_ptr_nonnull(strstr(page, "prefers-color-scheme: dark"));
  free(page);
}

START_TEST(page_holds_every_table_and_plot) {
  dp_str notes = {0};
  fixture_options options = plain;
  options.name = hostile;
  options.device_name = hostile_device;
  options.limit_bytes = 25000000000;
  fixture_make(&options, &made);
  write_folder(gnuplot, &notes);
  check_page(&made.run);
  dp_str_free(&notes);
}
END_TEST

/* ---- the timeline's boxes ---- */

typedef struct box {
  double x0, x1, y0, y1;
} box;

static int by_row(const void *a, const void *b) {
  const box *x = a, *y = b;
  if (x->y0 != y->y0) return x->y0 < y->y0 ? -1 : 1;
  return (x->x0 > y->x0) - (x->x0 < y->x0);
}

/* Reads plots/timeline.tsv: boxes of one strip never overlap; returns the right edge and counts workers and boxes. */
static double check_boxes(size_t *box_count, int *last_worker) {
  char *text = slurp("plots/timeline.tsv"), *line = text;
  DP_ARRAY(box) boxes = {0};
  double edge = 0;
  *last_worker = 0;
  for (; *line; line += strcspn(line, "\n") + 1) {
    if (*line == '#') continue;
    const char *field = line;
    double values[11];
    for (int f = 0; f < 11; f++) {
      values[f] = strtod(field, NULL);
      field += strcspn(field, "\t") + 1;
    }
    const box one = {values[7], values[8], values[9], values[10]};
    ck_assert_double_ge(one.x0, 0);
    ck_assert_double_ge(one.x1, one.x0);
    ck_assert_double_gt(one.y1, one.y0);
    ck_assert(dp_array_push(&boxes, one));
    edge = fmax(edge, one.x1);
    if ((int)values[0] > *last_worker) *last_worker = (int)values[0];
  }
  qsort(boxes.items, boxes.count, sizeof *boxes.items, by_row);
  for (size_t i = 1; i < boxes.count; i++)
    if (boxes.items[i].y0 == boxes.items[i - 1].y0)
      ck_assert_double_ge(boxes.items[i].x0, boxes.items[i - 1].x1 - 1e-5);
  *box_count = boxes.count;
  dp_array_free(&boxes);
  free(text);
  return edge;
}

START_TEST(small_timeline_is_drawn_whole) {
  dp_str notes = {0};
  size_t boxes = 0;
  int last = 0;
  fixture_make(&plain, &made);
  write_folder(NULL, &notes);
  const double edge = check_boxes(&boxes, &last);
  ck_assert_int_eq(last, 3);
  /* 4 workers: 6 forwards, 6 backwards, optimizer; 3 cuts, 6 each way, at both ends */
  ck_assert_uint_eq(boxes, 4 * 13 + 3 * 12 * 2);
  ck_assert_double_eq_tol(edge, 1e3 * made.timeline.step_s, 0.5);
  dp_str_free(&notes);
}
END_TEST

START_TEST(large_timeline_shows_both_ends) {
  dp_str notes = {0};
  size_t boxes = 0;
  int last = 0;
  fixture_options options = plain;
  options.ranks = 40;
  options.microbatches = 160;
  fixture_make(&options, &made);
  write_folder(NULL, &notes);
  const double edge = check_boxes(&boxes, &last);
  ck_assert_int_eq(last, 39); /* 16 of them, the first and the last included */
  ck_assert_double_lt(edge, 500 * made.timeline.step_s);
  char *script = slurp("plots/timeline.gp");
  ck_assert_ptr_nonnull(strstr(script, "16 of 40 workers, evenly spread"));
  ck_assert_ptr_nonnull(strstr(script, "first and last "));
  ck_assert_ptr_nonnull(strstr(script, "s not drawn"));
  free(script);
  dp_str_free(&notes);
}
END_TEST

START_TEST(nice_steps) {
  static const double cases[][2] = {{1, 1},    {1.99, 1}, {2, 2},       {4.99, 2},    {5, 5},
                                    {9.99, 5}, {10, 10},  {0.03, 0.02}, {7e-9, 5e-9}, {1e3, 1e3}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    ck_assert_double_eq_tol(report_plot_nice(cases[i][0]) / cases[i][1], 1, 1e-9);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {table_wraps_and_aligns,
                                bars_end_where_the_next_column_begins,
                                texts_are_cleaned,
                                summary_says_what_matters,
                                summary_says_that_it_does_not_fit,
                                summary_of_many_workers_is_short,
                                summary_of_unknown_price,
                                idle_devices_are_named,
                                metrics_have_their_keys,
                                trace_joins_sends_to_receives,
                                trace_of_chunks_and_replicas,
                                trace_of_instant_transfers,
                                trace_of_sampling_with_a_hostile_name,
                                folder_holds_all_files_twice,
                                folder_without_gnuplot_says_so,
                                folder_that_cannot_be_made_is_an_error,
                                pictures_are_whole_whatever_the_name,
                                pictures_of_a_run_with_nothing_in_it,
                                page_holds_every_table_and_plot,
                                small_timeline_is_drawn_whole,
                                large_timeline_shows_both_ends,
                                nice_steps};
  return suite_run("reports", tests, DP_COUNT_OF(tests), setup, teardown, 60);
}
