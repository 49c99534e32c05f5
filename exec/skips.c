/* Compressed skips of a pipeline between its workers: the fit, and what measuring needs. */
#include <stdlib.h>
#include <string.h>

#include "exec/lanes.h"

/* NULL: of another process. */
static exec_squeeze *end_of(const exec_pipeline *p, int worker, int skip) {
  return exec_pipeline_has(p, worker) ? &p->workers[worker].squeezes[skip] : NULL;
}

int exec_pipeline_skips(const exec_pipeline *p) { return p->work.program->compressor_count; }

exec_skip exec_pipeline_skip(const exec_pipeline *p, int skip, int replica) {
  const plan_program *program = p->work.program;
  const plan_compressor *c = &program->compressors[skip];
  const plan_message *message = &program->messages[c->message + (uint32_t)replica * plan_message_count(program)];
  exec_skip ends = {.compressor = c, .worker = {(int)message->from_worker, (int)message->to_worker}};
  for (int e = 0; e < 2; e++) {
    const exec_squeeze *squeeze = end_of(p, ends.worker[e], skip);
    ends.offset[e] = squeeze ? p->workers[ends.worker[e]].parameters.extra_offset[squeeze->extra] : -1;
  }
  return ends;
}

/* Matrices from a worker to another; either pointer is looked at where its worker is here. */
static dp_status hand(exec_pipeline *p, int skip, int from, const float *source, int to, float *target,
                      dp_error *error) {
  const size_t bytes = (size_t)p->work.program->compressors[skip].parameters * sizeof(float);
  exec_transport *t = p->work.options.transport;
  const bool has = exec_pipeline_has(p, from), wants = exec_pipeline_has(p, to);
  if (has && wants && source != target) memcpy(target, source, bytes);
  if (has && !wants) return t->send(t, exec_process_of(p, to), EXEC_TAG_SKIPS, source, bytes, NULL, error);
  if (!has && wants) return t->receive(t, exec_process_of(p, from), EXEC_TAG_SKIPS, target, bytes, NULL, error);
  return DP_OK;
}

static float *matrices(const exec_pipeline *p, const exec_skip *ends, int end) {
  return ends->offset[end] < 0 ? NULL : p->workers[ends->worker[end]].parameters.values + ends->offset[end];
}

dp_status exec_skips_show_ups(exec_pipeline *p, dp_error *error) {
  for (int s = 0; s < p->work.program->compressor_count; s++) {
    const exec_skip ends = exec_pipeline_skip(p, s, 0);
    const exec_squeeze *down = end_of(p, ends.worker[0], s);
    DP_TRY(hand(p, s, ends.worker[1], matrices(p, &ends, 1), ends.worker[0], down ? down->up : NULL, error));
  }
  return DP_OK;
}

dp_status exec_skips_psnr(exec_pipeline *p, double *psnr, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  for (int s = 0; s < p->work.program->compressor_count; s++) {
    const int worker = exec_pipeline_skip(p, s, 0).worker[0], owner = exec_process_of(p, worker);
    const exec_squeeze *down = end_of(p, worker, s);
    if (down) psnr[s] = down->psnr;
    if (owner != 0 && t->process == owner)
      DP_TRY(t->send(t, 0, EXEC_TAG_SKIPS, &psnr[s], sizeof *psnr, NULL, error));
    else if (owner != 0 && t->process == 0)
      DP_TRY(t->receive(t, owner, EXEC_TAG_SKIPS, &psnr[s], sizeof *psnr, NULL, error));
  }
  return exec_broadcast(t, psnr, (size_t)p->work.program->compressor_count * sizeof *psnr, error);
}

/* ---- the fit ---- */

static dp_status make_moments(exec_pipeline *p, dp_arena *arena, dp_error *error) {
  for (int w = p->first_worker; w < p->end_worker; w++)
    for (int i = 0; i < p->work.program->compressor_count; i++) {
      exec_squeeze *squeeze = &p->workers[w].squeezes[i];
      const plan_compressor *c = &p->work.program->compressors[i];
      for (int d = 0; d < 3 && squeeze->here && squeeze->down; d++) {
        squeeze->moments[d] = DP_ARENA_NEW(arena, double, (size_t)(c->dims[d] * c->dims[d]));
        if (!squeeze->moments[d]) return dp_fail_memory(error);
      }
    }
  return DP_OK;
}

/* Both ends by the worker of replica 0 that packs; then to all ends of all replicas. */
static dp_status fit(exec_pipeline *p, int skip, dp_error *error) {
  const plan_compressor *c = &p->work.program->compressors[skip];
  const exec_skip first = exec_pipeline_skip(p, skip, 0);
  const exec_squeeze *squeeze = end_of(p, first.worker[0], skip);
  float *up = squeeze ? squeeze->up : NULL, *down = matrices(p, &first, 0);
  if (squeeze) DP_TRY(exec_compress_fit(c, squeeze->moments, down, up, error));
  for (int r = 0; r < p->work.plan->replicas; r++) {
    const exec_skip ends = exec_pipeline_skip(p, skip, r);
    for (int e = 0; e < 2; e++)
      DP_TRY(hand(p, skip, first.worker[0], e == 0 ? down : up, ends.worker[e], matrices(p, &ends, e), error));
  }
  return DP_OK;
}

dp_status exec_pipeline_fit_skips(exec_pipeline *p, dp_error *error) {
  const exec_step step = {.evaluate = true};
  dp_arena scratch = {0};
  if (p->work.program->compressor_count == 0) return DP_OK;
  dp_status status = make_moments(p, &scratch, error);
  p->work.fitting = true;
  if (status == DP_OK) status = exec_pipeline_step(p, &step, NULL, NULL, error);
  p->work.fitting = false;
  for (int s = 0; status == DP_OK && s < p->work.program->compressor_count; s++) status = fit(p, s, error);
  for (int w = p->first_worker; w < p->end_worker; w++)
    for (int i = 0; i < p->work.program->compressor_count; i++)
      memset(p->workers[w].squeezes[i].moments, 0, sizeof p->workers[w].squeezes[i].moments);
  dp_arena_free(&scratch);
  return status;
}
