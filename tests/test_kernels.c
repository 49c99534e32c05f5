/* Every op of kernels/cpu in one table: values against a plain double reference, gradients against central differences
 * of that reference, the same bits from 1, 2 and 3 threads, all of an output written, gradients of weights added.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cpu/tile.h"
#include "kernels/cpu/vector.h"
#include "tests/kernels_ops.h"
#include "tests/suite.h"

static const double step = 1e-4; /* of the differences: their error is about 1e-8 of the third derivative */

static uint64_t state;
static double draw(void) { return ops_draw(&state); }

static void *get(size_t bytes) {
  void *memory = malloc(bytes > 0 ? bytes : 1);
  ck_assert_ptr_nonnull(memory);
  return memory;
}
static float *get_floats(int64_t n) { return get((size_t)n * sizeof(float)); }
static void poison(int64_t n, float *x) {
  for (int64_t i = 0; i < n; i++) x[i] = NAN;
}

typedef struct trial {
  const ops_row *row;
  ops_arrays a;
  float *in[OPS_MAX_ARRAYS], *dy, *start[OPS_MAX_ARRAYS]; /* start: what a gradient is added to */
  double *wide[OPS_MAX_ARRAYS], *out;
  float *first_out, *first_d[2][OPS_MAX_ARRAYS]; /* of one thread; [accumulate] */
} trial;

static void begin(trial *t, const ops_row *row) {
  memset(t, 0, sizeof *t);
  t->row = row;
  row->kind->arrays(row->z, &t->a);
  for (int i = 0; i < t->a.count; i++) {
    t->in[i] = get_floats(t->a.n[i]);
    t->start[i] = get_floats(t->a.n[i]);
    t->wide[i] = get((size_t)t->a.n[i] * sizeof(double));
    for (int64_t j = 0; j < t->a.n[i]; j++) {
      t->wide[i][j] = t->in[i][j] = (float)draw();
      t->start[i][j] = (float)draw();
    }
  }
  t->out = get((size_t)t->a.out * sizeof(double));
  t->dy = get_floats(t->a.out);
  row->kind->reference(row->z, (const double *const *)t->wide, t->out);
  for (int64_t j = 0; j < t->a.out; j++) t->dy[j] = isnan(t->out[j]) ? NAN : (float)draw();
}

static void end(trial *t) {
  for (int i = 0; i < t->a.count; i++) {
    free(t->in[i]);
    free(t->start[i]);
    free(t->wide[i]);
    for (int k = 0; k < 2; k++) free(t->first_d[k][i]);
  }
  free(t->out);
  free(t->dy);
  free(t->first_out);
}

static kern_context *make_context(int threads, size_t bytes) {
  kern_context *context;
  dp_error error = DP_ERROR_INIT;
  const kern_context_options options = {.threads = threads, .workspace_bytes = bytes};
  ck_assert_msg(kern_context_create(&options, &context, &error) == DP_OK, "%s", error.text);
  return context;
}

static void check_bits(const trial *t, const char *what, int64_t n, const float *x, float **first) {
  if (*first == NULL) {
    *first = get_floats(n);
    memcpy(*first, x, (size_t)n * sizeof *x);
  }
  ck_assert_msg(memcmp(*first, x, (size_t)n * sizeof *x) == 0, "%s: %s differs between numbers of threads",
                t->row->kind->name, what);
}

/* Runs forward and both backwards; NaN lies wherever a result must be written. */
static void run(trial *t, int threads) {
  const ops_kind *kind = t->row->kind;
  const int64_t *z = t->row->z;
  const size_t bytes = kind->workspace == NULL ? 0 : kind->workspace(z, threads);
  float *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
  ck_assert_ptr_nonnull(workspace);
  poison((int64_t)(bytes / sizeof *workspace), workspace);
  kern_context *context;
  const kern_context_options options = {threads, bytes, workspace};
  ck_assert(kern_context_create(&options, &context, NULL) == DP_OK);
  float *out = get_floats(t->a.out), *kept = get_floats(t->a.kept), *d[OPS_MAX_ARRAYS] = {NULL};
  poison(t->a.out, out);
  poison(t->a.kept, kept);
  kind->forward(context, z, (const float *const *)t->in, out, kept);
  check_bits(t, "the output", t->a.out, out, &t->first_out);
  for (int accumulate = 0; accumulate < 2 && kind->backward != NULL; accumulate++) {
    for (int i = 0; i < t->a.count; i++) {
      if (t->a.role[i] == OPS_CONSTANT) continue;
      d[i] = get_floats(t->a.n[i]);
      if (t->a.role[i] == OPS_WEIGHT || accumulate)
        memcpy(d[i], t->start[i], (size_t)t->a.n[i] * sizeof(float));
      else
        poison(t->a.n[i], d[i]);
    }
    kind->backward(context, z, (const float *const *)t->in, out, kept, t->dy, d, accumulate);
    for (int i = 0; i < t->a.count; i++) {
      if (d[i] != NULL) check_bits(t, "a gradient", t->a.n[i], d[i], &t->first_d[accumulate][i]);
      free(d[i]);
    }
  }
  kern_context_free(context);
  free(workspace);
  free(out);
  free(kept);
}

