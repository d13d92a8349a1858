#include "gs_q8_depthwise.h"

#include <string.h>

/* Channels that are summed side by side. */
#define BLOCK 32

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* Where the taps of a window are: offsets into the image, -1 outside. */
static void find_taps(const gs_q8_window_t *p, int32_t row, int32_t first_column, int32_t *taps)
{
    for (int32_t r = 0; r < p->tap_rows; ++r) {
        int32_t column = first_column;
        for (int32_t c = 0; c < p->tap_columns; ++c) {
            const int32_t at = (row * p->columns + column) * p->pixel;
            *taps++ = row >= 0 && row < p->rows && column >= 0 && column < p->columns ? at : -1;
            column += p->dilation_columns;
        }
        row += p->dilation_rows;
    }
}

INLINE void add_one(int32_t *restrict sums, int32_t size, const int8_t *x, const int8_t *w)
{
    for (int32_t c = 0; c < size; ++c) {
        sums[c] += (int16_t)(x[c] * w[c]);
    }
}

INLINE void add_two(int32_t *restrict sums, int32_t size, const int8_t *x0, const int8_t *w0, const int8_t *x1,
                    const int8_t *w1)
{
    for (int32_t c = 0; c < size; ++c) {
        sums[c] += (int16_t)(x0[c] * w0[c] + x1[c] * w1[c]);
    }
}

/* `size` channels of one output pixel. in, weights and out start at channel `first`. */
INLINE void sum_taps(const gs_q8_depthwise_t *p, int32_t first, int32_t size, const int8_t *in, const int8_t *outside,
                     const int32_t *taps, int8_t *out)
{
    const int32_t channels = p->window.pixel;
    const int32_t count = p->window.tap_rows * p->window.tap_columns;
    const int8_t *w = p->weights + first;
    int32_t sums[BLOCK];
    memset(sums, 0, sizeof sums);
    int32_t tap = 0;
    for (; tap + 2 <= count; tap += 2) {
        const int8_t *x0 = taps[tap] < 0 ? outside : in + taps[tap];
        const int8_t *x1 = taps[tap + 1] < 0 ? outside : in + taps[tap + 1];
        add_two(sums, size, x0, w, x1, w + channels);
        w += 2 * channels;
    }
    if (tap < count) {
        add_one(sums, size, taps[tap] < 0 ? outside : in + taps[tap], w);
    }
    gs_q8_channels_put(&p->channels, first, size, sums, out);
}

void gs_q8_depthwise(const gs_q8_depthwise_t *p, const int8_t *in, int8_t *out, void *scratch)
{
    int32_t *taps = scratch;
    int8_t outside[BLOCK];
    memset(outside, p->window.zero_point, sizeof outside);
    const int32_t channels = p->window.pixel;
    for (int32_t image = 0; image < p->images; ++image) {
        for (int32_t row = 0; row < p->out_rows; ++row) {
            for (int32_t column = 0; column < p->out_columns; ++column) {
                find_taps(&p->window, row * p->stride_rows - p->pad_rows, column * p->stride_columns - p->pad_columns,
                          taps);
                int32_t first = 0;
                for (; first + BLOCK <= channels; first += BLOCK) {
                    sum_taps(p, first, BLOCK, in + first, outside, taps, out + first);
                }
                if (first < channels) {
                    sum_taps(p, first, channels - first, in + first, outside, taps, out + first);
                }
                out += channels;
            }
        }
        in += p->window.rows * p->window.columns * channels;
    }
}
