noinst_LIBRARIES += libprofiler.a
libprofiler_a_SOURCES = \
	profiler/classes.c profiler/classes.h \
	profiler/drift.c profiler/drift.h profiler/monitor.c profiler/monitor.h profiler/series.c profiler/series.h \
	profiler/record.c profiler/record.h \
	profiler/session.c profiler/session.h \
	profiler/steps.c profiler/steps.h profiler/steps_auto.c \
	profiler/summary.c profiler/summary.h profiler/summary_idle.c \
	profiler/trace.c profiler/trace.h \
	profiler/writer.c profiler/writer.h profiler/writer_files.c profiler/writer_parts.h
libprofiler_a_CFLAGS = $(AM_CFLAGS) $(READERS_CFLAGS)
PROFILER_LIBS = libprofiler.a $(PLAN_LIBS)
