noinst_LIBRARIES += libplan.a
libplan_a_SOURCES = \
	plan/cluster.h \
	plan/device.h \
	plan/memory.h \
	plan/plan.h \
	plan/program.h \
	plan/scenario.h \
	plan/timeline.h
PLAN_LIBS = libplan.a $(GRAPH_LIBS)
libplan_a_SOURCES += \
	plan/cluster.c \
	plan/cluster_file.c plan/cluster_file.h \
	plan/device.c \
	plan/nccl.c plan/nccl.h \
	plan/route.c \
	plan/topology.h
