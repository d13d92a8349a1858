#include "gs_q8_svdf.h"

#include <string.h>

#include "gs_q8.h"

/* What a filter makes of this moment's input, in [least, -1 - least]. */
static int32_t feature_of(const gs_q8_svdf_t *p, uint32_t filter, const int8_t *in, int32_t least)
{
    const int8_t *weights = p->feature + filter * p->inputs;
    int32_t sum = p->feature_bias[filter];
    for (uint32_t i = 0; i < p->inputs; ++i) {
        sum += weights[i] * in[i];
    }
    return gs_q8_clamp(gs_q8_rescale(sum, p->feature_multiplier, p->feature_shift), least, -1 - least);
}

static int8_t finish(const gs_q8_svdf_t *p, int32_t sum)
{
    return (int8_t)gs_q8_clamp(gs_q8_rescale(sum, p->multiplier, p->shift) + p->zero_point, -128, 127);
}

void gs_q8_svdf8(const gs_q8_svdf_t *p, const int8_t *in, int8_t *out, int8_t *state)
{
    const uint32_t last = p->memory - 1;
    for (uint32_t batch = 0; batch < p->batches; ++batch, in += p->inputs) {
        for (uint32_t unit = 0; unit < p->units; ++unit) {
            int32_t sum = p->bias[unit];
            for (uint32_t filter = unit * p->rank; filter < (unit + 1) * p->rank; ++filter, state += p->memory) {
                const int8_t *weights = p->time8 + filter * p->memory;
                memmove(state, state + 1, last * sizeof *state);
                state[last] = (int8_t)(p->state_zero_point + feature_of(p, filter, in, INT8_MIN));
                for (uint32_t i = 0; i <= last; ++i) {
                    sum += weights[i] * state[i];
                }
            }
            *out++ = finish(p, sum);
        }
    }
}

void gs_q8_svdf16(const gs_q8_svdf_t *p, const int8_t *in, int8_t *out, int16_t *state)
{
    const uint32_t last = p->memory - 1;
    for (uint32_t batch = 0; batch < p->batches; ++batch, in += p->inputs) {
        for (uint32_t unit = 0; unit < p->units; ++unit) {
            uint32_t sum = (uint32_t)p->bias[unit];
            for (uint32_t filter = unit * p->rank; filter < (unit + 1) * p->rank; ++filter, state += p->memory) {
                const int16_t *weights = p->time16 + filter * p->memory;
                memmove(state, state + 1, last * sizeof *state);
                state[last] = (int16_t)(p->state_zero_point + feature_of(p, filter, in, INT16_MIN));
                for (uint32_t i = 0; i <= last; ++i) {
                    sum += (uint32_t)(weights[i] * state[i]);
                }
            }
            *out++ = finish(p, (int32_t)sum);
        }
    }
}
