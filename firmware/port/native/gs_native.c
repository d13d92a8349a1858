#include "gs_native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gs_bytes.h"
#include "gs_node.h"

#define ALIGNMENT 64u /* a cache line: nodes of different threads share none */

typedef struct {
    uint8_t *bytes;
    size_t len;
    size_t capacity;
} buffer_t;

struct gs_native {
    gs_node_t node;
    void *arena;
    buffer_t sent;
    buffer_t slots[2];
};

/* Room for `more` bytes at the end, or NULL. */
static uint8_t *extend(buffer_t *buffer, size_t more)
{
    if (buffer->len + more > buffer->capacity) {
        const size_t capacity = 2 * buffer->capacity + more;
        uint8_t *bytes = realloc(buffer->bytes, capacity);
        if (!bytes) {
            return NULL;
        }
        buffer->bytes = bytes;
        buffer->capacity = capacity;
    }
    uint8_t *end = buffer->bytes + buffer->len;
    buffer->len += more;
    return end;
}

static void on_send(void *ctx, const uint8_t *frame, size_t len)
{
    gs_native_t *native = ctx;
    uint8_t *out = extend(&native->sent, 4 + len);
    if (!out) {
        abort(); /* a frame lost here would be a wrong result, not an error anybody sees */
    }
    gs_store_u32(out, (uint32_t)len);
    memcpy(out + 4, frame, len);
}

static gs_err_t on_kv_put(void *ctx, uint32_t slot, const uint8_t *data, size_t len)
{
    buffer_t *kept = &((gs_native_t *)ctx)->slots[slot];
    kept->len = 0;
    uint8_t *out = extend(kept, len);
    if (!out) {
        return GS_ERR_CAPACITY;
    }
    memcpy(out, data, len);
    return GS_OK;
}

static size_t on_kv_get(void *ctx, uint32_t slot, uint8_t *data, size_t capacity)
{
    const buffer_t *kept = &((gs_native_t *)ctx)->slots[slot];
    if (kept->len && kept->len <= capacity) {
        memcpy(data, kept->bytes, kept->len);
    }
    return kept->len <= capacity ? kept->len : 0;
}

static int start(gs_native_t *native, uint16_t id, const uint8_t *key, const uint8_t *image, size_t image_len)
{
    gs_config_t config;
    uint32_t bad_word;
    const gs_err_t err = gs_config_load(&config, image, image_len, &bad_word);
    if (err) {
        return err;
    }
    const size_t bytes = (gs_node_arena_bytes(&config, NULL, NULL) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    native->arena = aligned_alloc(ALIGNMENT, bytes);
    if (!native->arena) {
        return 1;
    }
    const gs_port_t port = {native, on_send, on_kv_put, on_kv_get, NULL};
    return gs_node_init(&native->node, id, key, &port, image, image_len, native->arena, bytes);
}

gs_native_t *gs_native_open(uint16_t id, const uint8_t *key, const uint8_t *image, size_t image_len,
                            const uint8_t *slot0, size_t slot0_len, const uint8_t *slot1, size_t slot1_len, int *err)
{
    gs_native_t *native = calloc(1, sizeof *native);
    *err = 1;
    if (!native) {
        return NULL;
    }
    if (!(slot0_len && on_kv_put(native, 0, slot0, slot0_len)) &&
        !(slot1_len && on_kv_put(native, 1, slot1, slot1_len))) {
        *err = start(native, id, key, image, image_len);
    }
    if (*err) {
        gs_native_close(native);
        return NULL;
    }
    return native;
}

void gs_native_close(gs_native_t *native)
{
    if (native) {
        free(native->sent.bytes);
        free(native->slots[0].bytes);
        free(native->slots[1].bytes);
        free(native->arena);
        free(native);
    }
}

static void work(gs_native_t *native)
{
    while (gs_node_step(&native->node)) {
    }
}

void gs_native_run(gs_native_t *native, const uint8_t *frames, size_t len)
{
    for (size_t at = 0; len - at >= 4;) {
        const size_t frame_len = gs_load_u32(frames + at);
        at += 4;
        if (frame_len > len - at) {
            break;
        }
        (void)gs_node_on_frame(&native->node, frames + at, frame_len);
        at += frame_len;
        work(native);
    }
}

const uint8_t *gs_native_sent(const gs_native_t *native, size_t *len)
{
    *len = native->sent.len;
    return native->sent.bytes;
}

void gs_native_clear(gs_native_t *native)
{
    native->sent.len = 0;
}

const uint8_t *gs_native_slot(const gs_native_t *native, uint32_t slot, size_t *len)
{
    *len = native->slots[slot].len;
    return native->slots[slot].bytes;
}

const float *gs_native_weights(const gs_native_t *native, size_t *count)
{
    *count = native->node.config.model.parameters;
    return native->node.w;
}

size_t gs_native_arena(const uint8_t *image, size_t image_len, char *text, size_t text_len)
{
    gs_config_t config;
    uint32_t bad_word;
    gs_arena_part_t parts[GS_ARENA_PARTS];
    size_t n_parts;
    size_t at = 0;
    if (gs_config_load(&config, image, image_len, &bad_word)) {
        return 0;
    }
    const size_t bytes = gs_node_arena_bytes(&config, parts, &n_parts);
    for (size_t i = 0; i < n_parts && at < text_len; ++i) {
        const int more = snprintf(text + at, text_len - at, "%zu %s\n", parts[i].bytes, parts[i].name);
        at += more > 0 ? (size_t)more : 0;
    }
    at += at < text_len ? (size_t)snprintf(text + at, text_len - at, "%zu node\n", sizeof(gs_node_t)) : 0;
    return bytes + sizeof(gs_node_t);
}

const char *gs_native_error(int err)
{
    return err == 1 ? "out of memory" : gs_err_text((gs_err_t)err);
}
