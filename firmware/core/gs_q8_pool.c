#include "gs_q8_pool.h"

#include "gs_q8.h"

/* The loops below take the function of one block as a constant, which must be inlined to be fast. */
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* Channels that are pooled side by side where there are as many; fewer go one by one. */
#define BLOCK 32

/* The part of a window that lies inside the image. */
typedef struct {
    const int8_t *first;
    int32_t rows;
    int32_t columns;
    int32_t row_step; /* elements from one row to the next */
    int32_t count;    /* of pixels */
    uint32_t inverse; /* of the count, or 0: see divide() */
} window_t;

/* Pool one channel, or BLOCK of them, of a window, from `in` on. */
typedef int8_t channel_fn(const gs_q8_pool_t *p, const window_t *window, const int8_t *in);
typedef void block_fn(const gs_q8_pool_t *p, const window_t *window, const int8_t *in, int8_t *out);

INLINE int32_t min_of(int32_t x, int32_t y)
{
    return x < y ? x : y;
}

INLINE int32_t max_of(int32_t x, int32_t y)
{
    return x > y ? x : y;
}

INLINE void each_channel(const gs_q8_pool_t *p, const window_t *window, int8_t *out, channel_fn *one, block_fn *block)
{
    const int32_t channels = p->channels;
    if (channels < BLOCK) {
        for (int32_t c = 0; c < channels; ++c) {
            out[c] = one(p, window, window->first + c);
        }
        return;
    }
    for (int32_t c = 0; c < channels; c += BLOCK) {
        const int32_t first = min_of(c, channels - BLOCK); /* the last may do again what the one before did */
        block(p, window, window->first + first, out + first);
    }
}

/* The quotient of n = |sum| + count / 2 by count is n * M >> 24 with M = ceil(2^24 / count), if n * (M * count - 2^24) is
   below 2^24: so it is while 129 * count * count <= 2^24, and n * M < 2^32 then. */
#define COUNT_MAX 360

INLINE void each_window(const gs_q8_pool_t *p, const int8_t *in, int8_t *out, channel_fn *one, block_fn *block)
{
    window_t window = {.row_step = p->in_columns * p->channels};
    for (int32_t image = 0; image < p->images; ++image) {
        for (int32_t row = 0; row < p->out_rows; ++row) {
            const int32_t top = row * p->stride_rows - p->pad_rows;
            const int32_t first_row = max_of(top, 0);
            window.rows = min_of(top + p->window_rows, p->in_rows) - first_row;
            for (int32_t column = 0; column < p->out_columns; ++column) {
                const int32_t left = column * p->stride_columns - p->pad_columns;
                const int32_t first_column = max_of(left, 0);
                window.columns = min_of(left + p->window_columns, p->in_columns) - first_column;
                window.first = in + first_row * window.row_step + first_column * p->channels;
                if (window.count != window.rows * window.columns) {
                    const uint32_t count = (uint32_t)(window.rows * window.columns);
                    window.count = (int32_t)count;
                    window.inverse = count <= COUNT_MAX ? ((1u << 24) + count - 1) / count : 0;
                }
                each_channel(p, &window, out, one, block);
                out += p->channels;
            }
        }
        in += p->in_rows * window.row_step;
    }
}

/* round(sum / count), halves away from zero. */
INLINE int32_t divide(const window_t *window, int32_t sum)
{
    const uint32_t magnitude = (uint32_t)(sum < 0 ? -sum : sum) + (uint32_t)(window->count / 2);
    const uint32_t quotient =
        window->inverse > 0 ? magnitude * window->inverse >> 24 : magnitude / (uint32_t)window->count;
    return sum < 0 ? -(int32_t)quotient : (int32_t)quotient;
}

INLINE int8_t average_one(const gs_q8_pool_t *p, const window_t *window, const int8_t *in)
{
    int32_t sum = 0;
    for (int32_t row = 0; row < window->rows; ++row, in += window->row_step) {
        const int8_t *pixel = in;
        for (int32_t column = 0; column < window->columns; ++column, pixel += p->channels) {
            sum += *pixel;
        }
    }
    return (int8_t)gs_q8_clamp(divide(window, sum), p->least, p->greatest);
}

INLINE void average_block(const gs_q8_pool_t *p, const window_t *window, const int8_t *in, int8_t *out)
{
    int32_t sums[BLOCK] = {0};
    for (int32_t row = 0; row < window->rows; ++row, in += window->row_step) {
        const int8_t *pixel = in;
        for (int32_t column = 0; column < window->columns; ++column, pixel += p->channels) {
            for (int32_t c = 0; c < BLOCK; ++c) {
                sums[c] += pixel[c];
            }
        }
    }
    for (int32_t c = 0; c < BLOCK; ++c) {
        out[c] = (int8_t)gs_q8_clamp(divide(window, sums[c]), p->least, p->greatest);
    }
}

INLINE int8_t max_one(const gs_q8_pool_t *p, const window_t *window, const int8_t *in)
{
    int32_t best = p->least;
    for (int32_t row = 0; row < window->rows; ++row, in += window->row_step) {
        const int8_t *pixel = in;
        for (int32_t column = 0; column < window->columns; ++column, pixel += p->channels) {
            best = max_of(best, *pixel);
        }
    }
    return (int8_t)min_of(best, p->greatest);
}

INLINE void max_block(const gs_q8_pool_t *p, const window_t *window, const int8_t *in, int8_t *out)
{
    int8_t best[BLOCK];
    for (int32_t c = 0; c < BLOCK; ++c) {
        best[c] = (int8_t)p->least;
    }
    for (int32_t row = 0; row < window->rows; ++row, in += window->row_step) {
        const int8_t *pixel = in;
        for (int32_t column = 0; column < window->columns; ++column, pixel += p->channels) {
            for (int32_t c = 0; c < BLOCK; ++c) {
                best[c] = pixel[c] > best[c] ? pixel[c] : best[c];
            }
        }
    }
    for (int32_t c = 0; c < BLOCK; ++c) {
        out[c] = best[c] < p->greatest ? best[c] : (int8_t)p->greatest;
    }
}

void gs_q8_average_pool(const gs_q8_pool_t *p, const int8_t *in, int8_t *out)
{
    each_window(p, in, out, average_one, average_block);
}

void gs_q8_max_pool(const gs_q8_pool_t *p, const int8_t *in, int8_t *out)
{
    each_window(p, in, out, max_one, max_block);
}
