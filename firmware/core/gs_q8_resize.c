#include "gs_q8_resize.h"

#define ONE ((int32_t)1 << GS_Q8_RESIZE_BITS)

/* ONE * ONE rounds to 1, halves away from zero. */
static inline int8_t rounded(int32_t sum)
{
    return (int8_t)((sum + (ONE * ONE / 2) - (sum < 0)) >> (2 * GS_Q8_RESIZE_BITS));
}

/* The four corners around a pixel and their weights, which add up to ONE * ONE, so that sums of int8 stay below 2^28. */
typedef struct {
    const int8_t *corners[4];
    int32_t weights[4];
} pixel_t;

static void interpolate(const pixel_t *pixel, uint32_t channels, int8_t *out)
{
    for (uint32_t c = 0; c < channels; c++) {
        int32_t sum = 0;
        for (uint32_t i = 0; i < 4; i++) {
            sum += pixel->corners[i][c] * pixel->weights[i];
        }
        out[c] = rounded(sum);
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
                const pixel_t pixel = {
                    {above + column[0], above + column[1], below + column[0], below + column[1]},
                    {(ONE - row[2]) * (ONE - column[2]), (ONE - row[2]) * column[2], row[2] * (ONE - column[2]),
                     row[2] * column[2]},
                };
                interpolate(&pixel, p->channels, out);
                out += p->channels;
            }
        }
    }
}
