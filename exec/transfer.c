/* What a SEND and its RECV do. Values go to their place; gradients are set aside (exec/worker.c adds them). */
#include <string.h>

#include "exec/lanes.h"

/* A gradient that nobody there has a use for is 0. */
static const float *gradient_of(const exec_pipeline *p, const plan_message *message, uint32_t microbatch, int tensor) {
  const exec_worker *w = &p->workers[message->from_worker];
  const exec_squeeze *squeeze = exec_worker_squeeze(&p->work, w, message, tensor);
  exec_frame *frame = &w->frames[microbatch];
  const int root = frame->root[tensor];
  if (squeeze) return squeeze->gradients[microbatch];
  if (!frame->begun[root])
    memset(frame->gradients[root], 0, (size_t)exec_wire_floats(&p->work, message, tensor) * sizeof(float));
  return frame->gradients[root];
}

/* Where a value lies at either end. */
static float *value_of(const exec_pipeline *p, const plan_message *message, uint32_t worker, uint32_t microbatch,
                       int tensor) {
  const exec_worker *w = &p->workers[worker];
  const exec_squeeze *squeeze = exec_worker_squeeze(&p->work, w, message, tensor);
  const exec_frame *frame = &w->frames[microbatch];
  return squeeze ? squeeze->packed[microbatch] : frame->values[frame->root[tensor]];
}

/* An evaluation has no gradients. */
static bool is_idle(const exec_pipeline *p, const plan_message *message) {
  return message->backward && p->work.step->evaluate;
}

void exec_transfer(exec_pipeline *p, uint32_t recv_at) {
  const plan_program *program = p->work.program;
  const plan_instruction *recv = &program->instructions[recv_at], *send = &program->instructions[recv->peer];
  const plan_message *message = &program->messages[recv->class_id];
  float *aside = p->work.arrived[recv_at];
  if (is_idle(p, message)) return;
  for (int k = message->first_tensor; k < message->first_tensor + message->tensor_count; k++) {
    const int tensor = program->message_tensors[k];
    const size_t n = (size_t)exec_wire_floats(&p->work, message, tensor);
    if (message->backward) {
      memcpy(aside, gradient_of(p, message, send->microbatch, tensor), n * sizeof(float));
      aside += n;
    } else {
      memcpy(value_of(p, message, message->to_worker, recv->microbatch, tensor),
             value_of(p, message, message->from_worker, send->microbatch, tensor), n * sizeof(float));
    }
  }
}

/* Tensor by tensor, from where each lies; a message without any is a token. */
dp_status exec_send(exec_pipeline *p, uint32_t at, dp_error *error) {
  const plan_program *program = p->work.program;
  const plan_instruction *send = &program->instructions[at];
  const plan_message *message = &program->messages[send->class_id];
  exec_transport *t = p->work.options.transport;
  const int to = exec_process_of(p, (int)message->to_worker);
  const uint32_t tag = p->lane_of[at];
  if (is_idle(p, message)) return DP_OK;
  if (message->tensor_count == 0) return t->send(t, to, tag, "", 0, &p->stop, error);
  for (int k = message->first_tensor; k < message->first_tensor + message->tensor_count; k++) {
    const int tensor = program->message_tensors[k];
    const float *from = message->backward ? gradient_of(p, message, send->microbatch, tensor)
                                          : value_of(p, message, message->from_worker, send->microbatch, tensor);
    DP_TRY(
        t->send(t, to, tag, from, (size_t)exec_wire_floats(&p->work, message, tensor) * sizeof *from, &p->stop, error));
  }
  return DP_OK;
}

dp_status exec_receive(exec_pipeline *p, uint32_t at, dp_error *error) {
  const plan_program *program = p->work.program;
  const plan_instruction *recv = &program->instructions[at];
  const plan_message *message = &program->messages[recv->class_id];
  exec_transport *t = p->work.options.transport;
  const int from = exec_process_of(p, (int)message->from_worker);
  const uint32_t tag = p->lane_of[recv->peer];
  float *aside = p->work.arrived[at];
  char token[1];
  if (is_idle(p, message)) return DP_OK;
  if (message->tensor_count == 0) return t->receive(t, from, tag, token, 0, &p->stop, error);
  for (int k = message->first_tensor; k < message->first_tensor + message->tensor_count; k++) {
    const int tensor = program->message_tensors[k];
    const int64_t n = exec_wire_floats(&p->work, message, tensor);
    float *to = message->backward ? aside : value_of(p, message, message->to_worker, recv->microbatch, tensor);
    DP_TRY(t->receive(t, from, tag, to, (size_t)n * sizeof *to, &p->stop, error));
    if (message->backward) aside += n;
  }
  return DP_OK;
}
