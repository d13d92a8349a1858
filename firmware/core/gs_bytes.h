/* Little-endian loads and stores: the only way bytes of the wire become numbers. */
#ifndef GS_BYTES_H
#define GS_BYTES_H

#include <stdint.h>
#include <string.h>

/* Features and weights lie in memory as on the wire. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the core needs a little-endian processor"
#endif

static inline uint16_t gs_load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (uint16_t)(p[1] << 8));
}

static inline uint32_t gs_load_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void gs_store_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void gs_store_u32(uint8_t *p, uint32_t v)
{
    gs_store_u16(p, (uint16_t)v);
    gs_store_u16(p + 2, (uint16_t)(v >> 16));
}

static inline float gs_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t gs_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float gs_load_f32(const uint8_t *p)
{
    return gs_float_of(gs_load_u32(p));
}

static inline void gs_store_f32(uint8_t *p, float v)
{
    gs_store_u32(p, gs_bits_of(v));
}

#endif
