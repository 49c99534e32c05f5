/* Matrix products by cuBLASLt. A row-major matrix is the transposed one of a column-major library: C^T = op(B)^T
 * op(A)^T, so the operands change places and nothing is transposed in memory. For each size the descriptors and the
 * algorithm are made once.
 *
 * Split sums are kept to the scheme that adds parts in fp32 in a fixed order: in place would depend on which block
 * comes first, and parts in C's dtype would be rounded more than once. On an H200 a product in bf16 that is added where
 * it lies, with beta 1 and rows on boundaries of 16 bytes, is rounded to bf16 before it is added all the same, and
 * there is no attribute by which to ask for other algorithms; from another array it is added in fp32.
 *
 * A product that is a weight's gradient can form the sums that are the bias' on its way, as its operand passes; whether
 * that is faster than to read the operand once more is found by timing. So is whether sums of many terms for few tiles
 * are split, and whether siblings, products of the same sizes with one operand in common, are a batch: one launch, in
 * which blocks of one go where the last wave of another leaves room. Algorithms with a workspace may have something
 * cleared in it before each product, which takes a launch of its own: those that need none are asked for as well.
 */
#include "kernels/cuda/products.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/memory.h"

enum { CANDIDATES = 16, BARE = 6, SPLITS = 8, MAX_BATCH = 32768 };

typedef struct product {
  cublasLtMatmulDesc_t how;
  cublasLtMatrixLayout_t b, a, c;
  cublasLtMatmulAlgo_t algorithm; /* words that can be kept and are good for the same version of the library */
  size_t workspace_bytes;
  /* No algorithm adds the bias on the way; or forms the sums, or does siblings at once, or none is faster than they are
   * by themselves. */
  bool apart;
} product;

typedef struct call {
  kern_cuda *context;
  const kern_cuda_gemm *size; /* strides are set */
  const product *product;
  const void *a, *b, *bias, *residual;
  void *c;
  void *sums;    /* NULL, or [m] of C's dtype: sums of the rows of op(A); there is no bias then, nor a residual */
  bool siblings; /* a batch of what could as well be products by themselves; without bias, sums and residual */
  void *workspace;
  size_t workspace_bytes;
  bool done; /* it was computed while its product was made */
} call;

static void release(void *value) {
  product *p = value;
  if (p->a) (void)cublasLtMatrixLayoutDestroy(p->a);
  if (p->b) (void)cublasLtMatrixLayoutDestroy(p->b);
  if (p->c) (void)cublasLtMatrixLayoutDestroy(p->c);
  if (p->how) (void)cublasLtMatmulDescDestroy(p->how);
  free(p);
}

void kern_cuda_gemms_free(kern_cuda_cache *cache) { kern_cuda_cache_free(cache, release); }

static cudaDataType_t type_of(kern_dtype dtype) { return dtype == KERN_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

static bool set(kern_cuda *context, const product *p, cublasLtMatmulDescAttributes_t name, const void *value,
                size_t bytes) {
  return KERN_BLAS_TRY(context, cublasLtMatmulDescSetAttribute(p->how, name, value, bytes));
}

static bool describe_layout(kern_cuda *context, cublasLtMatrixLayout_t *layout, kern_dtype dtype, int64_t rows,
                            int64_t columns, int64_t stride, int64_t batch, int64_t batch_stride) {
  if (!KERN_BLAS_TRY(context,
                     cublasLtMatrixLayoutCreate(layout, type_of(dtype), (uint64_t)rows, (uint64_t)columns, stride)))
    return false;
  if (batch <= 1) return true;
  const int32_t count = (int32_t)batch;
  return KERN_BLAS_TRY(context, cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                                 sizeof count)) &&
         KERN_BLAS_TRY(context, cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                                 &batch_stride, sizeof batch_stride));
}

