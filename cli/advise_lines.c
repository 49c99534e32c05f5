/* The difference between a diffusion-pipe configuration and a proposal, line by line. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "cli/advise.h"

typedef struct writer {
  const cli_advice *advice;
  cli_advise_lines *out;
  char *text; /* of the file; NULL: not to be had */
  bool failed;
} writer;

static void add(writer *w, char op, int line, const char *table, sim_advise_group group, const char *text) {
  const char *kept = dp_arena_strdup(&w->out->arena, text);
  if (!kept || w->out->count == CLI_ADVISE_MAX_LINES) {
    w->failed = true;
    return;
  }
  w->out->items[w->out->count++] = (cli_advise_line){op, line, kept, table, group};
}

static const char *line_at(const writer *w, int line) {
  const char *at = w->text;
  for (int l = 1; at && l < line; l++) {
    at = strchr(at, '\n');
    if (at) at++;
  }
  return at;
}

/* The lines on which a key's value stands: to where its brackets close. */
/* Returns the last of them; 0: it was given with --set. */
static int remove_node(writer *w, const dp_node *node, const char *table, sim_advise_group group) {
  if (node->line == 0) {
    add(w, '-', 0, table, group, node->file);
    return 0;
  }
  int depth = 0;
  const char *at = line_at(w, node->line);
  for (int line = node->line; at && *at; line++) {
    const size_t length = strcspn(at, "\r\n");
    char *copy = dp_arena_printf(&w->out->arena, "%.*s", (int)length, at);
    if (!copy) {
      w->failed = true;
      return 0;
    }
    add(w, '-', line, table, group, copy);
    for (size_t i = 0; i < length && at[i] != '#'; i++) depth += (at[i] == '[') - (at[i] == ']');
    if (depth <= 0) return line;
    at += length;
    at += at[0] == '\r';
    at += at[0] == '\n';
  }
  return node->line;
}

/* key = value in place of what the file says, or as a new line; value NULL: the key goes. */
static void set(writer *w, const char *table, const char *key, sim_advise_group group, const char *value) {
  const dp_node *root = w->advice->config->document.root, *in = table ? dp_node_get(root, table) : root;
  const dp_node *node = dp_node_get(in, key);
  /* a new key of the partition goes below the other one */
  const dp_node *beside = !node && strcmp(key, "partition_split") == 0 ? dp_node_get(root, "partition_method") : NULL;
  const int line = node ? remove_node(w, node, table, group) : beside ? beside->line : 0;
  if (!value) return;
  dp_str text = {0};
  dp_str_addf(&text, "%s = %s", key, value);
  add(w, '+', line, table, group, dp_str_text(&text));
  w->failed = w->failed || text.failed;
  dp_str_free(&text);
}

static void set_integer(writer *w, const char *key, sim_advise_group group, int64_t value) {
  char text[32];
  (void)snprintf(text, sizeof text, "%lld", (long long)value);
  set(w, NULL, key, group, text);
}

const char *cli_advise_split_text(const sim_advise_setting *setting, char *out, size_t room) {
  size_t used = 0;
  for (int s = 0; s + 1 < setting->stages && used < room; s++) {
    const int n = snprintf(out + used, room - used, "%s%lld", s ? ", " : "[", (long long)setting->split[s]);
    used += n > 0 ? (size_t)n : 0;
  }
  if (used < room) (void)snprintf(out + used, room - used, "%s", setting->stages > 1 ? "]" : "[]");
  return out;
}

static void set_partition(writer *w, const sim_advise_setting *now, const sim_advise_setting *s) {
  const plan_dpipe *c = w->advice->config;
  /* cuts of a manual split that is not there any more belong to the change of stages */
  const sim_advise_group group =
      s->partition == PLAN_DPIPE_MANUAL || s->stages == now->stages ? SIM_ADVISE_SPLIT : SIM_ADVISE_STAGES;
  char quoted[32];
  (void)snprintf(quoted, sizeof quoted, "'%s'", plan_dpipe_partition_names[s->partition]);
  if (s->partition != c->partition) set(w, NULL, "partition_method", group, quoted);
  if (s->partition == PLAN_DPIPE_MANUAL) {
    const size_t room = 24 * (size_t)s->stages + 8;
    char *text = malloc(room);
    if (text)
      set(w, NULL, "partition_split", group, cli_advise_split_text(s, text, room));
    else
      w->failed = true;
    free(text);
  } else if (c->partition == PLAN_DPIPE_MANUAL) {
    set(w, NULL, "partition_split", group, NULL);
  }
}

