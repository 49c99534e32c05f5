#define _GNU_SOURCE /* pipe2 */
#include "exec/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "exec/watch_parts.h"

static const double BEAT_S = 0.1, SILENCE_S = 5;
/* After the first trouble: others' may still come in; then the lowest process tells; where it does not, another one. */
static const double SETTLE_S = 0.2, TELL_S = 1, TELL_EACH_S = 0.05;

typedef enum kind { ALIVE = 1, CHECKPOINT, FAILED, TOLD, LEAVING } kind;

typedef struct frame_head {
  uint32_t kind, count; /* bytes behind it */
} frame_head;

enum { FRAME_BYTES = sizeof(frame_head) + sizeof(uint32_t) + DP_ERROR_TEXT_BYTES };

typedef struct failure {
  uint32_t status; /* 0: none */
  char line[DP_ERROR_TEXT_BYTES];
} failure;

struct exec_watch {
  exec_watch_options options;
  int process_count, process;
  exec_peer *peers;
  struct pollfd *polled; /* [process_count + 1], the last is wake[0] */
  pthread_t thread;
  int wake[2];
  atomic_bool lost;
  _Atomic int64_t step;
  /* between the thread and the functions */
  pthread_mutex_t lock;
  pthread_cond_t ended_changed;
  uint32_t (*position)(const void *data);
  const void *position_data;
  char checkpoint[EXEC_PATH_BYTES];
  bool checkpoint_is_new, closing, ended;
  failure own;
  /* the thread's */
  failure first;     /* of any process, as it was heard of */
  double trouble_s;  /* when the first came; 0: none */
  exec_peer *teller; /* who said that the line has been said, what it said, and when; NULL: nobody yet */
  failure told;
  double told_s;
  double beat_s; /* when the next beat is due */
  int64_t told_step;
};

/* ---- sending ---- */

static void send_frame(exec_peer *peer, kind what, const void *bytes, size_t count) {
  char frame[FRAME_BYTES];
  const frame_head head = {what, (uint32_t)count};
  if (peer->socket < 0 || peer->deaf) return;
  memcpy(frame, &head, sizeof head);
  memcpy(frame + sizeof head, bytes, count);
  /* one that sleeps takes what its buffer holds; half a frame would be worse than none */
  if (send(peer->socket, frame, sizeof head + count, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)(sizeof head + count))
    peer->deaf = true;
}

static void send_all(exec_watch *w, kind what, const void *bytes, size_t count) {
  for (int p = 0; p < w->process_count; p++) send_frame(&w->peers[p], what, bytes, count);
}

static void send_failure(exec_watch *w, kind what, const failure *f) {
  send_all(w, what, f, offsetof(failure, line) + strlen(f->line) + 1);
}

/* ---- hearing ---- */

static void take_trouble(exec_watch *w) {
  if (w->trouble_s > 0) return;
  w->trouble_s = dp_clock_s();
  atomic_store(&w->lost, true);
}

/* A silent one keeps its connection: should it wake, it reads that it was given up. */
static void lose(exec_watch *w, exec_peer *peer, exec_fate fate) {
  if (peer->socket >= 0 && fate == EXEC_GONE) {
    (void)close(peer->socket);
    peer->socket = -1;
  }
  if (peer->fate != EXEC_HERE) return;
  peer->fate = fate;
  take_trouble(w);
}

static failure read_failure(const char *bytes, size_t count) {
  failure f = {.status = DP_RUN_FAILED};
  if (count <= offsetof(failure, line)) return f;
  memcpy(&f, bytes, count < sizeof f ? count : sizeof f);
  f.line[sizeof f.line - 1] = 0;
  return f;
}

static void end(exec_watch *w, dp_status status) {
  w->options.end(w->options.data, status);
  (void)pthread_mutex_lock(&w->lock);
  w->ended = true;
  (void)pthread_cond_broadcast(&w->ended_changed);
  (void)pthread_mutex_unlock(&w->lock);
}

