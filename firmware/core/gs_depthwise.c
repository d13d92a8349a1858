#include "gs_depthwise.h"

#include <string.h>

/* Scratch: one tap of all channels, and a row of inputs. */
size_t gs_depthwise_scratch_floats(const gs_layer_t *layer)
{
    return (size_t)layer->channels * (1 + layer->x.in);
}

static inline void multiply_add(float *restrict sum, const float *a, const float *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i) {
        sum[i] = sum[i] + a[i] * b[i];
    }
}

/* Copy one tap of all channels out of W, or out of its gradient. */
static void load_tap(const gs_layer_t *layer, const float *w, uint32_t tap, float *to)
{
    const uint32_t taps = layer->y.kernel * layer->x.kernel;
    for (uint32_t c = 0; c < layer->channels; ++c) {
        to[c] = w[(size_t)c * taps + tap];
    }
}

static void store_tap(const gs_layer_t *layer, const float *from, uint32_t tap, float *w)
{
    const uint32_t taps = layer->y.kernel * layer->x.kernel;
    for (uint32_t c = 0; c < layer->channels; ++c) {
        w[(size_t)c * taps + tap] = from[c];
    }
}

/* The channels at output position (y, x), and at the input position that a tap reads there. */
static size_t out_at(const gs_layer_t *layer, uint32_t y, uint32_t x)
{
    return ((size_t)y * layer->x.out + x) * layer->channels;
}

static size_t in_at(const gs_layer_t *layer, uint32_t y, uint32_t x, uint32_t k_y, uint32_t k_x)
{
    const uint32_t y_in = y * layer->y.stride + k_y - layer->y.before;
    const uint32_t x_in = x * layer->x.stride + k_x - layer->x.before;
    return ((size_t)y_in * layer->x.in + x_in) * layer->channels;
}

void gs_depthwise_forward(const gs_layer_t *layer, const float *w, const float *x, float *z, float *scratch)
{
    const uint32_t channels = layer->channels;
    for (uint32_t p = 0; p < layer->y.out * layer->x.out; ++p) {
        memcpy(z + (size_t)p * channels, w + layer->weights, channels * sizeof *z);
    }
    for (uint32_t tap = 0; tap < layer->y.kernel * layer->x.kernel; ++tap) {
        const uint32_t k_y = tap / layer->x.kernel;
        const uint32_t k_x = tap % layer->x.kernel;
        const gs_range_t ys = gs_axis_outputs(&layer->y, k_y);
        const gs_range_t xs = gs_axis_outputs(&layer->x, k_x);
        load_tap(layer, w, tap, scratch);
        for (uint32_t v = ys.first; v < ys.end; ++v) {
            for (uint32_t u = xs.first; u < xs.end; ++u) {
                multiply_add(z + out_at(layer, v, u), scratch, x + in_at(layer, v, u, k_y, k_x), channels);
            }
        }
    }
}

static void add_gradient(const gs_layer_t *layer, const float *dz, const float *x, float *g, float *sums)
{
    const uint32_t channels = layer->channels;
    for (uint32_t tap = 0; tap < layer->y.kernel * layer->x.kernel; ++tap) {
        const uint32_t k_y = tap / layer->x.kernel;
        const uint32_t k_x = tap % layer->x.kernel;
        const gs_range_t ys = gs_axis_outputs(&layer->y, k_y);
        const gs_range_t xs = gs_axis_outputs(&layer->x, k_x);
        load_tap(layer, g, tap, sums);
        for (uint32_t v = ys.first; v < ys.end; ++v) {
            for (uint32_t u = xs.first; u < xs.end; ++u) {
                multiply_add(sums, dz + out_at(layer, v, u), x + in_at(layer, v, u, k_y, k_x), channels);
            }
        }
        store_tap(layer, sums, tap, g);
    }
    float *g_bias = g + layer->weights;
    for (uint32_t p = 0; p < layer->y.out * layer->x.out; ++p) {
        for (uint32_t c = 0; c < channels; ++c) {
            g_bias[c] = g_bias[c] + dz[(size_t)p * channels + c];
        }
    }
}

/* Row by row of the input; for one input, (y, x) ascends as the tap descends. */
static void pass_down(const gs_layer_t *layer, const float *w, const float *dz, const gs_below_t *below, float *scratch)
{
    const uint32_t channels = layer->channels;
    float *filter = scratch;
    float *row = scratch + channels;
    for (uint32_t y_in = 0; y_in < layer->y.in; ++y_in) {
        const gs_range_t ys = gs_axis_readers(&layer->y, y_in);
        memset(row, 0, (size_t)layer->x.in * channels * sizeof *row);
        for (uint32_t v = ys.first; v < ys.end; ++v) {
            const uint32_t k_y = y_in + layer->y.before - v * layer->y.stride;
            for (uint32_t k_x = layer->x.kernel; k_x-- > 0;) {
                const gs_range_t xs = gs_axis_outputs(&layer->x, k_x);
                load_tap(layer, w, k_y * layer->x.kernel + k_x, filter);
                for (uint32_t u = xs.first; u < xs.end; ++u) {
                    const uint32_t x_in = u * layer->x.stride + k_x - layer->x.before;
                    multiply_add(row + (size_t)x_in * channels, dz + out_at(layer, v, u), filter, channels);
                }
            }
        }
        const size_t line = (size_t)layer->x.in * channels;
        gs_below_take(below, y_in * line, row, line);
    }
}

void gs_depthwise_backward(const gs_layer_t *layer, const float *w, const float *dz, const float *x, float *g,
                           const gs_below_t *below, float *scratch)
{
    if (g) {
        add_gradient(layer, dz, x, g, scratch);
    }
    if (below) {
        pass_down(layer, w, dz, below, scratch);
    }
}
