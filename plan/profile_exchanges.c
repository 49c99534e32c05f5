#include "plan/profile_exchanges.h"

#include <math.h>
#include <stdlib.h>

#include "base/median.h"

typedef DP_ARRAY(double) series;

static double middle_of(series *s) { return dp_median(s->items, s->count); }

static int by_bytes(const void *a, const void *b) {
  const plan_exchange *x = a, *y = b;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static double bin_of(double bytes, int sizes_an_octave) {
  return sizes_an_octave ? floor(sizes_an_octave * log2(bytes) + 1e-9) : bytes;
}

/* Those of one bin from `at` on, which goes past them. */
static bool take_bin(const plan_exchanges *all, int sizes_an_octave, size_t *at, series *bytes, series seconds[2]) {
  const double bin = bin_of(all->items[*at].bytes, sizes_an_octave);
  bytes->count = seconds[0].count = seconds[1].count = 0;
  for (; *at < all->count && bin_of(all->items[*at].bytes, sizes_an_octave) == bin; ++*at) {
    const plan_exchange *e = &all->items[*at];
    if (!e->aside && !(dp_array_push(bytes, e->bytes) && dp_array_push(&seconds[e->beside], e->seconds))) return false;
  }
  return true;
}

dp_status plan_exchanges_points(plan_exchanges *all, int sizes_an_octave, size_t least, plan_profile_points *points,
                                dp_error *error) {
  series bytes = {.items = NULL}, seconds[2] = {{.items = NULL}, {.items = NULL}};
  bool done = true;
  if (all->count) qsort(all->items, all->count, sizeof *all->items, by_bytes);
  for (size_t i = 0; done && i < all->count;) {
    done = take_bin(all, sizes_an_octave, &i, &bytes, seconds);
    const plan_profile_point point = {middle_of(&bytes), seconds[0].count >= least ? middle_of(&seconds[0]) : 0,
                                      seconds[1].count >= least ? middle_of(&seconds[1]) : 0};
    if (done && point.alone_s + point.busy_s > 0) done = dp_array_push(points, point);
  }
  dp_array_free(&bytes);
  for (int k = 0; k < 2; k++) dp_array_free(&seconds[k]);
  return done ? DP_OK : dp_fail_memory(error);
}

dp_status plan_exchanges_error(const plan_exchanges *all, const plan_profile_points *points, double *middle,
                               size_t *count, dp_error *error) {
  series errors = {.items = NULL};
  bool done = true;
  for (size_t i = 0; done && i < all->count && points->count; i++) {
    const plan_exchange *e = &all->items[i];
    if (!e->aside || e->bytes > 2 * points->items[points->count - 1].bytes) continue;
    const plan_profile_point said = plan_profile_at(points->items, points->count, e->bytes);
    done = dp_array_push(&errors, fabs((e->beside ? said.busy_s : said.alone_s) / e->seconds - 1));
  }
  *middle = middle_of(&errors);
  *count = errors.count;
  dp_array_free(&errors);
  return done ? DP_OK : dp_fail_memory(error);
}
