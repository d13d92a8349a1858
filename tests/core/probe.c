/* A node for tests: what it sends and keeps is held, and its insides can be looked at. */
#include <stdlib.h>
#include <string.h>

#include "gs_bytes.h"
#include "gs_node.h"

typedef struct {
    uint8_t *bytes;
    size_t len;
} kept_t;

typedef struct {
    gs_node_t node;
    void *arena;
    kept_t sent; /* each frame after its length, u32 */
    kept_t slots[2];
    int broken_store; /* kv_put fails */
    gs_model_t model;
} probe_t;

static uint8_t *grow(kept_t *kept, size_t len)
{
    kept->bytes = realloc(kept->bytes, kept->len + len + 1);
    kept->len += len;
    return kept->bytes + kept->len - len;
}

static void on_send(void *ctx, const uint8_t *frame, size_t len)
{
    uint8_t *out = grow(&((probe_t *)ctx)->sent, 4 + len);
    gs_store_u32(out, (uint32_t)len);
    memcpy(out + 4, frame, len);
}

void probe_set_slot(probe_t *probe, uint32_t slot, const uint8_t *data, size_t len)
{
    probe->slots[slot].len = 0;
    uint8_t *out = grow(&probe->slots[slot], len);
    if (len) {
        memcpy(out, data, len);
    }
}

static gs_err_t on_kv_put(void *ctx, uint32_t slot, const uint8_t *data, size_t len)
{
    probe_t *probe = ctx;
    if (probe->broken_store) {
        return GS_ERR_CHECKPOINT;
    }
    probe_set_slot(probe, slot, data, len);
    return GS_OK;
}

static size_t on_kv_get(void *ctx, uint32_t slot, uint8_t *data, size_t capacity)
{
    const kept_t *kept = &((probe_t *)ctx)->slots[slot];
    if (kept->len == 0 || kept->len > capacity) {
        return 0;
    }
    memcpy(data, kept->bytes, kept->len);
    return kept->len;
}

probe_t *probe_new(void)
{
    return calloc(1, sizeof(probe_t));
}

void probe_free(probe_t *probe)
{
    free(probe->arena);
    free(probe->sent.bytes);
    free(probe->slots[0].bytes);
    free(probe->slots[1].bytes);
    free(probe);
}

/* Start the node in an arena of exactly the bytes it asks for, less `missing`. */
int probe_start(probe_t *probe, uint16_t id, const uint8_t *key, const uint8_t *image, size_t len, int store,
                size_t missing)
{
    const gs_port_t port = {probe, on_send, store ? on_kv_put : NULL, store ? on_kv_get : NULL, NULL};
    gs_config_t config;
    uint32_t bad_word;
    const gs_err_t err = gs_config_load(&config, image, len, &bad_word);
    if (err) {
        return err;
    }
    const size_t bytes = gs_node_arena_bytes(&config, NULL, NULL) - missing;
    probe->arena = malloc(bytes);
    memset(probe->arena, 0xa5, bytes); /* nothing may rely on zeros */
    return gs_node_init(&probe->node, id, key, &port, image, len, probe->arena, bytes);
}

int probe_frame(probe_t *probe, const uint8_t *frame, size_t len)
{
    return gs_node_on_frame(&probe->node, frame, len);
}

int probe_step(probe_t *probe)
{
    return gs_node_step(&probe->node);
}

void probe_hello(probe_t *probe)
{
    gs_node_hello(&probe->node);
}

void probe_note_garbage(probe_t *probe, uint32_t runs)
{
    gs_node_note_garbage(&probe->node, runs);
}

int probe_stopped(const probe_t *probe)
{
    return gs_node_stopped(&probe->node);
}

void probe_break_store(probe_t *probe, int broken)
{
    probe->broken_store = broken;
}

const uint8_t *probe_sent(const probe_t *probe, size_t *len)
{
    *len = probe->sent.len;
    return probe->sent.bytes;
}

void probe_clear(probe_t *probe)
{
    probe->sent.len = 0;
}

const uint8_t *probe_slot(const probe_t *probe, uint32_t slot, size_t *len)
{
    *len = probe->slots[slot].len;
    return probe->slots[slot].bytes;
}

/* All that a checkpoint would hold. */
const uint8_t *probe_state(const probe_t *probe, size_t *len)
{
    *len = probe->node.checkpoint_bytes;
    return probe->node.arena;
}

const float *probe_weights(const probe_t *probe, uint32_t *count)
{
    *count = probe->node.config.model.parameters;
    return probe->node.w;
}

uint32_t probe_counter(const probe_t *probe, uint32_t word)
{
    return probe->node.counters[word];
}

int probe_config(const uint8_t *image, size_t len, uint32_t *bad_word)
{
    gs_config_t config;
    return gs_config_load(&config, image, len, bad_word);
}

/* Read a model from the words of an image; NULL if one of them is wrong. */
const gs_model_t *probe_model(probe_t *probe, const uint8_t *words)
{
    return gs_model_read(&probe->model, words, false) == GS_CFG_WORDS ? &probe->model : NULL;
}

/* Bytes of the arena and of the node, and the sum of the arena's parts, each aligned. */
void probe_memory(const uint8_t *image, size_t len, size_t *arena, size_t *node, size_t *sum)
{
    gs_config_t config;
    uint32_t bad_word;
    gs_arena_part_t parts[GS_ARENA_PARTS];
    size_t count;
    *sum = 0;
    *node = sizeof(gs_node_t);
    *arena = 0;
    if (gs_config_load(&config, image, len, &bad_word) == GS_OK) {
        *arena = gs_node_arena_bytes(&config, parts, &count);
        for (size_t i = 0; i < count; ++i) {
            *sum += (parts[i].bytes + 7) / 8 * 8;
        }
    }
}

/* Run the learning-rate rules over rounds 0, 1, ... with these losses; `used` and `after` take the rates. */
void probe_rates(const uint8_t *image, size_t len, const float *losses, uint32_t count, float *used, float *after)
{
    gs_config_t config;
    gs_lr_t rate;
    uint32_t bad_word;
    if (gs_config_load(&config, image, len, &bad_word) == GS_OK) {
        gs_lr_init(&rate, &config);
        for (uint32_t round = 0; round < count; ++round) {
            gs_lr_begin_round(&rate, &config, round);
            used[round] = rate.lr;
            gs_lr_see_loss(&rate, &config, losses[round]);
            after[round] = rate.lr;
        }
    }
}
