#include "gs_crc.h"
#include "gs_node_internal.h"

#define CHECKPOINT_MAGIC 0x4b435347u /* "GSCK" */
#define MESSAGE_BYTES_MIN 256u       /* METRICS of GS_LAYERS_MAX layers fit */

/* Ahead of the state in the arena, and of every checkpoint. */
typedef struct {
    uint32_t magic;
    uint32_t len;
    uint32_t rounds;
    uint32_t image_crc;
    uint32_t id;
    uint32_t crc; /* of what follows */
} checkpoint_t;

/* --- memory ----------------------------------------------------------------------------------------------------- */

enum {
    PART_STATE,
    PART_WEIGHTS,
    PART_VELOCITY,
    PART_RESIDUAL,
    PART_REFERENCE,
    PART_FIFO,
    PART_PEERS, /* a checkpoint ends here */
    PART_START,
    PART_GRADIENT,
    PART_AVERAGE,
    PART_ACTIVATIONS,
    PART_SHARD,
    PART_LISTS,
    PART_POLICY,
    PART_REASSEMBLY,
    PARTS,
};

_Static_assert(PARTS <= GS_ARENA_PARTS, "a caller's array of parts is too short");

static size_t aligned(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

static size_t greater(size_t a, size_t b)
{
    return a > b ? a : b;
}

static bool keeps_average(const gs_config_t *config)
{
    return config->policy == GS_POLICY_GIST && config->score >= GS_SCORE_GRADIENT;
}

static size_t shard_bytes(const gs_config_t *config, uint32_t samples)
{
    return 8 + ((size_t)samples + 3) / 4 * 4 + (size_t)samples * config->row_bytes;
}

static size_t message_bytes(const gs_config_t *config)
{
    return greater(gs_policy_message_bytes(config), MESSAGE_BYTES_MIN);
}

/* Room for the longest message that comes in fragments; 0 if every message fits a frame. */
static size_t reassembly_bytes(const gs_config_t *config)
{
    const size_t peers = 2 + 2 * (size_t)config->peers_max;
    const size_t data = gs_policy_message_bytes(config);
    const size_t longest = greater(data, peers);
    return longest > gs_wire_room(config->mtu, config->auth) ? aligned(longest) : 0;
}

static uint32_t reassembly_places(const gs_config_t *config)
{
    return reassembly_bytes(config) ? config->reassembly : 0;
}

static void list_parts(const gs_config_t *config, gs_arena_part_t parts[PARTS])
{
    const size_t floats = config->parameters * sizeof(float);
    const size_t fifo = config->fifo;
    const size_t listed = 2 * (size_t)config->shard_max + config->batch;
    parts[PART_STATE] = (gs_arena_part_t){"state", sizeof(checkpoint_t) + sizeof(gs_state_t)};
    parts[PART_WEIGHTS] = (gs_arena_part_t){"weights", floats};
    parts[PART_VELOCITY] = (gs_arena_part_t){"velocity", config->momentum != 0.0f ? floats : 0};
    parts[PART_RESIDUAL] = (gs_arena_part_t){"residual", config->error_feedback ? floats : 0};
    parts[PART_REFERENCE] = (gs_arena_part_t){"reference", config->policy == GS_POLICY_TOPK ? floats : 0};
    parts[PART_FIFO] =
        (gs_arena_part_t){"fifo", aligned(fifo * sizeof(uint32_t)) + fifo * gs_merge_place_bytes(config)};
    parts[PART_PEERS] = (gs_arena_part_t){"peers", config->peers_max * sizeof(gs_peer_t)};
    parts[PART_START] = (gs_arena_part_t){"round start", floats};
    parts[PART_GRADIENT] = (gs_arena_part_t){"gradient", floats};
    parts[PART_AVERAGE] = (gs_arena_part_t){"score average", keeps_average(config) ? floats : 0};
    /* Nothing is sent while a batch is in work, and no activation is needed after it: they share their place. */
    parts[PART_ACTIVATIONS] = (gs_arena_part_t){
        "activations, outgoing", greater(gs_nn_scratch_floats(&config->nn, config->batch) * sizeof(float),
                                         aligned(message_bytes(config)) + config->mtu)};
    parts[PART_SHARD] = (gs_arena_part_t){"shard", shard_bytes(config, config->shard_max)};
    parts[PART_LISTS] = (gs_arena_part_t){"sample lists", listed * sizeof(uint16_t)};
    parts[PART_POLICY] = (gs_arena_part_t){"policy", aligned(gs_policy_bytes(config)) + fifo * sizeof(float)};
    parts[PART_REASSEMBLY] = (gs_arena_part_t){
        "reassembly", reassembly_places(config) * (aligned(sizeof(gs_place_t)) + reassembly_bytes(config))};
}

size_t gs_node_arena_bytes(const gs_config_t *config, gs_arena_part_t *parts, size_t *n_parts)
{
    gs_arena_part_t all[PARTS];
    size_t sum = 0;
    list_parts(config, all);
    for (size_t i = 0; i < PARTS; ++i) {
        sum += aligned(all[i].bytes);
    }
    if (parts) {
        memcpy(parts, all, sizeof all);
        *n_parts = PARTS;
    }
    return sum;
}

static void lay_out(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    gs_arena_part_t parts[PARTS];
    uint8_t *at[PARTS + 1];
    list_parts(config, parts);
    at[0] = node->arena;
    for (size_t i = 0; i < PARTS; ++i) {
        at[i + 1] = at[i] + aligned(parts[i].bytes);
    }
#define FLOATS(part) (parts[part].bytes ? (float *)(void *)at[part] : NULL)
    node->checkpoint_bytes = (size_t)(at[PART_PEERS + 1] - node->arena);
    node->state = (gs_state_t *)(void *)(at[PART_STATE] + sizeof(checkpoint_t));
    node->w = FLOATS(PART_WEIGHTS);
    node->velocity = FLOATS(PART_VELOCITY);
    node->residual = FLOATS(PART_RESIDUAL);
    node->reference = FLOATS(PART_REFERENCE);
    node->fifo_lens = (uint32_t *)(void *)at[PART_FIFO];
    node->fifo = at[PART_FIFO] + aligned(config->fifo * sizeof(uint32_t));
    node->peers = (gs_peer_t *)(void *)at[PART_PEERS];
    node->start = FLOATS(PART_START);
    node->gradient = FLOATS(PART_GRADIENT);
    node->average = FLOATS(PART_AVERAGE);
    node->scratch = FLOATS(PART_ACTIVATIONS);
#undef FLOATS
    node->shard = at[PART_SHARD];
    node->lists = (uint16_t *)(void *)at[PART_LISTS];
    node->policy = at[PART_POLICY];
    node->fifo_weights = (float *)(void *)(node->policy + aligned(gs_policy_bytes(config)));
    node->message = at[PART_ACTIVATIONS];
    node->message_bytes = message_bytes(config);
    node->frame = node->message + aligned(node->message_bytes);
    gs_reassembly_init(&node->reassembly, (gs_place_t *)(void *)at[PART_REASSEMBLY],
                       at[PART_REASSEMBLY] + reassembly_places(config) * aligned(sizeof(gs_place_t)),
                       reassembly_bytes(config), reassembly_places(config));
}

/* --- checkpoints (SPEC.md 12) ----------------------------------------------------------------------------------- */

static void note(const gs_node_t *node, const char *text)
{
    if (node->port.log) {
        node->port.log(node->port.ctx, text);
    }
}

static void save_checkpoint(gs_node_t *node)
{
    if (!node->port.kv_put) {
        return;
    }
    checkpoint_t *head = (checkpoint_t *)(void *)node->arena;
    *head = (checkpoint_t){CHECKPOINT_MAGIC,
                           (uint32_t)node->checkpoint_bytes,
                           node->state->rounds_done,
                           node->config.image_crc,
                           node->id,
                           0};
    head->crc = gs_crc32(0, node->arena + sizeof *head, node->checkpoint_bytes - sizeof *head);
    if (node->port.kv_put(node->port.ctx, node->slot, node->arena, node->checkpoint_bytes)) {
        note(node, "checkpoint not written: this round will not survive a restart");
    } else {
        node->slot_rounds[node->slot] = head->rounds;
        node->slot = !node->slot;
    }
}

/* Read a slot over the state. Returns the rounds that it holds, 0 where it is empty, damaged, another node's or of
   another experiment. */
static uint32_t load_checkpoint(gs_node_t *node, uint32_t slot)
{
    if (!node->port.kv_get) {
        return 0;
    }
    const size_t len = node->port.kv_get(node->port.ctx, slot, node->arena, node->checkpoint_bytes);
    const checkpoint_t *head = (const checkpoint_t *)(const void *)node->arena;
    if (len != node->checkpoint_bytes || head->magic != CHECKPOINT_MAGIC || head->len != len ||
        head->image_crc != node->config.image_crc || head->id != node->id ||
        head->crc != gs_crc32(0, node->arena + sizeof *head, len - sizeof *head) ||
        head->rounds != node->state->rounds_done) {
        return 0;
    }
    return head->rounds;
}

static void start_anew(gs_node_t *node)
{
    memset(node->arena, 0, node->checkpoint_bytes);
    gs_nn_init(&node->config.nn, node->config.init, node->config.seed, node->w);
    if (node->reference) {
        memcpy(node->reference, node->w, node->config.parameters * sizeof(float));
    }
    gs_lr_init(&node->state->rate, &node->config);
}

/* Forget what a slot holds: a run that starts anew must not be offered it later. */
static void forget(gs_node_t *node, uint32_t slot)
{
    if (node->slot_rounds[slot] && node->port.kv_put(node->port.ctx, slot, node->arena, 0)) {
        note(node, "an old checkpoint could not be removed");
    }
    node->slot_rounds[slot] = 0;
}

/* Continue from `rounds`; the control sequences belong to this start of the node and stay. The other slot is the next
   to be written: it is either older, or newer than what all nodes hold. */
static gs_err_t continue_from(gs_node_t *node, uint32_t rounds)
{
    const gs_window_t coordinator = node->state->coordinator;
    const uint32_t control_seq = node->state->control_seq;
    const uint32_t slot = node->slot_rounds[1] == rounds;
    gs_err_t err = GS_OK;
    if (rounds == 0) {
        forget(node, 0);
        forget(node, 1);
        start_anew(node);
    } else if (node->slot_rounds[slot] != rounds || load_checkpoint(node, slot) != rounds) {
        err = GS_ERR_CHECKPOINT;
        start_anew(node);
    } else {
        node->slot = !slot;
        node->round = rounds - 1;
    }
    node->state->coordinator = coordinator;
    node->state->control_seq = control_seq;
    return err;
}

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

static void tell(gs_node_t *node, uint8_t type, const uint8_t *payload, size_t len)
{
    gs_node_send(node, type, GS_COORDINATOR, payload, len);
}

static void tell_number(gs_node_t *node, uint8_t type, uint32_t number)
{
    uint8_t payload[4];
    gs_store_u32(payload, number);
    tell(node, type, payload, sizeof payload);
}

static gs_err_t tell_error(gs_node_t *node, gs_err_t err)
{
    const char *text = gs_err_text(err);
    size_t len = 4;
    gs_store_u32(node->message, (uint32_t)(int32_t)err);
    while (*text) {
        node->message[len++] = (uint8_t)*text++;
    }
    tell(node, GS_MESSAGE_ERROR, node->message, len);
    return err;
}

/* Whether the round ends with a test. */
static bool is_tested(const gs_node_t *node)
{
    return (node->round + 1) % node->config.eval_every == 0 || node->round + 1 == node->config.rounds;
}

/* Fill node->report and begin to count anew. */
static void make_report(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    uint32_t *words = node->counters;
    uint8_t *out = node->report;
    const struct {
        uint32_t word;
        float loss;
    } losses[] = {{GS_METRIC_TRAIN_LOSS, node->train_loss},
                  {GS_METRIC_VAL_LOSS, node->val_loss},
                  {GS_METRIC_TEST_LOSS, node->test_loss}};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; ++i) {
        words[losses[i].word] = gs_is_finite(losses[i].loss) ? gs_bits_of(losses[i].loss) : GS_CANONICAL_NAN;
    }
    words[GS_METRIC_ROUND] = node->round;
    words[GS_METRIC_WEIGHTS_CRC] = gs_crc32(0, node->w, config->parameters * sizeof(float));
    words[GS_METRIC_VAL_CORRECT] = node->val_correct;
    words[GS_METRIC_VAL_COUNT] = node->n_val;
    words[GS_METRIC_TEST_CORRECT] = node->test_correct;
    words[GS_METRIC_TEST_COUNT] = is_tested(node) ? config->test_count : 0;
    for (uint32_t i = 0; i < GS_METRIC_WORDS; ++i, out += 4) {
        gs_store_u32(out, words[i]);
    }
    for (uint32_t l = 0; l < config->nn.layers; ++l, out += 8) {
        const float *weights = node->w + gs_nn_offset(&config->nn, l);
        const size_t size = (size_t)config->nn.dims[l] * config->nn.dims[l + 1];
        gs_store_u32(out, gs_crc32(0, weights, size * sizeof(float)));
        gs_store_u32(out + 4, gs_crc32(0, weights + size, config->nn.dims[l + 1] * sizeof(float)));
    }
    memset(node->counters, 0, sizeof node->counters);
    node->reported = true;
}

