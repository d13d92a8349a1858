#include "gs_math.h"

#include "gs_spec.h"

float gs_expf(float x)
{
    if (x != x) {
        return x;
    }
    if (x > 88.0f) {
        return gs_float_of(0x7f800000u);
    }
    if (x < -87.0f) {
        return 0.0f;
    }
    /* The range above keeps k in [-126, 127], so 2^k and the result are normal. */
    const float k = gs_rintf(x * GS_FMATH_LOG2E);
    const float r = (x - k * GS_FMATH_LN2_HI) - k * GS_FMATH_LN2_LO;
    const float p = (((GS_FMATH_E6 * r + GS_FMATH_E5) * r + GS_FMATH_E4) * r + GS_FMATH_E3) * r + GS_FMATH_E2;
    const float y = ((p * r) * r + r) + 1.0f;
    return y * gs_float_of((uint32_t)((int32_t)k + 127) << 23);
}

float gs_logf(float x)
{
    if (x <= 0.0f) {
        return gs_float_of(0xff800000u);
    }
    if (!gs_is_finite(x)) {
        return x;
    }
    int32_t exponent = 0;
    if (x < 0x1p-126f) {
        x *= 0x1p23f;
        exponent = -23;
    }
    /* Taking SQRT_HALF's bits off first makes the exponent step at SQRT_HALF instead of at 1. The difference may be
       negative: adding 128 steps keeps the shift unsigned, that is, defined. */
    const uint32_t bits = gs_bits_of(x);
    const uint32_t steps = (bits - gs_bits_of(GS_FMATH_SQRT_HALF) + (128u << 23)) >> 23;
    const float m = gs_float_of(bits - ((steps - 128u) << 23));
    exponent += (int32_t)steps - 128;

    const float e = (float)exponent;
    const float f = m - 1.0f;
    const float s = f / (2.0f + f);
    const float z = s * s;
    const float q = z * (GS_FMATH_L1 + z * (GS_FMATH_L2 + z * (GS_FMATH_L3 + z * GS_FMATH_L4)));
    const float h = (0.5f * f) * f;
    return e * GS_FMATH_LN2_HI - ((h - (s * (h + q) + e * GS_FMATH_LN2_LO)) - f);
}

float gs_sqrtf(float x)
{
    uint32_t mantissa = gs_bits_of(x) & 0x7fffffu;
    int32_t exponent = (int32_t)(gs_bits_of(x) >> 23 & 0xffu);
    if (x == 0.0f || x != x) {
        return x;
    }
    if (gs_bits_of(x) >> 31) {
        return gs_float_of(GS_CANONICAL_NAN);
    }
    if (exponent == 0xff) {
        return x;
    }
    if (exponent == 0) {
        for (exponent = 1; !(mantissa & 0x800000u); --exponent) {
            mantissa <<= 1;
        }
    }
    mantissa |= 0x800000u;
    exponent -= 127 + 23; /* x = mantissa * 2^exponent */

    /* Find the integer root, rounded, of `square` in [2^46, 2^48), whose exponent is even: it has 24 bits. Three steps of
       Newton's for 1 / sqrt (no division) leave at most a few units of error; what counts is decided in integers:
       (root + 1/2)^2 = root^2 + root + 1/4 is no integer, so there is no tie. */
    const int32_t shift = (exponent & 1) ? 23 : 24;
    const uint64_t square = (uint64_t)mantissa << shift;
    const float approximate = (float)mantissa * (shift == 23 ? 0x1p23f : 0x1p24f); /* exact */
    const float half = 0.5f * approximate;
    float inverse = gs_float_of(0x5f3759dfu - (gs_bits_of(approximate) >> 1));
    for (int step = 0; step < 3; ++step) {
        inverse = inverse * (1.5f - half * inverse * inverse);
    }
    uint64_t root = (uint64_t)(approximate * inverse);
    while (square > root * root + root) {
        ++root;
    }
    while (square <= root * root - root) {
        --root;
    }
    const int32_t result_exponent = (exponent - shift) / 2 + 127 + 23;
    /* Adding instead of or-ing carries a root of 2^24 into the exponent. */
    return gs_float_of(((uint32_t)(result_exponent - 1) << 23) + (uint32_t)root);
}
