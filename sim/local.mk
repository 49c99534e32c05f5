noinst_LIBRARIES += libsim.a
libsim_a_SOURCES = \
	sim/cost.h \
	sim/efficiency.h \
	sim/engine.h \
	sim/network.h \
	sim/predict.h
SIM_LIBS = libsim.a $(PLAN_LIBS)
