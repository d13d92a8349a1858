/* What turns the int32 sums of output channels into int8: the last step of every convolution and dense layer. */
#ifndef GS_Q8_CHANNELS_H
#define GS_Q8_CHANNELS_H

#include <stdint.h>

#include "gs_q8.h"

/* One entry a channel. */
typedef struct {
    const int32_t *bias;        /* with -zero_point_of_the_input * sum_of_the_weights folded in; sums wrap */
    const int32_t *multipliers; /* 0, or in [2^30, 2^31) */
    const int8_t *shifts;       /* to the left, -31..30 */
    int32_t zero_point;         /* of the output */
    int32_t least;
    int32_t greatest;
} gs_q8_channels_t;

/* Turn the sums of `count` channels, from `first` on, into out[count]. This is gs_q8_rescale without a branch, so that
   channels can go side by side: with the remainder of a right shift in hand, no sum overflows. */
static inline void gs_q8_channels_put(const gs_q8_channels_t *p, int32_t first, int32_t count,
                                      const int32_t *restrict sums, int8_t *restrict out)
{
    const int32_t *restrict bias = p->bias + first;
    const int32_t *restrict multipliers = p->multipliers + first;
    const int8_t *restrict shifts = p->shifts + first;
    const int32_t zero_point = p->zero_point;
    const int32_t least = p->least;
    const int32_t greatest = p->greatest;
    for (int32_t c = 0; c < count; ++c) {
        const int32_t shift = shifts[c];
        const int32_t left = shift > 0 ? shift : 0;
        const int32_t right = left - shift;
        const int32_t mask = (int32_t)((1u << right) - 1u);
        const uint32_t sum = (uint32_t)sums[c] + (uint32_t)bias[c];
        const int32_t x = gs_q8_high_mul((int32_t)(sum << left), multipliers[c]);
        const int32_t rounded = (x >> right) + ((x & mask) > (mask >> 1) + (x < 0));
        out[c] = (int8_t)gs_q8_clamp(rounded + zero_point, least, greatest);
    }
}

#endif
