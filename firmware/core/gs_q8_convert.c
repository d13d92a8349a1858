#include "gs_q8_convert.h"

void gs_q8_quantize(const gs_q8_convert_t *p, const float *in, int8_t *out)
{
    const gs_q8_convert_t q = *p;
    /* To clamp to whole numbers before rounding is to clamp after it; and then the conversion to int32 is exact. */
    const float least = (float)(-128 - q.zero_point);
    const float greatest = (float)(127 - q.zero_point);
    for (uint32_t i = 0; i < q.count; ++i) {
        float x = in[i] / q.scale;
        x = x > least ? x : least; /* in this order, for a NaN */
        x = x < greatest ? x : greatest;
        const int32_t whole = (int32_t)x;
        const float rest = x - (float)whole; /* exact */
        out[i] = (int8_t)(whole + (rest >= 0.5f) - (rest <= -0.5f) + q.zero_point);
    }
}

void gs_q8_dequantize(const gs_q8_convert_t *p, const int8_t *in, float *out)
{
    const gs_q8_convert_t q = *p;
    for (uint32_t i = 0; i < q.count; ++i) {
        out[i] = (float)(in[i] - q.zero_point) * q.scale;
    }
}
