#include "profiler/links_parts.h"

#include "base/line.h"
#include "base/median.h"
#include "plan/profile_exchanges.h"

const char *const prof_way_names[PROF_WAY_COUNT + 1] = {"to the device", "to the host", "on the device",
                                                        "peer",          "nccl",        NULL};

enum { SIZES_AN_OCTAVE = 8 };
/* More is no message, but a record that is wrong. */
static const uint64_t MOST_BYTES = 1000000000000000;
static const int64_t MOST_NS = 1000000000000;

/* ---- what ran when ---- */

int links_kind_of(const links_maker *m, const prof_record *r) {
  static const int ways[PROF_COPY_END] = {[PROF_COPY_OTHER] = LINKS_OTHER,
                                          [PROF_COPY_TO_DEVICE] = PROF_WAY_TO_DEVICE,
                                          [PROF_COPY_TO_HOST] = PROF_WAY_TO_HOST,
                                          [PROF_COPY_ON_DEVICE] = PROF_WAY_ON_DEVICE,
                                          [PROF_COPY_PEER] = PROF_WAY_PEER};
  if (r->kind == PROF_COPY) return r->detail < PROF_COPY_END ? ways[r->detail] : LINKS_OTHER;
  if (r->kind == PROF_MEMSET) return LINKS_OTHER;
  return prof_record_class(r, m->classes) == PROF_NCCL ? PROF_WAY_NCCL : LINKS_COMPUTE;
}

static links_place *place_of(const links_maker *m, const prof_record *r) {
  for (size_t p = 0; p < m->places.count; p++)
    if (m->places.items[p].process == r->process && m->places.items[p].device == r->device) return &m->places.items[p];
  return NULL;
}

static dp_status find_loads(links_maker *m) {
  for (size_t i = 0; i < m->session->records.count; i++) {
    const prof_record *r = &m->session->records.items[i];
    if (!prof_on_device(r)) continue;
    links_place *place = place_of(m, r);
    if (!place) {
      const links_place made = {.process = r->process, .device = r->device};
      if (!dp_array_push(&m->places, made)) return dp_fail_memory(m->error);
      place = &m->places.items[m->places.count - 1];
    }
    if (!prof_load_add(&place->loads[links_kind_of(m, r)], r->start_ns, r->end_ns)) return dp_fail_memory(m->error);
  }
  for (size_t p = 0; p < m->places.count; p++)
    for (int k = 0; k < LINKS_KINDS; k++) prof_load_finish(&m->places.items[p].loads[k]);
  return DP_OK;
}

double links_share(const links_maker *m, const prof_record *r, int kind) {
  const int64_t own_ns = links_kind_of(m, r) == kind ? r->end_ns - r->start_ns : 0;
  const int64_t ns = prof_load_between(&place_of(m, r)->loads[kind], r->start_ns, r->end_ns) - own_ns;
  return (double)ns / (double)(r->end_ns - r->start_ns);
}

double links_middle(links_series *s) { return dp_median(s->items, s->count); }

/* ---- messages ---- */

static dp_status keep_message(links_maker *m, const prof_record *r, prof_way way, plan_exchanges *all) {
  prof_link *link = &m->links->ways[way];
  link->count++;
  if (r->value == 0 || r->value > MOST_BYTES || r->end_ns <= r->start_ns || r->end_ns - r->start_ns > MOST_NS)
    return DP_OK;
  if (links_share(m, r, (int)way) > LINKS_LONE || links_share(m, r, PROF_WAY_NCCL) > LINKS_LONE) return DP_OK;
  const double computes = links_share(m, r, LINKS_COMPUTE);
  if (computes > LINKS_LONE && computes < LINKS_BESIDE) return DP_OK;
  const bool beside = computes >= LINKS_BESIDE;
  const uint64_t number = ++*(beside ? &link->beside : &link->alone);
  const plan_exchange made = {.bytes = (double)r->value,
                        .seconds = (double)(r->end_ns - r->start_ns) * 1e-9,
                        .beside = beside,
                        .aside = number % LINKS_ASIDE == 0};
  return dp_array_push(all, made) ? DP_OK : dp_fail_memory(m->error);
}

