/* What records of any program tell of its devices' links: how long messages take by size and direction, with kernels
 * beside them and without, what they slow kernels by, and how long the host takes from one launch to the next.
 *
 * Messages are copies: their records have sizes, kernels of NCCL have none. One counts as
 *   alone    while kernels that compute run on its device for at most LINKS_LONE of its time,
 *   beside   while they do for at least LINKS_BESIDE of it;
 * and not at all where it is in between, or where another one of its direction, or a kernel of NCCL, runs for more than
 * LINKS_LONE of it. Sizes within an eighth of an octave are one; of at least LINKS_LEAST of either kind the middle is
 * taken. A size of which only one of the two times is known has the other by the middle ratio of the sizes that have
 * both. Larger never takes less, nor does it beside compute. Over the sizes also latency + bytes / rate, fitted to
 * relative errors, of which large ones count less; where all are below LINKS_TELLING, which take no longer for being
 * larger, their middle time is the latency and there is no rate.
 *
 * Slowdown. Kernels of one name, grid and block do the same where those that ran alone took about as long as each other
 * (half of them within LINKS_STEADY of their middle, A); others are passed over. Of one that took t, and for a share f
 * of that, at least LINKS_BESIDE, ran beside messages of one way, 1 + s = f t / (A - (1 - f) t). Of a kernel's runs the
 * middle counts, and of the kernels' that which half of their time is below. Kernels beside other kernels that compute,
 * or beside messages of several ways, tell nothing.
 *
 * Launches. From one call that launched a kernel to the next of its thread, where the device stood still for at least
 * LINKS_DRY_NS, between the end of all that the thread had launched and the start of what the next one did: then the host
 * is what the device waits for. Not where the thread waited or copied in between, or was away (in no call for longer than
 * LINKS_AWAY_NS), and not of graphs. The middle counts, of at least LINKS_LAUNCHES.
 *
 * Of each every fifth is kept aside, and the middle of the relative errors on those is told.
 */
#ifndef DP_PROFILER_LINKS_H
#define DP_PROFILER_LINKS_H

#include "plan/profile.h"
#include "profiler/classes.h"

#define LINKS_LONE 0.05
#define LINKS_BESIDE 0.5
#define LINKS_STEADY 0.1
enum { LINKS_LEAST = 3, LINKS_ASIDE = 5, LINKS_LAUNCHES = 20, LINKS_TELLING = 1 << 16, LINKS_DRY_NS = 1500, LINKS_AWAY_NS = 1000000 };

typedef enum prof_way {
  PROF_WAY_TO_DEVICE,
  PROF_WAY_TO_HOST,
  PROF_WAY_ON_DEVICE,
  PROF_WAY_PEER,
  PROF_WAY_NCCL, /* slowdown alone: its kernels' records have no sizes */
  PROF_WAY_COUNT
} prof_way;
extern const char *const prof_way_names[PROF_WAY_COUNT + 1]; /* "to the device", ...; NULL at the end */

/* latency_s + bytes / bytes_per_s; 0: not known. */
typedef struct prof_link_line {
  double latency_s, bytes_per_s;
} prof_link_line;

typedef struct prof_link {
  uint64_t count, alone, beside; /* messages (of NCCL: kernels); what is neither was left out */
  plan_profile_points points;    /* ascending */
  bool beside_known;             /* of one size at least; else the points' two times are the same */
  prof_link_line line, beside_line;
  uint64_t aside; /* messages */
  double error;
  double slowdown;                    /* of kernels */
  uint64_t kernels, runs, runs_aside; /* of so many kernels' runs beside it; 0: not known */
  double slowdown_error;
} prof_link;

typedef struct prof_links {
  prof_link ways[PROF_WAY_COUNT];
  double launch_s; /* of the host; 0: not known */
  uint64_t launches, launches_aside;
  double launch_error;
} prof_links;

/* `classes`: of prof_rules_classes. */
dp_status prof_links_of(const prof_session *session, const unsigned char *classes, prof_links *links, dp_error *error);
void prof_links_free(prof_links *links); /* safe on a zeroed one */

#endif
