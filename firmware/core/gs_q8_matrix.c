#include "gs_q8_matrix.h"

#include <string.h>

#include "gs_inline.h"

/* Sums side by side in one register: with x86's sums of products of pairs where they are, else one by one. Changes speed,
   never results. A build may set it to 1. */
#ifndef GS_Q8_LANES
#if defined(__has_builtin)
#if defined(__AVX2__) && __has_builtin(__builtin_ia32_pmaddwd256) && __has_builtin(__builtin_shufflevector)
#define GS_Q8_LANES 8
#elif defined(__SSE2__) && __has_builtin(__builtin_ia32_pmaddwd128) && __has_builtin(__builtin_shufflevector)
#define GS_Q8_LANES 4
#endif
#endif
#ifndef GS_Q8_LANES
#define GS_Q8_LANES 1
#endif
#endif

#define GROUP 16 /* bytes of packed weights */
#define COLUMNS GS_Q8_MATRIX_COLUMNS
#define PLACES_MAX 8 /* weights of a byte */
#define STRIP 16     /* sums that become outputs at a time */

/* What is left of the columns behind the last whole group, laid out as the weights are: [8 / bits][GROUP], rest zero. */
typedef struct {
    int8_t in[COLUMNS][PLACES_MAX][GROUP];
} rest_t;

/* What a block multiplies: constants, once all is inlined. */
typedef struct {
    int32_t rows;
    int32_t columns;
    int32_t bits; /* of a weight */
} shape_t;

#if GS_Q8_LANES > 1

#define ROWS 4 /* of a block */

typedef int16_t gs_shorts_t __attribute__((vector_size(4 * GS_Q8_LANES)));
typedef int32_t gs_sums_t __attribute__((vector_size(4 * GS_Q8_LANES)));
typedef int32_t gs_quad_t __attribute__((vector_size(16)));

/* A group in parts of 2 * GS_Q8_LANES bytes, sign extended. Their order is free as long as it is the same for weights
   and columns: bytes of even and of odd index are split by shifts alone. */
#define PARTS (GROUP / (2 * GS_Q8_LANES))

#if GS_Q8_LANES == 8
#if __has_builtin(__builtin_ia32_pmovsxbw256) /* gcc, which converts in halves otherwise */
typedef char gs_bytes_t __attribute__((vector_size(GROUP)));
#define WIDEN(bytes) __builtin_ia32_pmovsxbw256(bytes)
#else
typedef int8_t gs_bytes_t __attribute__((vector_size(GROUP)));
#define WIDEN(bytes) __builtin_convertvector(bytes, gs_shorts_t)
#endif
#endif

GS_INLINE gs_shorts_t load(const int8_t *from, int32_t part)
{
#if GS_Q8_LANES == 8
    gs_bytes_t bytes;
    memcpy(&bytes, from, sizeof bytes);
    (void)part;
    return WIDEN(bytes);
#else
    gs_shorts_t pairs;
    memcpy(&pairs, from, sizeof pairs);
    return (part == 0 ? pairs << 8 : pairs) >> 8;
#endif
}

/* Unpack element `place` of every byte: shift it to the top of 16 bits, then down with its sign. */
GS_INLINE gs_shorts_t unpack(gs_shorts_t bytes, int32_t place, int32_t bits)
{
    if (bits == 8) {
        return bytes;
    }
    const gs_shorts_t top = bytes << (int16_t)(16 - bits * (place + 1));
    if (bits == 1) {
        return top >> 14 | 1; /* 2 * (0 or -1) + 1 */
    }
    return top >> (int16_t)(16 - bits);
}

GS_INLINE gs_sums_t add_products(gs_sums_t sums, gs_shorts_t x, gs_shorts_t y)
{
#if GS_Q8_LANES == 8
    return sums + (gs_sums_t)__builtin_ia32_pmaddwd256(x, y);
#else
    return sums + (gs_sums_t)__builtin_ia32_pmaddwd128(x, y);
#endif
}

/* Add the products of one place of every byte of a part. */
GS_INLINE void add_place(gs_sums_t *sums, const gs_shorts_t *packed, const int8_t *const *in, const shape_t of,
                         int32_t part, int32_t place)
{
    gs_shorts_t x[COLUMNS];
    GS_UNROLL for (int32_t c = 0; c < of.columns; ++c)
    {
        x[c] = load(in[c] + place * GROUP, part);
    }
    GS_UNROLL for (int32_t r = 0; r < of.rows; ++r)
    {
        const gs_shorts_t w = unpack(packed[r], place, of.bits);
        GS_UNROLL for (int32_t c = 0; c < of.columns; ++c)
        {
            sums[c * of.rows + r] = add_products(sums[c * of.rows + r], w, x[c]);
        }
    }
}