static bool describe(const call *c, product *p) {
  kern_cuda *context = c->context;
  const kern_cuda_gemm *s = c->size;
  const bool tf32 = context->options.dtype == KERN_FP32 && context->options.tf32;
  const cublasOperation_t of_b = s->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t of_a = s->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int32_t sm_count = context->sm_count;
  if (!KERN_BLAS_TRY(context, cublasLtMatmulDescCreate(
                                  &p->how, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F)) ||
      !set(context, p, CUBLASLT_MATMUL_DESC_TRANSA, &of_b, sizeof of_b) ||
      !set(context, p, CUBLASLT_MATMUL_DESC_TRANSB, &of_a, sizeof of_a))
    return false;
  if (context->options.sm_count > 0 &&
      !set(context, p, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sm_count, sizeof sm_count))
    return false;
  const kern_dtype dtype = context->options.dtype;
  return describe_layout(context, &p->b, dtype, s->b_transposed ? s->k : s->n, s->b_transposed ? s->n : s->k,
                         s->b_stride, s->batch, s->b_batch_stride) &&
         describe_layout(context, &p->a, dtype, s->a_transposed ? s->m : s->k, s->a_transposed ? s->k : s->m,
                         s->a_stride, s->batch, s->a_batch_stride) &&
         describe_layout(context, &p->c, s->c_dtype, s->n, s->m, s->c_stride, s->batch, s->c_batch_stride);
}

/* The bias that is read, or the sums that are written. */
static bool set_vector(const call *c, const product *p) {
  const void *const vector = c->sums ? c->sums : c->bias;
  return KERN_BLAS_TRY(
      c->context, cublasLtMatmulDescSetAttribute(p->how, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector));
}

static cublasStatus_t multiply(const call *c, const cublasLtMatmulAlgo_t *algorithm, size_t workspace_bytes) {
  const product *p = c->product;
  const kern_cuda_gemm *s = c->size;
  return cublasLtMatmul(c->context->blas, p->how, &s->alpha, c->b, p->b, c->a, p->a, &s->beta,
                        c->residual ? c->residual : c->c, p->c, c->c, p->c, algorithm,
                        workspace_bytes ? c->workspace : NULL, workspace_bytes, c->context->stream);
}

/* ---- the choice of an algorithm ---- */

/* What holds for all operands of all products of a batch, at most 16: algorithms need no more, and those chosen should
 * not depend on where arrays happen to lie. */
static uint32_t alignment_of(const call *c) {
  const kern_cuda_gemm *s = c->size;
  const int64_t bytes = kern_dtype_bytes(c->context->options.dtype), c_bytes = kern_dtype_bytes(s->c_dtype);
  const uintptr_t all = (uintptr_t)c->a | (uintptr_t)c->b | (uintptr_t)c->c | (uintptr_t)c->residual |
                        (uintptr_t)c->sums | (uintptr_t)((s->a_batch_stride | s->b_batch_stride) * bytes) |
                        (uintptr_t)(s->c_batch_stride * c_bytes);
  uint32_t alignment = 16;
  while (all % alignment != 0) alignment /= 2;
  return alignment;
}

/* At most `most`, with no more than so much workspace. */
static int ask(const call *c, const product *p, size_t workspace_bytes, int most,
               cublasLtMatmulHeuristicResult_t *found) {
  static const cublasLtMatmulPreferenceAttributes_t alignments[4] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  kern_cuda *context = c->context;
  cublasLtMatmulPreference_t wish = NULL;
  if (!KERN_BLAS_TRY(context, cublasLtMatmulPreferenceCreate(&wish))) return 0;
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, alignment = alignment_of(c);
  bool well =
      KERN_BLAS_TRY(context, cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                  &workspace_bytes, sizeof workspace_bytes)) &&
      KERN_BLAS_TRY(context, cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                                  &schemes, sizeof schemes));
  for (int i = 0; i < 4 && well; i++)
    well =
        KERN_BLAS_TRY(context, cublasLtMatmulPreferenceSetAttribute(wish, alignments[i], &alignment, sizeof alignment));
  int count = 0;
  /* a failure here says that nothing fits; the caller may know another way */
  if (well && cublasLtMatmulAlgoGetHeuristic(context->blas, p->how, p->b, p->a, p->c, p->c, wish, most, found,
                                             &count) != CUBLAS_STATUS_SUCCESS)
    count = 0;
  (void)cublasLtMatmulPreferenceDestroy(wish);
  int kept = 0;
  for (int i = 0; i < count; i++)
    if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= workspace_bytes) found[kept++] = found[i];
  return kept;
}

