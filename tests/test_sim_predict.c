#define _DEFAULT_SOURCE
/* Whole predictions, from the text of a scenario to its figures. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/predict.h"
#include "tests/scratch.h"
#include "tests/sim_texts.h"
#include "tests/suite.h"

static const char study[] = HEAD "[model]\nsynthetic_units = 32\nforward_us = 1000\nbackward_us = 2000\n" CARDS(
    "A100-SXM4-80GB", "16") "[plan]\nstages = 4\nmicrobatches = 8\n";
static const char sdxl[] = HEAD SDXL
    "text_tokens = 77\n"
    "[task]\nkind = \"train\"\n"
    "[cluster]\nfile = \"clusters/8xa100-80gb-sxm.toml\"\n"
    "[plan]\nstages = 4\nmicrobatches = 16\nmicrobatch_size = 2\n";

/* Predicts `text` with the assignments of a NULL-terminated list; the file it stands in is gone afterwards. */
static dp_status try_run(run *r, const char *text, const char *const *sets, dp_error *error) {
  char path[] = "/tmp/diffpipe-predict-XXXXXX.toml";
  scratch_file(path, text);
  int count = 0;
  while (sets && sets[count]) count++;
  memset(r, 0, sizeof *r);
  dp_status status = plan_scenario_read(path, sets, count, &r->scenario, error);
  if (status == DP_OK) {
    status = sim_predict(&r->scenario, efficiency, &r->prediction, error);
    if (status != DP_OK) plan_scenario_free(&r->scenario);
  }
  ck_assert_int_eq(unlink(path), 0);
  return status;
}

static void do_run(run *r, const char *text, const char *const *sets) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(try_run(r, text, sets, &error) == DP_OK, "%s", error.text);
}
#define SETS(...) ((const char *const[]){__VA_ARGS__, NULL})

static int64_t boundary_and_skip(const run *r) {
  return r->prediction.metrics.comm_bytes_by_kind[PLAN_TRAFFIC_BOUNDARY] +
         r->prediction.metrics.comm_bytes_by_kind[PLAN_TRAFFIC_SKIP];
}
static int64_t peak(const run *r) {
  int64_t most = 0;
  for (int w = 0; w < r->prediction.memory.worker_count; w++)
    if (r->prediction.memory.workers[w].peak_bytes > most) most = r->prediction.memory.workers[w].peak_bytes;
  return most;
}

/* The bubble column of the published tables, through every layer from the file on. A rank has 32 / p units of 1 ms
 * forward and 2 ms backward. */
START_TEST(closed_forms_from_a_file) {
  static const int ranks[] = {2, 4, 8}, batches[] = {1, 2, 3, 4, 7, 8, 13, 16, 31, 32};
  static const struct {
    const char *set;
    int chunks;
  } schedules[] = {{"plan.schedule=gpipe", 1},
                   {"plan.schedule=1f1b", 1},
                   {"plan.schedule=interleaved", 2},
                   {"plan.schedule=interleaved", 4}};
  for (size_t s = 0; s < 4; s++)
    for (size_t i = 0; i < 3; i++)
      for (size_t j = 0; j < 10; j++) {
        const int p = ranks[i], m = batches[j], v = schedules[s].chunks;
        char stages[40], microbatches[40], chunks[40];
        (void)snprintf(stages, sizeof stages, "plan.stages=%d", p);
        (void)snprintf(microbatches, sizeof microbatches, "plan.microbatches=%d", m);
        (void)snprintf(chunks, sizeof chunks, "plan.chunks=%d", v);
        run r;
        do_run(&r, study, SETS(schedules[s].set, stages, microbatches, chunks));
        const double rank_s = 32.0 / p * 3e-3;
        const double step_s = (v * fmax(m, p) + fmin(m, p) - 1) * rank_s / v;
        ck_assert_double_eq_tol(r.prediction.metrics.step_s, step_s, 1e-9 * step_s);
        ck_assert_double_eq_tol(r.prediction.metrics.bubble_ratio, 1 - m * rank_s / step_s, 1e-9);
        if (m >= p) ck_assert_double_eq_tol(r.prediction.metrics.bubble_ratio, (p - 1.0) / (v * m + p - 1), 1e-9);
        end_run(&r);
      }
}
END_TEST

