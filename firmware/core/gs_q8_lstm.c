#include "gs_q8_lstm.h"

#include <string.h>

#include "gs_q8.h"

static int32_t to_int16(int32_t x)
{
    return gs_q8_clamp(x, INT16_MIN, INT16_MAX);
}

static int32_t dot(const int8_t *weights, const int8_t *x, uint32_t count, int32_t bias)
{
    int32_t sum = bias;
    for (uint32_t i = 0; i < count; ++i) {
        sum += weights[i] * x[i];
    }
    return sum;
}

static int32_t argument(const gs_q8_lstm_t *p, const gs_q8_gate_t *gate, uint32_t c, const int8_t *in,
                        const int8_t *hidden)
{
    const int32_t x = dot(gate->in_weights + c * p->inputs, in, p->inputs, gate->in_bias[c]);
    const int32_t h = dot(gate->hidden_weights + c * p->cells, hidden, p->cells, gate->hidden_bias[c]);
    return to_int16(to_int16(gs_q8_rescale(x, gate->in_multiplier, gate->in_shift)) +
                    to_int16(gs_q8_rescale(h, gate->hidden_multiplier, gate->hidden_shift)));
}

/* The logistic function at x / (24 << bits) for x >= 0, in units of 2^-(16 + bits): linear between entries, and `top`
   from the last one on. */
static int32_t interpolate(const uint16_t *sigmoid, int32_t x, int32_t bits, int32_t top)
{
    const int32_t place = x >> bits;
    if (place >= 255) {
        return top << bits;
    }
    const int32_t here = sigmoid[place];
    return (here << bits) + (x & ((1 << bits) - 1)) * (sigmoid[place + 1] - here);
}

/* 1 / (1 + exp(-x)) in units of 2^-15, for an int16 x in units of 2^-12; 3 * 2^12 = 24 * 2^9. */
static int32_t logistic(const uint16_t *sigmoid, int32_t x)
{
    if (x >= 0) {
        return (interpolate(sigmoid, 3 * x, 9, 65534) + (1 << 9)) >> 10;
    }
    return ((1 << 25) - interpolate(sigmoid, -3 * x, 9, 65534) + (1 << 9) - 1) >> 10;
}

/* tanh(x) = 2 / (1 + exp(-2x)) - 1 in units of 2^-15, for x in units of 1 / (3 * 2^12). */
static int32_t tanh_of(const uint16_t *sigmoid, int32_t x)
{
    if (x >= 0) {
        return (interpolate(sigmoid, x, 8, 65535) - (1 << 23) + (1 << 7)) >> 8;
    }
    return ((1 << 23) - interpolate(sigmoid, -x, 8, 65535) + (1 << 7) - 1) >> 8;
}

static int32_t gate_of(const gs_q8_lstm_t *p, const gs_q8_gate_t *gate, uint32_t c, const int8_t *in,
                       const int8_t *hidden)
{
    return logistic(p->sigmoid, argument(p, gate, c, in, hidden));
}

static void step(const gs_q8_lstm_t *p, const int8_t *in, const int8_t *hidden, int8_t *out, int16_t *cell)
{
    const int32_t half = p->tanh_shift > 0 ? 1 << (p->tanh_shift - 1) : 0;
    for (uint32_t c = 0; c < p->cells; ++c) {
        const int32_t forget = gate_of(p, &p->forget, c, in, hidden);
        const int32_t input = gate_of(p, &p->input, c, in, hidden);
        const int32_t candidate = tanh_of(p->sigmoid, 3 * argument(p, &p->candidate, c, in, hidden));
        const int32_t output = gate_of(p, &p->output, c, in, hidden);

        const int32_t kept = to_int16(gs_q8_rescale(forget * cell[c], p->keep_multiplier, p->keep_shift));
        const int32_t added = to_int16(gs_q8_rescale(input * candidate, p->add_multiplier, p->add_shift));
        cell[c] = (int16_t)gs_q8_clamp(to_int16(kept + added), -p->clip, p->clip);

        const int32_t bounded = tanh_of(p->sigmoid, (cell[c] * p->tanh_multiplier + half) >> p->tanh_shift);
        const int32_t value = gs_q8_rescale(bounded * output, p->out_multiplier, p->out_shift);
        out[c] = (int8_t)gs_q8_clamp(value + p->zero_point, -128, 127);
    }
}

void gs_q8_lstm(const gs_q8_lstm_t *p, const int8_t *in, int8_t *out, int8_t *hidden, int16_t *cell)
{
    for (uint32_t s = 0; s < p->sequences; ++s) {
        const int8_t *before = hidden;
        for (uint32_t t = 0; t < p->steps; ++t) {
            const uint32_t moment = s * p->sequence_stride + t * p->step_stride;
            int8_t *now = out + moment * p->cells;
            step(p, in + moment * p->inputs, before, now, cell);
            before = now;
        }
        memcpy(hidden, before, p->cells);
        hidden += p->cells;
        cell += p->cells;
    }
}
