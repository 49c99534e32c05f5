/* A worker's ends of compressed skips: where they are, and what they do in a step. */
#include <stdlib.h>

#include "exec/worker.h"

int64_t exec_wire_values(const exec_work *work, const plan_message *message, int k) {
  const int at = message->first_tensor + k, compressor = plan_compressor_at(work->program, at);
  return compressor >= 0 ? exec_compress_kept(&work->program->compressors[compressor])
                         : graph_tensor_elements(&work->graph->tensors.items[work->program->message_tensors[at]]);
}

exec_squeeze *exec_worker_squeeze(const exec_work *work, const exec_worker *w, const plan_message *message, int k) {
  const int compressor = plan_compressor_at(work->program, message->first_tensor + k);
  return compressor >= 0 && w->squeezes[compressor].here ? &w->squeezes[compressor] : NULL;
}

static const plan_compressor *compressor_of(const exec_work *work, const exec_worker *w, const exec_squeeze *squeeze) {
  return &work->program->compressors[squeeze - w->squeezes];
}

static int64_t values_of(const exec_work *work, const plan_compressor *c) {
  return graph_tensor_elements(&work->graph->tensors.items[c->tensor]);
}

/* The end with its own matrices. */
static exec_projector projector_of(const exec_work *work, const exec_worker *w, const exec_squeeze *squeeze) {
  const exec_parameters *p = &w->parameters;
  const int64_t offset = p->extra_offset[squeeze->extra];
  exec_projector made = {.compressor = compressor_of(work, w, squeeze), .math = work->kind->math, .kern = w->context};
  exec_compress_matrices(made.compressor, p->value_dtype,
                         (char *)p->values + offset * graph_dtype_bytes(p->value_dtype), made.matrices);
  if (made.compressor->trained)
    exec_compress_matrices(made.compressor, p->gradient_dtype,
                           (char *)p->gradients + offset * graph_dtype_bytes(p->gradient_dtype), made.gradients);
  return made;
}

/* ---- making them ---- */

dp_status exec_worker_list_squeezes(const exec_work *work, exec_worker *w, dp_arena *arena, exec_extra **extras,
                                    int *extra_count, dp_error *error) {
  const int count = work->program->compressor_count;
  w->squeezes = DP_ARENA_NEW(arena, exec_squeeze, (size_t)count + 1);
  *extras = DP_ARENA_NEW(arena, exec_extra, (size_t)count + 1);
  if (!w->squeezes || !*extras) return dp_fail_memory(error);
  for (int i = 0; i < count; i++) {
    const plan_compressor *c = &work->program->compressors[i];
    const bool down = w->here[c->down_unit];
    if (!down && !w->here[c->up_unit]) continue;
    w->squeezes[i] = (exec_squeeze){.here = true, .down = down, .extra = *extra_count};
    (*extras)[(*extra_count)++] = (exec_extra){down ? c->down_unit : c->up_unit, c->parameters, c->trained};
  }
  return DP_OK;
}

static dp_status make_squeeze(const exec_work *work, const exec_worker *w, exec_squeeze *squeeze, dp_arena *arena,
                              dp_error *error) {
  const plan_compressor *c = compressor_of(work, w, squeeze);
  const size_t microbatches = (size_t)work->plan->microbatches;
  void ***const lists[] = {&squeeze->whole, &squeeze->packed, &squeeze->gradients, &squeeze->whole_gradients};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    *lists[i] = DP_ARENA_NEW(arena, void *, microbatches);
    if (!*lists[i]) return dp_fail_memory(error);
  }
  for (size_t m = 0; m < microbatches; m++)
    DP_TRY(exec_layout_squeeze(&w->layout, c, squeeze->down, (int)m, &squeeze->whole[m], &squeeze->packed[m],
                               &squeeze->whole_gradients[m], &squeeze->gradients[m], error));
  squeeze->up = DP_ARENA_NEW(arena, float, (size_t)c->parameters);
  return squeeze->up ? DP_OK : dp_fail_memory(error);
}

