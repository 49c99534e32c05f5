#include "cli/run_degrade.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "exec/probe.h"
#include "plan/transport.h"
#include "reports/json.h"

enum { MOST_PATIENCE = 64 };

dp_status cli_run_degrade_check(const plan_scenario *scenario, const plan_plan *plan, const graph *g, int processes,
                                bool cuda, dp_error *error) {
  if (processes > 1 && cuda)
    return dp_fail(
        error, DP_BAD_INPUT,
        "run: --on-anomaly: found \"degrade\" on CUDA devices of %d processes, allowed: alarm, advise or off",
        processes);
  if (scenario->train.stage_rates)
    return dp_fail_at(error, plan_scenario_node(scenario, "train", "stage_rates"),
                      "train.stage_rates: found with --on-anomaly degrade, allowed: without, since another plan has "
                      "other stages");
  if (plan_skip_is_used(plan, g, PLAN_SKIP_COMPRESS))
    return dp_fail_at(error, plan_scenario_node(scenario, "plan", "skip_policy"),
                      "plan: found compressed skips with --on-anomaly degrade, allowed: exact ones, since another plan "
                      "does not have what compresses them");
  return DP_OK;
}

/* ---- probes ---- */

static int64_t largest_message(const plan_program *program, uint32_t from, uint32_t to) {
  int64_t most = 1;
  for (uint32_t m = 0; m < program->message_count; m++) {
    const plan_message *message = &program->messages[m];
    if (message->from_worker == from && message->to_worker == to && message->bytes > most) most = message->bytes;
  }
  return most;
}

/* Of a worker of the run's own plan. */
static int process_of(const cli_run_degrade *d, int worker) {
  return worker / (d->how.sizes[0].program->worker_count / exec_process_count(d->how.transport));
}

static dp_status probe(const cli_run_degrade *d, const cli_run_monitor *m, uint32_t index, int64_t step,
                       double *seconds, dp_error *error) {
  const plan_program *program = m->monitor.program;
  const prof_watched *link = &m->monitor.watched[index];
  const int from = (int)link->worker, to = (int)link->peer;
  const exec_probe how = {.cuda = d->how.cuda,
                          .cluster = &d->scenario->cluster,
                          .program = program,
                          .from_worker = from,
                          .to_worker = to,
                          .way = plan_transport_of(program->plan, &d->scenario->cluster, from, to),
                          .bytes = largest_message(program, link->worker, link->peer),
                          .step = step,
                          .transport = d->how.transport,
                          .from_process = process_of(d, from),
                          .to_process = process_of(d, to)};
  return exec_probe_link(&how, seconds, error);
}

/* Whether a slow link is as it was, as far as a probe tells. */
static bool is_well(const cli_run_degrade *d, const cli_run_monitor *m, uint32_t index, double seconds) {
  const plan_monitor *rule = m->monitor.rule;
  const double healthy_s = d->healthy_s[index];
  const double least_s = rule->least_share * m->monitor.watched[0].series.mean;
  return seconds <= rule->recovered_multiple * healthy_s ||
         (seconds - healthy_s) * m->monitor.watched[index].parts < least_s / 2;
}

/* ---- before the run ---- */

dp_status cli_run_degrade_begin(const plan_scenario *scenario, const sim_efficiency *efficiency,
                                cli_processes *processes, const exec_session_options *how, bool changes,
                                const cli_run_monitor *monitor, cli_run_degrade *degrade, dp_error *error) {
  const size_t watched = monitor->monitor.watched_count;
  cli_run_degrade made = {.on = true,
                          .changes = changes,
                          .scenario = scenario,
                          .efficiency = efficiency,
                          .processes = processes,
                          .how = *how,
                          .needed = scenario->monitor.recovered_steps};
  exec_transport *t = changes ? how->transport : NULL; /* together, or the first process alone */
  dp_status status = DP_OK;
  if (cli_processes_speak(processes))
    status = sim_fallbacks_prepare(scenario, efficiency, exec_process_count(how->transport), &made.fallbacks, error);
  made.healthy_s = DP_ARENA_NEW(&made.arena, double, watched);
  made.links = DP_ARENA_NEW(&made.arena, uint32_t, watched);
  made.slow = DP_ARENA_NEW(&made.arena, plan_slow_way, watched);
  if (status == DP_OK && !(made.healthy_s && made.links && made.slow)) status = dp_fail_memory(error);
  status = exec_agree(t, status, error);
  for (uint32_t i = 0; status == DP_OK && changes && i < watched; i++)
    if (monitor->monitor.watched[i].subject == PROF_OF_LINK)
      status = probe(&made, monitor, i, 0, &made.healthy_s[i], error);
  if (status == DP_OK)
    *degrade = made;
  else
    cli_run_degrade_free(&made);
  return status;
}

