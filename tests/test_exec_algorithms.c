/* What is remembered of algorithms: what is kept is found and read again, what is wrong in a file is named by line,
 * other devices' are passed over with a note, several may keep and write at once, and processes come to have the same.
 */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "exec/algorithms.h"
#include "tests/scratch.h"

static dp_error error;
static exec_algorithms *known;
#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)
#define CARD "NVIDIA H200, 132 multiprocessors"
#define PART "NVIDIA H200, 32 multiprocessors"

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  scratch_enter();
  OK(exec_algorithms_create(&known, &error));
}

static void teardown(void) {
  exec_algorithms_free(known);
  scratch_clean(scratch);
  scratch_leave();
}

static void expect(exec_algorithms *a, const char *device, const char *problem, const char *algorithm) {
  const char *found = exec_algorithms_find(a, device, problem);
  if (algorithm)
    ck_assert_msg(found && strcmp(found, algorithm) == 0, "%s: found %s, not %s", problem, found ? found : "none",
                  algorithm);
  else
    ck_assert_msg(!found, "%s: found %s, not none", problem, found);
}

static void expect_notes(const exec_algorithms *a, const char *wanted) {
  dp_str lines = {0};
  exec_algorithms_note(a, &lines);
  ck_assert_str_eq(dp_str_text(&lines), wanted);
  dp_str_free(&lines);
}

static void expect_same(const exec_algorithms *a, const exec_algorithms *b, bool all) {
  dp_str x = {0}, y = {0};
  OK(exec_algorithms_text(a, all, &x, &error));
  OK(exec_algorithms_text(b, all, &y, &error));
  ck_assert_str_eq(dp_str_text(&x), dp_str_text(&y));
  dp_str_free(&x);
  dp_str_free(&y);
}

START_TEST(what_is_kept_is_found_and_read_again) {
  expect(known, CARD, "product 1 2", NULL);
  exec_algorithms_keep(known, CARD, "product 1 2", "fused \"0\" \\ f");
  exec_algorithms_keep(known, CARD, "product 1 3", "apart");
  exec_algorithms_keep(known, PART, "product 1 2", "other");
  expect(known, CARD, "product 1 2", "fused \"0\" \\ f");
  expect(known, PART, "product 1 2", "other");
  expect(known, PART, "product 1 3", NULL);
  OK(exec_algorithms_write(known, "algorithms.json", &error));
  ck_assert_int_eq(count_entries("."), 1); /* nothing is left beside it */
  exec_algorithms *again;
  OK(exec_algorithms_create(&again, &error));
  OK(exec_algorithms_read(again, "none.json", true, &error)); /* nothing */
  OK(exec_algorithms_read(again, "algorithms.json", true, &error));
  expect_same(known, again, false);
  expect(again, CARD, "product 1 2", "fused \"0\" \\ f");
  expect_notes(again, "");
  exec_algorithms_keep(again, CARD, "product 1 2", "timed again");
  expect(again, CARD, "product 1 2", "timed again");
  expect_notes(again, "1 of the algorithms that were remembered for " CARD " cannot be had, and were timed again\n");
  exec_algorithms_free(again);
}
END_TEST

START_TEST(a_folder_goes_before_a_file_of_many_runs_and_takes_of_it_what_was_asked_for) {
  exec_algorithms_keep(known, CARD, "product 1", "theirs");
  exec_algorithms_keep(known, CARD, "product 2", "theirs");
  exec_algorithms_keep(known, CARD, "product 3", "theirs");
  OK(exec_algorithms_add_to(known, "shared.json", &error));
  exec_algorithms *own, *run;
  OK(exec_algorithms_create(&own, &error));
  exec_algorithms_keep(own, CARD, "product 1", "mine");
  OK(exec_algorithms_write(own, "algorithms.json", &error));
  OK(exec_algorithms_create(&run, &error));
  OK(exec_algorithms_read(run, "algorithms.json", true, &error));
  OK(exec_algorithms_read(run, "shared.json", false, &error));
  expect(run, CARD, "product 1", "mine");
  expect(run, CARD, "product 2", "theirs");
  exec_algorithms_keep(own, CARD, "product 2", "theirs");
  expect_same(own, run, false); /* not product 3 */
  OK(exec_algorithms_add_to(run, "shared.json", &error));
  exec_algorithms *all;
  OK(exec_algorithms_create(&all, &error));
  OK(exec_algorithms_read(all, "shared.json", false, &error));
  expect(all, CARD, "product 1", "mine");
  expect(all, CARD, "product 3", "theirs");
  exec_algorithms_free(own);
  exec_algorithms_free(run);
  exec_algorithms_free(all);
}
END_TEST

