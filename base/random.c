#include "base/random.h"

void dp_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
    const uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)b;
    c3 = (uint32_t)a;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u; /* Weyl sequence of the paper: golden ratio and sqrt(3) - 1 */
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

void dp_random_init(dp_random *random, uint64_t seed, uint64_t stream) {
  *random = (dp_random){.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                        .counter = {0, 0, (uint32_t)stream, (uint32_t)(stream >> 32)},
                        .used = 4};
}

uint32_t dp_random_u32(dp_random *random) {
  if (random->used == 4) {
    dp_philox4x32(random->counter, random->key, random->block);
    if (++random->counter[0] == 0) random->counter[1]++;
    random->used = 0;
  }
  return random->block[random->used++];
}

uint64_t dp_random_u64(dp_random *random) {
  const uint64_t high = dp_random_u32(random);
  return high << 32 | dp_random_u32(random);
}

double dp_random_uniform(dp_random *random) { return (double)(dp_random_u64(random) >> 11) * 0x1p-53; }

uint64_t dp_random_below(dp_random *random, uint64_t bound) {
  const uint64_t unfair = (UINT64_MAX - bound + 1) % bound; /* 2^64 mod bound: numbers below it would be too frequent */
  uint64_t x;
  do x = dp_random_u64(random);
  while (x < unfair);
  return x % bound;
}
