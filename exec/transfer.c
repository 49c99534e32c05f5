/* What a SEND and its RECV do: tensor by tensor, from where the plan has it to where the plan wants it. Gradients that
 * arrive have buffers of their own (exec/worker.c adds them up). */
#include "exec/lanes.h"

/* Bytes of the k-th tensor of a message. */
static size_t bytes_of(const exec_pipeline *p, const plan_message *message, int k) {
  return (size_t)exec_wire_values(&p->work, message, k) * (size_t)graph_dtype_bytes(p->work.graph->precision);
}

static void *port(const exec_pipeline *p, uint32_t worker, const plan_instruction *i, int k) {
  return exec_layout_port(&p->workers[worker].layout, exec_layout_message(p->work.program, i->class_id), k,
                          i->microbatch);
}

/* Where a sender has it. A gradient that nobody there has a use for is 0; that of K values is made whatever comes. */
static const void *sent(exec_pipeline *p, uint32_t lane, const plan_message *message, const plan_instruction *send,
                        int k) {
  const exec_worker *w = &p->workers[message->from_worker];
  void *from = port(p, message->from_worker, send, k);
  const int tensor = p->work.program->message_tensors[message->first_tensor + k];
  if (message->backward && !exec_layout_begun(&w->layout, send->microbatch)[tensor] &&
      !exec_worker_squeeze(&p->work, w, message, k))
    p->work.kind->clear(p, lane, (int64_t)bytes_of(p, message, k), from);
  return from;
}

/* An evaluation has no gradients. */
static bool is_idle(const exec_pipeline *p, const plan_message *message) {
  return message->backward && p->work.step->evaluate;
}

/* Evaluations have no step. */
static void throttle(exec_pipeline *p, uint32_t lane, const plan_message *message) {
  const int *devices = p->work.plan->devices;
  if (p->throttle.more_s > 0 && devices &&
      exec_throttle_hits(&p->throttle, devices[message->from_worker], devices[message->to_worker],
                         p->work.step->adamw.step))
    p->work.kind->delay(p, lane);
}

void exec_transfer(exec_pipeline *p, uint32_t recv_at) {
  const plan_program *program = p->work.program;
  const plan_instruction *recv = &program->instructions[recv_at], *send = &program->instructions[recv->peer];
  const plan_message *message = &program->messages[recv->class_id];
  if (is_idle(p, message)) return;
  throttle(p, p->lane_of[recv_at], message);
  for (int k = 0; k < message->tensor_count; k++) {
    const uint32_t lane = p->lane_of[recv_at];
    const void *from = sent(p, lane, message, send, k);
    void *to = port(p, message->to_worker, recv, k);
    p->work.kind->copy(p, lane, (int64_t)bytes_of(p, message, k), message->from_worker, from, message->to_worker, to);
  }
}

void exec_transfer_nothing(exec_pipeline *p, uint32_t recv_at) {
  const plan_instruction *recv = &p->work.program->instructions[recv_at];
  const plan_message *message = &p->work.program->messages[recv->class_id];
  for (int k = 0; k < message->tensor_count; k++)
    p->work.kind->strew(&p->workers[message->to_worker], (int64_t)bytes_of(p, message, k),
                        port(p, message->to_worker, recv, k));
}

/* What the device's own kind moves: every tensor's place at this end. */
static int pieces_of(exec_pipeline *p, uint32_t at, bool sends, exec_piece *pieces) {
  const plan_program *program = p->work.program;
  const plan_instruction *end = &program->instructions[at];
  const plan_message *message = &program->messages[end->class_id];
  if (is_idle(p, message)) return 0;
  for (int k = 0; k < message->tensor_count; k++) {
    void *place = port(p, sends ? message->from_worker : message->to_worker, end, k);
    if (sends) (void)sent(p, p->lane_of[at], message, end, k);
    pieces[k] = (exec_piece){place, bytes_of(p, message, k)};
  }
  return message->tensor_count;
}

/* A message without tensors is a token. So is a gradient's in an evaluation: when it has come, the tensors that it
 * belongs to have been sent, and the backward that waits for it may give their memory away. */
dp_status exec_send(exec_pipeline *p, uint32_t at, dp_error *error) {
  const plan_program *program = p->work.program;
  const plan_instruction *send = &program->instructions[at];
  const plan_message *message = &program->messages[send->class_id];
  exec_transport *t = p->work.options.transport;
  const int to = exec_process_of(p, (int)message->to_worker);
  const uint32_t tag = p->lane_of[at];
  throttle(p, tag, message);
  if (p->work.kind->send) {
    exec_piece *pieces = p->lanes[tag].pieces;
    return p->work.kind->send(p, at, pieces_of(p, at, true, pieces), pieces, error);
  }
  if (is_idle(p, message) || message->tensor_count == 0) return t->send(t, to, tag, "", 0, &p->stop, error);
  for (int k = 0; k < message->tensor_count; k++)
    DP_TRY(t->send(t, to, tag, sent(p, tag, message, send, k), bytes_of(p, message, k), &p->stop, error));
  return DP_OK;
}

dp_status exec_receive(exec_pipeline *p, uint32_t at, dp_error *error) {
  const plan_program *program = p->work.program;
  const plan_instruction *recv = &program->instructions[at];
  const plan_message *message = &program->messages[recv->class_id];
  exec_transport *t = p->work.options.transport;
  const int from = exec_process_of(p, (int)message->from_worker);
  const uint32_t tag = p->lane_of[recv->peer];
  char token[1];
  if (p->work.kind->receive) {
    exec_piece *pieces = p->lanes[p->lane_of[at]].pieces;
    return p->work.kind->receive(p, at, pieces_of(p, at, false, pieces), pieces, error);
  }
  if (is_idle(p, message) || message->tensor_count == 0) return t->receive(t, from, tag, token, 0, &p->stop, error);
  for (int k = 0; k < message->tensor_count; k++)
    DP_TRY(t->receive(t, from, tag, port(p, message->to_worker, recv, k), bytes_of(p, message, k), &p->stop, error));
  return DP_OK;
}

/* Where the receiver copies from the sender's memory; NCCL and pinned memory of the host have room for some of it. */
bool exec_sends_meet(const void *pipeline, const plan_lane *sends) {
  const exec_pipeline *p = pipeline;
  const bool here = exec_process_of(p, (int)sends->worker) == exec_process_of(p, (int)sends->peer);
  return !p->meets || here || p->meets[sends - p->work.program->lanes];
}
