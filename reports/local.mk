noinst_LIBRARIES += libreports.a
libreports_a_SOURCES = \
	reports/bounds.c \
	reports/compare_runs.c \
	reports/comparison.h \
	reports/comparison_json.c \
	reports/comparison_tables.c \
	reports/figures.c \
	reports/folder.c \
	reports/gnuplot.c \
	reports/draw.c reports/draw.h \
	reports/draw_layout.c reports/draw_layout.h \
	reports/flows.c reports/flows.h \
	reports/json.c reports/json.h \
	reports/log.c reports/log.h \
	reports/metrics_json.c \
	reports/page.c reports/page.h \
	reports/page_answer.c \
	reports/page_plan.c \
	reports/page_search.c \
	reports/page_compare.c \
	reports/page_profile.c \
	reports/plot_bounds.c \
	reports/plot_log.c \
	reports/plot_memory.c \
	reports/plot_search.c \
	reports/plot_timeline.c \
	reports/plot_whatif.c reports/plot_whatif.h \
	reports/plots.c reports/plots.h \
	reports/read.c reports/read.h \
	reports/report.h \
	reports/setup_json.c \
	reports/style.c reports/style.h \
	reports/table.c reports/table.h \
	reports/tables.c reports/tables.h \
	reports/trace.c \
	reports/units.c reports/units.h \
	reports/why.c \
	reports/writer.c reports/writer.h
libreports_a_CFLAGS = $(AM_CFLAGS) $(READERS_CFLAGS)
REPORTS_LIBS = libreports.a $(SIM_LIBS)