GS_INLINE void add_part(gs_sums_t *sums, const int8_t *weights, int32_t row_bytes, const int8_t *const *in,
                        const shape_t of, int32_t part)
{
    gs_shorts_t packed[ROWS];
    GS_UNROLL for (int32_t r = 0; r < of.rows; ++r)
    {
        packed[r] = load(weights + r * row_bytes, part);
    }
    GS_UNROLL for (int32_t place = 0; place < PLACES_MAX; ++place)
    {
        if (place < 8 / of.bits) {
            add_place(sums, packed, in, of, part, place);
        }
    }
}

GS_INLINE void add_group(gs_sums_t *sums, const int8_t *weights, int32_t row_bytes, const int8_t *const *in,
                         const shape_t of, int32_t bytes)
{
    (void)bytes; /* all of them, for the rest is zero */
    add_part(sums, weights, row_bytes, in, of, 0);
    if (PARTS > 1) {
        add_part(sums, weights, row_bytes, in, of, 1);
    }
}

GS_INLINE gs_quad_t fold(gs_sums_t sums)
{
#if GS_Q8_LANES == 8
    return __builtin_shufflevector(sums, sums, 0, 1, 2, 3) + __builtin_shufflevector(sums, sums, 4, 5, 6, 7);
#else
    return sums;
#endif
}

/* Add the lanes of each of `rows` sums. */
GS_INLINE void total(const gs_sums_t *sums, int32_t rows, int32_t *out)
{
    if (rows == 1) {
        const gs_quad_t quad = fold(sums[0]);
        out[0] = quad[0] + quad[1] + quad[2] + quad[3];
        return;
    }
    const gs_quad_t a = fold(sums[0]);
    const gs_quad_t b = fold(sums[1]);
    const gs_quad_t c = fold(sums[2]);
    const gs_quad_t d = fold(sums[3]);
    const gs_quad_t ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const gs_quad_t cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const gs_quad_t all = __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    memcpy(out, &all, sizeof all);
}

#else

#define ROWS 2 /* of a block: its sums, rows and columns fit 16 registers */

typedef int32_t gs_sums_t;

GS_INLINE int32_t unpack(int8_t byte, int32_t place, int32_t bits)
{
    if (bits == 8) {
        return byte;
    }
    if (bits == 1) {
        return 1 - 2 * ((byte >> place) & 1);
    }
    return (int32_t)((uint32_t)byte << (32 - bits * (place + 1))) >> (32 - bits);
}

/* The sums have names of their own: compilers keep those in registers, but not always an array. */
GS_INLINE void add_group(gs_sums_t *sums, const int8_t *weights, int32_t row_bytes, const int8_t *const *in,
                         const shape_t of, int32_t bytes)
{
    const bool pair = of.rows == 2;
    const bool two = of.columns == 2;
    const int8_t *end = weights + bytes;
    const int8_t *x = in[0];
    const int8_t *y = in[two];
    int32_t row0_x = sums[0];
    int32_t row1_x = pair ? sums[1] : 0;
    int32_t row0_y = two ? sums[of.rows] : 0;
    int32_t row1_y = two && pair ? sums[of.rows + 1] : 0;
    for (; weights < end; ++weights, ++x, ++y) {
        const int8_t packed0 = weights[0];
        const int8_t packed1 = weights[pair ? row_bytes : 0];
        GS_UNROLL for (int32_t place = 0; place < PLACES_MAX; ++place)
        {
            if (place < 8 / of.bits) {
                const int32_t w0 = unpack(packed0, place, of.bits);
                const int32_t w1 = unpack(packed1, place, of.bits);
                row0_x += w0 * x[place * GROUP];
                row1_x += pair ? w1 * x[place * GROUP] : 0;
                row0_y += two ? w0 * y[place * GROUP] : 0;
                row1_y += two && pair ? w1 * y[place * GROUP] : 0;
            }
        }
    }
    sums[0] = row0_x;
    if (pair) {
        sums[1] = row1_x;
    }
    if (two) {
        sums[of.rows] = row0_y;
    }
    if (two && pair) {
        sums[of.rows + 1] = row1_y;
    }
}

GS_INLINE void total(const gs_sums_t *sums, int32_t rows, int32_t *out)
{
    GS_UNROLL for (int32_t r = 0; r < rows; ++r)
    {
        out[r] = sums[r];
    }
}