static void take_frame(exec_watch *w, exec_peer *peer, const frame_head *head, const char *bytes) {
  switch (head->kind) {
    case ALIVE:
      if (head->count == sizeof peer->alive) memcpy(&peer->alive, bytes, sizeof peer->alive);
      return;
    case CHECKPOINT:
      (void)snprintf(peer->checkpoint, sizeof peer->checkpoint, "%.*s", (int)head->count, bytes);
      return;
    case FAILED:
      if (!w->first.status) w->first = read_failure(bytes, head->count);
      take_trouble(w);
      return;
    case TOLD:
      take_trouble(w);
      if (w->teller) return;
      w->teller = peer;
      w->told = read_failure(bytes, head->count);
      w->told_s = dp_clock_s();
      send_failure(w, TOLD, &w->told);
      return;
    default:
      peer->fate = EXEC_LEFT;
  }
}

/* Whole frames out of the inbox; what is left stays. */
static void take_frames(exec_watch *w, exec_peer *peer) {
  size_t at = 0;
  while (peer->inbox_count - at >= sizeof(frame_head)) {
    frame_head head;
    memcpy(&head, peer->inbox + at, sizeof head);
    if (head.count > FRAME_BYTES - sizeof head) { /* no process of ours says such a thing */
      lose(w, peer, EXEC_GONE);
      return;
    }
    if (peer->inbox_count - at < sizeof head + head.count) break;
    take_frame(w, peer, &head, peer->inbox + at + sizeof head);
    at += sizeof head + head.count;
  }
  memmove(peer->inbox, peer->inbox + at, peer->inbox_count - at);
  peer->inbox_count -= at;
}

static void hear(exec_watch *w, exec_peer *peer) {
  while (peer->socket >= 0) {
    const ssize_t got =
        recv(peer->socket, peer->inbox + peer->inbox_count, FRAME_BYTES - peer->inbox_count, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      lose(w, peer, EXEC_GONE);
      return;
    }
    peer->heard_s = dp_clock_s();
    peer->inbox_count += (size_t)got;
    take_frames(w, peer);
  }
}

/* ---- the thread ---- */

static void wake_thread(exec_watch *w) {
  const char token = 0;
  (void)!write(w->wake[1], &token, 1); /* full: it is awake anyway */
}

static void wait_events(exec_watch *w, double until_s) {
  char tokens[64];
  for (int p = 0; p < w->process_count; p++) w->polled[p] = (struct pollfd){.fd = w->peers[p].socket, .events = POLLIN};
  w->polled[w->process_count] = (struct pollfd){.fd = w->wake[0], .events = POLLIN};
  const double left_s = until_s - dp_clock_s();
  (void)poll(w->polled, (nfds_t)w->process_count + 1, left_s > 0 ? (int)(left_s * 1000) + 1 : 0);
  while (read(w->wake[0], tokens, sizeof tokens) > 0) {
  }
}

/* In its time, and when a step begins. */
static void beat(exec_watch *w) {
  exec_alive alive = {.step = atomic_load(&w->step), .instruction = PLAN_NO_PEER};
  const bool is_new = alive.step != w->told_step; /* its first instruction is yet to come */
  if (dp_clock_s() < w->beat_s && !is_new) return;
  w->beat_s = dp_clock_s() + BEAT_S;
  w->told_step = alive.step;
  (void)pthread_mutex_lock(&w->lock);
  if (w->position && !is_new) alive.instruction = w->position(w->position_data);
  (void)pthread_mutex_unlock(&w->lock);
  send_all(w, ALIVE, &alive, sizeof alive);
}

/* What the functions left for the thread. Whether the run is at its clean end. */
static bool take_orders(exec_watch *w) {
  char path[EXEC_PATH_BYTES];
  (void)pthread_mutex_lock(&w->lock);
  const bool closing = w->closing, is_new = w->checkpoint_is_new, failed = w->own.status;
  if (is_new) memcpy(path, w->checkpoint, sizeof path);
  w->checkpoint_is_new = false;
  (void)pthread_mutex_unlock(&w->lock);
  if (is_new) send_all(w, CHECKPOINT, path, strlen(path) + 1);
  if (failed && w->trouble_s == 0) { /* else it may have come of that trouble */
    w->first = w->own;               /* written once, before this flag was seen */
    send_failure(w, FAILED, &w->own);
    take_trouble(w);
  }
  return closing;
}