START_TEST(zero_bubble_thirds_the_bubble) {
  for (int p = 2; p <= 8; p *= 2) {
    char stages[40];
    (void)snprintf(stages, sizeof stages, "plan.stages=%d", p);
    run plain, zero;
    do_run(&plain, study, SETS(stages, "plan.microbatches=16"));
    do_run(&zero, study, SETS(stages, "plan.microbatches=16", "plan.schedule=zb-h1"));
    const double work_s = 16 * 32.0 / p * 3e-3;
    ck_assert_double_eq_tol(zero.prediction.metrics.step_s - work_s, (plain.prediction.metrics.step_s - work_s) / 3,
                            1e-12);
    end_run(&plain);
    end_run(&zero);
  }
}
END_TEST

START_TEST(the_same_input_gives_the_same_bits) {
  run a, b;
  do_run(&a, sdxl, SETS("plan.schedule=folded", "plan.data_parallel=2"));
  do_run(&b, sdxl, SETS("plan.schedule=folded", "plan.data_parallel=2"));
  const size_t n = a.prediction.program.instruction_count;
  ck_assert_uint_eq(n, b.prediction.program.instruction_count);
  ck_assert_mem_eq(a.prediction.timeline.start_s, b.prediction.timeline.start_s, n * sizeof(double));
  ck_assert_mem_eq(a.prediction.timeline.end_s, b.prediction.timeline.end_s, n * sizeof(double));
  end_run(&a);
  end_run(&b);
}
END_TEST

/* Balanced where bytes are felt, even where they are not; what is said stays as it is said. */
START_TEST(an_open_folded_split_is_the_faster_one) {
  static const char text[] = HEAD SDXL
      "text_tokens = 77\n[task]\nkind = \"train\"\nglobal_batch = 16\n[cluster]\n[[cluster.fabric]]\nname = \"lan\"\n"
      "[[cluster.link]]\nname = \"between\"\nkind = \"network\"\nbandwidth_gb_per_s = %g\nlatency_us = 5\n"
      "source = \"this test\"\nverified = false\n[[cluster.node]]\ncount = 4\n[[cluster.node.pcie]]\nname = \"root\"\n"
      "[[cluster.node.nic]]\nlink = \"between\"\nfabric = \"lan\"\npcie = \"root\"\n[[cluster.node.device]]\n"
      "model = \"A100-PCIe-80GB\"\npcie = \"root\"\n[plan]\nstages = 4\nschedule = \"folded\"\nmicrobatch_size = 1\n";
  static const double bandwidths[] = {0.2, 100};
  for (int b = 0; b < 2; b++) {
    char written[2048];
    run open, balanced, even;
    (void)snprintf(written, sizeof written, text, bandwidths[b]);
    do_run(&open, written, NULL);
    do_run(&balanced, written, SETS("plan.split=balanced"));
    do_run(&even, written, SETS("plan.split=even"));
    ck_assert_int_eq(balanced.prediction.split_way, PLAN_SPLIT_BALANCED);
    ck_assert_int_eq(even.prediction.split_way, PLAN_SPLIT_EVEN);
    ck_assert_double_ne(balanced.prediction.metrics.step_s, even.prediction.metrics.step_s);
    ck_assert_int_eq(open.prediction.split_way, b == 0 ? PLAN_SPLIT_BALANCED : PLAN_SPLIT_EVEN);
    ck_assert_double_eq(open.prediction.metrics.step_s,
                        fmin(balanced.prediction.metrics.step_s, even.prediction.metrics.step_s));
    end_run(&open);
    end_run(&balanced);
    end_run(&even);
  }
}
END_TEST

/* The README's figure: SDXL at 1024 x 1024, four stages. */
START_TEST(folded_moves_a_fifth_of_relay) {
  run folded, relay, direct;
  do_run(&folded, sdxl, SETS("plan.schedule=folded", "plan.split=balanced"));
  do_run(&relay, sdxl, SETS("plan.skip_policy=relay"));
  do_run(&direct, sdxl, SETS("plan.skip_policy=direct"));
  ck_assert_msg(boundary_and_skip(&folded) <= 0.2 * (double)boundary_and_skip(&relay), "folded %lld, relay %lld",
                (long long)boundary_and_skip(&folded), (long long)boundary_and_skip(&relay));
  ck_assert_int_lt(boundary_and_skip(&direct), boundary_and_skip(&relay));
  ck_assert_int_lt(folded.prediction.metrics.comm_bytes_by_kind[PLAN_TRAFFIC_SKIP],
                   direct.prediction.metrics.comm_bytes_by_kind[PLAN_TRAFFIC_SKIP]);
  end_run(&folded);
  end_run(&relay);
  end_run(&direct);
}
END_TEST