/* found[CANDIDATES + BARE]: in the library's order; where they will be timed, then those without a workspace. */
static int candidates_of(const call *c, const product *p, cublasLtMatmulHeuristicResult_t *found) {
  const int count = ask(c, p, c->workspace_bytes, CANDIDATES, found);
  if (count == 0 || !c->context->tuning) return count;
  cublasLtMatmulHeuristicResult_t bare[BARE];
  const int more = ask(c, p, 0, BARE, bare);
  int all = count;
  for (int i = 0; i < more; i++) {
    int k = 0;
    while (k < count && (found[k].workspaceSize > 0 || memcmp(&found[k].algo, &bare[i].algo, sizeof bare[i].algo) != 0))
      k++;
    if (k == count) found[all++] = bare[i];
  }
  return all;
}

/* Siblings with more tiles, too: one by one, as they are timed against, they are split. */
static bool is_worth_splitting(const call *c) {
  enum { TILE = 128, TERMS = 2048, FEW = 2, FEW_OF_SIBLINGS = 4 };
  const kern_cuda_gemm *s = c->size;
  const int64_t tiles = ((s->m + TILE - 1) / TILE) * ((s->n + TILE - 1) / TILE) * s->batch;
  return s->k >= TERMS && tiles < (c->siblings ? FEW_OF_SIBLINGS : FEW) * (int64_t)c->context->sm_count;
}

/* The best two of the candidates, split as the library may not have thought of; returns how many there are then. */
static int add_splits(const call *c, const product *p, cublasLtMatmulHeuristicResult_t *found, int count) {
  static const int32_t parts[] = {2, 3, 4, 6};
  const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const int whole = count < 2 ? count : 2;
  for (int i = 0; i < whole; i++)
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
      cublasLtMatmulHeuristicResult_t result = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
      cublasLtMatmulAlgo_t algorithm = found[i].algo;
      if (cublasLtMatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts[k],
                                               sizeof parts[k]) != CUBLAS_STATUS_SUCCESS ||
          cublasLtMatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                               sizeof scheme) != CUBLAS_STATUS_SUCCESS ||
          cublasLtMatmulAlgoCheck(c->context->blas, p->how, p->b, p->a, p->c, p->c, &algorithm, &result) !=
              CUBLAS_STATUS_SUCCESS ||
          result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > c->workspace_bytes)
        continue;
      result.algo = algorithm; /* a check leaves it alone */
      found[count++] = result;
    }
  return count;
}

static void run_timed(void *data) {
  const call *c = data;
  (void)KERN_BLAS_TRY(c->context, multiply(c, &c->product->algorithm, c->product->workspace_bytes));
}

static void choose(call *c, product *p, const cublasLtMatmulHeuristicResult_t *found, int count) {
  int best = 0;
  float least = 0;
  for (int i = 0; i < count && count > 1 && c->context->tuning && !kern_cuda_failed(c->context); i++) {
    if (multiply(c, &found[i].algo, found[i].workspaceSize) != CUBLAS_STATUS_SUCCESS) {
      (void)cudaGetLastError(); /* of what could not be launched */
      continue;
    }
    p->algorithm = found[i].algo;
    p->workspace_bytes = found[i].workspaceSize;
    const float ms = kern_cuda_time_ms(c->context, run_timed, c);
    if (least > 0 && ms >= least) continue;
    least = ms;
    best = i;
  }
  p->algorithm = found[best].algo;
  p->workspace_bytes = found[best].workspaceSize;
}

static void run(call *c);

static void run_apart(void *data) {
  const call *c = data;
  const kern_cuda_gemm *s = c->size;
  call alone = *c;
  alone.sums = NULL;
  run(&alone);
  kern_cuda_column_sums(c->context, s->k, s->m, s->a_stride, c->context->options.dtype, c->a, s->c_dtype, false,
                        c->sums, c->workspace);
}

/* That the bias, or the sums, are part of the product, or not. */
static bool set_epilogue(const call *c, const product *p, bool fused) {
  /* BGRADB: of C^T = op(B)^T op(A)^T, so of our A */
  const cublasLtEpilogue_t epilogue = !fused    ? CUBLASLT_EPILOGUE_DEFAULT
                                      : c->sums ? CUBLASLT_EPILOGUE_BGRADB
                                                : CUBLASLT_EPILOGUE_BIAS;
  const int32_t type = type_of(c->size->c_dtype); /* said, not left to the library */
  if (fused && c->sums && !set(c->context, p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type)) return false;
  return set(c->context, p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) && (!fused || set_vector(c, p));
}

