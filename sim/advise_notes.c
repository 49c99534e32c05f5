/* What the reader of an advice must know about its figures. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/adviser.h"

enum { MAX_NOTES = 16 };

typedef struct notes {
  sim_adviser *a;
  const char **items;
  int count;
  bool failed;
} notes;

static void note(notes *n, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(notes *n, const char *format, ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const char *kept = dp_arena_strdup(&n->a->out->arena, text);
  if (!kept || n->count == MAX_NOTES)
    n->failed = true;
  else
    n->items[n->count++] = kept;
}

static void note_model(notes *n) {
  const plan_dpipe *c = n->a->config;
  if (c->family == PLAN_DPIPE_SDXL) {
    note(n,
         "the text encoders are trained too: their memory is counted on the first stage (an estimate), their time is "
         "not");
    for (size_t i = 0; i < c->buckets.count; i++)
      if (c->buckets.items[i].width % 32 || c->buckets.items[i].height % 32) {
        note(n, "sizes that are no multiple of 32 are predicted as the next one that is");
        break;
      }
  }
  if (c->family == PLAN_DPIPE_SD3 && !c->lora)
    note(n, "diffusion-pipe cannot save a fully fine-tuned sd3; it needs an [adapter]");
  const dp_node *sizes = c->buckets.items[0].node;
  if (sizes->kind == DP_NODE_ARRAY && sizes->count > 3 && strcmp(sizes->key, "resolutions") == 0)
    note(n, "with more than three resolutions diffusion-pipe stops, unless it is told --i_know_what_i_am_doing");
  if (c->compile) note(n, "compile = true: predicted as without, which is slower");
  if (c->video_buckets)
    note(n, "sizes of more than one frame are left out: %s takes pictures", plan_dpipe_family_names[c->family]);
  if (!c->optimizer_known)
    note(n, "the optimizer \"%.60s\" is not known: taken as adamw, %s", c->optimizer_name, c->optimizer->what);
}

/* Of a setting that is there or proposed. */
static void note_setting(notes *n, const sim_advise_setting *s) {
  if (s->fp8)
    note(n,
         "float8: the blocks' matrices at one byte a value (an estimate); making them wide again takes no time here");
  if (s->checkpointing == PLAN_DPIPE_UNSLOTH)
    note(
        n,
        "'unsloth': kept inputs of 5e6 elements and more are off the card (an estimate); the copies go beside compute, "
        "at the PCIe link's pace");
  if (s->blocks_to_swap)
    note(n,
         "blocks_to_swap: their weights are off the card (an estimate); the copies go beside compute, at the PCIe "
         "link's pace, and are assumed to hide as far as that allows");
}

dp_status sim_adviser_note(sim_adviser *a) {
  sim_advise_result *out = a->out;
  notes n = {a, SIM_ADVISER_NEW(a, const char *, MAX_NOTES), 0, false};
  if (!n.items) return dp_fail_memory(a->error);
  note_model(&n);
  const sim_advise_setting *a_setting = &out->fastest.setting, *b = &out->smallest.setting;
  sim_advise_setting any = out->now;
  if (out->any_fits) {
    any.fp8 = any.fp8 || a_setting->fp8 || b->fp8;
    if (a_setting->checkpointing == PLAN_DPIPE_UNSLOTH || b->checkpointing == PLAN_DPIPE_UNSLOTH)
      any.checkpointing = PLAN_DPIPE_UNSLOTH;
    if (a_setting->blocks_to_swap || b->blocks_to_swap) any.blocks_to_swap = 1;
  }
  note_setting(&n, &any);
  if (a->config->gradient_release)
    note(&n, "gradient_release: gradients take no memory here; diffusion-pipe then steps after every micro batch");
  out->notes = n.items;
  out->note_count = n.count;
  return n.failed ? dp_fail_memory(a->error) : DP_OK;
}