static void check_output(const trial *t) {
  double largest = 1e-3;
  for (int64_t i = 0; i < t->a.out; i++)
    if (fabs(t->out[i]) > largest) largest = fabs(t->out[i]);
  for (int64_t i = 0; i < t->a.out; i++) {
    const double got = t->first_out[i], want = t->out[i];
    if (isnan(want)) {
      ck_assert_msg(isnan(got), "%s: value %d is nobody's, found %g", t->row->kind->name, (int)i, got);
      continue;
    }
    ck_assert_msg(fabs(got - want) <= ops_tolerance(t->row->longest) * largest, "%s: value %d is %.9g, must be %.9g",
                  t->row->kind->name, (int)i, got, want);
  }
}

/* (L(x + step v) - L(x - step v)) / 2 step, where L = sum of dy y, for a change of input `which` */
static double loss(const trial *t, double *out) {
  t->row->kind->reference(t->row->z, (const double *const *)t->wide, out);
  double sum = 0;
  for (int64_t i = 0; i < t->a.out; i++)
    if (!isnan(out[i])) sum += out[i] * t->dy[i];
  return sum;
}
static double slope(const trial *t, int which, int64_t entry, const double *direction, double *out) {
  double *x = t->wide[which], sum = 0;
  for (int sign = 1; sign >= -1; sign -= 2) {
    for (int64_t i = 0; i < t->a.n[which]; i++)
      x[i] = t->in[which][i] + sign * step * (direction != NULL ? direction[i] : i == entry);
    sum += sign * loss(t, out);
  }
  for (int64_t i = 0; i < t->a.n[which]; i++) x[i] = t->in[which][i];
  return sum / (2 * step);
}

static double gradient_at(const trial *t, int accumulate, int which, int64_t i) {
  const double value = t->first_d[accumulate][which][i];
  return t->a.role[which] == OPS_WEIGHT || accumulate ? value - (double)t->start[which][i] : value;
}

/* Some entries of each gradient, and all of it along one random direction of signs. */
static void check_gradients(const trial *t) {
  double *out = get((size_t)t->a.out * sizeof(double));
  for (int which = 0; which < t->a.count; which++) {
    if (t->first_d[0][which] == NULL) continue;
    const int64_t n = t->a.n[which];
    double *direction = get((size_t)n * sizeof(double)), largest = 0;
    /* values added to have a size of 1, and round with it */
    for (int64_t i = 0; i < n; i++) {
      direction[i] = draw() > 0 ? 1 : -1;
      if (isnan(t->first_d[1][which][i]) == 0 && fabs(gradient_at(t, 1, which, i)) > largest)
        largest = fabs(gradient_at(t, 1, which, i));
    }
    largest += 1;
    const double allowed = ops_tolerance(t->row->longest) * largest + 1e-7;
    for (int p = 0; p < t->row->probes; p++) {
      const int64_t i = p < 2 ? (n - 1) * p : (int64_t)((draw() + 1) / 2 * (double)n) % n;
      const double want = slope(t, which, i, NULL, out);
      for (int k = 0; k < 2; k++) {
        const double got = gradient_at(t, k, which, i);
        ck_assert_msg(isnan(got) ? want == 0 : fabs(got - want) <= allowed,
                      "%s: entry %d of gradient %d is %.9g, must be %.9g", t->row->kind->name, (int)i, which, got,
                      want);
      }
    }
    const double want = slope(t, which, 0, direction, out);
    for (int k = 0; k < 2; k++) {
      double got = 0;
      int64_t gaps = 0;
      for (int64_t i = 0; i < n; i++) {
        const double value = gradient_at(t, k, which, i);
        if (isnan(value))
          gaps++;
        else
          got += direction[i] * value;
      }
      ck_assert_msg(gaps == 0 || (t->row->kind == &ops_linear && gaps == (t->row->z[0] - 1) * t->row->z[4]),
                    "%s: %d values of gradient %d are not written", t->row->kind->name, (int)gaps, which);
      ck_assert_msg(fabs(got - want) <= allowed * (2 + 3 * sqrt((double)n)),
                    "%s: gradient %d along a direction is %.9g, must be %.9g", t->row->kind->name, which, got, want);
    }
    free(direction);
  }
  free(out);
}

