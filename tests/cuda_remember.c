/* What one context found by timing, another takes without timing, on the real libraries: all that was chosen could be
 * told and had again, and gives the same bits. */
#include "kernels/cuda/memory.h"
#include "tests/cuda_arrays.h"

enum { MOST = 64, OUTPUTS = 9 };

typedef struct notes {
  char problem[MOST][600], way[MOST][KERN_CUDA_WAY_BYTES];
  int count, found, missed, kept;
} notes;

static const char *find(void *data, const char *device, const char *problem) {
  notes *n = data;
  (void)device;
  for (int i = 0; i < n->count; i++)
    if (strcmp(n->problem[i], problem) == 0) {
      n->found++;
      return n->way[i];
    }
  n->missed++;
  return NULL;
}

static void keep(void *data, const char *device, const char *problem, const char *way) {
  notes *n = data;
  (void)device;
  n->kept++;
  for (int i = 0; i < n->count; i++)
    if (strcmp(n->problem[i], problem) == 0)
      cuda_suite_fail("remembered", "%.60s: %.120s cannot be had again", problem, n->way[i]);
  if (n->count == MOST) return;
  (void)snprintf(n->problem[n->count], sizeof *n->problem, "%s", problem);
  (void)snprintf(n->way[n->count++], sizeof *n->way, "%s", way);
}

static const kern_linear linear = {.rows = 4096, .in = 640, .out = 1280};
static const kern_conv2d conv = {.batch = 2,
                                 .height = 32,
                                 .width = 32,
                                 .in = 320,
                                 .out = 320,
                                 .kernel_height = 3,
                                 .kernel_width = 3,
                                 .stride_height = 1,
                                 .stride_width = 1,
                                 .padding_height = 1,
                                 .padding_width = 1};
static const kern_attention attention = {
    .batch = 2, .heads = 8, .head_dim = 64, .q_tokens = 256, .k_tokens = 256, .scale = 0.125f};

typedef struct problems {
  array x, w, bias, image, filter, heads, lse;
  array outputs[OUTPUTS];
} problems;

static void solve(kern_cuda *c, const problems *p) {
  const array *out = p->outputs;
  kern_cuda_linear_forward(c, &linear, p->x.device, p->w.device, p->bias.device, NULL, out[0].device);
  kern_cuda_linear_weight_gradient(c, &linear, p->x.device, out[0].device, out[1].device, out[2].device);
  kern_cuda_conv2d_forward(c, &conv, p->image.device, p->filter.device, p->bias.device, p->image.device, out[3].device);
  kern_cuda_conv2d_input_gradient(c, &conv, p->filter.device, p->image.device, out[4].device, true);
  kern_cuda_conv2d_weight_gradient(c, &conv, p->image.device, p->image.device, out[5].device, NULL);
  kern_cuda_attention_forward(c, &attention, p->heads.device, p->heads.device, p->heads.device, out[6].device,
                              p->lse.device);
  kern_cuda_attention_backward(c, &attention, p->heads.device, p->heads.device, p->heads.device, out[6].device,
                               p->lse.device, p->heads.device, out[7].device, out[8].device, NULL, false);
}

static problems make_problems(void) {
  const int64_t image = conv.batch * conv.height * conv.width * conv.in, filter = conv.out * 9 * conv.in;
  const int64_t heads = attention.batch * attention.q_tokens * attention.heads * attention.head_dim;
  problems p = {.x = draw(KERN_BF16, linear.rows * linear.in),
                .w = draw(KERN_BF16, linear.out * linear.in),
                .bias = draw(KERN_BF16, linear.out),
                .image = draw(KERN_BF16, image),
                .filter = draw(KERN_BF16, filter),
                .heads = draw(KERN_BF16, heads),
                .lse = empty(KERN_FP32, attention.batch * attention.heads * attention.q_tokens)};
  p.outputs[0] = empty(KERN_BF16, linear.rows * linear.out);
  p.outputs[1] = empty(KERN_FP32, linear.out * linear.in);
  p.outputs[2] = empty(KERN_FP32, linear.out);
  p.outputs[3] = empty(KERN_BF16, image);
  p.outputs[4] = empty(KERN_BF16, image);
  p.outputs[5] = empty(KERN_FP32, filter);
  for (int i = 6; i < OUTPUTS; i++) p.outputs[i] = empty(KERN_BF16, heads);
  return p;
}

