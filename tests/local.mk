# Check suites: one program a house. To add one: a name in CHECK_SUITES and its _SOURCES and _LDADD.
TEST_LIBS = $(SIM_LIBS) $(CHECK_LIBS)
AM_CFLAGS += $(CHECK_CFLAGS)
CHECK_SUITES = tests/test_base tests/test_cli
tests_test_base_SOURCES = tests/test_base.c tests/suite.h
tests_test_base_LDADD = $(BASE_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_base_range
tests_test_base_range_SOURCES = tests/test_base_range.c
tests_test_base_range_LDADD = $(BASE_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_base_tree tests/test_base_file
tests_test_base_tree_SOURCES = tests/test_base_tree.c
tests_test_base_tree_LDADD = $(BASE_LIBS) $(CHECK_LIBS)
tests_test_base_file_SOURCES = tests/test_base_file.c tests/scratch.h tests/suite.h
tests_test_base_file_LDADD = $(BASE_LIBS) $(CHECK_LIBS) -lutil
tests_test_cli_SOURCES = tests/test_cli.c cli/options.c
tests_test_cli_LDADD = $(BASE_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_run_memory
tests_test_run_memory_SOURCES = tests/test_run_memory.c cli/candidate.c cli/run_memory.c tests/sim_efficiency.h tests/suite.h
tests_test_run_memory_LDADD = $(TEST_LIBS)
if HAVE_CHECK
check_PROGRAMS += $(CHECK_SUITES)
TESTS += $(CHECK_SUITES)
endif

# Scripts run with the folders and the program in their environment.
AM_TESTS_ENVIRONMENT = SRCDIR='$(abs_top_srcdir)'; BUILDDIR='$(abs_top_builddir)'; DIFFPIPE='$(abs_top_builddir)/diffpipe'; \
	DIFFPIPE_DATA_DIR='$(abs_top_srcdir)/scenarios'; CC='$(CC)'; CXX='$(CXX)'; \
	CUDA_CPPFLAGS='$(CUDA_CPPFLAGS)'; CK_DEFAULT_TIMEOUT=120; \
	export SRCDIR BUILDDIR DIFFPIPE DIFFPIPE_DATA_DIR CC CXX CUDA_CPPFLAGS CK_DEFAULT_TIMEOUT;
SCRIPT_TESTS = tests/golden.sh tests/check_banned.sh tests/check_formats.sh tests/check_headers.sh tests/check_includes.sh tests/test_program.sh
TESTS += $(SCRIPT_TESTS)
EXTRA_DIST += $(SCRIPT_TESTS) tests/lib.sh tests/golden tests/fuzz tests/reference

# Benchmarks: `make bench` writes bench.json. To add one: a name in BENCHES, its _SOURCES (with tests/bench.h) and _LDADD.
BENCHES = tests/bench_sim tests/bench_trial
tests_bench_trial_SOURCES = tests/bench_trial.c tests/bench.h
tests_bench_trial_LDADD = $(SIM_LIBS)
EXTRA_PROGRAMS += $(BENCHES)
EXTRA_DIST += tests/bench.h tests/bench.sh
CLEANFILES += $(BENCHES) bench.json
bench: $(BENCHES)
	SRCDIR='$(abs_top_srcdir)' DIFFPIPE_DATA_DIR='$(abs_top_srcdir)/scenarios' $(srcdir)/tests/bench.sh bench.json $(BENCHES)
.PHONY: bench print-tests
print-tests:
	@echo $(TESTS)
CHECK_SUITES += tests/test_plan_cluster
tests_test_plan_cluster_SOURCES = tests/test_plan_cluster.c tests/suite.h
tests_test_plan_cluster_LDADD = $(PLAN_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_sim_network
tests_test_sim_network_SOURCES = tests/test_sim_network.c tests/sim_reference.c tests/sim_reference.h
tests_test_sim_network_LDADD = $(TEST_LIBS)
CHECK_SUITES += tests/test_sim_cost
tests_test_sim_cost_SOURCES = tests/test_sim_cost.c tests/sim_efficiency.h tests/suite.h
tests_test_sim_cost_LDADD = $(TEST_LIBS)
CHECK_SUITES += tests/test_plan_memory tests/test_plan_program tests/test_plan_schedule
PLAN_REFERENCE = tests/plan_reference.c tests/plan_reference.h tests/suite.h
tests_test_plan_memory_SOURCES = tests/test_plan_memory.c $(PLAN_REFERENCE)
tests_test_plan_memory_LDADD = $(PLAN_LIBS) $(CHECK_LIBS)
tests_test_plan_program_SOURCES = tests/test_plan_program.c $(PLAN_REFERENCE)
tests_test_plan_program_LDADD = $(PLAN_LIBS) $(CHECK_LIBS)
tests_test_plan_schedule_SOURCES = tests/test_plan_schedule.c $(PLAN_REFERENCE)
tests_test_plan_schedule_LDADD = $(PLAN_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_plan_machine
tests_test_plan_machine_SOURCES = tests/test_plan_machine.c tests/suite.h
tests_test_plan_machine_LDADD = $(PLAN_LIBS) $(CHECK_LIBS)
SCRIPT_TESTS += tests/machine.sh
EXTRA_DIST += tests/machine tests/fake_nvml.c
CHECK_SUITES += tests/test_plan_transport
tests_test_plan_transport_SOURCES = tests/test_plan_transport.c tests/suite.h
tests_test_plan_transport_LDADD = $(PLAN_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_plan_scenario
tests_test_plan_scenario_SOURCES = tests/test_plan_scenario.c tests/suite.h
tests_test_plan_scenario_LDADD = $(PLAN_LIBS) $(CHECK_LIBS)
SCRIPT_TESTS += tests/test_inspect.sh
CHECK_SUITES += tests/test_graph tests/test_graph_memory tests/test_graph_ops
tests_test_graph_SOURCES = tests/test_graph.c tests/graph_helpers.h tests/suite.h
tests_test_graph_LDADD = $(GRAPH_LIBS) $(CHECK_LIBS)
tests_test_graph_memory_SOURCES = tests/test_graph_memory.c tests/graph_helpers.h tests/suite.h
tests_test_graph_memory_LDADD = $(GRAPH_LIBS) $(CHECK_LIBS)
tests_test_graph_ops_SOURCES = tests/test_graph_ops.c tests/graph_helpers.h tests/suite.h
tests_test_graph_ops_LDADD = $(GRAPH_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_plan_split
tests_test_plan_split_SOURCES = tests/test_plan_split.c
tests_test_plan_split_LDADD = $(PLAN_LIBS) $(CHECK_LIBS)
SCRIPT_TESTS += tests/bad.sh
EXTRA_DIST += tests/bad
CHECK_SUITES += tests/test_sim_predict
tests_test_sim_predict_SOURCES = tests/test_sim_predict.c tests/scratch.h tests/sim_efficiency.h tests/sim_texts.h tests/suite.h
tests_test_sim_predict_LDADD = $(TEST_LIBS)
SIM_TEST_SOURCES = tests/sim_programs.c tests/sim_programs.h tests/sim_reference.c tests/sim_reference.h
SIM_LAW_SOURCES = tests/sim_laws.c tests/sim_laws.h tests/timeline_order.h $(SIM_TEST_SOURCES)
CHECK_SUITES += tests/test_sim_engine tests/test_sim_compiled
tests_test_sim_engine_SOURCES = tests/test_sim_engine.c $(SIM_LAW_SOURCES)
tests_test_sim_engine_LDADD = $(TEST_LIBS)
tests_test_sim_compiled_SOURCES = tests/test_sim_compiled.c tests/plan_reference.c tests/plan_reference.h $(SIM_LAW_SOURCES)
tests_test_sim_compiled_LDADD = $(TEST_LIBS)
tests_bench_sim_SOURCES = tests/bench_sim.c tests/bench.h tests/peer_simgrid.h $(SIM_TEST_SOURCES)
tests_bench_sim_LDADD = $(SIM_LIBS)
if HAVE_SIMGRID
tests_bench_sim_SOURCES += tests/peer_simgrid.cc
tests_bench_sim_LDADD += $(SIMGRID_LIBS)
endif
CHECK_SUITES += tests/test_reports
tests_test_reports_SOURCES = tests/test_reports.c tests/reports_fixture.c tests/reports_fixture.h
tests_test_reports_LDADD = $(REPORTS_LIBS) $(CHECK_LIBS)
# tests/scenarios.sh compares with scenarios/*.expected.json; DIFFPIPE_REWRITE=1 rewrites them
check_PROGRAMS += tests/json_equal
tests_json_equal_SOURCES = tests/json_equal.c
tests_json_equal_LDADD = $(BASE_LIBS)
SCRIPT_TESTS += tests/scenarios.sh
EXTRA_DIST += \
	scenarios/flux-batch4-8xh100.expected.json \
	scenarios/flux-image-8xh100.expected.json \
	scenarios/flux-lora-4xrtx4090.expected.json \
	scenarios/sd15-4xrtx3090.expected.json \
	scenarios/sd3-8xh100.expected.json \
	scenarios/sdxl-2x8xa100-ib.expected.json \
	scenarios/sdxl-8xa100-pcie.expected.json \
	scenarios/sdxl-8xa100-sxm.expected.json \
	scenarios/sdxl-h200-virtual4.expected.json \
	scenarios/sdxl-unlike-16gb-24gb.expected.json \
	scenarios/study-1f1b.expected.json \
	scenarios/whatif-sdxl.expected.json
CHECK_SUITES += tests/test_sim_choices
tests_test_sim_choices_SOURCES = tests/test_sim_choices.c tests/scratch.h tests/sim_efficiency.h tests/sim_texts.h tests/suite.h
tests_test_sim_choices_LDADD = $(TEST_LIBS)
CHECK_SUITES += tests/test_sim_links
tests_test_sim_links_SOURCES = tests/test_sim_links.c tests/scratch.h tests/sim_efficiency.h tests/sim_texts.h tests/suite.h
tests_test_sim_links_LDADD = $(TEST_LIBS)
CHECK_SUITES += tests/test_sim_transport
tests_test_sim_transport_SOURCES = tests/test_sim_transport.c tests/sim_efficiency.h tests/sim_texts.h tests/suite.h
tests_test_sim_transport_LDADD = $(TEST_LIBS)
CHECK_SUITES += tests/test_sim_tune
tests_test_sim_tune_SOURCES = tests/test_sim_tune.c tests/sim_efficiency.h tests/sim_texts.h tests/suite.h
tests_test_sim_tune_LDADD = $(TEST_LIBS)
CHECK_SUITES += tests/test_sim_whatif
tests_test_sim_whatif_SOURCES = tests/test_sim_whatif.c tests/scratch.h tests/sim_efficiency.h tests/suite.h
tests_test_sim_whatif_LDADD = $(TEST_LIBS)
CHECK_SUITES += tests/test_sim_partition
tests_test_sim_partition_SOURCES = tests/test_sim_partition.c
tests_test_sim_partition_LDADD = $(TEST_LIBS)
BENCHES += tests/bench_partition
tests_bench_partition_SOURCES = tests/bench_partition.c tests/bench.h
tests_bench_partition_LDADD = $(SIM_LIBS)
CHECK_SUITES += tests/test_graph_shard
tests_test_graph_shard_SOURCES = tests/test_graph_shard.c tests/graph_helpers.h tests/suite.h
tests_test_graph_shard_LDADD = $(GRAPH_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_sim_baseline
tests_test_sim_baseline_SOURCES = tests/test_sim_baseline.c tests/sim_efficiency.h tests/sim_texts.h tests/suite.h
tests_test_sim_baseline_LDADD = $(TEST_LIBS)
EXTRA_DIST += scenarios/sdxl-8x8xa100-ib.expected.json
CHECK_SUITES += tests/test_sim_grid
tests_test_sim_grid_SOURCES = tests/test_sim_grid.c tests/sim_efficiency.h tests/suite.h
tests_test_sim_grid_LDADD = $(TEST_LIBS)
BENCHES += tests/bench_tune
tests_bench_tune_SOURCES = tests/bench_tune.c tests/bench.h
tests_bench_tune_LDADD = $(SIM_LIBS)
EXTRA_DIST += scenarios/sdxl-4x1rtx4090-ethernet.expected.json
CHECK_SUITES += tests/test_plan_dpipe tests/test_sim_advise
tests_test_plan_dpipe_SOURCES = tests/test_plan_dpipe.c tests/scratch.h tests/suite.h
tests_test_plan_dpipe_LDADD = $(PLAN_LIBS) $(CHECK_LIBS)
tests_test_sim_advise_SOURCES = tests/test_sim_advise.c tests/scratch.h tests/sim_efficiency.h tests/suite.h
tests_test_sim_advise_LDADD = $(TEST_LIBS)
SCRIPT_TESTS += tests/report.sh
CHECK_SUITES += tests/test_sim_study
tests_test_sim_study_SOURCES = tests/test_sim_study.c tests/sim_efficiency.h tests/sim_texts.h tests/suite.h
tests_test_sim_study_LDADD = $(TEST_LIBS)
CHECK_SUITES += tests/test_report_page
tests_test_report_page_SOURCES = tests/test_report_page.c tests/reports_fixture.c tests/reports_fixture.h
tests_test_report_page_LDADD = $(REPORTS_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_sim_tensor
tests_test_sim_tensor_SOURCES = tests/test_sim_tensor.c tests/sim_efficiency.h tests/sim_texts.h tests/suite.h
tests_test_sim_tensor_LDADD = $(TEST_LIBS)
SCRIPT_TESTS += tests/test_advise.sh
CHECK_SUITES += tests/test_exec_scheduler
tests_test_exec_scheduler_SOURCES = tests/test_exec_scheduler.c
tests_test_exec_scheduler_LDADD = $(EXEC_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_sim_sweep tests/test_plan_change
tests_test_sim_sweep_SOURCES = tests/test_sim_sweep.c
tests_test_sim_sweep_LDADD = $(TEST_LIBS)
tests_test_plan_change_SOURCES = tests/test_plan_change.c
tests_test_plan_change_LDADD = $(PLAN_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_base_safetensors
tests_test_base_safetensors_SOURCES = tests/test_base_safetensors.c tests/scratch.h tests/suite.h
tests_test_base_safetensors_LDADD = $(BASE_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_fixtures
tests_test_fixtures_SOURCES = tests/test_fixtures.c tests/fixtures.h tests/suite.h
tests_test_fixtures_LDADD = $(EXEC_LIBS) $(CHECK_LIBS)
EXTRA_DIST += tests/fixtures
CHECK_SUITES += tests/test_exec_weights
tests_test_exec_weights_SOURCES = tests/test_exec_weights.c tests/graph_helpers.h tests/scratch.h tests/suite.h
tests_test_exec_weights_LDADD = $(EXEC_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_kernels_halves
tests_test_kernels_halves_SOURCES = tests/test_kernels_halves.c tests/suite.h
tests_test_kernels_halves_LDADD = $(CHECK_LIBS)
CHECK_SUITES += tests/test_kernels
OPS_TABLE = tests/kernels_moves.c tests/kernels_ops.c tests/kernels_ops.h tests/kernels_products.c tests/kernels_rows.c tests/kernels_sizes.h
tests_test_kernels_SOURCES = tests/test_kernels.c tests/suite.h $(OPS_TABLE)
tests_test_kernels_LDADD = $(KERNELS_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_exec_adapter
tests_test_exec_adapter_SOURCES = tests/test_exec_adapter.c tests/graph_helpers.h tests/scratch.h tests/suite.h
tests_test_exec_adapter_LDADD = $(EXEC_LIBS) $(CHECK_LIBS) -lm
if HAVE_OPENBLAS
BENCHES += tests/bench_kernels
tests_bench_kernels_SOURCES = tests/bench_kernels.c tests/bench.h
tests_bench_kernels_CPPFLAGS = $(AM_CPPFLAGS) $(OPENBLAS_CFLAGS)
tests_bench_kernels_LDADD = $(KERNELS_LIBS)
endif
CHECK_SUITES += tests/test_exec_model
tests_test_exec_model_SOURCES = tests/test_exec_model.c tests/exec_cuts.c tests/exec_cuts.h \
	tests/exec_fused.c tests/exec_fused.h tests/fixtures.h tests/suite.h
tests_test_exec_model_LDADD = $(EXEC_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_exec_fusion
tests_test_exec_fusion_SOURCES = tests/test_exec_fusion.c tests/fixtures.h tests/suite.h
tests_test_exec_fusion_LDADD = $(EXEC_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_exec_step
tests_test_exec_step_SOURCES = tests/test_exec_step.c tests/exec_fixture.h tests/exec_memory.h tests/fixtures.h tests/sim_efficiency.h tests/suite.h
tests_test_exec_step_LDADD = $(EXEC_LIBS) $(SIM_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_exec_pipeline
tests_test_exec_pipeline_SOURCES = tests/test_exec_pipeline.c tests/exec_fixture.h tests/exec_memory.h tests/fixtures.h tests/sim_efficiency.h tests/suite.h tests/timeline_order.h
tests_test_exec_pipeline_LDADD = $(EXEC_LIBS) $(SIM_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_plan_memory_random
tests_test_plan_memory_random_SOURCES = tests/test_plan_memory_random.c $(PLAN_REFERENCE)
tests_test_plan_memory_random_LDADD = $(PLAN_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_exec_checkpoint
tests_test_exec_checkpoint_SOURCES = tests/test_exec_checkpoint.c tests/scratch.h tests/suite.h
tests_test_exec_checkpoint_LDADD = $(EXEC_LIBS) $(CHECK_LIBS) -lm
EXTRA_DIST += scenarios/tiny-sd3-2xcpu.expected.json scenarios/tiny-unet-2xcpu.expected.json
CHECK_SUITES += tests/test_plan_compare
COMPARE_WORLD = tests/compare_world.c tests/compare_world.h
tests_test_plan_compare_SOURCES = tests/test_plan_compare.c tests/sim_efficiency.h tests/sim_texts.h tests/suite.h $(COMPARE_WORLD)
tests_test_plan_compare_LDADD = $(TEST_LIBS)
CHECK_SUITES += tests/test_exec_objective
tests_test_exec_objective_SOURCES = tests/test_exec_objective.c tests/fixtures.h tests/suite.h
tests_test_exec_objective_LDADD = $(EXEC_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_exec_data tests/test_exec_dataset tests/test_exec_image tests/test_exec_order
tests_test_exec_image_SOURCES = tests/test_exec_image.c tests/fixtures.h tests/suite.h
tests_test_exec_image_LDADD = $(EXEC_LIBS) $(CHECK_LIBS) -lm
tests_test_exec_data_SOURCES = tests/test_exec_data.c tests/scratch.h tests/suite.h
tests_test_exec_data_LDADD = $(EXEC_LIBS) $(CHECK_LIBS) -lm
tests_test_exec_order_SOURCES = tests/test_exec_order.c tests/suite.h
tests_test_exec_order_LDADD = $(EXEC_LIBS) $(CHECK_LIBS)
tests_test_exec_dataset_SOURCES = tests/test_exec_dataset.c tests/scratch.h tests/suite.h
tests_test_exec_dataset_LDADD = $(EXEC_LIBS) $(CHECK_LIBS) -lm
# tests/compare.sh reads folders that this writes
check_PROGRAMS += tests/make_run
tests_make_run_SOURCES = tests/make_run.c $(COMPARE_WORLD)
tests_make_run_LDADD = $(REPORTS_LIBS)
SCRIPT_TESTS += tests/test_data.sh
CHECK_SUITES += tests/test_plan_profile
tests_test_plan_profile_SOURCES = tests/test_plan_profile.c tests/graph_helpers.h tests/profile_text.h tests/scratch.h tests/suite.h
tests_test_plan_profile_LDADD = $(PLAN_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_sim_profile
tests_test_sim_profile_SOURCES = tests/test_sim_profile.c tests/fixtures.h tests/scratch.h tests/sim_efficiency.h tests/suite.h
tests_test_sim_profile_LDADD = $(TEST_LIBS)
SCRIPT_TESTS += tests/calibrate.sh
CHECK_SUITES += tests/test_report_compare
tests_test_report_compare_SOURCES = tests/test_report_compare.c tests/scratch.h tests/sim_efficiency.h tests/sim_texts.h tests/suite.h $(COMPARE_WORLD)
tests_test_report_compare_LDADD = $(REPORTS_LIBS) $(CHECK_LIBS)
SCRIPT_TESTS += tests/compare.sh
CHECK_SUITES += tests/test_sim_fallback
tests_test_sim_fallback_SOURCES = tests/test_sim_fallback.c tests/sim_efficiency.h tests/sim_texts.h tests/suite.h
tests_test_sim_fallback_LDADD = $(TEST_LIBS)
CHECK_SUITES += tests/test_exec_reshard
tests_test_exec_reshard_SOURCES = tests/test_exec_reshard.c tests/fixtures.h tests/scratch.h tests/sim_efficiency.h tests/suite.h tests/train_world.h
tests_test_exec_reshard_LDADD = $(EXEC_LIBS) $(SIM_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_exec_session
tests_test_exec_session_SOURCES = tests/test_exec_session.c tests/fixtures.h tests/scratch.h tests/sim_efficiency.h tests/suite.h tests/train_world.h
tests_test_exec_session_LDADD = $(EXEC_LIBS) $(SIM_LIBS) $(CHECK_LIBS) -lm
SCRIPT_TESTS += tests/test_run.sh tests/test_run_monitor.sh
BENCHES += tests/bench_step
tests_bench_step_SOURCES = tests/bench_step.c tests/bench.h tests/bench_peer.h tests/exec_fixture.h tests/fixtures.h tests/resident.h
tests_bench_step_LDADD = $(EXEC_LIBS) $(SIM_LIBS) -lm
EXTRA_DIST += tests/bench_step.json
BENCHES += tests/bench_loop
tests_bench_loop_SOURCES = tests/bench_loop.c tests/bench.h
tests_bench_loop_LDADD = libsim.a $(EXEC_LIBS)
check_PROGRAMS += tests/mpi_transport
tests_mpi_transport_SOURCES = tests/mpi_transport.c
tests_mpi_transport_LDADD = $(EXEC_LIBS)
SCRIPT_TESTS += tests/test_mpi.sh tests/test_mpi_memory.sh tests/mpi_namespaces.sh
EXTRA_DIST += tests/mpi.sh tests/mpi.supp tests/mpi.tsan
SCRIPT_TESTS += tests/test_run_mpi.sh
EXTRA_DIST += tests/run.sh
CHECK_SUITES += tests/test_exec_memory
tests_test_exec_memory_SOURCES = tests/test_exec_memory.c tests/exec_fixture.h tests/exec_memory.h tests/fixtures.h tests/resident.h tests/sim_efficiency.h tests/suite.h
tests_test_exec_memory_LDFLAGS = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc
tests_test_exec_memory_LDADD = $(EXEC_LIBS) $(SIM_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_exec_stall
tests_test_exec_stall_SOURCES = tests/test_exec_stall.c tests/exec_fixture.h tests/exec_memory.h tests/fixtures.h tests/sim_efficiency.h tests/suite.h
tests_test_exec_stall_LDADD = $(EXEC_LIBS) $(SIM_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_exec_place
tests_test_exec_place_SOURCES = tests/test_exec_place.c tests/exec_fixture.h tests/fixtures.h tests/suite.h tests/timeline_order.h
tests_test_exec_place_LDADD = $(EXEC_LIBS) $(SIM_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_plan_places
tests_test_plan_places_SOURCES = tests/test_plan_places.c tests/fixtures.h $(PLAN_REFERENCE)
tests_test_plan_places_LDADD = $(PLAN_LIBS) $(CHECK_LIBS)
check_PROGRAMS += tests/exec_mpi
tests_exec_mpi_SOURCES = tests/exec_mpi.c tests/exec_fixture.h tests/fixtures.h tests/timeline_order.h
tests_exec_mpi_LDADD = $(EXEC_LIBS) $(SIM_LIBS)
SCRIPT_TESTS += tests/test_exec_mpi.sh
EXTRA_DIST += tests/exec_mpi.sh
CHECK_SUITES += tests/test_exec_algorithms
tests_test_exec_algorithms_SOURCES = tests/test_exec_algorithms.c tests/scratch.h tests/suite.h
tests_test_exec_algorithms_LDADD = $(EXEC_LIBS) $(CHECK_LIBS)
SCRIPT_TESTS += tests/test_cuda_libraries.sh tests/test_cuda_monitor.sh tests/test_cuda_resume.sh
if HAVE_CUDA_BACKEND
# CUDA's kernels on a device; skipped without one. Plain programs: the machine with the GPU need not have Check.
check_PROGRAMS += tests/test_cuda_kernels tests/test_cuda_exec tests/test_cuda_fixtures tests/test_cuda_state
TESTS += tests/test_cuda_kernels tests/test_cuda_exec tests/test_cuda_fixtures tests/test_cuda_state
tests_test_cuda_state_SOURCES = tests/test_cuda_state.c tests/cuda_checks.h tests/exec_fixture.h tests/fixtures.h
tests_test_cuda_state_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_test_cuda_state_LDADD = $(EXEC_LIBS) $(SIM_LIBS) -lm
check_PROGRAMS += tests/cuda_processes
tests_cuda_processes_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_cuda_processes_SOURCES = tests/cuda_processes.c tests/cuda_bounds.h tests/cuda_plans.h tests/exec_fixture.h tests/fixtures.h tests/timeline_order.h
tests_cuda_processes_LDADD = $(EXEC_LIBS) $(SIM_LIBS)
tests_test_cuda_exec_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_test_cuda_exec_SOURCES = tests/test_cuda_exec.c tests/cuda_bounds.h tests/cuda_checks.h tests/cuda_plans.h tests/exec_fixture.h tests/fixtures.h tests/timeline_order.h
tests_test_cuda_exec_LDADD = $(EXEC_LIBS) $(SIM_LIBS)
tests_test_cuda_fixtures_SOURCES = tests/test_cuda_fixtures.c tests/cuda_checks.h tests/exec_fixture.h tests/fixtures.h
tests_test_cuda_fixtures_LDADD = $(EXEC_LIBS) $(SIM_LIBS)
# own files over stand-ins of what they call, so it needs no device
CHECK_SUITES += tests/test_cuda_engine tests/test_cuda_remember tests/test_cuda_shifts
tests_test_cuda_engine_SOURCES = tests/test_cuda_engine.c tests/suite.h kernels/cuda/engine.c kernels/cuda/memory.c
tests_test_cuda_engine_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_test_cuda_engine_LDADD = $(CHECK_LIBS)
CHECK_SUITES += tests/test_cuda_nccl
tests_test_cuda_nccl_SOURCES = tests/test_cuda_nccl.c tests/suite.h exec/device_cuda_nccl.c
tests_test_cuda_nccl_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_test_cuda_nccl_LDADD = $(BASE_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_cuda_graphs
tests_test_cuda_graphs_SOURCES = tests/test_cuda_graphs.c tests/suite.h exec/device_cuda_graphs.c
tests_test_cuda_graphs_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_test_cuda_graphs_LDADD = $(BASE_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_cuda_ring
tests_test_cuda_ring_SOURCES = tests/test_cuda_ring.c tests/suite.h exec/device_cuda_ring.c
tests_test_cuda_ring_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_test_cuda_ring_LDADD = $(BASE_LIBS) $(CHECK_LIBS)
CHECK_SUITES += tests/test_cuda_queues
tests_test_cuda_queues_SOURCES = tests/test_cuda_queues.c tests/sim_efficiency.h tests/sim_texts.h tests/suite.h exec/device_cuda_queues.c
tests_test_cuda_queues_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_test_cuda_queues_LDADD = $(SIM_LIBS) $(CHECK_LIBS)
tests_test_cuda_remember_SOURCES = tests/test_cuda_remember.c tests/suite.h \
	kernels/cuda/attention.c kernels/cuda/attention_plan.c kernels/cuda/cache.c kernels/cuda/conv.c kernels/cuda/execute.c \
	kernels/cuda/linear.c kernels/cuda/memory.c kernels/cuda/products.c
tests_test_cuda_remember_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_test_cuda_remember_LDADD = $(CHECK_LIBS)
tests_test_cuda_shifts_SOURCES = tests/test_cuda_shifts.c tests/kernels_ops.h tests/kernels_sizes.h tests/suite.h kernels/cuda/conv_shifts.c
tests_test_cuda_shifts_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_test_cuda_shifts_LDADD = $(CHECK_LIBS)
check_PROGRAMS += tests/cuda_libraries
tests_cuda_libraries_SOURCES = tests/cuda_libraries.c
tests_cuda_libraries_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_cuda_libraries_LDADD = $(KERNELS_LIBS)
# not of BENCHES, which any machine runs: tests/gpu/run.sh and multi.sh run them; made by every check, so that they compile
check_PROGRAMS += tests/bench_cuda_kernels tests/bench_cuda_links tests/bench_cuda_step
tests_bench_cuda_links_SOURCES = tests/bench_cuda_links.c tests/cuda_links.c tests/cuda_links.h tests/cuda_links_nccl.c
tests_bench_cuda_links_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_bench_cuda_links_LDADD = $(EXEC_LIBS) $(SIM_LIBS) -lm
tests_bench_cuda_step_SOURCES = tests/bench_cuda_step.c
tests_bench_cuda_step_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_bench_cuda_step_LDADD = $(EXEC_LIBS) $(SIM_LIBS) -lm
tests_test_cuda_kernels_SOURCES = tests/test_cuda_kernels.c tests/cuda_plans.h tests/cuda_adamw.c tests/cuda_arrays.h tests/cuda_device.c tests/cuda_device.h tests/cuda_moves.c tests/cuda_ops.c tests/cuda_ops.h tests/cuda_remember.c tests/cuda_shifts.c tests/cuda_siblings.c tests/cuda_special.c tests/cuda_suite.h tests/cuda_trial.c $(OPS_TABLE)
tests_test_cuda_kernels_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_test_cuda_kernels_LDADD = $(KERNELS_LIBS)
tests_bench_cuda_kernels_SOURCES = tests/bench_cuda_kernels.c tests/bench.h tests/cuda_device.c tests/cuda_device.h tests/cuda_moves.c tests/cuda_ops.c tests/cuda_ops.h $(OPS_TABLE)
tests_bench_cuda_kernels_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_bench_cuda_kernels_LDADD = $(KERNELS_LIBS)
endif
EXTRA_DIST += tests/gpu
CHECK_SUITES += tests/test_profiler_classes tests/test_profiler_record tests/test_profiler_steps tests/test_profiler_summary
tests_test_profiler_classes_SOURCES = tests/test_profiler_classes.c tests/suite.h
tests_test_profiler_classes_LDADD = $(PROFILER_LIBS) $(CHECK_LIBS) -lm
tests_test_profiler_record_SOURCES = tests/test_profiler_record.c tests/profiler_world.h tests/scratch.h tests/suite.h
tests_test_profiler_record_LDADD = $(PROFILER_LIBS) $(CHECK_LIBS) -lm
tests_test_profiler_steps_SOURCES = tests/test_profiler_steps.c tests/profiler_world.h tests/suite.h
tests_test_profiler_steps_LDADD = $(PROFILER_LIBS) $(CHECK_LIBS) -lm
tests_test_profiler_summary_SOURCES = tests/test_profiler_summary.c tests/profiler_world.h tests/suite.h
tests_test_profiler_summary_LDADD = $(PROFILER_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_profiler_nodes
tests_test_profiler_nodes_SOURCES = tests/test_profiler_nodes.c tests/suite.h
tests_test_profiler_nodes_LDADD = $(PROFILER_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_profiler_pace
tests_test_profiler_pace_SOURCES = tests/test_profiler_pace.c tests/suite.h
tests_test_profiler_pace_LDADD = $(PROFILER_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_profiler_join
tests_test_profiler_join_SOURCES = tests/test_profiler_join.c tests/profiler_world.h $(PLAN_REFERENCE)
tests_test_profiler_join_LDADD = $(PROFILER_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_profiler_links
tests_test_profiler_links_SOURCES = tests/test_profiler_links.c tests/profiler_world.h tests/suite.h
tests_test_profiler_links_LDADD = $(PROFILER_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_profiler_retime
tests_test_profiler_retime_SOURCES = tests/test_profiler_retime.c tests/profiler_world.h tests/suite.h
tests_test_profiler_retime_LDADD = $(PROFILER_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_profiler_tail
tests_test_profiler_tail_SOURCES = tests/test_profiler_tail.c tests/profiler_world.h tests/scratch.h tests/suite.h
tests_test_profiler_tail_LDADD = $(PROFILER_LIBS) $(CHECK_LIBS) -lm
SCRIPT_TESTS += tests/profiler.sh tests/traced.sh tests/calibrate_records.sh
# tests/profiler.sh and tests/calibrate_records.sh read folders that this writes
check_PROGRAMS += tests/make_records
tests_make_records_SOURCES = tests/make_records.c
tests_make_records_LDADD = $(PROFILER_LIBS)
EXTRA_DIST += tests/fake_cupti.c
if HAVE_INJECT
check_PROGRAMS += tests/traced_program
tests_traced_program_SOURCES = tests/traced_program.c
tests_traced_program_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
check_PROGRAMS += tests/recorded_run
tests_recorded_run_SOURCES = tests/recorded_run.c cli/run_record.c cli/run_profile.c cli/profile_report.c cli/profile_json.c cli/json.c \
	$(CAPTURE_SOURCES) $(PLAN_REFERENCE)
tests_recorded_run_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_recorded_run_LDADD = $(PROFILER_LIBS) $(EXEC_LIBS) $(REPORTS_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_profiler_convert
tests_test_profiler_convert_SOURCES = tests/test_profiler_convert.c tests/profiler_world.h tests/scratch.h tests/suite.h profiler/cupti_convert.c
tests_test_profiler_convert_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_test_profiler_convert_LDADD = $(PROFILER_LIBS) $(CHECK_LIBS) -lm
endif
EXTRA_DIST += tests/profiler
CHECK_SUITES += tests/test_profiler_monitor
tests_test_profiler_monitor_SOURCES = tests/test_profiler_monitor.c $(PLAN_REFERENCE)
tests_test_profiler_monitor_LDADD = $(PROFILER_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_profiler_trace
tests_test_profiler_trace_SOURCES = tests/test_profiler_trace.c tests/profiler_world.h tests/scratch.h tests/suite.h
tests_test_profiler_trace_LDADD = $(PROFILER_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_exec_units
tests_test_exec_units_SOURCES = tests/test_exec_units.c tests/fixtures.h tests/scratch.h tests/sim_efficiency.h tests/suite.h
tests_test_exec_units_LDADD = $(EXEC_LIBS) $(SIM_LIBS) $(CHECK_LIBS) -lm
CHECK_SUITES += tests/test_sim_run_profile
tests_test_sim_run_profile_SOURCES = tests/test_sim_run_profile.c tests/fixtures.h tests/scratch.h tests/sim_efficiency.h tests/suite.h
tests_test_sim_run_profile_LDADD = $(TEST_LIBS)