static void drop_found(cli_run_degrade *d) {
  cli_run_sizes_free(&d->sizes);
  sim_fallback_free(&d->found);
}

/* ---- what is told ---- */

static json_t *row_of(int64_t step, const char *event, const char *line) {
  return json_pack("{sI ss ss}", "step", (json_int_t)step, "event", event, "line", line);
}

/* With the plan, and what a step takes by it and by the run's own. */
static json_t *row_of_plan(const cli_run_degrade *d, int64_t step, const char *event, const char *line) {
  char plan[256];
  const sim_fallback *f = &d->found;
  return json_pack("{sI ss ss ss si si so so}", "step", (json_int_t)step, "event", event, "line", line, "plan",
                   sim_candidate_show(&f->candidate, plan), "stages", f->candidate.stages, "data_parallel",
                   f->candidate.replicas, "predicted_s", report_json_number(f->prediction.metrics.step_s), "kept_s",
                   report_json_number(f->kept_s));
}

static dp_status tell_fallback(const cli_run_degrade *d, cli_run_monitor *m, int64_t step, dp_error *error) {
  char line[512], plan[256], by[32], kept[32];
  const sim_fallback *f = &d->found;
  (void)dp_format_seconds(f->kept_s, kept);
  if (!f->found) {
    (void)snprintf(line, sizeof line,
                   "%s a step predicted with the slow link, and no plan is faster by %.0f %%: the run goes on as it is",
                   kept, 100 * SIM_FALLBACK_MARGIN);
    return cli_run_monitor_tell(m, row_of(step, "fallback", line), error);
  }
  (void)snprintf(line, sizeof line, "%s a step predicted with the slow link, %s by %s", kept,
                 dp_format_seconds(f->prediction.metrics.step_s, by), sim_candidate_show(&f->candidate, plan));
  return cli_run_monitor_tell(m, row_of_plan(d, step, "fallback", line), error);
}

/* ---- from one plan to another ---- */

static dp_status make(const exec_session_options *how, const exec_session_copy *copy, exec_session **session,
                      dp_error *error) {
  DP_TRY(exec_session_create(how, session, error));
  const dp_status status = exec_session_put(*session, copy, error);
  if (status != DP_OK) {
    exec_session_free(*session);
    *session = NULL;
  }
  return status;
}

/* The session goes on by `to`; where that cannot be made, by `from` as before, and `why` says so. Both are never there
 * at once: a device has no room for two. */
static dp_status change(cli_processes *processes, const exec_session_options *from, const exec_session_options *to,
                        exec_session **session, dp_error *why, dp_error *error) {
  exec_session_copy *copy = NULL;
  DP_TRY(exec_session_take(*session, &copy, error));
  cli_processes_follow(processes, NULL); /* who watches knows the instructions of the run's own program alone */
  exec_session_free(*session);
  *session = NULL;
  dp_status status = make(to, copy, session, why);
  if (status != DP_OK) status = make(from, copy, session, error);
  exec_session_copy_free(copy);
  return status;
}

static exec_session_options by_fallback(const cli_run_degrade *d) {
  exec_session_options how = d->how;
  how.scenario = &d->found.scenario;
  how.sizes = d->sizes.sizes;
  how.size_count = d->sizes.count;
  how.observer = NULL; /* it knows the other program */
  return how;
}

