/* Matrix products in the order of SPEC.md, and the panels that make them fast: rows of GS_PANEL_COLUMNS or half as many
   columns, the last of which may be padding. Columns are independent sums side by side, in vectors where there are any;
   each adds its own terms in order. So how many there are changes speed, never results. */
#ifndef GS_PRODUCT_H
#define GS_PRODUCT_H

#include <stddef.h>
#include <stdint.h>

/* As many as the machine's vectors hold. A build may set it to 1, 2, 4, ... */
#ifndef GS_LANES
#if defined(__GNUC__) && defined(__AVX512F__)
#define GS_LANES 16u
#elif defined(__GNUC__) && defined(__AVX__)
#define GS_LANES 8u
#elif defined(__GNUC__) && (defined(__SSE2__) || defined(__ARM_NEON))
#define GS_LANES 4u
#else
#define GS_LANES 1u
#endif
#endif

#define GS_PANEL_COLUMNS (2u * GS_LANES)

/* The next columns of a panel: how many of `all` count when `done` are done; and how many they are with the padding. */
static inline uint32_t gs_panel_columns(uint32_t all, uint32_t done)
{
    return all - done < GS_PANEL_COLUMNS ? all - done : GS_PANEL_COLUMNS;
}

static inline uint32_t gs_panel_width(uint32_t columns)
{
    return columns > GS_LANES ? GS_PANEL_COLUMNS : GS_LANES;
}

/* c[r][i] = c[r][i] + a(0, r) * b[0][i] + a(1, r) * b[1][i] + ..., every product and every sum rounded, in this order.
   b is a panel of `width` columns, so is each row of c, c_r floats apart; a(k, r) = a[k * a_k + r * a_r]. */
typedef struct {
    float *c;
    const float *a;
    const float *b;
    size_t a_k;
    size_t a_r;
    size_t c_r;
    uint32_t rows;
    uint32_t terms;
    uint32_t width; /* GS_LANES or GS_PANEL_COLUMNS */
} gs_product_t;

void gs_product_add(const gs_product_t *product);

#endif