static void look_for_silence(exec_watch *w) {
  const double now_s = dp_clock_s();
  for (int p = 0; p < w->process_count; p++)
    if (w->peers[p].socket >= 0 && w->peers[p].fate == EXEC_HERE && now_s - w->peers[p].heard_s > w->options.silence_s)
      lose(w, &w->peers[p], EXEC_SILENT);
}

static void forgive(exec_watch *w) {
  for (int p = 0; p < w->process_count; p++) w->peers[p].heard_s = dp_clock_s();
}

static int lowest_alive(const exec_watch *w) {
  int p = 0;
  while (p != w->process && w->peers[p].fate != EXEC_HERE) p++;
  return p;
}

static const char *last_checkpoint(const exec_watch *w) {
  if (w->checkpoint[0]) return w->checkpoint;
  for (int p = 0; p < w->process_count; p++)
    if (w->peers[p].checkpoint[0]) return w->peers[p].checkpoint;
  return "";
}

static int64_t last_step(const exec_watch *w) {
  int64_t step = atomic_load(&w->step);
  for (int p = 0; p < w->process_count; p++)
    if (w->peers[p].alive.step > step) step = w->peers[p].alive.step;
  return step;
}

static failure verdict(exec_watch *w) {
  failure f = w->first;
  for (int p = 0; p < w->process_count; p++) {
    if (w->peers[p].fate != EXEC_GONE && w->peers[p].fate != EXEC_SILENT) continue;
    (void)pthread_mutex_lock(&w->lock);
    const exec_loss loss = {.peers = w->peers,
                            .process_count = w->process_count,
                            .process = p,
                            .program = w->options.program,
                            .silence_s = w->options.silence_s,
                            .step = last_step(w),
                            .checkpoint = last_checkpoint(w)};
    exec_loss_show(&loss, f.line);
    (void)pthread_mutex_unlock(&w->lock);
    f.status = DP_RUN_FAILED;
    break;
  }
  return f;
}

/* Whoever was told leaves after the teller: mpirun ends the others as soon as a second one has left, and the teller
 * must have told them all by then. */
static void leave_after_teller(exec_watch *w) {
  if (w->teller->socket < 0 || dp_clock_s() - w->told_s > SETTLE_S) end(w, (dp_status)w->told.status);
}

static void decide(exec_watch *w) {
  const double waited_s = dp_clock_s() - w->trouble_s;
  if (w->trouble_s == 0) return;
  if (w->teller) {
    leave_after_teller(w);
    return;
  }
  const double mine_s = lowest_alive(w) == w->process ? SETTLE_S : TELL_S + TELL_EACH_S * w->process;
  if (waited_s < mine_s) return;
  const failure f = verdict(w);
  w->options.say(w->options.data, f.line);
  send_failure(w, TOLD, &f);
  end(w, (dp_status)f.status);
}

static void *run(void *data) {
  exec_watch *w = data;
  double last_s = dp_clock_s();
  for (;;) {
    if (dp_clock_s() - last_s > w->options.silence_s / 2) forgive(w);
    last_s = dp_clock_s();
    for (int p = 0; p < w->process_count; p++) hear(w, &w->peers[p]);
    const bool closing = take_orders(w);
    look_for_silence(w);
    beat(w);
    decide(w);
    if (w->ended) return NULL;
    if (closing && w->trouble_s == 0) break;
    wait_events(w, w->trouble_s > 0 ? dp_clock_s() + SETTLE_S / 4 : w->beat_s);
  }
  send_all(w, LEAVING, "", 0);
  return NULL;
}

/* ---- opening and closing ---- */

static void free_watch(exec_watch *w) {
  for (int p = 0; w->peers && p < w->process_count; p++) {
    if (w->peers[p].socket >= 0) (void)close(w->peers[p].socket);
    free(w->peers[p].inbox);
  }
  for (int i = 0; i < 2; i++)
    if (w->wake[i] >= 0) (void)close(w->wake[i]);
  (void)pthread_cond_destroy(&w->ended_changed);
  (void)pthread_mutex_destroy(&w->lock);
  free(w->peers);
  free(w->polled);
  free(w);
}

