/* Values of a message part in 32, 16, 8, 4, 2 or 1 bits (SPEC.md 5). Fields are packed without spare bits. */
#ifndef GS_QUANT_H
#define GS_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool gs_quant_is_width(uint32_t bits)
{
    return bits == 32 || bits == 16 || bits == 8 || bits == 4 || bits == 2 || bits == 1;
}

/* Bytes of `count` fields. */
static inline size_t gs_quant_bytes(uint32_t count, uint32_t bits)
{
    return (size_t)(((uint64_t)count * bits + 7) / 8);
}

/* What the scale depends on; see every value once, in the order of the message. Start with zeros. */
typedef struct {
    float max;
    float sum;
    uint32_t count;
} gs_quant_range_t;

void gs_quant_see(gs_quant_range_t *range, float value);
float gs_quant_scale(const gs_quant_range_t *range, uint32_t bits);

/* Write field i of `packed`, whose bytes were zero. Any value and any scale are allowed; NaN becomes 0 below 16 bits. */
void gs_quant_store(uint8_t *packed, uint32_t i, float value, float scale, uint32_t bits);

/* Read field i as a receiver does. */
float gs_quant_load(const uint8_t *packed, uint32_t i, float scale, uint32_t bits);

/* Whether gs_quant_store could have written these `count` fields: spare bits zero, no field below its least. */
bool gs_quant_is_valid(const uint8_t *packed, uint32_t count, uint32_t bits);

#endif
