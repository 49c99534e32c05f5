/* diffpipe advise --json; cli/formats.c tells its keys. */
#include <jansson.h>
#include <stdio.h>

#include "cli/advise.h"
#include "cli/json.h"

const cli_advise_key cli_advise_keys[] = {
    {"cluster, gpus", "the cluster's name; how many GPUs it has"},
    {"model",
     "`type`, `class`, `parameters`, `trainable_parameters`, `layers[]` (`first_unit`, `weights`: what DeepSpeed's "
     "rule counts)"},
    {"setting",
     "as read, defaults filled in: `pipeline_stages`, `data_parallel`, `gradient_accumulation_steps`, "
     "`micro_batch_size` (or pairs of size and samples), `activation_checkpointing` (true, false or \"unsloth\"), "
     "`partition_method`, `partition_split` (what holds, whatever the method), `optimizer` (as which it is taken), "
     "`float8`, `blocks_to_swap`"},
    {"unused_keys[]", "`key`, `line` (0: given with --set), `known` (diffusion-pipe has such a key)"},
    {"notes[]", "what to know about the figures: sentences"},
    {"sizes[]",
     "`width`, `height`, `frames`, `resolution`, `aspect_ratio`, `stands_for` (sizes of that resolution), "
     "`micro_batch_size`, `global_batch`, `fits`, `step_s`, `throughput_samples_per_s`, `bubble_ratio`, "
     "`error_band`, `bound`, `bound_share` (what takes most time beside compute), `memory`"},
    {"memory",
     "of the fullest GPU: `worker`, `device`, `need_bytes`, `limit_bytes`, `by_class` (`weights`, `gradients`, "
     "`optimizer`, `activations`, `skips`, `boundary`, `workspace`, `runtime`, `text_encoders`)"},
    {"mix", "all sizes, as many samples of each: `fits`, `throughput_samples_per_s`, `bubble_ratio`, `memory`"},
    {"verdict", "\"keep\", \"change\" or \"nothing fits\""},
    {"fastest, smallest",
     "proposals, or null: the fastest, and (where the file as it is does not fit) the one with fewest "
     "changes: `setting`, `changes[]` (`change`; `alone`: a mix, or null where it goes only with the "
     "others; `gain`), `together` (a mix), `gain` (relative, of throughput), `lines[]` (`op`: - or +, "
     "`line`: null for new ones, `table`, `text`, `change`)"},
    {"better_split", "a proposal like these that changes the split alone; null where that is not worth it"},
    {"more_accumulation[]",
     "the fastest with a larger global batch: `gradient_accumulation_steps`, `global_batch`, `mix`"},
    {"trials", "settings and sizes that were simulated"},
    {NULL, NULL}};

static json_t *split_json(const sim_advise_setting *s) {
  json_t *list = json_array();
  bool done = list != NULL;
  for (int i = 0; done && i + 1 < s->stages; i++) done = json_array_append_new(list, json_integer(s->split[i])) == 0;
  if (done) return list;
  json_decref(list);
  return NULL;
}

/* A number, or pairs of size and samples. */
static json_t *batch_json(const cli_advice *advice, const sim_advise_setting *s) {
  if (s->micro_batch) return json_integer(s->micro_batch);
  const plan_dpipe *c = advice->config;
  json_t *list = json_array();
  bool done = list != NULL;
  for (size_t i = 0; done && i < c->batches.count; i++) {
    json_t *pair = json_array();
    done = json_array_append_new(list, pair) == 0 &&
           json_array_append_new(pair, json_real(c->batches.items[i].size)) == 0 &&
           json_array_append_new(pair, json_integer(cli_advise_listed(&c->batches.items[i], s))) == 0;
  }
  if (done) return list;
  json_decref(list);
  return NULL;
}

static json_t *setting_json(const cli_advice *advice, const sim_advise_setting *s) {
  json_t *o = json_object();
  const bool done =
      o && cli_json_put(o, "pipeline_stages", json_integer(s->stages)) &&
      cli_json_put(o, "data_parallel", json_integer(s->replicas)) &&
      cli_json_put(o, "gradient_accumulation_steps", json_integer(s->accumulation)) &&
      cli_json_put(o, "micro_batch_size", batch_json(advice, s)) &&
      cli_json_put(o, "activation_checkpointing",
                   s->checkpointing == PLAN_DPIPE_UNSLOTH ? json_string("unsloth")
                                                          : json_boolean(s->checkpointing != PLAN_DPIPE_KEEP_ALL)) &&
      cli_json_put(o, "partition_method", json_string(plan_dpipe_partition_names[s->partition])) &&
      cli_json_put(o, "partition_split", split_json(s)) &&
      cli_json_put(o, "optimizer", json_string(s->optimizer->name)) &&
      cli_json_put(o, "float8", json_boolean(s->fp8)) &&
      cli_json_put(o, "blocks_to_swap", json_integer(s->blocks_to_swap));
  if (done) return o;
  json_decref(o);
  return NULL;
}

