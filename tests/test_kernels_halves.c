/* Masters in two halves: the law of kernels/halves.h over patterns from all 2^32, and over every low half where signs,
 * exponents, infinities and NaN begin and end. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/halves.h"
#include "tests/suite.h"

static float value_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static bool is_nan(uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

/* Comes back to the bit, and the weight is the nearest bf16. */
static bool holds(uint32_t bits) {
  const uint32_t kept = kern_halves_kept(bits), weight = kern_halves_weight(kept), low = kern_halves_low(kept);
  if (weight > 0xffff || low > 0xffff || kern_halves_join(weight, low) != kept) return false;
  if (is_nan(bits)) return is_nan(kept) && is_nan(weight << 16);
  if (kept != bits || weight >> 15 != bits >> 31) return false;
  /* as far from the bf16 below in magnitude as from the one above: away from zero; the numbers go on past the largest
   * as if the next were finite, as IEEE 754 rounds */
  const uint32_t below = bits >> 16, past = bits & 0xffff;
  return weight == (past >= 0x8000 ? below + 1 : below);
}

START_TEST(all_over) {
  uint64_t wrong = 0;
  for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += 251) wrong += !holds((uint32_t)bits);
  ck_assert_uint_eq(wrong, 0);
}
END_TEST

START_TEST(every_tie_and_its_neighbours) {
  static const uint32_t lows[] = {0, 1, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff};
  uint64_t wrong = 0;
  for (uint32_t high = 0; high <= 0xffff; high++)
    for (size_t l = 0; l < sizeof lows / sizeof *lows; l++) wrong += !holds(high << 16 | lows[l]);
  ck_assert_uint_eq(wrong, 0);
}
END_TEST

START_TEST(every_low_half_at_the_ends) {
  static const uint32_t highs[] = {0,      1,      0x7f,   0x80,   0x3f80, 0x7f7f, 0x7f80, 0x7fc0, 0x7fff,
                                   0x8000, 0x8001, 0x807f, 0x8080, 0xbf80, 0xff7f, 0xff80, 0xffc0, 0xffff};
  uint64_t wrong = 0;
  for (size_t h = 0; h < sizeof highs / sizeof *highs; h++)
    for (uint32_t low = 0; low <= 0xffff; low++) wrong += !holds(highs[h] << 16 | low);
  ck_assert_uint_eq(wrong, 0);
}
END_TEST

/* By value, not by bits: half a unit in the last place at most, and the law's examples. */
START_TEST(by_value) {
  for (uint64_t bits = 0; bits < 0x7f7f8000u; bits += 4099) {
    const float master = value_of((uint32_t)bits), weight = value_of(kern_halves_weight((uint32_t)bits) << 16);
    const double unit =
        (double)value_of(((uint32_t)bits & 0xffff0000u) + 0x10000u) - value_of((uint32_t)bits & 0xffff0000u);
    ck_assert_double_le(fabs((double)weight - (double)master), unit / 2);
  }
  ck_assert(isinf(value_of(kern_halves_weight(0x7f7f8000u) << 16)));
  ck_assert_uint_eq(kern_halves_weight(0x80000000u), 0x8000); /* -0 */
  ck_assert_uint_eq(kern_halves_weight(0x00018000u), 2);
  ck_assert_uint_eq(kern_halves_weight(0x00028000u), 3);
  ck_assert_uint_eq(kern_halves_kept(0xffffffffu), 0x7fc00000u);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {all_over, every_tie_and_its_neighbours, every_low_half_at_the_ends, by_value};
  return suite_run("halves", tests, sizeof tests / sizeof *tests, NULL, NULL, 60);
}
