/* The part of an image that one output pixel of a convolution sees. */
#ifndef GS_Q8_WINDOW_H
#define GS_Q8_WINDOW_H

#include <stdint.h>

/* An image in[rows][columns][pixel] and the taps of a window over it; each tap is `channels` neighbours of a pixel. */
typedef struct {
    int32_t rows;
    int32_t columns;
    int32_t pixel;    /* channels of the image */
    int32_t channels; /* of them, those that a window takes */
    int32_t tap_rows;
    int32_t tap_columns;
    int32_t dilation_rows;
    int32_t dilation_columns;
    int32_t zero_point; /* what lies outside the image */
} gs_q8_window_t;

/* Return the taps of the window whose first tap is at (row, column), which may lie outside, one behind the other:
   where they are in the image, or copied to patch[tap_rows * tap_columns * channels]. */
const int8_t *gs_q8_window_read(const gs_q8_window_t *p, const int8_t *in, int32_t row, int32_t column, int8_t *patch);

#endif