START_TEST(other_devices_and_libraries_are_passed_over_with_a_note) {
  exec_algorithms *other;
  OK(exec_algorithms_create(&other, &error));
  exec_algorithms_keep(other, CARD ", cuDNN 9.19.0", "conv 1", "a");
  OK(exec_algorithms_write(other, "algorithms.json", &error));
  OK(exec_algorithms_read(known, "algorithms.json", true, &error));
  expect_notes(known, "");
  expect(known, CARD ", cuDNN 9.20.0", "conv 1", NULL);
  exec_algorithms_keep(known, CARD ", cuDNN 9.20.0", "conv 1", "b");
  expect_notes(
      known, "algorithms were remembered for " CARD ", cuDNN 9.19.0, and are timed again for " CARD ", cuDNN 9.20.0\n");
  OK(exec_algorithms_write(known, "algorithms.json", &error));
  exec_algorithms_free(other);
  OK(exec_algorithms_create(&other, &error));
  OK(exec_algorithms_read(other, "algorithms.json", true, &error));
  expect(other, CARD ", cuDNN 9.19.0", "conv 1", "a"); /* for when the run goes back there */
  expect(other, CARD ", cuDNN 9.20.0", "conv 1", "b");
  exec_algorithms_free(other);
}
END_TEST

#define HEAD "{\"format\": \"diffpipe-algorithms\", \"version\": 1,\n"
static const struct {
  const char *text, *line;
} wrong[] = {
    {HEAD "\"devices\": [\n", "algorithms.json:"},
    {"{\"format\": \"diffpipe-profile\", \"version\": 1}", "algorithms.json:1: "},
    {HEAD "\"devices\": 3}", "algorithms.json:2: devices: found 3, allowed: a list"},
    {HEAD "\"devices\": [\n{\"device\": \"a\"}]}", "algorithms.json:3: "},
    {HEAD "\"devices\": [\n{\"device\": \"a\",\n\"algorithms\": []}]}",
     "algorithms.json:4: algorithms: found an array, allowed: a table"},
    {HEAD "\"devices\": [\n{\"device\": \"a\",\n\"algorithms\": {\"x\": \"y\",\n\"z\": 7}}]}",
     "algorithms.json:5: algorithms: found 7 for \"z\", allowed: a string that is not empty"},
    {HEAD "\"devices\": [\n{\"device\": \"a\",\n\"algorithms\": {\"x\": \"\"}}]}",
     "algorithms.json:4: algorithms: found \"\" for \"x\", allowed: a string that is not empty"},
    {HEAD "\"devices\": [\n{\"device\": \"a\",\n\"algoritms\": {}}]}", "algorithms.json:"},
};

START_TEST(what_is_wrong_in_a_file_is_named_by_line) {
  OK(dp_file_write("algorithms.json", wrong[_i].text, strlen(wrong[_i].text), &error));
  ck_assert_int_eq(exec_algorithms_read(known, "algorithms.json", true, &error), DP_BAD_INPUT);
  ck_assert_msg(strncmp(error.text, wrong[_i].line, strlen(wrong[_i].line)) == 0, "%s", error.text);
}
END_TEST

/* ---- at once ---- */

enum { THREADS = 4, PROBLEMS = 200 };

static void *keep_and_write(void *data) {
  static const char *const devices[] = {CARD, PART};
  exec_algorithms *mine = NULL;
  dp_error own = DP_ERROR_INIT;
  (void)data;
  if (exec_algorithms_create(&mine, &own) != DP_OK) return "no memory";
  for (int i = 0; i < PROBLEMS; i++) {
    char problem[32];
    (void)snprintf(problem, sizeof problem, "product %d", i);
    if (!exec_algorithms_find(known, devices[i % 2], problem))
      exec_algorithms_keep(known, devices[i % 2], problem, "a");
    exec_algorithms_keep(mine, devices[i % 2], problem, "a");
    if (i % 50 == 0 && exec_algorithms_add_to(mine, "shared.json", &own) != DP_OK) return "a file that is not whole";
  }
  const bool done = exec_algorithms_add_to(mine, "shared.json", &own) == DP_OK;
  exec_algorithms_free(mine);
  return done ? NULL : "a file that is not whole";
}

START_TEST(several_keep_and_write_at_once) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, keep_and_write, NULL), 0);
  for (int i = 0; i < THREADS; i++) {
    void *said = NULL;
    ck_assert_int_eq(pthread_join(threads[i], &said), 0);
    ck_assert_msg(!said, "%s", (const char *)said);
  }
  ck_assert_int_eq(count_entries("."), 1);
  exec_algorithms *again;
  OK(exec_algorithms_create(&again, &error));
  OK(exec_algorithms_read(again, "shared.json", false, &error));
  for (int i = 0; i < PROBLEMS; i++) {
    char problem[32];
    (void)snprintf(problem, sizeof problem, "product %d", i);
    expect(known, i % 2 ? PART : CARD, problem, "a");
    expect(again, i % 2 ? PART : CARD, problem, "a"); /* the last one wrote all of its own */
  }
  exec_algorithms_free(again);
}
END_TEST

