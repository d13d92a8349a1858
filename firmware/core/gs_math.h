/* Binary32 functions that give the same bits everywhere (SPEC.md 1). No libm. */
#ifndef GS_MATH_H
#define GS_MATH_H

#include <stdbool.h>

#include "gs_bytes.h"

#if defined(__FAST_MATH__)
#error "-ffast-math changes results: build without it (SPEC.md 1.1)"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "floats are evaluated in a wider format: build for SSE (-mfpmath=sse -msse2) or another unit (SPEC.md 1.1)"
#endif

/* e^x: +0 below -87, +inf above 88, NaN for NaN; below 1 ulp of error. */
float gs_expf(float x);

/* Natural logarithm: -inf for x <= 0, +inf and NaN unchanged; below 1 ulp of error. */
float gs_logf(float x);

/* Correctly rounded square root; NaN for x < 0, -0 for -0. */
float gs_sqrtf(float x);

/* Nearest whole number, halves to even; |x| < 2^22. */
static inline float gs_rintf(float x)
{
    return (x + 12582912.0f) - 12582912.0f;
}

static inline float gs_absf(float x)
{
    return gs_float_of(gs_bits_of(x) & 0x7fffffffu);
}

static inline bool gs_is_finite(float x)
{
    return (gs_bits_of(x) & 0x7f800000u) != 0x7f800000u;
}

#endif
