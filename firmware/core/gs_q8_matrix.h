/* Rows of weights times columns of activations: the one product behind convolutions and dense layers.

   A row is packed in groups of 16 bytes. With `bits` bits a weight, a byte holds n = 8 / bits weights, and byte j of a
   group holds the group's weights j, j + 16, j + 32, ..., the first in its lowest bits: two shifts of a whole vector
   unpack 16 neighbours in order. What is left of a row, t weights, takes h = ceil(t / n) bytes, byte j holding the
   weights j, j + h, j + 2h, ...; the next row follows at once. Bits are two's complement, but a single bit is 1 for -1 and
   0 for 1. Rows of bytes (bits = 8) are therefore plain arrays. */
#ifndef GS_Q8_MATRIX_H
#define GS_Q8_MATRIX_H

#include <stdint.h>

#include "gs_q8_channels.h"

/* Columns that are multiplied at a time: every row is unpacked once for all of them. */
#define GS_Q8_MATRIX_COLUMNS 2

typedef struct {
    gs_q8_channels_t channels; /* one a row */
    const int8_t *weights; /* rows * gs_q8_matrix_row_bytes(terms, bits); the last row is readable in whole groups */
    int32_t rows;
    int32_t terms; /* weights of a row, fewer than 2^17: no sum of products leaves int32 */
} gs_q8_matrix_t;

/* A column to multiply, in[terms], and where the result goes, out[rows]. */
typedef struct {
    const int8_t *in;
    int8_t *out;
} gs_q8_column_t;

static inline int32_t gs_q8_matrix_row_bytes(int32_t terms, int32_t bits)
{
    const int32_t group = 16 * 8 / bits;
    return terms / group * 16 + (terms % group * bits + 7) / 8;
}

/* Multiply with up to GS_Q8_MATRIX_COLUMNS columns; weights of 8, 4, 2 or 1 bits. */
typedef void gs_q8_multiply_fn(const gs_q8_matrix_t *p, const gs_q8_column_t *columns, int32_t count);

void gs_q8_multiply(const gs_q8_matrix_t *p, const gs_q8_column_t *columns, int32_t count);
void gs_q8_multiply_w4(const gs_q8_matrix_t *p, const gs_q8_column_t *columns, int32_t count);
void gs_q8_multiply_w2(const gs_q8_matrix_t *p, const gs_q8_column_t *columns, int32_t count);
void gs_q8_multiply_w1(const gs_q8_matrix_t *p, const gs_q8_column_t *columns, int32_t count);

#endif
