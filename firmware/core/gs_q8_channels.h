/* What turns the int32 sums of output channels into int8: the last step of every convolution and dense layer. */
#ifndef GS_Q8_CHANNELS_H
#define GS_Q8_CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "gs_q8.h"

/* One entry a channel. */
typedef struct {
    const int32_t *bias;        /* with -zero_point_of_the_input * sum_of_the_weights folded in; sums wrap */
    const int32_t *multipliers; /* 0, or in [2^30, 2^31) */
    const int8_t *shifts;       /* to the left, -31..30 */
    bool all_right;             /* every shift is negative, as factors below 1/2 have it */
    int32_t zero_point;         /* of the output */
    int32_t least;
    int32_t greatest;
} gs_q8_channels_t;

/* gs_q8_rescale for a shift in -31..-1, without a branch. Halves of what is negative go down if 1 is taken from it first;
   nothing overflows, for |y| < 2^31 - 1. */
static inline int32_t gs_q8_rescale_right(int32_t x, int32_t multiplier, int32_t shift)
{
    const int32_t y = gs_q8_high_mul(x, multiplier);
    return (((y + (y >> 31)) >> (-1 - shift)) + 1) >> 1;
}

/* Turn the sums of `count` channels, from `first` on, into out[count]. */
static inline void gs_q8_channels_put(const gs_q8_channels_t *p, int32_t first, int32_t count,
                                      const int32_t *restrict sums, int8_t *restrict out)
{
    const int32_t *restrict bias = p->bias + first;
    const int32_t *restrict multipliers = p->multipliers + first;
    const int8_t *restrict shifts = p->shifts + first;
    const int32_t zero_point = p->zero_point;
    const int32_t least = p->least;
    const int32_t greatest = p->greatest;
    if (p->all_right) {
        for (int32_t c = 0; c < count; ++c) {
            const int32_t sum = (int32_t)((uint32_t)sums[c] + (uint32_t)bias[c]);
            const int32_t y = gs_q8_rescale_right(sum, multipliers[c], shifts[c]);
            out[c] = (int8_t)gs_q8_clamp(y + zero_point, least, greatest);
        }
        return;
    }
    for (int32_t c = 0; c < count; ++c) {
        const int32_t sum = (int32_t)((uint32_t)sums[c] + (uint32_t)bias[c]);
        const int32_t y = gs_q8_rescale(sum, multipliers[c], shifts[c]);
        out[c] = (int8_t)gs_q8_clamp((int32_t)((uint32_t)y + (uint32_t)zero_point), least, greatest);
    }
}

#endif
