/* A pipeline's steps: each is played, and its results and times are brought together from all processes. */
#include "exec/pipeline.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "exec/align.h"
#include "exec/lanes.h"

/* ---- what came of a step ---- */

/* Bytes of every worker of every process, in the order of the workers: on all of them. */
static dp_status share(exec_pipeline *p, const void *mine, size_t each, void *all, dp_error *error) {
  exec_transport *t = p->work.options.transport;
  const size_t here = (size_t)(p->end_worker - p->first_worker) * each;
  DP_TRY(exec_gather(t, mine, here, all, error));
  return exec_broadcast(t, all, (size_t)p->work.program->worker_count * each, error);
}

static dp_status share_reports(exec_pipeline *p, dp_error *error) {
  exec_report *mine = p->reports + p->work.program->worker_count;
  for (int w = p->first_worker; w < p->end_worker; w++) {
    const exec_worker *worker = &p->workers[w];
    mine[w - p->first_worker] = (exec_report){worker->loss, worker->square, worker->trouble};
  }
  return share(p, mine, sizeof *p->reports, p->reports, error);
}

/* Of the earliest unit of the model, of the earliest microbatch: what follows from it is no news. NULL: none. */
static const exec_trouble *first_trouble(const exec_pipeline *p) {
  const exec_trouble *first = NULL;
  for (int w = 0; w < p->work.program->worker_count; w++) {
    const exec_trouble *trouble = &p->reports[w].trouble;
    if (trouble->at && (!first || trouble->unit < first->unit ||
                        (trouble->unit == first->unit && trouble->microbatch < first->microbatch)))
      first = trouble;
  }
  return first;
}

static dp_status play(exec_pipeline *p, const exec_step *step, double *began_s, dp_error *error);

/* The step's forward pass once more, on the devices that told only in which chunk something first was not finite; the
 * weights are still the same, and all is drawn again alike. Where nothing is found this time, the chunk is all that is
 * known. */
static dp_status search(exec_pipeline *p, exec_trouble *first, dp_error *error) {
  const exec_step step = p->step, again = {.evaluate = true, .use_means = step.evaluate && step.use_means};
  double began_s;
  p->work.searching = true;
  dp_status status = play(p, &again, &began_s, error);
  p->work.searching = false;
  p->step = step;
  if (status == DP_OK) status = share_reports(p, error);
  const exec_trouble *found = status == DP_OK ? first_trouble(p) : NULL;
  if (found) *first = *found;
  return status;
}

static dp_status tell_trouble(const exec_pipeline *p, const exec_trouble *trouble, dp_error *error) {
  const uint32_t at = (uint32_t)(trouble->at - 1);
  const uint32_t worker = p->work.program->lanes[p->lane_of[at]].worker;
  const graph_unit *units = p->work.graph->units.items;
  const char *first = units[trouble->unit < 0 ? 0 : trouble->unit].name;
  if (trouble->last_unit > trouble->unit)
    return dp_fail(error, DP_RUN_FAILED,
                   "one of the units %s to %s, microbatch %d on worker %u, is the first whose output is not finite",
                   first, units[trouble->last_unit].name, trouble->microbatch, worker);
  return dp_fail(error, DP_RUN_FAILED, "unit %s, microbatch %d on worker %u, is the first whose output is not finite",
                 first, trouble->microbatch, worker);
}

/* Loss and norms. */
static void sum_up(const exec_pipeline *p, exec_step_result *result) {
  const plan_plan *plan = p->work.plan;
  double square = 0;
  result->loss = 0;
  for (int r = 0; result->rank_norms && r < plan->ranks; r++) result->rank_norms[r] = 0;
  for (int w = 0; w < p->work.program->worker_count; w++) {
    result->loss += p->reports[w].loss;
    if (plan_worker_replica(plan, w) != 0) continue;
    square += p->reports[w].square;
    if (result->rank_norms) result->rank_norms[plan_worker_rank(plan, w)] = sqrt(p->reports[w].square);
  }
  result->gradient_norm = sqrt(square);
}

