/* Seeded random numbers: Philox4x32-10, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011). The same seed and stream give the same numbers on every machine; streams are independent.
 */
#ifndef DP_BASE_RANDOM_H
#define DP_BASE_RANDOM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dp_random {
  uint32_t key[2], counter[4], block[4];
  int used; /* words of block already given out */
} dp_random;

void dp_random_init(dp_random *random, uint64_t seed, uint64_t stream);
uint32_t dp_random_u32(dp_random *random);
uint64_t dp_random_u64(dp_random *random);
double dp_random_uniform(dp_random *random);                 /* in [0, 1), 53 bits */
uint64_t dp_random_below(dp_random *random, uint64_t bound); /* in [0, bound), unbiased; bound > 0 */
/* One block of the bijection, for those who count themselves. */
void dp_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#ifdef __cplusplus
}
#endif
#endif
