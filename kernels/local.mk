noinst_LIBRARIES += libkernels.a
libkernels_a_SOURCES = \
	kernels/cpu/activation.c \
	kernels/cpu/attention.c \
	kernels/cpu/broadcast.c \
	kernels/cpu/context.c kernels/cpu/context.h \
	kernels/cpu/conv.c \
	kernels/cpu/embedding.c \
	kernels/cpu/flat.c \
	kernels/cpu/gemm.c \
	kernels/cpu/group_norm.c \
	kernels/cpu/kern.h \
	kernels/cpu/layout.c \
	kernels/cpu/linear.c \
	kernels/cpu/loss.c \
	kernels/cpu/resample.c \
	kernels/cpu/row_norm.c \
	kernels/cpu/rows.c \
	kernels/cpu/separable.c \
	kernels/cpu/tile.c kernels/cpu/tile.h \
	kernels/cpu/vector.h
libkernels_a_SOURCES += kernels/sizes.h kernels/halves.h
libkernels_a_CPPFLAGS = $(AM_CPPFLAGS) $(OPENBLAS_CFLAGS)
if HAVE_CUDA_BACKEND
libkernels_a_CPPFLAGS += $(CUDA_CPPFLAGS)
libkernels_a_SOURCES += \
	kernels/cuda/activation.cu kernels/cuda/adamw.cu \
	kernels/cuda/broadcast.cu \
	kernels/cuda/attention.c kernels/cuda/attention.h \
	kernels/cuda/attention_few.cu kernels/cuda/attention_few.cuh kernels/cuda/attention_few_forward.cu \
	kernels/cuda/attention_graph.c kernels/cuda/attention_graph.h \
	kernels/cuda/attention_mma.cu \
	kernels/cuda/attention_own.cu \
	kernels/cuda/attention_plan.c \
	kernels/cuda/context.c kernels/cuda/context.h kernels/cuda/execute.c \
	kernels/cuda/cuda.h \
	kernels/cuda/device.cuh \
	kernels/cuda/flat.cu \
	kernels/cuda/mma.cuh \
	kernels/cuda/moves.cu \
	kernels/cuda/stream.cuh
libkernels_a_SOURCES += kernels/cuda/group_norm.cu kernels/cuda/group_norm_whole.cuh
libkernels_a_SOURCES += kernels/cuda/norm.cuh kernels/cuda/ring.cuh kernels/cuda/row_norm.cu kernels/cuda/row_norm_both.cuh \
	kernels/cuda/row_norm_ring.cuh
libkernels_a_SOURCES += kernels/cuda/bias.cu
libkernels_a_SOURCES += kernels/cuda/cache.c kernels/cuda/cache.h
libkernels_a_SOURCES += kernels/cuda/conv.c kernels/cuda/conv.h
libkernels_a_SOURCES += kernels/cuda/conv_columns.c kernels/cuda/conv_gather.cu kernels/cuda/conv_shifts.c
libkernels_a_SOURCES += kernels/cuda/conv_plan.c
libkernels_a_SOURCES += kernels/cuda/engine.c kernels/cuda/engine.h
libkernels_a_SOURCES += kernels/cuda/libraries.c kernels/cuda/libraries.h
libkernels_a_SOURCES += kernels/cuda/linear.c
libkernels_a_SOURCES += kernels/cuda/memory.c kernels/cuda/memory.h
libkernels_a_SOURCES += kernels/cuda/products.c kernels/cuda/products.h
libkernels_a_SOURCES += kernels/cuda/separable.c
libkernels_a_SOURCES += kernels/cuda/scalars.cu
endif
# Loops become vector instructions also where CFLAGS asks for less; roundings stay those of the source.
libkernels_a_CFLAGS = $(AM_CFLAGS) $(KERNELS_CFLAGS)
KERNELS_LIBS = libkernels.a $(OPENBLAS_LIBS) $(CUDA_BACKEND_LIBS) $(BASE_LIBS)

# What nvcc compiles: a rule of our own, with what each object depends on beside it.
SUFFIXES = .cu
AM_V_NVCC = $(am__v_NVCC_@AM_V@)
am__v_NVCC_ = $(am__v_NVCC_@AM_DEFAULT_V@)
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =
NVCC_COMPILE = $(NVCC) -ccbin $(CC) -std=c++17 -O3 $(NVCC_GENCODE) $(NVCCFLAGS) \
	$(DEFS) $(DEFAULT_INCLUDES) $(INCLUDES) $(AM_CPPFLAGS) $(CPPFLAGS)
.cu.$(OBJEXT):
	$(AM_V_NVCC)$(MKDIR_P) $(@D) && $(NVCC_COMPILE) -MD -MF $(@:.$(OBJEXT)=.cu.d) -MT $@ -c -o $@ $<
-include $(wildcard kernels/cuda/*.cu.d)
mostlyclean-local:
	-rm -f kernels/cuda/*.cu.d