/* The products of a batch from one on, by sizes that say how many. */
static call part_of(const call *all, const kern_cuda_gemm *size, int64_t from) {
  const kern_cuda_gemm *s = all->size;
  const int64_t bytes = kern_dtype_bytes(all->context->options.dtype), c_bytes = kern_dtype_bytes(s->c_dtype);
  call part = *all;
  part.size = size;
  part.a = (const char *)all->a + from * s->a_batch_stride * bytes;
  part.b = (const char *)all->b + from * s->b_batch_stride * bytes;
  part.c = (char *)all->c + from * s->c_batch_stride * c_bytes;
  part.residual = all->residual ? (const char *)all->residual + from * s->c_batch_stride * c_bytes : NULL;
  return part;
}

static void run_singly(void *data) {
  const call *c = data;
  kern_cuda_gemm size = *c->size;
  size.batch = 1;
  size.a_batch_stride = size.b_batch_stride = size.c_batch_stride = 0;
  for (int64_t i = 0; i < c->size->batch; i++) {
    call single = part_of(c, &size, i);
    single.siblings = false;
    run(&single);
  }
}

/* With sums, or of siblings: only what has been found to be faster is not left apart. */
static void choose_at_once(call *c, product *p) {
  kern_cuda *context = c->context;
  cublasLtMatmulHeuristicResult_t found[CANDIDATES + BARE + SPLITS];
  p->apart = true;
  if (!context->tuning || !set_epilogue(c, p, !c->siblings)) return;
  int count = candidates_of(c, p, found);
  if (count == 0) return;
  if (c->siblings && is_worth_splitting(c)) count = add_splits(c, p, found, count);
  choose(c, p, found, count);
  if (multiply(c, &p->algorithm, p->workspace_bytes) != CUBLAS_STATUS_SUCCESS) {
    (void)cudaGetLastError();
    return;
  }
  p->apart =
      kern_cuda_time_ms(context, c->siblings ? run_singly : run_apart, c) <= kern_cuda_time_ms(context, run_timed, c);
}

static void choose_one(call *c, product *p) {
  kern_cuda *context = c->context;
  const kern_cuda_gemm *s = c->size;
  cublasLtMatmulHeuristicResult_t found[CANDIDATES + BARE + SPLITS];
  int count = 0;
  p->apart = false;
  if (c->bias) {
    if (!set_epilogue(c, p, true)) return;
    count = candidates_of(c, p, found);
  }
  if (count == 0) {
    p->apart = c->bias != NULL;
    if (!set_epilogue(c, p, false)) return;
    count = candidates_of(c, p, found);
    if (count > 0 && context->tuning && is_worth_splitting(c)) count = add_splits(c, p, found, count);
  }
  if (count == 0) {
    kern_cuda_fail(context, DP_UNSUPPORTED, "cuBLASLt has no product of %lld x %lld x %lld, %s to %s", (long long)s->m,
                   (long long)s->n, (long long)s->k, context->options.dtype == KERN_BF16 ? "bf16" : "fp32",
                   s->c_dtype == KERN_BF16 ? "bf16" : "fp32");
    return;
  }
  choose(c, p, found, count);
}

/* ---- what is remembered: "apart" or "fused", bytes of workspace, the words of the algorithm; of sums and siblings
 * that are apart the first alone, since the products are then other problems. What is restored is also run: parts of a
 * device with as many multiprocessors may differ in the clusters that they can launch; and of an algorithm that was
 * found with no workspace a check may name one, which it does not need ---- */

typedef struct attempt {
  call *call;
  product *product;
} attempt;

enum { ALGORITHM_WORDS = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t) };

/* Its product, where that is apart, is another problem. */
static bool leaves_product(const call *c) { return c->sums || c->siblings; }

static bool may_be_fused(const call *c) { return c->bias || leaves_product(c); }