static void try_row(size_t r, int most_threads) {
  trial t;
  state = r + 1;
  begin(&t, &ops_rows[r]);
  for (int threads = 1; threads <= most_threads; threads++) run(&t, threads);
  check_output(&t);
  check_gradients(&t);
  end(&t);
}

START_TEST(test_rows) { try_row((size_t)_i, 3); }
END_TEST

/* Products by each kind of tile that this machine can run, not the fastest alone. */
START_TEST(test_tiles) {
  const ops_kind *const kinds[] = {&ops_linear, &ops_lora, &ops_conv, &ops_attention, &ops_separable};
  int found = 0;
  for (int i = 0; kern_tiles_all(i) != NULL; i++) {
    if (!kern_tiles_all(i)->supported()) continue;
    found++;
    kern_tiles_choose(kern_tiles_all(i));
    for (size_t r = 0; r < ops_row_count; r++)
      for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (ops_rows[r].kind == kinds[k] && !(suite_is_short() && r % 8)) try_row(r, 2);
  }
  kern_tiles_choose(NULL);
  ck_assert_int_ge(found, 1);
}
END_TEST

/* A sum of no products is 0; factors are 0, 1 and others. */
START_TEST(test_gemm_factors) {
  const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, 2, 0, 1, 3}; /* [2, 3], [3, 2] */
  kern_context *context = NULL;
  dp_error error = DP_ERROR_INIT;
  ck_assert(kern_context_create(&(kern_context_options){.threads = 1}, &context, &error) == DP_OK);
  for (int k = 0; k <= 3; k += 3)
    for (int beta = 0; beta <= 2; beta++) {
      float c[] = {1, 2, 3, 4};
      const kern_gemm size = {2, 2, k, false, false, 3, 2, 2, 0.5f, (float)beta};
      kern_gemm_run(context, &size, a, b, c);
      for (int i = 0; i < 4; i++) {
        float want = (float)(beta * (i + 1));
        for (int l = 0; l < k; l++) want += 0.5f * a[i / 2 * 3 + l] * b[l * 2 + i % 2];
        ck_assert_float_eq(c[i], want);
      }
    }
  kern_context_free(context);
}
END_TEST

/* The functions that vector loops are made of, over their whole range. */
START_TEST(test_functions) {
  for (double x = -87; x <= 88; x += 0.0137) {
    const double want = exp((float)x);
    ck_assert_msg(fabs(kern_exp((float)x) - want) <= 2e-7 * want, "exp(%g)", x);
  }
  for (double x = -9; x <= 9; x += 0.0011) {
    float density;
    const double phi = kern_normal((float)x, &density), y = (float)x;
    ck_assert_msg(fabs(phi - 0.5 * erfc(-y / sqrt(2))) <= 3e-7, "Phi(%g)", x);
    ck_assert_msg(fabs(density - exp(-0.5 * y * y) / sqrt(2 * acos(-1))) <= 2e-7, "density(%g)", x);
  }
  ck_assert(kern_exp(-INFINITY) < 1e-37f && isnan(kern_exp(NAN)));
}
END_TEST

START_TEST(test_context_refuses) {
  dp_error error = DP_ERROR_INIT;
  kern_context *context = NULL;
  ck_assert(kern_context_create(&(kern_context_options){.threads = 0}, &context, &error) == DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "0 threads, allowed: 1 to 1024");
  ck_assert(kern_context_create(&(kern_context_options){1, SIZE_MAX, NULL}, &context, &error) == DP_NO_MEMORY);
  ck_assert_ptr_null(context);
  kern_context_free(NULL);
}
END_TEST

/* What may lie on its input gives the same bits there, and what says so gives them again from what it kept. x, y, a, b
 * and s are inputs; out is written, or is x or y itself: then x and y may not be read. */
enum { BATCH = 2, POSITIONS = 301, WIDTH = 34, GROUPS = 2, IN_PLACE = BATCH * POSITIONS * WIDTH };
static const kern_group_norm group_norm = {BATCH, POSITIONS, WIDTH, GROUPS, 1e-5f};
static const kern_row_norm row_norm = {BATCH * POSITIONS, WIDTH, 1e-5f};
static const kern_broadcast broadcast = {BATCH, POSITIONS, WIDTH, 0};
static const kern_rotary rotary = {BATCH, POSITIONS, 1, WIDTH};
static const kern_loss loss_size = {BATCH, POSITIONS *WIDTH, 1};

