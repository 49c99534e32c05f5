# Check suites: one program a house. To add one: a name in CHECK_SUITES and its _SOURCES and _LDADD.
TEST_LIBS = $(SIM_LIBS) $(CHECK_LIBS)
CHECK_SUITES =
if HAVE_CHECK
check_PROGRAMS += $(CHECK_SUITES)
TESTS += $(CHECK_SUITES)
endif
# Scripts run with the folders and the program in their environment.
AM_TESTS_ENVIRONMENT = SRCDIR='$(abs_top_srcdir)'; BUILDDIR='$(abs_top_builddir)'; DIFFPIPE='$(abs_top_builddir)/diffpipe'; \
	DIFFPIPE_DATA_DIR='$(abs_top_srcdir)/scenarios'; CC='$(CC)'; export SRCDIR BUILDDIR DIFFPIPE DIFFPIPE_DATA_DIR CC;
SCRIPT_TESTS =
TESTS += $(SCRIPT_TESTS)
EXTRA_DIST += $(SCRIPT_TESTS)
