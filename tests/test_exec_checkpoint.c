#define _GNU_SOURCE /* unshare */
/* exec/checkpoint: what is saved comes back with the same bits; what is damaged in any way is passed over and told; a
 * saving that is cut short anywhere leaves the checkpoints before. */
#include "exec/checkpoint.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/scratch.h"
#include "tests/suite.h"

enum { PARTS = 3, ARRAYS = 2, NUMBERS = 40 };
static const int64_t dims[] = {5, 8};
static const exec_checkpoint_counter counters[] = {{"samples", 12800}, {"epoch", 3}};

static dp_error error;
static exec_checkpoint found;
static dp_str skipped;

static void must(dp_status status) { ck_assert_msg(status == DP_OK, "%s", error.text); }

static void setup(void) {
  scratch_enter();
  error = (dp_error)DP_ERROR_INIT;
  found = (exec_checkpoint){0};
  skipped = (dp_str){0};
}

static void teardown(void) {
  exec_checkpoint_close(&found);
  dp_str_free(&skipped);
  scratch_clean(scratch);
  scratch_leave();
}

/* Any bits, NaNs among them. */
static void fill(int64_t step, int part, int array, float out[NUMBERS]) {
  for (int i = 0; i < NUMBERS; i++) {
    const uint32_t bits = (uint32_t)(step * 7919 + part * 104729 + array * 1299709 + i) * 2654435761U;
    memcpy(&out[i], &bits, sizeof bits);
  }
}

static void name_of(int part, int array, char out[32]) {
  (void)snprintf(out, 32, "%s/unit.%d", array ? "adamw_m" : "weight", part);
}

static dp_status write_part(const exec_checkpoint_output *output, int part, exec_checkpoint_part *written,
                            dp_error *into) {
  float values[ARRAYS][NUMBERS];
  char names[ARRAYS][32], file[32];
  exec_checkpoint_array arrays[ARRAYS];
  for (int a = 0; a < ARRAYS; a++) {
    fill(output->step, part, a, values[a]);
    name_of(part, a, names[a]);
    arrays[a] = (exec_checkpoint_array){names[a], 2, dims, values[a]};
  }
  (void)snprintf(file, sizeof file, "worker-%d", part);
  return exec_checkpoint_write_part(output, file, arrays, ARRAYS, written, into);
}

static exec_checkpoint_state state_of(int64_t step) {
  return (exec_checkpoint_state){step, UINT64_MAX - 1, PARTS, "1f1b of 3, 0123abcd", counters, 2};
}

/* Dies before the operation `stop`: begin is 0, the parts follow, then the commit. */
static dp_status save_until(const char *run, int64_t step, int keep, int stop) {
  exec_checkpoint_output output = {0};
  exec_checkpoint_part parts[PARTS];
  if (stop == 0) return DP_OK;
  DP_TRY(exec_checkpoint_begin(run, step, &output, &error));
  dp_status status = DP_OK;
  for (int p = 0; p < PARTS && status == DP_OK; p++) {
    if (stop == p + 1) _exit(0);
    status = write_part(&output, p, &parts[p], &error);
  }
  if (stop == PARTS + 1) _exit(0);
  const exec_checkpoint_state state = state_of(step);
  if (status == DP_OK) status = exec_checkpoint_commit(&output, &state, parts, PARTS, keep, NULL, &error);
  exec_checkpoint_abandon(&output);
  return status;
}

static dp_status save(const char *run, int64_t step, int keep) { return save_until(run, step, keep, -1); }

static void must_hold(const exec_checkpoint *checkpoint, int64_t step) {
  const exec_checkpoint_state expected = state_of(step);
  ck_assert_int_eq(checkpoint->state.step, step);
  must(exec_checkpoint_check(checkpoint, &expected, &error));
  ck_assert_int_eq(exec_checkpoint_counter_of(checkpoint, "samples"), 12800);
  ck_assert_int_eq(exec_checkpoint_counter_of(checkpoint, "epoch"), 3);
  ck_assert_int_eq(exec_checkpoint_counter_of(checkpoint, "epochs"), -1);
  for (int p = 0; p < PARTS; p++)
    for (int a = 0; a < ARRAYS; a++) {
      float wanted[NUMBERS], read[NUMBERS];
      char name[32];
      name_of(p, a, name);
      fill(step, p, a, wanted);
      must(exec_checkpoint_read(checkpoint, name, 2, dims, read, &error));
      ck_assert_int_eq(memcmp(read, wanted, sizeof read), 0);
    }
}

