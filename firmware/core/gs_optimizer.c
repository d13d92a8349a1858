#include "gs_optimizer.h"

#include <string.h>

#include "gs_math.h"

#define POWERS 2u /* pow1 and pow2 stand ahead of ADAM's m and v */

size_t gs_optimizer_floats(const gs_optimizer_t *optimizer, uint32_t parameters)
{
    if (optimizer->kind == GS_OPTIMIZER_ADAM) {
        return POWERS + 2 * (size_t)parameters;
    }
    return optimizer->momentum != 0.0f ? parameters : 0;
}

void gs_optimizer_reset(const gs_optimizer_t *optimizer, uint32_t parameters, float *state)
{
    const size_t floats = gs_optimizer_floats(optimizer, parameters);
    if (floats) {
        memset(state, 0, floats * sizeof *state);
    }
    if (optimizer->kind == GS_OPTIMIZER_ADAM) {
        state[0] = 1.0f;
        state[1] = 1.0f;
    }
}

static void step_sgd(const gs_optimizer_t *optimizer, uint32_t parameters, float lr, float *w, const float *g, float *v)
{
    const float momentum = optimizer->momentum;
    const float weight_decay = optimizer->weight_decay;
    for (uint32_t p = 0; p < parameters; ++p) {
        float step = g[p];
        if (weight_decay != 0.0f) {
            step = step + weight_decay * w[p];
        }
        if (momentum != 0.0f) {
            step = momentum * v[p] + step;
            v[p] = step;
        }
        w[p] = w[p] - lr * step;
    }
}

static void step_adam(const gs_optimizer_t *optimizer, uint32_t parameters, float lr, float *w, const float *g,
                      float *state)
{
    const float beta1 = optimizer->beta1;
    const float beta2 = optimizer->beta2;
    const float rest1 = 1.0f - beta1;
    const float rest2 = 1.0f - beta2;
    const float epsilon = optimizer->epsilon;
    const float weight_decay = optimizer->weight_decay;
    float *restrict m = state + POWERS;
    float *restrict v = m + parameters;
    state[0] = state[0] * beta1;
    state[1] = state[1] * beta2;
    const float a = lr / (1.0f - state[0]);
    const float c = 1.0f / (1.0f - state[1]);
    for (uint32_t p = 0; p < parameters; ++p) {
        const float slope = weight_decay != 0.0f ? g[p] + weight_decay * w[p] : g[p];
        m[p] = beta1 * m[p] + rest1 * slope;
        v[p] = beta2 * v[p] + rest2 * (slope * slope);
        w[p] = w[p] - (a * m[p]) / (gs_sqrtf(v[p] * c) + epsilon);
    }
}

void gs_optimizer_step(const gs_optimizer_t *optimizer, uint32_t parameters, float lr, float *w, const float *g,
                       float *state)
{
    if (optimizer->kind == GS_OPTIMIZER_ADAM) {
        step_adam(optimizer, parameters, lr, w, g, state);
    } else {
        step_sgd(optimizer, parameters, lr, w, g, state);
    }
}
