#include "gs_q8_window.h"

#include <stdbool.h>
#include <string.h>

static bool has_gaps(const gs_q8_window_t *p)
{
    const bool in_row = p->tap_columns > 1 && (p->dilation_columns > 1 || p->channels < p->pixel);
    return in_row ||
           (p->tap_rows > 1 && (p->dilation_rows > 1 || p->tap_columns * p->channels < p->columns * p->pixel));
}

/* Copy a row of taps, of which some lie outside. */
static void copy_taps(const gs_q8_window_t *p, const int8_t *in, int32_t column, int8_t *patch)
{
    for (int32_t tap = 0; tap < p->tap_columns; ++tap) {
        if (column >= 0 && column < p->columns) {
            memcpy(patch, in + column * p->pixel, (size_t)p->channels);
        } else {
            memset(patch, p->zero_point, (size_t)p->channels);
        }
        patch += p->channels;
        column += p->dilation_columns;
    }
}

const int8_t *gs_q8_window_read(const gs_q8_window_t *p, const int8_t *in, int32_t row, int32_t column, int8_t *patch)
{
    const int32_t row_step = p->columns * p->pixel;
    const int32_t row_bytes = p->tap_columns * p->channels;
    if (p->tap_rows == 0 || p->tap_columns == 0) {
        return patch;
    }
    const bool dense = p->dilation_columns == 1 && p->channels == p->pixel;
    const bool inside = column >= 0 && column + (p->tap_columns - 1) * p->dilation_columns < p->columns;
    const int32_t last_row = row + (p->tap_rows - 1) * p->dilation_rows;
    if (inside && row >= 0 && last_row < p->rows && !has_gaps(p)) {
        return in + row * row_step + column * p->pixel;
    }
    int8_t *to = patch;
    for (int32_t tap = 0; tap < p->tap_rows; ++tap) {
        if (row < 0 || row >= p->rows) {
            memset(to, p->zero_point, (size_t)row_bytes);
        } else if (dense && inside) {
            memcpy(to, in + row * row_step + column * p->pixel, (size_t)row_bytes);
        } else {
            copy_taps(p, in + row * row_step, column, to);
        }
        to += row_bytes;
        row += p->dilation_rows;
    }
    return patch;
}
