/* Functions of one value, by table: activations, requantization, arithmetic with a constant. */
#ifndef GS_Q8_MAP_H
#define GS_Q8_MAP_H

#include <stdint.h>

typedef struct {
    const int8_t *table; /* [256]: the outputs for the inputs -128..127 */
    uint32_t count;
} gs_q8_map_t;

/* Look up `count` values; `in` may be `out`. */
void gs_q8_map(const gs_q8_map_t *p, const int8_t *in, int8_t *out);

#endif