START_TEST(compression_moves_less_and_costs_compute) {
  run exact, lossy, lossier;
  do_run(&exact, sdxl, NULL);
  do_run(&lossy, sdxl, SETS("plan.skip_policy=compress", "plan.k=16384"));
  do_run(&lossier, sdxl, SETS("plan.skip_policy=compress", "plan.k=1024"));
  ck_assert_int_lt(boundary_and_skip(&lossy), boundary_and_skip(&exact));
  ck_assert_int_lt(boundary_and_skip(&lossier), boundary_and_skip(&lossy));
  double exact_s = 0, lossy_s = 0;
  for (int w = 0; w < 4; w++) {
    exact_s += exact.prediction.metrics.workers[w].compute_s;
    lossy_s += lossy.prediction.metrics.workers[w].compute_s;
  }
  ck_assert_double_gt(lossy_s, exact_s);
  end_run(&exact);
  end_run(&lossy);
  end_run(&lossier);
}
END_TEST

/* A cut after the first unit has its output travel as a boundary tensor, whole, whatever uses it later. */
START_TEST(boundary_tensors_are_not_projected) {
  run exact, lossy;
  do_run(&exact, sdxl, SETS("plan.stages=2", "plan.split=[1]"));
  do_run(&lossy, sdxl, SETS("plan.stages=2", "plan.split=[1]", "plan.skip_policy=compress", "plan.k=1024"));
  ck_assert_int_gt(exact.prediction.metrics.comm_bytes_by_kind[PLAN_TRAFFIC_BOUNDARY], 0);
  ck_assert_int_eq(exact.prediction.metrics.comm_bytes_by_kind[PLAN_TRAFFIC_SKIP], 0);
  ck_assert_double_eq(lossy.prediction.metrics.step_s, exact.prediction.metrics.step_s);
  end_run(&exact);
  end_run(&lossy);
}
END_TEST

/* All replicas wait for the slowest, so a stage is cut for its slowest device, whichever replica that is in. */
START_TEST(stages_are_cut_for_their_slowest_replica) {
  static const char unlike[] =
      HEAD "[model]\nconfig = \"models/sd15_unet.json\"\n"
      CARDS("RTX-4090", "3")
      "[[cluster.node.device]]\nmodel = \"RTX-3090\"\n"
      "[plan]\nstages = 2\ndata_parallel = 2\nmicrobatches = 4\n";
  run alike, first, second;
  do_run(&alike, unlike, SETS("plan.data_parallel=1"));
  do_run(&first, unlike, SETS("plan.devices=[3, 0, 1, 2]"));
  do_run(&second, unlike, SETS("plan.devices=[0, 1, 3, 2]"));
  ck_assert_int_lt(first.prediction.plan.chunks[0].unit_count, alike.prediction.plan.chunks[0].unit_count);
  ck_assert_int_eq(first.prediction.plan.chunks[0].unit_count, second.prediction.plan.chunks[0].unit_count);
  ck_assert_double_eq_tol(first.prediction.metrics.step_s, second.prediction.metrics.step_s, 1e-9);
  end_run(&alike);
  end_run(&first);
  end_run(&second);
}
END_TEST

/* Two H200: an all-reduce of 128 MiB reaches 288 GB/s alone and 93 beside GEMMs (measured), of 1 GiB 334 and 238. */
START_TEST(collectives_wait_for_compute) {
  static const char pair[] = HEAD "[model]\nsynthetic_units = 2\nforward_us = 100000\nparameters = 33554432\n" CARDS(
      "H200-SXM-141GB", "2") "[plan]\ndata_parallel = 2\nmicrobatches = 1\ngradient_buckets = 2\n";
  run r;
  do_run(&r, pair, NULL);
  const plan_program *program = &r.prediction.program;
  double gb_per_s[2] = {0, 0};
  for (uint32_t i = 0; i < program->instruction_count; i++) {
    const plan_instruction *reduce = &program->instructions[i];
    if (reduce->opcode != PLAN_ALL_REDUCE) continue;
    ck_assert_int_eq(program->collectives[reduce->class_id].bytes, 128 << 20);
    gb_per_s[reduce->part] = (128 << 20) / (r.prediction.timeline.end_s[i] - r.prediction.timeline.start_s[i]) / 1e9;
  }
  ck_assert(gb_per_s[0] > 70 && gb_per_s[0] < 140); /* while the second unit's backward runs */
  ck_assert(gb_per_s[1] > 230 && gb_per_s[1] < 380);
  end_run(&r);
}
END_TEST