static dp_status tell_kept(cli_run_degrade *d, cli_run_monitor *m, int64_t step, const dp_error *why, dp_error *error) {
  char line[768];
  d->on = false;
  (void)snprintf(line, sizeof line, "the other plan could not be made, and is not tried again: %.600s", why->text);
  return cli_run_monitor_tell(m, row_of(step, "kept", line), error);
}

static dp_status go_over(cli_run_degrade *d, cli_run_monitor *m, int64_t step, exec_session **session,
                         dp_error *error) {
  char line[512], plan[256], by[32], taken[32];
  dp_error why = DP_ERROR_INIT;
  const double from_s = dp_clock_s();
  dp_status status = cli_run_sizes_of(&d->found.scenario, d->efficiency, &d->found.prediction, &d->sizes, &why);
  status = exec_agree(d->how.transport, status, &why);
  if (status != DP_OK) return tell_kept(d, m, step, &why, error);
  const exec_session_options to = by_fallback(d);
  DP_TRY(change(d->processes, &d->how, &to, session, &why, error));
  d->degraded = why.status == DP_OK;
  d->well = 0;
  if (!d->degraded) {
    cli_processes_follow(d->processes, *session);
    return tell_kept(d, m, step, &why, error);
  }
  (void)snprintf(line, sizeof line, "the run goes on by %s, %s a step predicted (changed in %s)",
                 sim_candidate_show(&d->found.candidate, plan),
                 dp_format_seconds(d->found.prediction.metrics.step_s, by),
                 dp_format_seconds(dp_clock_s() - from_s, taken));
  return cli_run_monitor_tell(m, row_of_plan(d, step, "degraded", line), error);
}

static dp_status go_back(cli_run_degrade *d, cli_run_monitor *m, int64_t step, exec_session **session,
                         dp_error *error) {
  char line[256], taken[32];
  dp_error why = DP_ERROR_INIT;
  const exec_session_options from = by_fallback(d);
  const double from_s = dp_clock_s();
  DP_TRY(change(d->processes, &from, &d->how, session, &why, error));
  if (why.status != DP_OK) return tell_kept(d, m, step, &why, error);
  cli_processes_follow(d->processes, *session);
  d->degraded = false;
  drop_found(d);
  (void)snprintf(line, sizeof line,
                 "the link was well in %lld probes in a row: the run goes on by its own plan (changed in %s)",
                 (long long)d->needed, dp_format_seconds(dp_clock_s() - from_s, taken));
  if (d->needed < MOST_PATIENCE * d->scenario->monitor.recovered_steps) d->needed *= 2;
  cli_run_monitor_begin_again(m);
  return cli_run_monitor_tell(m, row_of(step, "restored", line), error);
}

/* ---- between two steps ---- */

typedef enum order { ORDER_STAY, ORDER_GO_OVER, ORDER_GO_BACK } order;

/* All processes probe; what the first makes of it counts. */
static void look_at_links(cli_run_degrade *d, const cli_run_monitor *m, int64_t step, order *what) {
  bool all_well = true;
  if (step % d->scenario->monitor.probe_every != 0) return;
  for (int i = 0; i < d->slow_count; i++) {
    double seconds = HUGE_VAL;
    dp_error why = DP_ERROR_INIT; /* a probe that fails is none that was well */
    const dp_status status = probe(d, m, d->links[i], step + 1, &seconds, &why);
    all_well = all_well && status == DP_OK && is_well(d, m, d->links[i], seconds);
  }
  d->well = all_well ? d->well + 1 : 0;
  if (d->well >= d->needed) *what = ORDER_GO_BACK;
}

