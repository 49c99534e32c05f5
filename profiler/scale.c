#include "profiler/scale.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const prof_precision_names[PROF_PRECISION_COUNT + 1] = {"fp32", "tf32", "fp16", "bf16", "fp8", NULL};

/* ---- precision ---- */

/* Parts of names in lower case; the first that is in a name tells. cuBLAS' nvjet names types by letters: t is bf16, h
 * fp16, q fp8; its s1688 are tf32 where no type stands beside. cuDNN's attention says f16 for both of 16 bits. */
static const struct {
  const char *part;
  prof_precision precision;
} tells[] = {{"e4m3", PROF_FP8},   {"e5m2", PROF_FP8},    {"fp8", PROF_FP8},          {"float8", PROF_FP8},
             {"_qq", PROF_FP8},    {"bf16", PROF_BF16},   {"bfloat16", PROF_BF16},    {"_tst_", PROF_BF16},
             {"_tss_", PROF_BF16}, {"_ttt_", PROF_BF16},  {"tf32", PROF_TF32},        {"fp16", PROF_FP16},
             {"f16", PROF_FP16},   {"half", PROF_FP16},   {"_hsh_", PROF_FP16},       {"_hss_", PROF_FP16},
             {"_hhh_", PROF_FP16}, {"h884", PROF_FP16},   {"h1688", PROF_FP16},       {"h16816", PROF_FP16},
             {"hgemm", PROF_FP16}, {"s1688", PROF_TF32},  {"sgemm", PROF_FP32},       {"ffma", PROF_FP32},
             {"simt", PROF_FP32},  {"<float", PROF_FP32}, {"float, float", PROF_FP32}};

prof_precision prof_precision_of(const char *kernel) {
  char lower[PROF_STRING_BYTES + 1];
  size_t length = 0;
  for (; kernel[length] && length < PROF_STRING_BYTES; length++)
    lower[length] = (char)tolower((unsigned char)kernel[length]);
  lower[length] = '\0';
  for (size_t i = 0; i < sizeof tells / sizeof tells[0]; i++)
    if (strstr(lower, tells[i].part)) return tells[i].precision;
  return PROF_PRECISION_COUNT;
}

static bool is_matrix(prof_class class) {
  return class == PROF_GEMM || class == PROF_CONVOLUTION || class == PROF_ATTENTION;
}

unsigned char *prof_scale_precisions(const prof_session *session, const unsigned char *classes,
                                     double seconds[PROF_PRECISION_COUNT + 1]) {
  unsigned char *precisions = malloc(session->names.count + 1);
  if (!precisions) return NULL;
  for (size_t n = 0; n < session->names.count; n++)
    precisions[n] = is_matrix((prof_class)classes[n]) ? (unsigned char)prof_precision_of(session->names.items[n])
                                                      : PROF_PRECISION_COUNT;
  for (int p = 0; p <= PROF_PRECISION_COUNT; p++) seconds[p] = 0;
  for (size_t i = 0; i < session->records.count; i++) {
    const prof_record *r = &session->records.items[i];
    if (r->kind == PROF_KERNEL && is_matrix(prof_record_class(r, classes)))
      seconds[precisions[r->name]] += (double)(r->end_ns - r->start_ns) * 1e-9;
  }
  return precisions;
}

/* ---- sides ---- */

/* The slowest share of a ring over the first devices, each link shared by all that cross it. */
static dp_status ring_rate(const plan_cluster *cluster, int devices, double *bytes_per_s, dp_error *error) {
  int *crossings = calloc(cluster->links.count + 1, sizeof *crossings);
  if (!crossings) return dp_fail_memory(error);
  dp_status status = DP_OK;
  *bytes_per_s = INFINITY;
  for (int turn = 0; turn < 2; turn++)
    for (int d = 0; status == DP_OK && d < devices; d++) {
      plan_route route;
      status = plan_cluster_route(cluster, d, (d + 1) % devices, &route, error);
      for (int h = 0; status == DP_OK && h < route.count; h++) {
        const int link = route.links[h];
        if (turn == 0)
          crossings[link]++;
        else
          *bytes_per_s = fmin(*bytes_per_s, cluster->links.items[link].bandwidth_bytes_per_s / crossings[link]);
      }
    }
  free(crossings);
  return status;
}

