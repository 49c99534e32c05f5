/* Strict reading of tables: a list of rows says which keys exist, their type, range and where the value goes. Anything
 * else is one error that names file, line, key, what was found and what is allowed.
 *
 * The same rows produce the documentation of the file formats (dp_schema_describe), so it cannot go stale.
 */
#ifndef DP_BASE_SCHEMA_H
#define DP_BASE_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/node.h"
#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dp_field_type {
  DP_FIELD_BOOLEAN, /* target: bool */
  DP_FIELD_INTEGER, /* target: int64_t */
  DP_FIELD_REAL,    /* target: double; integers are accepted */
  DP_FIELD_STRING,  /* target: const char * (owned by the document); may not be empty */
  DP_FIELD_CHOICE,  /* target: int, the index into `choices` */
  DP_FIELD_NODE     /* target: const dp_node *; any kind: the caller reads it further */
} dp_field_type;

typedef struct dp_field {
  const char *key;
  dp_field_type type;
  size_t offset;              /* of the target in the struct, from offsetof */
  bool required;              /* else the target keeps the default it had before the call */
  double min, max;            /* inclusive, for numbers; ignored when both are 0 */
  const char *const *choices; /* NULL-terminated, for DP_FIELD_CHOICE */
  const char *help;           /* one line with the unit and the default, for the documentation */
} dp_field;

/* Reads `table` into `target` by the rows. `section` names the table in errors ("[plan]"). Unknown keys are errors that
 * name the nearest known key when one is close. A NULL table is an empty one, errors then name `parent`'s file. */
dp_status dp_schema_read(const dp_node *table, const dp_node *parent, const char *section, const dp_field *fields,
                         size_t field_count, void *target, dp_error *error);

/* Reads an array of integers (or one integer) within [min, max] into an arena; error names the item's line. */
dp_status dp_schema_read_integers(const dp_node *node, const char *what, int64_t min, int64_t max, dp_arena *arena,
                                  int64_t **values, size_t *count, dp_error *error);

/* Checks `format = "NAME"` and `version = 1` of a file's root table. */
dp_status dp_schema_check_format(const dp_node *root, const char *format, int64_t version, dp_error *error);

/* Appends the rows as a Markdown table: key, type, allowed, required, meaning. */
void dp_schema_describe(const dp_field *fields, size_t field_count, dp_str *out);

#define DP_COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

#ifdef __cplusplus
}
#endif
#endif
