/* Every two processes connected by TCP, whatever started them: addresses go round by the transport, then each process
 * connects to those before it and is connected to by those behind it. */
#define _GNU_SOURCE /* accept4, getrandom */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "exec/watch_parts.h"

enum { MOST_ADDRESSES = 12, KEY_BYTES = 64, NONCE_BYTES = 16 };
static const double CONNECT_S = 3, ANSWER_S = 10, ALL_S = 30; /* an address; its answer; all others to come */

typedef struct address {
  uint16_t family, unused;
  unsigned char bytes[16]; /* 4 of IPv4 */
} address;

/* Where a process is, as the others get to know it. */
typedef struct card {
  char host[EXEC_HOST_BYTES];
  char key[KEY_BYTES]; /* the same for processes with one loopback: of one boot and network namespace; "": not known */
  unsigned char nonce[NONCE_BYTES]; /* of process 0's card: of the run */
  int32_t pid;
  uint16_t port; /* of the host's byte order; 0: it has no listener */
  uint16_t address_count;
  address addresses[MOST_ADDRESSES];
} card;

typedef struct hello {
  unsigned char nonce[NONCE_BYTES]; /* of the run: whoever else comes is sent away */
  int32_t process;
} hello;

/* ---- this process's card ---- */

static void read_key(char key[KEY_BYTES]) {
  char boot[40] = "", net[24] = "";
  key[0] = 0;
  const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t got = read(file, boot, sizeof boot - 1);
  (void)close(file);
  if (got < 36 || readlink("/proc/self/ns/net", net, sizeof net - 1) <= 0) return;
  boot[36] = 0;
  (void)snprintf(key, KEY_BYTES, "%s %s", boot, net);
}

static bool take_address(const struct sockaddr *from, address *to) {
  *to = (address){.family = from->sa_family};
  if (from->sa_family == AF_INET) {
    memcpy(to->bytes, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    return true;
  }
  if (from->sa_family != AF_INET6) return false;
  const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
  memcpy(to->bytes, six, 16);
  return !IN6_IS_ADDR_LINKLOCAL(six); /* of use on one wire alone, which has another name elsewhere */
}

static void list_addresses(card *c) {
  struct ifaddrs *all = NULL;
  if (getifaddrs(&all) != 0) return;
  for (int six = 0; six < 2; six++)
    for (const struct ifaddrs *i = all; i && c->address_count < MOST_ADDRESSES; i = i->ifa_next) {
      if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)) continue;
      if (i->ifa_addr->sa_family != (six ? AF_INET6 : AF_INET)) continue;
      if (take_address(i->ifa_addr, &c->addresses[c->address_count])) c->address_count++;
    }
  freeifaddrs(all);
}

/* Of both families where the system has both. */
static int listen_anywhere(uint16_t *port) {
  int s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int off = 0;
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
  socklen_t size = sizeof six;
  if (s >= 0 && setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
      bind(s, (struct sockaddr *)&six, sizeof six) == 0 && listen(s, SOMAXCONN) == 0 &&
      getsockname(s, (struct sockaddr *)&six, &size) == 0) {
    *port = ntohs(six.sin6_port);
    return s;
  }
  if (s >= 0) (void)close(s);
  s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
  size = sizeof four;
  if (s >= 0 && bind(s, (struct sockaddr *)&four, sizeof four) == 0 && listen(s, SOMAXCONN) == 0 &&
      getsockname(s, (struct sockaddr *)&four, &size) == 0) {
    *port = ntohs(four.sin_port);
    return s;
  }
  if (s >= 0) (void)close(s);
  return -1;
}

/* ---- bytes in time ---- */

static bool ready(int s, short events, double until_s) {
  for (;;) {
    struct pollfd one = {.fd = s, .events = events};
    const double left_s = until_s - dp_clock_s();
    const int count = poll(&one, 1, left_s > 0 ? (int)(left_s * 1000) + 1 : 0);
    if (count > 0) return true;
    if (count == 0 || errno != EINTR) return false;
  }
}

static bool read_all(int s, void *bytes, size_t count, double until_s) {
  for (char *at = bytes; count > 0;) {
    if (!ready(s, POLLIN, until_s)) return false;
    const ssize_t got = recv(s, at, count, 0);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return false;
    if (got < 0) continue;
    at += got;
    count -= (size_t)got;
  }
  return true;
}

/* A hello fits into any socket's buffer. */
static bool say_hello(int s, const unsigned char nonce[NONCE_BYTES], int process) {
  hello mine = {.process = process};
  memcpy(mine.nonce, nonce, NONCE_BYTES);
  return send(s, &mine, sizeof mine, MSG_NOSIGNAL) == (ssize_t)sizeof mine;
}

/* Whose it is; -1: nobody's. */
static int hear_hello(int s, const unsigned char nonce[NONCE_BYTES], double until_s) {
  hello theirs;
  if (!read_all(s, &theirs, sizeof theirs, until_s) || memcmp(theirs.nonce, nonce, NONCE_BYTES) != 0) return -1;
  return theirs.process;
}

/* ---- connecting ---- */

