#include "cli/run_algorithms.h"

static dp_status in_folder(const char *folder, dp_str *path, dp_error *error) {
  dp_str_addf(path, "%s/algorithms.json", folder);
  return path->failed ? dp_fail_memory(error) : DP_OK;
}

dp_status cli_run_algorithms_read(const char *folder, const char *file, exec_algorithms **algorithms, dp_error *error) {
  dp_str path = {0};
  exec_algorithms *a = NULL;
  dp_status status = in_folder(folder, &path, error);
  if (status == DP_OK) status = exec_algorithms_create(&a, error);
  if (status == DP_OK) status = exec_algorithms_read(a, path.text, true, error);
  if (status == DP_OK && file) status = exec_algorithms_read(a, file, false, error);
  dp_str_free(&path);
  if (status == DP_OK)
    *algorithms = a;
  else
    exec_algorithms_free(a);
  return status;
}

dp_status cli_run_algorithms_write(exec_algorithms *a, const char *folder, const char *file, dp_str *notes,
                                   dp_error *error) {
  dp_str path = {0};
  dp_status status = folder ? in_folder(folder, &path, error) : DP_OK;
  exec_algorithms_note(a, notes);
  if (status == DP_OK && folder) status = exec_algorithms_write(a, path.text, error);
  if (status == DP_OK && file) status = exec_algorithms_add_to(a, file, error);
  dp_str_free(&path);
  return status == DP_OK && notes->failed ? dp_fail_memory(error) : status;
}
