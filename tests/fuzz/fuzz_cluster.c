/* Any bytes as a cluster file: refused with one line, or a cluster in which all routes hold together. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "plan/cluster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_route(const plan_cluster *cluster, int from, int to) {
  plan_route route;
  dp_error error = DP_ERROR_INIT;
  if (plan_cluster_route(cluster, from, to, &route, &error) != DP_OK) {
    if (!error.text[0] || strchr(error.text, '\n')) abort();
    return;
  }
  if ((route.count == 0) != (from == to) || route.count > PLAN_MAX_HOPS || !(route.bandwidth_bytes_per_s > 0)) abort();
  int at = cluster->devices.items[from].vertex;
  for (int h = 0; h < route.count; h++) {
    if (cluster->links.items[route.links[h]].from != at) abort();
    at = cluster->links.items[route.links[h]].to;
  }
  if (at != cluster->devices.items[to].vertex) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static plan_catalogue catalogue;
  static bool ready;
  if (!ready && plan_catalogue_read(NULL, &catalogue, NULL) != DP_OK) abort();
  ready = true;
  dp_document document = {0};
  if (dp_document_parse_toml((const char *)data, size, "fuzz.toml", &document, NULL) != DP_OK) return 0;
  plan_cluster cluster = {0};
  dp_error error = DP_ERROR_INIT;
  if (plan_cluster_build(document.root, &catalogue, &cluster, &error) == DP_OK) {
    const int count = (int)cluster.devices.count, step = count / 16 + 1;
    for (int a = 0; a < count; a += step)
      for (int b = 0; b < count; b += step) check_route(&cluster, a, b);
    check_route(&cluster, count - 1, 0);
  } else if (!error.text[0] || strchr(error.text, '\n') || cluster.devices.items) {
    abort();
  }
  plan_cluster_free(&cluster);
  dp_document_free(&document);
  return 0;
}