static json_t *memory_json(const cli_advice *advice, const sim_advise_figures *f) {
  json_t *o = json_object(), *classes = json_object();
  bool done = cli_json_put(o, "by_class", classes) && cli_json_put(o, "worker", json_integer(f->worker)) &&
              cli_json_put(o, "device", json_string(advice->scenario->cluster.devices.items[f->device].name)) &&
              cli_json_put(o, "need_bytes", json_integer(f->need_bytes)) &&
              cli_json_put(o, "limit_bytes", json_integer(f->limit_bytes));
  for (int c = 0; done && c < SIM_ADVISE_CLASS_COUNT; c++)
    done = cli_json_put(classes, c == SIM_ADVISE_TEXT ? "text_encoders" : sim_advise_class_names[c],
                        json_integer(f->class_bytes[c]));
  if (done) return o;
  json_decref(o);
  return NULL;
}

static json_t *mix_json(const cli_advice *advice, const sim_advise_mix *m) {
  json_t *o = json_object();
  const bool done = o && cli_json_put(o, "fits", json_boolean(m->fits)) &&
                    cli_json_put(o, "throughput_samples_per_s", json_real(m->throughput_samples_per_s)) &&
                    cli_json_put(o, "bubble_ratio", json_real(m->bubble_ratio)) &&
                    cli_json_put(o, "memory", memory_json(advice, &m->tightest));
  if (done) return o;
  json_decref(o);
  return NULL;
}

static json_t *row_json(const cli_advice *advice, const sim_advise_row *row) {
  const sim_advise_figures *f = &row->figures;
  json_t *o = json_object();
  const bool done = o && cli_json_put(o, "width", json_integer(row->bucket->width)) &&
                    cli_json_put(o, "height", json_integer(row->bucket->height)) &&
                    cli_json_put(o, "frames", json_integer(row->bucket->frames)) &&
                    cli_json_put(o, "resolution", json_real(row->bucket->resolution)) &&
                    cli_json_put(o, "aspect_ratio", json_real(row->bucket->ratio)) &&
                    cli_json_put(o, "stands_for", json_integer(row->stands_for)) &&
                    cli_json_put(o, "micro_batch_size", json_integer(f->micro_batch)) &&
                    cli_json_put(o, "global_batch", json_integer(f->global_batch)) &&
                    cli_json_put(o, "fits", json_boolean(f->fits)) && cli_json_put(o, "step_s", json_real(f->step_s)) &&
                    cli_json_put(o, "throughput_samples_per_s", json_real(f->throughput_samples_per_s)) &&
                    cli_json_put(o, "bubble_ratio", json_real(f->bubble_ratio)) &&
                    cli_json_put(o, "error_band", json_real(f->error_band)) &&
                    cli_json_put(o, "bound", f->bound_name ? json_string(f->bound_name) : json_null()) &&
                    cli_json_put(o, "bound_share", json_real(f->bound_share)) &&
                    cli_json_put(o, "memory", memory_json(advice, f));
  if (done) return o;
  json_decref(o);
  return NULL;
}

static json_t *lines_json(const cli_advice *advice, const sim_advise_proposal *proposal, dp_error *error) {
  cli_advise_lines lines;
  if (cli_advise_lines_of(advice, proposal, &lines, error) != DP_OK) return NULL;
  json_t *list = json_array();
  bool done = list != NULL;
  for (int i = 0; done && i < lines.count; i++) {
    const cli_advise_line *l = &lines.items[i];
    const char op[2] = {l->op, 0};
    json_t *o = json_object();
    done = json_array_append_new(list, o) == 0 && cli_json_put(o, "op", json_string(op)) &&
           cli_json_put(o, "line", l->line ? json_integer(l->line) : json_null()) &&
           cli_json_put(o, "table", l->table ? json_string(l->table) : json_null()) &&
           cli_json_put(o, "text", json_string(l->text)) &&
           cli_json_put(o, "change", json_string(cli_advise_group_name(advice, l->group)));
  }
  cli_advise_lines_free(&lines);
  if (done) return list;
  json_decref(list);
  return NULL;
}

