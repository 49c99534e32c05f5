/* [search] of a scenario: read again by the tuner; here so that a typing error is never silent. */
#include <string.h>

#include "base/allowed.h"
#include "base/range.h"
#include "plan/scenario_reader.h"

typedef struct search_keys {
  const dp_node *stages, *data_parallel, *tensor_parallel, *chunks, *microbatch_sizes, *schedules, *skip_policies, *k, *recompute,
      *transports, *nccl_sms;
  int64_t max_stages, max_trials;
  double max_seconds;
  bool allow_lossy_skips;
} search_keys;

#define ROW(key, type, min, max, help) \
  { #key, type, offsetof(search_keys, key), false, min, max, NULL, help }
const dp_field plan_search_fields[PLAN_SEARCH_FIELD_COUNT] = {
    ROW(stages, DP_FIELD_NODE, 0, 0, "list or range of stage counts to try; default all that the devices allow"),
    ROW(max_stages, DP_FIELD_INTEGER, 1, 65536, "default the number of devices"),
    ROW(data_parallel, DP_FIELD_NODE, 0, 0, "list or range of replica counts to try"),
    ROW(tensor_parallel, DP_FIELD_NODE, 0, 0, "list or range of tensor group sizes to try; default 1, 2, 4, 8 in a node"),
    ROW(chunks, DP_FIELD_NODE, 0, 0, "list or range of chunks a worker to try, interleaved"),
    ROW(microbatch_sizes, DP_FIELD_NODE, 0, 0, "list or range of microbatch sizes to try"),
    ROW(schedules, DP_FIELD_NODE, 0, 0, "list of schedules to try"),
    ROW(skip_policies, DP_FIELD_NODE, 0, 0, "list of skip policies to try"),
    ROW(k, DP_FIELD_NODE, 0, 0, "list or range of values a sample to try with compress"),
    ROW(allow_lossy_skips, DP_FIELD_BOOLEAN, 0, 0, "whether compress may be proposed; default false"),
    ROW(recompute, DP_FIELD_NODE, 0, 0, "list of none, all, auto; default auto: what memory needs"),
    ROW(transports, DP_FIELD_NODE, 0, 0, "list of transports to try; default auto"),
    ROW(nccl_sms, DP_FIELD_NODE, 0, 0, "list or range of multiprocessors to try to keep for NCCL; default 0"),
    ROW(max_trials, DP_FIELD_INTEGER, 1, 1e9, "plans to simulate at most"),
    ROW(max_seconds, DP_FIELD_REAL, 0.001, 1e9, "time to search at most"),
};
#undef ROW

static dp_status check_choices(const dp_node *node, const char *what, const char *const *choices, dp_error *error) {
  if (!node) return DP_OK;
  dp_status status = DP_OK;
  const size_t count = node->kind == DP_NODE_ARRAY ? node->count : 1;
  for (size_t i = 0; i < count && status == DP_OK; i++) {
    const dp_node *item = node->kind == DP_NODE_ARRAY ? node->items[i] : node;
    int c = 0;
    while (choices[c] && (item->kind != DP_NODE_STRING || strcmp(choices[c], item->string) != 0)) c++;
    if (choices[c]) continue;
    dp_allowed allowed = {.given = item->kind == DP_NODE_STRING ? item->string : NULL};
    for (c = 0; choices[c]; c++) dp_allowed_add(&allowed, choices[c]);
    char shown[80];
    status = dp_fail_at(error, item, "%s: found %s, %s", what, dp_node_show(item, shown), dp_allowed_text(&allowed));
    dp_allowed_free(&allowed);
  }
  return status;
}

static dp_status check_integers_from(const dp_node *node, const char *what, int64_t min, int64_t max,
                                     plan_scenario *scenario, dp_error *error) {
  int64_t *values = NULL;
  size_t count = 0;
  return node ? dp_range_read_integers(node, what, min, max, &scenario->arena, &values, &count, error) : DP_OK;
}

static dp_status check_integers(const dp_node *node, const char *what, int64_t max, plan_scenario *scenario,
                                dp_error *error) {
  return check_integers_from(node, what, 1, max, scenario, error);
}

dp_status plan_scenario_read_search(const dp_node *table, plan_scenario *scenario, dp_error *error) {
  search_keys keys = {0};
  DP_TRY(dp_schema_read(table, scenario->document.root, "search", plan_search_fields, PLAN_SEARCH_FIELD_COUNT, &keys,
                        error));
  DP_TRY(check_integers(keys.stages, "search.stages", 65536, scenario, error));
  DP_TRY(check_integers(keys.data_parallel, "search.data_parallel", 65536, scenario, error));
  DP_TRY(check_integers(keys.tensor_parallel, "search.tensor_parallel", GRAPH_MAX_TENSOR_PARALLEL, scenario, error));
  DP_TRY(check_integers(keys.chunks, "search.chunks", 65535, scenario, error));
  DP_TRY(check_integers(keys.microbatch_sizes, "search.microbatch_sizes", 65536, scenario, error));
  DP_TRY(check_integers(keys.k, "search.k", 1000000000, scenario, error));
  DP_TRY(check_choices(keys.schedules, "search.schedules", plan_schedule_names, error));
  DP_TRY(check_choices(keys.skip_policies, "search.skip_policies", plan_skip_policy_names, error));
  DP_TRY(check_choices(keys.recompute, "search.recompute", plan_recompute_names, error));
  DP_TRY(check_choices(keys.transports, "search.transports", plan_transport_names, error));
  DP_TRY(check_integers_from(keys.nccl_sms, "search.nccl_sms", 0, 65536, scenario, error));
  scenario->search = table;
  return DP_OK;
}