/* busy: of the times beside compute. */
static dp_status fit_line(links_maker *m, const plan_profile_points *points, bool busy, prof_link_line *line) {
  links_series x = {.items = NULL}, y = {.items = NULL};
  bool done = true;
  double s_per_byte = 0;
  for (size_t i = 0; done && i < points->count; i++) {
    const double seconds = busy ? points->items[i].busy_s : points->items[i].alone_s;
    if (seconds > 0) done = dp_array_push(&x, points->items[i].bytes) && dp_array_push(&y, seconds);
  }
  if (done && x.count && x.items[x.count - 1] < LINKS_TELLING)
    line->latency_s = dp_median(y.items, y.count);
  else if (done)
    dp_fit_line_robust(x.items, y.items, x.count, &line->latency_s, &s_per_byte);
  line->bytes_per_s = s_per_byte > 0 ? 1 / s_per_byte : 0;
  dp_array_free(&x);
  dp_array_free(&y);
  return done ? DP_OK : dp_fail_memory(m->error);
}

static dp_status find_way(links_maker *m, prof_way way, plan_exchanges *all) {
  prof_link *link = &m->links->ways[way];
  for (size_t i = 0; i < m->session->records.count; i++) {
    const prof_record *r = &m->session->records.items[i];
    if (prof_on_device(r) && links_kind_of(m, r) == (int)way) DP_TRY(keep_message(m, r, way, all));
  }
  DP_TRY(plan_exchanges_points(all, SIZES_AN_OCTAVE, LINKS_LEAST, &link->points, m->error));
  DP_TRY(fit_line(m, &link->points, false, &link->line));
  DP_TRY(fit_line(m, &link->points, true, &link->beside_line));
  for (size_t i = 0; i < link->points.count; i++)
    link->beside_known = link->beside_known || link->points.items[i].busy_s > 0;
  DP_TRY(plan_profile_fill_points(&link->points, m->error));
  size_t aside;
  DP_TRY(plan_exchanges_error(all, &link->points, &link->error, &aside, m->error));
  link->aside = aside;
  return DP_OK;
}

static dp_status find_messages(links_maker *m) {
  dp_status status = DP_OK;
  for (int way = 0; status == DP_OK && way < PROF_WAY_NCCL; way++) {
    plan_exchanges all = {.items = NULL};
    status = find_way(m, (prof_way)way, &all);
    dp_array_free(&all);
  }
  for (size_t i = 0; i < m->session->records.count; i++) {
    const prof_record *r = &m->session->records.items[i];
    m->links->ways[PROF_WAY_NCCL].count += prof_on_device(r) && links_kind_of(m, r) == PROF_WAY_NCCL;
  }
  return status;
}

dp_status prof_links_of(const prof_session *session, const unsigned char *classes, prof_links *links, dp_error *error) {
  prof_links made = {.launch_s = 0};
  links_maker m = {.session = session, .classes = classes, .links = &made, .error = error};
  dp_status status = find_loads(&m);
  if (status == DP_OK) status = find_messages(&m);
  if (status == DP_OK) status = links_find_slowdowns(&m);
  if (status == DP_OK) status = links_find_launches(&m);
  for (size_t p = 0; p < m.places.count; p++)
    for (int k = 0; k < LINKS_KINDS; k++) prof_load_free(&m.places.items[p].loads[k]);
  dp_array_free(&m.places);
  if (status == DP_OK)
    *links = made;
  else
    prof_links_free(&made);
  return status;
}

void prof_links_free(prof_links *links) {
  for (int way = 0; way < PROF_WAY_COUNT; way++) dp_array_free(&links->ways[way].points);
  *links = (prof_links){.launch_s = 0};
}
