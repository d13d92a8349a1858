/* One training step in plain loops, none against the grain of memory: what benchmarks/training.py compares the core with. */
#include "gs_math.h"
#include "gs_nn.h"

#define FLOATS_MAX (64 * 2048) /* batch times the widths of all layers */

float plain_gradient(const gs_model_t *model, const float *w, const gs_batch_t *given, float *g);

/* As gs_nn_gradient, for byte features and batches that FLOATS_MAX holds. One thread at a time. */
float plain_gradient(const gs_model_t *model, const float *w, const gs_batch_t *given, float *g)
{
    const gs_samples_t *samples = given->samples;
    const uint16_t *rows = given->rows;
    const uint32_t batch = given->count;
    static float memory[FLOATS_MAX];
    float *x = memory;
    for (uint32_t b = 0; b < batch; ++b) {
        for (uint32_t i = 0; i < model->inputs; ++i) {
            const uint8_t byte = samples->features[(size_t)rows[b] * model->inputs + i];
            x[b * model->inputs + i] = (float)byte * samples->scale + samples->offset;
        }
    }
    for (uint32_t l = 0; l < model->layers; ++l) {
        const uint32_t in = model->layer[l].channels, out = model->layer[l].outputs;
        const float *weights = w + model->layer[l].at, *bias = weights + in * out;
        float *y = x + batch * in;
        for (uint32_t b = 0; b < batch; ++b) {
            for (uint32_t o = 0; o < out; ++o) {
                float z = bias[o];
                for (uint32_t i = 0; i < in; ++i) {
                    z += weights[o * in + i] * x[b * in + i];
                }
                y[b * out + o] = l + 1 == model->layers || z > 0.0f ? z : 0.0f;
            }
        }
        x = y;
    }

    float *dz = x;
    const uint32_t classes = model->classes;
    const float inv = 1.0f / (float)batch;
    float loss = 0.0f;
    for (uint32_t b = 0; b < batch; ++b) {
        float *z = dz + b * classes;
        const uint32_t label = samples->labels[rows[b]];
        float top = z[0], sum = 0.0f;
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
    }

    memset(g, 0, model->parameters * sizeof *g);
    for (uint32_t l = model->layers; l-- > 0;) {
        const uint32_t in = model->layer[l].channels, out = model->layer[l].outputs, at = model->layer[l].at;
        x = dz - batch * in;
        for (uint32_t b = 0; b < batch; ++b) {
            float *dx = dz + batch * out;
            memset(dx, 0, in * sizeof *dx);
            for (uint32_t o = 0; o < out; ++o) {
                const float d = dz[b * out + o];
                for (uint32_t i = 0; i < in; ++i) {
                    g[at + o * in + i] += d * x[b * in + i];
                }
                g[at + in * out + o] += d;
                for (uint32_t i = 0; i < in && l > 0; ++i) {
                    dx[i] += d * w[at + o * in + i];
                }
            }
            for (uint32_t i = 0; i < in && l > 0; ++i) {
                x[b * in + i] = x[b * in + i] > 0.0f ? dx[i] : 0.0f;
            }
        }
        dz = x;
    }
    return loss / (float)batch;
}
