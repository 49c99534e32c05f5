diffpipe_SOURCES = \
	cli/baselines.c \
	cli/baselines.h \
	cli/candidate.c \
	cli/candidate.h \
	cli/command.h \
	cli/compare.c \
	cli/folder.c \
	cli/folder.h \
	cli/formats.c \
	cli/inspect.c \
	cli/json.c \
	cli/json.h \
	cli/main.c \
	cli/options.c \
	cli/options.h \
	cli/remedies.c \
	cli/remedies.h \
	cli/report.c \
	cli/search.c \
	cli/search.h \
	cli/simulate.c \
	cli/text.c \
	cli/text.h \
	cli/tune.c \
	cli/tune_json.c \
	cli/tune_json.h \
	cli/version.c \
	cli/whatif.c \
	cli/whatif.h \
	cli/whatif_folder.c \
	cli/whatif_from.c \
	cli/whatif_from.h \
	cli/whatif_from_tell.c \
	cli/whatif_json.c \
	cli/whatif_table.c
diffpipe_SOURCES += cli/efficiency.c cli/efficiency.h
diffpipe_SOURCES += cli/advise.c cli/advise.h cli/advise_json.c cli/advise_lines.c cli/advise_text.c
diffpipe_SOURCES += cli/data.c cli/data.h cli/data_cache.c cli/data_check.c cli/data_model.c
diffpipe_SOURCES += cli/run.c cli/run_parts.h cli/run_train.c cli/run_work.c
diffpipe_SOURCES += cli/run_log.c cli/run_log.h cli/run_memory.c cli/run_memory.h cli/run_plan.c cli/run_plan.h cli/run_processes.c cli/run_processes.h cli/run_report.c cli/run_report.h cli/run_units.c cli/run_units.h
diffpipe_SOURCES += cli/run_notes.c cli/run_notes.h
diffpipe_SOURCES += cli/run_algorithms.c cli/run_algorithms.h
diffpipe_SOURCES += cli/run_degrade.c cli/run_degrade.h cli/run_hook.c cli/run_hook.h cli/run_monitor.c cli/run_monitor.h cli/run_signals.c cli/run_signals.h
diffpipe_SOURCES += cli/run_profile.c cli/run_profile.h cli/run_record.c cli/run_record.h
diffpipe_LDADD = $(EXEC_LIBS) $(REPORTS_LIBS)
diffpipe_SOURCES += cli/profile.c cli/profile_json.c cli/profile_report.c cli/profile_report.h
diffpipe_SOURCES += cli/top.c cli/traced.c cli/traced.h
diffpipe_LDADD += $(PROFILER_LIBS)
diffpipe_CPPFLAGS = $(AM_CPPFLAGS) -DDP_PKGLIBDIR='"$(pkglibdir)"'
diffpipe_SOURCES += cli/machine.c
diffpipe_SOURCES += cli/calibrate.c cli/calibrate_run.c cli/calibrate_run.h cli/calibrate_records.c cli/calibrate_records.h cli/calibrate_records_tell.c cli/calibrate_tell.c cli/calibrate_tell.h cli/calibrate_units.c cli/calibrate_units.h cli/recalibrate.c cli/recalibrate.h
if HAVE_CUDA
diffpipe_CPPFLAGS += $(CUDA_CPPFLAGS)
diffpipe_LDFLAGS = $(AM_LDFLAGS) $(CUDA_LDFLAGS)
diffpipe_LDADD += $(CUDART_LIBS)
endif

if HAVE_INJECT
diffpipe_SOURCES += $(CAPTURE_SOURCES)
else
diffpipe_SOURCES += profiler/cupti_none.c profiler/cupti_capture.h
endif

# The man page is made from the program's own help, so that it cannot go stale.
if HAVE_HELP2MAN
man_MANS += diffpipe.1
CLEANFILES += diffpipe.1
diffpipe.1: diffpipe$(EXEEXT) $(srcdir)/scripts/man.sh
	$(AM_V_GEN)$(srcdir)/scripts/man.sh ./diffpipe$(EXEEXT) $(HELP2MAN) $@
endif
