#define _GNU_SOURCE
/* base/: files that are whole or not there, paths, the progress bar. */
#include "base/file.h"

#include <errno.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/node.h"
#include "base/progress.h"
#include "tests/scratch.h"
#include "tests/suite.h"

static dp_error error;
static dp_arena arena;

static void setup(void) {
  scratch_enter();
  error = (dp_error)DP_ERROR_INIT;
  arena = (dp_arena){0};
}

/* What a test leaves is in this list; scratch_leave fails, and the test with it, when anything else was left. */
static void teardown(void) {
  static const char *const names[] = {"a.txt",          "b.toml",  "b.json", "pipe",    "link",  "data/b.toml",
                                      "data/in/c.toml", "data/in", "data",   "new/x/y", "new/x", "new"};
  dp_arena_free(&arena);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) (void)remove(names[i]);
  scratch_leave();
}

static void put(const char *path, const char *text) {
  dp_output output;
  ck_assert_int_eq(dp_output_open(path, &output, &error), DP_OK);
  ck_assert_int_ge(fputs(text, output.stream), 0);
  ck_assert_int_eq(dp_output_commit(&output, &error), DP_OK);
}

static void must_hold(const char *path, const char *expected) {
  char *text = NULL;
  size_t length = 0;
  ck_assert_int_eq(dp_file_read(path, 1 << 20, &text, &length, &error), DP_OK);
  ck_assert_str_eq(text, expected);
  ck_assert_uint_eq(length, strlen(expected));
  free(text);
}

START_TEST(a_failed_write_leaves_the_old_file) {
  put("a.txt", "old");
  struct rlimit before, small;
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 100; /* files of this process may not grow further: as good as a full disk */
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  dp_status statuses[2];
  for (int round = 0; round < 2; round++) {
    dp_output output;
    ck_assert_int_eq(dp_output_open("a.txt", &output, &error), DP_OK);
    (void)setrlimit(RLIMIT_FSIZE, &small);
    for (int i = 0; i < 100; i++) fprintf(output.stream, "line %d\n", i);
    if (round) (void)fflush(output.stream); /* round 0: only the last flush fails; round 1: a write before it */
    statuses[round] = dp_output_commit(&output, &error);
    (void)setrlimit(RLIMIT_FSIZE, &before);
    ck_assert_int_eq(statuses[round], DP_IO_FAILED);
    ck_assert(strncmp(error.text, "a.txt: cannot be written: ", 26) == 0 && !strstr(error.text, "Success"));
    dp_output_abandon(&output); /* harmless after a commit */
    must_hold("a.txt", "old");
  }
  (void)signal(SIGXFSZ, handler);
  put("a.txt", "new");
  must_hold("a.txt", "new");
}
END_TEST

START_TEST(outputs_have_the_ordinary_mode) {
  const mode_t mask = umask(027);
  put("a.txt", "x");
  (void)umask(mask);
  struct stat about;
  ck_assert_int_eq(stat("a.txt", &about), 0);
  ck_assert_int_eq(about.st_mode & 0777, 0640);
}
END_TEST

START_TEST(devices_pipes_and_folders_are_refused) {
  ck_assert_int_eq(mkfifo("pipe", 0600), 0);
  ck_assert_int_eq(symlink("/dev/null", "link"), 0);
  static const char *const paths[] = {"pipe", "link", "/dev/null", "."};
  for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
    char *text = NULL, expected[128];
    size_t length = 0;
    /* nobody writes to the pipe: this must not wait */
    ck_assert_int_eq(dp_file_read(paths[i], 100, &text, &length, &error), DP_BAD_INPUT);
    (void)snprintf(expected, sizeof expected, "%s: found a folder or a device, allowed: a regular file", paths[i]);
    ck_assert_str_eq(error.text, expected);
    ck_assert_ptr_null(text);
    dp_output output;
    ck_assert_int_eq(dp_output_open(paths[i], &output, &error), DP_IO_FAILED);
    (void)snprintf(expected, sizeof expected,
                   "%s: cannot be written: found a folder or a device, allowed: a regular file", paths[i]);
    ck_assert_str_eq(error.text, expected);
  }
  struct stat about;
  ck_assert_int_eq(stat("/dev/null", &about), 0);
  ck_assert(S_ISCHR(about.st_mode));
}
END_TEST

