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
