#include "kernels/cuda/engine.h"

#include <stdio.h>

typedef cudnnBackendDescriptor_t descriptor;

typedef struct knob {
  cudnnBackendKnobType_t type;
  int64_t value;
} knob;

typedef struct engine {
  int64_t index;
  int32_t sm_count;
  int64_t knob_count;
  knob knobs[CUDNN_KNOB_TYPE_COUNTS];
} engine;

static bool get(descriptor from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
                int64_t *count, void *values) {
  return cudnnBackendGetAttribute(from, name, type, most, count, values) == CUDNN_STATUS_SUCCESS;
}

static bool set(descriptor of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *values) {
  return cudnnBackendSetAttribute(of, name, type, count, values) == CUDNN_STATUS_SUCCESS;
}

static bool make(cudnnBackendDescriptorType_t type, descriptor *made) {
  if (cudnnBackendCreateDescriptor(type, made) == CUDNN_STATUS_SUCCESS) return true;
  *made = NULL;
  return false;
}

static void destroy(descriptor d) {
  if (d) (void)cudnnBackendDestroyDescriptor(d);
}

/* ---- a configuration's engine and knobs ---- */

static bool read_engine(descriptor config, engine *e) {
  descriptor of = NULL;
  int64_t count = 0;
  bool done = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &of) &&
              get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &of) &&
              get(of, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &e->index);
  /* not every version tells */
  if (done && (!get(of, CUDNN_ATTR_ENGINE_SM_COUNT_TARGET, CUDNN_TYPE_INT32, 1, &count, &e->sm_count) || count != 1 ||
               e->sm_count < 0))
    e->sm_count = 0;
  destroy(of);
  return done;
}

static bool read_knobs(descriptor config, engine *e) {
  descriptor choices[CUDNN_KNOB_TYPE_COUNTS] = {NULL};
  int64_t one = 0;
  bool done = true;
  for (int i = 0; done && i < CUDNN_KNOB_TYPE_COUNTS; i++)
    done = make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &choices[i]);
  done = done &&
         get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS,
             &e->knob_count, choices) &&
         e->knob_count <= CUDNN_KNOB_TYPE_COUNTS;
  for (int64_t k = 0; done && k < e->knob_count; k++)
    done = get(choices[k], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one, &e->knobs[k].type) &&
           get(choices[k], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one, &e->knobs[k].value);
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; i++) destroy(choices[i]);
  return done;
}

static bool read_config(descriptor config, engine *e) {
  *e = (engine){.index = 0};
  return read_engine(config, e) && read_knobs(config, e);
}

/* ---- a configuration of them ---- */

static bool make_engine(descriptor graph, const engine *e, descriptor *made) {
  return make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, made) &&
         set(*made, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph) &&
         set(*made, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &e->index) &&
         (e->sm_count == 0 || set(*made, CUDNN_ATTR_ENGINE_SM_COUNT_TARGET, CUDNN_TYPE_INT32, 1, &e->sm_count)) &&
         cudnnBackendFinalize(*made) == CUDNN_STATUS_SUCCESS;
}

static bool make_choice(const knob *k, descriptor *made) {
  return make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, made) &&
         set(*made, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &k->type) &&
         set(*made, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &k->value) &&
         cudnnBackendFinalize(*made) == CUDNN_STATUS_SUCCESS;
}

static descriptor make_config(descriptor graph, const engine *e) {
  descriptor of = NULL, config = NULL, choices[CUDNN_KNOB_TYPE_COUNTS] = {NULL};
  bool done = make_engine(graph, e, &of) && make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config) &&
              set(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &of);
  for (int64_t k = 0; done && k < e->knob_count; k++) done = make_choice(&e->knobs[k], &choices[k]);
  done = done &&
         (e->knob_count == 0 ||
          set(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, e->knob_count, choices)) &&
         cudnnBackendFinalize(config) == CUDNN_STATUS_SUCCESS;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; i++) destroy(choices[i]);
  destroy(of);
  if (done) return config;
  destroy(config);
  return NULL;
}

/* ---- words ---- */

static bool write_words(const engine *e, char *out, size_t bytes) {
  size_t length = (size_t)snprintf(out, bytes, "%lld %d", (long long)e->index, (int)e->sm_count);
  for (int64_t k = 0; k < e->knob_count && length < bytes; k++)
    length += (size_t)snprintf(out + length, bytes - length, " %d %llu", (int)e->knobs[k].type,
                               (unsigned long long)e->knobs[k].value); /* so that there are no signs */
  return length < bytes;
}

static bool read_words(const char *words, engine *e) {
  uint64_t number, value;
  *e = (engine){.index = 0};
  if (!kern_cuda_take_number(&words, 10, &number) || number > INT32_MAX) return false;
  e->index = (int64_t)number;
  if (!kern_cuda_take_number(&words, 10, &number) || number > INT32_MAX) return false;
  e->sm_count = (int32_t)number;
  while (*words) {
    if (e->knob_count == CUDNN_KNOB_TYPE_COUNTS || !kern_cuda_take_number(&words, 10, &number) ||
        !kern_cuda_take_number(&words, 10, &value) || number > INT32_MAX)
      return false;
    e->knobs[e->knob_count++] = (knob){(cudnnBackendKnobType_t)number, (int64_t)value};
  }
  return true;
}

descriptor kern_cuda_engine_of(descriptor graph, const char *words) {
  engine e;
  return read_words(words, &e) ? make_config(graph, &e) : NULL;
}

/* Whether the other has all of its choices; it may tell of more. */
static bool has_all(const engine *e, const engine *other) {
  if (e->index != other->index) return false;
  for (int64_t k = 0; k < e->knob_count; k++) {
    int64_t at = 0;
    while (at < other->knob_count && other->knobs[at].type != e->knobs[k].type) at++;
    if (at == other->knob_count || other->knobs[at].value != e->knobs[k].value) return false;
  }
  return true;
}

static bool can_be_made(descriptor graph, const engine *e) {
  engine again;
  const descriptor config = make_config(graph, e);
  const bool done = config && read_config(config, &again) && has_all(e, &again);
  destroy(config);
  return done;
}

bool kern_cuda_engine_tell(descriptor graph, descriptor config, char *out, size_t bytes) {
  engine e;
  if (!read_config(config, &e)) return false;
  if (!can_be_made(graph, &e)) {
    if (e.sm_count == 0) return false;
    e.sm_count = 0; /* a hint, which this version tells and does not take */
    if (!can_be_made(graph, &e)) return false;
  }
  return write_words(&e, out, bytes);
}
