/* plan/: memory layouts of random plans, held to the laws of plan/memory.h: in plays with random durations, whatever is
 * made, used, sent or received has its buffer meanwhile; and no buffer lives longer than the laws say. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "plan/memory.h"
#include "tests/plan_reference.h"
#include "tests/suite.h"

enum { FORWARD, BACKWARD, WEIGHT, PASSES }; /* BACKWARD: the input part where it comes apart */

/* One tensor of one message. */
typedef struct carried {
  int tensor;
  uint32_t message;
  bool compressed;
  int64_t bytes; /* on the wire */
} carried;

static dp_error error;
static graph model;
static plan_plan plan;
static plan_program program;
static plan_timeline timeline;
static plan_memory memory;
static unsigned now; /* seed of the plan, for messages */
/* of the first copy of the pipeline; the others are alike */
static uint32_t items;
static uint32_t *first_part, *last_part; /* [(chunk * PASSES + pass) * items + microbatch] position on its lane */
static uint32_t *sends, *recvs;          /* [message * items + microbatch] */
static uint32_t *waiter;                 /* [instruction] 1 + first position of its compute lane that waits for it */
static carried *cargo;
static int cargo_count;

static const plan_memory_options options = {.runtime_bytes = 1000, .workspace_bytes = 100};

static void setup(void) { error = (dp_error)DP_ERROR_INIT; }
static void drop(void) {
  free(first_part);
  free(last_part);
  free(sends);
  free(recvs);
  free(waiter);
  free(cargo);
  first_part = last_part = sends = recvs = waiter = NULL;
  cargo = NULL;
  cargo_count = 0;
  plan_memory_free(&memory);
  plan_timeline_free(&timeline);
  plan_program_free(&program);
  plan_plan_free(&plan);
  graph_free(&model);
}

/* ---- what the plan says ---- */

static bool in_chunk(int unit, int chunk) {
  return unit >= plan.chunks[chunk].first_unit && unit < plan.chunks[chunk].first_unit + plan.chunks[chunk].unit_count;
}

static bool used_in(int tensor, int chunk) {
  const graph_tensor *t = &model.tensors.items[tensor];
  for (int i = 0; i < t->consumer_unit_count; i++)
    if (in_chunk(t->consumer_units[i], chunk)) return true;
  return false;
}

/* The chunk's backward reads it: for a unit that keeps it, or to make again a unit that reads it. */
static bool saved_in(int tensor, int chunk) {
  const graph_tensor *t = &model.tensors.items[tensor];
  if (!plan.training || t->is_constant) return false;
  for (int i = 0; i < t->saver_unit_count; i++)
    if (in_chunk(t->saver_units[i], chunk) && !plan.recompute[t->saver_units[i]]) return true;
  for (int i = 0; i < t->consumer_unit_count; i++)
    if (in_chunk(t->consumer_units[i], chunk) && t->consumer_units[i] != t->producer_unit &&
        plan.recompute[t->consumer_units[i]])
      return true;
  return false;
}

/* The tensor whose memory it shows, as far as the same chunk made that. */
static int root_in(int tensor, int chunk) {
  const graph_tensor *t = &model.tensors.items[tensor];
  while (t->view_of != GRAPH_NONE && in_chunk(model.tensors.items[t->view_of].producer_unit, chunk)) {
    tensor = t->view_of;
    t = &model.tensors.items[tensor];
  }
  return tensor;
}

static int maker_of(int tensor) {
  int chunk = 0;
  while (!in_chunk(model.tensors.items[tensor].producer_unit, chunk)) chunk++;
  return chunk;
}

static bool in_two_parts(void) { return plan.schedule == PLAN_ZB_H1 || plan.schedule == PLAN_ZB_V; }
static int last_pass(void) { return in_two_parts() ? WEIGHT : BACKWARD; }

/* A compressed skip's K values: anything but what goes to the unit after its maker's. */
static int64_t wire_bytes(int tensor, int from, int to, bool *compressed) {
  const graph_tensor *t = &model.tensors.items[tensor];
  const plan_skip_policy policy =
      plan.tensor_skip_policy ? (plan_skip_policy)plan.tensor_skip_policy[tensor] : plan.skip_policy;
  bool next = false;
  for (int i = 0; i < t->consumer_unit_count; i++)
    next = next || (t->consumer_units[i] == t->producer_unit + 1 && in_chunk(t->consumer_units[i], to));
  const int64_t bytes = t->rank < 4 ? t->bytes : t->dims[0] * plan.k * 2; /* bf16 */
  *compressed = policy == PLAN_SKIP_COMPRESS && !(next && from == maker_of(tensor)) && bytes < t->bytes;
  return *compressed ? bytes : t->bytes;
}