START_TEST(recomputation_trades_memory_for_time) {
  run none, all, some;
  do_run(&none, sdxl, NULL);
  do_run(&all, sdxl, SETS("plan.recompute=all"));
  do_run(&some, sdxl, SETS("plan.recompute=[\"down_blocks.2.attentions.0.transformer_blocks.3\", 40]"));
  ck_assert_int_lt(peak(&all), peak(&some));
  ck_assert_int_lt(peak(&some), peak(&none));
  double none_s = 0, all_s = 0, some_s = 0;
  for (int w = 0; w < 4; w++) {
    none_s += none.prediction.metrics.workers[w].backward_s;
    all_s += all.prediction.metrics.workers[w].backward_s;
    some_s += some.prediction.metrics.workers[w].backward_s;
  }
  ck_assert_double_gt(some_s, none_s);
  ck_assert_double_gt(all_s, some_s);
  ck_assert_double_lt(all_s, 1.6 * none_s); /* one more forward on top of a backward of two */
  end_run(&none);
  end_run(&all);
  end_run(&some);
}
END_TEST

START_TEST(adapters_need_no_states_of_frozen_weights) {
  run full, lora;
  do_run(&full, sdxl, NULL);
  do_run(&lora, sdxl, SETS("task.trainable=lora", "task.lora_rank=16"));
  ck_assert_int_lt(peak(&lora), peak(&full));
  for (int w = 0; w < 4; w++) {
    const int64_t *f = full.prediction.memory.workers[w].at_peak_bytes,
                  *l = lora.prediction.memory.workers[w].at_peak_bytes;
    ck_assert_int_lt(l[PLAN_MEMORY_OPTIMIZER], f[PLAN_MEMORY_OPTIMIZER] / 10);
    ck_assert_int_lt(l[PLAN_MEMORY_GRADIENTS], f[PLAN_MEMORY_GRADIENTS] / 10);
    ck_assert_int_gt(l[PLAN_MEMORY_WEIGHTS], 0);
  }
  ck_assert_double_lt(lora.prediction.metrics.step_s, full.prediction.metrics.step_s);
  end_run(&full);
  end_run(&lora);
}
END_TEST

START_TEST(slower_links_and_smaller_cards_cost) {
  run nvlink, pcie, small;
  do_run(&nvlink, sdxl, NULL);
  do_run(&pcie, sdxl, SETS("cluster.file=clusters/8xa100-80gb-pcie.toml"));
  ck_assert_double_gt(pcie.prediction.metrics.step_s, nvlink.prediction.metrics.step_s);
  ck_assert(nvlink.prediction.fits);
  do_run(&small, sdxl, SETS("cluster.file=clusters/4xrtx4090.toml", "plan.microbatch_size=8"));
  ck_assert(!small.prediction.fits);
  const int w = small.prediction.tightest_worker;
  ck_assert_int_gt(small.prediction.memory.workers[w].peak_bytes, small.prediction.memory_limit_bytes[w]);
  end_run(&nvlink);
  end_run(&pcie);
  end_run(&small);
}
END_TEST

/* Small batches without CUDA graphs run at the host's pace. */
START_TEST(hosts_bound_small_batches) {
  run eager, graphs;
  do_run(&eager, sdxl, SETS("plan.microbatch_size=1", "task.implementation=pytorch-eager", "task.cuda_graphs=false"));
  do_run(&graphs, sdxl, SETS("plan.microbatch_size=1", "task.implementation=pytorch-eager"));
  ck_assert_double_gt(eager.prediction.metrics.step_s, 1.2 * graphs.prediction.metrics.step_s);
  double host = 0;
  for (int i = 0; i < eager.prediction.bound_count; i++)
    if (strcmp(eager.prediction.bounds[i].name, "host issuing work") == 0) host = eager.prediction.bounds[i].share;
  ck_assert_double_gt(host, 0.1);
  end_run(&eager);
  end_run(&graphs);
}
END_TEST

