/* A run made by hand, for the tests of reports/: a straight pipeline with its timeline, without the simulator. */
#ifndef DP_TESTS_REPORTS_FIXTURE_H
#define DP_TESTS_REPORTS_FIXTURE_H

#include "reports/report.h"

typedef struct fixture_options {
  const char *name, *device_name; /* of the scenario; of device 0 (the others get plain names) */
  int ranks, chunks_per_rank, replicas, microbatches;
  bool training, one_f_one_b, split_backward;
  double forward_s, transfer_s; /* backward takes twice as long; 0: transfers take no time */
  int64_t limit_bytes;
  int spare_devices;
} fixture_options;

typedef struct fixture {
  report_run run;
  graph graph;
  plan_cluster cluster;
  plan_device_model model;
  plan_plan plan;
  plan_program program;
  plan_timeline timeline;
  plan_metrics metrics;
  plan_memory memory;
  report_bound bounds[4];
  dp_arena arena;
} fixture;

/* Ends the test when the host has no memory. */
void fixture_make(const fixture_options *options, fixture *made);
void fixture_free(fixture *made);

#endif
