#include "kernels/cuda/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "KIND DTYPE GRADIENT exact|tf32 NUMBER..." without the zeros at the end. */
static void tell_problem(const kern_cuda *context, const char *kind, const kern_cuda_key *key, char *out,
                         size_t bytes) {
  const kern_cuda_options *o = &context->options;
  int words = KERN_CUDA_KEY_WORDS;
  size_t length = (size_t)snprintf(out, bytes, "%s %s %s %s", kind, o->dtype == KERN_BF16 ? "bf16" : "fp32",
                                   o->gradient == KERN_BF16 ? "bf16" : "fp32", o->tf32 ? "tf32" : "exact");
  while (words > 0 && key->words[words - 1] == 0) words--;
  for (int i = 0; i < words && length < bytes; i++)
    length += (size_t)snprintf(out + length, bytes - length, " %lld", (long long)key->words[i]);
}

void kern_cuda_choose(kern_cuda *context, const char *kind, const kern_cuda_key *key,
                      const kern_cuda_chooser *chooser) {
  const kern_cuda_memory *memory = &context->options.memory;
  char problem[64 + 21 * KERN_CUDA_KEY_WORDS], way[KERN_CUDA_WAY_BYTES] = "";
  tell_problem(context, kind, key, problem, sizeof problem);
  const char *known = memory->find ? memory->find(memory->data, context->about_device, problem) : NULL;
  if (known && chooser->restore(chooser->data, known)) return;
  const bool tuning = context->tuning;
  if (chooser->choose(chooser->data, way) && tuning && memory->keep && !kern_cuda_failed(context))
    memory->keep(memory->data, context->about_device, problem, way);
}

static void pass_space(const char **at) {
  if (**at == ' ') ++*at;
}

bool kern_cuda_take_word(const char **at, const char *word) {
  const size_t length = strlen(word);
  if (strncmp(*at, word, length) != 0 || ((*at)[length] != ' ' && (*at)[length] != 0)) return false;
  *at += length;
  pass_space(at);
  return true;
}

bool kern_cuda_take_number(const char **at, int base, uint64_t *number) {
  static const char digits[] = "0123456789abcdef";
  char *end;
  if (!**at || !memchr(digits, **at, (size_t)base)) return false; /* no space, no sign */
  errno = 0;
  const unsigned long long value = strtoull(*at, &end, base);
  if (errno != 0 || (*end != ' ' && *end != 0)) return false;
  *number = value;
  *at = end;
  pass_space(at);
  return true;
}
