#include "cli/remedies.h"

#include <stdio.h>

#include "cli/json.h"
#include "cli/text.h"
#include "cli/tune_json.h"

json_t *cli_remedies_json(const sim_remedies *remedies) {
  json_t *list = json_array();
  for (int i = 0; list && i < remedies->count; i++) {
    const sim_remedy *remedy = &remedies->items[i];
    json_t *row = cli_trial_json(&remedy->best);
    const bool done = row && cli_json_put(row, "what", json_string(remedy->what)) &&
                      cli_json_put(row, "how", remedy->how ? json_string(remedy->how) : json_null());
    if (done && json_array_append_new(list, row) == 0) continue;
    if (!done) json_decref(row);
    json_decref(list);
    return NULL;
  }
  return list;
}

void cli_remedies_print(const sim_remedies *remedies) {
  const char *more = remedies->stopped ? " (stopped early: there may be others)" : "";
  if (remedies->count == 0) {
    printf("\nNo single change was found that makes it fit%s: %s\n", more,
           "not LoRA, 8-bit AdamW or a smaller batch, not 64 times\nthe devices, no card of the catalogue.");
    return;
  }
  for (int i = 0; i < remedies->count; i++) {
    const sim_remedy *remedy = &remedies->items[i];
    const sim_trial *best = &remedy->best;
    char plan[256];
    printf("%s  %s%s%s\n",
           i == 0   ? "\nThe smallest change that fits:\n"
           : i == 1 ? "\nOthers that do:\n"
                    : "",
           remedy->what, remedy->how ? "   " : "", remedy->how ? remedy->how : "");
    printf("    then at least %.4g samples/s, %.1f of %.1f GB on worker %d\n", best->throughput_samples_per_s,
           (double)best->tightest.peak_bytes / 1e9, (double)best->tightest.limit_bytes / 1e9, best->tightest.worker);
    cli_print_wrapped(4, sim_candidate_show(&best->candidate, plan));
  }
  if (remedies->stopped) printf("\nStopped early: there may be others.\n");
}
