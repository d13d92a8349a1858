/* One node of an experiment, sans-IO: frames come in by gs_node_on_frame(), work is done by gs_node_step(), frames and
   checkpoints go out through the port. The node neither blocks, nor allocates, nor owns a clock.

   A round under a coordinator: ROUND starts training and sharing, which gs_node_step() carries out and ends with DONE 0;
   SYNC (only needed by policies that pull) has pulls answered and ends with DONE 1; COMMIT merges, evaluates, saves a
   checkpoint and ends with METRICS. Data frames of round r are taken from ROUND r to COMMIT r.

   Start: gs_node_init() sends HELLO; WELCOME, PROVISION until the shard is whole, and PEERS must come before the first
   ROUND. WELCOME and PEERS have no answer but ERROR. PROVISION must fit one frame. */
#ifndef GS_NODE_H
#define GS_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gs_config.h"
#include "gs_lr.h"
#include "gs_merge.h"
#include "gs_policy.h"
#include "gs_wire.h"

#define GS_CHECKPOINT_SLOTS 2u
#define GS_ERROR_TEXT_MAX 120u

typedef enum { GS_LOG_ERROR, GS_LOG_WARNING, GS_LOG_INFO } gs_log_t;

/* What a node asks of its place. Callbacks may not call back into the same node. */
typedef struct {
    void *ctx;

    /* Take a frame of at most `mtu` bytes; it is the callee's only until it returns. Loss is allowed. */
    void (*send)(void *ctx, const uint8_t *frame, size_t len);

    /* Keep `len` bytes under a slot below GS_CHECKPOINT_SLOTS, whole or not at all; len 0 forgets the slot.
       GS_OK or any error. NULL: no checkpoints. */
    gs_err_t (*kv_put)(void *ctx, uint32_t slot, const uint8_t *data, size_t len);

    /* Copy what a slot holds into `data` and return its length; 0 if it holds nothing or more than `capacity`.
       NULL exactly if kv_put is. */
    size_t (*kv_get)(void *ctx, uint32_t slot, uint8_t *data, size_t capacity);

    /* Microseconds from any origin; only for logs. May be NULL. */
    uint64_t (*now_us)(void *ctx);

    /* Take a line without its end; `level` is a gs_log_t. May be NULL. */
    void (*log)(void *ctx, int level, const char *text);
} gs_port_t;

/* A named piece of the arena, for people who ask where the memory goes. */
typedef struct {
    const char *name;
    size_t bytes;
} gs_arena_part_t;

#define GS_ARENA_PARTS_MAX 24u
#define GS_ARENA_ALIGN 8u

/* Bytes of arena that an experiment needs; SIZE_MAX if no address space holds them. `parts` NULL, or room for
   GS_ARENA_PARTS_MAX: the non-empty parts in order of place, *n_parts of them. Their sum is the result. */
size_t gs_node_arena_bytes(const gs_config_t *config, gs_arena_part_t *parts, size_t *n_parts);

typedef enum {
    GS_PHASE_HELLO,     /* waits for WELCOME */
    GS_PHASE_PROVISION, /* waits for its shard */
    GS_PHASE_IDLE,      /* between rounds */
    GS_PHASE_TRAIN,
    GS_PHASE_VALIDATE,
    GS_PHASE_OFFER, /* ranks and draws */
    GS_PHASE_SEND,
    GS_PHASE_SHARED, /* DONE 0 is sent */
    GS_PHASE_ANSWER, /* answers pulls */
    GS_PHASE_ANSWERED, /* DONE 1 is sent */
    GS_PHASE_VERIFY,
    GS_PHASE_MERGE,
    GS_PHASE_TEST,
    GS_PHASE_REPORT,
    GS_PHASE_STOPPED
} gs_phase_t;

/* What outlives a round, in front of the other kept parts of the arena: together they are the checkpoint. */
typedef struct {
    uint32_t magic;
    uint32_t bytes; /* of the checkpoint */
    uint32_t crc;   /* of all behind it */
    uint32_t image_crc;
    uint32_t id;
    uint32_t rounds; /* committed */
    uint32_t data_seq;
    uint32_t degree;
    uint32_t cursor;
    uint32_t waiting; /* messages in the FIFO */
    gs_lr_t lr;
} gs_keep_t;

