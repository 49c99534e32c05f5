/* Names of kernels as people write them. */
#ifndef DP_PROFILER_NAMES_H
#define DP_PROFILER_NAMES_H

#ifdef __cplusplus
extern "C" {
#endif

/* A mangled C++ name demangled, without what it returns and its parameters; any other name as it is. malloc'ed; NULL: no
 * memory. */
char *prof_readable_name(const char *name);

#ifdef __cplusplus
}
#endif

#endif
