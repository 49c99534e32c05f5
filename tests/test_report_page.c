/* What is read back from a run's folder says what the run said; what travels adds up; the drawing has room for all. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "reports/draw.h"
#include "reports/flows.h"
#include "reports/read.h"
#include "reports/table.h"
#include "sim/predict.h"
#include "tests/reports_fixture.h"
#include "tests/suite.h"

static const char *const names[] = {"plan.json",        "metrics.json",      "setup.json",         "timeline.json",
                                    "report.html",      "plots/timeline.gp", "plots/timeline.tsv", "plots/memory.gp",
                                    "plots/memory.tsv", "plots/bounds.gp",   "plots/bounds.tsv",   "plots"};
static char folder[64];

static void setup(void) {
  (void)snprintf(folder, sizeof folder, "/tmp/diffpipe-page-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void teardown(void) {
  char path[128];
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    (void)remove(path);
  }
  (void)rmdir(folder);
}

static void write_folder(const report_run *run) {
  dp_error error = DP_ERROR_INIT;
  dp_str notes = {0};
  const report_options options = {.gnuplot = NULL};
  ck_assert_msg(report_folder_write(run, folder, &options, &notes, &error) == DP_OK, "%s", error.text);
  dp_str_free(&notes);
}

static void read_back(report_files *files) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(report_files_read(folder, files, &error) == DP_OK, "%s", error.text);
}

static char *summary(const report_run *run) {
  dp_error error = DP_ERROR_INIT;
  dp_str text = {0};
  ck_assert_int_eq(report_summary(run, &text, &error), DP_OK);
  report_idle_devices(run, &text);
  return text.text;
}

static const fixture_options plain = {.name = "plain",
                                      .device_name = "node0/gpu0",
                                      .ranks = 4,
                                      .chunks_per_rank = 1,
                                      .replicas = 1,
                                      .microbatches = 6,
                                      .training = true,
                                      .one_f_one_b = true,
                                      .forward_s = 0.0123177, /* JSON has 15 digits: no sum may lie between two */
                                      .transfer_s = 0.0021313,
                                      .limit_bytes = 40000000000};

START_TEST(what_is_read_back_says_the_same) {
  fixture_options variants[5] = {plain, plain, plain, plain, plain};
  variants[1].limit_bytes = 25000000000; /* does not fit */
  variants[2].replicas = 3;
  variants[2].spare_devices = 2;
  variants[3].one_f_one_b = false;
  variants[3].chunks_per_rank = 3;
  variants[4].training = false;
  variants[4].name = "a <b> \"c\" \xc3\xa9";
  variants[4].ranks = 2;
  for (int v = 0; v < 5; v++) {
    fixture made;
    report_files files;
    fixture_make(&variants[v], &made);
    made.run.scenario_file = "some where/x.toml";
    write_folder(&made.run);
    read_back(&files);
    char *before = summary(&made.run), *after = summary(&files.run);
    size_t same = 0;
    while (before[same] && before[same] == after[same]) same++;
    ck_assert_msg(before[same] == after[same], "variant %d: \"%.60s\" was read as \"%.60s\"", v, before + same,
                  after + same);
    ck_assert_str_eq(files.run.scenario_file, "some where/x.toml");
    ck_assert_int_eq(files.run.fits, made.run.fits);
    ck_assert_ptr_null(files.tune);
    free(before);
    free(after);
    report_files_free(&files);
    fixture_free(&made);
  }
}
END_TEST

/* ---- what travels ---- */

static void check_flows(const report_run *run, bool linked) {
  dp_error error = DP_ERROR_INIT;
  report_flows flows;
  int64_t sums[PLAN_TRAFFIC_COUNT] = {0};
  ck_assert_msg(report_flows_of(run, &flows, &error) == DP_OK, "%s", error.text);
  for (size_t i = 0; i < flows.pairs.count; i++) {
    const report_flow *flow = &flows.pairs.items[i];
    ck_assert_int_ne(flow->from, flow->to);
    if (i) { /* each pair once, in order */
      const report_flow *before = &flows.pairs.items[i - 1];
      ck_assert(before->from < flow->from || (before->from == flow->from && before->to < flow->to));
    }
    for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) sums[k] += flow->kind_bytes[k];
  }
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) ck_assert_int_eq(sums[k], run->metrics->comm_bytes_by_kind[k]);
  /* a route is at least one link, and every link of it carries all */
  int64_t over_links = 0, between = 0;
  for (size_t i = 0; i < flows.links.count; i++) over_links += report_flow_bytes(flows.links.items[i].kind_bytes);
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) between += sums[k];
  if (linked)
    ck_assert_int_ge(over_links, between);
  else
    ck_assert_uint_eq(flows.links.count, 0);
  report_flows_free(&flows);
}

