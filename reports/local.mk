noinst_LIBRARIES += libreports.a
libreports_a_SOURCES = \
	reports/folder.c \
	reports/gnuplot.c \
	reports/html.c reports/html.h \
	reports/metrics_json.c \
	reports/plot_bounds.c \
	reports/plot_memory.c \
	reports/plot_timeline.c \
	reports/plots.c reports/plots.h \
	reports/report.h \
	reports/table.c reports/table.h \
	reports/tables.c reports/tables.h \
	reports/trace.c
REPORTS_LIBS = libreports.a $(SIM_LIBS)
