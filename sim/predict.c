#include "sim/predictor.h"

#include <string.h>

static dp_status find_kinds(sim_predictor *p) {
  const plan_plan *plan = &p->out->plan;
  const plan_cluster *cluster = &p->scenario->cluster;
  const int workers = plan_worker_count(plan);
  p->kind_of_worker = SIM_SCRATCH(p, int, workers);
  p->kinds = SIM_SCRATCH(p, sim_device_kind, workers);
  if (!p->kind_of_worker || !p->kinds) return dp_fail_memory(p->error);
  for (int w = 0; w < workers; w++) {
    const plan_device *device = &cluster->devices.items[sim_worker_device(plan, w)];
    const int link = p->tensor_link_of_worker ? p->tensor_link_of_worker[w] : 0;
    int k = 0;
    while (k < p->kind_count &&
           (p->kinds[k].device->model != device->model || p->kinds[k].device->compute_share != device->compute_share ||
            p->kinds[k].link != link))
      k++;
    if (k == p->kind_count) {
      const sim_prepared_kind *kind = sim_prepared_kind_of(p->prepared, device);
      p->kinds[k] = (sim_device_kind){.device = device, .context = kind->context, .units = kind->units, .link = link};
      p->kind_count++;
    }
    p->kind_of_worker[w] = k;
  }
  return DP_OK;
}

static dp_status cost_kinds(sim_predictor *p) {
  const size_t n = p->out->graph.units.count;
  for (int k = 0; k < p->kind_count; k++) {
    sim_device_kind *kind = &p->kinds[k];
    DP_TRY(sim_predict_tensor_cost(p, kind));
    kind->recompute_prefix = SIM_SCRATCH(p, double, n + 1);
    kind->recompute_issue_prefix = SIM_SCRATCH(p, double, n + 1);
    if (!kind->recompute_prefix || !kind->recompute_issue_prefix) return dp_fail_memory(p->error);
    for (int d = 0; d < 3; d++) {
      kind->prefix[d] = SIM_SCRATCH(p, double, n + 1);
      kind->issue_prefix[d] = SIM_SCRATCH(p, double, n + 1);
      if (!kind->prefix[d] || !kind->issue_prefix[d]) return dp_fail_memory(p->error);
      for (size_t u = 0; u < n; u++) {
        kind->prefix[d][u + 1] = kind->prefix[d][u] + kind->units[u].device_s[d];
        kind->issue_prefix[d][u + 1] = kind->issue_prefix[d][u] + kind->units[u].issue_s[d];
      }
    }
  }
  p->rank_kind = SIM_SCRATCH(p, int, p->out->plan.ranks);
  if (!p->rank_kind) return dp_fail_memory(p->error);
  sim_predict_cost_recompute(p);
  return DP_OK;
}

void sim_predict_cost_recompute(sim_predictor *p) {
  const int n = (int)p->out->graph.units.count, ranks = p->out->plan.ranks;
  for (int k = 0; k < p->kind_count; k++) {
    sim_device_kind *kind = &p->kinds[k];
    kind->model_s = 0;
    for (int u = 0; u < n; u++) {
      const bool again = p->out->plan.recompute[u];
      const double again_s = again ? kind->units[u].device_s[SIM_FORWARD] - kind->units[u].spared_s : 0;
      kind->recompute_prefix[u + 1] = kind->recompute_prefix[u] + again_s;
      kind->recompute_issue_prefix[u + 1] =
          kind->recompute_issue_prefix[u] + (again ? kind->units[u].issue_s[SIM_FORWARD] : 0);
      if (kind->tensor_recompute_prefix)
        kind->tensor_recompute_prefix[u + 1] =
            kind->tensor_recompute_prefix[u] + (again ? sim_prefix_span(kind->tensor_prefix[SIM_FORWARD], u, 1) : 0);
      kind->model_s += sim_kind_unit_s(p, kind, u);
    }
  }
  sim_predict_tensor_keep_step(p);
  /* the slowest kind among each rank's replicas, which all wait for it */
  for (int r = 0; r < ranks; r++) p->rank_kind[r] = p->kind_of_worker[r];
  for (int w = ranks; w < plan_worker_count(&p->out->plan); w++) {
    const int k = p->kind_of_worker[w];
    if (p->kinds[k].model_s > p->kinds[p->rank_kind[w % ranks]].model_s) p->rank_kind[w % ranks] = k;
  }
}