static void drop_problems(problems *p) {
  drop(&p->x), drop(&p->w), drop(&p->bias), drop(&p->image), drop(&p->filter), drop(&p->heads), drop(&p->lse);
  for (int i = 0; i < OUTPUTS; i++) drop(&p->outputs[i]);
}

/* On a new context: once to find the ways, once more from zeros. What the outputs are then is in got[]. */
static bool solve_anew(const cuda_place *place, void *workspace, size_t bytes, notes *n, const problems *p,
                       float *got[OUTPUTS]) {
  const kern_cuda_options options = {.dtype = KERN_BF16,
                                     .gradient = KERN_FP32,
                                     .stream = place->stream,
                                     .sm_count = place->sm_count,
                                     .workspace = workspace,
                                     .workspace_bytes = bytes,
                                     .memory = {find, keep, n}};
  kern_cuda *c = NULL;
  dp_error error = DP_ERROR_INIT;
  if (kern_cuda_create(&options, &c, &error) != DP_OK) {
    cuda_suite_fail("remembered", "%s", error.text);
    return false;
  }
  kern_cuda_tune(c, true);
  solve(c, p);
  kern_cuda_tune(c, false);
  bool well = cuda_suite_went_well(c, place->stream, "remembered, found");
  for (int i = 0; i < OUTPUTS; i++) clear(p->outputs[i].device, 0, (size_t)p->outputs[i].n * 4);
  solve(c, p);
  well = cuda_suite_went_well(c, place->stream, "remembered, taken") && well;
  for (int i = 0; i < OUTPUTS; i++) got[i] = get(&p->outputs[i]);
  kern_cuda_free(c);
  return well;
}

static size_t workspace_of(void) {
  const size_t sizes[] = {kern_cuda_linear_workspace(&linear, KERN_BF16), kern_cuda_conv2d_workspace(&conv, KERN_BF16),
                          kern_cuda_attention_workspace(&attention, KERN_BF16)};
  size_t most = 0;
  for (int i = 0; i < 3; i++)
    if (sizes[i] > most) most = sizes[i];
  return most;
}

static void remember_at(int place, const problems *p, void *workspace, size_t bytes) {
  static notes n; /* of one place: its number of multiprocessors is not looked at here */
  float *first[OUTPUTS] = {NULL}, *second[OUTPUTS] = {NULL};
  const cuda_place *at = &cuda_suite_world.places[place];
  memset(&n, 0, sizeof n);
  cuda_suite_say_place(place);
  if (!cuda_place_enter(at)) {
    cuda_suite_fail("remembered", "the place cannot be entered");
    return;
  }
  bool well = solve_anew(at, workspace, bytes, &n, p, first);
  const int missed = n.missed;
  n.found = n.missed = n.kept = 0;
  well = well && solve_anew(at, workspace, bytes, &n, p, second);
  if (well && (n.missed > 0 || n.kept > 0 || n.found == 0 || n.found > missed))
    cuda_suite_fail("remembered", "of %d problems %d were found again, %d not, and %d were timed again", missed,
                    n.found, n.missed, n.kept);
  else
    cuda_suite_pass();
  for (int i = 0; well && i < OUTPUTS; i++)
    cuda_suite_check(memcmp(first[i], second[i], (size_t)p->outputs[i].n * sizeof(float)) == 0, "remembered",
                     "the bits are others");
  for (int i = 0; i < OUTPUTS; i++) free(first[i]), free(second[i]);
}

void cuda_special_remember(void) {
  const size_t bytes = workspace_of();
  problems p = make_problems();
  void *workspace = NULL;
  if (cudaMalloc(&workspace, bytes) != cudaSuccess) {
    cuda_suite_fail("remembered", "no workspace of %zu bytes", bytes);
  } else {
    remember_at(CUDA_WHOLE, &p, workspace, bytes);
    if (cuda_suite_world.there[CUDA_PART]) remember_at(CUDA_PART, &p, workspace, bytes);
    (void)cudaFree(workspace);
  }
  cuda_suite_say_place(CUDA_WHOLE);
  (void)cuda_place_enter(&cuda_suite_world.places[CUDA_WHOLE]);
  drop_problems(&p);
}