static int connect_to(const struct sockaddr *where, socklen_t size) {
  int trouble = 0;
  socklen_t trouble_size = sizeof trouble;
  const int s = socket(where->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (s < 0) return -1;
  if (connect(s, where, size) == 0) return s;
  if (errno == EINPROGRESS && ready(s, POLLOUT, dp_clock_s() + CONNECT_S) &&
      getsockopt(s, SOL_SOCKET, SO_ERROR, &trouble, &trouble_size) == 0 && trouble == 0)
    return s;
  (void)close(s);
  return -1;
}

static int connect_address(const address *a, uint16_t port) {
  if (a->family == AF_INET) {
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    memcpy(&four.sin_addr, a->bytes, 4);
    return connect_to((struct sockaddr *)&four, sizeof four);
  }
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  memcpy(&six.sin6_addr, a->bytes, 16);
  return connect_to((struct sockaddr *)&six, sizeof six);
}

/* The one behind an address may be another program: each says who it is. */
static int meet(const address *a, const card *cards, int mine, int theirs) {
  const int s = connect_address(a, cards[theirs].port);
  if (s < 0) return -1;
  if (say_hello(s, cards[0].nonce, mine) && hear_hello(s, cards[0].nonce, dp_clock_s() + ANSWER_S) == theirs) return s;
  (void)close(s);
  return -1;
}

static dp_status reach(const card *cards, int mine, int theirs, int *peer, dp_error *error) {
  const card *c = &cards[theirs];
  const address loopback = {.family = AF_INET, .bytes = {127, 0, 0, 1}};
  *peer = -1;
  if (c->port && c->key[0] && strcmp(c->key, cards[mine].key) == 0) *peer = meet(&loopback, cards, mine, theirs);
  for (int i = 0; c->port && *peer < 0 && i < c->address_count; i++)
    *peer = meet(&c->addresses[i], cards, mine, theirs);
  if (*peer >= 0) return DP_OK;
  return dp_fail(error, DP_RUN_FAILED,
                 "process %d cannot reach process %d (host %s, pid %d) on port %d of %d addresses", mine, theirs,
                 c->host, (int)c->pid, c->port, c->address_count);
}

static dp_status wait_for_rest(int listener, const card *cards, int mine, int count, exec_peer *peers,
                               dp_error *error) {
  const double until_s = dp_clock_s() + ALL_S;
  for (int missing = count - 1 - mine; missing > 0;) {
    if (!ready(listener, POLLIN, until_s)) break;
    const int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (s < 0) continue;
    const int who = hear_hello(s, cards[0].nonce, dp_clock_s() + 1);
    if (who <= mine || who >= count || peers[who].socket >= 0 || !say_hello(s, cards[0].nonce, mine)) {
      (void)close(s);
      continue;
    }
    peers[who].socket = s;
    missing--;
  }
  for (int p = mine + 1; p < count; p++)
    if (peers[p].socket < 0)
      return dp_fail(error, DP_RUN_FAILED, "process %d (host %s, pid %d) did not reach process %d within %g s", p,
                     cards[p].host, (int)cards[p].pid, mine, ALL_S);
  return DP_OK;
}

/* ---- all of it ---- */

static dp_status exchange(exec_transport *t, int listener, uint16_t port, card *cards, dp_error *error) {
  card mine = {.pid = (int32_t)getpid(), .port = listener < 0 ? 0 : port};
  if (gethostname(mine.host, sizeof mine.host - 1) != 0) (void)snprintf(mine.host, sizeof mine.host, "?");
  read_key(mine.key);
  list_addresses(&mine);
  if (getrandom(mine.nonce, sizeof mine.nonce, 0) != (ssize_t)sizeof mine.nonce) memset(mine.nonce, 1, NONCE_BYTES);
  DP_TRY(exec_gather(t, &mine, sizeof mine, cards, error));
  return exec_broadcast(t, cards, (size_t)t->process_count * sizeof *cards, error);
}

static dp_status connect_all(exec_transport *t, int listener, const card *cards, exec_peer *peers, dp_error *error) {
  for (int p = 0; p < t->process; p++) DP_TRY(reach(cards, t->process, p, &peers[p].socket, error));
  DP_TRY(wait_for_rest(listener, cards, t->process, t->process_count, peers, error));
  for (int p = 0; p < t->process_count; p++) {
    const int on = 1;
    memcpy(peers[p].host, cards[p].host, sizeof peers[p].host);
    peers[p].pid = cards[p].pid;
    if (peers[p].socket >= 0) (void)setsockopt(peers[p].socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  return DP_OK;
}

dp_status exec_mesh_open(exec_transport *t, exec_peer *peers, dp_error *error) {
  uint16_t port = 0;
  card *cards = calloc((size_t)t->process_count, sizeof *cards);
  const int listener = listen_anywhere(&port);
  for (int p = 0; p < t->process_count; p++) peers[p].socket = -1;
  dp_status status = cards ? exchange(t, listener, port, cards, error) : dp_fail_memory(error);
  if (status == DP_OK) status = connect_all(t, listener, cards, peers, error);
  if (listener >= 0) (void)close(listener);
  free(cards);
  return status;
}