static int compare_cargo(const void *left, const void *right) {
  const carried *a = left, *b = right;
  return a->tensor != b->tensor ? (a->tensor > b->tensor) - (a->tensor < b->tensor)
                                : (a->message > b->message) - (a->message < b->message);
}

static void *zeros(size_t count, size_t size) {
  void *made = calloc(count ? count : 1, size);
  ck_assert_ptr_nonnull(made);
  return made;
}

static void index_program(void) {
  items = (uint32_t)(plan.microbatches * plan.denoise_steps);
  first_part = zeros((size_t)plan.chunk_count * PASSES * items, sizeof *first_part);
  last_part = zeros((size_t)plan.chunk_count * PASSES * items, sizeof *last_part);
  sends = zeros((size_t)program.message_count * items, sizeof *sends);
  recvs = zeros((size_t)program.message_count * items, sizeof *recvs);
  waiter = zeros(program.instruction_count, sizeof *waiter);
  cargo = zeros(program.message_tensor_count, sizeof *cargo);
  for (int r = 0; r < plan.ranks; r++)
    for (uint32_t l = program.worker_lane[r]; l < program.worker_lane[r + 1]; l++)
      for (uint32_t at = 0; at < program.lanes[l].count; at++) {
        const uint32_t id = program.lanes[l].first + at;
        const plan_instruction *i = &program.instructions[id];
        if (i->opcode == PLAN_SEND) sends[i->class_id * items + i->microbatch] = id;
        if (i->opcode == PLAN_RECV) recvs[i->class_id * items + i->microbatch] = id;
        for (uint32_t w = program.wait_first[id]; l == program.worker_lane[r] && w < program.wait_first[id + 1]; w++)
          if (!waiter[program.waits[w]]) waiter[program.waits[w]] = at + 1;
        if (i->opcode > PLAN_BACKWARD_WEIGHT) continue;
        const int pass = i->opcode == PLAN_FORWARD ? FORWARD : i->opcode == PLAN_BACKWARD_WEIGHT ? WEIGHT : BACKWARD;
        const size_t place = ((size_t)i->chunk * PASSES + (size_t)pass) * items + i->microbatch;
        if (i->part == 0) first_part[place] = at;
        last_part[place] = at;
      }
  for (uint32_t m = 0; m < program.message_count / (uint32_t)plan_copy_count(&plan); m++) {
    const plan_message *of = &program.messages[m];
    for (int t = of->first_tensor; t < of->first_tensor + of->tensor_count; t++) {
      carried *c = &cargo[cargo_count++];
      c->tensor = program.message_tensors[t];
      c->message = m;
      c->bytes = wire_bytes(c->tensor, of->backward ? of->to_chunk : of->from_chunk,
                            of->backward ? of->from_chunk : of->to_chunk, &c->compressed);
    }
  }
  qsort(cargo, (size_t)cargo_count, sizeof *cargo, compare_cargo);
}

/* ---- a tensor on a rank, of one microbatch ---- */

typedef struct place {
  int tensor, rank;
  int home;  /* the rank's chunk that makes or receives it */
  bool made; /* else received */
  const carried *cargo;
  int cargo_count;
  uint32_t microbatch, copy;
} place;

static uint32_t first_of(const place *p, int chunk, int pass) {
  return first_part[((size_t)chunk * PASSES + (size_t)pass) * items + p->microbatch];
}
static uint32_t last_of(const place *p, int chunk, int pass) {
  return last_part[((size_t)chunk * PASSES + (size_t)pass) * items + p->microbatch];
}
static uint32_t send_of(const place *p, const carried *c) { return sends[c->message * items + p->microbatch]; }
static uint32_t recv_of(const place *p, const carried *c) { return recvs[c->message * items + p->microbatch]; }
static const plan_message *message_of(const carried *c) { return &program.messages[c->message]; }

