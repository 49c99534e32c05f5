#include "cli/whatif.h"
dp_status cli_whatif_folder(const cli_whatif_answer *answer, const json_t *json, const char *folder, bool plots,
                            dp_error *error) {
  (void)answer;
  (void)json;
  (void)folder;
  (void)plots;
  (void)error;
  return DP_OK;
}
