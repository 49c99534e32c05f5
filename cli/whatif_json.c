/* whatif as JSON; keys keep their names and units within a version. */
#include "cli/json.h"
#include "cli/whatif.h"

static json_t *known(double value) { return value > 0 ? json_real(value) : json_null(); }
static json_t *text_or_null(const char *text) { return text ? json_string(text) : json_null(); }

/* What rows and points have alike. */
static bool put_best(json_t *row, bool found, bool fits, const sim_trial *best, const char *why) {
  char text[256];
  json_t *plan = found ? cli_json_candidate(&best->candidate) : json_null();
  return cli_json_put(row, "fits", json_boolean(fits)) && cli_json_put(row, "best", plan) &&
         cli_json_put(row, "text", found ? json_string(sim_candidate_show(&best->candidate, text)) : json_null()) &&
         cli_json_put(row, "why", text_or_null(why)) &&
         cli_json_put(row, "throughput_samples_per_s", json_real(fits ? best->throughput_samples_per_s : 0)) &&
         cli_json_put(row, "step_s", found ? json_real(best->step_s) : json_null()) &&
         cli_json_put(row, "bubble_ratio", found ? json_real(best->bubble_ratio) : json_null()) &&
         cli_json_put(row, "peak_memory_bytes", found ? json_integer(best->peak_bytes) : json_null()) &&
         cli_json_put(row, "usd_per_million_samples", fits ? known(best->usd_per_million_samples) : json_null()) &&
         cli_json_put(row, "joules_per_sample", fits ? known(best->joules_per_sample) : json_null());
}

static json_t *break_even_json(const sim_break_even *b) {
  json_t *out = json_object();
  const bool months = b->pays == SIM_PAYS_AFTER || b->pays == SIM_PAYS_UNTIL;
  if (out && cli_json_put(out, "pays", json_string(sim_pays_names[b->pays])) &&
      cli_json_put(out, "months", months ? json_real(b->months) : json_null()) &&
      cli_json_put(out, "why", json_string(b->why)))
    return out;
  json_decref(out);
  return NULL;
}

static bool put_break_even(json_t *row, const cli_whatif_answer *answer, const sim_hardware *h) {
  json_t *both = json_object();
  const sim_break_even rent = cli_whatif_rent(answer, h), purchase = cli_whatif_purchase(answer, h);
  return cli_json_put(row, "break_even", both) && cli_json_put(both, "rent", break_even_json(&rent)) &&
         cli_json_put(both, "purchase", break_even_json(&purchase)) &&
         cli_json_put(row, "break_even_months", rent.pays == SIM_PAYS_AFTER ? json_real(rent.months) : json_null());
}

static bool add_row(json_t *list, const cli_whatif_answer *answer, const sim_hardware *h) {
  const plan_cluster *cluster = &h->scenario.cluster;
  json_t *row = json_object(), *gains = h->measured ? json_object() : json_null();
  bool done = json_array_append_new(list, row) == 0 && cli_json_put(row, "gain_of_10_percent_more", gains) &&
              cli_json_put(row, "cluster", json_string(cluster->name)) &&
              cli_json_put(row, "file", text_or_null(h->file)) &&
              cli_json_put(row, "devices", json_integer((json_int_t)cluster->devices.count)) &&
              put_best(row, h->found, h->fits, &h->best, h->why) &&
              cli_json_put(row, "price_usd_per_h", known(cluster->price_usd_per_h)) &&
              cli_json_put(row, "purchase_usd", known(cluster->purchase_usd)) &&
              cli_json_put(row, "power_w", known(cluster->power_w)) && put_break_even(row, answer, h);
  for (int r = 0; done && h->measured && r < SIM_RESOURCE_COUNT; r++)
    done = cli_json_put(gains, sim_resource_names[r], json_real(h->gain[r]));
  if (done)
    done = cli_json_put(row, "helps_most",
                        h->measured ? json_string(sim_resource_names[cli_whatif_most_helpful(h)]) : json_null());
  return done;
}

static json_t *value_json(const sim_sweep *sweep, const sim_sweep_value *value) {
  return sweep->numeric ? json_real(value->number) : json_string(value->text);
}

static bool add_sweep(json_t *list, const sim_whatif_result *result, const sim_sweep_result *swept) {
  const sim_sweep *sweep = swept->sweep;
  json_t *out = json_object(), *points = json_array();
  bool done = json_array_append_new(list, out) == 0 && cli_json_put(out, "points", points) &&
              cli_json_put(out, "sweep", json_string(sweep->text)) &&
              cli_json_put(out, "key", json_string(sweep->key)) &&
              cli_json_put(out, "logarithmic", json_boolean(sweep->logarithmic)) &&
              cli_json_put(out, "plan_fixed", json_boolean(swept->plan_fixed));
  for (int r = 0; r < result->row_count; r++)
    for (int v = 0; done && v < sweep->count; v++) {
      const sim_sweep_point *point = &swept->points[r * sweep->count + v];
      if (!point->done) continue;
      json_t *row = json_object();
      done = json_array_append_new(points, row) == 0 &&
             cli_json_put(row, "cluster", json_string(result->rows[r].scenario.cluster.name)) &&
             cli_json_put(row, "value", value_json(sweep, &sweep->values[v])) &&
             put_best(row, point->found, point->fits, &point->trial, point->why) &&
             cli_json_put(row, "plan_changed", json_boolean(point->changed));
    }
  return done;
}

static json_t *terms_json(const sim_terms *terms) {
  json_t *out = json_object();
  if (out && cli_json_put(out, "usd_per_kwh", json_real(terms->usd_per_kwh)) &&
      cli_json_put(out, "hours_per_month", json_real(terms->hours_per_month)) &&
      cli_json_put(out, "utilisation", json_real(terms->utilisation)))
    return out;
  json_decref(out);
  return NULL;
}

dp_status cli_whatif_json(const cli_whatif_answer *answer, json_t **json, dp_error *error) {
  const sim_whatif_result *result = answer->result;
  json_t *root = json_object(), *rows = json_array(), *sweeps = json_array();
  bool done = root && cli_json_put(root, "rows", rows) && cli_json_put(root, "sweeps", sweeps) &&
              cli_json_put(root, "format", json_string("diffpipe-whatif")) &&
              cli_json_put(root, "version", json_integer(1)) &&
              cli_json_put(root, "scenario", json_string(answer->scenario)) &&
              cli_json_put(root, "global_batch", json_integer(answer->global_batch)) &&
              cli_json_put(root, "reference",
                           answer->reference ? json_string(answer->reference->scenario.cluster.name) : json_null()) &&
              cli_json_put(root, "terms", terms_json(&answer->terms)) &&
              cli_json_put(root, "stopped", json_boolean(result->stopped));
  for (int i = 0; done && i < result->row_count; i++) done = add_row(rows, answer, &result->rows[i]);
  for (int s = 0; done && s < result->sweep_count; s++) done = add_sweep(sweeps, result, &result->sweeps[s]);
  if (done) {
    *json = root;
    return DP_OK;
  }
  json_decref(root);
  return dp_fail_memory(error);
}
