#include "gs_dense.h"

#include <string.h>

#define ROWS 8u     /* outputs that are summed side by side */
#define COLUMNS 32u /* inputs whose gradients are */

/* z of `rows` outputs, rows a constant. */
static inline void sum_rows(const float *w, const float *bias, const float *x, uint32_t inputs, const uint32_t rows,
                            float *z)
{
    float sum[ROWS];
    for (uint32_t r = 0; r < rows; ++r) {
        sum[r] = bias[r];
    }
    for (uint32_t i = 0; i < inputs; ++i) {
        for (uint32_t r = 0; r < rows; ++r) {
            sum[r] = sum[r] + w[(size_t)r * inputs + i] * x[i];
        }
    }
    memcpy(z, sum, rows * sizeof *z);
}

void gs_dense_forward(const gs_layer_t *layer, const float *w, const float *x, float *z)
{
    const uint32_t inputs = gs_layer_inputs(layer);
    const float *bias = w + layer->weights;
    uint32_t o = 0;
    for (; o + ROWS <= layer->outputs; o += ROWS) {
        sum_rows(w + (size_t)o * inputs, bias + o, x, inputs, ROWS, z + o);
    }
    for (; o < layer->outputs; ++o) {
        sum_rows(w + (size_t)o * inputs, bias + o, x, inputs, 1, z + o);
    }
}

void gs_dense_backward(const gs_layer_t *layer, const float *w, const float *dz, const float *x, float *g,
                       const gs_below_t *below)
{
    const uint32_t inputs = gs_layer_inputs(layer);
    for (uint32_t o = 0; g && o < layer->outputs; ++o) {
        float *row = g + (size_t)o * inputs;
        for (uint32_t i = 0; i < inputs; ++i) {
            row[i] = row[i] + dz[o] * x[i];
        }
        g[layer->weights + o] = g[layer->weights + o] + dz[o];
    }
    for (uint32_t from = 0; below && from < inputs; from += COLUMNS) {
        const uint32_t columns = inputs - from < COLUMNS ? inputs - from : COLUMNS;
        float sum[COLUMNS] = {0};
        for (uint32_t o = 0; o < layer->outputs; ++o) {
            const float *row = w + (size_t)o * inputs + from;
            for (uint32_t i = 0; i < columns; ++i) {
                sum[i] = sum[i] + dz[o] * row[i];
            }
        }
        gs_below_take(below, from, sum, columns);
    }
}
