#include "gs_wire.h"

#include <string.h>

#include "gs_bytes.h"

#define TAGGED 1u

size_t gs_wire_pack(const gs_frame_t *frame, const gs_hmac_key_t *key, uint8_t *out)
{
    out[0] = GS_WIRE_VERSION;
    out[1] = frame->type;
    out[2] = key ? TAGGED : 0;
    out[3] = 0;
    gs_store_u16(out + 4, frame->src);
    gs_store_u16(out + 6, frame->dst);
    gs_store_u32(out + 8, frame->round);
    gs_store_u32(out + 12, frame->seq);
    gs_store_u16(out + 16, frame->fragment);
    gs_store_u16(out + 18, frame->fragments);
    gs_store_u16(out + 20, frame->len);
    if (frame->len) {
        memcpy(out + GS_HEADER_BYTES, frame->payload, frame->len);
    }
    const size_t covered = GS_HEADER_BYTES + (size_t)frame->len;
    if (!key) {
        return covered;
    }
    uint8_t tag[GS_SHA256_BYTES];
    gs_hmac(key, out, covered, tag);
    memcpy(out + covered, tag, GS_TAG_BYTES);
    return covered + GS_TAG_BYTES;
}

uint32_t gs_wire_parse(gs_frame_t *frame, const uint8_t *data, size_t len, const gs_hmac_key_t *key)
{
    if (len < GS_HEADER_BYTES) {
        return GS_METRIC_DROPPED_LENGTH;
    }
    const bool tagged = data[2] & TAGGED;
    frame->len = gs_load_u16(data + 20);
    const size_t covered = GS_HEADER_BYTES + (size_t)frame->len;
    if (len != covered + (tagged ? GS_TAG_BYTES : 0)) {
        return GS_METRIC_DROPPED_LENGTH;
    }
    if (data[0] != GS_WIRE_VERSION) {
        return GS_METRIC_DROPPED_VERSION;
    }
    if (key) {
        uint8_t tag[GS_SHA256_BYTES];
        uint8_t differences = !tagged;
        gs_hmac(key, data, covered, tag);
        for (size_t i = 0; tagged && i < GS_TAG_BYTES; ++i) { /* all bytes: the time must not tell how many agree */
            differences = (uint8_t)(differences | (tag[i] ^ data[covered + i]));
        }
        if (differences) {
            return GS_METRIC_DROPPED_TAG;
        }
    }
    frame->type = data[1];
    frame->src = gs_load_u16(data + 4);
    frame->dst = gs_load_u16(data + 6);
    frame->round = gs_load_u32(data + 8);
    frame->seq = gs_load_u32(data + 12);
    frame->fragment = gs_load_u16(data + 16);
    frame->fragments = gs_load_u16(data + 18);
    frame->payload = data + GS_HEADER_BYTES;
    if (data[2] & ~TAGGED || data[3] || frame->fragment >= frame->fragments) {
        return GS_METRIC_DROPPED_MALFORMED;
    }
    return 0;
}

bool gs_window_is_new(const gs_window_t *window, uint32_t seq)
{
    if (seq > window->greatest) {
        return true;
    }
    const uint32_t behind = window->greatest - seq;
    return behind < GS_REPLAY_WINDOW && !(window->seen >> behind & 1);
}

void gs_window_note(gs_window_t *window, uint32_t seq)
{
    if (seq <= window->greatest) {
        window->seen |= (uint64_t)1 << (window->greatest - seq);
        return;
    }
    const uint32_t ahead = seq - window->greatest;
    window->seen = ahead < GS_REPLAY_WINDOW ? window->seen << ahead | 1 : 1;
    window->greatest = seq;
}

void gs_reassembly_init(gs_reassembly_t *held, gs_place_t *places, uint8_t *bytes, size_t place_bytes, uint32_t count)
{
    held->places = places;
    held->bytes = bytes;
    held->place_bytes = place_bytes;
    held->count = count;
    held->age = 0;
    held->dropped = 0;
    if (count) {
        memset(places, 0, count * sizeof *places);
    }
}

static void close_place(gs_reassembly_t *held, gs_place_t *place)
{
    held->dropped += place->age != 0;
    place->age = 0;
}

/* Open a message, unless it is larger than any legal one: all its fragments but the last are as long as the first. */
static gs_place_t *open_place(gs_reassembly_t *held, const gs_frame_t *frame)
{
    gs_place_t *oldest = held->places;
    if (held->count == 0 || (uint64_t)frame->len * (frame->fragments - 1u) >= held->place_bytes) {
        return NULL;
    }
    for (uint32_t i = 0; i < held->count; ++i) {
        if (held->places[i].age < oldest->age) {
            oldest = &held->places[i]; /* a free one has age 0 */
        }
    }
    close_place(held, oldest);
    *oldest = (gs_place_t){.first_seq = frame->seq,
                           .age = ++held->age,
                           .src = frame->src,
                           .fragments = frame->fragments,
                           .type = frame->type};
    return oldest;
}

static gs_place_t *find_place(gs_reassembly_t *held, const gs_frame_t *frame)
{
    for (uint32_t i = 0; i < held->count; ++i) {
        gs_place_t *place = &held->places[i];
        if (place->age && place->src == frame->src && place->type == frame->type &&
            place->first_seq == frame->seq - frame->fragment) {
            return place;
        }
    }
    return NULL;
}

gs_take_t gs_reassembly_take(gs_reassembly_t *held, const gs_frame_t *frame, const uint8_t **message, size_t *len)
{
    if (frame->fragments == 1) {
        *message = frame->payload;
        *len = frame->len;
        return GS_TAKE_COMPLETE;
    }
    gs_place_t *place = frame->fragment == 0 ? open_place(held, frame) : find_place(held, frame);
    if (!place) {
        ++held->dropped;
        return GS_TAKE_DROPPED;
    }
    if (place->next != frame->fragment || place->fragments != frame->fragments ||
        frame->len > held->place_bytes - place->len) {
        close_place(held, place);
        ++held->dropped;
        return GS_TAKE_DROPPED;
    }
    uint8_t *bytes = held->bytes + (size_t)(place - held->places) * held->place_bytes;
    memcpy(bytes + place->len, frame->payload, frame->len);
    place->len += frame->len;
    if (++place->next < place->fragments) {
        return GS_TAKE_MORE;
    }
    place->age = 0;
    *message = bytes;
    *len = place->len;
    return GS_TAKE_COMPLETE;
}

void gs_reassembly_close(gs_reassembly_t *held)
{
    for (uint32_t i = 0; i < held->count; ++i) {
        close_place(held, &held->places[i]);
    }
}
