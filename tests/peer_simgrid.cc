#include "tests/peer_simgrid.h"

#include <simgrid/s4u.hpp>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

static double now_s() { /* CPU seconds: it has one thread */
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct result {
  double step_s, build_s, run_s;
  uint64_t peak_bytes;
};

/* Max-min fairness without TCP's corrections, as in sim/network.h; hosts of speed 1, so that a flop is a second. */
static result simulate(const peer_input &input) {
  const double begun_s = now_s();
  std::vector<std::string> words = {"peer", "--cfg=network/model:CM02", "--cfg=network/TCP-gamma:0",
                                    "--cfg=network/weight-S:0", "--cfg=network/crosstraffic:0", "--log=root.thres:error"};
  std::vector<char *> arguments;
  for (std::string &word : words) arguments.push_back(word.data());
  int count = static_cast<int>(arguments.size());
  sg::Engine engine(&count, arguments.data());
  sg::NetZone *zone = sg::create_full_zone("all");
  std::vector<sg::Host *> hosts;
  std::vector<sg::Link *> links;
  for (uint32_t h = 0; h < input.host_count; h++) hosts.push_back(zone->create_host("h" + std::to_string(h), 1.0)->seal());
  for (int l = 0; l < input.link_count; l++) {
    links.push_back(zone->create_link("l" + std::to_string(l), input.capacity_bytes_per_s[l])
                        ->set_latency(input.link_latency_s[l])
                        ->seal());
  }
  for (uint32_t r = 0; r < input.route_count; r++) {
    const peer_route &route = input.routes[r];
    std::vector<sg::LinkInRoute> path;
    for (int h = 0; h < route.hops; h++) path.emplace_back(links[static_cast<size_t>(route.links[h])]);
    zone->add_route(hosts[route.from]->get_netpoint(), hosts[route.to]->get_netpoint(), nullptr, nullptr, path, false);
  }
  zone->seal();

  std::vector<sg::ActivityPtr> activities;
  for (uint32_t t = 0; t < input.task_count; t++) {
    const peer_task &task = input.tasks[t];
    if (task.bytes > 0) {
      activities.push_back(sg::Comm::sendto_init(hosts[task.from], hosts[task.to])->set_payload_size(task.bytes));
    } else {
      activities.push_back(sg::Exec::init()->set_flops_amount(task.seconds)->set_host(hosts[task.from]));
    }
  }
  for (uint32_t o = 0; o < input.order_count; o++) {
    const uint32_t before = input.orders[o][0];
    const sg::ActivityPtr &after = activities[input.orders[o][1]];
    if (input.tasks[before].bytes > 0) {
      static_cast<sg::Comm *>(activities[before].get())->add_successor(after);
    } else {
      static_cast<sg::Exec *>(activities[before].get())->add_successor(after);
    }
  }
  for (const sg::ActivityPtr &activity : activities) activity->vetoable_start();
  const double built_s = now_s();
  engine.run();
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return {sg::Engine::get_clock(), built_s - begun_s, now_s() - built_s, static_cast<uint64_t>(usage.ru_maxrss) * 1024};
}

int peer_simgrid_run(const peer_input *input, double *step_s, double *build_s, double *run_s, uint64_t *peak_bytes) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    const result found = simulate(*input);
    const ssize_t wrote = write(ends[1], &found, sizeof found);
    _exit(wrote == static_cast<ssize_t>(sizeof found) ? 0 : 1);
  }
  close(ends[1]);
  result found = {};
  const bool got = child > 0 && read(ends[0], &found, sizeof found) == static_cast<ssize_t>(sizeof found);
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  if (!got) return -1;
  *step_s = found.step_s;
  *build_s = found.build_s;
  *run_s = found.run_s;
  *peak_bytes = found.peak_bytes;
  return 0;
}
