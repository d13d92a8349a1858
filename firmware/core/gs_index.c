#include "gs_index.h"

#include <string.h>

#include "gs_spec.h"

static size_t put_leb128(uint32_t number, uint8_t *out)
{
    size_t len = 0;
    while (number >= 0x80) {
        out[len++] = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    out[len++] = (uint8_t)number;
    return len;
}

size_t gs_index_encode(const uint32_t *numbers, uint32_t count, uint32_t units, uint8_t *out, uint8_t *coding)
{
    const size_t bitmap = gs_index_bytes_max(units);
    size_t len = 0;
    uint32_t next = 0;
    for (uint32_t i = 0; i < count; ++i) {
        uint8_t bytes[5];
        const size_t more = put_leb128(numbers[i] - next, bytes);
        if (len + more >= bitmap) {
            memset(out, 0, bitmap);
            for (uint32_t k = 0; k < count; ++k) {
                out[numbers[k] / 8] = (uint8_t)(out[numbers[k] / 8] | 1u << numbers[k] % 8);
            }
            *coding = GS_CODING_BITMAP;
            return bitmap;
        }
        memcpy(out + len, bytes, more);
        len += more;
        next = numbers[i] + 1;
    }
    *coding = GS_CODING_DELTA;
    return len;
}

void gs_index_init(gs_index_t *index, uint8_t coding, const uint8_t *data, size_t len, uint32_t units)
{
    index->data = data;
    index->len = len;
    index->at = 0;
    index->units = units;
    index->next = 0;
    index->coding = coding;
    index->ok = true;
    if (coding == GS_CODING_BITMAP) {
        index->ok = len == gs_index_bytes_max(units) && (units % 8 == 0 || data[len - 1] >> units % 8 == 0);
    } else if (coding != GS_CODING_DELTA) {
        index->ok = false;
    }
}

static bool next_of_bitmap(gs_index_t *index, uint32_t *unit)
{
    while (index->next < index->units) {
        const uint32_t rest = (uint32_t)index->data[index->next / 8] >> index->next % 8;
        if (rest == 0) {
            index->next = (index->next / 8 + 1) * 8;
            continue;
        }
        while (!(index->data[index->next / 8] >> index->next % 8 & 1)) {
            ++index->next;
        }
        *unit = index->next++;
        return true;
    }
    return false;
}

bool gs_index_next(gs_index_t *index, uint32_t *unit)
{
    if (!index->ok) {
        return false;
    }
    if (index->coding == GS_CODING_BITMAP) {
        return next_of_bitmap(index, unit);
    }
    if (index->at == index->len) {
        return false;
    }
    uint64_t gap = 0;
    uint32_t shift = 0;
    uint8_t byte = 0;
    do {
        if (index->at == index->len || shift > 28) {
            index->ok = false;
            return false;
        }
        byte = index->data[index->at++];
        gap |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80);
    if ((byte == 0 && shift > 7) || index->next + gap >= index->units) {
        index->ok = false;
        return false;
    }
    *unit = index->next + (uint32_t)gap;
    index->next = *unit + 1;
    return true;
}
