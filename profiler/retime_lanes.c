/* Streams and threads of records, which call launched which work, and collectives of several processes. */
#include <stdlib.h>
#include <string.h>

#include "profiler/retime_parts.h"

/* ---- lanes ---- */

typedef struct lane_key {
  uint64_t key;
  size_t lane;
} lane_key;

typedef struct lane_table { /* open addressing, a power of two, at most half full */
  lane_key *slots;
  size_t count, used;
} lane_table;

static uint64_t key_of(const prof_record *r) {
  const bool on_device = prof_on_device(r);
  return (uint64_t)r->process << 48 | (uint64_t)(on_device ? r->device : PROF_NO_DEVICE) << 32 |
         (on_device ? r->stream : r->thread);
}

static lane_key *slot_of(const lane_table *table, uint64_t key) {
  size_t at = (size_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (table->count - 1);
  while (table->slots[at].lane != RETIME_NONE && table->slots[at].key != key) at = (at + 1) & (table->count - 1);
  return &table->slots[at];
}

static bool grow(lane_table *table) {
  const lane_table old = *table;
  table->count = old.count ? 2 * old.count : 64;
  table->slots = malloc(table->count * sizeof *table->slots);
  if (!table->slots) {
    *table = old;
    return false;
  }
  for (size_t s = 0; s < table->count; s++) table->slots[s].lane = RETIME_NONE;
  for (size_t s = 0; s < old.count; s++)
    if (old.slots[s].lane != RETIME_NONE) *slot_of(table, old.slots[s].key) = old.slots[s];
  free(old.slots);
  return true;
}

static bool find_lanes(retime_plan *plan) {
  lane_table table = {.slots = NULL};
  bool done = true;
  for (size_t i = 0; done && i < plan->session->records.count; i++) {
    const prof_record *r = &plan->session->records.items[i];
    if (2 * (table.used + 1) > table.count && !grow(&table)) {
      done = false;
      break;
    }
    lane_key *slot = slot_of(&table, key_of(r));
    if (slot->lane == RETIME_NONE) {
      retime_process *process = &plan->processes[r->process];
      *slot = (lane_key){key_of(r), plan->lanes.count};
      table.used++;
      done = dp_array_push(
          &plan->lanes, ((retime_lane){.process = r->process, .on_device = prof_on_device(r), .next = process->lanes}));
      process->lanes = slot->lane;
    }
    plan->lane_of[i] = slot->lane;
  }
  free(table.slots);
  return done;
}

/* ---- launches ---- */

typedef struct launch {
  uint16_t process;
  bool is_call;
  uint32_t correlation;
  size_t record;
} launch;

/* Of one correlation the calls first, by start. */
static int by_correlation(const void *a, const void *b) {
  const launch *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  if (x->correlation != y->correlation) return x->correlation < y->correlation ? -1 : 1;
  if (x->is_call != y->is_call) return x->is_call ? -1 : 1;
  return (x->record > y->record) - (x->record < y->record);
}

static bool find_launches(retime_plan *plan) {
  const prof_record *records = plan->session->records.items;
  DP_ARRAY(launch) found = {0};
  bool done = true;
  for (size_t i = 0; done && i < plan->session->records.count; i++) {
    const bool is_call = records[i].kind == PROF_CALL || records[i].kind == PROF_SYNC;
    if (records[i].correlation && (is_call || prof_on_device(&records[i])))
      done = dp_array_push(&found, ((launch){records[i].process, is_call, records[i].correlation, i}));
  }
  if (found.count) qsort(found.items, found.count, sizeof(launch), by_correlation);
  for (size_t i = 0, call = RETIME_NONE; i < found.count; i++) {
    const launch *at = &found.items[i];
    if (i == 0 || at[-1].process != at->process || at[-1].correlation != at->correlation)
      call = at->is_call ? at->record : RETIME_NONE;
    if (at->is_call || call == RETIME_NONE || records[call].start_ns > records[at->record].start_ns) continue;
    size_t *last = &plan->launch_of[call];
    plan->launch_of[at->record] = call;
    if (*last == RETIME_NONE || records[*last].end_ns < records[at->record].end_ns) *last = at->record;
  }
  dp_array_free(&found);
  return done;
}

/* ---- collectives ---- */

static size_t next_nccl(const retime_plan *plan, size_t from, uint16_t process) {
  const prof_record *records = plan->session->records.items;
  while (from < plan->session->records.count && (records[from].process != process || !prof_on_device(&records[from]) ||
                                                 prof_record_class(&records[from], plan->classes) != PROF_NCCL))
    from++;
  return from;
}

/* The k-th NCCL kernel of each process is the k-th of all, where all have as many, of the same names, and they overlap.
 */
static bool find_groups(retime_plan *plan) {
  const prof_record *records = plan->session->records.items;
  const size_t count = plan->session->records.count, processes = plan->session->processes.count;
  size_t *at = calloc(processes + 1, sizeof *at), taking = 0;
  bool match = true, room = at != NULL;
  for (size_t p = 0; room && p < processes; p++) {
    at[p] = next_nccl(plan, 0, (uint16_t)p);
    if (at[p] < count) at[taking++] = at[p]; /* those without NCCL take no part */
  }
  while (room && match && taking > 1 && at[0] < count) {
    const uint32_t name = records[at[0]].name;
    retime_group group = {.start_ns = INT64_MIN, .end_ns = INT64_MAX, .is_start_ns = INT64_MIN};
    for (size_t p = 0; match && p < taking; p++) {
      match = at[p] < count && records[at[p]].name == name;
      if (!match) break;
      if (records[at[p]].start_ns > group.start_ns) group.start_ns = records[at[p]].start_ns;
      if (records[at[p]].end_ns < group.end_ns) group.end_ns = records[at[p]].end_ns;
      plan->group_of[at[p]] = plan->groups.count;
      at[p] = next_nccl(plan, at[p] + 1, records[at[p]].process);
    }
    match = match && group.start_ns < group.end_ns;
    room = dp_array_push(&plan->groups, group);
  }
  for (size_t p = 0; room && match && p < taking; p++) match = at[p] == count;
  if (room && !match) {
    plan->groups.count = 0;
    for (size_t i = 0; i < count; i++) plan->group_of[i] = RETIME_NONE;
  }
  free(at);
  return room;
}

/* ---- all of it ---- */

static int by_end(const void *a, const void *b) {
  const retime_end *x = a, *y = b;
  if (x->at_ns != y->at_ns) return x->at_ns < y->at_ns ? -1 : 1;
  return (x->record > y->record) - (x->record < y->record);
}

dp_status retime_plan_make(const prof_session *session, const unsigned char *classes, retime_plan *plan,
                           dp_error *error) {
  const size_t count = session->records.count;
  *plan = (retime_plan){.session = session, .classes = classes};
  plan->lane_of = malloc((count + 1) * sizeof *plan->lane_of);
  plan->launch_of = malloc((count + 1) * sizeof *plan->launch_of);
  plan->group_of = malloc((count + 1) * sizeof *plan->group_of);
  plan->ends = malloc((count + 1) * sizeof *plan->ends);
  plan->processes = calloc(session->processes.count + 1, sizeof *plan->processes);
  if (!plan->lane_of || !plan->launch_of || !plan->group_of || !plan->ends || !plan->processes)
    return dp_fail_memory(error);
  for (size_t p = 0; p < session->processes.count; p++) plan->processes[p].lanes = RETIME_NONE;
  for (size_t i = 0; i < count; i++) {
    const prof_record *r = &session->records.items[i];
    plan->launch_of[i] = plan->group_of[i] = RETIME_NONE;
    if (r->end_ns > r->start_ns) plan->ends[plan->end_count++] = (retime_end){r->end_ns, i};
  }
  if (plan->end_count) qsort(plan->ends, plan->end_count, sizeof *plan->ends, by_end);
  return find_lanes(plan) && find_launches(plan) && find_groups(plan) ? DP_OK : dp_fail_memory(error);
}

void retime_plan_free(retime_plan *plan) {
  free(plan->lane_of);
  free(plan->launch_of);
  free(plan->group_of);
  free(plan->ends);
  free(plan->processes);
  dp_array_free(&plan->lanes);
  dp_array_free(&plan->groups);
  *plan = (retime_plan){.session = NULL};
}
