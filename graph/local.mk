noinst_LIBRARIES += libgraph.a
libgraph_a_SOURCES = graph/build.h graph/graph.h graph/model.h graph/op.h
GRAPH_LIBS = libgraph.a $(BASE_LIBS)
