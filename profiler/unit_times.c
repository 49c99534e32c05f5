#include "profiler/unit_times.h"

#include <math.h>
#include <stdlib.h>

#include "base/median.h"

typedef DP_ARRAY(double) series;

/* Of each instruction of a class a row: its units' times, and what is of none. */
typedef struct maker {
  const plan_program *program;
  series *rows; /* [work] */
  series column, errors;
  prof_unit_times *times;
  dp_error *error;
} maker;

static size_t width_of(const maker *m, uint32_t w) { return (size_t)m->program->works[w].unit_count + 1; }

/* The class of a pass on a compute lane; work_count: it is none. */
static uint32_t class_of(const maker *m, uint32_t i) {
  const plan_instruction *of = &m->program->instructions[i];
  const bool computes = m->program->lanes[plan_instruction_lane(m->program, i)].kind == PLAN_LANE_COMPUTE;
  return computes && of->opcode <= PLAN_BACKWARD_WEIGHT ? of->class_id : m->program->work_count;
}

/* All pieces of one instruction. */
static dp_status add_row(maker *m, const prof_work *first, size_t count) {
  const uint32_t w = class_of(m, first->instruction);
  if (w == m->program->work_count) return DP_OK;
  const plan_work *work = &m->program->works[w];
  series *rows = &m->rows[w];
  const size_t width = width_of(m, w);
  double reached_s = first->start_s;
  if (!dp_array_reserve(rows, width)) return dp_fail_memory(m->error);
  double *row = rows->items + rows->count;
  for (size_t k = 0; k < width; k++) row[k] = 0;
  for (size_t p = 0; p < count; p++) {
    const int64_t unit = (int64_t)first[p].unit - work->first_unit;
    const bool own = first[p].unit >= 0 && unit >= 0 && unit < (int64_t)work->unit_count;
    row[own ? (size_t)unit : width - 1] += fmax(0, first[p].end_s - reached_s);
    reached_s = fmax(reached_s, first[p].end_s);
  }
  rows->count += width;
  return DP_OK;
}

static bool is_aside(size_t row) { return row % UNIT_TIMES_ASIDE == UNIT_TIMES_ASIDE - 1; }

/* The middle of a column; with it the errors on what is aside. */
static dp_status tell_column(maker *m, uint32_t w, size_t k, double *middle_s) {
  const series *rows = &m->rows[w];
  const size_t width = width_of(m, w), count = rows->count / width;
  bool done = true;
  m->column.count = 0;
  for (size_t r = 0; done && r < count; r++)
    if (!is_aside(r)) done = dp_array_push(&m->column, rows->items[r * width + k]);
  *middle_s = dp_median(m->column.items, m->column.count);
  for (size_t r = 0; done && r < count && k + 1 < width; r++)
    if (is_aside(r) && rows->items[r * width + k] > 0)
      done = dp_array_push(&m->errors, fabs(*middle_s / rows->items[r * width + k] - 1));
  return done ? DP_OK : dp_fail_memory(m->error);
}

static dp_status tell_class(maker *m, uint32_t w) {
  plan_recorded_units *units = &m->times->units;
  const plan_work *work = &m->program->works[w];
  const size_t count = m->rows[w].count / width_of(m, w), aside = count / UNIT_TIMES_ASIDE;
  double sum_s = 0;
  if (count - aside < UNIT_TIMES_LEAST) return DP_OK;
  for (uint32_t k = 0; k < work->unit_count; k++) {
    double *unit_s = &units->unit_s[w * units->unit_count + work->first_unit + k];
    DP_TRY(tell_column(m, w, k, unit_s));
    sum_s += *unit_s;
  }
  DP_TRY(tell_column(m, w, work->unit_count, &units->none_s[w]));
  units->known[w] = sum_s > 0 && sum_s >= units->none_s[w];
  m->times->aside += aside;
  return DP_OK;
}

static dp_status find_rows(maker *m, const prof_join *join) {
  for (size_t s = 0; s < join->steps.count; s++) {
    const prof_joined *step = &join->steps.items[s];
    for (size_t i = 0, end; i < step->work.count; i = end) {
      for (end = i; end < step->work.count && step->work.items[end].instruction == step->work.items[i].instruction;)
        end++;
      DP_TRY(add_row(m, &step->work.items[i], end - i));
    }
  }
  return DP_OK;
}

static dp_status make(maker *m, const prof_join *join, size_t unit_count) {
  plan_recorded_units *units = &m->times->units;
  const uint32_t works = m->program->work_count;
  *units = (plan_recorded_units){.work_count = works,
                                 .unit_count = unit_count,
                                 .unit_s = calloc(works * unit_count + 1, sizeof *units->unit_s),
                                 .none_s = calloc((size_t)works + 1, sizeof *units->none_s),
                                 .known = calloc((size_t)works + 1, sizeof *units->known)};
  m->rows = calloc((size_t)works + 1, sizeof *m->rows);
  if (!units->unit_s || !units->none_s || !units->known || !m->rows) return dp_fail_memory(m->error);
  DP_TRY(find_rows(m, join));
  for (uint32_t w = 0; w < works; w++) DP_TRY(tell_class(m, w));
  m->times->error = dp_median(m->errors.items, m->errors.count);
  return DP_OK;
}

dp_status prof_unit_times_of(const prof_join *join, const plan_program *program, size_t unit_count,
                             prof_unit_times *times, dp_error *error) {
  prof_unit_times made = {.aside = 0};
  maker m = {.program = program, .times = &made, .error = error};
  const dp_status status = make(&m, join, unit_count);
  for (uint32_t w = 0; m.rows && w < program->work_count; w++) dp_array_free(&m.rows[w]);
  free(m.rows);
  dp_array_free(&m.column);
  dp_array_free(&m.errors);
  if (status == DP_OK)
    *times = made;
  else
    prof_unit_times_free(&made);
  return status;
}

void prof_unit_times_free(prof_unit_times *times) {
  free(times->units.unit_s);
  free(times->units.none_s);
  free(times->units.known);
  *times = (prof_unit_times){.aside = 0};
}
