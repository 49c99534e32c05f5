noinst_LIBRARIES += libexec.a
libexec_a_SOURCES = \
	exec/sampler.c \
	exec/scheduler.c exec/scheduler.h
EXEC_LIBS = libexec.a $(PLAN_LIBS)
