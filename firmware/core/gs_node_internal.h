/* What the files of the node share with each other and with nobody else. */
#ifndef GS_NODE_INTERNAL_H
#define GS_NODE_INTERNAL_H

#include "gs_bytes.h"
#include "gs_math.h"
#include "gs_nn.h"
#include "gs_node.h"
#include "gs_units.h"

enum {
    GS_PHASE_IDLE,
    GS_PHASE_TRAIN,
    GS_PHASE_VALIDATE,
    GS_PHASE_SHARE,
    GS_PHASE_ANSWER,
    GS_PHASE_MERGE,
    GS_PHASE_EVALUATE,
    GS_PHASE_STOPPED,
};

struct gs_peer {
    gs_window_t window;
    uint32_t sends; /* of gist's spread `balanced` */
    uint16_t id;
    uint16_t unused;
};

struct gs_state {
    uint32_t rounds_done; /* the number of the last committed round + 1 */
    gs_lr_t rate;
    uint32_t data_seq;
    uint32_t control_seq;
    uint32_t fifo_head;
    uint32_t fifo_count;
    uint32_t peers;
    uint32_t cursor; /* of gist's spread `round_robin` */
    gs_window_t coordinator;
};

/* What distinguishes the policies. Add a row in gs_policy.c to add one; see docs/adding-a-policy.md. */
typedef struct {
    /* Make and send this round's messages; called with at least one peer. NULL: nothing is sent. */
    void (*share)(gs_node_t *node);
    /* Answer the pulls noted since; NULL: the policy has none. */
    void (*answer)(gs_node_t *node);
    /* Weight of a message whose header says `field`. */
    float (*message_weight)(const gs_node_t *node, float field);
    /* Weight of the node's own value; `others` is the sum of the messages' weights. */
    float (*own_weight)(const gs_node_t *node, float others);
    /* How messages name their coordinates: GS_CODING_RANGE (part k is the k-th of equal ranges), GS_CODING_MASK, or
       GS_CODING_BITMAP for units by number, in whichever coding is shorter. */
    uint8_t coding;
} gs_policy_t;

const gs_policy_t *gs_policy_get(uint32_t kind);

/* Parts a node may offer. */
uint32_t gs_policy_parts(const gs_config_t *config);

/* Bytes of node->policy, and of the longest message of data. */
size_t gs_policy_bytes(const gs_config_t *config);
size_t gs_policy_message_bytes(const gs_config_t *config);

/* Note a PULL. Returns GS_ERR_MALFORMED for what no encoder writes. */
gs_err_t gs_policy_on_pull(gs_node_t *node, uint32_t peer, const uint8_t *payload, size_t len);

/* A SEGMENT in wire form, taken apart. */
typedef struct {
    uint8_t coding;
    uint16_t part;
    float weight;
    float scale;
    const uint8_t *index;
    uint32_t index_bytes;
    const uint8_t *values;
} gs_segment_t;

/* Walk the coordinates of a segment. */
void gs_segment_walk(const gs_node_t *node, const gs_segment_t *segment, gs_walk_t *walk);

/* Check and queue a SEGMENT; counts what is rejected. Returns GS_ERR_MALFORMED for what no encoder writes. */
gs_err_t gs_merge_on_segment(gs_node_t *node, const uint8_t *payload, size_t len);

/* Merge what waits, if it is enough (SPEC.md 6.9). */
void gs_merge_commit(gs_node_t *node);

/* Place a node's parts in its arena. */
void gs_memory_lay_out(gs_node_t *node);

/* Bytes of a shard. */
size_t gs_memory_shard_bytes(const gs_config_t *config, uint32_t samples);

/* Set all that outlives a round to its start. */
void gs_memory_start_anew(gs_node_t *node);

/* Write a checkpoint; read one over the state (returns its rounds, 0 where there is none); continue from one. */
void gs_memory_save(gs_node_t *node);
uint32_t gs_memory_load(gs_node_t *node, uint32_t slot);
gs_err_t gs_memory_continue(gs_node_t *node, uint32_t rounds);

/* Take ROUND. */
gs_err_t gs_round_begin(gs_node_t *node, uint32_t round);

/* Whether the node's round is committed. */
bool gs_round_is_committed(const gs_node_t *node);

/* Send the report of the last committed round. */
void gs_round_tell_metrics(gs_node_t *node);

/* Move what reassembly dropped to the counters. */
void gs_round_count_reassembly(gs_node_t *node);

/* Send a control message to the coordinator. */
void gs_node_tell(gs_node_t *node, uint8_t type, const uint8_t *payload, size_t len);
void gs_node_tell_number(gs_node_t *node, uint8_t type, uint32_t number);

/* Send a message to `dst` in as many frames as it takes; counts data frames. */
void gs_node_send(gs_node_t *node, uint8_t type, uint16_t dst, const uint8_t *payload, size_t len);

/* Mean loss and correct predictions of w on the validation samples. */
void gs_node_validate(gs_node_t *node, float *loss, uint32_t *correct);

static inline uint32_t gs_min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

#endif