START_TEST(bounds_share_out_the_step) {
  static const char *const schedules[] = {"plan.schedule=gpipe",  "plan.schedule=1f1b",  "plan.schedule=interleaved",
                                          "plan.schedule=folded", "plan.schedule=zb-h1", "plan.schedule=zb-v"};
  for (size_t s = 0; s < 6; s++) {
    run r;
    do_run(&r, sdxl, SETS(schedules[s], "plan.data_parallel=2", "task.cuda_graphs=false"));
    double sum = 0;
    for (int i = 0; i < r.prediction.bound_count; i++) {
      ck_assert_double_gt(r.prediction.bounds[i].share, 0);
      if (i) ck_assert_double_le(r.prediction.bounds[i].share, r.prediction.bounds[i - 1].share);
      sum += r.prediction.bounds[i].share;
    }
    ck_assert_double_eq_tol(sum, 1, 1e-4);
    const int64_t resting = r.prediction.memory.workers[0].resting_bytes;
    ck_assert_int_gt(resting, 0);
    ck_assert_int_lt(resting, r.prediction.memory.workers[0].peak_bytes);
    end_run(&r);
  }
}
END_TEST

START_TEST(sampling_hands_latents_round) {
  static const char *const schedules[] = {"plan.schedule=1f1b", "plan.schedule=interleaved", "plan.schedule=folded"};
  for (size_t s = 0; s < 3; s++) {
    run r;
    do_run(&r, sdxl, SETS(schedules[s], "task.kind=sample", "task.steps=5", "plan.microbatches=4"));
    const int64_t latents = r.prediction.metrics.comm_bytes_by_kind[PLAN_TRAFFIC_LATENT];
    /* folded ends where it starts; else 4 hand-overs of 4 microbatches of 2 latents of 131,072 bytes */
    ck_assert_int_eq(latents, s == 2 ? 0 : 4 * 4 * 2 * 131072);
    ck_assert_int_eq(r.prediction.memory.workers[0].at_peak_bytes[PLAN_MEMORY_OPTIMIZER], 0);
    ck_assert_double_eq_tol(r.prediction.metrics.throughput_samples_per_s, 8 / r.prediction.metrics.step_s, 1e-9);
    end_run(&r);
  }
}
END_TEST

START_TEST(plans_that_cannot_be_are_named) {
  static const struct {
    const char *set, *expected;
  } cases[] = {
      {"plan.stages=33", ": plan.stages: found 33"},
      {"plan.split=[8, 16]", "plan.split: found 2 cut points, allowed: 3"},
      {"plan.split=[8, 16, 32]", "plan.split: found 32, allowed: at most 31 (units - 1)"},
      {"plan.recompute=[\"nothing\"]", "plan.recompute: found \"nothing\", allowed: a unit's name"},
      {"plan.recompute=[32]", "plan.recompute: found unit 32, allowed: 0 to 31"},
      {"task.implementation=magic",
       "--set task.implementation=magic: task.implementation: found \"magic\", allowed: fused, pytorch-eager"},
      {"plan.chunks=9", "9 chunk"},
      {"plan.skip_policy=local", "--set plan.skip_policy=local: plan.skip_policy: found local, but "},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    run r;
    dp_error error = DP_ERROR_INIT;
    const bool interleaved = strcmp(cases[i].set, "plan.chunks=9") == 0;
    const bool local = strcmp(cases[i].set, "plan.skip_policy=local") == 0; /* needs a model with skips */
    ck_assert_int_eq(try_run(&r, local ? sdxl : study,
                             SETS(cases[i].set, interleaved ? "plan.schedule=interleaved" : "name=x"), &error),
                     DP_BAD_INPUT);
    ck_assert_msg(strstr(error.text, cases[i].expected) != NULL, "%s: found: %s\nwanted: %s", cases[i].set, error.text,
                  cases[i].expected);
  }
}
END_TEST

/* SDXL with LoRA on 16 + 24 GB, so much at once that the balanced split does not fit: of all splits that do, the
 * default is the fastest but for what the slowest worker does not tell of the step. */