static bool restore(void *data, const char *way) {
  const attempt *at = data;
  call *c = at->call;
  product *p = at->product;
  cublasLtMatmulHeuristicResult_t result = {.state = CUBLAS_STATUS_SUCCESS};
  uint64_t bytes;
  const bool fused = kern_cuda_take_word(&way, "fused");
  if (!fused && !kern_cuda_take_word(&way, "apart")) return false;
  p->apart = !fused && may_be_fused(c);
  if (p->apart && leaves_product(c)) return !*way;
  if ((fused && !may_be_fused(c)) || !kern_cuda_take_number(&way, 10, &bytes) || bytes > c->workspace_bytes)
    return false;
  for (int i = 0; i < ALGORITHM_WORDS; i++)
    if (!kern_cuda_take_number(&way, 16, &p->algorithm.data[i])) return false;
  p->workspace_bytes = (size_t)bytes;
  c->done = !*way && set_epilogue(c, p, fused && !c->siblings) &&
            cublasLtMatmulAlgoCheck(c->context->blas, p->how, p->b, p->a, p->c, p->c, &p->algorithm, &result) ==
                CUBLAS_STATUS_SUCCESS &&
            result.state == CUBLAS_STATUS_SUCCESS && (bytes == 0 || result.workspaceSize <= p->workspace_bytes) &&
            multiply(c, &p->algorithm, p->workspace_bytes) == CUBLAS_STATUS_SUCCESS;
  return c->done;
}

static bool choose_anew(void *data, char way[KERN_CUDA_WAY_BYTES]) {
  const attempt *at = data;
  const call *c = at->call;
  product *p = at->product;
  if (leaves_product(c))
    choose_at_once(at->call, p);
  else
    choose_one(at->call, p);
  size_t length = (size_t)snprintf(way, KERN_CUDA_WAY_BYTES, "%s", p->apart || !may_be_fused(c) ? "apart" : "fused");
  if (p->apart && leaves_product(c)) return true;
  length += (size_t)snprintf(way + length, KERN_CUDA_WAY_BYTES - length, " %zu", p->workspace_bytes);
  for (int i = 0; i < ALGORITHM_WORDS; i++)
    length += (size_t)snprintf(way + length, KERN_CUDA_WAY_BYTES - length, " %" PRIx64, p->algorithm.data[i]);
  return true;
}

/* `far`: how far the products of a batch lie apart. */
static kern_cuda_key key_of(const call *c, const int64_t far[3]) {
  const kern_cuda_gemm *s = c->size;
  return (kern_cuda_key){{s->m, s->n, s->k, s->a_transposed, s->b_transposed, s->a_stride, s->b_stride, s->c_stride,
                          s->beta != 0, s->c_dtype, s->batch, far[0], far[1], far[2],
                          c->bias       ? 1
                          : c->sums     ? 2
                          : c->siblings ? 3
                                        : 0,
                          alignment_of(c), (int64_t)c->workspace_bytes}};
}

/* The problem: siblings lie where there was room, so it is one however far apart. */
static kern_cuda_key problem_of(const call *c) {
  const kern_cuda_gemm *s = c->size;
  const int64_t all[3] = {s->a_batch_stride, s->b_batch_stride, s->c_batch_stride};
  const int64_t any[3] = {all[0] != 0, all[1] != 0, all[2] != 0};
  return key_of(c, c->siblings ? any : all);
}

static bool build(call *c, product *p) {
  attempt at = {c, p};
  const kern_cuda_chooser chooser = {restore, choose_anew, &at};
  const kern_cuda_key problem = problem_of(c);
  if (!describe(c, p)) return false;
  kern_cuda_choose(c->context, "product", &problem, &chooser);
  (void)cudaGetLastError(); /* of what the library looked at; cuDNN would take it for its own */
  return !kern_cuda_failed(c->context);
}

/* Finds or makes the call's product; false: that failed. */
static bool find_product(call *c) {
  kern_cuda *context = c->context;
  const int64_t far[3] = {c->size->a_batch_stride, c->size->b_batch_stride, c->size->c_batch_stride};
  const kern_cuda_key key = key_of(c, far);
  product *p = kern_cuda_cache_find(context->gemms, &key);
  c->product = p;
  if (p) return true;
  p = calloc(1, sizeof *p);
  if (!p) {
    kern_cuda_fail(context, DP_NO_MEMORY, "out of memory");
    return false;
  }
  c->product = p;
  if (build(c, p) && kern_cuda_cache_add(context, &context->gemms, &key, p)) return true;
  release(p);
  return false;
}

