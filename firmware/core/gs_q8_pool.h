/* Average and maximum over windows of an image; what lies outside the image does not count. */
#ifndef GS_Q8_POOL_H
#define GS_Q8_POOL_H

#include <stdint.h>

/* Every window overlaps the image. Sizes are in elements, at most 2^15 - 1 for rows and columns. */
typedef struct {
    int32_t images;
    int32_t in_rows;
    int32_t in_columns;
    int32_t channels;
    int32_t out_rows;
    int32_t out_columns;
    int32_t window_rows;
    int32_t window_columns;
    int32_t stride_rows;
    int32_t stride_columns;
    int32_t pad_rows; /* above, in [0, window_rows) */
    int32_t pad_columns;
    int32_t least;
    int32_t greatest;
} gs_q8_pool_t;

/* in[images][in_rows][in_columns][channels] to out[images][out_rows][out_columns][channels]. A window of the average
   holds fewer than 2^23 pixels. */
void gs_q8_average_pool(const gs_q8_pool_t *p, const int8_t *in, int8_t *out);
void gs_q8_max_pool(const gs_q8_pool_t *p, const int8_t *in, int8_t *out);

#endif
