noinst_LIBRARIES += libplan.a
libplan_a_SOURCES = \
	plan/cluster.h \
	plan/describe.h \
	plan/device.h \
	plan/memory.h \
	plan/plan.h \
	plan/program.h \
	plan/scenario.h \
	plan/timeline.h
libplan_a_CFLAGS = $(AM_CFLAGS) $(READERS_CFLAGS)
PLAN_LIBS = libplan.a $(GRAPH_LIBS)
libplan_a_SOURCES += \
	plan/cluster.c \
	plan/cluster_change.c plan/cluster_change.h \
	plan/cluster_file.c plan/cluster_file.h plan/cluster_reader.h plan/cluster_rows.c \
	plan/device.c \
	plan/link_class.c plan/link_class.h \
	plan/machine.h plan/machine_cluster.c plan/machine_file.c plan/machine_model.c \
	plan/nccl.c plan/nccl.h \
	plan/route.c \
	plan/scenario.c plan/scenario_cluster.c plan/scenario_model.c plan/scenario_monitor.c plan/scenario_monitor.h \
	plan/scenario_plan.c plan/scenario_reader.h plan/scenario_search.c plan/scenario_task.c plan/scenario_train.c plan/scenario_train.h \
	plan/scenario_whatif.c \
	plan/slow.c plan/slow.h \
	plan/topology.h \
	plan/transport.c plan/transport.h
libplan_a_SOURCES += \
	plan/check.c \
	plan/compile.c plan/compile.h \
	plan/compile_layout.c \
	plan/compile_order.c \
	plan/compressor.c plan/compressor.h \
	plan/memory.c plan/memory_gradients.c plan/memory_place.c plan/memory_rules.c plan/memory_rules.h \
	plan/metrics.c \
	plan/order.c plan/order.h \
	plan/order_list.c \
	plan/places.c plan/places.h plan/places_backward.c plan/places_build.h plan/places_saved.c \
	plan/places_siblings.c \
	plan/plan.c \
	plan/program.c \
	plan/split.c \
	plan/timeline.c \
	plan/traffic.c plan/traffic.h
libplan_a_SOURCES += \
	plan/deepspeed.c \
	plan/dpipe.c plan/dpipe.h \
	plan/dpipe_dataset.c plan/dpipe_reader.h
libplan_a_SOURCES += \
	plan/compare.c plan/compare.h \
	plan/compare_causes.c plan/compare_causes.h \
	plan/replay.c plan/replay.h \
	plan/samples.c plan/samples.h \
	plan/unit_times.c plan/unit_times.h
libplan_a_SOURCES += plan/profile.c plan/profile.h plan/profile_file.c plan/profile_fit.c plan/profile_key.c plan/profile_run.c plan/profile_run.h plan/profile_run_beside.c plan/profile_run_beside.h plan/profile_run_links.c plan/profile_run_links.h plan/profile_exchanges.c plan/profile_exchanges.h plan/profile_links.c plan/profile_rows.c plan/profile_rows.h plan/profile_units.c