static dp_status find_ring(const plan_catalogue *catalogue, int devices, prof_side *side, dp_error *error) {
  double bytes_per_s = 0;
  side->ring.ranks = 1;
  if (devices < 2) return DP_OK;
  int *list = malloc((size_t)devices * sizeof *list);
  if (!list) return dp_fail_memory(error);
  for (int d = 0; d < devices; d++) list[d] = d;
  dp_status status = ring_rate(side->cluster, devices, &bytes_per_s, error);
  if (status == DP_OK) status = plan_cluster_route(side->cluster, 0, 1, &side->peer, error);
  if (status == DP_OK) side->ring = plan_nccl_query_of(catalogue->nccl, side->cluster, list, devices, bytes_per_s);
  free(list);
  return status;
}

dp_status prof_side_of(const plan_catalogue *catalogue, const plan_cluster *cluster, int devices, prof_side *side,
                       dp_error *error) {
  prof_side made = {.cluster = cluster, .model = cluster->devices.items[0].model};
  if (cluster->devices.count < (size_t)devices)
    return dp_fail(error, DP_BAD_INPUT,
                   "%.100s: found %zu devices, allowed: as many as the recorded run used, %d, or more", cluster->name,
                   cluster->devices.count, devices);
  for (size_t d = 0; d < cluster->devices.count; d++) {
    const plan_device *device = &cluster->devices.items[d];
    if (plan_device_is_processor(device->model) || device->parts != 1 || device->model != made.model)
      return dp_fail(error, DP_BAD_INPUT, "%.100s: found %.60s, %.60s, allowed: whole GPUs of one kind", cluster->name,
                     device->name, device->model->name);
  }
  for (size_t l = 0; l < cluster->links.count && !made.host; l++) {
    const plan_link *link = &cluster->links.items[l];
    if (link->from == cluster->devices.items[0].vertex &&
        (link->model->kind == PLAN_LINK_PCIE || link->model->kind == PLAN_LINK_HOST))
      made.host = link;
  }
  DP_TRY(find_ring(catalogue, devices, &made, error));
  *side = made;
  return DP_OK;
}

/* ---- ratios ---- */

static double peak_of(const plan_device_model *model, prof_precision precision) {
  switch (precision) {
    case PROF_FP32:
      return model->peak_flops_per_s[GRAPH_FP32];
    case PROF_TF32:
      return model->tf32_flops_per_s;
    case PROF_FP16:
      return model->peak_flops_per_s[GRAPH_FP16];
    case PROF_BF16:
      return model->peak_flops_per_s[GRAPH_BF16];
    case PROF_FP8:
      return model->fp8_flops_per_s;
    default:
      return 0;
  }
}

static double best_share(const plan_device_model *model) {
  const double peak = model->peak_flops_per_s[GRAPH_BF16];
  return peak > 0 && model->achieved_flops_per_s > 0 ? model->achieved_flops_per_s / peak : 0;
}

static void find_matrix(prof_scale *s) {
  const double was = best_share(s->was.model), is = best_share(s->is.model);
  for (int p = 0; p < PROF_PRECISION_COUNT; p++) {
    const double before = peak_of(s->was.model, (prof_precision)p), now = peak_of(s->is.model, (prof_precision)p);
    const double shares = (p == PROF_BF16 || p == PROF_FP16) && was > 0 && is > 0 ? was / is : 1;
    s->matrix[p] = before > 0 && now > 0 ? before / now * shares : 0;
  }
}

static bool same_ring(const plan_nccl_query *a, const plan_nccl_query *b) {
  return a->arch == b->arch && a->intra == b->intra && a->ranks == b->ranks && a->nodes == b->nodes &&
         a->bus_bytes_per_s == b->bus_bytes_per_s;
}

dp_status prof_scale_make(const plan_nccl_model *nccl, const double used[PROF_PRECISION_COUNT], prof_scale *s,
                          dp_error *error) {
  s->same_device = strcmp(s->was.model->name, s->is.model->name) == 0;
  s->same_links = same_ring(&s->was.ring, &s->is.ring);
  s->memory = s->was.model->memory_bandwidth_bytes_per_s / s->is.model->memory_bandwidth_bytes_per_s;
  find_matrix(s);
  for (int p = 0; p < PROF_PRECISION_COUNT; p++) {
    if (used[p] <= 0 || s->matrix[p] > 0) continue;
    const bool before = peak_of(s->was.model, (prof_precision)p) > 0;
    return dp_fail(error, DP_BAD_INPUT,
                   "%s: has no %s, in which the recorded run computes, allowed: devices that have; or --precision for "
                   "kernels whose names do not tell theirs",
                   before ? s->is.model->name : s->was.model->name, prof_precision_names[p]);
  }
  for (int op = 0; op < SCALE_COLLECTIVES; op++)
    for (int side = 0; side < 2; side++)
      for (int i = 0; i < SCALE_POINTS; i++) {
        plan_nccl_query query = side ? s->is.ring : s->was.ring;
        query.op = (plan_nccl_op)op;
        query.bytes = exp2(i / 4.0);
        s->nccl_s[op][side][i] = query.ranks > 1 ? plan_nccl_time_s(nccl, &query, NULL) : 0;
      }
  return DP_OK;
}

