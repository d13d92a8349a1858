/* Transposed convolutions, computed output by output: outputs whose row and column leave the same remainders by the
   strides see the same taps, and are an ordinary convolution. Names end in the bits of a weight, 8 unsaid. */
#ifndef GS_Q8_TRANSPOSE_CONV_H
#define GS_Q8_TRANSPOSE_CONV_H

#include <stdint.h>

#include "gs_q8_matrix.h"
#include "gs_q8_window.h"

/* The matrices of all phases follow each other, phase (a, b) for a < stride_rows, b < stride_columns: its rows are
   [ka][kb][channels], ka and kb counting taps a + i * stride_rows and b + i * stride_columns down to i = 0. The biases
   are [stride_rows][stride_columns][rows]; multipliers and shifts serve all phases. */
typedef struct {
    gs_q8_matrix_t matrix; /* terms: of the first phase, which has the most taps */
    gs_q8_window_t window; /* taps of all phases together, not dilated */
    int32_t images;
    int32_t out_rows;
    int32_t out_columns;
    int32_t stride_rows;
    int32_t stride_columns;
    int32_t pad_rows; /* what is cut off above the output */
    int32_t pad_columns;
} gs_q8_transpose_conv_t;

/* in[images][window.rows][window.columns][pixel] to out[images][out_rows][out_columns][matrix.rows].
   scratch holds GS_Q8_MATRIX_COLUMNS * matrix.terms bytes. */
void gs_q8_transpose_conv(const gs_q8_transpose_conv_t *p, const int8_t *in, int8_t *out, void *scratch);
void gs_q8_transpose_conv_w4(const gs_q8_transpose_conv_t *p, const int8_t *in, int8_t *out, void *scratch);
void gs_q8_transpose_conv_w2(const gs_q8_transpose_conv_t *p, const int8_t *in, int8_t *out, void *scratch);
void gs_q8_transpose_conv_w1(const gs_q8_transpose_conv_t *p, const int8_t *in, int8_t *out, void *scratch);

#endif
