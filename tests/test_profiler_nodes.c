/* What unit each node of a run's graphs is of. */
#include "profiler/nodes.h"

#include "tests/suite.h"

static prof_nodes nodes;

static void begin(void) { prof_nodes_init(&nodes); }
static void end(void) { prof_nodes_free(&nodes); }

START_TEST(a_copy_is_of_its_original_s_unit) {
  prof_nodes_add(&nodes, 0x500000001u, 0, 3);
  prof_nodes_add(&nodes, 0x600000001u, 0x500000001u, PROF_NO_UNIT);
  prof_nodes_add(&nodes, 0x700000001u, 0x600000001u, 9); /* what the thread works on now says nothing of a copy */
  ck_assert_int_eq(prof_nodes_unit(&nodes, 0x500000001u), 3);
  ck_assert_int_eq(prof_nodes_unit(&nodes, 0x600000001u), 3);
  ck_assert_int_eq(prof_nodes_unit(&nodes, 0x700000001u), 3);
}
END_TEST

START_TEST(what_is_of_no_unit_is_not_kept) {
  prof_nodes_add(&nodes, 1, 0, PROF_NO_UNIT);
  prof_nodes_add(&nodes, 2, 1, 4); /* of a node that nobody knows */
  prof_nodes_add(&nodes, 0, 0, 4);
  ck_assert_uint_eq(nodes.count, 0);
  for (uint64_t id = 0; id < 3; id++) ck_assert_int_eq(prof_nodes_unit(&nodes, id), PROF_NO_UNIT);
}
END_TEST

/* Numbers of a graph in the upper half and of its nodes in the lower, from 0: as CUPTI gives them, and others. */
START_TEST(many_are_found_again) {
  for (uint64_t g = 1; g <= 40; g++)
    for (uint64_t n = 0; n < 1000; n++) prof_nodes_add(&nodes, g << 32 | n, 0, (int32_t)(g * 1000 + n));
  prof_nodes_add(&nodes, 1ull << 32, 0, 5); /* told again: the last word counts */
  ck_assert_uint_eq(nodes.count, 40000);
  ck_assert_int_eq(prof_nodes_unit(&nodes, 1ull << 32), 5);
  for (uint64_t g = 1; g <= 40; g++)
    for (uint64_t n = 1; n < 1000; n++) ck_assert_int_eq(prof_nodes_unit(&nodes, g << 32 | n), (int32_t)(g * 1000 + n));
  ck_assert_int_eq(prof_nodes_unit(&nodes, 41ull << 32), PROF_NO_UNIT);
  ck_assert_uint_eq(nodes.left_out, 0);
}
END_TEST

START_TEST(they_are_bounded) {
  for (uint64_t n = 1; n <= PROF_NODES_MOST + 3; n++) prof_nodes_add(&nodes, n, 0, 1);
  ck_assert_uint_eq(nodes.count, PROF_NODES_MOST);
  ck_assert_uint_eq(nodes.left_out, 3);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("profiler nodes");
  TCase *tcase = suite_case(suite, "nodes", begin, end, 0);
  tcase_add_test(tcase, a_copy_is_of_its_original_s_unit);
  tcase_add_test(tcase, what_is_of_no_unit_is_not_kept);
  tcase_add_test(tcase, many_are_found_again);
  tcase_add_test(tcase, they_are_bounded);
  return suite_finish(suite);
}
