#include "gs_crc.h"
#include "gs_node_internal.h"

#define CHECKPOINT_MAGIC 0x4b435347u /* "GSCK" */
#define MESSAGE_BYTES_MIN 384u       /* METRICS of GS_LAYERS_MAX layers fit */

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
    PART_OPTIMIZER,
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

size_t gs_memory_shard_bytes(const gs_config_t *config, uint32_t samples)
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
    const size_t floats = config->model.parameters * sizeof(float);
    const size_t fifo = config->fifo;
    const size_t listed = 2 * (size_t)config->shard_max + config->batch;
    parts[PART_STATE] = (gs_arena_part_t){"state", sizeof(checkpoint_t) + sizeof(gs_state_t)};
    parts[PART_WEIGHTS] = (gs_arena_part_t){"weights", floats};
    parts[PART_OPTIMIZER] = (gs_arena_part_t){
        "optimizer", gs_optimizer_floats(&config->optimizer, config->model.parameters) * sizeof(float)};
    parts[PART_RESIDUAL] = (gs_arena_part_t){"residual", config->error_feedback ? floats : 0};
    parts[PART_REFERENCE] = (gs_arena_part_t){"reference", config->policy == GS_POLICY_TOPK ? floats : 0};
    parts[PART_FIFO] =
        (gs_arena_part_t){"fifo", aligned(fifo * sizeof(uint32_t)) + fifo * gs_policy_message_bytes(config)};
    parts[PART_PEERS] = (gs_arena_part_t){"peers", config->peers_max * sizeof(gs_peer_t)};
    parts[PART_START] = (gs_arena_part_t){"round start", floats};
    parts[PART_GRADIENT] = (gs_arena_part_t){"gradient", floats};
    parts[PART_AVERAGE] = (gs_arena_part_t){"score average", keeps_average(config) ? floats : 0};
    /* Nothing is sent while a batch is in work, and no activation is needed after it: they share their place. */
    parts[PART_ACTIVATIONS] = (gs_arena_part_t){
        "activations, outgoing", greater(gs_nn_scratch_floats(&config->model, config->batch) * sizeof(float),
                                         aligned(message_bytes(config)) + config->mtu)};
    parts[PART_SHARD] = (gs_arena_part_t){"shard", gs_memory_shard_bytes(config, config->shard_max)};
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

void gs_memory_lay_out(gs_node_t *node)
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
    node->optimizer = FLOATS(PART_OPTIMIZER);
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
    node->place_bytes = gs_policy_message_bytes(config);
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

void gs_memory_save(gs_node_t *node)
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
uint32_t gs_memory_load(gs_node_t *node, uint32_t slot)
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

void gs_memory_start_anew(gs_node_t *node)
{
    memset(node->arena, 0, node->checkpoint_bytes);
    gs_nn_init(&node->config.model, node->config.init, node->config.seed, node->w);
    gs_optimizer_reset(&node->config.optimizer, node->config.model.parameters, node->optimizer);
    if (node->reference) {
        memcpy(node->reference, node->w, node->config.model.parameters * sizeof(float));
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
gs_err_t gs_memory_continue(gs_node_t *node, uint32_t rounds)
{
    const gs_window_t coordinator = node->state->coordinator;
    const uint32_t control_seq = node->state->control_seq;
    const uint32_t slot = node->slot_rounds[1] == rounds;
    gs_err_t err = GS_OK;
    if (rounds == 0) {
        forget(node, 0);
        forget(node, 1);
        gs_memory_start_anew(node);
    } else if (node->slot_rounds[slot] != rounds || gs_memory_load(node, slot) != rounds) {
        err = GS_ERR_CHECKPOINT;
        gs_memory_start_anew(node);
    } else {
        node->slot = !slot;
        node->round = rounds - 1;
    }
    node->state->coordinator = coordinator;
    node->state->control_seq = control_seq;
    return err;
}