typedef struct place {
  kern_context *c;
  float *x, *y, *a, *b, *s, *more; /* more: gradients of a and b, and statistics of forwards; set to 0 before */
  float *out;
} place;

static void place_silu(const place *p) { kern_activation_forward(p->c, KERN_SILU, IN_PLACE, p->x, p->out); }
static void place_silu_back(const place *p) {
  kern_activation_backward(p->c, KERN_SILU, IN_PLACE, p->x, p->y, p->out, false);
}
static void place_gelu(const place *p) { kern_activation_forward(p->c, KERN_GELU, IN_PLACE, p->x, p->out); }
static void place_gelu_back(const place *p) {
  kern_activation_backward(p->c, KERN_GELU_TANH, IN_PLACE, p->x, p->y, p->out, false);
}
static void place_add(const place *p) { kern_add(p->c, IN_PLACE, p->x, p->y, p->out); }
static void place_scale(const place *p) { kern_scale(p->c, IN_PLACE, 0.3f, p->x, p->out); }
static void place_add_vector(const place *p) { kern_add_vector_forward(p->c, &broadcast, p->x, p->a, p->out); }
static void place_modulate(const place *p) { kern_modulate_forward(p->c, &broadcast, p->x, p->a, p->b, p->out); }
static void place_modulate_back(const place *p) {
  kern_modulate_backward(p->c, &broadcast, p->x, p->a, p->y, p->out, p->more, p->more + BATCH * WIDTH, false);
}
static void place_gate(const place *p) { kern_gate_forward(p->c, &broadcast, p->x, p->a, p->out); }
static void place_gate_back(const place *p) {
  kern_gate_backward(p->c, &broadcast, p->x, p->a, p->y, p->out, p->more, false);
}
static void place_group_norm(const place *p) {
  kern_group_norm_forward(p->c, &group_norm, p->x, p->a, p->b, p->out, p->more);
}
static void place_group_norm_again(const place *p) {
  kern_group_norm_again(p->c, &group_norm, p->x, p->a, p->b, p->s, p->out);
}
static void place_group_norm_back(const place *p) {
  kern_group_norm_backward(p->c, &group_norm, p->x, p->a, p->s, p->y, p->out, false, p->more, p->more + WIDTH);
}
static void place_layer_norm(const place *p) {
  kern_layer_norm_forward(p->c, &row_norm, p->x, p->a, p->b, p->out, p->more);
}
static void place_layer_norm_again(const place *p) {
  kern_layer_norm_again(p->c, &row_norm, p->x, p->a, p->b, p->s, p->out);
}
static void place_layer_norm_back(const place *p) {
  kern_layer_norm_backward(p->c, &row_norm, p->x, p->a, p->s, p->y, p->out, false, p->more, p->more + WIDTH);
}
static void place_rms_norm(const place *p) { kern_rms_norm_forward(p->c, &row_norm, p->x, p->a, p->out, p->more); }
static void place_rms_norm_again(const place *p) { kern_rms_norm_again(p->c, &row_norm, p->x, p->a, p->s, p->out); }
static void place_rms_norm_back(const place *p) {
  kern_rms_norm_backward(p->c, &row_norm, p->x, p->a, p->s, p->y, p->out, false, p->more);
}
static void place_rotary(const place *p) { kern_rotary_forward(p->c, &rotary, p->x, p->a, p->b, p->out); }
static void place_rotary_back(const place *p) { kern_rotary_backward(p->c, &rotary, p->y, p->a, p->b, p->out, false); }
static void place_loss(const place *p) { kern_loss_backward(p->c, &loss_size, p->x, p->y, p->a, p->out); }