static void must_find(const char *run, int64_t step) {
  must(exec_checkpoint_find(run, &found, &skipped, &error));
  must_hold(&found, step);
  exec_checkpoint_close(&found);
}

START_TEST(what_is_saved_comes_back) {
  must(save("run", 10, 0));
  must(save("run", 9, 0)); /* 10 is of another course now */
  must(save("run", 100, 0));
  must_find("run", 100);
  ck_assert_ptr_null(skipped.text);
  ck_assert_int_eq(access("run/checkpoints/stale-step-10/state.json", F_OK), 0);
  must(exec_checkpoint_open("run/checkpoints/step-9/", &found, &error));
  ck_assert_str_eq(found.path, "run/checkpoints/step-9");
  must_hold(&found, 9);
  exec_checkpoint_close(&found);
  must(exec_checkpoint_open("run/checkpoints/step-100", &found, &error));
  must(save("run", 100, 0)); /* over one that is open */
  must_hold(&found, 100);
  exec_checkpoint_close(&found);
  must_find("run", 100);
}
END_TEST

typedef struct job {
  const exec_checkpoint_output *output;
  int part;
  exec_checkpoint_part written;
  dp_error error;
} job;

static void *run_job(void *argument) {
  job *j = argument;
  (void)write_part(j->output, j->part, &j->written, &j->error);
  return NULL;
}

START_TEST(workers_write_at_the_same_time) {
  exec_checkpoint_output output = {0};
  exec_checkpoint_part parts[PARTS];
  pthread_t threads[PARTS];
  job jobs[PARTS] = {{0}};
  uint64_t bytes = 0, sum = 0;
  must(exec_checkpoint_begin("run", 5, &output, &error));
  for (int p = 0; p < PARTS; p++) {
    jobs[p] = (job){.output = &output, .part = p};
    ck_assert_int_eq(pthread_create(&threads[p], NULL, run_job, &jobs[p]), 0);
  }
  for (int p = 0; p < PARTS; p++) {
    ck_assert_int_eq(pthread_join(threads[p], NULL), 0);
    ck_assert_int_eq(jobs[p].error.status, DP_OK);
    parts[p] = jobs[p].written;
  }
  const exec_checkpoint_state state = state_of(5);
  must(exec_checkpoint_commit(&output, &state, parts, PARTS, 1, &bytes, &error));
  must_find("run", 5);
  static const char *const names[] = {"state.json", "worker-0.safetensors", "worker-1.safetensors",
                                      "worker-2.safetensors"};
  for (int i = 0; i < 4; i++) {
    char path[96];
    struct stat about;
    (void)snprintf(path, sizeof path, "run/checkpoints/step-5/%s", names[i]);
    ck_assert_int_eq(stat(path, &about), 0);
    sum += (uint64_t)about.st_size;
  }
  ck_assert_uint_eq(bytes, sum);
}
END_TEST

START_TEST(the_last_few_are_kept) {
  for (int64_t step = 1; step <= 12; step++) {
    must(save("run", step, 3));
    ck_assert_int_eq(count_entries("run/checkpoints"), step < 3 ? (int)step : 3);
    must_find("run", step);
  }
  ck_assert_int_eq(access("run/checkpoints/step-10", F_OK), 0);
  ck_assert_int_eq(access("run/checkpoints/step-9", F_OK), -1);
  dp_output note;
  must(dp_output_open("run/checkpoints/step-10/note.txt", &note, &error));
  must(dp_output_commit(&note, &error));
  must(save("run", 13, 1)); /* 10 has a file of somebody's: it stays */
  ck_assert_int_eq(count_entries("run/checkpoints"), 2);
  must_find("run", 13);
}
END_TEST

