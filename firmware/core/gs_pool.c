#include "gs_pool.h"

#include <string.h>

/* Scratch on the way back: the channels of one position; POOL_MAX: also the tap that gave each output, and the greatest of all
   channels so far (in the place of that position, which comes later). */
size_t gs_pool_scratch_floats(const gs_layer_t *layer)
{
    return layer->channels + (layer->kind == GS_KIND_POOL_MAX ? (size_t)gs_layer_outputs(layer) : 0);
}

/* The channels at the input position that a tap reads at output position (y, x). */
static const float *input_of(const gs_layer_t *layer, const float *x, uint32_t v, uint32_t u, uint32_t k_y,
                             uint32_t k_x)
{
    const uint32_t y_in = v * layer->y.stride + k_y - layer->y.before;
    const uint32_t x_in = u * layer->x.stride + k_x - layer->x.before;
    return x + ((size_t)y_in * layer->x.in + x_in) * layer->channels;
}

static float window_size(gs_range_t k_ys, gs_range_t k_xs)
{
    return (float)((k_ys.end - k_ys.first) * (k_xs.end - k_xs.first));
}

/* One window of all channels. */
static void pool(const gs_layer_t *layer, const float *x, uint32_t v, uint32_t u, float *restrict z)
{
    const uint32_t channels = layer->channels;
    const gs_range_t k_ys = gs_axis_taps(&layer->y, v);
    const gs_range_t k_xs = gs_axis_taps(&layer->x, u);
    const bool is_max = layer->kind == GS_KIND_POOL_MAX;
    if (is_max) {
        memcpy(z, input_of(layer, x, v, u, k_ys.first, k_xs.first), channels * sizeof *z);
    } else {
        memset(z, 0, channels * sizeof *z);
    }
    for (uint32_t k_y = k_ys.first; k_y < k_ys.end; ++k_y) {
        for (uint32_t k_x = k_xs.first; k_x < k_xs.end; ++k_x) {
            const float *in = input_of(layer, x, v, u, k_y, k_x);
            for (uint32_t c = 0; c < channels; ++c) {
                z[c] = !is_max ? z[c] + in[c] : in[c] > z[c] ? in[c] : z[c];
            }
        }
    }
    if (!is_max) {
        const float count = window_size(k_ys, k_xs);
        for (uint32_t c = 0; c < channels; ++c) {
            z[c] = z[c] / count;
        }
    }
}

void gs_pool_forward(const gs_layer_t *layer, const float *x, float *z)
{
    for (uint32_t v = 0; v < layer->y.out; ++v) {
        for (uint32_t u = 0; u < layer->x.out; ++u) {
            pool(layer, x, v, u, z);
            z += layer->channels;
        }
    }
}

/* Find the tap k_y * kernel_width + k_x that gave each output of a window. */
static void find_taps(const gs_layer_t *layer, const float *x, uint32_t v, uint32_t u, uint32_t *found, float *greatest)
{
    const gs_range_t k_ys = gs_axis_taps(&layer->y, v);
    const gs_range_t k_xs = gs_axis_taps(&layer->x, u);
    for (uint32_t k_y = k_ys.first; k_y < k_ys.end; ++k_y) {
        for (uint32_t k_x = k_xs.first; k_x < k_xs.end; ++k_x) {
            const float *in = input_of(layer, x, v, u, k_y, k_x);
            const bool is_first = k_y == k_ys.first && k_x == k_xs.first;
            for (uint32_t c = 0; c < layer->channels; ++c) {
                if (is_first || in[c] > greatest[c]) {
                    greatest[c] = in[c];
                    found[c] = k_y * layer->x.kernel + k_x;
                }
            }
        }
    }
}

/* Divide the gradients of each window by its size, or find where its maxima came from. */
static void prepare(const gs_layer_t *layer, float *dz, const float *x, float *row, uint32_t *found)
{
    for (uint32_t v = 0; v < layer->y.out; ++v) {
        for (uint32_t u = 0; u < layer->x.out; ++u) {
            const size_t at = ((size_t)v * layer->x.out + u) * layer->channels;
            if (layer->kind == GS_KIND_POOL_MAX) {
                find_taps(layer, x, v, u, found + at, row);
                continue;
            }
            const float count = window_size(gs_axis_taps(&layer->y, v), gs_axis_taps(&layer->x, u));
            for (uint32_t c = 0; c < layer->channels; ++c) {
                dz[at + c] = dz[at + c] / count;
            }
        }
    }
}

void gs_pool_backward(const gs_layer_t *layer, float *dz, const float *x, const gs_below_t *below, float *scratch)
{
    const uint32_t channels = layer->channels;
    const bool is_max = layer->kind == GS_KIND_POOL_MAX;
    float *row = scratch;
    uint32_t *found = (uint32_t *)(void *)(scratch + channels);
    if (!below) {
        return;
    }
    prepare(layer, dz, x, row, found);
    for (uint32_t y_in = 0; y_in < layer->y.in; ++y_in) {
        const gs_range_t ys = gs_axis_readers(&layer->y, y_in);
        for (uint32_t x_in = 0; x_in < layer->x.in; ++x_in) {
            const gs_range_t xs = gs_axis_readers(&layer->x, x_in);
            memset(row, 0, channels * sizeof *row);
            for (uint32_t v = ys.first; v < ys.end; ++v) {
                for (uint32_t u = xs.first; u < xs.end; ++u) {
                    const size_t at = ((size_t)v * layer->x.out + u) * channels;
                    const uint32_t k_y = y_in + layer->y.before - v * layer->y.stride;
                    const uint32_t tap = k_y * layer->x.kernel + x_in + layer->x.before - u * layer->x.stride;
                    for (uint32_t c = 0; c < channels; ++c) {
                        row[c] = !is_max || found[at + c] == tap ? row[c] + dz[at + c] : row[c];
                    }
                }
            }
            gs_below_take(below, ((size_t)y_in * layer->x.in + x_in) * channels, row, channels);
        }
    }
}
