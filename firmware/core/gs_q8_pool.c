#include "gs_q8_pool.h"

#include <string.h>

#include "gs_q8.h"

/* Channels that are summed side by side. */
#define BLOCK 32

/* The part of a window that lies inside the image. */
typedef struct {
    const int8_t *first;
    int32_t rows;
    int32_t columns;
    int32_t row_step; /* elements from one row to the next */
} window_t;

typedef void window_fn(const gs_q8_pool_t *p, const window_t *window, int8_t *out);

static int32_t min_of(int32_t x, int32_t y)
{
    return x < y ? x : y;
}

static int32_t max_of(int32_t x, int32_t y)
{
    return x > y ? x : y;
}

static void each_window(const gs_q8_pool_t *p, const int8_t *in, int8_t *out, window_fn *f)
{
    const int32_t row_step = p->in_columns * p->channels;
    for (int32_t image = 0; image < p->images; ++image) {
        for (int32_t row = 0; row < p->out_rows; ++row) {
            const int32_t top = row * p->stride_rows - p->pad_rows;
            const int32_t first_row = max_of(top, 0);
            const int32_t rows = min_of(top + p->window_rows, p->in_rows) - first_row;
            for (int32_t column = 0; column < p->out_columns; ++column) {
                const int32_t left = column * p->stride_columns - p->pad_columns;
                const int32_t first_column = max_of(left, 0);
                const int32_t columns = min_of(left + p->window_columns, p->in_columns) - first_column;
                const window_t window = {in + first_row * row_step + first_column * p->channels, rows, columns,
                                         row_step};
                f(p, &window, out);
                out += p->channels;
            }
        }
        in += p->in_rows * row_step;
    }
}

/* Sums of the same channels over a window, `size` of them. */
static void sum_window(const window_t *window, int32_t channels, int32_t first, int32_t size, int32_t sums[BLOCK])
{
    for (int32_t c = 0; c < size; ++c) {
        sums[c] = 0;
    }
    for (int32_t row = 0; row < window->rows; ++row) {
        const int8_t *in = window->first + row * window->row_step + first;
        for (int32_t column = 0; column < window->columns; ++column) {
            for (int32_t c = 0; c < size; ++c) {
                sums[c] += in[c];
            }
            in += channels;
        }
    }
}

/* round(sum / count), halves away from zero. With M = ceil(2^24 / count) the quotient of n = |sum| + count / 2 is
   n * M >> 24, if n * (M * count - 2^24) < 2^24: so it is while 129 * count * count <= 2^24, and n * M < 2^32 then. */
#define COUNT_MAX 360

static void divide(int32_t *sums, int32_t size, int32_t count)
{
    if (count > COUNT_MAX) {
        for (int32_t c = 0; c < size; ++c) {
            sums[c] = (sums[c] + (sums[c] < 0 ? -(count / 2) : count / 2)) / count;
        }
        return;
    }
    const uint32_t inverse = ((1u << 24) + (uint32_t)count - 1) / (uint32_t)count;
    for (int32_t c = 0; c < size; ++c) {
        const uint32_t magnitude = (uint32_t)(sums[c] < 0 ? -sums[c] : sums[c]) + (uint32_t)(count / 2);
        const int32_t quotient = (int32_t)(magnitude * inverse >> 24);
        sums[c] = sums[c] < 0 ? -quotient : quotient;
    }
}

static void average_window(const gs_q8_pool_t *p, const window_t *window, int8_t *out)
{
    int32_t sums[BLOCK];
    for (int32_t first = 0; first < p->channels; first += BLOCK) {
        const int32_t size = min_of(p->channels - first, BLOCK);
        sum_window(window, p->channels, first, size, sums);
        divide(sums, size, window->rows * window->columns);
        for (int32_t c = 0; c < size; ++c) {
            out[first + c] = (int8_t)gs_q8_clamp(sums[c], p->least, p->greatest);
        }
    }
}

/* Raise each out[c] to in[c]. */
static void raise(int8_t *restrict out, const int8_t *restrict in, int32_t size)
{
    for (int32_t c = 0; c < size; ++c) {
        out[c] = in[c] > out[c] ? in[c] : out[c];
    }
}

static void max_window(const gs_q8_pool_t *p, const window_t *window, int8_t *out)
{
    const int32_t channels = p->channels;
    memset(out, p->least, (size_t)channels);
    for (int32_t row = 0; row < window->rows; ++row) {
        const int8_t *in = window->first + row * window->row_step;
        for (int32_t column = 0; column < window->columns; ++column) {
            raise(out, in, channels);
            in += channels;
        }
    }
    if (p->greatest < 127) {
        for (int32_t c = 0; c < channels; ++c) {
            out[c] = out[c] > p->greatest ? (int8_t)p->greatest : out[c];
        }
    }
}

void gs_q8_average_pool(const gs_q8_pool_t *p, const int8_t *in, int8_t *out)
{
    each_window(p, in, out, average_window);
}

void gs_q8_max_pool(const gs_q8_pool_t *p, const int8_t *in, int8_t *out)
{
    each_window(p, in, out, max_window);
}
