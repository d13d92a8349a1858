#include "gs_q8_softmax.h"

#include "gs_q8.h"

#define ONE INT32_MAX /* 1 in units of 2^-31, as near as can be */

/* x * 4, saturating. */
static int32_t times_4(int32_t x)
{
    return x > INT32_MAX >> 2 ? INT32_MAX : x < INT32_MIN >> 2 ? INT32_MIN : x * 4;
}

/* 1 / (1 + x) for x in [0, 1), both in units of 2^-31: three steps of Newton's method for 1/d with d = (1 + x) / 2,
   in units of 2^-29, from the line 48/17 - 32/17 d. */
static int32_t inverse_of_one_plus(int32_t x)
{
    const int32_t d = (int32_t)(((int64_t)x + ONE + 1) / 2);
    int32_t y = 1515870810 + gs_q8_high_mul(d, -1010580540);
    for (int step = 0; step < 3; ++step) {
        const int32_t rest = (1 << 29) - gs_q8_high_mul(d, y);
        y += times_4(gs_q8_high_mul(y, rest));
    }
    return y > INT32_MAX >> 1 ? INT32_MAX : y * 2; /* 1/d is 2 / (1 + x), so this is half of it, in units of 2^-31 */
}

static int32_t leading_zeros(uint32_t x)
{
    int32_t count = 0;
    for (; x < 1u << 31; x <<= 1) {
        ++count;
    }
    return count;
}

static void softmax_row(const gs_q8_softmax_t *p, const int8_t *in, int8_t *out)
{
    int32_t greatest = -128;
    for (uint32_t c = 0; c < p->depth; ++c) {
        greatest = in[c] > greatest ? in[c] : greatest;
    }
    uint32_t sum = 0; /* in units of 2^-19; the greatest alone adds 1, so it is at least 2^19 */
    for (uint32_t c = 0; c < p->depth; ++c) {
        const uint32_t level = (uint32_t)(greatest - in[c]);
        if (level < p->levels) {
            sum += (uint32_t)gs_q8_round_shift(p->exps[level], 12);
        }
    }
    /* sum is (1 + x) * 2^(12 - zeros) with x in [0, 1). */
    const int32_t zeros = leading_zeros(sum);
    const int32_t scale = inverse_of_one_plus((int32_t)((sum << zeros) - (1u << 31)));
    for (uint32_t c = 0; c < p->depth; ++c) {
        const uint32_t level = (uint32_t)(greatest - in[c]);
        int32_t value = 0;
        if (level < p->levels) {
            value = gs_q8_round_shift(gs_q8_high_mul(scale, p->exps[level]), 12 - zeros + 23);
        }
        out[c] = (int8_t)gs_q8_clamp(value - 128, -128, 127);
    }
}

void gs_q8_softmax(const gs_q8_softmax_t *p, const int8_t *in, int8_t *out)
{
    for (uint32_t row = 0; row < p->rows; ++row) {
        softmax_row(p, in + row * p->depth, out + row * p->depth);
    }
}
