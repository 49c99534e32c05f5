noinst_LIBRARIES += libexec.a
libexec_a_SOURCES = \
	exec/sampler.c \
	exec/scheduler.c exec/scheduler.h
libexec_a_CFLAGS = $(AM_CFLAGS) $(READERS_CFLAGS)
libexec_a_SOURCES += exec/algorithms.c exec/algorithms.h
libexec_a_SOURCES += \
	exec/adapter.c exec/adapter.h \
	exec/checkpoint.c exec/checkpoint.h exec/checkpoint_save.c \
	exec/checkpoint_model.c exec/checkpoint_model.h exec/checkpoint_model_write.c
libexec_a_SOURCES += \
	exec/chunk.c exec/chunk.h \
	exec/fusion.c exec/fusion.h \
	exec/lanes.c exec/lanes.h \
	exec/layout.c exec/layout.h \
	exec/ops.c exec/ops.h exec/ops_sizes.c exec/ops_sizes.h \
	exec/parameters.c exec/parameters.h \
	exec/pipeline.c exec/pipeline.h exec/pipeline_step.c \
	exec/reduce.c \
	exec/stall.c exec/stall.h \
	exec/tables.c exec/tables.h
libexec_a_SOURCES += \
	exec/cache.c exec/cache.h exec/cache_write.c \
	exec/dataset.c exec/dataset.h exec/dataset_read.c exec/dataset_state.h \
	exec/encoders.c exec/encoders.h \
	exec/image.c exec/image.h exec/image_fit.c exec/image_jpeg.c exec/image_png.c \
	exec/manifest.c exec/manifest.h exec/manifest_make.c \
	exec/order.c exec/order.h \
	exec/shapes.c exec/shapes.h
AM_CPPFLAGS += $(PNG_CFLAGS) $(JPEG_CFLAGS)
libexec_a_SOURCES += exec/objective.c exec/objective.h
libexec_a_SOURCES += exec/compress.c exec/compress.h exec/skips.c
libexec_a_SOURCES += exec/run_lock.c exec/run_lock.h
libexec_a_SOURCES += exec/session.c exec/session.h exec/session_parts.h exec/session_copy.c exec/session_state.c exec/session_stock.c exec/session_stock.h exec/session_weights.c
libexec_a_SOURCES += exec/probe.c exec/probe.h exec/transfer.c exec/throttle.c exec/throttle.h
libexec_a_SOURCES += exec/place.c exec/place.h exec/align.c exec/align.h
libexec_a_SOURCES += exec/transport.c exec/transport.h
libexec_a_SOURCES += exec/transport_mpi.c exec/transport_mpi.h
libexec_a_SOURCES += exec/watch.c exec/watch.h exec/watch_line.c exec/watch_mesh.c exec/watch_parts.h
AM_CPPFLAGS += $(MPI_CFLAGS)
libexec_a_SOURCES += exec/worker.c exec/worker.h exec/worker_skips.c
libexec_a_SOURCES += exec/device.h exec/device_cpu.c
if HAVE_CUDA_BACKEND
libexec_a_SOURCES += \
	exec/device_cuda.c exec/device_cuda.h \
	exec/device_cuda_copies.c \
	exec/device_cuda_graphs.c \
	exec/device_cuda_lanes.c \
	exec/device_cuda_math.c \
	exec/device_cuda_measure.c \
	exec/device_cuda_nccl.c exec/device_cuda_nccl.h \
	exec/device_cuda_pair.c \
	exec/device_cuda_part.c \
	exec/device_cuda_place.c \
	exec/device_cuda_probe.c \
	exec/device_cuda_queues.c \
	exec/device_cuda_ring.c exec/device_cuda_ring.h \
	exec/device_cuda_stage.c exec/device_cuda_stage.h \
	exec/device_cuda_start.c \
	exec/device_cuda_step.c \
	exec/device_cuda_traffic.c \
	exec/device_cuda_values.c \
	exec/device_cuda_wire.c exec/device_cuda_wire.h \
	exec/ops_cuda.c
else
libexec_a_SOURCES += exec/device_none.c
endif
EXTRA_DIST += exec/device_none.c
libexec_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
libexec_a_SOURCES += exec/machine.c exec/machine.h
libexec_a_SOURCES += exec/measure.c exec/measure.h exec/measure_machine.c exec/measure_store.c exec/measure_store.h
libexec_a_SOURCES += exec/measure_units.c exec/measure_units.h exec/measure_units_run.h exec/measure_units_samples.c exec/measure_units_steps.c exec/measure_units_store.c exec/measure_units_store.h exec/measure_links.c exec/measure_links.h
EXEC_LIBS = libexec.a libkernels.a $(PLAN_LIBS) $(OPENBLAS_LIBS) $(CUDA_BACKEND_LIBS) $(PNG_LIBS) $(JPEG_LIBS) $(MPI_LIBS) $(ZLIB_LIBS)
