// Names of kernels as people write them.
#include "profiler/names.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>

// Where a function's parameters begin: the last bracket that is opened outside of <> and of other brackets. Names like
// operator() and (anonymous namespace) have brackets of their own.
static size_t end_of_name(const char *text, size_t length) {
  int round = 0, angle = 0;
  size_t end = length;
  for (size_t i = 0; i < length; i++) {
    const bool arrow = i > 0 && text[i - 1] == '-'; /* of a member's name: -> */
    if (text[i] == '<') angle++;
    if (text[i] == '>' && !arrow && angle > 0) angle--;
    if (angle > 0) continue;
    if (text[i] == '(' && round++ == 0 && i > 0) end = i;
    if (text[i] == ')' && round > 0 && --round == 0 && i + 1 < length && text[i + 1] == ':') end = length;
  }
  return end;
}

extern "C" char *prof_readable_name(const char *name) {
  int status = -1;
  char *whole = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  if (status != 0 || !whole) {
    std::free(whole);
    return strdup(name);
  }
  static const char *const results[] = {"void ", "int "};
  const char *from = whole;
  for (const char *result : results)
    if (std::strncmp(from, result, std::strlen(result)) == 0) {
      from += std::strlen(result);
      break;
    }
  char *made = strndup(from, end_of_name(from, std::strlen(from)));
  std::free(whole);
  return made;
}
