#include "gs_q8_map.h"

void gs_q8_map(const gs_q8_map_t *p, const int8_t *in, int8_t *out)
{
    const int8_t *zero = p->table + 128;
    const uint32_t count = p->count;
    for (uint32_t i = 0; i < count; ++i) {
        out[i] = zero[in[i]];
    }
}
