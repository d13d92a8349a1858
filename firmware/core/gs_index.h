/* Which units a message holds: a bitmap or delta-coded numbers, whichever is shorter (SPEC.md 10.1). */
#ifndef GS_INDEX_H
#define GS_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a bitmap over `units`: the most an index takes. */
static inline size_t gs_index_bytes_max(uint32_t units)
{
    return ((size_t)units + 7) / 8;
}

/* Encode `count` ascending unit numbers below `units`; `out` has room for gs_index_bytes_max(units).
   Returns the bytes written and, through `coding`, GS_CODING_BITMAP or GS_CODING_DELTA. */
size_t gs_index_encode(const uint32_t *numbers, uint32_t count, uint32_t units, uint8_t *out, uint8_t *coding);

/* Walk an index. After gs_index_next returned false, `ok` tells whether every byte was as an encoder writes it. */
typedef struct {
    const uint8_t *data;
    size_t len;
    size_t at;
    uint32_t units;
    uint32_t next; /* least unit that may come */
    uint8_t coding;
    bool ok;
} gs_index_t;

void gs_index_init(gs_index_t *index, uint8_t coding, const uint8_t *data, size_t len, uint32_t units);
bool gs_index_next(gs_index_t *index, uint32_t *unit);

#endif
