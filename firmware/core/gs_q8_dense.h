/* Dense layers, and the convolutions that are dense layers of every pixel. Names end in the bits of a weight, 8 unsaid. */
#ifndef GS_Q8_DENSE_H
#define GS_Q8_DENSE_H

#include <stdint.h>

#include "gs_q8_matrix.h"

typedef struct {
    gs_q8_matrix_t matrix;
    int32_t columns;
} gs_q8_dense_t;

/* in[columns][terms] to out[columns][rows]. */
void gs_q8_dense(const gs_q8_dense_t *p, const int8_t *in, int8_t *out);
void gs_q8_dense_w4(const gs_q8_dense_t *p, const int8_t *in, int8_t *out);
void gs_q8_dense_w2(const gs_q8_dense_t *p, const int8_t *in, int8_t *out);
void gs_q8_dense_w1(const gs_q8_dense_t *p, const int8_t *in, int8_t *out);

#endif
