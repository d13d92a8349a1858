#include "gs_norm.h"

#include <string.h>

#include "gs_math.h"

/* Scratch: the mean and 1 / deviation of each channel's group, two sums a channel, and the channels of one position. */
size_t gs_norm_scratch_floats(const gs_layer_t *layer)
{
    return 5 * (size_t)layer->channels;
}

static uint32_t positions(const gs_layer_t *layer)
{
    return layer->y.in * layer->x.in;
}

/* Turn the channels' sums into their group's sum divided by n, the numbers in a group. */
static void share(const gs_layer_t *layer, float *sums)
{
    const uint32_t size = layer->channels / layer->option;
    const float n = (float)(positions(layer) * size);
    for (uint32_t first = 0; first < layer->channels; first += size) {
        float sum = 0.0f;
        for (uint32_t c = first; c < first + size; ++c) {
            sum = sum + sums[c];
        }
        const float quotient = sum / n;
        for (uint32_t c = first; c < first + size; ++c) {
            sums[c] = quotient;
        }
    }
}

/* Compute mean[C] and r[C], each channel's that of its group. */
static void measure(const gs_layer_t *layer, const float *x, float *restrict mean, float *restrict r)
{
    const uint32_t channels = layer->channels;
    const uint32_t size = channels / layer->option;
    memset(mean, 0, channels * sizeof *mean);
    memset(r, 0, channels * sizeof *r);
    for (uint32_t p = 0; p < positions(layer); ++p) {
        for (uint32_t c = 0; c < channels; ++c) {
            mean[c] = mean[c] + x[(size_t)p * channels + c];
        }
    }
    share(layer, mean);
    for (uint32_t p = 0; p < positions(layer); ++p) {
        for (uint32_t c = 0; c < channels; ++c) {
            const float d = x[(size_t)p * channels + c] - mean[c];
            r[c] = r[c] + d * d;
        }
    }
    share(layer, r);
    for (uint32_t first = 0; first < channels; first += size) {
        const float inverse = 1.0f / gs_sqrtf(r[first] + GS_NORM_EPSILON);
        for (uint32_t c = first; c < first + size; ++c) {
            r[c] = inverse;
        }
    }
}

void gs_norm_forward(const gs_layer_t *layer, const float *w, const float *x, float *z, float *scratch)
{
    const uint32_t channels = layer->channels;
    const float *mean = scratch;
    const float *r = scratch + channels;
    const float *b = w + channels;
    measure(layer, x, scratch, scratch + channels);
    for (uint32_t p = 0; p < positions(layer); ++p) {
        for (uint32_t c = 0; c < channels; ++c) {
            const float h = (x[(size_t)p * channels + c] - mean[c]) * r[c];
            z[(size_t)p * channels + c] = w[c] * h + b[c];
        }
    }
}

void gs_norm_backward(const gs_layer_t *layer, const float *w, const float *dz, const float *x, float *g,
                      const gs_below_t *below, float *scratch)
{
    const uint32_t channels = layer->channels;
    float *restrict mean = scratch;
    float *restrict r = mean + channels;
    float *restrict s1 = r + channels;
    float *restrict s2 = s1 + channels;
    float *restrict row = s2 + channels;
    measure(layer, x, mean, r);
    memset(s1, 0, 2 * (size_t)channels * sizeof *s1);
    for (uint32_t p = 0; p < positions(layer); ++p) {
        const float *in = x + (size_t)p * channels;
        const float *d = dz + (size_t)p * channels;
        for (uint32_t c = 0; c < channels; ++c) {
            const float h = (in[c] - mean[c]) * r[c];
            const float q = d[c] * w[c];
            s1[c] = s1[c] + q;
            s2[c] = s2[c] + q * h;
        }
        for (uint32_t c = 0; g && c < channels; ++c) {
            const float h = (in[c] - mean[c]) * r[c];
            g[c] = g[c] + d[c] * h;
            g[channels + c] = g[channels + c] + d[c];
        }
    }
    if (!below) {
        return;
    }
    share(layer, s1);
    share(layer, s2);
    for (uint32_t p = 0; p < positions(layer); ++p) {
        const float *in = x + (size_t)p * channels;
        const float *d = dz + (size_t)p * channels;
        for (uint32_t c = 0; c < channels; ++c) {
            const float h = (in[c] - mean[c]) * r[c];
            const float q = d[c] * w[c];
            row[c] = ((q - s1[c]) - h * s2[c]) * r[c];
        }
        gs_below_take(below, (size_t)p * channels, row, channels);
    }
}