START_TEST(other_names_are_passed_over) {
  must(save("run", 7, 0));
  static const char *const names[] = {"step-008", "step-9x", "step-", "step--1", "step-99999999999999999999",
                                      "Step-9",   "9"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char path[96];
    (void)snprintf(path, sizeof path, "run/checkpoints/%s", names[i]);
    must(dp_folder_make(path, &error));
  }
  must_find("run", 7);
  ck_assert_ptr_null(skipped.text);
  ck_assert_int_eq(rename("run/checkpoints/step-7", "run/checkpoints/step-8"), 0);
  ck_assert_int_eq(exec_checkpoint_find("run", &found, NULL, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(error.text, "step-8/state.json: step: found 7, allowed: 8, as the folder is named"));
}
END_TEST

START_TEST(no_checkpoint_is_told) {
  ck_assert_int_eq(exec_checkpoint_find("run", &found, &skipped, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "run/checkpoints: found no checkpoint, allowed: the folder of a run that has saved one");
  must(dp_folder_make("run/checkpoints/step-3", &error));
  must(dp_folder_make("run/checkpoints/step-4", &error));
  ck_assert_int_eq(exec_checkpoint_find("run", &found, &skipped, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text,
                   "run/checkpoints: none of 2 checkpoints is whole; the newest: "
                   "run/checkpoints/step-4/state.json: cannot be read: No such file or directory");
  ck_assert_str_eq(dp_str_text(&skipped),
                   "run/checkpoints/step-4/state.json: cannot be read: No such file or directory\n"
                   "run/checkpoints/step-3/state.json: cannot be read: No such file or directory\n");
}
END_TEST

static void overwrite(const char *path, const char *bytes, size_t length) {
  FILE *stream = fopen(path, "wb");
  ck_assert_ptr_nonnull(stream);
  ck_assert_uint_eq(fwrite(bytes, 1, length, stream), length);
  ck_assert_int_eq(fclose(stream), 0);
}

/* Every bit of every byte, and every length: each is found and said of the file that has it. */
START_TEST(every_damage_is_found) {
  must(save("run", 1, 0));
  must(save("run", 2, 0));
  static const char *const paths[] = {"run/checkpoints/step-2/state.json",
                                      "run/checkpoints/step-2/worker-1.safetensors"};
  for (int p = 0; p < 2; p++) {
    char *text = NULL, expected[128];
    size_t length = 0;
    must(dp_file_read(paths[p], 100000, &text, &length, &error));
    (void)snprintf(expected, sizeof expected, "%s: damaged: ", paths[p]);
    for (size_t at = 0; at < length; at++) {
      text[at] = (char)(text[at] ^ (1 << at % 8));
      overwrite(paths[p], text, length);
      text[at] = (char)(text[at] ^ (1 << at % 8));
      ck_assert_int_eq(exec_checkpoint_open("run/checkpoints/step-2", &found, &error), DP_BAD_INPUT);
      ck_assert_msg(strncmp(error.text, expected, strlen(expected)) == 0, "byte %zu: %s", at, error.text);
      if (at % 5) continue;
      overwrite(paths[p], text, at); /* cut */
      ck_assert_int_eq(exec_checkpoint_open("run/checkpoints/step-2", &found, &error), DP_BAD_INPUT);
      ck_assert_msg(strncmp(error.text, expected, strlen(expected)) == 0, "byte %zu: %s", at, error.text);
      if (at % 50) continue;
      dp_str_clear(&skipped);
      must_find("run", 1); /* the newest that is whole */
      ck_assert_int_eq(strncmp(skipped.text, expected, strlen(expected)), 0);
      ck_assert_ptr_eq(strchr(skipped.text, '\n'), skipped.text + skipped.length - 1);
    }
    overwrite(paths[p], text, length);
    free(text);
    must_find("run", 2);
  }
  ck_assert_int_eq(remove(paths[1]), 0);
  ck_assert_int_eq(exec_checkpoint_open("run/checkpoints/step-2", &found, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text,
                   "run/checkpoints/step-2/worker-1.safetensors: cannot be read: No such file or directory");
}
END_TEST

/* A state that is whole, with its checksum, but says what cannot be. */
START_TEST(a_state_that_is_wrong_is_told) {
  static const struct {
    const char *text, *expected;
  } cases[] = {
      {"{\"format\": \"diffpipe-plan\"",
       "c/state.json:1: format: found \"diffpipe-plan\", allowed: \"diffpipe-checkpoint\""},
      {"{\"format\": \"diffpipe-checkpoint\", \"version\": 2", "c/state.json:1: version: found 2, allowed: 1"},
      {"{\"format\": \"diffpipe-checkpoint\",\n\"version\": 1, \"x\": 1", "c/state.json:2: "},
      {"{\"format\": \"diffpipe-checkpoint\", \"version\": 1, \"step\": 1, \"seed\": \"1x\", \"world\": 1, \"plan\": "
       "\"p\","
       "\"counters\": {}, \"files\": []",
       "c/state.json:1: seed: found 1x, allowed: 0 to 2^64 - 1"},
      {"{\"format\": \"diffpipe-checkpoint\", \"version\": 1, \"step\": 1, \"seed\": \"1\", \"world\": 0, \"plan\": "
       "\"p\","
       "\"counters\": {}, \"files\": []",
       "c/state.json:1: "},
      {"{\"format\": \"diffpipe-checkpoint\", \"version\": 1, \"step\": 1, \"seed\": \"1\", \"world\": 1, \"plan\": "
       "\"p\","
       "\"counters\": {\"a\": -1}, \"files\": []",
       "c/state.json:1: counters: a is no integer from 0"},
      {"{\"format\": \"diffpipe-checkpoint\", \"version\": 1, \"step\": 1, \"seed\": \"1\", \"world\": 1, \"plan\": "
       "\"p\","
       "\"counters\": {}, \"files\": [\n{\"name\": \"../a\", \"bytes\": 1, \"crc32\": \"0\"}]",
       "c/state.json:2: files: found the name ../a, allowed: a file in the folder"},
      {"nothing", "c/state.json:1: not valid JSON"},
  };
  must(dp_folder_make("c", &error));
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char tail[EXEC_CHECKPOINT_TAIL + 1];
    dp_str text = {0};
    exec_checkpoint_tail(exec_checkpoint_crc32(cases[i].text, strlen(cases[i].text)), tail);
    dp_str_add(&text, cases[i].text);
    dp_str_add(&text, tail);
    overwrite("c/state.json", text.text, text.length);
    dp_str_free(&text);
    ck_assert_int_eq(exec_checkpoint_open("c", &found, &error), DP_BAD_INPUT);
    ck_assert_msg(strncmp(error.text, cases[i].expected, strlen(cases[i].expected)) == 0, "found:  %s\nwanted: %s",
                  error.text, cases[i].expected);
  }
  /* the checksum is that of gzip: of "123456789" it is known */
  ck_assert_uint_eq(exec_checkpoint_crc32("123456789", 9), 0xcbf43926);
}
END_TEST

START_TEST(a_run_that_differs_is_told) {
  must(save("run", 1, 0));
  must(exec_checkpoint_find("run", &found, NULL, &error));
  exec_checkpoint_state run = state_of(1);
  run.world = 2;
  ck_assert_int_eq(exec_checkpoint_check(&found, &run, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text,
                   "run/checkpoints/step-1: found a run of 2 workers, allowed: 3, as the checkpoint was written by");
  run = state_of(1);
  run.plan = "gpipe";
  ck_assert_int_eq(exec_checkpoint_check(&found, &run, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text,
                   "run/checkpoints/step-1: found the plan gpipe, allowed: 1f1b of 3, 0123abcd, which the "
                   "checkpoint was written with");
  run = state_of(1);
  run.seed = 4;
  ck_assert_int_eq(exec_checkpoint_check(&found, &run, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text,
                   "run/checkpoints/step-1: found the seed 4, allowed: 18446744073709551614, that of the checkpoint");
  float out[NUMBERS];
  const int64_t turned[] = {8, 5};
  ck_assert_int_eq(exec_checkpoint_read(&found, "weight/unit.7", 2, dims, out, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "run/checkpoints/step-1: tensor weight/unit.7 is missing");
  ck_assert_int_eq(exec_checkpoint_read(&found, "weight/unit.0", 2, turned, out, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text,
                   "run/checkpoints/step-1/worker-0.safetensors: tensor weight/unit.0: found F32 [5, 8], "
                   "allowed: F32 [8, 5]");
}
END_TEST

START_TEST(an_array_is_in_one_part_only) {
  exec_checkpoint_output output = {0};
  exec_checkpoint_part parts[2];
  const float values[NUMBERS] = {0};
  const exec_checkpoint_array array = {"a", 2, dims, values};
  must(exec_checkpoint_begin("run", 1, &output, &error));
  must(exec_checkpoint_write_part(&output, "x", &array, 1, &parts[0], &error));
  must(exec_checkpoint_write_part(&output, "y", &array, 1, &parts[1], &error));
  ck_assert_int_eq(exec_checkpoint_write_part(&output, "../z", &array, 1, &parts[1], &error), DP_INTERNAL);
  const exec_checkpoint_state state = state_of(1);
  must(exec_checkpoint_commit(&output, &state, parts, 2, 0, NULL, &error));
  ck_assert_int_eq(exec_checkpoint_find("run", &found, NULL, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(
      strstr(error.text, "y.safetensors: tensor a: found in run/checkpoints/step-1/x.safetensors too"));
}
END_TEST

/* A process that dies at any of the operations leaves what was there, and its rubbish is removed by the next saving. */
START_TEST(a_run_that_is_killed_leaves_the_one_before) {
  must(save("run", 1, 2));
  for (int stop = 1; stop <= PARTS + 1; stop++) {
    const pid_t child = fork();
    if (child == 0) {
      (void)save_until("run", 2, 2, stop);
      _exit(1);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_int_eq(count_entries("run/checkpoints"), 2); /* step-1 and the hidden one */
    must_find("run", 1);
  }
  must(save("run", 2, 2));
  ck_assert_int_eq(count_entries("run/checkpoints"), 2); /* step-1 and step-2 */
  must_find("run", 2);
  ck_assert_ptr_null(skipped.text);
}
END_TEST

/* The same file size limit as in other tests: as good as a full disk, at places that walk through the files. */
START_TEST(a_file_that_cannot_grow_leaves_the_one_before) {
  must(save("run", 1, 2));
  struct rlimit before, small;
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  small = before;
  for (small.rlim_cur = 0; small.rlim_cur < 500; small.rlim_cur += 61) {
    (void)setrlimit(RLIMIT_FSIZE, &small);
    const dp_status status = save("run", 2, 2);
    (void)setrlimit(RLIMIT_FSIZE, &before);
    ck_assert_int_eq(status, DP_IO_FAILED);
    const char *end = strstr(error.text, ": cannot be written: File too large");
    ck_assert_msg(strncmp(error.text, "run/checkpoints/step-2/", 23) == 0 && end, "%s", error.text);
    ck_assert_int_eq(count_entries("run/checkpoints"), 1);
    must_find("run", 1);
  }
  (void)signal(SIGXFSZ, handler);
}
END_TEST

/* A real full disk: a file system in memory, of its own size each time; where the machine does not let us mount one,
 * the test above has to do. */
START_TEST(a_full_disk_leaves_the_one_before) {
  must(dp_folder_make("disk", &error));
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return;
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return;
  bool filled = false, fitted = false;
  for (int pages = 6; pages < 24; pages++) {
    char options[32];
    (void)snprintf(options, sizeof options, "size=%dk", 4 * pages);
    if (mount("tmpfs", "disk", "tmpfs", 0, options) != 0) return;
    const dp_status first = save("disk/run", 1, 2);
    if (first == DP_OK) must_find("disk/run", 1);
    const dp_status second = first == DP_OK ? save("disk/run", 2, 2) : first;
    if (second != DP_OK) {
      ck_assert_int_eq(second, DP_IO_FAILED);
      ck_assert_msg(strstr(error.text, ": cannot be ") && strstr(error.text, "No space left on device"), "%s",
                    error.text);
      ck_assert_ptr_null(strstr(error.text, "/.step-"));
    }
    if (first == DP_OK) must_find("disk/run", second == DP_OK ? 2 : 1);
    filled = filled || (first == DP_OK && second != DP_OK);
    fitted = fitted || second == DP_OK;
    ck_assert_int_eq(umount("disk"), 0);
  }
  ck_assert(filled && fitted); /* the sizes are well chosen */
}
END_TEST

START_TEST(a_folder_that_cannot_be_written_is_told) {
  must(save("run", 1, 2));
  overwrite("file", "", 0);
  ck_assert_int_eq(save("file", 1, 2), DP_IO_FAILED);
  ck_assert_str_eq(error.text, "file: cannot be made a folder: File exists");
  ck_assert_int_eq(chmod(scratch, 0755), 0);
  ck_assert_int_eq(chmod("run/checkpoints", 0555), 0);
  if (geteuid() != 0 || seteuid(65534) == 0) { /* nothing is forbidden to root */
    const dp_status status = save("run", 2, 2);
    must_find("run", 1);
    if (getuid() == 0) (void)seteuid(0);
    ck_assert_int_eq(status, DP_IO_FAILED);
    ck_assert_str_eq(error.text, "run/checkpoints/step-2: cannot be written: Permission denied");
  }
  ck_assert_int_eq(chmod("run/checkpoints", 0755), 0);
  must_find("run", 1);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {what_is_saved_comes_back,
                                workers_write_at_the_same_time,
                                the_last_few_are_kept,
                                other_names_are_passed_over,
                                no_checkpoint_is_told,
                                every_damage_is_found,
                                a_state_that_is_wrong_is_told,
                                a_run_that_differs_is_told,
                                an_array_is_in_one_part_only,
                                a_run_that_is_killed_leaves_the_one_before,
                                a_file_that_cannot_grow_leaves_the_one_before,
                                a_full_disk_leaves_the_one_before,
                                a_folder_that_cannot_be_written_is_told};
  return suite_run("exec checkpoint", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
