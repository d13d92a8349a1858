/* Between binary32 and int8. */
#ifndef GS_Q8_CONVERT_H
#define GS_Q8_CONVERT_H

#include <stdint.h>

typedef struct {
    float scale; /* above 0 */
    int32_t zero_point;
    uint32_t count;
} gs_q8_convert_t;

/* out[i] = round(in[i] / scale) + zero_point, halves away from zero, saturating; what is no number becomes -128. */
void gs_q8_quantize(const gs_q8_convert_t *p, const float *in, int8_t *out);

/* out[i] = (in[i] - zero_point) * scale. */
void gs_q8_dequantize(const gs_q8_convert_t *p, const int8_t *in, float *out);

#endif
