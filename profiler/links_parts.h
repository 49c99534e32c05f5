/* Between profiler/links.c, which finds the messages, and links_slow.c, which finds what they slow down. */
#ifndef DP_PROFILER_LINKS_PARTS_H
#define DP_PROFILER_LINKS_PARTS_H

#include "profiler/links.h"
#include "profiler/load.h"

/* Kinds of work of a device: a message of a prof_way, or */
enum { LINKS_COMPUTE = PROF_WAY_COUNT, LINKS_OTHER, LINKS_KINDS };

typedef struct links_place {
  uint16_t process, device;
  prof_load loads[LINKS_KINDS];
} links_place;

typedef struct links_maker {
  const prof_session *session;
  const unsigned char *classes;
  DP_ARRAY(links_place) places;
  prof_links *links;
  dp_error *error;
} links_maker;

typedef DP_ARRAY(double) links_series;

int links_kind_of(const links_maker *m, const prof_record *r); /* of work of a device */
/* The share of a piece of work's time in which others of a kind ran on its device; more than 1 where several did. */
double links_share(const links_maker *m, const prof_record *r, int kind);
double links_middle(links_series *s); /* sorts it; 0 of none */

dp_status links_find_slowdowns(links_maker *m);
dp_status links_find_launches(links_maker *m);

#endif