static void tell_metrics(gs_node_t *node)
{
    const size_t len = 4 * (size_t)GS_METRIC_WORDS + 8 * (size_t)node->config.nn.layers;
    tell(node, GS_MESSAGE_METRICS, node->report, len);
}

/* --- starting --------------------------------------------------------------------------------------------------- */

/* Whether the node's round is committed. */
static bool is_committed(const gs_node_t *node)
{
    return node->state->rounds_done > 0 && node->state->rounds_done - 1 == node->round;
}

/* Whether a round is under way and not yet being merged: the time for data. */
static bool is_open(const gs_node_t *node)
{
    return node->phase == GS_PHASE_IDLE ? node->sharing_done : node->phase < GS_PHASE_MERGE;
}

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
    lay_out(node);

    for (uint32_t slot = 0; slot < 2; ++slot) {
        node->slot_rounds[slot] = load_checkpoint(node, slot);
    }
    start_anew(node);
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
    tell(node, GS_MESSAGE_HELLO, hello, sizeof hello);
}

static gs_err_t on_welcome(gs_node_t *node, const uint8_t *payload, size_t len)
{
    if (len != 4) {
        return GS_ERR_MALFORMED;
    }
    if (node->welcomed) {
        return gs_load_u32(payload) == node->state->rounds_done ? GS_OK : GS_ERR_STATE;
    }
    const gs_err_t err = continue_from(node, gs_load_u32(payload));
    node->welcomed = err == GS_OK;
    return err;
}

