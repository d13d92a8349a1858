/* Frames: header, tag, fragments, replay windows (SPEC.md 9). Pure functions of bytes; nothing is sent here. */
#ifndef GS_WIRE_H
#define GS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gs_sha256.h"
#include "gs_spec.h"

/* Why a frame is dropped, in the order of the checks of SPEC.md 9.5 and of the words METRICS count them in. */
typedef enum {
    GS_DROP_LENGTH,
    GS_DROP_VERSION,
    GS_DROP_TAG,
    GS_DROP_PEER,
    GS_DROP_STALE,
    GS_DROP_REPLAY,
    GS_DROP_MALFORMED,
    GS_DROP_REASSEMBLY,
    GS_DROP_GARBAGE,
    GS_DROP_REASONS,
    GS_DROP_NONE = GS_DROP_REASONS
} gs_drop_t;

typedef struct {
    uint8_t type;
    bool reserved; /* a bit or byte that must be 0 is set */
    uint16_t src;
    uint16_t dst;
    uint32_t round;
    uint32_t seq;
    uint16_t fragment;
    uint16_t fragments;
    uint16_t len;
    const uint8_t *payload; /* in the frame */
} gs_frame_t;

static inline bool gs_frame_is_data(const gs_frame_t *frame)
{
    return frame->type >= GS_DATA_TYPE_MIN;
}

/* Read a frame. GS_DROP_LENGTH, GS_DROP_VERSION, GS_DROP_TAG or GS_DROP_NONE; on the first two `frame` means nothing.
   `key` NULL: tags are neither asked for nor looked at. */
gs_drop_t gs_frame_parse(const gs_hmac_key_t *key, const uint8_t *data, size_t len, gs_frame_t *frame);

/* Whether the header is one that an encoder with so much room for payload writes. */
bool gs_frame_is_regular(const gs_frame_t *frame, uint32_t room);

/* Write header and tag around a payload that stands at bytes + GS_HEADER_BYTES, with room for a tag behind it.
   frame->payload and frame->reserved are not looked at. Returns the bytes of the whole frame. `key` NULL: no tag. */
size_t gs_frame_seal(const gs_hmac_key_t *key, const gs_frame_t *frame, uint8_t *bytes);

/* Sequence numbers seen: `seen` has a bit for each of the 64 numbers up to the greatest. Starts with zeros. */
typedef struct {
    uint32_t greatest;
    uint32_t seen[2];
} gs_window_t;

/* Whether `seq` is neither seen nor too old to tell. */
bool gs_window_is_new(const gs_window_t *window, uint32_t seq);
void gs_window_note(gs_window_t *window, uint32_t seq);

/* A message of which fragments are missing. */
typedef struct {
    uint32_t first_seq;
    uint32_t len;
    uint32_t opened; /* order of opening; 0: free */
    uint16_t src;
    uint16_t next; /* fragment that must come */
    uint16_t fragments;
    uint8_t type;
} gs_open_t;

/* Bounded reassembly: `places` messages of up to `capacity` bytes. */
typedef struct {
    gs_open_t *open;  /* [places] */
    uint8_t *buffers; /* [places][capacity] */
    uint32_t places;
    uint32_t capacity;
    uint32_t opened;
} gs_reassembly_t;

/* Take a regular fragment of a message that has several; `room` as for gs_frame_is_regular.
   False: the fragment was dropped. True and *message not NULL: complete, valid until the next call.
   *dropped grows as SPEC.md 9.3 counts. */
bool gs_reassembly_take(gs_reassembly_t *reassembly, const gs_frame_t *frame, uint32_t room, uint32_t *dropped,
                        const uint8_t **message, uint32_t *len);

/* Close all that is open; returns how many. */
uint32_t gs_reassembly_close(gs_reassembly_t *reassembly);

#endif
