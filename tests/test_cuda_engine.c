/* cuDNN's engines in words and back, over stand-ins of its descriptors: what is told is had again, what cannot be had
 * is not told, and no descriptor is left behind. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/engine.h"
#include "tests/suite.h"

typedef struct thing {
  cudnnBackendDescriptorType_t type;
  bool finished;
  int64_t index;    /* of an engine; of a choice its value */
  int32_t sm_count; /* of an engine; of a choice its knob */
  int64_t count;    /* of a configuration's choices */
  struct thing *engine, *choices[CUDNN_KNOB_TYPE_COUNTS];
} thing;

/* An engine is known below 100; knob 40 is always told, with value 7. */
static int live;
static bool takes_sm_count, reverses;
static thing graph = {.type = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};

static void setup(void) {
  live = 0;
  takes_sm_count = true;
  reverses = false;
}
static void teardown(void) { ck_assert_int_eq(live, 0); }

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor) {
  thing *made = calloc(1, sizeof *made);
  if (!made) return CUDNN_STATUS_ALLOC_FAILED;
  made->type = type;
  *descriptor = made;
  live++;
  return CUDNN_STATUS_SUCCESS;
}

static void drop(thing *t) {
  for (int64_t i = 0; i < t->count; i++) free(t->choices[i]);
  free(t->engine);
}
static thing *copy_of(const thing *t) {
  thing *made = malloc(sizeof *made);
  ck_assert_ptr_nonnull(made);
  *made = *t;
  return made;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  thing *t = descriptor;
  drop(t);
  free(t);
  live--;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  thing *t = descriptor;
  if (t->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && t->index >= 100) return CUDNN_STATUS_NOT_SUPPORTED;
  t->finished = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
  thing *t = descriptor;
  ck_assert(!t->finished);
  switch (name) {
    case CUDNN_ATTR_ENGINE_OPERATION_GRAPH:
      ck_assert_ptr_eq(*(thing *const *)values, &graph);
      break;
    case CUDNN_ATTR_ENGINE_SM_COUNT_TARGET:
      ck_assert_int_eq(type, CUDNN_TYPE_INT32);
      if (!takes_sm_count) return CUDNN_STATUS_NOT_SUPPORTED;
      t->sm_count = *(const int32_t *)values;
      break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
      ck_assert_int_eq(type, CUDNN_TYPE_INT64);
      t->index = *(const int64_t *)values;
      break;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
      ck_assert_int_eq(type, CUDNN_TYPE_KNOB_TYPE);
      t->sm_count = (int32_t) * (const cudnnBackendKnobType_t *)values;
      break;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      t->engine = copy_of(*(thing *const *)values);
      ck_assert(t->engine->finished);
      break;
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      for (int64_t i = 0; i < count; i++) {
        t->choices[i] = copy_of(((thing *const *)values)[i]);
        ck_assert(t->choices[i]->finished);
      }
      t->count = count;
      break;
    default:
      return CUDNN_STATUS_BAD_PARAM;
  }
  return CUDNN_STATUS_SUCCESS;
}

/* A configuration fills descriptors that are there already. */
static int64_t give_choices(const thing *config, thing *const *to) {
  const thing always = {.type = CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, .finished = true, .index = 7, .sm_count = 40};
  bool has = false;
  for (int64_t i = 0; i < config->count; i++) {
    *to[i] = *config->choices[reverses ? config->count - 1 - i : i];
    has = has || to[i]->sm_count == 40;
  }
  if (has) return config->count;
  *to[config->count] = always;
  return config->count + 1;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *values) {
  const thing *t = descriptor;
  ck_assert(t->finished);
  *count = 1;
  switch (name) {
    case CUDNN_ATTR_ENGINE_SM_COUNT_TARGET:
      ck_assert_int_eq(type, CUDNN_TYPE_INT32);
      *(int32_t *)values = t->sm_count;
      break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
      *(int64_t *)values = t->index;
      break;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
      *(cudnnBackendKnobType_t *)values = (cudnnBackendKnobType_t)t->sm_count;
      break;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      **(thing *const *)values = *t->engine;
      break;
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      ck_assert_int_ge(most, t->count + 1);
      *count = give_choices(t, values);
      break;
    default:
      return CUDNN_STATUS_BAD_PARAM;
  }
  return CUDNN_STATUS_SUCCESS;
}

/* As the library's heuristics would make it. */
static void expect_told(const char *from, const char *wanted) {
  char words[KERN_CUDA_WAY_BYTES];
  const cudnnBackendDescriptor_t config = kern_cuda_engine_of(&graph, from);
  ck_assert_ptr_nonnull(config);
  ck_assert(kern_cuda_engine_tell(&graph, config, words, sizeof words));
  ck_assert_str_eq(words, wanted);
  (void)cudnnBackendDestroyDescriptor(config);
  ck_assert_int_eq(live, 0);
}

START_TEST(engines_are_told_and_had_again) {
  expect_told("27 0", "27 0 40 7");
  expect_told("27 132 2 1 14 18446744073709551615", "27 132 2 1 14 18446744073709551615 40 7");
  expect_told("27 132 40 9 2 1", "27 132 40 9 2 1"); /* a choice that was made, not the one that always is */
  reverses = true;
  expect_told("3 0 40 9 2 1", "3 0 2 1 40 9");
}
END_TEST

/* Configurations that come with a number of multiprocessors which cannot be asked for. */
START_TEST(a_hint_that_is_not_taken_is_left_out) {
  char words[KERN_CUDA_WAY_BYTES];
  const cudnnBackendDescriptor_t config = kern_cuda_engine_of(&graph, "27 132 2 1");
  ck_assert_ptr_nonnull(config);
  takes_sm_count = false;
  ck_assert(kern_cuda_engine_tell(&graph, config, words, sizeof words));
  ck_assert_str_eq(words, "27 0 2 1 40 7");
  ck_assert(!kern_cuda_engine_tell(&graph, config, words, 8)); /* no room */
  ((thing *)config)->engine->index = 100;
  ck_assert(!kern_cuda_engine_tell(&graph, config, words, sizeof words)); /* it could not be had again */
  (void)cudnnBackendDestroyDescriptor(config);
}
END_TEST

START_TEST(what_is_no_engine_is_not_made) {
  static const char *const wrong[] = {"",      "27",      "27 132 2",    "27 132 2 1 ",  "27 132 x 1",  "-1 0",
                                      "27 -1", "100 132", "27  132 2 1", "27 132 2 1 3", "4294967296 0"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const cudnnBackendDescriptor_t config = kern_cuda_engine_of(&graph, wrong[i]);
    if (strcmp(wrong[i], "27 132 2 1 ") != 0) ck_assert_msg(!config, "%s", wrong[i]);
    if (config) (void)cudnnBackendDestroyDescriptor(config); /* a space at the end does not matter */
    ck_assert_int_eq(live, 0);
  }
}
END_TEST

int main(void) {
  static const TTest *tests[3];
  tests[0] = engines_are_told_and_had_again;
  tests[1] = a_hint_that_is_not_taken_is_left_out;
  tests[2] = what_is_no_engine_is_not_made;
  return suite_run("cuda_engine", tests, 3, setup, teardown, 0);
}