static void run(call *c) {
  kern_cuda *context = c->context;
  const kern_cuda_gemm *s = c->size;
  if (!find_product(c)) return;
  const product *p = c->product;
  if (c->bias && !p->apart && !set_vector(c, p)) return;
  if ((c->done || KERN_BLAS_TRY(context, multiply(c, &p->algorithm, p->workspace_bytes))) && p->apart)
    kern_cuda_add_bias(context, s->m, s->n, s->c_stride, c->c, c->bias, NULL, c->c);
}

static kern_cuda_gemm with_strides(const kern_cuda_gemm *size) {
  kern_cuda_gemm s = *size;
  s.a_stride = kern_cuda_or_dense(s.a_stride, s.a_transposed ? s.m : s.k);
  s.b_stride = kern_cuda_or_dense(s.b_stride, s.b_transposed ? s.k : s.n);
  s.c_stride = kern_cuda_or_dense(s.c_stride, s.n);
  if (s.batch > 1) return s;
  s.batch = 1;
  s.a_batch_stride = s.b_batch_stride = s.c_batch_stride = 0;
  return s;
}

static size_t bytes_of(size_t workspace_bytes) {
  return workspace_bytes < KERN_CUDA_PRODUCT_BYTES ? workspace_bytes : KERN_CUDA_PRODUCT_BYTES;
}

void kern_cuda_product(kern_cuda *context, const kern_cuda_gemm *size, const void *a, const void *b, const void *bias,
                       const void *residual, void *c, void *workspace, size_t workspace_bytes) {
  if (kern_cuda_failed(context) || size->m <= 0 || size->n <= 0) return;
  if (size->k <= 0 && size->beta == 1 && !bias && (!residual || residual == c)) return; /* nothing is added */
  if (size->k <= 0) {
    kern_cuda_fail(context, DP_UNSUPPORTED, "a product over nothing");
    return;
  }
  const kern_cuda_gemm whole = with_strides(size);
  const call all = {.context = context,
                    .size = &whole,
                    .a = a,
                    .b = b,
                    .bias = bias,
                    .residual = residual,
                    .c = c,
                    .workspace = workspace,
                    .workspace_bytes = bytes_of(workspace_bytes)};
  kern_cuda_gemm s = whole;
  for (int64_t at = 0; at < whole.batch; at += MAX_BATCH) {
    s.batch = whole.batch - at < MAX_BATCH ? whole.batch - at : MAX_BATCH;
    call part = part_of(&all, &s, at);
    run(&part);
  }
}

/* Whether one product is the way, and is done then; a failure to find or make it is told. */
static bool run_fused(call *c) {
  if (!find_product(c)) return true;
  const product *p = c->product;
  if (p->apart) return false;
  if (!c->done && (!c->sums || set_vector(c, p)))
    (void)KERN_BLAS_TRY(c->context, multiply(c, &p->algorithm, p->workspace_bytes));
  return true;
}

bool kern_cuda_product_with_sums(kern_cuda *context, const kern_cuda_gemm *size, const void *a, const void *b, void *c,
                                 void *sums, void *workspace, size_t workspace_bytes) {
  const kern_cuda_gemm s = with_strides(size);
  call one = {.context = context,
              .size = &s,
              .a = a,
              .b = b,
              .c = c,
              .sums = sums,
              .workspace = workspace,
              .workspace_bytes = workspace_bytes};
  return run_fused(&one);
}

bool kern_cuda_product_siblings(kern_cuda *context, const kern_cuda_gemm *size, const void *a, const void *b, void *c,
                                void *workspace, size_t workspace_bytes) {
  const kern_cuda_gemm s = with_strides(size);
  call one = {.context = context,
              .size = &s,
              .a = a,
              .b = b,
              .c = c,
              .siblings = true,
              .workspace = workspace,
              .workspace_bytes = bytes_of(workspace_bytes)};
  if (kern_cuda_failed(context) || s.m <= 0 || s.n <= 0 || s.k <= 0 || s.batch > MAX_BATCH) return false;
  return run_fused(&one);
}

void kern_cuda_gemm_run(kern_cuda *context, const kern_cuda_gemm *size, const void *a, const void *b, void *c) {
  kern_cuda_product(context, size, a, b, NULL, NULL, c, context->options.workspace, context->options.workspace_bytes);
}