static dp_status tell(exec_pipeline *p, const exec_step_result *result, dp_error *error) {
  const exec_trouble *seen = first_trouble(p);
  exec_trouble first = seen ? *seen : (exec_trouble){0};
  if (first.last_unit > first.unit) DP_TRY(search(p, &first, error));
  if (first.at) return tell_trouble(p, &first, error);
  if (!isfinite(result->loss)) return dp_fail(error, DP_RUN_FAILED, "the loss is not finite: %g", result->loss);
  if (isfinite(result->gradient_norm)) return DP_OK;
  return dp_fail(error, DP_RUN_FAILED, "the gradients' norm is not finite: %g", result->gradient_norm);
}

static dp_status share_squares(exec_pipeline *p, double *squares, dp_error *error) {
  const plan_plan *plan = p->work.plan;
  const int64_t samples = exec_work_samples(&p->work);
  const size_t each = (size_t)samples * sizeof *squares, workers = (size_t)p->work.program->worker_count;
  double *mine = p->squares + workers * (size_t)samples;
  memset(p->squares, 0, 2 * workers * each);
  for (int w = p->first_worker; w < p->end_worker; w++)
    if (p->workers[w].squares) memcpy(mine + (w - p->first_worker) * samples, p->workers[w].squares, each);
  DP_TRY(share(p, mine, each, p->squares, error));
  const int last = plan->chunks[plan->chunk_count - 1].rank;
  for (int r = 0; r < plan->replicas; r++)
    memcpy(squares + r * samples, p->squares + plan_worker_of(plan, r, 0, last) * samples, each);
  return DP_OK;
}

static dp_status take_result(exec_pipeline *p, exec_step_result *result, dp_error *error) {
  DP_TRY(share_reports(p, error));
  if (result->squares) DP_TRY(share_squares(p, result->squares, error));
  sum_up(p, result);
  return tell(p, result, error);
}

/* ---- the timeline ---- */

/* Instructions of one process are one run: starts, then ends. */
static dp_status gather_times(exec_pipeline *p, plan_timeline *timeline, dp_error *error) {
  const plan_program *program = p->work.program;
  exec_transport *t = p->work.options.transport;
  if (!t || t->process_count == 1) return DP_OK;
  for (int process = 1; process < t->process_count; process++) {
    const int each = program->worker_count / t->process_count;
    const uint32_t first = program->lanes[program->worker_lane[process * each]].first;
    const uint32_t end = process + 1 < t->process_count
                             ? program->lanes[program->worker_lane[(process + 1) * each]].first
                             : program->instruction_count;
    double *const arrays[] = {timeline->start_s, timeline->end_s};
    for (int a = 0; a < 2; a++) {
      const size_t bytes = (end - first) * sizeof(double);
      if (t->process == 0)
        DP_TRY(t->receive(t, process, EXEC_TAG_TIMES, arrays[a] + first, bytes, NULL, error));
      else if (t->process == process)
        DP_TRY(t->send(t, 0, EXEC_TAG_TIMES, arrays[a] + first, bytes, NULL, error));
    }
  }
  if (t->process > 0) return DP_OK;
  /* in an evaluation there is nothing to reduce, and nobody waits for the others */
  const plan_groups *groups = p->work.step->evaluate ? NULL : &p->groups;
  if (p->work.kind->deferred)
    DP_TRY(exec_align_clocks(program, groups, t->process_count, exec_sends_meet, p, timeline, error));
  exec_join_ends(program, groups, exec_sends_meet, p, timeline);
  return DP_OK;
}

