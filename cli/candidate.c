#include "cli/candidate.h"

void cli_candidate_settings(const sim_candidate *c, const char *between, dp_str *out) {
  dp_str_addf(out, "--set plan.stages=%d --set plan.data_parallel=%d --set plan.schedule=%s%s", c->stages, c->replicas,
              plan_schedule_names[c->schedule], between);
  if (sim_candidate_tensor(c) > 1) dp_str_addf(out, "--set plan.tensor_parallel=%d%s", c->tensor, between);
  dp_str_addf(out, "--set plan.chunks=%d --set plan.microbatches=%d --set plan.microbatch_size=%d%s", c->chunks,
              c->microbatches, c->microbatch_size, between);
  dp_str_addf(out, "--set plan.recompute=%s --set plan.skip_policy=%s", plan_recompute_names[c->recompute],
              plan_skip_policy_names[c->skip_policy]);
  const plan_split_way split = sim_candidate_split(c);
  if (split != PLAN_SPLIT_AUTO) dp_str_addf(out, " --set plan.split=%s", plan_split_way_names[split]);
  if (c->own_transport)
    dp_str_addf(out, "%s--set plan.transport=%s --set plan.nccl_sms=%d", between, plan_transport_names[c->transport],
                c->nccl_sms);
  if (c->k) dp_str_addf(out, " --set plan.k=%lld", (long long)c->k);
  for (int i = 0; i < c->skip_count; i++) {
    if (i == 0)
      dp_str_addf(out, "%s--set 'plan.skips=[", between);
    else
      dp_str_addf(out, ",%s", between[1] ? "\n      " : " ");
    dp_str_addf(out, "\"%s\"%s", c->skips[i], i + 1 < c->skip_count ? "" : "]'");
  }
}
