#include "cli/efficiency.h"

#include "exec/pipeline.h"

dp_status cli_efficiency_read(sim_efficiency **efficiency, dp_error *error) {
  DP_TRY(sim_efficiency_read(NULL, efficiency, error));
  sim_efficiency_use_library(*efficiency, "cpu", exec_library_workspace(false));
  sim_efficiency_use_library(*efficiency, "cuda", exec_library_workspace(true));
  return DP_OK;
}
