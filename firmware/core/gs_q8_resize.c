#include "gs_q8_resize.h"

#define ONE ((int32_t)1 << GS_Q8_RESIZE_BITS)

/* ONE * ONE rounds to 1, halves away from zero. */
static inline int8_t rounded(int32_t sum)
{
    return (int8_t)((sum + (ONE * ONE / 2) - (sum < 0)) >> (2 * GS_Q8_RESIZE_BITS));
}

/* Mix two pixels of the row above and two of the row below: first down each column, then between the columns. Nothing is
   rounded before the end; sums of int8 stay below 2^28. */
static void interpolate(const int8_t *above, const int8_t *below, const int32_t *column, int32_t down,
                        uint32_t channels, int8_t *restrict out)
{
    const int8_t *above_left = above + column[0];
    const int8_t *above_right = above + column[1];
    const int8_t *below_left = below + column[0];
    const int8_t *below_right = below + column[1];
    const int32_t across = column[2];
    for (uint32_t c = 0; c < channels; c++) {
        const int32_t left = above_left[c] * ONE + (below_left[c] - above_left[c]) * down;
        const int32_t right = above_right[c] * ONE + (below_right[c] - above_right[c]) * down;
        out[c] = rounded(left * ONE + (right - left) * across);
    }
}

void gs_q8_resize(const gs_q8_resize_t *p, const int8_t *in, int8_t *out)
{
    for (uint32_t n = 0; n < p->images; n++, in += p->image_bytes) {
        const int32_t *row = p->rows;
        for (uint32_t y = 0; y < p->height; y++, row += 3) {
            const int8_t *above = in + row[0];
            const int8_t *below = in + row[1];
            const int32_t *column = p->columns;
            for (uint32_t x = 0; x < p->width; x++, column += 3) {
                interpolate(above, below, column, row[2], p->channels, out);
                out += p->channels;
            }
        }
    }
}