/* ---- processes, here as threads with a socket between each and the first ---- */

enum { PROCESSES = 3 };

typedef struct process {
  exec_transport transport; /* first, so that it is found from it */
  int sockets[PROCESSES];   /* to each other one */
  exec_algorithms *algorithms;
  bool changed;
  dp_status status;
  dp_error error;
} process;

static dp_status send_bytes(exec_transport *self, int to, uint32_t tag, const void *bytes, size_t count,
                            const atomic_bool *stop, dp_error *e) {
  (void)tag, (void)stop;
  const process *p = (const process *)self;
  for (size_t at = 0; at < count;) {
    const ssize_t n = write(p->sockets[to], (const char *)bytes + at, count - at);
    if (n <= 0) return dp_fail(e, DP_RUN_FAILED, "cannot send");
    at += (size_t)n;
  }
  return DP_OK;
}

static dp_status receive_bytes(exec_transport *self, int from, uint32_t tag, void *bytes, size_t count,
                               const atomic_bool *stop, dp_error *e) {
  (void)tag, (void)stop;
  const process *p = (const process *)self;
  for (size_t at = 0; at < count;) {
    const ssize_t n = read(p->sockets[from], (char *)bytes + at, count - at);
    if (n <= 0) return dp_fail(e, DP_RUN_FAILED, "cannot receive");
    at += (size_t)n;
  }
  return DP_OK;
}

static void *agree(void *data) {
  process *p = data;
  p->status = exec_algorithms_agree(p->algorithms, &p->transport, &p->changed, &p->error);
  return NULL;
}

START_TEST(processes_take_what_the_first_found) {
  process p[PROCESSES] = {{.status = DP_OK}};
  pthread_t threads[PROCESSES];
  for (int i = 0; i < PROCESSES; i++) {
    int pair[2];
    p[i].transport =
        (exec_transport){.process_count = PROCESSES, .process = i, .send = send_bytes, .receive = receive_bytes};
    OK(exec_algorithms_create(&p[i].algorithms, &error));
    if (i == 0) continue;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    p[0].sockets[i] = pair[0];
    p[i].sockets[0] = pair[1];
  }
  exec_algorithms_keep(p[0].algorithms, CARD, "both", "of the first");
  exec_algorithms_keep(p[1].algorithms, CARD, "both", "of the second");
  exec_algorithms_keep(p[1].algorithms, CARD, "later", "of the second");
  exec_algorithms_keep(p[2].algorithms, CARD, "later", "of the second");
  exec_algorithms_keep(p[2].algorithms, PART, "alone", "of the third");
  for (int i = 0; i < PROCESSES; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, agree, &p[i]), 0);
  for (int i = 0; i < PROCESSES; i++) ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < PROCESSES; i++) {
    ck_assert_msg(p[i].status == DP_OK, "%s", p[i].error.text);
    ck_assert_int_eq(p[i].changed, i == 1);
    expect(p[i].algorithms, CARD, "both", "of the first");
    expect(p[i].algorithms, CARD, "later", "of the second");
    expect(p[i].algorithms, PART, "alone", "of the third");
    expect_notes(p[i].algorithms, "");
  }
  for (int i = 0; i < PROCESSES; i++) {
    exec_algorithms_free(p[i].algorithms);
    if (i > 0) ck_assert_int_eq(close(p[0].sockets[i]) | close(p[i].sockets[0]), 0);
  }
  bool changed = true;
  OK(exec_algorithms_agree(known, NULL, &changed, &error));
  ck_assert(!changed);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("exec_algorithms");
  TCase *tcase = suite_case(suite, "exec_algorithms", setup, teardown, 0);
  tcase_add_test(tcase, what_is_kept_is_found_and_read_again);
  tcase_add_test(tcase, a_folder_goes_before_a_file_of_many_runs_and_takes_of_it_what_was_asked_for);
  tcase_add_test(tcase, other_devices_and_libraries_are_passed_over_with_a_note);
  tcase_add_loop_test(tcase, what_is_wrong_in_a_file_is_named_by_line, 0, (int)(sizeof wrong / sizeof *wrong));
  tcase_add_test(tcase, several_keep_and_write_at_once);
  tcase_add_test(tcase, processes_take_what_the_first_found);
  return suite_finish(suite);
}
