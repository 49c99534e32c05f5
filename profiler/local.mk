noinst_LIBRARIES += libprofiler.a
libprofiler_a_SOURCES = \
	profiler/classes.c profiler/classes.h \
	profiler/drift.c profiler/drift.h profiler/mix.c profiler/mix.h profiler/monitor.c profiler/monitor.h profiler/series.c profiler/series.h \
	profiler/drift.c profiler/drift.h profiler/monitor.c profiler/monitor.h profiler/series.c profiler/series.h \
	profiler/join.c profiler/join.h \
	profiler/links.c profiler/links.h profiler/links_parts.h profiler/links_slow.c \
	profiler/load.c profiler/load.h \
	profiler/join.c profiler/join.h profiler/join_times.c profiler/join_times.h \
	profiler/nodes.c profiler/nodes.h \
	profiler/pace.c profiler/pace.h \
	profiler/process.c profiler/process.h \
	profiler/names.cc profiler/names.h \
	profiler/record.c profiler/record.h \
	profiler/run_tables.c profiler/run_tables.h \
	profiler/retime.c profiler/retime.h profiler/retime_lanes.c profiler/retime_parts.h \
	profiler/scale.c profiler/scale.h \
	profiler/session.c profiler/session.h \
	profiler/steps.c profiler/steps.h profiler/steps_auto.c \
	profiler/summary.c profiler/summary.h profiler/summary_idle.c profiler/summary_kernels.c \
	profiler/tail.c profiler/tail.h \
	profiler/trace.c profiler/trace.h \
	profiler/unit_times.c profiler/unit_times.h \
	profiler/writer.c profiler/writer.h profiler/writer_files.c profiler/writer_parts.h
libprofiler_a_CFLAGS = $(AM_CFLAGS) $(READERS_CFLAGS)
libprofiler_a_CXXFLAGS = $(AM_CXXFLAGS) $(READERS_CFLAGS)
PROFILER_LIBS = libprofiler.a $(PLAN_LIBS)

# What `diffpipe profile` loads into other programs: alone, without a sanitizer, and never unloaded, since handlers stay.
CAPTURE_SOURCES = profiler/cupti_capture.c profiler/cupti_capture.h profiler/cupti_convert.c profiler/cupti_convert.h
INJECT_SOURCES = $(CAPTURE_SOURCES) \
	profiler/inject.c profiler/inject.h profiler/inject_nvtx.c
if HAVE_INJECT
injectdir = $(pkglibdir)
inject_PROGRAMS = libdiffpipe-inject.so
libdiffpipe_inject_so_SOURCES = $(INJECT_SOURCES) base/status.c profiler/process.c profiler/record.c profiler/writer.c profiler/writer_files.c
libdiffpipe_inject_so_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
libdiffpipe_inject_so_CFLAGS = $(WARN_CFLAGS) -fPIC -fvisibility=hidden
libdiffpipe_inject_so_LDFLAGS = -shared -Wl,-z,defs -Wl,-z,nodelete
endif
