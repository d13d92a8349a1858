#include "gs_q8_elementwise.h"

#include <string.h>

#include "gs_q8.h"

/* The loops below take the function of one pair as a constant, which must be inlined to be fast. */
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* Outputs are gathered in blocks, so that a compiler that cannot tell whether `out` is an input may still use vectors. */
#define BLOCK 64u

typedef int32_t pair_fn(const void *constants, int32_t x, int32_t y);

INLINE void run_of_pairs(pair_fn *f, const void *constants, uint32_t count, const int8_t *in0, uint32_t step0,
                         const int8_t *in1, uint32_t step1, int8_t *out)
{
    int8_t block[BLOCK];
    for (uint32_t first = 0; first < count; first += BLOCK) {
        const uint32_t size = count - first < BLOCK ? count - first : BLOCK;
        const int8_t *x = in0 + first * step0;
        const int8_t *y = in1 + first * step1;
        for (uint32_t i = 0; i < size; ++i) {
            block[i] = (int8_t)f(constants, x[i * step0], y[i * step1]);
        }
        memcpy(out + first, block, size);
    }
}

INLINE void each_pair(pair_fn *f, const void *constants, const gs_q8_nest_t *nest, const int8_t *in0, const int8_t *in1,
                      int8_t *out)
{
    const uint32_t count = nest->dims[3];
    for (uint32_t i = 0; i < nest->dims[0]; ++i) {
        for (uint32_t j = 0; j < nest->dims[1]; ++j) {
            for (uint32_t k = 0; k < nest->dims[2]; ++k) {
                const int8_t *x = in0 + i * nest->step0[0] + j * nest->step0[1] + k * nest->step0[2];
                const int8_t *y = in1 + i * nest->step1[0] + j * nest->step1[1] + k * nest->step1[2];
                if (nest->step1[3] == 0) {
                    run_of_pairs(f, constants, count, x, 1, y, 0, out);
                } else if (nest->step0[3] == 0) {
                    run_of_pairs(f, constants, count, x, 0, y, 1, out);
                } else {
                    run_of_pairs(f, constants, count, x, 1, y, 1, out);
                }
                out += count;
            }
        }
    }
}

/* A right shift that rounds halves away from zero, prepared: 0 needs no correction. */
typedef struct {
    int32_t shift;
    int32_t half;
    int32_t away; /* -1, or 0 for a shift of 0 */
} round_t;

INLINE round_t prepare_round(int32_t shift)
{
    const round_t round = {shift, shift > 0 ? (int32_t)(1u << (shift - 1)) : 0, shift > 0 ? -1 : 0};
    return round;
}

/* |x| + half must fit. */
INLINE int32_t round_shift(round_t round, int32_t x)
{
    return (x + round.half + (x < 0 ? round.away : 0)) >> round.shift;
}

typedef struct {
    int32_t zero_point;
    int32_t high;
    int32_t low;
    round_t round;
} term_t;

INLINE term_t prepare_term(const gs_q8_term_t *p)
{
    const term_t term = {p->zero_point, p->multiplier >> 11, p->multiplier & 2047, prepare_round(p->shift)};
    return term;
}

/* With d = x - zero_point in [-255, 255], the first rounding is floor((d * 2^20 * m + 2^30) / 2^31), which is
   floor((d * m + 2^10) / 2^11), which is d * high + floor((d * low + 2^10) / 2^11): no product leaves 32 bits, and the
   result is below 2^28, so that rounding may add up to 2^30 to it. */
INLINE int32_t apply_term(const term_t *term, int32_t x)
{
    const int32_t d = x - term->zero_point;
    return round_shift(term->round, d * term->high + ((d * term->low + 1024) >> 11));
}

typedef struct {
    term_t term0;
    term_t term1;
    int32_t multiplier;
    round_t round;
    int32_t zero_point;
    int32_t least;
    int32_t greatest;
} add_t;

INLINE add_t prepare_add(const gs_q8_add_t *p)
{
    const add_t add = {prepare_term(&p->term0),
                       prepare_term(&p->term1),
                       p->sum.multiplier,
                       prepare_round(p->sum.shift),
                       p->sum.zero_point,
                       p->least,
                       p->greatest};
    return add;
}

/* |sum| is below 2^29. */
INLINE int32_t finish_add(const add_t *add, int32_t sum)
{
    const int32_t value = round_shift(add->round, gs_q8_high_mul(sum, add->multiplier));
    return gs_q8_clamp(value + add->zero_point, add->least, add->greatest);
}

INLINE int32_t add_pair(const void *constants, int32_t x, int32_t y)
{
    const add_t *add = constants;
    return finish_add(add, apply_term(&add->term0, x) + apply_term(&add->term1, y));
}

INLINE int32_t sub_pair(const void *constants, int32_t x, int32_t y)
{
    const add_t *add = constants;
    return finish_add(add, apply_term(&add->term0, x) - apply_term(&add->term1, y));
}

INLINE int32_t mul_pair(const void *constants, int32_t x, int32_t y)
{
    const gs_q8_mul_t *p = constants;
    const int32_t product = (x - p->zero_point0) * (y - p->zero_point1);
    return gs_q8_clamp(gs_q8_rescale(product, p->multiplier, p->shift) + p->zero_point, p->least, p->greatest);
}

INLINE int32_t prelu_pair(const void *constants, int32_t x, int32_t y)
{
    const gs_q8_prelu_t *p = constants;
    const int32_t d = x - p->zero_point0;
    const int32_t value = d >= 0 ? gs_q8_rescale(d, p->multiplier, p->shift)
                                 : gs_q8_rescale(d * (y - p->zero_point1), p->slope_multiplier, p->slope_shift);
    return gs_q8_clamp(value + p->zero_point, -128, 127);
}

INLINE int32_t extreme_pair(const void *constants, int32_t x, int32_t y)
{
    const gs_q8_extreme_t *p = constants;
    return ((x ^ p->flip) > (y ^ p->flip) ? x : y);
}

void gs_q8_add(const gs_q8_add_t *p, const int8_t *in0, const int8_t *in1, int8_t *out)
{
    const add_t add = prepare_add(p);
    each_pair(add_pair, &add, &p->nest, in0, in1, out);
}

void gs_q8_sub(const gs_q8_add_t *p, const int8_t *in0, const int8_t *in1, int8_t *out)
{
    const add_t add = prepare_add(p);
    each_pair(sub_pair, &add, &p->nest, in0, in1, out);
}

void gs_q8_mul(const gs_q8_mul_t *p, const int8_t *in0, const int8_t *in1, int8_t *out)
{
    const gs_q8_mul_t mul = *p;
    each_pair(mul_pair, &mul, &p->nest, in0, in1, out);
}

void gs_q8_prelu(const gs_q8_prelu_t *p, const int8_t *in0, const int8_t *in1, int8_t *out)
{
    const gs_q8_prelu_t prelu = *p;
    each_pair(prelu_pair, &prelu, &p->nest, in0, in1, out);
}

void gs_q8_extreme(const gs_q8_extreme_t *p, const int8_t *in0, const int8_t *in1, int8_t *out)
{
    const gs_q8_extreme_t extreme = *p;
    each_pair(extreme_pair, &extreme, &p->nest, in0, in1, out);
}