double sim_kind_span_s(const sim_device_kind *kind, int direction, int first, int count) {
  double sum = 0;
  for (int u = first; u < first + count; u++) sum += kind->units[u].device_s[direction];
  return sum;
}

static dp_status set_recompute(sim_predictor *p) {
  const plan_scenario *scenario = p->scenario;
  const graph *model = &p->out->graph;
  const size_t n = model->units.count;
  plan_plan *plan = &p->out->plan;
  plan->recompute = DP_ARENA_NEW(&plan->arena, uint8_t, n);
  if (!plan->recompute) return dp_fail_memory(p->error);
  if (scenario->recompute == PLAN_RECOMPUTE_ALL) memset(plan->recompute, 1, n);
  const dp_node *list = scenario->recompute_list;
  if (!list) return DP_OK;
  for (size_t i = 0; i < list->count; i++) {
    const dp_node *item = list->items[i];
    if (item->kind == DP_NODE_INTEGER) {
      if (item->integer < 0 || (uint64_t)item->integer >= n)
        return dp_fail_at(p->error, item, "plan.recompute: found unit %lld, allowed: 0 to %zu",
                          (long long)item->integer, n - 1);
      plan->recompute[item->integer] = 1;
      continue;
    }
    size_t u = 0;
    while (u < n && (item->kind != DP_NODE_STRING || strcmp(model->units.items[u].name, item->string) != 0)) u++;
    if (u == n) {
      char shown[80];
      return dp_fail_at(p->error, item,
                        "plan.recompute: found %s, allowed: a unit's name (diffpipe inspect lists them) or index",
                        dp_node_show(item, shown));
    }
    plan->recompute[u] = 1;
  }
  return DP_OK;
}

/* plan.skips, once the units have names. */
static dp_status set_skips(sim_predictor *p) {
  const plan_scenario *scenario = p->scenario;
  const graph *model = &p->out->graph;
  plan_plan *plan = &p->out->plan;
  if (scenario->skip_count == 0) return DP_OK;
  plan->tensor_skip_policy = DP_ARENA_NEW(&plan->arena, uint8_t, model->tensors.count);
  if (!plan->tensor_skip_policy) return dp_fail_memory(p->error);
  for (size_t t = 0; t < model->tensors.count; t++) plan->tensor_skip_policy[t] = (uint8_t)plan->skip_policy;
  for (size_t i = 0; i < scenario->skip_count; i++) {
    const char *text = scenario->skips[i], *equals = strrchr(text, '=');
    const size_t length = (size_t)(equals - text);
    uint8_t policy = 0;
    while (strcmp(plan_skip_policy_names[policy], equals + 1) != 0) policy++;
    bool found = false;
    for (size_t t = 0; t < model->tensors.count; t++) {
      const int unit = model->tensors.items[t].producer_unit;
      if (unit == GRAPH_NONE || !graph_tensor_is_skip(model, (int)t)) continue;
      const char *name = model->units.items[unit].name;
      if (strncmp(name, text, length) != 0 || name[length] != '\0') continue;
      plan->tensor_skip_policy[t] = policy;
      found = true;
    }
    if (!found)
      return dp_fail_at(p->error, scenario->skips_node ? scenario->skips_node->items[i] : NULL,
                        "plan.skips: found \"%.*s\", allowed: a unit that makes a skip (diffpipe inspect lists them)",
                        (int)length, text);
  }
  return DP_OK;
}

double sim_kind_unit_s(const sim_predictor *p, const sim_device_kind *kind, int unit) {
  const sim_unit_cost *cost = &kind->units[unit];
  double s = cost->device_s[SIM_FORWARD];
  if (p->out->plan.training) {
    s += cost->device_s[SIM_BACKWARD_INPUT] + cost->device_s[SIM_BACKWARD_WEIGHT];
    if (p->out->plan.recompute[unit]) s += cost->device_s[SIM_FORWARD];
  }
  return s;
}

static void find_cost(sim_predictor *p) {
  sim_prediction *out = p->out;
  const plan_cluster *cluster = &p->scenario->cluster;
  const double rate = out->metrics.throughput_samples_per_s;
  if (rate <= 0 || p->scenario->synthetic) return;
  out->usd_per_million_samples = cluster->price_usd_per_h / 3600 / rate * 1e6;
  out->joules_per_sample = cluster->power_w / rate;
}

/* Of a microbatch through the whole model on a kind of device. What rests on one source errs together, and so, for all
 * that is known, do the sources. */
