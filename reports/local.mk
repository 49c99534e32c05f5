noinst_LIBRARIES += libreports.a
libreports_a_SOURCES =
