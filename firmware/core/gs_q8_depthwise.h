/* Depthwise convolutions: every channel by itself. With several outputs a channel they are grouped (gs_q8_conv.h). */
#ifndef GS_Q8_DEPTHWISE_H
#define GS_Q8_DEPTHWISE_H

#include <stdint.h>

#include "gs_q8_channels.h"
#include "gs_q8_window.h"

typedef struct {
    gs_q8_channels_t channels;
    const int8_t *weights; /* [tap_rows][tap_columns][channels], -127..127: two products fit 16 bits */
    gs_q8_window_t window; /* channels = pixel */
    int32_t images;
    int32_t out_rows;
    int32_t out_columns;
    int32_t stride_rows;
    int32_t stride_columns;
    int32_t pad_rows; /* above the image */
    int32_t pad_columns;
} gs_q8_depthwise_t;

/* in[images][window.rows][window.columns][pixel] to out[images][out_rows][out_columns][pixel].
   scratch holds 4 * tap_rows * tap_columns bytes, aligned to 4. */
void gs_q8_depthwise(const gs_q8_depthwise_t *p, const int8_t *in, int8_t *out, void *scratch);

#endif
