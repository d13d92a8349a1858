#include "gs_rng.h"

#include <string.h>

void gs_rng_philox(const uint32_t seed[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    uint32_t k0 = seed[0], k1 = seed[1];
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = (uint64_t)0xd2511f53u * x0;
        const uint64_t b = (uint64_t)0xcd9e8d57u * x2;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)b;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

void gs_rng_init(gs_rng_t *rng, const uint32_t seed[2], uint32_t stream, uint32_t round, uint32_t node)
{
    memcpy(rng->seed, seed, sizeof rng->seed);
    rng->stream = stream;
    rng->round = round;
    rng->node = node;
    rng->block = UINT32_MAX;
}

uint32_t gs_rng_at(gs_rng_t *rng, uint32_t index)
{
    const uint32_t block = index / 4;
    if (block != rng->block) {
        const uint32_t counter[4] = {block, rng->stream, rng->round, rng->node};
        gs_rng_philox(rng->seed, counter, rng->words);
        rng->block = block;
    }
    return rng->words[index % 4];
}

uint32_t gs_rng_choose(gs_rng_t *rng, uint32_t n, uint32_t k, uint32_t index0, uint16_t *out)
{
    const uint32_t wanted = k < n ? k : n;
    for (uint32_t i = 0; i < wanted; ++i) {
        const uint32_t j = n - wanted + i;
        uint32_t take = gs_rng_below(gs_rng_at(rng, index0 + i), j + 1);
        uint32_t place = i;
        for (uint32_t held = 0; held < i; ++held) {
            if (out[held] == take) {
                take = j; /* greater than all that are held */
                break;
            }
        }
        while (place > 0 && out[place - 1] > take) {
            out[place] = out[place - 1];
            --place;
        }
        out[place] = (uint16_t)take;
    }
    return wanted;
}
