noinst_LIBRARIES += libsim.a
libsim_a_SOURCES = \
	sim/baseline.c sim/baseline.h \
	sim/assumptions.c sim/assumptions.h \
	sim/advise.c sim/advise.h sim/advise_evaluate.c sim/advise_notes.c sim/advise_open.c sim/advise_propose.c sim/adviser.h \
	sim/cost.c sim/cost.h sim/cost_profile.c \
	sim/efficiency.c sim/efficiency.h \
	sim/engine.c sim/engine.h \
	sim/engine_prepare.c sim/engine_state.h \
	sim/fallback.c sim/fallback.h \
	sim/fit.c sim/fit.h \
	sim/heap.h \
	sim/issue.c \
	sim/network.c sim/network.h \
	sim/partition.c sim/partition.h sim/partition_interleaved.c \
	sim/partition_tables.c sim/partition_tables.h \
	sim/predict.c sim/predict.h sim/predictor.h \
	sim/predict_bounds.c \
	sim/predict_compile.c \
	sim/predict_waits.c \
	sim/predict_crowd.c \
	sim/predict_links.c \
	sim/predict_recompute.c \
	sim/predict_run.c \
	sim/predict_split.c \
	sim/predict_tensor.c \
	sim/prepared.c sim/prepared.h \
	sim/remedy.c sim/remedy.h \
	sim/tune.c sim/tune.h sim/tune_search.h \
	sim/tune_answer.c \
	sim/tune_refine.c \
	sim/tune_space.c sim/tune_space.h \
	sim/study.c sim/study.h \
	sim/break_even.c sim/break_even.h \
	sim/sweep.c sim/sweep.h \
	sim/whatif.c sim/whatif.h sim/whatif_search.h \
	sim/whatif_point.c sim/whatif_run.c
SIM_LIBS = libsim.a $(PLAN_LIBS)
libsim_a_SOURCES += sim/unit_times.c sim/unit_times.h
