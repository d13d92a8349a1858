#include "gs_node_internal.h"

/* --- sending ---------------------------------------------------------------------------------------------------- */

void gs_node_send(gs_node_t *node, uint8_t type, uint16_t dst, const uint8_t *payload, size_t len)
{
    const gs_hmac_key_t *key = node->config.auth ? &node->key : NULL;
    const size_t room = gs_wire_room(node->config.mtu, key != NULL);
    const size_t fragments = len ? (len + room - 1) / room : 1;
    uint32_t *seq = type >= GS_DATA_TYPE_MIN ? &node->state->data_seq : &node->state->control_seq;
    for (size_t i = 0; i < fragments; ++i) {
        const size_t rest = len - i * room;
        const gs_frame_t frame = {
            .type = type,
            .src = node->id,
            .dst = dst,
            .round = node->round,
            .seq = ++*seq,
            .fragment = (uint16_t)i,
            .fragments = (uint16_t)fragments,
            .len = (uint16_t)(rest < room ? rest : room),
            .payload = payload + i * room,
        };
        const size_t bytes = gs_wire_pack(&frame, key, node->frame);
        if (type >= GS_DATA_TYPE_MIN) {
            ++node->counters[GS_METRIC_FRAMES_SENT];
            node->counters[GS_METRIC_BYTES_SENT] += (uint32_t)bytes;
        }
        node->port.send(node->port.ctx, node->frame, bytes);
    }
}

void gs_node_tell(gs_node_t *node, uint8_t type, const uint8_t *payload, size_t len)
{
    gs_node_send(node, type, GS_COORDINATOR, payload, len);
}

void gs_node_tell_number(gs_node_t *node, uint8_t type, uint32_t number)
{
    uint8_t payload[4];
    gs_store_u32(payload, number);
    gs_node_tell(node, type, payload, sizeof payload);
}

static gs_err_t tell_error(gs_node_t *node, gs_err_t err)
{
    const char *text = gs_err_text(err);
    size_t len = 4;
    gs_store_u32(node->message, (uint32_t)(int32_t)err);
    while (*text) {
        node->message[len++] = (uint8_t)*text++;
    }
    gs_node_tell(node, GS_MESSAGE_ERROR, node->message, len);
    return err;
}

/* --- starting --------------------------------------------------------------------------------------------------- */

gs_err_t gs_node_init(gs_node_t *node, uint16_t id, const uint8_t key[GS_KEY_BYTES], const gs_port_t *port,
                      const uint8_t *image, size_t image_len, void *arena, size_t arena_len)
{
    uint32_t bad_word;
    memset(node, 0, sizeof *node);
    const gs_err_t err = gs_config_load(&node->config, image, image_len, &bad_word);
    if (err) {
        return err;
    }
    if (arena_len < gs_node_arena_bytes(&node->config, NULL, NULL)) {
        return GS_ERR_ARENA;
    }
    node->id = id;
    node->port = *port;
    node->arena = arena;
    node->arena_len = arena_len;
    gs_hmac_init(&node->key, key, GS_KEY_BYTES);
    gs_memory_lay_out(node);

    for (uint32_t slot = 0; slot < 2; ++slot) {
        node->slot_rounds[slot] = gs_memory_load(node, slot);
    }
    gs_memory_start_anew(node);
    gs_node_hello(node);
    return GS_OK;
}

void gs_node_hello(gs_node_t *node)
{
    if (node->welcomed) {
        return;
    }
    const uint32_t newest = node->slot_rounds[1] > node->slot_rounds[0];
    uint8_t hello[20];
    gs_store_u16(hello, GS_SPEC_VERSION);
    gs_store_u16(hello + 2, GS_WIRE_VERSION);
    gs_store_u32(hello + 4, node->config.image_crc);
    gs_store_u32(hello + 8, node->slot_rounds[newest]);
    gs_store_u32(hello + 12, node->slot_rounds[!newest]);
    gs_store_u32(hello + 16, (uint32_t)node->arena_len);
    gs_node_tell(node, GS_MESSAGE_HELLO, hello, sizeof hello);
}

static gs_err_t on_welcome(gs_node_t *node, const uint8_t *payload, size_t len)
{
    if (len != 4) {
        return GS_ERR_MALFORMED;
    }
    if (node->welcomed) {
        return gs_load_u32(payload) == node->state->rounds_done ? GS_OK : GS_ERR_STATE;
    }
    const gs_err_t err = gs_memory_continue(node, gs_load_u32(payload));
    node->welcomed = err == GS_OK;
    return err;
}

