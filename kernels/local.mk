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
libkernels_a_CPPFLAGS = $(AM_CPPFLAGS) $(OPENBLAS_CFLAGS)
# Loops become vector instructions also where CFLAGS asks for less; roundings stay those of the source.
libkernels_a_CFLAGS = $(AM_CFLAGS) $(KERNELS_CFLAGS)
KERNELS_LIBS = libkernels.a $(OPENBLAS_LIBS) $(BASE_LIBS)
