/* Random numbers as a pure function of seed, stream, round, node and index (SPEC.md 2). */
#ifndef GS_RNG_H
#define GS_RNG_H

#include <stdbool.h>
#include <stdint.h>

/* One stream of one node in one round. Remembers the last block of four, so ascending indices are cheap. */
typedef struct {
    uint32_t seed[2];
    uint32_t stream;
    uint32_t round;
    uint32_t node;
    uint32_t block; /* index / 4 of `words`; UINT32_MAX: none */
    uint32_t words[4];
} gs_rng_t;

/* Philox4x32-10 (Salmon et al., SC 2011). */
void gs_rng_philox(const uint32_t seed[2], const uint32_t counter[4], uint32_t out[4]);

void gs_rng_init(gs_rng_t *rng, const uint32_t seed[2], uint32_t stream, uint32_t round, uint32_t node);

/* Draw number `index`, index < 2^34 - 4 as blocks count (so any uint32_t). */
uint32_t gs_rng_at(gs_rng_t *rng, uint32_t index);

/* 0 <= result < n. */
static inline uint32_t gs_rng_below(uint32_t u, uint32_t n)
{
    return (uint32_t)((uint64_t)u * n >> 32);
}

/* A multiple of 2^-24 in [0, 1). */
static inline float gs_rng_unit(uint32_t u)
{
    return (float)(u >> 8) * 0x1p-24f;
}

static inline bool gs_rng_chance(uint32_t u, uint32_t p24)
{
    return u >> 8 < p24;
}

/* Choose min(k, n) distinct numbers below n, ascending, with draws index0, index0 + 1, ... (Floyd).
   `out` has room for k; returns how many. */
uint32_t gs_rng_choose(gs_rng_t *rng, uint32_t n, uint32_t k, uint32_t index0, uint16_t *out);

#endif
