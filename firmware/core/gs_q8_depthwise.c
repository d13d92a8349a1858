#include "gs_q8_depthwise.h"

#include <stdbool.h>
#include <string.h>

/* Channels that are summed side by side: constants, so that their loops become vectors. */
#define BLOCK 32
#define SMALL_BLOCK 8

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* Where the taps of a window are, from its first tap on; -1 outside the image. Returns whether all are inside. */
static bool find_taps(const gs_q8_window_t *p, int32_t first_row, int32_t first_column, int32_t *taps)
{
    bool inside = true;
    for (int32_t r = 0; r < p->tap_rows; ++r) {
        const int32_t down = r * p->dilation_rows;
        const bool row_inside = first_row + down >= 0 && first_row + down < p->rows;
        for (int32_t c = 0; c < p->tap_columns; ++c) {
            const int32_t right = c * p->dilation_columns;
            const int32_t column = first_column + right;
            if (row_inside && column >= 0 && column < p->columns) {
                *taps++ = (down * p->columns + right) * p->pixel;
            } else {
                *taps++ = -1;
                inside = false;
            }
        }
    }
    return inside;
}

static bool is_inside(const gs_q8_window_t *p, int32_t row, int32_t column)
{
    return row >= 0 && row + (p->tap_rows - 1) * p->dilation_rows < p->rows && column >= 0 &&
           column + (p->tap_columns - 1) * p->dilation_columns < p->columns;
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

/* `size` channels of one output pixel, from channel `first` on. The window's first tap is at in[origin]. */
INLINE void sum_taps(const gs_q8_depthwise_t *p, int32_t first, int32_t size, const int8_t *in, int32_t origin,
                     const int32_t *taps, const int8_t *outside, int8_t *out)
{
    const int32_t channels = p->window.pixel;
    const int32_t count = p->window.tap_rows * p->window.tap_columns;
    const int8_t *w = p->weights + first;
    int32_t sums[BLOCK];
    memset(sums, 0, (size_t)size * sizeof *sums);
    origin += first;
    int32_t tap = 0;
    for (; tap + 2 <= count; tap += 2) {
        const int8_t *x0 = taps[tap] < 0 ? outside : in + (origin + taps[tap]);
        const int8_t *x1 = taps[tap + 1] < 0 ? outside : in + (origin + taps[tap + 1]);
        add_two(sums, size, x0, w, x1, w + channels);
        w += 2 * channels;
    }
    if (tap < count) {
        add_one(sums, size, taps[tap] < 0 ? outside : in + (origin + taps[tap]), w);
    }
    gs_q8_channels_put(&p->channels, first, size, sums, out + first);
}

void gs_q8_depthwise(const gs_q8_depthwise_t *p, const int8_t *in, int8_t *out, void *scratch)
{
    int32_t *taps = scratch;
    bool found = false; /* the taps of a window inside, the same for all of those */
    int8_t outside[BLOCK];
    memset(outside, p->window.zero_point, sizeof outside);
    const int32_t channels = p->window.pixel;
    for (int32_t image = 0; image < p->images; ++image) {
        for (int32_t i = 0; i < p->out_rows; ++i) {
            const int32_t row = i * p->stride_rows - p->pad_rows;
            int32_t column = -p->pad_columns;
            for (int32_t j = 0; j < p->out_columns; ++j) {
                if (!found || !is_inside(&p->window, row, column)) {
                    found = find_taps(&p->window, row, column, taps);
                }
                const int32_t origin = (row * p->window.columns + column) * channels;
                int32_t c = 0;
                for (; c + BLOCK <= channels; c += BLOCK) {
                    sum_taps(p, c, BLOCK, in, origin, taps, outside, out);
                }
                for (; c + SMALL_BLOCK <= channels; c += SMALL_BLOCK) {
                    sum_taps(p, c, SMALL_BLOCK, in, origin, taps, outside, out);
                }
                if (c < channels) {
                    sum_taps(p, c, channels - c, in, origin, taps, outside, out);
                }
                out += channels;
                column += p->stride_columns;
            }
        }
        in += p->window.rows * p->window.columns * channels;
    }
}