static dp_status take_times(exec_pipeline *p, double began_s, plan_timeline *timeline, dp_error *error) {
  const exec_transport *t = p->work.options.transport;
  const double shift_s = (t ? t->clock_offset_s : 0) - began_s;
  const plan_program *program = p->work.program;
  const uint32_t n = program->instruction_count;
  for (uint32_t i = 0; i < n; i++) {
    const bool here = p->lane_of[i] >= p->first_lane && p->lane_of[i] < p->end_lane;
    timeline->start_s[i] = here ? fmax(0, p->start_s[i] + shift_s) : 0;
    timeline->end_s[i] = here ? fmax(timeline->start_s[i], p->end_s[i] + shift_s) : 0;
  }
  DP_TRY(gather_times(p, timeline, error));
  timeline->step_s = 0;
  for (uint32_t i = 0; i < n; i++)
    if (timeline->end_s[i] > timeline->step_s) timeline->step_s = timeline->end_s[i];
  return DP_OK;
}

/* ---- a step ---- */

static void use_means(exec_pipeline *p, bool means) {
  for (int w = p->first_worker; w < p->end_worker; w++) p->work.kind->use_means(&p->workers[w], means);
}

/* Devices of several processes take care until their instructions were recorded and played. Steps that the host looks
 * into are not recorded, so they count as the first alone; nor is any before one has trained. */
static void count_round(exec_pipeline *p, const exec_step *step) {
  const bool looks = p->work.fitting || p->work.searching || step->measure_skips;
  if (!step->evaluate && p->rounds[0] == 0 && p->rounds[1] > 1) p->rounds[1] = 1;
  p->rounds[step->evaluate] += !looks || p->rounds[step->evaluate] == 0;
}

/* The program once; `began_s`: on process 0's clock. */
static dp_status play(exec_pipeline *p, const exec_step *step, double *began_s, dp_error *error) {
  const bool exchange = step->evaluate && step->use_means && p->work.options.means;
  if (p->left) return dp_fail(error, DP_RUN_FAILED, "the step before was given up and has not ended");
  p->step = *step; /* lanes may be left behind in it */
  p->work.step = &p->step;
  for (int w = p->first_worker; w < p->end_worker; w++) exec_worker_begin(&p->work, &p->workers[w]);
  if (exchange) use_means(p, true);
  dp_status status = step->measure_skips ? exec_skips_show_ups(p, error) : DP_OK;
  if (status == DP_OK) status = exec_barrier(p->work.options.transport, error);
  *began_s = dp_clock_s(); /* process 0's counts; its broadcast starts the others */
  if (status == DP_OK) status = exec_broadcast(p->work.options.transport, began_s, sizeof *began_s, error);
  const double from_s = dp_clock_s();
  if (status == DP_OK && p->work.kind->deferred) status = p->work.kind->begin_lanes(p, error);
  if (status == DP_OK) status = exec_lanes_step(p, error);
  if (status == DP_OK && p->work.kind->deferred) status = p->work.kind->finish_lanes(p, error);
  if (status == DP_OK) p->longest_s = fmax(p->longest_s, dp_clock_s() - from_s);
  for (int w = p->first_worker; status == DP_OK && w < p->end_worker; w++)
    status = p->work.kind->collect(&p->work, &p->workers[w], error);
  if (exchange) use_means(p, false);
  if (status == DP_OK) count_round(p, step);
  return status;
}

dp_status exec_pipeline_step(exec_pipeline *p, const exec_step *step, exec_step_result *result, plan_timeline *timeline,
                             dp_error *error) {
  exec_step_result unread = {.squares = NULL};
  double began_s;
  if (step->clip_norm > 0 && p->work.program->worker_count > 1 && !p->work.plan->global_norm && !step->evaluate)
    return dp_fail(error, DP_BAD_INPUT, "gradients cannot be clipped: the plan has no global norm");
  DP_TRY(play(p, step, &began_s, error));
  if (result && result->psnr) DP_TRY(exec_skips_psnr(p, result->psnr, error));
  DP_TRY(take_result(p, result ? result : &unread, error));
  return timeline ? take_times(p, began_s, timeline, error) : DP_OK;
}

dp_status exec_pipeline_step_only(exec_pipeline *p, const exec_step *step, const uint8_t *only, dp_error *error) {
  double began_s;
  p->work.only = only;
  const dp_status status = play(p, step, &began_s, error);
  p->work.only = NULL;
  return status;
}
