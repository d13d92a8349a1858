/* One training step of a small CNN in plain loops over CONV, POOL_MAX and DENSE, none against the grain of memory and with
   the whole batch's activations at hand: what benchmarks/training.py compares the core with. The same bits. */
#include "gs_math.h"
#include "gs_nn.h"

#define FLOATS_MAX (1u << 20) /* activations and gradients of a batch */

float plain_cnn_gradient(const gs_model_t *model, const float *w, const gs_batch_t *batch, float *g);
size_t benchmark_model_bytes(void);

size_t benchmark_model_bytes(void)
{
    return sizeof(gs_model_t);
}

static void forward(const gs_layer_t *layer, const float *w, const float *x, float *y)
{
    const uint32_t channels = layer->channels, outputs = layer->outputs, kernel = layer->y.kernel;
    if (layer->kind == GS_KIND_DENSE) {
        const uint32_t inputs = gs_layer_inputs(layer);
        for (uint32_t o = 0; o < outputs; ++o) {
            float z = w[layer->weights + o];
            for (uint32_t i = 0; i < inputs; ++i) {
                z += w[o * inputs + i] * x[i];
            }
            y[o] = !layer->relu || z > 0.0f ? z : 0.0f;
        }
        return;
    }
    for (uint32_t v = 0; v < layer->y.out; ++v) {
        const gs_range_t rows = gs_axis_taps(&layer->y, v);
        for (uint32_t u = 0; u < layer->x.out; ++u) {
            const gs_range_t columns = gs_axis_taps(&layer->x, u);
            for (uint32_t o = 0; o < outputs; ++o) {
                float z = layer->kind == GS_KIND_CONV ? w[layer->weights + o] : -__builtin_inff();
                for (uint32_t r = rows.first; r < rows.end; ++r) {
                    for (uint32_t c = columns.first; c < columns.end; ++c) {
                        const uint32_t y_in = v * layer->y.stride + r - layer->y.before;
                        const uint32_t x_in = u * layer->x.stride + c - layer->x.before;
                        const float *in = x + (y_in * layer->x.in + x_in) * channels;
                        if (layer->kind != GS_KIND_CONV) {
                            z = in[o] > z ? in[o] : z;
                            continue;
                        }
                        const float *taps = w + ((o * kernel + r) * layer->x.kernel + c) * channels;
                        for (uint32_t i = 0; i < channels; ++i) {
                            z += taps[i] * in[i];
                        }
                    }
                }
                *y++ = !layer->relu || z > 0.0f ? z : 0.0f;
            }
        }
    }
}

/* dx, when not NULL, is zeroed. */
static void backward(const gs_layer_t *layer, const float *w, const float *x, const float *dz, float *g, float *dx)
{
    const uint32_t channels = layer->channels, outputs = layer->outputs, kernel = layer->y.kernel;
    if (layer->kind == GS_KIND_DENSE) {
        const uint32_t inputs = gs_layer_inputs(layer);
        for (uint32_t o = 0; o < outputs; ++o) {
            for (uint32_t i = 0; i < inputs; ++i) {
                g[o * inputs + i] += dz[o] * x[i];
            }
            for (uint32_t i = 0; dx && i < inputs; ++i) {
                dx[i] += dz[o] * w[o * inputs + i];
            }
            g[layer->weights + o] += dz[o];
        }
        return;
    }
    for (uint32_t v = 0; v < layer->y.out; ++v) {
        const gs_range_t rows = gs_axis_taps(&layer->y, v);
        for (uint32_t u = 0; u < layer->x.out; ++u) {
            const gs_range_t columns = gs_axis_taps(&layer->x, u);
            for (uint32_t o = 0; o < outputs; ++o) {
                const float d = *dz++;
                float top = -__builtin_inff();
                float *best = NULL;
                for (uint32_t r = rows.first; r < rows.end; ++r) {
                    for (uint32_t c = columns.first; c < columns.end; ++c) {
                        const uint32_t y_in = v * layer->y.stride + r - layer->y.before;
                        const uint32_t x_in = u * layer->x.stride + c - layer->x.before;
                        const uint32_t at = (y_in * layer->x.in + x_in) * channels;
                        if (layer->kind != GS_KIND_CONV) {
                            best = x[at + o] > top ? dx + at + o : best;
                            top = x[at + o] > top ? x[at + o] : top;
                            continue;
                        }
                        const uint32_t tap = ((o * kernel + r) * layer->x.kernel + c) * channels;
                        for (uint32_t i = 0; i < channels; ++i) {
                            g[tap + i] += d * x[at + i];
                        }
                        for (uint32_t i = 0; dx && i < channels; ++i) {
                            dx[at + i] += d * w[tap + i];
                        }
                    }
                }
                if (layer->kind == GS_KIND_CONV) {
                    g[layer->weights + o] += d;
                } else {
                    *best += d;
                }
            }
        }
    }
}

/* As gs_nn_gradient, for CONV with one group, POOL_MAX and DENSE, none frozen, byte features, and batches that FLOATS_MAX
   holds. One thread at a time. */
float plain_cnn_gradient(const gs_model_t *model, const float *w, const gs_batch_t *batch, float *g)
{
    static float memory[FLOATS_MAX];
    const float inv = 1.0f / (float)batch->count;
    float loss = 0.0f;
    memset(g, 0, model->parameters * sizeof *g);
    for (uint32_t s = 0; s < batch->count; ++s) {
        float *values[GS_LAYERS_MAX + 1] = {memory};
        const uint32_t row = gs_batch_row(batch, s), classes = model->classes;
        gs_samples_read(batch->samples, (size_t)row * model->inputs, model->inputs, memory);
        for (uint32_t l = 0; l < model->layers; ++l) {
            const gs_layer_t *layer = &model->layer[l];
            values[l + 1] = values[l] + gs_layer_inputs(layer);
            forward(layer, w + layer->at, values[l], values[l + 1]);
        }
        float *z = values[model->layers], top = z[0], sum = 0.0f;
        const uint32_t label = batch->samples->labels[row];
        for (uint32_t i = 1; i < classes; ++i) {
            top = z[i] > top ? z[i] : top;
        }
        const float chosen = z[label] - top;
        for (uint32_t i = 0; i < classes; ++i) {
            z[i] = gs_expf(z[i] - top);
            sum += z[i];
        }
        loss += gs_logf(sum) - chosen;
        for (uint32_t i = 0; i < classes; ++i) {
            z[i] = (z[i] / sum - (i == label ? 1.0f : 0.0f)) * inv;
        }
        float *dz = z;
        float *dx = z + classes;
        for (uint32_t l = model->layers; l-- > 0;) {
            const gs_layer_t *layer = &model->layer[l];
            const uint32_t inputs = gs_layer_inputs(layer);
            if (l) {
                memset(dx, 0, inputs * sizeof *dx);
            }
            backward(layer, w + layer->at, values[l], dz, g + layer->at, l ? dx : NULL);
            for (uint32_t i = 0; l && i < inputs; ++i) {
                dx[i] = !model->layer[l - 1].relu || values[l][i] > 0.0f ? dx[i] : 0.0f;
            }
            dz = dx;
            dx += inputs;
        }
    }
    return loss / (float)batch->count;
}