dp_status exec_worker_make_squeezes(const exec_work *work, exec_worker *w, dp_arena *arena, dp_error *error) {
  const graph_dtype dtype = work->graph->precision;
  const size_t shown = exec_compress_shown_bytes(work->program, dtype, plan_worker_rank(work->plan, w->index));
  char *next = NULL;
  if (work->kind->fetch) { /* else the workspace has no room for them */
    const size_t before = w->layout.workspace_bytes - shown;
    next = (char *)w->layout.workspace + (before + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
  }
  for (int i = 0; i < work->program->compressor_count; i++) {
    exec_squeeze *squeeze = &w->squeezes[i];
    if (!squeeze->here) continue;
    DP_TRY(make_squeeze(work, w, squeeze, arena, error));
    squeeze->shown = squeeze->up;
    if (!work->kind->fetch || !squeeze->down) continue;
    squeeze->shown = next;
    next += exec_compress_shown_each(&work->program->compressors[i], dtype);
  }
  return DP_OK;
}

void exec_worker_meet_squeezes(const exec_work *work, exec_worker *w) {
  for (int i = 0; i < work->program->compressor_count; i++) {
    const exec_squeeze *squeeze = &w->squeezes[i];
    if (!squeeze->here) continue;
    const exec_projector end = projector_of(work, w, squeeze);
    if (squeeze->down) {
      exec_compress_pack(&end, squeeze->whole[0], squeeze->packed[0]);
      if (!end.compressor->trained) continue;
      for (int added = 0; added < 2; added++)
        exec_compress_pack_backward(&end, squeeze->whole[0], squeeze->packed[0], squeeze->whole[0], added == 1);
    } else {
      exec_compress_restore(&end, squeeze->packed[0], squeeze->whole[0]);
      if (end.compressor->trained)
        exec_compress_restore_backward(&end, squeeze->packed[0], squeeze->whole_gradients[0], squeeze->gradients[0]);
    }
  }
}

/* ---- in a step ---- */

void exec_worker_begin_skips(const exec_work *work, exec_worker *w) {
  const exec_parameters *p = &w->parameters;
  const int64_t each = graph_dtype_bytes(p->gradient_dtype);
  for (int i = 0; i < work->program->compressor_count; i++)
    if (w->squeezes[i].here && work->program->compressors[i].trained)
      work->kind->zero(w, work->program->compressors[i].parameters * each,
                       (char *)p->gradients + p->extra_offset[w->squeezes[i].extra] * each);
}

void exec_worker_restore_skips(const exec_work *work, exec_worker *w, int chunk, int microbatch) {
  for (int i = 0; i < work->program->compressor_count; i++) {
    const exec_squeeze *squeeze = &w->squeezes[i];
    const plan_compressor *c = &work->program->compressors[i];
    if (!squeeze->here || squeeze->down || work->program->messages[c->message].to_chunk != chunk) continue;
    const exec_projector end = projector_of(work, w, squeeze);
    exec_compress_restore(&end, squeeze->packed[microbatch], squeeze->whole[microbatch]);
  }
}

/* On the host: what the fit needs of a tensor, or what comes of it through the other end. */
static void look_into(const exec_work *work, exec_worker *w, exec_squeeze *squeeze, void *scratch, int microbatch) {
  exec_projector other = projector_of(work, w, squeeze);
  const plan_compressor *c = other.compressor;
  const int64_t n = values_of(work, c);
  const float *seen[2] = {squeeze->whole[microbatch], scratch};
  float *copies[2] = {NULL, NULL};
  if (!work->fitting) {
    exec_compress_matrices(c, w->parameters.value_dtype, squeeze->shown, other.matrices);
    exec_compress_restore(&other, squeeze->packed[microbatch], scratch);
  }
  for (int i = 0; i < (work->fitting ? 1 : 2) && work->kind->fetch; i++)
    seen[i] = copies[i] = work->kind->fetch(w, n, seen[i]);
  if (work->fitting && seen[0])
    exec_compress_gather(w->kern, c, seen[0], squeeze->moments, squeeze->product);
  else if (seen[0] && seen[1])
    squeeze->psnr = exec_compress_psnr(n, seen[0], seen[1]);
  for (int i = 0; i < 2; i++) free(copies[i]);
}

void exec_worker_pack_skips(const exec_work *work, exec_worker *w, void *scratch, int chunk, int microbatch) {
  const bool measured = work->step->measure_skips && plan_worker_replica(work->plan, w->index) == 0 &&
                        microbatch == work->plan->microbatches - 1;
  for (int i = 0; i < work->program->compressor_count; i++) {
    exec_squeeze *squeeze = &w->squeezes[i];
    const plan_compressor *c = &work->program->compressors[i];
    if (!squeeze->here || !squeeze->down || work->program->messages[c->message].from_chunk != chunk) continue;
    const exec_projector end = projector_of(work, w, squeeze);
    exec_compress_pack(&end, squeeze->whole[microbatch], squeeze->packed[microbatch]);
    if (work->fitting ? squeeze->moments[0] != NULL : measured) look_into(work, w, squeeze, scratch, microbatch);
  }
}

void exec_worker_pack_backward(const exec_work *work, exec_worker *w, const exec_squeeze *squeeze, uint32_t microbatch,
                               const void *from, void *to, bool accumulate) {
  const exec_projector end = projector_of(work, w, squeeze);
  exec_compress_pack_backward(&end, squeeze->whole[microbatch], from, to, accumulate);
}

void exec_worker_restore_skips_backward(const exec_work *work, exec_worker *w, const plan_work *what,
                                        uint32_t microbatch) {
  const uint8_t *begun = exec_layout_begun(&w->layout, microbatch);
  for (int i = 0; i < work->program->compressor_count; i++) {
    const exec_squeeze *squeeze = &w->squeezes[i];
    const plan_compressor *c = &work->program->compressors[i];
    if (!squeeze->here || squeeze->down || !c->trained || c->up_unit < (int)what->first_unit ||
        c->up_unit >= (int)(what->first_unit + what->unit_count))
      continue;
    const exec_projector end = projector_of(work, w, squeeze);
    void *gradient = squeeze->whole_gradients[microbatch];
    if (!begun[c->tensor]) work->kind->zero(w, work->graph->tensors.items[c->tensor].bytes, gradient);
    exec_compress_restore_backward(&end, squeeze->packed[microbatch], gradient, squeeze->gradients[microbatch]);
  }
}
