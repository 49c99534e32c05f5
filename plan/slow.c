#include "plan/slow.h"

#include <math.h>

#include "plan/transport.h"

static bool crosses(const int *links, int count, int link) {
  for (int h = 0; h < count; h++)
    if (links[h] == link) return true;
  return false;
}

/* Takes away what a way that is as fast as ever crosses. */
static void acquit(plan_slow_way *way, const plan_route *fast) {
  int kept = 0;
  for (int h = 0; h < way->count; h++)
    if (!crosses(fast->links, fast->count, way->links[h])) way->links[kept++] = way->links[h];
  way->count = kept;
}

static dp_status route_of(const plan_plan *plan, const plan_cluster *cluster, const plan_way_seen *seen,
                          plan_route *route, dp_error *error) {
  return plan_transport_route(plan, cluster, seen->from_worker, seen->to_worker, route, error);
}

dp_status plan_slow_ways(const plan_plan *plan, const plan_cluster *cluster, const plan_way_seen *seen, int count,
                         plan_slow_way *slow, int *slow_count, dp_error *error) {
  int n = 0;
  plan_route route;
  for (int i = 0; i < count; i++) {
    if (!(seen[i].factor > 1)) continue;
    DP_TRY(route_of(plan, cluster, &seen[i], &route, error));
    slow[n] = (plan_slow_way){.from = plan->devices[seen[i].from_worker],
                              .to = plan->devices[seen[i].to_worker],
                              .factor = seen[i].factor,
                              .count = route.count};
    for (int h = 0; h < route.count; h++) slow[n].links[h] = route.links[h];
    n++;
  }
  for (int i = 0; i < count; i++) {
    if (seen[i].factor > 1) continue;
    DP_TRY(route_of(plan, cluster, &seen[i], &route, error));
    for (int s = 0; s < n; s++) acquit(&slow[s], &route);
  }
  *slow_count = n;
  return DP_OK;
}

static bool concerns(const plan_slow_way *way, int from, int to, const plan_route *route) {
  if (way->from == from && way->to == to) return true;
  for (int h = 0; h < way->count; h++)
    if (crosses(route->links, route->count, way->links[h])) return true;
  return false;
}

double plan_slow_factor(const plan_cluster *cluster, int from, int to, const plan_route *route) {
  double factor = 1;
  for (int s = 0; s < cluster->slow_count; s++)
    if (concerns(&cluster->slow[s], from, to, route)) factor = fmax(factor, cluster->slow[s].factor);
  return factor;
}
