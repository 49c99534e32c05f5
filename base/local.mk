noinst_LIBRARIES += libbase.a
libbase_a_SOURCES = \
	base/allowed.c base/allowed.h \
	base/arena.c base/arena.h \
	base/array.c base/array.h \
	base/clock.c base/clock.h \
	base/condition.c base/condition.h \
	base/file.c base/file.h \
	base/folder.c base/folder.h \
	base/json.c \
	base/line.c base/line.h \
	base/median.c base/median.h \
	base/node.c base/node.h \
	base/progress.c base/progress.h \
	base/range.c base/range.h \
	base/random.c base/random.h \
	base/safetensors.c base/safetensors.h base/safetensors_write.c \
	base/schema.c base/schema.h \
	base/status.c base/status.h \
	base/str.c base/str.h \
	base/toml.cc
libbase_a_CFLAGS = $(AM_CFLAGS) $(READERS_CFLAGS)
libbase_a_CXXFLAGS = $(AM_CXXFLAGS) $(READERS_CFLAGS)
BASE_LIBS = libbase.a $(JANSSON_LIBS) -lstdc++