static bool goes_out(const place *p, const carried *c, bool backward) {
  return message_of(c)->backward == backward && message_of(c)->from_worker == (uint32_t)p->rank;
}
static bool comes_in(const place *p, const carried *c, bool backward) {
  return message_of(c)->backward == backward && message_of(c)->to_worker == (uint32_t)p->rank;
}

/* A chunk of the rank, other than the tensor's maker, that uses it. */
static bool is_use(const place *p, int chunk) {
  return plan.chunks[chunk].rank == p->rank && !(p->made && chunk == p->home) && used_in(p->tensor, chunk);
}

/* False when the rank never has the tensor. */
static bool find_home(place *p) {
  p->home = maker_of(p->tensor);
  p->made = plan.chunks[p->home].rank == p->rank;
  bool found = p->made;
  for (int i = 0; !found && i < p->cargo_count; i++)
    if (comes_in(p, &p->cargo[i], false)) {
      p->home = message_of(&p->cargo[i])->to_chunk;
      found = true;
    }
  return found;
}

static bool is_of(const place *p, const plan_buffer *b, bool gradient) {
  return b->microbatch == p->microbatch && b->gradient == gradient && b->tensor == p->tensor;
}

/* The maker's saved activations hold it. */
static bool is_saved_copy(const place *p, const plan_buffer *b, bool gradient) {
  return !gradient && b->microbatch == p->microbatch && b->memory_class == PLAN_MEMORY_ACTIVATIONS && !b->gradient &&
         p->made && b->chunk == p->home && b->begin == 2 * first_of(p, p->home, FORWARD) + 1 &&
         saved_in(root_in(p->tensor, p->home), p->home);
}

__attribute__((format(printf, 3, 4))) static void fail_at(const place *p, bool gradient, const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  ck_abort_msg("seed %u, worker %d: %s%s of microbatch %u %s (at home in chunk %d of %d, %s, %s)", now, p->rank,
               gradient ? "the gradient of " : "", model.tensors.items[p->tensor].name, p->microbatch, text, p->home,
               plan.chunk_count, plan_schedule_names[plan.schedule], plan_skip_policy_names[plan.skip_policy]);
}

/* ---- plays: everything is there when it must be ---- */

static double at_start_s(const place *p, uint32_t id) {
  return timeline.start_s[id + p->copy * (program.instruction_count / (uint32_t)plan_copy_count(&plan))];
}
static double at_end_s(const place *p, uint32_t id) {
  return timeline.end_s[id + p->copy * (program.instruction_count / (uint32_t)plan_copy_count(&plan))];
}
static const plan_lane *compute_of(const place *p) { return &program.lanes[program.worker_lane[p->rank]]; }
static double pass_start_s(const place *p, int chunk, int pass) {
  return at_start_s(p, compute_of(p)->first + first_of(p, chunk, pass));
}
static double pass_end_s(const place *p, int chunk, int pass) {
  return at_end_s(p, compute_of(p)->first + last_of(p, chunk, pass));
}

/* The time at which a moment begins, or ends. */
static double moment_s(const place *p, uint32_t moment, bool end) {
  const plan_lane *lane = compute_of(p);
  const uint32_t k = moment / 2;
  if (moment % 2) return end ? at_end_s(p, lane->first + k) : at_start_s(p, lane->first + k);
  if (!end) return k ? at_end_s(p, lane->first + k - 1) : 0;
  return k < lane->count ? at_start_s(p, lane->first + k) : INFINITY;
}

/* From one time to another a buffer of so many bytes holds it, or several, each made while the one before is there. (An
 * assertion of Check that holds costs a message to its parent: here and below, those in loops are made when they fail.)
 */
static void assert_held(const place *p, bool gradient, int64_t bytes, double from_s, double to_s, const char *what) {
  const plan_worker_memory *worker = &memory.workers[p->rank];
  const plan_buffer *held = NULL;
  for (;;) {
    const plan_buffer *next = NULL;
    for (uint32_t i = 0; i < worker->buffer_count; i++) {
      const plan_buffer *b = &worker->buffers[i];
      if ((!is_of(p, b, gradient) && !is_saved_copy(p, b, gradient)) || b->bytes < bytes) continue;
      if (held ? b->begin > held->end || b->end <= held->end : moment_s(p, b->begin, false) > from_s) continue;
      if (!next || b->end > next->end) next = b;
    }
    if (next && moment_s(p, next->end, true) >= to_s) return;
    if (!next) fail_at(p, gradient, "is not there all the time while it is %s", what);
    held = next;
  }
}