/* Check the shard that is now complete and choose the validation samples (SPEC.md 4.1). */
static gs_err_t take_shard(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const uint32_t samples = gs_load_u32(node->shard + 4);
    if (gs_load_u32(node->shard) != node->id || samples < 2 || samples > config->shard_max ||
        node->shard_total != gs_memory_shard_bytes(config, samples)) {
        return GS_ERR_SHARD;
    }
    node->samples = config->test;
    node->samples.labels = node->shard + 8;
    node->samples.features = node->shard + 8 + (samples + 3) / 4 * (size_t)4;
    for (uint32_t i = 0; i < samples; ++i) {
        if (node->samples.labels[i] >= config->model.classes) {
            return GS_ERR_SHARD;
        }
        node->lists[i] = (uint16_t)i;
    }
    uint32_t held_out = samples * config->val_permille / 1000;
    if (config->val_permille > 0 && held_out == 0) {
        held_out = 1;
    }
    node->n_val = gs_min_u32(held_out, samples - 1);
    node->n_train = samples - node->n_val;
    gs_rng_t rng;
    gs_rng_init(&rng, config->seed, GS_STREAM_SPLIT, 0, node->id);
    for (uint32_t t = 0; t < node->n_val; ++t) {
        const uint32_t j = t + gs_rng_below(gs_rng_at(&rng, t), samples - t);
        const uint16_t chosen = node->lists[j];
        node->lists[j] = node->lists[t];
        node->lists[t] = chosen;
    }
    node->provisioned = true;
    return GS_OK;
}

static gs_err_t on_provision(gs_node_t *node, const uint8_t *payload, size_t len)
{
    if (len < 8) {
        return GS_ERR_MALFORMED;
    }
    const uint32_t total = gs_load_u32(payload);
    const uint32_t offset = gs_load_u32(payload + 4);
    const uint32_t piece = (uint32_t)len - 8;
    if (total < 8 || total > gs_memory_shard_bytes(&node->config, node->config.shard_max) ||
        (node->shard_held && total != node->shard_total) || offset > total || piece > total - offset) {
        return GS_ERR_SHARD;
    }
    gs_err_t err = GS_OK;
    if (!node->provisioned && offset == node->shard_held) {
        memcpy(node->shard + offset, payload + 8, piece);
        node->shard_total = total;
        node->shard_held += piece;
        if (node->shard_held == total) {
            err = take_shard(node);
            node->shard_held = err ? 0 : total;
        }
    }
    if (!err) {
        gs_node_tell_number(node, GS_MESSAGE_ACK, node->shard_held);
    }
    return err;
}

/* Whether a round is under way and not yet being merged: the time for data. */
static bool is_open(const gs_node_t *node)
{
    return node->phase == GS_PHASE_IDLE ? node->sharing_done : node->phase < GS_PHASE_MERGE;
}

static gs_err_t on_peers(gs_node_t *node, const uint8_t *payload, size_t len)
{
    if (len < 2 || len != 2 + 2 * (size_t)gs_load_u16(payload)) {
        return GS_ERR_MALFORMED;
    }
    const uint32_t count = gs_load_u16(payload);
    if (count > node->config.peers_max) {
        return GS_ERR_PEERS;
    }
    if (!node->welcomed) {
        return GS_ERR_STATE; /* the checkpoint to come has its own list */
    }
    bool same = count == node->state->peers;
    for (uint32_t i = 0; i < count; ++i) {
        const uint16_t peer = gs_load_u16(payload + 2 + 2 * (size_t)i);
        if (peer == node->id || (i > 0 && peer <= gs_load_u16(payload + 2 * (size_t)i))) {
            return GS_ERR_PEERS;
        }
        same = same && node->peers[i].id == peer;
    }
    if (!same && is_open(node)) {
        return GS_ERR_STATE; /* what is noted of peers goes by their places in the list */
    }
    if (!same) {
        memset(node->peers, 0, node->config.peers_max * sizeof *node->peers);
        for (uint32_t i = 0; i < count; ++i) {
            node->peers[i].id = gs_load_u16(payload + 2 + 2 * (size_t)i);
        }
        node->state->peers = count;
        node->state->cursor = 0;
    }
    return GS_OK;
}

/* --- receiving -------------------------------------------------------------------------------------------------- */

static gs_err_t on_sync(gs_node_t *node, uint32_t round)
{
    if (round != node->round || !node->sharing_done ||
        (node->phase != GS_PHASE_IDLE && node->phase != GS_PHASE_ANSWER)) {
        return GS_ERR_STATE;
    }
    node->phase = GS_PHASE_ANSWER;
    return GS_OK;
}