/* "[[512, 4], [1024, 1]]" */
static void set_list(writer *w, const sim_advise_setting *s) {
  const plan_dpipe *c = w->advice->config;
  dp_str text = {0};
  for (size_t i = 0; i < c->batches.count; i++)
    dp_str_addf(&text, "%s[%.9g, %lld]", i ? ", " : "[", c->batches.items[i].size,
                (long long)cli_advise_listed(&c->batches.items[i], s));
  dp_str_add(&text, "]");
  w->failed = w->failed || text.failed;
  set(w, NULL, c->batch_key, SIM_ADVISE_BATCH, dp_str_text(&text));
  dp_str_free(&text);
}

int64_t cli_advise_listed(const plan_dpipe_batch *batch, const sim_advise_setting *s) {
  return s->list_shift < 0 ? batch->batch >> -s->list_shift : batch->batch << s->list_shift;
}

static bool same_cuts(const sim_advise_setting *a, const sim_advise_setting *b) {
  return a->stages == b->stages && a->partition == b->partition &&
         (a->stages == 1 || memcmp(a->split, b->split, (size_t)(a->stages - 1) * sizeof *a->split) == 0);
}

static void write_lines(writer *w, const sim_advise_setting *now, const sim_advise_setting *s) {
  const plan_dpipe *c = w->advice->config;
  const bool stages = now->stages != s->stages,
             batch = now->micro_batch != s->micro_batch || now->list_shift != s->list_shift;
  if (stages) set_integer(w, "pipeline_stages", SIM_ADVISE_STAGES, s->stages);
  if (batch && s->micro_batch) set_integer(w, c->batch_key, SIM_ADVISE_BATCH, s->micro_batch);
  if (batch && !s->micro_batch) set_list(w, s);
  if (now->accumulation != s->accumulation)
    set_integer(w, "gradient_accumulation_steps",
                stages  ? SIM_ADVISE_STAGES
                : batch ? SIM_ADVISE_BATCH
                        : SIM_ADVISE_SMALLER,
                s->accumulation);
  if (now->checkpointing != s->checkpointing)
    set(w, NULL, "activation_checkpointing", SIM_ADVISE_CHECKPOINT, plan_dpipe_checkpointing_names[s->checkpointing]);
  if (!same_cuts(now, s)) set_partition(w, now, s);
  if (now->blocks_to_swap != s->blocks_to_swap) set_integer(w, "blocks_to_swap", SIM_ADVISE_SWAP, s->blocks_to_swap);
  if (now->fp8 != s->fp8) set(w, "model", "transformer_dtype", SIM_ADVISE_FP8, "'float8'");
  if (now->optimizer != s->optimizer) set(w, "optimizer", "type", SIM_ADVISE_OPTIMIZER, "'AdamW8bitKahan'");
}

static void sort(cli_advise_lines *lines) { /* stable: by line, new ones last */
  for (int i = 1; i < lines->count; i++)
    for (int j = i; j > 0; j--) {
      const int a = lines->items[j - 1].line, b = lines->items[j].line;
      if (b == 0 || (a != 0 && a <= b)) break;
      const cli_advise_line swap = lines->items[j];
      lines->items[j] = lines->items[j - 1];
      lines->items[j - 1] = swap;
    }
}

dp_status cli_advise_lines_of(const cli_advice *advice, const sim_advise_proposal *proposal, cli_advise_lines *lines,
                              dp_error *error) {
  size_t length;
  memset(lines, 0, sizeof *lines);
  writer w = {.advice = advice, .out = lines};
  DP_TRY(dp_file_read(advice->path, (size_t)64 << 20, &w.text, &length, error));
  write_lines(&w, &advice->result->now, &proposal->setting);
  free(w.text);
  sort(lines);
  if (!w.failed) return DP_OK;
  cli_advise_lines_free(lines);
  return dp_fail_memory(error);
}

void cli_advise_lines_free(cli_advise_lines *lines) { dp_arena_free(&lines->arena); }

const char *cli_advise_group_name(const cli_advice *advice, sim_advise_group group) {
  return group == SIM_ADVISE_BATCH ? advice->config->batch_key : sim_advise_group_names[group];
}