static const struct {
  const char *name;
  void (*run)(const place *place);
  bool on_y;                          /* the output may be y, else x */
  void (*before)(const place *place); /* a forward whose statistics are s */
  bool repeats;                       /* gives the bits of that forward */
} places[] = {
    {"silu", place_silu, false, NULL, false},
    {"silu gradient", place_silu_back, true, NULL, false},
    {"gelu", place_gelu, false, NULL, false},
    {"gelu tanh gradient", place_gelu_back, true, NULL, false},
    {"add on x", place_add, false, NULL, false},
    {"add on y", place_add, true, NULL, false},
    {"scale", place_scale, false, NULL, false},
    {"add_vector", place_add_vector, false, NULL, false},
    {"modulate", place_modulate, false, NULL, false},
    {"modulate gradient", place_modulate_back, true, NULL, false},
    {"gate", place_gate, false, NULL, false},
    {"gate gradient", place_gate_back, true, NULL, false},
    {"group norm", place_group_norm, false, NULL, false},
    {"group norm again", place_group_norm_again, false, place_group_norm, true},
    {"group norm gradient", place_group_norm_back, true, place_group_norm, false},
    {"layer norm", place_layer_norm, false, NULL, false},
    {"layer norm again", place_layer_norm_again, false, place_layer_norm, true},
    {"layer norm gradient", place_layer_norm_back, true, place_layer_norm, false},
    {"rms norm", place_rms_norm, false, NULL, false},
    {"rms norm again", place_rms_norm_again, false, place_rms_norm, true},
    {"rms norm gradient", place_rms_norm_back, true, place_rms_norm, false},
    {"rotary", place_rotary, false, NULL, false},
    {"rotary gradient", place_rotary_back, true, NULL, false},
    {"loss gradient", place_loss, false, NULL, false},
};

START_TEST(test_in_place) {
  const size_t group_bytes = kern_group_norm_workspace(&group_norm, 2),
               row_bytes = kern_row_norm_workspace(&row_norm, 2);
  const size_t vector_bytes = kern_broadcast_workspace(&broadcast, 2);
  const size_t most = group_bytes > row_bytes ? group_bytes : row_bytes;
  float *arrays[8];
  state = 7;
  for (int i = 0; i < 8; i++) {
    arrays[i] = get_floats(IN_PLACE);
    for (int64_t j = 0; j < IN_PLACE; j++) arrays[i][j] = (float)draw();
  }
  place p = {make_context(2, most > vector_bytes ? most : vector_bytes),
             arrays[0],
             arrays[1],
             arrays[2],
             arrays[3],
             arrays[4],
             arrays[4],
             arrays[6]};
  float *const before = arrays[5], *const apart = arrays[6], *const more = arrays[7];
  const size_t bytes = IN_PLACE * sizeof(float);
  if (places[_i].before != NULL) {
    p.out = before;
    places[_i].before(&p);
    p.out = apart;
  }
  memset(more, 0, bytes);
  p.more = more;
  places[_i].run(&p);
  ck_assert_msg(!places[_i].repeats || memcmp(before, apart, bytes) == 0, "%s: not the bits of forward",
                places[_i].name);
  memcpy(before, more, bytes);
  memset(more, 0, bytes);
  p.out = places[_i].on_y ? p.y : p.x;
  places[_i].run(&p);
  ck_assert_msg(memcmp(p.out, apart, bytes) == 0, "%s: other bits in place", places[_i].name);
  ck_assert_msg(memcmp(before, more, bytes) == 0, "%s: other bits beside what is in place", places[_i].name);
  kern_context_free(p.c);
  for (int i = 0; i < 8; i++) free(arrays[i]);
}
END_TEST

/* Two workers with a context each, at once: many short jobs, so that sleeping and waking are met too. */
static void *work_alone(void *argument) {
  enum { N = 100000, ROUNDS = 300 };
  const int threads = *(const int *)argument;
  kern_context *context = make_context(threads, kern_sum_squares_workspace(N, threads));
  float *x = get_floats(N), *y = get_floats(N);
  kern_fill(context, N, 0, y);
  kern_fill(context, N, 1, x);
  for (int i = 0; i < ROUNDS; i++) kern_axpy(context, N, 1, x, y);
  const double sum = kern_sum_squares(context, N, y);
  kern_context_free(context);
  free(x);
  free(y);
  return sum == (double)N * ROUNDS * ROUNDS ? argument : NULL;
}

START_TEST(test_contexts_at_once) {
  int threads[3] = {1, 2, 4};
  pthread_t workers[3];
  for (int i = 0; i < 3; i++) ck_assert(pthread_create(&workers[i], NULL, work_alone, &threads[i]) == 0);
  for (int i = 0; i < 3; i++) {
    void *result;
    ck_assert(pthread_join(workers[i], &result) == 0);
    ck_assert_ptr_eq(result, &threads[i]);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("kernels");
  TCase *tcase = suite_case(suite, "kernels", NULL, NULL, 300);
  tcase_add_loop_test(tcase, test_rows, 0, (int)ops_row_count);
  tcase_add_loop_test(tcase, test_in_place, 0, (int)(sizeof places / sizeof *places));
  tcase_add_test(tcase, test_tiles);
  tcase_add_test(tcase, test_gemm_factors);
  tcase_add_test(tcase, test_functions);
  tcase_add_test(tcase, test_context_refuses);
  tcase_add_test(tcase, test_contexts_at_once);
  return suite_finish(suite);
}
