#include "gs_product.h"

#include <string.h>

#include "gs_inline.h"

#define LANES ((uint32_t)GS_LANES)

#if GS_LANES > 1
typedef float lanes_t __attribute__((vector_size(4 * GS_LANES)));
#else
typedef float lanes_t;
#endif

GS_INLINE lanes_t load(const float *from)
{
    lanes_t lanes;
    memcpy(&lanes, from, sizeof lanes);
    return lanes;
}

GS_INLINE void store(float *to, lanes_t lanes)
{
    memcpy(to, &lanes, sizeof lanes);
}

/* Compute `rows` rows of `vectors` * LANES outputs, held in registers over all terms. */
GS_INLINE void block(const gs_product_t *p, uint32_t r, const uint32_t rows, const uint32_t vectors)
{
    lanes_t sum[8];
    float *c = p->c + r * p->c_r;
    const float *a = p->a + r * p->a_r;
    const float *b = p->b;
    const size_t a_k = p->a_k;
    const size_t a_r = p->a_r;
    const size_t c_r = p->c_r;
    GS_UNROLL for (uint32_t y = 0; y < rows; ++y)
    {
        GS_UNROLL for (uint32_t x = 0; x < vectors; ++x)
        {
            sum[y * vectors + x] = load(c + y * c_r + x * LANES);
        }
    }
    for (uint32_t k = p->terms; k > 0; --k) {
        lanes_t right[2];
        GS_UNROLL for (uint32_t x = 0; x < vectors; ++x)
        {
            right[x] = load(b + x * LANES);
        }
        GS_UNROLL for (uint32_t y = 0; y < rows; ++y)
        {
            GS_UNROLL for (uint32_t x = 0; x < vectors; ++x)
            {
                sum[y * vectors + x] = sum[y * vectors + x] + right[x] * a[y * a_r];
            }
        }
        a += a_k;
        b += vectors * LANES;
    }
    GS_UNROLL for (uint32_t y = 0; y < rows; ++y)
    {
        GS_UNROLL for (uint32_t x = 0; x < vectors; ++x)
        {
            store(c + y * c_r + x * LANES, sum[y * vectors + x]);
        }
    }
}

void gs_product_add(const gs_product_t *p)
{
    uint32_t r = 0;
    if (p->width == GS_PANEL_COLUMNS) {
        for (; r + 4 <= p->rows; r += 4) {
            block(p, r, 4, 2);
        }
        for (; r < p->rows; ++r) {
            block(p, r, 1, 2);
        }
        return;
    }
    for (; r + 8 <= p->rows; r += 8) {
        block(p, r, 8, 1);
    }
    for (; r + 2 <= p->rows; r += 2) {
        block(p, r, 2, 1);
    }
    for (; r < p->rows; ++r) {
        block(p, r, 1, 1);
    }
}