START_TEST(flows_add_up_to_the_metrics) {
  fixture_options options = plain;
  fixture made;
  options.chunks_per_rank = 2;
  options.one_f_one_b = false;
  fixture_make(&options, &made);
  check_flows(&made.run, false);
  fixture_free(&made);
}
END_TEST

START_TEST(flows_of_real_programs_add_up) {
  static const char *const plans[] = {"schedule = \"folded\"\nstages = 4\ndata_parallel = 2\n",
                                      "schedule = \"1f1b\"\nstages = 4\ndata_parallel = 2\nskip_policy = \"relay\"\n",
                                      "schedule = \"zb-v\"\nstages = 8\n", "stages = 1\ndata_parallel = 8\n",
                                      "stages = 2\ndata_parallel = 2\ntensor_parallel = 2\n"};
  sim_efficiency *efficiency = NULL;
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(sim_efficiency_read(NULL, &efficiency, &error), DP_OK);
  for (size_t p = 0; p < sizeof plans / sizeof plans[0]; p++) {
    char text[1024];
    plan_scenario scenario;
    sim_prediction prediction;
    (void)snprintf(text, sizeof text,
                   "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nconfig = \"models/sd15_unet.json\"\n[task]\n"
                   "global_batch = 16\n[cluster]\nfile = \"clusters/2x8xa100-ib.toml\"\n[plan]\n%s",
                   plans[p]);
    ck_assert_msg(plan_scenario_parse(text, strlen(text), "flows.toml", &scenario, &error) == DP_OK, "%s", error.text);
    ck_assert_msg(sim_predict(&scenario, efficiency, &prediction, &error) == DP_OK, "%s", error.text);
    const report_run run = {
        .cluster = &scenario.cluster, .program = &prediction.program, .metrics = &prediction.metrics};
    check_flows(&run, true);
    sim_prediction_free(&prediction);
    plan_scenario_free(&scenario);
  }
  sim_efficiency_free(efficiency);
}
END_TEST

/* ---- the drawing ---- */

typedef struct rectangle {
  double x, y, width, height;
} rectangle;

static int rectangles(const char *svg, const char *class, rectangle *out, int room) {
  char start[64];
  int count = 0;
  (void)snprintf(start, sizeof start, "<rect class=\"%s", class);
  for (const char *at = svg; (at = strstr(at, start)); at++) {
    const char *x = strstr(at, " x=\""), *y = strstr(at, " y=\""), *w = strstr(at, " width=\""),
               *h = strstr(at, " height=\"");
    ck_assert(x && y && w && h && count < room);
    out[count++] = (rectangle){strtod(x + 4, NULL), strtod(y + 4, NULL), strtod(w + 8, NULL), strtod(h + 9, NULL)};
  }
  return count;
}

static bool overlap(const rectangle *a, const rectangle *b) {
  return a->x < b->x + b->width && b->x < a->x + a->width && a->y < b->y + b->height && b->y < a->y + a->height;
}

static bool inside(const rectangle *a, const rectangle *b) {
  return a->x >= b->x && a->y >= b->y && a->x + a->width <= b->x + b->width + 0.2 &&
         a->y + a->height <= b->y + b->height + 0.2;
}