/* What a trained compressor reads, it reads again for its own gradient. */
static int learnt_pass(const place *p) {
  return plan.training && model.tensors.items[p->tensor].needs_gradient ? BACKWARD : FORWARD;
}
static double learnt_s(const place *p) { return pass_end_s(p, p->home, learnt_pass(p)); }

static void assert_value_held(const place *p) {
  const int64_t whole = model.tensors.items[p->tensor].bytes;
  double from_s = p->made ? pass_start_s(p, p->home, FORWARD) : 0;
  for (int i = 0; i < p->cargo_count; i++) {
    const carried *c = &p->cargo[i];
    if (!comes_in(p, c, false)) continue;
    from_s = at_start_s(p, recv_of(p, c));
    assert_held(p, false, c->bytes, from_s, c->compressed ? learnt_s(p) : pass_start_s(p, p->home, FORWARD),
                "received");
    if (c->compressed) from_s = pass_start_s(p, p->home, FORWARD); /* made whole */
  }
  for (int i = 0; i < p->cargo_count; i++) {
    const carried *c = &p->cargo[i];
    if (!goes_out(p, c, false)) continue;
    assert_held(p, false, whole, from_s, c->compressed ? learnt_s(p) : at_end_s(p, send_of(p, c)), "made and sent");
    assert_held(p, false, c->bytes, pass_end_s(p, message_of(c)->from_chunk, FORWARD), at_end_s(p, send_of(p, c)),
                "sent");
  }
  for (int c = p->home; c < plan.chunk_count; c++)
    if (is_use(p, c))
      assert_held(p, false, whole, from_s, pass_end_s(p, c, saved_in(p->tensor, c) ? last_pass() : FORWARD), "used");
}

static void assert_gradient_held(const place *p) {
  const int64_t whole = model.tensors.items[p->tensor].bytes;
  const carried *out = NULL;
  for (int i = 0; i < p->cargo_count; i++)
    if (goes_out(p, &p->cargo[i], true)) out = &p->cargo[i];
  const double home_s = pass_end_s(p, p->home, BACKWARD);
  if (out) {
    if (message_of(out)->from_chunk != p->home) fail_at(p, true, "leaves from another chunk");
    assert_held(p, true, out->bytes, home_s, at_end_s(p, send_of(p, out)), "sent");
  }
  for (int c = p->home + 1; c < plan.chunk_count; c++)
    if (is_use(p, c)) assert_held(p, true, whole, pass_end_s(p, c, BACKWARD), home_s, "collected");
  for (int i = 0; i < p->cargo_count; i++)
    if (comes_in(p, &p->cargo[i], true))
      assert_held(p, true, p->cargo[i].bytes, at_start_s(p, recv_of(p, &p->cargo[i])), home_s, "received");
}

/* ---- the laws' ends: nothing is there longer ---- */

static void raise(uint32_t *moment, uint32_t to) { *moment = to > *moment ? to : *moment; }

static uint32_t sent_moment(const place *p, const carried *c) {
  const uint32_t at = waiter[send_of(p, c)];
  if (at) return 2 * (at - 1);
  if (plan.training && !message_of(c)->backward) return 2 * first_of(p, message_of(c)->from_chunk, BACKWARD);
  return 2 * compute_of(p)->count;
}

static uint32_t posted_moment(const place *p, const carried *c) {
  const uint32_t id = recv_of(p, c), first = program.wait_first[id];
  return program.wait_first[id + 1] > first ? 2 * (program.waits[first] - compute_of(p)->first + 1) : 0;
}