/* Check the shard that is now complete and choose the validation samples (SPEC.md 4.1). */
static gs_err_t take_shard(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const uint32_t samples = gs_load_u32(node->shard + 4);
    if (gs_load_u32(node->shard) != node->id || samples < 2 || samples > config->shard_max ||
        node->shard_total != shard_bytes(config, samples)) {
        return GS_ERR_SHARD;
    }
    node->samples = config->test;
    node->samples.labels = node->shard + 8;
    node->samples.features = node->shard + 8 + (samples + 3) / 4 * (size_t)4;
    for (uint32_t i = 0; i < samples; ++i) {
        if (node->samples.labels[i] >= config->nn.dims[config->nn.layers]) {
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
    if (total < 8 || total > shard_bytes(&node->config, node->config.shard_max) ||
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
        tell_number(node, GS_MESSAGE_ACK, node->shard_held);
    }
    return err;
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

/* --- a round (SPEC.md 4.3) -------------------------------------------------------------------------------------- */

static gs_err_t on_round(gs_node_t *node, uint32_t round)
{
    if (round == node->round && (node->sharing_done || is_committed(node))) {
        tell_number(node, GS_MESSAGE_DONE, 0);
        return GS_OK;
    }
    if (node->phase != GS_PHASE_IDLE || node->sharing_done) {
        return round == node->round && node->phase != GS_PHASE_STOPPED ? GS_OK : GS_ERR_STATE;
    }
    if (!node->welcomed || !node->provisioned || round < node->state->rounds_done || round >= node->config.rounds) {
        return GS_ERR_STATE;
    }
    memset(node->policy, 0, gs_policy_bytes(&node->config));
    node->round = round;
    node->sharing_done = false;
    gs_lr_begin_round(&node->state->rate, &node->config, round);
    node->counters[GS_METRIC_LR] = gs_bits_of(node->state->rate.lr);
    memcpy(node->start, node->w, node->config.parameters * sizeof(float));
    if (node->average) {
        memset(node->average, 0, node->config.parameters * sizeof(float));
    }
    node->batch_draw = 0;
    node->train_loss = 0.0f;
    node->val_loss = 0.0f;
    node->val_correct = 0;
    node->test_loss = 0.0f;
    node->test_correct = 0;
    node->cursor = 0;
    node->phase = GS_PHASE_TRAIN;
    return GS_OK;
}

/* Take the next mini-batch of the round's endless stream (SPEC.md 4.2). */
static const uint16_t *next_batch(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const uint16_t *training = node->lists + node->n_val;
    uint16_t *deck = node->lists + config->shard_max;
    uint16_t *rows = deck + config->shard_max;
    gs_rng_t rng;
    gs_rng_init(&rng, config->seed, GS_STREAM_BATCH, node->round, node->id);
    for (uint32_t s = 0; s < config->batch; ++s) {
        const uint32_t draw = node->batch_draw++;
        const uint32_t t = draw % node->n_train;
        if (t == 0) {
            memcpy(deck, training, node->n_train * sizeof *deck);
        }
        const uint32_t j = t + gs_rng_below(gs_rng_at(&rng, draw), node->n_train - t);
        rows[s] = deck[j];
        deck[j] = deck[t];
        deck[t] = rows[s];
    }
    return rows;
}

static void add_score(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const float beta = config->score_ema;
    const float rest = 1.0f - beta;
    for (uint32_t p = 0; p < config->parameters; ++p) {
        const float g = node->gradient[p];
        const float term = config->score == GS_SCORE_GRADIENT ? gs_absf(g)
                           : config->score == GS_SCORE_TAYLOR ? gs_absf(node->w[p] * g)
                                                              : g * g;
        node->average[p] = beta * node->average[p] + rest * term;
    }
}

static void end_training(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const size_t bytes = config->parameters * sizeof(float);
    node->train_loss = node->train_loss / (float)config->local_steps;
    for (uint32_t p = 0; p < config->parameters; ++p) {
        if (!gs_is_finite(node->w[p])) {
            memcpy(node->w, node->start, bytes);
            if (node->velocity) {
                memset(node->velocity, 0, bytes);
            }
            if (node->average) {
                memset(node->average, 0, bytes);
            }
            node->counters[GS_METRIC_DIVERGED] = 1;
            break;
        }
    }
    node->cursor = 0;
    node->phase = GS_PHASE_VALIDATE;
}

static void train_step(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const uint16_t *rows = next_batch(node);
    const float loss =
        gs_nn_gradient(&config->nn, node->w, &node->samples, rows, config->batch, node->gradient, node->scratch);
    node->train_loss = node->train_loss + loss;
    if (node->average) {
        add_score(node);
    }
    gs_nn_update(config->parameters, node->w, node->velocity, node->gradient, node->state->rate.lr, config->momentum,
                 config->weight_decay);
    if (++node->cursor == config->local_steps) {
        end_training(node);
    }
}

/* Evaluate the next few validation samples; returns whether all are done. */
static bool validate_some(gs_node_t *node, uint32_t *cursor, float *loss, uint32_t *correct)
{
    const gs_config_t *config = &node->config;
    const uint32_t count = gs_min_u32(config->batch, node->n_val - *cursor);
    gs_nn_evaluate(&config->nn, node->w, &node->samples, node->lists + *cursor, 0, count, loss, correct, node->scratch);
    *cursor += count;
    if (*cursor < node->n_val) {
        return false;
    }
    if (node->n_val) {
        *loss = *loss / (float)node->n_val;
    }
    return true;
}

void gs_node_validate(gs_node_t *node, float *loss, uint32_t *correct)
{
    uint32_t cursor = 0;
    *loss = 0.0f;
    *correct = 0;
    while (!validate_some(node, &cursor, loss, correct)) {
    }
}

static void share(gs_node_t *node)
{
    const gs_policy_t *policy = gs_policy_get(node->config.policy);
    node->success = node->n_val ? (float)node->val_correct / (float)node->n_val : 1.0f;
    gs_lr_see_loss(&node->state->rate, &node->config, node->train_loss);
    if (policy->share && node->state->peers) {
        policy->share(node);
    }
    node->sharing_done = true;
    node->phase = GS_PHASE_IDLE;
    tell_number(node, GS_MESSAGE_DONE, 0);
}

static void answer(gs_node_t *node)
{
    const gs_policy_t *policy = gs_policy_get(node->config.policy);
    if (policy->answer) {
        policy->answer(node);
    }
    node->phase = GS_PHASE_IDLE;
    tell_number(node, GS_MESSAGE_DONE, 1);
}

static void count_reassembly(gs_node_t *node)
{
    node->counters[GS_METRIC_DROPPED_REASSEMBLY] += node->reassembly.dropped;
    node->reassembly.dropped = 0;
}

static void merge(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    gs_merge_commit(node);
    gs_reassembly_close(&node->reassembly);
    count_reassembly(node);
    node->cursor = is_tested(node) ? 0 : config->test_count;
    node->phase = GS_PHASE_EVALUATE;
}

static void evaluate_some(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const uint32_t count = gs_min_u32(config->batch, config->test_count - node->cursor);
    if (count) {
        gs_nn_evaluate(&config->nn, node->w, &config->test, NULL, node->cursor, count, &node->test_loss,
                       &node->test_correct, node->scratch);
        node->cursor += count;
        if (node->cursor < config->test_count) {
            return;
        }
        node->test_loss = node->test_loss / (float)config->test_count;
    }
    node->state->rounds_done = node->round + 1;
    node->sharing_done = false;
    node->phase = GS_PHASE_IDLE;
    save_checkpoint(node);
    make_report(node);
    tell_metrics(node);
}

bool gs_node_step(gs_node_t *node)
{
    switch (node->phase) {
    case GS_PHASE_TRAIN:
        train_step(node);
        break;
    case GS_PHASE_VALIDATE:
        if (validate_some(node, &node->cursor, &node->val_loss, &node->val_correct)) {
            node->phase = GS_PHASE_SHARE;
        }
        break;
    case GS_PHASE_SHARE:
        share(node);
        break;
    case GS_PHASE_ANSWER:
        answer(node);
        break;
    case GS_PHASE_MERGE:
        merge(node);
        break;
    case GS_PHASE_EVALUATE:
        evaluate_some(node);
        break;
    default:
        break;
    }
    return node->phase != GS_PHASE_IDLE && node->phase != GS_PHASE_STOPPED;
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
    if (is_committed(node) && node->reported) { /* after a restart the measurements are gone */
        tell_metrics(node);
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
        return on_round(node, frame->round);
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
    count_reassembly(node);
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
