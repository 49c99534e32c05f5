/* diffpipe data check: whether a model can be trained on a data set, as far as its cache goes. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/schema.h"
#include "cli/command.h"
#include "cli/data.h"
#include "cli/json.h"

enum { SLOT_FOR, SLOT_TRUST, SLOT_JSON };

static const cli_option options[] = {
    {.name = "for", .type = CLI_STRING, .argument = "SCENARIO", .help = "of the training (needed)", .slot = SLOT_FOR},
    {.name = "trust-cache",
     .type = CLI_FLAG,
     .help = "let a cache pass that was made of other samples or in another way",
     .slot = SLOT_TRUST},
    {.name = "json", .type = CLI_FLAG, .help = "print JSON", .slot = SLOT_JSON},
};

/* Reads every batch of an epoch: what cannot be read, or is not finite, is an error. */
static dp_status read_all(exec_dataset *set, dp_error *error) {
  const int64_t batches = exec_dataset_batches_per_epoch(set);
  dp_progress progress;
  dp_status status = DP_OK;
  dp_progress_begin(&progress, "check", (uint64_t)batches);
  for (int64_t step = 0; step < batches && status == DP_OK; step++) {
    const exec_batch *batch = NULL;
    status = exec_dataset_batch(set, step, &batch, error);
    dp_progress_update(&progress, (uint64_t)step + 1, NULL);
  }
  dp_progress_end(&progress);
  return status;
}

static dp_status print_json(const cli_data_model *model, const exec_dataset *set, dp_error *error) {
  const exec_fingerprint *f = exec_dataset_fingerprint(set);
  json_t *buckets = json_array();
  bool done = buckets != NULL;
  for (size_t b = 0; b < model->bucket_count; b++)
    done = json_array_append_new(buckets, json_pack("{sI sI sI}", "height", (json_int_t)model->buckets[b][0], "width",
                                                    (json_int_t)model->buckets[b][1], "samples",
                                                    (json_int_t)exec_dataset_bucket_count_of(set, (int)b))) == 0 &&
           done;
  json_t *root = json_pack("{sI sI sI ss ss ss ss sf sf so}", "samples", (json_int_t)exec_dataset_count(set),
                           "global_batch", (json_int_t)model->global_batch, "batches_per_epoch",
                           (json_int_t)exec_dataset_batches_per_epoch(set), "identity", exec_dataset_identity(set),
                           "model", f->model, "encoder", f->encoder, "text_encoder", f->text_encoder, "scaling_factor",
                           f->scaling_factor, "shift_factor", f->shift_factor, "buckets", buckets);
  const dp_status status = done && root ? cli_json_print(root, error) : dp_fail_memory(error);
  json_decref(root);
  return status;
}

static void print_text(const cli_data_model *model, const exec_dataset *set) {
  const exec_fingerprint *f = exec_dataset_fingerprint(set);
  printf("%" PRId64 " samples, %" PRId64 " batches of %" PRId64 " an epoch; encoder %s", exec_dataset_count(set),
         exec_dataset_batches_per_epoch(set), model->global_batch, f->encoder[0] ? f->encoder : "unknown");
  if (model->sizes.text_tokens) printf(", text encoder %s", f->text_encoder[0] ? f->text_encoder : "unknown");
  printf("\n");
  for (size_t b = 0; b < model->bucket_count; b++)
    printf("  %5" PRId64 " × %-5" PRId64 " %7" PRId64 " samples\n", model->buckets[b][0], model->buckets[b][1],
           exec_dataset_bucket_count_of(set, (int)b));
}

static dp_status check(const cli_values *values, dp_arena *arena, dp_error *error) {
  cli_data_model m;
  exec_dataset *set = NULL;
  DP_TRY(cli_data_model_read(values->slots[SLOT_FOR].string, arena, &m, error));
  const exec_dataset_options how = {.path = values->arguments[0],
                                    .buckets = (const int64_t(*)[2])m.buckets,
                                    .bucket_count = m.bucket_count,
                                    .latent_channels = m.sizes.channels,
                                    .text_tokens = m.sizes.text_tokens,
                                    .text_channels = m.sizes.text_channels,
                                    .pooled_channels = m.sizes.pooled_channels,
                                    .wanted = {.model = m.class_name},
                                    .global_batch = m.global_batch,
                                    .seed = m.seed,
                                    .shuffle = m.shuffle,
                                    .trust_cache = m.trust_cache || values->slots[SLOT_TRUST].given,
                                    .prefetch = true};
  DP_TRY(exec_dataset_open(&how, &set, error));
  dp_status status = read_all(set, error);
  if (status == DP_OK && values->slots[SLOT_JSON].given)
    status = print_json(&m, set, error);
  else if (status == DP_OK)
    print_text(&m, set);
  exec_dataset_free(set);
  return status;
}

static dp_status run(const cli_values *values, dp_error *error) {
  dp_arena arena = {0};
  if (!values->slots[SLOT_FOR].given)
    return dp_fail(error, DP_BAD_INPUT, "data check: --for is missing, needed: --for SCENARIO, of the training");
  const dp_status status = check(values, &arena, error);
  dp_arena_free(&arena);
  return status;
}

const cli_command cli_data_check = {
    .name = "data check",
    .arguments = "DIR",
    .takes = "one, the folder of the data set",
    .summary = "Say whether a model can be trained on a data set: hold its cache to a scenario.",
    .help =
        "Opens the cache as a training does, and reads every sample once: a cache that is stale, foreign or\n"
        "damaged is told in one line.",
    .options = options,
    .option_count = (int)DP_COUNT_OF(options),
    .run = run,
};
