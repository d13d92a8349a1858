/* Frames: header, tag, fragments, replay windows (SPEC.md 9). */
#ifndef GS_WIRE_H
#define GS_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#include "gs_sha256.h"
#include "gs_spec.h"

typedef struct {
    uint8_t type;
    uint16_t src;
    uint16_t dst;
    uint32_t round;
    uint32_t seq;
    uint16_t fragment;
    uint16_t fragments;
    uint16_t len;
    const uint8_t *payload;
} gs_frame_t;

static inline bool gs_frame_is_data(const gs_frame_t *frame)
{
    return frame->type >= GS_DATA_TYPE_MIN;
}

/* Payload bytes that fit a frame. */
static inline uint32_t gs_wire_room(uint32_t mtu, bool tagged)
{
    return mtu - GS_HEADER_BYTES - (tagged ? GS_TAG_BYTES : 0);
}

/* Write a frame; `key` NULL: without a tag. `out` has room for header, payload and tag. Returns the bytes. */
size_t gs_wire_pack(const gs_frame_t *frame, const gs_hmac_key_t *key, uint8_t *out);

/* Read a frame; its payload points into `data`. Returns 0, or why to drop it: GS_METRIC_DROPPED_LENGTH, _VERSION, _TAG
   or _MALFORMED. With a key, only a valid tag passes. */
uint32_t gs_wire_parse(gs_frame_t *frame, const uint8_t *data, size_t len, const gs_hmac_key_t *key);

/* Sequence numbers seen of one source; zeros: none. */
typedef struct {
    uint64_t seen; /* bit d: greatest - d was seen */
    uint32_t greatest;
    uint32_t unused;
} gs_window_t;

/* Whether seq is neither seen nor too old to tell. Remembering it is another step, for frames that pass all checks. */
bool gs_window_is_new(const gs_window_t *window, uint32_t seq);
void gs_window_note(gs_window_t *window, uint32_t seq);

/* Incomplete messages: `places` of them, each with room for `place_bytes`. None where no message needs two frames. */
typedef struct {
    uint32_t first_seq;
    uint32_t len;
    uint32_t age; /* 0: free; else the order in which places were taken */
    uint16_t src;
    uint16_t next; /* fragment due */
    uint16_t fragments;
    uint8_t type;
} gs_place_t;

typedef struct {
    gs_place_t *places;
    uint8_t *bytes;
    size_t place_bytes;
    uint32_t count;
    uint32_t age;
    uint32_t dropped; /* as SPEC.md 9.3 counts; the caller may take it away */
} gs_reassembly_t;

void gs_reassembly_init(gs_reassembly_t *held, gs_place_t *places, uint8_t *bytes, size_t place_bytes, uint32_t count);

typedef enum {
    GS_TAKE_DROPPED,
    GS_TAKE_MORE, /* received; the message is not complete */
    GS_TAKE_COMPLETE,
} gs_take_t;

/* Take a frame. When it completes a message, that is in *message until the next call. */
gs_take_t gs_reassembly_take(gs_reassembly_t *held, const gs_frame_t *frame, const uint8_t **message, size_t *len);

/* Drop what is incomplete. */
void gs_reassembly_close(gs_reassembly_t *held);

#endif