/* Where the whole value lives beside saved activations: false when it does not. */
static bool value_life(const place *p, uint32_t *begin, uint32_t *end) {
  const graph_tensor *t = &model.tensors.items[p->tensor];
  bool wanted = !p->made || t->is_output;
  *begin = 2 * first_of(p, p->home, FORWARD) + 1;
  *end = 2 * last_of(p, p->home, p->made && t->is_output && plan.training ? BACKWARD : FORWARD) + 1;
  for (int i = 0; i < p->cargo_count; i++) {
    const carried *c = &p->cargo[i];
    if (comes_in(p, c, false) && !c->compressed) *begin = posted_moment(p, c);
    if (!goes_out(p, c, false)) continue;
    wanted = true;
    raise(end, c->compressed ? 2 * last_of(p, p->home, learnt_pass(p)) + 1 : sent_moment(p, c));
  }
  for (int c = p->home; c < plan.chunk_count; c++)
    if (is_use(p, c)) {
      wanted = true;
      raise(end, 2 * last_of(p, c, saved_in(p->tensor, c) ? last_pass() : FORWARD) + 1);
    }
  return wanted && !(p->made && saved_in(root_in(p->tensor, p->home), p->home));
}

/* Values: the whole one and every compressed one, no others. */
static void assert_value_tight(const place *p) {
  const plan_worker_memory *worker = &memory.workers[p->rank];
  const int64_t whole = model.tensors.items[p->tensor].bytes;
  uint32_t begin, end;
  int found = 0, compressed = 0;
  const bool wanted = value_life(p, &begin, &end);
  for (int i = 0; i < p->cargo_count; i++)
    compressed += p->cargo[i].compressed && (comes_in(p, &p->cargo[i], false) || goes_out(p, &p->cargo[i], false));
  for (uint32_t i = 0; i < worker->buffer_count; i++) {
    const plan_buffer *b = &worker->buffers[i];
    if (!is_of(p, b, false)) continue;
    if (b->bytes < whole) {
      compressed--;
      bool right = false;
      for (int n = 0; n < p->cargo_count; n++) {
        const carried *c = &p->cargo[n];
        right = right || (comes_in(p, c, false) && b->begin == posted_moment(p, c) &&
                          b->end == 2 * last_of(p, p->home, learnt_pass(p)) + 1);
        right = right || (goes_out(p, c, false) && b->begin == 2 * first_of(p, p->home, FORWARD) + 1 &&
                          b->end == sent_moment(p, c));
      }
      if (!right) fail_at(p, false, "lives compressed from %u to %u", b->begin, b->end);
      continue;
    }
    found++;
    if (b->begin != begin || b->end != end)
      fail_at(p, false, "lives from %u to %u, expected %u to %u", b->begin, b->end, begin, end);
  }
  if (found != wanted) fail_at(p, false, "has %d buffers, expected %d", found, wanted);
  if (compressed) fail_at(p, false, "lacks %d compressed buffers", compressed);
}

/* Gradients: each ends in the producer's backward, in one that adds it to others, or when it has been sent. */
static void assert_gradient_tight(const place *p) {
  const plan_worker_memory *worker = &memory.workers[p->rank];
  for (uint32_t i = 0; i < worker->buffer_count; i++) {
    const plan_buffer *b = &worker->buffers[i];
    if (!is_of(p, b, true)) continue;
    bool begins = false, ends = b->end == 2 * last_of(p, p->home, BACKWARD) + 1, used = p->made;
    for (int c = p->home; c < plan.chunk_count; c++) {
      if (!is_use(p, c) && c != p->home) continue;
      begins = begins || b->begin == 2 * first_of(p, c, BACKWARD) + 1;
      ends = ends || b->end == 2 * last_of(p, c, BACKWARD) + 1;
    }
    for (int n = 0; n < p->cargo_count; n++) {
      const carried *c = &p->cargo[n];
      begins = begins || (comes_in(p, c, true) && b->begin == posted_moment(p, c));
      ends = ends || (goes_out(p, c, true) && b->end == sent_moment(p, c));
      used = used || goes_out(p, c, true);
    }
    if (!begins || !ends || !used) fail_at(p, true, "lives from %u to %u", b->begin, b->end);
  }
}

