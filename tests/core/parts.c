/* What is inline in the headers of the core's small modules, as functions; and loops that Python would take too long for. */
#include "gs_cobs.h"
#include "gs_index.h"
#include "gs_math.h"
#include "gs_nn.h"
#include "gs_optimizer.h"
#include "gs_quant.h"
#include "gs_rng.h"

void parts_map(int which, const float *x, float *y, size_t n);
void parts_draws(const uint32_t seed[2], uint32_t stream, uint32_t round, uint32_t node, const uint32_t *indices,
                 uint32_t *out, size_t n);
uint32_t parts_below(uint32_t u, uint32_t n);
float parts_unit(uint32_t u);
bool parts_chance(uint32_t u, uint32_t p24);
size_t parts_cobs(gs_cobs_t *cobs, const uint8_t *data, size_t len, uint8_t *frames, uint32_t *lengths);
float parts_quantize(const float *v, uint32_t n, uint32_t bits, uint8_t *packed);
void parts_dequantize(const uint8_t *packed, uint32_t n, float scale, uint32_t bits, float *v);
size_t parts_quant_bytes(uint32_t n, uint32_t bits);
uint32_t parts_decode(uint8_t coding, const uint8_t *data, size_t len, uint32_t units, uint32_t *numbers, bool *ok);
size_t parts_model_bytes(void);
void parts_model_give(gs_model_t *model, const float *given);
void parts_model_look(const gs_model_t *model, uint32_t out[6]);

void parts_map(int which, const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; ++i) {
        switch (which) {
        case 0:
            y[i] = gs_expf(x[i]);
            break;
        case 1:
            y[i] = gs_logf(x[i]);
            break;
        case 2:
            y[i] = gs_sqrtf(x[i]);
            break;
        case 3:
            y[i] = gs_rintf(x[i]);
            break;
        case 4:
            y[i] = gs_absf(x[i]);
            break;
        default:
            y[i] = gs_is_finite(x[i]) ? 1.0f : 0.0f;
        }
    }
}

void parts_draws(const uint32_t seed[2], uint32_t stream, uint32_t round, uint32_t node, const uint32_t *indices,
                 uint32_t *out, size_t n)
{
    gs_rng_t rng;
    gs_rng_init(&rng, seed, stream, round, node);
    for (size_t i = 0; i < n; ++i) {
        out[i] = gs_rng_at(&rng, indices[i]);
    }
}

uint32_t parts_below(uint32_t u, uint32_t n)
{
    return gs_rng_below(u, n);
}

float parts_unit(uint32_t u)
{
    return gs_rng_unit(u);
}

bool parts_chance(uint32_t u, uint32_t p24)
{
    return gs_rng_chance(u, p24);
}

/* Feed a stream; the frames found go one behind the other. Returns how many. */
size_t parts_cobs(gs_cobs_t *cobs, const uint8_t *data, size_t len, uint8_t *frames, uint32_t *lengths)
{
    size_t found = 0;
    for (size_t i = 0; i < len; ++i) {
        if (gs_cobs_feed(cobs, data[i])) {
            memcpy(frames, cobs->buffer, cobs->len);
            frames += cobs->len;
            lengths[found++] = (uint32_t)cobs->len;
        }
    }
    return found;
}

/* As a sender does: `packed` is zeroed. Returns the scale. */
float parts_quantize(const float *v, uint32_t n, uint32_t bits, uint8_t *packed)
{
    gs_quant_range_t range = {0};
    for (uint32_t i = 0; i < n; ++i) {
        gs_quant_see(&range, v[i]);
    }
    const float scale = gs_quant_scale(&range, bits);
    for (uint32_t i = 0; i < n; ++i) {
        gs_quant_store(packed, i, v[i], scale, bits);
    }
    return scale;
}

void parts_dequantize(const uint8_t *packed, uint32_t n, float scale, uint32_t bits, float *v)
{
    for (uint32_t i = 0; i < n; ++i) {
        v[i] = gs_quant_load(packed, i, scale, bits);
    }
}

size_t parts_quant_bytes(uint32_t n, uint32_t bits)
{
    return gs_quant_bytes(n, bits);
}

/* Walk an index; `numbers` has room for `units`. Returns how many came. */
uint32_t parts_decode(uint8_t coding, const uint8_t *data, size_t len, uint32_t units, uint32_t *numbers, bool *ok)
{
    gs_index_t index;
    uint32_t count = 0;
    uint32_t number;
    gs_index_init(&index, coding, data, len, units);
    while (gs_index_next(&index, &number)) {
        numbers[count++] = number;
    }
    *ok = index.ok;
    return count;
}

size_t parts_model_bytes(void)
{
    return sizeof(gs_model_t);
}

/* Set the parameters that stand in the image. */
void parts_model_give(gs_model_t *model, const float *given)
{
    model->given = given;
}

void parts_model_look(const gs_model_t *model, uint32_t out[6])
{
    out[0] = model->parameters;
    out[1] = model->given_count;
    out[2] = model->dropped;
    out[3] = model->lowest;
    out[4] = model->values;
    out[5] = model->perceptron;
}
