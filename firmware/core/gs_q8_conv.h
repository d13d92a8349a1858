/* Convolutions, with groups: output channel c sees the input channels of its group. Names end in the bits of a weight,
   8 unsaid. */
#ifndef GS_Q8_CONV_H
#define GS_Q8_CONV_H

#include <stdint.h>

#include "gs_q8_matrix.h"
#include "gs_q8_window.h"

typedef struct {
    gs_q8_matrix_t matrix; /* of one group, whose rows are [tap_rows][tap_columns][channels]; the next group's follow */
    gs_q8_window_t window; /* pixel = groups * channels */
    int32_t groups;
    int32_t images;
    int32_t out_rows;
    int32_t out_columns;
    int32_t stride_rows;
    int32_t stride_columns;
    int32_t pad_rows; /* above the image */
    int32_t pad_columns;
} gs_q8_conv_t;

/* in[images][window.rows][window.columns][pixel] to out[images][out_rows][out_columns][groups * matrix.rows].
   scratch holds GS_Q8_MATRIX_COLUMNS * matrix.terms bytes. */
void gs_q8_conv(const gs_q8_conv_t *p, const int8_t *in, int8_t *out, void *scratch);
void gs_q8_conv_w4(const gs_q8_conv_t *p, const int8_t *in, int8_t *out, void *scratch);
void gs_q8_conv_w2(const gs_q8_conv_t *p, const int8_t *in, int8_t *out, void *scratch);
void gs_q8_conv_w1(const gs_q8_conv_t *p, const int8_t *in, int8_t *out, void *scratch);

#endif
