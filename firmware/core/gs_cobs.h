/* Frames in a byte stream: consistent overhead byte stuffing with a 0x00 delimiter (SPEC.md 9.6). */
#ifndef GS_COBS_H
#define GS_COBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes that `len` bytes take, the delimiter included. */
#define GS_COBS_BYTES(len) ((len) + (len) / 254u + 2u)

/* Encode with the delimiter; `out` has room for GS_COBS_BYTES(len). Returns the bytes written. */
size_t gs_cobs_encode(const uint8_t *data, size_t len, uint8_t *out);

/* A decoder that survives any input. `buffer` (the caller's, `capacity` bytes) receives the decoded frame. */
typedef struct {
    uint8_t *buffer;
    size_t capacity;
    size_t len;
    uint8_t left;     /* bytes to come in the open block */
    bool zero_due;    /* the open block implies a zero before the next one */
    bool begun;       /* a byte came since the delimiter */
    bool bad;         /* this run is no frame */
    uint32_t garbage; /* runs skipped */
} gs_cobs_t;

void gs_cobs_init(gs_cobs_t *cobs, uint8_t *buffer, size_t capacity);

/* Take one byte. True: buffer[0..len) is a frame, until the next call. */
bool gs_cobs_feed(gs_cobs_t *cobs, uint8_t byte);

#endif
