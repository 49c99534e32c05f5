/* Classes of kernels by rules on their names, from a data file: catalogue/kernels.toml, format `diffpipe-kernels`.
 *
 * The rules are tried in their order and the first that matches gives the class; what none matches is `other`. A rule
 * matches a name that contains one of its `any` and none of its `without`, letters of either case being alike; mangled
 * and demangled names alike, so the texts must be parts of both.
 * Copies and memsets are `copy` by their kind.
 */
#ifndef DP_PROFILER_CLASSES_H
#define DP_PROFILER_CLASSES_H

#include "base/node.h"
#include "profiler/session.h"

typedef enum prof_class {
  PROF_GEMM,
  PROF_CONVOLUTION,
  PROF_ATTENTION,
  PROF_NORM,
  PROF_ELEMENTWISE, /* and reductions, gathers, casts: a pass over memory */
  PROF_OPTIMIZER,
  PROF_NCCL,
  PROF_COPIES,
  PROF_OTHER,
  PROF_CLASS_COUNT
} prof_class;
extern const char *const prof_class_names[PROF_CLASS_COUNT + 1]; /* "gemm"; NULL at the end */

typedef struct prof_rule {
  prof_class class;
  const char **any, **without; /* [any_count], [without_count]; of the document */
  size_t any_count, without_count;
} prof_rule;

typedef struct prof_rules {
  dp_document document;
  dp_arena arena;
  prof_rule *items;
  size_t count;
} prof_rules;

/* NULL: catalogue/kernels.toml of the data folder. */
dp_status prof_rules_read(const char *path, prof_rules *rules, dp_error *error);
dp_status prof_rules_parse(const char *text, size_t length, const char *name, prof_rules *rules, dp_error *error);
void prof_rules_free(prof_rules *rules); /* safe on a zeroed one */

prof_class prof_rules_class(const prof_rules *rules, const char *kernel);
/* Of each of the session's names, malloc'ed; index by record.name. NULL: no memory. */
unsigned char *prof_rules_classes(const prof_rules *rules, const prof_session *session);
/* Of work of a device: by the kind, of a kernel by its name's class. */
prof_class prof_record_class(const prof_record *record, const unsigned char *classes);

#endif
