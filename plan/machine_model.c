/* Which card of the catalogue a GPU is, by the words of its name. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "plan/machine.h"

enum { MAX_WORDS = 16, MAX_WORD = 24 };

typedef struct word_list {
  char items[MAX_WORDS][MAX_WORD]; /* lower case */
  int count;
} word_list;

static bool is_size(const char *word) { /* "80gb", "144g" */
  const size_t digits = strspn(word, "0123456789");
  return digits > 0 && (strcmp(word + digits, "gb") == 0 || strcmp(word + digits, "g") == 0);
}

static bool says_nothing(const char *word) {
  static const char *const idle[] = {"nvidia", "tesla", "geforce", "gpu", "generation", "edition"};
  for (size_t i = 0; i < DP_COUNT_OF(idle); i++)
    if (strcmp(word, idle[i]) == 0) return true;
  return is_size(word) || strncmp(word, "hbm", 3) == 0 || strncmp(word, "gddr", 4) == 0;
}

static void add_word(word_list *words, char *word) {
  if (strncmp(word, "sxm", 3) == 0) word[3] = '\0';
  if (word[0] && !says_nothing(word) && words->count < MAX_WORDS)
    (void)snprintf(words->items[words->count++], MAX_WORD, "%s", word);
}

static word_list words_of(const char *name) {
  word_list found = {.count = 0};
  char word[MAX_WORD] = "";
  size_t length = 0;
  for (;; name++) {
    if (isalnum((unsigned char)*name)) {
      if (length + 1 < MAX_WORD) word[length++] = (char)tolower((unsigned char)*name);
      continue;
    }
    word[length] = '\0';
    add_word(&found, word);
    length = 0;
    if (!*name) return found;
  }
}

static bool has(const word_list *words, const char *word) {
  for (int i = 0; i < words->count; i++)
    if (strcmp(words->items[i], word) == 0) return true;
  return false;
}

/* All words of the name are in the row's, and of the row's but SXM all in the name. */
static bool same_words(const word_list *name, const word_list *row) {
  for (int i = 0; i < name->count; i++)
    if (!has(row, name->items[i])) return false;
  for (int i = 0; i < row->count; i++)
    if (!has(name, row->items[i]) && strcmp(row->items[i], "sxm") != 0) return false;
  return name->count > 0;
}

static bool fits(const plan_machine_gpu *gpu, const plan_device_model *model) {
  const double share = (double)gpu->memory_bytes / (double)model->memory_bytes;
  const char *sm = strstr(model->architecture, "sm");
  if (share < 0.95 || share > 1.10) return false;
  return gpu->capability == 0 || !sm || strtol(sm + 2, NULL, 10) == gpu->capability;
}

dp_status plan_machine_model(const plan_machine_gpu *gpu, const plan_catalogue *catalogue,
                             const plan_device_model **model, dp_error *error) {
  const word_list name = words_of(gpu->name);
  const plan_device_model *found = NULL, *by_words = NULL;
  for (size_t i = 0; i < catalogue->devices.count; i++) {
    const plan_device_model *row = &catalogue->devices.items[i];
    const word_list row_words = words_of(row->name);
    const bool called = row->driver_name[0] && strcmp(row->driver_name, gpu->name) == 0;
    if (!called && !same_words(&name, &row_words)) continue;
    by_words = row;
    if (!fits(gpu, row)) continue;
    if (found)
      return dp_fail(error, DP_BAD_INPUT,
                     "machine: found \"%.80s\", which is %s and %s, needed: a driver_name in one of these rows of "
                     "catalogue/devices.toml",
                     gpu->name, found->name, row->name);
    found = row;
  }
  *model = found;
  if (found) return DP_OK;
  if (by_words)
    return dp_fail(error, DP_BAD_INPUT,
                   "machine: found \"%.80s\" with %.1f GB and compute capability %lld.%lld, allowed: cards of "
                   "catalogue/devices.toml; the nearest is %s with %.0f GB, %s",
                   gpu->name, (double)gpu->memory_bytes / 1e9, (long long)gpu->capability / 10,
                   (long long)gpu->capability % 10, by_words->name, (double)by_words->memory_bytes / 1e9,
                   by_words->architecture);
  return dp_fail(
      error, DP_BAD_INPUT,
      "machine: found \"%.80s\" with %.1f GB, allowed: cards of catalogue/devices.toml, or a row for it there "
      "(driver_name: as it stands here)",
      gpu->name, (double)gpu->memory_bytes / 1e9);
}
