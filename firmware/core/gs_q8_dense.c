#include "gs_q8_dense.h"

static void dense(const gs_q8_dense_t *p, const int8_t *in, int8_t *out, gs_q8_multiply_fn *multiply)
{
    const int32_t terms = p->matrix.terms;
    const int32_t rows = p->matrix.rows;
    for (int32_t left = p->columns; left > 0; left -= GS_Q8_MATRIX_COLUMNS) {
        gs_q8_column_t columns[GS_Q8_MATRIX_COLUMNS];
        const int32_t count = left < GS_Q8_MATRIX_COLUMNS ? left : GS_Q8_MATRIX_COLUMNS;
        for (int32_t c = 0; c < count; ++c) {
            columns[c] = (gs_q8_column_t){in, out};
            in += terms;
            out += rows;
        }
        multiply(&p->matrix, columns, count);
    }
}

void gs_q8_dense(const gs_q8_dense_t *p, const int8_t *in, int8_t *out)
{
    dense(p, in, out, gs_q8_multiply);
}

void gs_q8_dense_w4(const gs_q8_dense_t *p, const int8_t *in, int8_t *out)
{
    dense(p, in, out, gs_q8_multiply_w4);
}

void gs_q8_dense_w2(const gs_q8_dense_t *p, const int8_t *in, int8_t *out)
{
    dense(p, in, out, gs_q8_multiply_w2);
}

void gs_q8_dense_w1(const gs_q8_dense_t *p, const int8_t *in, int8_t *out)
{
    dense(p, in, out, gs_q8_multiply_w1);
}