static json_t *proposal_json(const cli_advice *advice, const sim_advise_proposal *p, dp_error *error) {
  json_t *o = json_object(), *changes = json_array();
  bool done = o && cli_json_put(o, "changes", changes) &&
              cli_json_put(o, "setting", setting_json(advice, &p->setting)) &&
              cli_json_put(o, "together", mix_json(advice, &p->mix)) && cli_json_put(o, "gain", json_real(p->gain)) &&
              cli_json_put(o, "lines", lines_json(advice, p, error));
  for (int i = 0; done && i < p->change_count; i++) {
    const sim_advise_change *c = &p->changes[i];
    json_t *row = json_object();
    done = json_array_append_new(changes, row) == 0 &&
           cli_json_put(row, "change", json_string(cli_advise_group_name(advice, c->group))) &&
           cli_json_put(row, "alone", c->possible ? mix_json(advice, &c->mix) : json_null()) &&
           cli_json_put(row, "gain", c->possible ? json_real(c->gain) : json_null());
  }
  if (done) return o;
  json_decref(o);
  return NULL;
}

static json_t *model_json(const cli_advice *advice) {
  const sim_advise_result *r = advice->result;
  const plan_dpipe *c = advice->config;
  json_t *o = json_object(), *layers = json_array();
  bool done = cli_json_put(o, "layers", layers) &&
              cli_json_put(o, "type", json_string(plan_dpipe_family_names[c->family])) &&
              cli_json_put(o, "class", json_string(r->class_name)) &&
              cli_json_put(o, "parameters", json_integer(r->parameters)) &&
              cli_json_put(o, "trainable_parameters", json_integer(r->trainable_parameters));
  for (int i = 0; done && i < r->layers; i++) {
    json_t *layer = json_object();
    done = json_array_append_new(layers, layer) == 0 &&
           cli_json_put(layer, "first_unit", json_string(r->layer_names[i])) &&
           cli_json_put(layer, "weights", json_integer(r->layer_weights[i]));
  }
  if (done) return o;
  json_decref(o);
  return NULL;
}

static bool add_more(const cli_advice *advice, json_t *list) {
  bool done = true;
  for (int i = 0; done && i < advice->result->more_count; i++) {
    json_t *o = json_object();
    done = json_array_append_new(list, o) == 0 &&
           cli_json_put(o, "gradient_accumulation_steps", json_integer(advice->result->more[i].accumulation)) &&
           cli_json_put(o, "global_batch", json_integer(advice->result->more[i].global_batch)) &&
           cli_json_put(o, "mix", mix_json(advice, &advice->result->more[i].mix));
  }
  return done;
}

dp_status cli_advise_print_json(const cli_advice *advice, dp_error *error) {
  const sim_advise_result *r = advice->result;
  const plan_dpipe *c = advice->config;
  json_t *root = json_object(), *rows = json_array(), *unused = json_array(), *notes = json_array(),
         *more = json_array();
  const char *verdict = !r->any_fits ? "nothing fits" : r->fastest.change_count ? "change" : "keep";
  bool done =
      cli_json_put(root, "format", json_string("diffpipe-advise")) && cli_json_put(root, "version", json_integer(1)) &&
      cli_json_put(root, "cluster", json_string(advice->scenario->cluster.name)) &&
      cli_json_put(root, "gpus", json_integer(r->gpus)) && cli_json_put(root, "model", model_json(advice)) &&
      cli_json_put(root, "setting", setting_json(advice, &r->now)) && cli_json_put(root, "unused_keys", unused) &&
      cli_json_put(root, "notes", notes) && cli_json_put(root, "sizes", rows) &&
      cli_json_put(root, "mix", mix_json(advice, &r->mix)) && cli_json_put(root, "verdict", json_string(verdict)) &&
      cli_json_put(root, "fastest", r->any_fits ? proposal_json(advice, &r->fastest, error) : json_null()) &&
      cli_json_put(root, "smallest", r->any_fits ? proposal_json(advice, &r->smallest, error) : json_null()) &&
      cli_json_put(root, "more_accumulation", more) && cli_json_put(root, "trials", json_integer(r->trials));
  for (size_t i = 0; done && i < c->unused.count; i++) {
    const plan_dpipe_key *key = &c->unused.items[i];
    json_t *o = json_object();
    done = json_array_append_new(unused, o) == 0 && cli_json_put(o, "key", json_string(key->name)) &&
           cli_json_put(o, "line", json_integer(key->node->line)) && cli_json_put(o, "known", json_boolean(key->known));
  }
  for (int i = 0; done && i < r->note_count; i++) done = json_array_append_new(notes, json_string(r->notes[i])) == 0;
  for (int i = 0; done && i < r->row_count; i++) done = json_array_append_new(rows, row_json(advice, &r->rows[i])) == 0;
  done = done && add_more(advice, more);
  dp_status status = DP_OK;
  if (done)
    status = cli_json_print(root, error);
  else
    status = error->status != DP_OK ? error->status : dp_fail_memory(error);
  json_decref(root);
  return status;
}
