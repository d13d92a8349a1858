#include "gs_quant.h"

#include "gs_math.h"

static float greatest(uint32_t bits)
{
    return (float)((1u << (bits - 1)) - 1);
}

void gs_quant_see(gs_quant_range_t *range, float value)
{
    const float size = gs_absf(value);
    if (size > range->max) {
        range->max = size;
    }
    range->sum = range->sum + size;
    ++range->count;
}

float gs_quant_scale(const gs_quant_range_t *range, uint32_t bits)
{
    if (bits >= 16 || range->count == 0) {
        return 0.0f;
    }
    return bits == 1 ? range->sum / (float)range->count : range->max / greatest(bits);
}

void gs_quant_store(uint8_t *packed, uint32_t i, float value, float scale, uint32_t bits)
{
    if (bits == 32) {
        gs_store_f32(packed + 4 * (size_t)i, value);
        return;
    }
    if (bits == 16) {
        const uint32_t u = gs_bits_of(value);
        gs_store_u16(packed + 2 * (size_t)i, (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16));
        return;
    }
    uint32_t field = value < 0.0f;
    if (bits > 1) {
        const float limit = greatest(bits);
        float x = scale == 0.0f ? 0.0f : value / scale;
        x = x > limit ? limit : x < -limit ? -limit : x == x ? x : 0.0f; /* what is not finite, no receiver takes */
        field = (uint32_t)(int32_t)gs_rintf(x) & ((1u << bits) - 1);
    }
    const uint64_t at = (uint64_t)i * bits;
    packed[at / 8] = (uint8_t)(packed[at / 8] | field << at % 8);
}

float gs_quant_load(const uint8_t *packed, uint32_t i, float scale, uint32_t bits)
{
    if (bits == 32) {
        return gs_load_f32(packed + 4 * (size_t)i);
    }
    if (bits == 16) {
        return gs_float_of((uint32_t)gs_load_u16(packed + 2 * (size_t)i) << 16);
    }
    const uint64_t at = (uint64_t)i * bits;
    const uint32_t field = (uint32_t)packed[at / 8] >> at % 8 & ((1u << bits) - 1);
    if (bits == 1) {
        return field ? -scale : scale;
    }
    const int32_t sign = 1 << (bits - 1);
    return (float)(((int32_t)field ^ sign) - sign) * scale;
}

bool gs_quant_is_valid(const uint8_t *packed, uint32_t count, uint32_t bits)
{
    const uint32_t spare = (uint32_t)(8 * gs_quant_bytes(count, bits) - (uint64_t)count * bits);
    if (spare && packed[gs_quant_bytes(count, bits) - 1] >> (8 - spare)) {
        return false;
    }
    if (bits >= 16 || bits == 1) {
        return true;
    }
    const uint32_t least = 1u << (bits - 1); /* the field -2^(bits-1), which no rounding gives */
    for (uint32_t i = 0; i < count; ++i) {
        const uint64_t at = (uint64_t)i * bits;
        if (((uint32_t)packed[at / 8] >> at % 8 & ((1u << bits) - 1)) == least) {
            return false;
        }
    }
    return true;
}