/* What the links take now, by what was predicted of them. */
static dp_status find_slow(cli_run_degrade *d, const cli_run_monitor *m, dp_error *error) {
  const prof_monitor *monitor = &m->monitor;
  plan_way_seen *seen = DP_ARENA_NEW(&d->arena, plan_way_seen, monitor->watched_count);
  int count = 0, slow = 0;
  if (!seen) return dp_fail_memory(error);
  for (uint32_t i = 0; i < monitor->watched_count; i++) {
    const prof_watched *w = &monitor->watched[i];
    if (w->subject != PROF_OF_LINK) continue;
    const double by_predicted = w->predicted_s > 0 ? w->now_s / w->predicted_s : 0;
    const double factor = by_predicted > 1 ? by_predicted : w->now_s / w->series.mean;
    seen[count++] = (plan_way_seen){(int)w->worker, (int)w->peer, w->series.alarmed ? factor : 1};
    if (w->series.alarmed) d->links[slow++] = i;
  }
  return plan_slow_ways(monitor->program->plan, &d->scenario->cluster, seen, count, d->slow, &d->slow_count, error);
}

static dp_status look_for_plan(cli_run_degrade *d, cli_run_monitor *m, int64_t step, order *what, dp_error *error) {
  bool alarmed = false;
  for (uint32_t i = 0; i < m->event_count; i++) {
    const prof_event *e = &m->events[i];
    alarmed = alarmed || (e->kind == PROF_EVENT_ALARM && e->watched->subject == PROF_OF_LINK);
  }
  if (!alarmed) return DP_OK;
  drop_found(d);
  DP_TRY(find_slow(d, m, error));
  DP_TRY(sim_fallback_find(&d->fallbacks, d->scenario, d->efficiency, d->slow, d->slow_count, &d->found, error));
  DP_TRY(tell_fallback(d, m, step, error));
  if (d->found.found && d->changes) *what = ORDER_GO_OVER;
  return DP_OK;
}

/* What the first process has found, to all. */
static dp_status share_found(cli_run_degrade *d, dp_error *error) {
  exec_transport *t = d->how.transport;
  const bool has = cli_processes_speak(d->processes);
  struct {
    sim_candidate candidate;
    int64_t global_batch, slow_count;
  } found = {.candidate = d->found.candidate, .global_batch = d->fallbacks.global_batch, .slow_count = d->slow_count};
  if (exec_process_count(t) == 1) return DP_OK;
  DP_TRY(exec_broadcast(t, &found, sizeof found, error));
  const size_t workers = (size_t)sim_candidate_workers(&found.candidate);
  int64_t *devices = has ? d->found.scenario.device_map : DP_ARENA_NEW(&d->arena, int64_t, workers);
  DP_TRY(exec_agree(t, devices ? DP_OK : dp_fail_memory(error), error));
  d->slow_count = (int)found.slow_count;
  DP_TRY(exec_broadcast(t, devices, workers * sizeof *devices, error));
  DP_TRY(exec_broadcast(t, d->slow, (size_t)d->slow_count * sizeof *d->slow, error));
  DP_TRY(exec_broadcast(t, d->links, (size_t)d->slow_count * sizeof *d->links, error));
  dp_status status = DP_OK;
  if (!has) {
    drop_found(d);
    status = sim_fallback_take(d->scenario, d->efficiency, d->slow, d->slow_count, &found.candidate, found.global_batch,
                               devices, &d->found, error);
  }
  return exec_agree(t, status, error);
}

dp_status cli_run_degrade_step(cli_run_degrade *d, cli_run_monitor *m, int64_t step, exec_session **session,
                               dp_error *error) {
  order what = ORDER_STAY;
  dp_status status = DP_OK;
  if (!d->on) return DP_OK;
  if (d->degraded)
    look_at_links(d, m, step, &what);
  else if (cli_processes_speak(d->processes))
    status = look_for_plan(d, m, step, &what, error);
  if (d->changes) {
    status = exec_agree(d->how.transport, status, error);
    if (status == DP_OK) status = exec_broadcast(d->how.transport, &what, sizeof what, error);
  }
  if (status != DP_OK || what == ORDER_STAY) return status;
  if (what == ORDER_GO_BACK) return go_back(d, m, step, session, error);
  DP_TRY(share_found(d, error));
  return go_over(d, m, step, session, error);
}

void cli_run_degrade_free(cli_run_degrade *d) {
  drop_found(d);
  sim_fallbacks_free(&d->fallbacks);
  dp_arena_free(&d->arena);
  *d = (cli_run_degrade){.on = false};
}
