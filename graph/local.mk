noinst_LIBRARIES += libgraph.a
libgraph_a_SOURCES = \
	graph/build.c graph/build.h \
	graph/checked.h \
	graph/config.c graph/config.h \
	graph/graph.c graph/graph.h \
	graph/layers.c graph/layers.h \
	graph/liveness.c graph/liveness.h \
	graph/model.c graph/model.h \
	graph/models/flux.c \
	graph/models/joint.c graph/models/joint.h \
	graph/models/models.h \
	graph/models/sd3.c \
	graph/models/unet2d.c \
	graph/peaks.c graph/peaks.h \
	graph/op.c graph/op.h \
	graph/op_cost.c graph/op_shape.c graph/op_table.h \
	graph/shard.c graph/shard.h \
	graph/synthetic.c
libgraph_a_CFLAGS = $(AM_CFLAGS) $(READERS_CFLAGS)
GRAPH_LIBS = libgraph.a $(BASE_LIBS)
