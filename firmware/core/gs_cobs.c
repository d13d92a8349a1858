#include "gs_cobs.h"

size_t gs_cobs_encode(const uint8_t *data, size_t len, uint8_t *out)
{
    size_t code_at = 0;
    size_t at = 1;
    for (size_t i = 0; i < len; ++i) {
        if (at - code_at == 255) { /* a full block implies no zero */
            out[code_at] = 255;
            code_at = at++;
        }
        if (data[i]) {
            out[at++] = data[i];
        } else {
            out[code_at] = (uint8_t)(at - code_at);
            code_at = at++;
        }
    }
    out[code_at] = (uint8_t)(at - code_at);
    out[at++] = 0;
    return at;
}

static void restart(gs_cobs_t *cobs)
{
    cobs->len = 0;
    cobs->left = 0;
    cobs->zero_due = false;
    cobs->begun = false;
    cobs->bad = false;
}

void gs_cobs_init(gs_cobs_t *cobs, uint8_t *buffer, size_t capacity)
{
    cobs->buffer = buffer;
    cobs->capacity = capacity;
    cobs->garbage = 0;
    restart(cobs);
}

static void put(gs_cobs_t *cobs, uint8_t byte)
{
    if (cobs->len == cobs->capacity) {
        cobs->bad = true;
        return;
    }
    cobs->buffer[cobs->len++] = byte;
}

bool gs_cobs_feed(gs_cobs_t *cobs, uint8_t byte)
{
    if (byte == 0) {
        const bool frame = cobs->begun && !cobs->bad && cobs->left == 0;
        const size_t len = cobs->len;
        cobs->garbage += cobs->begun && !frame;
        restart(cobs);
        cobs->len = frame ? len : 0;
        return frame;
    }
    if (!cobs->begun) {
        cobs->len = 0; /* the frame before was the caller's until now */
        cobs->begun = true;
    }
    if (cobs->bad) {
        return false;
    }
    if (cobs->left) {
        put(cobs, byte);
        --cobs->left;
        return false;
    }
    if (cobs->zero_due) {
        put(cobs, 0);
    }
    cobs->left = (uint8_t)(byte - 1);
    cobs->zero_due = byte != 255;
    return false;
}