START_TEST(reading_says_what_is_wrong) {
  char *text = NULL;
  size_t length = 0;
  ck_assert_int_eq(dp_file_read("a.txt", 100, &text, &length, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "a.txt: cannot be read: No such file or directory");
  put("a.txt", "12345");
  ck_assert_int_eq(dp_file_read("a.txt", 4, &text, &length, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "a.txt: found 5 bytes, allowed: at most 4");
  must_hold("a.txt", "12345");
  put("a.txt", "");
  must_hold("a.txt", "");
}
END_TEST

START_TEST(folders_are_made_with_their_parents) {
  ck_assert_int_eq(dp_folder_make("new/x/y", &error), DP_OK);
  ck_assert_int_eq(dp_folder_make("new//x/", &error), DP_OK);
  ck_assert_int_eq(dp_folder_make("/", &error), DP_OK);
  put("a.txt", "");
  ck_assert_int_eq(dp_folder_make("a.txt/b", &error), DP_IO_FAILED);
  ck_assert_str_eq(error.text, "a.txt: cannot be made a folder: File exists");
}
END_TEST

START_TEST(the_ending_says_toml_or_json) {
  put("b.toml", "a = 1\nb = \n");
  put("b.json", "{\"a\":\n1}");
  dp_document document = {0};
  ck_assert_int_eq(dp_document_read("b.toml", &document, &error), DP_BAD_INPUT);
  ck_assert(strncmp(error.text, "b.toml:2: not valid TOML", 24) == 0);
  ck_assert_int_eq(dp_document_read("b.json", &document, &error), DP_OK);
  ck_assert_str_eq(document.root->items[0]->file, "b.json");
  dp_document_free(&document);
  ck_assert_int_eq(dp_document_read("absent.toml", &document, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "absent.toml: cannot be read: No such file or directory");
  ck_assert_int_eq(truncate("b.json", (64 << 20) + 1), 0); /* sparse */
  ck_assert_int_eq(dp_document_read("b.json", &document, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "b.json: found 67108865 bytes, allowed: at most 67108864");
}
END_TEST

START_TEST(names_are_resolved_beside_the_file_then_in_the_data) {
  ck_assert_int_eq(dp_folder_make("data/in", &error), DP_OK);
  put("data/in/c.toml", "");
  put("data/b.toml", "");
  const char *given = getenv("DIFFPIPE_DATA_DIR");
  char *kept = given ? strdup(given) : NULL;
  ck_assert_int_eq(setenv("DIFFPIPE_DATA_DIR", "data", 1), 0);
  ck_assert_str_eq(dp_data_folder(), "data");
  ck_assert_str_eq(dp_path_resolve(&arena, "data/x.toml", "in/c.toml"), "data/in/c.toml"); /* beside */
  ck_assert_str_eq(dp_path_resolve(&arena, "new/x.toml", "in/c.toml"), "data/in/c.toml");  /* installed */
  ck_assert_str_eq(dp_path_resolve(&arena, NULL, "b.toml"), "data/b.toml");
  put("b.toml", "");
  ck_assert_str_eq(dp_path_resolve(&arena, NULL, "b.toml"), "b.toml"); /* beside wins */
  ck_assert_str_eq(dp_path_resolve(&arena, "x.toml", "b.toml"), "b.toml");
  ck_assert_str_eq(dp_path_resolve(&arena, "new/x.toml", "absent"), "new/absent");
  ck_assert_str_eq(dp_path_resolve(&arena, "/x.toml", "absent"), "/absent");
  ck_assert_str_eq(dp_path_resolve(&arena, "new/x.toml", "/absent"), "/absent");
  ck_assert_int_eq(unsetenv("DIFFPIPE_DATA_DIR"), 0);
  const char *found = dp_data_folder();
  ck_assert_ptr_nonnull(found);
#ifdef DP_SOURCE_DATA_DIR
  ck_assert_str_eq(found, DP_SOURCE_DATA_DIR); /* this test runs from the build folder */
#endif
  ck_assert_ptr_eq(dp_data_folder(), found);
  if (kept) (void)setenv("DIFFPIPE_DATA_DIR", kept, 1);
  free(kept);
}
END_TEST

/* Runs a bar of `total` with stderr at `file`; the bar's own writes are flushed. */
static void draw(int file, uint64_t total) {
  const int kept = dup(STDERR_FILENO);
  ck_assert_int_ge(dup2(file, STDERR_FILENO), 0);
  dp_progress progress;
  dp_progress_begin(&progress, "search", total);
  dp_progress_update(&progress, 1, "best 1.2 s");
  dp_progress_end(&progress);
  (void)fflush(stderr);
  (void)dup2(kept, STDERR_FILENO);
  (void)close(kept);
}

/* What was drawn since the last call. A terminal hands its bytes on when it likes, so a mark is sent after them and
 * read up to. */
static const char *drawn(int to, int from, char text[512]) {
  ck_assert_int_eq(write(to, "|", 1), 1);
  size_t length = 0;
  while (length < 511 && (length == 0 || text[length - 1] != '|')) {
    const ssize_t got = read(from, text + length, 511 - length);
    ck_assert_int_gt(got, 0);
    length += (size_t)got;
  }
  text[length - 1] = 0;
  return text;
}

START_TEST(progress_is_drawn_on_a_terminal_only) {
  const char *given = getenv("NO_PROGRESS");
  char *kept = given ? strdup(given) : NULL;
  (void)unsetenv("NO_PROGRESS");
  char text[512];
  int ours, terminal, ends[2];
  ck_assert_int_eq(openpty(&ours, &terminal, NULL, NULL, NULL), 0);
  draw(terminal, 4);
  (void)drawn(terminal, ours, text);
  ck_assert_ptr_nonnull(strstr(text, "search [######..................]  25% "));
  ck_assert_ptr_nonnull(strstr(text, "best 1.2 s"));
  ck_assert(strlen(text) > 4 && strcmp(text + strlen(text) - 4, "\r\033[K") == 0); /* the line is cleared at the end */
  draw(terminal, 0);
  (void)drawn(terminal, ours, text);
  ck_assert_ptr_nonnull(strstr(text, "search 1  best 1.2 s"));
  (void)setenv("NO_PROGRESS", "1", 1);
  draw(terminal, 4);
  ck_assert_str_eq(drawn(terminal, ours, text), "");
  (void)unsetenv("NO_PROGRESS");
  ck_assert_int_eq(pipe(ends), 0);
  draw(ends[1], 4);
  ck_assert_str_eq(drawn(ends[1], ends[0], text), "");
  (void)close(ours), (void)close(terminal), (void)close(ends[0]), (void)close(ends[1]);
  if (kept) (void)setenv("NO_PROGRESS", kept, 1);
  free(kept);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_failed_write_leaves_the_old_file,
                                outputs_have_the_ordinary_mode,
                                devices_pipes_and_folders_are_refused,
                                reading_says_what_is_wrong,
                                folders_are_made_with_their_parents,
                                the_ending_says_toml_or_json,
                                names_are_resolved_beside_the_file_then_in_the_data,
                                progress_is_drawn_on_a_terminal_only};
  return suite_run("base files", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
