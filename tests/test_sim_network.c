/* sim/network.h: textbook allocations, and random traffic against filling everything anew. */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "sim/network.h"
#include "tests/sim_reference.h"
#include "tests/suite.h"

static sim_network *network;
static dp_error error;
static const uint32_t *changed;
static uint32_t changed_count;

static void setup(void) {
  network = NULL;
  error = (dp_error)DP_ERROR_INIT;
}
static void teardown(void) { sim_network_destroy(network); }

static void create(const double *capacity, int links, uint32_t flows, uint32_t hops) {
  uint32_t flow_hops[1024];
  for (uint32_t f = 0; f < flows; f++) flow_hops[f] = hops;
  const dp_status status = sim_network_create(capacity, links, flow_hops, flows, &network, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
}
static void settle(double now_s) { sim_network_settle(network, now_s, &changed, &changed_count); }
static void near(double found, double wanted) {
  ck_assert_msg(fabs(found - wanted) <= 1e-9 * fabs(wanted), "found %.17g, wanted %.17g", found, wanted);
}
static bool has_changed(uint32_t flow) {
  for (uint32_t i = 0; i < changed_count; i++) {
    if (changed[i] == flow) return true;
  }
  return false;
}

START_TEST(two_over_one_root_take_twice_as_long) {
  create((double[]){100}, 1, 2, 1);
  const int root[] = {0};
  sim_network_start(network, 0, root, 1, 1000, INFINITY);
  settle(0);
  near(sim_network_finish_s(network, 0), 10);
  sim_network_start(network, 1, root, 1, 1000, INFINITY);
  settle(0);
  ck_assert(has_changed(0) && has_changed(1));
  near(sim_network_finish_s(network, 0), 20);
  near(sim_network_finish_s(network, 1), 20);
  sim_network_end(network, 0);
  settle(10); /* taken off half way: the other has moved 500 bytes */
  near(sim_network_finish_s(network, 1), 15);
}

/* Bertsekas and Gallager's example in small: one flow over three links, each shared with another flow. */
START_TEST(long_flow_gets_the_least_share) {
  create((double[]){1, 2, 1}, 3, 4, 3);
  const int all[] = {0, 1, 2};
  sim_network_start(network, 0, all, 3, 1, INFINITY);
  sim_network_start(network, 1, &all[0], 1, 1, INFINITY);
  sim_network_start(network, 2, &all[1], 1, 1, INFINITY);
  sim_network_start(network, 3, &all[2], 1, 1, INFINITY);
  settle(0);
  near(sim_network_rate(network, 0), 0.5);
  near(sim_network_rate(network, 1), 0.5);
  near(sim_network_rate(network, 2), 1.5);
  near(sim_network_rate(network, 3), 0.5);
}

START_TEST(a_capped_flow_leaves_the_rest_to_others) {
  create((double[]){10}, 1, 3, 1);
  const int root[] = {0};
  sim_network_start(network, 0, root, 1, 100, 2);
  sim_network_start(network, 1, root, 1, 100, INFINITY);
  sim_network_start(network, 2, root, 1, 100, 3.5);
  settle(0);
  near(sim_network_rate(network, 0), 2);
  near(sim_network_rate(network, 1), 4.5);
  near(sim_network_rate(network, 2), 3.5);
}

START_TEST(a_link_crossed_twice_carries_twice) {
  create((double[]){10}, 1, 2, 2);
  const int ring[] = {0, 0};
  sim_network_start(network, 0, ring, 2, 100, INFINITY);
  settle(0);
  near(sim_network_rate(network, 0), 5);
  sim_network_start(network, 1, ring, 1, 100, INFINITY);
  settle(0);
  near(sim_network_rate(network, 0), 10.0 / 3);
  near(sim_network_rate(network, 1), 10.0 / 3);
}

START_TEST(room_on_a_link_disturbs_nobody) {
  create((double[]){10}, 1, 3, 1);
  const int root[] = {0};
  sim_network_start(network, 0, root, 1, 100, 4);
  sim_network_start(network, 1, root, 1, 100, 4);
  settle(0);
  sim_network_start(network, 2, root, 1, 100, 2);
  settle(1);
  ck_assert_uint_eq(changed_count, 1);
  ck_assert(has_changed(2));
  ck_assert_uint_eq(sim_network_count(network).solves, 0);
}

/* A change moves along a chain of full links as far as rates move, and farther than the rounds taken one by one. */
START_TEST(changes_travel_along_a_chain) {
  enum { LINKS = 40 };
  double capacity[LINKS];
  int path[LINKS];
  for (int l = 0; l < LINKS; l++) {
    capacity[l] = 1 + l * 0.01;
    path[l] = l;
  }
  create(capacity, LINKS, LINKS, 2);
  reference_flow flows[LINKS] = {{0}};
  double residual[LINKS];
  int open[LINKS];
  for (uint32_t f = 0; f < LINKS; f++) {
    const uint32_t hops = f + 1 < LINKS ? 2 : 1;
    sim_network_start(network, f, &path[f], hops, 1e6, INFINITY);
    settle(f);
    flows[f] = (reference_flow){.links = &path[f], .hops = (int)hops, .cap = INFINITY, .active = true};
    reference_share(capacity, LINKS, flows, LINKS, residual, open);
    for (uint32_t g = 0; g <= f; g++) near(sim_network_rate(network, g), flows[g].rate);
  }
  for (uint32_t f = 0; f + 1 < LINKS; f++) {
    sim_network_end(network, f);
    settle(LINKS + f);
    flows[f].active = false;
    reference_share(capacity, LINKS, flows, LINKS, residual, open);
    for (uint32_t g = f + 1; g < LINKS; g++) near(sim_network_rate(network, g), flows[g].rate);
  }
}

/* Bytes that each flow has moved, integrated from outside. */
typedef struct traffic {
  int links[6];
  double bytes, moved, rate;
} traffic;

static void random_traffic(uint64_t seed) {
  enum { MAX_LINKS = 14, MAX_FLOWS = 40, EVENTS = 150 };
  dp_random random;
  dp_random_init(&random, seed, 7);
  const int links = 1 + (int)dp_random_below(&random, MAX_LINKS);
  const uint32_t flows = 2 + (uint32_t)dp_random_below(&random, MAX_FLOWS - 2);
  const int most_hops = 1 + (int)dp_random_below(&random, 6);
  const bool equal = dp_random_below(&random, 3) == 0; /* many ties */
  double capacity[MAX_LINKS], residual[MAX_LINKS], now_s = 0;
  int open[MAX_LINKS];
  for (int l = 0; l < links; l++) capacity[l] = equal ? 10 : 1 + 20 * dp_random_uniform(&random);
  create(capacity, links, flows, 6);
  reference_flow wanted[MAX_FLOWS] = {{0}};
  traffic real[MAX_FLOWS] = {{{0}, 0, 0, 0}};

  for (int event = 0; event < EVENTS; event++) {
    const double step_s = dp_random_uniform(&random);
    now_s += step_s;
    for (uint32_t f = 0; f < flows; f++) real[f].moved += real[f].rate * step_s;
    uint64_t touched = 0; /* a flow that starts may not end in the same instant */
    for (uint64_t changes = 1 + dp_random_below(&random, 4); changes > 0; changes--) {
      const uint32_t f = (uint32_t)dp_random_below(&random, flows);
      if (touched >> f & 1) continue;
      touched |= (uint64_t)1 << f;
      if (wanted[f].active) {
        sim_network_end(network, f);
        wanted[f].active = false;
        wanted[f].rate = real[f].rate = 0;
        continue;
      }
      const int hops = 1 + (int)dp_random_below(&random, (uint64_t)most_hops);
      for (int h = 0; h < hops; h++) real[f].links[h] = (int)dp_random_below(&random, (uint64_t)links);
      const uint64_t kind = dp_random_below(&random, 3);
      const double cap = kind == 0 ? INFINITY : kind == 1 ? 2 : 10 * dp_random_uniform(&random) + 1e-3;
      real[f].bytes = 1e5 + dp_random_uniform(&random);
      real[f].moved = 0;
      sim_network_start(network, f, real[f].links, (uint32_t)hops, real[f].bytes, cap);
      wanted[f] = (reference_flow){.links = real[f].links, .hops = hops, .cap = cap, .active = true};
    }
    settle(now_s);
    reference_share(capacity, links, wanted, (int)flows, residual, open);
    for (uint32_t f = 0; f < flows; f++) {
      if (!wanted[f].active) continue;
      const double rate = sim_network_rate(network, f);
      near(rate, wanted[f].rate);
      ck_assert(has_changed(f) || fabs(rate - real[f].rate) <= 1e-11 * rate);
      real[f].rate = rate;
      near(sim_network_finish_s(network, f), now_s + (real[f].bytes - real[f].moved) / rate);
    }
  }
}

START_TEST(random_traffic_is_max_min_fair) {
  const uint64_t seeds = suite_is_short() ? 100 : 400;
  for (uint64_t seed = 0; seed < seeds; seed++) {
    random_traffic(seed);
    sim_network_destroy(network);
    network = NULL;
  }
}

/* Starts and ends of one instant, in batches, over one root and many leaves: the shape of a PCIe tree. */
START_TEST(batches_are_one_change) {
  enum { LEAVES = 200 };
  double capacity[LEAVES + 1], residual[LEAVES + 1];
  int open[LEAVES + 1], paths[LEAVES][2];
  dp_random random;
  dp_random_init(&random, 3, 0);
  capacity[LEAVES] = 100;
  for (int l = 0; l < LEAVES; l++) {
    capacity[l] = 0.1 + 2 * dp_random_uniform(&random);
    paths[l][0] = l;
    paths[l][1] = LEAVES;
  }
  create(capacity, LEAVES + 1, LEAVES, 2);
  reference_flow wanted[LEAVES] = {{0}};
  for (int round = 0; round < 50; round++) {
    for (uint32_t f = 0; f < LEAVES; f++) {
      if (dp_random_below(&random, 3) == 0) continue;
      if (wanted[f].active) {
        sim_network_end(network, f);
        wanted[f].active = false;
      } else {
        sim_network_start(network, f, paths[f], 2, 1e6, INFINITY);
        wanted[f] = (reference_flow){.links = paths[f], .hops = 2, .cap = INFINITY, .active = true};
      }
    }
    settle(round);
    reference_share(capacity, LEAVES + 1, wanted, LEAVES, residual, open);
    for (uint32_t f = 0; f < LEAVES; f++) {
      if (wanted[f].active) near(sim_network_rate(network, f), wanted[f].rate);
    }
  }
}

START_TEST(bad_capacities_are_refused) {
  const double bad[] = {0, -1, NAN, INFINITY};
  const uint32_t hops[] = {1};
  for (size_t i = 0; i < 4; i++) {
    ck_assert_int_eq(sim_network_create(&bad[i], 1, hops, 1, &network, &error), DP_INTERNAL);
    ck_assert_ptr_null(network);
    ck_assert_ptr_nonnull(strstr(error.text, "link 0"));
  }
}

int main(void) {
  const TTest *const tests[] = {
      two_over_one_root_take_twice_as_long, long_flow_gets_the_least_share, a_capped_flow_leaves_the_rest_to_others,
      a_link_crossed_twice_carries_twice,   room_on_a_link_disturbs_nobody, changes_travel_along_a_chain,
      random_traffic_is_max_min_fair,       batches_are_one_change,         bad_capacities_are_refused};
  return suite_run("sim_network", tests, sizeof tests / sizeof *tests, setup, teardown, 60);
}