/* Boxes and hosts are apart, every box lies in a host, all in the picture; as many as there should be. */
static void check_drawing(int ranks, int chunks_per_rank, int replicas, int cards_a_node, int expected) {
  fixture_options options = plain;
  fixture made;
  report_files files;
  dp_str svg = {0}, note = {0};
  rectangle boxes[REPORT_DRAWN_WORKERS], hosts[REPORT_DRAWN_WORKERS];
  options.ranks = ranks;
  options.chunks_per_rank = chunks_per_rank;
  options.replicas = replicas;
  options.microbatches = 2;
  options.one_f_one_b = false;
  fixture_make(&options, &made);
  for (size_t d = 0; d < made.cluster.devices.count; d++) made.cluster.devices.items[d].node = (int)d / cards_a_node;
  made.cluster.node_count = (int)(made.cluster.devices.count - 1) / cards_a_node + 1;
  write_folder(&made.run);
  read_back(&files);
  report_draw_plan(&files, &svg, &note);
  ck_assert(!svg.failed && !note.failed);
  const char *box = strstr(svg.text, "viewBox=\"0 0 ");
  ck_assert_ptr_nonnull(box);
  char *end = NULL;
  const double width = strtod(box + 13, &end), height = strtod(end, NULL);
  const rectangle picture = {0, 0, width, height};
  const int count = rectangles(svg.text, "device", boxes, REPORT_DRAWN_WORKERS);
  const int host_count = rectangles(svg.text, "host\"", hosts, REPORT_DRAWN_WORKERS);
  ck_assert_int_eq(count, expected);
  for (int i = 0; i < count; i++) {
    bool housed = false;
    ck_assert_double_ge(boxes[i].width, 70); /* room for the texts */
    ck_assert(inside(&boxes[i], &picture));
    for (int j = 0; j < i; j++)
      ck_assert_msg(!overlap(&boxes[i], &boxes[j]), "%d x %d: boxes %d and %d", ranks, replicas, i, j);
    for (int h = 0; h < host_count; h++) housed = housed || inside(&boxes[i], &hosts[h]);
    ck_assert_msg(housed, "%d x %d: box %d is in no host", ranks, replicas, i);
  }
  for (int h = 0; h < host_count; h++) {
    ck_assert(inside(&hosts[h], &picture));
    for (int g = 0; g < h; g++)
      ck_assert_msg(!overlap(&hosts[h], &hosts[g]), "%d x %d: hosts %d and %d", ranks, replicas, h, g);
  }
  ck_assert_int_eq(strstr(svg.text, "hold the same") != NULL, expected < ranks * replicas && replicas > 1);
  dp_str_free(&svg);
  dp_str_free(&note);
  report_files_free(&files);
  fixture_free(&made);
}

START_TEST(drawings_have_room_for_all) {
  check_drawing(1, 1, 1, 8, 1);
  check_drawing(1, 1, 8, 8, 8);
  check_drawing(1, 1, 64, 8, 16);
  check_drawing(2, 3, 8, 8, 16);
  check_drawing(4, 1, 2, 8, 8);
  check_drawing(4, 2, 16, 8, 16);
  check_drawing(3, 5, 5, 4, 15);
  check_drawing(5, 1, 3, 8, 15);
  check_drawing(8, 1, 1, 2, 8);
  check_drawing(12, 1, 2, 8, 12);
  check_drawing(16, 1, 1, 8, 16);
  check_drawing(64, 1, 1, 8, 64);
  check_drawing(70, 1, 1, 8, 64);
}
END_TEST

/* ---- Markdown ---- */

START_TEST(markdown_says_what_it_was_given) {
  dp_str out = {0};
  report_table table = {0};
  report_markdown_escape("a|b <c> *d* _e_ `f` [g](h) #1 \\ ~", &out);
  ck_assert_str_eq(out.text, "a\\|b \\<c\\> \\*d\\* \\_e\\_ \\`f\\` \\[g\\](h) \\#1 \\\\ \\~");
  dp_str_clear(&out);
  report_table_column(&table, "name", REPORT_LEFT);
  report_table_column(&table, "share", REPORT_BAR); /* a bar is for the eye only */
  report_table_column(&table, "n", REPORT_RIGHT);
  report_table_row(&table, true);
  report_table_cell(&table, "%s", "x|y");
  report_table_cell(&table, "%s", "0.5");
  report_table_cell(&table, "%d", 7);
  report_table_markdown(&table, &out);
  ck_assert_str_eq(out.text, "| name | n |\n|---|---:|\n| x\\|y | 7 |\n\n");
  dp_str_free(&out);
  report_table_free(&table);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {what_is_read_back_says_the_same, flows_add_up_to_the_metrics,
                                flows_of_real_programs_add_up, drawings_have_room_for_all,
                                markdown_says_what_it_was_given};
  return suite_run("page", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