static double kind_band(const sim_predictor *p, const sim_device_kind *kind, double shares[PLAN_SOURCE_COUNT]) {
  double seconds[PLAN_SOURCE_COUNT] = {0}, sum = 0, band = 0;
  if (!kind->context.profile || !plan_profile_has_work(kind->context.profile)) {
    shares[PLAN_SOURCE_ANALYTIC] = 1;
    return sim_cost_error_band(&kind->context);
  }
  for (size_t u = 0; u < p->out->graph.units.count; u++)
    for (int s = 0; s < PLAN_SOURCE_COUNT; s++) seconds[s] += kind->units[u].source_s[s];
  for (int s = 0; s < PLAN_SOURCE_COUNT; s++) sum += seconds[s];
  for (int s = 0; s < PLAN_SOURCE_COUNT; s++) {
    shares[s] = sum > 0 ? seconds[s] / sum : 0;
    band += shares[s] * sim_cost_source_band(&kind->context, (plan_source)s);
  }
  return band;
}

/* The widest of the kinds of devices. */
static void find_band(sim_predictor *p) {
  sim_prediction *out = p->out;
  if (out->metrics.throughput_samples_per_s <= 0 || p->scenario->synthetic) return;
  for (int k = 0; k < p->kind_count; k++) {
    double shares[PLAN_SOURCE_COUNT] = {0};
    const double band = kind_band(p, &p->kinds[k], shares);
    if (band <= out->error_band) continue;
    out->error_band = band;
    memcpy(out->source_share, shares, sizeof shares);
  }
}

static dp_status begin(sim_predictor *p) {
  DP_TRY(sim_predict_tensor_links(p));
  DP_TRY(find_kinds(p));
  DP_TRY(set_recompute(p));
  DP_TRY(set_skips(p));
  DP_TRY(cost_kinds(p));
  return sim_predict_set_chunks(p);
}

static dp_status finish(sim_predictor *p) {
  DP_TRY(sim_predict_place(p));
  DP_TRY(sim_predict_run(p));
  DP_TRY(sim_predict_bounds(p));
  find_cost(p);
  find_band(p);
  return DP_OK;
}

sim_shortage sim_prediction_shortage(const sim_prediction *out) {
  const int w = out->tightest_worker;
  return (sim_shortage){w, out->memory.workers[w].peak_bytes, out->memory_limit_bytes[w],
                        out->memory.workers[w].at_peak_bytes[PLAN_MEMORY_ACTIVATIONS]};
}

/* A plan of its own: `from` gives up what it holds; what points into it points into `to` then. */
static void move(sim_prediction *from, sim_prediction *to) {
  *to = *from;
  to->program.plan = &to->plan;
  to->timeline.program = &to->program;
  memset(from, 0, sizeof *from);
}

/* Of what is prepared `out` keeps its own. */
static void take_place(sim_prediction *out, sim_prediction *other) {
  sim_prepared own = out->own;
  memset(&out->own, 0, sizeof out->own);
  sim_prediction_free(out);
  move(other, out);
  out->own = own;
}

/* A second prediction of the same scenario beside the first, to take its place or not. */
static dp_status begin_other(const sim_predictor *p, plan_split_way split_way, sim_prediction *other, sim_predictor *q,
                             dp_error *error) {
  memset(other, 0, sizeof *other);
  other->graph = p->out->graph;
  other->split_way = split_way;
  *q = (sim_predictor){
      .scenario = p->scenario, .prepared = p->prepared, .roughly = p->roughly, .out = other, .error = error};
  return plan_scenario_plan(p->scenario, &other->plan, error);
}

/* Units are recomputed only where memory needs it, and only if that beats what fits without: another split, or fewer
 * microbatches in flight. */
static dp_status predict_auto(sim_predictor *p) {
  sim_prediction *out = p->out;
  DP_TRY(begin(p));
  DP_TRY(sim_predict_compile_once(p));
  if (out->fits || !out->plan.training) return finish(p);
  const sim_shortage shortage = sim_prediction_shortage(out);
  plan_memory_free(&out->memory);
  plan_program_free(&out->program);
  DP_TRY(sim_predict_compile(p));
  if (out->fits) DP_TRY(finish(p));

  sim_prediction other;
  sim_predictor q;
  dp_status status = begin_other(p, out->split_way, &other, &q, p->error);
  if (status == DP_OK) status = begin(&q);
  if (status == DP_OK) status = sim_predict_compile_recomputing(&q);
  if (status == DP_OK && (other.fits || !out->fits)) status = finish(&q);
  dp_arena_free(&q.scratch);
  const bool better = other.fits && out->fits ? other.metrics.step_s < out->metrics.step_s : !out->fits;
  if (status == DP_OK && better) take_place(out, &other);
  sim_prediction_free(&other);
  out->without_recomputation = shortage;
  return status;
}

