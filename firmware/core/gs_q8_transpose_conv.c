#include "gs_q8_transpose_conv.h"

/* Taps a, a + stride, ... below taps. */
static int32_t taps_of(int32_t taps, int32_t a, int32_t stride)
{
    return a < taps ? (taps - a + stride - 1) / stride : 0;
}

/* The first output whose index plus pad leaves remainder a. */
static int32_t first_of(int32_t a, int32_t pad, int32_t stride)
{
    return (a + stride - pad % stride) % stride;
}

/* The outputs of phase (a, b). Output o has index q = (o + pad) / stride among the sums of its phase, which see the
   inputs from q - taps + 1 to q. */
static void convolve(const gs_q8_transpose_conv_t *p, const gs_q8_matrix_t *matrix, const gs_q8_window_t *window,
                     int32_t a, int32_t b, const int8_t *in, int8_t *out, int8_t *scratch, gs_q8_multiply_fn *multiply)
{
    gs_q8_column_t columns[GS_Q8_MATRIX_COLUMNS];
    int32_t count = 0;
    for (int32_t row = first_of(a, p->pad_rows, p->stride_rows); row < p->out_rows; row += p->stride_rows) {
        const int32_t top = (row + p->pad_rows) / p->stride_rows - window->tap_rows + 1;
        int32_t column = first_of(b, p->pad_columns, p->stride_columns);
        for (; column < p->out_columns; column += p->stride_columns) {
            const int32_t left = (column + p->pad_columns) / p->stride_columns - window->tap_columns + 1;
            columns[count].in = gs_q8_window_read(window, in, top, left, scratch + count * matrix->terms);
            columns[count].out = out + (row * p->out_columns + column) * matrix->rows;
            if (++count == GS_Q8_MATRIX_COLUMNS) {
                multiply(matrix, columns, count);
                count = 0;
            }
        }
    }
    if (count > 0) {
        multiply(matrix, columns, count);
    }
}

static void transpose_conv(const gs_q8_transpose_conv_t *p, const int8_t *in, int8_t *out, int8_t *scratch,
                           gs_q8_multiply_fn *multiply, int32_t bits)
{
    gs_q8_matrix_t matrix = p->matrix;
    gs_q8_window_t window = p->window;
    for (int32_t a = 0; a < p->stride_rows; ++a) {
        window.tap_rows = taps_of(p->window.tap_rows, a, p->stride_rows);
        for (int32_t b = 0; b < p->stride_columns; ++b) {
            window.tap_columns = taps_of(p->window.tap_columns, b, p->stride_columns);
            matrix.terms = window.tap_rows * window.tap_columns * window.channels;
            for (int32_t image = 0; image < p->images; ++image) {
                convolve(p, &matrix, &window, a, b, in + image * window.rows * window.columns * window.pixel,
                         out + image * p->out_rows * p->out_columns * matrix.rows, scratch, multiply);
            }
            matrix.weights += matrix.rows * gs_q8_matrix_row_bytes(matrix.terms, bits);
            matrix.channels.bias += matrix.rows;
        }
    }
}

void gs_q8_transpose_conv(const gs_q8_transpose_conv_t *p, const int8_t *in, int8_t *out, void *scratch)
{
    transpose_conv(p, in, out, scratch, gs_q8_multiply, 8);
}

void gs_q8_transpose_conv_w4(const gs_q8_transpose_conv_t *p, const int8_t *in, int8_t *out, void *scratch)
{
    transpose_conv(p, in, out, scratch, gs_q8_multiply_w4, 4);
}

void gs_q8_transpose_conv_w2(const gs_q8_transpose_conv_t *p, const int8_t *in, int8_t *out, void *scratch)
{
    transpose_conv(p, in, out, scratch, gs_q8_multiply_w2, 2);
}

void gs_q8_transpose_conv_w1(const gs_q8_transpose_conv_t *p, const int8_t *in, int8_t *out, void *scratch)
{
    transpose_conv(p, in, out, scratch, gs_q8_multiply_w1, 1);
}
