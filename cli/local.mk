diffpipe_SOURCES = cli/command.h cli/main.c cli/options.c cli/options.h cli/version.c
diffpipe_LDADD = libreports.a $(SIM_LIBS)
if HAVE_CUDA
diffpipe_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
diffpipe_LDFLAGS = $(AM_LDFLAGS) $(CUDA_LDFLAGS)
diffpipe_LDADD += $(CUDART_LIBS)
endif
