#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/place.h"

/* The kernel's own name of its boot: containers of one machine may have different host names, machines may have equal
 * ones. */
static bool read_boot(char *out, int bytes) {
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (!file) return false;
  const bool read = fgets(out, bytes, file) && out[0] != '\n';
  (void)fclose(file);
  if (read) out[strcspn(out, "\n")] = 0;
  return read;
}

void exec_host_facts_init(exec_host_facts *facts) {
  const char *given = getenv("DIFFPIPE_HOSTID");
  *facts = (exec_host_facts){.gpu_count = 0};
  if (given && given[0])
    (void)snprintf(facts->host, sizeof facts->host, "%s", given);
  else if (!read_boot(facts->host, sizeof facts->host) && gethostname(facts->host, sizeof facts->host - 1) != 0)
    facts->host[0] = 0;
}

static bool same_gpus(const exec_host_facts *facts, int a, int b) {
  return exec_same_host(facts, a, b) && facts[a].gpu_count == facts[b].gpu_count &&
         memcmp(facts[a].uuids, facts[b].uuids, (size_t)facts[a].gpu_count * sizeof facts[a].uuids[0]) == 0;
}

void exec_deal_places(const exec_host_facts *facts, int processes, int workers, exec_place *places) {
  const int each = workers / processes;
  for (int p = 0; p < processes; p++) {
    int before = 0, all = 0;
    for (int other = 0; other < processes; other++) {
      if (!same_gpus(facts, p, other)) continue;
      before += other < p ? each : 0;
      all += each;
    }
    const int gpus = facts[p].gpu_count > 0 ? facts[p].gpu_count : 1, run = (all + gpus - 1) / gpus;
    for (int w = 0; w < each; w++) places[p * each + w].gpu = (before + w) / run;
    for (int w = p * each; w < (p + 1) * each; w++) {
      places[w].part = places[w].parts = 0;
      for (int other = p * each; other < (p + 1) * each; other++) {
        if (places[other].gpu != places[w].gpu) continue;
        places[w].part += other < w;
        places[w].parts++;
      }
    }
  }
}

void exec_place_workers(const plan_program *program, const plan_cluster *cluster, int gpus, exec_place *places) {
  const int workers = program->worker_count, most = gpus < EXEC_MAX_GPUS ? gpus : EXEC_MAX_GPUS;
  bool enough = true;
  for (int w = 0; w < workers; w++) {
    const plan_device *device = &cluster->devices.items[program->plan->devices[w]];
    places[w] = (exec_place){.gpu = device->card, .parts = device->parts};
    for (const plan_device *other = cluster->devices.items; other < device; other++)
      places[w].part += other->card == device->card;
    enough = enough && device->card < gpus;
  }
  for (int w = 0; w < workers && !enough; w++) places[w] = exec_place_dealt(w, workers, most);
}

bool exec_share_gpu(const exec_host_facts *facts, const exec_place *places, int each, int a, int b) {
  const int p = a / each, q = b / each;
  return exec_same_host(facts, p, q) &&
         memcmp(facts[p].uuids[places[a].gpu], facts[q].uuids[places[b].gpu], sizeof facts[p].uuids[0]) == 0;
}
