#include "gs_q8_convert.h"

#include "gs_q8.h"

/* Beyond this all of int8 is passed, whatever the zero point; and a conversion to int32 is exact. */
#define LIMIT 512.0f

void gs_q8_quantize(const gs_q8_convert_t *p, const float *in, int8_t *out)
{
    const gs_q8_convert_t q = *p;
    for (uint32_t i = 0; i < q.count; ++i) {
        float x = in[i] / q.scale;
        x = x > -LIMIT ? x : -LIMIT; /* in this order, for a NaN */
        x = x < LIMIT ? x : LIMIT;
        const int32_t whole = (int32_t)x;
        const float rest = x - (float)whole; /* exact */
        const int32_t rounded = whole + (rest >= 0.5f) - (rest <= -0.5f);
        out[i] = (int8_t)gs_q8_clamp(rounded + q.zero_point, -128, 127);
    }
}

void gs_q8_dequantize(const gs_q8_convert_t *p, const int8_t *in, float *out)
{
    const gs_q8_convert_t q = *p;
    for (uint32_t i = 0; i < q.count; ++i) {
        out[i] = (float)(in[i] - q.zero_point) * q.scale;
    }
}