static gs_err_t on_commit(gs_node_t *node, uint32_t round)
{
    if (round != node->round) {
        return GS_ERR_STATE;
    }
    if (node->phase == GS_PHASE_MERGE || node->phase == GS_PHASE_EVALUATE) {
        return GS_OK; /* the answer is under way */
    }
    if (gs_round_is_committed(node) && node->reported) { /* after a restart the measurements are gone */
        gs_round_tell_metrics(node);
        return GS_OK;
    }
    if (!node->sharing_done || node->phase != GS_PHASE_IDLE) {
        return GS_ERR_STATE;
    }
    node->phase = GS_PHASE_MERGE;
    return GS_OK;
}

static gs_err_t on_control(gs_node_t *node, const gs_frame_t *frame, const uint8_t *message, size_t len)
{
    switch (frame->type) {
    case GS_MESSAGE_WELCOME:
        return on_welcome(node, message, len);
    case GS_MESSAGE_PROVISION:
        return on_provision(node, message, len);
    case GS_MESSAGE_PEERS:
        return on_peers(node, message, len);
    default:
        break;
    }
    if (len) {
        return GS_ERR_MALFORMED;
    }
    switch (frame->type) {
    case GS_MESSAGE_ROUND:
        return gs_round_begin(node, frame->round);
    case GS_MESSAGE_SYNC:
        return on_sync(node, frame->round);
    case GS_MESSAGE_COMMIT:
        return on_commit(node, frame->round);
    case GS_MESSAGE_STOP:
        node->phase = GS_PHASE_STOPPED;
        return GS_OK;
    default:
        return GS_ERR_MALFORMED;
    }
}

static gs_err_t drop(gs_node_t *node, uint32_t reason)
{
    ++node->counters[reason];
    return GS_ERR_FRAME;
}

/* The place of a source in the peer list (binary search), or UINT32_MAX. */
static uint32_t find_peer(const gs_node_t *node, uint16_t id)
{
    uint32_t low = 0;
    uint32_t high = node->state->peers;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (node->peers[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < node->state->peers && node->peers[low].id == id ? low : UINT32_MAX;
}

static gs_err_t take_message(gs_node_t *node, const gs_frame_t *frame, uint32_t peer, const uint8_t *message,
                             size_t len)
{
    switch (frame->type) {
    case GS_MESSAGE_SEGMENT:
        return gs_merge_on_segment(node, message, len);
    case GS_MESSAGE_PULL:
        return gs_policy_on_pull(node, peer, message, len);
    default:
        return gs_frame_is_data(frame) ? GS_ERR_MALFORMED : on_control(node, frame, message, len);
    }
}

gs_err_t gs_node_on_frame(gs_node_t *node, const uint8_t *bytes, size_t bytes_len)
{
    gs_frame_t frame;
    const uint32_t reason = gs_wire_parse(&frame, bytes, bytes_len, node->config.auth ? &node->key : NULL);
    if (reason) {
        return drop(node, reason);
    }
    const bool data = gs_frame_is_data(&frame);
    const uint32_t peer = data ? find_peer(node, frame.src) : UINT32_MAX;
    if (frame.dst != node->id || (data ? peer == UINT32_MAX : frame.src != GS_COORDINATOR)) {
        return drop(node, GS_METRIC_DROPPED_PEER);
    }
    if (data && (!is_open(node) || frame.round != node->round)) {
        return drop(node, GS_METRIC_DROPPED_STALE);
    }
    gs_window_t *window = data ? &node->peers[peer].window : &node->state->coordinator;
    if (!gs_window_is_new(window, frame.seq)) {
        return drop(node, GS_METRIC_DROPPED_REPLAY);
    }
    const uint8_t *message = NULL;
    size_t len = 0;
    const gs_take_t taken = gs_reassembly_take(&node->reassembly, &frame, &message, &len);
    gs_round_count_reassembly(node);
    if (taken == GS_TAKE_DROPPED) {
        return GS_ERR_FRAME;
    }
    gs_err_t err = GS_OK;
    if (taken == GS_TAKE_COMPLETE) {
        err = take_message(node, &frame, peer, message, len);
    }
    if (err == GS_ERR_MALFORMED) {
        return drop(node, GS_METRIC_DROPPED_MALFORMED);
    }
    gs_window_note(window, frame.seq);
    if (err) {
        return tell_error(node, err);
    }
    node->counters[GS_METRIC_FRAMES_RECEIVED] += data;
    node->counters[GS_METRIC_BYTES_RECEIVED] += data ? (uint32_t)bytes_len : 0;
    return GS_OK;
}

void gs_node_note_garbage(gs_node_t *node, uint32_t runs)
{
    node->counters[GS_METRIC_DROPPED_GARBAGE] += runs;
}

bool gs_node_stopped(const gs_node_t *node)
{
    return node->phase == GS_PHASE_STOPPED;
}