/* ---- a piece of work ---- */

static double nccl_ratio(const prof_scale *s, const prof_record *r, double measured_s) {
  const char *name = s->session->names.items[r->name];
  const int op = strstr(name, "AllGather")       ? PLAN_NCCL_ALL_GATHER
                 : strstr(name, "ReduceScatter") ? PLAN_NCCL_REDUCE_SCATTER
                                                 : PLAN_NCCL_ALL_REDUCE;
  const double *was = s->nccl_s[op][0], *is = s->nccl_s[op][1];
  if (s->same_links || was[0] <= 0 || is[0] <= 0) return 1;
  if (measured_s <= was[0]) return is[0] / was[0];
  if (measured_s >= was[SCALE_POINTS - 1]) return is[SCALE_POINTS - 1] / was[SCALE_POINTS - 1];
  int low = 0, high = SCALE_POINTS - 1; /* was[low] <= measured < was[high] */
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (was[middle] <= measured_s)
      low = middle;
    else
      high = middle;
  }
  const double share = (measured_s - was[low]) / (was[high] - was[low]);
  return (is[low] + share * (is[high] - is[low])) / measured_s;
}

static double host_s(const plan_link *link, double bytes) {
  return link->latency_s + bytes / (link->bandwidth_bytes_per_s * plan_link_factor(link->model, bytes));
}

static double route_s(const plan_route *route, double bytes) {
  return route->latency_s + bytes / (route->bandwidth_bytes_per_s * plan_link_factor(route->limiting, bytes));
}

static double copy_ratio(const prof_scale *s, const prof_record *r, double measured_s, bool *same) {
  const double bytes = (double)r->value;
  if (r->detail == PROF_COPY_PEER && s->was.peer.count && s->is.peer.count) {
    *same = s->same_links;
    return s->same_links ? 1 : route_s(&s->is.peer, bytes) / route_s(&s->was.peer, bytes);
  }
  if (r->detail != PROF_COPY_TO_DEVICE && r->detail != PROF_COPY_TO_HOST) return s->memory;
  *same = !s->was.host || !s->is.host ||
          (s->was.host->bandwidth_bytes_per_s == s->is.host->bandwidth_bytes_per_s &&
           s->was.host->latency_s == s->is.host->latency_s);
  if (*same || measured_s > 2 * host_s(s->was.host, bytes)) return 1;
  return host_s(s->is.host, bytes) / host_s(s->was.host, bytes);
}

double prof_scale_work_s(const void *context, const prof_record *r, double measured_s) {
  const prof_scale *s = context;
  const prof_class class = prof_record_class(r, s->classes);
  const double assumed = s->matrix[s->assumed] > 0 ? s->matrix[s->assumed] : s->memory;
  bool same = s->same_device;
  double ratio = s->memory, low, high;
  if (is_matrix(class)) {
    const unsigned char told = s->precisions[r->name];
    ratio = s->matrix[told < PROF_PRECISION_COUNT ? told : s->assumed];
  } else if (class == PROF_NCCL) {
    same = s->same_links;
    ratio = nccl_ratio(s, r, measured_s);
  } else if (r->kind == PROF_COPY) {
    ratio = copy_ratio(s, r, measured_s, &same);
  }
  if (s->edge == 0 || same) return measured_s * ratio;
  low = high = ratio;
  if (r->kind == PROF_GRAPH || class == PROF_OTHER) {
    low = fmin(ratio, assumed);
    high = fmax(ratio, assumed);
  }
  if (s->edge < 0) return measured_s * low / (1 + s->band);
  high *= 1 + s->band;
  if (r->kind == PROF_KERNEL && measured_s < SCALE_SMALL_S) high = fmax(high, 1);
  return measured_s * high;
}