/* A node. Fields are the core's own; read them through the functions below. */
typedef struct {
    gs_config_t config;
    const gs_policy_t *policy;
    gs_port_t port;
    gs_hmac_key_t key;
    size_t arena_bytes;
    gs_phase_t phase;
    uint32_t control_seq;
    gs_window_t control_window;
    uint32_t slot_rounds[GS_CHECKPOINT_SLOTS]; /* committed in each checkpoint; 0: none */
    uint32_t next_slot;
    uint32_t continued; /* rounds that WELCOME named */

    gs_keep_t *keep; /* the arena begins here */
    gs_peer_t *peers;
    float *w;
    float *velocity;
    float *residual;
    float *reference;
    gs_fifo_t fifo;
    float *start;
    float *gradient;
    float *average;
    float *scratch; /* and, in other phases, the message being sent, behind room for its header */
    gs_reassembly_t reassembly;
    gs_share_t share;
    uint16_t *rows; /* [batch] */
    uint8_t *shard;
    uint16_t *order; /* [n] validation, then training samples */
    uint16_t *deck;  /* [n_train] the partial shuffle of SPEC.md 4.2 */

    size_t shard_total;
    size_t shard_held;
    gs_samples_t samples;
    uint32_t n_val;
    uint32_t n_train;

    uint32_t round;
    uint32_t step; /* progress within a phase */
    uint32_t place;
    gs_rng_t batch_rng;
    float loss;
    uint32_t correct;
    float val_loss;
    gs_merge_t merge;
    bool answered;   /* DONE 1 of this round is sent */
    size_t out_len;  /* message in `scratch`; 0: none */
    uint16_t out_part;
    uint32_t metrics[GS_METRIC_WORDS]; /* of the round under way; floats as bits */
    uint32_t report[GS_METRIC_WORDS + 2 * GS_LAYERS_MAX]; /* of the last one */
} gs_node_t;

/* Start a node. `image` (aligned or not) and `arena` (aligned to GS_ARENA_ALIGN) must outlive it; `port` is copied.
   Sends HELLO. GS_ERR_ARENA, or an error of gs_config_load(); nothing is sent then. */
gs_err_t gs_node_init(gs_node_t *node, uint16_t id, const uint8_t key[GS_KEY_BYTES], const gs_port_t *port,
                      const uint8_t *image, size_t image_len, void *arena, size_t arena_len);

/* Say HELLO again, for ports whose coordinator may come late. Does nothing after WELCOME. */
void gs_node_hello(gs_node_t *node);

/* Take one frame, valid or not; it is not kept. GS_OK: taken, or a repeated one that was answered again.
   GS_ERR_FRAME: dropped and counted, nothing else changed. Other errors: a control message that does not fit, answered
   by ERROR. */
gs_err_t gs_node_on_frame(gs_node_t *node, const uint8_t *frame, size_t len);

/* Do one bounded piece of work: a training step, a chunk of an evaluation, a message. True: more work waits. */
bool gs_node_step(gs_node_t *node);

/* Count runs of bytes that were no frame (gs_cobs_t's garbage, since the last call). */
void gs_node_note_garbage(gs_node_t *node, uint32_t runs);

gs_phase_t gs_node_phase(const gs_node_t *node);
static inline bool gs_node_is_stopped(const gs_node_t *node)
{
    return node->phase == GS_PHASE_STOPPED;
}

/* Rounds committed. */
uint32_t gs_node_rounds(const gs_node_t *node);

/* The weights, gs_node_parameters() of them. */
const float *gs_node_weights(const gs_node_t *node);
uint32_t gs_node_parameters(const gs_node_t *node);

/* Words counted since the last METRICS, by GS_METRIC_...; floats as bits. */
const uint32_t *gs_node_metrics(const gs_node_t *node);

/* All that outlives a round, as the next checkpoint would hold it (its CRC is set then). */
const uint8_t *gs_node_state(const gs_node_t *node, size_t *len);

#endif