static dp_status predict_one(sim_predictor *p) {
  if (p->scenario->recompute == PLAN_RECOMPUTE_AUTO) return predict_auto(p);
  DP_TRY(begin(p));
  DP_TRY(sim_predict_compile(p));
  return finish(p);
}

/* A folded placement whose split is open: balanced, or even where that is faster, and allowed (skips that must stay on a
 * worker may not be). */
static dp_status predict(sim_predictor *p) {
  sim_prediction *out = p->out;
  const plan_scenario *scenario = p->scenario;
  const bool open = scenario->split_way == PLAN_SPLIT_AUTO && !scenario->split_count &&
                    out->plan.schedule == PLAN_FOLDED && out->plan.ranks > 1;
  out->split_way = scenario->split_way == PLAN_SPLIT_AUTO ? PLAN_SPLIT_BALANCED : scenario->split_way;
  DP_TRY(predict_one(p));
  if (!open) return DP_OK;

  sim_prediction other;
  sim_predictor q;
  dp_error error = DP_ERROR_INIT;
  dp_status status = begin_other(p, PLAN_SPLIT_EVEN, &other, &q, &error);
  if (status == DP_OK) status = predict_one(&q);
  dp_arena_free(&q.scratch);
  const bool better = other.fits && (!out->fits || other.metrics.step_s < out->metrics.step_s);
  if (status == DP_OK && better) take_place(out, &other);
  sim_prediction_free(&other);
  return status == DP_OK || status == DP_BAD_INPUT ? DP_OK : dp_fail(p->error, status, "%s", error.text);
}

/* prepared NULL: the prediction prepares for itself. */
static dp_status predict_with(const plan_scenario *scenario, const sim_efficiency *efficiency,
                              const sim_prepared *prepared, bool roughly, sim_prediction *out, dp_error *error) {
  memset(out, 0, sizeof *out);
  dp_status status = plan_scenario_plan(scenario, &out->plan, error);
  if (status == DP_OK && !prepared) {
    status =
        sim_prepare_share(scenario, efficiency, out->plan.microbatch_size, plan_tensor(&out->plan), &out->own, error);
    prepared = &out->own;
  }
  if (status == DP_OK &&
      (prepared->microbatch_size != out->plan.microbatch_size || prepared->nccl_sms != out->plan.nccl_sms ||
       prepared->model.tensor_parallel != plan_tensor(&out->plan)))
    status =
        dp_fail(error, DP_INTERNAL,
                "prepared for microbatches of %lld on %d workers beside NCCL's %lld SMs, not %d on %d beside %d",
                (long long)prepared->microbatch_size, prepared->model.tensor_parallel, (long long)prepared->nccl_sms,
                out->plan.microbatch_size, plan_tensor(&out->plan), out->plan.nccl_sms);
  if (status == DP_OK) {
    out->graph = prepared->model;
    sim_predictor p = {.scenario = scenario, .prepared = prepared, .roughly = roughly, .out = out, .error = error};
    status = predict(&p);
    dp_arena_free(&p.scratch);
  }
  if (status != DP_OK) sim_prediction_free(out);
  return status;
}

dp_status sim_predict(const plan_scenario *scenario, const sim_efficiency *efficiency, sim_prediction *prediction,
                      dp_error *error) {
  return predict_with(scenario, efficiency, NULL, false, prediction, error);
}

dp_status sim_predict_prepared(const plan_scenario *scenario, const sim_prepared *prepared, sim_prediction *prediction,
                               dp_error *error) {
  return predict_with(scenario, NULL, prepared, false, prediction, error);
}

dp_status sim_predict_roughly(const plan_scenario *scenario, const sim_prepared *prepared, sim_prediction *prediction,
                              dp_error *error) {
  return predict_with(scenario, NULL, prepared, true, prediction, error);
}

void sim_prediction_free(sim_prediction *prediction) {
  plan_metrics_free(&prediction->metrics);
  plan_timeline_free(&prediction->timeline);
  plan_memory_free(&prediction->memory);
  plan_program_free(&prediction->program);
  plan_plan_free(&prediction->plan);
  sim_prepared_free(&prediction->own);
  dp_arena_free(&prediction->arena);
  memset(prediction, 0, sizeof *prediction);
}
