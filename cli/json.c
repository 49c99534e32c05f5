#include "cli/json.h"

#include <stdio.h>

#include "base/arena.h"
#include "base/str.h"

json_t *cli_json_text(const char *text) {
  dp_arena arena = {0};
  char *copy = dp_arena_strdup(&arena, text);
  if (copy) dp_text_clean(copy);
  json_t *made = copy ? json_string(copy) : NULL;
  dp_arena_free(&arena);
  return made;
}

bool cli_json_put(json_t *object, const char *key, json_t *value) {
  return json_object_set_new(object, key, value) == 0;
}

dp_status cli_json_print(const json_t *json, dp_error *error) {
  const bool done =
      json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) == 0 && fputc('\n', stdout) != EOF;
  return done ? DP_OK : dp_fail(error, DP_IO_FAILED, "the output could not be written");
}

static json_t *skips_json(const sim_candidate *c) {
  json_t *list = json_array();
  for (int i = 0; list && i < c->skip_count; i++)
    if (json_array_append_new(list, json_string(c->skips[i])) != 0) {
      json_decref(list);
      return NULL;
    }
  return list;
}

static bool put_transport(json_t *plan, const sim_candidate *c) {
  return !c->own_transport || (cli_json_put(plan, "transport", json_string(plan_transport_names[c->transport])) &&
                               cli_json_put(plan, "nccl_sms", json_integer(c->nccl_sms)));
}

static bool put_split(json_t *plan, const sim_candidate *c) {
  const plan_split_way split = sim_candidate_split(c);
  return split == PLAN_SPLIT_AUTO || cli_json_put(plan, "split", json_string(plan_split_way_names[split]));
}

json_t *cli_json_candidate(const sim_candidate *c) {
  json_t *plan = json_object();
  const bool done = plan && cli_json_put(plan, "stages", json_integer(c->stages)) &&
                    cli_json_put(plan, "data_parallel", json_integer(c->replicas)) &&
                    cli_json_put(plan, "tensor_parallel", json_integer(sim_candidate_tensor(c))) &&
                    cli_json_put(plan, "schedule", json_string(plan_schedule_names[c->schedule])) &&
                    cli_json_put(plan, "chunks", json_integer(c->chunks)) && put_split(plan, c) &&
                    cli_json_put(plan, "microbatches", json_integer(c->microbatches)) &&
                    cli_json_put(plan, "microbatch_size", json_integer(c->microbatch_size)) &&
                    cli_json_put(plan, "recompute", json_string(plan_recompute_names[c->recompute])) &&
                    (c->recompute != PLAN_RECOMPUTE_AUTO || c->recomputed_units < 0 ||
                     cli_json_put(plan, "recomputed_units", json_integer(c->recomputed_units))) &&
                    cli_json_put(plan, "skip_policy", json_string(plan_skip_policy_names[c->skip_policy])) &&
                    (!c->k || cli_json_put(plan, "k", json_integer(c->k))) && put_transport(plan, c) &&
                    (!c->skip_count || cli_json_put(plan, "skips", skips_json(c)));
  if (done) return plan;
  json_decref(plan);
  return NULL;
}
