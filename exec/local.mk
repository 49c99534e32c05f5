noinst_LIBRARIES += libexec.a
libexec_a_SOURCES = \
	exec/sampler.c \
	exec/scheduler.c exec/scheduler.h
libexec_a_SOURCES += \
	exec/adapter.c exec/adapter.h \
	exec/checkpoint.c exec/checkpoint.h exec/checkpoint_save.c \
	exec/checkpoint_model.c exec/checkpoint_model.h exec/checkpoint_model_write.c
libexec_a_SOURCES += \
	exec/chunk.c exec/chunk.h \
	exec/lanes.c exec/lanes.h \
	exec/ops.c exec/ops.h \
	exec/parameters.c exec/parameters.h \
	exec/pipeline.c exec/pipeline.h \
	exec/reduce.c \
	exec/tables.c exec/tables.h
libexec_a_SOURCES += exec/dataset.h
libexec_a_SOURCES += exec/objective.c exec/objective.h
libexec_a_SOURCES += exec/transfer.c
libexec_a_SOURCES += exec/transport.c exec/transport.h
libexec_a_SOURCES += exec/worker.c exec/worker.h
EXEC_LIBS = libexec.a libkernels.a $(PLAN_LIBS) $(OPENBLAS_LIBS) $(ZLIB_LIBS)
