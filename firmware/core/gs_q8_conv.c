#include "gs_q8_conv.h"

/* One group: the same pixels of all images, with this group's channels. */
static void convolve(const gs_q8_conv_t *p, const gs_q8_matrix_t *matrix, const int8_t *in, int8_t *out,
                     int8_t *scratch, gs_q8_multiply_fn *multiply)
{
    const int32_t image_step = p->window.rows * p->window.columns * p->window.pixel;
    const int32_t out_step = p->groups * matrix->rows;
    gs_q8_column_t columns[GS_Q8_MATRIX_COLUMNS];
    int32_t count = 0;
    for (int32_t image = 0; image < p->images; ++image) {
        for (int32_t row = 0; row < p->out_rows; ++row) {
            for (int32_t column = 0; column < p->out_columns; ++column) {
                columns[count].in =
                    gs_q8_window_read(&p->window, in, row * p->stride_rows - p->pad_rows,
                                      column * p->stride_columns - p->pad_columns, scratch + count * matrix->terms);
                columns[count].out = out;
                out += out_step;
                if (++count == GS_Q8_MATRIX_COLUMNS) {
                    multiply(matrix, columns, count);
                    count = 0;
                }
            }
        }
        in += image_step;
    }
    if (count > 0) {
        multiply(matrix, columns, count);
    }
}

static void conv(const gs_q8_conv_t *p, const int8_t *in, int8_t *out, int8_t *scratch, gs_q8_multiply_fn *multiply,
                 int32_t bits)
{
    gs_q8_matrix_t matrix = p->matrix;
    for (int32_t group = 0; group < p->groups; ++group) {
        convolve(p, &matrix, in, out, scratch, multiply);
        in += p->window.channels;
        out += matrix.rows;
        matrix.weights += matrix.rows * gs_q8_matrix_row_bytes(matrix.terms, bits);
        matrix.channels.bias += matrix.rows;
        matrix.channels.multipliers += matrix.rows;
        matrix.channels.shifts += matrix.rows;
    }
}

void gs_q8_conv(const gs_q8_conv_t *p, const int8_t *in, int8_t *out, void *scratch)
{
    conv(p, in, out, scratch, gs_q8_multiply, 8);
}

void gs_q8_conv_w4(const gs_q8_conv_t *p, const int8_t *in, int8_t *out, void *scratch)
{
    conv(p, in, out, scratch, gs_q8_multiply_w4, 4);
}

void gs_q8_conv_w2(const gs_q8_conv_t *p, const int8_t *in, int8_t *out, void *scratch)
{
    conv(p, in, out, scratch, gs_q8_multiply_w2, 2);
}

void gs_q8_conv_w1(const gs_q8_conv_t *p, const int8_t *in, int8_t *out, void *scratch)
{
    conv(p, in, out, scratch, gs_q8_multiply_w1, 1);
}