static dp_status make(exec_watch *w, dp_error *error) {
  w->peers = calloc((size_t)w->process_count, sizeof *w->peers);
  w->polled = calloc((size_t)w->process_count + 1, sizeof *w->polled);
  if (!w->peers || !w->polled) return dp_fail_memory(error);
  for (int p = 0; p < w->process_count; p++) {
    w->peers[p].socket = -1;
    w->peers[p].alive.instruction = PLAN_NO_PEER;
    w->peers[p].inbox = malloc(FRAME_BYTES);
    if (!w->peers[p].inbox) return dp_fail_memory(error);
  }
  if (pipe2(w->wake, O_CLOEXEC | O_NONBLOCK) != 0) {
    w->wake[0] = w->wake[1] = -1;
    return dp_fail(error, DP_UNSUPPORTED, "the system gives no more pipes");
  }
  return DP_OK;
}

/* Signals are for the threads that were there before. */
static dp_status start(exec_watch *w, dp_error *error) {
  sigset_t all, before;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  const int code = pthread_create(&w->thread, NULL, run, w);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  return code == 0 ? DP_OK : dp_fail(error, DP_UNSUPPORTED, "the system gives no thread for the watch");
}

static double silence_of(const exec_watch_options *options) {
  const char *text = getenv("DIFFPIPE_SILENCE_S");
  const double s = options->silence_s > 0 ? options->silence_s : text ? strtod(text, NULL) : 0;
  return s > 0 ? s : SILENCE_S;
}

dp_status exec_watch_open(const exec_watch_options *options, exec_watch **watch, dp_error *error) {
  exec_transport *t = options->transport;
  if (!t || t->process_count == 1) {
    *watch = NULL;
    return DP_OK;
  }
  exec_watch *w = calloc(1, sizeof *w);
  if (!w) return dp_fail_memory(error);
  w->options = *options;
  w->options.silence_s = silence_of(options);
  w->process_count = t->process_count;
  w->process = t->process;
  w->wake[0] = w->wake[1] = -1;
  if (pthread_mutex_init(&w->lock, NULL) != 0 || pthread_cond_init(&w->ended_changed, NULL) != 0) {
    free(w);
    return dp_fail(error, DP_UNSUPPORTED, "the system gives no more locks");
  }
  dp_status status = make(w, error);
  if (status == DP_OK) status = exec_mesh_open(t, w->peers, error);
  if (status == DP_OK) status = exec_barrier(t, error); /* nobody begins before all are watched */
  forgive(w);
  if (status == DP_OK) status = start(w, error);
  if (status != DP_OK) {
    free_watch(w);
    return status;
  }
  t->lost = &w->lost;
  *watch = w;
  return DP_OK;
}

void exec_watch_close(exec_watch *w) {
  if (!w) return;
  (void)pthread_mutex_lock(&w->lock);
  w->closing = true;
  (void)pthread_mutex_unlock(&w->lock);
  wake_thread(w);
  (void)pthread_join(w->thread, NULL);
  free_watch(w);
}

/* ---- what this process tells ---- */

void exec_watch_step(exec_watch *w, int64_t step) {
  if (!w) return;
  atomic_store(&w->step, step);
  wake_thread(w);
}

void exec_watch_follow(exec_watch *w, uint32_t (*position)(const void *data), const void *data) {
  if (!w) return;
  (void)pthread_mutex_lock(&w->lock);
  w->position = position;
  w->position_data = data;
  (void)pthread_mutex_unlock(&w->lock);
}

void exec_watch_checkpoint(exec_watch *w, const char *path) {
  if (!w) return;
  (void)pthread_mutex_lock(&w->lock);
  (void)snprintf(w->checkpoint, sizeof w->checkpoint, "%s", path);
  w->checkpoint_is_new = true;
  (void)pthread_mutex_unlock(&w->lock);
  wake_thread(w);
}

bool exec_watch_lost(const exec_watch *w) { return w && atomic_load(&w->lost); }

void exec_watch_fail(exec_watch *w, dp_status status, const char *line) {
  if (!w) return;
  (void)pthread_mutex_lock(&w->lock);
  if (!w->own.status) {
    (void)snprintf(w->own.line, sizeof w->own.line, "%s", line);
    w->own.status = (uint32_t)status;
  }
  wake_thread(w);
  while (!w->ended) (void)pthread_cond_wait(&w->ended_changed, &w->lock);
  (void)pthread_mutex_unlock(&w->lock);
}
