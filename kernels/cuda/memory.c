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

/* Restores what is known for a device; `known`: there was something. */
static bool restore(const kern_cuda *context, const char *device, const char *problem, const kern_cuda_chooser *chooser,
                    bool *known) {
  const kern_cuda_memory *memory = &context->options.memory;
  const char *way = memory->find ? memory->find(memory->data, device, problem) : NULL;
  *known = way != NULL;
  return way && chooser->restore(chooser->data, way);
}

void kern_cuda_choose(kern_cuda *context, const char *kind, const kern_cuda_key *key,
                      const kern_cuda_chooser *chooser) {
  const kern_cuda_memory *memory = &context->options.memory;
  char problem[64 + 21 * KERN_CUDA_KEY_WORDS], way[KERN_CUDA_WAY_BYTES] = "", other[sizeof context->about_device + 32];
  const char *device = context->about_device;
  bool known;
  tell_problem(context, kind, key, problem, sizeof problem);
  if (restore(context, device, problem, chooser, &known) || kern_cuda_failed(context)) return;
  /* Another part, with as many multiprocessors, found what does not run on this one: it stays that one's. */
  if (known && context->is_part) {
    (void)snprintf(other, sizeof other, "%s, a part unlike others", device);
    device = other;
    if (restore(context, device, problem, chooser, &known) || kern_cuda_failed(context)) return;
  }
  const bool tuning = context->tuning;
  if (chooser->choose(chooser->data, way) && tuning && memory->keep && !kern_cuda_failed(context))
    memory->keep(memory->data, device, problem, way);
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