#endif

/* Sums of some rows times the columns, to out[columns][STRIP] from `at` on. */
GS_INLINE void block(const int8_t *weights, int32_t terms, const gs_q8_column_t *column, const rest_t *rest,
                     const shape_t of, int32_t (*out)[STRIP], int32_t at)
{
    const int32_t row_bytes = gs_q8_matrix_row_bytes(terms, of.bits);
    const int32_t step = GROUP * 8 / of.bits;
    gs_sums_t sums[ROWS * COLUMNS];
    memset(sums, 0, sizeof sums);
    const int8_t *in[COLUMNS];
    GS_UNROLL for (int32_t c = 0; c < of.columns; ++c)
    {
        in[c] = column[c].in;
    }
    for (int32_t left = terms / step; left > 0; --left) {
        add_group(sums, weights, row_bytes, in, of, GROUP);
        weights += GROUP;
        GS_UNROLL for (int32_t c = 0; c < of.columns; ++c)
        {
            in[c] += step;
        }
    }
    if (terms % step != 0) {
        GS_UNROLL for (int32_t c = 0; c < of.columns; ++c)
        {
            in[c] = rest->in[c][0];
        }
        add_group(sums, weights, row_bytes, in, of, row_bytes - terms / step * GROUP);
    }
    GS_UNROLL for (int32_t c = 0; c < of.columns; ++c)
    {
        total(sums + c * of.rows, of.rows, out[c] + at);
    }
}

static void lay_out_rest(const gs_q8_matrix_t *p, const gs_q8_column_t *column, int32_t columns, int32_t bits,
                         rest_t *rest)
{
    const int32_t terms = p->terms % (GROUP * 8 / bits);
    const int32_t bytes = (terms * bits + 7) / 8;
    for (int32_t c = 0; c < columns; ++c) {
        const int8_t *in = column[c].in + (p->terms - terms);
        memset(rest->in[c], 0, (size_t)(GROUP * 8 / bits));
        for (int32_t from = 0, place = 0; from < terms; from += bytes, ++place) {
            memcpy(rest->in[c][place], in + from, (size_t)(bytes < terms - from ? bytes : terms - from));
        }
    }
}

GS_INLINE void multiply(const gs_q8_matrix_t *p, const gs_q8_column_t *column, int32_t columns, int32_t bits)
{
    const int32_t row_bytes = gs_q8_matrix_row_bytes(p->terms, bits);
    rest_t rest;
    if (p->terms % (GROUP * 8 / bits) != 0) {
        lay_out_rest(p, column, columns, bits, &rest);
    }
    const int8_t *weights = p->weights;
    for (int32_t first = 0; first < p->rows; first += STRIP) {
        int32_t sums[COLUMNS][STRIP];
        const int32_t rows = p->rows - first < STRIP ? p->rows - first : STRIP;
        int32_t r = 0;
        for (; r + ROWS <= rows; r += ROWS) {
            block(weights, p->terms, column, &rest, (shape_t){ROWS, columns, bits}, sums, r);
            weights += ROWS * row_bytes;
        }
        for (; r < rows; ++r) {
            block(weights, p->terms, column, &rest, (shape_t){1, columns, bits}, sums, r);
            weights += row_bytes;
        }
        for (int32_t c = 0; c < columns; ++c) {
            gs_q8_channels_put(&p->channels, first, rows, sums[c], column[c].out + first);
        }
    }
}

GS_INLINE void multiply_some(const gs_q8_matrix_t *p, const gs_q8_column_t *columns, int32_t count, int32_t bits)
{
    if (count == COLUMNS) {
        multiply(p, columns, COLUMNS, bits);
    } else {
        multiply(p, columns, 1, bits);
    }
}

void gs_q8_multiply(const gs_q8_matrix_t *p, const gs_q8_column_t *columns, int32_t count)
{
    multiply_some(p, columns, count, 8);
}

void gs_q8_multiply_w4(const gs_q8_matrix_t *p, const gs_q8_column_t *columns, int32_t count)
{
    multiply_some(p, columns, count, 4);
}

void gs_q8_multiply_w2(const gs_q8_matrix_t *p, const gs_q8_column_t *columns, int32_t count)
{
    multiply_some(p, columns, count, 2);
}

void gs_q8_multiply_w1(const gs_q8_matrix_t *p, const gs_q8_column_t *columns, int32_t count)
{
    multiply_some(p, columns, count, 1);
}
