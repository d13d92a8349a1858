/* Softmax of rows, in fixed point. */
#ifndef GS_Q8_SOFTMAX_H
#define GS_Q8_SOFTMAX_H

#include <stdint.h>

/* exps[i] is exp(-i * beta * scale) in units of 2^-31, for i < levels; what lies further below the greatest of its row
   does not count. */
typedef struct {
    const int32_t *exps;
    uint32_t levels; /* 1..256 */
    uint32_t rows;
    uint32_t depth; /* 1..4095, so that 19 binary places of the sum fit */
} gs_q8_softmax_t;

/* in[rows][depth] to out[rows][depth], in units of 1/256 from a zero point of -128; `in` may be `out`. */
void gs_q8_softmax(const gs_q8_softmax_t *p, const int8_t *in, int8_t *out);

#endif