/* What is no tensor's: saved activations, their gradients, graph inputs, latents. */
static void assert_chunk_tight(const place *p, int chunk) {
  const plan_worker_memory *worker = &memory.workers[p->rank];
  const plan_chunk *c = &plan.chunks[chunk];
  const uint32_t forward = 2 * first_of(p, chunk, FORWARD) + 1, backward = 2 * first_of(p, chunk, BACKWARD) + 1;
  int64_t saved_bytes = 0;
  for (int t = 0; t < (int)model.tensors.count; t++)
    if (model.tensors.items[t].producer_unit == GRAPH_NONE || in_chunk(model.tensors.items[t].producer_unit, chunk))
      saved_bytes += saved_in(t, chunk) ? model.tensors.items[t].bytes : 0;
  for (int u = c->first_unit; plan.training && u < c->first_unit + c->unit_count; u++)
    saved_bytes += plan.recompute[u] ? 0 : model.units.items[u].saved_extra_bytes;
  for (uint32_t i = 0; i < worker->buffer_count; i++) {
    const plan_buffer *b = &worker->buffers[i];
    if (b->tensor != GRAPH_NONE || b->microbatch != p->microbatch || b->chunk != chunk) continue;
    if (b->memory_class == PLAN_MEMORY_ACTIVATIONS) {
      bool kept = b->end == 2 * last_of(p, chunk, last_pass()) + 1;
      kept = kept && (b->begin == backward ? in_two_parts() : b->begin == forward && !b->gradient);
      if (b->begin == forward) {
        kept = kept && b->bytes == (saved_bytes + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
        saved_bytes = 0;
      }
      if (!kept)
        ck_abort_msg("seed %u, worker %d, chunk %d: saved activations from %u to %u", now, p->rank, chunk, b->begin,
                     b->end);
      continue;
    }
    bool right = b->begin == forward && b->end == 2 * last_of(p, chunk, FORWARD) + 1; /* inputs */
    for (uint32_t m = 0; m < program.message_count / (uint32_t)plan_copy_count(&plan); m++) {
      const carried latents = {.message = m};
      if (program.messages[m].backward || program.messages[m].to_chunk > program.messages[m].from_chunk) continue;
      if (goes_out(p, &latents, false) && chunk == plan.chunk_count - 1)
        right = right || (b->begin == forward && b->end == sent_moment(p, &latents));
      if (comes_in(p, &latents, false) && chunk == 0 && p->microbatch >= (uint32_t)plan.microbatches)
        right = right || (b->begin == posted_moment(p, &latents) && b->end == 2 * last_of(p, 0, FORWARD) + 1);
    }
    if (!right || b->memory_class != PLAN_MEMORY_BOUNDARY)
      ck_abort_msg("seed %u, worker %d, chunk %d: inputs or latents from %u to %u", now, p->rank, chunk, b->begin,
                   b->end);
  }
  if (saved_bytes) ck_abort_msg("seed %u, worker %d, chunk %d: no saved activations", now, p->rank, chunk);
}

/* ---- one plan ---- */

static int compare_begin(const void *left, const void *right) {
  const plan_buffer *a = left, *b = right;
  return (a->begin > b->begin) - (a->begin < b->begin);
}

static void assert_apart(const plan_worker_memory *worker) {
  plan_buffer *sorted = zeros(worker->buffer_count, sizeof *sorted);
  memcpy(sorted, worker->buffers, worker->buffer_count * sizeof *sorted);
  qsort(sorted, worker->buffer_count, sizeof *sorted, compare_begin);
  uint32_t live = 0; /* those that may meet the next one stand first */
  int64_t peak_bytes = 0;
  bool apart = true;
  for (uint32_t i = 0; i < worker->buffer_count; i++) {
    const plan_buffer a = sorted[i];
    apart = apart && (a.bytes > 0 && a.offset_bytes >= 0 && a.begin <= a.end && a.offset_bytes % PLAN_ALIGNMENT == 0 &&
                      a.bytes % PLAN_ALIGNMENT == 0 && a.offset_bytes + a.bytes <= worker->layout_bytes);
    uint32_t kept = 0;
    int64_t live_bytes = a.bytes;
    for (uint32_t j = 0; j < live; j++) {
      const plan_buffer b = sorted[j];
      if (b.end < a.begin) continue;
      apart = apart && (a.offset_bytes + a.bytes <= b.offset_bytes || b.offset_bytes + b.bytes <= a.offset_bytes);
      live_bytes += b.bytes;
      sorted[kept++] = b;
    }
    sorted[kept++] = a;
    live = kept;
    peak_bytes = live_bytes > peak_bytes ? live_bytes : peak_bytes;
  }
  free(sorted);
  ck_assert(apart);
  ck_assert_int_eq(worker->live_peak_bytes, peak_bytes);
  ck_assert_int_ge(worker->layout_bytes, worker->live_peak_bytes);
  ck_assert_int_eq(worker->peak_bytes, worker->layout_bytes + options.runtime_bytes);
  int64_t class_bytes = 0;
  for (int c = 0; c < PLAN_MEMORY_CLASS_COUNT; c++) class_bytes += worker->at_peak_bytes[c];
  ck_assert_int_eq(class_bytes, worker->live_peak_bytes + options.runtime_bytes);
}

/* Every tensor that units make, wherever it is, of every microbatch. */
static void each_place(uint32_t copy, void (*value)(const place *), void (*gradient)(const place *)) {
  int at = 0;
  for (int t = 0; t < (int)model.tensors.count; t++) {
    place p = {.tensor = t, .cargo = cargo + at, .copy = copy};
    while (at < cargo_count && cargo[at].tensor == t) at++;
    p.cargo_count = (int)(cargo + at - p.cargo);
    if (model.tensors.items[t].producer_unit == GRAPH_NONE) continue;
    for (p.rank = 0; p.rank < plan.ranks; p.rank++)
      for (p.microbatch = find_home(&p) ? 0 : items; p.microbatch < items; p.microbatch++) {
        value(&p);
        if (plan.training && model.tensors.items[t].needs_gradient) gradient(&p);
      }
  }
}

static void compile_and_lay_out(void) {
  dp_status status = plan_compile(&plan, &model, &program, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  status = plan_memory_layout(&program, &model, &options, &memory, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  ck_assert_int_eq(memory.worker_count, program.worker_count);
  index_program();
}

static void assert_laws(dp_random *random, int rounds) {
  for (int w = 0; w < plan.ranks; w++) assert_apart(&memory.workers[w]);
  for (int w = plan.ranks; w < memory.worker_count; w++) {
    ck_assert_ptr_eq(memory.workers[w].buffers, memory.workers[w % plan.ranks].buffers);
    ck_assert_int_eq(memory.workers[w].peak_bytes, memory.workers[w % plan.ranks].peak_bytes);
  }
  each_place(0, assert_value_tight, assert_gradient_tight);
  for (int c = 0; c < plan.chunk_count; c++)
    for (place p = {.rank = plan.chunks[c].rank}; p.microbatch < items; p.microbatch++) assert_chunk_tight(&p, c);
  for (int round = 0; round < rounds; round++) {
    plan_timeline_free(&timeline);
    reference_play(&program, &model, 0.1, 4000, random, &timeline);
    each_place((uint32_t)round % (uint32_t)plan_copy_count(&plan), assert_value_held, assert_gradient_held);
  }
}

static void make_random(uint64_t seed, dp_random *random) {
  now = (unsigned)seed;
  dp_random_init(random, seed, 2);
  const int units = 6 + (int)dp_random_below(random, 20);
  int cuts[64];
  if (seed % 8 == 0)
    reference_chain(units, 1, 2, 0.7, 100, &model);
  else
    reference_skip_graph(units, (int)(seed % 5), random, &model);
  reference_plan wanted = reference_random_plan(random, units, cuts);
  reference_plan_make(&wanted, &model, &plan);
  if (dp_random_below(random, 2)) {
    plan.tensor_skip_policy = DP_ARENA_NEW(&plan.arena, uint8_t, model.tensors.count);
    ck_assert_ptr_nonnull(plan.tensor_skip_policy);
    for (size_t t = 0; t < model.tensors.count; t++)
      plan.tensor_skip_policy[t] = (uint8_t)dp_random_below(random, PLAN_SKIP_LOCAL);
  }
  const uint64_t recomputed = dp_random_below(random, 4); /* of 3; 0: none, 3: all */
  for (int u = 0; u < units; u++) plan.recompute[u] = dp_random_below(random, 3) < recomputed;
  compile_and_lay_out();
}

START_TEST(random_layouts_hold_what_they_must_and_no_longer) {
  for (uint64_t seed = 0; seed < 1000; seed++) {
    dp_random random;
    make_random(seed, &random);
    assert_laws(&random, 2);
    drop();
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {random_layouts_hold_what_they_must_and_no_longer};
  return suite_run("plan_memory_random", tests, DP_COUNT_OF(tests), setup, drop, 120);
}
