noinst_LIBRARIES += libexec.a
libexec_a_SOURCES = \
	exec/sampler.c \
	exec/scheduler.c exec/scheduler.h
libexec_a_SOURCES += \
	exec/adapter.c exec/adapter.h \
	exec/checkpoint_model.c exec/checkpoint_model.h exec/checkpoint_model_write.c
EXEC_LIBS = libexec.a $(PLAN_LIBS)
