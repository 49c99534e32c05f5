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

/* Matrices on the host from a worker to another; either pointer is looked at where its worker is here. */
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

/* What kernels read, not the masters that it is rounded from. */
static dp_status read_up(exec_pipeline *p, const exec_skip *ends, exec_squeeze *up, dp_error *error) {
  exec_worker *w = &p->workers[ends->worker[1]];
  const exec_parameters *of = &w->parameters;
  return p->work.kind->read(w, of->value_dtype, ends->compressor->parameters,
                            (const char *)of->values + ends->offset[1] * graph_dtype_bytes(of->value_dtype), up->up,
                            error);
}

dp_status exec_skips_show_ups(exec_pipeline *p, dp_error *error) {
  for (int s = 0; s < p->work.program->compressor_count; s++) {
    const exec_skip ends = exec_pipeline_skip(p, s, 0);
    exec_squeeze *down = end_of(p, ends.worker[0], s), *up = end_of(p, ends.worker[1], s);
    if (up) DP_TRY(read_up(p, &ends, up, error));
    DP_TRY(hand(p, s, ends.worker[1], up ? up->up : NULL, ends.worker[0], down ? down->up : NULL, error));
    if (down && down->shown != down->up)
      DP_TRY(p->work.kind->write(&p->workers[ends.worker[0]], p->work.graph->precision, ends.compressor->parameters,
                                 down->up, down->shown, error));
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

static dp_status make_moments(const plan_compressor *c, exec_squeeze *down, dp_arena *arena, dp_error *error) {
  const size_t longest = (size_t)exec_compress_longest(c);
  down->product = DP_ARENA_NEW(arena, float, longest *longest);
  if (!down->product) return dp_fail_memory(error);
  for (int d = 0; d < 3; d++) {
    down->moments[d] = DP_ARENA_NEW(arena, double, (size_t)(c->dims[d] * c->dims[d]));
    if (!down->moments[d]) return dp_fail_memory(error);
  }
  return DP_OK;
}

/* From the worker of replica 0 that packs to the same end of all replicas. */
static dp_status spread(exec_pipeline *p, int skip, int end, float *matrices, dp_error *error) {
  const int source = exec_pipeline_skip(p, skip, 0).worker[0];
  for (int r = 0; r < p->work.plan->replicas; r++) {
    const exec_skip ends = exec_pipeline_skip(p, skip, r);
    DP_TRY(hand(p, skip, source, matrices, ends.worker[end], matrices, error));
    if (ends.offset[end] >= 0)
      DP_TRY(exec_pipeline_write(p, ends.worker[end], EXEC_VALUES, ends.offset[end], ends.compressor->parameters,
                                 matrices, error));
  }
  return DP_OK;
}

static dp_status fit(exec_pipeline *p, int skip, dp_arena *arena, dp_error *error) {
  const plan_compressor *c = &p->work.program->compressors[skip];
  const exec_squeeze *squeeze = end_of(p, exec_pipeline_skip(p, skip, 0).worker[0], skip);
  float *matrices = DP_ARENA_NEW(arena, float, 2 * (size_t)c->parameters); /* down, up */
  if (!matrices) return dp_fail_memory(error);
  if (squeeze) DP_TRY(exec_compress_fit(c, squeeze->moments, matrices, matrices + c->parameters, error));
  for (int e = 0; e < 2; e++) DP_TRY(spread(p, skip, e, matrices + e * c->parameters, error));
  return DP_OK;
}

dp_status exec_pipeline_fit_skips(exec_pipeline *p, dp_error *error) {
  const exec_step step = {.evaluate = true};
  const plan_program *program = p->work.program;
  dp_arena scratch = {0};
  dp_status status = DP_OK;
  if (program->compressor_count == 0) return DP_OK;
  for (int s = 0; status == DP_OK && s < program->compressor_count; s++) {
    exec_squeeze *down = end_of(p, exec_pipeline_skip(p, s, 0).worker[0], s);
    if (down) status = make_moments(&program->compressors[s], down, &scratch, error);
  }
  p->work.fitting = true;
  if (status == DP_OK) status = exec_pipeline_step(p, &step, NULL, NULL, error);
  p->work.fitting = false;
  for (int s = 0; status == DP_OK && s < program->compressor_count; s++) status = fit(p, s, &scratch, error);
  for (int s = 0; s < program->compressor_count; s++) {
    exec_squeeze *down = end_of(p, exec_pipeline_skip(p, s, 0).worker[0], s);
    if (!down) continue;
    memset(down->moments, 0, sizeof down->moments);
    down->product = NULL;
  }
  dp_arena_free(&scratch);
  return status;
}
