/* Fixed-point arithmetic of int8 inference, as TensorFlow Lite Micro's integer kernels have it, to the bit.

   A real value is scale * (q - zero_point). The kernels of the gs_q8_* modules take what depends on scales as integers
   that the generator worked out: a multiplier m in [2^30, 2^31) (or 0) and a shift s mean the factor m * 2^(s - 31).

   Kernels are called as gs_q8_verb(&parameters, inputs..., outputs..., scratch). Parameters are constant and correct by
   construction (codegen/lower/), so kernels check nothing; buffers hold the shapes that the parameters state and, unless
   a header says otherwise, do not overlap. Tensors are dense, the last index runs fastest, images are NHWC. */
#ifndef GS_Q8_H
#define GS_Q8_H

#include <stdint.h>

/* Counts changes to the kernels' parameters; generated code names the version it was made for (codegen/emit.py). */
#define GS_Q8_VERSION 1

/* round(x * multiplier / 2^31) by adding half and shifting; |x| * multiplier < 2^62 always holds for int32. */
static inline int32_t gs_q8_high_mul(int32_t x, int32_t multiplier)
{
    return (int32_t)(((int64_t)x * multiplier + ((int64_t)1 << 30)) >> 31);
}

/* x / 2^exponent, 0 <= exponent <= 62, halves away from zero. */
static inline int32_t gs_q8_round_shift(int32_t x, int32_t exponent)
{
    if (exponent == 0) {
        return x;
    }
    return (int32_t)(((int64_t)x + ((int64_t)1 << (exponent - 1)) - (x < 0)) >> exponent);
}

/* x * multiplier * 2^(shift - 31), rounded twice: after the product and after the right shift. A left shift comes first
   and wraps. -31 <= shift <= 30. */
static inline int32_t gs_q8_rescale(int32_t x, int32_t multiplier, int32_t shift)
{
    if (shift > 0) {
        return gs_q8_high_mul((int32_t)((uint32_t)x << shift), multiplier);
    }
    return gs_q8_round_shift(gs_q8_high_mul(x, multiplier), -shift);
}

static inline int32_t gs_q8_clamp(int32_t x, int32_t least, int32_t greatest)
{
    return x < least ? least : x > greatest ? greatest : x;
}

#endif