START_TEST(unlike_cards_get_a_split_that_fits) {
  static const char unlike[] = HEAD SDXL
      "text_tokens = 77\n"
      "[task]\nkind = \"train\"\ntrainable = \"lora\"\nglobal_batch = 16\n"
      "[cluster]\nfile = \"clusters/unlike-16gb-24gb.toml\"\n"
      "[plan]\nstages = 2\nschedule = \"1f1b\"\nmicrobatch_size = 4\n";
  run chosen;
  do_run(&chosen, unlike, NULL);
  ck_assert(chosen.prediction.fits);
  double fastest_s = INFINITY, fitting_s = INFINITY;
  bool fastest_fits = false;
  for (int cut = 1; cut < (int)chosen.prediction.graph.units.count; cut++) {
    char split[40];
    run r;
    (void)snprintf(split, sizeof split, "plan.split=[%d]", cut);
    do_run(&r, unlike, SETS(split));
    const double step_s = r.prediction.metrics.step_s;
    if (step_s < fastest_s) {
      fastest_s = step_s;
      fastest_fits = r.prediction.fits;
    }
    if (r.prediction.fits) fitting_s = fmin(fitting_s, step_s);
    end_run(&r);
  }
  ck_assert(!fastest_fits);
  ck_assert_double_le(chosen.prediction.metrics.step_s, fitting_s * 1.01);
  end_run(&chosen);
}
END_TEST

/* Every schedule that has a choice: a little less memory than the balanced split needs, and another one is found, or
 * the balanced one is kept as it was. */
START_TEST(a_split_is_only_changed_to_fit) {
  static const char text[] =
      HEAD SDXL "text_tokens = 77\n"
      "[task]\nkind = \"train\"\n"
      CARDS("A100-SXM4-80GB", "4") "memory_limit_gb = %g\n"
      "[plan]\nstages = 4\nmicrobatches = 8\nmicrobatch_size = 1\nsplit = \"balanced\"\n";
  static const char *const schedules[] = {"plan.schedule=gpipe",  "plan.schedule=1f1b",  "plan.schedule=interleaved",
                                          "plan.schedule=folded", "plan.schedule=zb-h1", "plan.schedule=zb-v"};
  for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
    char wide[1024], tight[1024], none[1024];
    run balanced, changed, kept;
    (void)snprintf(wide, sizeof wide, text, 80.0);
    do_run(&balanced, wide, SETS(schedules[s]));
    ck_assert(balanced.prediction.fits);
    (void)snprintf(tight, sizeof tight, text, 0.95e-9 * (double)peak(&balanced));
    do_run(&changed, tight, SETS(schedules[s]));
    ck_assert(changed.prediction.fits);
    (void)snprintf(none, sizeof none, text, 0.2e-9 * (double)peak(&balanced));
    do_run(&kept, none, SETS(schedules[s]));
    ck_assert(!kept.prediction.fits);
    ck_assert_int_eq(kept.prediction.plan.chunk_count, balanced.prediction.plan.chunk_count);
    for (int c = 0; c < kept.prediction.plan.chunk_count; c++)
      ck_assert_int_eq(kept.prediction.plan.chunks[c].first_unit, balanced.prediction.plan.chunks[c].first_unit);
    end_run(&balanced);
    end_run(&changed);
    end_run(&kept);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {closed_forms_from_a_file,
                                zero_bubble_thirds_the_bubble,
                                the_same_input_gives_the_same_bits,
                                an_open_folded_split_is_the_faster_one,
                                folded_moves_a_fifth_of_relay,
                                compression_moves_less_and_costs_compute,
                                boundary_tensors_are_not_projected,
                                stages_are_cut_for_their_slowest_replica,
                                collectives_wait_for_compute,
                                recomputation_trades_memory_for_time,
                                adapters_need_no_states_of_frozen_weights,
                                slower_links_and_smaller_cards_cost,
                                hosts_bound_small_batches,
                                bounds_share_out_the_step,
                                sampling_hands_latents_round,
                                unlike_cards_get_a_split_that_fits,
                                a_split_is_only_changed_to_fit,
                                plans_that_cannot_be_are_named};
  return suite_run("sim_predict", tests, sizeof tests / sizeof tests[0], read_efficiency, free_efficiency, 300);
}
